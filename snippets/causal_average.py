"""The running mean of a sequence: causal attention in which every score is zero.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
"""

import torch
from torch import Tensor


def causal_average(x: Tensor) -> Tensor:
    """Return, at each position, the mean of the vectors up to and including it.

    This is attention in which all scores are 0. Attention would make a matrix of T · T weights.
    Here the weights are known beforehand, so a running sum is enough: T - 1 additions for each
    channel, and no matrix.

    Args:
        x: (..., tokens, channels), floating point. Half precision is summed up in float32.

    Returns:
        The shape and dtype of x; row t is the mean of rows 0 … t.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    if not isinstance(x, Tensor) or x.dim() < 2:
        came = tuple(x.shape) if isinstance(x, Tensor) else repr(x)
        raise ValueError(f"x must have shape (..., tokens, channels), got {came}")
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point, got {x.dtype}")
    dtype = torch.promote_types(x.dtype, torch.float32)  # float16 ends at 65,504
    sums = x.cumsum(dim=-2, dtype=dtype)  # row t sums rows 0 … t
    counts = torch.arange(1, x.size(-2) + 1, dtype=dtype, device=x.device)
    return (sums / counts[:, None]).to(x.dtype)
