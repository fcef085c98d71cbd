"""Masks are those of transformers, of x-transformers' ALiBi and of BLOOM's, pair for pair."""

import pytest
import torch

from snippets import attention_masks as masks

pytest.importorskip("transformers")
pytest.importorskip("x_transformers")

from transformers import masking_utils as theirs
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gemma3 import modeling_gemma3 as gemma3
from x_transformers.x_transformers import AlibiPositionalBias

T = 9
CAUSAL = theirs.causal_mask_function
REAL = torch.tensor([[False] * 2 + [True] * 7, [True] * 9])
DOCUMENTS = torch.tensor([[4, 4, 4, 1, 1, 7, 7, 7, 7], [0, 1, 1, 1, 1, 1, 1, 2, 2]])


def both_ways(mask):
    return mask | mask.mT


WINDOWS = {  # a window there, of w → that of the book
    "causal": (theirs.sliding_window_causal_mask_function, lambda w: masks.keep_window(w, T)),
    "to both sides, with 2w + 1 tokens": (
        theirs.sliding_window_bidirectional_mask_function,
        lambda w: both_ways(masks.keep_window(w + 1, T)),
    ),
    "of Gemma 3, to both sides, with 2w - 1": (
        gemma3._bidirectional_window_overlay,
        lambda w: both_ways(masks.keep_window(w, T)),
    ),
}
RULES = {
    f"window {name}, {w}": (rule(w), ours(w))
    for name, (rule, ours) in WINDOWS.items()
    for w in (1, 2, 5)
}
RULES |= {
    "the past": (CAUSAL, masks.keep_past(T)),
    "padding": (
        theirs.and_masks(CAUSAL, theirs.padding_mask_function(REAL)),
        (masks.keep_past(T) & masks.keep_real(REAL))[:, 0],
    ),
    "documents": (
        theirs.and_masks(CAUSAL, theirs.packed_sequence_mask_function(DOCUMENTS)),
        (masks.keep_past(T) & masks.keep_documents(DOCUMENTS))[:, 0],
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_mask_keeps_the_pairs_that_their_rule_keeps(name):
    rule, ours = RULES[name]
    index = torch.arange
    kept = [[[bool(rule(b, 0, i, j)) for j in index(T)] for i in index(T)] for b in range(2)]
    assert torch.equal(torch.tensor(kept), ours.expand(2, T, T))


def test_documents_are_found_again_in_the_places_that_restart():
    found = theirs.find_packed_sequence_indices(masks.restart_positions(DOCUMENTS))
    assert torch.equal(masks.keep_documents(found), masks.keep_documents(DOCUMENTS))


@pytest.mark.parametrize("heads", [1, 3, 6, 8, 12])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (2, 6)])
def test_alibi_is_that_of_x_transformers(heads, queries, keys):
    expected = AlibiPositionalBias(heads)(queries, keys)
    bias = masks.alibi_bias(heads, queries, keys)
    torch.testing.assert_close(bias, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("heads", [4, 6])
def test_alibi_gives_the_weights_of_bloom(heads):
    bloom = build_alibi_tensor(torch.ones(1, 7, dtype=torch.long), heads, torch.float32)
    scores = torch.randn(heads, 7, 7, generator=torch.Generator().manual_seed(0))
    hidden = ~masks.keep_past(7)
    one, other = (
        (scores + bias).masked_fill(hidden, -torch.inf).softmax(dim=-1)
        for bias in (bloom, masks.alibi_bias(heads, 7))
    )
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
