"""Every file is tried in float64, float32 and bfloat16, and in float32 under autocast to bfloat16.

Numbers are drawn as bfloat16, so that every dtype begins with the same ones, and what comes is
compared with the same call in float64. What may be lost follows from the dtype: a rounding loses
eps / 2 of a number, and a case says how many roundings of the size of its result it may add up. A
sum over the tokens rounds once more for each of them, in float32 at least.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

from snippets.attention_backward import attention
from snippets.attention_masks import alibi_bias, keep_documents, keep_past, keep_window
from snippets.attention_of import attention_of, layer_of
from snippets.causal_average import causal_average
from snippets.causal_self_attention import CausalSelfAttention
from snippets.cross_attention import CrossAttention
from snippets.flash_attention import flash_attention
from snippets.gated_attention import GatedAttention, sink_attention
from snippets.gated_memory import GatedDeltaNet, MemoryCache, gated_memory
from snippets.generate import generate
from snippets.gpt import GPT
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.image_attention import RotaryPositions2D, grid_positions, window_attention
from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from snippets.linear_attention import linear_attention
from snippets.llama import Llama
from snippets.multi_head_attention import MultiHeadAttention
from snippets.online_softmax import attend_part, merge
from snippets.paged_server import PagedServer
from snippets.positions import LearnedPositions, sinusoidal_positions
from snippets.quantized_cache import HeavyHitters, QuantizedCache
from snippets.ring_attention import ring_attention
from snippets.rope import RotaryPositions
from snippets.scaled_dot_product_attention import scaled_dot_product_attention
from snippets.self_attention import SelfAttention
from snippets.sparse_attention import attend_chosen, best_keys, compressed_attention
from snippets.speculative_sampling import speculative_sampling
from tests.snippets.problems import SNIPPETS

TRIED = ("float64", "float32", "bfloat16", "autocast")
T, VOCABULARY = 300, 13  # more tokens than bfloat16 can count


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        call: (module, *inputs) → the result, or several; a module of None is a function.
        inputs: makes the inputs, in float64.
        module: makes the module, or None.
        casts: whether autocast makes it compute in bfloat16; float32 stays float32 otherwise.
        returns: the dtype of the result, given that in which it computes.
        roundings: how many roundings of the size of the result may add up, forward.
        backward: whether it has a backward pass.
    """

    call: Callable
    inputs: Callable
    module: Callable = lambda: None
    casts: bool = True
    returns: Callable = lambda dtype: dtype
    roundings: int = 8
    backward: bool = True

    def computes_in(self, tried):
        """The dtype in which the result is computed."""
        if tried == "autocast":
            return torch.bfloat16 if self.casts else torch.float32
        return getattr(torch, tried)

    def may_lose(self, dtype):
        """The share of the result that may be lost where it is computed in this dtype."""
        if not self.roundings:
            return 0.0
        lost = self.roundings * torch.finfo(dtype).eps + T * torch.finfo(wide(dtype)).eps
        return lost / 2


def wide(dtype):
    """The dtype in which sums are kept."""
    return torch.promote_types(dtype, torch.float32)


