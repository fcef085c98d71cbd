"""One head is its formula, and misreads no mask."""

from functools import partial

import torch

from snippets.self_attention import SelfAttention
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, alike, attend, draw, texts


def test_outputs_and_gradients_are_those_of_the_formula(part):
    """With a mask for each text, too; a token that may see no token gets zeros."""
    keep = draw(2, 4, 4) > 0
    keep[:, 2] = False
    for mask, bias in ((None, True), (keep, False)):
        head, x = part.SelfAttention(5, 3, bias=bias).double(), draw(2, 4, 5).requires_grad_()
        wanted, _ = attend(head.W_query(x), head.W_key(x), head.W_value(x), mask)
        assert alike(head(x, attn_mask=mask), wanted, [x, *head.parameters()])


def test_what_would_be_misread_is_refused(part):
    """Both would run in silence: 0 and 1 added to scores, a mask for each text laid over another dimension."""
    head, x = part.SelfAttention(3, 2), torch.zeros(2, 2, 4, 3)
    refuses("a mask of numbers", head, x, attn_mask=torch.ones(4, 4))
    refuses("a mask for each text", head, x, attn_mask=torch.ones(2, 4, 4).bool())


OPERATOR = "F.scaled_dot_product_attention(query, key, value, attn_mask)"
WRONG = {
    "the key is used as the value": ("self.W_value(x)", "self.W_key(x)"),
    "query and key exchanged": ("(query, key, value, ", "(key, query, value, "),
    "no scale": (OPERATOR, OPERATOR.replace("attn_mask", "attn_mask, scale=1.0")),
    "the mask of another text": ("attn_mask.unsqueeze(-3)", "attn_mask.unsqueeze(-3).flip(0)"),
}

CASES = {"self_attention": Case(lambda m, x: m(x), texts, lambda: SelfAttention(16, 8))}
MODULES = {"SelfAttention": lambda: SelfAttention(8, 4)}


MIB = {"self_attention": (16, lambda x: partial(SelfAttention(64, 64), x[None]))}
