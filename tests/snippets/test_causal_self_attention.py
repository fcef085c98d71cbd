"""One head that hides the future is its definition, and drops weights while it is trained."""

from functools import partial

import torch

from snippets.causal_self_attention import CausalSelfAttention
from tests.snippets.facts import assert_equal, dropout_is_for_training
from tests.snippets.parts import Case, alike, attend, close, draw, texts


def test_outputs_weights_and_gradients_are_those_of_the_formula(part):
    for shape, bias in (((2, 4, 5), True), ((2, 2, 4, 5), False)):
        head, x = part.CausalSelfAttention(5, 3, bias=bias).double(), draw(*shape).requires_grad_()
        leaves = [x, *head.parameters()]
        context, weights = attend(head.W_query(x), head.W_key(x), head.W_value(x), is_causal=True)
        result, found = head(x, need_weights=True)
        assert close(found, weights)
        assert alike(result, context, leaves)
        assert alike(head(x), context, leaves)


def test_weights_are_dropped_while_it_is_trained(part):
    """On both paths."""
    torch.manual_seed(0)
    dropout_is_for_training(part.CausalSelfAttention(3, 4, dropout=0.5), torch.randn(4, 3))


def test_scores_are_divided_before_they_leave_half_precision(part):
    """64 · 60² is beyond float16, and an eighth of it is not."""
    head = part.CausalSelfAttention(64, 64).half().eval()
    for projection in (head.W_query, head.W_key):
        torch.nn.init.eye_(projection.weight)
    _, weights = head(torch.full((2, 5, 64), 60.0).half(), need_weights=True)
    wanted = torch.ones(5, 5).tril() / torch.arange(1, 6)[:, None]
    assert_equal("weights", weights, wanted.expand(2, 5, 5), torch.bfloat16)


SCALE = "self.head_dim**-0.5"
SCORES = f"(query * {SCALE}) @ key.mT"
DROPOUT = "self.dropout if self.training else 0.0"
WRONG = {
    "no scale": (SCORES, "query @ key.mT"),
    "scaled by the embedding dimension": (SCALE, "x.size(-1) ** -0.5"),
    "off by one: sees one future token": (".tril()", ".tril(1)"),
    "masked after softmax, never renormalised": (
        'weights = scores.masked_fill_(~keep, float("-inf")).softmax(dim=-1)',
        "weights = scores.softmax(dim=-1).masked_fill(~keep, 0.0)",
    ),
    "left on in eval": (DROPOUT, "self.dropout"),
}
CASES = {
    "causal_self_attention": Case(lambda m, x: m(x), texts, lambda: CausalSelfAttention(16, 8)),
    "causal_self_attention, weights": Case(
        lambda m, x: m(x, need_weights=True), texts, lambda: CausalSelfAttention(16, 8)
    ),
}
MODULES = {"CausalSelfAttention": lambda: CausalSelfAttention(8, 4)}


MIB = {"causal_self_attention": (16, lambda x: partial(CausalSelfAttention(64, 64), x[None]))}
