"""What is computed of tensors, and the gradients of it."""

import builtins
import importlib
import math
from array import array
from typing import NamedTuple

from torch import _dtypes
from torch._autograd import Mode, node_of, record, record_in_place, wanted
from torch._dtypes import bool_, float64, int64, promote_types
from torch._kernels import REDUCE, SCAN, call, js
from torch._tensor import (
    FUNCTIONS,
    NUMBERS,
    Defaults,
    Size,
    Tensor,
    broadcast,
    check_in_place,
    empty_of,
    function,
    like_rows,
    method,
    place_of,
    run,
    shape_of,
    spread,
    tensor,
    torch_only,
)
from torch.amp import State, cast

_reduce, _scan, _matmul, _softmax, _softmax_back, _sort = (
    js.reduce,
    js.scan,
    js.matmul,
    js.softmax,
    js.softmax_back,
    js.sort,
)

KIND_OF = {bool: bool_, int: int64, float: None, complex: _dtypes.complex64}


def result_type(a, b):
    """Return the type of what two tensors, or a tensor and a number, make together."""
    if type(a) in KIND_OF:
        a, b = b, a
    kind = a.dtype
    if isinstance(b, Tensor):
        other = b.dtype
        if other is kind:
            return kind
        if bool(a._shape) == bool(b._shape):
            return promote_types(kind, other)
        if not a._shape:
            kind, other = other, kind
        return kind if other.kind <= kind.kind else promote_types(kind, other)
    level = 2 if type(b) is float else 0 if type(b) is bool else 3 if type(b) is complex else 1
    if level <= kind.kind:
        return kind
    if level == 3:
        return _dtypes.complex128 if kind is float64 else _dtypes.complex64
    return Defaults.dtype if level == 2 else int64


def _number(value):
    """Return a number of Python for what may be one of another kind."""
    if type(value) in KIND_OF:
        return value
    if isinstance(value, int | float):
        return float(value) if isinstance(value, float) else int(value)
    return None


def sum_to(gradient, shape):
    """Sum a gradient over what was broadcast from `shape`."""
    if gradient._shape == shape:
        return gradient
    more = len(gradient._shape) - len(shape)
    dims = [*range(more)]
    dims += [
        d + more for d, size in enumerate(shape) if size == 1 and gradient._shape[d + more] != 1
    ]
    found = gradient.sum(dim=dims, keepdim=True)
    return found.reshape(shape) if more else found


@method
def sum_to_size(self, *size):
    return sum_to(self, shape_of(size))


# Pairs. For each: the gradients for a and for b, of the gradient from above, a, b and the output.
PAIRS = {
    "add": (lambda g, a, b, o: g, lambda g, a, b, o: g),
    "sub": (lambda g, a, b, o: g, lambda g, a, b, o: -g),
    "mul": (lambda g, a, b, o: g * b, lambda g, a, b, o: g * a),
    "div": (lambda g, a, b, o: g / b, lambda g, a, b, o: -g * a / (b * b)),
    "pow": (
        lambda g, a, b, o: (
            g * (b * a ** (b - 1))
            if not isinstance(b, Tensor)
            else where(b == 0, 0.0, g * b * a ** (b - 1))
        ),
        lambda g, a, b, o: (
            g
            * where(
                (a == 0) & (b >= 0),
                0.0,
                o * (math.log(a) if not isinstance(a, Tensor) else a.log()),
            )
        ),
    ),
    "maximum": (lambda g, a, b, o: _half(g, a, b, "gt"), lambda g, a, b, o: _half(g, a, b, "lt")),
    "minimum": (lambda g, a, b, o: _half(g, a, b, "lt"), lambda g, a, b, o: _half(g, a, b, "gt")),
    "atan2": (
        lambda g, a, b, o: g * b / (a * a + b * b),
        lambda g, a, b, o: -g * a / (a * a + b * b),
    ),
    "logaddexp": (lambda g, a, b, o: g * (a - o).exp(), lambda g, a, b, o: g * (b - o).exp()),
    "remainder": (lambda g, a, b, o: g, lambda g, a, b, o: -g * (a / b).floor()),
    "floor_divide": None,
    "trunc_divide": None,
}
SAVES = {
    "add": "",
    "sub": "",
    "mul": "ab",
    "div": "ab",
    "maximum": "ab",
    "minimum": "ab",
    "atan2": "ab",
    "remainder": "ab",
    "fmod": "ab",
}
TITLES = {
    "add": "AddBackward0", "sub": "SubBackward0", "mul": "MulBackward0", "div": "DivBackward0", "pow": "PowBackward0",
    "maximum": "MaximumBackward0", "minimum": "MinimumBackward0", "atan2": "Atan2Backward0", "logaddexp": "LogaddexpBackward0",
    "remainder": "RemainderBackward0",
}  # fmt: skip


def _half(g, a, b, how):
    """Return the gradient where a, or b, was the greater; half of it where both are equal."""
    other = b if isinstance(b, Tensor) else a * 0 + b
    share = getattr(a, how)(other).to(g.dtype) + (a == other).to(g.dtype) * 0.5
    return g * share


def pair(name, a, b, kind=None):
    """Compute `name` of two operands, one of them a tensor; `kind` is the type of the result."""
    a_number, b_number = type(a) in KIND_OF, type(b) in KIND_OF
    if not a_number and not isinstance(a, Tensor):
        a = _operand(a, name)
        a_number = not isinstance(a, Tensor)
    if not b_number and not isinstance(b, Tensor):
        b = _operand(b, name)
        b_number = not isinstance(b, Tensor)
    if a_number and b_number:
        a, a_number = tensor(a), False
    kind = kind or result_type(a, b)
    if kind.kind == 3:
        from torch import _complex

        return _complex.pair(name, a, b, kind)
    if a_number:
        out = empty_of(b._shape, kind)
        out._stride = like_rows(b)
    elif b_number:
        out = empty_of(a._shape, kind)
        out._stride = like_rows(a)
    else:
        shape = broadcast(a._shape, b._shape)
        out = empty_of(shape, kind)
        if len(shape) > 1:
            out._stride = like_rows(a if a._shape == shape else b if b._shape == shape else out)
        if kind is not float64 and kind.kind == 2:
            a = a if a.dtype is not float64 else _cast(a, kind)
            b = b if b.dtype is not float64 else _cast(b, kind)
    run(name, out, a, b)
    return recorded_pair(name, out, a, b)


