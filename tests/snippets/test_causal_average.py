"""The running mean is that of each beginning, and its sums and counts do not overflow."""

import torch

from snippets.causal_average import causal_average
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, alike, draw, texts


def test_row_t_is_the_mean_of_rows_0_to_t(part):
    for shape in ((5, 3), (2, 2, 4, 3), (2, 0, 3)):
        x = draw(*shape).requires_grad_()
        means = [x[..., : t + 1, :].mean(dim=-2) for t in range(x.size(-2))]
        wanted = torch.stack(means, dim=-2) if means else x * 1
        assert alike(part.causal_average(x), wanted, [x])


def test_half_precision_is_summed_and_counted_beyond_what_it_holds(part):
    """A thousand times 200 is beyond float16, which ends at 65,504, and 257 is no number of bfloat16."""
    for number, dtype in ((200.0, torch.float16), (129 / 128, torch.bfloat16)):
        x = torch.full((1000, 1), number, dtype=dtype)
        result = part.causal_average(x)
        assert result.dtype == dtype
        assert torch.equal(result, x)


def test_integers_are_refused(part):
    """The mean of 1 and 2 would be cut off to 1."""
    refuses("a mean of integers", part.causal_average, torch.tensor([[1], [2]]))


SUMS = "x.cumsum(dim=-2, dtype=dtype)"
WRONG = {
    "the mean leaves the present out": (SUMS, f"{SUMS} - x"),
    "the mean divides by T": ("counts[:, None]", "counts[-1]"),
    "the mean is summed up in half precision": ("cumsum(dim=-2, dtype=dtype)", "cumsum(dim=-2)"),
}

CASES = {"causal_average": Case(lambda _, x: causal_average(x), texts, casts=False)}
MIB = {"causal_average": (8, lambda x: lambda: causal_average(x))}
