"""The running mean is attention whose scores are all zero, and its sums and counts do not overflow."""

import torch

from snippets.causal_average import causal_average
from tests.snippets.facts import asked_of, refuses
from tests.snippets.parts import Case, texts
from tests.snippets.problems import SIZES, average_problem


def its_counts_are_exact_where_the_numbers_are_short(part):
    """257 is no number of bfloat16. All sums here are exact, so the mean of equal numbers is exact."""
    x = torch.full((1000, 1), 129 / 128, dtype=torch.bfloat16)
    result = part.causal_average(x)
    assert result.dtype == x.dtype
    assert torch.equal(result, x)


def its_sums_may_be_larger_than_the_numbers(part):
    """float16 ends at 65,504, and a thousand times 200 is 200,000."""
    x = torch.full((1000, 1), 200.0, dtype=torch.float16)
    assert torch.equal(part.causal_average(x), x)


def integers_are_refused(part):
    """The mean of 1 and 2 would be cut off to 1."""
    refuses("a mean of integers", part.causal_average, torch.tensor([[1], [2]]))


FACTS = [
    *asked_of(average_problem, [SIZES]),
    its_counts_are_exact_where_the_numbers_are_short,
    its_sums_may_be_larger_than_the_numbers,
    integers_are_refused,
]

SUMS = "x.cumsum(dim=-2, dtype=dtype)"
WRONG = {
    "the mean leaves the present out": (SUMS, f"{SUMS} - x"),
    "the mean reads one token ahead": (SUMS, f"{SUMS} + x.roll(-1, -2)"),
    "the mean is of the future": (SUMS, f"x.flip(-2){SUMS[1:]}.flip(-2)"),
    "the mean is a sum": ("sums / counts[:, None]", "sums"),
    "the mean is of channels": ("x.cumsum(dim=-2", "x.cumsum(dim=-1"),
    "the mean divides by T": ("counts[:, None]", "counts[-1]"),
    "the mean counts from 0": ("arange(1, x.size(-2) + 1", "arange(0, x.size(-2)"),
    "the mean is summed up in half precision": ("cumsum(dim=-2, dtype=dtype)", "cumsum(dim=-2)"),
    "the mean comes in float32": (".to(x.dtype)", ".to(dtype)"),
    "a mean of integers is cut off": ("if not x.is_floating_point():", "if False:"),
}

CASES = {"causal_average": Case(lambda _, x: causal_average(x), texts, casts=False)}
MIB = {"causal_average": (8, lambda x: lambda: causal_average(x))}
