"""A simulated processor: what rounds returns what another kernel could have returned.

A kernel sums in its own order and has its own exponential, so two processors part in the last
places. `Processor(seed)` is a torch dispatch mode that adds such noise, up to a unit or so in the
last place of the magnitudes that were added: |A|·|B| for a product. To be fair, the noise is drawn
from the result's own bits, the kind of work and the seed, so equal work gets equal noise; and what is
the same on every machine is left alone: data that only moves, IEEE add, multiply, divide and root,
one term or two, whole and short binary numbers whose sums are exact, a softmax whose exponentials
are one or nothing.

The mode sees every operation of ATen on its own thread, those of autograd's backward pass and of
optimizers too. It does not see Python's floats and `math`, NumPy, compiled graphs, or other threads
and processes; nor what happens inside one operation: a linear solver gets noise on what it is
given and on what it returns.
"""

import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

# The same bits on every machine: moved and chosen data, IEEE arithmetic, uniform draws.
EXACT = """
    _local_scalar_dense _to_copy _unsafe_view abs alias amax amin aminmax arange as_strided bernoulli cat
    ceil clamp clamp_max clamp_min clone constant_pad_nd copy cummax detach diag_embed diagonal
    diagonal_copy div embedding empty empty_like empty_strided expand eye fill flip floor full
    full_like gather im2col index index_select lift_fresh lift_fresh_copy masked_fill masked_select max maximum median min
    minimum mul nan_to_num native_dropout neg new_empty new_empty_strided new_full new_ones new_zeros nll_loss2d_backward nll_loss_backward ones
    ones_like permute rand rand_like reciprocal relu repeat reshape roll round rsub scalar_tensor scatter
    select select_backward set sgn sign slice slice_backward sort split split_with_sizes sqrt squeeze stack
    t threshold_backward topk transpose tril triu unbind unfold uniform unsqueeze view where zero
    zeros zeros_like
"""
# What else rounds: each by itself; where what was added is not worked out here; linear solvers.
POINTWISE = """
    cos elu erf exp exp2 expm1 gelu lgamma log log10 log1p log2 logaddexp normal randn randn_like rsqrt sigmoid silu sin
    softplus tan tanh
"""
BY_ROW = """
    _cdist_backward _cdist_forward _embedding_bag_forward_only _native_multi_head_attention convolution elu_backward embedding_dense_backward gelu_backward
    index_add lerp linspace mse_loss mse_loss_backward native_layer_norm native_layer_norm_backward prod
    scatter_add sigmoid_backward silu_backward softplus_backward tanh_backward
"""
SOLVERS = "_linalg_svd linalg_inv_ex linalg_lstsq linalg_qr linalg_solve_triangular"
POWERS_BY_MULTIPLYING = (-2, -1, -0.5, 0, 0.5, 1, 2, 3)  # as `x * x` is x², with IEEE operations

Given = dict[str, Any]
# The magnitudes that were added for each element of a result, and where it is the same everywhere;
# None where all of it is.
Rounding = tuple[Tensor, Tensor] | None
Rule = Callable[[Given, Tensor], Rounding]

NOTHING = torch.zeros((), dtype=torch.float64)
AT_ONCE = 2**17  # elements that get their noise at once, so that they stay in the cache


