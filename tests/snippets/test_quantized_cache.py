"""Codes are within half a step of their numbers; a cache of codes is the cache where nothing is rounded; one that drops tokens is causal attention where there is room."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from snippets import quantized_cache as file
from snippets.attention_masks import keep_window
from snippets.generate import generate
from snippets.kv_cache import KVCache
from snippets.llama import Llama
from snippets.quantized_cache import HeavyHitters, QuantizedCache, dequantize, quantize
from tests.snippets.facts import first_to_notice
from tests.snippets.problems import edited


def some(tokens, *, heads=2, width=8, batch=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, tokens, width, generator=generator, dtype=dtype)


def fill(cache, keys, values, sizes):
    """Hand keys and values over in pieces of these sizes, and return what comes back at last."""
    for pair in zip(keys.split(sizes, dim=-2), values.split(sizes, dim=-2), strict=True):
        result = cache.update(*pair)
    return result


def one_by_one(cache, query, key, value):
    steps = zip(*(part.split(1, dim=-2) for part in (query, key, value)), strict=True)
    return torch.cat([cache.attend(*step) for step in steps], dim=-2)


# Facts about the file, which is the real one or a wrong version of it.


def a_code_is_within_half_a_step(part=file):
    x = some(6)
    for bits in (2, 4, 8):
        for dim in (-2, -1):
            codes, lowest, step = part.quantize(x, bits, dim)
            assert codes.dtype == torch.uint8
            assert codes.shape == (*x.shape[:-1], x.size(-1) * bits // 8)
            spread = x.amax(dim, keepdim=True) - x.amin(dim, keepdim=True)
            assert torch.allclose(step, spread / (2**bits - 1))
            error = (part.dequantize((codes, lowest, step), bits) - x).abs()
            assert (error <= step / 2 + 1e-12).all()


def numbers_on_the_steps_come_back(part=file):
    x = torch.tensor([[[[-1.5, 0.0, 1.5, 3.0], [7.0, 7.0, 7.0, 7.0]]]])
    assert torch.equal(part.dequantize(part.quantize(x, 2, -1), 2), x)


def keys_share_a_step_by_channel_and_values_by_token(part=file):
    wide = torch.ones(8, dtype=torch.float64)
    wide[3] = 100.0  # one channel is large
    keys, values = some(8) * wide, some(8, seed=1) * wide[:, None]
    result = part.QuantizedCache(bits=4, group=8).update(keys, values)
    for found, given_, dim in zip(result, (keys, values), (-2, -1), strict=True):
        assert not torch.equal(found, given_)
        spread = given_.amax(dim, keepdim=True) - given_.amin(dim, keepdim=True)
        assert ((found - given_).abs() <= spread / 30 + 1e-12).all()


def before_a_group_is_full_it_is_the_cache(part=file):
    keys, values = some(9), some(9, heads=1, seed=1)
    wanted = fill(KVCache(9), keys, values, [3, 1, 5])
    cache = part.QuantizedCache(group=10)
    result = fill(cache, keys, values, [3, 1, 5])
    assert cache.length == 9
    assert all(map(torch.equal, result, wanted))


def what_waits_is_not_rounded(part=file):
    keys, values = some(11), some(11, seed=1)
    cache = part.QuantizedCache(bits=2, group=4)
    result = fill(cache, keys, values, [5, 1, 5])
    assert cache.length == 11
    for found, given_ in zip(result, (keys, values), strict=True):
        assert found.shape == given_.shape
        assert torch.equal(found[:, :, 8:], given_[:, :, 8:])
        assert ((found[:, :, :8] - given_[:, :, :8]).abs().amax(dim=(0, 1, 3)) > 0).all()


def the_pieces_do_not_matter(part=file, sizes=(5, 1, 1, 4), group=4, bits=4):
    keys, values = some(sum(sizes)), some(sum(sizes), seed=1)
    at_once = part.QuantizedCache(bits=bits, group=group)
    in_pieces = part.QuantizedCache(bits=bits, group=group)
    wanted = at_once.update(keys, values)
    result = fill(in_pieces, keys, values, list(sizes))
    assert all(map(torch.equal, result, wanted))
    assert in_pieces.nbytes == at_once.nbytes


def its_bytes_are_counted(part=file):
    cache = part.QuantizedCache(bits=4, group=16)
    cache.update(some(35, dtype=torch.bfloat16), some(35, seed=1, dtype=torch.bfloat16))
    texts = 2 * 2  # and heads
    codes = 2 * texts * 32 * 8 // 2
    steps = 2 * 2 * texts * (2 * 8 + 32)  # lowest and step, a channel of a group or a token
    assert cache.nbytes == codes + steps + 2 * 2 * texts * 3 * 8


def with_room_for_all_it_is_causal_attention(part=file):
    query, key, value = some(7, heads=4), some(7, seed=1), some(7, width=3, seed=2)
    wanted = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    found = one_by_one(part.HeavyHitters(7, 2), query, key, value)
    assert torch.allclose(found, wanted, atol=1e-10)


def where_all_are_recent_it_is_a_window(part=file):
    query, key, value = (some(9, seed=seed) for seed in range(3))
    for keep in (1, 2, 4):
        wanted = F.scaled_dot_product_attention(query, key, value, keep_window(keep, 9))
        found = one_by_one(part.HeavyHitters(keep, keep), query, key, value)
        assert torch.allclose(found, wanted, atol=1e-10)


def the_smallest_sum_makes_room(part=file):
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
    a_code_is_within_half_a_step,
    numbers_on_the_steps_come_back,
    keys_share_a_step_by_channel_and_values_by_token,
    before_a_group_is_full_it_is_the_cache,
    what_waits_is_not_rounded,
    the_pieces_do_not_matter,
    its_bytes_are_counted,
    with_room_for_all_it_is_causal_attention,
    where_all_are_recent_it_is_a_window,
    the_smallest_sum_makes_room,
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_it_holds_to(fact):
    fact()


WRONG = {
    "one step too many": ("(2**bits - 1)\n    wide", "2**bits\n    wide"),
    "rounds down": (".round().clamp", ".floor().clamp"),
    "no lowest number": ("(x.to(wide) - lowest) / divisor", "x.to(wide) / divisor"),
    "the lowest number is lost": ("(lowest.to(wide) + codes", "(0 * lowest.to(wide) + codes"),
    "codes in the wrong order": (
        "(packed.unsqueeze(-1) >> places)",
        "(packed.unsqueeze(-1) >> places.flip(0))",
    ),
    "codes lie on each other": ("(share << places)", "share"),
    "keys by token": ("quantize(groups[0], self.bits, -2)", "quantize(groups[0], self.bits, -1)"),
    "values by channel": (
        "quantize(groups[1], self.bits, -1)",
        "quantize(groups[1], self.bits, -2)",
    ),
    "a full group waits": ("keys.size(-2) // self.group *", "(keys.size(-2) - 1) // self.group *"),
    "one group an update": (
        "keys.size(-2) // self.group *",
        "min(keys.size(-2) // self.group, 1) *",
    ),
    "a step for all groups": ("(-1, self.group)) for part", "(1, full)) for part"),
    "the newest come first": (
        "torch.cat([*old, self._newest[which]], dim=-2)",
        "torch.cat([self._newest[which], *old], dim=-2)",
    ),
    "what waited is lost": (
        "if self._newest is not None:\n            keys",
        "if False:\n            keys",
    ),
    "keys twice": ("return self._all(0), self._all(1)", "return self._all(0), self._all(0)"),
    "the length of full groups": ("self.length += new", "self.length += full"),
    "codes alone are counted": (
        "for part in groups for tensor in part]",
        "for part in groups for tensor in part[:1]]",
    ),
    "no scale": ("@ keys.mT / key.size(-1) ** 0.5", "@ keys.mT"),
    "heads in another order": (
        "query.unflatten(1, (key.size(1), -1)).squeeze(-2)",
        "query.unflatten(1, (-1, key.size(1))).transpose(1, 2).squeeze(-2)",
    ),
    "nothing is dropped": ("== self.keep:", "== -1:"),
    "one token too many": ("== self.keep:", "== self.keep + 1:"),
    "the strongest is dropped": (".argmin(dim=-2", ".argmax(dim=-2"),
    "one recent too few": ("self.keep + 1 - self.recent", "self.keep + 2 - self.recent"),
    "one recent too many": ("self.keep + 1 - self.recent", "max(self.keep - self.recent, 1)"),
    "the last weights alone": ("received = received + weights", "received = weights"),
    "one head's weight": (".float().sum(dim=-2)", ".float()[..., 0, :]"),
    "all make room for the first": (
        "(stay >= weakest)",
        "(stay >= weakest[:1, :1].expand_as(weakest))",
    ),
    "positions of what is held": (
        "self.length, dtype=torch.long",
        "min(self.length, self.keep), dtype=torch.long",
    ),
    "the length of what is held": ("self.length + 1", "keys.size(-2)"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_is_caught(what):
    assert first_to_notice(FACTS, edited("quantized_cache", WRONG[what])), f"{what}: all facts hold"


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(sum),
    st.integers(1, 6),
    st.sampled_from([2, 4, 8]),
)
def test_any_pieces_are_held_as_the_whole(sizes, group, bits):
    the_pieces_do_not_matter(file, sizes, group, bits)


@given(st.integers(1, 8), st.integers(1, 9), st.integers(0, 2**31))
def test_a_window_of_any_size(keep, tokens, seed):
    query, key, value = (some(tokens, batch=1, seed=seed + i) for i in range(3))
    wanted = F.scaled_dot_product_attention(query, key, value, keep_window(keep, tokens))
    found = one_by_one(HeavyHitters(keep, keep), query, key, value)
    assert torch.allclose(found, wanted, atol=1e-10)


def test_more_bits_are_closer():
    keys, values = some(32), some(32, seed=1)
    errors = [
        (QuantizedCache(bits=bits).update(keys, values)[0] - keys).norm() for bits in (2, 4, 8)
    ]
    assert errors[0] > 4 * errors[1] > 16 * errors[2]


def test_half_precision_is_within_a_step():
    for dtype in (torch.bfloat16, torch.float16):
        x = some(32, dtype=dtype)
        for bits in (2, 4, 8):
            codes, lowest, step = quantize(x, bits, -2)
            error = dequantize((codes, lowest, step), bits).double() - x.double()
            assert lowest.dtype == step.dtype == dtype
            assert (error.abs() <= step.double() + 0.02).all()


def test_a_llama_writes_the_same_text_while_nothing_is_rounded():
    torch.manual_seed(0)
    model = Llama(20, 16, 4, 2, num_kv_heads=2, head_dim=8).double().eval()
    prompts = [torch.arange(5), torch.arange(3)]
    wanted = generate(model, prompts, 8, 0, cache=KVCache)
    found = generate(model, prompts, 8, 0, cache=lambda _: QuantizedCache(group=64))
    assert all(map(torch.equal, found, wanted))
    rounded = generate(model, prompts, 8, 0, cache=lambda _: QuantizedCache(bits=2, group=2))
    assert [len(text) for text in rounded] == [13, 11]


def test_before_the_first_token_nothing_is_held():
    assert (QuantizedCache().nbytes, QuantizedCache().length) == (0, 0)
    with pytest.raises(ValueError, match=r"^length must be at least 1"):
        _ = HeavyHitters(2, 1).positions


def test_they_say_what_they_hold():
    cache, heavy = QuantizedCache(bits=8, group=2), HeavyHitters(4, 2)
    cache.update(some(3), some(3))
    heavy.attend(some(1), some(1), some(1))
    assert repr(cache) == "QuantizedCache(bits=8, group=2, length=3)"
    assert repr(heavy) == "HeavyHitters(keep=4, recent=2, length=1)"


filled = QuantizedCache()
filled.update(some(3), some(3))


@pytest.mark.parametrize(
    ("call", "argument", "got", "wanted"),
    [
        (lambda: QuantizedCache(bits=3), "bits", "3", "2, 4 or 8"),
        (lambda: QuantizedCache(group=0), "group", "0", "positive integer"),
        (lambda: filled.update([1.0], some(1)), "keys", "[1.0]", "(batch, heads, tokens, width)"),
        (lambda: filled.update(some(1), some(1)[0]), "values", "(2, 1, 8)", "floating point"),
        (lambda: filled.update(some(1).long(), some(1)), "keys", "(2, 2, 1, 8)", "floating point"),
        (lambda: QuantizedCache().update(some(1, width=3), some(1)), "keys", "3", "whole bytes"),
        (
            lambda: filled.update(some(1, batch=1), some(1)),
            "keys",
            "(1, 2, 1, 8)",
            "(2, 2, tokens, 8)",
        ),
        (lambda: filled.update(some(1).float(), some(1)), "keys", "float32", "float64"),
        (lambda: filled.update(some(2), some(1)), "values", "(2, 2, 1, 8)", "tokens of keys"),
        (lambda: HeavyHitters(0, 1), "keep", "0", "positive integer"),
        (lambda: HeavyHitters(4, 5), "recent", "5", "from 1 to keep=4"),
        (
            lambda: HeavyHitters(4, 2).attend(some(2), some(1), some(1)),
            "query",
            "(2, 2, 2, 8)",
            "1, width",
        ),
        (
            lambda: HeavyHitters(4, 2).attend(some(1), some(1, width=4), some(1)),
            "key",
            "(2, 2, 1, 4)",
            "width of query",
        ),
        (
            lambda: HeavyHitters(4, 2).attend(some(1, heads=3), some(1), some(1)),
            "key",
            "2",
            "divide the 3",
        ),
        (
            lambda: HeavyHitters(4, 2).attend(some(1), some(1), some(1, heads=1)),
            "value",
            "(2, 1, 1, 8)",
            "heads of key",
        ),
    ],
)
def test_a_bad_argument_is_named(call, argument, got, wanted):
    with pytest.raises(ValueError, match=f"^{argument} must ") as caught:
        call()
    assert got in str(caught.value)
    assert wanted in str(caught.value)
