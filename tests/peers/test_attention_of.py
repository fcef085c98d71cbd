"""attention_of reads what transformers writes: each layer it makes, with the weights of a small random model, is that model's own."""

import ast
import contextlib
import copy
import importlib
import inspect
import json
import re
import warnings
from functools import cache

import pytest
import torch
from torch import nn

from snippets.attention_of import EVERY, FAMILIES, attention_of, layer_of, weights_of
from snippets.gated_delta_net import MemoryCache
from snippets.kv_cache import KVCache
from tests.snippets import configs
from tests.snippets.test_attention_of import PARTS

pytest.importorskip("transformers")
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

T, PIECES = 16, (7, 1, 6, 1, 1)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 10}
SIZES |= {"num_key_value_heads": 2, "vocab_size": 11, "intermediate_size": 8, "pad_token_id": 0}
SIZES |= {"bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 64}
EXPERTS = {"num_experts_per_tok": 1, "moe_intermediate_size": 4, "num_experts": 2}
EXPERTS |= {"num_local_experts": 2, "shared_expert_intermediate_size": 4}
LATENT = {"num_key_value_heads": 4, "kv_lora_rank": 12, "q_lora_rank": 14, "v_head_dim": 5}
LATENT |= {"qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "head_dim": None, "n_group": 1}
LATENT |= {"n_routed_experts": 2, "topk_group": 1, "first_k_dense_replace": 2}
LATENT |= {"num_experts_per_tok": 1, "moe_intermediate_size": 4}
MEMORY = {"num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2}
MEMORY |= {"linear_key_head_dim": 6, "linear_value_head_dim": 5, "partial_rotary_factor": 0.4}
ROUND = {"rope_theta": 500.0, "original_max_position_embeddings": 8, "factor": 4.0}
LLAMA3 = ROUND | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = ROUND | {"rope_type": "yarn"}
LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0}
WINDOW, NO_DIM = {"sliding_window": 5}, {"head_dim": None}
GEMMA = WINDOW | {"query_pre_attn_scalar": 7}
GEMMA3 = GEMMA | {"sliding_window_pattern": 2}
APART = {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": None}}
# What is tried → model_type, and what its configuration says besides SIZES.
CASES = {
    "llama": ("llama", {}),
    "llama, bias and no head_dim": ("llama", NO_DIM | {"attention_bias": True}),
    "llama, stretched": ("llama", {"rope_parameters": LLAMA3}),
    "llama, linear": ("llama", {"rope_parameters": LINEAR}),
    "llama, yarn": ("llama", {"rope_parameters": YARN}),
    "mistral": ("mistral", WINDOW),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "mixtral": ("mixtral", EXPERTS),
    "qwen2": ("qwen2", NO_DIM),
    "qwen2, windows": (
        "qwen2",
        WINDOW | NO_DIM | {"use_sliding_window": True, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"rms_norm_eps": 1e-2}),
    "qwen3_moe": ("qwen3_moe", EXPERTS | WINDOW | {"use_sliding_window": True}),
    "gemma2, no softcap": ("gemma2", GEMMA | {"attn_logit_softcapping": None}),
    "gemma3": ("gemma3_text", GEMMA3),
    "gemma3, stretched": ("gemma3_text", GEMMA3 | APART),
    "phi3": ("phi3", WINDOW | NO_DIM),
    "phi3, in part": ("phi3", NO_DIM | {"partial_rotary_factor": 0.5}),
    "olmo2": ("olmo2", NO_DIM | {"attention_bias": True, "rms_norm_eps": 1e-2}),
    "glm4": ("glm4", {"head_dim": 12}),
    "glm4, in part": ("glm4", {"partial_rotary_factor": 0.4}),
    "gpt_oss": ("gpt_oss", EXPERTS | WINDOW | {"rope_parameters": YARN}),
    "deepseek_v3": ("deepseek_v3", LATENT),
    "deepseek_v3, stretched": (
        "deepseek_v3",
        LATENT | {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.5}},
    ),
    "deepseek_v3, other": (
        "deepseek_v3",
        LATENT | {"q_lora_rank": None, "rope_interleave": False, "attention_bias": True},
    ),
    "qwen3_next": ("qwen3_next", EXPERTS | MEMORY),
}
every_case = pytest.mark.parametrize("case", CASES)


def small_model(kind, options):
    """Return a small random model of transformers, in float64, and its configuration as it is saved."""
    torch.manual_seed(0)
    sizes = {key: value for key, value in (SIZES | options).items() if value is not None}
    nulls = dict.fromkeys(options.keys() - sizes.keys() - NO_DIM.keys())
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **sizes, **nulls),
        attn_implementation="eager",
        experts_implementation="eager",
    )
    for parameter in model.double().eval().parameters():
        nn.init.normal_(parameter, std=0.3)
    return model, json.loads(model.config.to_json_string(use_diff=True))


@cache
def the_model(case):
    """The model of a case, made once."""
    return small_model(*CASES[case])


@torch.no_grad()
def run_in_pieces(model):
    """Return (given, returned) of each attention layer, of one piece after the other, and the cache."""
    seen, cache = {}, DynamicCache(config=model.config)
    for index, block in enumerate(model.model.layers):
        attention = block.linear_attn if hasattr(block, "linear_attn") else block.self_attn

        def keep(module, args, kwargs, output, index=index):
            given = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            seen.setdefault(index, []).append(
                (given, output[0] if isinstance(output, tuple) else output)
            )

        attention.register_forward_hook(keep, with_kwargs=True)
    for piece in torch.randint(3, 11, (2, T)).split(PIECES, dim=1):
        model(piece, past_key_values=cache)
    return seen, cache


