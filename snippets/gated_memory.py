"""A memory of fixed size that forgets and overwrites: decay, the delta rule, and both together.

    neither                          linear attention without feature map and division
    log_decay of (..., T, 1)         RetNet, Mamba-2
    beta                             the delta rule
    both, log_decay of (..., T, 1)   the gated delta rule: Qwen3-Next
    both, (..., T, head_dim)         Kimi Delta Attention

Sources: Sun et al. (2023), "Retentive Network", and Dao and Gu (2024), "Transformers are SSMs"
(decay); Schlag, Irie and Schmidhuber (2021), "Linear Transformers Are Secretly Fast Weight
Programmers" (the delta rule); Yang et al. (2024), "Parallelizing Linear Transformers with the Delta
Rule over Sequence Length" (its chunks); Yang, Kautz and Hatamizadeh (2024), "Gated Delta Networks"
(both); Kimi Team (2025), "Kimi Linear" (a decay for each channel).
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def gated_memory(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    log_decay: Tensor | None = None,
    beta: Tensor | None = None,
    chunk_size: int | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return query_i @ state_i, in the dtype of value, and the last state, in float32 or wider.

        faded_i = exp(log_decay_i) · state_{i-1}, row by row
        state_i = faded_i + outer(key_i, beta_i · (value_i - key_i @ faded_i))

    query, key: (..., T, head_dim); value: (..., T, value_dim). With beta, keys want length 1.
    log_decay: (..., T, 1), or (..., T, head_dim), for each channel of the keys its own; at most 0.
        -inf empties the state: at each text's first token, it keeps texts in one row apart.
    beta: (..., T, 1), from 0, which writes nothing, to 1, which overwrites; None adds whole values.
    state: (..., head_dim, value_dim), what an earlier call returned; None: nothing was seen.
    chunk_size: tokens that are compared with each other at once, which changes the time and not
        the result. None: 64, or 16 where each channel has its own decay, since a chunk then makes
        head_dim · chunk_size² numbers, not chunk_size². Not fused: a loop over the chunks.
    """
    T, head_dim = key.shape[-2:]
    log_decay = key.new_zeros(T, 1) if log_decay is None else log_decay
    rate = key.new_ones(T, 1) if beta is None else beta
    for name, part, widths in (("log_decay", log_decay, (1, head_dim)), ("beta", rate, (1,))):
        if part.dim() < 2 or part.size(-2) != T or part.size(-1) not in widths:
            raise ValueError(f"{name} must be (..., {T}, one of {widths}), got {tuple(part.shape)}")
    if not query.size(-2) == T == value.size(-2):
        raise ValueError(
            f"query and value must have T = {T} as key, got {query.size(-2)}, {value.size(-2)}"
        )
    if chunk_size is None:
        chunk_size = 64 if log_decay.size(-1) == 1 else 16
    parts = _at_least_float32(query, key, value, log_decay, rate)
    outputs = []
    with _without_autocast(query.device.type):
        if state is None:
            state = parts[1][..., :0, :].mT @ parts[2][..., :0, :]  # the sum over no tokens: zeros
        for q, k, v, g, b in zip(*(part.split(chunk_size, dim=-2) for part in parts), strict=True):
            # What is left of the state before the chunk, (..., size, 1 or head_dim).
            left = g.cumsum(dim=-2).exp()
            since = _since(g)
            written = v
            if beta is not None:
                # written_i = b_i · (v_i - what the state answers), in which the earlier tokens of
                # the chunk have written, too: a triangular system, (1 + lower) @ written = wanted.
                lower = (b * _pairs(k, k, since)).tril(-1)
                wanted = b * (v - (k * left) @ state)
                written = torch.linalg.solve_triangular(
                    lower, wanted, upper=False, unitriangular=True
                )
            outputs.append((q * left) @ state + _pairs(q, k, since).tril() @ written)
            state = left[..., -1:, :].mT * state + (k * since[..., -1, :, :]).mT @ written
    return torch.cat(outputs, dim=-2).to(value.dtype), state


def _since(log_decay: Tensor) -> Tensor:
    """Return what is left at token i of what token j wrote, (..., i, j, 1 or head_dim).

    The sum of the logarithms after j begins anew for each j. A difference of two sums from the
    chunk's first token would lose its digits after a reset: -1e9 - 0.5 is -1e9 in float32, and
    -inf less -inf is nan. Where j comes after i nothing is summed, and the 1 is to be cut off.
    """
    size = log_decay.size(-2)
    after = torch.ones(size, size, dtype=torch.bool, device=log_decay.device).triu(1)[..., None]
    steps = log_decay.unsqueeze(-3).masked_fill(~after, 0.0)  # (..., j, i, 1 or head_dim)
    return steps.cumsum(dim=-2).exp().transpose(-3, -2)


def _pairs(left: Tensor, right: Tensor, since: Tensor) -> Tensor:
    """Return left_i · right_j, in which each channel has faded since token j, (..., i, j)."""
    if since.size(-1) == 1:  # all channels alike
        return left @ right.mT * since.squeeze(-1)
    return (left.unsqueeze(-2) * right.unsqueeze(-3) * since).sum(dim=-1)


def _at_least_float32(*parts: Tensor) -> list[Tensor]:
    """Cast to one dtype: a sum kept in bfloat16 stops at 256, where adding 1 changes nothing."""
    dtype = torch.float32
    for part in parts:
        dtype = torch.promote_types(dtype, part.dtype)
    return [part.to(dtype) for part in parts]


def _without_autocast(device: str) -> AbstractContextManager:
    """Keep what is done inside in the dtype of its inputs; some devices, as meta, never cast."""
    if torch.amp.is_autocast_available(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()
