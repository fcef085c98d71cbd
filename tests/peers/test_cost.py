"""cost counts what transformers has: each weight of a small model of every family, and the operations of a step."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from snippets.attention_of import attention_of
from snippets.cost import attention_operations, model_of, projection_weights
from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from tests.peers.test_attention_of import CASES, the_model
from tests.snippets.test_attention_of import small

pytest.importorskip("transformers")
from transformers import DynamicCache


def ours(case):
    """The model of a case, and what is counted of it, by the keys that its family has."""
    theirs, file = the_model(case)
    known = type(theirs.config)().to_dict().keys()
    sizes = {key: value for key, value in theirs.config.to_dict().items() if key in known}
    return theirs, model_of(sizes, attention_of(file))


@pytest.mark.parametrize("case", CASES)
def test_it_counts_each_weight_but_norms_and_biases(case):
    theirs, model = ours(case)
    weights = {
        name: parameter.numel()
        for name, parameter in theirs.named_parameters()
        if parameter.ndim > 1 and "bias" not in name and "shared_expert_gate" not in name
    }
    assert model.total == sum(weights.values()), weights


PLAIN = [case for case in CASES if not case.startswith(("deepseek_v3", "qwen3_next"))]


@pytest.mark.parametrize("case", PLAIN)
@torch.no_grad()
def test_a_step_of_a_text_does_the_operations_that_are_counted(case):
    theirs, model = ours(case)
    tokens = torch.randint(11, (1, 9), generator=torch.Generator().manual_seed(1))
    cache = DynamicCache(config=theirs.config)
    theirs(tokens[:, :8], past_key_values=cache)
    with FlopCounterMode(display=False) as counted:
        theirs(tokens[:, 8:], past_key_values=cache)
    attention = sum(attention_operations(layer, 1, 9) for layer in model.layers)
    assert counted.get_total_flops() == 2 * model.active + attention


@torch.no_grad()
def test_a_step_of_latent_attention_reads_the_latents_themselves():
    layer = replace(attention_of(small("deepseek_v3"))[0], rope_dim=0)
    sizes = {"latent_dim": 12, "query_latent_dim": 14, "head_dim": 6, "value_dim": 5}
    attention, cache = LatentAttention(32, 4, rope_dim=0, **sizes), KVCache(9)
    attention(torch.randn(1, 8, 32), cache=cache)
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        attention(torch.randn(1, 1, 32), cache=cache, absorb=True)
    operations = 2 * projection_weights(layer) + attention_operations(layer, 1, 9)
    assert counted.get_total_flops() == operations
