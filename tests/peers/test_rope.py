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

YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 128}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 256}
SCALINGS = {
    "none": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3 | {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": YARN,
    "yarn, all said": YARN
    | {"beta_fast": 16.0, "beta_slow": 2.0, "truncate": False, "attention_factor": 1.5},
    "yarn, as DeepSeek": YARN | {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7},
}
PLACES = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [9, 4, 4, 0, 30, 31, 32], list(range(20, 27))])


def queries_and_keys(head_dim):
    return torch.randn(2, 3, 2, 7, head_dim, generator=torch.Generator().manual_seed(0))


def assert_turned_alike(rotate, inputs, turned):
    for x, expected in zip(inputs, turned, strict=True):
        torch.testing.assert_close(rotate(x, PLACES), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", SCALINGS)
def test_equal_to_llama(name):
    rope = SCALINGS[name] | {"rope_theta": 500_000.0}
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 2048}
    theirs = llama.LlamaRotaryEmbedding(LlamaConfig(**sizes, rope_parameters=rope))
    ours = RotaryPositions(32, scaling=rope)
    frequencies = torch.tensor(ours.frequencies)
    torch.testing.assert_close(frequencies, theirs.inv_freq, rtol=1e-6, atol=0)
    assert ours.attention_factor == pytest.approx(theirs.attention_scaling, rel=1e-12)
    both = queries_and_keys(32)
    assert_turned_alike(ours, both, llama.apply_rotary_pos_emb(*both, *theirs(both, PLACES)))


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_equal_to_gpt_neox_which_turns_a_share_of_the_channels(share):
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}
    config = GPTNeoXConfig(hidden_size=64, num_attention_heads=2, rope_parameters=rope)
    theirs, both = neox.GPTNeoXRotaryEmbedding(config), queries_and_keys(32)
    ours = RotaryPositions(32, rotary_dim=int(32 * share))
    assert_turned_alike(ours, both, neox.apply_rotary_pos_emb(*both, *theirs(both, PLACES)))


def test_equal_to_gpt_j_whose_pairs_are_neighbours():
    sin, cos = gptj.create_sinusoidal_positions(40, 8)[PLACES].chunk(2, dim=-1)
    both = queries_and_keys(8)
    turned = [gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos) for x in both]
    ours = RotaryPositions(8, pairing="interleaved")
    assert_turned_alike(ours, both, [x.transpose(1, 2) for x in turned])


def test_scores_equal_those_of_deepseek_which_sorts_neighbours_first():
    """DeepSeek takes neighbours and hands back halves, so scores are compared, and not vectors."""
    theirs = llama.LlamaRotaryEmbedding(LlamaConfig(hidden_size=32, num_attention_heads=2))
    query, key = both = queries_and_keys(16)
    query_there, key_there = deepseek.apply_rotary_pos_emb_interleave(*both, *theirs(both, PLACES))
    ours = RotaryPositions(16, pairing="interleaved")
    scores = ours(query, PLACES) @ ours(key, PLACES).mT
    torch.testing.assert_close(scores, query_there @ key_there.mT, rtol=0, atol=1e-5)
