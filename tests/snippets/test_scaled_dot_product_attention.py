"""The function is its definition, with and without the weights, and misreads no mask."""

from functools import partial

import torch
import torch.nn.functional as F

from snippets.scaled_dot_product_attention import scaled_dot_product_attention
from tests.snippets.facts import assert_equal, dropped_at_one_half, refuses, works
from tests.snippets.parts import Case, T, alike, attend, close, draw, heads


def test_outputs_weights_and_gradients_are_those_of_the_formula(part):
    """For every mask, beside is_causal too, and every sign of the scale; a query without keys gets zeros."""
    keep = draw(2, 2, 5, 3) > -0.3
    keep[..., 2, :] = False
    added = draw(5, 3, seed=2).masked_fill(~keep[0, 0], -torch.inf)
    for width, mask in ((4, None), (4, keep), (2, added)):
        for is_causal, scale in ((False, None), (True, 0.3), (True, 0.0), (True, -0.5)):
            sizes = (5, 4), (3, 4), (3, width)
            leaves = [draw(2, 2, *size, seed=i).requires_grad_() for i, size in enumerate(sizes)]
            how = {"is_causal": is_causal, "scale": scale}
            wanted, shares = attend(*leaves, mask, **how)
            result, weights = part.scaled_dot_product_attention(
                *leaves, mask, **how, need_weights=True
            )
            assert close(weights, shares)
            assert alike(result, wanted, leaves), (mask, how)
            fused = part.scaled_dot_product_attention(*leaves, mask, **how)
            assert alike(fused, wanted, leaves), (mask, how)


def test_dropout_keeps_the_average(part):
    """With the unit vectors as values, the contexts are the weights that were applied."""
    torch.manual_seed(0)
    attention, value = part.scaled_dot_product_attention, torch.eye(4)
    query, key = torch.randn(2, 4, 3)
    plain = attention(query, key, value)
    many = [x.expand(8_000, 4, -1) for x in (query, key, value)]
    context, weights = attention(*many, dropout_p=0.5, need_weights=True)
    assert torch.equal(context, weights), "the weights returned are not those applied"
    dropped_at_one_half("written out", weights, plain)
    dropped_at_one_half("the operator", attention(*many, dropout_p=0.5), plain)


def test_scores_are_divided_before_they_leave_half_precision(part):
    """64 · 60² is beyond float16, and an eighth of it is not."""
    x = torch.full((2, 5, 64), 60.0, dtype=torch.half)
    _, weights = part.scaled_dot_product_attention(x, x, x, need_weights=True)
    assert_equal("weights", weights, torch.full((2, 5, 5), 0.2), torch.bfloat16)


def test_a_mask_of_another_float_dtype_is_cast(part):
    """The operator refuses one of float64 beside queries of float32, and a CUDA kernel misreads it."""
    x, mask = draw(1, 2, 5, 4, dtype=torch.float32), draw(5, 5)
    with works("a mask of float64"):
        result = part.scaled_dot_product_attention(x, x, x, mask)
    assert close(result, F.scaled_dot_product_attention(x, x, x, mask.float()), 1e-6)


def test_what_would_be_misread_is_refused(part):
    """All of these run in silence without the check."""
    attention, x = part.scaled_dot_product_attention, torch.zeros(2, 2, 5, 3)
    refuses("a key without a value", attention, x, x, x[:, :, :4])
    for_each_text = torch.ones(2, 5, 5, dtype=torch.bool)
    refuses("a mask for each text or each head", attention, x, x, x, for_each_text)
    numbers = torch.ones(5, 5, dtype=torch.int64)
    refuses("a mask of integers", attention, x, x, x, numbers, need_weights=True)


DROPOUT = "weights = F.dropout(_softmax(scores, attn_mask), dropout_p)"
WRONG = {
    "scaled by the number of keys": ("query.size(-1) ** -0.5", "T_k**-0.5"),
    "the triangle in the other corner": (".triu(1)", ".triu(T_k - T_q + 1)"),
    "an empty row is NaN": ("attn_mask.masked_fill(no_key, 0.0)", "attn_mask"),
    "drops scores, not weights": (
        DROPOUT,
        "weights = _softmax(F.dropout(scores, dropout_p), attn_mask)",
    ),
}

CAUSAL_PADDING = torch.ones(T, T, dtype=torch.bool).tril(1)
CASES = {
    "scaled_dot_product_attention": Case(
        lambda _, *x: scaled_dot_product_attention(*x, is_causal=True), heads
    ),
    "scaled_dot_product_attention, weights": Case(
        lambda _, *x: scaled_dot_product_attention(
            *x, CAUSAL_PADDING.to(x[0].device), is_causal=True, need_weights=True
        ),
        heads,
    ),
}


MIB = {
    "scaled_dot_product_attention": (
        4,
        lambda x: partial(scaled_dot_product_attention, *3 * [x[None, None]]),
    )
}
