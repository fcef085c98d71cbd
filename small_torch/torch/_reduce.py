"""What makes fewer numbers of many: sums, extremes, norms; and what runs along a dimension: scans, softmax, order."""

import builtins
import math
from typing import NamedTuple

from torch._autograd import OUT, needs_grad, record, titled
from torch._dtypes import bool_, int64
from torch._kernels import REDUCE, SCAN, call, js
from torch._ops import masked_fill, only_floats, where
from torch._signatures import ANYTHING, FUNCTIONS, TENSOR, WHOLE, lacks
from torch._tensor import Defaults, Tensor, empty_of, full, function, place_of, torch_only

_reduce, _scan, _softmax, _softmax_back, _sort = (
    js.reduce,
    js.scan,
    js.softmax,
    js.softmax_back,
    js.sort,
)


NOT_SAID = 0  # as `keepdim`: False, and nobody has said so


def places_of(dim, dims):
    """Return the places of one dimension, of several, or of all."""
    if dim is None or dim is ...:
        return tuple(range(dims))
    if isinstance(dim, int) or hasattr(dim, "__index__"):
        return (place_of(dim, dims),) if dims or place_of(dim, dims) else ()
    found = tuple(place_of(d, dims) for d in dim)
    if len({*found}) != len(found):
        twice = next(d for d in found if found.count(d) > 1)
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    return (found or tuple(range(dims))) if dims else ()


def as_dtype(input, dtype):
    """Return what is summed or multiplied, in the type that was asked for."""
    if dtype is None:
        return input
    if dtype.kind < 2 and needs_grad(input):
        raise RuntimeError(f"Autograd not support dtype: {dtype.scalar}")
    return input.to(dtype)


def _without_dim(name, dim, keepdim, nothing=None):
    """Refuse `keepdim` of a function that takes it with a dimension alone."""
    if dim is nothing and type(keepdim) is bool:
        raise TypeError(
            f"{name}() received an invalid combination of arguments: keepdim and no dim"
        )


