"""Grouped-query attention: several query heads share the keys and values of one.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Ainslie et al. (2023), "GQA: Training Generalized Multi-Query Transformer Models from
Multi-Head Checkpoints", section 2.2 (groups); Shazeer (2019), "Fast Transformer Decoding: One
Write-Head is All You Need", section 3 (one group); Henry et al. (2020), "Query-Key Normalization
for Transformers", and Dehghani et al. (2023), "Scaling Vision Transformers to 22 Billion
Parameters" (norms before the scores).
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


class GroupedQueryAttention(nn.Module):
    """Causal self-attention in which num_heads query heads share num_kv_heads keys and values.

    Query head h reads key-value head h // (num_heads / num_kv_heads), as in Llama: neighbours
    share. With num_kv_heads = num_heads it is multi-head attention, with 1 multi-query attention.

    The projections are only ever called, and heads are counted by their width, so an adapter, an
    int8 version or a shard of whole groups may take their place. They start as nn.Linear does.
    There is no dropout.

    Args:
        embed_dim: width of the input and of the output.
        num_heads: number of query heads.
        num_kv_heads: number of key-value heads, which divides num_heads; None means num_heads.
        head_dim: width of a head; None means embed_dim / num_heads, which must be whole.
        bias: whether all four projections add a bias.
        out_bias: whether out_proj adds one; None means as bias says. Qwen2's does not.
        scale: factor on the scores; None means 1/√head_dim.
        rotate: called as rotate(x, positions) on queries and keys, (batch, heads, T, head_dim),
            before they meet or enter a cache; returns the same shape. None leaves them.
        qk_norm: whether each query and key is divided by its root mean square and multiplied by
            head_dim learned weights, before rotate.
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
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = False,
        out_bias: bool | None = None,
        scale: float | None = None,
        rotate: Callable[[Tensor, Tensor], Tensor] | None = None,
        qk_norm: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        for name, size in (
            ("embed_dim", embed_dim),
            ("num_heads", num_heads),
            ("num_kv_heads", num_kv_heads),
            ("head_dim", 1 if head_dim is None else head_dim),
        ):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads must divide num_heads: "
                f"got num_kv_heads={num_kv_heads}, num_heads={num_heads}"
            )
        if head_dim is None and embed_dim % num_heads:
            raise ValueError(
                f"num_heads must divide embed_dim, or head_dim be given: "
                f"got num_heads={num_heads}, embed_dim={embed_dim}"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim
        self.scale = self.head_dim**-0.5 if scale is None else scale
        out_bias = bias if out_bias is None else out_bias
        where = {"device": device, "dtype": dtype}
        self.W_query = nn.Linear(embed_dim, num_heads * self.head_dim, bias=bias, **where)
        self.W_key = nn.Linear(embed_dim, num_kv_heads * self.head_dim, bias=bias, **where)
        self.W_value = nn.Linear(embed_dim, num_kv_heads * self.head_dim, bias=bias, **where)
        self.out_proj = nn.Linear(num_heads * self.head_dim, embed_dim, bias=out_bias, **where)
        # One norm of head_dim weights serves all heads, and is another for queries than for keys.
        self.query_norm = nn.RMSNorm(self.head_dim, eps=1e-6, **where) if qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(self.head_dim, eps=1e-6, **where) if qk_norm else nn.Identity()
        self.qk_norm = qk_norm
        self.rotate = rotate

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Return one vector for each token of x, (batch, T, embed_dim).

        Token i sees the tokens that the cache held before, and tokens 0 … i of x.

        Args:
            x: (batch, T, embed_dim), of the projections' dtype.
            positions: the place of each token, integers of shape (T,) or (batch, T), for rotate;
                None means counting on from cache.length, or from 0 without a cache.
            attn_mask: which keys each token sees, instead of the above: (T, keys), or four
                dimensions that broadcast to (batch, heads, T, keys), where keys are those of the
                cache and then those of x. Boolean: True keeps. Floating point: added to the scaled
                scores. A mask for each text, (batch, T, keys), is refused, since it could be one
                for each head: pass mask[:, None].
            cache: a KVCache, or what has its `length` and its `update`; it takes
                2 · num_kv_heads · head_dim numbers a token. None keeps nothing.

        All of it runs in scaled_dot_product_attention, fused where PyTorch fuses it. Nothing here
        repeats keys and values; PyTorch does, where it finds no kernel that shares them. After a
        filled cache, queries are taken ROWS at a time, with a mask of ROWS · keys.
        """
        if not isinstance(x, Tensor) or x.dim() != 3 or x.size(-1) != self.embed_dim:
            came = tuple(x.shape) if isinstance(x, Tensor) else repr(x)
            raise ValueError(f"x must have shape (batch, T, {self.embed_dim}), got {came}")
        batch, T, _ = x.shape
        past = 0 if cache is None else cache.length
        query, key, value = (  # each (batch, its heads, T, head_dim)
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        if self.qk_norm:  # in the norms' own dtype, which under autocast is the wider one
            query = self.query_norm(query.to(self.query_norm.weight.dtype)).to(query.dtype)
            key = self.key_norm(key.to(self.key_norm.weight.dtype)).to(key.dtype)
        if self.rotate is not None:
            if positions is None:
                positions = torch.arange(past, past + T, device=x.device)
            query, key = self.rotate(query, positions), self.rotate(key, positions)
        if attn_mask is not None:
            _check_mask(attn_mask, (batch, query.size(1), T, past + T))
            if attn_mask.dtype != torch.bool:
                attn_mask = attn_mask.to(query.dtype)
        if cache is not None:
            key, value = cache.update(key, value)
        context = _causal_attention(query, key, value, attn_mask, self.scale)
        return self.out_proj(context.transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        """Sizes, as print(module) shows them."""
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, "
            f"num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}, qk_norm={self.qk_norm}"
        )


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
