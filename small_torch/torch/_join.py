"""Tensors put together, turned, repeated and compared; and what few pages ask for, found when one does."""

import builtins
import importlib

from torch._autograd import record, titled
from torch._dtypes import bool_, int64, promote_types
from torch._ops import compare, in_place, result_type
from torch._reduce import all, norm, places_of
from torch._signatures import FUNCTIONS, WHOLE, Kind, checked
from torch._tensor import (
    Size,
    Tensor,
    broadcast,
    checked_sizes,
    empty_of,
    function,
    method,
    place_of,
    run,
    shape_of,
    tensor,
    torch_only,
)


# Parts put together, turned and repeated.
@torch_only
def cat(tensors, dim=0):
    tensors = [*tensors]
    if not tensors:
        raise RuntimeError("torch.cat(): expected a non-empty list of Tensors")
    for place, each in enumerate(tensors):
        if not isinstance(each, Tensor):
            raise TypeError(
                f"expected Tensor as element {place} in argument 0, but got {type(each).__name__}"
            )
        if not each._shape:
            raise RuntimeError(
                f"zero-dimensional tensor (at position {place}) cannot be concatenated"
            )
    kind = tensors[0].dtype
    for each in tensors[1:]:
        kind = promote_types(kind, each.dtype)
    full = [each for each in tensors if each._shape != (0,)] or tensors[:1]
    dims = len(full[0]._shape)
    dim = place_of(dim, dims)
    for place, each in enumerate(full):
        if len(each._shape) != dims:
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {dims} and {len(each._shape)}"
            )
        for d in range(dims):
            if d != dim and each._shape[d] != full[0]._shape[d]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {full[0]._shape[d]} but got "
                    f"size {each._shape[d]} for tensor number {place} in the list."
                )
    shape = [*full[0]._shape]
    shape[dim] = builtins.sum(each._shape[dim] for each in full)
    made, at, cuts = empty_of(tuple(shape), kind), 0, []
    for each in full:
        size = each._shape[dim]
        cuts.append((at, size))
        if size:
            part = made.detach()
            part._shape = each._shape
            part._offset = at * made._stride[dim]
            if kind.kind == 3:
                part.copy_(each)
            else:
                run("copy", part, each)
        at += size
    backs = tuple(lambda g, at=at, size=size: g.narrow(dim, at, size) for at, size in cuts)
    return record(made, "CatBackward0", full, backs)


FUNCTIONS["concat"] = FUNCTIONS["concatenate"] = FUNCTIONS["cat"]


@torch_only
def stack(tensors, dim=0):
    tensors = [*tensors]
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    for place, each in enumerate(tensors):
        if each._shape != tensors[0]._shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0]._shape)} at entry 0 and "
                f"{list(each._shape)} at entry {place}"
            )
    at = place_of(dim, len(tensors[0]._shape), 1)
    return titled(cat([each.unsqueeze(dim) for each in tensors], at), "StackBackward0")


@torch_only
def hstack(tensors):
    if not tensors:
        raise RuntimeError("hstack expects a non-empty TensorList")
    tensors = [each if each.dim() else each.reshape(1) for each in tensors]
    return cat(tensors, 0 if tensors[0].dim() == 1 else 1)


@torch_only
def vstack(tensors):
    if not tensors:
        raise RuntimeError("vstack expects a non-empty TensorList")
    return cat([each if each.dim() > 1 else each.reshape(1, -1) for each in tensors], 0)


@function("flip")
def flip(input, *dims):
    dims = shape_of(dims)
    found = input.detach()
    for dim in places_of([*dims], len(input._shape)) if dims else ():
        size = input._shape[dim]
        turned = FUNCTIONS["arange"](size - 1, -1, -1) if size else FUNCTIONS["arange"](0)
        found = found.index_select(dim, turned)
    return record(
        found if dims else input.clone(), "FlipBackward0", (input,), lambda g: flip(g, *dims)
    )


@method
def repeat(self, *sizes):
    sizes = checked_sizes(shape_of(sizes))
    more = len(sizes) - len(self._shape)
    if more < 0:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    shape = (1,) * more + self._shape
    apart = self.reshape([part for size in shape for part in (1, size)])
    full = apart.expand(
        [part for size, times in zip(shape, sizes, strict=True) for part in (times, size)]
    )
    wide = [size * times for size, times in zip(shape, sizes, strict=True)]
    return titled(full.clone(memory_format="contiguous").reshape(wide), "RepeatBackward0")


