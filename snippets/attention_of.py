"""From the config.json of a model to its attention: what each layer is, what it keeps, and a layer.

    layers = attention_of(json.load(open("config.json")))    # a description of each layer
    layers[0].cache_bytes(8192)                               # for 8,192 tokens, in bfloat16
    attention = layer_of(layers[0], *parts)                   # a layer, of the book's parts
    attention.load_state_dict(weights_of(layers[0], weights))  # with the weights of a checkpoint

The book's parts are handed in: RotaryPositions, GroupedQueryAttention, GatedAttention,
LatentAttention, GatedDeltaNet and keep_window, or those of them that a model needs.

Every key of a configuration is read, or is on a list of those that have no say in attention. A key
that is neither is an error, and so is a setting that no part can do.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: the configurations and the names of weights are those of Hugging Face's public code, and so
is what a model does where its config.json says nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any

import torch
from torch import Tensor, nn

# What a config.json says that has no say in attention.
NO_SAY = """
    model_type architectures auto_map _name_or_path name_or_path transformers_version torch_dtype
    dtype vocab_size intermediate_size hidden_act hidden_activation initializer_range rms_norm_eps
    use_cache cache_implementation tie_word_embeddings mlp_bias max_position_embeddings
    original_max_position_embeddings final_logit_softcapping bos_token_id eos_token_id pad_token_id
    resid_pdrop embd_pdrop quantization_config output_attentions output_hidden_states
    output_router_logits return_dict problem_type id2label label2id chunk_size_feed_forward
    is_encoder_decoder
    num_experts num_local_experts num_experts_per_tok experts_per_token moe_intermediate_size
    shared_expert_intermediate_size decoder_sparse_step mlp_only_layers norm_topk_prob
    router_aux_loss_coef router_jitter_noise swiglu_limit swiglu_alpha n_routed_experts
    n_shared_experts n_group topk_group topk_method scoring_func routed_scaling_factor
    first_k_dense_replace moe_layer_freq ep_size aux_loss_alpha seq_aux num_mtp_layers
    num_nextn_predict_layers initial_context_length
