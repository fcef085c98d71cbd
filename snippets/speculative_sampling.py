"""Speculative sampling: a small model drafts, the large one checks, and writes as if by itself.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Leviathan, Kalman and Matias (2023), "Fast Inference from Transformers via Speculative
Decoding", algorithm 1 and appendix A.1; Chen et al. (2023), "Accelerating Large Language Model
Decoding with Speculative Sampling", algorithm 2 and theorem 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Written(NamedTuple):
    """What was written, and what it took."""

    tokens: Tensor  # (1, T + n), the prompt included
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
) -> Written:
    """Write n tokens after a text, distributed as if the target had drawn them one by one.

    A pass: the draft writes up to draft_tokens tokens, the target reads them all at once, and
    `verify` keeps the first ones and adds one more. So a pass writes at least one token and at
    most draft_tokens + 1, and calls the draft once for each token it proposes.

    A model is anything that is called with a text, (1, T) integers, and returns logits,
    (1, R, vocab_size), of the last R tokens. A model without a cache returns those of all. One
    with a cache may read what is new alone, which is draft_tokens + 1 tokens or fewer for the
    target and one or two for the draft; it must have a method truncate(length), which is called
    after each pass, and forgets all tokens but the first `length`. Both models have one vocabulary,
    and are in eval mode. One sequence at a time: each of a batch would accept another number.

    Args:
        target: the model that is to be sampled.
        draft: a cheaper one; the nearer its shares are to the target's, the fewer passes.
        tokens: (1, T), with T ≥ 1.
        n: how many tokens to write.
        draft_tokens: how many the draft proposes before each pass, γ in the paper; 0: none.
        temperature: divides the logits of both before the softmax. At 0 the likeliest is taken, and
            the text is the target's greedy one but where rounding decides between equals.
        generator: where the draws come from, on the device of the tokens; None: PyTorch's own.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    if tokens.dim() != 2 or tokens.size(0) != 1 or tokens.size(1) < 1:
        raise ValueError(f"tokens must have shape (1, at least 1), got {tuple(tokens.shape)}")
    for name, count in (("n", n), ("draft_tokens", draft_tokens)):
        if not isinstance(count, int) or count < 0:
            raise ValueError(f"{name} must be an integer of at least 0, got {count!r}")
    if not isinstance(temperature, int | float) or not 0.0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be a number of at least 0, got {temperature!r}")

    end, passes, drafted, accepted = tokens.size(1) + n, 0, 0, 0
    while (known := tokens.size(1)) < end:
        text, proposed = tokens, []
        for _ in range(min(draft_tokens, end - known - 1)):
            proposed.append(_shares(draft(text)[:, -1:], temperature))  # (1, vocab_size)
            text = torch.cat([text, draw(proposed[-1], generator)[None]], dim=1)
        count = len(proposed)
        wanted = _shares(target(text)[:, -count - 1 :], temperature)  # (count + 1, vocab_size)
        offered = torch.cat([*proposed, wanted[:0]])  # (count, vocab_size)
        new = verify(text[0, known:], offered, wanted, generator)
        tokens = torch.cat([tokens, new[None]], dim=1)
        # The target has read all proposals, and the draft all but its last. What was refused is
        # forgotten; the newest token has been read by neither.
        for model, read in ((target, known + count), (draft, known + count - 1)):
            if hasattr(model, "truncate") and (model is target or count):
                model.truncate(min(read, tokens.size(1) - 1))
        passes, drafted, accepted = passes + 1, drafted + count, accepted + len(new) - 1
    return Written(tokens, passes, drafted, accepted)


def verify(
    drafted: Tensor,
    draft_shares: Tensor,
    target_shares: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return what becomes of a draft, (k + 1,): its first k tokens, and one that is not from it.

    Token x is accepted with probability min(1, p(x) / q(x)), as long as all before it were. After
    the first that is not, one token is drawn from the shares that the draft left too small,
    max(0, p − q) over its sum; after the last, one from the target's own. Each token is then
    distributed as the target's shares say, whatever those of the draft are.

    Args:
        drafted: (γ,), tokens that were drawn with draft_shares.
        draft_shares: q, (γ, vocab_size), rows that sum to 1.
        target_shares: p, (γ + 1, vocab_size), the last row for the token after the draft.
        generator: where the draws come from.
    """
    count = len(drafted)
    if draft_shares.shape != (count, target_shares.size(-1)) or len(target_shares) != count + 1:
        raise ValueError(
            f"draft_shares and target_shares must be ({count}, vocab_size) and ({count + 1}, "
            f"vocab_size) for {count} drafted tokens, got {tuple(draft_shares.shape)} and "
            f"{tuple(target_shares.shape)}"
        )
    place = torch.arange(count, device=drafted.device)
    p, q = target_shares[place, drafted], draft_shares[place, drafted]
    accepted = _uniform(p, generator) * q < p  # not u < p / q: q may be 0
    kept = int(accepted.cumprod(dim=0).sum())
    left = target_shares[kept]
    if kept < count:
        missing = (left - draft_shares[kept]).clamp(min=0.0)
        left = missing if missing.sum() > 0 else left  # equal but for rounding
    return torch.cat([drafted[:kept], draw(left[None], generator)])


def draw(shares: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw one token from each row of shares, (rows, vocab_size) → (rows,)."""
    return token_at(shares, _uniform(shares[..., 0], generator))


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return numbers in [0, 1) of the shape and device of `like`, in float32 or wider."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.rand(like.shape, generator=generator, dtype=dtype, device=like.device)


def _shares(logits: Tensor, temperature: float) -> Tensor:
    """(1, R, vocab_size) logits to shares, (R, vocab_size); at 0 all is the likeliest token's."""
    if temperature == 0:
        shares = torch.zeros_like(logits[0], dtype=torch.float32)
        return shares.scatter(-1, logits[0].argmax(-1, keepdim=True), 1.0)
    return shares_of(logits[0], temperature)


def shares_of(logits: Tensor, temperature: float) -> Tensor:
    """Return the probability of each token, (..., vocab_size), in float32 or wider.

    In the 8 bits of bfloat16 a thousand equal tokens could not all be drawn. The largest logit is
    taken off first, so that a small temperature cannot make infinity of it.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.softmax((logits - logits.amax(dim=-1, keepdim=True)) / temperature, dim=-1)


def token_at(shares: Tensor, numbers: Tensor) -> Tensor:
    """Return the token into whose share each number falls, (..., vocab_size) and (...) → (...).

    The shares need not sum to 1; the numbers are in [0, 1), in float32 or wider. A token without a
    share is never returned. torch.multinomial draws too, but differently on different processors.
    """
    bounds = shares.cumsum(dim=-1, dtype=torch.promote_types(shares.dtype, torch.float32))
    bounds = bounds.masked_fill(shares == 0, 0.0)  # no number is below 0, so none falls here
    numbers = numbers[..., None] * bounds.amax(dim=-1, keepdim=True)
    return (numbers < bounds).int().argmax(dim=-1)  # the first token whose bound is above
