"""Multi-head latent attention (MLA): what is cached is one narrow vector a token, for all heads.

Needs PyTorch 2.5 or newer and nothing else.
Source: DeepSeek-AI (2024), "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts
Language Model", sections 2.1.2 (the latent, and absorbing the projections), 2.1.3 (the decoupled
rotary key) and appendix C (all formulas); the norms of the latents are those of its public code.
"""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 512  # queries that are taken at a time after a filled cache


class Cache(Protocol):
    """What keeps the keys and values of earlier tokens, as a KVCache does."""

    length: int  # tokens held

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take those of new tokens, and return those of all tokens so far."""
        ...


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
    the fused attention reads what is kept, latent_dim + rope_dim numbers a key token, where it
    lies. Where several tokens follow a filled cache, queries are taken ROWS at a time, with a mask
    of ROWS · keys.

    Absorbed, W_key and W_value never see a latent: their matrices are used. A hook on one of them,
    such as that of torch.nn.utils.prune, has to see what passes through, so the layer then expands
    unless it is told to absorb.

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
        device: where the parameters are made.
        dtype: what they are made of.

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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
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

        where = {"device": device, "dtype": dtype}

        def norm(width: int) -> nn.Module:
            return nn.RMSNorm(width, eps=1e-6, **where) if latent_norm else nn.Identity()

        asked = embed_dim
        self.W_query_latent = self.query_norm = None
        if query_latent_dim is not None:
            asked = query_latent_dim
            self.W_query_latent = nn.Linear(embed_dim, query_latent_dim, bias=bias, **where)
            self.query_norm = norm(query_latent_dim)
        self.W_query = nn.Linear(asked, num_heads * (head_dim + rope_dim), bias=False, **where)
        self.W_latent = nn.Linear(embed_dim, latent_dim, bias=bias, **where)
        self.latent_norm = norm(latent_dim)
        self.W_rope_key = nn.Linear(embed_dim, rope_dim, bias=bias, **where) if rope_dim else None
        self.W_key = nn.Linear(latent_dim, num_heads * head_dim, bias=False, **where)
        self.W_value = nn.Linear(latent_dim, num_heads * value_dim, bias=False, **where)
        self.out_proj = nn.Linear(num_heads * value_dim, embed_dim, bias=bias, **where)

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache: Cache | None = None,
        absorb: bool | None = None,
    ) -> Tensor:
        """Return (batch, T, embed_dim).

        Args:
            x: (batch, T, embed_dim), the new tokens.
            positions: (T,) or (batch, T), integers; None counts on from cache.length, or from 0.
            attn_mask: which keys each token sees, instead of the causal default: (T, keys), or
                four dimensions that broadcast to (batch, heads, T, keys); keys are the tokens of
                the cache, then those of x. Boolean: True keeps. Floating point: added to the scaled
                scores. A mask for each text, (batch, T, keys), is refused, since it could be one
                for each head: pass mask[:, None].
            cache: what keeps the latents and the rotary keys of earlier tokens, side by side, so
                that nothing is joined anew for each token. It has `length` and `update(keys,
                values)`, which returns all so far: its keys are (batch, 1, T, latent_dim +
                rope_dim), its values have no width. The book's KVCache fits; one for each layer.
            absorb: True or False chooses the way; None, whichever multiplies less, as long as
                W_key and W_value have no hooks. Told to absorb, the layer asks a hooked projection
                what it makes of the unit vectors, which is right if the hook keeps it linear.
        """
        if x.dim() != 3 or x.size(-1) != self.embed_dim:
            raise ValueError(
                f"x must have shape (batch, T, {self.embed_dim}), got {tuple(x.shape)}"
            )
        T, past = x.size(1), 0 if cache is None else cache.length
        if positions is None:
            positions = torch.arange(past, past + T, device=x.device)

        asks = x
        if self.W_query_latent is not None:
            asks = _normed(self.query_norm, self.W_query_latent(x))
        query = self._heads(self.W_query(asks), self.head_dim + self.rope_dim)
        query, turned = query.split([self.head_dim, self.rope_dim], dim=-1)
        kept = _normed(self.latent_norm, self.W_latent(x))[:, None]  # (batch, 1, T, latent_dim)
        if self.rotate is not None:
            turned = self.rotate(turned, positions)
        if self.W_rope_key is not None:
            place = self.W_rope_key(x)[:, None]  # (batch, 1, T, rope_dim): one for all heads
            if self.rotate is not None:
                place = self.rotate(place, positions)
            kept = torch.cat([kept, place], dim=-1)
        if attn_mask is not None:  # looked at before the cache takes anything
            _check_mask(attn_mask, (x.size(0), query.size(1), T, past + T))
            if attn_mask.dtype != torch.bool:
                attn_mask = attn_mask.to(query.dtype)
        if cache is not None:
            kept, _ = cache.update(kept, kept[..., :0])  # of all tokens so far

        keys = kept.size(-2)
        if absorb is None:
            absorb = self.multiplications(T, keys, True) < self.multiplications(T, keys, False)
            absorb = absorb and not _hooked(self.W_key) and not _hooked(self.W_value)
        if absorb:
            # (heads, head_dim, latent_dim) and (heads, value_dim, latent_dim)
            latent = kept[..., : self.latent_dim]
            W_key = self._matrix(self.W_key, self.head_dim, latent)
            W_value = self._matrix(self.W_value, self.value_dim, latent)
            query = torch.cat([query @ W_key, turned], dim=-1)  # (…, T, latent_dim + rope_dim)
            context = _causal_attention(query, kept, kept, attn_mask, self.scale)
            context = context[..., : self.latent_dim] @ W_value.mT
        else:
            latent, place = kept.split([self.latent_dim, self.rope_dim], dim=-1)
            query = torch.cat([query, turned], dim=-1)
            key = self._heads(self.W_key(latent[:, 0]), self.head_dim)
            key = torch.cat([key, place.expand(-1, key.size(1), -1, -1)], dim=-1)
            value = self._heads(self.W_value(latent[:, 0]), self.value_dim)
            # The fused kernel of a processor wants values as wide as keys.
            value = F.pad(value, (0, max(0, key.size(-1) - self.value_dim)))
            context = _causal_attention(query, key, value, attn_mask, self.scale)[
                ..., : self.value_dim
            ]
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
        plain = type(projection) is nn.Linear and type(weight) in (nn.Parameter, Tensor)
        if not plain or _hooked(projection):
            unit = torch.eye(latent.size(-1), dtype=latent.dtype, device=latent.device)
            weight = projection(unit).mT
        return weight.unflatten(0, (-1, width))


def _normed(norm: nn.Module, x: Tensor) -> Tensor:
    """Norm x in the dtype of the norm's own weights, which under autocast is the wider one."""
    dtype = next((weight.dtype for weight in norm.parameters()), x.dtype)
    return norm(x.to(dtype)).to(x.dtype)