def recorded_pair(name, out, a, b):
    tensors = [x for x in (a, b) if isinstance(x, Tensor)]
    backs = PAIRS.get(name)
    if not backs or out.dtype.kind < 2 or not wanted(*tensors):
        return out
    first, second = backs
    saves = SAVES.get(name, "abo")
    for_a, for_b = (
        ([isinstance(x, Tensor) and wanted(x) for x in (a, b)])
        if saves in ("ab",)
        else (True, True)
    )
    # A factor is kept for the gradient of the other; a divisor for both.
    kept = [
        a if "a" in saves and for_b else None,
        b if "b" in saves and (for_a or name == "div") else None,
    ]
    result = _output_of(out) if "o" in saves else None

    def back_a(g, a_, b_, o):
        return _fitted(first(g, a_, b_, o), a)

    def back_b(g, a_, b_, o):
        return _fitted(second(g, a_, b_, o), b)

    record(out, TITLES.get(name, name), (a, b), (back_a, back_b), *kept, result)
    return _tie(out, result)


def _fitted(gradient, like):
    gradient = sum_to(gradient, like._shape)
    return gradient if gradient.dtype is like.dtype else gradient.to(like.dtype)


def _cast(x, kind):
    return x.to(kind)


def _output_of(out):
    """Return a stand-in for an output that its own backward pass needs; `_tie` gives it the node."""
    return out.detach()


def _tie(out, result):
    if result is not None:
        result._node, result._output = out._node, 0
    return out


def _operand(value, name):
    number = _number(value)
    if number is None:
        raise TypeError(
            f"{name}(): argument 'other' (position 1) must be Tensor, not {type(value).__name__}"
        )
    return number


def _sensible(other):
    return isinstance(other, Tensor | int | float | complex)


@function("add")
def add(input, other, *, alpha=1):
    return (
        pair("add", input, other)
        if alpha == 1
        else pair("add", input, other * alpha, result_type(input, other))
    )


@function("sub", "subtract")
def sub(input, other, *, alpha=1):
    if builtins.all(
        isinstance(x, bool) or getattr(x, "dtype", None) is bool_ for x in (input, other)
    ):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
        )
    if getattr(input, "dtype", None) is bool_ or getattr(other, "dtype", None) is bool_:
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )
    return (
        pair("sub", input, other)
        if alpha == 1
        else pair("sub", input, other * alpha, result_type(input, other))
    )


@function("mul", "multiply")
def mul(input, other):
    return pair("mul", input, other)


@function("div", "divide", "true_divide")
def div(input, other, *, rounding_mode=None):
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return pair("trunc_divide", input, other)
    kind = (
        result_type(input, other)
        if isinstance(input, Tensor) or isinstance(other, Tensor)
        else None
    )
    return pair("div", input, other, Defaults.dtype if kind and kind.kind < 2 else kind)


@function("floor_divide")
def floor_divide(input, other):
    kind = result_type(input, other)
    zero = (
        other == 0 if not isinstance(other, Tensor) else kind.kind < 2 and bool((other == 0).any())
    )
    if kind.kind < 2 and zero:
        raise RuntimeError("ZeroDivisionError")
    return pair("floor_divide", input, other)


@function("remainder")
def remainder(input, other):
    kind = result_type(input, other)
    zero = (
        other == 0 if not isinstance(other, Tensor) else kind.kind < 2 and bool((other == 0).any())
    )
    if kind.kind < 2 and zero:
        raise RuntimeError("ZeroDivisionError")
    return pair("remainder", input, other)


@function("pow")
def pow(input, exponent):
    if type(exponent) in NUMBERS and isinstance(input, Tensor):
        if exponent == 2 and input.dtype.kind == 2:
            return input.square()
        if input.dtype.kind < 2 and isinstance(exponent, int) and exponent < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
    return pair("pow", input, exponent)


for _name in ("maximum", "minimum", "atan2", "logaddexp"):
    function(_name)(
        lambda input, other, _name=_name: pair(_name, input, other, _floats(_name, input, other))
    )
FUNCTIONS["arctan2"] = FUNCTIONS["atan2"]


def _floats(name, a, b):
    kind = result_type(a, b)
    return Defaults.dtype if name in ("atan2", "logaddexp") and kind.kind < 2 else kind


def compare(name, a, b):
    if not _sensible(b):
        if name in ("eq", "ne"):
            return NotImplemented
        raise TypeError(
            f"'{SIGNS[name]}' not supported between instances of 'Tensor' and '{type(b).__name__}'"
        )
    if isinstance(b, Tensor):
        shape = broadcast(a._shape, b._shape)
    else:
        shape = a._shape
        if a.dtype.kind == 2 and a.dtype is not float64 and b == b and abs(b) < a.dtype.most:
            b = tensor(b, dtype=a.dtype)
    return run(name, empty_of(shape, bool_), a, b)


SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
for _name in SIGNS:
    function(_name)(lambda input, other, _name=_name: compare(_name, input, other))
for _name, _same in {
    "greater": "gt",
    "less": "lt",
    "greater_equal": "ge",
    "less_equal": "le",
    "not_equal": "ne",
}.items():
    function(_name)(FUNCTIONS[_same])
for _name in ("logical_and", "logical_or", "logical_xor"):
    function(_name)(
        lambda input, other, _name=_name: run(
            _name, empty_of(broadcast(input._shape, other._shape), bool_), input, other
        )
    )


@function("logical_not")
def logical_not(input):
    return run("logical_not", empty_of(input._shape, bool_), input)


def _bitwise(name):
    logic = {
        "bitwise_and": "logical_and",
        "bitwise_or": "logical_or",
        "bitwise_xor": "logical_xor",
    }.get(name)
    sign = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}.get(name)

    def apply(input, other):
        kind = result_type(input, other)
        if kind.kind > 1:
            raise NotImplementedError(
                f"\"{name}_cpu\" not implemented for '{input._kind_name()[:-6]}'"
            )
        return (
            pair(logic if kind is bool_ else name, input, other, kind)
            if sign
            else pair(name, input, other, kind)
        )

    return apply


for _name in (
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
):
    function(_name)(_bitwise(_name))


@function("bitwise_not")
def bitwise_not(input):
    if input.dtype.kind > 1:
        raise NotImplementedError(
            f"\"bitwise_not_cpu\" not implemented for '{input._kind_name()[:-6]}'"
        )
    return run(
        "logical_not" if input.dtype is bool_ else "bitwise_not",
        empty_of(input._shape, input.dtype),
        input,
    )