@function("tile")
def tile(input, *dims):
    dims = shape_of(dims)
    return input.repeat((1,) * (len(input._shape) - len(dims)) + dims)


@function("repeat_interleave", repeats=Kind("int", (int,), lambda value: isinstance(value, Tensor)))
def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    if dim is None:
        input, dim = input.reshape(-1), 0
    size = input._shape[dim]
    if isinstance(repeats, Tensor):
        counts = repeats.tolist() if repeats._shape else [repeats.item()]
        counts = counts * size if len(counts) == 1 else counts
    else:
        counts = [repeats] * size
    places = [at for at, count in enumerate(counts) for _ in range(count)]
    found = input.index_select(dim, tensor(places, dtype=int64))
    return found if isinstance(repeats, Tensor) else titled(found, "ViewBackward0")


def _triangle(lower):
    def apply(input, diagonal=0):
        if input.dim() < 2:
            raise RuntimeError(
                f"{'tril' if lower else 'triu'}: input tensor must have at least 2 dimensions"
            )
        height, width = input._shape[-2:]
        row = FUNCTIONS["arange"](height).unsqueeze(1) + diagonal
        column = FUNCTIONS["arange"](width)
        keep = run("ge" if lower else "le", empty_of((height, width), bool_), row, column)
        out = run("where", empty_of(input._shape, input.dtype), keep, input, 0)
        title = "TrilBackward0" if lower else "TriuBackward0"
        return record(out, title, (input,), lambda g: apply(g, diagonal))

    return apply


tril, triu = function("tril")(_triangle(True)), function("triu")(_triangle(False))
in_place("tril", tril)
in_place("triu", triu)


@torch_only
def tril_indices(row, col, offset=0, *, dtype=int64, device=None):
    pairs = [(i, j) for i in range(row) for j in range(col) if j - i <= offset]
    return tensor([[i for i, _ in pairs], [j for _, j in pairs]], dtype=int64)


@torch_only
def triu_indices(row, col, offset=0, *, dtype=int64, device=None):
    pairs = [(i, j) for i in range(row) for j in range(col) if j - i >= offset]
    return tensor([[i for i, _ in pairs], [j for _, j in pairs]], dtype=int64)


@function("diag")
def diag(input, diagonal=0):
    if input.dim() == 2:
        return input.diagonal(diagonal).clone()
    if input.dim() != 1:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.dim()}D")
    return titled(diag_embed(input, diagonal), "DiagEmbedBackward0")


@function("diag_embed")
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    size = input._shape[-1] + builtins.abs(offset)
    found = input.new_zeros((*input._shape[:-1], size, size))
    found.diagonal(offset, -2, -1).copy_(input)
    return found


@function("trace")
def trace(input):
    return input.diagonal().sum()


@torch_only
def meshgrid(*tensors, indexing="ij"):
    tensors = tensors[0] if tensors and isinstance(tensors[0], list | tuple) else tensors
    count = len(tensors)
    if not count:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if builtins.any(each.dim() > 1 for each in tensors):
        raise RuntimeError("torch.meshgrid: Expected 0D or 1D tensor in the tensor list")
    if len({each.dtype for each in tensors}) > 1:
        raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    if indexing == "xy" and count > 1:
        found = [*meshgrid(tensors[1], tensors[0], *tensors[2:])]
        return tuple(each.transpose(0, 1) for each in (found[1], found[0], *found[2:]))
    shape = [each.numel() for each in tensors]
    return tuple(
        each.reshape([-1 if d == place else 1 for d in range(count)]).expand(shape)
        for place, each in enumerate(tensors)
    )


@torch_only
def cartesian_prod(*tensors):
    if len(tensors) == 1:
        return tensors[0]
    return stack([each.reshape(-1) for each in meshgrid(*tensors)], dim=-1)


@torch_only
def broadcast_tensors(*tensors):
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors
    shape = ()
    for each in tensors:
        shape = broadcast(shape, each._shape)
    return tuple(each.expand(shape) for each in tensors)


