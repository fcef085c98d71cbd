"""The backward pass that was derived by hand is autograd's, and keeps no weights between the passes."""

import torch
import torch.nn.functional as F
from torch.autograd import gradgradcheck

from snippets.attention_backward import attention
from snippets.attention_masks import keep_window
from tests.snippets.facts import refuses, works
from tests.snippets.parts import Case, T, alike, draw, heads

CAUSAL = torch.ones(3, 4, dtype=torch.bool).tril()
EMPTY_ROW = torch.tensor([[True] * 4, [False] * 4, [True, False, True, False]])


def leaves(leading=(2,), T_q=3, T_k=4):
    """Return a query, key and value that ask for gradients."""
    shapes = (T_q, 2), (T_k, 2), (T_k, 5)
    return [draw(*leading, *shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]


def test_outputs_and_gradients_are_autograds(part):
    """For each form of mask, of which those that are added get a gradient, and for scores of ten thousand."""
    for mask in (None, CAUSAL, EMPTY_ROW, CAUSAL[-1:], draw(3, 4), draw(2, 1, 4), draw(2, 3, 1)):
        for scale in (None, 0.3, 0.0, -0.5, 1e4):
            inputs = leaves()
            bias = None if mask is None or mask.dtype == torch.bool else mask.requires_grad_()
            ours = part.attention(*inputs, mask, scale=scale)
            theirs = F.scaled_dot_product_attention(*inputs, mask, scale=scale)
            asked = inputs if bias is None else [*inputs, bias]
            assert alike(ours, theirs, asked), (mask, scale)


def test_leading_dimensions_broadcast_and_their_gradients_add_up(part):
    query, (_, key, value) = leaves((2, 3))[0], leaves((1, 1))
    for inputs in ((query, key, value), (query[:1, :1], *leaves((2, 3))[1:]), leaves(())):
        with works("broadcasting"):
            ours = part.attention(*inputs)
        assert alike(ours, F.scaled_dot_product_attention(*inputs), inputs)


def test_what_is_hidden_gets_a_gradient_of_exactly_zero(part):
    """A row that may see no key gets a context of zero, too; and so does every row, if there are no keys."""
    inputs, direction = leaves(), draw(2, 3, 5)
    mask = EMPTY_ROW.clone()
    mask[:, 3] = False
    context = part.attention(*inputs, mask)
    d_query, d_key, d_value = torch.autograd.grad(context, inputs, direction)
    for hidden, seen in ((context[:, 1], context[:, 0]), (d_query[:, 1], d_query[:, 0])):
        assert not hidden.any()
        assert seen.all()
    assert not d_key[:, 3].any()
    assert not d_value[:, 3].any()
    assert not part.attention(*leaves(T_k=0)).any()


def test_nothing_of_the_size_of_the_scores_is_kept_between_the_passes(part):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor
    ):
        part.attention(*leaves((), T_q=50, T_k=60))
    assert max(kept) == 60 * 5 < 50 * 60


def test_second_derivatives_pass_gradgradcheck(part):
    for mask in (CAUSAL, EMPTY_ROW.double().log()):
        inputs = leaves(())
        assert gradgradcheck(
            lambda *x, m=mask: part.attention(*x, m), inputs, raise_exception=False
        )


def test_what_would_be_misread_is_refused(part):
    """0 and 1 would be added to the scores; one text's mask would be laid over heads, and one of keys over rows."""
    query, key, value = leaves((2, 2))
    for_each_text = CAUSAL.expand(2, 3, 4)
    refuses(
        "a mask for each text, or for each head", part.attention, query, key, value, for_each_text
    )
    refuses("a mask of keys alone", part.attention, query, key, value, CAUSAL[0])
    refuses("ones and zeros", part.attention, query, key, value, CAUSAL.long())


AGAIN = "weights = attention_weights(query, key, attn_mask, ctx.scale)"
WRONG = {
    "row sum forgotten": ("(d_weights - row_sum)", "d_weights"),
    "scale forgotten": ("d_scores = d_scaled * ctx.scale", "d_scores = d_scaled"),
    "mask forgotten in the second pass": (AGAIN, AGAIN.replace("attn_mask", "None")),
    "the weights are kept": (
        "ctx.save_for_backward(query, key, value, attn_mask, context)",
        "ctx.save_for_backward(query, key, value, attn_mask, query @ key.mT)",
    ),
    "0 by 0 in a row without keys": ("scaled.masked_fill(no_key, 0.0).softmax", "scaled.softmax"),
}


def both_passes(x):
    """Attention and its gradients; the copy that asks for them is made before the count."""
    x = x.clone().requires_grad_()

    def call():
        with torch.enable_grad():
            attention(x, x, x).sum().backward()

    return call


CASES = {
    "attention": Case(lambda _, *x: attention(*x, keep_window(9, T, device=x[0].device)), heads)
}
MIB = {"attention, both passes": (4112, both_passes)}  # the weights and three of their derivatives
