"""Speculative sampling writes the tokens of Hugging Face's assisted generation, where it is greedy."""

import pytest
import torch

from snippets.speculative_sampling import speculative_sampling

pytest.importorskip("transformers")
from transformers import LlamaConfig, LlamaForCausalLM


def llama(layers):
    torch.manual_seed(0)
    sizes = {"vocab_size": 23, "hidden_size": 32, "intermediate_size": 48}
    sizes |= {"num_attention_heads": 4, "num_hidden_layers": layers, "pad_token_id": 0}
    return LlamaForCausalLM(LlamaConfig(**sizes, eos_token_id=None, bos_token_id=None)).double()


@torch.no_grad()
def test_greedy_tokens_are_those_of_assisted_generation():
    target, draft = llama(3).eval(), llama(1).eval()
    draft.lm_head.weight.copy_(target.lm_head.weight)
    draft.model.embed_tokens.weight.copy_(target.model.embed_tokens.weight)
    start = torch.tensor([[3, 1, 4, 1, 5]])
    how = {"attention_mask": torch.ones_like(start), "max_new_tokens": 40, "do_sample": False}
    theirs = target.generate(start, assistant_model=draft, **how)
    ours = speculative_sampling(
        lambda tokens: target(tokens).logits,
        lambda tokens: draft(tokens).logits,
        start,
        40,
        temperature=0,
    )
    assert torch.equal(ours.tokens, theirs)
    assert 0 < ours.accepted < ours.drafted
