"""The function is its definition, and PyTorch's operator, with and without the weights."""

from functools import partial

import torch
import torch.nn.functional as F

from snippets.scaled_dot_product_attention import scaled_dot_product_attention
from tests.snippets import facts
from tests.snippets.facts import (
    asked_of,
    assert_equal,
    dropped_at_one_half,
    gradients,
    refuses,
    works,
)
from tests.snippets.parts import Case, T, heads
from tests.snippets.problems import BOTH_PATHS, function_problem
from tests.snippets.problems import CASES as PROBLEMS


def it_is_the_operator_of_torch(part):
    """Outputs and gradients. The operator hides the future before it scales, so its scale is positive."""
    for case in PROBLEMS:
        if case.scale is not None and case.scale <= 0:
            continue
        problem = function_problem(part, case)
        mask = problem.bias.to(case.dtype)
        theirs = F.scaled_dot_product_attention(*problem.leaves.values(), mask, scale=case.scale)
        wanted = gradients(theirs, problem.leaves)
        for need_weights in BOTH_PATHS:
            ours, _ = problem.call(problem.leaves, need_weights)
            assert_equal("context", ours, theirs, case.dtype)
            for name, gradient in gradients(ours, problem.leaves).items():
                assert_equal(f"gradient of {name}", gradient, wanted[name], case.dtype)


def dropout_keeps_the_average(part):
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


def scores_are_divided_before_they_leave_half_precision(part):
    """64 · 60² is beyond float16, and an eighth of it is not."""
    x = torch.full((2, 5, 64), 60.0, dtype=torch.half)
    _, weights = part.scaled_dot_product_attention(x, x, x, need_weights=True)
    assert_equal("weights", weights, torch.full((2, 5, 5), 0.2), torch.bfloat16)


def a_mask_of_another_float_dtype_is_cast(part):
    """The operator refuses one of float64 beside queries of float32, and a CUDA kernel misreads it."""
    torch.manual_seed(0)
    x, mask = torch.randn(1, 2, 5, 4), torch.randn(5, 5, dtype=torch.float64)
    wanted = F.scaled_dot_product_attention(x, x, x, mask.float())
    with works("a mask of float64"):
        result = part.scaled_dot_product_attention(x, x, x, mask)
    assert_equal("context", result, wanted, torch.float32)


def a_mask_beside_is_causal_is_one_mask(part):
    """For the operator, and written out."""
    torch.manual_seed(0)
    x = torch.randn(2, 2, 5, 4)
    attention = partial(part.scaled_dot_product_attention, x, x.flip(0), x.flip(1))
    facts.a_mask_beside_is_causal_is_one_mask(attention)


def what_would_be_misread_is_refused(part):
    """All of these run in silence without the check."""
    attention, x = part.scaled_dot_product_attention, torch.zeros(2, 2, 5, 3)
    refuses("a key without a value", attention, x, x, x[:, :, :4])
    for_each_text = torch.ones(2, 5, 5, dtype=torch.bool)
    refuses("a mask for each text or each head", attention, x, x, x, for_each_text)
    numbers = torch.ones(5, 5, dtype=torch.int64)
    refuses("a mask of integers", attention, x, x, x, numbers, need_weights=True)


FACTS = [
    *asked_of(function_problem, PROBLEMS),
    it_is_the_operator_of_torch,
    scores_are_divided_before_they_leave_half_precision,
    a_mask_of_another_float_dtype_is_cast,
    a_mask_beside_is_causal_is_one_mask,
    what_would_be_misread_is_refused,
    dropout_keeps_the_average,
]

