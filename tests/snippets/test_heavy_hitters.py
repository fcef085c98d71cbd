"""A cache that drops tokens is causal attention where it has room, and a window where all are recent."""

import torch
import torch.nn.functional as F

from snippets.attention_masks import keep_window
from snippets.heavy_hitters import HeavyHitters
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, close, draw, heads


def one_by_one(cache, query, key, value):
    steps = zip(*(part.split(1, dim=-2) for part in (query, key, value)), strict=True)
    return torch.cat([cache.attend(*step) for step in steps], dim=-2)


def test_where_all_are_recent_it_is_a_window(part):
    query, key, value = draw(2, 4, 7, 8), draw(2, 2, 7, 8, seed=2), draw(2, 2, 7, 3, seed=3)
    for keep in (1, 3, 7):  # with room for all it is causal attention
        mask = keep_window(keep, 7)
        wanted = F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
        assert close(one_by_one(part.HeavyHitters(keep, keep), query, key, value), wanted)


def test_the_smallest_sum_makes_room(part):
    query, key, value = (draw(2, n, 10, 8, seed=n) for n in (4, 2, 2))
    for keep, recent in ((4, 2), (3, 1)):
        cache = part.HeavyHitters(keep, recent)
        found = one_by_one(cache, query, 4 * key, value)
        for b, h in ((0, 0), (0, 1), (1, 0), (1, 1)):
            held, received = [], torch.zeros(10)
            for t in range(10):
                if len(held) == keep:
                    held.remove(min(held[: keep + 1 - recent], key=lambda i: received[i]))
                held.append(t)
                scores = query[b, 2 * h : 2 * h + 2, t] @ (4 * key[b, h, held]).T / 8**0.5
                weights = scores.softmax(dim=-1)
                received[held] += weights.sum(dim=0).float()
                assert close(found[b, 2 * h : 2 * h + 2, t], weights @ value[b, h, held])
            assert cache.positions[b, h].tolist() == held
            assert close(cache.received[b, h], received[held], 1e-5)
        assert cache.length == 10


def test_what_would_be_misread_is_refused(part):
    """Recent tokens that are not held, several tokens at once, one value for all heads."""
    part.HeavyHitters(1, 1)
    for keep, recent in ((4, 5), (4, 0)):
        refuses(f"{recent} of {keep}", part.HeavyHitters, keep, recent)
    for T, kv_heads in ((2, 2), (1, 1)):
        inputs = (draw(1, n, T, 8) for n in (2, 2, kv_heads))
        refuses(f"{T} tokens, {kv_heads} values", part.HeavyHitters(4, 2).attend, *inputs)


WRONG = {
    "heads in another order": (
        "query.unflatten(1, (key.size(1), -1)).squeeze(-2)",
        "query.unflatten(1, (-1, key.size(1))).transpose(1, 2).squeeze(-2)",
    ),
    "the strongest is dropped": (".argmin(dim=-1", ".argmax(dim=-1"),
    "the last weights alone": ("received = received + weights", "received = weights"),
}
CASES = {
    "room for 64 tokens": Case(
        lambda _, *inputs: one_by_one(HeavyHitters(64, recent=64), *inputs),
        lambda: heads(4, 2),
        backward=False,
    )
}
