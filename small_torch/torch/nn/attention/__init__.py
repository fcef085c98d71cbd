"""Which kernel attends: here there is one, the one by the formula, so asking for others alone is an error."""

import contextlib
import enum

from torch._signatures import absent, lacks


class SDPBackend(enum.Enum):
    """The kernels of PyTorch."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """Inside, PyTorch attends with one of these kernels alone; here MATH must be among them."""
    asked = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if SDPBackend.MATH not in asked:
        names = ", ".join(f"SDPBackend.{backend.name}" for backend in asked)
        raise lacks(names or "no kernel")
    yield {}


__getattr__ = absent(
    "torch.nn.attention", globals(), {"flex_attention": "torch.nn.attention.flex_attention"}
)
