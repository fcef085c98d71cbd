"""The types of numbers: how each is named, stored and promoted."""

from array import array
from functools import cache

SPOKEN = {
    "float32": ("Float", "float"), "float64": ("Double", "double"), "float16": ("Half", "at::Half"),
    "bfloat16": ("BFloat16", "at::BFloat16"), "int64": ("Long", "int64_t"), "int32": ("Int", "int"),
    "int16": ("Short", "int16_t"), "int8": ("Char", "int8_t"), "uint8": ("Byte", "uint8_t"), "bool": ("Bool", "bool"),
    "complex64": ("ComplexFloat", "c10::complex<float>"), "complex128": ("ComplexDouble", "c10::complex<double>"),
}  # fmt: skip


class dtype:  # noqa: N801 - PyTorch's name
    """A type of number. `code` is its number in kernels.js, `typecode` that of the array that holds it."""

    def __init__(self, name, code, typecode, itemsize, kind, most=0.0, eps=0.0, tiny=0.0):
        self.name, self.code, self.typecode = name, code, typecode
        self.itemsize, self.kind = itemsize, kind
        self.scalar, self.c_name = SPOKEN.get(name, (name, name))  # as PyTorch's errors write it
        if kind == 1:
            self.is_unsigned = name == "uint8"
            most = 2.0 ** (8 * itemsize - (not self.is_unsigned)) - 1
            self.least = 0 if self.is_unsigned else -most - 1
        self.most, self.eps, self.tiny = most, eps, tiny
        self.is_floating_point, self.is_complex = kind in (2, 3) and kind == 2, kind == 3
        self.is_signed = kind > 1 or name.startswith("int")
        # The type in which kernels compute: a half is rounded when it is stored.
        self.width = array(typecode).itemsize

    def __repr__(self):
        return f"torch.{self.name}"

    def __reduce__(self):
        return self.name

    def to_real(self):
        return {"complex64": float32, "complex128": float64}.get(self.name, self)


# An int64 is stored as a float64, exact up to 2**53. Kinds: bool 0, whole numbers 1, floats 2, complex 3.
float32 = dtype("float32", 0, "f", 4, 2, 3.4028234663852886e38, 2.0**-23, 2.0**-126)
float64 = dtype("float64", 1, "d", 8, 2, 1.7976931348623157e308, 2.0**-52, 2.0**-1022)
int64 = dtype("int64", 2, "d", 8, 1)
int32 = dtype("int32", 3, "i", 4, 1)
uint8 = dtype("uint8", 4, "B", 1, 1)
bool_ = dtype("bool", 5, "B", 1, 0)
bfloat16 = dtype("bfloat16", 6, "f", 2, 2, 3.3895313892515355e38, 2.0**-7, 2.0**-126)
float16 = dtype("float16", 7, "f", 2, 2, 65504.0, 2.0**-10, 2.0**-14)
int16 = dtype("int16", 8, "h", 2, 1)
int8 = dtype("int8", 9, "b", 1, 1)
complex64 = dtype("complex64", 10, "f", 8, 3)
complex128 = dtype("complex128", 11, "d", 16, 3)

WHOLE = [uint8, int8, int16, int32, int64]


@cache
def promote_types(a, b):
    """Return the type of what two tensors of these types make together."""
    if a is b:
        return a
    if a.kind != b.kind:
        high, low = (a, b) if a.kind > b.kind else (b, a)
        return complex128 if high is complex64 and low is float64 else high
    if a.kind == 1:
        if uint8 in (a, b) and int8 in (a, b):
            return int16
        return max(a, b, key=WHOLE.index)
    if a.kind == 3:
        return complex128
    if a.itemsize == b.itemsize:  # the two halves
        return float32
    return max(a, b, key=lambda kind: kind.itemsize)


class finfo:  # noqa: N801 - PyTorch's name
    """The limits of a type of floats."""

    def __init__(self, kind=float32):
        self.dtype, self.bits = kind.name, 8 * kind.itemsize
        self.max, self.min, self.eps = kind.most, -kind.most, kind.eps
        self.tiny = self.smallest_normal = kind.tiny
        self.resolution = {"float64": 1e-15, "float32": 1e-6}.get(kind.name, 1e-2)


class iinfo:  # noqa: N801 - PyTorch's name
    """The limits of a type of whole numbers."""

    def __init__(self, kind):
        self.dtype, self.bits = kind.name, 8 * kind.itemsize
        signed = kind is not uint8
        self.max = 2 ** (self.bits - signed) - 1
        self.min = -(2 ** (self.bits - 1)) if signed else 0
