"""The running mean of a sequence: causal attention in which every score is zero.

Needs PyTorch and nothing else.
"""

import torch
from torch import Tensor


def causal_average(x: Tensor) -> Tensor:
    """Return, at each position, the mean of the vectors up to and including it.

    Args:
        x: (..., tokens, channels), floating point.

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
    T = x.size(-2)
    keep = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()  # row t keeps 0 … t
    scores = x.new_zeros(T, T)
    weights = scores.masked_fill(~keep, float("-inf")).softmax(dim=-1)  # (tokens, tokens)
    return weights @ x
