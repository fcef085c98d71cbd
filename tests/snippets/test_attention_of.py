"""attention_of reads whole public files as their authors mean them, and refuses by name what the parts cannot do."""

import math
from dataclasses import replace
from unittest import mock

import pytest
import torch

from snippets import attention_of as real
from snippets.gated_delta_net import GatedDeltaNet
from snippets.gated_memory import gated_memory
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.latent_attention import LatentAttention
from snippets.rope import RotaryPositions
from snippets.windowed_attention import Windowed
from tests.snippets import configs
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, texts

PARTS = {"rotary": RotaryPositions, "grouped": GroupedQueryAttention, "latent": LatentAttention}
PARTS |= {"delta": GatedDeltaNet, "memory": gated_memory, "window": Windowed}
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
LATENT = {"kv_lora_rank": 12, "q_lora_rank": 14, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4}
LATENT |= {"v_head_dim": 5, "num_key_value_heads": 4}


def small(model, **options):
    """A configuration of this family."""
    more = LATENT if model == "deepseek_v3" else {}
    return {"model_type": model, "architectures": ["Any"]} | SIZES | more | options


def first(part, model, **options):
    """The first layer of a small configuration."""
    return part.attention_of(small(model, **options))[0]


def refused(part, reason, config):
    with pytest.raises(ValueError, match=reason):
        part.attention_of(config)


# What a file says


def test_each_layer_of_a_public_file_is_made_or_refused_with_the_reason(part):
    with torch.device("meta"):
        for config in configs.MADE.values():
            for layer in part.attention_of(config)[:6]:  # in longer models they come again
                part.layer_of(layer, **PARTS)
        for config, reason in configs.REFUSED.values():
            with pytest.raises(ValueError, match=reason):
                part.layer_of(part.attention_of(config)[0], **PARTS)


def test_null_says_that_there_is_none_where_the_library_reads_it_so(part):
    assert first(part, "mistral", sliding_window=None).window is None
    assert first(part, "deepseek_v3", q_lora_rank=None).query_latent_dim is None
    assert first(part, "gemma2", attn_logit_softcapping=None).softcap is None
    assert first(part, "llama", head_dim=None, num_key_value_heads=None).kv_heads == 4
    layer = first(part, "gpt_oss", rope_scaling=None, rope_theta=None)
    assert (layer.rotation["rope_type"], layer.rotation["rope_theta"]) == ("yarn", 150_000.0)


def test_windows_memories_scales_and_norms_are_those_of_the_family(part):
    for model, window in (("gemma2", 4096), ("gpt_oss", 128)):
        assert [layer.window for layer in part.attention_of(small(model))] == [window, None] * 2
    late = {"use_sliding_window": True, "max_window_layers": 3, "sliding_window": 5}
    layers = part.attention_of(small("qwen2", **late))
    assert [layer.window for layer in layers] == [None, None, None, 5]
    kinds = [layer.kind for layer in part.attention_of(small("qwen3_next"))]
    assert kinds == ["memory"] * 3 + ["attention"]
    gemma = first(part, "gemma3_text", query_pre_attn_scalar=4)
    assert (gemma.scale, gemma.rotation["rope_theta"]) == (0.5, 10_000.0)
    yarn = {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.5}
    scale = first(part, "deepseek_v3", rope_scaling=yarn).scale
    assert scale == pytest.approx(10**-0.5 * (0.1 * 0.5 * math.log(40.0) + 1) ** 2)
    for model, width in (("olmo2", 32), ("qwen3", 8)):  # over all heads, and in each
        made = part.layer_of(first(part, model, rms_norm_eps=0.1), **PARTS)
        norms = [module for module in made.modules() if isinstance(module, torch.nn.RMSNorm)]
        assert [norm.normalized_shape for norm in norms[:1]] == [(width,)]
        assert {norm.eps for norm in norms} == {0.1}


def test_a_key_that_changes_nothing_passes(part):
    nothing = {"use_mystery_norm": False, "surprise": None, "pruned_heads": {}, "mystery_gain": 0.0}
    nothing |= {"_attn_implementation": "eager", "vocab_size": 5, "image_token_index": 4}
    for model, family in part.FAMILIES.items():
        windows = {"sliding_window": 5} if "sliding_window" in family.defaults else {}
        more = nothing | part.NEUTRAL | ({"sliding_window_size": 5} if windows else {})
        more = {key: value for key, value in more.items() if key not in family.defaults}
        config = small(model, **windows)
        assert part.attention_of(config | more) == part.attention_of(config)


def test_a_key_that_is_not_understood_or_that_another_family_reads_is_refused_by_name(part):
    unknown = {"use_mystery_norm": True, "attention_chunk_size": 8, "layer_scale": 0.5}
    unknown |= {"sliding_window_pattern": 3, "full_attention_interval": 3, "kv_lora_rank": 5}
    unknown |= {"query_pre_attn_scalar": 7, "attn_logit_softcapping": 3.0, "max_window_layers": 1}
    unknown |= {"sliding_window": 3, "attention_bias": True, "partial_rotary_factor": 0.25}
    # These change something as soon as they say anything but what they always say.
    unknown |= dict.fromkeys(part.NEUTRAL, 7) | {"is_causal": False, "use_rope": False}
    for model, family in part.FAMILIES.items():
        for key in unknown.keys() - family.defaults.keys():
            refused(part, key, small(model, **{key: unknown[key]}))
    windows = {"sliding_window": 5, "sliding_window_size": 6}
    refused(part, "sliding_window_size", small("gemma2", **windows))