# One operand. For each: the gradient, of that from above, the input and the output.
SINGLE_FLOAT = {
    "exp": lambda g, x, o: g * o,
    "exp2": lambda g, x, o: g * o * math.log(2),
    "expm1": lambda g, x, o: g * (o + 1),
    "log": lambda g, x, o: g / x,
    "log2": lambda g, x, o: g / (x * math.log(2)),
    "log10": lambda g, x, o: g / (x * math.log(10)),
    "log1p": lambda g, x, o: g / (x + 1),
    "sqrt": lambda g, x, o: g / (2 * o),
    "rsqrt": lambda g, x, o: -0.5 * g * o**3,
    "reciprocal": lambda g, x, o: -g * o * o,
    "sin": lambda g, x, o: g * x.cos(),
    "cos": lambda g, x, o: -g * x.sin(),
    "tan": lambda g, x, o: g * (1 + o * o),
    "asin": lambda g, x, o: g * (1 - x * x).rsqrt(),
    "acos": lambda g, x, o: -g * (1 - x * x).rsqrt(),
    "atan": lambda g, x, o: g / (1 + x * x),
    "sinh": lambda g, x, o: g * x.cosh(),
    "cosh": lambda g, x, o: g * x.sinh(),
    "tanh": lambda g, x, o: _fused("tanh_back", g, o, lambda: g * (1 - o * o)),
    "sigmoid": lambda g, x, o: _fused("sigmoid_back", g, o, lambda: g * o * (1 - o)),
    "erf": lambda g, x, o: g * (2 / math.sqrt(math.pi)) * (-x * x).exp(),
    "softplus": lambda g, x, o: g * x.sigmoid(),
}
SINGLE_SAME = {
    "neg": lambda g, x, o: -g,
    "abs": lambda g, x, o: g * x.sign(),
    "square": lambda g, x, o: g * (2 * x),
    "floor": lambda g, x, o: g * 0,
    "ceil": lambda g, x, o: g * 0,
    "trunc": lambda g, x, o: g * 0,
    "sign": lambda g, x, o: g * 0,
    "relu": lambda g, x, o: _fused("relu_back", g, o, lambda: g * (o > 0)),
    "silu": lambda g, x, o: _fused("silu_back", g, x, lambda: _silu_slope(g, x)),
    "gelu": lambda g, x, o: _fused("gelu_back", g, x, lambda: _gelu_slope(g, x)),
    "gelu_tanh": lambda g, x, o: run("gelu_tanh_back", empty_of(g._shape, g.dtype), g, x),
}
NOTHING_KEPT = {"neg", "floor", "ceil", "trunc", "sign", "round"}
OUTPUT_ALONE = {
    "exp",
    "exp2",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "tan",
    "tanh",
    "sigmoid",
    "relu",
    "expm1",
}


def _fused(name, g, x, otherwise):
    """Compute a gradient in one go, unless it will itself be differentiated."""
    return otherwise() if wanted(g, x) else run(name, empty_of(g._shape, g.dtype), g, x)


def _silu_slope(g, x):
    s = x.sigmoid()
    return g * s * (1 + x * (1 - s))


def _gelu_slope(g, x):
    return g * (
        0.5 * (1 + (x * 0.5**0.5).erf()) + x * (x * x * -0.5).exp() * (0.5 / math.pi) ** 0.5
    )


def single(name, x, kind, back):
    if name == "neg" and kind is bool_:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )
    if kind.kind == 3:
        from torch import _complex

        return _complex.single(name, x)
    out = empty_of(x._shape, kind)
    out._stride = like_rows(x)
    run(name, out, x)
    if back and wanted(x):
        title = {"abs": "AbsBackward0", "square": "PowBackward0"}.get(
            name, f"{name.title().replace('_', '')}Backward0"
        )
        result = _output_of(out) if name in OUTPUT_ALONE else None
        kept = x if result is None and name not in NOTHING_KEPT else None
        record(out, title, (x,), lambda g, x_, o: (back(g, x_, o),), kept, result)
        _tie(out, result)
    return out


def _same_kind(name, x, back):
    if x.dtype is bool_:
        if name == "neg":
            raise RuntimeError(
                "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, "
                "use the `~` or `logical_not()` operator instead."
            )
        if name != "sign" and name != "square":
            if name == "relu":
                raise RuntimeError("Boolean inputs not supported for relu")
            raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'Bool'")
        return x.clone() if name == "sign" else x.long()
    return single(name, x, x.dtype, back)


def _singles():
    for name, back in SINGLE_FLOAT.items():
        function(name)(
            lambda input, _name=name, _back=back: single(
                _name, input, input.dtype if input.dtype.kind > 1 else Defaults.dtype, _back
            )
        )
    for name, back in SINGLE_SAME.items():
        function(name)(lambda input, _name=name, _back=back: _same_kind(_name, input, _back))
    for name in ("isnan", "isinf", "isposinf", "isneginf", "isfinite"):
        function(name)(lambda input, _name=name: run(_name, empty_of(input._shape, bool_), input))
    for name, same in {
        "negative": "neg",
        "absolute": "abs",
        "arctan": "atan",
        "fix": "trunc",
        "sgn": "sign",
    }.items():
        function(name)(FUNCTIONS[same])


_singles()
for _name in ("gelu", "silu", "softplus", "gelu_tanh"):
    delattr(Tensor, _name)


@function("round")
def round(input, *, decimals=0):
    if not decimals:
        return _same_kind("round", input, lambda g, x, o: g * 0)
    return single("round", input * 10**decimals, input.dtype, None) / 10**decimals


@function("where")
def where(condition, input=None, other=None):
    if input is None:
        return condition.nonzero(as_tuple=True)
    if not isinstance(input, Tensor):
        input = tensor(input, dtype=_scalar_kind(input, other))
    if not isinstance(other, Tensor):
        other = tensor(other, dtype=_scalar_kind(other, input))
    shape = broadcast(condition._shape, broadcast(input._shape, other._shape))
    out = run("where", empty_of(shape, result_type(input, other)), condition, input, other)
    if wanted(input, other):
        backs = (
            lambda g, c: None,
            lambda g, c: _fitted(where(c, g, 0.0), input),
            lambda g, c: _fitted(where(c, 0.0, g), other),
        )
        record(out, "WhereBackward0", (None, input, other), backs, condition)
    return out


def _scalar_kind(value, beside):
    kind = bool_ if isinstance(value, bool) else int64 if isinstance(value, int) else Defaults.dtype
    if isinstance(beside, Tensor):
        return beside.dtype if beside.dtype.kind >= kind.kind else kind
    return kind


def _where_method(self, condition, other):
    return where(condition, self, other)


Tensor.where = _where_method


@function("clamp", "clip")
def clamp(input, min=None, max=None):
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        found = input if min is None else FUNCTIONS["maximum"](input, min)
        return found if max is None else FUNCTIONS["minimum"](found, max)
    kind = input.dtype
    for bound in (min, max):
        kind = kind if bound is None else result_type(input, bound) if kind is input.dtype else kind
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    out = empty_of(input._shape, kind)
    out._stride = like_rows(input)
    run("clamp", out, input, low, high)
    if wanted(input):
        record(out, "ClampBackward1", (input,), lambda g, x: g * ((x >= low) & (x <= high)), input)
    return out


@function("clamp_min")
def clamp_min(input, min):
    return clamp(input, min=min)


@function("clamp_max")
def clamp_max(input, max):
    return clamp(input, max=max)


@function("lerp")
def lerp(input, end, weight):
    if end.dtype is not input.dtype:
        raise RuntimeError(
            f"expected dtype {_c_name(input.dtype)} for `end` but got dtype {_c_name(end.dtype)}"
        )
    return input + weight * (end - input)


