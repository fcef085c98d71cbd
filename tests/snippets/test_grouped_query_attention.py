"""One class is multi-head, grouped and multi-query attention; in pieces as at once; and it refuses what does not fit."""

import copy
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.multi_head_attention import MultiHeadAttention
from tests.snippets import facts
from tests.snippets.facts import first_to_notice, works
from tests.snippets.problems import edited

GROUPS = [(4, 4), (4, 2), (6, 3), (4, 1)]  # (num_heads, num_kv_heads)


def turn(x, positions):
    """A rotation for tests: each half of the channels by the position's angle."""
    angle = positions.to(x.dtype)[..., None]  # (..., T, 1)
    angle = angle[:, None] if positions.dim() == 2 else angle
    first, second = x.chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def layer(cls=GroupedQueryAttention, H=4, g=2, *, seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    made = cls(24, H, num_kv_heads=g, head_dim=6, **options).to(dtype)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made


def some(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain(module, x, *, keep=None, positions=None):
    """The definition: loops over heads, softmax written out, each head reading head h // (H/g)."""
    T, H, g, d = x.size(1), module.num_heads, module.num_kv_heads, module.head_dim
    keep = torch.ones(T, T, dtype=torch.bool).tril() if keep is None else keep
    positions = torch.arange(T) if positions is None else positions
    found = []
    for h in range(H):
        parts = []
        for project, norm, n in (
            (module.W_query, module.query_norm, h),
            (module.W_key, module.key_norm, h // (H // g)),
        ):
            part = project(x)[..., n * d : (n + 1) * d]
            if isinstance(norm, nn.RMSNorm):
                part = part / (part.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
            if module.rotate is not None:
                part = module.rotate(part[:, None], positions)[:, 0]
            parts.append(part)
        n = h // (H // g)
        value = module.W_value(x)[..., n * d : (n + 1) * d]
        scores = parts[0] @ parts[1].mT * module.scale
        found.append(scores.masked_fill(~keep, -torch.inf).softmax(-1) @ value)
    return module.out_proj(torch.cat(found, -1))


OPTIONS = [
    {},
    {"bias": True},
    {"qk_norm": True},
    {"rotate": turn},
    {"rotate": turn, "qk_norm": True, "bias": True},
    {"bias": True, "out_bias": False, "scale": 0.7},
]


# Facts about a class, which is the real one or a wrong version of it.


def outputs_and_gradients_equal_the_definition(cls, dtype=torch.float64):
    bar = {torch.float64: 1e-10, torch.float32: 1e-4}[dtype]
    for H, g in GROUPS:
        for options in OPTIONS:
            ours, x = layer(cls, H, g, dtype=dtype, **options), some(2, 5, 24, dtype=dtype)
            leaves = [x.requires_grad_(), *ours.parameters()]
            result, wanted = ours(x), plain(ours, x)
            assert torch.allclose(result, wanted, rtol=0, atol=bar), (H, g, options)
            direction = some(*result.shape, seed=2, dtype=dtype)
            for one, other in zip(
                torch.autograd.grad(result, leaves, direction),
                torch.autograd.grad(wanted, leaves, direction),
                strict=True,
            ):
                assert torch.allclose(
                    one, other, rtol=1e-4 * (dtype == torch.float32), atol=10 * bar
                )


@torch.no_grad()
def in_pieces_it_is_what_it_is_at_once(cls):
    for H, g in GROUPS:
        for options in OPTIONS:
            ours, x = layer(cls, H, g, **options), some(2, 9, 24)
            whole = plain(ours, x)
            for sizes, rows in (([9], 9), ([1] * 9, 9), ([3, 1, 5], 9), ([1, 7, 1], 3)):
                cache = KVCache(9)
                with mock.patch.dict(cls.forward.__globals__, ROWS=rows):
                    pieces = [ours(piece, cache=cache) for piece in x.split(sizes, dim=1)]
                assert torch.allclose(torch.cat(pieces, 1), whole, rtol=0, atol=1e-10), sizes
            assert cache.nbytes == 2 * 2 * g * 9 * 6 * 8


@torch.no_grad()
def the_last_token_moves_its_own_output_alone_and_the_first_moves_all(cls):
    ours, x = layer(cls, rotate=turn), some(1, 6, 24)
    for place, wanted in ((5, [5]), (2, [2, 3, 4, 5]), (0, [0, 1, 2, 3, 4, 5])):
        changed = x.clone()
        changed[:, place] += 1.0
        moved = (ours(changed) - ours(x)).abs().amax(-1)[0] > 1e-9
        assert moved.nonzero().flatten().tolist() == wanted


@torch.no_grad()
def a_mask_takes_the_place_of_the_triangle(cls):
    ours, x = layer(cls), some(2, 5, 24)
    for keep in (torch.ones(5, 5, dtype=torch.bool), torch.eye(5, dtype=torch.bool)):
        assert torch.allclose(
            ours(x, attn_mask=keep), plain(ours, x, keep=keep), rtol=0, atol=1e-10
        )
        added = torch.zeros(5, 5, dtype=torch.float64).masked_fill(~keep, -torch.inf)
        assert torch.allclose(ours(x, attn_mask=added), ours(x, attn_mask=keep), rtol=0, atol=1e-10)
    per_sample = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    per_sample[1, ..., 0] = False  # padding on the left
    result = ours(x, attn_mask=per_sample)
    assert torch.allclose(result[0], ours(x)[0], rtol=0, atol=1e-10)
    assert torch.allclose(result[1, 1:], ours(x[1:, 1:])[0], rtol=0, atol=1e-10)
    for H, g in GROUPS:  # one token, with a mask of its own for each head
        ours = layer(cls, H, g)
        keep = torch.rand(2, H, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.6
        keep[..., 2] = True
        whole = ours(x, attn_mask=keep)
        for mask in (keep, torch.zeros(keep.shape).bfloat16().masked_fill(~keep, -torch.inf)):
            cache = KVCache(5)
            ours(x[:, :4], cache=cache)
            with works(f"a mask of {mask.dtype}"):
                result = ours(x[:, 4:], cache=cache, attn_mask=mask[:, :, 4:])
            assert torch.allclose(result, whole[:, 4:], rtol=0, atol=1e-10), (H, g)
    ours = layer(cls)
    cache = KVCache(5)
    ours(x[:, :2], cache=cache)
    keep = torch.ones(3, 5, dtype=torch.bool).tril(2)
    assert torch.allclose(
        ours(x[:, 2:], cache=cache, attn_mask=keep), ours(x)[:, 2:], rtol=0, atol=1e-10
    )


@torch.no_grad()
def positions_are_the_callers_where_given(cls):
    ours, x = layer(cls, rotate=turn), some(2, 4, 24)
    places = torch.tensor([[0, 1, 2, 3], [5, 9, 2, 7]])
    result = ours(x, positions=places)
    for row in (0, 1):
        wanted = plain(ours, x[row : row + 1], positions=places[row])
        assert torch.allclose(result[row], wanted[0], rtol=0, atol=1e-10)
    shifted = ours(x, positions=torch.arange(4) + 100)  # a rotation sees distances alone
    assert torch.allclose(shifted, ours(x), rtol=0, atol=1e-8)


@torch.no_grad()
def norms_take_the_size_out(cls):
    ours, x = layer(cls, qk_norm=True), some(2, 5, 24)
    louder = copy.deepcopy(ours)
    louder.W_query.weight *= 100
    louder.W_key.weight *= 30
    assert torch.allclose(louder(x), ours(x), rtol=0, atol=1e-5)
    bare = layer(cls)
    assert not torch.allclose(bare(x), ours(x), atol=0.1)


FACTS = [
    outputs_and_gradients_equal_the_definition,
    in_pieces_it_is_what_it_is_at_once,
    the_last_token_moves_its_own_output_alone_and_the_first_moves_all,
    a_mask_takes_the_place_of_the_triangle,
    positions_are_the_callers_where_given,
    norms_take_the_size_out,
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_the_layer_holds_to(fact):
    fact(GroupedQueryAttention)


def test_the_definition_in_float32():
    outputs_and_gradients_equal_the_definition(GroupedQueryAttention, torch.float32)


WRONG = {
    "every third head shares": (
        "context = _causal_attention(",
        "key, value = (k.repeat(1, query.size(1) // k.size(1), 1, 1) for k in (key, value))\n"
        "        context = _causal_attention(",
    ),
    "the triangle begins at the first key": (
        "seen <= place[start : start + ROWS, None]",
        "seen <= place[start : start + ROWS, None] - keys + T",
    ),
    "is_causal with a cache": ("if keys == T:", "if True:"),
    "not causal": ("is_causal=True, **options", "**options"),
    "no mask after a cache": ("attn_mask=keep, **options", "**options"),
    "a group of heads reads the keys of another": (
        "rows = query.unflatten(1, (key.size(1), -1))",
        "rows = query.unflatten(1, (-1, key.size(1))).transpose(1, 2)",
    ),
    "the mask of one token is ignored": ("attn_mask=attn_mask, scale=scale", "scale=scale"),
    "the mask of another head": (
        "attn_mask = attn_mask.unflatten",
        "attn_mask = attn_mask.flip(1).unflatten",
    ),
    "a mask of another dtype is not cast": ("attn_mask = attn_mask.to(query.dtype)", "pass"),
    "places begin anew": ("torch.arange(past, past + T", "torch.arange(0, T"),
    "positions are not looked at": ("if positions is None:", "if True:"),
    "keys are cached before they are turned": (
        "self.rotate(query, positions), self.rotate(key, positions)",
        "self.rotate(query, positions), key",
    ),
    "the mask is not looked at": (
        "_causal_attention(query, key, value, attn_mask, self.scale)",
        "_causal_attention(query, key, value, None, self.scale)",
    ),
    "the scale is not looked at": ("key, value, attn_mask, self.scale)", "key, value, attn_mask)"),
    "keys are not normed": (
        "key = self.key_norm(key.to(self.key_norm.weight.dtype)).to(key.dtype)",
        "pass",
    ),
    "one norm for both": ("key = self.key_norm(key.to(", "key = self.query_norm(key.to("),
    "normed over all heads": (
        "query = self.query_norm(query.to(self.query_norm.weight.dtype)).to(query.dtype)",
        "query = query / (query.square().mean((1, 3), True) + 1e-6).sqrt() * self.query_norm.weight",
    ),
    "queries are normed whether asked or not": (
        "self.qk_norm:",
        "self.qk_norm or (query := F.rms_norm(query, query.shape[-1:])) is None:",
    ),
    "values are the keys": (
        "project in (self.W_query, self.W_key, self.W_value)",
        "project in (self.W_query, self.W_key, self.W_key)",
    ),
    "nothing is cached": ("key, value = cache.update(key, value)", "cache.update(key, value)"),
    "heads are cut by view": (
        "project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)",
        "project(x).reshape(batch, -1, T, self.head_dim)",
    ),
    "heads are joined by view": (
        "context.transpose(1, 2).flatten(2)",
        "context.reshape(batch, T, -1)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_is_caught(what):
    wrong = edited("grouped_query_attention", WRONG[what])
    noticed = first_to_notice(reversed(FACTS), wrong.GroupedQueryAttention)
    assert noticed, f"{what}: every fact holds"


def test_with_as_many_key_heads_it_is_the_books_multi_head_attention():
    torch.manual_seed(0)
    books = MultiHeadAttention(24, 4).double()
    ours = GroupedQueryAttention(24, 4, bias=True).double()
    ours.load_state_dict(books.state_dict())
    x = some(2, 7, 24)
    assert torch.allclose(ours(x), books(x, is_causal=True), rtol=0, atol=1e-10)
    theirs = nn.MultiheadAttention(24, 4, batch_first=True).double()
    nn.init.normal_(theirs.in_proj_bias)
    with torch.no_grad():
        for i, projection in enumerate((ours.W_query, ours.W_key, ours.W_value)):
            projection.weight.copy_(theirs.in_proj_weight.chunk(3)[i])
            projection.bias.copy_(theirs.in_proj_bias.chunk(3)[i])
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    hide = torch.ones(7, 7, dtype=torch.bool).triu(1)
    assert torch.allclose(ours(x), theirs(x, x, x, attn_mask=hide)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize(("H", "g"), GROUPS)
def test_pytorchs_enable_gqa_is_a_repeat_of_each_head(H, g):
    query, key, value = some(2, H, 5, 8), some(2, g, 5, 8, seed=2), some(2, g, 5, 8, seed=3)
    theirs = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    repeated = [part.repeat_interleave(H // g, dim=1) for part in (key, value)]
    wanted = F.scaled_dot_product_attention(query, *repeated, is_causal=True)
    assert torch.allclose(theirs, wanted, rtol=0, atol=1e-10)


def test_a_row_that_may_see_nothing_gets_zeros():
    ours, x = layer(), some(1, 3, 24)
    keep = torch.ones(3, 3, dtype=torch.bool).tril()
    keep[1] = False
    result = ours(x, attn_mask=keep)
    assert result[0, 1].tolist() == [0.0] * 24


def test_a_shard_holds_whole_groups():
    whole, x = layer(H=4, g=2), some(2, 5, 24)
    total = 0
    for shard in (0, 1):
        part = copy.deepcopy(whole)
        for name, projection in (
            ("W_query", whole.W_query),
            ("W_key", whole.W_key),
            ("W_value", whole.W_value),
        ):
            rows = nn.Linear(24, projection.out_features // 2, bias=False).double()
            rows.weight.data = projection.weight.data.chunk(2)[shard]
            setattr(part, name, rows)
        part.out_proj.weight.data = whole.out_proj.weight.data.chunk(2, dim=1)[shard]
        total = total + part(x)
    assert torch.allclose(total, whole(x), rtol=0, atol=1e-10)


def test_a_projection_may_be_wrapped():
    class Adapter(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.down, self.up = (
                inner,
                nn.Linear(24, 2),
                nn.Linear(2, inner.out_features),
            )

        def forward(self, x):
            return self.inner(x) + self.up(self.down(x))

    ours, x = layer(), some(2, 5, 24)
    ours.W_key = Adapter(ours.W_key).double()
    assert ours(x).shape == x.shape


def test_under_autocast_and_in_bfloat16_it_runs_with_norms_and_a_cache():
    ours, x = (
        layer(dtype=torch.float32, qk_norm=True, rotate=turn),
        some(2, 5, 24, dtype=torch.float32),
    )
    with torch.no_grad():
        wanted = ours(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cache = KVCache(5)
            result = torch.cat([ours(part, cache=cache) for part in x.split([3, 2], 1)], 1)
            half = GroupedQueryAttention(24, 4, qk_norm=True)
            half(x, cache=(held := KVCache(5)))
        facts.assert_equal("under autocast", result, wanted, torch.bfloat16)
        assert held.nbytes == 2 * 2 * 4 * 5 * 6 * 2  # two bytes a number: norms widen nothing
        facts.assert_equal("in bfloat16", ours.bfloat16()(x.bfloat16()), wanted, torch.bfloat16)


def test_it_says_its_sizes():
    made = GroupedQueryAttention(24, 4, num_kv_heads=2, head_dim=8)
    assert "embed_dim=24, num_heads=4, num_kv_heads=2, head_dim=8, qk_norm=False" in repr(made)
    assert set(made.state_dict()) == {
        f"{w}.weight" for w in ("W_query", "W_key", "W_value", "out_proj")
    }


small = layer()


@pytest.mark.parametrize(
    ("call", "argument", "got", "wanted"),
    [
        (lambda: GroupedQueryAttention(0, 4), "embed_dim", "0", "positive integer"),
        (lambda: GroupedQueryAttention(24, 4.0), "num_heads", "4.0", "positive integer"),
        (lambda: GroupedQueryAttention(24, 4, num_kv_heads=0), "num_kv_heads", "0", "positive"),
        (lambda: GroupedQueryAttention(24, 4, num_kv_heads=3), "num_kv_heads", "3", "num_heads=4"),
        (lambda: GroupedQueryAttention(24, 4, num_kv_heads=8), "num_kv_heads", "8", "num_heads=4"),
        (lambda: GroupedQueryAttention(24, 4, head_dim=-1), "head_dim", "-1", "positive integer"),
        (lambda: GroupedQueryAttention(25, 4), "num_heads", "4", "embed_dim=25"),
        (lambda: small(some(5, 24)), "x", "(5, 24)", "(batch, T, 24)"),
        (lambda: small(some(2, 5, 23)), "x", "(2, 5, 23)", "(batch, T, 24)"),
        (lambda: small([1.0]), "x", "[1.0]", "(batch, T, 24)"),
        (lambda: small(some(2, 5, 24), attn_mask=1), "attn_mask", "1", "boolean (True keeps)"),
        (
            lambda: small(some(2, 5, 24), attn_mask=torch.ones(5, 5, dtype=torch.int8)),
            "attn_mask",
            "torch.int8",
            "boolean (True keeps)",
        ),
        (
            lambda: small(some(2, 5, 24), attn_mask=torch.ones(2, 5, 5, dtype=torch.bool)),
            "attn_mask",
            "(2, 5, 5)",
            "mask[:, None]",
        ),
        (
            lambda: small(some(2, 5, 24), attn_mask=torch.ones(5, 4, dtype=torch.bool)),
            "attn_mask",
            "(5, 4)",
            "(5, 5)",
        ),
    ],
)
def test_a_bad_argument_is_named(call, argument, got, wanted):
    with pytest.raises(ValueError, match=f"^{argument} must ") as caught:
        call()
    assert got in str(caught.value)
    assert wanted in str(caught.value)


@torch.no_grad()
def test_one_token_reads_each_shared_key_once_for_all_the_heads_of_a_group():
    ours, x, cache = layer(H=6, g=3), some(2, 5, 24), KVCache(5)
    ours(x[:, :4], cache=cache)
    operator = F.scaled_dot_product_attention
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=operator) as watched:
        ours(x[:, 4:], cache=cache)
    query, key, _ = watched.call_args.args
    assert query.shape == (2, 3, 2, 6)  # two heads are two rows of one
    assert key.shape == (2, 3, 5, 6)
    assert not watched.call_args.kwargs.get("enable_gqa")