def some(*shape, seed=1):
    """Numbers of bfloat16, as float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).bfloat16().double()


def heads(query=4, key=4, width=8, tokens=T):
    """Query, key and value of so many heads."""
    return tuple(some(2, n, tokens, width, seed=n + i) for i, n in enumerate((query, key, key)))


def texts():
    """Vectors of two texts."""
    return (some(2, T, 16),)


def tokens():
    """Two texts as numbers."""
    return (torch.randint(VOCABULARY, (2, 40), generator=torch.Generator().manual_seed(1)),)


class Alone:
    """The one device of a ring."""

    rank, size = 0, 1

    def pass_on(self, *tensors):
        return lambda: list(tensors)


def in_pieces(layer, x):
    """A text read from a cache, in three pieces."""
    cache = KVCache(T)
    return torch.cat([layer(part, cache=cache) for part in x.split([T - 20, 1, 19], dim=1)], dim=1)


def merged(_, query, key, value):
    """Attention to one key after the other, merged: T sums in a row."""
    total = attend_part(query, key[..., :1, :], value[..., :1, :])
    for i in range(1, T):
        total = merge(total, attend_part(query, *(x[..., i : i + 1, :] for x in (key, value))))
    return total.context(), total.logsumexp()


def evicted(_, *inputs):
    """Attention to one token after the other, with room for 64."""
    cache = HeavyHitters(64, recent=64)
    steps = zip(*(part.split(1, dim=-2) for part in inputs), strict=True)
    return torch.cat([cache.attend(*step) for step in steps], dim=-2)


def forgets(_, query, key, value, beta, decay):
    """A memory with decay and delta rule, whose keys want length 1."""
    key, log_decay = F.normalize(key, dim=-1), F.logsigmoid(decay)
    return gated_memory(query, key, value, log_decay=log_decay, beta=beta.sigmoid())[0]


def remembered(layer, x):
    """A text read in three pieces, from what a layer keeps of it."""
    cache = MemoryCache()
    return torch.cat([layer(part, cache=cache) for part in x.split([T - 20, 1, 19], dim=1)], dim=1)


def of_a_config():
    """A layer with a window, shared keys and QK-norm, by the file of a Gemma 3."""
    config = {"model_type": "gemma3_text", "hidden_size": 16, "num_attention_heads": 4}
    config |= {"num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 1, "sliding_window": 9}
    return layer_of(attention_of(config)[0], RotaryPositions, GroupedQueryAttention, keep_window)


ROTATED = {"rotate": RotaryPositions(8)}
LATENT = {"latent_dim": 8, "head_dim": 8, "rope_dim": 8, "rotate": RotaryPositions(8)}
SAME = {"casts": False}
GROUPED = {"num_kv_heads": 2, "head_dim": 8, "qk_norm": True, **ROTATED}
# Layers that a cache is handed to, each tried without one and with one.
CACHED = {
    "grouped_query_attention": lambda: GroupedQueryAttention(16, 4, **GROUPED),
    "gated_attention": lambda: GatedAttention(16, 4, **GROUPED),
    "latent_attention": lambda: LatentAttention(16, 4, **LATENT),
}
CASES = {
    **{name: Case(lambda m, x: m(x), texts, make) for name, make in CACHED.items()},
    **{
        f"{name}, cached": Case(in_pieces, texts, make, backward=False)
        for name, make in CACHED.items()
    },
    "causal_average": Case(lambda _, x: causal_average(x), texts, **SAME),
    "scaled_dot_product_attention": Case(
        lambda _, *x: scaled_dot_product_attention(*x, is_causal=True), heads
    ),
    "scaled_dot_product_attention, weights": Case(
        lambda _, *x: scaled_dot_product_attention(*x, keep_window(9, T), need_weights=True), heads
    ),
    "self_attention": Case(lambda m, x: m(x), texts, lambda: SelfAttention(16, 8)),
    "causal_self_attention": Case(lambda m, x: m(x), texts, lambda: CausalSelfAttention(16, 8)),
    "cross_attention": Case(
        lambda m, x: m(x, x.flip(1)), texts, lambda: CrossAttention(16, 16, 8, 4)
    ),
    "multi_head_attention": Case(
        lambda m, x: m(x, is_causal=True), texts, lambda: MultiHeadAttention(16, 4, num_kv_heads=2)
    ),
    "multi_head_attention, weights": Case(
        lambda m, x: m(x, attn_mask=keep_window(9, T), need_weights=True),
        texts,
        lambda: MultiHeadAttention(16, 2),
    ),
    "positions": Case(lambda m, x: m(x), texts, lambda: LearnedPositions(T, 16), **SAME),
    "positions, not learned": Case(
        lambda _, x: x + sinusoidal_positions(T, 16, first=10**6).to(x.dtype), texts, **SAME
    ),
    "attention_backward": Case(lambda _, *x: attention(*x, keep_window(9, T)), heads),
    "rope": Case(
        lambda m, x: m(x, torch.arange(10**6, 10**6 + T)),
        lambda: (some(2, 4, T, 8),),
        lambda: RotaryPositions(8),
        **SAME,
    ),
    "image_attention": Case(
        lambda m, x: m(x, grid_positions(1, T) + 10**6),
        lambda: (some(2, 4, T, 8),),
        lambda: RotaryPositions2D(8),
        **SAME,
    ),
    "image_attention, windows": Case(
        lambda _, *x: window_attention(*x, 1, T, 50),
        heads,
    ),
    "attention_masks": Case(
        lambda _, q, k, v: F.scaled_dot_product_attention(
            q, k, v, keep_past(T) & keep_documents(torch.arange(T)[None] // 100)
        ),
        heads,
    ),
    "attention_masks, ALiBi": Case(
        lambda _, q, k, v: scaled_dot_product_attention(
            q, k, v, alibi_bias(4, T)[None].masked_fill(~keep_past(T), -torch.inf)
        ),
        heads,
    ),
    "kv_cache": Case(
        lambda _, k, v: KVCache(T).update(k, v),
        lambda: heads()[1:],
        roundings=0,
        backward=False,
        **SAME,
    ),
    "quantized_cache": Case(
        lambda _, k, v: QuantizedCache(group=T + 1).update(k, v),  # a code may jump a whole step
        lambda: heads()[1:],
        roundings=0,
        backward=False,
        **SAME,
    ),
    "quantized_cache, fewer tokens": Case(evicted, lambda: heads(4, 2), backward=False),
    "gated_attention, the operator": Case(
        lambda _, q, k, v, sink: sink_attention(q, k, v, sink, is_causal=True),
        lambda: (*heads(4, 2), some(4, seed=9)),
    ),
    "latent_attention, absorbed": Case(
        lambda m, x: m(x, absorb=True), texts, CACHED["latent_attention"]
    ),
    "online_softmax": Case(merged, lambda: heads(2, 2), returns=wide, roundings=32),
    "flash_attention": Case(
        lambda _, *x: flash_attention(*x, is_causal=True, block=64),
        heads,
    ),
    "ring_attention": Case(lambda _, *x: ring_attention(*x, Alone()), lambda: heads(4, 2)),
    "linear_attention": Case(lambda _, *x: linear_attention(*x)[0], heads, **SAME),
    "gated_memory": Case(
        forgets, lambda: (*heads(), some(2, 4, T, 1), some(2, 4, T, 1, seed=2)), **SAME
    ),
    "gated_memory, each channel": Case(
        forgets, lambda: (*heads(), some(2, 4, T, 1), some(2, 4, T, 8, seed=2)), **SAME
    ),
    "gated_memory, the layer": Case(
        lambda m, x: m(x), texts, lambda: GatedDeltaNet(16, 4, num_key_heads=2, head_dim=8)
    ),
    "gated_memory, cached": Case(
        remembered,
        texts,
        lambda: GatedDeltaNet(16, 4, num_key_heads=2, head_dim=8),
        backward=False,
    ),
    "sparse_attention": Case(
        lambda _, *x: attend_chosen(*x, best_keys(some(2, 1, T, T, seed=7), 40)),
        lambda: heads(4, 2),
    ),
    "sparse_attention, compressed keys": Case(
        lambda _, *x: compressed_attention(*x, 4), lambda: heads(4, 2)
    ),
    "gpt": Case(lambda m, x: m(x), tokens, lambda: GPT(VOCABULARY, 40, 16, 2, 2)),
    "attention_of": Case(lambda m, x: m(x), texts, of_a_config),
    "attention_of, cached": Case(in_pieces, texts, of_a_config, backward=False),
    "llama": Case(lambda m, x: m(x), tokens, lambda: Llama(VOCABULARY, 16, 4, 2, num_kv_heads=2)),
}


def as_tuple(result):
    """One result or several, as several."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def results(case, tried):
    """Return the results of a case, and its inputs and weights with their gradients, by name."""
    dtype = {"autocast": torch.float32}.get(tried) or getattr(torch, tried)
    torch.manual_seed(0)
    module = case.module()
    if module is not None:
        module = module.bfloat16().to(dtype).eval()
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in case.inputs()]
    leaves = {f"input {i}": x for i, x in enumerate(inputs) if x.is_floating_point()}
    leaves |= {} if module is None else dict(module.named_parameters())
    for leaf in leaves.values():
        leaf.requires_grad_(case.backward)
    with torch.autocast("cpu", torch.bfloat16, enabled=tried == "autocast"):
        made = as_tuple(case.call(module, *inputs))
    if not case.backward:
        return made, {}
    directions = [some(*one.shape, seed=i).to(one.dtype) for i, one in enumerate(made)]
    found = torch.autograd.grad(made, list(leaves.values()), directions, allow_unused=True)
    pairs = zip(leaves.items(), found, strict=True)
    return made, {name: (leaf, it) for (name, leaf), it in pairs if it is not None}


