"""Watching each operation: here the calls of torch's functions and methods, which is where operations begin."""

from torch.overrides import TorchFunctionMode


class TorchDispatchMode(TorchFunctionMode):
    """Inside, each operation goes through `__torch_dispatch__`, which may make it or something else."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.__torch_dispatch__(func, types, args, kwargs or {})

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
