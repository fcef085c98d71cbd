"""The small torch draws the random numbers that PyTorch draws on a CPU, from the same seeds."""

import json
import random
import subprocess
from pathlib import Path

import pytest
import torch

from tests.small_torch import draws_from_one_stream, module

CODES = {torch.float32: 0, torch.float64: 1, torch.int64: 2, torch.int32: 3, torch.bool: 5}


def drawn_here(runs):
    """For each run, a seed and the draws that follow it, what random.js draws under Node."""
    script = Path(__file__).with_name("random_streams.mjs")
    asked = [
        [seed, *[[what, CODES[dtype], *more] for what, dtype, *more in draws]]
        for seed, *draws in runs
    ]
    done = subprocess.run(
        ["node", script], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def drawn_by_pytorch(what, dtype, n, *more):
    if what == "integers":
        return torch.randint(*more, (n,), dtype=dtype)
    if what == "permutation":
        return torch.randperm(n, dtype=dtype)
    return getattr(torch.empty(n, dtype=dtype), what + "_")(*more)


def assert_same(runs, ulps=0):
    """Compare each draw with PyTorch's: to the bit, or to a few units of a float64's last place."""
    for (seed, *draws), found in zip(runs, drawn_here(runs), strict=True):
        torch.manual_seed(seed)
        for draw, numbers in zip(draws, found, strict=True):
            wanted = drawn_by_pytorch(*draw)
            got = torch.tensor(numbers, dtype=torch.float64).to(draw[1])
            if ulps:
                eps = torch.finfo(draw[1]).eps * ulps
                torch.testing.assert_close(got, wanted, rtol=eps, atol=eps)
            else:
                assert torch.equal(got, wanted), (seed, draw)


def counts(chance):
    return chance.choice([1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 1000])


def runs_of(draws, times=40):
    """Runs with some seeds, each with what `draws(chance)` makes, in any order."""
    chance, runs = random.Random(0), []
    for seed in [0, 1, 2**32 - 1, *[chance.randrange(2**32) for _ in range(times)]]:
        made = [draw for _ in range(4) for draw in draws(chance)]
        chance.shuffle(made)
        runs.append((seed, *made))
    return runs


@pytest.mark.usefixtures("under_node")
def test_uniform_whole_and_yes_or_no_numbers_are_pytorchs_to_the_bit():
    def draws(chance):
        kinds = [torch.float32, torch.float64, torch.float32, torch.bool]
        yield "uniform", chance.choice(kinds[:2]), counts(chance), 0, 1
        high = chance.choice([5, 2**28 - 4, 2**28 - 3, 2**40])
        yield "integers", torch.int64, counts(chance), -3, high
        yield "permutation", torch.int64, counts(chance)
        if draws_from_one_stream():
            yield "bernoulli", chance.choice(kinds[2:]), counts(chance), chance.random()
        yield "normal", torch.float32, counts(chance), 0, 0  # which moves the stream on

    assert_same(runs_of(draws))


@pytest.mark.usefixtures("under_node")
def test_normal_and_scaled_numbers_are_pytorchs_to_the_last_places():
    def draws(chance):
        kinds = [torch.float32, torch.float64]
        yield "normal", chance.choice(kinds), counts(chance), chance.uniform(-1, 1), 1.5
        yield "normal", chance.choice(kinds), chance.choice([1, 3, 5, 15]), 0, 1
        if draws_from_one_stream():
            yield "exponential", chance.choice(kinds), counts(chance), chance.uniform(0.5, 3)
        low = chance.uniform(-2, 0)
        yield "uniform", chance.choice(kinds), counts(chance), low, -low

    assert_same(runs_of(draws), ulps=32)


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="PyTorch rounds otherwise here"
)
@pytest.mark.usefixtures("under_node")
def test_sixteen_and_more_normal_numbers_are_pytorchs_to_the_bit_where_it_has_avx2():
    def draws(chance):
        n, mean = 16 + counts(chance), chance.uniform(-1, 1)
        yield "normal", torch.float32, n, mean, chance.uniform(0, 2)
        yield "uniform", torch.float32, n, mean, 1.3

    assert_same(runs_of(draws))


class Seeded:
    """Stands for random.js, and remembers the seeds that it was given."""

    def __init__(self):
        self.seeds = []

    def seed(self, place, low):
        self.seeds.append(low)


@pytest.fixture
def ours():
    loaded = module("_random")
    loaded.streams = Seeded()
    return loaded


def test_a_generator_begins_with_pytorchs_seeds(ours):
    for seed in (0, 7, -1, -3, 2**63, 2**64 - 1):
        wanted = torch.Generator().manual_seed(seed).initial_seed()
        assert ours.Generator().manual_seed(seed).initial_seed() == wanted
        assert ours.streams.seeds[-1] == wanted % 2**32
    assert ours.Generator().initial_seed() == torch.Generator().initial_seed()


@pytest.mark.parametrize("seed", [1.5, "a", 2**70, None])
def test_a_wrong_seed_is_refused_as_pytorch_refuses_it(ours, seed):
    with pytest.raises((RuntimeError, ValueError, TypeError)) as wanted:
        torch.Generator().manual_seed(seed)
    with pytest.raises(wanted.type) as found:
        ours.Generator().manual_seed(seed)
    assert str(found.value) == str(wanted.value)
