"""Attention in an image: patches as tokens, rotary positions in two dimensions, and windows.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Dosovitskiy et al. (2020), "An Image is Worth 16x16 Words" (patches); Su et al. (2021),
"RoFormer" (the rotation) and Heo et al. (2024), "Rotary Position Embedding for Vision Transformer"
(one half of the channels for each axis); Liu et al. (2021), "Swin Transformer" (windows). Rotation
and windows are those of the vision towers of Qwen2.5-VL and, the rotation, of Pixtral.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def to_patches(image: Tensor, size: int) -> Tensor:
    """Return the patches of an image row by row, (..., rows · columns, channels · size · size).

    Args:
        image: (..., channels, height, width); size divides height and width.
        size: height and width of a patch.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    if image.dim() < 3 or image.size(-2) % size or image.size(-1) % size:
        raise ValueError(
            f"image must have shape (..., channels, height, width), height and width multiples of "
            f"{size}, got {tuple(image.shape)}"
        )
    tiles = image.unflatten(-1, (-1, size)).unflatten(-3, (-1, size)).transpose(-3, -2)
    # (..., channels, rows, columns, size, size) → (..., rows, columns, channels, size, size)
    return tiles.movedim(-5, -3).flatten(-3).flatten(-3, -2)


def grid_positions(rows: int, columns: int, device: torch.device | str | None = None) -> Tensor:
    """Return the row and the column of each patch, row by row, (rows · columns, 2)."""
    token = torch.arange(rows * columns, device=device)
    return torch.stack([token // columns, token % columns], dim=-1)


class RotaryPositions2D(nn.Module):
    """Turns pairs of channels by a token's row, or by its column: a score sees Δrow and Δcolumn.

        rotate = RotaryPositions2D(head_dim)
        positions = grid_positions(rows, columns)
        query, key = rotate(query, positions), rotate(key, positions)  # values are left alone

    Channels i and i + head_dim/2 are a pair, as in transformers. The first half of the pairs turns
    by the row, the second half by the column. It has no weights. Angles are made in float64 (on
    Apple's MPS, which has none, in float32), and x is turned in float32 or wider and handed back in
    its dtype.

    Args:
        head_dim: width of a head, a multiple of 4.
        base: pair i of an axis turns by base^(-4i / head_dim) radians a patch.
        alternate: False, as in Qwen2.5-VL: the two axes have the same frequencies. True, as in
            Pixtral: the frequencies of RoPE in one dimension go to the row and the column in turn,
            so a token at row p and column p is turned as RoPE turns it at position p.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(self, head_dim: int, *, base: float = 10000.0, alternate: bool = False) -> None:
        super().__init__()
        if not isinstance(head_dim, int) or head_dim < 1 or head_dim % 4:
            raise ValueError(f"head_dim must be a positive multiple of 4, got {head_dim!r}")
        if not isinstance(base, int | float) or not 1.0 < base < math.inf:
            raise ValueError(f"base must be a finite number above 1, got {base!r}")
        self.head_dim, self.base, self.alternate = head_dim, float(base), alternate
        self._place(torch.get_default_device())

    def _place(self, device: torch.device) -> None:
        """Put the frequencies on a device, in no buffer: .bfloat16() would round it."""
        wide = torch.float32 if device.type == "mps" else torch.float64
        pair = torch.arange(self.head_dim // 4, dtype=wide, device=device)
        row = self.base ** (-4 * pair / self.head_dim)  # (pairs of an axis,)
        column = row * self.base ** (-2 / self.head_dim) if self.alternate else row
        self.frequency = torch.stack([row, column])  # (2, pairs of an axis)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x, turned, in its shape and dtype.

        Args:
            x: queries or keys, (..., heads, T, head_dim), floating point.
            positions: row and column of each token, (T, 2), or (batch, T, 2) for x of (batch,
                heads, T, head_dim); integers.
        """
        if x.dim() < 2 or x.size(-1) != self.head_dim:
            raise ValueError(
                f"x must have shape (..., heads, T, {self.head_dim}), got {tuple(x.shape)}"
            )
        fits = positions.shape == (x.size(-2), 2) or (
            x.dim() == 4 and positions.shape == (x.size(0), x.size(-2), 2)
        )
        if not fits or positions.is_floating_point() or positions.dtype == torch.bool:
            raise ValueError(
                f"positions must be integers, ({x.size(-2)}, 2) or (batch, {x.size(-2)}, 2) for x "
                f"of {tuple(x.shape)}, got {positions.dtype} of {tuple(positions.shape)}"
            )
        if self.frequency.device != x.device:  # the model has moved, in whatever way
            self._place(x.device)
        angle = (positions[..., None] * self.frequency).flatten(-2)  # (..., T, head_dim / 2)
        if positions.dim() == 3:
            angle = angle[:, None]  # all heads alike
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = angle.cos().to(wide), angle.sin().to(wide)
        first, second = x.to(wide).chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return turned.to(x.dtype)

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, base={self.base:g}, alternate={self.alternate}"


def window_attention(
    query: Tensor, key: Tensor, value: Tensor, rows: int, columns: int, window: int
) -> Tensor:
    """Return attention of each patch to those of its own window, (..., rows · columns, width).

    Windows are squares of window · window patches, laid from the first patch on; those at the far
    borders are cut off. A window that covers the image is attention to all patches. Each window
    takes window⁴ scores, also where it is cut off; PyTorch's fused kernel stores none of them.

    Args:
        query, key, value: (..., rows · columns, width), row by row.
        rows, columns: the patches of the image.
        window: the patches along a side of a window.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    if not isinstance(window, int) or window < 1:
        raise ValueError(f"window must be a positive integer, got {window!r}")
    for name, x in {"query": query, "key": key, "value": value}.items():
        if x.dim() < 2 or x.size(-2) != rows * columns:
            raise ValueError(
                f"{name} must have shape (..., {rows} · {columns}, width), got {tuple(x.shape)}"
            )
    below, right = -rows % window, -columns % window  # what the last windows lack

    def cut(x: Tensor) -> Tensor:
        """(n, rows · columns, width) → (n, windows, window², width), filled up with zeros."""
        grid = F.pad(x.unflatten(1, (rows, columns)), (0, 0, 0, right, 0, below))
        tiles = grid.unflatten(2, (-1, window)).unflatten(1, (-1, window))
        return tiles.transpose(2, 3).flatten(3, 4).flatten(1, 2)

    mask = None
    if below or right:  # hide what was filled up
        mask = cut(key.new_ones(1, rows * columns, 1)).mT > 0  # (1, windows, 1, window²)
    leading = query.shape[:-2]
    query, key, value = (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    tiles = F.scaled_dot_product_attention(cut(query), cut(key), cut(value), attn_mask=mask)
    tiles = tiles.unflatten(2, (window, window)).unflatten(1, (-1, (columns + right) // window))
    grid = tiles.transpose(2, 3).flatten(3, 4).flatten(1, 2)  # (n, rows + below, columns + …, …)
    return grid[:, :rows, :columns].reshape(*leading, rows * columns, -1)
