"""The backward pass of attention, softmax(QKᵀ·scale)V, written out by hand.

Needs PyTorch 2.0 or newer and nothing else. For use in a model, F.scaled_dot_product_attention is
faster; this file is for reading, for testing other kernels against, and for changing.
Sources: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1, for the forward pass;
Dao et al. (2022), "FlashAttention", appendix B.2, for the backward pass that recomputes the
weights and takes the row sums of softmax's derivative from the context vectors.
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

    Between the passes it keeps its inputs and its result, never the (T_q, T_k) weights.

    Args:
        query: (..., T_q, head_dim), floating point. Leading dimensions broadcast.
        key: (..., T_k, head_dim), same dtype.
        value: (..., T_k, value_dim), same dtype.
        attn_mask: broadcastable to (..., T_q, T_k). Boolean: True keeps, False hides.
            Floating point, same dtype: added to the scaled scores, and given its gradient.
        scale: factor on the scores, any finite number; None means 1/√head_dim.

    Returns:
        The context vectors, (..., T_q, value_dim). A query that may see no key at all gets
        context 0 and gradient 0.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    _check(query, key, value, attn_mask, scale)
    if scale is None:
        scale = query.size(-1) ** -0.5
    return Attention.apply(query, key, value, attn_mask, scale)


# --8<-- [start:weights]
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


# --8<-- [end:weights]
# --8<-- [start:backward]
class Attention(torch.autograd.Function):
    """Attention as one operation of autograd; call it through `attention`."""

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, scale: float
    ) -> Tensor:
        return attention_weights(query, key, attn_mask, scale) @ value

    @staticmethod
    def setup_context(ctx, inputs, context) -> None:
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
        return (
            d_query.sum_to_size(query.shape),
            d_key.sum_to_size(key.shape),
            d_value.sum_to_size(value.shape),
            d_mask,
            None,
        )


# --8<-- [end:backward]
def _check(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, scale: float | None
) -> None:
    """Raise ValueError unless the tensors are floating point and all the arguments fit together."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a tensor, got {tensor!r}")
        if not tensor.is_floating_point() or tensor.dtype != query.dtype:
            raise ValueError(
                f"{name} must be floating point, all three alike: "
                f"got {tensor.dtype} beside a query of {query.dtype}"
            )
        if tensor.dim() < 2 or tensor.size(-1) == 0:
            raise ValueError(
                f"{name} must have shape (..., tokens, dim) with dim ≥ 1, got {tuple(tensor.shape)}"
            )
    if key.size(-1) != query.size(-1):
        raise ValueError(
            f"key must be as wide as query, {query.size(-1)}: got shape {tuple(key.shape)}"
        )
    if value.size(-2) != key.size(-2):
        raise ValueError(
            f"value must hold one token per key, {key.size(-2)}: got shape {tuple(value.shape)}"
        )
    if scale is not None and not (
        isinstance(scale, int | float | torch.SymFloat) and abs(scale) < float("inf")
    ):
        raise ValueError(f"scale must be None or a finite number, got {scale!r}")
    if attn_mask is None:
        return
    if not isinstance(attn_mask, Tensor):
        raise ValueError(f"attn_mask must be a tensor or None, got {attn_mask!r}")
    if attn_mask.dtype not in (torch.bool, query.dtype):
        raise ValueError(
            f"attn_mask must be boolean (True keeps) or {query.dtype} (added to the scores), "
            f"got {attn_mask.dtype}"
        )
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    wanted = (*leading, query.size(-2), key.size(-2))
    fits = attn_mask.dim() <= len(wanted) and all(
        size in (1, want) for size, want in zip(attn_mask.shape[::-1], wanted[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"attn_mask must broadcast to the scores, {wanted}: got shape {tuple(attn_mask.shape)}"
        )