"""
# Keys that change attention, and the value with which they change nothing.
CHANGES_NOTHING = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "pretraining_tp": 1,
    "use_bidirectional_attention": False,
}


@dataclass(frozen=True)
class Family:
    """How the models of one model_type attend, where their config.json does not say it."""

    # What transformers takes where the key is missing.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    base: float = 10_000.0  # of the rotation
    window_base: float | None = None  # of the rotation in layers with a window; None: the same
    kinds: str = "full"  # or "window", "last windows", "some windows", "some memories"
    each: int = 0  # which layers of a mixture are full: each 2nd, 4th, 6th
    each_key: str = ""  # the key that says so
    bias: bool | None = None  # of query, key and value; None: as attention_bias says
    out_bias: bool | None = None  # of the output; None: as the others
    norm: str | None = None  # of queries and keys: in each "head", or over "all" heads of a token
    one_more: bool = False  # whether the norms' weights are stored less 1
    scaled_by: str | None = None  # the key whose -1/2nd power is the scale; None: the head's width
    sinks: bool = False
    gate: bool = False
    pairing: str = "half"


QWEN = {"num_key_value_heads": 32, "max_window_layers": 28}
QWEN |= {"use_sliding_window": False, "sliding_window": 4096}
GEMMA = {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096}
FAMILIES = {
    "llama": Family(),
    "mistral": Family(
        {"num_key_value_heads": 8, "sliding_window": 4096}, kinds="window", bias=False
    ),
    "mixtral": Family({"num_key_value_heads": 8}, kinds="window", bias=False),
    "qwen2": Family(
        QWEN,
        kinds="last windows",
        bias=True,
        out_bias=False,
    ),
    "qwen3": Family(QWEN | {"head_dim": 128}, kinds="last windows", norm="head"),
    "qwen3_moe": Family(QWEN | {"num_key_value_heads": 4}, kinds="window", norm="head"),
    "gemma2": Family(
        GEMMA | {"attn_logit_softcapping": 50.0},
        kinds="some windows",
        each=2,
        scaled_by="query_pre_attn_scalar",
    ),
    "gemma3_text": Family(
        GEMMA | {"num_attention_heads": 8, "num_key_value_heads": 4},
        base=1_000_000.0,
        window_base=10_000.0,
        kinds="some windows",
        each=6,
        each_key="sliding_window_pattern",
        norm="head",
        one_more=True,
        scaled_by="query_pre_attn_scalar",
    ),
    "phi3": Family({"partial_rotary_factor": 1.0}, kinds="window", bias=False),
    "olmo2": Family({"rms_norm_eps": 1e-5}, norm="all"),
    "glm4": Family(
        {
            "head_dim": 128,
            "num_key_value_heads": 2,
            "attention_bias": True,
            "partial_rotary_factor": 0.5,
        },
        out_bias=False,
        pairing="interleaved",
    ),
    "gpt_oss": Family(
        {
            "head_dim": 64,
            "num_key_value_heads": 8,
            "sliding_window": 128,
            "attention_bias": True,
        },
        base=150_000.0,
        kinds="some windows",
        each=2,
        sinks=True,
    ),
    "deepseek_v3": Family(pairing="interleaved"),
    "qwen3_next": Family(
        {"head_dim": 256, "num_key_value_heads": 2, "partial_rotary_factor": 0.25},
        kinds="some memories",
        each=4,
        each_key="full_attention_interval",
        norm="head",
        one_more=True,
        gate=True,
    ),
}
# Models that are known, and what they do that these layers do not.
REFUSED = {
    "llama4": "it attends within chunks of tokens, and scales queries by their position",
    "cohere": "its QK-norm subtracts the mean, with other weights for each head",
    "gemma3n": "its last layers read the keys and values of earlier ones",
    "deepseek_v32": "its queries read only the keys that an indexer has chosen",
}


@dataclass(frozen=True)
class Layer:
    """What one layer of a model attends with, in plain numbers.

    Attributes:
        model: the model_type.
        index: which layer it is, from 0.
        kind: "attention"; "latent", which keeps one narrow vector a token; or "memory", a state of
            fixed size, the gated delta rule.
        embed_dim: width of a token.
        heads: query heads; of a memory, its states.
        kv_heads: heads of keys and values; of a memory, heads of queries and keys.
        head_dim: channels of a query and a key; in a latent layer those that know no position.
        value_dim: channels of a value.
        scale: factor on the scores.
        bias, out_bias: whether the projections of queries, keys and values have one, and out_proj.
        rotation: what RotaryPositions takes as scaling, with its base, rope_theta, and the share of
            the channels that turn, partial_rotary_factor; None: no rotation.
        pairing: which channels turn together.
        window: how many tokens each sees, itself included; None: all before it.
        softcap: c, where scores s become c · tanh(s / c); None: as they are.
        norm: whether queries and keys are divided by their root mean square, in each "head", or
            over "all" heads of a token.
        norm_eps: added to the mean square.
        one_more: whether checkpoints hold the weights of these norms less 1.
        sinks, gate: whether each head has a learned sink, and whether its output is gated.
        latent_dim, rope_dim, query_latent_dim: widths of a latent layer.
        kernel_size: tokens that the convolution before a memory sees.
    """

    model: str
    index: int
    kind: str
    embed_dim: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    scale: float
    bias: bool = False
    out_bias: bool = False
    rotation: Mapping[str, Any] | None = None
    pairing: str = "half"
    window: int | None = None
    softcap: float | None = None
    norm: str | None = None
    norm_eps: float = 1e-6
    one_more: bool = False
    sinks: bool = False
    gate: bool = False
    latent_dim: int = 0
    rope_dim: int = 0
    query_latent_dim: int | None = None
    kernel_size: int = 0

    @property
    def per_token(self) -> int:
        """Numbers that are kept of each token."""
        if self.kind == "memory":
            return 0
        if self.kind == "latent":
            return self.latent_dim + self.rope_dim
        return self.kv_heads * (self.head_dim + self.value_dim)

    def cache_bytes(self, tokens: int, element: int = 2) -> int:
        """Return the bytes that must be kept of so many tokens for the next one, for one text.

        A window needs those of its size less one, since the next token brings its own. A memory
        keeps its state in float32, and what its convolution needs of the last tokens.

        Args:
            tokens: how many were read.
            element: bytes of a number; 2 are bfloat16.
        """
        if self.kind == "memory":
            channels = 2 * self.kv_heads * self.head_dim + self.heads * self.value_dim
            state = self.heads * self.head_dim * self.value_dim
            return 4 * state + element * channels * (self.kernel_size - 1)
        held = tokens if self.window is None else min(tokens, self.window - 1)
        return held * self.per_token * element


class Settings:
    """A configuration that knows which of its keys were read."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.config, self.defaults, self.read = config, defaults, set[str]()

    def __call__(self, key: str, otherwise: Any = None) -> Any:
        """Return what the configuration says, or `otherwise` where it says null.

        A key that is missing has the default of the family, or is the same as null.
        """
        self.read.add(key)
        value = self.config.get(key) if key in self.config else self.defaults.get(key)
        return otherwise if value is None else value

    def size(self, key: str, otherwise: int | None = None) -> int:
        """Return a positive integer; without it there is nothing to describe."""
        value = self(key, otherwise)
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{key} must be a positive integer, got {value!r}")
        return value

    def refuse_unread(self) -> None:
        """Raise ValueError where a key was neither read nor is known to have no say."""
        model = self.config["model_type"]
        for key, value in self.config.items():
            if value is None or key in self.read or key in NO_SAY.split():
                continue
            if key not in CHANGES_NOTHING:
                raise ValueError(
                    f"config must have keys that attention_of knows: {key}={value!r} may change "
                    f"the attention of {model}; leave it out if it does not"
                )
            if value != CHANGES_NOTHING[key]:
                raise ValueError(
                    f"{key} must be {CHANGES_NOTHING[key]!r} for {model}, got {value!r}"
                )


