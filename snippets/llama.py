"""A Llama: the language model that many open models descend from, in one file.

    model = Llama.from_config(json.load(open("config.json")))
    model.load_hugging_face(safetensors.torch.load_file("model.safetensors"))

Sources: Touvron et al. (2023), "LLaMA", section 2.2 (norms without a mean, gated MLPs, rotary
positions), and "Llama 2", section 2.2 (grouped queries); for names, Hugging Face's public code.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A part of a weight's name here, and in Hugging Face's files. All other parts are the same in both.
HUGGING_FACE = {
    "token": "model.embed_tokens", "blocks": "model.layers", "norm": "model.norm",
    "logits": "lm_head", "attention_norm": "input_layernorm", "attention": "self_attn",
    "W_query": "q_proj", "W_key": "k_proj", "W_value": "v_proj", "out_proj": "o_proj",
    "mlp_norm": "post_attention_layernorm",
}  # fmt: skip
CONFIG = {  # arguments of Llama, in this order, and what they are called in config.json
    "vocab_size": "vocab_size", "embed_dim": "hidden_size", "num_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers", "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim", "hidden_dim": "intermediate_size", "norm_eps": "rms_norm_eps",
    "context_length": "max_position_embeddings", "tie_weights": "tie_word_embeddings",
}  # fmt: skip
FIXED = {  # what a config.json may say in this way alone, or not at all
    "model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
    "partial_rotary_factor": 1.0,
}  # fmt: skip


def rope_frequencies(head_dim: int, base: float, scaling: dict | None) -> list[float]:
    """Return the angle, in radians, by which each pair of channels turns from token to token."""
    frequencies = [base ** (-2 * pair / head_dim) for pair in range(head_dim // 2)]
    if scaling is None or (kind := scaling.get("rope_type", scaling.get("type"))) == "default":
        return frequencies
    if kind not in ("linear", "llama3"):
        raise ValueError(f"rope_scaling must be of type default, linear or llama3, got {kind!r}")
    kept = [0.0] * len(frequencies)  # the share of each that is not divided: of slow pairs, none
    if kind == "llama3":
        few, many = scaling["low_freq_factor"], scaling["high_freq_factor"]
        length = scaling["original_max_position_embeddings"] / (2 * math.pi)
        kept = [min(max((length * each - few) / (many - few), 0.0), 1.0) for each in frequencies]
    divided = [each / scaling["factor"] for each in frequencies]
    return [k * f + (1 - k) * d for k, f, d in zip(kept, frequencies, divided, strict=True)]


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn pairs of channels, i and i + head_dim / 2, of x, (batch, heads, T, head_dim)."""
    cos, sin = (part.to(x.dtype) for part in rotation)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class LlamaAttention(nn.Module):
    """Causal self-attention with rotary positions, in which query heads share keys and values."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        width, self.head_dim = config["hidden_size"], config["head_dim"]
        queries = config["num_attention_heads"] * self.head_dim
        keys = config["num_key_value_heads"] * self.head_dim
        self.W_query = nn.Linear(width, queries, bias=False)
        self.W_key = nn.Linear(width, keys, bias=False)
        self.W_value = nn.Linear(width, keys, bias=False)
        self.out_proj = nn.Linear(queries, width, bias=False)

    def forward(self, x, *, rotation, attn_mask=None, cache=None) -> Tensor:
        """(batch, T, embed_dim) → the same; the rotation takes the place of the positions."""
        T, past = x.size(1), 0 if cache is None else cache.length
        query, key, value = (  # each (batch, its heads, T, head_dim)
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        query, key = rotate(query, rotation), rotate(key, rotation)
        if cache is not None:
            key, value = cache.update(key, value)  # of all tokens so far
        if T == 1:  # heads that share keys become rows of one head, so that each key is read once
            query = query.unflatten(1, (key.size(1), -1)).flatten(2, 3)
            if attn_mask is not None and attn_mask.dim() == 4 and attn_mask.size(1) > 1:
                attn_mask = attn_mask.unflatten(1, (key.size(1), -1)).flatten(2, 3)
        elif attn_mask is None and past:
            attn_mask = torch.ones(T, past + T, dtype=torch.bool, device=x.device).tril(past)
        how = {"is_causal": T > 1 and attn_mask is None, "enable_gqa": query.size(1) > key.size(1)}
        context = F.scaled_dot_product_attention(query, key, value, attn_mask, **how)
        context = context.flatten(1)[:, None] if T == 1 else context.transpose(1, 2).flatten(2)
        return self.out_proj(context)


class GatedMLP(nn.Module):
    """An MLP in which one projection decides how much of another passes: SwiGLU."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        width, hidden = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., embed_dim) → the same."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    """One layer: both parts read the stream through a norm, and add what they found to it."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"])
        self.attention = LlamaAttention(config)
        self.mlp_norm = nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"])
        self.mlp = GatedMLP(config)

    def forward(self, x: Tensor, **how) -> Tensor:
        """(batch, T, embed_dim) → the same; `how` is for the attention."""
        x = x + self.attention(self.attention_norm(x), **how)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """Logits for the next token, at every position of several texts at once.

    None is 8/3 · embed_dim for hidden_dim, an MLP's width. Positions are (T,) or (batch, T), and go
    on from the caches, one KVCache a block. Masks are boolean, True keeps: (T, keys) or (batch, 1
    or heads, T, keys). `last`, if not 0, is how many logits are made, at the end.
    """

    def __init__(
        self, vocab_size, embed_dim, num_heads, num_layers, *, num_kv_heads=None, head_dim=None,
        hidden_dim=None, context_length=2048, rope_base=10000.0, rope_scaling=None, norm_eps=1e-6,
        tie_weights=False,
    ) -> None:  # fmt: skip
        num_kv_heads = num_kv_heads or num_heads
        hidden_dim = hidden_dim or 8 * round(embed_dim / 3)
        head_dim = head_dim or embed_dim / num_heads
        if head_dim % 2:  # the last channel would be turned with none
            raise ValueError(f"head_dim must be an even number, got {head_dim}")
        rope = {"rope_type": "default", **(rope_scaling or {}), "rope_theta": rope_base}
        rope["rope_type"] = rope.pop("type", rope["rope_type"])
        super().__init__()
        given = (
            vocab_size, embed_dim, num_heads, num_layers, num_kv_heads, int(head_dim), hidden_dim,
            norm_eps, context_length, tie_weights,
        )  # fmt: skip
        self.config = FIXED | dict(zip(CONFIG.values(), given, strict=True))
        self.config |= {"architectures": ["LlamaForCausalLM"], "rope_parameters": rope}
        # A list and no buffer, because .bfloat16() would round a buffer.
        self.frequencies = rope_frequencies(int(head_dim), rope_base, rope)
        self.context_length = context_length
        self.token = nn.Embedding(vocab_size, embed_dim)
        self.blocks = nn.ModuleList(LlamaBlock(self.config) for _ in range(num_layers))
        self.norm = nn.RMSNorm(embed_dim, eps=norm_eps)
        self.logits = nn.Linear(embed_dim, vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:  # all but the weights of norms
                nn.init.normal_(parameter, std=0.02)
        self.logits.weight = self.token.weight if tie_weights else self.logits.weight

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of each pair's angle, (1 or batch, 1, T, head_dim / 2) each."""
        wide = torch.float32 if positions.device.type == "mps" else torch.float64
        frequencies = torch.tensor(self.frequencies, dtype=wide, device=positions.device)
        angle = positions.view(-1, 1, positions.size(-1), 1).to(wide) * frequencies
        return tuple(part.to(self.token.weight.dtype) for part in (angle.cos(), angle.sin()))

    def forward(self, tokens, *, positions=None, attn_mask=None, caches=None, last=0) -> Tensor:
        """Return the logits after each token, (batch, T) → (batch, T or `last`, vocab_size)."""
        if attn_mask is not None and (attn_mask.dim() == 3 or attn_mask.dtype != torch.bool):
            came = f"{attn_mask.dtype} of {tuple(attn_mask.shape)}"  # 3: a text's, or a head's?
            raise ValueError(f"attn_mask must be boolean, (T, keys) or four dimensions: got {came}")
        held = {id(cache): cache.length for cache in caches or ()}
        if caches is not None and (len(held) != len(self.blocks) or len({*held.values()}) > 1):
            raise ValueError(f"caches must be one a block, of one length: got {[*held.values()]}")
        past, T = caches[0].length if caches else 0, tokens.size(-1)
        if positions is None:
            positions = torch.arange(past, past + T, device=tokens.device)
        if positions.size(-1) != T:  # one position would be that of all tokens
            raise ValueError(f"positions must be those of {T} tokens, got {tuple(positions.shape)}")
        rotation = self.rotation(positions)
        x = self.token(tokens)  # (batch, T, embed_dim)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, rotation=rotation, attn_mask=attn_mask, cache=cache)
        return self.logits(self.norm(x[:, -last:]))

    @classmethod
    def from_config(cls, config: dict) -> "Llama":
        """Return the untrained model that a Hugging Face config.json describes, or refuse it."""
        rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        for key, value in (*config.items(), *rope.items()):
            if value is not None and value != FIXED.get(key, value):
                raise ValueError(f"{key} must be {FIXED[key]!r} or left out, got {value!r}")
        base = rope.pop("rope_theta", config.get("rope_theta", 10000.0))
        given = {ours: config[theirs] for ours, theirs in CONFIG.items() if theirs in config}
        given["hidden_dim"] = config["intermediate_size"]  # which must not be guessed
        return cls(**given, rope_base=base, rope_scaling=rope)

    def to_hugging_face(self) -> dict[str, Tensor]:
        """Return the weights under Hugging Face's names; `config` is what belongs beside them."""
        weights = {hugging_face(name): tensor for name, tensor in self.state_dict().items()}
        if self.config["tie_word_embeddings"]:
            del weights["lm_head.weight"]  # it is the table of the tokens
        return weights

    def load_hugging_face(self, weights: dict) -> None:
        """Take weights that bear Hugging Face's names; a model on meta takes the tensors."""
        ours = {hugging_face(name): name for name in self.state_dict()}
        kept = {ours.get(name, name): weights[name] for name in weights if "inv_freq" not in name}
        if self.config["tie_word_embeddings"]:
            kept["logits.weight"] = kept["token.weight"]
        self.load_state_dict(kept, assign=self.token.weight.is_meta)
        if self.config["tie_word_embeddings"]:
            self.logits.weight = self.token.weight


def hugging_face(name: str) -> str:
    """Return a weight's name in Hugging Face's files."""
    return ".".join(HUGGING_FACE.get(part, part) for part in name.split("."))