def reduced(name, x, dims, keepdim, kind):
    """Return a reduction of `x` over `dims`, places that `places_of` has made."""
    shape, stride = x._shape, x._stride
    if len(dims) == len(shape):
        kept, inner = (), (*shape, *stride)
        short = (1,) * len(shape) if keepdim else ()
    else:
        keep = [d for d in range(len(shape)) if d not in dims]
        kept = (*[shape[d] for d in keep], *[stride[d] for d in keep])
        inner = (*[shape[d] for d in dims], *[stride[d] for d in dims])
        short = (
            tuple([1 if d in dims else size for d, size in enumerate(shape)])
            if keepdim
            else kept[: len(keep)]
        )
    out = empty_of(short, kind)
    if 0 not in kept[: len(kept) // 2]:
        place, code = x._storage.base + x._offset, x.dtype.code
        call(
            _reduce, REDUCE[name], out._storage.base, kind.code, place, code,
            len(kept) // 2, len(inner) // 2, *kept, *inner,
        )  # fmt: skip
    return out


def wide(gradient, shape, dims, keepdim):
    """Return the gradient of a sum, for what was summed."""
    if not keepdim:
        gradient = gradient.reshape(
            tuple([1 if d in dims else size for d, size in enumerate(shape)])
        )
    return gradient.expand(shape)


@function("sum")
def sum(input, dim=..., keepdim=NOT_SAID, *, dtype=None):
    _without_dim("sum", dim, keepdim, ...)
    input = as_dtype(input, dtype)
    kind = dtype or (input.dtype if input.dtype.kind > 1 else int64)
    dims, shape = places_of(dim, len(input._shape)), input._shape
    if kind.kind == 3:
        from torch import _complex

        return _complex.sum(input, dims, keepdim)
    out = reduced("sum", input, dims, keepdim, kind)
    title = "SumBackward0" if dim is ... else "SumBackward1"
    return record(out, title, (input,), lambda g: wide(g, shape, dims, keepdim))


@function("mean")
def mean(input, dim=..., keepdim=NOT_SAID, *, dtype=None):
    _without_dim("mean", dim, keepdim, ...)
    input = input if dtype is None else input.to(dtype)
    if input.dtype.kind < 2:
        which, given = ("Input", input.dtype) if dtype is None else ("Optional", dtype)
        raise RuntimeError(
            f"mean(): could not infer output dtype. {which} dtype must be either a floating point or complex dtype. "
            f"Got: {given.scalar}"
        )
    dims, shape = places_of(dim, len(input._shape)), input._shape
    out = reduced("mean", input, dims, keepdim, input.dtype)
    count = math.prod(shape[d] for d in dims)
    title = "MeanBackward0" if dim is ... else "MeanBackward1"
    return record(out, title, (input,), lambda g: wide(g / count, shape, dims, keepdim))


def _products_of_others(x, dims):
    """Return for each number the product of all others over `dims`, right where some are 0 as well."""
    order = [d for d in range(len(x._shape)) if d not in dims] + [*dims]
    turned = x.permute(order)
    row = turned.reshape((*turned._shape[: len(order) - len(dims)], -1))
    one = row.narrow(-1, 0, 1) * 0 + 1 if row._shape[-1] else row
    one = one.detach().new_ones(one._shape)
    size = row._shape[-1]
    if not size:
        return x
    cat = FUNCTIONS["cat"]
    before = cat([one, row.narrow(-1, 0, size - 1)], -1).cumprod(-1)
    after = cat([one, row.flip(-1).narrow(-1, 0, size - 1)], -1).cumprod(-1).flip(-1)
    found = (before * after).reshape(turned._shape)
    return found.permute([order.index(d) for d in range(len(order))])


@function("prod", dim=WHOLE)
def prod(input, dim=None, keepdim=NOT_SAID, *, dtype=None):
    _without_dim("prod", dim, keepdim)
    input = as_dtype(input, dtype)
    kind = dtype or (input.dtype if input.dtype.kind > 1 else int64)
    dims, shape = places_of(dim, len(input._shape)), input._shape
    out = reduced("prod", input, dims, keepdim, kind)

    def back(g, x, o):
        above = wide(g, shape, dims, keepdim)
        if bool((x.detach() == 0).any()) or needs_grad(g, x):
            return above * _products_of_others(x, dims)
        return wide(g * o, shape, dims, keepdim) / x

    return record(out, f"ProdBackward{int(dim is not None)}", (input,), back, input, OUT)


def _extreme(name, title=None):
    def apply(input, dim=None, keepdim=False):
        dims, shape = places_of(dim, len(input._shape)), input._shape
        if input.numel() == 0 and builtins.any(shape[d] == 0 for d in dims):
            raise IndexError(f"{name}(): Expected reduction dim {dims[0]} to have non-zero size.")
        out = reduced(name, input, dims, keepdim, input.dtype)

        def back(g, x, o):
            full = wide(o, shape, dims, keepdim)
            most = (x == full) | ((x != x) & (full != full))
            return wide(g, shape, dims, keepdim) * most / most.sum(dim=dims, keepdim=True)

        return record(out, title or f"{name.title()}Backward0", (input,), back, input, OUT)

    return apply


amax, amin = function("amax")(_extreme("amax")), function("amin")(_extreme("amin"))


def _place(name):
    def apply(input, dim=None, keepdim=False):
        if dim is None:
            flat = input.reshape(-1)
            if not flat._shape[0]:
                raise IndexError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
                    "dim with the 'dim' argument."
                )
            found = reduced(name, flat, (0,), False, int64)
            return found.reshape((1,) * len(input._shape)) if keepdim else found
        dims = places_of(dim, len(input._shape))
        if not dims:
            return empty_of((), int64)
        if input._shape[dims[0]] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {dims[0]} to have non-zero size.")
        return reduced(name, input, dims, keepdim, int64)

    return apply


def _public_place(name):
    place = _place(name)

    @function(name, dim=WHOLE)
    def apply(input, dim=None, keepdim=False):
        if input.dtype is bool_:
            raise RuntimeError(f"{name}(): does not support bool input")
        return place(input, dim, keepdim)

    return apply


argmax, argmin = _public_place("argmax"), _public_place("argmin")


class Found(NamedTuple):
    values: Tensor
    indices: Tensor


