"""Multi-head latent attention (MLA): what is cached is one narrow vector a token, for all heads.

    attention = LatentAttention(2048, 16, latent_dim=512, head_dim=128, rope_dim=64, rotate=rotary)
    y = attention(x)                   # (batch, T, 2048) → (batch, T, 2048), causal
    y = attention(token, cache=cache)  # one more; the cache keeps latent_dim + rope_dim a token

Two ways give the same. Expanded makes keys and values of all heads from all latents, for a moment.
Absorbed takes each query into the space of the latents and reads them where they lie: no key is
made. T tokens after a filled cache get a mask of T · keys.
Source: DeepSeek-AI (2024), "DeepSeek-V2", section 2.1 and appendix C; its code has the norms.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LatentAttention(nn.Module):
    """Causal multi-head attention whose keys and values are made from one latent a token.

    A query and a key are head_dim channels, which come from the latent and know no position, and
    rope_dim channels that are rotated; the rotated part of the key is the same for all heads.
    value_dim, scale: None means head_dim, and 1/√(head_dim + rope_dim).
    query_latent_dim: width of a latent for queries, which saves parameters; None: no latent.
    rotate: called as rotate(x, positions) with x (batch, heads, T, rope_dim), before caching.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, *, latent_dim: int, head_dim: int, rope_dim: int = 0,
        value_dim=None, query_latent_dim=None, bias=False, rotate=None, scale: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if rotate is not None and not rope_dim:  # nothing would turn
            raise ValueError("rope_dim must be above 0 where rotate is given, got 0")
        self.num_heads, self.latent_dim, self.rotate = num_heads, latent_dim, rotate
        self.head_dim, self.rope_dim, self.value_dim = head_dim, rope_dim, value_dim or head_dim
        self.scale = (head_dim + rope_dim) ** -0.5 if scale is None else scale
        self.W_query_latent, self.query_norm = nn.Identity(), nn.Identity()
        if query_latent_dim is not None:
            self.W_query_latent = nn.Linear(embed_dim, query_latent_dim, bias=bias)
            self.query_norm = nn.RMSNorm(query_latent_dim, eps=1e-6)
        width = num_heads * (head_dim + rope_dim)
        self.W_query = nn.Linear(query_latent_dim or embed_dim, width, bias=False)
        self.W_latent = nn.Linear(embed_dim, latent_dim, bias=bias)
        self.latent_norm = nn.RMSNorm(latent_dim, eps=1e-6)
        self.W_rope_key = nn.Linear(embed_dim, rope_dim, bias=bias) if rope_dim else None
        self.W_key = nn.Linear(latent_dim, num_heads * head_dim, bias=False)
        self.W_value = nn.Linear(latent_dim, num_heads * self.value_dim, bias=False)
        self.out_proj = nn.Linear(num_heads * self.value_dim, embed_dim, bias=bias)

    def forward(self, x, *, positions=None, attn_mask=None, cache=None, absorb=None) -> Tensor:
        """Return (batch, T, embed_dim). Token i of x sees what the cache held, and tokens 0 … i.

        positions: (T,) or (batch, T), for rotate; None counts on from cache.length.
        attn_mask: (T, keys) or (batch, 1 or heads, T, keys), in place of that rule; the keys of the
            cache come first. Boolean: True keeps; floating point: added to the scaled scores.
        absorb: None: the way that multiplies less. Absorbed, hooks on W_key, W_value see nothing.
        """
        if attn_mask is not None and attn_mask.dim() == 3:  # one for each text, or for each head?
            raise ValueError(f"attn_mask must be 2-D or 4-D (mask[:, None]), got {attn_mask.shape}")
        T, past = x.size(1), 0 if cache is None else cache.length
        keys = past + T
        if positions is None:
            positions = torch.arange(past, keys, device=x.device)
        query, kept = self._projected(x, positions)
        if cache is not None:
            kept, _ = cache.update(kept, kept[..., :0])  # of all tokens so far
        if attn_mask is None and past and T > 1:  # is_causal would count from the first key
            attn_mask = torch.ones(T, keys, dtype=torch.bool, device=x.device).tril(past)
        if absorb is None:
            absorb = self.multiplications(T, keys, True) < self.multiplications(T, keys, False)
        read = self._absorbed if absorb else self._expanded
        causal = attn_mask is None and not past
        context = read(query, kept, attn_mask, is_causal=causal, scale=self.scale)
        return self.out_proj(context.transpose(1, 2).flatten(2))

    def _projected(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        latent = _normed(self.latent_norm, self.W_latent(x))[:, None]  # (batch, 1, T, latent_dim)
        query = self.W_query(_normed(self.query_norm, self.W_query_latent(x)))
        query = query.unflatten(-1, (-1, self.head_dim + self.rope_dim)).transpose(1, 2)
        if self.W_rope_key is None:
            return query, latent
        place = self.W_rope_key(x)[:, None]  # (batch, 1, T, rope_dim): one for all heads
        if self.rotate is not None:
            place = self.rotate(place, positions)
            turned = self.rotate(query[..., self.head_dim :], positions)
            query = torch.cat([query[..., : self.head_dim], turned], dim=-1)
        return query, torch.cat([latent, place], dim=-1)

    def _expanded(self, query: Tensor, kept: Tensor, attn_mask, **options) -> Tensor:
        latent, place = kept.split([self.latent_dim, self.rope_dim], dim=-1)
        key = self.W_key(latent[:, 0]).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        key = torch.cat([key, place.expand(-1, key.size(1), -1, -1)], dim=-1)
        value = self.W_value(latent[:, 0]).unflatten(-1, (-1, self.value_dim)).transpose(1, 2)
        value = F.pad(value, (0, max(0, key.size(-1) - self.value_dim)))  # the fused kernel asks it
        context = F.scaled_dot_product_attention(query, key, value, attn_mask, **options)
        return context[..., : self.value_dim]

    def _absorbed(self, query: Tensor, kept: Tensor, attn_mask, **options) -> Tensor:
        W_key = self._matrix(self.W_key, kept).unflatten(0, (-1, self.head_dim))
        W_value = self._matrix(self.W_value, kept).unflatten(0, (-1, self.value_dim))
        query, turned = query.split([self.head_dim, self.rope_dim], dim=-1)
        query = torch.cat([query @ W_key, turned], dim=-1)  # (batch, heads, T, latent + rope_dim)
        one = query.size(2) == 1  # then heads become rows of one: a latent is read once for all
        kept = kept if one else kept.expand(-1, query.size(1), -1, -1)
        query = query.transpose(1, 2) if one else query
        if one and attn_mask is not None:  # (1, keys) has no heads
            attn_mask = attn_mask.transpose(1, 2) if attn_mask.dim() == 4 else attn_mask
        context = F.scaled_dot_product_attention(query, kept, kept, attn_mask, **options)
        context = context.transpose(1, 2) if one else context
        return context[..., : self.latent_dim] @ W_value.mT

    def _matrix(self, projection: nn.Module, kept: Tensor) -> Tensor:
        """Return the matrix of a projection, or what an adapter makes of the unit vectors."""
        if type(projection) is nn.Linear and type(projection.weight) is nn.Parameter:
            return projection.weight
        return projection(torch.eye(self.latent_dim, dtype=kept.dtype, device=kept.device)).mT

    def multiplications(self, T: int, keys: int, absorb: bool) -> int:
        """Return how many numbers T new tokens multiply with `keys` of one text, by one way."""
        per_head = self.latent_dim * (self.head_dim + self.value_dim)
        if absorb:  # take queries in and contexts out; scores and mean among the latents
            return self.num_heads * T * (per_head + keys * (2 * self.latent_dim + self.rope_dim))
        width = self.head_dim + self.rope_dim + self.value_dim
        return self.num_heads * keys * (per_head + T * width)


def _normed(norm: nn.Module, x: Tensor) -> Tensor:
    dtype = next((weight.dtype for weight in norm.parameters()), x.dtype)  # wider under autocast
    return norm(x.to(dtype)).to(x.dtype)
