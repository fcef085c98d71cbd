"""Counts the operations of matrix products, two for each multiplication."""

import math

from torch import _products
from torch._signatures import lacks


class FlopCounterMode:
    """Inside, every product of matrices is counted; what attends is counted by its own products."""

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        if display:
            raise lacks("FlopCounterMode(display=True)")
        self._count = 0

    def __enter__(self):
        self._kernel = kernel = _products.matmul_kernel

        def counted(a, b, shape, kind):
            self._count += 2 * math.prod(shape) * a.shape[-1]
            return kernel(a, b, shape, kind)

        _products.matmul_kernel = counted
        return self

    def __exit__(self, *_):
        _products.matmul_kernel = self._kernel

    def get_total_flops(self):
        return self._count
