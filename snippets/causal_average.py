"""The running mean of a sequence: attention in which every score is zero."""

import torch


def causal_average(x):
    """Return, at each position, the mean of the vectors up to and including it.

    Args:
        x: floating-point tensor, (..., tokens, channels).

    Returns:
        Tensor of the shape and dtype of `x`; row t is the mean of rows 0 … t.

    Raises:
        ValueError: `x` has fewer than two dimensions or is not floating point.
    """
    if x.dim() < 2:
        raise ValueError(f"x: got shape {tuple(x.shape)}, wanted (..., tokens, channels)")
    if not x.is_floating_point():
        raise ValueError(f"x: got dtype {x.dtype}, wanted a floating-point tensor")
    tokens = x.shape[-2]
    scores = x.new_zeros(tokens, tokens)
    future = torch.ones_like(scores, dtype=torch.bool).triu(diagonal=1)
    weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)  # (tokens, tokens)
    return weights @ x
