"""What torch makes of an explorable, in float64: the figures that ours are held to."""

import math

import torch

from book import numerals
from book.figures.explorable.steps import STEPS

# The share of a step's largest value by which two right computations may differ: each sums a few
# products of float64, in whatever order and with whatever exponential the machine has.
SHARE = 1e-13


def attention(panel, *, causal, scaling, hidden=()):
    """Every step of attention over `panel`, in float64: `{step: tensor of (queries, …)}`."""
    given = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in panel.matrices.items()}
    names = ["embeddings"] * 3 if "embeddings" in given else ["queries", "keys", "values"]
    query, key, value = (given[name] for name in names)
    scores = query @ key.T
    scaled = scores / math.sqrt(key.shape[-1]) if scaling else scores
    unseen = torch.ones_like(scores).triu(1).bool() & causal
    unseen[:, list(hidden)] = True
    masked = scaled.masked_fill(unseen, -torch.inf)
    weights = torch.softmax(masked, dim=-1).nan_to_num(0.0)  # a row with nothing to attend to
    return dict(zip(STEPS, (scores, scaled, masked, weights, weights @ value), strict=True))


def margin(wanted):
    """How far a value of a step may lie from `wanted`, the whole step as torch computes it."""
    finite = wanted[wanted.isfinite()].abs()
    return SHARE * max(1.0, finite.max().item() if finite.numel() else 0.0)


def assert_equal(step, result, wanted):
    """Assert that the rows of numbers in `result` are the tensor `wanted`, within the margin."""
    torch.testing.assert_close(
        torch.tensor(result, dtype=torch.float64),
        wanted,
        atol=margin(wanted),
        rtol=0,
        msg=lambda message: f"{step}: {message}",
    )


def assert_shown(step, texts, wanted, digits):
    """Assert that each text is a number within the margin of `wanted`, as Python rounds it."""
    slack = margin(wanted)
    for row, values in zip(texts, wanted.tolist(), strict=True):
        for text, value in zip(row, values, strict=True):
            near = {numerals.rounded(value + by, digits) for by in (-slack, 0.0, slack)}
            assert text in near, f"{step}: {text} is shown, wanted {' or '.join(sorted(near))}"
