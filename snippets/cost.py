"""What it costs to run a model: bytes, operations, and the least time and money that they allow.

    config = json.load(open("config.json"))
    model = model_of(config, attention_of(config))
    run = Run(model, CARDS["H100"], PRECISIONS["FP8"])
    run.first_token(8000), run.step(16, 8000)          # seconds: of a prompt, of a step of 16 texts
    run.fits(9000)                                     # texts at once: in memory
    run.in_time(8000, 1000, 0.03)                      # of these, with a token in each 30 ms
    run.price(8000, 1000, texts=16, dollars=2.50)      # of a million tokens, by dollars an hour

Every time is a bound where products, experts, attention and exchanges run one after the other:
each takes the longer of operations over the speed and bytes over the bandwidth. Not counted are
norms, biases, scales of quantised weights, vectors of tokens, and all that starts kernels.
Source: Pope et al., Efficiently Scaling Transformer Inference (2023). Cards: their data sheets, but
for the memory, which is what programs are shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """A processor: dense operations in a second, bytes in a second, bytes."""

    speed: float  # operations in bfloat16
    eight_bit: float  # operations in FP8, int8 on a TPU; where there is none, as in bfloat16
    bandwidth: float  # from its memory
    memory: float
    link: float  # bandwidth to the other cards, in one direction


CARDS = {
    "H100": Card(989e12, 1979e12, 3.35e12, 81_559 * 2**20, 450e9),
    "H200": Card(989e12, 1979e12, 4.8e12, 143_771 * 2**20, 450e9),
    "B200": Card(2250e12, 4500e12, 8e12, 183_359 * 2**20, 900e9),
    "A100": Card(312e12, 312e12, 2.039e12, 81_920 * 2**20, 300e9),
    "L4": Card(121e12, 242e12, 0.3e12, 23_034 * 2**20, 32e9),
    "TPU v6e": Card(918e12, 1836e12, 1.638e12, 32e9, 180e9),
}


@dataclass(frozen=True)
class Precision:
    """The bytes of a number, and whether products are made of 8 bits. Attention is in bfloat16."""

    weights: float
    cache: float
    eight_bit: bool = False


PRECISIONS = {
    "bfloat16": Precision(2, 2),
    "W8A16": Precision(1, 2),
    "W4A16": Precision(0.5, 2),
    "FP8": Precision(1, 1, eight_bit=True),
}


@dataclass(frozen=True)
class MLP:
    """The MLP of a layer: three matrices that every token meets, and its experts, if any."""

    width: int  # hidden channels that every token meets, those of shared experts among them
    experts: int = 0
    chosen: int = 0  # of a token
    expert_width: int = 0

    def met(self, tokens: int) -> float:
        """Return how many experts so many tokens meet, if each chooses at random."""
        return self.experts and self.experts * (1 - (1 - self.chosen / self.experts) ** tokens)


@dataclass(frozen=True)
class Model:
    """What is multiplied and kept: layers of attention and MLPs, and the table of the tokens."""

    layers: Sequence  # of attention_of
    mlps: Sequence[MLP]
    embed_dim: int
    vocabulary: int
    tied: bool  # whether one table embeds the tokens and predicts them

    @property
    def table(self) -> int:
        """Weights of the embeddings, or of the projection that predicts."""
        return self.vocabulary * self.embed_dim

    @property
    def shared(self) -> int:
        """Weights that every token meets: projections, MLPs, the routers of experts."""
        mlps = sum(3 * mlp.width + mlp.experts for mlp in self.mlps)
        return self.embed_dim * mlps + sum(map(projection_weights, self.layers))

    def experts(self, count) -> float:
        """Weights of so many experts of each layer: `count` says of an MLP how many."""
        return sum(3 * self.embed_dim * mlp.expert_width * count(mlp) for mlp in self.mlps)

    @property
    def total(self) -> float:
        """All weights in memory."""
        tables = self.table * (1 if self.tied else 2)
        return self.shared + tables + self.experts(lambda mlp: mlp.experts)

    @property
    def active(self) -> float:
        """Weights that one token meets, up to its prediction."""
        return self.shared + self.table + self.experts(lambda mlp: mlp.chosen)


def model_of(config: Mapping, layers: Sequence) -> Model:
    """Return the model of a config.json; `layers` is attention_of(config).

    A size that the file does not say is a ValueError that names its key.
    """
    text = config.get("text_config", {})
    config = config | text
    tied = config.get("tie_word_embeddings", layers[0].model.startswith("gemma"))
    mlps = [_mlp(config, index) for index in range(len(layers))]
    return Model(layers, mlps, layers[0].embed_dim, _said(config, "vocab_size"), tied)


def _mlp(config: Mapping, index: int) -> MLP:
    """Return the MLP of one layer."""
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = next((config[name] for name in names if config.get(name)), 0)
    every = config.get("decoder_sparse_step", 1)
    dense = index < config.get("first_k_dense_replace", 0) or (index + 1) % every
    if not experts or dense or index in config.get("mlp_only_layers", ()):
        return MLP(_said(config, "intermediate_size"))
    width = _said(config, "moe_intermediate_size", "intermediate_size")
    shared = config.get("n_shared_experts", 0) * width
    shared = config.get("shared_expert_intermediate_size", shared)
    return MLP(shared, experts, _said(config, "num_experts_per_tok"), width)


def _said(config: Mapping, *names: str) -> int:
    """Return what the first of these keys says that the file has."""
    for name in names:
        if config.get(name):
            return config[name]
    raise ValueError(f"config must have {' or '.join(names)}, got {', '.join(sorted(config))}")


def projection_weights(layer) -> int:
    """Return the weights of a layer's projections, and of the convolution before a memory."""
    width, value = layer.embed_dim, layer.heads * layer.value_dim
    query, out = layer.heads * (layer.head_dim + layer.rope_dim), value * width
    if layer.kind == "memory":
        channels = 2 * layer.kv_heads * layer.head_dim + value
        return width * (channels + value + 2 * layer.heads) + channels * layer.kernel_size + out
    if layer.kind == "latent":
        narrow, latent = layer.query_latent_dim, layer.latent_dim
        queries = (width + query) * narrow if narrow else width * query
        expand = latent * layer.heads * (layer.head_dim + layer.value_dim)
        return queries + width * (latent + layer.rope_dim) + expand + out
    keys_and_values = layer.kv_heads * (layer.head_dim + layer.value_dim)
    return width * (query * (2 if layer.gate else 1) + keys_and_values) + out


