"""Linear attention: causal attention whose memory does not grow.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
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

        output, state = linear_attention(query, key, value)              # a prompt
        output, state = linear_attention(query, key, value, state=state)  # what comes after it

    The result does not depend on chunk_size: 1 is the recurrence, T or more the matrix form. Not
    fused, since PyTorch has no kernel for it: a loop over chunks, each of which makes chunk_size²
    scores. Autograd keeps T · chunk_size of them, and a state for each chunk.

    Args:
        query, key: (..., T, head_dim).
        value: (..., T, value_dim).
        feature_map: φ, (..., head_dim) → (..., features). With normalize its sum of weights must
            not be 0, so it must be positive. It is called in float32 or wider.
        normalize: whether to divide by the sum of the weights. The state then has one more column.
        chunk_size: tokens that are compared with each other directly, at least 1.
        state: what an earlier call returned; None means nothing was seen.

    Returns:
        The outputs, (..., T, value_dim), in the dtype of value, and the state after the last token,
        (..., features, value_dim + 1 if normalize else value_dim), in float32 or wider.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    _check(query, key, value, chunk_size)
    dtype, (query, key, value) = value.dtype, _at_least_float32(query, key, value)
    query, key = feature_map(query), feature_map(key)
    if normalize:  # a channel that is 1 in every value adds up the weights
        value = F.pad(value, (0, 1), value=1.0)
    outputs = []
    with _without_autocast(query.device.type):
        state = _start(state, key, value)
        for start in range(0, query.size(-2), chunk_size):
            q, k, v = (part[..., start : start + chunk_size, :] for part in (query, key, value))
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


def _start(state: Tensor | None, key: Tensor, value: Tensor) -> Tensor:
    """Return the state before the first token, (..., features, value_dim)."""
    if state is None:
        return key[..., :0, :].mT @ value[..., :0, :]  # the sum over no tokens: zeros
    width = (key.size(-1), value.size(-1))
    if state.shape[-2:] != width:
        raise ValueError(
            f"state must have shape (..., {width[0]}, {width[1]}), got {tuple(state.shape)}"
        )
    return state.to(value.dtype)


def _check(query: Tensor, key: Tensor, value: Tensor, chunk_size: int) -> None:
    """Raise ValueError unless the shapes fit each other."""
    for name, part in (("query", query), ("key", key), ("value", value)):
        if part.dim() < 2 or part.size(-2) != query.size(-2) or not part.size(-2):
            raise ValueError(
                f"{name} must have shape (..., T, channels) with the T of query, at least 1, "
                f"got {tuple(part.shape)}"
            )
    if key.size(-1) != query.size(-1):
        raise ValueError(f"key must have {query.size(-1)} channels, got {key.size(-1)}")
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size must be a positive integer, got {chunk_size!r}")
