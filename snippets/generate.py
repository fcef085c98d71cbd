"""Writes after many texts at once: left padding, their places, their masks, and a cache.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Pope et al. (2023), "Efficiently Scaling Transformer Inference", section 2 (prefill and
decode). Padding on the left is what Hugging Face's `generate` asks of those who batch.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def keep_mask(real: Tensor, start: int) -> Tensor:
    """Return which keys each of the last tokens sees, (batch, 1, T - start, T); True keeps.

    A token sees no later one and no padding. Padding sees itself, so that no row is empty; what
    comes of it is never looked at.

    Args:
        real: (batch, T), boolean: whether a token is one of the text, and not padding.
        start: the first token that asks; those before it are in the cache.
    """
    place = torch.arange(real.size(1), device=real.device)
    asks = place[start:, None]  # (T - start, 1)
    return (place <= asks) & real[:, None, None] | (place == asks)


@torch.no_grad()
def generate(
    model: nn.Module,
    prompts: Sequence[Tensor],
    n: int,
    temperature: float = 1.0,
    generators: Sequence[torch.Generator] | None = None,
    *,
    cache: Callable[[int], object] | None = None,
    stop: int | None = None,
) -> list[Tensor]:
    """Write n more tokens after each prompt, and return each with what was written after it.

        texts = generate(model, prompts, 100, 0.8, generators, cache=KVCache)

    In exact arithmetic each text is the one that it would be alone, to the token, whatever else is
    in the batch, with the cache and without. Rounding depends on the shape of a batch, so two
    tokens that are equally likely to within a rounding error may change places. In float64 and
    float32 that is rare; in bfloat16 and float16 some texts of a batch will differ.

    Args:
        model: called as model(tokens, positions=…, attn_mask=…, caches=…, last=1), with tokens
            and positions (batch, T), the mask as from keep_mask or None, and None or one cache for
            each of model.blocks; returns the logits of the last token of each text, (batch, 1,
            vocab_size), or those of more tokens before it. Call its .eval() first.
        prompts: one-dimensional tensors of tokens, at least one in each; their lengths may differ.
        n: how many tokens to write.
        temperature: divides the logits before the softmax; at 0 the likeliest token is taken.
        generators: one for each prompt, where its draws come from, so that a text does not
            depend on its neighbours; None means PyTorch's own for all.
        cache: makes the memory of one block, called with the most tokens that it must hold, such
            as the class KVCache. None keeps nothing and computes all tokens at each step.
        stop: the token after which a text ends. It is part of the text. A batch goes on until all
            its texts have ended.

    Returns:
        One tensor for each prompt, in order: the prompt and what was written.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    _check_prompts(prompts, n, temperature, generators)
    lengths = [len(prompt) for prompt in prompts]
    longest, device = max(lengths), prompts[0].device
    tokens = torch.zeros(len(prompts), longest + n, dtype=torch.int64, device=device)
    real = torch.ones_like(tokens, dtype=torch.bool)
    for row, prompt in enumerate(
        prompts
    ):  # to the right: the next token of all stands at one place
        tokens[row, longest - len(prompt) : longest] = prompt
        real[row, : longest - len(prompt)] = False
    # A text begins at place 0, wherever in its row that is. Padding stands at 0, too.
    positions = (real.cumsum(dim=1) - 1).clamp(min=0)
    caches = None if cache is None else [cache(longest + n) for _ in model.blocks]
    ends = torch.full((len(prompts),), longest + n, device=device)
    start = 0  # tokens before this one are in the cache
    for end in range(longest, longest + n):
        padded = min(lengths) < longest  # without padding the model's own mask will do
        logits = model(
            tokens[:, start:end],
            positions=positions[:, start:end],
            attn_mask=keep_mask(real[:, :end], start) if padded else None,
            caches=caches,
            last=1,
        )
        tokens[:, end] = choose(logits[:, -1], temperature, generators)
        if stop is not None:
            ends = torch.where((tokens[:, end] == stop) & (ends > end), end + 1, ends)
            if ends.max() <= end + 1:
                break
        start = 0 if caches is None else end
    return [
        tokens[row, longest - length : end]
        for row, (length, end) in enumerate(zip(lengths, ends.tolist(), strict=True))
    ]


def choose(
    logits: Tensor, temperature: float, generators: Sequence[torch.Generator] | None
) -> Tensor:
    """Draw one token of each row, (batch, vocab_size) → (batch,)."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    shares = shares_of(logits, temperature)
    numbers = [
        torch.rand(1, generator=generator, dtype=shares.dtype, device=shares.device)
        for generator in (generators or [None] * len(shares))
    ]
    return token_at(shares, torch.cat(numbers))


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


def _check_prompts(prompts, n, temperature, generators) -> None:
    """Raise ValueError for what generate could not read."""
    for prompt in prompts if len(prompts) else [None]:
        if not isinstance(prompt, Tensor) or prompt.dim() != 1 or not len(prompt):
            came = tuple(prompt.shape) if isinstance(prompt, Tensor) else repr(prompt)
            raise ValueError(f"prompts must be tensors of shape (at least 1,), got {came}")
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"n must be an integer of at least 0, got {n!r}")
    if not isinstance(temperature, int | float) or not 0.0 <= temperature < math.inf:
        raise ValueError(f"temperature must be a number of at least 0, got {temperature!r}")
    if generators is not None and len(generators) != len(prompts):
        raise ValueError(
            f"generators must be one for each of {len(prompts)} prompts, got {len(generators)}"
        )
