"""Positions are the paper's formula, from any start, and a table refuses what it lacks."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets.positions import LearnedPositions, sinusoidal_positions
from tests.snippets.facts import assert_equal, refuses
from tests.snippets.parts import Case, T, texts


def each_number_is_the_formula_of_the_paper(part):
    """From any start, and far from it."""
    assert torch.equal(part.sinusoidal_positions(4, 6), part.sinusoidal_positions(4, 6, first=0))
    for first, width in ((0, 4), (3, 6), (10**6, 6)):
        places = torch.arange(first, first + 4, dtype=torch.float64)
        result = part.sinusoidal_positions(4, width, first=first)
        assert result.dtype == torch.float32
        assert result.shape == (4, width)
        for channel in range(width):
            angle = places / 10000 ** (2 * (channel // 2) / width)
            wanted = angle.cos() if channel % 2 else angle.sin()
            what = f"channel {channel} from {first}"
            assert_equal(what, result[:, channel], wanted, torch.float32)


def a_learned_table_adds_its_rows_and_gets_their_gradients(part):
    """Row by row, up to the last."""
    torch.manual_seed(0)
    learned, x = part.LearnedPositions(6, 4), torch.randn(2, 3, 4)
    for first in (0, 2, 3):
        out = learned(x, first=first) if first else learned(x)
        rows = learned.table.weight[first : first + 3]
        assert_equal(f"from {first}", out, x + rows, torch.float32)
        (gradient,) = torch.autograd.grad(out.sum(), learned.table.weight)
        wanted = [[2.0 * (first <= row < first + 3)] * 4 for row in range(6)]
        assert gradient.tolist() == wanted


def what_lies_outside_of_the_table_is_refused(part):
    """A slice leaves one row, or none, and these would be laid over all tokens in silence."""
    learned = part.LearnedPositions(6, 4)
    refuses("all tokens but one beyond the end", learned, torch.zeros(2, 3, 4), first=5)
    refuses("a token beyond the end", learned, torch.zeros(2, 1, 4), first=6)
    refuses("a negative position", learned, torch.zeros(2, 1, 4), first=-1)


def a_channel_without_its_pair_is_refused(part):
    """The table would have one channel more than was asked for."""
    refuses("an odd width", part.sinusoidal_positions, 4, 5)


FACTS = [
    each_number_is_the_formula_of_the_paper,
    a_learned_table_adds_its_rows_and_gets_their_gradients,
    what_lies_outside_of_the_table_is_refused,
    a_channel_without_its_pair_is_refused,
]

WRONG = {
    "sine and cosine exchanged": ("angle.sin(), angle.cos()", "angle.cos(), angle.sin()"),
    "all sines, then all cosines": ("dim=-1).flatten(-2)", "dim=-2).flatten(-2)"),
    "sinusoids start again at 0": ("arange(first, first + tokens", "arange(0, tokens"),
    "a speed for each channel": ("**made) / embed_dim", "**made) / 2 / embed_dim"),
    "angles are made in float32": ('"dtype": torch.float64', '"dtype": torch.float32'),
    "another base": ("10000.0 **", "1000.0 **"),
    "the table starts again at 0": ("weight[first:last]", "weight[: x.size(-2)]"),
    "the place takes the word's place": ("return x + self", "return 0 * x + self"),
    "a table that ends one row early": ("last > max_tokens", "last >= max_tokens"),
    "a table without an end": ("or last > max_tokens", ""),
    "a table without a beginning": ("first < 0 or", ""),
    "an odd width": ("if embed_dim % 2:", "if False:"),
}


@given(st.integers(0, 5), st.integers(1, 6), st.integers(0, 200_000))
def test_each_number_is_the_formula_wherever_it_starts(tokens, pairs, first):
    ours = sinusoidal_positions(tokens, 2 * pairs, first=first)
    wanted = [
        [
            (math.cos if channel % 2 else math.sin)(position / 10000 ** (channel // 2 / pairs))
            for channel in range(2 * pairs)
        ]
        for position in range(first, first + tokens)
    ]
    wanted = torch.tensor(wanted, dtype=torch.float64).reshape(tokens, 2 * pairs)
    assert torch.allclose(ours.double(), wanted, rtol=0, atol=1e-6)


SAME = {"casts": False}
CASES = {
    "positions": Case(lambda m, x: m(x), texts, lambda: LearnedPositions(T, 16), **SAME),
    "positions, not learned": Case(
        lambda _, x: x + sinusoidal_positions(T, 16, first=10**6, device=x.device).to(x.dtype),
        texts,
        **SAME,
    ),
}
MODULES = {"LearnedPositions": lambda: LearnedPositions(32, 8)}


def add_learned(x):
    """The call that adds a table made before."""
    learned = LearnedPositions(*x.shape)
    return lambda: learned(x)


MIB = {"positions": (4, add_learned)}
