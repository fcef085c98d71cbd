"""A cache that drops tokens is causal attention where it has room, and a window where all are recent."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from snippets import heavy_hitters as real
from snippets.attention_masks import keep_window
from snippets.heavy_hitters import HeavyHitters
from tests.snippets.parts import Case, heads
from tests.snippets.test_quantized_cache import some


def one_by_one(cache, query, key, value):
    steps = zip(*(part.split(1, dim=-2) for part in (query, key, value)), strict=True)
    return torch.cat([cache.attend(*step) for step in steps], dim=-2)


def with_room_for_all_it_is_causal_attention(part):
    query, key, value = some(7, heads=4), some(7, seed=1), some(7, width=3, seed=2)
    wanted = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    found = one_by_one(part.HeavyHitters(7, 2), query, key, value)
    assert torch.allclose(found, wanted, atol=1e-10)


def where_all_are_recent_it_is_a_window(part, tokens=9, rooms=(1, 2, 4), seed=0):
    query, key, value = (some(tokens, seed=seed + i) for i in range(3))
    for keep in rooms:
        wanted = F.scaled_dot_product_attention(query, key, value, keep_window(keep, tokens))
        found = one_by_one(part.HeavyHitters(keep, keep), query, key, value)
        assert torch.allclose(found, wanted, atol=1e-10)


def the_smallest_sum_makes_room(part):
    query, key, value = some(10, heads=4), 4 * some(10, seed=1), some(10, seed=2)
    cache = part.HeavyHitters(4, 2)
    found = one_by_one(cache, query, key, value)
    for b in range(2):
        for h in range(2):
            held, received = [], {}
            for t in range(10):
                if len(held) == 4:
                    held.remove(min(held[: 4 + 1 - 2], key=received.get))
                held.append(t)
                received[t] = 0.0
                scores = query[b, 2 * h : 2 * h + 2, t] @ key[b, h, held].T / 8**0.5
                weights = scores.softmax(dim=-1)
                for token, share in zip(held, weights.sum(dim=0).tolist(), strict=True):
                    received[token] += share
                wanted = weights @ value[b, h, held]
                assert torch.allclose(found[b, 2 * h : 2 * h + 2, t], wanted, atol=1e-10)
            assert cache.positions[b, h].tolist() == held
            wanted = torch.tensor([received[token] for token in held])
            assert torch.allclose(cache.received[b, h], wanted, atol=1e-5)
    assert cache.length == 10


FACTS = [
    with_room_for_all_it_is_causal_attention,
    where_all_are_recent_it_is_a_window,
    the_smallest_sum_makes_room,
]

WRONG = {
    "no scale": ("@ keys.mT / key.size(-1) ** 0.5", "@ keys.mT"),
    "heads in another order": (
        "query.unflatten(1, (key.size(1), -1)).squeeze(-2)",
        "query.unflatten(1, (-1, key.size(1))).transpose(1, 2).squeeze(-2)",
    ),
    "nothing is dropped": ("< self.keep:", "< 99:"),
    "one token too many": ("< self.keep:", "< self.keep + 1:"),
    "the strongest is dropped": (".argmin(dim=-1", ".argmax(dim=-1"),
    "one recent too few": ("self.keep + 1 - self.recent", "self.keep + 2 - self.recent"),
    "one recent too many": ("self.keep + 1 - self.recent", "max(self.keep - self.recent, 1)"),
    "the last weights alone": ("received = received + weights", "received = weights"),
    "one head's weight": (".float().sum(dim=-2)", ".float()[..., 0, :]"),
    "all make room for the first": (
        "(stay >= weakest)",
        "(stay >= weakest[:1, :1].expand_as(weakest))",
    ),
    "positions of what is held": (
        "self.length, dtype=torch.int64",
        "min(self.length, self.keep), dtype=torch.int64",
    ),
    "the length of what is held": ("self.length + 1", "keys.size(-2)"),
}

CASES = {
    "room for 64 tokens": Case(
        lambda _, *inputs: one_by_one(HeavyHitters(64, recent=64), *inputs),
        lambda: heads(4, 2),
        backward=False,
    )
}


@given(st.integers(1, 8), st.integers(1, 9), st.integers(0, 2**31))
def test_a_window_of_any_size(keep, tokens, seed):
    where_all_are_recent_it_is_a_window(real, tokens, (keep,), seed)


@pytest.mark.parametrize(("keep", "recent"), [(0, 0), (4, 5), (4, 0), (-1, -1)])
def test_none_but_tokens_held_are_recent(keep, recent):
    with pytest.raises(ValueError, match=r"^recent must"):
        HeavyHitters(keep, recent)


def test_several_tokens_at_once_would_see_each_other():
    with pytest.raises(ValueError, match=r"^query, key, value must"):
        HeavyHitters(4, 2).attend(some(2), some(2), some(2))


def test_one_value_for_all_heads_would_be_repeated():
    with pytest.raises(ValueError, match=r"^query, key, value must"):
        HeavyHitters(4, 2).attend(some(1), some(1), some(1, heads=1))