SCORES = "(query * scale) @ key.mT"
CONTEXT = "return weights @ value, weights"
SOFTMAX = "scores.softmax(dim=-1).masked_fill(no_key, 0.0)"
DROPOUT = "weights = F.dropout(_softmax(scores, attn_mask), dropout_p)"
ROW = (
    "scores = scores - scores.amax(-1, keepdim=True).detach()\n    exps = scores.exp()\n    return "
)
WRONG = {
    # The dot product, and its softmax
    "softmax over the queries": (SOFTMAX, SOFTMAX.replace("-1", "-2")),
    "softmax over the batch": (SOFTMAX, SOFTMAX.replace("-1", "0")),
    "scores divided by their sum, no exponential": (
        f"return {SOFTMAX}",
        "return scores / scores.sum(-1, keepdim=True)",
    ),
    "distance in place of the dot product": (SCORES, "torch.cdist(query, key) * scale"),
    "scores transposed": (SCORES, f"({SCORES}).mT"),
    "cosine in place of the dot product": (
        SCORES,
        "F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT",
    ),
    "queries are compared with values": (SCORES, "(query * scale) @ value.mT"),
    "a token keeps its own value": (CONTEXT, "return value, weights"),
    "attends to the neighbour": (CONTEXT, "return weights @ value.roll(1, -2), weights"),
    # The scale
    "scaled by the number of keys": ("query.size(-1) ** -0.5", "T_k**-0.5"),
    "scaled after the scores have left half precision": (SCORES, "query @ key.mT * scale"),
    "scale= is ignored by the operator": ("is_causal, scale=scale", "is_causal"),
    "a scale of 0 hides the future before it scales": ("scale <= 0:", "scale < 0:"),
    "a negative scale does so": ("scale <= 0:", "scale == 0:"),
    "a negative scale loses its size": ("query * scale, 1.0", "-query, 1.0"),
    # Masks
    "inverted": ("zeros.masked_fill(~attn_mask", "zeros.masked_fill(attn_mask"),
    "hidden scores are small numbers": (
        'masked_fill(~attn_mask, float("-inf"))',
        "masked_fill(~attn_mask, -9.0)",
    ),
    "an additive mask is multiplied": ("scores += attn_mask", "scores *= attn_mask"),
    "the triangle in the other corner": (".triu(1)", ".triu(T_k - T_q + 1)"),
    "is_causal sees one key too many": (".triu(1)", ".triu(2)"),
    "is_causal hides the present": (".triu(1)", ".triu(0)"),
    "is_causal ignored beside a mask": (
        "_hide_future(attn_mask, T_q, T_k), False",
        "attn_mask, False",
    ),
    "is_causal shows the future beside a boolean mask": (
        "masked_fill(future, False if",
        "masked_fill(future, True if",
    ),
    "is_causal ignored where weights are asked for": (
        "if is_causal else scores",
        "if False else scores",
    ),
    "is_causal ignored by the operator": ("dropout_p, is_causal, scale", "dropout_p, False, scale"),
    "the mask is ignored by the operator": (
        "value, attn_mask, dropout_p",
        "value, None, dropout_p",
    ),
    "the operator gets a mask beside is_causal": (
        "if is_causal and attn_mask is not None:",
        "if False:",
    ),
    "an empty row is NaN": ("attn_mask.masked_fill(no_key, 0.0)", "attn_mask"),
    "an empty row is uniform": (".softmax(dim=-1).masked_fill(no_key, 0.0)", ".softmax(dim=-1)"),
    "a row with one hidden key counts as empty": (".all(dim=-1,", ".any(dim=-1,"),
    "a mask of another dtype is passed on": (".to(query.dtype)", ""),
    "a mask of integers is added": ("elif not attn_mask.is_floating_point():", "elif False:"),
    "a mask for each text is laid over the heads": ("not in (2, query.dim())", "== 0"),
    "the operator reads beyond the last value": ("if value.size(-2) != T_k:", "if False:"),
    # Dropout
    "survivors not scaled up": (DROPOUT, f"{DROPOUT} * (1 - dropout_p)"),
    "rows renormalised after dropout": (
        CONTEXT,
        "weights = F.normalize(weights, p=1, dim=-1)\n    return weights @ value, weights",
    ),
    "drops scores, not weights": (
        DROPOUT,
        "weights = _softmax(F.dropout(scores, dropout_p), attn_mask)",
    ),
    "the same weights dropped in every sample": (
        DROPOUT,
        "weights = _softmax(scores, attn_mask)\n"
        "    weights = weights * F.dropout(torch.ones_like(weights[:1]), dropout_p)",
    ),
    "the operator drops nothing": ("attn_mask, dropout_p, is_causal", "attn_mask, 0.0, is_causal"),
    "returns the weights from before": (
        f"{DROPOUT}\n    {CONTEXT}",
        "weights = _softmax(scores, attn_mask)\n"
        "    return F.dropout(weights, dropout_p) @ value, weights",
    ),
    # The backward pass
    "no gradient through the weights": (CONTEXT, "return weights.detach() @ value, weights"),
    "no gradient through the values": (CONTEXT, "return weights @ value.detach(), weights"),
    "no gradient through the queries": (SCORES, "(query * scale).detach() @ key.mT"),
    "no gradient through the keys": (SCORES, f"{SCORES}.detach()"),
    "the backward forgets the scale": (
        SCORES,
        "query @ key.mT + (query @ key.mT * (scale - 1)).detach()",
    ),
    "the backward of softmax forgets the sum over the row": (
        f"return {SOFTMAX}",
        f"{ROW}(exps / exps.sum(-1, keepdim=True).detach()).masked_fill(no_key, 0.0)",
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


def of_one_head(x):
    """The call of one head of one text."""
    x = x[None, None]
    return lambda: scaled_dot_product_attention(x, x, x)


MIB = {"scaled_dot_product_attention": (4, of_one_head)}
