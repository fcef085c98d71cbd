"""A Llama: the language model that many open models descend from, in one file.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Touvron et al. (2023), "LLaMA: Open and Efficient Foundation Language Models", section 2.2
(norms without a mean, gated MLPs, rotary positions); Touvron et al. (2023), "Llama 2: Open
Foundation and Fine-Tuned Chat Models", section 2.2 (grouped queries); Zhang and Sennrich (2019),
"Root Mean Square Layer Normalization"; Shazeer (2020), "GLU Variants Improve Transformer". The keys
of a configuration, the names of the weights and the stretching called llama3 are those of Hugging
Face's public code.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A part of a weight's name here, and in Hugging Face's files. All other parts are the same in both.
HUGGING_FACE = {
    "token": "model.embed_tokens",
    "blocks": "model.layers",
    "norm": "model.norm",
    "logits": "lm_head",
    "attention_norm": "input_layernorm",
    "attention": "self_attn",
    "W_query": "q_proj",
    "W_key": "k_proj",
    "W_value": "v_proj",
    "out_proj": "o_proj",
    "mlp_norm": "post_attention_layernorm",
}


# What each kind of rope_scaling must say.
ROPE_TYPES = {
    "default": set(),
    "linear": {"factor"},
    "llama3": {
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    },
}


def rope_frequencies(head_dim: int, base: float, scaling: Mapping[str, Any] | None) -> list[float]:
    """Return how far each pair of channels turns from one place to the next, head_dim / 2 angles.

    Args:
        head_dim: width of a head, even.
        base: pair i turns by base^(-2i / head_dim) radians a place.
        scaling: None, or what a configuration says under rope_scaling, with rope_type "default",
            "linear" or "llama3", without the base.

    Raises:
        ValueError: rope_scaling is of another kind, lacks a number, or says more.
    """
    frequencies = [base ** (-2 * pair / head_dim) for pair in range(head_dim // 2)]
    scaling = {} if scaling is None else scaling
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise ValueError(f"rope_scaling must be of type {', '.join(ROPE_TYPES)}, got {kind!r}")
    if (given := scaling.keys() - {"rope_type", "type"}) != ROPE_TYPES[kind]:
        raise ValueError(
            f"rope_scaling must have {sorted(ROPE_TYPES[kind])} for type {kind!r}, "
            f"got {sorted(given)}"
        )
    if kind == "default":
        return frequencies
    if kind == "linear":  # every place counts for less
        return [frequency / scaling["factor"] for frequency in frequencies]
    # llama3: slow pairs are stretched, fast ones kept, those between blended
    few, many = scaling["low_freq_factor"], scaling["high_freq_factor"]
    stretched = []
    for frequency in frequencies:
        rounds = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
        kept = min(max((rounds - few) / (many - few), 0.0), 1.0)
        stretched.append(kept * frequency + (1 - kept) * frequency / scaling["factor"])
    return stretched


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair of channels, i and i + head_dim / 2, of x, (batch, heads, T, head_dim).

    Args:
        x: queries or keys.
        rotation: cosine and sine of each pair's angle, (1 or batch, 1, T, head_dim / 2) each.
    """
    cos, sin = (part.to(x.dtype) for part in rotation)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Cache(Protocol):
    """What keeps the keys and values of earlier tokens, as a KVCache does."""

    length: int  # tokens held

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take those of new tokens, and return those of all tokens so far."""
        ...


class LlamaAttention(nn.Module):
    """Causal self-attention with grouped queries and rotary positions.

    The book's GroupedQueryAttention and RotaryPositions without what a Llama does not need. Its
    state dict fits that one, and that one's fits it.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        bias: bool,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.W_query = nn.Linear(embed_dim, num_heads * head_dim, bias=bias)
        self.W_key = nn.Linear(embed_dim, num_kv_heads * head_dim, bias=bias)
        self.W_value = nn.Linear(embed_dim, num_kv_heads * head_dim, bias=bias)
        self.out_proj = nn.Linear(num_heads * head_dim, embed_dim, bias=bias)

    def forward(
        self,
        x: Tensor,
        *,
        rotation: tuple[Tensor, Tensor],
        attn_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(batch, T, embed_dim) → (batch, T, embed_dim); the rest is as in Llama.forward.

        The rotation takes the place of the positions: see Llama.rotation.
        """
        T, past = x.size(1), 0 if cache is None else cache.length
        # Each (batch, its heads, T, head_dim).
        query, key, value = (
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        query, key = rotate(query, rotation), rotate(key, rotation)
        if attn_mask is not None:  # before the cache takes anything in
            check_mask(attn_mask, (*query.shape[:-1], past + T))
        if cache is not None:
            key, value = cache.update(key, value)  # of all tokens so far
        if attn_mask is None and past and T > 1:
            attn_mask = torch.ones(T, past + T, dtype=torch.bool, device=x.device).tril(past)
        context = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask,
            is_causal=attn_mask is None and not past,  # one token after others sees them all
            enable_gqa=query.size(1) != key.size(1),
        )
        return self.out_proj(context.transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        """The size that the projections do not show."""
        return f"head_dim={self.head_dim}"


class GatedMLP(nn.Module):
    """An MLP in which one projection decides how much of another passes: SwiGLU."""

    def __init__(self, embed_dim: int, hidden_dim: int, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(embed_dim, hidden_dim, bias=bias)
        self.up_proj = nn.Linear(embed_dim, hidden_dim, bias=bias)
        self.down_proj = nn.Linear(hidden_dim, embed_dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., embed_dim) → (..., embed_dim)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    """One layer: tokens look at each other, then each one thinks for itself."""

    def __init__(
        self,
        attention: LlamaAttention,
        embed_dim: int,
        hidden_dim: int,
        mlp_bias: bool,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(embed_dim, eps=norm_eps)
        self.attention = attention
        self.mlp_norm = nn.RMSNorm(embed_dim, eps=norm_eps)
        self.mlp = GatedMLP(embed_dim, hidden_dim, mlp_bias)

    def forward(self, x: Tensor, **how: Any) -> Tensor:
        """(batch, T, embed_dim) → (batch, T, embed_dim); `how` is the attention's."""
        x = x + self.attention(self.attention_norm(x), **how)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """Logits for the next token, at every position of several texts at once.

        model = Llama.from_config(json.load(open("config.json")))
        model.load_hugging_face(safetensors.torch.load_file("model.safetensors"))

    Untrained, it holds every next token for about equally likely. There is no dropout.

    Args:
        vocab_size: number of different tokens.
        embed_dim: width of the residual stream.
        num_heads: number of query heads in each layer.
        num_layers: number of blocks, one after the other.
        num_kv_heads: number of key-value heads, which divides num_heads; None means num_heads.
        head_dim: width of a head, even; None means embed_dim / num_heads.
        hidden_dim: width within an MLP; None means the multiple of 8 next to 8/3 · embed_dim, with
            which the three matrices are as large as the two of a GPT.
        context_length: most tokens of a text in training. Written down, and no limit here: rotary
            positions have no last row, though a model seldom does well where it never was.
        rope_base, rope_scaling: see rope_frequencies.
        norm_eps: added to the mean square before its root is taken.
        attention_bias, mlp_bias: whether the projections add a bias.
        tie_weights: whether one table serves as token embedding and as last projection.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        hidden_dim: int | None = None,
        context_length: int = 2048,
        rope_base: float = 10000.0,
        rope_scaling: Mapping[str, Any] | None = None,
        norm_eps: float = 1e-6,
        attention_bias: bool = False,
        mlp_bias: bool = False,
        tie_weights: bool = False,
    ) -> None:
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        hidden_dim = 8 * round(embed_dim / 3) if hidden_dim is None else hidden_dim
        for name, size in (
            ("vocab_size", vocab_size),
            ("embed_dim", embed_dim),
            ("num_heads", num_heads),
            ("num_layers", num_layers),
            ("num_kv_heads", num_kv_heads),
            ("hidden_dim", hidden_dim),
            ("context_length", context_length),
        ):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads must divide num_heads: "
                f"got num_kv_heads={num_kv_heads}, num_heads={num_heads}"
            )
        if head_dim is None:
            head_dim = embed_dim // num_heads
            if embed_dim % num_heads:
                raise ValueError(
                    f"num_heads must divide embed_dim, or head_dim be given: "
                    f"got num_heads={num_heads}, embed_dim={embed_dim}"
                )
        if not isinstance(head_dim, int) or head_dim < 2 or head_dim % 2:
            raise ValueError(f"head_dim must be a positive even integer, got {head_dim!r}")
        super().__init__()
        # A list and no buffer, because .bfloat16() would round a buffer.
        self.frequencies = rope_frequencies(head_dim, rope_base, rope_scaling)
        rope = {} if rope_scaling is None else dict(rope_scaling)
        rope["rope_type"] = rope.pop("type", rope.get("rope_type", "default"))
        self.config = {  # as Hugging Face writes it into config.json
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": vocab_size,
            "hidden_size": embed_dim,
            "intermediate_size": hidden_dim,
            "num_hidden_layers": num_layers,
            "num_attention_heads": num_heads,
            "num_key_value_heads": num_kv_heads,
            "head_dim": head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": context_length,
            "rms_norm_eps": norm_eps,
            "rope_parameters": rope | {"rope_theta": rope_base},
            "attention_bias": attention_bias,
            "mlp_bias": mlp_bias,
            "tie_word_embeddings": tie_weights,
        }
        self.context_length = context_length
        self.token = nn.Embedding(vocab_size, embed_dim)
        self.blocks = nn.ModuleList(
            LlamaBlock(
                LlamaAttention(embed_dim, num_heads, num_kv_heads, head_dim, attention_bias),
                embed_dim,
                hidden_dim,
                mlp_bias,
                norm_eps,
            )
            for _ in range(num_layers)
        )
        self.norm = nn.RMSNorm(embed_dim, eps=norm_eps)
        self.logits = nn.Linear(embed_dim, vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        self._tie()

    def _tie(self) -> None:
        """Let one table serve at both ends, where that is wanted."""
        if self.config["tie_word_embeddings"]:
            self.logits.weight = self.token.weight

    def _apply(self, fn, recurse=True):
        """Move the model, and tie it again: .to_empty() makes two tables of one."""
        super()._apply(fn, recurse)
        self._tie()
        return self

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of each pair's angle, (1 or batch, 1, T, head_dim / 2) each.

        They serve every layer of a step. Angles are made in float64, or in float32 on Apple's MPS,
        whatever the dtype of the model is. Positions are (T,) or (batch, T).
        """
        wide = torch.float32 if positions.device.type == "mps" else torch.float64
        frequencies = torch.tensor(self.frequencies, dtype=wide, device=positions.device)
        angle = positions[..., None].to(wide) * frequencies  # (T or batch, T, head_dim / 2)
        angle = angle.view(-1, 1, *angle.shape[-2:])
        dtype = self.token.weight.dtype
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def forward(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        attn_mask: Tensor | None = None,
        caches: Sequence[Any] | None = None,
        last: int = 0,
    ) -> Tensor:
        """Return the logits of the token after each position, (batch, T, vocab_size).

        Args:
            tokens: (batch, T), integers below vocab_size.
            positions: the place of each token, integers of shape (T,) or (batch, T); None means
                counting on from what the caches hold.
            attn_mask: boolean, True keeps: which keys each token sees, (T, keys) or (batch, 1 or
                num_heads, T, keys); None means that a token sees what the caches held, the tokens
                before it, and itself.
            caches: one KVCache for each block, or None.
            last: of how many positions, at the end, logits are returned; 0 means all. Whoever
                writes after a long prompt needs those of one.

        Raises:
            ValueError: naming the argument, what came and what was wanted.
        """
        if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.is_floating_point():
            came = repr(tokens)
            if isinstance(tokens, Tensor):
                came = f"{tokens.dtype} of shape {tuple(tokens.shape)}"
            raise ValueError(f"tokens must be integers of shape (batch, T), got {came}")
        if not isinstance(last, int) or last < 0:
            raise ValueError(f"last must be an integer of at least 0, got {last!r}")
        past = check_caches(caches, len(self.blocks)) if caches is not None else 0
        if positions is None:
            positions = torch.arange(past, past + tokens.size(1), device=tokens.device)
        check_positions(positions, tokens)
        rotation = self.rotation(positions)
        x = self.token(tokens)  # (batch, T, embed_dim)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, rotation=rotation, attn_mask=attn_mask, cache=cache)
        return self.logits(self.norm(x[:, -last:]))

    # To Hugging Face and back

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Llama":
        """Return the untrained model that a Hugging Face config.json describes.

        Raises:
            ValueError: the configuration lacks a size, or asks for what this file does not do.
        """
        if not isinstance(config, Mapping):
            raise ValueError(
                "config must be a mapping, as json.load makes it of config.json and to_dict() of "
                f"a configuration object: got {type(config).__name__}"
            )
        sizes = {"vocab_size", "hidden_size", "intermediate_size"}
        sizes |= {"num_attention_heads", "num_hidden_layers"}
        if missing := sorted(sizes - config.keys()):
            raise ValueError(f"config must have {', '.join(missing)}: got {sorted(config)}")
        rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        base = rope.pop("rope_theta", config.get("rope_theta", 10000.0))
        turned = rope.pop("partial_rotary_factor", config.get("partial_rotary_factor"))
        asked = {**config, "partial_rotary_factor": turned}
        for key, known in (
            ("model_type", "llama"),
            ("hidden_act", "silu"),
            ("pretraining_tp", 1),
            ("partial_rotary_factor", 1.0),  # all channels of a head are turned
            ("sliding_window", None),
            ("quantization_config", None),
        ):
            if asked.get(key) not in (None, known):
                raise ValueError(f"{key} must be {known!r} or left out, got {asked[key]!r}")
        return cls(
            config["vocab_size"],
            config["hidden_size"],
            config["num_attention_heads"],
            config["num_hidden_layers"],
            num_kv_heads=config.get("num_key_value_heads"),
            head_dim=config.get("head_dim"),
            hidden_dim=config["intermediate_size"],
            context_length=config.get("max_position_embeddings", 2048),
            rope_base=base,
            rope_scaling=rope or None,
            norm_eps=config.get("rms_norm_eps", 1e-6),
            attention_bias=config.get("attention_bias", False),
            mlp_bias=config.get("mlp_bias", False),
            tie_weights=config.get("tie_word_embeddings", False),
        )

    def to_hugging_face(self) -> dict[str, Tensor]:
        """Return the weights under Hugging Face's names; `config` is what belongs beside them."""
        weights = {self._theirs(name): tensor for name, tensor in self.state_dict().items()}
        if self.config["tie_word_embeddings"]:
            del weights["lm_head.weight"]  # it is the table of the tokens
        return weights

    def load_hugging_face(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights that bear Hugging Face's names.

        They are copied into the model's own, whose dtype stays. A model on the meta device has no
        memory to copy into, so it takes the tensors themselves, as they are.

        Raises:
            ValueError: a weight is missing, or there is one that this model has not.
        """
        weights = {name: weights[name] for name in weights if not name.endswith("inv_freq")}
        if self.config["tie_word_embeddings"]:
            weights.setdefault("lm_head.weight", weights.get("model.embed_tokens.weight"))
        ours = {self._theirs(name): name for name in self.state_dict()}
        if ours.keys() != weights.keys():
            raise ValueError(
                f"weights must be those of the configuration: "
                f"missing {sorted(ours.keys() - weights.keys())}, "
                f"unknown {sorted(weights.keys() - ours.keys())}"
            )
        self.load_state_dict(
            {ours[name]: tensor for name, tensor in weights.items()},
            assign=self.token.weight.is_meta,
        )
        self._tie()

    @staticmethod
    def _theirs(name: str) -> str:
        """A weight's name in Hugging Face's files."""
        return ".".join(HUGGING_FACE.get(part, part) for part in name.split("."))


def check_positions(positions: Tensor, tokens: Tensor) -> None:
    """Raise ValueError unless there is an integer for each token, or for each of a text."""
    fits = isinstance(positions, Tensor) and positions.dtype in (torch.int64, torch.int32)
    if not fits or not (
        positions.dim() in (1, tokens.dim())
        and positions.shape == tokens.shape[tokens.dim() - positions.dim() :]
    ):
        came = repr(positions)
        if isinstance(positions, Tensor):
            came = f"{positions.dtype} of shape {tuple(positions.shape)}"
        raise ValueError(
            f"positions must be int64 or int32 of shape {tuple(tokens.shape[-1:])} or "
            f"{tuple(tokens.shape)}, got {came}"
        )


def check_mask(attn_mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise ValueError unless the mask is boolean and fits scores of this shape.

    A mask (batch, T, keys) is refused, because it would be read as (heads, T, keys).
    """
    fits = isinstance(attn_mask, Tensor) and attn_mask.dtype == torch.bool
    if not fits or not (
        attn_mask.dim() in (2, len(scores))
        and all(
            size in (1, wanted)
            for size, wanted in zip(attn_mask.shape[::-1], scores[::-1], strict=False)
        )
    ):
        came = repr(attn_mask)
        if isinstance(attn_mask, Tensor):
            came = f"{attn_mask.dtype} of shape {tuple(attn_mask.shape)}"
        raise ValueError(
            f"attn_mask must be boolean, (T, keys) = {scores[-2:]} or (batch, 1 or heads, T, keys) "
            f"= {scores}, and for one mask per text mask[:, None]: got {came}"
        )


def check_caches(caches: Sequence[Any], blocks: int) -> int:
    """Return how many tokens the caches hold; ValueError unless each block has one, all in step."""
    different = len({id(cache) for cache in caches})
    if not len(caches) == different == blocks:
        raise ValueError(
            f"caches must be {blocks}, one for each block: got {len(caches)}, {different} different"
        )
    lengths = [cache.length for cache in caches]
    if any(length != lengths[0] for length in lengths):
        raise ValueError(
            f"caches must hold the same tokens: got lengths {lengths}; after a pass that failed "
            f"half way, truncate all to {min(lengths)}"
        )
    return lengths[0]
