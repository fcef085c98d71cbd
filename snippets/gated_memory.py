"""A memory of fixed size that forgets and overwrites: decay, the delta rule, and both together.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: Sun et al. (2023), "Retentive Network", and Dao and Gu (2024), "Transformers are SSMs" (a
state that decays, by one number for each head); Schlag, Irie and Schmidhuber (2021), "Linear
Transformers Are Secretly Fast Weight Programmers" (the delta rule); Yang et al. (2024),
"Parallelizing Linear Transformers with the Delta Rule over Sequence Length" (its chunks); Yang,
Kautz and Hatamizadeh (2024), "Gated Delta Networks" (both together, and the layer); Kimi Team
(2025), "Kimi Linear" (a decay for each channel).
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def gated_memory(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    log_decay: Tensor | None = None,
    beta: Tensor | None = None,
    chunk_size: int = 64,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return query_i @ state_i, where each token makes the state decay and then writes into it.

        faded_i = exp(log_decay_i) · state_{i-1}, row by row
        state_i = faded_i + outer(key_i, beta_i · (value_i - key_i @ faded_i))

    Without beta each token adds its whole value: state_i = faded_i + outer(key_i, value_i).

        neither                          linear attention without feature map and division
        log_decay of (..., T, 1)         RetNet, Mamba-2
        beta                             the delta rule
        both, log_decay of (..., T, 1)   the gated delta rule: Qwen3-Next
        both, (..., T, head_dim)         Kimi Delta Attention

    The result does not depend on chunk_size. Not fused: a loop over chunks, with chunk_size² scores
    in each, and head_dim times as many numbers where each channel has its own decay.

    Args:
        query, key: (..., T, head_dim). With beta, keys want length 1, F.normalize(key, dim=-1):
            where beta · |key|² is above 2, an answer ends further off than it was.
        value: (..., T, value_dim).
        log_decay: (..., T, 1), or (..., T, head_dim) for each channel of the keys: the logarithm of
            what is left of the state, at most 0. At -30 nothing is left; -inf gives nan.
        beta: (..., T, 1), from 0, which writes nothing, to 1, which overwrites.
        chunk_size: tokens that are compared with each other directly, at least 1.
        state: what an earlier call returned; None means nothing was seen.

    Returns:
        The outputs, (..., T, value_dim), in the dtype of value, and the state after the last token,
        (..., head_dim, value_dim), in float32 or wider.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    _check(query, key, value, chunk_size)
    T, head_dim = key.shape[-2:]
    _check_gate("log_decay", log_decay, ((T, 1), (T, head_dim)))
    _check_gate("beta", beta, ((T, 1),))
    adds = beta is None
    log_decay = key.new_zeros(T, 1) if log_decay is None else log_decay
    beta = key.new_ones(T, 1) if beta is None else beta
    dtype = value.dtype
    query, key, value, log_decay, beta = _at_least_float32(query, key, value, log_decay, beta)
    outputs = []
    with _without_autocast(query.device.type):
        state = _start(state, key, value)
        for start in range(0, T, chunk_size):
            end = start + chunk_size
            q, k, v, g, b = (
                part[..., start:end, :] for part in (query, key, value, log_decay, beta)
            )
            total = g.cumsum(dim=-2)  # since the chunk began, (..., size, 1 or head_dim)
            left = total.exp()  # of the state before the chunk
            since = _since(total)
            written = v
            if not adds:
                # written_i = b_i · (v_i - what the state answers), in which the earlier tokens of
                # the chunk have written, too: a triangular system, (1 + lower) @ written = wanted.
                lower = (b * _pairs(k, k, since)).tril(-1)
                wanted = b * (v - (k * left) @ state)
                written = torch.linalg.solve_triangular(
                    lower, wanted, upper=False, unitriangular=True
                )
            outputs.append((q * left) @ state + _pairs(q, k, since) @ written)
            last = total[..., -1:, :]
            state = last.exp().mT * state + (k * (last - total).exp()).mT @ written
    return torch.cat(outputs, dim=-2).to(dtype), state


def _since(total: Tensor) -> Tensor:
    """Return what is left at token i of what token j wrote, (..., i, j, 1 or head_dim).

    It is exp(total_i - total_j), and 0 where j comes after i. The difference is taken before the
    exponential: exp(total_i) / exp(total_j) would be 0 / 0 where much has been forgotten.
    """
    size = total.size(-2)
    later = torch.ones(size, size, dtype=torch.bool, device=total.device).triu(1).unsqueeze(-1)
    gaps = total.unsqueeze(-2) - total.unsqueeze(-3)
    return gaps.masked_fill(later, float("-inf")).exp()


def _pairs(left: Tensor, right: Tensor, since: Tensor) -> Tensor:
    """Return left_i · right_j, in which each channel has faded since token j, (..., i, j)."""
    if since.size(-1) == 1:  # all channels alike
        return left @ right.mT * since.squeeze(-1)
    return (left.unsqueeze(-2) * right.unsqueeze(-3) * since).sum(dim=-1)


@dataclass
class MemoryCache:
    """What one layer keeps of a text, however long it is. It cannot be cut back to fewer tokens."""

    state: Tensor | None = None  # (batch, heads, head_dim, value_dim)
    recent: Tensor | None = None  # (batch, channels, kernel_size - 1): what the convolution needs


class GatedDeltaNet(nn.Module):
    """A layer with the gated delta rule in the place of attention, as Qwen3-Next has it.

        layer = GatedDeltaNet(512, 8)
        y = layer(x)                  # (batch, T, 512) → (batch, T, 512)
        y = layer(x, cache=cache)     # what comes after the texts that a MemoryCache has seen

    Queries, keys and values go through a short causal convolution, in each channel alone, and a
    SiLU. Queries and keys have length 1. Each head has one decay and one beta for each token. The
    outputs of a head are divided by their root mean square and multiplied by a gate.

    There are no positions and no mask: the order is in the state. Padding must come before the
    text, as rows of zeros, which write nothing.

    Args:
        embed_dim: channels of the input and the output.
        num_heads: states, each with its own values, decay and beta.
        num_key_heads: heads of queries and keys, which divides num_heads; None means num_heads.
        head_dim: channels of a key; None means embed_dim / num_heads.
        value_dim: channels of a value; None means head_dim.
        kernel_size: tokens that the convolution sees, itself included.
        eps: added to the mean square by which outputs are divided.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        kernel_size: int = 4,
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        num_key_heads = num_heads if num_key_heads is None else num_key_heads
        if num_heads < 1 or num_key_heads < 1 or num_heads % num_key_heads:
            raise ValueError(
                f"num_key_heads must divide num_heads ({num_heads}), got {num_key_heads}"
            )
        if head_dim is None and embed_dim % num_heads:
            raise ValueError(f"num_heads must divide embed_dim ({embed_dim}), got {num_heads}")
        if kernel_size < 2:
            raise ValueError(f"kernel_size must be at least 2, got {kernel_size}")
        self.num_heads, self.num_key_heads = num_heads, num_key_heads
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim
        self.value_dim = self.head_dim if value_dim is None else value_dim
        where = {"device": device, "dtype": dtype}
        keys, values = num_key_heads * self.head_dim, num_heads * self.value_dim
        channels = 2 * keys + values
        self.W_query = nn.Linear(embed_dim, keys, bias=False, **where)
        self.W_key = nn.Linear(embed_dim, keys, bias=False, **where)
        self.W_value = nn.Linear(embed_dim, values, bias=False, **where)
        self.W_gate = nn.Linear(embed_dim, values, bias=False, **where)
        self.W_beta = nn.Linear(embed_dim, num_heads, bias=False, **where)
        self.W_decay = nn.Linear(embed_dim, num_heads, bias=False, **where)
        self.convolution = nn.Conv1d(
            channels, channels, kernel_size, groups=channels, bias=False, **where
        )
        # A token leaves exp(-exp(log_rate) · softplus(W_decay(x) + decay_bias)) of the state.
        self.log_rate = nn.Parameter(torch.zeros(num_heads, **where))
        self.decay_bias = nn.Parameter(torch.full((num_heads,), -4.0, **where))  # at first, 0.98
        self.norm = nn.RMSNorm(self.value_dim, eps=eps, **where)
        self.out_proj = nn.Linear(values, embed_dim, bias=False, **where)

    def forward(self, x: Tensor, *, cache: MemoryCache | None = None) -> Tensor:
        """(batch, T, embed_dim) → the same shape; a cache is brought up to the last token."""
        if x.dim() != 3 or x.size(-1) != self.W_query.in_features or not x.size(1):
            raise ValueError(
                f"x must have shape (batch, T, {self.W_query.in_features}), T at least 1, "
                f"got {tuple(x.shape)}"
            )
        query, key, value = self._mixed(x, cache)
        query, key = _unit(query) * self.head_dim**-0.5, _unit(key)
        rate = self.log_rate.exp() * F.softplus(self.W_decay(x) + self.decay_bias)
        beta = self.W_beta(x).sigmoid()  # (batch, T, heads), as is rate
        output, state = gated_memory(
            query,
            key,
            value,
            log_decay=-rate.mT.unsqueeze(-1),
            beta=beta.mT.unsqueeze(-1),
            state=None if cache is None else cache.state,
        )
        if cache is not None:
            cache.state = state
        output = self.norm(output.to(self.norm.weight.dtype)).to(output.dtype)
        output = output.transpose(1, 2).flatten(2)  # (batch, T, heads · value_dim)
        return self.out_proj(output * F.silu(self.W_gate(x)))

    def _mixed(self, x: Tensor, cache: MemoryCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values after the convolution, each (batch, heads, T, width)."""
        parts = [self.W_query(x), self.W_key(x), self.W_value(x)]
        mixed = torch.cat(parts, dim=-1).mT  # (batch, channels, T)
        before = self.convolution.kernel_size[0] - 1
        if cache is None or cache.recent is None:
            mixed = F.pad(mixed, (before, 0))
        else:
            mixed = torch.cat([cache.recent, mixed], dim=-1)
        if cache is not None:
            cache.recent = mixed[..., -before:]
        mixed = F.silu(self.convolution(mixed)).mT
        query, key, value = mixed.split([part.size(-1) for part in parts], dim=-1)
        group = self.num_heads // self.num_key_heads
        query, key = (
            part.unflatten(-1, (self.num_key_heads, -1)).repeat_interleave(group, dim=2)
            for part in (query, key)
        )
        value = value.unflatten(-1, (self.num_heads, -1))
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


def _unit(x: Tensor) -> Tensor:
    """Bring each vector to length 1, and one of zeros to zeros."""
    return x * (x.square().sum(dim=-1, keepdim=True) + 1e-6).rsqrt()


def _check_gate(name: str, gate: Tensor | None, shapes: tuple[tuple[int, int], ...]) -> None:
    """Raise ValueError unless the last two sizes of a gate are among those given."""
    if gate is not None and tuple(gate.shape[-2:]) not in shapes:
        wanted = " or ".join(f"(..., {T}, {channels})" for T, channels in dict.fromkeys(shapes))
        raise ValueError(f"{name} must have shape {wanted}, got {tuple(gate.shape)}")


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