class Processor(TorchDispatchMode):
    """The processor of number `seed`. `perturbed` counts the calls whose result it changed, by name.

    `unknown` holds the names of operations that return floats and of which this file does not say
    whether they round.
    """

    supports_higher_order_operators = True

    def __init__(self, seed: int, report: Path | None = None):
        super().__init__()
        self.seed = seed
        self.report = report
        self.perturbed: Counter[str] = Counter()
        self.unknown: set[str] = set()
        self.entered = 0  # an operation that is made of others enters the mode once more

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # importing torch's compiler, to tell it to keep out, would take a second

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # what a compiled program fuses is no operation of ATen

    def __enter__(self):
        self.entered += 1
        return super().__enter__()

    def __exit__(self, *failure):
        super().__exit__(*failure)
        self.entered -= 1
        if self.report and not self.entered:  # once a block: to write takes longer than to compute
            counts = {"perturbed": self.perturbed, "unknown": sorted(self.unknown)}
            self.report.write_text(json.dumps(counts))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        # FlexAttention stays as it is: what it is compared with is shaken.
        if isinstance(func, HigherOrderOperator):
            return func(*args, **kwargs)
        name = _name(func)
        rule = RULES.get(name)
        if rule is _exact or func.is_view or func.namespace == "prim":  # prim asks for a device
            return func(*args, **kwargs)
        if rule is None:
            return self._decomposed(func, args, kwargs)
        if rule is _solved:
            args = [self._shaken(name, a) if _is_float(a) else a for a in args]
        given = _given(func, args, kwargs)
        results = func(*args, **kwargs)
        changed = [self._perturb(name, given, result) for result in _floats(results)]
        self.perturbed[name] += any(changed)
        return results

    def _decomposed(self, func, args, kwargs):
        """Run an operation that is made of others, so that each of them comes by here."""
        with self:
            results = func.decompose(*args, **kwargs)
        if results is not NotImplemented:
            return results
        results = func(*args, **kwargs)
        if any(True for _ in _floats(results)):
            self.unknown.add(str(func))
        return results

    def _perturb(self, name: str, given: Given, result: Tensor) -> bool:
        """Add noise to `result` in place; return whether a bit of it changed."""
        rounding = RULES[name](given, result)
        if rounding is None:
            return False
        noisy = _noisy(result, *rounding, self._salt(name))
        changed = bool(((noisy != result) & (result == result)).any())  # nan is not equal to nan
        result.copy_(noisy)
        return changed

    def _shaken(self, name: str, matrix: Tensor) -> Tensor:
        return _noisy(matrix, *_pointwise({}, matrix), self._salt(name))

    def _salt(self, name: str) -> int:
        name = KINDS.get(name, name)
        return zlib.crc32(f"{self.seed} {name}".encode()) << 20


def block_context() -> Processor:
    """Return the processor that the environment asks for; blocks run inside it.

    PROCESSOR_SEED is its number; PROCESSOR_REPORT names the file that says what it did.
    """
    return Processor(int(os.environ["PROCESSOR_SEED"]), Path(os.environ["PROCESSOR_REPORT"]))


def _name(func) -> str:
    """Return the name of an operation; one that writes in place is called as the one that does not."""
    name = func._schema.name.removeprefix("aten::")
    return name if name.endswith("__") else name.removesuffix("_")


def _given(func, args, kwargs) -> Given:
    """Return what the operation was given by name; copied, where it writes into what it was given."""
    arguments = func._schema.arguments
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given |= dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
    if not func._schema.is_mutable:
        return given
    return {name: v.clone() if isinstance(v, Tensor) else v for name, v in given.items()}


def _is_float(value) -> bool:
    counts = isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 0
    return counts and value.device.type == "cpu" and _has_numbers(value)


def _has_numbers(value: Tensor) -> bool:
    """Say whether a tensor is torch's own: a subclass, as `torch.export` traces with, may have none."""
    return type(value).__torch_dispatch__ == Tensor.__torch_dispatch__


def _floats(results) -> Iterator[Tensor]:
    results = results if isinstance(results, (tuple, list)) else [results]
    return (result for result in results if _is_float(result))


def _noisy(result: Tensor, magnitude: Tensor, exact: Tensor, salt: int) -> Tensor:
    """Return `result` with noise of up to a unit in the last place of `magnitude`.

    Only the binade of the magnitude counts, so that its own last bits do not move the noise; the
    factor keeps whole and half magnitudes off the border between two.
    """
    noisy = torch.empty(result.shape, dtype=result.dtype)
    flat = (result, magnitude.expand(result.shape), exact.expand(result.shape))
    parts = (part.reshape(-1).split(AT_ONCE) for part in flat)
    for to, value, added, same in zip(noisy.view(-1).split(AT_ONCE), *parts, strict=True):
        value = value.double() + 0.0  # -0 is 0
        change = _drawn_from(value, salt).mul_(torch.finfo(result.dtype).eps)
        change.mul_(_binade(added * 1.37)).masked_fill_(same, 0.0).nan_to_num_(0.0, 0.0, 0.0)
        to.copy_(change.add_(value))
    return noisy


