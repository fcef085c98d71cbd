"""What is computed of tensors element by element, and the gradients of it; the same in place, and as operators."""

import builtins
import math
from array import array

from torch import _dtypes
from torch._autograd import OUT, Mode, needs_grad, node_of, record, record_in_place, titled
from torch._dtypes import bool_, float64, int64, promote_types
from torch._kernels import call, js
from torch._signatures import FUNCTIONS, NUMBER, OPERAND, TENSOR
from torch._tensor import (
    NUMBERS,
    Defaults,
    Tensor,
    broadcast,
    check_in_place,
    empty_of,
    function,
    like_rows,
    method,
    run,
    shape_of,
    tensor,
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
    found = gradient.sum(dim=dims, keepdim=True) if dims else gradient
    return found.reshape(shape) if more else found


@method
def sum_to_size(self, *size):
    return sum_to(self, shape_of(size))


def only_floats(kernel, x):
    """Refuse a tensor that a kernel of PyTorch does not take."""
    if x.dtype.kind < 2:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{x.dtype.scalar}'")
    return x


# Pairs. For each: the gradients for a and for b, of the gradient from above, a, b and the output; and what is saved.
PAIRS = {
    "add": (lambda g, a, b, o: g, lambda g, a, b, o: g, ""),
    "sub": (lambda g, a, b, o: g, lambda g, a, b, o: -g, ""),
    "mul": (lambda g, a, b, o: g * b, lambda g, a, b, o: g * a, "ab"),
    "div": (lambda g, a, b, o: g / b, lambda g, a, b, o: -g * ((a / b) / b), "ab"),
    "trunc_divide": (lambda g, a, b, o: g * 0, lambda g, a, b, o: g * 0, ""),
    "floor_div": (lambda g, a, b, o: g * 0, lambda g, a, b, o: g * 0, ""),
    "pow": (
        lambda g, a, b, o: _power_back(g, a, b),
        lambda g, a, b, o: (
            g
            * where(
                (a == 0) & (b >= 0),
                0.0,
                o * (math.log(a) if a else -math.inf) if type(a) in NUMBERS else o * a.log(),
            )
        ),
        "abo",
    ),
    "maximum": (
        lambda g, a, b, o: _share(g, a, b, "lt"),
        lambda g, a, b, o: _share(g, a, b, "gt"),
        "ab",
    ),
    "minimum": (
        lambda g, a, b, o: _share(g, a, b, "gt"),
        lambda g, a, b, o: _share(g, a, b, "lt"),
        "ab",
    ),
    "atan2": (
        lambda g, a, b, o: g * b * _squares_inverted(a, b),
        lambda g, a, b, o: g * -a * _squares_inverted(a, b),
        "ab",
    ),
    "logaddexp": (
        lambda g, a, b, o: g * (a - o).exp(),
        lambda g, a, b, o: g * (b - o).exp(),
        "abo",
    ),
    "remainder": (lambda g, a, b, o: g, lambda g, a, b, o: -g * (a / b).floor(), "ab"),
    "fmod": (lambda g, a, b, o: g, lambda g, a, b, o: -g * (a / b).trunc(), "ab"),
}
TITLES = {
    "trunc_divide": "Div",
    "floor_div": "Div",
    "logaddexp": "Logaddexp",
}  # where PyTorch's name is another


def _squares_inverted(a, b):
    squares = a * a + b * b
    return masked_fill(1 / squares, squares == 0, 0.0)


def _power_back(g, a, b):
    if isinstance(b, Tensor):
        return where(b == 0, 0.0, g * (b * a ** (b - 1)))
    return g * 0 if b == 0 else g * (b * a ** (b - 1))


def _share(g, a, b, lost):
    """Return the gradient of a maximum, none where `a` has lost; half of it where both are equal."""
    return where(a == b, g / 2, g).masked_fill(compare(lost, a, b), 0.0)


def pair(name, a, b, kind=None, title=None):
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
        if len(shape) > 1 and not (
            a._shape == b._shape and a.is_contiguous() and b.is_contiguous()
        ):
            out._stride = like_rows(a if a._shape == shape else b if b._shape == shape else out)
        if kind is not float64 and kind.kind == 2:
            a = a if a.dtype is not float64 else a.to(kind)
            b = b if b.dtype is not float64 else b.to(kind)
    run("floor_divide" if name == "floor_div" else name, out, a, b)
    if kind.kind < 2 or name not in PAIRS or not needs_grad(a, b):
        return out
    first, second, saves = PAIRS[name]
    for_a, for_b = (needs_grad(a), needs_grad(b)) if saves == "ab" else (True, True)
    # A factor is kept for the gradient of the other; a divisor for both.
    kept = (
        a if "a" in saves and (for_b or name != "mul") else None,
        b if "b" in saves and (for_a or name != "mul") else None,
        OUT if "o" in saves else None,
    )
    backs = (
        lambda g, a_, b_, o: _fitted(first(g, a_, b_, o), a),
        lambda g, a_, b_, o: _fitted(second(g, a_, b_, o), b),
    )
    title = title or TITLES.get(name, name.title())
    digit = name in ("trunc_divide", "floor_div") or (
        name in ("pow", "remainder", "fmod") and not b_number
    )
    digit = 2 if name == "pow" and a_number else int(digit)
    return record(out, f"{title}Backward{digit}", (a, b), backs, *kept)


def _fitted(gradient, like):
    gradient = sum_to(gradient, like._shape)
    return gradient if gradient.dtype is like.dtype else gradient.to(like.dtype)


def _operand(value, name):
    number = _number(value)
    if number is None:
        raise TypeError(
            f"{name}(): argument 'other' (position 1) must be Tensor, not {type(value).__name__}"
        )
    return number


def _scaled(name, input, other, alpha):
    """Compute a sum or a difference, of which the second is first multiplied by `alpha`."""
    if alpha == 1 and alpha is not True:
        return pair(name, input, other)
    kind = result_type(input, other)
    if isinstance(alpha, bool) and kind is not bool_:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and kind.kind < 2:
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    return pair(name, input, other * alpha, kind)


@function("add", input=OPERAND)
def add(input, other, *, alpha=1):
    return _scaled("add", input, other, alpha)


@function("sub", "subtract", input=OPERAND)
def sub(input, other, *, alpha=1):
    bools = [isinstance(x, bool) or getattr(x, "dtype", None) is bool_ for x in (input, other)]
    if builtins.all(bools):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            "operator instead."
        )
    if builtins.any(bools):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )
    return _scaled("sub", input, other, alpha)


