"""Which kernel attends: here there is one, the one by the formula, so asking for others alone is an error."""

import contextlib
import enum
import importlib


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "flex_attention":
        return importlib.import_module("torch.nn.attention.flex_attention")
    raise NotImplementedError(
        f"torch.nn.attention.{name} is not in the small torch of this page; open the page in Colab"
    )


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
        raise NotImplementedError(
            f"{names or 'no kernel'} is not in the small torch of this page, which has SDPBackend.MATH alone; "
            "open the page in Colab"
        )
    yield {}
