"""Codes are within half a step of their numbers; a cache of codes is the cache where nothing is rounded."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets import quantized_cache as real
from snippets.generate import generate
from snippets.kv_cache import KVCache
from snippets.llama import Llama
from snippets.quantized_cache import QuantizedCache
from tests.snippets.parts import Case, T, heads


def some(tokens, *, heads=2, width=8, batch=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, tokens, width, generator=generator, dtype=dtype)


def fill(cache, keys, values, sizes):
    """Hand keys and values over in pieces of these sizes, and return what comes back at last."""
    for pair in zip(keys.split(sizes, dim=-2), values.split(sizes, dim=-2), strict=True):
        result = cache.update(*pair)
    return result


def a_code_is_within_half_a_step(part):
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


def numbers_on_the_steps_come_back(part):
    x = torch.tensor([[[[-1.5, 0.0, 1.5, 3.0], [7.0, 7.0, 7.0, 7.0]]]])
    assert torch.equal(part.dequantize(part.quantize(x, 2, -1), 2), x)


def keys_share_a_step_by_channel_and_values_by_token(part):
    wide = torch.ones(8, dtype=torch.float64)
    wide[3] = 100.0  # one channel is large
    keys, values = some(8) * wide, some(8, seed=1) * wide[:, None]
    result = part.QuantizedCache(bits=4, group=8).update(keys, values)
    for found, given_, dim in zip(result, (keys, values), (-2, -1), strict=True):
        assert not torch.equal(found, given_)
        spread = given_.amax(dim, keepdim=True) - given_.amin(dim, keepdim=True)
        assert ((found - given_).abs() <= spread / 30 + 1e-12).all()


def before_a_group_is_full_it_is_the_cache(part):
    keys, values = some(9), some(9, heads=1, seed=1)
    wanted = fill(KVCache(9), keys, values, [3, 1, 5])
    cache = part.QuantizedCache(group=10)
    result = fill(cache, keys, values, [3, 1, 5])
    assert cache.length == 9
    assert all(map(torch.equal, result, wanted))


def what_waits_is_not_rounded(part):
    keys, values = some(11), some(11, seed=1)
    cache = part.QuantizedCache(bits=2, group=4)
    result = fill(cache, keys, values, [5, 1, 5])
    assert cache.length == 11
    for found, given_ in zip(result, (keys, values), strict=True):
        assert found.shape == given_.shape
        assert torch.equal(found[:, :, 8:], given_[:, :, 8:])
        assert ((found[:, :, :8] - given_[:, :, :8]).abs().amax(dim=(0, 1, 3)) > 0).all()


def the_pieces_do_not_matter(part, sizes=(5, 1, 1, 4), group=4, bits=4):
    keys, values = some(sum(sizes)), some(sum(sizes), seed=1)
    at_once = part.QuantizedCache(bits=bits, group=group)
    in_pieces = part.QuantizedCache(bits=bits, group=group)
    wanted = at_once.update(keys, values)
    result = fill(in_pieces, keys, values, list(sizes))
    assert all(map(torch.equal, result, wanted))
    assert in_pieces.nbytes == at_once.nbytes


def its_bytes_are_counted(part):
    cache = part.QuantizedCache(bits=4, group=16)
    cache.update(some(35, dtype=torch.bfloat16), some(35, seed=1, dtype=torch.bfloat16))
    texts = 2 * 2  # and heads
    codes = 2 * texts * 32 * 8 // 2
    steps = 2 * 2 * texts * (2 * 8 + 32)  # lowest and step, a channel of a group or a token
    assert cache.nbytes == codes + steps + 2 * 2 * texts * 3 * 8


def half_precision_is_within_a_step(part):
    for dtype in (torch.bfloat16, torch.float16):
        x = some(32, dtype=dtype)
        for bits in (2, 4, 8):
            codes, lowest, step = part.quantize(x, bits, -2)
            error = part.dequantize((codes, lowest, step), bits).double() - x.double()
            assert lowest.dtype == step.dtype == dtype
            assert (error.abs() <= step.double() + 0.02).all()


def the_largest_numbers_of_half_precision_stay_finite(part):
    """From -65504 to 65504 it is farther than float16 can count, and a step too far ends in inf."""
    x = torch.tensor([65504.0, -65504.0, 0.0, 30000.0], dtype=torch.float16).expand(1, 1, 4, 4)
    for along in (x, x.mT):
        for bits in (2, 4, 8):
            for found in part.QuantizedCache(bits=bits, group=4).update(along, along):
                assert found.dtype == torch.float16
                off = (found.double() - along.double()).abs().amax()
                assert off <= 2 * 65504 / (2**bits - 1) / 2 + 32 * 2**bits / 2


def values_without_channels_are_no_group(part):
    """As a latent cache has them: its keys are all that it holds."""
    keys, values = some(11), some(11, width=0)
    cache, whole = (part.QuantizedCache(group=4) for _ in range(2))
    found = fill(cache, keys, values, [5, 1, 5])
    assert torch.equal(found[0], whole.update(keys, keys)[0])
    assert found[1].shape == (2, 2, 11, 0)


def what_came_does_not_stay_in_memory(part):
    cache = part.QuantizedCache(group=4)
    cache.update(some(9), some(9))
    assert [x.untyped_storage().nbytes() for x in cache.newest] == [2 * 2 * 8 * 8] * 2


FACTS = [
    a_code_is_within_half_a_step,
    numbers_on_the_steps_come_back,
    keys_share_a_step_by_channel_and_values_by_token,
    before_a_group_is_full_it_is_the_cache,
    what_waits_is_not_rounded,
    the_pieces_do_not_matter,
    its_bytes_are_counted,
    half_precision_is_within_a_step,
    the_largest_numbers_of_half_precision_stay_finite,
    values_without_channels_are_no_group,
    what_came_does_not_stay_in_memory,
]

WRONG = {
    "one step too many": ("- lowest) / (2**bits - 1)", "- lowest) / 2**bits"),
    "rounds down": (".round().clamp", ".floor().clamp"),
    "no lowest number": ("(x.to(wide) - lowest) / divisor", "x.to(wide) / divisor"),
    "the lowest number is lost": ("lowest.to(wide) + codes", "0 * lowest.to(wide) + codes"),
    "codes in the wrong order": (
        "(packed.unsqueeze(-1) >> places)",
        "(packed.unsqueeze(-1) >> places.flip(0))",
    ),
    "codes lie on each other": ("(codes << places)", "codes"),
    "the distance is that of float16": ("highest.to(wide) - lowest", "highest - lowest"),
    "a code may pass the largest number": ("numbers.clamp_(-most, most)", "numbers"),
    "keys by token": ("quantize(groups[0], self.bits, -2)", "quantize(groups[0], self.bits, -1)"),
    "values by channel": (
        "quantize(groups[1], self.bits, -1)",
        "quantize(groups[1], self.bits, -2)",
    ),
    "a full group waits": ("new[0].size(-2) // self", "(new[0].size(-2) - 1) // self"),
    "one group an update": (
        "new[0].size(-2) // self.group *",
        "min(new[0].size(-2) // self.group, 1) *",
    ),
    "a step for all groups": ("(-1, self.group)) for x", "(1, full)) for x"),
    "the newest come first": (
        "[dequantize(rounded, self.bits).flatten(-3, -2), newest]",
        "[newest, dequantize(rounded, self.bits).flatten(-3, -2)]",
    ),
    "keys twice": ("(self._whole, self.rounded,", "(self._whole, self.rounded[:1] * 2,"),
    "the newest groups come first": ("zip(old, new, strict=True)", "zip(new, old, strict=True)"),
    "what waited is lost": ("if self.newest:", "if False:"),
    "old groups are lost": ("if self.rounded:", "if False:"),
    "the length of full groups": (
        "self.length += keys.size(-2)",
        "self.length += keys.size(-2) // self.group * self.group",
    ),
    "what came stays in memory": ("full:, :].clone()", "full:, :]"),
    "codes alone are counted": (
        "(*self.rounded, self.newest)",
        "(*(r[:1] for r in self.rounded), self.newest)",
    ),
}

CASES = {
    "without rounding": Case(
        lambda _, k, v: QuantizedCache(group=T + 1).update(k, v),  # a code may jump a whole step
        lambda: heads()[1:],
        roundings=0,
        backward=False,
        casts=False,
    )
}


def decoded(x):
    """Keys and values, decoded, beside what waits: nothing does."""
    return lambda: QuantizedCache().update(x[None, None], x[None, None])


MIB = {"16,384 tokens in 4 bits": (14, decoded)}


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(sum),
    st.integers(1, 6),
    st.sampled_from([2, 4, 8]),
)
def test_any_pieces_are_held_as_the_whole(sizes, group, bits):
    the_pieces_do_not_matter(real, sizes, group, bits)


def test_a_llama_writes_the_same_text_while_nothing_is_rounded():
    torch.manual_seed(0)
    model = Llama(20, 16, 4, 2, num_kv_heads=2, head_dim=8).double().eval()
    prompts = [torch.arange(5), torch.arange(3)]
    wanted = generate(model, prompts, 8, 0, cache=KVCache)
    found = generate(model, prompts, 8, 0, cache=lambda _: QuantizedCache(group=64))
    assert all(map(torch.equal, found, wanted))
    rounded = generate(model, prompts, 8, 0, cache=lambda _: QuantizedCache(bits=2, group=2))
    assert [len(text) for text in rounded] == [13, 11]


@pytest.mark.parametrize("how", [{"bits": 3}, {"bits": 2, "width": 6}, {"bits": 4, "width": 3}])
def test_codes_fill_whole_bytes(how):
    with pytest.raises(ValueError, match=r"^(bits|keys) must"):
        QuantizedCache(bits=how["bits"]).update(*2 * [some(1, width=how.get("width", 8))])


@pytest.mark.lab
@torch.no_grad()
def test_a_compiled_step_is_compiled_no_more_after_two_groups():
    torch._dynamo.reset()
    cache = QuantizedCache(group=4)
    cache.update(some(8), some(8))
    step = torch.compile(lambda *new: cache.update(*new), backend="eager")
    for turn in range(20):
        with torch.compiler.set_stance("default" if turn < 8 else "fail_on_recompile"):
            step(some(1), some(1))
    assert cache.length == 28