def attention_operations(layer, new: int, tokens: int) -> int:
    """Return the operations of the last `new` of so many tokens with what is kept of all."""
    if layer.kind == "memory":  # each token reads the memory, corrects it, and reads it again
        return 6 * new * layer.heads * layer.head_dim * layer.value_dim
    most = min(layer.window or tokens, tokens)  # keys that the last token sees
    short = max(0, most - (tokens - new + 1))  # new tokens that see fewer: 1, 2, ... fewer
    channels = layer.head_dim + layer.rope_dim + layer.value_dim
    if layer.kind == "latent" and new == 1:  # absorbed: the latent is the key and the value
        channels = 2 * layer.latent_dim + layer.rope_dim
    return 2 * layer.heads * channels * (new * most - short * (short + 1) // 2)


@dataclass(frozen=True)
class Run:
    """A model on so many cards, which share its matrices and heads (tensor parallelism)."""

    model: Model
    card: Card
    precision: Precision = PRECISIONS["bfloat16"]
    cards: int = 1
    room: float = 0.9  # share of the memory for weights and caches
    delay: float = 10e-6  # seconds of an all-reduce, beside those of its bytes
    slow_step: float = 1.0  # how many times its bound a step takes, where it was measured
    slow_prompt: float = 1.0  # and the reading of a prompt

    def kept(self, layer, tokens: int) -> float:
        """Bytes on each card of what a layer keeps of a text: whole heads, and a latent on all."""
        share = 1 if layer.kind == "latent" else min(self.cards, layer.kv_heads)
        return layer.cache_bytes(tokens, self.precision.cache) / share

    def rows(self, texts: int, new: int, tokens: int) -> dict[str, tuple[float, float]]:
        """Seconds to compute and seconds to fetch of a pass, by what it does.

        It reads the last `new` of so many tokens of each text, and predicts one token of each.
        """
        model, size, read = self.model, self.precision.weights, texts * new
        speed = self.card.eight_bit if self.precision.eight_bit else self.card.speed
        speed, bandwidth = self.cards * speed, self.cards * self.card.bandwidth
        products = 2 * (read * model.shared + texts * model.table)
        rows = {"products": (products / speed, size * (model.shared + model.table) / bandwidth)}
        if chosen := model.experts(lambda mlp: mlp.chosen):
            met = model.experts(lambda mlp: mlp.met(read))
            rows["experts"] = (2 * read * chosen / speed, size * met / bandwidth)
        operations = sum(attention_operations(layer, new, tokens) for layer in model.layers)
        fetched = sum(  # a memory is read, and written again
            self.kept(layer, tokens) * (2 if layer.kind == "memory" else 1)
            for layer in model.layers
        )
        computing = texts * operations / self.cards / self.card.speed
        rows["attention"] = (computing, texts * fetched / self.card.bandwidth)
        if self.cards > 1:  # after attention and after the MLP of each layer, in bfloat16
            moved = 2 * (1 - 1 / self.cards) * 2 * read * model.embed_dim
            each = self.delay + moved / self.card.link
            rows["all-reduces"] = (0.0, 2 * len(model.layers) * each)
        return rows

    def seconds(self, texts: int, new: int, tokens: int) -> float:
        """Seconds of such a pass, by its bound: the longer of both times of each row, added."""
        return sum(max(row) for row in self.rows(texts, new, tokens).values())

    def step(self, texts: int, tokens: int) -> float:
        """Seconds until each of so many texts of so many tokens has its next one."""
        return self.slow_step * self.seconds(texts, 1, tokens)

    def first_token(self, prompt: int) -> float:
        """Seconds until a prompt of so many tokens, read alone, has its first token."""
        return self.slow_prompt * self.seconds(1, prompt, prompt)

    def gap(self, prompt: int, answer: int, texts: int) -> float:
        """Seconds between two tokens of a text, on average, where texts end and others begin.

        That is a step, and what is read in between: for each answer that ends, another prompt.
        """
        reading = texts / answer * self.first_token(prompt)
        return self.step(texts, prompt + answer // 2) + reading

    def fits(self, tokens: int) -> int:
        """The most texts of so many tokens whose caches the memory holds beside the weights."""
        held = self.precision.weights * self.model.total / self.cards
        text = sum(self.kept(layer, tokens) for layer in self.model.layers)
        return max(0, int((self.room * self.card.memory - held) / text))

    def in_time(self, prompt: int, answer: int, patience: float) -> int:
        """The most texts, of those that fit, with a gap of at most so many seconds."""
        some, too_many = 0, self.fits(prompt + answer) + 1
        while too_many - some > 1:
            texts = (some + too_many) // 2
            good = self.gap(prompt, answer, texts) <= patience
            some, too_many = (texts, too_many) if good else (some, texts)
        return some

    def price(self, prompt: int, answer: int, texts: int, dollars: float) -> float:
        """Dollars of a million written tokens, where a card costs so many an hour."""
        return 1e6 * dollars * self.cards / 3600 * self.gap(prompt, answer, texts) / texts
