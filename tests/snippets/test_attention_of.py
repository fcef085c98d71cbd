"""attention_of reads whole public files as their authors mean them, and refuses by name what the parts cannot do."""

import math
from dataclasses import replace

import pytest
import torch

from snippets.attention_of import FAMILIES, NEUTRAL, Family, attention_of, layer_of, weights_of
from snippets.gated_delta_net import GatedDeltaNet, MemoryCache
from snippets.gated_memory import gated_memory
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from snippets.rope import RotaryPositions
from snippets.windowed_attention import Windowed
from tests.snippets import configs
from tests.snippets.parts import Case, texts

PARTS = {"rotary": RotaryPositions, "grouped": GroupedQueryAttention, "latent": LatentAttention}
PARTS |= {"delta": GatedDeltaNet, "memory": gated_memory, "window": Windowed}
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
LATENT = {"kv_lora_rank": 12, "q_lora_rank": 14, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4}
LATENT |= {"v_head_dim": 5, "num_key_value_heads": 4}


def small(model, **said):
    """A configuration of this family."""
    more = LATENT if model == "deepseek_v3" else {}
    return {"model_type": model, "architectures": ["Any"]} | SIZES | more | said


# What a file says


@pytest.mark.parametrize("name", configs.MADE)
def test_each_layer_of_a_whole_public_file_is_made(name):
    with torch.device("meta"):
        for layer in attention_of(configs.MADE[name]):
            layer_of(layer, **PARTS)


@pytest.mark.parametrize("name", configs.REFUSED)
def test_a_public_file_that_the_parts_cannot_do_is_refused_with_the_reason(name):
    config, reason = configs.REFUSED[name]
    with torch.device("meta"), pytest.raises(ValueError, match=reason):
        layer_of(attention_of(config)[0], **PARTS)


# What is dropped from a file → a field of the first layer, and what the library takes instead.
SILENT = {
    "gpt-oss 20B": ("rope_scaling", "rotation", {"rope_type": "yarn", "factor": 32.0}),
    "Mixtral 8x7B": ("rope_theta", "rotation", {"rope_theta": 1e6}),
    "DeepSeek V3": ("q_lora_rank", "query_latent_dim", 1536),
    "Gemma 2 2B": ("num_key_value_heads", "kv_heads", 4),
    "Qwen3 8B": ("head_dim", "head_dim", 128),
    "Mistral 7B v0.1": ("sliding_window", "window", 4096),
    "Gemma 3 1B": ("rope_local_base_freq", "rotation", {"rope_theta": 10_000.0}),
    "Qwen3-Next 80B": ("linear_num_value_heads", "heads", 32),
    "GLM-4 9B": ("partial_rotary_factor", "rotation", {"partial_rotary_factor": 0.5}),
}


@pytest.mark.parametrize("name", SILENT)
def test_where_a_file_is_silent_its_familys_default_holds(name):
    key, field, wanted = SILENT[name]
    config = configs.MADE.get(name) or configs.REFUSED[name][0]
    found = getattr(attention_of({k: config[k] for k in config if k != key})[0], field)
    assert (found | wanted if isinstance(wanted, dict) else wanted) == found


def test_every_other_layer_of_gemma_2_and_gpt_oss_has_a_window():
    for model, window in (("gemma2", 4096), ("gpt_oss", 128)):
        assert [layer.window for layer in attention_of(small(model))] == [window, None] * 2


def test_a_stretched_rotation_scales_all_scores_of_a_latent_layer():
    yarn = {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.5}
    (layer, *_) = attention_of(small("deepseek_v3", rope_scaling=yarn))
    assert layer.scale == pytest.approx(10**-0.5 * (0.1 * 0.5 * math.log(40.0) + 1) ** 2)


def test_the_norm_of_olmo_2_is_over_all_heads_and_that_of_qwen_3_in_each():
    for model, width in (("olmo2", 32), ("qwen3", 8)):
        made = layer_of(attention_of(small(model))[0], **PARTS)
        norms = [part for part in made.modules() if isinstance(part, torch.nn.RMSNorm)]
        assert norms[0].normalized_shape == (width,)


