"""The book's Llama and transformers' are one: the same logits, and the same tokens."""

import json

import pytest
import torch
from torch import nn

from snippets.generate import generate
from snippets.kv_cache import KVCache
from snippets.llama import Llama

pytest.importorskip("transformers")
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from tests.files import stored

SIZES = {"vocab_size": 65, "hidden_size": 64, "intermediate_size": 168, "num_hidden_layers": 3}
SIZES |= {"num_attention_heads": 4, "max_position_embeddings": 128, "eos_token_id": None}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500_000.0}
KINDS = {
    "multi-head": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "grouped, with wide heads": {"num_key_value_heads": 2, "head_dim": 32},
    "multi-query, linear": {"num_key_value_heads": 1, "rope_parameters": LINEAR},
    "tied, llama3": {"tie_word_embeddings": True, "rope_parameters": LLAMA3},
}


@torch.no_grad()
def their_text(model, prompts, n):
    """What transformers writes, greedily, after prompts that it pads on the left."""
    longest = max(map(len, prompts))
    tokens = torch.stack([nn.functional.pad(p, (longest - len(p), 0)) for p in prompts])
    real = torch.stack([torch.arange(longest) >= longest - len(p) for p in prompts])
    written = model.generate(
        tokens, attention_mask=real.long(), max_new_tokens=n, do_sample=False, pad_token_id=0
    )
    return [row[longest - len(p) :] for row, p in zip(written, prompts, strict=True)]


@torch.no_grad()
def assert_same_logits(ours, theirs):
    tokens = torch.randint(65, (2, 100), generator=torch.Generator().manual_seed(1))
    logits = ours(tokens)
    atol = 1e-5 * max(1.0, logits.abs().max().item())
    torch.testing.assert_close(theirs(tokens).logits, logits, rtol=0, atol=atol)


def assert_same_texts(ours, theirs, prompts):
    expected = their_text(theirs, prompts, 40)
    for cache in (None, KVCache):
        assert all(map(torch.equal, generate(ours, prompts, 40, 0, cache=cache), expected))


def read_from(folder):
    """Our model, from the two files that transformers has saved in a folder."""
    ours = Llama.from_config(json.loads((folder / "config.json").read_text())).eval()
    ours.load_hugging_face(load_file(folder / "model.safetensors"))
    return ours


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_transformers_is_the_same_here_and_there_again(kind, tmp_path):
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(LlamaConfig(**SIZES | KINDS[kind])).eval()
    for parameter in theirs.parameters():  # large enough that every token matters
        nn.init.normal_(parameter, std=0.2)
    theirs.save_pretrained(tmp_path)
    ours = read_from(tmp_path)
    assert_same_logits(ours, theirs)
    prompts = [torch.randint(65, (length,)) for length in (3, 17, 1, 8)]
    assert_same_texts(ours, theirs, prompts)
    again = LlamaForCausalLM(LlamaConfig(**ours.config, eos_token_id=None)).eval()
    tied = ours.config["tie_word_embeddings"]
    missing, unknown = again.load_state_dict(ours.to_hugging_face(), strict=False)
    assert (missing, unknown) == (["lm_head.weight"] * tied, [])
    assert_same_logits(ours, again)


def test_the_stored_weights_write_the_same_tokens_in_transformers(tmp_path):
    llama = stored("llama")
    ours = Llama.from_config(llama["config"]).eval()
    ours.load_state_dict(llama["weights"])
    theirs = LlamaForCausalLM(LlamaConfig(**ours.config, eos_token_id=None)).eval()
    theirs.load_state_dict(ours.to_hugging_face())
    encode = llama["characters"].index
    prompts = ("ROMEO:\n", "She rowed the boat to the ", "O")
    assert_same_logits(ours, theirs)
    prompts = [torch.tensor([encode(one) for one in prompt]) for prompt in prompts]
    assert_same_texts(ours, theirs, prompts)
    theirs.save_pretrained(tmp_path)
    tokens = torch.arange(65)[None]
    assert torch.equal(read_from(tmp_path)(tokens), ours(tokens))
