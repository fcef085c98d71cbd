"""Scaled dot-product attention, softmax(QKᵀ/√d)V, as one function.

Needs PyTorch 2.5 or newer and nothing else.
Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    need_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Average the values, each weighted by how well its key answers the query.

    Args:
        query: (..., T_q, head_dim), floating point. Any number of leading dimensions will do;
            the fused kernels are there for two, (batch, num_heads), and value_dim = head_dim.
        key: (..., T_k, head_dim), same dtype. Leading dimensions broadcast.
        value: (..., T_k, value_dim), same dtype.
        attn_mask: broadcastable to (..., T_q, T_k). Boolean: True keeps, False hides.
            Floating point: added to the scaled scores, so -inf hides.
        dropout_p: share of the weights set to 0, in [0, 1); the rest grow by 1/(1 - dropout_p).
            Always applied: pass 0.0 outside training.
        is_causal: query i sees keys 0 … i, counted from the first key even when T_q ≠ T_k. Where
            the queries are the last of the keys, as with a cache, pass instead
            attn_mask=torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q).
            Together with attn_mask: a key must pass both.
        scale: factor on the scores, any finite number; None means 1/√head_dim.
        need_weights: also return the weights. This builds the (..., T_q, T_k) matrix, which the
            fused kernel, used otherwise, never stores.

    Returns:
        The context vectors, (..., T_q, value_dim). With need_weights, a pair: these, and the
        weights as they were applied (after dropout), (..., T_q, T_k).
        A query that may see no key at all gets weights 0, context 0 and gradient 0.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    _check_tensors(query, key, value)
    _check_options(query, key, attn_mask, dropout_p, scale)
    T_q, T_k = query.size(-2), key.size(-2)
    if attn_mask is not None:
        attn_mask = torch.atleast_2d(attn_mask)  # the fused kernels want a row and a column
        if attn_mask.dtype != torch.bool:  # a CUDA kernel misreads a mask of another dtype
            attn_mask = attn_mask.to(query.dtype)
        if is_causal:  # only some fused kernels take both, so the two become one mask
            future = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).triu(1)
            hidden = False if attn_mask.dtype == torch.bool else float("-inf")
            attn_mask, is_causal = attn_mask.masked_fill(future, hidden), False
    if not need_weights:
        if scale is not None and scale <= 0:  # the fused kernels hide the future before they scale
            query, scale = query * scale, 1.0
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )

    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = (query * scale) @ key.mT  # (..., T_q, T_k)
    if is_causal:
        attn_mask = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    # A row of -inf alone has no softmax (0/0): compute it on zeros, then set its weights to 0.
    no_key = scores.isneginf().all(dim=-1, keepdim=True)  # (..., T_q, 1)
    weights = scores.masked_fill(no_key, 0.0).softmax(dim=-1).masked_fill(no_key, 0.0)
    weights = F.dropout(weights, dropout_p)
    return weights @ value, weights


def _check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise ValueError unless the three are floating point and their sizes fit together."""
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
    for name, tensor in (("key", key), ("value", value)):
        try:
            torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], tensor.shape[:-2])
        except RuntimeError:
            raise ValueError(
                f"{name} must have leading dimensions that broadcast with those of query, "
                f"{tuple(query.shape)}: got shape {tuple(tensor.shape)}"
            ) from None


def _check_options(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, dropout_p: float, scale: float | None
) -> None:
    """Raise ValueError unless mask, dropout and scale can be applied to these scores."""
    if attn_mask is not None:
        if not isinstance(attn_mask, Tensor):
            raise ValueError(f"attn_mask must be a tensor or None, got {attn_mask!r}")
        if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
            raise ValueError(
                f"attn_mask must be boolean (True keeps) or floating point (added to the scores), "
                f"got {attn_mask.dtype}"
            )
        batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
        wanted = (*batch, query.size(-2), key.size(-2))
        fits = attn_mask.dim() <= len(wanted) and all(
            size in (1, want)
            for size, want in zip(attn_mask.shape[::-1], wanted[::-1], strict=False)
        )
        if not fits:
            raise ValueError(
                f"attn_mask must broadcast to the scores, {wanted}: "
                f"got shape {tuple(attn_mask.shape)}"
            )
    if not isinstance(dropout_p, int | float) or not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p must be in [0, 1), got {dropout_p!r}")
    if scale is not None and not (
        isinstance(scale, int | float | torch.SymFloat) and abs(scale) < float("inf")
    ):
        raise ValueError(f"scale must be None or a finite number, got {scale!r}")
