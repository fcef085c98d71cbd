"""A cache hands back what it was given, in order; makes its memory once; and refuses what does not fit."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from snippets.gpt import GPT
from snippets.kv_cache import KVCache
from tests.snippets.facts import first_to_notice, works
from tests.snippets.problems import edited


def some(tokens, *, heads=2, width=3, batch=2, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, tokens, width, generator=generator).to(**options)


# Facts about a class, which is the real one or a wrong version of it.


def it_returns_all_tokens_so_far(cls, sizes=(3, 1, 4)):
    keys, values = some(sum(sizes)), some(sum(sizes), heads=1, width=5, seed=1)
    cache, end = cls(sum(sizes)), 0
    for new in sizes:
        start, end = end, end + new
        result = cache.update(keys[:, :, start:end], values[:, :, start:end])
        assert torch.equal(result[0], keys[:, :, :end])
        assert torch.equal(result[1], values[:, :, :end])
        assert cache.length == end


def memory_is_made_once_and_nothing_else_is_copied(cls):
    cache = cls(8)
    first, _ = cache.update(some(3), some(3))
    later, values = cache.update(some(1), some(1))
    assert later.data_ptr() == first.data_ptr()
    assert (
        later.untyped_storage().nbytes() == values.untyped_storage().nbytes() == 2 * 2 * 8 * 3 * 4
    )
    assert cache.nbytes == 2 * 2 * 2 * 8 * 3 * 4


def what_was_returned_does_not_change_later(cls):
    cache = cls(8)
    views = cache.update(some(3), some(3, seed=1))
    result = [view.clone() for view in views]
    cache.update(some(2, seed=2), some(2, seed=3))
    assert all(torch.equal(view, was) for view, was in zip(views, result, strict=True))


def what_is_forgotten_is_written_over(cls):
    keys, values = some(6), some(6, seed=1)
    cache = cls(6)
    cache.update(keys[:, :, :3], values[:, :, :3])
    cache.update(some(2, seed=2), some(2, seed=3))  # a draft, refused
    cache.truncate(3)
    assert cache.length == 3
    result = cache.update(keys[:, :, 3:], values[:, :, 3:])
    assert torch.equal(result[0], keys)
    assert torch.equal(result[1], values)


def an_overflow_is_refused_and_changes_nothing(cls):
    cache = cls(4)
    views = cache.update(some(3), some(3))
    kept = [view.clone() for view in views]
    with pytest.raises(ValueError, match=r"^keys must fit into what is left of max_tokens=4"):
        cache.update(some(2, seed=1), some(2, seed=1))
    assert cache.length == 3
    assert all(torch.equal(view, was) for view, was in zip(views, kept, strict=True))
    cache.update(some(1), some(1))
    assert cache.length == 4


def rows_of_the_batch_are_chosen_in_any_order(cls):
    keys, values = some(4, batch=3), some(4, batch=3, seed=1)
    cache, rows = cls(6), torch.tensor([2, 0, 0, 1])
    views = cache.update(keys[:, :, :3], values[:, :, :3])
    result = [view.clone() for view in views]
    cache.select(rows)
    assert cache.length == 3
    found = cache.update(keys[rows, :, 3:], values[rows, :, 3:])
    assert torch.equal(found[0], keys[rows])
    assert torch.equal(found[1], values[rows])
    assert all(torch.equal(view, was) for view, was in zip(views, result, strict=True))
    assert cache.nbytes == 2 * 4 * 2 * 6 * 3 * 4
    cache.select(torch.tensor([3]))  # of four texts the last goes on
    found = cache.update(keys[:1, :, :1], values[:1, :, :1])
    assert torch.equal(found[0][:, :, :4], keys[1:2])


def a_cache_begun_in_inference_mode_goes_on_outside(cls):
    keys, values = some(4), some(4, seed=1)
    for chosen in (False, True):
        cache = cls(4)
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


def a_full_cache_refuses_one_more_token(cls):
    """One token is the number that would be written into no place at all without an error."""
    cache = cls(4)
    cache.update(some(4), some(4))
    with pytest.raises(ValueError, match=r"^keys must fit into what is left of max_tokens=4"):
        cache.update(some(1), some(1))


def a_late_refusal_of_values_leaves_the_keys_alone(cls):
    cache = cls(4)
    with pytest.raises(ValueError, match=r"^values must have the batch and the tokens of keys"):
        cache.update(some(2), some(1))
    assert cache.length == cache.nbytes == 0
    cache.update(some(2), some(2))
    with pytest.raises(ValueError, match=r"^values must have the batch and the tokens of keys"):
        cache.update(some(2), some(1))
    assert cache.length == 2


FACTS = [
    it_returns_all_tokens_so_far,
    memory_is_made_once_and_nothing_else_is_copied,
    what_was_returned_does_not_change_later,
    what_is_forgotten_is_written_over,
    a_full_cache_refuses_one_more_token,
    an_overflow_is_refused_and_changes_nothing,
    a_late_refusal_of_values_leaves_the_keys_alone,
    rows_of_the_batch_are_chosen_in_any_order,
    a_cache_begun_in_inference_mode_goes_on_outside,
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_the_cache_holds_to(fact):
    fact(KVCache)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(sum))
def test_any_pieces_come_back_as_the_whole(sizes):
    it_returns_all_tokens_so_far(KVCache, sizes)


WRONG = {
    "the pointer stays": ("self.length = end", "self.length = start"),
    "the pointer moves by one": ("self.length = end", "self.length = start + 1"),
    "values are written to the start": (
        "self._values[..., start:end, :]",
        "self._values[..., : end - start, :]",
    ),
    "keys twice": (
        "self._values[..., start:end, :] = values",
        "self._values[..., start:end, : keys.size(-1)] = keys",
    ),
    "the memory is handed back whole": ("return self._keys[..., :end, :]", "return self._keys"),
    "only the new ones come back": (
        "return self._keys[..., :end, :]",
        "return self._keys[..., start:end, :]",
    ),
    "memory is made at each update": ("if self._keys is None or self._values is None:", "if True:"),
    "a copy is handed back": (
        "return self._keys[..., :end, :]",
        "return self._keys[..., :end, :].clone()",
    ),
    "nothing is forgotten": ("        self.length = length\n", "        pass\n"),
    "half the bytes are forgotten": ("in (self._keys, self._values) if", "in (self._keys,) if"),
    "overflow is not looked for": ("self.length + keys.size(2) > self.max_tokens", "False"),
    "one token too few fits": ("keys.size(2) > self.max_tokens", "keys.size(2) >= self.max_tokens"),
    "keys alone are chosen": (
        "self._keys.index_select(0, rows), self._values.index_select(0, rows)",
        "self._keys.index_select(0, rows), self._values[: len(rows)]",
    ),
    "rows are sorted": (
        "self._keys.index_select(0, rows), self._values.index_select(0, rows)",
        "self._keys[rows.sort()[0]], self._values[rows.sort()[0]]",
    ),
    "memory is made in inference mode": (
        "with torch.inference_mode(False):\n                self._keys",
        "if True:\n                self._keys",
    ),
    "rows are chosen in inference mode": (
        "with torch.inference_mode(False):\n                kept",
        "if True:\n                kept",
    ),
    "tokens are not compared": (
        "(values.size(0), values.size(2)) != (keys.size(0), keys.size(2))",
        "False",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_is_caught(what):
    wrong = edited("kv_cache", WRONG[what])
    assert first_to_notice(FACTS, wrong.KVCache), f"{what}: every fact holds"


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


def test_it_says_what_it_holds():
    cache = KVCache(4)
    cache.update(some(3), some(3))
    assert repr(cache) == "KVCache(max_tokens=4, length=3)"


filled = KVCache(4)
filled.update(some(3), some(3))


@pytest.mark.parametrize(
    ("call", "argument", "got", "wanted"),
    [
        (lambda: KVCache(0), "max_tokens", "0", "positive integer"),
        (lambda: KVCache(2.0), "max_tokens", "2.0", "positive integer"),
        (
            lambda: KVCache(4).update([1.0], some(1)),
            "keys",
            "[1.0]",
            "(batch, heads, tokens, width)",
        ),
        (lambda: KVCache(4).update(some(1), some(1)[0]), "values", "(2, 1, 3)", "(batch, heads,"),
        (
            lambda: filled.update(some(1, batch=1), some(1)),
            "keys",
            "(1, 2, 1, 3)",
            "(2, 2, tokens, 3)",
        ),
        (
            lambda: filled.update(some(1), some(1, width=4)),
            "values",
            "(2, 2, 1, 4)",
            "(2, 2, tokens, 3)",
        ),
        (lambda: filled.update(some(1).double(), some(1)), "keys", "float64", "float32"),
        (lambda: filled.update(some(2), some(2)), "keys", "2 tokens after 3", "max_tokens=4"),
        (lambda: filled.truncate(4), "length", "4", "from 0 to 3"),
        (lambda: filled.truncate(-1), "length", "-1", "from 0 to 3"),
        (lambda: filled.truncate(1.0), "length", "1.0", "integer"),
        (lambda: filled.select([0, 1]), "rows", "[0, 1]", "(new batch,)"),
        (lambda: filled.select(torch.zeros(1, 2).long()), "rows", "(1, 2)", "(new batch,)"),
        (lambda: filled.select(torch.ones(2).bool()), "rows", "torch.bool", "integers"),
    ],
)
def test_a_bad_argument_is_named(call, argument, got, wanted):
    with pytest.raises(ValueError, match=f"^{argument} must ") as caught:
        call()
    assert got in str(caught.value)
    assert wanted in str(caught.value)


@pytest.mark.lab  # the counter imports PyTorch's compiler
def test_pytorchs_own_counter_finds_the_operations_that_the_chapter_prints():
    """docs/production/kv-cache.md reckons 4 · (24d² + 4dT) + 2 · 65 · d for a cached step."""
    model = GPT(65, 32, 64, 4, 4).eval()
    tokens = torch.zeros(1, 16, dtype=torch.long)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(tokens)
    # Without a cache 16 tokens are read, each of which is given 16 scores, masked or not.
    assert counter.get_total_flops() == 16 * (4 * (24 * 64**2 + 4 * 64 * 16) + 2 * 65 * 64)
