"""Attention in an image: patches as tokens, rotary positions in two dimensions, and windows.

    patches, positions = to_patches(image, 14), grid_positions(rows, columns)
    rotate = RotaryPositions2D(head_dim)
    query, key = rotate(query, positions), rotate(key, positions)  # values are left alone
    context = window_attention(query, key, value, rows, columns, window)

Sources: Dosovitskiy et al. (2020), "An Image is Worth 16x16 Words" (patches); Su et al. (2021),
"RoFormer" (the rotation) and Heo et al. (2024), "Rotary Position Embedding for Vision Transformer"
(one half of the channels for each axis); Liu et al. (2021), "Swin Transformer" (windows). Rotation
and windows are those of the vision towers of Qwen2.5-VL and, the rotation, of Pixtral.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def to_patches(image: Tensor, size: int) -> Tensor:
    """(..., channels, height, width) → (..., rows · columns, channels · size²), row by row.

    A patch has size · size pixels; size divides height and width.
    """
    tiles = image.unflatten(-1, (-1, size)).unflatten(-3, (-1, size)).transpose(-3, -2)
    # (..., channels, rows, columns, size, size) → (..., rows, columns, channels, size, size)
    return tiles.movedim(-5, -3).flatten(-3).flatten(-3, -2)


def grid_positions(rows: int, columns: int, *, device=None) -> Tensor:
    """Return the row and the column of each patch, row by row, (rows · columns, 2)."""
    token = torch.arange(rows * columns, device=device)
    return torch.stack([token // columns, token % columns], dim=-1)


class RotaryPositions2D(nn.Module):
    """Turns pairs of channels by a token's row, or by its column: a score sees Δrow and Δcolumn.

    Channels i and i + head_dim/2 are a pair, as in transformers. The first half of the pairs turns
    by the row, the second half by the column. It has no weights. Angles are made in float64 (on
    Apple's MPS, which has none, in float32), and x is turned in float32 or wider.

    Args:
        head_dim: width of a head, a multiple of 4.
        base: pair i of an axis turns by base^(-4i / head_dim) radians a patch.
        alternate: False, as in Qwen2.5-VL: the two axes have the same frequencies. True, as in
            Pixtral: the frequencies of RoPE in one dimension go to the row and the column in turn,
            so a token at row p and column p is turned as RoPE turns it at position p.
    """

    def __init__(self, head_dim: int, *, base: float = 10000.0, alternate: bool = False) -> None:
        super().__init__()
        if head_dim % 4:  # two axes of pairs
            raise ValueError(f"head_dim must be a multiple of 4, got {head_dim}")
        self.head_dim, self.base, self.alternate = head_dim, base, alternate

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x, (..., heads, T, head_dim), turned, in its dtype.

        positions has the row and the column of each token, (T, 2), or (batch, T, 2) for x of
        (batch, heads, T, head_dim).
        """
        if positions.dim() < 2 or positions.size(-1) != 2:
            came = tuple(positions.shape)
            raise ValueError(f"positions must be (T, 2) or (batch, T, 2), got {came}")
        wide = torch.float32 if x.device.type == "mps" else torch.float64
        pair = torch.arange(self.head_dim // 4, dtype=wide, device=x.device)
        row = self.base ** (-4 * pair / self.head_dim)  # (pairs of an axis,)
        column = row * self.base ** (-2 / self.head_dim) if self.alternate else row
        angle = positions[..., None] * torch.stack([row, column])  # (..., T, 2, pairs of an axis)
        angle = angle.flatten(-2)  # (..., T, head_dim / 2)
        if positions.dim() == 3:
            angle = angle[:, None]  # all heads alike
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = angle.cos().to(wide), angle.sin().to(wide)
        first, second = x.to(wide).chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return turned.to(x.dtype)


def window_attention(
    query: Tensor, key: Tensor, value: Tensor, rows: int, columns: int, window: int
) -> Tensor:
    """Return attention of each patch to those of its own window, (..., rows · columns, width).

    query, key and value are (..., rows · columns, width), row by row. Windows are squares of
    window · window patches, laid from the first patch on; those at the far borders are cut off.
    Each takes window⁴ scores, also where it is cut off; the fused kernel stores none of them.
    """
    mask = None
    if rows % window or columns % window:  # hide what fills the last windows up
        real = key.new_ones(1, rows * columns, 1)
        mask = to_windows(real, rows, columns, window).mT > 0  # (1, windows, 1, window²)
    # One leading dimension and the windows in place of heads, as the fused kernel wants them.
    leading, parts = query.shape[:-2], (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    parts = (to_windows(x, rows, columns, window) for x in parts)
    context = F.scaled_dot_product_attention(*parts, attn_mask=mask)
    grid = context.unflatten(-2, (window, window)).unflatten(-4, (-1, -(-columns // window)))
    grid = grid.transpose(-4, -3).flatten(-3, -2).flatten(-4, -3)  # (..., rows + …, columns + …, …)
    return grid[:, :rows, :columns].reshape(*leading, rows * columns, -1)


def to_windows(x: Tensor, rows: int, columns: int, window: int) -> Tensor:
    """(..., rows · columns, width) → (..., windows, window², width), filled up with zeros."""
    grid = x.unflatten(-2, (rows, columns))
    grid = F.pad(grid, (0, 0, 0, -columns % window, 0, -rows % window))
    tiles = grid.unflatten(-2, (-1, window)).unflatten(-4, (-1, window))
    return tiles.transpose(-4, -3).flatten(-3, -2).flatten(-4, -3)