def _drawn_from(value: Tensor, salt: int) -> Tensor:
    """Return a number from [-1, 1) for each float64, from its bits and `salt`: a hash by products."""
    bits = value.view(torch.int64) * -0x61C8864680B583EB
    bits.add_(salt)
    bits.bitwise_xor_(bits >> 32).mul_(-0x40A7B892E31B1A47)
    return bits.double().mul_(2.0**-63)


def _binade(x: Tensor) -> Tensor:
    """Return the power of two at or below |x|, for float64."""
    return (x.view(torch.int64) & (0x7FF << 52)).view(torch.float64)


def _unit(x: Tensor) -> Tensor:
    """Return the value of the last binary digit set in each element of a float64; of 0, infinity."""
    mantissa = (x.view(torch.int64) & ((1 << 52) - 1)).bitwise_or_(1 << 52)
    last = mantissa.bitwise_and_(-mantissa).double().mul_(2.0**-52).mul_(_binade(x))
    return last.masked_fill_(x == 0, torch.inf)


def _width(x: Tensor) -> Tensor:
    """Return 2 to the number of binary digits, less one, of each element; 1 for 0."""
    return (_binade(x) / _unit(x)).clamp_min(1.0)


def _short(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Say which elements have at most half of the binary digits of `dtype`."""
    digits = int(math.log2(_range(dtype))) // 2
    return (x.view(torch.int64) & ((1 << (53 - digits)) - 1)) == 0


def _range(dtype: torch.dtype) -> float:
    """Return how many units of its last place a float of `dtype` can count: 2²⁴ for float32."""
    return 2 / torch.finfo(dtype).eps


def _short_terms(first: Tensor, second: Tensor, dtype: torch.dtype) -> Tensor:
    """Say where the product of numbers of these widths needs no rounding."""
    return (first == 1) | (second == 1) | (4 * first * second <= _range(dtype))


# The rules: what was added, and what is exact. Each is given float64 copies where it computes.


def _product(first: Tensor, second: Tensor, result: Tensor, bias: Tensor | None = None) -> Rounding:
    """The rule of `first @ second + bias`."""
    if not first.shape[-1]:
        return None
    first, second, bound = first.double(), second.double(), _range(result.dtype)
    bias = NOTHING if bias is None else bias.double()
    magnitude = (first.abs() @ second.abs()).add_(bias.abs())
    # Whole units, in a range that counts them. The first terms say so at once for most products.
    exact = magnitude <= bound * _unit_of(first[..., :1], second[..., :1, :])
    if exact.any():
        exact = magnitude <= bound * torch.minimum(_unit_of(first, second), _unit(bias))
    if first.shape[-1] <= 2 or not (first.all() and second.all()):
        terms = (first != 0).double() @ (second != 0).double() + (bias != 0)
        exact |= terms <= 1
        if (terms == 2).any():
            widths = _width(first).amax(-1, keepdim=True), _width(second).amax(-2, keepdim=True)
            exact |= (terms == 2) & _short_terms(*widths, result.dtype)
    return _reach(magnitude.reshape(result.shape), result), exact.reshape(result.shape)


def _reach(magnitude: Tensor, result: Tensor) -> Tensor:
    """Return the magnitude whose last place is how far a sum of this magnitude may move.

    Kernels add numbers of 16 bits in float32, and round the sum once.
    """
    finer = torch.finfo(torch.float32).eps / torch.finfo(result.dtype).eps
    return magnitude if finer >= 1 else result.double().abs() + finer * magnitude


def _unit_of(first: Tensor, second: Tensor) -> Tensor:
    """Return the unit of which the terms of `first @ second` are multiples."""
    return _unit(first).amin(-1, keepdim=True) * _unit(second).amin(-2, keepdim=True)


def _exact(given: Given, result: Tensor) -> Rounding:
    return None


def _products(first: str, second: str, bias: str = "") -> Rule:
    """Return the rule of a product of the arguments of these names, a `bias` added to it."""

    def rule(given: Given, result: Tensor) -> Rounding:
        alpha, beta = given.get("alpha", 1), given.get("beta", 1)
        added = given[bias] * beta if bias and beta else None
        left = given[first] if alpha == 1 else given[first] * alpha
        return _product(left, given[second], result, added)

    return rule


def _mv(given: Given, result: Tensor) -> Rounding:
    return _product(given["self"], given["vec"][:, None], result)


def _dot(given: Given, result: Tensor) -> Rounding:
    return _product(given["self"][None], given["tensor"][:, None], result)


def _total(terms: Tensor, given: Given, result: Tensor) -> Rounding:
    """The rule of a sum of `terms` over the dimensions that were given."""
    if not terms.dim() or not terms.numel():
        return None
    terms, dims = terms.double(), given.get("dim")
    dims = tuple(range(terms.dim())) if dims in (None, []) else dims
    sizes = terms.abs()
    magnitude, largest = sizes.sum(dims), sizes.amax(dims)
    exact = magnitude <= _range(result.dtype) * _unit(terms).amin(dims)
    exact |= (terms != 0).sum(dims) <= 2
    exact |= magnitude - largest <= largest / _range(result.dtype) / 8  # one, and nothing beside it
    return _reach(magnitude.reshape(result.shape), result), exact.reshape(result.shape)


def _sum(given: Given, result: Tensor) -> Rounding:
    return _total(given["self"], given, result)


def _mean(given: Given, result: Tensor) -> Rounding:
    rounding = _sum(given, result)
    return rounding and (rounding[0] * (result.numel() / given["self"].numel()), rounding[1])


def _var(given: Given, result: Tensor) -> Rounding:
    """The rule of variances: of squares around the mean."""
    x, dims = given["self"], given.get("dim")
    centred = x - x.mean(dims, keepdim=True) if dims else x - x.mean()
    return _root_of(centred**2, given, result)


def _norm(given: Given, result: Tensor) -> Rounding:
    return _root_of(given["self"] ** 2, given, result)


def _root_of(squares: Tensor, given: Given, result: Tensor) -> Rounding:
    """The rule of what a sum of `squares` decides, as large as the result."""
    rounding = _total(squares, given, result)
    return rounding and (result.double().abs(), rounding[1])


def _cumsum(given: Given, result: Tensor) -> Rounding:
    x, dim = given["self"].double(), given["dim"]
    magnitude = x.abs().cumsum(dim)
    exact = magnitude <= _range(result.dtype) * _unit(x).cummin(dim).values
    return _reach(magnitude, result), exact | ((x != 0).cumsum(dim) <= 2)


def _added(given: Given, result: Tensor) -> Rounding:
    """The rule of a + alpha·b, which some kernels round once and others twice."""
    if given["alpha"] in (1, -1):
        return None
    first, second, alpha = (
        torch.as_tensor(given[name], dtype=result.dtype).double()
        for name in ("self", "other", "alpha")
    )
    exact = (first == 0) | (second == 0)
    exact = exact | _short_terms(_width(second), _width(alpha), result.dtype)
    return first.abs() + (alpha * second).abs(), exact


def _added_product(given: Given, result: Tensor) -> Rounding:
    """The rule of a + value·b·c and of a + value·b/c: what is added keeps its sign beside a zero."""
    first, term = given["self"].double(), given["tensor1"].double() * given["value"]
    second = given["tensor2"].double()
    term = term / second if given.get("divides") else term * second
    return first.abs() + term.abs(), (term == 0).expand(result.shape)


def _pointwise(given: Given, result: Tensor) -> Rounding:
    """The rule of exp, tanh and their like: a result of few digits, such as exp(0), is no chance."""
    value = result.double()
    return value.abs(), _short(value, result.dtype)


def _pow(given: Given, result: Tensor) -> Rounding:
    exponent = given["exponent"]
    by_multiplying = not isinstance(exponent, Tensor) and exponent in POWERS_BY_MULTIPLYING
    return None if by_multiplying else _pointwise(given, result)


def _one_or_nothing(weights: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Say for which rows along `dim` each exponential of a softmax is 1 or underflows to 0.

    The weights are those that the softmax gives in float64.
    """
    one = weights.amax(dim, keepdim=True)
    nothing = ~(weights > one * (torch.finfo(dtype).smallest_normal / 2**60))  # nan, too: all -inf
    return nothing.logical_or_(weights == one).all(dim, keepdim=True)


def _softmax(given: Given, result: Tensor) -> Rounding:
    weights, value = given["self"].double().softmax(given["dim"]), result.double()
    return value, _one_or_nothing(weights, given["dim"], result.dtype) | (value == 1)


def _log_softmax(given: Given, result: Tensor) -> Rounding:
    x, dim = given["self"].double(), given["dim"]
    below = x - x.amax(dim, keepdim=True)
    total = below.exp().sum(dim, keepdim=True)
    return below.abs() + total.log() + 1, total.to(result.dtype) == 1


def _logsumexp(given: Given, result: Tensor) -> Rounding:
    x, dims = given["self"].double(), given["dim"]
    largest = x.amax(dims, keepdim=True)
    total = (x - largest).exp().sum(dims, keepdim=True)
    magnitude, alone = largest.abs() + total.log() + 1, total.to(result.dtype) == 1
    return magnitude.reshape(result.shape), alone.reshape(result.shape)


def _softmax_backward(given: Given, result: Tensor) -> Rounding:
    if not result.dim():
        return None
    grad, weights, dim = given["grad_output"].double(), given["output"].double(), given["dim"]
    total, exact = _total(grad * weights, {"dim": [dim]}, result.select(dim, 0))
    magnitude = weights * (grad.abs() + total.unsqueeze(dim))
    return magnitude, exact.unsqueeze(dim)


def _log_softmax_backward(given: Given, result: Tensor) -> Rounding:
    grad, weights = given["grad_output"].double().abs(), given["output"].double().exp()
    magnitude = grad + weights * grad.sum(given["dim"], keepdim=True)
    return magnitude, magnitude == 0


def _picked(given: Given, result: Tensor) -> Rounding:
    """The rule of nll_loss: a mean of what the targets pick."""
    if given["target"].numel() <= 2 or not given["reduction"]:
        return None
    return result.double().abs(), torch.tensor(False)


def _for_each_query(given: Given, name: str) -> Tensor:
    """Return the keys or values with a head for each head of the queries, which may share them."""
    shared, heads = given[name], given["query"].size(-3)
    return shared.repeat_interleave(heads // shared.size(-3), dim=-3)


def _parts(given: Given, result: Tensor) -> Iterator[tuple[Given, Tensor]]:
    """Take a batch of attention apart, and its result, so that the scores of a part stay in the cache."""
    query, mask = given["query"], given["attn_mask"]
    texts = max(1, AT_ONCE // max(1, query[0, ..., 0].numel() * given["key"].size(-2)))
    split = {name: given[name].split(texts) for name in ("query", "key", "value")}
    own = mask is not None and mask.dim() == 4 and mask.size(0) > 1
    split["attn_mask"] = mask.split(texts) if own else [mask] * len(split["query"])
    for *values, part in zip(*split.values(), result.split(texts), strict=True):
        yield given | dict(zip(split, values, strict=True)), part


def _hidden(given: Given) -> Tensor:
    """Return what a scaled_dot_product_attention adds to its scores, in float64."""
    hidden = torch.zeros(given["query"].size(-2), given["key"].size(-2), dtype=torch.float64)
    if given["is_causal"]:
        hidden.masked_fill_(torch.ones_like(hidden, dtype=torch.bool).triu(1), -torch.inf)
    return hidden if given["attn_mask"] is None else hidden + given["attn_mask"].double()


def _weights(given: Given) -> tuple[Tensor, Tensor]:
    """Return the weights of a scaled_dot_product_attention, in float64, and what their scores add up to.

    A score without weight counts as 0, since it moves nothing.
    """
    query, key = given["query"].double(), _for_each_query(given, "key").double()
    scale = given["scale"] or query.shape[-1] ** -0.5
    weights = (query @ key.mT).mul_(scale).add_(_hidden(given)).softmax(-1)
    magnitude = (query.abs() @ key.abs().mT).mul_(scale)
    return weights, magnitude.masked_fill_(~(weights > 0), 0.0)  # nan, too: all -inf


def _attention(given: Given, result: Tensor) -> Rounding:
    """The rule of attention: of its last product, and of the scores, which move the weights."""
    rows = given["query"].shape[:-1]
    if result.shape != rows + given["value"].shape[-1:]:  # the log of the sums
        alone = (_hidden(given) > -torch.inf).sum(-1) <= 1
        return result.double().abs() + 1, alone.expand(rows).reshape(result.shape)
    added, exact = zip(*(_context(*part) for part in _parts(given, result)), strict=True)
    return torch.cat(added), torch.cat(exact)


def _context(given: Given, result: Tensor) -> tuple[Tensor, Tensor]:
    """Return for the context vectors of a part how far they may move, and which are exact."""
    weights, magnitude = _weights(given)
    value = _for_each_query(given, "value")
    exact = _one_or_nothing(weights, -1, result.dtype).expand(result.shape).clone()
    weights = weights.to(result.dtype)
    rows = exact.any(-1).flatten(0, -2).any(0)  # most have weights that no kernel knows exactly
    exact[..., rows, :] &= _product(weights[..., rows, :], value, result[..., rows, :])[1]
    added = weights.double() @ value.double().abs()
    return _inside(added, magnitude.amax(-1, keepdim=True), result), exact


def _inside(added: Tensor, scores: Tensor, result: Tensor) -> Tensor:
    """Return how far attention may move what adds up to `added`, from scores that add up to `scores`.

    A kernel keeps its scores in float32 at least, and hands its weights on in the dtype of the result.
    """
    return _reach(added * (1 + scores), result).maximum(added)


def _attention_backward(given: Given, result: Tensor) -> Rounding:
    """The rule of the gradients of attention: their greatest, times what the scores add up to."""
    largest = max(_weights(part)[1].amax() for part, _ in _parts(given, given["query"]))
    return _inside(result.double().abs().amax(), largest, result), result == 0


def _by_row(given: Given, result: Tensor) -> Rounding:
    """The rule where what was added is not worked out here: as large as the greatest of each row."""
    value = result.double()
    largest = value.abs().amax(-1, keepdim=True) if value.dim() else value.abs()
    return largest, _short(value, result.dtype)


def _index_put(given: Given, result: Tensor) -> Rounding:
    return _by_row(given, result) if given["accumulate"] else None


def _solved(given: Given, result: Tensor) -> Rounding:
    """The rule of solvers, which get noise on what they are given too: it grows as they make it."""
    return _by_row(given, result)


PRODUCTS: dict[str, Rule] = {
    "addmm": _products("mat1", "mat2", "self"),
    "baddbmm": _products("batch1", "batch2", "self"),
    "bmm": _products("self", "mat2"),
    "dot": _dot,
    "mm": _products("self", "mat2"),
    "mv": _mv,
}
SOFTMAXES: dict[str, Rule] = {"_safe_softmax": _softmax, "_softmax": _softmax}
RULES: dict[str, Rule] = (
    PRODUCTS
    | SOFTMAXES
    | {
        "_log_softmax": _log_softmax,
        "_log_softmax_backward_data": _log_softmax_backward,
        "_scaled_dot_product_flash_attention_for_cpu": _attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
        "_softmax_backward_data": _softmax_backward,
        "add": _added,
        "addcdiv": lambda given, result: _added_product(given | {"divides": True}, result),
        "addcmul": _added_product,
        "cumsum": _cumsum,
        "index_put": _index_put,
        "linalg_vector_norm": _norm,
        "logsumexp": _logsumexp,
        "mean": _mean,
        "nll_loss2d_forward": _picked,
        "nll_loss_forward": _picked,
        "pow": _pow,
        "std": _var,
        "sub": _added,
        "sum": _sum,
        "var": _var,
    }
    | dict.fromkeys(POINTWISE.split(), _pointwise)
    | dict.fromkeys(BY_ROW.split(), _by_row)
    | dict.fromkeys(SOLVERS.split(), _solved)
    | dict.fromkeys(EXACT.split(), _exact)
)
# Which work is equal: a product is one, in a batch or alone.
KINDS = dict.fromkeys(PRODUCTS, "product") | dict.fromkeys(SOFTMAXES, "softmax")
