"""Latent attention: both ways are the definition, the cache changes nothing, and mistakes show.

The wrong versions at the end are the file with one edit each; every one must fail a fact.
"""

import copy
from functools import partial
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune

from snippets import latent_attention
from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from snippets.rope import RotaryPositions
from tests.snippets.facts import Adapter, assert_equal, works
from tests.snippets.parts import Case, T, texts

OPERATOR = F.scaled_dot_product_attention
WAYS = (False, True)
FULL = {"latent_dim": 10, "head_dim": 6, "rope_dim": 4}


class Cache:
    """The plainest cache that fits: what came, joined."""

    def __init__(self):
        self.length, self.held = 0, None

    def update(self, *new):
        self.held = (
            new
            if self.held is None
            else [torch.cat(pair, -2) for pair in zip(self.held, new, strict=True)]
        )
        self.length = self.held[0].size(-2)
        return self.held


def turn(x, positions):
    """Rotate pairs (2i, 2i + 1) by position / 10^i, written with complex numbers."""
    positions = positions if positions.dim() == 1 else positions[:, None]
    speed = 10.0 ** -torch.arange(x.size(-1) // 2, dtype=torch.float64)
    angle = positions[..., None] * speed
    turned = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    turned = turned * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def layer(file=latent_attention, *, embed_dim=12, num_heads=3, dtype=torch.float64, **options):
    """A layer in which no weight is 1 and no bias 0, so that none can be forgotten."""
    torch.manual_seed(0)
    normed = options.pop("normed", True)
    if options.get("rope_dim"):
        options.setdefault("rotate", turn)
    made = file.LatentAttention(embed_dim, num_heads, **options).to(dtype)
    if not normed:
        made.latent_norm = made.query_norm = nn.Identity()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def plain(a, x, keep=None, scale=None):
    """The paper's formulas (appendix C), one head at a time and nothing fused."""
    T = x.size(1)
    scale = (a.head_dim + a.rope_dim) ** -0.5 if scale is None else scale
    asks = a.query_norm(a.W_query_latent(x))
    latent, places = a.latent_norm(a.W_latent(x)), torch.arange(T)
    width = a.head_dim + a.rope_dim
    contexts = []
    for h in range(a.num_heads):
        query = asks @ a.W_query.weight[h * width : (h + 1) * width].T
        key = latent @ a.W_key.weight[h * a.head_dim : (h + 1) * a.head_dim].T
        value = latent @ a.W_value.weight[h * a.value_dim : (h + 1) * a.value_dim].T
        scores = query[..., : a.head_dim] @ key.mT
        if a.rope_dim:
            turned = turn(query[:, None, :, a.head_dim :], places)[:, 0]
            scores = scores + turned @ turn(a.W_rope_key(x)[:, None], places)[:, 0].mT
        seen = torch.ones(T, T, dtype=torch.bool).tril() if keep is None else keep[:, h]
        scores = (scores * scale).masked_fill(~seen, float("-inf"))
        contexts.append(scores.softmax(-1) @ value)
    return a.out_proj(torch.cat(contexts, -1))


OPTIONS = [
    {"latent_dim": 10, "head_dim": 6},
    FULL,
    FULL | {"value_dim": 3, "bias": True},
    FULL | {"value_dim": 13, "query_latent_dim": 5, "normed": False},
    FULL | {"query_latent_dim": 7, "bias": True, "scale": 0.3},
]


# Facts, asked of the file and of its wrong versions.


def both_ways_are_the_definition(file):
    for options in OPTIONS:
        a, x = layer(file, **options), torch.randn(2, 5, 12, dtype=torch.float64)
        x.requires_grad_()
        wanted = plain(a, x, scale=options.get("scale"))
        leaves = [x, *a.parameters()]
        gradients = torch.autograd.grad(wanted.sin().sum(), leaves)
        for absorb in WAYS:
            result = a(x, absorb=absorb)
            assert_equal(f"{options}, absorb={absorb}", result, wanted, torch.float64)
            found = torch.autograd.grad(result.sin().sum(), leaves)
            for one, other in zip(found, gradients, strict=True):
                assert_equal(f"gradient, absorb={absorb}", one, other, torch.float64)


@torch.no_grad()
def a_cache_changes_nothing(file):
    a, x = layer(file, **FULL), torch.randn(2, 7, 12, dtype=torch.float64)
    for absorb in (*WAYS, None):
        for cuts in ([7], [3, 1, 3], [1] * 7, [1, 5, 1]):
            cache = Cache()
            pieces = [a(part, cache=cache, absorb=absorb) for part in x.split(cuts, 1)]
            assert_equal(f"{cuts}", torch.cat(pieces, 1), plain(a, x), torch.float64)
            assert [part.shape for part in cache.held] == [(2, 1, 7, 14), (2, 1, 7, 0)]


@torch.no_grad()
def a_mask_stands_in_place_of_the_triangle(file):
    a, x = layer(file, **FULL), torch.randn(2, 5, 12, dtype=torch.float64)
    keep = torch.rand(2, 3, 5, 5) < 0.6
    keep[..., 2] = True  # some of the future, too
    added = torch.zeros(keep.shape, dtype=torch.float64).masked_fill(~keep, -torch.inf)
    for absorb in WAYS:
        for mask in (keep, added):
            with works(f"a mask of {mask.dtype}"):
                result = a(x, attn_mask=mask, absorb=absorb)
            assert_equal("masked", result, plain(a, x, keep), torch.float64)
        cache = Cache()
        a(x[:, :4], cache=cache, absorb=absorb)
        result = a(x[:, 4:], cache=cache, absorb=absorb, attn_mask=keep[:, :, 4:])
        assert_equal("one token, masked", result, plain(a, x, keep)[:, 4:], torch.float64)
        for mask in (keep[:, :1], keep[:1, :1]):  # one for all heads, and for all texts
            wanted = plain(a, x, mask.expand(2, 3, -1, -1))
            assert_equal("all heads", a(x, attn_mask=mask, absorb=absorb), wanted, torch.float64)
        cache = Cache()
        a(x[:, :4], cache=cache, absorb=absorb)
        result = a(x[:, 4:], cache=cache, absorb=absorb, attn_mask=keep[0, 0, 4:])
        wanted = plain(a, x, keep[:1, :1].expand(2, 3, -1, -1))[:, 4:]
        assert_equal("one token, one mask", result, wanted, torch.float64)


@torch.no_grad()
def the_future_cannot_change_the_past(file):
    a, x = layer(file, **FULL), torch.randn(1, 6, 12, dtype=torch.float64)
    for absorb in WAYS:
        before = a(x, absorb=absorb)
        for token in range(1, 6):
            changed = x.clone()
            changed[:, token:] += 1.0
            after = a(changed, absorb=absorb)
            assert torch.equal(after[:, :token], before[:, :token])
            assert ((after - before)[:, token:].abs().amax(-1) > 1e-6).all()


@torch.no_grad()
def distances_alone_count(file):
    a, x = layer(file, **FULL), torch.randn(2, 6, 12, dtype=torch.float64)
    for absorb in WAYS:
        wanted = a(x, absorb=absorb)
        moved = torch.arange(6) + torch.tensor([[40], [7]])  # each sequence by its own
        assert_equal("moved", a(x, positions=moved, absorb=absorb), wanted, torch.float64)
        turned = a(x, positions=torch.arange(6).flip(0), absorb=absorb)
        assert (turned - wanted).abs().max() > 1e-3, "positions do not count"


@torch.no_grad()
def adapted_projections_are_absorbed_whole(file):
    a, x = layer(file, **FULL), torch.randn(2, 4, 12, dtype=torch.float64)
    adapted = copy.deepcopy(a)
    for name in ("W_query", "W_latent", "W_rope_key", "W_key", "W_value", "out_proj"):
        adapter = Adapter(getattr(adapted, name)).double()
        adapter.weight = adapter.base.weight  # as peft does it: the matrix without the change
        setattr(adapted, name, adapter)
        getattr(a, name).weight += adapter.up.weight @ adapter.down.weight
    for absorb in WAYS:
        assert_equal("adapted", adapted(x, absorb=absorb), plain(a, x), torch.float64)


def the_cheaper_way_is_chosen(file):
    a = layer(file, latent_dim=512, head_dim=128, rope_dim=64)
    for new, absorb in ((1, True), (166, True), (169, False), (8192, False)):
        found = [a.multiplications(new, 8192, way) for way in WAYS]
        assert (found[1] < found[0]) is absorb, (new, found)
    assert ways_taken(layer(file, **FULL)) == ["expanded", "absorbed"]


def ways_taken(a):
    """Which way a layer goes for a prompt, and for the token after it."""
    cache, x = Cache(), torch.randn(1, 50, 12, dtype=torch.float64)
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=OPERATOR) as operator:
        a(x, cache=cache)
        a(x[:, :1], cache=cache)
    widths = [call.args[1].size(-1) for call in operator.call_args_list]
    names = {a.head_dim + a.rope_dim: "expanded", a.latent_dim + a.rope_dim: "absorbed"}
    return [names[width] for width in widths]