def attention_of(config: Mapping[str, Any]) -> list[Layer]:
    """Return what each layer of the model attends with.

    Args:
        config: what json.load makes of a model's config.json. Of a model that also takes images,
            the part about text is read.

    Raises:
        ValueError: naming the model, the key and what is wrong with it.
    """
    if not isinstance(config, Mapping):
        raise ValueError(
            f"config must be a mapping, as json.load makes it, got {type(config).__name__}"
        )
    if config.get("model_type") == "gemma3" and "text_config" in config:
        config = {"model_type": "gemma3_text"} | config["text_config"]
    model = config.get("model_type")
    if model in REFUSED:
        raise ValueError(f"model_type {model!r} cannot be made of the parts: {REFUSED[model]}")
    if model not in FAMILIES:
        raise ValueError(f"model_type must be one of {', '.join(FAMILIES)}, got {model!r}")
    family = FAMILIES[model]
    settings = Settings(config, family.defaults)
    describe = _latent if model == "deepseek_v3" else _attention
    kinds = _kinds(settings, family)
    rotations = _rotations(settings, family)
    layers = [
        _memory(model, index, settings)
        if kind == "linear_attention"
        else describe(model, index, kind, settings, family, rotations)
        for index, kind in enumerate(kinds)
    ]
    settings.refuse_unread()
    return layers