def _hooked(projection: nn.Module) -> bool:
    """Whether something waits for this projection to be called, to see or to change what passes."""
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return any(getattr(part, kind, None) for part in projection.modules() for kind in kinds)


def _causal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    scale: float | None = None,
) -> Tensor:
    """Return what each query reads, (batch, heads, T, width): the last of the keys are its own.

    Args:
        query: (batch, heads, T, width).
        key, value: (batch, kv_heads, keys, width); kv_heads divides heads.
        attn_mask: used instead of the causal rule, or None.
        scale: factor on the scores; None means 1/√width.
    """
    T, keys = query.size(2), key.size(2)
    if T == 1:
        # It may see every key. Heads that share keys are laid into the rows of one head, so that
        # the kernel reads each key once for all of them, and not once for each.
        rows = query.unflatten(1, (key.size(1), -1)).flatten(
            2, 3
        )  # (batch, kv_heads, group, width)
        if attn_mask is not None and attn_mask.dim() == 4 and attn_mask.size(1) > 1:
            attn_mask = attn_mask.unflatten(1, (key.size(1), -1)).flatten(2, 3)
        context = F.scaled_dot_product_attention(rows, key, value, attn_mask=attn_mask, scale=scale)
        return context.flatten(1, 2).unsqueeze(2)
    options = {"scale": scale, "enable_gqa": query.size(1) != key.size(1)}
    if attn_mask is not None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, **options)
    if keys == T:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, **options)
    # is_causal would count from the first key, and one mask for all queries would be as large as
    # a head's scores: so each piece of the queries gets a mask of its own, up to its last key.
    place, contexts = torch.arange(keys, device=query.device), []
    for start in range(keys - T, keys, ROWS):
        seen = place[: start + ROWS]
        keep = seen <= place[start : start + ROWS, None]
        part = query[:, :, start - keys + T :][:, :, :ROWS]
        k, v = key[:, :, : start + ROWS], value[:, :, : start + ROWS]
        contexts.append(F.scaled_dot_product_attention(part, k, v, attn_mask=keep, **options))
    return torch.cat(contexts, dim=2)


def _check_mask(attn_mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise ValueError unless attn_mask can be applied to scores of this shape."""
    tensor = isinstance(attn_mask, Tensor)
    if not tensor or not (attn_mask.dtype == torch.bool or attn_mask.is_floating_point()):
        raise ValueError(
            "attn_mask must be a tensor or None, boolean (True keeps) or floating point (added "
            f"to the scores), got {attn_mask.dtype if tensor else repr(attn_mask)}"
        )
    sizes = zip(attn_mask.shape[::-1], scores[::-1], strict=False)
    fits = all(size in (1, want) for size, want in sizes)
    # (batch, T_q, T_k) is refused beside heads: broadcast, it would be read as (heads, T_q, T_k).
    if not fits or attn_mask.dim() not in (2, len(scores)):
        texts = (attn_mask.dim(), len(scores)) == (3, 4)
        hint = "; mask[:, None] makes one for each text" if texts else ""
        raise ValueError(
            f"attn_mask must have shape {scores[-2:]}, or the {len(scores)} dimensions of the "
            f"scores, each of size 1 or as in {scores}: got shape {tuple(attn_mask.shape)}{hint}"
        )
