"""Positions, learned or sinusoidal: added to the tokens, they let attention tell order.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: Vaswani et al. (2017), "Attention Is All You Need", section 3.5 (sinusoidal);
Gehring et al. (2017), "Convolutional Sequence to Sequence Learning", section 3.1 (learned).
"""

import torch
from torch import Tensor, nn


def sinusoidal_positions(
    tokens: int, embed_dim: int, *, first: int = 0, device: torch.device | str | None = None
) -> Tensor:
    """Return one vector for each position from first on, (tokens, embed_dim), of float32.

    Channels 2i and 2i + 1 of position p are the sine and the cosine of p / 10000^(2i / embed_dim),
    so each pair turns by an angle of its own from one position to the next.

    Raises:
        ValueError: where embed_dim is odd, since a sine and a cosine belong to each other.
    """
    if embed_dim % 2:
        raise ValueError(f"embed_dim must be even, a sine and a cosine to a pair: got {embed_dim}")
    # Angles are made in float64: at position 100,000 float32 is off by 0.001 and more.
    made = {"dtype": torch.float64, "device": device}
    position = torch.arange(first, first + tokens, **made)[:, None]  # (tokens, 1)
    turn = 10000.0 ** (-torch.arange(0, embed_dim, 2, **made) / embed_dim)  # (pairs,)
    angle = position * turn  # (tokens, pairs)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).float()


class LearnedPositions(nn.Module):
    """Adds a learned vector to each token, one row of a table for each position.

    Args:
        max_tokens: rows of the table; a longer sequence is refused.
        embed_dim: width of a token.
    """

    def __init__(self, max_tokens: int, embed_dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_tokens, embed_dim)

    def forward(self, x: Tensor, *, first: int = 0) -> Tensor:
        """Return x with its positions added, (..., tokens, embed_dim).

        first is the position of the first token, as when earlier tokens lie in a cache.

        Raises:
            ValueError: where a position lies outside of the table, since what a slice leaves there
                could be laid over all tokens.
        """
        last, max_tokens = first + x.size(-2), self.table.num_embeddings
        if first < 0 or last > max_tokens:
            raise ValueError(
                f"x must end before position {max_tokens}, the length of the table: "
                f"got {x.size(-2)} tokens from position {first}"
            )
        return x + self.table.weight[first:last]