def _kinds(settings: Settings, family: Family) -> list[str]:
    """Return "full_attention", "sliding_attention" or "linear_attention" for each layer."""
    count, kind = settings.size("num_hidden_layers"), family.kinds
    other = "linear_attention" if kind == "some memories" else "sliding_attention"
    used = "window" in kind and settings("sliding_window") is not None
    if "use_sliding_window" in family.defaults:
        used = settings("use_sliding_window") and used
        settings("max_window_layers")
    if kind in ("full", "window"):  # these configurations have no list of kinds
        return [other if used else "full_attention"] * count
    if kind == "last windows":
        first = settings("max_window_layers") if used else count
        kinds = ["full_attention" if index < first else other for index in range(count)]
    else:
        key = family.each_key  # which transformers writes with an underscore in front
        each = settings(key, settings(f"_{key}", family.each)) if key else family.each
        kinds = [other if (index + 1) % each else "full_attention" for index in range(count)]
    kinds = settings("layer_types", kinds)
    if len(kinds) != count or not set(kinds) <= {"full_attention", other}:
        raise ValueError(
            f"layer_types must be {count} of full_attention and {other}, got {kinds!r}"
        )
    if "sliding_attention" in kinds and not used:
        raise ValueError("sliding_window must be a number, and in use, for sliding_attention")
    return list(kinds)


def _rotations(settings: Settings, family: Family) -> dict[str, dict[str, Any]]:
    """Return what RotaryPositions takes as scaling, for layers with a window and for others."""
    old, new = settings("rope_scaling"), settings("rope_parameters")
    if old and new:
        raise ValueError("config must have rope_scaling or rope_parameters, got both")
    given = old or new or {}
    full, window = "full_attention", "sliding_attention"
    if not {full, window} & given.keys():  # one for all, which in Gemma 3 is for full layers alone
        given = {full: given, window: given if family.window_base is None else {}}
    bases = {full: settings("rope_theta", family.base)}
    bases[window] = bases[full]
    if family.window_base is not None:
        bases[window] = settings("rope_local_base_freq", family.window_base)
    share = settings("partial_rotary_factor", 1.0)
    trained = settings("original_max_position_embeddings", settings("max_position_embeddings"))
    rotations = {}
    for kind in (full, window):
        scaling = {"rope_theta": bases[kind], "partial_rotary_factor": share}
        scaling |= given.get(kind) or {}
        turned = scaling["partial_rotary_factor"]
        if turned != 1.0 and "partial_rotary_factor" not in family.defaults:
            raise ValueError(
                f"partial_rotary_factor must be 1.0 for {settings('model_type')}, got {turned!r}"
            )
        scaling["rope_type"] = scaling.pop("type", scaling.get("rope_type", "default"))
        if scaling["rope_type"] in ("llama3", "yarn"):
            scaling.setdefault("original_max_position_embeddings", trained)
        rotations[kind] = scaling
    return rotations