@function("addcmul")
def addcmul(input, tensor1, tensor2, *, value=1):
    return input + value * tensor1 * tensor2


@function("addcdiv")
def addcdiv(input, tensor1, tensor2, *, value=1):
    return input + value * (tensor1 / tensor2)


@function("nan_to_num")
def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    kind = input.dtype
    if kind.kind < 2:
        return input.clone()
    found = where(input.isnan(), float(nan), input)
    found = where(input.isposinf(), float(kind.most if posinf is None else posinf), found)
    return where(input.isneginf(), float(-kind.most if neginf is None else neginf), found)


@function("masked_fill")
def masked_fill(input, mask, value):
    if mask.dtype is not bool_:
        raise RuntimeError(
            f"masked_fill only supports boolean masks, but got mask with dtype {_c_name(mask.dtype)}"
        )
    shape = broadcast(input._shape, mask._shape)
    kind = input.dtype
    if isinstance(value, Tensor):
        if value._shape:
            raise RuntimeError(
                f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.dim()} dimension(s)."
            )
        filled = value
    elif kind.kind < 2 and (isinstance(value, float) and not float(value).is_integer()):
        raise RuntimeError(f"value cannot be converted to type {_c_name(kind)} without overflow")
    else:
        filled = value
    out = empty_of(shape, kind)
    if input._shape == shape:
        out._stride = like_rows(input)
    run("where", out, mask, filled, input)
    if wanted(input) or (isinstance(value, Tensor) and wanted(value)):
        value_back = lambda g, m: where(m, g, 0.0).sum()  # noqa: E731
        backs = (lambda g, m: sum_to(masked_fill(g, m, 0.0), input._shape), value_back)
        record(
            out,
            "MaskedFillBackward0",
            (input, value if isinstance(value, Tensor) else None),
            backs,
            mask,
        )
    return out


def _c_name(kind):
    return {
        "float32": "float",
        "float64": "double",
        "int64": "int64_t",
        "int32": "int",
        "bool": "bool",
    }.get(kind.name, kind.name)


@method
def masked_fill_(self, mask, value):
    return _overwritten(self, "MaskedFillBackward0", masked_fill(_as_it_is(self), mask, value))


# In place: the same function of the tensor as it is, written over it.
def _as_it_is(tensor):
    """Return what a function that is done in place is given: a copy, if its backward pass may ask for it."""
    check_in_place(tensor)
    if not Mode.grad or tensor.dtype.kind < 2:
        return tensor
    copy = tensor.detach().clone()
    copy._node, copy._output, copy._requires_grad = (
        node_of(tensor),
        tensor._output,
        tensor._requires_grad,
    )
    return copy


def _overwritten(tensor, name, value):
    """Write `value`, a function of `tensor` and of others, over it, and let its history be that of the value."""
    check_in_place(tensor)
    if value._shape != tensor._shape:
        raise RuntimeError(
            f"output with shape {list(tensor._shape)} doesn't match the broadcast shape {list(value._shape)}"
        )
    if value.dtype is not tensor.dtype and value.dtype.kind > tensor.dtype.kind:
        raise RuntimeError(
            f"result type {value._kind_name()[:-6]} can't be cast to the desired output type {tensor._kind_name()[:-6]}"
        )
    run("copy", tensor, value)
    tensor._storage.version += 1
    if value._node is not None:
        if tensor._base is None:
            tensor._node, tensor._output = value._node, value._output
        else:
            node, output = value._node, value._output
            zeros = lambda g: g.new_zeros(g._shape)  # noqa: E731
            record_in_place(tensor, name, (_through(value, node, output),), (zeros, lambda g: g))
    elif wanted(tensor):
        backs = (lambda g: g.new_zeros(g._shape),)
        record_in_place(tensor, name, (), backs)
    return tensor


def _through(value, node, output):
    value._node, value._output = node, output
    return value


def _in_place(name, function):
    def apply(self, *args, **kwargs):
        return _overwritten(self, f"{name}_", function(_as_it_is(self), *args, **kwargs))

    apply.__name__ = f"{name}_"
    setattr(Tensor, f"{name}_", apply)


def _fast_in_place(name, operation):
    """Define an operation in place for which nothing is copied while nothing is recorded."""
    function = FUNCTIONS[name]

    def apply(self, other, **kwargs):
        alpha = kwargs.get("alpha", 1)
        scaled = (
            alpha != 1 and name == "add" and isinstance(other, Tensor) and type(alpha) in NUMBERS
        )
        alike = scaled and self.dtype is other.dtype and self._shape == other._shape
        if alike and self.dtype.kind == 2 and not wanted(self, other):
            run("add_scaled", self, self, other, alpha)
            self._storage.version += 1
            return self
        if alpha != 1 or wanted(self, *([other] if isinstance(other, Tensor) else ())):
            return _overwritten(self, f"{name}_", function(_as_it_is(self), other, **kwargs))
        kwargs.pop("alpha", None)
        if kwargs:
            return _overwritten(self, f"{name}_", function(self, other, **kwargs))
        if self.dtype.kind < 2 or (isinstance(other, Tensor) and other._storage is self._storage):
            return _overwritten(self, f"{name}_", function(self, other))
        if isinstance(other, Tensor):
            shape = broadcast(self._shape, other._shape)
            if shape != self._shape:
                raise RuntimeError(
                    f"output with shape {list(self._shape)} doesn't match the broadcast shape {list(shape)}"
                )
            if other.dtype.kind > self.dtype.kind:
                return _overwritten(self, f"{name}_", function(self, other))
        else:
            other = _operand(other, name)
        run(operation, self, self, other)
        self._storage.version += 1
        return self

    apply.__name__ = f"{name}_"
    setattr(Tensor, f"{name}_", apply)
    return apply


for _name in ("add", "sub", "mul", "div"):
    _fast_in_place(_name, _name)
for _name in (
    "clamp", "clip", "clamp_min", "clamp_max", "exp", "log", "sqrt", "rsqrt", "neg", "abs", "square", "reciprocal", "tanh", "sigmoid", "relu", "sin",
    "cos", "floor", "ceil", "round", "trunc", "pow", "remainder", "floor_divide", "lerp", "addcmul", "addcdiv", "nan_to_num",
    "logical_not", "logical_and", "logical_or", "eq", "ne", "lt", "le", "gt", "ge", "erf", "sign", "bitwise_and", "bitwise_or", "bitwise_not",
):  # fmt: skip
    _in_place(_name, FUNCTIONS[_name])


@method
def zero_(self):
    return fill_(self, 0)


@method
def fill_(self, value):
    check_in_place(self)
    run("copy", self, value)
    self._storage.version += 1
    if wanted(self):
        record_in_place(self, "FillBackward0", (), (lambda g: g.new_zeros(g._shape),))
    return self


@method
def fill_diagonal_(self, value, wrap=False):
    self.diagonal().fill_(value)
    return self


