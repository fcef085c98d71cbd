"""Positions are the paper's formula, their shift is one rotation, and a table refuses what it lacks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets.positions import LearnedPositions, sinusoidal_positions


@given(st.integers(0, 5), st.integers(1, 6), st.integers(0, 200_000))
def test_each_number_is_the_formula_of_the_paper(tokens, pairs, first):
    ours = sinusoidal_positions(tokens, 2 * pairs, first=first)
    wanted = [
        [
            (math.cos if channel % 2 else math.sin)(
                position / 10000 ** (2 * (channel // 2) / (2 * pairs))
            )
            for channel in range(2 * pairs)
        ]
        for position in range(first, first + tokens)
    ]
    assert ours.dtype == torch.float32
    assert torch.allclose(ours, torch.tensor(wanted).reshape(tokens, 2 * pairs), rtol=0, atol=1e-6)


@given(st.integers(0, 9), st.integers(0, 9))
def test_a_later_start_is_a_slice_of_the_whole(first, tokens):
    whole = sinusoidal_positions(first + tokens, 8)
    assert torch.equal(sinusoidal_positions(tokens, 8, first=first), whole[first:])


def test_a_shift_is_one_rotation_of_each_pair_wherever_it_starts():
    table = sinusoidal_positions(50, 8, base=100.0).double().unflatten(-1, (4, 2))
    pairs = torch.view_as_complex(table.flip(-1).contiguous())  # cosine + i · sine
    turns = pairs[3:] / pairs[:-3]
    assert torch.allclose(turns, turns[:1].expand_as(turns), rtol=0, atol=1e-5)


def test_a_learned_table_adds_its_rows_and_gets_their_gradients():
    positions, x = LearnedPositions(6, 4), torch.randn(2, 3, 4)
    out = positions(x, first=2)
    assert torch.equal(out, x + positions.table.weight[2:5])
    out.sum().backward()
    assert positions.table.weight.grad.tolist() == [[2.0 * (2 <= row < 5)] * 4 for row in range(6)]


def test_a_sequence_as_long_as_the_table_fits():
    assert LearnedPositions(3, 2)(torch.zeros(3, 2)).shape == (3, 2)
    assert LearnedPositions(3, 2)(torch.zeros(1, 2), first=2).shape == (1, 2)


@pytest.mark.lab
def test_exported_once_they_serve_every_length():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.learned = LearnedPositions(9, 4)

        def forward(self, x):
            return self.learned(x + sinusoidal_positions(x.size(1), 4))

    model, T = Model(), torch.export.Dim("T", min=2, max=9)
    shapes = {"x": {1: T}}
    exported = torch.export.export(model, (torch.zeros(2, 5, 4),), dynamic_shapes=shapes).module()
    for length in (5, 9):
        x = torch.randn(2, length, 4)
        assert torch.allclose(exported(x), model(x), rtol=0, atol=1e-6)


learned = LearnedPositions(6, 4)


@pytest.mark.parametrize(
    ("call", "argument", "got", "wanted"),
    [
        (lambda: sinusoidal_positions(-1, 4), "tokens", "-1", "at least 0"),
        (lambda: sinusoidal_positions(2.0, 4), "tokens", "2.0", "integer"),
        (lambda: sinusoidal_positions(2, 0), "embed_dim", "0", "at least 2"),
        (lambda: sinusoidal_positions(2, 5), "embed_dim", "5", "even"),
        (lambda: sinusoidal_positions(2, 4, first=-1), "first", "-1", "at least 0"),
        (lambda: sinusoidal_positions(2, 4, base=1.0), "base", "1.0", "above 1"),
        (lambda: sinusoidal_positions(2, 4, base=math.nan), "base", "nan", "finite"),
        (lambda: sinusoidal_positions(2, 4, base="e"), "base", "'e'", "number"),
        (lambda: LearnedPositions(0, 4), "max_tokens", "0", "positive integer"),
        (lambda: LearnedPositions(6, 4.0), "embed_dim", "4.0", "positive integer"),
        (lambda: learned(torch.zeros(3, 5)), "x", "(3, 5)", "(..., tokens, 4)"),
        (lambda: learned([1.0]), "x", "[1.0]", "(..., tokens, 4)"),
        (lambda: learned(torch.zeros(2, 4), first=-1), "first", "-1", "at least 0"),
        (lambda: learned(torch.zeros(7, 4)), "x", "7 tokens from position 0", "position 6"),
        (
            lambda: learned(torch.zeros(2, 4), first=5),
            "x",
            "2 tokens from position 5",
            "position 6",
        ),
    ],
)
def test_a_bad_argument_is_named(call, argument, got, wanted):
    with pytest.raises(ValueError, match=f"^{argument} must ") as caught:
        call()
    message = str(caught.value)
    assert got in message
    assert wanted in message
