"""Writes after many texts at once: left padding, positions, a mask, and a cache.

    texts = generate(model, prompts, 100, 0.8, generators, cache=KVCache, stop=[3, 4])

Each text is the one that it would be alone, with a cache and without, but for rounding: in float32
it rarely decides between two tokens, in bfloat16 it does so in some texts of a batch.
Source: Pope et al. (2023), "Efficiently Scaling Transformer Inference", section 2.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


@torch.no_grad()
def generate(
    model: nn.Module,
    prompts: Sequence[Tensor],
    n: int,
    temperature: float = 1.0,
    generators: Sequence[torch.Generator] | None = None,
    *,
    cache: Callable[[int], object] | None = None,
    stop: int | Sequence[int] | None = None,
) -> list[Tensor]:
    """Write n more tokens after each prompt, and return each text, prompt included, in order.

    Args:
        model: in eval mode; model(tokens, positions=…, attn_mask=…, caches=…, last=1) returns
            logits, (batch, 1, vocab_size), or those of more tokens before the last.
        prompts: each (at least 1,) tokens; their lengths may differ.
        n: how many tokens to write.
        temperature: divides the logits before the softmax; at 0 the likeliest token is taken.
        generators: one for each prompt, so that no draw depends on other texts, or None.
        cache: makes a cache of one block for so many tokens, like KVCache; None keeps nothing.
        stop: the token, or the tokens, after which a text ends; it is part of the text.
    """
    lengths = [len(prompt) for prompt in prompts]
    if 0 in lengths:  # a text of padding alone
        raise ValueError(f"prompts must hold at least one token each, got lengths {lengths}")
    longest, device = max(lengths), prompts[0].device
    tokens = torch.zeros(len(prompts), longest + n, dtype=torch.int64, device=device)
    real = torch.ones_like(tokens, dtype=torch.bool)  # False: padding
    for row, prompt in enumerate(prompts):  # to the right: all write their next token in one column
        tokens[row, longest - len(prompt) : longest] = prompt
        real[row, : longest - len(prompt)] = False
    # A text begins at position 0, wherever in its row that is. Padding stands at 0, too.
    positions = (real.cumsum(dim=1) - 1).clamp(min=0)
    padded = min(lengths) < longest  # without padding the model's own mask will do
    caches = None if cache is None else [cache(longest + n) for _ in model.blocks]
    stops = () if stop is None else (stop,) if isinstance(stop, int) else stop
    ends = torch.full((len(prompts),), longest + n, device=device)
    start = 0  # tokens before this one are in the cache
    for end in range(longest, longest + n):
        logits = model(
            tokens[:, start:end],
            positions=positions[:, start:end],
            attn_mask=keep_mask(real[:, :end], start) if padded else None,
            caches=caches,
            last=1,
        )
        tokens[:, end] = choose(logits[:, -1], temperature, generators)
        for one in stops:
            ends = torch.where((tokens[:, end] == one) & (ends > end), end + 1, ends)
        if len(stops) and ends.max() <= end + 1:  # all texts have ended
            break
        start = 0 if caches is None else end
    return [
        row[longest - length : end]
        for row, length, end in zip(tokens, lengths, ends.tolist(), strict=True)
    ]


def keep_mask(real: Tensor, start: int) -> Tensor:
    """Return which keys the tokens from `start` on see, (batch, 1, T - start, T); True keeps.

    A token sees no later one and no padding, where `real`, (batch, T), is False. Padding sees
    itself, so that no row is empty; what comes of it is never looked at.
    """
    place = torch.arange(real.size(1), device=real.device)
    asks = place[start:, None]  # (T - start, 1)
    return (place <= asks) & real[:, None, None] | (place == asks)


def choose(
    logits: Tensor, temperature: float, generators: Sequence[torch.Generator] | None
) -> Tensor:
    """Draw one token from each row, (batch, vocab_size) → (batch,); at 0 take the likeliest."""
    shares = shares_of(logits, temperature)
    if temperature == 0:
        return shares.argmax(dim=-1)
    generators = generators or [None] * len(shares)
    if len(generators) != len(shares):  # one number would be every text's
        raise ValueError(f"generators must be {len(shares)}, one a text, got {len(generators)}")
    numbers = [
        torch.rand(1, generator=generator, dtype=shares.dtype, device=shares.device)
        for generator in generators
    ]
    return token_at(shares, torch.cat(numbers))


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