def farthest(result, exact, *terms):
    """The largest error, as a share of the largest number, or of 1 where all are smaller.

    A sum that cancels gives `terms`, too, which are as large as what was added.
    """
    size = max(1.0, *(it.abs().max().item() for it in (exact, *terms)))
    return (result.double() - exact.double()).abs().max().item() / size


@pytest.mark.filterwarnings("error:Mismatch dtype between input and weight:UserWarning")
@pytest.mark.parametrize("tried", TRIED)
@pytest.mark.parametrize("name", CASES)
def test_each_file_is_right_in_each_dtype(name, tried):
    case = CASES[name]
    narrow = case.computes_in(tried)
    made, gradients = results(case, tried)
    exact, exact_gradients = results(case, "float64")
    may_lose = case.may_lose(narrow)
    for result, wanted in zip(made, exact, strict=True):
        assert result.dtype == case.returns(narrow)
        assert result.isfinite().all()
        assert farthest(result, wanted) <= may_lose
    assert gradients.keys() == exact_gradients.keys()
    for name, (leaf, result) in gradients.items():
        assert result.dtype == leaf.dtype
        assert result.isfinite().all()
        _, wanted = exact_gradients[name]
        # The gradient of a bias adds up what that of its weight does; that of a key's bias cancels.
        _, terms = exact_gradients.get(name.replace("bias", "weight"), (leaf, wanted))
        # Forward, and twice as many back, from a result that has its error already.
        assert farthest(result, wanted, terms) <= 4 * may_lose