@function("mul", "multiply", input=OPERAND)
def mul(input, other):
    return pair("mul", input, other)


@function("div", "divide", "true_divide", input=OPERAND)
def div(input, other, *, rounding_mode=None):
    if rounding_mode == "floor":
        return _floored(input, other, "floor_div")
    if rounding_mode == "trunc":
        return pair("trunc_divide", input, other)
    if rounding_mode is not None:
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )
    kind = result_type(input, other)
    return pair("div", input, other, Defaults.dtype if kind.kind < 2 else kind)


def _floored(input, other, name):
    kind = result_type(input, other)
    if kind is bool_ and name != "remainder":
        raise NotImplementedError("\"div_floor_cpu\" not implemented for 'Bool'")
    if kind is bool_:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'Bool'")
    if kind.kind < 2 and bool((other == 0).any() if isinstance(other, Tensor) else other == 0):
        raise RuntimeError("ZeroDivisionError")
    return pair(name, input, other)


@function("floor_divide", input=OPERAND)
def floor_divide(input, other):
    found = _floored(input, other, "floor_divide")
    return record(found, "NotImplemented", (input, other), _no_derivative)


def _no_derivative(gradient):
    raise RuntimeError("derivative for aten::floor_divide is not implemented")


@function("remainder", input=OPERAND)
def remainder(input, other):
    return _floored(input, other, "remainder")


@function("fmod")
def fmod(input, other):
    return _floored(input, other, "fmod")


@function("pow", input=OPERAND)
def pow(input, exponent):
    if type(exponent) in NUMBERS and isinstance(input, Tensor):
        if exponent == 2 and input.dtype.kind == 2:
            return input.square()
        if input.dtype.kind < 2 and isinstance(exponent, int) and exponent < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
    if result_type(input, exponent) is bool_:
        raise NotImplementedError("\"pow\" not implemented for 'Bool'")
    return pair("pow", input, exponent)


def _of_two(name):
    @function(name, other=TENSOR)
    def apply(input, other):
        kind = result_type(input, other)
        if name == "logaddexp":
            only_floats("logaddexp_cpu", input)
        return pair(
            name, input, other, Defaults.dtype if name == "atan2" and kind.kind < 2 else kind
        )