# Operators.
def _operator(name, apply, swapped=None):
    def operator(self, other):
        return (
            apply(self, other)
            if isinstance(other, Tensor) or _number(other) is not None
            else NotImplemented
        )

    setattr(Tensor, f"__{name}__", operator)
    if swapped:
        setattr(
            Tensor,
            f"__r{name}__",
            lambda self, other: (
                swapped(other, self) if _number(other) is not None else NotImplemented
            ),
        )


_operator("add", add, lambda a, b: pair("add", b, a))
_operator("sub", sub, sub)
_operator("mul", mul, lambda a, b: pair("mul", b, a))
_operator("truediv", div, div)
_operator("floordiv", floor_divide, floor_divide)
_operator("mod", remainder, remainder)
_operator("pow", pow, pow)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Tensor, f"__{_name}__", lambda self, other, _name=_name: compare(_name, self, other))
for _name in ("and", "or", "xor"):
    _operator(
        _name,
        FUNCTIONS[f"bitwise_{_name}"],
        lambda a, b, _name=_name: FUNCTIONS[f"bitwise_{_name}"](b, a),
    )
_operator("lshift", FUNCTIONS["bitwise_left_shift"])
_operator("rshift", FUNCTIONS["bitwise_right_shift"])
Tensor.__neg__ = lambda self: FUNCTIONS["neg"](self)
Tensor.__pos__ = lambda self: self
Tensor.__abs__ = lambda self: FUNCTIONS["abs"](self)


def _inverted(self):
    if self.dtype.kind > 1:
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors"
        )
    return bitwise_not(self)


Tensor.__invert__ = _inverted
for _name, _place in {"add": "add_", "sub": "sub_", "mul": "mul_", "truediv": "div_", "pow": "pow_", "and": "bitwise_and_",
                      "or": "bitwise_or_", "mod": "remainder_", "floordiv": "floor_divide_"}.items():  # fmt: skip
    setattr(
        Tensor, f"__i{_name}__", lambda self, other, _place=_place: getattr(self, _place)(other)
    )


# Reductions.
def _dims(dim, dims):
    if dim is None:
        return tuple(range(dims))
    if isinstance(dim, int):
        return (place_of(dim, dims),) if dims else ()
    found = tuple(place_of(d, dims) for d in dim)
    if len({*found}) != len(found):
        raise RuntimeError(f"dim {found[-1]} appears multiple times in the list of dims")
    return found or tuple(range(dims))


def reduced(name, x, dims, keepdim, kind):
    """Return a reduction of `x` over `dims`, places that `_dims` has made."""
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


def _wide(gradient, shape, dims, keepdim):
    """Return the gradient of a sum, for what was summed."""
    if not keepdim:
        gradient = gradient.reshape(
            tuple([1 if d in dims else size for d, size in enumerate(shape)])
        )
    return gradient.expand(shape)


@function("sum")
def sum(input, dim=None, keepdim=False, *, dtype=None):
    if dtype is not None:
        input = input.to(dtype)
    kind = input.dtype if input.dtype.kind > 1 else int64
    dims, shape = _dims(dim, len(input._shape)), input._shape
    if kind.kind == 3:
        from torch import _complex

        return _complex.sum(input, dims, keepdim)
    out = reduced("sum", input, dims, keepdim, kind)
    if wanted(input):
        title = "SumBackward0" if dim is None else "SumBackward1"
        record(out, title, (input,), lambda g: _wide(g, shape, dims, keepdim))
    return out


@function("mean")
def mean(input, dim=None, keepdim=False, *, dtype=None):
    input = input if dtype is None else input.to(dtype)
    if input.dtype.kind < 2:
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {input._kind_name()[:-6]}"
        )
    dims, shape = _dims(dim, len(input._shape)), input._shape
    out = reduced("mean", input, dims, keepdim, input.dtype)
    if wanted(input):
        count = math.prod(shape[d] for d in dims)
        title = "MeanBackward0" if dim is None else "MeanBackward1"
        record(out, title, (input,), lambda g: _wide(g / count, shape, dims, keepdim))
    return out


@function("prod")
def prod(input, dim=None, keepdim=False, *, dtype=None):
    input = input if dtype is None else input.to(dtype)
    kind = input.dtype if input.dtype.kind > 1 else int64
    dims, shape = _dims(dim, len(input._shape)), input._shape
    out = reduced("prod", input, dims, keepdim, kind)
    if wanted(input):
        result = _output_of(out)
        back = lambda g, x, o: _wide(g * o, shape, dims, keepdim) / x  # noqa: E731
        _tie(record(out, "ProdBackward0", (input,), back, input, result), result)
    return out


def _extreme(name):
    def apply(input, dim=None, keepdim=False):
        dims, shape = _dims(dim, len(input._shape)), input._shape
        if input.numel() == 0 and builtins.any(shape[d] == 0 for d in dims):
            raise IndexError(f"{name}(): Expected reduction dim {dims[0]} to have non-zero size.")
        out = reduced(name, input, dims, keepdim, input.dtype)
        if wanted(input):
            result = _output_of(out)

            def back(g, x, o):
                most = x == _wide(o, shape, dims, keepdim)
                return _wide(g, shape, dims, keepdim) * most / most.sum(dim=dims, keepdim=True)

            _tie(record(out, f"{name.title()}Backward0", (input,), back, input, result), result)
        return out

    return apply


amax, amin = function("amax")(_extreme("amax")), function("amin")(_extreme("amin"))


def _place(name):
    def apply(input, dim=None, keepdim=False):
        if dim is None:
            flat = input.reshape(-1)
            if not flat._shape[0]:
                raise IndexError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
                )
            return reduced(name, flat, (0,), False, int64)
        dims = _dims(dim, len(input._shape))
        if not dims:
            return empty_of((), int64)
        if input._shape[dims[0]] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {dims[0]} to have non-zero size.")
        return reduced(name, input, dims, keepdim, int64)

    return apply


_where_most = {"max": _place("argmax"), "min": _place("argmin")}


def _public_place(name):
    def apply(input, dim=None, keepdim=False):
        if input.dtype is bool_:
            raise RuntimeError(f"{name}(): does not support bool input")
        return _where_most[name[3:]](input, dim, keepdim)

    return apply


argmax, argmin = (
    function("argmax")(_public_place("argmax")),
    function("argmin")(_public_place("argmin")),
)


class Found(NamedTuple):
    values: Tensor
    indices: Tensor


def _named(name):
    """Return a kind of tuple that prints as PyTorch's does."""

    class Pair(Found):
        def __repr__(self):
            return f"torch.return_types.{name}(\nvalues={self.values!r},\nindices={self.indices!r})"

    Pair.__name__ = Pair.__qualname__ = name
    return Pair


