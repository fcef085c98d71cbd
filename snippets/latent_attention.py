"""Multi-head latent attention (MLA): what is cached is one narrow vector a token, for all heads.

Needs PyTorch 2.5 or newer and nothing else.
Source: DeepSeek-AI (2024), "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts
Language Model", sections 2.1.2 (the latent, and absorbing the projections), 2.1.3 (the decoupled
rotary key) and appendix C (all formulas); the norms of the latents are those of its public code.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LatentAttention(nn.Module):
    """Causal multi-head attention whose keys and values are made from one latent a token.

        attention = LatentAttention(2048, 16, latent_dim=512, head_dim=128, rope_dim=64,
                                    rotate=RotaryPositions(64, pairing="interleaved"))
        y = attention(x)                  # (batch, T, 2048)
        y = attention(token, cache=cache)  # (batch, 1, 2048): one more

    A query and a key are head_dim channels, which come from the latent and know no position, and
    rope_dim channels that are rotated; the rotated part of the key is the same for all heads. A
    cache keeps latent_dim + rope_dim numbers a token, whatever the number of heads.

    There are two ways to compute it, equal but for rounding; `multiplications` counts both.
    Expanded, it makes the keys and values of all heads anew from all latents, and runs PyTorch's
    fused attention on them, values filled up with zeros to the width of the keys where they are
    narrower: 2 · num_heads · (head_dim + rope_dim) numbers for each key token, for a moment.
    Absorbed, each query is taken into the space of the latents, and no key and no value is made:
    the fused attention reads one copy of what is kept, latent_dim + rope_dim numbers a key token.
    A mask of (T, keys) is made only where several tokens follow a cache that is not empty.

    Give all its heads, or some of them with their rows of W_query, W_key and W_value and their
    columns of out_proj: the outputs of such shards add up.

    Args:
        embed_dim: width of a token.
        num_heads: number of heads.
        latent_dim: width of the latent from which keys and values are made.
        head_dim: channels of a head's query and key that know no position.
        rope_dim: channels of a query, and of the one key for all heads, that are rotated; 0: none.
        value_dim: channels of a head's value; None means head_dim.
        query_latent_dim: width of a latent for the queries, too, which saves parameters and no
            cache; None: the queries are made from the token.
        bias: whether the projections that make latents and the rotary key, and out_proj, have one.
        latent_norm: whether the latents pass an RMS norm before they are used (and cached).
        rotate: called as rotate(x, positions) with x (batch, heads, T, rope_dim), on queries and
            keys; None leaves them unrotated. The book's RotaryPositions fits.
        scale: factor of the scores; None means 1/√(head_dim + rope_dim).

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        latent_dim: int,
        head_dim: int,
        rope_dim: int = 0,
        value_dim: int | None = None,
        query_latent_dim: int | None = None,
        bias: bool = False,
        latent_norm: bool = True,
        rotate: Callable[[Tensor, Tensor], Tensor] | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        value_dim = head_dim if value_dim is None else value_dim
        sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "latent_dim": latent_dim}
        sizes |= {"head_dim": head_dim, "value_dim": value_dim}
        if query_latent_dim is not None:
            sizes["query_latent_dim"] = query_latent_dim
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        if not isinstance(rope_dim, int) or rope_dim < 0:
            raise ValueError(f"rope_dim must be an integer of 0 or more, got {rope_dim!r}")
        if rotate is not None and not rope_dim:
            raise ValueError("rotate must be None where rope_dim is 0, which leaves it nothing")
        self.embed_dim, self.num_heads, self.latent_dim = embed_dim, num_heads, latent_dim
        self.head_dim, self.rope_dim, self.value_dim = head_dim, rope_dim, value_dim
        self.scale = (head_dim + rope_dim) ** -0.5 if scale is None else scale
        self.rotate = rotate

        def norm(width: int) -> nn.Module:
            return nn.RMSNorm(width, eps=1e-6) if latent_norm else nn.Identity()

        asked = embed_dim
        self.W_query_latent = self.query_norm = None
        if query_latent_dim is not None:
            asked = query_latent_dim
            self.W_query_latent = nn.Linear(embed_dim, query_latent_dim, bias=bias)
            self.query_norm = norm(query_latent_dim)
        self.W_query = nn.Linear(asked, num_heads * (head_dim + rope_dim), bias=False)
        self.W_latent = nn.Linear(embed_dim, latent_dim, bias=bias)
        self.latent_norm = norm(latent_dim)
        self.W_rope_key = nn.Linear(embed_dim, rope_dim, bias=bias) if rope_dim else None
        self.W_key = nn.Linear(latent_dim, num_heads * head_dim, bias=False)
        self.W_value = nn.Linear(latent_dim, num_heads * value_dim, bias=False)
        self.out_proj = nn.Linear(num_heads * value_dim, embed_dim, bias=bias)

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache=None,
        absorb: bool | None = None,
    ) -> Tensor:
        """Return (batch, T, embed_dim).

        Args:
            x: (batch, T, embed_dim), the new tokens.
            positions: (T,) or (batch, T), integers; None counts on from cache.length, or from 0.
            attn_mask: boolean, True keeps, broadcastable to (batch, heads, T, keys), used instead
                of the causal default; keys are the tokens of the cache, then those of x.
            cache: what keeps the latents and the rotary keys of earlier tokens: it has `length`
                and `update(latents, keys)`, both (batch, 1, T, width), and returns all so far.
                The book's KVCache fits; one for each layer.
            absorb: True or False chooses the way; None, whichever multiplies less.
        """
        if x.dim() != 3 or x.size(-1) != self.embed_dim:
            raise ValueError(
                f"x must have shape (batch, T, {self.embed_dim}), got {tuple(x.shape)}"
            )
        T, past = x.size(1), 0 if cache is None else cache.length
        if positions is None:
            positions = torch.arange(past, past + T, device=x.device)

        asks = x if self.W_query_latent is None else self.query_norm(self.W_query_latent(x))
        query = self._heads(self.W_query(asks), self.head_dim + self.rope_dim)
        query, turned = query.split([self.head_dim, self.rope_dim], dim=-1)
        latent = self.latent_norm(self.W_latent(x))[:, None]  # (batch, 1, T, latent_dim)
        # (batch, 1, T, rope_dim): one head of it, for all heads
        place = latent[..., :0] if self.W_rope_key is None else self.W_rope_key(x)[:, None]
        if self.rotate is not None:
            turned, place = self.rotate(turned, positions), self.rotate(place, positions)
        if cache is not None:
            latent, place = cache.update(latent, place)  # of all tokens so far

        keys = latent.size(-2)
        options = self._mask(attn_mask, x, keys, query.size(1)) | {"scale": self.scale}
        if absorb is None:
            absorb = self.multiplications(T, keys, True) < self.multiplications(T, keys, False)
        if absorb:
            W_key = self._matrix(self.W_key, self.head_dim, latent)  # (heads, head_dim, latent_dim)
            W_value = self._matrix(self.W_value, self.value_dim, latent)
            query = torch.cat([query @ W_key, turned], dim=-1)  # (…, T, latent_dim + rope_dim)
            kept = torch.cat([latent, place], dim=-1).expand(-1, query.size(1), -1, -1)
            context = F.scaled_dot_product_attention(query, kept, kept, **options)
            context = context[..., : self.latent_dim] @ W_value.mT
        else:
            query = torch.cat([query, turned], dim=-1)
            key = self._heads(self.W_key(latent[:, 0]), self.head_dim)
            key = torch.cat([key, place.expand(-1, key.size(1), -1, -1)], dim=-1)
            value = self._heads(self.W_value(latent[:, 0]), self.value_dim)
            # The fused kernel of a processor wants values as wide as keys.
            value = F.pad(value, (0, max(0, key.size(-1) - self.value_dim)))
            context = F.scaled_dot_product_attention(query, key, value, **options)
            context = context[..., : self.value_dim]
        return self.out_proj(context.transpose(1, 2).flatten(-2))

    def multiplications(self, T: int, keys: int, absorb: bool) -> int:
        """Return how many numbers T new tokens multiply with `keys` tokens, themselves included.

        Of one sequence, behind the projections that both ways share, with no score left out for
        being masked.
        """
        per_head = self.latent_dim * (self.head_dim + self.value_dim)
        if absorb:  # take queries in and contexts out; scores and mean among the latents
            return self.num_heads * T * (per_head + keys * (2 * self.latent_dim + self.rope_dim))
        width = self.head_dim + self.rope_dim + self.value_dim
        return self.num_heads * keys * (per_head + T * width)

    def extra_repr(self) -> str:
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, "
            f"latent_dim={self.latent_dim}, head_dim={self.head_dim}, rope_dim={self.rope_dim}, "
            f"value_dim={self.value_dim}, scale={self.scale:.4g}"
        )

    @staticmethod
    def _heads(x: Tensor, width: int) -> Tensor:
        """(batch, T, heads · width) → (batch, heads, T, width)."""
        return x.unflatten(-1, (-1, width)).transpose(1, 2)

    @staticmethod
    def _matrix(projection: nn.Module, width: int, latent: Tensor) -> Tensor:
        """The matrix of a projection of latents, (heads, width, latent_dim).

        That of a plain nn.Linear is at hand. Another one, as LoRA or a quantiser puts into its
        place, is asked what it makes of the unit vectors: right, and latent_dim tokens' work.
        """
        weight = getattr(projection, "weight", None)
        if type(projection) is not nn.Linear or type(weight) not in (nn.Parameter, Tensor):
            unit = torch.eye(latent.size(-1), dtype=latent.dtype, device=latent.device)
            weight = projection(unit).mT
        return weight.unflatten(0, (-1, width))

    @staticmethod
    def _mask(attn_mask: Tensor | None, x: Tensor, keys: int, heads: int) -> dict:
        """What F.scaled_dot_product_attention has to be told, so that nobody sees the future."""
        T = x.size(1)
        if attn_mask is not None:
            wanted = (x.size(0), heads, T, keys)
            try:
                fits = torch.broadcast_shapes(attn_mask.shape, wanted) == wanted
            except RuntimeError:
                fits = False
            if not fits or attn_mask.dtype != torch.bool:
                raise ValueError(
                    f"attn_mask must be boolean and broadcastable to (batch, heads, T, keys) = "
                    f"{wanted}, got {attn_mask.dtype} of {tuple(attn_mask.shape)}"
                )
            return {"attn_mask": attn_mask}
        if T in (1, keys):  # the newest token sees all; without a past, the triangle is square
            return {"is_causal": T > 1}
        keep = torch.ones(T, keys, dtype=torch.bool, device=x.device)
        return {"attn_mask": keep.tril(keys - T)}
