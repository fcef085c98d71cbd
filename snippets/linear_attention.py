"""Linear attention: causal attention whose memory does not grow.

    output, state = linear_attention(query, key, value)               # a prompt
    output, state = linear_attention(query, key, value, state=state)  # what comes after it

It makes chunk_size scores a token, and never T · T; the state is (features, value_dim + 1) numbers.
Not fused, since PyTorch has no kernel for it: a loop over chunks. Autograd keeps the scores and a
state of each.
Source: Katharopoulos et al. (2020), "Transformers are RNNs", sections 3.2 to 3.4 (the feature map
elu + 1, the denominator, the state).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor


def elu_plus_one(x: Tensor) -> Tensor:
    """A feature map that is never negative: x + 1 above 0, exp(x) below.

    Written as elu(x) + 1 it would be 0 from -17 down in float32, since 1 has no smaller part there.
    This one is positive down to -87 in float32 and bfloat16, to -9 in float16 and to -708 in
    float64; a weight is the product of two, so keep the sum of the two there.
    """
    return x.clamp(max=0).exp() + F.relu(x)


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_plus_one,
    normalize: bool = True,
    chunk_size: int = 64,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return, for each query i, the mean of values 0 … i with weights φ(query_i) · φ(key_j).

    query, key: (..., T, head_dim); value: (..., T, value_dim). Returns (..., T, value_dim) in the
    dtype of value, and the state after the last token, in float32 or wider.

    feature_map: φ, (..., head_dim) → (..., features), called in float32 or wider; positive, where
        the outputs are divided.
    normalize: whether to divide by the sum of the weights, for which the state has one more column.
    chunk_size: tokens that are compared with each other at once. It changes the time, not the
        result: 1 is the recurrence, T or more the matrix form.
    state: what an earlier call returned; None means nothing was seen.
    """
    if not query.size(-2) == key.size(-2) == value.size(-2):
        sizes = [tuple(part.shape) for part in (query, key, value)]
        raise ValueError(f"query, key and value must have the same T, got {sizes}")
    dtype, (query, key, value) = value.dtype, _at_least_float32(query, key, value)
    query, key = feature_map(query), feature_map(key)
    if normalize:  # a channel that is 1 in every value adds up the weights
        value = F.pad(value, (0, 1), value=1.0)
    outputs = []
    with _without_autocast(query.device.type):
        if state is None:
            state = key[..., :0, :].mT @ value[..., :0, :]  # the sum over no tokens: zeros
        for q, k, v in zip(*(x.split(chunk_size, -2) for x in (query, key, value)), strict=True):
            # What came before this chunk stands in the state, what comes in it does not yet.
            outputs.append(q @ state + (q @ k.mT).tril() @ v)
            state = state + k.mT @ v
    output = torch.cat(outputs, dim=-2)
    if normalize:
        output = output[..., :-1] / output[..., -1:]
    return output.to(dtype), state


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
