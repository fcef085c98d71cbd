"""Latent attention: both ways are the definition, the cache changes nothing, and mistakes show.

The wrong versions at the end are the file with one edit each; every one must fail a fact.
"""

import copy
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune

from snippets import latent_attention
from tests.snippets.facts import Adapter, assert_equal, first_to_notice, works
from tests.snippets.problems import edited

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
    if options.get("rope_dim"):
        options.setdefault("rotate", turn)
    made = file.LatentAttention(embed_dim, num_heads, **options).to(dtype)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def plain(a, x, keep=None, scale=None):
    """The paper's formulas (appendix C), one head at a time and nothing fused."""
    T = x.size(1)
    scale = (a.head_dim + a.rope_dim) ** -0.5 if scale is None else scale
    asks = x if a.W_query_latent is None else a.query_norm(a.W_query_latent(x))
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
    FULL | {"value_dim": 13, "query_latent_dim": 5, "latent_norm": False},
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
        for cuts, rows in (([7], 512), ([3, 1, 3], 512), ([1] * 7, 512), ([1, 5, 1], 2)):
            cache = Cache()
            with mock.patch.object(file, "ROWS", rows):
                pieces = [a(part, cache=cache, absorb=absorb) for part in x.split(cuts, 1)]
            assert_equal(f"{cuts}", torch.cat(pieces, 1), plain(a, x), torch.float64)
            assert [part.shape for part in cache.held] == [(2, 1, 7, 14), (2, 1, 7, 0)]


@torch.no_grad()
def a_mask_stands_in_place_of_the_triangle(file):
    a, x = layer(file, **FULL), torch.randn(2, 5, 12, dtype=torch.float64)
    keep = torch.rand(2, 3, 5, 5) < 0.6
    keep[..., 2] = True  # some of the future, too
    added = torch.zeros(keep.shape, dtype=torch.bfloat16).masked_fill(~keep, -torch.inf)
    for absorb in WAYS:
        for mask in (keep, added):
            with works(f"a mask of {mask.dtype}"):
                result = a(x, attn_mask=mask, absorb=absorb)
            assert_equal("masked", result, plain(a, x, keep), torch.float64)
        cache = Cache()
        a(x[:, :4], cache=cache, absorb=absorb)
        result = a(x[:, 4:], cache=cache, absorb=absorb, attn_mask=keep[:, :, 4:])
        assert_equal("one token, masked", result, plain(a, x, keep)[:, 4:], torch.float64)


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
def a_hook_on_a_projection_sees_every_token_and_changes_what_it_changes(file):
    for name in ("W_key", "W_value"):
        a, seen = layer(file, **FULL), []

        def hook(_, given, made, seen=seen):
            seen.append(given[0].size(1))
            return made.abs()  # not linear, so that no matrix can stand for it

        getattr(a, name).register_forward_hook(hook)
        cache, x = Cache(), torch.randn(1, 50, 12, dtype=torch.float64)
        pieces = [a(part, cache=cache) for part in (x[:, :49], x[:, 49:])]
        assert_equal(name, torch.cat(pieces, 1), a(x, absorb=False), torch.float64)
        assert seen == [49, 50, 50]


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
    a_hook_on_a_projection_sees_every_token_and_changes_what_it_changes,
    pruned_projections_are_pruned_both_ways,
    the_norms_add_a_millionth_under_the_root,
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_of_the_file_it_is_true_that(fact):
    fact(latent_attention)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_less_precise_dtypes_it_is_the_definition_in_float64(dtype):
    a, x = layer(dtype=dtype, **FULL), torch.randn(2, 5, 12, dtype=dtype)
    wanted = plain(copy.deepcopy(a).double(), x.double())
    allowed = {torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype] * wanted.abs().max().item()
    for absorb in WAYS:
        result = a(x, absorb=absorb)
        assert result.dtype == dtype
        assert (result.double() - wanted).abs().max().item() < allowed