NO_LENGTH = {"max_position_embeddings": None, "rope_scaling": {"type": "yarn", "factor": 2.0}}
MISREAD = [
    {"model_type": "gpt2"},
    {"hidden_size": None},
    {"num_hidden_layers": 0},
    {"head_dim": None, "hidden_size": 30},
    {"num_key_value_heads": 3},
    {"model_type": "qwen3", "layer_types": ["full_attention"]},
    {"model_type": "qwen3", "layer_types": ["chunked_attention"] * 4},
    {"model_type": "qwen3", "layer_types": ["sliding_attention"] * 4},
    {"model_type": "qwen3_next", "hidden_act": "gelu"},
    {"rope_parameters": {"partial_rotary_factor": 0.5}},
    NO_LENGTH,
]


def test_what_would_make_other_layers_in_silence_is_refused(part):
    for change in MISREAD:
        refuses(f"{change}", part.attention_of, small("llama") | change)


def test_a_rotation_that_no_part_has_is_described_and_not_made(part):
    for scaling in (
        {"rope_type": "dynamic", "factor": 2.0},
        {"type": "mrope", "mrope_section": [1, 1, 2]},
        {"rope_type": "linear", "factor": 2.0, "surprise": 1},
    ):
        layer = first(part, "qwen2", rope_scaling=scaling)
        assert layer.cache_bytes(10) > 0
        # By its reason, or by RotaryPositions, which takes each key by its name.
        with pytest.raises((ValueError, TypeError), match=r"dynamic|mrope|surprise"):
            part.layer_of(layer, **PARTS)


def test_a_reader_adds_a_family_by_a_row(part):
    row = part.Family({"num_key_value_heads": 8, "attention_bias": True}, {"out_bias": False})
    config = small("seed_oss", num_attention_heads=16)
    del config["num_key_value_heads"]
    with mock.patch.dict(part.FAMILIES, {"seed_oss": row}):
        layer = part.attention_of(config)[2]
    assert (layer.kv_heads, layer.bias, layer.out_bias) == (8, True, False)
    assert part.layer_of(layer, **PARTS).out_proj.bias is None


# Bytes that a token of a public model takes in bfloat16, and 8,192 tokens of it.
BYTES = {
    "Llama 3.1 8B": (131_072, 2**30),
    "Mistral 7B v0.1": (131_072, 131_072 * 4095),  # the window of 4,096 keeps 4,095 tokens
    "Mistral 7B v0.3": (131_072, 2**30),
    "Mistral Small 3.1 24B": (163_840, 163_840 * 8192),
    "Gemma 3 4B": (34 * 4096, 4096 * (5 * 8192 + 29 * 1023)),
}


def test_bytes_are_those_of_public_models(part):
    for name, expected in BYTES.items():
        layers = part.attention_of(configs.MADE[name])
        assert tuple(sum(layer.cache_bytes(T) for layer in layers) for T in (1, 8192)) == expected


# What the layers do


def test_a_missing_part_is_named(part):
    layers = part.attention_of(small("qwen3_next"))
    for layer, missing in ((layers[0], "memory"), (layers[3], "grouped"), (layers[3], "rotary")):
        with pytest.raises(KeyError, match=missing):
            part.layer_of(layer, **{name: PARTS[name] for name in PARTS if name != missing})


def test_norms_that_are_stored_less_one_have_it_added_and_other_names_stay(part):
    one = {"model.layers.0.self_attn.q_norm.weight": torch.zeros(8)}
    for model, value in (("gemma3_text", 1.0), ("qwen3", 0.0)):
        layer = replace(first(part, model), window=None)
        ((name, weight),) = part.weights_of(layer, one).items()
        assert (name, weight.unique().item()) == ("query_norm.weight", value)
    layer = part.attention_of(small("llama"))[1]
    own = "model.layers.1.self_attn."
    for name in ("q_proj.weight_scale_inv", "rotary.inv_freq"):
        with pytest.raises(RuntimeError, match="Unexpected key"):
            part.layer_of(layer, **PARTS).load_state_dict(
                part.weights_of(layer, {own + name: torch.ones(1)})
            )
    assert part.weights_of(layer, {"model.layers.11.self_attn.q_proj.weight": torch.ones(1)}) == {}


WRONG = {
    "the scale is the head's width": (
        'settings.get("query_pre_attn_scalar", facts["head_dim"])', 'facts["head_dim"]',
    ),
    "null is the same as a missing key": ("value is None and key not in NULL.split()", "value is None"),
    "windows turn as the others do": (
        'theta, given = settings["rope_local_base_freq"], given', "theta, given = theta, given",
    ),
    "norms without the one": ("more = 1 if layer.one_more", "more = 0 if layer.one_more"),
    "a key that is not understood passes": ("elif not _changes_nothing(key, value, config):", "elif False:"),
    "a window keeps one more": ("self.window - 1", "self.window"),
}  # fmt: skip


def of_a_config():
    """A layer with a window, shared keys and QK-norm, by the file of a Gemma 3."""
    config = {"model_type": "gemma3_text", "hidden_size": 16, "num_attention_heads": 4}
    config |= {"num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 1, "sliding_window": 9}
    return real.layer_of(real.attention_of(config)[0], **PARTS)


CASES = {"a layer of a Gemma 3": Case(lambda module, x: module(x), texts, of_a_config)}
