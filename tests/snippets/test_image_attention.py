"""Patches are pixels in another order; each axis of an image turns as a text does; windows are a mask."""

import torch
import torch.nn.functional as F
from torch import nn

from snippets.image_attention import RotaryPositions2D, grid_positions, window_attention
from snippets.rope import RotaryPositions
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, T, alike, close, draw, heads
from tests.snippets.parts import some as numbers


def test_patches_are_the_pixels_of_squares_row_by_row(part):
    image = draw(2, 3, 8, 12)
    result = part.to_patches(image, 4)
    assert torch.equal(result, F.unfold(image, 4, stride=4).mT)
    assert torch.equal(part.to_patches(image[0], 4), result[0])


def test_each_axis_turns_as_a_text_does(part):
    """Half of the pairs by the row, half by the column; their frequencies alike, or in turn."""
    x, places = draw(2, 3, 6, 8), part.grid_positions(2, 3) + torch.tensor([7, 100_000])
    result = part.RotaryPositions2D(8, base=50.0)(x, places)
    for axis, channels in enumerate(([0, 1, 4, 5], [2, 3, 6, 7])):
        rope = RotaryPositions(4, base=50.0)
        assert close(result[..., channels], rope(x[..., channels], places[:, axis]))
    result, rope = part.RotaryPositions2D(8, alternate=True)(x, places), RotaryPositions(8)
    order = [0, 2, 1, 3, 4, 6, 5, 7]  # the pairs of a text, those of the row and of the column
    for axis, channels in enumerate(([0, 1, 4, 5], [2, 3, 6, 7])):
        wanted = rope(x[..., order], places[:, axis])[..., order]
        assert close(result[..., channels], wanted[..., channels])


def test_each_image_of_a_batch_has_its_own_places(part):
    rotate, x = part.RotaryPositions2D(8), draw(2, 2, 6, 8)
    places = torch.stack([part.grid_positions(2, 3), part.grid_positions(3, 2)])
    assert close(rotate(x, places), torch.stack([rotate(x[b], places[b]) for b in range(2)]))


def test_angles_are_those_of_float64(part):
    x, places = draw(4, 8), part.grid_positions(1, 4) + 100_000
    wanted, rotate = part.RotaryPositions2D(8)(x, places), nn.Sequential(part.RotaryPositions2D(8))
    assert close(rotate.bfloat16()[0](x.float(), places), wanted.float(), 1e-5)


def test_windows_are_attention_with_their_mask(part):
    """Where they fit, where they are cut off below or at the right, and where one covers the image."""
    for rows, columns, window in ((4, 4, 2), (5, 7, 3), (3, 4, 9), (4, 6, 2)):
        leaves = [draw(2, 3, rows * columns, 4, seed=seed).requires_grad_() for seed in range(3)]
        squares = (part.grid_positions(rows, columns) // window).unsqueeze(1)
        mask = (squares == squares.transpose(0, 1)).all(-1)
        result = part.window_attention(*leaves, rows, columns, window)
        assert alike(result, F.scaled_dot_product_attention(*leaves, mask), leaves)
    query, key, value = (x[0, 0] for x in leaves)  # no leading dimensions, and another width
    narrow = part.window_attention(query, key, value[:, :3], 4, 6, 2)
    assert close(narrow, result[0, 0, :, :3])


def test_what_would_be_misread_is_refused(part):
    for head_dim in (6, 2):  # a head that two axes cannot share
        refuses(f"{head_dim} channels", part.RotaryPositions2D, head_dim)
    rotate, x = part.RotaryPositions2D(8), draw(4, 8)
    refuses("places without columns", rotate, x, torch.arange(2))
    refuses("rows, then columns", rotate, x, part.grid_positions(2, 2).T)


WRONG = {
    "rows for columns": (
        "token // columns, token % columns",
        "token // rows, token % rows",
    ),
    "one axis for both": (
        "positions[..., None] * torch",
        "positions[..., :1, None] * torch",
    ),
    "neighbours are pairs": (
        "x.to(wide).chunk(2, dim=-1)",
        "x.to(wide).unflatten(-1, (-1, 2)).unbind(-1)",
    ),
    "angles in float32": ("else torch.float64", "else torch.float32"),
    "filled up at the front": ("(0, 0, 0, -columns % window,", "(0, 0, -columns % window, 0,"),
}


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
