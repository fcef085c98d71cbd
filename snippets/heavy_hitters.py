"""A cache of few tokens: each head keeps those that received the most weight, and the newest ones.

    cache = HeavyHitters(keep=256, recent=128)
    context = cache.attend(query, key, value)    # one token at a time

The sums need the attention weights, which fused kernels do not return, so it attends itself. Keys
are rotated before they come here: a position is counted by the tokens read, `length`.

Source: Zhang et al. (2023), "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large
Language Models".
"""

import torch
from torch import Tensor


class HeavyHitters:
    """Keys and values of at most `keep` tokens for each head, and attention to them.

    Each token held has a sum of all the weight that it has received. When the room is full and a
    new token comes, the token with the smallest sum makes room, and the `recent` newest ones, the
    new one among them, are safe. With recent=keep that is a sliding window. With as much room as
    there are tokens it is causal attention.
    """

    def __init__(self, keep: int, recent: int) -> None:
        if not 1 <= recent <= keep:
            raise ValueError(f"recent must be from 1 to keep={keep}, got {recent}")
        self.keep, self.recent = keep, recent
        self.length = 0  # tokens read so far, which is also the position of the next one
        # Keys and values, (batch, kv_heads, held, width); sums of weight and positions, of width 1.
        self.held: tuple[Tensor, ...] = ()

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Take one new token, and return its context vector, (batch, heads, 1, value width).

        Args:
            query: (batch, heads, 1, width).
            key: (batch, kv_heads, 1, width); kv_heads divides heads.
            value: (batch, kv_heads, 1, width); the width may differ.
        """
        shapes = [tuple(x.shape) for x in (query, key, value)]
        if query.size(2) != 1 or key.size(2) != 1 or value.shape[:3] != key.shape[:3]:
            raise ValueError(f"query, key, value must be (batch, heads, 1, width), got {shapes}")
        position = torch.full_like(key[..., :1], self.length, dtype=torch.int64)
        new = (key, value, torch.zeros_like(key[..., :1], dtype=torch.float32), position)
        if self.held:
            new = tuple(
                torch.cat(pair, dim=-2) for pair in zip(self._with_room(), new, strict=True)
            )
        keys, values, received, positions = new
        per_group = query.unflatten(1, (key.size(1), -1)).squeeze(-2)  # (batch, kv_heads, ·, width)
        scores = per_group @ keys.mT / key.size(-1) ** 0.5  # (batch, kv_heads, ·, held)
        weights = scores.softmax(dim=-1)
        received = received + weights.float().sum(dim=-2).unsqueeze(-1)
        self.held, self.length = (keys, values, received, positions), self.length + 1
        return (weights @ values).flatten(1, 2).unsqueeze(-2)

    def _with_room(self) -> tuple[Tensor, ...]:
        """What is held: if that is all there is room for, without each head's smallest sum."""
        if self.held[0].size(-2) < self.keep:
            return self.held
        weakest = self.received[..., : self.keep + 1 - self.recent].argmin(dim=-1, keepdim=True)
        stay = torch.arange(self.keep - 1, device=weakest.device)
        stay = (stay + (stay >= weakest)).unsqueeze(-1)  # (batch, kv_heads, keep - 1, 1)
        return tuple(x.gather(-2, stay.expand(-1, -1, -1, x.size(-1))) for x in self.held)

    @property
    def received(self) -> Tensor:
        """The weight that each token held has received, (batch, kv_heads, held)."""
        return self.held[2].squeeze(-1)

    @property
    def positions(self) -> Tensor:
        """The positions of the tokens that each head holds, (batch, kv_heads, held)."""
        return self.held[3].squeeze(-1)