for _name in ("maximum", "minimum", "atan2", "logaddexp"):
    _of_two(_name)
FUNCTIONS["arctan2"] = FUNCTIONS["atan2"]


def compare(name, a, b):
    if not isinstance(b, Tensor | int | float | complex):
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
SAME = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "ne": "not_equal"}


def _comparison(name):
    @function(name, *([SAME[name]] if name in SAME else []))
    def apply(input, other):
        return compare(name, input, other)


for _name in SIGNS:
    _comparison(_name)


def _logical(name):
    @function(name, other=TENSOR)
    def apply(input, other):
        return run(name, empty_of(broadcast(input._shape, other._shape), bool_), input, other)


for _name in ("logical_and", "logical_or", "logical_xor"):
    _logical(_name)


@function("logical_not")
def logical_not(input):
    return run("logical_not", empty_of(input._shape, bool_), input)


def _bitwise(name):
    logic = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}

    @function(name, input=OPERAND)
    def apply(input, other):
        kind = result_type(input, other)
        if kind.kind > 1 or (kind is bool_ and name not in logic):
            title = {"left": "lshift", "right": "rshift"}.get(name.split("_")[1], name)
            raise NotImplementedError(f"\"{title}_cpu\" not implemented for '{kind.scalar}'")
        return pair(logic.get(name, name) if kind is bool_ else name, input, other, kind)

    return apply


_bits = {
    name: _bitwise(f"bitwise_{name}") for name in ("and", "or", "xor", "left_shift", "right_shift")
}


