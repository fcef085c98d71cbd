"""Latent attention: both ways are the definition, the cache changes nothing, and the cheaper way is taken."""

import copy
from functools import partial
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from snippets.rope import RotaryPositions
from tests.snippets.facts import refuses, works
from tests.snippets.parts import Case, T, alike, close, draw, texts

OPERATOR = F.scaled_dot_product_attention
WAYS = (False, True)
FULL = {"latent_dim": 10, "head_dim": 6, "rope_dim": 4}
ROTATE = RotaryPositions(4)
OPTIONS = [
    {"latent_dim": 10, "head_dim": 6},
    FULL | {"value_dim": 3, "bias": True},
    FULL | {"value_dim": 13, "query_latent_dim": 5, "scale": 0.3},
]


def layer(file, **options):
    """A layer of three heads in which no weight is 1 and no bias 0, so that none can be forgotten."""
    torch.manual_seed(0)
    rotate = ROTATE if "rope_dim" in options else None
    made = file.LatentAttention(12, 3, rotate=rotate, **options).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def plain(a, x, keep=None, places=None):
    """The paper's formulas (appendix C), one head at a time and nothing fused."""
    tokens = x.size(1)
    places = torch.arange(tokens) if places is None else places
    keep = torch.ones(1, 3, tokens, tokens).tril().bool() if keep is None else keep
    asks, latent = a.query_norm(a.W_query_latent(x)), a.latent_norm(a.W_latent(x))
    width, contexts = a.head_dim + a.rope_dim, []
    for h in range(a.num_heads):
        query = asks @ a.W_query.weight[h * width : (h + 1) * width].T
        key = latent @ a.W_key.weight[h * a.head_dim : (h + 1) * a.head_dim].T
        value = latent @ a.W_value.weight[h * a.value_dim : (h + 1) * a.value_dim].T
        scores = query[..., : a.head_dim] @ key.mT
        if a.rope_dim:
            turned, turned_key = (
                ROTATE(part[:, None], places)[:, 0]
                for part in (query[..., a.head_dim :], a.W_rope_key(x))
            )
            scores = scores + turned @ turned_key.mT
        scores = (scores * a.scale).masked_fill(~keep[:, h], float("-inf"))
        contexts.append(scores.softmax(-1) @ value)
    return a.out_proj(torch.cat(contexts, -1))


def test_both_ways_are_the_definition(part):
    for options in OPTIONS:
        a, x = layer(part, **options), draw(2, 5, 12).requires_grad_()
        assert a.scale == options.get("scale", (6 + a.rope_dim) ** -0.5)
        wanted = plain(a, x)
        for absorb in WAYS:
            assert alike(a(x, absorb=absorb), wanted, [x, *a.parameters()]), (options, absorb)
    a, x = layer(part, **FULL), draw(2, 5, 12)
    places = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])  # each text its own
    for absorb in WAYS:
        assert close(a(x, positions=places, absorb=absorb), plain(a, x, places=places))


@torch.no_grad()
def test_a_cache_changes_nothing(part):
    a, x = layer(part, **FULL), draw(2, 7, 12)
    for absorb in (*WAYS, None):
        for cuts in ([3, 1, 3], [1] * 7):
            cache = KVCache(7)
            pieces = [a(piece, cache=cache, absorb=absorb) for piece in x.split(cuts, 1)]
            assert close(torch.cat(pieces, 1), plain(a, x)), cuts
            assert cache.nbytes == 2 * 7 * 14 * 8  # a latent and a rotary key, and no values


@torch.no_grad()
def test_a_mask_stands_in_place_of_the_triangle(part):
    a, x, keep = layer(part, **FULL), draw(2, 5, 12), draw(2, 3, 5, 5, seed=2) > 0
    keep[..., 2] = True  # some of the future, too
    for absorb in WAYS:
        for seen in (keep, keep[:, :1], keep[:1, :1], keep[0, 0]):  # for all heads, for all texts
            wanted, added = plain(a, x, seen.expand(2, 3, 5, 5)), torch.zeros(seen.shape).double()
            with works("a mask that is added"):
                result = a(x, attn_mask=added.masked_fill(~seen, -torch.inf), absorb=absorb)
            assert close(result, wanted)
            cache = KVCache(5)
            pieces = (
                a(x[:, i:j], cache=cache, absorb=absorb, attn_mask=seen[..., i:j, :j])
                for i, j in ((0, 4), (4, 5))
            )
            assert close(torch.cat([*pieces], 1)[:, 4:], wanted[:, 4:])