@torch_only
def broadcast_shapes(*shapes):
    found = ()
    for each in shapes:
        each = (each,) if isinstance(each, int) else tuple(each)
        try:
            found = broadcast(found, each)
        except RuntimeError:
            raise RuntimeError(
                "Shape mismatch: objects cannot be broadcast to a single shape"
            ) from None
    return Size(found)


# Whether tensors agree.
@function("allclose")
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@function("isclose")
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype.scalar} did not match {other.dtype.scalar}")
    for name, bound in (("rtol", rtol), ("atol", atol)):
        if not bound >= 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {bound}")
    a, b = input.detach(), other.detach()
    close = a == b
    if equal_nan:
        close = close | (a.isnan() & b.isnan())
    if a.dtype.kind == 2:
        far = (a - b).abs()
        close = close | (far.isfinite() & (far <= atol + rtol * b.abs()))
    elif a.dtype.kind == 1:
        close = close | ((a - b).abs() <= atol + rtol * b.abs().double())
    return close


@function("equal")
def equal(input, other):
    if not isinstance(other, Tensor):
        raise TypeError(
            f"equal(): argument 'other' (position 2) must be Tensor, not {type(other).__name__}"
        )
    if input._shape != other._shape:
        return False
    return bool(all(compare("eq", input.detach(), other.detach())))


@torch_only
def is_tensor(obj):
    return isinstance(obj, Tensor)


@function("is_nonzero")
def is_nonzero(input):
    return bool(input)


@torch_only
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    kind = result_type(x1, x2)
    if kind.kind < 2:
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {kind.scalar}"
        )
    x1, x2 = broadcast_tensors(x1.to(kind), x2.to(kind))
    return (x1 * x2).sum(dim=dim) / (
        norm(x1, 2, dim).clamp(min=eps) * norm(x2, 2, dim).clamp(min=eps)
    )


@function("corrcoef")
def corrcoef(input):
    found = cov(input)
    spread_ = found.diagonal().sqrt()
    return found / spread_.unsqueeze(0) / spread_.unsqueeze(1)


@function("cov")
def cov(input, *, correction=1):
    far = input - input.mean(dim=-1, keepdim=True)
    return far @ far.mT / (input._shape[-1] - correction)


# Methods of tensors that are functions of torch as well, or methods alone; all of them check what they are given.
for _name in (
    "reshape", "permute", "transpose", "swapaxes", "swapdims", "t", "unsqueeze", "squeeze", "flatten", "ravel", "unflatten", "narrow",
    "select", "unbind", "split", "chunk", "tensor_split", "diagonal", "movedim", "moveaxis", "clone", "broadcast_to", "numel",
    "is_floating_point", "is_complex", "as_strided", "detach",
):  # fmt: skip
    _wholes = {"select": ["index"], "narrow": ["start", "length"]}.get(_name, ())
    function(_name, **dict.fromkeys(_wholes, WHOLE))(vars(Tensor)[_name])
for _name in (
    "view",
    "view_as",
    "expand",
    "expand_as",
    "reshape_as",
    "unfold",
    "copy_",
    "contiguous",
    "to",
    "requires_grad_",
):
    setattr(Tensor, _name, checked(_name, vars(Tensor)[_name]))
FUNCTIONS["result_type"] = result_type
Tensor.new = Tensor.new_tensor


def _later(module, name):
    """Return a function of a module that is imported when one of its functions is called: few pages call any."""

    def apply(*args, **kwargs):
        return getattr(importlib.import_module(f"torch.{module}"), name)(*args, **kwargs)

    return apply


for _name in ("view_as_real", "view_as_complex", "polar", "complex_"):
    FUNCTIONS[_name.rstrip("_")] = _later("_complex", _name)
for _name in ("angle", "conj"):
    function(_name)(_later("_complex", _name))
for _name in ("diff", "kron", "roll", "unique"):
    function(_name)(_later("_rare", _name))
for _name in ("cdist", "einsum", "searchsorted"):
    FUNCTIONS[_name] = _later("_rare", _name)
_parts = _later("_complex", "parts")
Tensor.real = property(lambda self: _parts(self, self.dtype)[0] if self.dtype.kind == 3 else self)
Tensor.imag = property(lambda self: _parts(self, self.dtype)[1])