@function("bitwise_not")
def bitwise_not(input):
    if input.dtype.kind > 1:
        raise NotImplementedError(f"\"bitwise_not_cpu\" not implemented for '{input.dtype.scalar}'")
    name = "logical_not" if input.dtype is bool_ else "bitwise_not"
    return run(name, empty_of(input._shape, input.dtype), input)


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
    "reciprocal": lambda g, x, o: -g * (o * o),
    "sin": lambda g, x, o: g * x.cos(),
    "cos": lambda g, x, o: g * -x.sin(),
    "tan": lambda g, x, o: g * (1 + o * o),
    "asin": lambda g, x, o: g * (1 - x * x).rsqrt(),
    "acos": lambda g, x, o: g * -(1 - x * x).rsqrt(),
    "atan": lambda g, x, o: g / (1 + x * x),
    "sinh": lambda g, x, o: g * x.cosh(),
    "cosh": lambda g, x, o: g * x.sinh(),
    "tanh": lambda g, x, o: _fused("tanh_back", g, o, lambda: g * (1 - o * o)),
    "sigmoid": lambda g, x, o: _fused("sigmoid_back", g, o, lambda: g * o * (1 - o)),
    "erf": lambda g, x, o: g * (2 / math.sqrt(math.pi)) * (-x * x).exp(),
}
SINGLE_SAME = {
    "neg": lambda g, x, o: -g,
    "abs": lambda g, x, o: g * x.sign(),
    "square": lambda g, x, o: g * (2 * x),
    "floor": lambda g, x, o: g * 0,
    "ceil": lambda g, x, o: g * 0,
    "trunc": lambda g, x, o: g * 0,
    "round": lambda g, x, o: g * 0,
    "sign": lambda g, x, o: g * 0,
    "relu": lambda g, x, o: _fused("relu_back", g, o, lambda: where(o <= 0, 0.0, g)),
}
# Those of torch.nn.functional, which take floats alone, and how PyTorch names their kernels.
ACTIVATIONS = {
    "softplus": lambda g, x, o: g * where(x > 20, 1.0, x.sigmoid()),
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
TITLES |= {"square": "Pow", "gelu_tanh": "Gelu"}


def _fused(name, g, x, otherwise):
    """Compute a gradient in one go, unless it will itself be differentiated."""
    return otherwise() if needs_grad(g, x) else run(name, empty_of(g._shape, g.dtype), g, x)


def _silu_slope(g, x):
    s = x.sigmoid()
    return g * s * (1 + x * (1 - s))


def _gelu_slope(g, x):
    return g * (
        0.5 * (1 + (x * 0.5**0.5).erf()) + x * (x * x * -0.5).exp() * (0.5 / math.pi) ** 0.5
    )


def single(name, x, kind, back):
    if kind.kind == 3:
        from torch import _complex

        return _complex.single(name, x)
    out = empty_of(x._shape, kind)
    if not x.is_contiguous():
        out._stride = like_rows(x)
    run(name, out, x)
    if kind.kind < 2 or not needs_grad(x):
        return out
    kept = (None, OUT) if name in OUTPUT_ALONE else (None if name in NOTHING_KEPT else x, None)
    title = TITLES.get(name, name.title().replace("_", ""))
    return record(out, f"{title}Backward0", (x,), lambda g, x_, o: (back(g, x_, o),), *kept)


def same_kind(name, x, back):
    if x.dtype is bool_:
        if name == "neg":
            raise RuntimeError(
                "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, "
                "use the `~` or `logical_not()` operator instead."
            )
        if name == "relu":
            raise RuntimeError("Boolean inputs not supported for relu")
        if name == "square":
            return x.long()
        if name != "sign":
            raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'Bool'")
        return x.clone()
    return single(name, x, x.dtype, back)


def _of_one(name, back, aliases, floats):
    @function(name, *aliases)
    def apply(input):
        kind = input.dtype
        if floats:
            return single(name, input, kind if kind.kind > 1 else Defaults.dtype, back)
        return same_kind(name, input, back)


OTHER_NAMES = {
    "neg": ["negative"],
    "abs": ["absolute"],
    "atan": ["arctan"],
    "trunc": ["fix"],
    "sign": ["sgn"],
}
for _table in (SINGLE_FLOAT, SINGLE_SAME):
    for _name, _back in _table.items():
        if _name != "round":
            _of_one(_name, _back, OTHER_NAMES.get(_name, ()), _table is SINGLE_FLOAT)


def activation(name, x, kernel):
    return single(name, only_floats(kernel, x), x.dtype, ACTIVATIONS[name])


def _question(name):
    @function(name)
    def apply(input):
        return run(name, empty_of(input._shape, bool_), input)


for _name in ("isnan", "isinf", "isposinf", "isneginf", "isfinite"):
    _question(_name)


@function("round")
def round(input, *, decimals=0):
    if not decimals:
        return same_kind("round", input, SINGLE_SAME["round"])
    return single("round", input * 10**decimals, input.dtype, None) / 10**decimals


@function("where", input=OPERAND)
def where(condition, input=None, other=None):
    if input is None:
        return condition.nonzero(as_tuple=True)
    if condition.dtype.name not in ("bool", "uint8"):
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            + condition.dtype.scalar
        )
    if not isinstance(input, Tensor):
        input = tensor(input, dtype=_scalar_kind(input, other))
    if not isinstance(other, Tensor):
        other = tensor(other, dtype=_scalar_kind(other, input))
    shape = broadcast(condition._shape, broadcast(input._shape, other._shape))
    out = run("where", empty_of(shape, result_type(input, other)), condition, input, other)
    backs = (
        lambda g, c: None,
        lambda g, c: _fitted(where(c, g, 0.0), input),
        lambda g, c: _fitted(where(c, 0.0, g), other),
    )
    return record(out, "WhereBackward0", (None, input, other), backs, condition)


def _scalar_kind(value, beside):
    kind = bool_ if isinstance(value, bool) else int64 if isinstance(value, int) else Defaults.dtype
    if isinstance(beside, Tensor):
        return beside.dtype if beside.dtype.kind >= kind.kind else kind
    return kind


def _where_method(self, condition, other):
    return where(condition, self, other)


Tensor.where = _where_method


@function("clamp", "clip", min=OPERAND, max=OPERAND)
def clamp(input, min=None, max=None):
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        found = input if min is None else FUNCTIONS["maximum"](input, min)
        return titled(found if max is None else FUNCTIONS["minimum"](found, max), "ClampBackward0")
    kind = input.dtype
    for bound in (min, max):
        kind = kind if bound is None else result_type(input, bound) if kind is input.dtype else kind
    if kind is bool_:
        raise NotImplementedError("\"clamp_scalar_cpu\" not implemented for 'Bool'")
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    out = empty_of(input._shape, kind)
    out._stride = like_rows(input)
    run("clamp", out, input, low, high)
    back = lambda g, x: where((x >= low) & (x <= high), g, 0.0)  # noqa: E731
    return record(out, "ClampBackward1", (input,), back, input)


