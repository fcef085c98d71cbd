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

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
KINDS = {
    "multi-head": {"num_key_value_heads": 4},
    "grouped": {"num_key_value_heads": 2},
    "multi-query": {"num_key_value_heads": 1},
    "wide heads": {"num_key_value_heads": 2, "head_dim": 32},
    "tied": {"tie_word_embeddings": True},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    "llama3": {"rope_parameters": LLAMA3 | {"rope_theta": 500_000.0}},
}


def theirs(**changes):
    """A small Llama of transformers, drawn large enough that every token matters."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 65, "hidden_size": 64, "intermediate_size": 168}
    sizes |= {"num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 128}
    model = LlamaForCausalLM(LlamaConfig(**sizes | {"eos_token_id": None} | changes))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


@torch.no_grad()
def their_text(model, prompts, n):
    """What transformers writes, greedily, after prompts that it pads on the left."""
    longest = max(map(len, prompts))
    tokens = torch.stack([nn.functional.pad(p, (longest - len(p), 0)) for p in prompts])
    real = torch.stack([torch.arange(longest) >= longest - len(p) for p in prompts])
    written = model.generate(
        tokens,
        attention_mask=real.long(),
        max_new_tokens=n,
        do_sample=False,
        pad_token_id=0,
    )
    return [row[longest - len(p) :] for row, p in zip(written, prompts, strict=True)]


def some_prompts(*lengths):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(65, (length,), generator=generator) for length in lengths]


def same(found, wanted):
    return len(found) == len(wanted) and all(map(torch.equal, found, wanted))


@pytest.fixture(params=KINDS)
def checkpoint(request, tmp_path):
    """A folder as transformers saves it, and the model that it saved."""
    model = theirs(**KINDS[request.param])
    model.save_pretrained(tmp_path)
    return tmp_path, model


@torch.no_grad()
def test_a_checkpoint_of_transformers_writes_the_same_tokens_here(checkpoint):
    folder, model = checkpoint
    ours = Llama.from_config(json.loads((folder / "config.json").read_text())).eval()
    ours.load_hugging_face(load_file(folder / "model.safetensors"))
    tokens = torch.stack(some_prompts(100, 100))
    assert torch.allclose(ours(tokens), model(tokens).logits, rtol=0, atol=1e-5)
    prompts = some_prompts(3, 17, 1, 8)
    for cache in (None, KVCache):
        assert same(generate(ours, prompts, 40, 0, cache=cache), their_text(model, prompts, 40))


@torch.no_grad()
def test_the_stored_weights_write_the_same_tokens_in_transformers(tmp_path):
    llama = stored("llama")
    ours = Llama.from_config(llama["config"]).eval()
    ours.load_state_dict(llama["weights"])
    config = LlamaConfig(**ours.config, eos_token_id=None)
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict(ours.to_hugging_face())
    tokens = torch.stack(some_prompts(128, 128))
    gap, size = (ours(tokens) - model(tokens).logits).abs().max(), ours(tokens).abs().max()
    assert gap < 1e-5 * size  # about 15: a trained model is surer than a random one
    encode = llama["characters"].index
    prompts = [
        torch.tensor([encode(character) for character in prompt])
        for prompt in ("ROMEO:\n", "She rowed the boat to the ", "O")
    ]
    written = generate(ours, prompts, 60, 0, cache=KVCache)
    assert same(written, their_text(model, prompts, 60))
    model.save_pretrained(tmp_path)
    again = Llama.from_config(json.loads((tmp_path / "config.json").read_text()))
    again.load_hugging_face(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(again(tokens), ours(tokens))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_what_is_made_here_loads_there_without_a_missing_or_unknown_weight(kind):
    ours = Llama.from_config(theirs(**KINDS[kind]).config.to_dict())
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.2)
    model = LlamaForCausalLM(LlamaConfig(**ours.config)).eval()
    tied = ours.config["tie_word_embeddings"]
    missing, unknown = model.load_state_dict(ours.to_hugging_face(), strict=not tied)
    assert (missing, unknown) == (["lm_head.weight"] * tied, [])
    tokens = torch.stack(some_prompts(30, 30))
    assert torch.allclose(ours(tokens), model(tokens).logits, rtol=0, atol=1e-5)
