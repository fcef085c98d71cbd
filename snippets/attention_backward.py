"""The backward pass of attention, softmax(QKᵀ·scale)V, written out by hand.

    context = attention(query, key, value, attn_mask)  # and context.sum().backward()

Shapes are (..., tokens, channels), and leading dimensions broadcast. A query that may see no key
gets context 0 and gradient 0. Between the passes it keeps its inputs and its result, never the
(T_q, T_k) weights; while a pass runs it makes up to four matrices of their size, 4 GiB in float32
for a head at 16,384 tokens. F.scaled_dot_product_attention is faster: this is for reading, for
testing other kernels against, and for changing.
Sources: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1 (the forward pass); Dao
et al. (2022), "FlashAttention", appendix B.2 (the backward pass that computes the weights again and
takes the row sums of softmax's derivative from the context vectors).
"""

import torch
from torch import Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Tensor:
    """Average the values by softmax(QKᵀ·scale), with a gradient that no autograd rule supplies.

    attn_mask is (T_q, T_k) for all, or has as many dimensions as the scores. Boolean: True keeps.
    Floating point: added to the scaled scores, and given its gradient. scale None is 1/√head_dim.
    """
    query, key, value = as_autocast(query, key, value)  # once, here, so that both passes agree
    if attn_mask is not None:
        if attn_mask.dim() not in (2, max(query.dim(), key.dim())):  # for each text, or each head?
            came = tuple(attn_mask.shape)
            raise ValueError(
                f"attn_mask must be (T_q, T_k) or (..., T_q, T_k) like the scores, got {came}: "
                "mask[:, None] is one for each text"
            )
        if attn_mask.dtype != torch.bool:
            if not attn_mask.is_floating_point():  # 0 and 1 would be added
                came = attn_mask.dtype
                raise ValueError(f"attn_mask must be boolean or floating point, got {came}")
            attn_mask = attn_mask.to(query.dtype)
    scale = query.size(-1) ** -0.5 if scale is None else scale
    return Attention.apply(query, key, value, attn_mask, scale)


def attention_weights(query: Tensor, key: Tensor, attn_mask: Tensor | None, scale: float) -> Tensor:
    """Return softmax(QKᵀ·scale), (..., T_q, T_k); a row that may see no key is all zeros."""
    scaled = (query * scale) @ key.mT
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scaled = scaled.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scaled = scaled + attn_mask
    # A row of -inf alone has no softmax (0/0): compute it on zeros, then set its weights to 0.
    no_key = scaled.isneginf().all(dim=-1, keepdim=True)  # (..., T_q, 1)
    return scaled.masked_fill(no_key, 0.0).softmax(dim=-1).masked_fill(no_key, 0.0)


class Attention(torch.autograd.Function):
    """Attention as one operation of autograd; call it through `attention`."""

    generate_vmap_rule = True  # torch.func.vmap goes through both passes

    @staticmethod
    def forward(query, key, value, attn_mask, scale) -> Tensor:
        """Return the context vectors, (..., T_q, value_dim)."""
        return attention_weights(query, key, attn_mask, scale).to(value.dtype) @ value

    @staticmethod
    def setup_context(ctx, inputs, context) -> None:
        """Keep what the backward pass reads."""
        query, key, value, attn_mask, ctx.scale = inputs
        ctx.save_for_backward(query, key, value, attn_mask, context)

    @staticmethod
    def backward(ctx, d_context: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of query, key, value and attn_mask, given that of the context."""
        query, key, value, attn_mask, context = ctx.saved_tensors
        weights = attention_weights(query, key, attn_mask, ctx.scale)  # again: T_q · T_k not kept
        d_value = weights.mT @ d_context  # (..., T_k, value_dim)
        d_weights = d_context @ value.mT  # (..., T_q, T_k)
        row_sum = (d_context * context).sum(dim=-1, keepdim=True)  # = (weights * d_weights) summed
        d_scaled = weights * (d_weights - row_sum)  # (..., T_q, T_k); 0 wherever the weight is 0
        d_scores = d_scaled * ctx.scale
        d_query = d_scores @ key  # (..., T_q, head_dim)
        d_key = d_scores.mT @ query  # (..., T_k, head_dim)
        d_mask = None
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            d_mask = d_scaled.sum_to_size(attn_mask.shape)
        # A leading dimension that was broadcast served many rows, so their gradients add up.
        d_query, d_key = d_query.sum_to_size(query.shape), d_key.sum_to_size(key.shape)
        return d_query, d_key, d_value.sum_to_size(value.shape), d_mask, None


def as_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return them in autocast's dtype, where it is on: all but float64, as PyTorch's operator."""
    device = tensors[0].device.type  # some, as meta, have no autocast
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(it if it.dtype == torch.float64 else it.to(dtype) for it in tensors)
