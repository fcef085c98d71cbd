"""The running mean is PyTorch's own operator on zero scores, and hides the future."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from snippets.causal_average import causal_average

shapes = st.lists(st.integers(0, 4), min_size=2, max_size=4)


def drawn(shape, dtype=torch.float64):
    """Return a tensor of random numbers, not contiguous, with gradients."""
    torch.manual_seed(0)
    return torch.randn(*shape[:-2], shape[-1], shape[-2], dtype=dtype).mT.requires_grad_()


@given(shapes)
def test_it_is_attention_with_zero_scores(shape):
    x = drawn(shape)
    zeros = torch.zeros_like(x)
    theirs = F.scaled_dot_product_attention(zeros, zeros, x, is_causal=True)
    assert torch.allclose(causal_average(x), theirs, rtol=0, atol=1e-12)


@given(shapes)
def test_it_is_the_running_sum_over_the_count(shape):
    x = drawn(shape)
    counts = torch.arange(1, x.shape[-2] + 1)[:, None]
    assert torch.allclose(causal_average(x), x.cumsum(dim=-2) / counts, rtol=0, atol=1e-12)


def test_its_gradient_is_the_derivative():
    assert torch.autograd.gradcheck(causal_average, drawn((2, 5, 3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_future_tokens_cannot_change_the_past(dtype):
    x = drawn((2, 6, 3), dtype)
    changed = x.detach().clone()
    changed[:, -1] += 1.0
    moved = (causal_average(changed) != causal_average(x)).any(dim=-1).any(dim=0)
    assert moved.tolist() == [False] * 5 + [True]
    assert causal_average(x).dtype == dtype


def test_the_counts_are_exact_where_the_numbers_are_short():
    """257 is no number of bfloat16. All sums here are exact, so the mean of equal numbers is exact."""
    x = torch.full((1000, 1), 129 / 128, dtype=torch.bfloat16)
    assert torch.equal(causal_average(x), x)


def test_the_sums_are_larger_than_the_numbers_may_be():
    """float16 ends at 65,504, and a thousand times 200 is 200,000."""
    x = torch.full((1000, 1), 200.0, dtype=torch.float16)
    assert torch.equal(causal_average(x), x)


@pytest.mark.parametrize(
    ("x", "got", "wanted"),
    [
        ([[1.0]], r"\[\[1.0\]\]", "shape"),
        (torch.zeros(3), r"\(3,\)", "shape"),
        (torch.zeros(2, 3, dtype=torch.int64), "torch.int64", "floating point"),
    ],
)
def test_a_bad_argument_is_named_with_what_came_and_what_was_wanted(x, got, wanted):
    with pytest.raises(ValueError, match=f"^x must .*{wanted}.* got {got}$"):
        causal_average(x)