class Changed(nn.Linear):
    """A projection with an adapter: its matrix is not all that it does."""

    def forward(self, x):
        """(..., in_features) → (..., out_features)."""
        return super().forward(x) + super().forward(x.roll(1, -1))


@torch.no_grad()
def test_adapted_and_pruned_projections_are_absorbed_whole(part):
    a, x = layer(part, **FULL), draw(2, 4, 12)
    for name in ("W_key", "W_value"):
        prune.random_unstructured(getattr(a, name), "weight", amount=0.5)
        getattr(a, name).weight_orig.mul_(2)  # as a step of training changes it
    assert close(a(x, absorb=True), a(x, absorb=False))
    for name in ("W_key", "W_value"):
        prune.remove(getattr(a, name), "weight")
        getattr(a, name).__class__ = Changed
    assert close(a(x, absorb=True), a(x, absorb=False))


@torch.no_grad()
def test_shards_of_the_heads_add_up_to_the_whole(part):
    whole, x = layer(part, **FULL), draw(2, 4, 12)
    for absorb in WAYS:
        total = torch.zeros(2, 4, 12).double()
        for head in range(3):
            piece = copy.deepcopy(whole)
            for projection in (piece.W_query, piece.W_key, piece.W_value):
                projection.weight = nn.Parameter(projection.weight.chunk(3)[head])
            piece.out_proj.weight = nn.Parameter(piece.out_proj.weight.chunk(3, dim=1)[head])
            with works("a shard"):
                total += piece(x, absorb=absorb)
        assert close(total, whole(x, absorb=absorb))


@torch.no_grad()
def test_the_cheaper_way_is_chosen(part):
    """On a processor the fused kernel wants query, key and value of one width."""
    a = layer(part, latent_dim=512, head_dim=128, rope_dim=64, value_dim=128)
    assert a.multiplications(1, 8192, False) == 3 * 8192 * (512 * 256 + 320)
    assert a.multiplications(1, 8192, True) == 3 * (512 * 256 + 8192 * 1088)
    for new, absorb in ((1, True), (166, True), (169, False), (8192, False)):
        found = [a.multiplications(new, 8192, way) for way in WAYS]
        assert (found[1] < found[0]) is absorb, (new, found)
    a, cache, x = layer(part, **FULL | {"value_dim": 3}), KVCache(51), draw(1, 51, 12)
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=OPERATOR) as operator:
        a(x[:, :50], cache=cache)
        a(x[:, 50:], cache=cache)
    widths = [[one.size(-1) for one in call.args[:3]] for call in operator.call_args_list]
    assert widths == [[6 + 4] * 3, [10 + 4] * 3]  # expanded, then absorbed
    assert [call.args[3] for call in operator.call_args_list] == [None, None]


def test_what_would_be_misread_is_refused(part):
    a, mask = layer(part, **FULL), torch.ones(3, 5, 5).bool()  # one for each text, or each head?
    refuses("three masks", partial(a, draw(3, 5, 12), attn_mask=mask))
    made = partial(part.LatentAttention, 12, 3, latent_dim=10, head_dim=6)
    refuses("a rotation that would turn nothing", made, rotate=ROTATE)


WRONG = {
    "the scale is that of the latents": ("is_causal=causal, scale=self.scale", "is_causal=causal"),
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
    "heads and channels are exchanged": (
        "self.W_key(latent[:, 0]).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)",
        "self.W_key(latent[:, 0]).unflatten(-1, (self.head_dim, -1)).permute(0, 3, 1, 2)",
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
