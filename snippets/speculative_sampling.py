"""Speculative sampling: a small model drafts, the large one checks, and writes as if by itself.

    run = speculative_sampling(target, draft, tokens, 100, draft_tokens=4, stop=[3, 4])

Source: Leviathan, Kalman and Matias (2023), "Fast Inference from Transformers via Speculative
Decoding", algorithm 1.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Written(NamedTuple):
    """What was written, and what it took."""

    tokens: Tensor  # (1, T + n), the prompt included; fewer where it was stopped
    passes: int  # how often the target was called
    drafted: int  # tokens that the draft proposed
    accepted: int  # tokens among them that stand in the text


@torch.no_grad()
def speculative_sampling(
    target: Callable[[Tensor], Tensor],
    draft: Callable[[Tensor], Tensor],
    tokens: Tensor,
    n: int,
    *,
    draft_tokens: int = 4,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    stop: int | Sequence[int] | None = None,
) -> Written:
    """Write n tokens after a text, (1, T), distributed as if the target had drawn them one by one.

    In each pass the draft proposes up to draft_tokens tokens, the target reads them all at once,
    and `verify` keeps the first ones and adds one more. `stop` is the token, or the tokens, after
    which the text ends; it is part of the text.

    A model is called with a text, (1, T), and returns logits, (1, R, vocab_size), of its last R
    tokens: of all, or, if it has a cache, of the new ones. One with a cache has a method
    truncate(length), by which it forgets all but the first tokens.
    """
    if tokens.dim() != 2 or len(tokens) != 1:  # each of a batch would accept another number
        raise ValueError(f"tokens must be those of one text, (1, T), got {tuple(tokens.shape)}")
    stops = () if stop is None else (stop,) if isinstance(stop, int) else stop
    end, passes, drafted, accepted = tokens.size(1) + n, 0, 0, 0
    while (known := tokens.size(1)) < end:
        text, proposed = tokens, []
        for _ in range(min(draft_tokens, end - known - 1)):
            proposed.append(shares_of(draft(text)[0, -1:], temperature))  # (1, vocab_size)
            text = torch.cat([text, draw(proposed[-1], generator)[None]], dim=1)
        count = len(proposed)
        wanted = shares_of(target(text)[0, -count - 1 :], temperature)  # (count + 1, vocab_size)
        offered = torch.cat([*proposed, wanted[:0]])  # (count, vocab_size)
        new = verify(text[0, known:], offered, wanted, generator)
        passes, drafted, accepted = passes + 1, drafted + count, accepted + len(new) - 1
        ended = [place for place, token in enumerate(new.tolist()) if token in stops]
        if ended:
            accepted -= max(0, len(new) - 2 - ended[0])  # accepted, and not in the text
            new, end = new[: ended[0] + 1], known
        tokens = torch.cat([tokens, new[None]], dim=1)
        # The target has read all proposals, and the draft all but its last. What was refused is
        # forgotten; the newest token has been read by neither, unless a proposal ended the text.
        for model, read in ((target, known + count), (draft, known + count - 1)):
            if hasattr(model, "truncate") and (model is target or count):
                model.truncate(min(read, tokens.size(1) - 1))
    return Written(tokens, passes, drafted, accepted)


def verify(drafted: Tensor, draft_shares: Tensor, target_shares: Tensor, generator=None) -> Tensor:
    """Return what becomes of a draft, (k + 1,): its first k tokens, and one that is not from it.

    The draft, (γ,), was drawn with q, (γ, vocab_size); the target says p, (γ + 1, vocab_size).
    Token x is accepted with probability min(1, p(x) / q(x)), as long as all before it were. After
    the first that is not, one token is drawn from the shares that the draft left too small,
    max(0, p − q) over its sum; after the last, one from the target's own.
    """
    count = len(drafted)
    if len(target_shares) != count + 1:  # every row would be that of another token
        raise ValueError(f"target_shares must have {count + 1} rows, got {len(target_shares)}")
    place = torch.arange(count, device=drafted.device)
    p, q = target_shares[place, drafted], draft_shares[place, drafted]
    numbers = torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device)
    accepted = numbers * q < p  # not u < p / q: q may be 0
    kept = int(accepted.cumprod(dim=0).sum())
    left = target_shares[kept]
    if kept < count:
        missing = (left - draft_shares[kept]).clamp(min=0.0)
        left = missing if missing.sum() > 0 else left  # equal but for rounding
    return torch.cat([drafted[:kept], draw(left[None], generator)])


def draw(shares: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw one token from each row of shares, (rows, vocab_size) → (rows,)."""
    how = {"generator": generator, "dtype": shares.dtype, "device": shares.device}
    return token_at(shares, torch.rand(shares.shape[:1], **how))


def shares_of(logits: Tensor, temperature: float) -> Tensor:
    """Return the probability of each token, (..., vocab_size), in float32 or wider.

    In the 8 bits of bfloat16 a thousand equal tokens could not all be drawn.
    """
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be a number of at least 0, got {temperature}")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    largest = logits.amax(dim=-1, keepdim=True)
    if not largest.isfinite().all():  # nan or +inf stands in a row, or -inf alone
        raise ValueError("logits must be finite or -inf, not all -inf: got nan, inf or only -inf")
    if temperature < 1e-38:  # 0, or 0 in float32
        return torch.zeros_like(logits).scatter(-1, logits.argmax(dim=-1, keepdim=True), 1.0)
    return torch.softmax((logits - largest) / temperature, dim=-1)


def token_at(shares: Tensor, numbers: Tensor) -> Tensor:
    """Return the token into whose share each number falls, (..., vocab_size) and (...) → (...).

    The numbers are in [0, 1). torch.multinomial draws too, but differently on other processors.
    """
    bounds = shares.cumsum(dim=-1, dtype=torch.promote_types(shares.dtype, torch.float32))
    bounds = bounds.masked_fill(shares == 0, 0.0)  # no number is below 0, so none falls here
    total = bounds.amax(dim=-1, keepdim=True)
    if not ((total > 0) & (total < math.inf)).all():  # nan is neither: no token would be its
        raise ValueError("shares must be numbers with a sum above 0: got nan, inf, or only 0")
    return (numbers[..., None] * total < bounds).int().argmax(dim=-1)  # the first bound above
