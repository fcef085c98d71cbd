"""Speculative sampling writes the tokens of Hugging Face's assisted generation, where it is greedy."""

import pytest
import torch

from snippets.speculative_sampling import speculative_sampling

pytest.importorskip("transformers")
from transformers import LlamaConfig, LlamaForCausalLM


def llama(layers):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=23,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=128,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).double().eval()


def test_greedy_tokens_are_those_of_assisted_generation():
    target, draft = llama(3), llama(1)
    with torch.no_grad():
        draft.lm_head.weight.copy_(target.lm_head.weight)
        draft.model.embed_tokens.weight.copy_(target.model.embed_tokens.weight)
    start = torch.tensor([[3, 1, 4, 1, 5]])
    theirs = target.generate(
        start,
        attention_mask=torch.ones_like(start),
        assistant_model=draft,
        max_new_tokens=40,
        do_sample=False,
    )
    ours = speculative_sampling(
        lambda tokens: target(tokens).logits,
        lambda tokens: draft(tokens).logits,
        start,
        40,
        temperature=0,
    )
    assert ours.tokens.tolist() == theirs.tolist()
    assert 0 < ours.accepted < ours.drafted