def _most(name, other):
    place, kind = _where_most[name], _named(name)
    extreme = amax if name == "max" else amin

    def apply(input, dim=None, keepdim=False):
        if isinstance(dim, Tensor):
            return FUNCTIONS[other](input, dim)
        if dim is None:
            if not input.numel():
                raise RuntimeError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
                )
            return extreme(input)
        if not input._shape:
            return kind(input.clone(), empty_of((), int64))
        indices = place(input, dim, True)
        values = input.gather(dim, indices)
        return kind(
            *((values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim)))
        )

    return apply


max = function("max")(_most("max", "maximum"))
min = function("min")(_most("min", "minimum"))


@function("any")
def any(input, dim=None, keepdim=False):
    return reduced("any", input, _dims(dim, len(input._shape)), keepdim, bool_)


@function("all")
def all(input, dim=None, keepdim=False):
    return reduced("all", input, _dims(dim, len(input._shape)), keepdim, bool_)


@function("count_nonzero")
def count_nonzero(input, dim=None):
    return reduced("count_nonzero", input, _dims(dim, len(input._shape)), False, int64)


def _correction(unbiased, correction):
    return correction if correction is not None else 1 if unbiased is None or unbiased else 0


@function("var")
def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    dims = _dims(dim, len(input._shape))
    count = math.prod(input._shape[d] for d in dims)
    far = (input - input.mean(dim=dims, keepdim=True)).square().sum(dim=dims, keepdim=keepdim)
    left = builtins.max(count - _correction(unbiased, correction), 0)
    return far / left


@function("std")
def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    return var(input, dim, unbiased, keepdim, correction=correction).sqrt()


@torch_only
def var_mean(input, dim=None, *, correction=1, keepdim=False):
    return var(input, dim, keepdim=keepdim, correction=correction), input.mean(
        dim=dim, keepdim=keepdim
    )


@function("norm")
def norm(input, p=2, dim=None, keepdim=False, dtype=None):
    dims, shape = _dims(dim, len(input._shape)), input._shape
    if p in (2, 2.0, "fro"):
        out = reduced("norm", input, dims, keepdim, input.dtype)
        if wanted(input):
            result = _output_of(out)

            def back(g, x, o):
                full = _wide(o, shape, dims, keepdim)
                return masked_fill(_wide(g, shape, dims, keepdim) * x / full, full == 0, 0.0)

            _tie(record(out, "LinalgVectorNormBackward0", (input,), back, input, result), result)
        return out
    size = input.abs()
    if p == math.inf:
        return amax(size, dims, keepdim)
    if p == -math.inf:
        return amin(size, dims, keepdim)
    if p == 0:
        return (input != 0).to(input.dtype).sum(dim=dims, keepdim=keepdim)
    return (
        size.sum(dim=dims, keepdim=keepdim)
        if p == 1
        else (size**p).sum(dim=dims, keepdim=keepdim) ** (1 / p)
    )


@function("logsumexp")
def logsumexp(input, dim, keepdim=False):
    dims, shape = _dims(dim, len(input._shape)), input._shape
    input = input if input.dtype.kind > 1 else input.to(Defaults.dtype)
    most = amax(input.detach(), dims, True)
    most = masked_fill(most, most.abs() == math.inf, 0.0)
    out = (input.detach() - most).exp().sum(dim=dims, keepdim=True).log() + most
    if not keepdim:
        out = out.squeeze(dims)
    out = out.detach()
    if wanted(input):
        result = _output_of(out)

        def back(g, x, o):
            full = _wide(o, shape, dims, keepdim)
            return _wide(g, shape, dims, keepdim) * (x - full).exp()

        _tie(record(out, "LogsumexpBackward0", (input,), back, input, result), result)
    return out


@function("median")
def median(input, dim=None, keepdim=False):
    if dim is None:
        flat = sort(input.reshape(-1))[0]
        return flat[(flat._shape[0] - 1) // 2]
    values, indices = sort(input, dim)
    at = (input._shape[dim] - 1) // 2
    values, indices = values.narrow(dim, at, 1), indices.narrow(dim, at, 1)
    return _named("median")(
        *((values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim)))
    )


# Scans.
def scanned(name, x, dim, kind):
    if not x._shape:
        return x.clone().to(kind)
    dim = place_of(dim, len(x._shape))
    out = empty_of(x._shape, kind)
    if 0 in x._shape:
        return out
    order = [d for d in range(len(x._shape)) if d != dim] + [dim]
    call(
        _scan, SCAN[name], out._storage.base, kind.code, x._storage.base + x._offset, x.dtype.code, len(order),
        *[x._shape[d] for d in order], *[x._stride[d] for d in order], *[out._stride[d] for d in order],
    )  # fmt: skip
    return out


@function("cumsum")
def cumsum(input, dim, *, dtype=None):
    kind = dtype or (input.dtype if input.dtype.kind > 1 else int64)
    out = scanned("cumsum", input.to(kind), dim, kind)
    if wanted(input):
        record(out, "CumsumBackward0", (input,), lambda g: g.flip(dim).cumsum(dim).flip(dim))
    return out


@function("cumprod")
def cumprod(input, dim, *, dtype=None):
    kind = dtype or (input.dtype if input.dtype.kind > 1 else int64)
    out = scanned("cumprod", input.to(kind), dim, kind)
    if wanted(input):
        result = _output_of(out)
        back = lambda g, x, o: (g * o).flip(dim).cumsum(dim).flip(dim) / x  # noqa: E731
        _tie(record(out, "CumprodBackward0", (input,), back, input, result), result)
    return out


@function("logcumsumexp")
def logcumsumexp(input, dim):
    out = scanned("logcumsumexp", input, dim, input.dtype)
    if wanted(input):
        result = _output_of(out)

        def back(g, x, o):
            return (g * (-o).exp()).flip(dim).cumsum(dim).flip(dim) * x.exp()

        _tie(record(out, "LogcumsumexpBackward0", (input,), back, input, result), result)
    return out


def _running(name):
    kind = _named(name)

    def apply(input, dim):
        values = scanned(name, input, dim, input.dtype)
        size = input._shape[dim]
        along = FUNCTIONS["arange"](size).reshape(
            [-1 if d == place_of(dim, input.dim()) else 1 for d in range(input.dim())]
        )
        indices = scanned("cummax", where(input == values, along, -1), dim, int64)
        if wanted(input):
            values = input.gather(dim, indices)
        return kind(values, indices)

    return apply


function("cummax")(_running("cummax"))
function("cummin")(_running("cummin"))


# Products.
def matmul_kernel(a, b, shape, kind):
    """Multiply matrices, (..., m, k) by (..., k, n); `shape` is that of the result."""
    out = empty_of(shape, kind)
    m, n, k = shape[-2], shape[-1], a._shape[-1]
    if 0 in shape or not k:
        return out
    lead = shape[:-2]
    a_lead = spread(a._stride[:-2], a._shape[:-2], lead)
    b_lead = spread(b._stride[:-2], b._shape[:-2], lead)
    call(
        _matmul, out._storage.base, kind.code, a._storage.base + a._offset, a.dtype.code,
        b._storage.base + b._offset, b.dtype.code, len(lead), m, n, k,
        a._stride[-2], a._stride[-1], b._stride[-2], b._stride[-1], *lead, *a_lead, *b_lead,
    )  # fmt: skip
    return out


