"""Latent attention equals DeepSeek's own in Hugging Face's transformers, given its weights."""

import pytest
import torch

from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from snippets.rope import RotaryPositions

pytest.importorskip("transformers")
from transformers import DynamicCache
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

SIZES = {
    "hidden_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "mscale": 0.7,
    "mscale_all_dim": 0.5,
}
NAMES = {
    "q_proj": "W_query",
    "q_a_proj": "W_query_latent",
    "q_a_layernorm": "query_norm",
    "q_b_proj": "W_query",
    "kv_a_layernorm": "latent_norm",
    "o_proj": "out_proj",
}


def deepseek(module, version, **options):
    """Their attention, with random weights, and their rotary embedding."""
    torch.manual_seed(0)
    config = getattr(module, f"Deepseek{version}Config")(**SIZES | options)
    attention = getattr(module, f"Deepseek{version}Attention")(config, 0).eval()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return config, attention, getattr(module, f"Deepseek{version}RotaryEmbedding")(config)


@torch.no_grad()
def ours_of(config, theirs):
    """Our layer with their weights."""
    scaling = {k: v for k, v in config.rope_parameters.items() if k != "rope_theta"}
    ours = LatentAttention(
        config.hidden_size,
        config.num_attention_heads,
        latent_dim=config.kv_lora_rank,
        head_dim=config.qk_nope_head_dim,
        rope_dim=config.qk_rope_head_dim,
        value_dim=config.v_head_dim,
        query_latent_dim=config.q_lora_rank,
        bias=config.attention_bias,
        rotate=RotaryPositions(
            config.qk_rope_head_dim,
            base=config.rope_parameters["rope_theta"],
            pairing="interleaved",
            scaling=scaling,
        ),
        scale=theirs.scaling,
    ).eval()
    weights = {}
    for name, tensor in theirs.state_dict().items():
        layer, _, kind = name.rpartition(".")
        if layer == "kv_a_proj_with_mqa":  # the latent, then the rotary key
            weights[f"W_latent.{kind}"] = tensor[: config.kv_lora_rank]
            weights[f"W_rope_key.{kind}"] = tensor[config.kv_lora_rank :]
        elif layer == "kv_b_proj":  # for each head its keys, then its values
            heads = tensor.unflatten(0, (config.num_attention_heads, -1))
            weights["W_key.weight"] = heads[:, : config.qk_nope_head_dim].flatten(0, 1)
            weights["W_value.weight"] = heads[:, config.qk_nope_head_dim :].flatten(0, 1)
        else:
            weights[f"{NAMES[layer]}.{kind}"] = tensor
    ours.load_state_dict(weights)
    return ours


@pytest.mark.parametrize(("module", "version"), [(v2, "V2"), (v3, "V3")])
@pytest.mark.parametrize(
    "options",
    [
        {"q_lora_rank": None},
        {"q_lora_rank": 14, "attention_bias": True},
        {"q_lora_rank": 14, "rope_parameters": YARN},
    ],
    ids=["plain", "latent queries and biases", "yarn"],
)
@torch.no_grad()
def test_equal_to_deepseeks_attention_in_transformers(module, version, options):
    config, theirs, embedding = deepseek(module, version, **options)
    ours = ours_of(config, theirs)
    x = torch.randn(2, 24, 48)
    places = torch.arange(24)[None]
    hide = torch.full((24, 24), float("-inf")).triu(1)
    where = {"position_embeddings": embedding(x, places)}
    expected, _ = theirs(x, attention_mask=hide, **where)
    scale = expected.abs().max().item()
    for absorb in (False, True):
        assert (ours(x, absorb=absorb) - expected).abs().max().item() < 1e-5 * scale
    cache, their_cache = KVCache(24), DynamicCache()
    for part, start in ((x[:, :20], 0), (x[:, 20:21], 20), (x[:, 21:], 21)):
        end = start + part.size(1)
        where = {"position_embeddings": embedding(x, places[:, start:end])}
        wanted, _ = theirs(
            part, attention_mask=hide[start:end, :end], past_key_values=their_cache, **where
        )
        result = ours(part, cache=cache)
        assert (result - wanted).abs().max().item() < 1e-5 * scale
    kept = their_cache.layers[0]
    held = cache.nbytes // 4
    assert held == kept.keys.numel() + kept.values.numel()
