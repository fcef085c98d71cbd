"""A sliding window around any attention layer: a token sees the last few positions alone.

    attention = Windowed(GroupedQueryAttention(512, 8, rotate=rotate), window=4096)
    y = attention(x, positions=positions, cache=cache)      # (batch, T, embed_dim), as without it

A window counts positions, not rows: in a tree of guesses several tokens have one position. So the
positions of the keys in a cache are kept beside them, as cache.positions.
It costs a mask of T · keys bytes a call. A KVCache keeps what lies outside of the window, too.
Source: Beltagy et al. (2020), "Longformer", section 3.1. It counts as sliding_window does in
transformers' causal models.
"""

from typing import Any

import torch
from torch import Tensor, nn


class Windowed(nn.Module):
    """Attention in which a token sees the last `window` positions, its own among them.

    A cache belongs to this layer from its first token on. It may forget its last tokens, by
    truncate, or drop its first ones while it takes new ones: cache.positions follows. One that
    other hands have filled is refused, since the positions of its keys are not known.

    Args:
        attention: a layer that takes positions, attn_mask and cache.
        window: how many positions a token sees, 1 or more.
    """

    def __init__(self, attention: nn.Module, window: int) -> None:
        super().__init__()
        if window < 1:  # a token that sees nothing, not even itself
            raise ValueError(f"window must be 1 or more, got {window}")
        self.attention, self.window = attention, window

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        """(batch, T, embed_dim) → the same; attn_mask is boolean, and must hold besides."""
        past, T = 0 if cache is None else cache.length, x.size(1)
        if attn_mask is None:
            attn_mask = torch.ones(T, past + T, dtype=torch.bool, device=x.device).tril(past)
        if attn_mask.dim() == 3:  # one for each text, or one for each head?
            raise ValueError(
                "attn_mask must be (T, keys) or (batch, 1 or heads, T, keys), got "
                f"{tuple(attn_mask.shape)}: mask[:, None] is one for each text"
            )
        if attn_mask.dtype != torch.bool:
            raise ValueError(f"attn_mask must be boolean, got {attn_mask.dtype}")
        own = torch.arange(past, past + T, device=x.device) if positions is None else positions
        noted = getattr(cache, "positions", None)
        known = own[..., :0] if noted is None else noted[..., :past]  # of the keys in the cache
        if known.size(-1) < past:
            raise ValueError(f"cache must be filled by this layer alone, got {past} tokens in it")
        if own.dim() != known.dim():  # one of them is the same for each text
            own, known = (some.expand(x.size(0), -1) for some in (own, known))
        seen = torch.cat([known, own], dim=-1)  # (keys,) or (batch, keys)
        asks, keys = own[..., None], seen[..., None, :]
        near = (keys <= asks) & (keys > asks - self.window)  # (T, keys) or (batch, T, keys)
        keep = attn_mask & (near if near.dim() == 2 else near[:, None])
        y = self.attention(x, positions=positions, attn_mask=keep, cache=cache)
        if cache is not None:  # as many as it has kept, the last ones
            cache.positions = seen[..., seen.size(-1) - cache.length :]
        return y