def _product(a, b, name):
    """Multiply matrices of two dimensions or more, whose leading ones broadcast."""
    m, _k = a._shape[-2:]
    n = b._shape[-1]
    shape = (*broadcast(a._shape[:-2], b._shape[:-2]), m, n)
    out = matmul_kernel(a, b, shape, a.dtype)
    if wanted(a, b):
        left, right = a._shape, b._shape
        backs = (
            lambda g, a_, b_: sum_to(_product(g, b_.mT, name), left),
            lambda g, a_, b_: _right(a_, g, right, name),
        )
        record(out, name, (a, b), backs, a if wanted(b) else None, b if wanted(a) else None)
    return out


def _right(a, g, shape, name):
    """Return the gradient of the right factor: one product, where one matrix served all rows."""
    if len(shape) == 2 and len(a._shape) > 2:
        a, g = a.reshape(-1, a._shape[-1]), g.reshape(-1, g._shape[-1])
    return sum_to(_product(a.mT, g, name), shape)


@function("matmul")
def matmul(input, other):
    a, b = input, other
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        bad = other if isinstance(a, Tensor) else input
        raise TypeError(
            f"matmul(): argument 'other' (position 1) must be Tensor, not {type(bad).__name__}"
        )
    if not a._shape or not b._shape:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {len(a._shape)}D and {len(b._shape)}D"
        )
    if State.on:
        a, b = cast(a, b)
    one, two = len(a._shape) == 1, len(b._shape) == 1
    if a._shape[-1] != b._shape[0 if two else -2]:
        raise RuntimeError(_misfit(a._shape, b._shape))
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {_c_name(a.dtype)} != {_c_name(b.dtype)}"
        )
    if a.dtype.kind == 3:
        from torch import _complex

        return _complex.matmul(a, b)
    if one and two:
        return (_product(a.unsqueeze(0), b.unsqueeze(1), "DotBackward0")).reshape(())
    if one:
        return _product(a.unsqueeze(0), b, "SqueezeBackward4").squeeze(-2)
    if two:
        return _product(a, b.unsqueeze(1), "MvBackward0").squeeze(-1)
    wide = len(a._shape) == 2 and len(b._shape) == 2
    return _product(a, b, "MmBackward0" if wide else "UnsafeViewBackward0")


def _misfit(a, b):
    """Say what does not fit, as PyTorch does for each kind of product."""
    if len(a) == 1 and len(b) == 1:
        return f"inconsistent tensor size, expected tensor [{a[0]}] and src [{b[0]}] to have the same number of elements, but got {a[0]} and {b[0]} elements respectively"
    if len(b) == 1:
        size = f"{a[0]}x{a[1]}" if len(a) == 2 else f"{math.prod(a[:-1])}x{a[-1]}"
        return f"size mismatch, got input ({size.split('x')[0]}), mat ({size}), vec ({b[0]})"
    if len(a) == 1:
        return f"mat1 and mat2 shapes cannot be multiplied (1x{a[0]} and {b[-2]}x{b[-1]})"
    if len(a) == 2 and len(b) == 2:
        return f"mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})"
    if len(b) == 2:
        return f"mat1 and mat2 shapes cannot be multiplied ({math.prod(a[:-1])}x{a[-1]} and {b[0]}x{b[1]})"
    lead = broadcast(a[:-2], b[:-2])
    count = math.prod(lead)
    return f"Expected size for first two dimensions of batch2 tensor to be: [{count}, {a[-1]}] but got: [{count}, {b[-2]}]."


_operator("matmul", matmul)


@function("mm")
def mm(input, mat2):
    return matmul(input, mat2)


@function("bmm")
def bmm(input, mat2):
    for name, each in (("batch1", input), ("batch2", mat2)):
        if each.dim() != 3:
            raise RuntimeError(f"{name} must be a 3D tensor")
    return matmul(input, mat2)


@function("mv")
def mv(input, vec):
    return matmul(input, vec)


@function("dot")
def dot(input, tensor):
    if input.dim() != 1 or tensor.dim() != 1:
        raise RuntimeError(
            f"1D tensors expected, but got {input.dim()}D and {tensor.dim()}D tensors"
        )
    return matmul(input, tensor)


@function("inner")
def inner(input, other):
    return matmul(input, other.movedim(-1, -2) if other.dim() > 1 else other)


@function("outer", "ger")
def outer(input, vec2):
    return input.unsqueeze(1) * vec2.unsqueeze(0)


@function("addmm")
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    product = matmul(mat1, mat2)
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


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
    def apply(input, dim=None, dtype=None, _stacklevel=3):
        x = input if dtype is None else input.to(dtype)
        if x.dtype.kind < 2:
            raise NotImplementedError(
                f"\"{'log_' if logs else ''}softmax_lastdim_kernel_impl\" not implemented for '{x._kind_name()[:-6]}'"
            )
        if dim is None:
            dim = 0 if x.dim() in (0, 1, 3) else 1
        at = place_of(dim, len(x._shape))
        out = softmaxed(x, at, logs, x.dtype)
        if wanted(x):
            result = _output_of(out)
            back = lambda g, o: softmax_back(g, o, at, logs)  # noqa: E731
            _tie(
                record(
                    out, "LogSoftmaxBackward0" if logs else "SoftmaxBackward0", (x,), back, result
                ),
                result,
            )
        return out

    apply.__name__ = name
    return apply


softmax = function("softmax")(_softmax_function("softmax", False))
log_softmax = function("log_softmax")(_softmax_function("log_softmax", True))


def softmax_back(g, o, dim, logs):
    """Return the gradient of softmax, or of its logarithm, given its output."""
    if wanted(g, o) or not o._shape:
        at = dim if o._shape else None
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
@function("sort")
def sort(input, dim=-1, descending=False, stable=False):
    kind = _named("sort")
    if not input._shape:
        return kind(input.clone(), empty_of((), int64))
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
        values, indices = (
            values.transpose(dim, -1).contiguous(),
            indices.transpose(dim, -1).contiguous(),
        )
    if wanted(input):
        values = input.gather(dim, indices)
    return kind(values, indices)


@function("argsort")
def argsort(input, dim=-1, descending=False, stable=False):
    return sort(input, dim, descending)[1]


@function("topk")
def topk(input, k, dim=-1, largest=True, sorted=True):
    size = input._shape[dim] if input._shape else 1
    if not 0 <= k <= size:
        raise RuntimeError("selected index k out of range")
    values, indices = sort(input, dim, largest)
    if not input._shape:
        return _named("topk")(values, indices)
    return _named("topk")(
        values.narrow(dim, 0, k).contiguous(), indices.narrow(dim, 0, k).contiguous()
    )


