"""Codes are within half a step of their numbers; a cache of codes is the cache where nothing is rounded."""

import pytest
import torch

from snippets.kv_cache import KVCache
from snippets.quantized_cache import QuantizedCache
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, T, draw, heads


def fill(cache, keys, values, sizes):
    """Hand keys and values over in pieces of these sizes, and return what comes back at last."""
    for pair in zip(keys.split(sizes, dim=-2), values.split(sizes, dim=-2), strict=True):
        result = cache.update(*pair)
    return result


def test_a_code_is_within_half_a_step(part):
    x = draw(2, 2, 32, 8)
    for bits in (2, 4, 8):
        for dim in (-2, -1):
            codes, lowest, step = part.quantize(x, bits, dim)
            assert codes.dtype == torch.uint8
            assert codes.shape == (2, 2, 32, bits)
            spread = x.amax(dim, keepdim=True) - x.amin(dim, keepdim=True)
            assert torch.allclose(step, spread / (2**bits - 1))
            error = (part.dequantize((codes, lowest, step), bits) - x).abs()
            assert (error <= step / 2 + 1e-12).all()
            for low in (x.bfloat16(), x.half()):  # whose step may be rounded down
                found = part.dequantize(part.quantize(low, bits, dim), bits).double()
                assert ((found - low.double()).abs() <= step + 0.02).all()
    x = torch.tensor([[[[-1.5, 0.0, 1.5, 3.0], [7.0, 7.0, 7.0, 7.0]]]])  # each on a step
    assert torch.equal(part.dequantize(part.quantize(x, 2, -1), 2), x)
    # Of float16 2^-24 is the smallest number, so a step of 300 / 255 of it is one: code 300 is 255.
    x = torch.tensor([[0.0, 300.0]], dtype=torch.float16) * 2**-24
    assert (part.dequantize(part.quantize(x, 8, -1), 8) * 2**24).tolist() == [[0.0, 255.0]]


def test_keys_share_a_step_by_channel_and_values_by_token(part):
    wide = torch.ones(8, dtype=torch.float64)
    wide[3] = 100.0  # one channel of the keys is large, and one token of the values
    keys, values = draw(2, 2, 8, 8) * wide, draw(2, 2, 8, 8, seed=2) * wide[:, None]
    result = part.QuantizedCache(bits=4, group=8).update(keys, values)
    for found, given, dim in zip(result, (keys, values), (-2, -1), strict=True):
        assert not torch.equal(found, given)
        spread = given.amax(dim, keepdim=True) - given.amin(dim, keepdim=True)
        assert ((found - given).abs() <= spread / 30 + 1e-12).all()


def test_full_groups_are_rounded_and_what_waits_is_not_however_it_came(part):
    keys, values = draw(2, 2, 11, 8), draw(2, 1, 11, 8, seed=2)
    for sizes in ([11], [5, 1, 0, 5], [1] * 11):
        cache, whole = part.QuantizedCache(bits=2, group=4), part.QuantizedCache(bits=2, group=4)
        result = fill(cache, keys, values, sizes)
        assert all(map(torch.equal, result, whole.update(keys, values)))
        assert cache.nbytes == whole.nbytes
        assert cache.length == 11
        for found, given in zip(result, (keys, values), strict=True):
            for group in (slice(0, 4), slice(4, 8)):
                assert 0 < (found - given)[:, :, group].abs().mean() < 0.5
            assert torch.equal(found[:, :, 8:], given[:, :, 8:])
    unrounded = fill(part.QuantizedCache(group=12), keys, values, [3, 1, 7])
    assert all(map(torch.equal, unrounded, fill(KVCache(11), keys, values, [3, 1, 7])))


def test_its_bytes_are_counted_and_no_more_are_kept(part):
    cache = part.QuantizedCache(bits=4, group=16)
    cache.update(*(draw(2, 2, 35, 8, seed=n).bfloat16() for n in (1, 2)))
    texts = 2 * 2  # and heads
    codes = 2 * texts * 32 * 8 // 2
    steps = 2 * 2 * texts * (2 * 8 + 32)  # lowest and step, a channel of a group or a token
    assert cache.nbytes == codes + steps + 2 * 2 * texts * 3 * 8
    assert [x.untyped_storage().nbytes() for x in cache.newest] == [2 * texts * 3 * 8] * 2


def test_the_largest_numbers_of_half_precision_stay_finite(part):
    """From -65504 to 65504 it is farther than float16 can count, and a step too far ends in inf."""
    x = torch.tensor([65504.0, -65504.0, 0.0, 30000.0], dtype=torch.float16).expand(1, 1, 4, 4)
    for along in (x, x.mT):
        for bits in (2, 4, 8):
            for found in part.QuantizedCache(bits=bits, group=4).update(along, along):
                assert found.dtype == torch.float16
                off = (found.double() - along.double()).abs().amax()
                assert off <= 2 * 65504 / (2**bits - 1) / 2 + 32 * 2**bits / 2


def test_values_without_channels_are_no_group(part):
    """As a latent cache has them: its keys are all that it holds."""
    keys, values = draw(2, 2, 11, 8), draw(2, 2, 11, 0)
    found = fill(part.QuantizedCache(group=4), keys, values, [5, 1, 5])
    assert torch.equal(found[0], part.QuantizedCache(group=4).update(keys, keys)[0])
    assert found[1].shape == (2, 2, 11, 0)


def test_codes_fill_whole_bytes(part):
    refuses("3 bits", part.QuantizedCache, bits=3)
    for bits, width in ((2, 6), (4, 3)):
        cache, x = part.QuantizedCache(bits=bits), draw(1, 1, 1, width)
        refuses(f"{width} codes of {bits} bits", cache.update, x, x)


WRONG = {
    "keys by token": ("quantize(groups[0], self.bits, -2)", "quantize(groups[0], self.bits, -1)"),
    "one group an update": (
        "new[0].size(-2) // self.group *",
        "min(new[0].size(-2) // self.group, 1) *",
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


MIB = {  # decoded, beside what waits: nothing does
    "16,384 tokens in 4 bits": (
        14,
        lambda x: lambda: QuantizedCache().update(x[None, None], x[None, None]),
    )
}


@pytest.mark.lab
@torch.no_grad()
def test_a_compiled_step_is_compiled_no_more_after_two_groups():
    torch._dynamo.reset()
    cache = QuantizedCache(group=4)
    cache.update(draw(2, 2, 8, 8), draw(2, 2, 8, 8))
    step = torch.compile(lambda *new: cache.update(*new), backend="eager")
    for turn in range(12):
        with torch.compiler.set_stance("default" if turn < 8 else "fail_on_recompile"):
            step(draw(2, 2, 1, 8), draw(2, 2, 1, 8))
    assert cache.length == 20
