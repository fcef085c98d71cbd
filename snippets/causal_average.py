"""The running mean of a sequence: causal attention in which every score is zero.

Attention would make a matrix of T · T weights. Here the weights are known beforehand, so a running
sum is enough: T - 1 additions for each channel, and no matrix.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
"""

import torch
from torch import Tensor


def causal_average(x: Tensor) -> Tensor:
    """Return, at each position, the mean of the vectors up to and including it.

    x is (..., tokens, channels), and so is the result: row t is the mean of rows 0 … t. Half
    precision is summed up in float32.

    Raises:
        ValueError: where x is not floating point, since a mean of integers would be cut off.
    """
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point, got {x.dtype}")
    dtype = torch.promote_types(x.dtype, torch.float32)  # float16 ends at 65,504
    sums = x.cumsum(dim=-2, dtype=dtype)  # (..., tokens, channels), row t sums rows 0 … t
    counts = torch.arange(1, x.size(-2) + 1, dtype=dtype, device=x.device)  # (tokens,)
    return (sums / counts[:, None]).to(x.dtype)
