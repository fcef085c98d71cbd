"""One head that reads a source is its definition, with the lengths and widths of two sequences."""

from functools import partial

import torch

from snippets.cross_attention import CrossAttention
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, alike, attend, draw, texts


def test_outputs_and_gradients_are_those_of_the_formula(part):
    """With a mask for each text, too; a token that may see no token of the source gets zeros."""
    keep = draw(2, 4, 6) > 0
    keep[:, 2] = False
    for mask, bias in ((None, True), (keep, False)):
        head = part.CrossAttention(5, 4, 3, 2, bias=bias).double()
        x, source = draw(2, 4, 5).requires_grad_(), draw(2, 6, 4).requires_grad_()
        wanted, _ = attend(head.W_query(x), head.W_key(source), head.W_value(source), mask)
        found = head(x, source, attn_mask=mask)
        assert alike(found, wanted, [x, source, *head.parameters()])


def test_what_would_be_misread_is_refused(part):
    """Both would run in silence: 0 and 1 added to scores, a mask for each text laid over another dimension."""
    head, x, source = part.CrossAttention(3, 5, 2), torch.zeros(2, 2, 4, 3), torch.zeros(2, 2, 6, 5)
    refuses("a mask of numbers", head, x, source, attn_mask=torch.ones(4, 6))
    refuses("a mask for each text", head, x, source, attn_mask=torch.ones(2, 4, 6).bool())


OPERATOR = "F.scaled_dot_product_attention(query, key, value, attn_mask)"
WRONG = {
    "keys of another sample": ("self.W_key(source)", "self.W_key(source.roll(1, 0))"),
    "scaled by the width of the values": (
        OPERATOR,
        OPERATOR.replace("attn_mask", "attn_mask, scale=value.size(-1) ** -0.5"),
    ),
    "it hides the future of the source": (
        OPERATOR,
        OPERATOR.replace("attn_mask", "attn_mask, is_causal=attn_mask is None"),
    ),
    "the mask of another text": ("attn_mask.unsqueeze(-3)", "attn_mask.unsqueeze(-3).flip(0)"),
}

CASES = {
    "cross_attention": Case(
        lambda m, x: m(x, x.flip(1)), texts, lambda: CrossAttention(16, 16, 8, 4)
    )
}
MODULES = {"CrossAttention": lambda: CrossAttention(8, 8, 4)}


MIB = {"cross_attention": (16, lambda x: partial(CrossAttention(64, 64, 64), x[None], x[None]))}
