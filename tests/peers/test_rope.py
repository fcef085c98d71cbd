"""Rotary positions turn as in transformers: Llama, GPT-NeoX, GPT-J and DeepSeek, stretched too."""

import pytest
import torch

from snippets.rope import RotaryPositions

pytest.importorskip("transformers")

from transformers import GPTNeoXConfig, LlamaConfig
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama

SCALINGS = {
    "none": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256},
    "yarn, all said": {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "truncate": False,
        "attention_factor": 1.5,
    },
    "yarn, as DeepSeek": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 512,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
    },
}
PLACES = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [9, 4, 4, 0, 30, 31, 32], list(range(20, 27))])


def queries_and_keys(*shape):
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))


def assert_turned_alike(rotate, inputs, wanted, places=PLACES):
    for result, want in zip(inputs, wanted, strict=True):
        assert torch.allclose(rotate(result, places), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("base", [10000.0, 500000.0])
@pytest.mark.parametrize("name", SCALINGS)
def test_equal_to_llama(name, base):
    theirs = llama.LlamaRotaryEmbedding(
        LlamaConfig(
            hidden_size=64,
            num_attention_heads=2,
            max_position_embeddings=2048,
            rope_parameters=SCALINGS[name] | {"rope_theta": base},
        )
    )
    ours = RotaryPositions(32, base=base, scaling=SCALINGS[name])
    frequencies = torch.tensor(ours.frequencies, dtype=torch.float64)
    assert torch.allclose(frequencies, theirs.inv_freq.double(), rtol=1e-6, atol=0)
    assert ours.attention_factor == pytest.approx(theirs.attention_scaling, rel=1e-12)
    query, key = queries_and_keys(3, 2, 7, 32)
    cos, sin = theirs(query, PLACES)
    assert_turned_alike(ours, (query, key), llama.apply_rotary_pos_emb(query, key, cos, sin))


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_equal_to_gpt_neox_which_turns_a_share_of_the_channels(share):
    theirs = neox.GPTNeoXRotaryEmbedding(
        GPTNeoXConfig(
            hidden_size=64,
            num_attention_heads=2,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": share,
            },
        )
    )
    ours = RotaryPositions(32, rotary_dim=int(32 * share))
    query, key = queries_and_keys(3, 2, 7, 32)
    cos, sin = theirs(query, PLACES)
    assert_turned_alike(ours, (query, key), neox.apply_rotary_pos_emb(query, key, cos, sin))


def test_equal_to_gpt_j_whose_pairs_are_neighbours():
    table = gptj.create_sinusoidal_positions(40, 8)[PLACES]  # (batch, T, sines and cosines)
    sin, cos = table.chunk(2, dim=-1)
    query, key = queries_and_keys(3, 2, 7, 8)
    wanted = [
        gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2) for x in (query, key)
    ]
    assert_turned_alike(RotaryPositions(8, pairing="interleaved"), (query, key), wanted)


def test_scores_equal_those_of_deepseek_which_sorts_neighbours_first():
    """DeepSeek takes neighbours and hands back halves, so scores are compared, and not vectors."""
    rotary = llama.LlamaRotaryEmbedding(LlamaConfig(hidden_size=32, num_attention_heads=2))
    query, key = queries_and_keys(3, 2, 7, 16)
    turned = deepseek.apply_rotary_pos_emb_interleave(query, key, *rotary(query, PLACES))
    ours = RotaryPositions(16, pairing="interleaved")
    scores = ours(query, PLACES) @ ours(key, PLACES).mT
    assert torch.allclose(scores, turned[0] @ turned[1].mT, rtol=0, atol=1e-5)


def test_far_out_transformers_angles_are_those_of_float32():
    theirs = llama.LlamaRotaryEmbedding(LlamaConfig(hidden_size=64, num_attention_heads=1))
    ours = RotaryPositions(64)
    query, key = queries_and_keys(1, 1, 1, 64)
    place = torch.tensor([[100_000]])
    wanted, _ = llama.apply_rotary_pos_emb(query, key, *theirs(query, place))
    assert 1e-4 < (ours(query, place) - wanted).abs().max() < 0.05


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_the_wrong_pairing_is_not_equal(pairing):
    """What these comparisons are for: nothing else tells."""
    rotary = llama.LlamaRotaryEmbedding(LlamaConfig(hidden_size=64, num_attention_heads=2))
    query, key = queries_and_keys(3, 2, 7, 32)
    wanted, _ = llama.apply_rotary_pos_emb(query, key, *rotary(query, PLACES))
    result = RotaryPositions(32, pairing=pairing)(query, PLACES)
    assert torch.allclose(result, wanted, rtol=0, atol=1e-5) == (pairing == "half")