def test_null_says_that_there_is_none_where_the_library_reads_it_so():
    assert attention_of(small("mistral", sliding_window=None))[0].window is None
    assert attention_of(small("deepseek_v3", q_lora_rank=None))[0].query_latent_dim is None
    assert attention_of(small("gemma2", attn_logit_softcapping=None))[0].softcap is None
    assert attention_of(small("llama", head_dim=None, num_key_value_heads=None))[0].kv_heads == 4
    (first, *_) = attention_of(small("gpt_oss", rope_scaling=None, rope_theta=None))
    assert (first.rotation["rope_type"], first.rotation["rope_theta"]) == ("yarn", 150_000.0)


@pytest.mark.parametrize("model", FAMILIES)
def test_a_key_that_changes_nothing_passes(model):
    nothing = {"use_mystery_norm": False, "surprise": None, "pruned_heads": {}, "mystery_gain": 0.0}
    nothing |= {"_attn_implementation": "eager", "vocab_size": 5, "image_token_index": 4} | NEUTRAL
    if "sliding_window" in FAMILIES[model].defaults:
        nothing |= {"sliding_window": 5, "sliding_window_size": 5}
        said = small(model, sliding_window=5)
    else:
        said = small(model)
    nothing = {key: value for key, value in nothing.items() if key not in FAMILIES[model].defaults}
    assert attention_of(said | nothing) == attention_of(said)


@pytest.mark.parametrize("model", FAMILIES)
def test_a_key_that_is_not_understood_is_refused_by_name(model):
    for key, value in {
        "use_mystery_norm": True,
        "attention_chunk_size": 8,
        "layer_scale": 0.5,
    }.items():
        with pytest.raises(ValueError, match=f"{key}={value} may change the attention of {model}"):
            attention_of(small(model, **{key: value}))
    # These change something as soon as they say anything but what they always say.
    for key in NEUTRAL.keys() - FAMILIES[model].defaults.keys():
        with pytest.raises(ValueError, match=f"{key}=7 may change"):
            attention_of(small(model, **{key: 7}))
    for key in {"is_causal", "use_rope"}:
        with pytest.raises(ValueError, match=f"{key}=False may change"):
            attention_of(small(model, **{key: False}))
    with pytest.raises(ValueError, match="sliding_window_size=6 may change"):
        attention_of(small("gemma2", sliding_window=5, sliding_window_size=6))


@pytest.mark.parametrize("model", FAMILIES)
def test_a_key_that_another_family_reads_is_not_passed_over(model):
    keys = {"sliding_window_pattern": 3, "full_attention_interval": 3, "kv_lora_rank": 5}
    keys |= {"query_pre_attn_scalar": 7, "attn_logit_softcapping": 3.0, "max_window_layers": 1}
    keys |= {"sliding_window": 3, "attention_bias": True, "partial_rotary_factor": 0.25}
    for key in keys.keys() - FAMILIES[model].defaults.keys():
        with pytest.raises(ValueError, match=f"{key}={keys[key]} may change"):
            attention_of(small(model, **{key: keys[key]}))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2'"),
        ({"hidden_size": None}, "a hidden_size of 1 or more"),
        ({"num_hidden_layers": 0}, "a num_hidden_layers of 1 or more"),
        ({"head_dim": None, "hidden_size": 30}, "hidden_size=30"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
        ({"model_type": "qwen3", "layer_types": ["full_attention"]}, "layer_types must be 4"),
        ({"model_type": "qwen3", "layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
        ({"model_type": "qwen3", "layer_types": ["sliding_attention"] * 4}, "sliding_window"),
        ({"model_type": "qwen3_next", "hidden_act": "gelu"}, "hidden_act must be 'silu'"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1.0"),
        (
            {"max_position_embeddings": None, "rope_scaling": {"type": "yarn", "factor": 2.0}},
            "original_max_position_embeddings",
        ),
    ],
)
def test_what_would_make_other_layers_in_silence_is_refused(change, what):
    with pytest.raises(ValueError, match=what):
        attention_of(small("llama") | change)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "dynamic", "factor": 2.0},
        {"type": "mrope", "mrope_section": [1, 1, 2]},
        {"rope_type": "linear", "factor": 2.0, "surprise": 1},
    ],
)
def test_a_rotation_that_no_part_has_is_described_and_not_made(scaling):
    layer = attention_of(small("qwen2", rope_scaling=scaling))[0]
    assert layer.cache_bytes(10) > 0
    # By its reason, or by RotaryPositions, which takes each key by its name.
    with pytest.raises((ValueError, TypeError), match=r"dynamic|mrope|surprise"):
        layer_of(layer, **PARTS)


