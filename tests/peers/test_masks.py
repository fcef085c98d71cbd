"""Masks are those of transformers, of x-transformers' ALiBi and of BLOOM's, pair for pair."""

import pytest
import torch

from snippets import attention_masks as masks

pytest.importorskip("transformers")
pytest.importorskip("x_transformers")

from transformers import masking_utils
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gemma3 import modeling_gemma3 as gemma3
from x_transformers.x_transformers import AlibiPositionalBias


def table(rule, T, batch=1):
    """Return what a rule of transformers says for every pair, (batch, T, T)."""
    index = torch.arange
    every = [[rule(b, 0, i, j) for j in index(T)] for b in range(batch) for i in index(T)]
    return torch.tensor([[bool(said) for said in row] for row in every]).view(batch, T, T)


def test_the_past():
    assert torch.equal(table(masking_utils.causal_mask_function, 7)[0], masks.keep_past(7))


@pytest.mark.parametrize("window", [1, 2, 5, 9])
def test_a_causal_window_counts_the_token_itself(window):
    theirs = table(masking_utils.sliding_window_causal_mask_function(window), 8)[0]
    assert torch.equal(theirs, masks.keep_window(window, 8))
    assert theirs[-1].sum() == min(window, 8)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_bidirectional_window_does_not_count_it_and_gemma_3s_does(window):
    T, middle = 9, 4
    theirs = table(masking_utils.sliding_window_bidirectional_mask_function(window), T)[0]
    assert theirs[middle].sum() == 2 * window + 1
    ours = masks.keep_window(window + 1, T)
    assert torch.equal(theirs, ours | ours.mT)
    theirs = table(gemma3._bidirectional_window_overlay(window), T)[0]
    assert theirs[middle].sum() == 2 * window - 1
    ours = masks.keep_window(window, T)
    assert torch.equal(theirs, ours | ours.mT)


def test_padding_and_documents():
    real = torch.tensor([[False, True, True, True], [True, True, True, True]])
    theirs = masking_utils.and_masks(
        masking_utils.causal_mask_function, masking_utils.padding_mask_function(real)
    )
    ours = (masks.keep_past(4) & masks.keep_real(real))[:, 0]
    assert torch.equal(table(theirs, 4, batch=2), ours)
    document = torch.tensor([[0, 0, 1, 1, 1, 2]])
    theirs = masking_utils.and_masks(
        masking_utils.causal_mask_function, masking_utils.packed_sequence_mask_function(document)
    )
    ours = (masks.keep_past(6) & masks.keep_documents(document))[:, 0]
    assert torch.equal(table(theirs, 6), ours)


def test_documents_are_found_again_in_the_places_that_restart():
    document = torch.tensor([[4, 4, 4, 1, 1, 7, 7, 7]])
    places = masks.restart_positions(document)
    found = masking_utils.find_packed_sequence_indices(places)
    assert torch.equal(masks.keep_documents(found), masks.keep_documents(document))


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (2, 6)])
def test_alibi_is_that_of_x_transformers(heads, queries, keys):
    theirs = AlibiPositionalBias(heads)(queries, keys)
    assert torch.allclose(masks.alibi_bias(heads, queries, keys), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("heads", [4, 6, 8])
def test_alibi_gives_the_weights_of_bloom(heads):
    theirs = build_alibi_tensor(torch.ones(1, 7, dtype=torch.long), heads, torch.float32)
    scores = torch.randn(heads, 7, 7, generator=torch.Generator().manual_seed(0))
    hidden = ~masks.keep_past(7)
    weights = [
        (scores + bias).masked_fill(hidden, -torch.inf).softmax(dim=-1)
        for bias in (theirs, masks.alibi_bias(heads, 7))
    ]
    assert torch.allclose(*weights, rtol=0, atol=1e-6)
