"""attention_of says of public models what their authors say; each key is read or refused; and what no part can do is refused by name."""

from dataclasses import replace

import pytest
import torch

from snippets.attention_masks import keep_window
from snippets.attention_of import (
    CHANGES_NOTHING,
    FAMILIES,
    REFUSED,
    attention_of,
    layer_of,
    weights_of,
)
from snippets.gated_attention import GatedAttention
from snippets.gated_memory import GatedDeltaNet, MemoryCache
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from snippets.rope import RotaryPositions

PARTS = (RotaryPositions, GroupedQueryAttention, GatedAttention, LatentAttention, GatedDeltaNet)
PARTS += (keep_window,)
SIZES = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 4,
    "max_position_embeddings": 64,
}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "head_dim": None,
}


def small(model, **said):
    """A configuration of this family."""
    more = LATENT if model == "deepseek_v3" else {}
    return (
        {"model_type": model, "architectures": ["Any"], "torch_dtype": "bfloat16"}
        | SIZES
        | more
        | said
    )


@pytest.mark.parametrize("model", FAMILIES)
def test_null_is_the_same_as_a_missing_key_that_nothing_stands_for(model):
    assert attention_of(small(model, rope_scaling=None, surprise=None)) == attention_of(
        small(model)
    )


def test_where_a_file_is_silent_a_glm_4_turns_half_of_the_channels():
    assert attention_of(small("glm4")) == attention_of(small("glm4", partial_rotary_factor=0.5))
    assert attention_of(small("glm4")) != attention_of(small("glm4", partial_rotary_factor=1.0))


@pytest.mark.parametrize("model", FAMILIES)
def test_an_unknown_key_is_refused_by_name(model):
    for key in ("use_mystery_norm", "rope_percent", "attn_temperature", "layer_scale"):
        with pytest.raises(ValueError, match=f"{key}=True may change the attention of {model}"):
            attention_of(small(model, **{key: True}))


def changes(model, key, value):
    """Whether this key is refused by name, or changes what is said of the layers."""
    try:
        return attention_of(small(model, **{key: value})) != attention_of(small(model))
    except ValueError as error:
        return key in str(error)


@pytest.mark.parametrize("model", FAMILIES)
def test_a_key_that_another_family_reads_is_not_read_here_in_silence(model):
    keys = {"sliding_window_pattern": 3, "full_attention_interval": 3, "kv_lora_rank": 5}
    keys |= {"query_pre_attn_scalar": 7, "attn_logit_softcapping": 3.0, "max_window_layers": 1}
    for key, value in keys.items():
        read = changes(model, key, value)
        # It is read, or refused, or belongs to a window that is not in use.
        assert read or key in FAMILIES[model].defaults


@pytest.mark.parametrize(("key", "value"), CHANGES_NOTHING.items())
def test_what_changes_nothing_passes_and_what_would_is_refused(key, value):
    assert attention_of(small("mistral", **{key: value})) == attention_of(small("mistral"))
    with pytest.raises(ValueError, match=f"{key} must be {value} for mistral, got 7"):
        attention_of(small("mistral", **{key: 7}))


@pytest.mark.parametrize("model", REFUSED)
def test_a_known_model_that_no_part_can_do_is_refused_with_the_reason(model):
    with pytest.raises(ValueError, match=f"'{model}' cannot be made of the parts: it"):
        attention_of(small(model))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type must be one of llama, .*, got 'gpt2'"),
        ({"hidden_size": None}, "hidden_size must be a positive integer, got None"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a positive integer, got 0"),
        ({"head_dim": None, "hidden_size": 30}, "num_attention_heads=4 must divide hidden_size=30"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3 must divide 4"),
        (
            {"rope_scaling": {"type": "linear"}, "rope_parameters": {"rope_type": "default"}},
            "rope_scaling or rope_parameters, got both",
        ),
        ({"model_type": "qwen3", "layer_types": ["full_attention"]}, "layer_types must be 4 of"),
        (
            {"model_type": "qwen3", "layer_types": ["chunked_attention"] * 4},
            "got .'chunked_attention'",
        ),
        (
            {"model_type": "qwen3", "layer_types": ["sliding_attention"] * 4},
            "sliding_window must be a number, and in use",
        ),
        ({"model_type": "qwen3_next", "hidden_act": "gelu"}, "hidden_act must be 'silu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1.0 for llama, got 0.5"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor must be 1.0 for llama, got 0.5",
        ),
        ({"model_type": "deepseek_v3", **LATENT, "num_key_value_heads": 2}, "must be 4"),
        (
            {"model_type": "deepseek_v3", **LATENT, "head_dim": 9},
            "head_dim must be 4 for deepseek_v3",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        attention_of(small("llama") | change)


def test_a_configuration_object_is_refused():
    with pytest.raises(
        ValueError, match=r"config must be a mapping, as json.load makes it, got list"
    ):
        attention_of([])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (small("gemma2"), "gemma2 cannot be made of the parts: attn_logit_softcapping=50.0 bends"),
        (
            small("phi3", rope_scaling={"type": "longrope", "short_factor": [], "long_factor": []}),
            "phi3 cannot be made of the parts: rope_type='longrope', it turns the keys of a long text",
        ),
        (
            small("llama", rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
            "llama cannot be made of the parts: rope_type='dynamic'",
        ),
        (
            small("qwen2", rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]}),
            "qwen2 cannot be made of the parts: rope_type='mrope', no part has this rotation",
        ),
        (
            small("llama", rope_scaling={"rope_type": "linear", "factor": 2.0, "surprise": 1}),
            "surprise",
        ),
    ],
)
def test_what_can_be_described_and_not_made_is_refused_with_the_reason(config, message):
    layer = attention_of(config)[0]
    assert layer.cache_bytes(10) > 0
    with pytest.raises(ValueError, match=message):
        layer_of(layer, *PARTS)


