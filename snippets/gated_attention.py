"""Gated attention: a learned sink, which may take a head's weight, and a gate on what heads read.

Needs PyTorch 2.5 or newer and nothing else.
Sources: gpt-oss-120b & gpt-oss-20b Model Card (OpenAI, 2025), "Attention" (a learned number in the
denominator of each head's softmax); Qiu et al. (2025), "Gated Attention for Large Language Models:
Non-linearity, Sparsity, and Attention-Sink-Free", section 2.2 (a sigmoid on the output of the
heads); Ainslie et al. (2023), "GQA: Training Generalized Multi-Query Transformer Models from
Multi-Head Checkpoints", section 2.2 (num_kv_heads).
"""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Cache(Protocol):
    """What keeps the keys and values of earlier tokens, as a KVCache does."""

    length: int  # tokens held

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take those of new tokens, and return those of all tokens so far."""
        ...


def sink_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sink: Tensor,
    attn_mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return attention in which each head's sink takes a share of the weights and adds nothing.

    With the scores s of one query, key j gets exp(s_j) / (exp(sink) + sum over k of exp(s_k)). So
    the weights of the keys sum to less than one, and to zero for a query that sees no key.

    The sink is computed as one key more, whose value is zero, and one channel more. Queries, keys
    and values are copied, with that channel and with zeros up to a multiple of eight channels.
    Any fused kernel serves that takes this width, and then no scores are stored. For one query, as
    in decoding, nothing is copied: its scores are written out.

    Args:
        query: (batch, heads, T_q, width).
        key: (batch, kv_heads, T_k, width), same dtype; kv_heads divides heads.
        value: (batch, kv_heads, T_k, width), same dtype.
        sink: (heads,), floating point: the score of each head's sink, which scale does not
            multiply. At -inf, or at -10,000, there is no sink: the result is the operator's.
        attn_mask: (T_q, T_k), or four dimensions that broadcast to the scores. Boolean: True
            keeps. Floating point: added to the scaled scores. It never hides the sink.
        is_causal: query i sees keys 0 … i, counted from the first key even when T_q ≠ T_k.
            Excludes attn_mask.
        scale: factor on the scores of the keys; None means 1/√width.

    Returns:
        (batch, heads, T_q, width), of the dtype that the operator gives.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    _check_sink(query, key, value, sink, attn_mask, is_causal)
    heads, T_q, width = query.shape[1:]
    T_k = key.size(2)
    scale = width**-0.5 if scale is None else scale
    if T_q == 1:
        seen = 1 if is_causal else T_k
        return _one_query(query, key[:, :, :seen], value[:, :, :seen], sink, attn_mask, scale)
    # One channel more: in a query the score of its head's sink, in the sink's key 1, in others 0.
    # Zeros follow: on a GPU the fused kernels that take a mask want a multiple of eight channels.
    zeros = 7 - width % 8
    # An infinite one times the 0 of another key would be nan.
    limits = torch.finfo(query.dtype)
    own = (sink / scale).clamp(limits.min, limits.max).to(query.dtype)
    own = own[:, None, None].expand(query.size(0), heads, T_q, 1)
    query = torch.cat([query, F.pad(own, (0, zeros))], dim=-1)
    first = F.pad(torch.ones_like(key[:, :, :1, :1]), (width, zeros))  # the key of the sink
    key = torch.cat([first, F.pad(key, (0, 1 + zeros))], dim=2)
    value = F.pad(value, (0, 1 + zeros, 1, 0))  # its value, and the channels that are cut off below
    options = {"scale": scale, "enable_gqa": heads != key.size(1)}
    if is_causal and T_q == T_k:
        # The sink stands before all keys. A query of its own in front keeps both triangles square.
        query = F.pad(query, (0, 0, 1, 0))
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True, **options)
        return context[:, :, 1:, :width]
    if is_causal:
        attn_mask = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        if attn_mask.dtype != torch.bool:
            attn_mask = attn_mask.to(query.dtype)
        shown = True if attn_mask.dtype == torch.bool else 0.0
        attn_mask = F.pad(attn_mask, (1, 0), value=shown)  # every query sees the sink
    return F.scaled_dot_product_attention(query, key, value, attn_mask, **options)[..., :width]


def _one_query(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sink: Tensor,
    attn_mask: Tensor | None,
    scale: float,
) -> Tensor:
    """Return what one query of each head reads, (batch, heads, 1, width), by the formula itself."""
    rows = query[:, :, 0].unflatten(1, (key.size(1), -1))  # (batch, kv_heads, group, width)
    scores = ((rows * scale) @ key.mT).flatten(1, 2)[:, :, None]  # (batch, heads, 1, T_k)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    last = sink.to(scores.dtype).clamp(min=torch.finfo(scores.dtype).min)
    last = last[:, None, None].expand(*scores.shape[:-1], 1)
    weights = torch.cat([scores, last], dim=-1).softmax(dim=-1)[..., :-1].to(value.dtype)
    context = weights[:, :, 0].unflatten(1, (key.size(1), -1)) @ value
    return context.flatten(1, 2)[:, :, None]


class GatedAttention(nn.Module):
    """Causal self-attention with a learned sink in each head, and a gate on what the heads read.

    With both it is neither gpt-oss' attention, which has sinks alone, nor Qwen3-Next's, which has
    the gate and qk_norm alone. Without either it is grouped-query attention.

    The projections are only ever called, and start as nn.Linear does; sinks start at 0. There is
    no dropout.

    Args:
        embed_dim: width of the input and of the output.
        num_heads: number of query heads.
        num_kv_heads: number of key-value heads, which divides num_heads; None means num_heads.
        head_dim: width of a head; None means embed_dim / num_heads, which must be whole.
        bias: whether all projections add a bias, that of the gate too.
        rotate: called as rotate(x, positions) on queries and keys, (batch, heads, T, head_dim),
            before they meet or enter a cache; returns the same shape. None leaves them.
        qk_norm: whether each query and key is divided by its root mean square and multiplied by
            head_dim learned weights, before rotate.
        sinks: whether each head has a learned sink.
        gate: whether the context vectors are multiplied by sigmoid(W_gate(x)), channel by channel,
            before out_proj.
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
        rotate: Callable[[Tensor, Tensor], Tensor] | None = None,
        qk_norm: bool = False,
        sinks: bool = True,
        gate: bool = True,
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
        where = {"device": device, "dtype": dtype}
        wide = num_heads * self.head_dim
        self.W_query = nn.Linear(embed_dim, wide, bias=bias, **where)
        self.W_key = nn.Linear(embed_dim, num_kv_heads * self.head_dim, bias=bias, **where)
        self.W_value = nn.Linear(embed_dim, num_kv_heads * self.head_dim, bias=bias, **where)
        self.W_gate = nn.Linear(embed_dim, wide, bias=bias, **where) if gate else None
        self.out_proj = nn.Linear(wide, embed_dim, bias=bias, **where)
        self.sinks = nn.Parameter(torch.zeros(num_heads, **where)) if sinks else None
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
                2 · num_kv_heads · head_dim numbers a token, as without sinks. None keeps nothing.

        Several tokens after a filled cache get a mask of T · keys; otherwise nothing of that size
        is stored.
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
        elif past and T > 1:  # the triangle of the last keys, where is_causal has that of the first
            attn_mask = torch.ones(T, past + T, dtype=torch.bool, device=x.device).tril(past)
        if cache is not None:
            key, value = cache.update(key, value)
        options = {"attn_mask": attn_mask, "is_causal": attn_mask is None and not past}
        if self.sinks is not None:
            context = sink_attention(query, key, value, self.sinks, **options)
        else:
            shared = query.size(1) != key.size(1)
            context = F.scaled_dot_product_attention(
                query, key, value, enable_gqa=shared, **options
            )
        context = context.transpose(1, 2).flatten(2)  # (batch, T, heads · head_dim)
        if self.W_gate is not None:
            context = context * self.W_gate(x).sigmoid()
        return self.out_proj(context)

    def extra_repr(self) -> str:
        """Sizes, as print(module) shows them."""
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, "
            f"num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}, qk_norm={self.qk_norm}, "
            f"sinks={self.sinks is not None}, gate={self.W_gate is not None}"
        )


