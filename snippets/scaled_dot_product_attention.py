"""Scaled dot-product attention, softmax(QKᵀ/√d)V, as one function.

Asked for the contexts alone, it is PyTorch's operator, whose fused kernels never store the T_q ·
T_k scores. They take four dimensions, (batch, heads, tokens, width), and values as wide as the
keys. For other shapes PyTorch stores the scores, and on a CPU also for dropout and for a mask that
gets a gradient. Asked for the weights, the formula is written out, and three matrices of their size
are made.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def scaled_dot_product_attention(
    query: Tensor,  # (..., T_q, head_dim)
    key: Tensor,  # (..., T_k, head_dim)
    value: Tensor,  # (..., T_k, value_dim)
    attn_mask: Tensor | None = None,  # (T_q, T_k), or as many dimensions as query
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    need_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Average the values, each weighted by how well its key answers the query.

    A boolean attn_mask keeps where it is True; one of floating point is added to the scores, so
    -inf hides. is_causal lets query i see keys 0 … i, counted from the first key; beside attn_mask,
    a key must pass both. Where the queries are the last of the keys, as with a cache, pass instead
    torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q). A query that may see no key gets zeros.

    dropout_p is always applied: pass 0.0 outside training. scale is 1/√head_dim where it is None.
    need_weights also returns the weights as they were applied (after dropout), (..., T_q, T_k).

    Raises:
        ValueError: for a mask or values that would be misread in silence.
    """
    T_q, T_k = query.size(-2), key.size(-2)
    scale = query.size(-1) ** -0.5 if scale is None else scale
    if value.size(-2) != T_k:  # a fused kernel would read beyond the last value
        raise ValueError(
            f"value must have a token for each of {T_k} keys, got {tuple(value.shape)}"
        )
    if attn_mask is not None:
        if attn_mask.dim() not in (2, query.dim()):  # one for each text, or one for each head?
            raise ValueError(
                f"attn_mask must have 2 or {query.dim()} dimensions, got {tuple(attn_mask.shape)}: "
                "beside heads, mask[:, None] is one for each text"
            )
        if attn_mask.is_floating_point():
            attn_mask = attn_mask.to(query.dtype)  # a CUDA kernel misreads one of another dtype
    if is_causal and attn_mask is not None:  # PyTorch takes one of the two
        attn_mask, is_causal = _hide_future(attn_mask, T_q, T_k), False
    if scale <= 0:  # PyTorch hides the future before it scales, and 0 · -inf is nan
        query, scale = query * scale, 1.0
    if not need_weights:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )
    scores = (query * scale) @ key.mT  # (..., T_q, T_k)
    scores = _hide_future(scores, T_q, T_k) if is_causal else scores
    weights = F.dropout(_softmax(scores, attn_mask), dropout_p)
    return weights @ value, weights


def _hide_future(x: Tensor, T_q: int, T_k: int) -> Tensor:
    """Return scores, or a mask, that hide the keys after each query, too."""
    future = torch.ones(T_q, T_k, dtype=torch.bool, device=x.device).triu(1)  # after key i
    return x.masked_fill(future, False if x.dtype == torch.bool else float("-inf"))


def _softmax(scores: Tensor, attn_mask: Tensor | None) -> Tensor:
    """Return the weights, (..., T_q, T_k): zeros for a query that may see no key."""
    if attn_mask is None:
        return scores.softmax(dim=-1)
    if attn_mask.dtype == torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=scores.dtype)
        attn_mask = zeros.masked_fill(~attn_mask, float("-inf"))
    elif not attn_mask.is_floating_point():  # 0 and 1 would be added to the scores
        raise ValueError(f"attn_mask must be boolean or floating point, got {attn_mask.dtype}")
    # A row of -inf alone has no softmax: such a query sees every key, and then none.
    no_key = (attn_mask == float("-inf")).all(dim=-1, keepdim=True)  # (..., T_q, 1)
    scores += attn_mask.masked_fill(no_key, 0.0)
    return scores.softmax(dim=-1).masked_fill(no_key, 0.0)