def named_pair(name):
    """Return a kind of tuple that prints as PyTorch's does."""

    class Pair(Found):
        def __repr__(self):
            return f"torch.return_types.{name}(\nvalues={self.values!r},\nindices={self.indices!r})"

    Pair.__name__ = Pair.__qualname__ = name
    return Pair


def _most(name, other):
    place, kind = _place(f"arg{name}"), named_pair(name)
    extreme = _extreme(f"a{name}", f"{name.title()}Backward1")

    @function(name, dim=ANYTHING)
    def apply(input, dim=None, keepdim=NOT_SAID):
        if isinstance(dim, Tensor):
            return FUNCTIONS[other](input, dim)
        _without_dim(name, dim, keepdim)
        if dim is None:
            if not input.numel():
                raise RuntimeError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
                    "dim with the 'dim' argument."
                )
            return extreme(input)
        if not isinstance(dim, int) or isinstance(dim, bool):
            raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")
        if not input._shape:
            place_of(dim, 0)
            return kind(titled(input.clone(), f"{name.title()}Backward0"), empty_of((), int64))
        indices = place(input, dim, True)
        values = titled(input.gather(dim, indices), f"{name.title()}Backward0")
        if not keepdim:
            values = titled(values.squeeze(dim), f"{name.title()}Backward0")
            indices = indices.squeeze(dim)
        return kind(values, indices)

    return apply


max = _most("max", "maximum")
min = _most("min", "minimum")


@function("any")
def any(input, dim=None, keepdim=False):
    return _truth("any", input, dim, keepdim)


@function("all")
def all(input, dim=None, keepdim=False):
    return _truth("all", input, dim, keepdim)


def _truth(name, input, dim, keepdim):
    kind = input.dtype if input.dtype.name == "uint8" else bool_
    if isinstance(dim, tuple | list) and not dim:
        return input.bool().to(kind)
    return reduced(name, input, places_of(dim, len(input._shape)), keepdim, kind)


@function("count_nonzero")
def count_nonzero(input, dim=None):
    return reduced("count_nonzero", input, places_of(dim, len(input._shape)), False, int64)


