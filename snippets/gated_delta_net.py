"""A layer with a memory in the place of attention, as Qwen3-Next has it: the gated delta rule.

    layer = GatedDeltaNet(512, 8, memory=gated_memory)
    y = layer(x)                  # (batch, T, 512) → (batch, T, 512)
    y = layer(x, cache=cache)     # what comes after the texts that a MemoryCache has seen
    y = layer(x, starts=starts)   # several texts in a row, (batch, T): True at their first tokens

A head keeps head_dim · value_dim numbers of a text, however long it is. There are no positions and
no mask: the order is in the state. Padding must come before the text, as rows of zeros, which write
nothing, or be a text of its own. The rule is handed in: the book's gated_memory, or a fused kernel.
Source: Yang, Kautz and Hatamizadeh (2024), "Gated Delta Networks"; the order of the steps is that
of Qwen3-Next's public code.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class MemoryCache:
    """What one layer keeps of a text, however long it is. It cannot be cut back to fewer tokens."""

    state: Tensor | None = None  # (batch, heads, head_dim, value_dim)
    recent: Tensor | None = None  # (batch, channels, kernel_size - 1): what the convolution needs


class GatedDeltaNet(nn.Module):
    """Queries, keys and values pass a short convolution; a memory for each head; a norm; a gate.

    Args:
        memory: the rule, called as memory(query, key, value, log_decay=, beta=, state=), which are
            (batch, heads, T, width), and 1 the width of both gates; returns outputs and state.
        num_key_heads: heads of queries and keys, which divides num_heads; None means num_heads.
        head_dim: channels of a key; None means embed_dim / num_heads.
        value_dim: channels of a value; None means head_dim.
        kernel_size: tokens that the convolution sees, itself included.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        memory: Callable[..., tuple[Tensor, Tensor]],
        num_key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        kernel_size: int = 4,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.memory = memory
        self.num_heads, self.num_key_heads = num_heads, num_key_heads or num_heads
        if head_dim is None and embed_dim % num_heads:
            raise ValueError(f"num_heads must divide embed_dim ({embed_dim}), got {num_heads}")
        self.head_dim = head_dim or embed_dim // num_heads
        value_dim = value_dim or self.head_dim
        keys, values = self.num_key_heads * self.head_dim, num_heads * value_dim
        self.W_query = nn.Linear(embed_dim, keys, bias=False)
        self.W_key = nn.Linear(embed_dim, keys, bias=False)
        self.W_value = nn.Linear(embed_dim, values, bias=False)
        self.W_gate = nn.Linear(embed_dim, values, bias=False)
        self.W_beta = nn.Linear(embed_dim, num_heads, bias=False)
        self.W_decay = nn.Linear(embed_dim, num_heads, bias=False)
        channels = 2 * keys + values
        self.convolution = nn.Conv1d(channels, channels, kernel_size, groups=channels, bias=False)
        # A token leaves exp(-exp(log_rate) · softplus(W_decay(x) + decay_bias)) of the state.
        self.log_rate = nn.Parameter(torch.zeros(num_heads))
        self.decay_bias = nn.Parameter(torch.full((num_heads,), -4.0))  # at first, 0.98
        self.norm = nn.RMSNorm(value_dim, eps=eps)
        self.out_proj = nn.Linear(values, embed_dim, bias=False)

    def forward(
        self, x: Tensor, *, cache: MemoryCache | None = None, starts: Tensor | None = None
    ) -> Tensor:
        """(batch, T, embed_dim) → the same shape; a cache is brought up to the last token."""
        query, key, value = self._mixed(x, cache, starts)  # (batch, heads, T, width) each
        query, key = _unit(query) * self.head_dim**-0.5, _unit(key)
        log_decay = -self.log_rate.exp() * F.softplus(self.W_decay(x) + self.decay_bias)
        beta = self.W_beta(x).sigmoid()  # (batch, T, heads), as is log_decay
        if starts is not None:  # nothing is left of the text before
            log_decay = log_decay.masked_fill(starts[..., None], float("-inf"))
        output, state = self.memory(
            query,
            key,
            value,
            log_decay=log_decay.mT.unsqueeze(-1),
            beta=beta.mT.unsqueeze(-1),
            state=None if cache is None else cache.state,
        )
        if cache is not None:
            cache.state = state
        output = self.norm(output.to(self.norm.weight.dtype)).to(output.dtype)
        output = output.transpose(1, 2).flatten(2)  # (batch, T, heads · value_dim)
        return self.out_proj(output * F.silu(self.W_gate(x)))

    def _mixed(self, x: Tensor, cache: MemoryCache | None, starts: Tensor | None) -> list[Tensor]:
        """Return query, key and value, each (batch, heads, T, width)."""
        parts = [self.W_query(x), self.W_key(x), self.W_value(x)]
        mixed = torch.cat(parts, dim=-1).mT  # (batch, channels, T)
        T, before = x.size(1), self.convolution.kernel_size[0] - 1
        recent = None if cache is None else cache.recent
        mixed = F.pad(mixed, (before, 0)) if recent is None else torch.cat([recent, mixed], dim=-1)
        recent = mixed[..., T:]
        if starts is None:
            mixed = self.convolution(mixed)
        else:
            text = F.pad(starts.cumsum(dim=1), (before, 0))[:, None]  # 0 goes on from the cache
            recent = recent.masked_fill(text[..., T:] != text[..., -1:], 0.0)
            weight = self.convolution.weight.to(mixed.dtype)  # (channels, 1, kernel_size)
            seen = [mixed[..., i : i + T] * weight[..., i] for i in range(before + 1)]
            other = [text[..., i : i + T] != text[..., before:] for i in range(before + 1)]
            mixed = sum(x.masked_fill(hide, 0.0) for x, hide in zip(seen, other, strict=True))
        if cache is not None:
            cache.recent = recent
        query, key, value = F.silu(mixed).mT.split([part.size(-1) for part in parts], dim=-1)
        group = self.num_heads // self.num_key_heads
        query = query.unflatten(-1, (-1, self.head_dim)).repeat_interleave(group, dim=2)
        key = key.unflatten(-1, (-1, self.head_dim)).repeat_interleave(group, dim=2)
        value = value.unflatten(-1, (self.num_heads, -1))
        return [part.transpose(1, 2) for part in (query, key, value)]


def _unit(x: Tensor) -> Tensor:
    """Bring each vector to length 1, and one of zeros to zeros."""
    return x * (x.square().sum(dim=-1, keepdim=True) + 1e-6).rsqrt()