def test_a_latent_as_wide_as_the_token_is_multi_head_attention():
    theirs = nn.MultiheadAttention(12, 3, bias=False, batch_first=True).double()
    ours = layer(latent_dim=12, head_dim=4, latent_norm=False)
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

    def watched(query, key, value, **options):
        seen.append((query.shape[-1], key.shape[-1], value.shape[-1], options.get("attn_mask")))
        return operator(query, key, value, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    layer(**FULL | {"value_dim": 3})(torch.randn(1, 5, 12).double(), absorb=absorb)
    assert seen == [(14, 14, 14, None) if absorb else (10, 10, 10, None)]


def test_it_says_its_sizes():
    said = repr(layer(**FULL))
    for part in ("num_heads=3", "latent_dim=10", "rope_dim=4", "value_dim=6", "scale=0.3162"):
        assert part in said


x = torch.zeros(2, 5, 12)
good = latent_attention.LatentAttention(12, 3, latent_dim=4, head_dim=2)


@pytest.mark.parametrize(
    ("call", "argument", "got", "wanted"),
    [
        (
            lambda: layer(embed_dim=0, latent_dim=4, head_dim=2),
            "embed_dim",
            "0",
            "positive integer",
        ),
        (
            lambda: layer(num_heads=1.5, latent_dim=4, head_dim=2),
            "num_heads",
            "1.5",
            "positive integer",
        ),
        (lambda: layer(latent_dim=-1, head_dim=2), "latent_dim", "-1", "positive integer"),
        (lambda: layer(latent_dim=4, head_dim="2"), "head_dim", "'2'", "positive integer"),
        (
            lambda: layer(latent_dim=4, head_dim=2, value_dim=0),
            "value_dim",
            "0",
            "positive integer",
        ),
        (
            lambda: layer(latent_dim=4, head_dim=2, query_latent_dim=0),
            "query_latent_dim",
            "0",
            "positive integer",
        ),
        (lambda: layer(latent_dim=4, head_dim=2, rope_dim=-2), "rope_dim", "-2", "0 or more"),
        (lambda: layer(latent_dim=4, head_dim=2, rotate=turn), "rotate", "0", "None"),
        (lambda: good(x[0]), "x", "(5, 12)", "(batch, T, 12)"),
        (lambda: good(x[..., 1:]), "x", "(2, 5, 11)", "(batch, T, 12)"),
        (
            lambda: good(x, attn_mask=torch.zeros(5, 5, dtype=torch.int64)),
            "attn_mask",
            "torch.int64",
            "boolean",
        ),
        (lambda: good(x, attn_mask=[[True]]), "attn_mask", "[[True]]", "tensor or None"),
        (
            lambda: good(x, attn_mask=torch.ones(2, 5, 5, dtype=torch.bool)),
            "attn_mask",
            "(2, 5, 5)",
            "mask[:, None]",
        ),
        (
            lambda: good(x, attn_mask=torch.ones(5, 4, dtype=torch.bool)),
            "attn_mask",
            "(5, 4)",
            "(2, 3, 5, 5)",
        ),
        (
            lambda: good(x, attn_mask=torch.ones(4, 1, 5, 5, dtype=torch.bool)),
            "attn_mask",
            "(4, 1, 5, 5)",
            "(2, 3, 5, 5)",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_what_came_and_what_was_wanted(call, argument, got, wanted):
    with pytest.raises(ValueError, match=f"^{argument} must") as caught:
        call()
    assert got in str(caught.value)
    assert wanted in str(caught.value)


WRONG = {
    "the scale is that of the latents": (
        "_causal_attention(query, kept, kept, attn_mask, self.scale)",
        "_causal_attention(query, kept, kept, attn_mask)",
    ),
    "the scale forgets the rotary channels": ("(head_dim + rope_dim) ** -0.5", "head_dim**-0.5"),
    "the rotary key is not turned": ("self.rotate(place, positions)", "place"),
    "the whole cache is turned again": (
        "kept, _ = cache.update(kept, kept[..., :0])",
        "kept, _ = cache.update(kept, kept[..., :0]); kept = torch.cat([kept[..., :10], self.rotate("
        "kept[..., 10:], torch.arange(kept.size(-2)))], -1)",
    ),
    "positions restart after the cache": ("torch.arange(past, past + T,", "torch.arange(T,"),
    "the latent is cached before its norm": (
        "_normed(self.latent_norm, self.W_latent(x))",
        "self.W_latent(x)",
    ),
    "the queries skip their norm": (
        "_normed(self.query_norm, self.W_query_latent(x))",
        "self.W_query_latent(x)",
    ),
    "the triangle starts at the wrong corner": (
        "seen <= place[start : start + ROWS, None]",
        "seen <= place[start : start + ROWS, None] - keys + T",
    ),
    "a token after the past sees the next": ("keep = seen <= place", "keep = seen <= 1 + place"),
    "a piece of the queries is read twice": (
        "query[:, :, start - keys + T :][:, :, :ROWS]",
        "query[:, :, : min(ROWS, keys - start)]",
    ),
    "nothing is hidden": ("is_causal=True, **options", "**options"),
    "the mask is ignored": (
        "if attn_mask is not None:\n        return F.",
        "if False:\n        return F.",
    ),
    "the mask of one token is ignored": ("attn_mask=attn_mask, scale=scale", "scale=scale"),
    "the mask of another head": (
        "attn_mask = attn_mask.unflatten",
        "attn_mask = attn_mask.flip(1).unflatten",
    ),
    "hooks are passed by": ("any(getattr(part", "any(0 and getattr(part"),
    "hooks are passed by, told to absorb": (
        "if not plain or _hooked(projection):",
        "if not plain:",
    ),
    "the norm's eps is another": ("eps=1e-6", "eps=1e-5"),
    "absorbed contexts keep the place": (
        "context[..., : self.latent_dim] @ W_value.mT",
        "context[..., -self.latent_dim :] @ W_value.mT",
    ),
    "heads and channels are exchanged": (
        "x.unflatten(-1, (-1, width)).transpose(1, 2)",
        "x.unflatten(-1, (width, -1)).permute(0, 3, 1, 2)",
    ),
    "an adapter's change is not absorbed": ("plain = type(projection) is nn.Linear and", "plain ="),
    "a mask of another dtype is not cast": ("attn_mask = attn_mask.to(query.dtype)", "pass"),
    "always expanded": (" < self.multiplications(T, keys, False)", " < 0"),
    "always absorbed": (" < self.multiplications(T, keys, False)", " > 0"),
    "the rotary key is not counted": (
        "width = self.head_dim + self.rope_dim + self.value_dim",
        "width = 10 * self.head_dim",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_fails_a_fact(what):
    wrong = edited("latent_attention", WRONG[what])
    assert first_to_notice(FACTS, wrong), f"no fact notices that {what}"
