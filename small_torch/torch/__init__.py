"""A small `torch` for the page: what the book's chapters use of PyTorch, over kernels in JavaScript.

What it has agrees with PyTorch; what it lacks says so by name.
"""

import math

from torch import _dtypes, _signatures, _tensor
from torch._autograd import (
    Mode,
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from torch._dtypes import dtype, finfo, iinfo, promote_types
from torch._kernels import Meta
from torch._tensor import CPU, META, Defaults, Size, Tensor, device, layout

for _name in (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "complex64", "complex128",
):  # fmt: skip
    globals()[_name] = getattr(_dtypes, _name)
float, double, half = _dtypes.float32, _dtypes.float64, _dtypes.float16
long, int, short = _dtypes.int64, _dtypes.int32, _dtypes.int16
cfloat, cdouble = _dtypes.complex64, _dtypes.complex128

from torch import _index, _join, _ops, _products, _reduce, _sampling  # noqa: E402, F401
from torch._printing import set_printoptions  # noqa: E402
from torch._random import Generator  # noqa: E402
from torch._sampling import default_generator  # noqa: E402

globals().update(_tensor.FUNCTIONS)
bool = _dtypes.bool_

__version__ = "2.13.0"
inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
newaxis = None
strided = Tensor.layout
contiguous_format, preserve_format, channels_last = "contiguous", "preserve", "channels_last"
FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, LongTensor, IntTensor, ShortTensor, ByteTensor, BoolTensor = (
    _tensor.tensors_of(_dtypes, name)
    for name in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "uint8", "bool_")
)  # fmt: skip


class SymInt:
    """A whole number that a compiler knows by name; here there are none."""


class SymFloat:
    """A number that a compiler knows by name; here there are none."""


class SymBool:
    """A truth that a compiler knows by name; here there are none."""


def is_grad_enabled():
    return Mode.grad


def is_inference_mode_enabled():
    return Mode.inference


def get_default_dtype():
    return Defaults.dtype


def set_default_dtype(d):
    Defaults.dtype = d


def get_default_device():
    return META if Meta.on else CPU


def set_default_device(device):
    _tensor.device(device)


def get_num_threads():
    return 1


def set_num_threads(number):
    """Do nothing: a page has one thread."""


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Do nothing: all of this is deterministic."""


def are_deterministic_algorithms_enabled():
    return True


def set_float32_matmul_precision(precision):
    """Do nothing: products are precise."""


def can_cast(from_, to):
    return from_.kind <= to.kind


def is_autocast_enabled(device_type="cpu"):
    return amp.State.on


def get_autocast_dtype(device_type="cpu"):
    return amp.State.dtype


def autocast(device_type="cpu", dtype=None, enabled=True, cache_enabled=None):
    return amp.autocast(device_type, dtype, enabled)


def compile(model=None, **_):
    """Return what is given as it is: nothing is compiled here."""
    return model if model is not None else lambda function: function


def typename(obj):
    return obj.type() if isinstance(obj, Tensor) else type(obj).__name__


def is_storage(obj):
    return isinstance(obj, _tensor.UntypedStorage)


def numel(input):
    return input.numel()


from torch import amp, autograd  # noqa: E402


def __getattr__(name):
    """Return what few pages ask for: it is imported when one does, and in a reader's browser fetched then."""
    if name.startswith("__"):
        raise AttributeError(name)
    import importlib

    if name == "load":
        return importlib.import_module("torch.hub").load
    try:
        return importlib.import_module(f"torch.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"torch.{name}":
            raise
    raise _signatures.unknown(f"torch.{name}", name, globals())


__all__ = [
    "Generator",
    "Size",
    "SymBool",
    "SymFloat",
    "SymInt",
    "Tensor",
    "autograd",
    "default_generator",
    "device",
    "dtype",
    "enable_grad",
    "finfo",
    "iinfo",
    "inference_mode",
    "layout",
    "no_grad",
    "promote_types",
    "set_grad_enabled",
    "set_printoptions",
]  # fmt: skip