def test_older_and_newer_files_say_the_same():
    stretched = {"factor": 4.0, "rope_type": "yarn", "original_max_position_embeddings": 16}
    new = attention_of(small("qwen3", rope_parameters=stretched | {"rope_theta": 1e6}))
    old = {"type" if key == "rope_type" else key: value for key, value in stretched.items()}
    assert attention_of(small("qwen3", rope_scaling=old, rope_theta=1e6)) == new
    assert new[0].rotation["rope_theta"] == 1e6


def test_a_reader_adds_a_family_by_a_row(monkeypatch):
    row = Family({"num_key_value_heads": 8, "attention_bias": True}, {"out_bias": False})
    monkeypatch.setitem(FAMILIES, "seed_oss", row)
    config = {
        key: value for key, value in small("seed_oss").items() if key != "num_key_value_heads"
    }
    layer = attention_of(config | {"num_attention_heads": 16})[2]
    assert (layer.kv_heads, layer.bias, layer.out_bias) == (8, True, False)
    assert layer_of(layer, **PARTS).out_proj.bias is None


# Bytes that a token of a public model takes in bfloat16, and 8,192 tokens of it.
BYTES = {
    "Llama 3.1 8B": (131_072, 2**30),
    "Mistral 7B v0.1": (131_072, 131_072 * 4095),  # the window of 4,096 keeps 4,095 tokens
    "Mistral 7B v0.3": (131_072, 2**30),
    "Mistral Small 3.1 24B": (163_840, 163_840 * 8192),
    "Gemma 3 4B": (34 * 4096, 4096 * (5 * 8192 + 29 * 1023)),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_of_public_models(name):
    layers = attention_of(configs.MADE[name])
    assert tuple(sum(layer.cache_bytes(T) for layer in layers) for T in (1, 8192)) == BYTES[name]


# What the layers do


@pytest.mark.parametrize("model", FAMILIES)
@torch.no_grad()
def test_in_pieces_with_a_cache_it_is_what_it_is_at_once_and_keeps_what_is_said(model):
    said = {"attn_logit_softcapping": None} if model == "gemma2" else {}
    said |= {"sliding_window": 5} if "sliding_window" in FAMILIES[model].defaults else {}
    x = torch.randn(2, 12, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for layer in attention_of(small(model, **said)):
        made = layer_of(layer, **PARTS).double().eval()
        cache = MemoryCache() if layer.kind == "memory" else KVCache(12)
        pieces = [made(piece, cache=cache) for piece in x.split([4, 1, 7], dim=1)]
        assert torch.allclose(torch.cat(pieces, dim=1), made(x), rtol=0, atol=1e-10)
        if layer.kind == "memory":
            held = cache.state[0].numel() * 4 + cache.recent[0].numel() * 8
        else:  # a KVCache holds what is outside of the window, too
            held, layer = cache.nbytes // 2, replace(layer, window=None)
        assert held == layer.cache_bytes(12, element=8)


def test_a_missing_part_is_named():
    layers = attention_of(small("qwen3_next"))
    for layer, part in ((layers[0], "memory"), (layers[3], "grouped"), (layers[3], "rotary")):
        with pytest.raises(KeyError, match=part):
            layer_of(layer, **{name: PARTS[name] for name in PARTS if name != part})


def test_a_weight_that_the_layer_has_no_use_for_does_not_load():
    layer = attention_of(small("llama"))[1]
    own = "model.layers.1.self_attn."
    for name in ("q_proj.weight_scale_inv", "rotary.inv_freq"):
        with pytest.raises(RuntimeError, match="Unexpected key"):
            layer_of(layer, **PARTS).load_state_dict(weights_of(layer, {own + name: torch.ones(1)}))
    assert weights_of(layer, {"model.layers.11.self_attn.q_proj.weight": torch.ones(1)}) == {}


def of_a_config():
    """A layer with a window, shared keys and QK-norm, by the file of a Gemma 3."""
    config = {"model_type": "gemma3_text", "hidden_size": 16, "num_attention_heads": 4}
    config |= {"num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 1, "sliding_window": 9}
    return layer_of(attention_of(config)[0], **PARTS)


CASES = {"a layer of a Gemma 3": Case(lambda module, x: module(x), texts, of_a_config)}