def _spread_about(input, dim, unbiased, keepdim, correction):
    """Return the variance, and what its gradient is made of."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        _without_dim("var", dim, keepdim)
    if input.dtype.kind < 2:
        raise RuntimeError("std and var only support floating point and complex dtypes")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    dims = places_of(dim, len(input._shape))
    left = builtins.max(math.prod(input._shape[d] for d in dims) - correction, 0)
    if isinstance(dim, tuple | list) and not dim and needs_grad(input):
        raise lacks("the gradient of var and std with dim=()")
    far = input.detach().to(_double) if input.dtype.itemsize < 8 else input.detach()
    far = far - far.mean(dim=dims, keepdim=True)
    keepdim = bool(keepdim)
    found = far.square().sum(dim=dims, keepdim=keepdim) / left

    def back(g, x):
        gradient = wide(g, input._shape, dims, keepdim)
        if not left:
            return gradient * math.nan * x
        return (2.0 / left) * gradient * (x - x.mean(dim=dims, keepdim=True))

    return found, back


from torch._dtypes import float64 as _double  # noqa: E402


@function("var", dim=ANYTHING)
def var(input, dim=None, unbiased=None, keepdim=NOT_SAID, *, correction=None):
    found, back = _spread_about(input, dim, unbiased, keepdim, correction)
    return record(found.to(input.dtype), "VarBackward0", (input,), back, input)


@function("std", dim=ANYTHING)
def std(input, dim=None, unbiased=None, keepdim=NOT_SAID, *, correction=None):
    found, of_var = _spread_about(input, dim, unbiased, keepdim, correction)

    def back(g, x, o):
        return of_var(masked_fill(g / (o * 2), o == 0, 0.0), x)

    return record(found.sqrt().to(input.dtype), "StdBackward0", (input,), back, input, OUT)


@torch_only
def var_mean(input, dim=None, *, unbiased=None, correction=None, keepdim=False):
    return _with_mean("VarMeanBackward0", var, input, dim, unbiased, keepdim, correction)


@torch_only
def std_mean(input, dim=None, *, unbiased=None, correction=None, keepdim=False):
    return _with_mean("StdMeanBackward0", std, input, dim, unbiased, keepdim, correction)


def _with_mean(title, spread, input, dim, unbiased, keepdim, correction):
    found = spread(input, dim, unbiased, keepdim, correction=correction)
    mean = input.mean(dim=dim if dim is not None else [], keepdim=keepdim)
    return titled(found, title), titled(mean, title)


@function("norm")
def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    input = input if dtype is None else input.to(dtype)
    if input.dtype.kind < 2:
        raise RuntimeError(
            f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {input.dtype.scalar}"
        )
    if isinstance(p, str) and p != "fro":
        raise lacks(f"norm(p={p!r})")
    dims, shape = places_of(dim, len(input._shape)), input._shape
    title = "LinalgVectorNormBackward0"
    if p in (2, 2.0, "fro"):
        out = reduced("norm", input, dims, keepdim, input.dtype)

        def back(g, x, o):
            full = wide(o, shape, dims, keepdim)
            return wide(g, shape, dims, keepdim) * masked_fill(x / full, full == 0, 0.0)

        return record(out, title, (input,), back, input, OUT)
    size = input.abs()
    if p == math.inf:
        return titled(amax(size, dims, keepdim), title)
    if p == -math.inf:
        return titled(amin(size, dims, keepdim), title)
    if p == 0:
        found = (input != 0).to(input.dtype).sum(dim=dims, keepdim=keepdim)
        return record(found, title, (input,), lambda g: None)
    if p == 1:
        return titled(size.sum(dim=dims, keepdim=keepdim), title)
    return titled((size**p).sum(dim=dims, keepdim=keepdim) ** (1 / p), title)


@function("logsumexp")
def logsumexp(input, dim, keepdim=False):
    dims, shape = places_of(dim, len(input._shape)), input._shape
    input = input if input.dtype.kind > 1 else input.to(Defaults.dtype)
    x = input.detach()
    most = 0.0
    if input.numel():
        most = amax(x, dims, True)
        most = masked_fill(most, most.abs() == math.inf, 0.0)
    out = (x - most).exp().sum(dim=dims, keepdim=True).log() + most
    if not keepdim:
        out = out.squeeze(dims)

    def back(g, x, o):
        return wide(g, shape, dims, keepdim) * (x - wide(o, shape, dims, keepdim)).exp()

    return record(out.detach(), "LogsumexpBackward0", (input,), back, input, OUT)


@function("median", dim=WHOLE)
def median(input, dim=None, keepdim=NOT_SAID):
    if dim is None:
        _without_dim("median", dim, keepdim)
        flat = input.reshape(-1)
        if not flat._shape[0]:
            kind = input.dtype
            return full((), math.nan if kind.kind == 2 else kind.least, dtype=kind)
        nans = flat[flat != flat]
        ordered = sort(flat)[0]
        return titled(
            nans[0] if len(nans) else ordered[(flat._shape[0] - 1) // 2], "MedianBackward0"
        )
    if not input._shape:
        return named_pair("median")(titled(input.clone(), "MedianBackward1"), empty_of((), int64))
    values, indices = sort(input, dim)
    size = input._shape[dim]
    if not size:
        raise IndexError(f"median(): Expected reduction dim {dim} to have non-zero size.")
    values, indices = (
        values.narrow(dim, (size - 1) // 2, 1),
        indices.narrow(dim, (size - 1) // 2, 1),
    )
    if not keepdim:
        values, indices = values.squeeze(dim), indices.squeeze(dim)
    return named_pair("median")(titled(values, "MedianBackward1"), indices)


# Scans.
def scanned(name, x, dim, kind):
    dim = place_of(dim, len(x._shape))
    if not x._shape:
        return x.detach().clone().to(kind)
    out = empty_of(x._shape, kind)
    if 0 in x._shape:
        return out
    order = [d for d in range(len(x._shape)) if d != dim] + [dim]
    call(
        _scan, SCAN[name], out._storage.base, kind.code, x._storage.base + x._offset, x.dtype.code, len(order),
        *[x._shape[d] for d in order], *[x._stride[d] for d in order], *[out._stride[d] for d in order],
    )  # fmt: skip
    return out


def _from_the_end(x, dim):
    """Return the sums of each number and of all that follow it."""
    return x.flip(dim).cumsum(dim).flip(dim) if x._shape else x


@function("cumsum", dim=WHOLE)
def cumsum(input, dim, *, dtype=None):
    kind = dtype or (input.dtype if input.dtype.kind > 1 else int64)
    input = as_dtype(input, kind)
    out = scanned("cumsum", input, dim, kind)
    return record(out, "CumsumBackward0", (input,), lambda g: _from_the_end(g, dim))


@function("cumprod", dim=WHOLE)
def cumprod(input, dim, *, dtype=None):
    kind = dtype or (input.dtype if input.dtype.kind > 1 else int64)
    input = as_dtype(input, kind)
    out = scanned("cumprod", input, dim, kind)

    def back(g, x, o):
        if not x._shape:
            return g
        if not needs_grad(g, x):
            zeros = (x == 0).cumsum(dim)
            before, between = zeros == 0, zeros == 1
            first = between & (x == 0)
            found = _from_the_end((g * o).masked_fill(~before, 0.0), dim) / x
            after = where(between & ~first, x, 1.0).cumprod(dim) * where(between, g, 0.0)
            of_first = after.sum(dim, True) * where(before, x, 1.0).prod(dim, True)
            return where(before, found, where(first, of_first, 0.0))
        # Row i has x with a 1 at i: the products from i on are those of which number i is a factor, without it.
        row = x.movedim(dim, -1)
        size = row._shape[-1]
        one = FUNCTIONS["eye"](size, dtype=bool_)
        products = where(one, 1.0, row.unsqueeze(-2)).cumprod(-1).triu()
        return (products * g.movedim(dim, -1).unsqueeze(-2)).sum(-1).movedim(-1, dim)

    return record(out, "CumprodBackward0", (input,), back, input, OUT)


@function("logcumsumexp", dim=WHOLE)
def logcumsumexp(input, dim):
    only_floats("logcumsumexp_out_cpu", input)
    out = scanned("logcumsumexp", input, dim, input.dtype)

    def back(g, x, o):
        return _from_the_end(g * (-o).exp(), dim) * x.exp()

    return record(out, "LogcumsumexpBackward0", (input,), back, input, OUT)


def _running(name):
    kind = named_pair(name)

    @function(name, dim=WHOLE)
    def apply(input, dim):
        at = place_of(dim, len(input._shape))
        if not input._shape:
            return kind(titled(input.clone(), f"{name.title()}Backward0"), empty_of((), int64))
        values = scanned(name, input, dim, input.dtype)
        along = FUNCTIONS["arange"](input._shape[at]).reshape(
            [-1 if d == at else 1 for d in range(input.dim())]
        )
        x = input.detach()
        indices = scanned("cummax", where((x == values) | (x != x), along, -1), dim, int64)
        if needs_grad(input):
            values = titled(input.gather(dim, indices), f"{name.title()}Backward0")
        return kind(values, indices)


_running("cummax")
_running("cummin")


# Softmax.
def _rows_last(x, dim):
    return x if dim == len(x._shape) - 1 else x.transpose(dim, -1)


def softmaxed(x, dim, logs, kind):
    dim = place_of(dim, len(x._shape))
    if not x._shape:
        return softmaxed(x.reshape(1), 0, logs, kind).reshape(())
    turned = _rows_last(x.detach(), dim)
    out = empty_of(turned._shape, kind)
    if 0 not in turned._shape:
        call(
            _softmax, out._storage.base, kind.code, x._storage.base + x._offset, x.dtype.code, len(x._shape), int(logs),
            *turned._shape, *turned._stride,
        )  # fmt: skip
    if turned._shape is not x._shape and dim != len(x._shape) - 1:
        out = out.transpose(dim, -1).clone(memory_format="contiguous")
    return out


def _softmax_function(name, logs):
    title = "LogSoftmaxBackward0" if logs else "SoftmaxBackward0"

    @function(name, dim=WHOLE)
    def apply(input, dim, dtype=None):
        x = input if dtype is None else input.to(dtype)
        at = place_of(dim, len(x._shape))
        if x.numel():
            only_floats(f"{'log_' if logs else ''}softmax_lastdim_kernel_impl", x)
        out = softmaxed(x, at, logs, x.dtype)
        return record(out, title, (x,), lambda g, o: softmax_back(g, o, at, logs), OUT)

    return apply


softmax = _softmax_function("softmax", False)
log_softmax = _softmax_function("log_softmax", True)


def softmax_back(g, o, dim, logs):
    """Return the gradient of softmax, or of its logarithm, given its output."""
    if needs_grad(g, o) or not o._shape:
        at = [dim] if o._shape else []
        if logs:
            return g - o.exp() * g.sum(dim=at, keepdim=True)
        return o * (g - (g * o).sum(dim=at, keepdim=True))
    last = dim == len(o._shape) - 1
    g, o = (
        (g.contiguous(), o.contiguous())
        if last
        else (g.transpose(dim, -1).contiguous(), o.transpose(dim, -1).contiguous())
    )
    out = empty_of(o._shape, o.dtype)
    if 0 not in o._shape:
        n = o._shape[-1]
        call(
            _softmax_back, out._storage.base, out.dtype.code, g._storage.base + g._offset, g.dtype.code,
            o._storage.base + o._offset, o.dtype.code, math.prod(o._shape) // n, n, int(logs),
        )  # fmt: skip
    return out if last else out.transpose(dim, -1)


# Order.
def ordered(input, dim, descending):
    """Return the numbers in order along a dimension, and where each was."""
    place_of(dim, len(input._shape))
    if not input._shape:
        return input.clone(), empty_of((), int64)
    dim = place_of(dim, len(input._shape))
    turned = _rows_last(input.detach(), dim).contiguous()
    values, indices = empty_of(turned._shape, input.dtype), empty_of(turned._shape, int64)
    n = turned._shape[-1]
    if 0 not in turned._shape:
        call(
            _sort, values._storage.base, indices._storage.base, turned._storage.base + turned._offset, input.dtype.code,
            turned.numel() // n, n, int(descending),
        )  # fmt: skip
    if dim != len(input._shape) - 1:
        values = values.transpose(dim, -1).contiguous()
        indices = indices.transpose(dim, -1).contiguous()
    return values, indices


@function("sort", dim=WHOLE)
def sort(input, dim=-1, descending=False, stable=False):
    values, indices = ordered(input, dim, descending)
    if needs_grad(input):
        values = titled(input.gather(dim, indices), "SortBackward0")
    return named_pair("sort")(values, indices)


@function("argsort", dim=WHOLE)
def argsort(input, dim=-1, descending=False, stable=False):
    return ordered(input, dim, descending)[1]


@function("topk", dim=WHOLE)
def topk(input, k, dim=-1, largest=True, sorted=True):
    at = place_of(dim, len(input._shape))
    if input.dtype is bool_:
        raise RuntimeError("topk does not support bool dtypes on CPU")
    size = input._shape[at] if input._shape else 1
    if not 0 <= k <= size:
        raise RuntimeError("selected index k out of range")
    values, indices = ordered(input, dim, largest)
    if not input._shape:
        values = titled(values, "TopkBackward0") if k else values.reshape((0,))
        return named_pair("topk")(values, indices)
    indices = indices.narrow(dim, 0, k).contiguous()
    if k and _has_ties(values, at, k):
        from torch import _rare

        indices = _rare.ties(input.detach(), at, k, largest)
    return named_pair("topk")(titled(input.gather(dim, indices), "TopkBackward0"), indices)


def _has_ties(values, dim, k):
    """Say whether among the first `k` numbers and the next one, in order, two are equal."""
    more = builtins.min(k + 1, values._shape[dim]) - 1
    first, second = values.narrow(dim, 0, more), values.narrow(dim, 1, more)
    return bool((first == second).any()) if first.numel() else False


@function("bincount", weights=TENSOR)
def bincount(input, weights=None, minlength=0):
    if input.dtype.kind != 1:
        raise NotImplementedError(f"\"bincount_cpu\" not implemented for '{input.dtype.scalar}'")
    if input.dim() != 1 or (input.numel() and bool((input < 0).any())):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = builtins.max(int(input.max()) + 1 if input.numel() else 0, minlength)
    found = empty_of((size,), int64 if weights is None else weights.dtype)
    source = weights if weights is not None else FUNCTIONS["ones"](input._shape, dtype=int64)
    return found.index_add_(0, input, source)
