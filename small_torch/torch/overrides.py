"""Watching, or replacing, each call of a function of torch."""

import functools
import importlib

from torch._tensor import FUNCTIONS, Tensor

MODES: list = []  # those that are on, the innermost last
_patched: list = []  # what stood where while one is on: (owner, name, what it was)
_wrapped: dict = {}

NOT_CALLS = {
    "device",
    "dtype",
    "finfo",
    "iinfo",
    "Size",
    "Generator",
    "is_tensor",
    "no_grad",
    "enable_grad",
    "inference_mode",
    "set_grad_enabled",
}
NOT_METHODS = {
    "__new__", "__init__", "__getattr__", "__getattribute__", "__hash__", "__class__", "__dict__", "__weakref__", "__doc__", "__module__",
    "__init_subclass__", "__repr__", "__str__", "__format__", "__iter__", "__setattr__",
}  # fmt: skip


class TorchFunctionMode:
    """Inside, each call of torch goes through `__torch_function__`, which may make it or something else."""

    def __enter__(self):
        if not MODES:
            _patch()
        MODES.append(self)
        return self

    def __exit__(self, *_):
        MODES.pop()
        if not MODES:
            _restore()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _wrapper(function, name):
    """Return a function that asks the innermost mode, with this mode off meanwhile."""
    if function in _wrapped:
        return _wrapped[function]

    @functools.wraps(function)
    def call(*args, **kwargs):
        if not MODES:
            return function(*args, **kwargs)
        mode = MODES.pop()
        try:
            return mode.__torch_function__(call, (), args, kwargs)
        finally:
            MODES.append(mode)

    call.__name__ = name
    _wrapped[function] = call
    return call


def _put(owner, name, value):
    _patched.append((owner, name, vars(owner)[name]))
    setattr(owner, name, value)


def _patch():
    torch = importlib.import_module("torch")
    functional = importlib.import_module("torch.nn.functional")
    for name in [*FUNCTIONS]:
        if name in vars(torch) and name not in NOT_CALLS:
            _put(torch, name, _wrapper(vars(torch)[name], name))
    for name, value in [*vars(functional).items()]:
        if callable(value) and not name.startswith("_") and not isinstance(value, type):
            _put(functional, name, _wrapper(value, name))
    for name, value in [*vars(Tensor).items()]:
        if isinstance(value, property):
            if name in ("T", "mT", "grad", "data"):
                _put(Tensor, name, property(_wrapper(value.fget, "__get__"), value.fset))
        elif callable(value) and _is_called(name, value):
            _put(Tensor, name, _wrapper(value, name))


def _is_called(name, value):
    """Say whether a mode sees calls of this method."""
    own = name.startswith("_") and not name.startswith("__")
    return not (own or name in NOT_METHODS or isinstance(value, staticmethod | type))


def _restore():
    while _patched:
        owner, name, value = _patched.pop()
        setattr(owner, name, value)


def has_torch_function(relevant_args):
    return False


def is_tensor_like(inp):
    return isinstance(inp, Tensor)
