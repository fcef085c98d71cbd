"""What the parts to take away cost, counted: bytes made at 16,384 tokens, and passes over the scores.

The bytes are those of tensors that have shapes and no numbers (PyTorch's FakeTensorMode), so a
count takes milliseconds and no memory. A score matrix of one head would be 1 GiB in float32.
"""

from functools import partial
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from snippets.attention_masks import keep_past, keep_sinks, keep_window
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from tests.snippets.problems import Implementation

REAL = Implementation()
function = REAL.scaled_dot_product_attention.scaled_dot_product_attention
MultiHeadAttention = REAL.multi_head_attention.MultiHeadAttention
T, MATRIX = 16_384, 4 * 16_384**2


class Bytes(TorchDispatchMode):
    """Counts the bytes of the tensors that operators make: all that live at once, at the most."""

    def __enter__(self):
        """Start with none."""
        self.alive, self.peak = {}, 0
        return super().__enter__()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        """Run the operator, and look which storages there are now."""
        given = {part.untyped_storage()._cdata for part in tensors((args, kwargs))}
        made = operator(*args, **kwargs or {})
        for part in tensors(made):
            storage = part.untyped_storage()
            if storage._cdata not in given:
                self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.alive = {at: it for at, it in self.alive.items() if not it[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return made


def tensors(tree):
    """Return the tensors in what an operator takes or gives."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def peak(run, *inputs, **options):
    """Return the most bytes that a call makes, beside its inputs."""
    with Bytes() as counted:
        run(*inputs, **options)
    return counted.peak


@pytest.fixture(autouse=True)
def shapes_without_numbers():
    """Let all tensors of a test be fake."""
    with FakeTensorMode(), torch.no_grad():
        yield


SHAPES = {"unbatched": (), "a batch": (2,), "heads": (2, 3), "more": (2, 1, 3)}
every_shape = pytest.mark.parametrize("leading", SHAPES.values(), ids=SHAPES)


@every_shape
@pytest.mark.parametrize("width", [8, 16, 24], ids=["narrow values", "one width", "wide values"])
@pytest.mark.parametrize("asked", ["", "causal", "padding", "padding causal"])
def test_the_function_makes_no_matrix_of_scores(leading, width, asked):
    query, value = torch.zeros(*leading, T, 16), torch.zeros(*leading, T, width)
    options = {"is_causal": "causal" in asked}
    if "padding" in asked:
        options["attn_mask"] = padding(leading)
    assert peak(function, query, query, value, **options) < MATRIX // 10


def padding(leading):
    """A mask of keys for each text, the same for all its queries; without leading, for one text."""
    return torch.ones(*leading[:1], *(1 for _ in leading[1:]), 1, T).bool()


def test_keys_that_several_samples_share_reach_the_fused_kernel():
    query, key = torch.zeros(4, T, 16), torch.zeros(T, 16)
    assert peak(function, query, key, key) < MATRIX // 10


@every_shape
def test_the_modules_make_no_matrix_of_scores(leading):
    x = torch.zeros(*leading, T, 16)
    keep = padding(leading)
    one, masked = {"attn_mask": keep}, {"attn_mask": keep.unsqueeze(-3)} if leading else {}
    causal = {"is_causal": True}
    calls = {
        "self": (REAL.self_attention.SelfAttention(16, 8), (x,), one),
        "causal": (REAL.causal_self_attention.CausalSelfAttention(16, 8), (x,), {}),
        "cross": (REAL.cross_attention.CrossAttention(16, 16, 8), (x, x), one),
        "narrow": (REAL.cross_attention.CrossAttention(16, 16, 8, 4), (x, x), one),
        "heads": (MultiHeadAttention(16, 2), (x,), masked | causal),
        "wide": (MultiHeadAttention(16, 2, value_dim=32), (x,), masked),
        "shared": (MultiHeadAttention(16, 4, num_kv_heads=2), (x,), masked | causal),
        "average": (REAL.causal_average.causal_average, (x,), {}),
    }
    for name, (run, inputs, options) in calls.items():
        assert peak(run, *inputs, **options) < MATRIX // 10, name


def test_the_bytes_that_the_docstrings_name_are_those_made():
    """Where PyTorch has no fused kernel on a CPU: dropout, a mask that learns, both masks compiled."""
    x, keep = torch.zeros(T, 16), torch.ones(1, T).bool()
    small = MATRIX // 100  # what is not a matrix of scores
    dropout = peak(function, x, x, x, keep, 0.1, True)
    assert 0 <= dropout - 18 * T * T < small
    with torch.enable_grad():
        learned = torch.zeros(1, T, requires_grad=True)
        assert 0 <= peak(function, x, x, x, learned) - 2 * MATRIX < small
    with mock.patch("torch.compiler.is_compiling", return_value=True):
        assert 0 <= peak(function, x, x, x, keep, is_causal=True) - 6 * T * T < small
    for options, matrices in (({}, 2), ({"attn_mask": keep}, 3), ({"dropout_p": 0.1}, 4)):
        made = peak(function, x, x, x, **options, need_weights=True)
        assert 0 <= made - matrices * MATRIX < small, options


def test_the_written_out_passes_make_the_bytes_that_they_name():
    x = torch.zeros(T, 16, requires_grad=True)
    attention = REAL.attention_backward.attention
    with torch.enable_grad():
        made = peak(lambda x: attention(x, x, x).sum().backward(), x)
    assert 0 <= made - 4 * MATRIX < MATRIX // 100


@pytest.mark.parametrize("keep", [keep_past, partial(keep_window, 1024), partial(keep_sinks, 4)])
def test_a_mask_is_made_with_no_other_beside_it(keep):
    assert 0 <= peak(keep, T) - T * T < T * T // 100


def test_many_tokens_after_a_filled_cache_make_no_mask_of_all_pairs():
    """Of 8,192 tokens after as many, a mask is 128 MiB, and 640 in the dtype of the scores, too."""
    x, half = torch.zeros(1, T, 64), T // 2
    for layer in (
        GroupedQueryAttention(64, 4, num_kv_heads=2),
        LatentAttention(64, 4, latent_dim=32, head_dim=16),
    ):
        cache = KVCache(T)
        layer(x[:, :half], cache=cache)
        made = peak(layer, x[:, half:], cache=cache)
        # Some tensors of 8,192 rows, and a mask for 512 queries at a time, boolean and as numbers.
        assert made < 12 * 4 * T * 64 + 5 * 512 * T


def test_one_token_of_absorbed_latent_attention_copies_nothing_that_is_cached():
    layer, cache = LatentAttention(64, 4, latent_dim=32, head_dim=16, rope_dim=8), KVCache(T)
    layer(torch.zeros(1, T - 1, 64), cache=cache)
    assert peak(layer, torch.zeros(1, 1, 64), cache=cache, absorb=True) < cache.nbytes // 10


class Passes(TorchDispatchMode):
    """Counts how many elements of full score matrices operators read and write."""

    def __init__(self, elements):
        super().__init__()
        self.elements, self.moved = elements, 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        """Run the operator, and count its large tensors; a view moves nothing."""
        made = operator(*args, **kwargs or {})
        given = {part.untyped_storage()._cdata for part in tensors((args, kwargs))}
        new = [part for part in tensors(made) if part.untyped_storage()._cdata not in given]
        if new or operator._schema.is_mutable:
            parts = tensors((args, kwargs, made))
            self.moved += sum(part.nbytes for part in parts if part.numel() >= self.elements)
        return made


class Plainest(nn.Module):
    """The layer as most tutorials write it: a stored mask, no check, no guard for an empty row."""

    def __init__(self, embed_dim, num_heads, tokens):
        super().__init__()
        self.num_heads = num_heads
        self.W_query = nn.Linear(embed_dim, embed_dim)
        self.W_key = nn.Linear(embed_dim, embed_dim)
        self.W_value = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.register_buffer("hide", torch.ones(tokens, tokens, dtype=torch.bool).triu(1))

    def forward(self, x):
        """(batch, tokens, embed_dim) → the same, and the weights."""
        b, t, e = x.shape
        query, key, value = (
            project(x).view(b, t, self.num_heads, e // self.num_heads).transpose(1, 2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        scores = query @ key.transpose(2, 3)
        scores.masked_fill_(self.hide[:t, :t], float("-inf"))
        weights = torch.softmax(scores / (e // self.num_heads) ** 0.5, dim=-1)
        return self.out_proj((weights @ value).transpose(1, 2).reshape(b, t, e)), weights


@pytest.mark.parametrize("asked", ["causal", "padding", "padding causal", "float"])
def test_weights_asked_for_take_no_more_passes_than_the_plainest_class(asked):
    batch, heads, tokens = 8, 12, 1024
    x = torch.zeros(batch, tokens, 768)
    options = {"is_causal": "causal" in asked}
    if "padding" in asked:
        options["attn_mask"] = torch.ones(batch, 1, 1, tokens).bool()
    if asked == "float":
        options["attn_mask"] = torch.zeros(tokens, tokens)
    moved = []
    for model in (Plainest(768, heads, tokens), MultiHeadAttention(768, heads)):
        with Passes(batch * heads * tokens * tokens) as passes:
            model(x, **{"need_weights": True} | options if moved else {})
        moved.append(passes.moved)
    assert moved[1] <= 1.1 * moved[0], moved


def test_a_score_is_a_share_whichever_way_it_came():
    """The two counters see what they are meant to see: PyTorch's own, asked for a matrix."""
    x = torch.zeros(1, 1, T, 16)
    assert peak(F.scaled_dot_product_attention, x, x, x) < MATRIX // 10
    assert peak(F.scaled_dot_product_attention, x[0], x[0], x[0]) > MATRIX
    with Passes(T * T) as passes:
        (x @ x.mT).softmax(dim=-1)
    assert passes.moved == 3 * MATRIX