def by_generate(model, texts, n, temperature):
    """What generate.py writes after each text."""
    return torch.stack(generate(model, [*texts], n, temperature))


def by_gpt(model, texts, n, temperature):
    """What the model writes itself."""
    return model.generate(texts, n, temperature)


def by_server(model, texts, n, temperature):
    """What paged_server.py writes after each text; all run at once."""
    blocks = len(texts) * (n // 16 + 1)
    server = PagedServer(model, blocks, budget=3 * len(texts), temperature=temperature)
    requests = [server.add(text, n) for text in texts]
    while server.step():
        pass
    return torch.stack([request.tokens for request in requests])


def by_speculation(model, texts, n, temperature):
    """What speculative sampling writes after each text, with the model as its own draft."""
    written = [
        speculative_sampling(model, model, text[None], n, temperature=temperature).tokens
        for text in texts
    ]
    return torch.cat(written)


class Equal(torch.nn.Module):
    """A model to which all of 1,000 tokens are equally likely."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.blocks = dtype, ()

    def forward(self, tokens, *, last=0, **how):
        return torch.zeros(*tokens.shape, 1000, dtype=self.dtype)[:, -last:]


def equal_gpt(dtype):
    """A GPT of which all weights are 0."""
    model = GPT(1000, 16, 8, 1, 1).to(dtype).eval()
    for weight in model.parameters():
        weight.zero_()
    return model


# name → what writes, a model for it, a model to which all tokens are equally likely
WRITERS = {
    "generate": (by_generate, lambda: Llama(VOCABULARY, 16, 4, 2, num_kv_heads=2), Equal),
    "gpt": (by_gpt, lambda: GPT(VOCABULARY, 16, 16, 2, 2), equal_gpt),
    "paged_server": (by_server, lambda: Llama(VOCABULARY, 16, 4, 2, num_kv_heads=2), Equal),
    "speculative_sampling": (
        by_speculation,
        lambda: Llama(VOCABULARY, 16, 4, 2, num_kv_heads=2),
        Equal,
    ),
}


@pytest.mark.parametrize("tried", TRIED)
@pytest.mark.parametrize("name", WRITERS)
@torch.no_grad()
def test_what_is_written_is_likeliest_but_for_rounding(name, tried):
    write, make, _ = WRITERS[name]
    torch.manual_seed(0)
    narrow = torch.bfloat16 if tried == "autocast" else getattr(torch, tried)
    model = make().bfloat16().to(torch.float32 if tried == "autocast" else narrow).eval()
    with torch.autocast("cpu", torch.bfloat16, enabled=tried == "autocast"):
        written = write(model, torch.tensor([[1, 2, 3], [3, 2, 1]]), 12, 0)
    logits = model.double()(written)[:, 2:-1]  # those of what was written
    chosen = logits.gather(-1, written[:, 3:, None]).squeeze(-1)
    margin = 2 * 8 * torch.finfo(narrow).eps / 2 * max(1.0, logits.abs().max().item())
    assert (logits.amax(dim=-1) - chosen <= margin).all()


@pytest.mark.parametrize("tried", TRIED)
@pytest.mark.parametrize("name", WRITERS)
@torch.no_grad()
def test_of_equal_tokens_each_can_be_drawn(name, tried):
    """4,000 draws leave out 18 of 1,000; shares that are summed in bfloat16 leave out half."""
    write, _, make = WRITERS[name]
    torch.manual_seed(0)
    narrow = torch.bfloat16 if tried == "autocast" else getattr(torch, tried)
    texts = 10 if name in ("paged_server", "speculative_sampling") else 500
    with torch.autocast("cpu", torch.bfloat16, enabled=tried == "autocast"):
        written = write(make(narrow), torch.zeros(texts, 3, dtype=torch.int64), 4000 // texts, 1.0)
    assert len(written[:, 3:].unique()) > 950


def test_every_file_is_tried():
    tried = {name.partition(",")[0] for name in CASES} | WRITERS.keys()
    assert tried == {path.stem for path in SNIPPETS.glob("*.py")}
