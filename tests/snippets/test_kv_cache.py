"""A cache hands back what it was given, in order; makes its memory once; and refuses what a copy would misread."""

import torch

from snippets.kv_cache import KVCache
from tests.snippets.facts import refuses, works
from tests.snippets.parts import Case, T, heads
from tests.snippets.parts import draw as numbers


def draw(tokens, *, heads=2, width=3, batch=2, seed=1, dtype=torch.float32):
    """Keys, or values, of so many tokens."""
    return numbers(batch, heads, tokens, width, seed=seed, dtype=dtype)


def test_it_returns_all_tokens_so_far(part):
    keys, values = draw(8), draw(8, heads=1, width=5, seed=2).bfloat16()
    for sizes in ((3, 1, 4), (0, 5, 0, 3)):
        cache, end = part.KVCache(8), 0
        for size in sizes:
            start, end = end, end + size
            result = cache.update(keys[:, :, start:end], values[:, :, start:end])
            assert torch.equal(result[0], keys[:, :, :end])
            assert torch.equal(result[1], values[:, :, :end])
            assert cache.length == end


def test_memory_is_made_once_and_nothing_else_is_copied(part):
    cache = part.KVCache(8)
    assert cache.nbytes == 0
    first, _ = cache.update(draw(3), draw(3))
    later, values = cache.update(draw(1), draw(1))
    assert later.data_ptr() == first.data_ptr()
    assert later.untyped_storage().nbytes() == values.untyped_storage().nbytes() == 2 * 2 * 96
    assert cache.nbytes == 2 * 2 * 2 * 96


def test_what_was_returned_does_not_change_later_but_for_what_is_forgotten(part):
    keys, values = draw(6), draw(6, seed=2)
    cache = part.KVCache(6)
    views = cache.update(keys[:, :, :3], values[:, :, :3])
    cache.update(draw(2, seed=3), draw(2, seed=4))  # a draft, refused
    assert torch.equal(views[0], keys[:, :, :3])
    assert torch.equal(views[1], values[:, :, :3])
    for length in (6, -1):
        refuses(f"{length} of 5 tokens", cache.truncate, length)
    cache.truncate(5)
    cache.truncate(3)
    result = cache.update(keys[:, :, 3:], values[:, :, 3:])
    assert cache.length == 6
    assert torch.equal(result[0], keys)
    assert torch.equal(result[1], values)
    cache.truncate(0)
    assert cache.length == 0


def test_what_a_copy_would_repeat_cast_or_lose_is_refused_and_changes_nothing(part):
    cache = part.KVCache(4)
    for keys, values in ((draw(5), draw(5)), (draw(2), draw(1)), (draw(1), draw(2))):
        refuses("too many tokens, or a key without its value", cache.update, keys, values)
        assert cache.length == cache.nbytes == 0
    kept = [view.clone() for view in cache.update(draw(2), draw(2))]
    for options in ({"batch": 1}, {"heads": 1}, {"width": 1}, {"dtype": torch.float64}):
        refuses(f"keys of {options}", cache.update, draw(1, **options), draw(1))
        refuses(f"values of {options}", cache.update, draw(1), draw(1, **options))
    refuses("another device", cache.update, draw(1).to("meta"), draw(1).to("meta"))
    refuses("three tokens for two places", cache.update, draw(3), draw(3))
    views = cache.update(draw(2, seed=2), draw(2, seed=2))
    assert all(torch.equal(view[:, :, :2], was) for view, was in zip(views, kept, strict=True))
    # One token is the number that would be written into no place at all without an error.
    refuses("a token for a full cache", cache.update, draw(1), draw(1))


def test_rows_of_the_batch_are_chosen_in_any_order(part):
    keys, values = draw(4, batch=3), draw(4, batch=3, seed=2)
    cache, rows = part.KVCache(6), torch.tensor([2, 0, 0, 1])
    cache.select(rows)  # of nothing
    views = cache.update(keys[:, :, :3], values[:, :, :3])
    cache.positions = torch.tensor([[0, 1, 2], [0, 0, 1], [0, 0, 0]])  # as a window notes them
    cache.select(rows)
    assert cache.length == 3
    assert cache.positions.tolist() == [[0, 0, 0], [0, 1, 2], [0, 1, 2], [0, 0, 1]]
    found = cache.update(keys[rows, :, 3:], values[rows, :, 3:])
    assert torch.equal(found[0], keys[rows])
    assert torch.equal(found[1], values[rows])
    assert torch.equal(views[0], keys[:, :, :3])
    assert cache.nbytes == 2 * 4 * 2 * 6 * 3 * 4
    cache.positions = torch.arange(4)  # the same for all texts
    cache.select(torch.tensor([3]))  # of four texts the last goes on
    assert cache.positions.tolist() == [0, 1, 2, 3]
    found = cache.update(keys[:1, :, :1], values[:1, :, :1])
    assert torch.equal(found[0][:, :, :4], keys[1:2])


def test_a_cache_begun_in_inference_mode_goes_on_outside(part):
    keys, values = draw(4), draw(4, seed=2)
    for chosen in (False, True):
        cache = part.KVCache(4)
        with torch.inference_mode():
            cache.update(keys[:, :, :2], values[:, :, :2])
            if chosen:
                cache.select(torch.tensor([0, 1]))
        with works("an update outside of inference mode"), torch.no_grad():
            result = cache.update(keys[:, :, 2:], values[:, :, 2:])
        assert torch.equal(result[0], keys)


WRONG = {
    "the pointer stays": ("self.length = end", "self.length = start"),
    "values are written to the start": (
        "self._values[:, :, start:end]",
        "self._values[:, :, : end - start]",
    ),
    "a copy is handed back": (
        "return self._keys[:, :, :end]",
        "return self._keys[:, :, :end].clone()",
    ),
    "nothing is forgotten": ("        self.length = length\n", "        pass\n"),
    "keys alone are chosen": (
        "self._keys.index_select(0, rows), self._values.index_select(0, rows)",
        "self._keys.index_select(0, rows), self._values[: len(rows)]",
    ),
}
CASES = {
    "kv_cache": Case(
        lambda _, k, v: KVCache(T).update(k, v),
        lambda: heads()[1:],
        casts=False,
        roundings=0,
        backward=False,
    ),
}
MIB = {"kv_cache": (8, lambda x: lambda: KVCache(len(x)).update(x[None, None], x[None, None]))}
