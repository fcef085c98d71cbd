"""From the config.json of a model to its attention: what each layer is, what it keeps, and a layer.

    layers = attention_of(json.load(open("config.json")))      # a description of each layer
    layers[0].cache_bytes(8192)                                 # for 8,192 tokens, in bfloat16
    attention = layer_of(layers[0], grouped=GroupedQueryAttention, rotary=RotaryPositions)
    attention.load_state_dict(weights_of(layers[0], weights))   # with the weights of a checkpoint

A row of FAMILIES says what the models of one model_type do where their file is silent. A key that
changes nothing passes; one that is not understood, or that no part can do, is a ValueError.
Source: keys, their defaults and names of weights are those of Hugging Face's transformers 5.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import log

from torch import Tensor, nn

FULL, WINDOW, MEMORY = "full_attention", "sliding_attention", "linear_attention"


@dataclass(frozen=True)
class Family:
    """What the models of one model_type do: what keys say of it, and what no key says."""

    defaults: Mapping  # each key read here, besides EVERY → what is meant where it is missing
    always: Mapping  # the fields of Layer that no key says
    kinds: str = "full"  # "window": all have one; "last windows", "some windows", "some memories"
    each: int | str = 2  # with "some": one layer of so many is full, or the key that says how many


# The keys that every family reads. null is the same as a missing key ...
EVERY = dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim"))
EVERY |= dict.fromkeys(("max_position_embeddings", "original_max_position_embeddings"))
EVERY |= {"rope_theta": 10_000.0, "rope_scaling": None, "rope_parameters": None}
EVERY |= {"num_key_value_heads": None, "rms_norm_eps": 1e-6}
# ... but for these: there it says that there is none, or that it follows from the others.
NULL = "num_key_value_heads head_dim sliding_window q_lora_rank attn_logit_softcapping"

BIAS, LISTED, HEADS = {"attention_bias": False}, {"layer_types": None}, {"num_key_value_heads": 8}
QWEN = {"num_key_value_heads": 32, "max_window_layers": 28}
QWEN |= {"use_sliding_window": False, "sliding_window": 4096}
GEMMA = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256} | BIAS | LISTED
GEMMA |= {"query_pre_attn_scalar": 256, "sliding_window": 4096, "attn_logit_softcapping": None}
GEMMA_3 = {"sliding_window_pattern": 6, "rope_theta": 1e6, "rope_local_base_freq": 10_000.0}
PHI = {"sliding_window": None, "partial_rotary_factor": 1.0}
PHI |= {"original_max_position_embeddings": 4096}
GLM = {"head_dim": 128, "num_key_value_heads": 2}
GLM |= {"attention_bias": True, "partial_rotary_factor": 0.5}
YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0}
YARN |= {"truncate": False, "original_max_position_embeddings": 4096}
GPT_OSS = HEADS | LISTED | {"head_dim": 64, "sliding_window": 128, "attention_bias": True}
GPT_OSS |= {"rope_theta": 150_000.0, "rope_parameters": YARN}
LATENT = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "v_head_dim": 128}
LATENT |= {"qk_rope_head_dim": 64, "qk_head_dim": None, "rope_interleave": True} | BIAS
NEXT = {"head_dim": 256, "num_key_value_heads": 2, "partial_rotary_factor": 0.25} | BIAS | LISTED
NEXT |= {"full_attention_interval": 4, "linear_conv_kernel_dim": 4, "hidden_act": "silu"}
NEXT |= {"linear_num_value_heads": 32, "linear_num_key_heads": 16}
NEXT |= {"linear_key_head_dim": 128, "linear_value_head_dim": 128}
NORM, LESS_1 = {"norm": "head"}, {"norm": "head", "one_more": True}  # stored less 1
FAMILIES = {
    "llama": Family(BIAS, {}),
    "mistral": Family(HEADS | {"sliding_window": 4096}, {}, "window"),
    "mixtral": Family(HEADS | {"sliding_window": None, "rope_theta": 1e6}, {}, "window"),
    "qwen2": Family(QWEN | LISTED, {"bias": True, "out_bias": False}, "last windows"),
    "qwen3": Family(QWEN | LISTED | BIAS | {"head_dim": 128}, NORM, "last windows"),
    "qwen3_moe": Family(QWEN | BIAS | {"num_key_value_heads": 4}, NORM, "window"),
    "gemma2": Family(GEMMA | {"attn_logit_softcapping": 50.0}, {}, "some windows"),
    "gemma3_text": Family(GEMMA | GEMMA_3, LESS_1, "some windows", "sliding_window_pattern"),
    "phi3": Family(PHI, {}, "window"),
    "olmo2": Family(BIAS | {"rms_norm_eps": 1e-5}, {"norm": "all"}),
    "glm4": Family(GLM, {"out_bias": False, "pairing": "interleaved"}),
    "gpt_oss": Family(GPT_OSS, {"sinks": True}, "some windows"),
    "deepseek_v3": Family(LATENT, {"kind": "latent"}),
    "qwen3_next": Family(NEXT, LESS_1 | {"gate": True}, "some memories", "full_attention_interval"),
}
# Models that also take images → the family of their text, which stands in text_config.
OF_TEXT = {"gemma3": "gemma3_text", "mistral3": "mistral"}
# Models that have a name of their own, and the code of a family.
SAME = {"kimi_k2": "deepseek_v3"}
# Models, keys and rotations that are known, and why the parts cannot do them.
REFUSED = {
    **dict.fromkeys(("llama4", "llama4_text"), "it attends in chunks, and scales by position"),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), "its last layers read keys of earlier ones"),
    "ministral3": "it scales queries by their position",
    "cohere": "its QK-norm subtracts the mean, with other weights for each head",
    **dict.fromkeys(
        ("deepseek_v32", "glm_moe_dsa"), "its queries read only the keys that an indexer has chosen"
    ),
    "qwen3_5": "it counts the positions of images along three axes",
    "gemma4": "its full layers take their keys as values, and have other heads than its windows",
    "smollm3": "one layer of four does not know positions",
    "dual_chunk_attention_config": "it counts positions anew in each chunk of tokens",
    **dict.fromkeys(("longrope", "su", "dynamic"), "it turns cached keys anew as texts grow"),
    "attn_logit_softcapping": "it bends scores before the softmax, inside the operator",
    "attn_factor": "vLLM reads it and transformers does not; say attention_factor, or nothing",
}
# Keys that no family reads → the value with which they change nothing.
NEUTRAL = {"attention_dropout": 0.0, "pretraining_tp": 1, "partial_rotary_factor": 1.0}
NEUTRAL |= {"is_causal": True, "use_rope": True, "full_attn_mod": 1, "interpolate_factor": 1}
# Names of keys without a say in attention: text and tokens, MLPs and experts, training, storage.
NO_SAY = """
    _* model_type architectures auto_map name_or_path transformers* torch_dtype dtype vocab_size
    *_token_id* *_token_index intermediate_size hidden_act* initializer_range use_cache unsloth*
    cache_implementation tie_word_embeddings mlp_* final_logit_softcapping resid_pdrop embd_pdrop
    quantization_config output_attentions output_hidden_states return_dict problem_type id2label
    label2id is_llama_config ep_size chunk_size_feed_forward *expert* *router* moe_* swiglu_*
    n_group decoder_sparse_step seq_aux norm_topk_prob topk_group topk_method scoring_func
    aux_loss_alpha routed_scaling_factor first_k_dense_replace num_mtp_layers
    num_nextn_predict_layers initial_context_length