@function("clamp_min", min=OPERAND)
def clamp_min(input, min):
    return titled(clamp(input, min=min), "ClampMinBackward0")


@function("clamp_max", max=OPERAND)
def clamp_max(input, max):
    return titled(clamp(input, max=max), "ClampMaxBackward0")


@function("lerp", end=TENSOR, weight=OPERAND)
def lerp(input, end, weight):
    if end.dtype is not input.dtype:
        raise RuntimeError(
            f"expected dtype {input.dtype.c_name} for `end` but got dtype {end.dtype.c_name}"
        )
    by_tensor = isinstance(weight, Tensor)
    only_floats(f"lerp_kernel_{'tensor' if by_tensor else 'scalar'}", input)
    return titled(input + weight * (end - input), f"LerpBackward{int(by_tensor)}")


def _whole_value(kind, value):
    if kind.kind < 2 and isinstance(value, float):
        raise RuntimeError(
            "For integral input tensors, argument value must not be a floating point number."
        )


@function("addcmul")
def addcmul(input, tensor1, tensor2, *, value=1):
    _whole_value(input.dtype, value)
    return titled(input + value * tensor1 * tensor2, "AddcmulBackward0")


@function("addcdiv")
def addcdiv(input, tensor1, tensor2, *, value=1):
    if tensor1.dtype.kind < 2 and tensor2.dtype.kind < 2:
        raise RuntimeError("Integer division with addcdiv is no longer supported.")
    a, b = tensor1.detach(), tensor2.detach()
    backs = (
        lambda g, a, b: _fitted(g, input),
        lambda g, a, b: _fitted(g * (value / b), tensor1),
        lambda g, a, b: _fitted(-g * (value * a / (b * b)), tensor2),
    )
    out = input.detach() + value * (a / b)
    return record(out, "AddcdivBackward0", (input, tensor1, tensor2), backs, tensor1, tensor2)


@function("nan_to_num")
def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    kind = input.dtype
    if kind.kind < 2:
        return input.clone()
    most = kind.most
    found = where(input.isnan(), float(nan or 0), input)
    found = where(input.isposinf(), float(most if posinf is None else posinf), found)
    found = where(input.isneginf(), float(-most if neginf is None else neginf), found)
    return titled(found, "NanToNumBackward0")


@function("masked_fill", value=NUMBER)
def masked_fill(input, mask, value):
    if mask.dtype is not bool_:
        raise RuntimeError(
            f"masked_fill only supports boolean masks, but got mask with dtype {mask.dtype.c_name}"
        )
    shape = broadcast(input._shape, mask._shape)
    kind = input.dtype
    if not isinstance(value, Tensor):
        fits(kind, value)
    out = empty_of(shape, kind)
    if input._shape == shape:
        out._stride = like_rows(input)
    run("where", out, mask, value, input)
    backs = (
        lambda g, m: sum_to(masked_fill(g, m, 0.0), input._shape),
        lambda g, m: where(m, g, 0.0).sum(),
    )
    return record(out, "MaskedFillBackward0", (input, value), backs, mask)


def fits(kind, value):
    """Refuse a number that a tensor of this type cannot hold."""
    if kind.kind == 1 and (
        value != value or abs(value) == math.inf or not kind.least <= value <= kind.most
    ):
        raise RuntimeError(f"value cannot be converted to type {kind.c_name} without overflow")
    if kind.kind == 2 and kind.name != "float64" and kind.most < abs(value) < math.inf:
        raise RuntimeError(f"value cannot be converted to type {kind.c_name} without overflow")


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
    kind = value.dtype
    if kind is not tensor.dtype and kind.kind > tensor.dtype.kind:
        raise RuntimeError(
            f"result type {kind.scalar} can't be cast to the desired output type {tensor.dtype.scalar}"
        )
    run("copy", tensor, value)
    tensor._storage.version += 1
    if value._node is not None:
        if tensor._base is None:
            tensor._node, tensor._output = value._node, value._output
        else:
            zeros = lambda g: g.new_zeros(g._shape)  # noqa: E731
            record_in_place(tensor, name, (value,), (zeros, lambda g: g))
    elif needs_grad(tensor):
        record_in_place(tensor, name, (), (lambda g: g.new_zeros(g._shape),))
    return tensor


