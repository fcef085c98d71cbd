"""Positions are the paper's formula, from any start, and a table refuses what it lacks."""

import math
from functools import partial

import torch

from snippets.positions import LearnedPositions, sinusoidal_positions
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, T, close, draw, texts


def test_each_number_is_the_formula_of_the_paper(part):
    """From any start, and far from it."""
    for first, width in ((0, 4), (3, 6), (10**6, 6), (0, 0)):
        wanted = [
            [
                (math.cos if channel % 2 else math.sin)(place / 10000 ** (channel // 2 * 2 / width))
                for channel in range(width)
            ]
            for place in range(first, first + 4)
        ]
        result = part.sinusoidal_positions(4, width, first=first)
        assert close(result, torch.tensor(wanted), 1e-6)
    beginning = part.sinusoidal_positions(4, 6)
    assert torch.equal(beginning, part.sinusoidal_positions(4, 6, first=0))


def test_a_learned_table_adds_its_rows_up_to_the_last(part):
    learned, x = part.LearnedPositions(6, 4), draw(2, 3, 4, dtype=torch.float32)
    for first in (0, 2, 3):
        out = learned(x, first=first) if first else learned(x)
        assert close(out, x + learned.table.weight[first : first + 3], 1e-6)


def test_what_lies_outside_of_the_table_is_refused(part):
    """A slice leaves one row, or none, and these would be laid over all tokens in silence."""
    learned = part.LearnedPositions(6, 4)
    refuses("all tokens but one beyond the end", learned, torch.zeros(2, 3, 4), first=5)
    refuses("a token beyond the end", learned, torch.zeros(2, 1, 4), first=6)
    refuses("a negative position", learned, torch.zeros(2, 1, 4), first=-1)


def test_a_channel_without_its_pair_is_refused(part):
    """The table would have one channel more than was asked for."""
    refuses("an odd width", part.sinusoidal_positions, 4, 5)


WRONG = {
    "sine and cosine exchanged": ("angle.sin(), angle.cos()", "angle.cos(), angle.sin()"),
    "sinusoids start again at 0": ("arange(first, first + tokens", "arange(0, tokens"),
    "the place takes the word's place": ("return x + self", "return 0 * x + self"),
}

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


MIB = {"positions": (4, lambda x: partial(LearnedPositions(*x.shape), x))}