@torch.no_grad()
def pruned_projections_are_pruned_both_ways(file):
    for name in ("W_key", "W_value"):
        a, x = layer(file, **FULL), torch.randn(2, 5, 12, dtype=torch.float64)
        prune.random_unstructured(getattr(a, name), "weight", amount=0.5)
        getattr(a, name).weight_orig.mul_(2)  # as a step of training changes it
        cut = copy.deepcopy(a)
        prune.remove(getattr(cut, name), "weight")
        assert_equal(name, a(x, absorb=True), a(x, absorb=False), torch.float64)
        getattr(cut, name).weight.copy_(getattr(a, name).weight_orig * getattr(a, name).weight_mask)
        assert_equal(name, a(x, absorb=True), plain(cut, x), torch.float64)


@torch.no_grad()
def the_norms_add_a_millionth_under_the_root(file):
    a = layer(file, **FULL | {"query_latent_dim": 7})
    for norm, project in ((a.latent_norm, a.W_latent), (a.query_norm, a.W_query_latent)):
        norm.weight.fill_(1.0)
        latent = project(1e-3 * torch.randn(2, 5, 12, dtype=torch.float64))
        wanted = latent / (latent.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        assert_equal("norm", norm(latent), wanted, torch.float64)


FACTS = [
    both_ways_are_the_definition,
    a_cache_changes_nothing,
    a_mask_stands_in_place_of_the_triangle,
    the_future_cannot_change_the_past,
    distances_alone_count,
    adapted_projections_are_absorbed_whole,
    the_cheaper_way_is_chosen,
    pruned_projections_are_pruned_both_ways,
    the_norms_add_a_millionth_under_the_root,
]


@given(
    st.integers(1, 4), st.integers(1, 6), st.integers(1, 9), st.integers(0, 3), st.integers(1, 9)
)
def test_both_ways_agree_at_any_size(heads, head_dim, latent_dim, pairs, value_dim):
    options = {"latent_dim": latent_dim, "head_dim": head_dim, "rope_dim": 2 * pairs}
    a = layer(num_heads=heads, value_dim=value_dim, **options)
    x = torch.randn(2, 4, 12, dtype=torch.float64)
    wanted = plain(a, x)
    for absorb in WAYS:
        assert_equal(f"absorb={absorb}", a(x, absorb=absorb), wanted, torch.float64)


def test_a_latent_as_wide_as_the_token_is_multi_head_attention():
    theirs = nn.MultiheadAttention(12, 3, bias=False, batch_first=True).double()
    ours = layer(latent_dim=12, head_dim=4, normed=False)
    with torch.no_grad():
        nn.init.eye_(ours.W_latent.weight)
        matrices = *theirs.in_proj_weight.chunk(3), theirs.out_proj.weight
        parts = ours.W_query, ours.W_key, ours.W_value, ours.out_proj
        for part, matrix in zip(parts, matrices, strict=True):
            part.weight.copy_(matrix)
    x, hide = torch.randn(2, 6, 12).double(), torch.ones(6, 6, dtype=torch.bool).triu(1)
    wanted, _ = theirs(x, x, x, attn_mask=hide)
    for absorb in WAYS:
        assert_equal(f"absorb={absorb}", ours(x, absorb=absorb), wanted, torch.float64)


def test_shards_of_the_heads_add_up_to_the_whole():
    whole, x = layer(**FULL | {"value_dim": 5}), torch.randn(2, 4, 12).double()
    for absorb in WAYS:
        total = 0
        for head in range(3):
            part = copy.deepcopy(whole)
            for projection in (part.W_query, part.W_key, part.W_value):
                projection.weight = nn.Parameter(projection.weight.chunk(3)[head])
            part.out_proj.weight = nn.Parameter(part.out_proj.weight.chunk(3, dim=1)[head])
            total = total + part(x, absorb=absorb)
        assert_equal(f"absorb={absorb}", total, whole(x, absorb=absorb), torch.float64)


@pytest.mark.parametrize("absorb", WAYS)
def test_the_fused_kernel_runs_and_no_scores_are_stored(absorb, monkeypatch):
    """On a processor it wants equal widths, and no gradient of a mask."""
    seen, operator = [], F.scaled_dot_product_attention

    def watched(query, key, value, mask, **options):
        seen.append((query.shape[-1], key.shape[-1], value.shape[-1], mask))
        return operator(query, key, value, mask, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    layer(**FULL | {"value_dim": 3})(torch.randn(1, 5, 12).double(), absorb=absorb)
    assert seen == [(14, 14, 14, None) if absorb else (10, 10, 10, None)]


WRONG = {
    "the scale is that of the latents": ("is_causal=causal, scale=self.scale", "is_causal=causal"),
    "the scale forgets the rotary channels": ("(head_dim + rope_dim) ** -0.5", "head_dim**-0.5"),
    "the rotary key is not turned": ("self.rotate(place, positions)", "place"),
    "the whole cache is turned again": (
        "kept, _ = cache.update(kept, kept[..., :0])",
        "kept, _ = cache.update(kept, kept[..., :0]); kept = torch.cat([kept[..., :10], self.rotate("
        "kept[..., 10:], torch.arange(kept.size(-2)))], -1)",
    ),
    "positions restart after the cache": ("torch.arange(past, keys,", "torch.arange(T,"),
    "the latent is cached before its norm": (
        "_normed(self.latent_norm, self.W_latent(x))",
        "self.W_latent(x)",
    ),
    "the queries skip their norm": (
        "_normed(self.query_norm, self.W_query_latent(x))",
        "self.W_query_latent(x)",
    ),
    "the triangle starts at the wrong corner": (".tril(past)", ".tril()"),
    "a token after the past sees the next": (".tril(past)", ".tril(past + 1)"),
    "nothing is hidden": ("causal = attn_mask is None and not past", "causal = False"),
    "the past is hidden": ("if attn_mask is None and past and T > 1:", "if False:"),
    "the mask is ignored": ("read(query, kept, attn_mask,", "read(query, kept, None,"),
    "the mask of another head": (
        "attn_mask = attn_mask.transpose(1, 2) if",
        "attn_mask = attn_mask.flip(1).transpose(1, 2) if",
    ),
    "a pruned matrix as it was": (" and type(projection.weight) is nn.Parameter", ""),
    "the norm's eps is another": ("RMSNorm(latent_dim, eps=1e-6", "RMSNorm(latent_dim, eps=1e-5"),
    "the eps of the queries' norm is another": (
        "RMSNorm(query_latent_dim, eps=1e-6",
        "RMSNorm(query_latent_dim, eps=1e-5",
    ),
    "absorbed contexts keep the place": (
        "context[..., : self.latent_dim] @ W_value.mT",
        "context[..., -self.latent_dim :] @ W_value.mT",
    ),
    "heads and channels are exchanged": (
        "self.W_key(latent[:, 0]).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)",
        "self.W_key(latent[:, 0]).unflatten(-1, (self.head_dim, -1)).permute(0, 3, 1, 2)",
    ),
    "an adapter's change is not absorbed": ("type(projection) is nn.Linear and type", "type"),
    "always expanded": (" < self.multiplications(T, keys, False)", " < 0"),
    "always absorbed": (" < self.multiplications(T, keys, False)", " > 0"),
    "the rotary key is not counted": (
        "width = self.head_dim + self.rope_dim + self.value_dim",
        "width = 10 * self.head_dim",
    ),
}


LATENT = {"latent_dim": 8, "head_dim": 8, "rope_dim": 8, "rotate": RotaryPositions(8)}


def rotated():
    """Four heads with one rotary key."""
    return LatentAttention(16, 4, **LATENT)


def in_pieces(module, x):
    """A text read in three pieces, from a cache."""
    held, sizes = KVCache(T), [T - 20, 1, 19]
    return torch.cat([module(part, cache=held) for part in x.split(sizes, dim=1)], dim=1)


CASES = {
    "the layer": Case(lambda m, x: m(x), texts, rotated),
    "absorbed": Case(lambda m, x: m(x, absorb=True), texts, rotated),
    "cached": Case(in_pieces, texts, rotated, backward=False),
}
MODULES = {
    "LatentAttention": lambda: LatentAttention(
        8, 2, latent_dim=6, head_dim=4, rope_dim=2, rotate=RotaryPositions(2)
    ),
    # A latent so narrow that absorbing is the cheaper way for a whole prompt, too.
    "absorbed": lambda: LatentAttention(8, 2, latent_dim=1, head_dim=4),
}


def a_token_of(x):
    """One more token, absorbed: nothing that is cached is copied."""
    made, cache = LatentAttention(64, 4, latent_dim=32, head_dim=16, rope_dim=8), KVCache(len(x))
    made(x[None, 1:], cache=cache)
    return partial(made, x[None, :1], cache=cache, absorb=True)


MIB = {
    "LatentAttention": (
        13,
        lambda x: partial(LatentAttention(64, 1, latent_dim=16, head_dim=64), x[None]),
    ),
    "a token, absorbed": (0, a_token_of),
}


def test_a_mask_for_each_text_is_not_read_as_one_for_each_head():
    with pytest.raises(ValueError, match="attn_mask"):
        layer(**FULL)(torch.zeros(3, 5, 12).double(), attn_mask=torch.ones(3, 5, 5).bool())


def test_a_rotation_that_would_turn_nothing_is_refused():
    with pytest.raises(ValueError, match="rope_dim"):
        LatentAttention(12, 3, latent_dim=10, head_dim=6, rotate=turn)