@function("bincount")
def bincount(input, weights=None, minlength=0):
    size = builtins.max(int(input.max()) + 1 if input.numel() else 0, minlength)
    found = empty_of((size,), int64 if weights is None else weights.dtype)
    source = weights if weights is not None else FUNCTIONS["ones"](input._shape, dtype=int64)
    return found.index_add_(0, input, source)


# Parts put together, turned and repeated.
@torch_only
def cat(tensors, dim=0, *, out=None):
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
    if wanted(*full):
        backs = tuple(lambda g, at=at, size=size: g.narrow(dim, at, size) for at, size in cuts)
        record(made, "CatBackward0", full, backs)
    return made


FUNCTIONS["concat"] = FUNCTIONS["concatenate"] = cat


@torch_only
def stack(tensors, dim=0, *, out=None):
    tensors = [*tensors]
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    for place, each in enumerate(tensors):
        if each._shape != tensors[0]._shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0]._shape)} at entry 0 and "
                f"{list(each._shape)} at entry {place}"
            )
    return cat([each.unsqueeze(dim) for each in tensors], place_of(dim, len(tensors[0]._shape), 1))


@torch_only
def hstack(tensors):
    return cat(tensors, 0 if tensors[0].dim() == 1 else 1)


@torch_only
def vstack(tensors):
    return cat([each if each.dim() > 1 else each.unsqueeze(0) for each in tensors], 0)


@function("flip")
def flip(input, *dims):
    dims = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    found = input
    for dim in dims:
        size = input._shape[dim]
        found = found.index_select(
            dim, FUNCTIONS["arange"](size - 1, -1, -1) if size else FUNCTIONS["arange"](0)
        )
    return found


@method
def repeat(self, *sizes):
    sizes = shape_of(sizes)
    more = len(sizes) - len(self._shape)
    if more < 0:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    shape = (1,) * more + self._shape
    apart = self.reshape([part for size in shape for part in (1, size)])
    full = apart.expand(
        [part for size, times in zip(shape, sizes, strict=False) for part in (times, size)]
    )
    return full.clone(memory_format="contiguous").reshape(
        [size * times for size, times in zip(shape, sizes, strict=False)]
    )


@function("tile")
def tile(input, *dims):
    dims = shape_of(dims)
    return input.repeat((1,) * (len(input._shape) - len(dims)) + dims)


@function("repeat_interleave")
def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    if dim is None:
        input, dim = input.reshape(-1), 0
    size = input._shape[dim]
    if isinstance(repeats, Tensor):
        counts = repeats.tolist() if repeats._shape else [repeats.item()]
        counts = counts * size if len(counts) == 1 else counts
    else:
        counts = [repeats] * size
    return input.index_select(
        dim, tensor([at for at, count in enumerate(counts) for _ in range(count)], dtype=int64)
    )


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
        if wanted(input):
            record(
                out,
                "TrilBackward0" if lower else "TriuBackward0",
                (input,),
                lambda g: apply(g, diagonal),
            )
        return out

    return apply


tril, triu = function("tril")(_triangle(True)), function("triu")(_triangle(False))
_in_place("tril", tril)
_in_place("triu", triu)


@torch_only
def tril_indices(row, col, offset=0, **_):
    pairs = [(i, j) for i in range(row) for j in range(col) if j - i <= offset]
    return tensor([[i for i, _ in pairs], [j for _, j in pairs]], dtype=int64)


@torch_only
def triu_indices(row, col, offset=0, **_):
    pairs = [(i, j) for i in range(row) for j in range(col) if j - i >= offset]
    return tensor([[i for i, _ in pairs], [j for _, j in pairs]], dtype=int64)


@function("diag")
def diag(input, diagonal=0):
    if input.dim() == 2:
        return input.diagonal(diagonal).clone()
    return diag_embed(input, diagonal)


@function("diag_embed")
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    size = input._shape[-1] + abs_of(offset)
    found = input.new_zeros((*input._shape[:-1], size, size))
    found.diagonal(offset, -2, -1).copy_(input)
    return found


abs_of = builtins.abs


@function("trace")
def trace(input):
    return input.diagonal().sum()


@torch_only
def meshgrid(*tensors, indexing="ij"):
    tensors = tensors[0] if isinstance(tensors[0], list | tuple) else tensors
    count = len(tensors)
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
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input._kind_name()[:-6]} did not match {other._kind_name()[:-6]}")
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@function("isclose")
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input._kind_name()[:-6]} did not match {other._kind_name()[:-6]}")
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


for _name in (
    "reshape", "permute", "transpose", "swapaxes", "t", "unsqueeze", "squeeze", "flatten", "ravel", "unflatten", "narrow", "select", "unbind", "split",
    "chunk", "tensor_split", "diagonal", "movedim", "moveaxis", "clone", "broadcast_to", "numel", "is_floating_point", "is_complex", "as_strided", "detach",
):  # fmt: skip
    FUNCTIONS[_name] = getattr(Tensor, _name)
FUNCTIONS["result_type"] = result_type
Tensor.new = Tensor.new_tensor


def adamw(parameter, gradient, mean, square, group, step):
    """Take a step of AdamW in one go; returns whether it could be done so."""
    tensors = (parameter, gradient, mean, square)
    if any_of(x.dtype is not parameter.dtype or not x.is_contiguous() for x in tensors):
        return False
    if parameter.dtype.name not in ("float32", "float64"):
        return False
    first, second = group["betas"]
    lr, count = group["lr"], parameter.numel()
    numbers = array(
        "d",
        (
            1 - lr * group["weight_decay"],
            1 - first,
            second,
            1 - second,
            math.sqrt(1 - second**step),
            group["eps"],
            lr / (1 - first**step),
        ),
    )
    if count:
        places = [x._storage.base + x._offset for x in tensors]
        call(js.adamw, parameter.dtype.code, count, *places, numbers.buffer_info()[0] // 8)
    for x in (parameter, mean, square):
        x._storage.version += 1
    return True


any_of = builtins.any


def _later(module, name):
    """Return a function of a module that is imported when one of its functions is called: few pages call any."""

    def apply(*args, **kwargs):
        return getattr(importlib.import_module(f"torch.{module}"), name)(*args, **kwargs)

    return apply


for _name in ("view_as_real", "view_as_complex", "polar", "complex_"):
    FUNCTIONS[_name.rstrip("_")] = _later("_complex", _name)
for _name in ("angle", "conj"):
    function(_name)(_later("_complex", _name))
for _name in ("cdist", "diff", "kron", "roll", "searchsorted", "unique"):
    function(_name)(_later("_rare", _name))
_parts = _later("_complex", "parts")
Tensor.real = property(lambda self: _parts(self, self.dtype)[0] if self.dtype.kind == 3 else self)
Tensor.imag = property(lambda self: _parts(self, self.dtype)[1])