def in_place(name, function):
    def apply(self, *args, **kwargs):
        return _overwritten(self, f"{name}_", function(_as_it_is(self), *args, **kwargs))

    apply.__name__ = f"{name}_"
    setattr(Tensor, f"{name}_", apply)


def _fast_in_place(name):
    """Define an operation in place for which nothing is copied while nothing is recorded."""
    function = FUNCTIONS[name]

    def apply(self, other, **kwargs):
        alpha = kwargs.get("alpha", 1)
        if not kwargs or (name == "add" and {*kwargs} == {"alpha"} and type(alpha) in (int, float)):
            alike = self.dtype.kind == 2 and not needs_grad(self, other)
            if type(other) in NUMBERS:
                alike = alike and alpha == 1 and not isinstance(other, bool)
            else:
                alike = (
                    alike
                    and isinstance(other, Tensor)
                    and other._storage is not self._storage
                    and other.dtype.kind <= 2
                    and (alpha == 1 or (self.dtype is other.dtype and self._shape == other._shape))
                    and (
                        other._shape == self._shape
                        or broadcast(self._shape, other._shape) == self._shape
                    )
                )
            if alike:
                check_in_place(self)
                if alpha == 1:
                    run(name, self, self, other)
                else:
                    run("add_scaled", self, self, other, alpha)
                self._storage.version += 1
                return self
        return _overwritten(self, f"{name}_", function(_as_it_is(self), other, **kwargs))

    apply.__name__ = f"{name}_"
    setattr(Tensor, f"{name}_", apply)


for _name in ("add", "sub", "mul", "div"):
    _fast_in_place(_name)
for _name in (
    "clamp", "clip", "clamp_min", "clamp_max", "exp", "log", "sqrt", "rsqrt", "neg", "abs", "square", "reciprocal", "tanh", "sigmoid", "relu", "sin",
    "cos", "floor", "ceil", "round", "trunc", "pow", "remainder", "fmod", "floor_divide", "lerp", "addcmul", "addcdiv", "nan_to_num",
    "logical_not", "logical_and", "logical_or", "eq", "ne", "lt", "le", "gt", "ge", "erf", "sign", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_not",
):  # fmt: skip
    in_place(_name, FUNCTIONS[_name])


@method
def zero_(self):
    return fill_(self, 0, "ZeroBackward0")


@method
def fill_(self, value, title=None):
    check_in_place(self)
    if type(value) in NUMBERS:
        fits(self.dtype, value)
    run("copy", self, value)
    self._storage.version += 1
    if needs_grad(self):
        title = title or f"FillBackward{2 + isinstance(value, Tensor)}"
        record_in_place(self, title, (), (lambda g: g.new_zeros(g._shape),))
    return self


@method
def fill_diagonal_(self, value, wrap=False):
    check_in_place(self)
    if len(self._shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(self._shape) > 2 and len({*self._shape}) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    if self.numel():
        places = builtins.min(self._shape)
        self.as_strided((places,), (builtins.sum(self._stride),)).fill_(value)
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
_operator("sub", sub, lambda a, b: titled(sub(a, b), "RsubBackward1"))
_operator("mul", mul, lambda a, b: pair("mul", b, a))
_operator("truediv", div, lambda a, b: pair("mul", FUNCTIONS["reciprocal"](b), a))
_operator("floordiv", floor_divide, floor_divide)
_operator("mod", remainder, remainder)
_operator("pow", pow, pow)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Tensor, f"__{_name}__", lambda self, other, _name=_name: compare(_name, self, other))
for _name in ("and", "or", "xor"):
    _operator(_name, _bits[_name], lambda a, b, apply=_bits[_name]: apply(b, a))
_operator("lshift", _bits["left_shift"])
_operator("rshift", _bits["right_shift"])
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
                      "or": "bitwise_or_", "xor": "bitwise_xor_", "mod": "remainder_", "floordiv": "floor_divide_"}.items():  # fmt: skip
    setattr(
        Tensor, f"__i{_name}__", lambda self, other, _place=_place: getattr(self, _place)(other)
    )


def adamw(parameter, gradient, mean, square, group, step):
    """Take a step of AdamW in one go; returns whether it could be done so."""
    tensors = (parameter, gradient, mean, square)
    if builtins.any(x.dtype is not parameter.dtype or not x.is_contiguous() for x in tensors):
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
