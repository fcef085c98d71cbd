"""Smaller key-value caches: one that rounds its numbers to few bits, and one that drops tokens.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Liu et al. (2024), "KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache" (keys
rounded channel by channel, values token by token, the newest tokens kept as they are); Zhang et al.
(2023), "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models"
(the tokens that received the most weight are kept, and the newest ones).
"""

import torch
from torch import Tensor

Rounded = tuple[Tensor, Tensor, Tensor]  # codes, lowest number and step of each group


def quantize(x: Tensor, bits: int, dim: int) -> Rounded:
    """Round the numbers along `dim`, which share a lowest number and a step, to codes of few bits.

    A code c stands for lowest + c · step, and c counts from 0 to 2^bits - 1.

    Args:
        x: any shape, floating point, finite.
        bits: 2, 4 or 8.
        dim: the dimension whose numbers share a lowest number and a step.

    Returns:
        The codes, packed 8 / bits to a byte along the last dimension: uint8, (…, width · bits / 8).
        The lowest number and the step, in the dtype of x, with size 1 in `dim`.
    """
    lowest = x.amin(dim, keepdim=True)
    step = (x.amax(dim, keepdim=True) - lowest) / (2**bits - 1)
    wide = torch.promote_types(x.dtype, torch.float32)  # half precision has too few digits for this
    divisor = torch.where(step > 0, step, torch.ones_like(step)).to(wide)
    codes = ((x.to(wide) - lowest) / divisor).round().clamp(0, 2**bits - 1).to(torch.uint8)
    share = codes.unflatten(-1, (-1, 8 // bits))  # (…, bytes, codes of one byte)
    places = torch.arange(0, 8, bits, dtype=torch.uint8, device=x.device)
    return (share << places).sum(dim=-1).to(torch.uint8), lowest, step


def dequantize(rounded: Rounded, bits: int) -> Tensor:
    """Return the numbers that the codes stand for, in the dtype of lowest number and step."""
    packed, lowest, step = rounded
    places = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    codes = (packed.unsqueeze(-1) >> places) & (2**bits - 1)  # (…, bytes, codes of one byte)
    wide = torch.promote_types(lowest.dtype, torch.float32)
    return (lowest.to(wide) + codes.flatten(-2) * step.to(wide)).to(lowest.dtype)


class QuantizedCache:
    """Keys and values of the tokens so far, for one layer, most of them rounded to few bits.

        caches = [QuantizedCache(bits=4) for _ in layers]
        y = attention(prompt, cache=caches[0])    # all tokens of the prompt at once
        y = attention(token, cache=caches[0])     # (batch, 1, embed_dim): one more

    It takes the place of a KVCache in a layer whose values have channels, which those of a latent
    cache have not. New tokens are kept as they are until a group is full. Then the group is
    rounded: in its keys the tokens of each channel share a lowest number and a step, in its values
    the channels of each token. A group is rounded once and never again.

    What it returns is made anew at each update from all codes, so it saves memory between steps and
    no time. A kernel that is to save time decodes the codes within its tiles. It cannot be cut back
    to fewer tokens. It is for writing text, without gradients.

    Args:
        bits: of each code: 2, 4 or 8.
        group: tokens that are rounded together. With more than there are, nothing is rounded.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(self, *, bits: int = 4, group: int = 32) -> None:
        if bits not in (2, 4, 8):
            raise ValueError(f"bits must be 2, 4 or 8, got {bits!r}")
        if not isinstance(group, int) or group < 1:
            raise ValueError(f"group must be a positive integer, got {group!r}")
        self.bits, self.group = bits, group
        self.length = 0  # tokens held so far, which is also the position of the next one
        self._rounded: list[tuple[Rounded, Rounded]] = []  # keys and values of full groups
        self._newest: tuple[Tensor, Tensor] | None = None  # fewer than a group, as they came

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take the keys and values of new tokens, and return those of all tokens so far.

        Args:
            keys: (batch, heads, new tokens, width), a width that fills whole bytes.
            values: (batch, heads, new tokens, width); heads and width may differ from the keys'.

        Returns:
            Two tensors (batch, heads, length, width), as the cache holds them: where a group is
            full they are rounded, the new ones too.
        """
        self._check(keys, values)
        new = keys.size(-2)
        if self._newest is not None:
            keys, values = (
                torch.cat(pair, dim=-2) for pair in zip(self._newest, (keys, values), strict=True)
            )
        full = keys.size(-2) // self.group * self.group  # tokens of full groups
        if full:
            groups = [
                part[..., :full, :].unflatten(-2, (-1, self.group)) for part in (keys, values)
            ]
            by_channel, by_token = (
                quantize(groups[0], self.bits, -2),
                quantize(groups[1], self.bits, -1),
            )
            self._rounded.append((by_channel, by_token))
            keys, values = keys[..., full:, :], values[..., full:, :]
        self._newest = keys.clone(), values.clone()  # not a view, which would keep all that came
        self.length += new  # only now, when both are kept
        return self._all(0), self._all(1)

    def _all(self, which: int) -> Tensor:
        """Return the keys, 0, or the values, 1, of all tokens."""
        assert self._newest is not None
        old = [dequantize(groups[which], self.bits).flatten(-3, -2) for groups in self._rounded]
        return torch.cat([*old, self._newest[which]], dim=-2)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held: codes, lowest numbers, steps, and the tokens that wait."""
        tensors = [tensor for groups in self._rounded for part in groups for tensor in part]
        return sum(tensor.nbytes for tensor in (*tensors, *(self._newest or ())))

    def __repr__(self) -> str:
        return f"QuantizedCache(bits={self.bits}, group={self.group}, length={self.length})"

    def _check(self, keys: Tensor, values: Tensor) -> None:
        """Raise ValueError unless the new tokens fit each other and what is held."""
        held = self._newest or (keys, values)
        for name, new, old in (("keys", keys, held[0]), ("values", values, held[1])):
            if not isinstance(new, Tensor) or new.dim() != 4 or not new.is_floating_point():
                came = tuple(new.shape) if isinstance(new, Tensor) else repr(new)
                raise ValueError(
                    f"{name} must be floating point of shape (batch, heads, tokens, width), "
                    f"got {came}"
                )
            if new.size(3) * self.bits % 8:
                raise ValueError(
                    f"{name} must have a width that fills whole bytes with {self.bits} bits each, "
                    f"got {new.size(3)}"
                )
            if (new.shape[:2], new.size(3)) != (old.shape[:2], old.size(3)):
                wanted = f"({old.size(0)}, {old.size(1)}, tokens, {old.size(3)})"
                raise ValueError(f"{name} must have shape {wanted}, got {tuple(new.shape)}")
            if (new.dtype, new.device) != (old.dtype, old.device):
                raise ValueError(
                    f"{name} must be {old.dtype} on {old.device} as what the cache holds, "
                    f"got {new.dtype} on {new.device}"
                )
        if (values.size(0), values.size(2)) != (keys.size(0), keys.size(2)):
            raise ValueError(
                f"values must have the batch and the tokens of keys, {tuple(keys.shape)}: "
                f"got {tuple(values.shape)}"
            )


class HeavyHitters:
    """Keys and values of at most `keep` tokens for each head, and attention to them.

        cache = HeavyHitters(keep=256, recent=128)
        context = cache.attend(query, key, value)    # one token at a time

    Each token held has a sum of all the weight that it has received. When the room is full and a
    new token comes, the token with the smallest sum makes room, and the `recent` newest ones, the
    new one among them, are safe. With recent=keep that is a sliding window. With as much room as
    there are tokens it is causal attention.

    The sums need the attention weights, which fused kernels do not return, so it attends itself.
    Keys are rotated before they come here: a position is counted by the tokens read, `length`.

    Args:
        keep: most tokens that each head holds.
        recent: how many of the newest tokens are safe, from 1 to keep.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(self, keep: int, recent: int) -> None:
        if not isinstance(keep, int) or keep < 1:
            raise ValueError(f"keep must be a positive integer, got {keep!r}")
        if not isinstance(recent, int) or not 1 <= recent <= keep:
            raise ValueError(f"recent must be an integer from 1 to keep={keep}, got {recent!r}")
        self.keep, self.recent = keep, recent
        self.length = 0  # tokens read so far, which is also the position of the next one
        # Keys and values, (batch, kv_heads, held, width); sums of weight and positions, of width 1.
        self._held: tuple[Tensor, ...] | None = None

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Take one new token, and return its context vector.

        Args:
            query: (batch, heads, 1, width).
            key: (batch, kv_heads, 1, width), same dtype; kv_heads divides heads.
            value: (batch, kv_heads, 1, width), same dtype; the width may differ.

        Returns:
            (batch, heads, 1, width of the value).
        """
        self._check(query, key, value)
        position = torch.full_like(key[..., :1], self.length, dtype=torch.long)
        new: tuple[Tensor, ...] = (
            key,
            value,
            torch.zeros_like(key[..., :1], dtype=torch.float32),
            position,
        )
        if self._held is not None:
            if self._held[0].size(-2) == self.keep:
                self._make_room()
            new = tuple(torch.cat(pair, dim=-2) for pair in zip(self._held, new, strict=True))
        keys, values, received, positions = new
        per_group = query.unflatten(1, (key.size(1), -1)).squeeze(-2)  # (batch, kv_heads, ·, width)
        scores = per_group @ keys.mT / key.size(-1) ** 0.5  # (batch, kv_heads, ·, held)
        weights = scores.softmax(dim=-1)
        received = received + weights.float().sum(dim=-2).unsqueeze(-1)
        self._held, self.length = (keys, values, received, positions), self.length + 1
        return (weights @ values).flatten(1, 2).unsqueeze(-2)

    def _make_room(self) -> None:
        """Drop the token with the smallest sum of each head, the recent ones left aside."""
        assert self._held is not None
        received = self._held[2]
        weakest = received[..., : self.keep + 1 - self.recent, :].argmin(dim=-2, keepdim=True)
        stay = torch.arange(self.keep - 1, device=received.device)[:, None]
        stay = stay + (stay >= weakest)  # (batch, kv_heads, keep - 1, 1): all but the weakest
        self._held = tuple(
            part.gather(-2, stay.expand(-1, -1, -1, part.size(-1))) for part in self._held
        )

    @property
    def positions(self) -> Tensor:
        """The positions of the tokens that each head holds, (batch, kv_heads, held)."""
        return self._of_each_token(3)

    @property
    def received(self) -> Tensor:
        """The weight that each token held has received, (batch, kv_heads, held)."""
        return self._of_each_token(2)

    def _of_each_token(self, which: int) -> Tensor:
        if self._held is None:
            raise ValueError("length must be at least 1 before tokens are asked for, got 0")
        return self._held[which].squeeze(-1)

    def __repr__(self) -> str:
        return f"HeavyHitters(keep={self.keep}, recent={self.recent}, length={self.length})"

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Raise ValueError unless query, key and value are one token of one text."""
        for name, new in (("query", query), ("key", key), ("value", value)):
            if not isinstance(new, Tensor) or new.dim() != 4 or new.size(2) != 1:
                came = tuple(new.shape) if isinstance(new, Tensor) else repr(new)
                raise ValueError(f"{name} must have shape (batch, heads, 1, width), got {came}")
        if query.size(0) != key.size(0) or query.size(3) != key.size(3):
            raise ValueError(
                f"key must have the batch and the width of query, {tuple(query.shape)}: "
                f"got {tuple(key.shape)}"
            )
        if query.size(1) % key.size(1):
            raise ValueError(
                f"key must have heads that divide the {query.size(1)} of query, got {key.size(1)}"
            )
        if value.shape[:3] != key.shape[:3]:
            raise ValueError(
                f"value must have the batch and the heads of key, {tuple(key.shape)}: "
                f"got {tuple(value.shape)}"
            )
