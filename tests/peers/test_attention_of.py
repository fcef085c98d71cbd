"""attention_of reads what transformers writes: each layer it makes, with the weights of a small random model, is that model's own."""

import ast
import contextlib
import copy
import importlib
import inspect
import json
import re
import warnings

import pytest
import torch
from torch import nn

from snippets.attention_of import EVERY, FAMILIES, attention_of
from snippets.gated_delta_net import GatedDeltaNet, MemoryCache
from snippets.gated_memory import gated_memory
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from snippets.rope import RotaryPositions
from snippets.windowed_attention import Windowed
from tests.snippets import configs
from tests.snippets.facts import first_to_notice
from tests.snippets.problems import edited

pytest.importorskip("transformers")
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

PARTS = {"rotary": RotaryPositions, "grouped": GroupedQueryAttention, "latent": LatentAttention}
PARTS |= {"delta": GatedDeltaNet, "memory": gated_memory, "window": Windowed}
T, PIECES = 16, (7, 1, 6, 1, 1)
SIZES = {
    "vocab_size": 11,
    "hidden_size": 32,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts_per_tok": 1, "moe_intermediate_size": 4}
FEW = EXPERTS | {"num_experts": 2, "shared_expert_intermediate_size": 4}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "n_routed_experts": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 2,
    "head_dim": None,
} | EXPERTS
MEMORY = {
    "num_hidden_layers": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 5,
    "partial_rotary_factor": 0.4,
} | FEW
ROUND = {"rope_theta": 500.0, "original_max_position_embeddings": 8, "factor": 4.0}
LLAMA3 = ROUND | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = ROUND | {"rope_type": "yarn"}
MSCALE = YARN | {"mscale": 0.7, "mscale_all_dim": 0.5}
LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0}
GEMMA3 = {"sliding_window": 5, "query_pre_attn_scalar": 7, "sliding_window_pattern": 2}
WINDOW = {"sliding_window": 5}
# What is tried → model_type, and what its configuration says besides SIZES.
CASES = {
    "llama": ("llama", {}),
    "llama, bias and no head_dim": ("llama", {"attention_bias": True, "head_dim": None}),
    "llama, stretched": ("llama", {"rope_parameters": LLAMA3}),
    "llama, linear": ("llama", {"rope_parameters": LINEAR}),
    "llama, yarn": ("llama", {"rope_parameters": YARN}),
    "mistral": ("mistral", WINDOW),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "mixtral": ("mixtral", {"num_local_experts": 2, "num_experts_per_tok": 1}),
    "qwen2": ("qwen2", {"head_dim": None}),
    "qwen2, windows": (
        "qwen2",
        WINDOW | {"head_dim": None, "use_sliding_window": True, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"rms_norm_eps": 1e-2}),
    "qwen3_moe": ("qwen3_moe", FEW | WINDOW | {"use_sliding_window": True}),
    "gemma2, no softcap": (
        "gemma2",
        WINDOW | {"attn_logit_softcapping": None, "query_pre_attn_scalar": 7},
    ),
    "gemma3": ("gemma3_text", GEMMA3),
    "gemma3, stretched": (
        "gemma3_text",
        GEMMA3 | {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": None}},
    ),
    "phi3": ("phi3", WINDOW | {"head_dim": None}),
    "phi3, in part": ("phi3", {"partial_rotary_factor": 0.5, "head_dim": None}),
    "olmo2": ("olmo2", {"head_dim": None, "attention_bias": True, "rms_norm_eps": 1e-2}),
    "glm4": ("glm4", {"head_dim": 12}),
    "glm4, in part": ("glm4", {"partial_rotary_factor": 0.4}),
    "gpt_oss": (
        "gpt_oss",
        WINDOW | {"num_local_experts": 2, "num_experts_per_tok": 1, "rope_parameters": YARN},
    ),
    "deepseek_v3": ("deepseek_v3", LATENT),
    "deepseek_v3, stretched": ("deepseek_v3", LATENT | {"rope_parameters": MSCALE}),
    "deepseek_v3, other": (
        "deepseek_v3",
        LATENT | {"q_lora_rank": None, "rope_interleave": False, "attention_bias": True},
    ),
    "qwen3_next": ("qwen3_next", MEMORY),
}


def model_of(kind, said):
    """Return a small random model of transformers, in float64."""
    torch.manual_seed(0)
    sizes = {key: value for key, value in (SIZES | said).items() if value is not None}
    nulls = {key: None for key, value in said.items() if value is None and key != "head_dim"}
    config = AutoConfig.for_model(kind, **sizes, **nulls)
    model = (
        AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", experts_implementation="eager"
        )
        .double()
        .eval()
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def watched(model):
    """Return what each attention layer of the model was given, and what it gave, in pieces."""
    seen = {}

    def keep(name, index):
        def hook(module, args, kwargs, output):
            given = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            result = output[0] if isinstance(output, tuple) else output
            seen.setdefault(index, []).append((given, result))

        return hook

    for index, block in enumerate(model.model.layers):
        name = "linear_attn" if hasattr(block, "linear_attn") else "self_attn"
        getattr(block, name).register_forward_hook(keep(name, index), with_kwargs=True)
    cache = DynamicCache(config=model.config)
    tokens = torch.randint(3, 11, (2, T))
    with torch.no_grad():
        for piece in tokens.split(PIECES, dim=1):
            model(piece, past_key_values=cache)
    return seen, cache


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Many small products wait for each other's threads where other tests run beside these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


MODELS = {}


def the_model(case):
    """Return its configuration as it is saved, its weights, what was seen, and its cache: once."""
    if case not in MODELS:
        model = model_of(*CASES[case])
        config = json.loads(model.config.to_json_string(use_diff=True))
        MODELS[case] = (config, json.loads(model.config.to_json_string(use_diff=False)))
        MODELS[case] += (model.state_dict(), *watched(model))
    return MODELS[case]


def near(result, wanted):
    """Assert that no number is further off than rounding in float32 makes it: theirs has that."""
    error = (result - wanted).abs().max().item()
    assert error < 2e-5 * max(1.0, wanted.abs().max().item()), f"off by {error:.2g}"


# Facts about a module of the file, which is the real one or a wrong version of it.


@torch.no_grad()
def each_layer_is_theirs(module, case):
    config, _, weights, seen, _ = the_model(case)
    for layer in module.attention_of(config):
        ours = module.layer_of(layer, **PARTS).double().eval()
        ours.load_state_dict(module.weights_of(layer, weights))
        given, wanted = (torch.cat(parts, dim=1) for parts in zip(*seen[layer.index], strict=True))
        near(ours(given), wanted)
        cache = MemoryCache() if layer.kind == "memory" else KVCache(T)
        near(torch.cat([ours(x, cache=cache) for x, _ in seen[layer.index]], dim=1), wanted)


def the_bytes_are_those_that_they_keep(module, case):
    config, _, _, _, cache = the_model(case)
    for layer in module.attention_of(config):
        held = cache.layers[layer.index]
        if layer.kind == "memory":
            state = held.recurrent_states
            state = state if isinstance(state, torch.Tensor) else state[0]
            assert state[0].numel() * 4 == layer.cache_bytes(T, element=0)
        else:
            numbers = held.keys[0].numel() + held.values[0].numel()
            assert numbers * 8 == layer.cache_bytes(T, element=8)


def as_older_files_say_it(config):
    """Return a configuration without the keys that the library has come to write."""
    old = {key: value for key, value in config.items() if key != "layer_types"}
    if "_sliding_window_pattern" in old:
        old["sliding_window_pattern"] = old.pop("_sliding_window_pattern")
    rope = old.pop("rope_parameters")
    if "sliding_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    old["rope_theta"] = rope["rope_theta"]
    old["partial_rotary_factor"] = rope.get("partial_rotary_factor")
    known = ("rope_theta", "rope_type", "partial_rotary_factor")
    scaling = {key: value for key, value in rope.items() if key not in known}
    return old | {"rope_scaling": {"type": rope["rope_type"]} | scaling}


def older_files_say_the_same(module, case):
    config = the_model(case)[0]
    assert module.attention_of(as_older_files_say_it(config)) == module.attention_of(config)


FACTS = [
    each_layer_is_theirs,
    the_bytes_are_those_that_they_keep,
    older_files_say_the_same,
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_of_each_family(fact, case):
    fact(edited("attention_of"), case)


@pytest.mark.parametrize("case", CASES)
def test_a_configuration_with_all_that_is_left_unsaid_is_the_same(case):
    module, (config, full, *_) = edited("attention_of"), the_model(case)
    assert module.attention_of(full) == module.attention_of(config)


def test_every_family_is_tried():
    assert {kind for kind, _ in CASES.values()} == edited("attention_of").FAMILIES.keys()


# What is wrong → the case that notices it, and the edit.
WRONG = {
    "the scale is the head's width": (
        "gemma3",
        ('settings.get("query_pre_attn_scalar", facts["head_dim"])', 'facts["head_dim"]'),
    ),
    "norms without the one": (
        "gemma3",
        ("more = 1 if layer.one_more", "more = 0 if layer.one_more"),
    ),
    "windows turn as the others do": (
        "gemma3, stretched",
        ('theta, given = settings["rope_local_base_freq"], given', "theta, given = theta, given"),
    ),
    "a mixture begins with a full layer": ("gpt_oss", ("(index + 1) % each", "index % each")),
    "memories where there is attention": ("qwen3_next", ("(index + 1) % each", "index % each")),
    "windows come first": ("qwen2, windows", ("index >= first", "index < first")),
    "one norm's epsilon for all": (
        "qwen3",
        ("attention.query_norm.eps = attention.key_norm.eps = layer.norm_eps", "pass"),
    ),
    "the norm of all heads is that of each": (
        "olmo2",
        ('layer.norm == "all":  # a projection', "False:  # a projection"),
    ),
    "its epsilon": (
        "olmo2",
        ("project.out_features, eps=layer.norm_eps", "project.out_features, eps=1e-6"),
    ),
    "the output has a bias, too": (
        "qwen2",
        ('"out_bias": layer.out_bias', '"out_bias": layer.bias'),
    ),
    "keys before queries": (
        "phi3",
        ('{"W_query": layer.heads * key, "W_key"', '{"W_key": layer.heads * key, "W_query"'),
    ),
    "all channels turn": (
        "phi3, in part",
        ('"partial_rotary_factor": share}', '"partial_rotary_factor": 1.0}'),
    ),
    "halves turn together": ("glm4", ("pairing=layer.pairing", 'pairing="half"')),
    "the base is not read": (
        "llama, linear",
        ("if apart else given", 'if apart else given | {"rope_theta": 1e4}'),
    ),
    "no sinks": ("gpt_oss", ('"sinks": layer.sinks', '"sinks": False')),
    "no gate": ("qwen3_next", ('"gate": layer.gate', '"gate": False')),
    "gates before queries": (
        "qwen3_next",
        ('{"W_query": key, "W_gate": key}', '{"W_gate": key, "W_query": key}'),
    ),
    "queries and gates are not by head": (
        "qwen3_next",
        (
            '(layer.heads, {"W_query": key',
            '(1, {"W_query": layer.heads * key, "W_gate": layer.heads * key, "W_query": layer.heads * key',
        ),
    ),
    "beta is the decay": (
        "qwen3_next",
        ('{"W_beta": share, "W_decay": share}', '{"W_decay": share, "W_beta": share}'),
    ),
    "the stretching of all channels": ("deepseek_v3, stretched", ("* stretched**2", "* stretched")),
    "values before keys": (
        "deepseek_v3",
        ('{"W_key": key, "W_value": value}', '{"W_value": value, "W_key": key}'),
    ),
    "the width without the part that turns": (
        "deepseek_v3",
        ('(facts["head_dim"] + facts["rope_dim"]) ** -0.5', 'facts["head_dim"] ** -0.5'),
    ),
    "pairs of neighbours, always": (
        "deepseek_v3, other",
        ('"interleaved" if settings["rope_interleave"]', '"interleaved" if True'),
    ),
    "a window keeps one more": ("mistral", ("self.window - 1", "self.window")),
    "a latent is kept twice": (
        "deepseek_v3",
        ("self.latent_dim + self.rope_dim or", "2 * self.latent_dim + self.rope_dim or"),
    ),
    "a memory has as many states as keys": (
        "qwen3_next",
        ("state = self.heads * self.head_dim", "state = self.kv_heads * self.head_dim"),
    ),
    "an older file's type is not read": (
        "llama, linear",
        ('scaling.pop("type", "default")', '"default"'),
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_is_caught(what):
    case, edit = WRONG[what]
    facts = [
        each_layer_is_theirs_or_has_other_weights,
        the_bytes_are_those_that_they_keep,
        older_files_say_the_same,
    ]
    assert first_to_notice(facts, edited("attention_of", edit), case), f"{what}: every fact holds"


def each_layer_is_theirs_or_has_other_weights(module, case):
    """Weights of other shapes or names are PyTorch's own error, and a notice as good as another."""
    try:
        each_layer_is_theirs(module, case)
    except RuntimeError as error:
        if "loading state_dict" in str(error) or "split" in str(error):
            pytest.fail("the weights do not fit")
        raise


# Where a file is silent: each of its keys is dropped in turn, and the library says what it then takes.


def filled(config):
    """Return the file as the library saves it, with all that it takes where it is silent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {key: value for key, value in config.items() if key != "model_type"}
        made = AutoConfig.for_model(config["model_type"], **copy.deepcopy(given))
    made = made.get_text_config()
    return json.loads(made.to_json_string(use_diff=False)) | {"model_type": made.model_type}


FILES = configs.MADE | {name: config for name, (config, _) in configs.REFUSED.items()}
KNOWN = {
    name: config
    for name, config in FILES.items()
    if config["model_type"] in (*FAMILIES, "gemma3", "mistral3")
}


def silent(config):
    """Each way to drop one key of a file, or of its part about text, by the key."""
    text = config.get("text_config", config)
    for dropped in text.keys() - {"model_type"}:
        rest = {key: value for key, value in text.items() if key != dropped}
        yield dropped, config | {"text_config": rest} if "text_config" in config else rest


@pytest.mark.parametrize("name", KNOWN)
def test_where_a_file_is_silent_the_layers_are_the_librarys(name):
    refused = set()
    for dropped, config in [("", KNOWN[name]), *silent(KNOWN[name])]:
        try:
            ours = attention_of(config)
        except ValueError:
            refused.add(dropped)
            continue
        with contextlib.suppress(StrictDataclassError):  # a file that the library does not take
            assert ours == attention_of(filled(config)), f"without {dropped}"
    if name == "Qwen2.5 7B 1M":  # which is refused, unless it leaves out what no part can do
        assert len(refused) == len(KNOWN[name]) - 1
        assert "dual_chunk_attention_config" not in refused
    else:  # what must be said, and what another key hangs on
        needed = {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"}
        assert refused <= needed | {"layer_types", "sliding_window", "head_dim"}


@pytest.mark.parametrize("kind", FAMILIES)
def test_each_key_that_the_librarys_attention_reads_is_read_or_refused(kind):
    """The source of the library's layers: what they take from the configuration has a say."""
    file = importlib.import_module(
        f"transformers.models.{kind.removesuffix('_text')}.modeling_{kind.removesuffix('_text')}"
    )
    tree = ast.parse(inspect.getsource(file))
    read = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and re.search("Attention|Rotary|DeltaNet", node.name):
            code = ast.unparse(node)
            read |= set(re.findall(r"config\.(\w+)", code))
            read |= set(re.findall(r"getattr\(\w*\.?config, '(\w+)'", code))
    read -= {"_attn_implementation", "get_text_config", "standardize_rope_params"}
    assert len(read) > 5
    for key in read - (EVERY | FAMILIES[kind].defaults).keys():
        sizes = SIZES | LATENT if kind == "deepseek_v3" else SIZES
        config = {"model_type": kind, **{key: value for key, value in sizes.items() if value}}
        with pytest.raises(ValueError, match=key):
            attention_of(config | {key: 7})