def assert_near(result, expected):
    """No number is further off than rounding in float32 makes it: theirs has that."""
    torch.testing.assert_close(
        result, expected, rtol=0, atol=2e-5 * max(1.0, expected.abs().max().item())
    )


@every_case
@torch.no_grad()
def test_each_layer_is_theirs_at_once_and_in_pieces_and_keeps_as_many_bytes(case):
    model, config = the_model(case)
    seen, their_cache = run_in_pieces(model)
    for layer in attention_of(config):
        ours = layer_of(layer, **PARTS).double().eval()
        ours.load_state_dict(weights_of(layer, model.state_dict()))
        given, expected = (
            torch.cat(parts, dim=1) for parts in zip(*seen[layer.index], strict=True)
        )
        assert_near(ours(given), expected)
        cache = MemoryCache() if layer.kind == "memory" else KVCache(T)
        pieces = [ours(piece, cache=cache) for piece in given.split(PIECES, dim=1)]
        assert_near(torch.cat(pieces, dim=1), expected)
        held = their_cache.layers[layer.index]
        if layer.kind == "memory":
            state = held.recurrent_states
            state = state if isinstance(state, torch.Tensor) else state[0]
            assert layer.cache_bytes(T, element=0) == 4 * state[0].numel()
        else:
            numbers = held.keys[0].numel() + held.values[0].numel()
            assert layer.cache_bytes(T, element=8) == 8 * numbers


def as_older_files_say_it(config):
    """Return a configuration without the keys that the library has come to write."""
    old = {key: value for key, value in config.items() if key != "layer_types"}
    if "_sliding_window_pattern" in old:
        old["sliding_window_pattern"] = old.pop("_sliding_window_pattern")
    rope = dict(old.pop("rope_parameters"))
    if "sliding_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
    old["rope_theta"] = rope.pop("rope_theta")
    old["partial_rotary_factor"] = rope.pop("partial_rotary_factor", None)
    return old | {"rope_scaling": {"type": rope.pop("rope_type")} | rope}


@every_case
def test_older_files_and_files_that_leave_nothing_unsaid_mean_the_same(case):
    model, config = the_model(case)
    layers = attention_of(config)
    assert attention_of(as_older_files_say_it(config)) == layers
    assert attention_of(json.loads(model.config.to_json_string(use_diff=False))) == layers


def test_every_family_is_tried():
    assert {kind for kind, _ in CASES.values()} == FAMILIES.keys()


# Where a file is silent: each of its keys is dropped in turn, and the library says what it then takes.

FILES = configs.MADE | {name: config for name, (config, _) in configs.REFUSED.items()}
KNOWN = {
    name: config
    for name, config in FILES.items()
    if config["model_type"] in (*FAMILIES, "gemma3", "mistral3")
}


def filled(config):
    """Return the file as the library saves it, with all that it takes where it is silent."""
    given = copy.deepcopy(config)
    with warnings.catch_warnings(action="ignore"):
        made = AutoConfig.for_model(given.pop("model_type"), **given).get_text_config()
    return json.loads(made.to_json_string(use_diff=False)) | {"model_type": made.model_type}


def with_one_key_less(config):
    """Yield each key of a file, or of its part about text, and the file without it."""
    text = config.get("text_config", config)
    for dropped in text.keys() - {"model_type"}:
        rest = {key: value for key, value in text.items() if key != dropped}
        yield dropped, config | {"text_config": rest} if "text_config" in config else rest


@pytest.mark.parametrize("name", KNOWN)
def test_where_a_file_is_silent_the_layers_are_those_of_the_library(name):
    refused = set()
    for dropped, config in [("", KNOWN[name]), *with_one_key_less(KNOWN[name])]:
        try:
            ours = attention_of(config)
        except ValueError:
            refused.add(dropped)
            continue
        with contextlib.suppress(StrictDataclassError):  # a file that the library does not take
            assert ours == attention_of(filled(config)), f"without {dropped}"
    if name == "Qwen2.5 7B 1M":  # which is refused, unless it leaves out what no part can do
        assert {*KNOWN[name], ""} - refused == {"model_type", "dual_chunk_attention_config"}
    else:  # what must be said, and what another key hangs on
        needed = {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"}
        assert refused <= needed | {"layer_types", "sliding_window", "head_dim"}


@pytest.mark.parametrize("kind", FAMILIES)
def test_each_key_that_the_attention_of_the_library_reads_is_read_or_refused(kind):
    """The source of the library's layers: what they take from the configuration has a say."""
    name = kind.removesuffix("_text")
    file = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    read = set()
    for node in ast.walk(ast.parse(inspect.getsource(file))):
        if isinstance(node, ast.ClassDef) and re.search("Attention|Rotary|DeltaNet", node.name):
            keys = r"config\.(\w+)|getattr\(\w*\.?config, '(\w+)'"
            read |= {a or b for a, b in re.findall(keys, ast.unparse(node))}
    read -= {"_attn_implementation", "get_text_config", "standardize_rope_params"}
    assert len(read) > 5
    sizes = SIZES | LATENT if kind == "deepseek_v3" else SIZES
    config = {"model_type": kind} | {key: value for key, value in sizes.items() if value}
    for key in read - (EVERY | FAMILIES[kind].defaults).keys():
        with pytest.raises(ValueError, match=key):
            attention_of(config | {key: 7})