"""
# Which keys say the fields of a Layer, by its kind.
LATENT_KEYS = {"head_dim": "qk_nope_head_dim", "value_dim": "v_head_dim"}
LATENT_KEYS |= {"latent_dim": "kv_lora_rank", "query_latent_dim": "q_lora_rank"}
LATENT_KEYS |= {"rope_dim": "qk_rope_head_dim", "bias": "attention_bias"}
MEMORY_KEYS = {"heads": "linear_num_value_heads", "kv_heads": "linear_num_key_heads"}
MEMORY_KEYS |= {"head_dim": "linear_key_head_dim", "value_dim": "linear_value_head_dim"}
MEMORY_KEYS |= {"kernel_size": "linear_conv_kernel_dim", "norm_eps": "rms_norm_eps"}
KEYS = {"latent": LATENT_KEYS, "memory": MEMORY_KEYS}
KEYS |= {"attention": {"bias": "attention_bias", "softcap": "attn_logit_softcapping"}}


@dataclass(frozen=True)
class Layer:
    """What one layer of a model attends with, in plain numbers."""

    model: str  # the model_type
    index: int  # which layer it is, from 0
    kind: str  # "attention"; "latent": one narrow vector a token; "memory": the gated delta rule
    embed_dim: int  # width of a token
    heads: int  # query heads; of a memory, its states
    kv_heads: int  # heads of keys and values; of a memory, heads of queries and keys
    head_dim: int  # channels of a query and a key; in a latent layer those that do not turn
    value_dim: int
    scale: float  # factor on the scores
    bias: bool = False  # of the projections of queries, keys and values
    out_bias: bool = False
    rotation: Mapping | None = None  # what RotaryPositions takes as scaling
    pairing: str = "half"  # which channels turn together
    window: int | None = None  # how many tokens each sees, itself included; None: all before it
    softcap: float | None = None  # c, where scores s become c · tanh(s / c)
    norm: str | None = None  # of queries and keys: in each "head", or over "all" heads of a token
    norm_eps: float = 1e-6  # added to the mean square
    one_more: bool = False  # whether checkpoints hold the weights of these norms less 1
    sinks: bool = False  # whether each head has a learned sink
    gate: bool = False  # whether the output of each head is gated
    latent_dim: int = 0
    rope_dim: int = 0  # channels that turn, in a latent layer
    query_latent_dim: int | None = None
    kernel_size: int = 0  # tokens that the convolution before a memory sees

    def cache_bytes(self, tokens: int, element: int = 2) -> int:
        """Return the bytes to keep of so many tokens of a text for the next one.

        A window keeps one token less than it sees: the next one is its last. A memory keeps its
        state in float32, and what its convolution needs. `element`: bytes of a number; 2: bfloat16.
        """
        if self.kind == "memory":
            channels = 2 * self.kv_heads * self.head_dim + self.heads * self.value_dim
            state = self.heads * self.head_dim * self.value_dim
            return 4 * state + element * channels * (self.kernel_size - 1)
        each = self.latent_dim + self.rope_dim or self.kv_heads * (self.head_dim + self.value_dim)
        return element * each * (tokens if self.window is None else min(tokens, self.window - 1))


def attention_of(config: Mapping) -> list[Layer]:
    """Return what each layer of a model attends with.

    `config` is what json.load makes of its config.json; of a model with images, its text is read.
    """
    if config.get("model_type") in OF_TEXT and "text_config" in config:
        config = {"model_type": OF_TEXT[config["model_type"]]} | config["text_config"]
    model = SAME.get(config.get("model_type"), config.get("model_type"))
    if model not in FAMILIES:
        why = REFUSED.get(model, f"only {', '.join(FAMILIES)} can")
        raise ValueError(f"model_type {model!r} cannot be made of the parts: {why}")
    family = FAMILIES[model]
    settings = EVERY | family.defaults
    for key, value in config.items():
        if key in settings:
            settings[key] = settings[key] if value is None and key not in NULL.split() else value
        elif not _changes_nothing(key, value, config):
            why = REFUSED.get(key, "leave it out if it does not")
            what = f"{key}={value!r} may change the attention of {model}; {why}"
            raise ValueError(f"config must have keys that attention_of knows: {what}")
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
        if not settings[key]:
            raise ValueError(f"config must have a {key} of 1 or more, got {settings[key]!r}")
    kinds = enumerate(_kinds(settings, family))
    return [Layer(model, index, **_facts(kind, settings, family)) for index, kind in kinds]


def _changes_nothing(key: str, value, config: Mapping) -> bool:
    """Whether a key that the family does not read leaves its attention as it is."""
    neutral = NEUTRAL | {"sliding_window_size": config.get("sliding_window")}
    if key in neutral:
        return value in (None, neutral[key])
    # A switch that is off, a number of nothing, an empty list; or a name of something else.
    return not value or any(fnmatchcase(key, name) for name in NO_SAY.split())


def _kinds(settings: Mapping, family: Family) -> list[str]:
    """Return which kind each layer is: FULL, WINDOW or MEMORY."""
    count = settings["num_hidden_layers"]
    other = MEMORY if family.kinds == "some memories" else WINDOW
    window = settings.get("use_sliding_window", True) and settings.get("sliding_window")
    if family.kinds.startswith("some"):
        each = settings.get(family.each, family.each)
        kinds = [other if (index + 1) % each else FULL for index in range(count)]
    else:
        first = settings["max_window_layers"] if family.kinds == "last windows" else 0
        kinds = [other if window and index >= first else FULL for index in range(count)]
    kinds = settings.get("layer_types") or kinds
    if len(kinds) != count or not set(kinds) <= {FULL, other}:
        raise ValueError(f"layer_types must be {count} of {FULL} and {other}, got {kinds!r}")
    if WINDOW in kinds and not window:
        raise ValueError(f"sliding_window must be a number, and in use, for {WINDOW}")
    return kinds


def _rotation(kind: str, settings: Mapping) -> dict:
    """Return what RotaryPositions takes as scaling, in layers of this kind."""
    given = settings["rope_scaling"] or settings["rope_parameters"] or {}
    theta, apart = settings["rope_theta"], bool({FULL, WINDOW} & given.keys())
    if kind == WINDOW and "rope_local_base_freq" in settings:  # Gemma 3's windows turn otherwise
        theta, given = settings["rope_local_base_freq"], given if apart else {}
    share = settings.get("partial_rotary_factor", 1.0)
    scaling = {"rope_theta": theta, "partial_rotary_factor": share}
    scaling |= (given.get(kind) or {}) if apart else given
    scaling = {"rope_type": scaling.pop("type", "default")} | scaling  # its older name
    if scaling["partial_rotary_factor"] != 1.0 and "partial_rotary_factor" not in settings:
        raise ValueError(f"partial_rotary_factor must be 1.0 for this model, got {scaling!r}")
    if scaling["rope_type"] in ("llama3", "yarn", "longrope"):
        name = "original_max_position_embeddings"
        scaling[name] = settings[name] or scaling.get(name, settings["max_position_embeddings"])
        if not scaling[name]:
            raise ValueError(f"config must have {name} in its rope_scaling, got {given!r}")
    return scaling


def _facts(kind: str, settings: Mapping, family: Family) -> dict:
    """Return the fields of a Layer, but for the model and the index."""
    width, heads = settings["hidden_size"], settings["num_attention_heads"]
    kv_heads, head_dim = settings["num_key_value_heads"] or heads, settings["head_dim"]
    what = "memory" if kind == MEMORY else family.always.get("kind", "attention")
    facts = {"kind": what, "embed_dim": width, "heads": heads, "kv_heads": kv_heads}
    facts |= {name: settings[key] for name, key in KEYS[what].items() if key in settings}
    if what == "memory":
        if settings["hidden_act"] != "silu":
            raise ValueError(f"hidden_act must be 'silu', got {settings['hidden_act']!r}")
        return facts | {"scale": facts["head_dim"] ** -0.5}
    rotation = facts["rotation"] = _rotation(kind, settings)
    if what == "latent":
        # A stretched rotation multiplies the scores of all channels, those that do not turn, too.
        factor, all_dim = rotation.get("factor", 1.0), rotation.get("mscale_all_dim") or 0.0
        stretched = 0.1 * all_dim * log(factor) + 1 if rotation["rope_type"] == "yarn" else 1.0
        facts["scale"] = (facts["head_dim"] + facts["rope_dim"]) ** -0.5 * stretched**2
        pairing = "interleaved" if settings["rope_interleave"] else "half"
        facts |= {"kv_heads": heads, "pairing": pairing}
    else:
        if heads % kv_heads or (head_dim is None and width % heads):
            sizes = f"num_key_value_heads={kv_heads}, hidden_size={width}, head_dim={head_dim}"
            raise ValueError(f"num_attention_heads={heads} must fit {sizes}")
        facts["head_dim"] = facts["value_dim"] = head_dim or width // heads
        facts["scale"] = settings.get("query_pre_attn_scalar", facts["head_dim"]) ** -0.5
        facts["window"] = settings["sliding_window"] if kind == WINDOW else None
        facts["norm_eps"] = settings["rms_norm_eps"] if "norm" in family.always else 1e-6
    return facts | {"out_bias": facts.get("bias", False)} | family.always


def layer_of(layer: Layer, **parts: Callable) -> nn.Module:
    """Return a layer, of the book's parts, that does what the description says.

    It has the weights that it starts with; weights_of has those of a checkpoint. Of the parts it
    takes those that it needs: rotary=RotaryPositions, grouped=GroupedQueryAttention,
    window=Windowed, latent=LatentAttention, delta=GatedDeltaNet and its memory=gated_memory.
    """
    sizes = {"head_dim": layer.head_dim}
    if layer.kind == "memory":
        sizes |= {"num_key_heads": layer.kv_heads, "value_dim": layer.value_dim}
        sizes |= {"kernel_size": layer.kernel_size, "eps": layer.norm_eps}
        return parts["delta"](layer.embed_dim, layer.heads, memory=parts["memory"], **sizes)
    softcap = ["attn_logit_softcapping"] if layer.softcap else []
    for name in (*softcap, layer.rotation["rope_type"], *layer.rotation):
        if name in REFUSED:
            raise ValueError(f"{layer.model} cannot be made of the parts: {name}: {REFUSED[name]}")
    turned = layer.rope_dim or layer.head_dim
    rotate = parts["rotary"](turned, pairing=layer.pairing, scaling=layer.rotation)
    sizes |= {"rotate": rotate, "scale": layer.scale, "bias": layer.bias}
    if layer.kind == "latent":
        sizes |= {"latent_dim": layer.latent_dim, "query_latent_dim": layer.query_latent_dim}
        sizes |= {"rope_dim": layer.rope_dim, "value_dim": layer.value_dim}
        return parts["latent"](layer.embed_dim, layer.heads, **sizes)
    sizes |= {"num_kv_heads": layer.kv_heads, "out_bias": layer.out_bias, "sinks": layer.sinks}
    sizes |= {"gate": layer.gate, "qk_norm": layer.norm == "head"}
    attention = parts["grouped"](layer.embed_dim, layer.heads, **sizes)
    if layer.norm == "head":
        attention.query_norm.eps = attention.key_norm.eps = layer.norm_eps
    if layer.norm == "all":  # a projection is only ever called, so a norm may follow it
        for name in ("W_query", "W_key"):
            project = getattr(attention, name)
            norm = nn.RMSNorm(project.out_features, eps=layer.norm_eps)
            setattr(attention, name, nn.Sequential(project, norm))
    return attention if layer.window is None else parts["window"](attention, layer.window)


# Names in transformers → here, where they differ.
NAMES = {"q_proj": "W_query", "k_proj": "W_key", "v_proj": "W_value", "o_proj": "out_proj"}
NAMES |= {"q_norm": "query_norm", "k_norm": "key_norm", "q_a_layernorm": "query_norm"}
NAMES |= {"q_a_proj": "W_query_latent", "q_b_proj": "W_query", "kv_a_layernorm": "latent_norm"}
NAMES |= {"conv1d": "convolution", "A_log": "log_rate", "dt_bias": "decay_bias"}
OF_ALL = {"q_proj": "W_query.0", "q_norm": "W_query.1"}  # where a norm follows the projection
OF_ALL |= {"k_proj": "W_key.0", "k_norm": "W_key.1"}


def weights_of(layer: Layer, weights: Mapping[str, Tensor], prefix: str | None = None) -> dict:
    """Return the weights of one layer under the names that layer_of's has, for load_state_dict.

    `weights` is a checkpoint of transformers, or a part of it. `prefix` stands before the names of
    this layer; None: model.layers.<index>.self_attn. or .linear_attn. A name that is not known
    stays as it is, so that load_state_dict refuses it.
    """
    name = "linear_attn" if layer.kind == "memory" else "self_attn"
    prefix = f"model.layers.{layer.index}.{name}." if prefix is None else prefix
    names = NAMES | (OF_ALL if layer.norm == "all" else {})
    packed, ours = _packed(layer), {}
    for name in (name for name in weights if name.startswith(prefix)):
        module, dot, kind = name.removeprefix(prefix).partition(".")
        if module in packed:
            groups, widths = packed[module]
            split = weights[name].unflatten(0, (groups, -1)).split([*widths.values()], dim=1)
            rows = zip(widths, split, strict=True)
            ours |= {f"{own}.{kind}": part.flatten(0, 1) for own, part in rows}
        else:
            more = 1 if layer.one_more and module in ("q_norm", "k_norm") else 0
            ours[names.get(module, module) + dot + kind] = weights[name] + more
    return ours if layer.window is None else {f"attention.{name}": ours[name] for name in ours}


def _packed(layer: Layer) -> dict[str, tuple[int, dict[str, int]]]:
    """Return the modules that are several here: of how many groups, and the rows of each in one."""
    key, value, share = layer.head_dim, layer.value_dim, layer.heads // layer.kv_heads
    whole = {"W_query": layer.heads * key, "W_key": layer.kv_heads * key}
    whole |= {"W_value": layer.kv_heads * value}
    memory = {"W_query": key, "W_key": key, "W_value": share * value, "W_gate": share * value}
    packed = {
        "qkv_proj": (1, whole),
        "kv_a_proj_with_mqa": (1, {"W_latent": layer.latent_dim, "W_rope_key": layer.rope_dim}),
        "kv_b_proj": (layer.heads, {"W_key": key, "W_value": value}),
        "in_proj_qkvz": (layer.kv_heads, memory),
        "in_proj_ba": (layer.kv_heads, {"W_beta": share, "W_decay": share}),
    }
    gated = {"q_proj": (layer.heads, {"W_query": key, "W_gate": key})}
    return packed | gated if layer.gate else packed
