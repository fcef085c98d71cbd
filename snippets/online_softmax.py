"""Attention over parts of the keys, computed apart and merged: the online softmax.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: Milakov and Gimelshein (2018), "Online normalizer calculation for softmax", section 3 (the
running maximum and its rescaled sum) and section 3.1 (two of them merged); Rabe and Staats (2021),
"Self-attention Does Not Need O(n²) Memory", sections 2 (the values carried along) and 3 (rescaled
with the largest score).
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Partial(NamedTuple):
    """What some of the keys have to say to each query, before the division.

    It stands for two sums over those keys, ∑ eˢ and ∑ eˢ·value, written with a common power of e
    taken out, so that neither overflows: total · e^maximum and weighted · e^maximum.

    All three are in float32 or wider, whatever the parts come in: a sum kept in bfloat16 stops at
    256, where adding 1 changes nothing.

    maximum: (..., T_q), the power taken out; -inf where the part has no key to see. It carries no
        gradient, since the two sums do not depend on which power is taken out.
    total: (..., T_q).
    weighted: (..., T_q, value_dim).
    """

    maximum: Tensor
    total: Tensor
    weighted: Tensor

    def context(self) -> Tensor:
        """Return the context vectors, (..., T_q, value_dim); 0 where no key is seen."""
        return self.weighted / self.total.masked_fill(self.total == 0, 1.0)[..., None]

    def logsumexp(self) -> Tensor:
        """Return log ∑ eˢ, (..., T_q); -inf where no key is seen."""
        return self.maximum + self.total.log()


# --8<-- [start:part]
def attend_part(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Partial:
    """Attend to one part of the keys. Not fused: it makes the (..., T_q, T_part) scores.

    Args:
        query: (..., T_q, head_dim). Leading dimensions broadcast.
        key: (..., T_part, head_dim); a part of no keys will do.
        value: (..., T_part, value_dim).
        attn_mask: boolean, True keeps: (T_q, T_part) for all, or as many dimensions as the scores,
            broadcastable to (..., T_q, T_part). Beside heads, one for each text is mask[:, None].
        scale: factor on the scores; None means 1/√head_dim.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    _check(query, key, value, attn_mask)
    scale = query.size(-1) ** -0.5 if scale is None else scale
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = ((query * scale) @ key.mT).to(wide)  # (..., T_q, T_part)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    # A column of -inf changes nothing, and gives a part of no keys a maximum.
    lowest = scores.new_full((*scores.shape[:-1], 1), -torch.inf)
    maximum = torch.cat([scores, lowest], dim=-1).amax(dim=-1).detach()  # (..., T_q)
    powers = torch.exp(scores - _finite(maximum)[..., None])
    weighted = (powers @ value.to(wide)).to(wide)  # under autocast the product is not wide
    return Partial(maximum, powers.sum(dim=-1), weighted)


# --8<-- [end:part]
# --8<-- [start:merge]
def merge(first: Partial, second: Partial) -> Partial:
    """Return what the keys of both parts have to say. Associative and commutative, up to rounding.

    Elementwise: it reads and makes value_dim + 2 numbers a query, however many keys there were.
    A part whose maximum is -inf everywhere is the identity.
    """
    maximum = torch.maximum(first.maximum, second.maximum)
    total, weighted = 0.0, 0.0
    for part in (first, second):
        factor = torch.exp(part.maximum - _finite(maximum))  # at most 1; 0 for an empty part
        total = total + part.total * factor
        weighted = weighted + part.weighted * factor[..., None]
    return Partial(maximum, total, weighted)


def from_context(context: Tensor, logsumexp: Tensor) -> Partial:
    """Return the partial of a kernel's results: context vectors, and the logsumexp of their scores.

    Args:
        context: (..., T_q, value_dim).
        logsumexp: (..., T_q), the natural logarithm; -inf where the kernel saw no key.
    """
    if context.shape[:-1] != logsumexp.shape:
        raise ValueError(
            f"logsumexp must have one number for each context vector, {tuple(context.shape[:-1])}: "
            f"got shape {tuple(logsumexp.shape)}"
        )
    maximum = logsumexp.detach()
    total = torch.exp(logsumexp - _finite(maximum))  # 1, and the gradient of logsumexp; or 0
    return Partial(maximum, total, context * total[..., None])


def _finite(maximum: Tensor) -> Tensor:
    """Return the power to take out: where there is no key, 0, since -inf minus -inf is nan."""
    return maximum.masked_fill(maximum == -torch.inf, 0.0)


# --8<-- [end:merge]
def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> None:
    """Raise ValueError unless the sizes fit together."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or tensor.dim() < 2:
            came = tuple(tensor.shape) if isinstance(tensor, Tensor) else repr(tensor)
            raise ValueError(f"{name} must have shape (..., tokens, dim), got {came}")
    if key.size(-1) != query.size(-1):
        raise ValueError(
            f"key must be as wide as query, {query.size(-1)}: got shape {tuple(key.shape)}"
        )
    if value.size(-2) != key.size(-2):
        raise ValueError(
            f"value must hold one token per key, {key.size(-2)}: got shape {tuple(value.shape)}"
        )
    if attn_mask is not None:
        tensor = isinstance(attn_mask, Tensor)
        if not tensor or attn_mask.dtype != torch.bool:
            came = attn_mask.dtype if tensor else repr(attn_mask)
            raise ValueError(f"attn_mask must be boolean (True keeps), got {came}")
        # (batch, T_q, T_part) is refused beside heads: it would be read as (heads, T_q, T_part).
        dimensions = max(query.dim(), key.dim())
        last, wanted = tuple(attn_mask.shape[-2:]), (query.size(-2), key.size(-2))
        fits = all(size in (1, want) for size, want in zip(last, wanted, strict=False))
        if not fits or attn_mask.dim() not in (2, dimensions):
            texts = (attn_mask.dim(), dimensions) == (3, 4)
            hint = "; mask[:, None] makes one for each text" if texts else ""
            raise ValueError(
                f"attn_mask must have shape {wanted}, or the {dimensions} dimensions of the "
                f"scores: got shape {tuple(attn_mask.shape)}{hint}"
            )