def _attention(
    model: str,
    index: int,
    kind: str,
    settings: Settings,
    family: Family,
    rotations: dict[str, dict[str, Any]],
) -> Layer:
    """Describe a layer of softmax attention."""
    embed_dim, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    head_dim = settings("head_dim")
    if head_dim is None and embed_dim % heads:
        raise ValueError(f"num_attention_heads={heads} must divide hidden_size={embed_dim}")
    head_dim = settings.size("head_dim", embed_dim // heads)
    kv_heads = settings.size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise ValueError(f"num_key_value_heads={kv_heads} must divide {heads}, the query heads")
    bias = settings("attention_bias", False) if family.bias is None else family.bias
    width = head_dim if family.scaled_by is None else settings(family.scaled_by, head_dim)
    softcap = settings("attn_logit_softcapping") if model.startswith("gemma") else None
    return Layer(
        model,
        index,
        "attention",
        embed_dim,
        heads,
        kv_heads,
        head_dim,
        head_dim,
        width**-0.5,
        bias=bias,
        out_bias=bias if family.out_bias is None else family.out_bias,
        rotation=rotations[kind],
        pairing=family.pairing,
        window=settings.size("sliding_window") if kind == "sliding_attention" else None,
        softcap=softcap,
        norm=family.norm,
        norm_eps=settings("rms_norm_eps", 1e-6),
        one_more=family.one_more,
        sinks=family.sinks,
        gate=family.gate,
    )


def _latent(
    model: str,
    index: int,
    kind: str,
    settings: Settings,
    family: Family,
    rotations: dict[str, dict[str, Any]],
) -> Layer:
    """Describe a layer of latent attention."""
    heads, head_dim = settings.size("num_attention_heads"), settings.size("qk_nope_head_dim")
    if settings("num_key_value_heads", heads) != heads:
        raise ValueError(f"num_key_value_heads must be {heads}, as many as query heads")
    rope_dim, scaling = settings.size("qk_rope_head_dim"), dict(rotations[kind])
    # A stretched rotation multiplies the scores of all channels, those that do not turn, too.
    factor, all_dim = scaling.get("factor", 1.0), scaling.get("mscale_all_dim") or 0.0
    stretched = 0.1 * all_dim * log(factor) + 1 if scaling["rope_type"] == "yarn" else 1.0
    # Two that transformers writes, and that say nothing new.
    for key, width in (("head_dim", rope_dim), ("qk_head_dim", head_dim + rope_dim)):
        if settings(key, width) != width:
            raise ValueError(f"{key} must be {width} for {model}, got {settings(key)!r}")
    return Layer(
        model,
        index,
        "latent",
        settings.size("hidden_size"),
        heads,
        heads,
        head_dim,
        settings.size("v_head_dim"),
        (head_dim + rope_dim) ** -0.5 * stretched**2,
        bias=settings("attention_bias", False),
        out_bias=settings("attention_bias", False),
        rotation=scaling,
        pairing="interleaved" if settings("rope_interleave", True) else "half",
        latent_dim=settings.size("kv_lora_rank"),
        rope_dim=rope_dim,
        query_latent_dim=settings("q_lora_rank"),
    )


def _memory(model: str, index: int, settings: Settings) -> Layer:
    """Describe a layer with the gated delta rule."""
    if settings("hidden_act", "silu") != "silu":
        raise ValueError(f"hidden_act must be 'silu' for {model}, got {settings('hidden_act')!r}")
    head_dim = settings.size("linear_key_head_dim", 128)
    return Layer(
        model,
        index,
        "memory",
        settings.size("hidden_size"),
        settings.size("linear_num_value_heads", 32),
        settings.size("linear_num_key_heads", 16),
        head_dim,
        settings.size("linear_value_head_dim", 128),
        head_dim**-0.5,
        norm_eps=settings("rms_norm_eps", 1e-6),
        kernel_size=settings.size("linear_conv_kernel_dim", 4),
    )


class Windowed(nn.Module):
    """Attention in which a token sees the last `window` tokens alone, by a mask.

    With a KVCache everything is kept, and what lies outside of the window is masked. A cache that
    drops what no later token sees does, too, if positions are given.

    Args:
        attention: a layer that takes positions, attn_mask and cache.
        window: how many tokens each sees, itself included.
        keep_window: makes the mask, called with the window, the queries and the keys.
    """

    def __init__(
        self, attention: nn.Module, window: int, keep_window: Callable[..., Tensor]
    ) -> None:
        super().__init__()
        self.attention, self.window, self.keep_window = attention, window, keep_window

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        """(batch, T, embed_dim) → the same; attn_mask is boolean, and must hold besides."""
        past = 0 if cache is None else cache.length
        keep = self.keep_window(self.window, x.size(1), past + x.size(1), device=x.device)
        if attn_mask is not None:
            if attn_mask.dtype != torch.bool:
                raise ValueError(f"attn_mask must be boolean, got {attn_mask.dtype}")
            keep = keep & attn_mask
        return self.attention(x, positions=positions, attn_mask=keep, cache=cache)


def layer_of(layer: Layer, *parts: Callable[..., Any]) -> nn.Module:
    """Return a layer, of the book's parts, that does what the description says.

    It has the weights that it starts with; weights_of has those of a checkpoint.

    Args:
        layer: one of attention_of.
        parts: the classes and functions of the book, of which it takes what it needs.

    Raises:
        ValueError: the part that is missing, or what the model does that no part can do.
    """
    named = {part.__name__: part for part in parts}

    def part(name: str) -> Callable[..., Any]:
        if name not in named:
            raise ValueError(f"parts must hold {name} for {layer.model}, got {sorted(named)}")
        return named[name]

    if layer.softcap is not None:
        raise ValueError(
            f"{layer.model} cannot be made of the parts: attn_logit_softcapping={layer.softcap} "
            "bends the scores before the softmax, inside the operator that the parts call"
        )
    if layer.kind == "memory":
        return part("GatedDeltaNet")(
            layer.embed_dim,
            layer.heads,
            num_key_heads=layer.kv_heads,
            head_dim=layer.head_dim,
            value_dim=layer.value_dim,
            kernel_size=layer.kernel_size,
            eps=layer.norm_eps,
        )
    rotate = _rotate(layer, part("RotaryPositions"))
    if layer.kind == "latent":
        return part("LatentAttention")(
            layer.embed_dim,
            layer.heads,
            latent_dim=layer.latent_dim,
            head_dim=layer.head_dim,
            rope_dim=layer.rope_dim,
            value_dim=layer.value_dim,
            query_latent_dim=layer.query_latent_dim,
            bias=layer.bias,
            rotate=rotate,
            scale=layer.scale,
        )
    sizes = {"num_kv_heads": layer.kv_heads, "head_dim": layer.head_dim, "bias": layer.bias}
    sizes |= {"rotate": rotate, "qk_norm": layer.norm == "head"}
    if layer.sinks or layer.gate:  # by the scale and the biases that GatedAttention has anyhow
        make, more = part("GatedAttention"), {"sinks": layer.sinks, "gate": layer.gate}
    else:
        make, more = part("GroupedQueryAttention"), {"out_bias": layer.out_bias}
        more["scale"] = layer.scale
    attention = make(layer.embed_dim, layer.heads, **sizes, **more)
    if layer.norm == "head":
        attention.query_norm.eps = attention.key_norm.eps = layer.norm_eps
    if layer.norm == "all":  # a projection is only ever called, so a norm may follow it
        for name in ("W_query", "W_key"):
            project = getattr(attention, name)
            norm = nn.RMSNorm(project.out_features, eps=layer.norm_eps)
            setattr(attention, name, nn.Sequential(project, norm))
    if layer.window is None:
        return attention
    return Windowed(attention, layer.window, part("keep_window"))


ROTATIONS = ("default", "linear", "llama3", "yarn")  # what RotaryPositions knows


def _rotate(layer: Layer, make: Callable[..., Any]) -> Any:
    """Return what turns queries and keys."""
    scaling = dict(layer.rotation or {})
    if (kind := scaling.get("rope_type", "default")) not in ROTATIONS:
        why = "no part has this rotation"
        if kind in ("longrope", "su", "dynamic"):
            why = (
                "it turns the keys of a long text by other angles than those of a short one, and "
                "a cached key was turned before the length was known"
            )
        raise ValueError(f"{layer.model} cannot be made of the parts: rope_type={kind!r}, {why}")
    width = layer.rope_dim or layer.head_dim
    return make(width, pairing=layer.pairing, scaling=scaling)


# A module's name in transformers, and here.
NAMES = {
    "q_proj": "W_query",
    "k_proj": "W_key",
    "v_proj": "W_value",
    "o_proj": "out_proj",
    "q_norm": "query_norm",
    "k_norm": "key_norm",
    "q_a_proj": "W_query_latent",
    "q_a_layernorm": "query_norm",
    "q_b_proj": "W_query",
    "kv_a_layernorm": "latent_norm",
    "conv1d": "convolution",
    "norm": "norm",
    "out_proj": "out_proj",
}
PARAMETERS = {"sinks": "sinks", "A_log": "log_rate", "dt_bias": "decay_bias"}
# Modules whose rows are those of several here.
PACKED = {"qkv_proj", "kv_a_proj_with_mqa", "kv_b_proj", "in_proj_qkvz", "in_proj_ba"}


def weights_of(
    layer: Layer, weights: Mapping[str, Tensor], prefix: str | None = None
) -> dict[str, Tensor]:
    """Return the weights of one layer under the names that layer_of's has, for load_state_dict.

    Args:
        layer: one of attention_of.
        weights: a checkpoint of transformers, or a part of it, by its names.
        prefix: what stands before the names of this layer; None: model.layers.<index>.self_attn. or
            .linear_attn.

    Raises:
        ValueError: there is none with this prefix, or one that this layer has no use for.
    """
    if prefix is None:
        name = "linear_attn" if layer.kind == "memory" else "self_attn"
        prefix = f"model.layers.{layer.index}.{name}."
    theirs = {name: weights[name] for name in weights if name.startswith(prefix)}
    if not theirs:
        raise ValueError(f"weights must have names that begin with {prefix}, got {len(weights)}")
    ours: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        module, _, kind = name.removeprefix(prefix).rpartition(".")
        if not module and kind in PARAMETERS:
            ours[PARAMETERS[kind]] = tensor
        elif module in PACKED or (module == "q_proj" and layer.gate):
            ours |= {f"{own}.{kind}": part for own, part in _unpacked(layer, module, tensor)}
        elif module in NAMES:
            more = 1 if layer.one_more and module in ("q_norm", "k_norm") else 0
            ours[f"{NAMES[module]}.{kind}"] = tensor + more
        else:
            raise ValueError(f"weights must be those of a layer of {layer.model}, got {name}")
    if layer.norm == "all":  # the norm that follows a projection
        for own, norm in (("W_query", "query_norm"), ("W_key", "key_norm")):
            for kind in ("weight", "bias"):
                if f"{own}.{kind}" in ours:
                    ours[f"{own}.0.{kind}"] = ours.pop(f"{own}.{kind}")
            ours[f"{own}.1.weight"] = ours.pop(f"{norm}.weight")
    return ours if layer.window is None else {f"attention.{n}": ours[n] for n in ours}


def _unpacked(layer: Layer, module: str, rows: Tensor) -> list[tuple[str, Tensor]]:
    """Return the projections of which the rows of one module are put together."""
    if module == "qkv_proj":  # all queries, all keys, all values
        keys, values = layer.kv_heads * layer.head_dim, layer.kv_heads * layer.value_dim
        parts = rows.split([layer.heads * layer.head_dim, keys, values])
        return list(zip(("W_query", "W_key", "W_value"), parts, strict=True))
    if module == "kv_a_proj_with_mqa":  # the latent, and the key that turns
        parts = rows.split([layer.latent_dim, layer.rope_dim])
        return list(zip(("W_latent", "W_rope_key"), parts, strict=True))
    if module == "q_proj":  # for each head its query, and its gate
        groups, widths = layer.heads, [layer.head_dim, layer.head_dim]
        names = ["W_query", "W_gate"]
    elif module == "kv_b_proj":  # for each head its key, and its value
        groups, widths = layer.heads, [layer.head_dim, layer.value_dim]
        names = ["W_key", "W_value"]
    elif module == "in_proj_qkvz":  # for each head of keys: query, key, values and their gates
        values = layer.heads // layer.kv_heads * layer.value_dim
        groups, widths = layer.kv_heads, [layer.head_dim, layer.head_dim, values, values]
        names = ["W_query", "W_key", "W_value", "W_gate"]
    else:  # in_proj_ba, for each head of keys: beta and decay of its states
        groups, widths = layer.kv_heads, [layer.heads // layer.kv_heads] * 2
        names = ["W_beta", "W_decay"]
    parts = rows.unflatten(0, (groups, sum(widths))).split(widths, dim=1)
    return [(name, part.flatten(0, 1)) for name, part in zip(names, parts, strict=True)]
