"""The backward pass of attention, softmax(QKᵀ·scale)V, written out by hand.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else. For use in a model,
F.scaled_dot_product_attention is faster; this file is for reading, for testing other kernels
against, and for changing.
Sources: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1, for the forward pass;
Dao et al. (2022), "FlashAttention", appendix B.2, for the backward pass that recomputes the
weights and takes the row sums of softmax's derivative from the context vectors.
"""

from contextlib import nullcontext

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

    Between the passes it keeps its inputs and its result, never the (T_q, T_k) weights. While a
    pass runs it makes up to four matrices of their size: 4 GiB in float32 for a head at 16,384
    tokens. It works under autocast, torch.func.vmap and torch.compile.

    Args:
        query: (..., T_q, head_dim), floating point. Leading dimensions broadcast.
        key: (..., T_k, head_dim), same dtype; under autocast the three may differ, as for
            F.scaled_dot_product_attention, and are cast to autocast's dtype.
        value: (..., T_k, value_dim), same dtype.
        attn_mask: (T_q, T_k) for all, or as many dimensions as the scores, broadcastable to
            (..., T_q, T_k). Boolean: True keeps, False hides. Floating point: added to the scaled
            scores, and given its gradient. Beside heads, one for each text is mask[:, None].
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
    device = query.device.type
    casts = _casts(device)
    if casts:  # once, here, so that both passes agree
        dtype = torch.get_autocast_dtype(device)
        query, key, value = (
            part if part.dtype == torch.float64 else part.to(dtype) for part in (query, key, value)
        )
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask.to(query.dtype)
    with torch.autocast(device, enabled=False) if casts else nullcontext():
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

    generate_vmap_rule = True  # torch.func.vmap goes through both passes

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
def _casts(device: str) -> bool:
    """Whether autocast is on for this kind of device; some, as meta, have none."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _leading(*parts: Tensor) -> tuple[int, ...]:
    """Return the leading dimensions to which all but the last two of each part broadcast."""
    # torch.broadcast_shapes would import sympy, which takes two seconds.
    return torch.broadcast_tensors(*(part[..., :0, :0] for part in parts))[0].shape[:-2]


def _check(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, scale: float | None
) -> None:
    """Raise ValueError unless all the arguments fit together."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or tensor.dim() < 2 or tensor.size(-1) == 0:
            came = tuple(tensor.shape) if isinstance(tensor, Tensor) else repr(tensor)
            raise ValueError(
                f"{name} must be a tensor, (..., tokens, dim) with dim ≥ 1, got {came}"
            )
        alike = tensor.dtype == query.dtype or _casts(query.device.type)
        if not tensor.is_floating_point() or not alike:
            raise ValueError(
                f"{name} must be floating point, all three alike: "
                f"got {tensor.dtype} beside a query of {query.dtype}"
            )
    for name, tensor, dim, size in (
        ("key", key, -1, query.size(-1)),  # as wide as query
        ("value", value, -2, key.size(-2)),  # one token per key
    ):
        if tensor.size(dim) != size:
            came = tuple(tensor.shape)
            raise ValueError(f"{name} must be of size {size} in dimension {dim}: got shape {came}")
    seen = [query]
    for name, tensor in (("key", key), ("value", value)):
        try:
            _leading(*seen, tensor)
        except RuntimeError:
            wanted, came = tuple(_leading(*seen)), tuple(tensor.shape)
            raise ValueError(
                f"{name} must broadcast in its leading dimensions with {wanted}: got shape {came}"
            ) from None
        seen.append(tensor)
    number = isinstance(scale, int | float | torch.SymFloat)
    if scale is not None and not (number and abs(scale) < float("inf")):
        raise ValueError(f"scale must be None or a finite number, got {scale!r}")
    if attn_mask is not None:
        _check_mask(attn_mask, (*_leading(query, key), query.size(-2), key.size(-2)))


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