def test_a_missing_part_is_named():
    layers = attention_of(small("qwen3_next"))
    for layer, part in ((layers[0], GatedDeltaNet), (layers[3], GatedAttention)):
        others = [each for each in PARTS if each is not part]
        with pytest.raises(ValueError, match=f"parts must hold {part.__name__} for qwen3_next"):
            layer_of(layer, *others)


def test_an_unknown_weight_is_named_and_so_is_a_wrong_prefix():
    layer = attention_of(small("llama"))[1]
    name = "model.layers.1.self_attn.q_proj.weight_scale_inv"
    weights = {"model.layers.1.self_attn.rotary.weight": torch.ones(1)}
    with pytest.raises(
        ValueError, match=r"a layer of llama, got model.layers.1.self_attn.rotary.w"
    ):
        weights_of(layer, weights)
    with pytest.raises(ValueError, match=r"begin with model.layers.1.self_attn., got 1"):
        weights_of(layer, {"model.layers.0.self_attn.q_proj.weight": torch.ones(1)})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*W_query.weight_scale_inv"):
        layer_of(layer, *PARTS).load_state_dict(weights_of(layer, {name: torch.ones(1)}))


@pytest.mark.parametrize("model", FAMILIES)
@torch.no_grad()
def test_in_pieces_with_a_cache_it_is_what_it_is_at_once_and_keeps_what_is_said(model):
    said = {"attn_logit_softcapping": None} if model == "gemma2" else {}
    if model not in ("llama", "olmo2", "glm4", "deepseek_v3", "qwen3_next"):
        said["sliding_window"] = 5
    x = torch.randn(2, 12, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for layer in attention_of(small(model, **said)):
        made = layer_of(layer, *PARTS).double().eval()
        cache = MemoryCache() if layer.kind == "memory" else KVCache(12)
        pieces = [made(piece, cache=cache) for piece in x.split([4, 1, 7], dim=1)]
        assert torch.allclose(torch.cat(pieces, dim=1), made(x), rtol=0, atol=1e-10)
        if layer.kind == "memory":
            held = cache.state[0].numel() * 4 + cache.recent[0].numel() * 8
        else:  # a KVCache holds what is outside of the window, too
            held, layer = cache.nbytes // 2, replace(layer, window=None)
        assert held == layer.cache_bytes(12, element=8)


def test_a_window_takes_a_mask_besides():
    layer = layer_of(attention_of(small("mistral", sliding_window=3))[0], *PARTS)
    x, seen = torch.randn(1, 6, 32), torch.ones(6, 6, dtype=torch.bool).tril()
    seen[4:, 3] = False
    moved = x.clone()
    moved[:, 3] += 1
    change = (layer(moved, attn_mask=seen) - layer(x, attn_mask=seen)).abs().amax(-1)[0] > 1e-6
    assert change.tolist() == [False] * 3 + [True] + [False] * 2
    with pytest.raises(ValueError, match=r"attn_mask must be boolean, got torch.float32"):
        layer(x, attn_mask=torch.zeros(6, 6))


# Public configurations: what they say, and bytes that a token, and 8,192 tokens, take in bfloat16.
LLAMA = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}


@pytest.mark.parametrize(
    ("config", "token", "whole"),
    [
        ({"model_type": "llama", "num_key_value_heads": 8} | LLAMA, 131_072, 2**30),
        # The window of 4,096 keeps 4,095 tokens.
        ({"model_type": "mistral"} | LLAMA, 131_072, 131_072 * 4095),
        ({"model_type": "mistral", "sliding_window": None} | LLAMA, 131_072, 2**30),
    ],
)
def test_bytes_of_public_models(config, token, whole):
    layers = attention_of(config)
    assert sum(layer.cache_bytes(1) for layer in layers) == token
    assert sum(layer.cache_bytes(8192) for layer in layers) == whole


def test_the_text_of_a_model_with_images_is_read():
    text = {"hidden_size": 3840, "num_attention_heads": 16, "num_hidden_layers": 48}
    text |= {"num_key_value_heads": 8, "sliding_window": 1024, "model_type": "gemma3_text"}
    text["rope_scaling"] = {"factor": 8.0, "rope_type": "linear"}
    layers = attention_of({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    windows = [layer.window for layer in layers]
    assert windows == [1024, 1024, 1024, 1024, 1024, None] * 8
    first, sixth = layers[0].rotation, layers[5].rotation
    assert (first["rope_theta"], first["rope_type"]) == (10_000.0, "default")
    assert (sixth["rope_theta"], sixth["rope_type"], sixth["factor"]) == (1e6, "linear", 8.0)


def test_older_and_newer_configurations_say_the_same():
    stretched = {"factor": 4.0, "rope_type": "yarn", "original_max_position_embeddings": 16}
    new = attention_of(small("qwen3", rope_parameters=stretched | {"rope_theta": 1e6}))
    old = {"type" if key == "rope_type" else key: value for key, value in stretched.items()}
    assert attention_of(small("qwen3", rope_scaling=old, rope_theta=1e6)) == new
    assert new[0].rotation["rope_theta"] == 1e6
