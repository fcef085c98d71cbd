"""Positions, learned or sinusoidal: added to the tokens, they let attention tell order.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: Vaswani et al. (2017), "Attention Is All You Need", section 3.5 (sinusoidal);
Gehring et al. (2017), "Convolutional Sequence to Sequence Learning", section 3.1 (learned).
"""

import torch
from torch import Tensor, nn


def sinusoidal_positions(
    tokens: int, embed_dim: int, *, first: int = 0, base: float = 10000.0
) -> Tensor:
    """Return one vector for each position, (tokens, embed_dim), of float32.

    Channels 2i and 2i + 1 of position p are the sine and the cosine of p / base^(2i / embed_dim),
    so each pair turns by an angle of its own from one position to the next.

    Args:
        tokens: number of positions.
        embed_dim: width of a token; even.
        first: the first position, as when earlier tokens lie in a cache.
        base: pair i turns once in 2π · base^(2i / embed_dim) positions.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    for name, size, least in (
        ("tokens", tokens, 0),
        ("first", first, 0),
        ("embed_dim", embed_dim, 2),
    ):
        if not isinstance(size, int | torch.SymInt) or size < least:  # a SymInt: under export
            raise ValueError(f"{name} must be an integer of at least {least}, got {size!r}")
    if embed_dim % 2:
        raise ValueError(f"embed_dim must be even, a sine and a cosine to a pair: got {embed_dim}")
    if not isinstance(base, int | float) or not 1.0 < base < float("inf"):
        raise ValueError(f"base must be a finite number above 1, got {base!r}")
    # Angles are made in float64: at position 100,000 float32 is off by 0.001 and more.
    position = torch.arange(first, first + tokens, dtype=torch.float64)[:, None]  # (tokens, 1)
    turn = base ** (-torch.arange(0, embed_dim, 2, dtype=torch.float64) / embed_dim)  # (pairs,)
    angle = position * turn  # (tokens, pairs)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).float()


class LearnedPositions(nn.Module):
    """Adds a learned vector to each token, one row of a table for each position.

    Args:
        max_tokens: rows of the table; a longer sequence is refused.
        embed_dim: width of a token.
        device: where the parameters are made.
        dtype: what they are made of.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        max_tokens: int,
        embed_dim: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        for name, size in (("max_tokens", max_tokens), ("embed_dim", embed_dim)):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        super().__init__()
        self.table = nn.Embedding(max_tokens, embed_dim, device=device, dtype=dtype)

    def forward(self, x: Tensor, *, first: int = 0) -> Tensor:
        """Return x with its positions added, (..., tokens, embed_dim).

        Args:
            x: (..., tokens, embed_dim), floating point.
            first: the position of the first token, as when earlier tokens lie in a cache.
        """
        max_tokens, embed_dim = self.table.weight.shape
        if not isinstance(x, Tensor) or x.dim() < 2 or x.size(-1) != embed_dim:
            came = tuple(x.shape) if isinstance(x, Tensor) else repr(x)
            raise ValueError(f"x must have shape (..., tokens, {embed_dim}), got {came}")
        if not isinstance(first, int | torch.SymInt) or first < 0:
            raise ValueError(f"first must be an integer of at least 0, got {first!r}")
        if first + x.size(-2) > max_tokens:
            raise ValueError(
                f"x must end before position {max_tokens}, the length of the table: "
                f"got {x.size(-2)} tokens from position {first}"
            )
        return x + self.table.weight[first : first + x.size(-2)]
