"""Grouped-query attention: several query heads share the keys and values of one.

    attention = GroupedQueryAttention(512, 8, num_kv_heads=2)
    y = attention(x)  # (batch, T, 512) → (batch, T, 512), causal

A cache keeps 2 · num_kv_heads · head_dim numbers a token. Several tokens at once after a filled
cache get a mask of tokens · keys bytes.
Sources: Ainslie et al. (2023), "GQA"; Shazeer (2019), "One Write-Head is All You Need"; Dehghani et
al. (2023), "Scaling Vision Transformers to 22 Billion Parameters" (qk_norm); OpenAI (2025),
"gpt-oss Model Card" (sinks); Qiu et al. (2025), "Gated Attention for Large Language Models" (gate).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GroupedQueryAttention(nn.Module):
    """Causal self-attention in which num_heads query heads share num_kv_heads keys and values.

    num_kv_heads: query head h reads head h // (num_heads / num_kv_heads); None means num_heads.
    head_dim, out_bias, scale: None means embed_dim / num_heads, as bias says, and 1/√head_dim.
    rotate: called as rotate(x, positions) on queries and keys, (batch, heads, T, head_dim).
    qk_norm: whether queries and keys are first divided by their root mean square, as in Qwen3.
    sinks: whether each head has a learned sink, see sink_attention, as in gpt-oss.
    gate: whether what the heads read is multiplied by sigmoid(W_gate(x)), as in Qwen3-Next.
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
        rotate: Callable[[Tensor, Tensor], Tensor] | None = None,
        qk_norm: bool = False,
        scale: float | None = None,
        sinks: bool = False,
        gate: bool = False,
    ) -> None:
        super().__init__()
        if head_dim is None and embed_dim % num_heads:
            raise ValueError(f"num_heads must divide embed_dim={embed_dim}, got {num_heads}")
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads % num_kv_heads:
            raise ValueError(f"num_kv_heads must divide num_heads={num_heads}, got {num_kv_heads}")
        head_dim = embed_dim // num_heads if head_dim is None else head_dim
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads
        self.head_dim, self.scale, self.rotate, self.qk_norm = head_dim, scale, rotate, qk_norm
        self.W_query = nn.Linear(embed_dim, num_heads * head_dim, bias=bias)
        self.W_key = nn.Linear(embed_dim, num_kv_heads * head_dim, bias=bias)
        self.W_value = nn.Linear(embed_dim, num_kv_heads * head_dim, bias=bias)
        self.W_gate = nn.Linear(embed_dim, num_heads * head_dim, bias=bias) if gate else None
        out_bias = bias if out_bias is None else out_bias
        self.out_proj = nn.Linear(num_heads * head_dim, embed_dim, bias=out_bias)
        self.sinks = nn.Parameter(torch.zeros(num_heads)) if sinks else None
        self.query_norm = nn.RMSNorm(head_dim, eps=1e-6) if qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(head_dim, eps=1e-6) if qk_norm else nn.Identity()

    def forward(self, x: Tensor, *, positions=None, attn_mask=None, cache=None) -> Tensor:
        """Return (batch, T, embed_dim). Token i of x sees what the cache held, and tokens 0 … i.

        positions: (T,) or (batch, T), for rotate; None counts on from cache.length.
        attn_mask: (T, keys) or (batch, 1 or heads, T, keys), in place of that rule; the keys of the
            cache come first. Boolean: True keeps; floating point: added to the scaled scores.
        """
        _refuse_three_dimensions(attn_mask)  # before the cache is changed
        T, past = x.size(1), 0 if cache is None else cache.length
        query = self.W_query(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        key = self.W_key(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        value = self.W_value(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        if self.qk_norm:  # in the norms' own dtype, which under autocast is the wider one
            query = self.query_norm(query.to(self.query_norm.weight.dtype)).to(value.dtype)
            key = self.key_norm(key.to(self.key_norm.weight.dtype)).to(value.dtype)
        if self.rotate is not None:
            if positions is None:
                positions = torch.arange(past, past + T, device=x.device)
            query, key = self.rotate(query, positions), self.rotate(key, positions)
        if cache is not None:
            key, value = cache.update(key, value)
        if attn_mask is None and past and T > 1:  # is_causal would count from the first key
            attn_mask = torch.ones(T, past + T, dtype=torch.bool, device=x.device).tril(past)
        causal = attn_mask is None and not past
        if self.sinks is None:
            context = grouped_attention(query, key, value, attn_mask, causal, self.scale)
        else:
            context = sink_attention(query, key, value, self.sinks, attn_mask, causal, self.scale)
        context = context.transpose(1, 2).flatten(2)  # (batch, T, num_heads · head_dim)
        if self.W_gate is not None:
            context = context * self.W_gate(x).sigmoid()
        return self.out_proj(context)


def grouped_attention(query, key, value, attn_mask=None, is_causal=False, scale=None) -> Tensor:
    """Return attention, (batch, heads, T, width), to keys and values of as many heads or fewer."""
    _refuse_three_dimensions(attn_mask)
    if query.size(2) == 1 and not is_causal:  # heads that share become rows: each key is read once
        rows = query.unflatten(1, (key.size(1), -1)).squeeze(3)  # (batch, kv_heads, group, width)
        if attn_mask is not None:
            attn_mask = attn_mask.expand(*query.shape[:3], -1).view(*rows.shape[:3], key.size(2))
        context = F.scaled_dot_product_attention(rows, key, value, attn_mask, scale=scale)
        return context.reshape(query.shape)
    options = {"is_causal": is_causal, "scale": scale, "enable_gqa": query.size(1) != key.size(1)}
    return F.scaled_dot_product_attention(query, key, value, attn_mask, **options)


def sink_attention(query, key, value, sink, attn_mask=None, is_causal=False, scale=None) -> Tensor:
    """Return attention, (batch, heads, T, width), in which a sink takes a share of the weights.

    Of the scores s of a query, key j gets exp(s_j) / (exp(sink) + Σ exp(s_k)). A sink, (heads,),
    has no scale and no mask, and -inf is none. All keys are copied, but for a single query.
    """
    _refuse_three_dimensions(attn_mask)
    batch, heads, T, width = query.shape  # and of values: the same width
    scale = width**-0.5 if scale is None else scale
    sink = sink.view(1, heads, 1, 1).expand(batch, -1, T, -1)
    if T == 1 and not is_causal:
        rows = query.unflatten(1, (key.size(1), -1)).squeeze(3)  # (batch, kv_heads, group, width)
        scores = ((rows * scale) @ key.mT).view(batch, heads, 1, key.size(2))
        if attn_mask is not None and attn_mask.is_floating_point():
            scores = scores + attn_mask
        elif attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        wide = torch.promote_types(scores.dtype, torch.float32)
        scores = torch.cat([scores, sink.to(wide).clamp(min=torch.finfo(wide).min)], dim=-1)
        weights = scores.softmax(dim=-1)[..., :-1].reshape(*rows.shape[:3], key.size(2))
        return (weights.to(value.dtype) @ value).view_as(query)
    # The sink becomes the first key, whose value is 0. In one channel more each query holds its
    # head's sink, the sink's key a 1 and every other key a 0, so that their product is the sink.
    # Zeros follow up to a multiple of eight channels, which kernels that take a mask want.
    zeros = 7 - width % 8
    most = torch.finfo(query.dtype).max  # an infinite sink times the 0 of another key is nan
    query = torch.cat([query, (sink / scale).clamp(-most, most).to(query.dtype)], dim=-1)
    # is_causal shows query 0 the first key alone, which is the sink: so one query goes before it.
    query = F.pad(query, (0, zeros, int(is_causal), 0))
    first = F.pad(torch.ones_like(key[:, :, :1, :1]), (width, zeros))
    key = torch.cat([first, F.pad(key, (0, 1 + zeros))], dim=2)
    value = F.pad(value, (0, 1 + zeros, 1, 0))
    if attn_mask is not None:
        attn_mask = F.pad(attn_mask, (1, 0), value=float(attn_mask.dtype == torch.bool))
    context = grouped_attention(query, key, value, attn_mask, is_causal, scale)
    return context[:, :, int(is_causal) :, :width]


def _refuse_three_dimensions(attn_mask: Tensor | None) -> None:
    """A mask of three dimensions could be one for each text, or one for each head."""
    if attn_mask is not None and attn_mask.dim() == 3:
        raise ValueError(f"attn_mask must be 2-D or 4-D (mask[:, None]), got {attn_mask.shape}")