def _check_sink(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sink: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """Raise ValueError unless the arguments fit each other."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or tensor.dim() != 4:
            came = tuple(tensor.shape) if isinstance(tensor, Tensor) else repr(tensor)
            raise ValueError(f"{name} must have shape (batch, heads, T, width), got {came}")
    batch, heads, T_q, width = query.shape
    wanted = (batch, key.size(1), key.size(2), width)
    for name, tensor in (("key", key), ("value", value)):
        if tensor.shape != wanted or not key.size(1) or heads % key.size(1):
            raise ValueError(
                f"{name} must have shape ({batch}, kv_heads, T_k, {width}), kv_heads dividing "
                f"{heads}, the same for key and value: got {tuple(tensor.shape)}"
            )
    # One number in place of (heads,) would broadcast, and so would one for each token.
    if not isinstance(sink, Tensor) or sink.shape != (heads,) or not sink.is_floating_point():
        came = f"{tuple(sink.shape)}, {sink.dtype}" if isinstance(sink, Tensor) else repr(sink)
        raise ValueError(f"sink must have shape ({heads},) and be floating point, got {came}")
    if attn_mask is None:
        return
    if is_causal:
        raise ValueError("attn_mask must be None where is_causal is set, got both")
    _check_mask(attn_mask, (batch, heads, T_q, key.size(2)))


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
