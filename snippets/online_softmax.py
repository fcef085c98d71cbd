"""Attention over parts of the keys, computed apart and merged: the online softmax.

    parts = [attend_part(query, key[..., i:j, :], value[..., i:j, :]) for i, j in cuts]
    context = merge(parts[0], merge(parts[1], parts[2])).context()  # in any order

Shapes are (..., tokens, channels). Sums are kept in float32 or wider, whatever the parts come in:
in bfloat16 a sum stops at 256, where adding 1 changes nothing. A query that sees no key gets
context 0, logsumexp -inf and gradient 0. attend_part is not fused: it makes the scores of its part.
Sources: Milakov and Gimelshein (2018), "Online normalizer calculation for softmax", section 3 (the
running maximum and its rescaled sum) and section 3.1 (two of them merged); Rabe and Staats (2021),
"Self-attention Does Not Need O(n²) Memory", sections 2 and 3 (the values carried along).
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Partial(NamedTuple):
    """What some of the keys have to say to each query, before the division.

    It stands for two sums over those keys, ∑ eˢ and ∑ eˢ·value, written with a common power of e
    taken out, so that neither overflows: total · e^maximum and weighted · e^maximum.

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


def attend_part(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Partial:
    """Attend to one part of the keys, (..., T_part, head_dim), of which there may be none.

    attn_mask is boolean, True keeps: (T_q, T_part) for all, or with as many dimensions as the
    scores have. scale is the factor on the scores; None means 1/√head_dim.
    """
    scale = query.size(-1) ** -0.5 if scale is None else scale
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = ((query * scale) @ key.mT).to(wide)  # (..., T_q, T_part)
    if attn_mask is not None:
        if attn_mask.dtype != torch.bool:
            raise ValueError(f"attn_mask must be boolean, True keeps: got {attn_mask.dtype}")
        if attn_mask.dim() not in (2, scores.dim()):  # one for each text, or one for each head?
            came, wanted = tuple(attn_mask.shape), tuple(scores.shape)
            raise ValueError(
                f"attn_mask must be (T_q, T_part) or like the scores, {wanted}, got {came}: "
                "mask[:, None] is one for each text"
            )
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    # A column of -inf changes nothing, and gives a part of no keys a maximum.
    lowest = scores.new_full((*scores.shape[:-1], 1), -torch.inf)
    maximum = torch.cat([scores, lowest], dim=-1).amax(dim=-1).detach()  # (..., T_q)
    powers = torch.exp(scores - _finite(maximum)[..., None])
    weighted = (powers @ value.to(wide)).to(wide)  # under autocast the product is not wide
    return Partial(maximum, powers.sum(dim=-1), weighted)


def merge(first: Partial, second: Partial) -> Partial:
    """Return what the keys of both parts have to say. Associative and commutative, up to rounding.

    It reads and makes value_dim + 2 numbers a query, however many keys there were. A part whose
    maximum is -inf everywhere is the identity.
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

    context is (..., T_q, value_dim), logsumexp (..., T_q): the natural logarithm, and -inf where
    the kernel saw no key.
    """
    if logsumexp.shape != context.shape[:-1]:  # (..., T_q, 1) would multiply all by all
        came, wanted = tuple(logsumexp.shape), tuple(context.shape[:-1])
        raise ValueError(f"logsumexp must be {wanted}, one for each query, got {came}")
    maximum = logsumexp.detach()
    total = torch.exp(logsumexp - _finite(maximum))  # 1, and the gradient of logsumexp; or 0
    return Partial(maximum, total, context * total[..., None])


def _finite(maximum: Tensor) -> Tensor:
    """Return the power to take out: where there is no key, 0, since -inf minus -inf is nan."""
    return maximum.masked_fill(maximum == -torch.inf, 0.0)
