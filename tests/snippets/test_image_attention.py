"""A score in an image sees two distances alone; one row is a text; windows are a mask; patches are pixels in another order."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from snippets import image_attention as file
from snippets.image_attention import (
    RotaryPositions2D,
    grid_positions,
    window_attention,
)
from snippets.rope import RotaryPositions
from tests.snippets.parts import Case, T, heads
from tests.snippets.parts import some as numbers


def some(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def close(result, wanted, atol=1e-10):
    return result.shape == wanted.shape and torch.allclose(result, wanted, rtol=0, atol=atol)


def within(rows, columns, window):
    """The mask of windows, pair by pair."""
    places = [(r // window, c // window) for r in range(rows) for c in range(columns)]
    return torch.tensor([[a == b for b in places] for a in places])


def patches_are_the_pixels_of_squares_row_by_row(part):
    image = some(2, 3, 8, 12)
    result = part.to_patches(image, 4)
    assert torch.equal(result, F.unfold(image, 4, stride=4).mT)
    assert torch.equal(part.to_patches(image[0], 4), result[0])


def a_grid_is_counted_row_by_row(part):
    wanted = [[r, c] for r in range(2) for c in range(3)]
    assert part.grid_positions(2, 3).tolist() == wanted


def each_axis_turns_as_the_rope_of_the_book(part):
    x, places = some(2, 3, 6, 8), part.grid_positions(2, 3)
    result = part.RotaryPositions2D(8, base=50.0)(x, places)
    rope = RotaryPositions(4, base=50.0)
    for axis, channels in enumerate(([0, 1, 4, 5], [2, 3, 6, 7])):
        assert close(result[..., channels], rope(x[..., channels], places[:, axis]))


def an_image_of_one_row_is_a_text(part):
    x = some(2, 7, 8)
    result = part.RotaryPositions2D(8)(x, part.grid_positions(1, 7))
    assert torch.equal(result[..., [0, 1, 4, 5]], x[..., [0, 1, 4, 5]])
    wanted = RotaryPositions(4)(x[..., [2, 3, 6, 7]], torch.arange(7))
    assert close(result[..., [2, 3, 6, 7]], wanted)


def a_score_sees_two_distances_alone(part):
    query, key = some(2, 3, 15, 8), some(2, 3, 15, 8, seed=1)
    here = part.grid_positions(3, 5)
    for alternate in (False, True):
        rotate = part.RotaryPositions2D(8, alternate=alternate)
        scores = rotate(query, here) @ rotate(key, here).mT
        for move in ((700, 0), (0, 90), (-4, 1000)):
            there = here + torch.tensor(move)
            assert close(rotate(query, there) @ rotate(key, there).mT, scores)
            assert not close(rotate(query, there) @ rotate(key, here).mT, scores, 0.1)


def with_frequencies_in_turn_the_diagonal_is_a_text(part):
    x, text = some(2, 3, 6, 8), torch.arange(6)
    order = [0, 2, 1, 3, 4, 6, 5, 7]  # pairs of the row, then of the column
    result = part.RotaryPositions2D(8, alternate=True)(x, torch.stack([text, text], dim=-1))
    assert close(result[..., order], RotaryPositions(8)(x[..., order], text))


def each_image_of_a_batch_has_its_own_places(part):
    rotate, x = part.RotaryPositions2D(8), some(2, 2, 6, 8)
    places = torch.stack([part.grid_positions(2, 3), part.grid_positions(3, 2)])
    wanted = torch.stack([rotate(x[b], places[b]) for b in range(2)])
    assert close(rotate(x, places), wanted)


def angles_are_those_of_float64(part):
    x, places = some(4, 8, dtype=torch.float32), part.grid_positions(1, 4) + 100_000
    rotate = torch.nn.Sequential(part.RotaryPositions2D(8)).bfloat16()[0]
    result = rotate(x, places)
    assert result.dtype == torch.float32
    assert close(result, part.RotaryPositions2D(8)(x.double(), places).float(), 1e-5)
    assert rotate(x.bfloat16(), places).dtype == torch.bfloat16


def windows_are_attention_with_their_mask(part, rows=5, columns=7, window=3):
    query, key, value = (some(2, 3, rows * columns, 4, seed=seed) for seed in range(3))
    value = value[..., :3]
    wanted = F.scaled_dot_product_attention(query, key, value, within(rows, columns, window))
    assert close(part.window_attention(query, key, value, rows, columns, window), wanted)


def windows_that_fit_need_no_mask(part):
    windows_are_attention_with_their_mask(part, 4, 6, 2)


def a_window_that_covers_the_image_is_attention_to_all(part):
    query, key, value = (some(12, 4, seed=seed) for seed in range(3))
    wanted = F.scaled_dot_product_attention(query, key, value)
    for window in (4, 9):
        assert close(part.window_attention(query, key, value, 3, 4, window), wanted)


def windows_may_be_cut_off_on_one_side(part):
    windows_are_attention_with_their_mask(part, 4, 5, 2)
    windows_are_attention_with_their_mask(part, 5, 4, 2)


FACTS = [
    patches_are_the_pixels_of_squares_row_by_row,
    a_grid_is_counted_row_by_row,
    each_axis_turns_as_the_rope_of_the_book,
    an_image_of_one_row_is_a_text,
    a_score_sees_two_distances_alone,
    with_frequencies_in_turn_the_diagonal_is_a_text,
    each_image_of_a_batch_has_its_own_places,
    angles_are_those_of_float64,
    windows_are_attention_with_their_mask,
    windows_that_fit_need_no_mask,
    windows_may_be_cut_off_on_one_side,
    a_window_that_covers_the_image_is_attention_to_all,
]


WRONG = {
    "patches column by column": (
        ".transpose(-3, -2)\n    # (..., channels, rows",
        ".transpose(-3, -2).transpose(-4, -3)\n    # (..., channels, rows",
    ),
    "pixels before channels": ("tiles.movedim(-5, -3)", "tiles.movedim(-5, -1)"),
    "rows for columns": (
        "token // columns, token % columns",
        "token // rows, token % rows",
    ),
    "columns first": ("token // columns, token % columns", "token % columns, token // columns"),
    "frequencies of the whole head": ("(-4 * pair / self.head_dim)", "(-2 * pair / self.head_dim)"),
    "one axis for both": (
        "positions[..., None] * torch",
        "positions[..., :1, None] * torch",
    ),
    "axes mixed": ("angle.flatten(-2)", "angle.mT.flatten(-2)"),
    "in turn is ignored": ("if self.alternate else row", "if False else row"),
    "a step of frequency too far": ("** (-2 / self.head_dim) if", "** (-4 / self.head_dim) if"),
    "neighbours are pairs": (
        "x.to(wide).chunk(2, dim=-1)",
        "x.to(wide).unflatten(-1, (-1, 2)).unbind(-1)",
    ),
    "turns back": ("second * cos + first * sin", "second * cos - first * sin"),
    "heads have places": ("angle = angle[:, None]  # all", "angle = angle[None]  # all"),
    "angles in float32": ("else torch.float64", "else torch.float32"),
    "the rest is read": ("if rows % window or columns % window:", "if False:"),
    "not put back": (
        "grid = grid.transpose(-4, -3)",
        "grid = grid",
    ),
    "a border below that is not cut off": (
        "if rows % window or columns % window",
        "if columns % window",
    ),
    "a border at the right that is not cut off": (
        "if rows % window or columns % window",
        "if rows % window",
    ),
    "filled up at the front": ("(0, 0, 0, -columns % window,", "(0, 0, -columns % window, 0,"),
    "strips in place of squares": (
        "return tiles.transpose(-4, -3)",
        "return tiles",
    ),
}


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 7))
def test_windows_of_any_image(rows, columns, window):
    windows_are_attention_with_their_mask(file, rows, columns, window)


def test_gradients_are_those_of_the_mask():
    parts = [some(35, 4, seed=seed).requires_grad_() for seed in range(3)]
    direction = some(35, 4, seed=3)
    found = torch.autograd.grad(window_attention(*parts, 5, 7, 3), parts, direction)
    masked = F.scaled_dot_product_attention(*parts, within(5, 7, 3))
    for one, wanted in zip(found, torch.autograd.grad(masked, parts, direction), strict=True):
        assert close(one, wanted)


def test_it_follows_x_to_its_device():
    rotate, places = RotaryPositions2D(8), grid_positions(2, 2)
    assert rotate(some(4, 8).to("meta"), places.to("meta")).device.type == "meta"
    assert close(rotate(some(4, 8), places), RotaryPositions2D(8)(some(4, 8), places))


MISREAD = {
    "a head that two axes cannot share": lambda: RotaryPositions2D(6),
    "a head of one pair, of which nothing would be left": lambda: RotaryPositions2D(2),
    "places without columns": lambda: RotaryPositions2D(8)(some(2, 8), torch.arange(2)),
    "rows, then columns": lambda: RotaryPositions2D(8)(some(4, 8), grid_positions(2, 2).T),
}


@pytest.mark.parametrize("what", MISREAD)
def test_what_would_be_misread_is_refused(what):
    with pytest.raises(ValueError, match="must be"):
        MISREAD[what]()


class OnTheDiagonal(nn.Module):
    """Turns each token by a row and a column that are its position."""

    def __init__(self):
        super().__init__()
        self.rotate = RotaryPositions2D(8)

    def forward(self, x):
        place = torch.arange(x.size(-2), device=x.device)
        return self.rotate(x, torch.stack([place, place], dim=-1))


CASES = {
    "far from the first patch": Case(
        lambda m, x: m(x, grid_positions(1, T, device=x.device) + 10**6),
        lambda: (numbers(2, 4, T, 8),),
        lambda: RotaryPositions2D(8),
        casts=False,
    ),
    "windows": Case(lambda _, *x: window_attention(*x, 15, T // 15, 4), heads),
}
MODULES = {"RotaryPositions2D": OnTheDiagonal}
MIB = {
    "windows of 8 · 8": (16, lambda x: lambda: window_attention(*3 * [x[None, None]], 128, 128, 8))
}
