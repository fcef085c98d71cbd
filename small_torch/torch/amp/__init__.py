"""Mixed precision: on a CPU, autocast lets products be computed in bfloat16."""

import functools

from torch._dtypes import bfloat16, float32


class State:
    """Whether autocast is on, and the type that products then have."""

    on, dtype = False, bfloat16


def is_autocast_available(device_type):
    return device_type == "cpu"


class autocast:  # noqa: N801 - PyTorch's name
    """Inside, products of matrices are computed in a shorter type."""

    def __init__(self, device_type="cpu", dtype=None, enabled=True, cache_enabled=None):
        self.on, self.dtype = enabled, dtype or bfloat16

    def __enter__(self):
        self.before = State.on, State.dtype
        State.on, State.dtype = self.on, self.dtype
        return self

    def __exit__(self, *_):
        State.on, State.dtype = self.before

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return inside


def cast(*tensors):
    """Return the operands of a product as autocast wants them."""
    if not State.on:
        return tensors
    return tuple(t.to(State.dtype) if t is not None and t.dtype is float32 else t for t in tensors)
