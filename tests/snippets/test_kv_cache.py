"""A cache hands back what it was given, in order; makes its memory once; and refuses what a copy would misread."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import snippets.kv_cache
from snippets.gpt import GPT
from snippets.kv_cache import KVCache
from tests.snippets.facts import works
from tests.snippets.parts import Case, T, heads


def some(tokens, *, heads=2, width=3, batch=2, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, tokens, width, generator=generator).to(**options)


def it_returns_all_tokens_so_far(part, sizes=(3, 1, 4)):
    keys, values = some(sum(sizes)), some(sum(sizes), heads=1, width=5, seed=1)
    cache, end = part.KVCache(sum(sizes)), 0
    for new in sizes:
        start, end = end, end + new
        result = cache.update(keys[:, :, start:end], values[:, :, start:end])
        assert torch.equal(result[0], keys[:, :, :end])
        assert torch.equal(result[1], values[:, :, :end])
        assert cache.length == end


def memory_is_made_once_and_nothing_else_is_copied(part):
    cache = part.KVCache(8)
    first, _ = cache.update(some(3), some(3))
    later, values = cache.update(some(1), some(1))
    assert later.data_ptr() == first.data_ptr()
    assert (
        later.untyped_storage().nbytes() == values.untyped_storage().nbytes() == 2 * 2 * 8 * 3 * 4
    )
    assert cache.nbytes == 2 * 2 * 2 * 8 * 3 * 4


def what_was_returned_does_not_change_later(part):
    cache = part.KVCache(8)
    views = cache.update(some(3), some(3, seed=1))
    result = [view.clone() for view in views]
    cache.update(some(2, seed=2), some(2, seed=3))
    assert all(torch.equal(view, was) for view, was in zip(views, result, strict=True))


def what_is_forgotten_is_written_over(part):
    keys, values = some(6), some(6, seed=1)
    cache = part.KVCache(6)
    cache.update(keys[:, :, :3], values[:, :, :3])
    cache.update(some(2, seed=2), some(2, seed=3))  # a draft, refused
    cache.truncate(3)
    assert cache.length == 3
    result = cache.update(keys[:, :, 3:], values[:, :, 3:])
    assert torch.equal(result[0], keys)
    assert torch.equal(result[1], values)


def an_overflow_is_refused_and_changes_nothing(part):
    cache = part.KVCache(4)
    views = cache.update(some(3), some(3))
    kept = [view.clone() for view in views]
    with pytest.raises(ValueError, match="max_tokens=4"):
        cache.update(some(2, seed=1), some(2, seed=1))
    assert cache.length == 3
    assert all(torch.equal(view, was) for view, was in zip(views, kept, strict=True))
    cache.update(some(1), some(1))
    assert cache.length == 4


def rows_of_the_batch_are_chosen_in_any_order(part):
    keys, values = some(4, batch=3), some(4, batch=3, seed=1)
    cache, rows = part.KVCache(6), torch.tensor([2, 0, 0, 1])
    views = cache.update(keys[:, :, :3], values[:, :, :3])
    result = [view.clone() for view in views]
    cache.positions = torch.tensor([[0, 1, 2], [0, 0, 1], [0, 0, 0]])  # as a window notes them
    cache.select(rows)
    assert cache.length == 3
    assert cache.positions.tolist() == [[0, 0, 0], [0, 1, 2], [0, 1, 2], [0, 0, 1]]
    found = cache.update(keys[rows, :, 3:], values[rows, :, 3:])
    assert torch.equal(found[0], keys[rows])
    assert torch.equal(found[1], values[rows])
    assert all(torch.equal(view, was) for view, was in zip(views, result, strict=True))
    assert cache.nbytes == 2 * 4 * 2 * 6 * 3 * 4
    cache.select(torch.tensor([3]))  # of four texts the last goes on
    found = cache.update(keys[:1, :, :1], values[:1, :, :1])
    assert torch.equal(found[0][:, :, :4], keys[1:2])


def a_cache_begun_in_inference_mode_goes_on_outside(part):
    keys, values = some(4), some(4, seed=1)
    for chosen in (False, True):
        cache = part.KVCache(4)
        with torch.inference_mode():
            cache.update(keys[:, :, :2], values[:, :, :2])
            if chosen:
                cache.select(torch.tensor([0, 1]))
        with works("an update outside of inference mode"), torch.no_grad():
            cache.update(keys[:, :, 2:3], values[:, :, 2:3])
        with torch.inference_mode():
            result = cache.update(keys[:, :, 3:], values[:, :, 3:])
        assert torch.equal(result[0], keys)
        assert torch.equal(result[1], values)


def a_full_cache_refuses_one_more_token(part):
    """One token is the number that would be written into no place at all without an error."""
    cache = part.KVCache(4)
    cache.update(some(4), some(4))
    with pytest.raises(ValueError, match="max_tokens=4"):
        cache.update(some(1), some(1))


def a_refusal_at_the_beginning_makes_no_memory(part):
    cache = part.KVCache(4)
    for keys, values in ((some(5), some(5)), (some(2), some(1)), (some(1), some(2))):
        with pytest.raises(ValueError, match="must"):
            cache.update(keys, values)
        assert cache.length == cache.nbytes == 0
    cache.update(some(2, batch=1), some(2, batch=1))  # of another batch


def what_a_copy_would_repeat_or_cast_is_refused(part):
    cache = part.KVCache(4)
    kept = [view.clone() for view in cache.update(some(2), some(2))]
    for options in ({"batch": 1}, {"heads": 1}, {"width": 1}, {"dtype": torch.float64}):
        for keys, values in ((some(1, **options), some(1)), (some(1), some(1, **options))):
            with pytest.raises(ValueError, match="must be"):
                cache.update(keys, values)
    with pytest.raises(ValueError, match="must be"):
        cache.update(some(2), some(1))  # a key without its value
    with pytest.raises(ValueError, match="must be"):
        cache.update(some(1).to("meta"), some(1).to("meta"))
    views = cache.update(some(2, seed=1), some(2, seed=1))
    assert all(torch.equal(view[:, :, :2], was) for view, was in zip(views, kept, strict=True))


def no_more_is_forgotten_than_there_is(part):
    cache = part.KVCache(4)
    cache.update(some(3), some(3))
    for length in (4, -1):
        with pytest.raises(ValueError, match="from 0 to 3"):
            cache.truncate(length)
    cache.truncate(3)
    cache.truncate(0)
    assert cache.length == 0


FACTS = [
    it_returns_all_tokens_so_far,
    memory_is_made_once_and_nothing_else_is_copied,
    what_was_returned_does_not_change_later,
    what_is_forgotten_is_written_over,
    a_full_cache_refuses_one_more_token,
    an_overflow_is_refused_and_changes_nothing,
    a_refusal_at_the_beginning_makes_no_memory,
    what_a_copy_would_repeat_or_cast_is_refused,
    no_more_is_forgotten_than_there_is,
    rows_of_the_batch_are_chosen_in_any_order,
    a_cache_begun_in_inference_mode_goes_on_outside,
]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(sum))
def test_any_pieces_come_back_as_the_whole(sizes):
    it_returns_all_tokens_so_far(snippets.kv_cache, sizes)


WRONG = {
    "the pointer stays": ("self.length = end", "self.length = start"),
    "the pointer moves by one": ("self.length = end", "self.length = start + 1"),
    "values are written to the start": (
        "self._values[:, :, start:end]",
        "self._values[:, :, : end - start]",
    ),
    "keys twice": (
        "self._values[:, :, start:end] = values",
        "self._values[:, :, start:end, : keys.size(-1)] = keys",
    ),
    "the memory is handed back whole": ("return self._keys[:, :, :end]", "return self._keys"),
    "only the new ones come back": (
        "return self._keys[:, :, :end]",
        "return self._keys[:, :, start:end]",
    ),
    "memory is made at each update": ("if self._keys is None:", "if True:"),
    "a copy is handed back": (
        "return self._keys[:, :, :end]",
        "return self._keys[:, :, :end].clone()",
    ),
    "nothing is forgotten": ("        self.length = length\n", "        pass\n"),
    "more is forgotten than there is": ("not 0 <= length <= self.length", "False"),
    "less than nothing is kept": ("not 0 <= length <= self.length", "length > self.length"),
    "half the bytes are forgotten": ("in (self._keys, self._values) if", "in (self._keys,) if"),
    "overflow is not looked for": ("if end > self.max_tokens", "if False"),
    "one token too few fits": ("end > self.max_tokens", "end >= self.max_tokens"),
    "memory stays of what was refused": (
        "memory = [",
        "memory = self._keys, self._values = [",
    ),
    "tokens are not compared": ("if came != fits", "if False"),
    "dtypes are not compared": ("if came != fits", "if came[0] != fits[0]"),
    "shapes are not compared": ("if came != fits", "if came[1:] != fits[1:]"),
    "keys alone are compared": (
        'zip(("keys", "values"), (keys, values), memory, strict=True)',
        '[("keys", keys, memory[0])]',
    ),
    "keys alone are chosen": (
        "self._keys.index_select(0, rows), self._values.index_select(0, rows)",
        "self._keys.index_select(0, rows), self._values[: len(rows)]",
    ),
    "rows are sorted": (
        "self._keys.index_select(0, rows), self._values.index_select(0, rows)",
        "self._keys[rows.sort()[0]], self._values[rows.sort()[0]]",
    ),
    "memory is made in inference mode": (
        "with torch.inference_mode(False):  # else",
        "if True:  # else",
    ),
    "rows are chosen in inference mode": (
        "with torch.inference_mode(False):\n",
        "if True:\n",
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_attention_token_by_token_is_attention_at_once(dtype):
    query, key, value = (some(9, width=8, seed=seed, dtype=dtype) for seed in range(3))
    cache, found = KVCache(9), []
    for t in range(9):
        new = slice(t, t + 1)
        kept = cache.update(key[:, :, new], value[:, :, new])
        found.append(F.scaled_dot_product_attention(query[:, :, new], *kept))
    at_once = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    bar = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    assert torch.allclose(torch.cat(found, 2), at_once, rtol=0, atol=bar)
    assert found[0].dtype == dtype


def test_it_takes_the_dtype_and_the_device_of_what_comes():
    cache = KVCache(4)
    keys, values = cache.update(some(1, dtype=torch.bfloat16), some(1, dtype=torch.float64))
    assert (keys.dtype, values.dtype) == (torch.bfloat16, torch.float64)
    elsewhere = KVCache(4)
    assert elsewhere.update(some(1, device="meta"), some(1, device="meta"))[0].device.type == "meta"


def test_a_backward_pass_through_several_updates_ends_in_an_error():
    cache, x = KVCache(2), some(2).requires_grad_()
    first, _ = cache.update(x[:, :, :1], x[:, :, :1])
    product = first * first
    cache.update(x[:, :, 1:], x[:, :, 1:])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_before_the_first_update_there_is_nothing_to_choose_from():
    cache = KVCache(4)
    cache.select(torch.tensor([1, 0]))
    assert (cache.length, cache.nbytes) == (0, 0)


@pytest.mark.lab  # the counter imports PyTorch's compiler
def test_pytorchs_own_counter_finds_the_operations_that_the_chapter_prints():
    """docs/production/kv-cache.md reckons 4 · (24d² + 4dT) + 2 · 65 · d for a cached step."""
    model = GPT(65, 32, 64, 4, 4).eval()
    tokens = torch.zeros(1, 16, dtype=torch.long)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(tokens)
    # Without a cache 16 tokens are read, each of which is given 16 scores, masked or not.
    assert counter.get_total_flops() == 16 * (4 * (24 * 64**2 + 4 * 64 * 16) + 2 * 65 * 64)
