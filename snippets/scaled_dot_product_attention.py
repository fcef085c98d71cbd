"""Scaled dot-product attention, softmax(QKᵀ/√d)V, as one function.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1.
"""

from contextlib import suppress

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

    Any leading dimensions reach PyTorch's fused kernel, which never stores the T_q · T_k scores.
    On a CPU it has none for dropout, nor for a mask that gets a gradient: in float32 a forward pass
    then makes up to 18 bytes for each score, 4.5 GiB a head at 16,384 tokens. Where the kernel
    takes no mask beside is_causal, on a GPU or compiled, both become one, at 6 bytes an entry.

    Args:
        query: (..., T_q, head_dim), floating point.
        key: (..., T_k, head_dim), same dtype. Leading dimensions broadcast.
        value: (..., T_k, value_dim), same dtype; under autocast the three may differ. The fused
            kernels want value_dim = head_dim, so zeros are added to the narrower.
        attn_mask: (T_q, T_k) for all, or as many dimensions as the scores, broadcastable to
            (..., T_q, T_k). Boolean: True keeps, False hides. Floating point: added to the scaled
            scores, so -inf hides. Beside heads, one for each text is mask[:, None].
        dropout_p: share of the weights set to 0, in [0, 1); the rest grow by 1/(1 - dropout_p).
            Always applied: pass 0.0 outside training.
        is_causal: query i sees keys 0 … i, counted from the first key even when T_q ≠ T_k. Where
            the queries are the last of the keys, as with a cache, pass instead
            attn_mask=torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q).
            Together with attn_mask: a key must pass both.
        scale: factor on the scores, any finite number; None means 1/√head_dim.
        need_weights: also return the weights, (..., T_q, T_k), at the cost of storing them: three
            matrices of this size, or two without a mask and dropout.

    Returns:
        The context vectors, (..., T_q, value_dim). With need_weights, a pair: these, and the
        weights as they were applied (after dropout), (..., T_q, T_k).
        A query that may see no key at all gets weights 0, context 0 and gradient 0.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    _check(query, key, value, dropout_p, scale)
    T_q, T_k = query.size(-2), key.size(-2)
    scale = query.size(-1) ** -0.5 if scale is None else scale
    if attn_mask is not None:
        _check_mask(attn_mask, (*_leading(query, key), T_q, T_k))
        if attn_mask.dtype != torch.bool:  # a CUDA kernel misreads a mask of another dtype
            attn_mask = attn_mask.to(query.dtype)
        if is_causal:
            if query.is_cpu and not need_weights and not torch.compiler.is_compiling():
                with suppress(RuntimeError):  # the kernel for CPUs takes both, though unpromised
                    return _fused(query, key, value, attn_mask, dropout_p, is_causal, scale)
            future = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).triu(1)
            hidden = False if attn_mask.dtype == torch.bool else float("-inf")
            attn_mask, is_causal = attn_mask.masked_fill(future, hidden), False
    if not need_weights:
        return _fused(query, key, value, attn_mask, dropout_p, is_causal, scale)

    scores = (query * scale) @ key.mT  # (..., T_q, T_k)
    no_key = None  # (..., T_q, 1), True where the mask leaves a query no key
    if is_causal:
        future = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).triu(1)
        scores.masked_fill_(future, float("-inf"))
    elif attn_mask is not None and attn_mask.dtype == torch.bool:
        no_key = ~attn_mask.any(dim=-1, keepdim=True)
        scores.masked_fill_(~(attn_mask | no_key), float("-inf"))
    elif attn_mask is not None:
        no_key = attn_mask.isneginf().all(dim=-1, keepdim=True)
        scores += attn_mask.masked_fill(no_key, 0.0)
    weights = scores.softmax(dim=-1)
    if no_key is not None:  # a row of -inf alone has no softmax: it saw every key, and now none
        weights = weights.masked_fill(no_key, 0.0)
    weights = F.dropout(weights, dropout_p)
    return weights @ value, weights


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Call PyTorch's operator as its fused kernels want it: four dimensions, all of one width."""
    leading = _leading(query, key, value)
    shape = (*leading, query.size(-2), value.size(-1))
    width = max(query.size(-1), value.size(-1))
    if scale <= 0:  # they hide the future before they scale
        query, scale = query * scale, 1.0
    parts = []
    for part in (query, key, value):
        if part.size(-1) < width:
            part = F.pad(part, (0, width - part.size(-1)))
        parts.append(_fold(part.expand(*leading, *part.shape[-2:]), leading))
    if attn_mask is not None:
        attn_mask = _fold(attn_mask, leading)
    context = F.scaled_dot_product_attention(*parts, attn_mask, dropout_p, is_causal, scale=scale)
    return context[..., : shape[-1]].reshape(shape)


def _fold(x: Tensor, leading: tuple[int, ...]) -> Tensor:
    """Give four dimensions to x, which broadcasts to (*leading, rows, columns)."""
    x = x[(None,) * (len(leading) + 2 - x.dim())]
    if len(leading) > 2 and x.shape[:-3].numel() != 1:  # all but the last become one dimension
        x = x.expand(*leading[:-1], *x.shape[-3:])
    return x[(None,) * (2 - len(leading))].flatten(0, -4)


def _casts(device: str) -> bool:
    """Whether autocast is on for this kind of device; some, as meta, have none."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _leading(*parts: Tensor) -> tuple[int, ...]:
    """Return the leading dimensions to which all but the last two of each part broadcast."""
    # torch.broadcast_shapes would import sympy, which takes two seconds.
    return torch.broadcast_tensors(*(part[..., :0, :0] for part in parts))[0].shape[:-2]


def _check(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, scale: float | None
) -> None:
    """Raise ValueError unless the three fit together, and dropout and scale can be applied."""
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
    if not isinstance(dropout_p, int | float) or not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p must be in [0, 1), got {dropout_p!r}")
    number = isinstance(scale, int | float | torch.SymFloat)
    if scale is not None and not (number and abs(scale) < float("inf")):
        raise ValueError(f"scale must be None or a finite number, got {scale!r}")


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
