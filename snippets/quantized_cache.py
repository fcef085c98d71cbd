"""A key-value cache of few bits: keys are rounded channel by channel, values token by token.

    caches = [QuantizedCache(bits=4) for _ in layers]
    y = attention(prompt, cache=caches[0])    # all tokens of the prompt at once
    y = attention(token, cache=caches[0])     # (batch, 1, embed_dim): one more

It takes the place of a KVCache, and returns numbers that are made anew at each update from all
codes: it saves memory between steps, and no time. A kernel that is to save time decodes within its
tiles. It cannot be cut back to fewer tokens. It is for writing text, without gradients.

Source: Liu et al. (2024), "KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache".
"""

import torch
from torch import Tensor

Rounded = tuple[Tensor, Tensor, Tensor]  # codes, lowest number and step of each group


class QuantizedCache:
    """Keys and values of the tokens so far, for one layer, most of them rounded to few bits.

    New tokens are kept as they are until a group is full. Then the group is rounded, once and never
    again: in its keys the tokens of each channel share a lowest number and a step, in its values
    the channels of each token. Values without channels, as a latent cache has, take nothing.

    Args:
        bits: of each code: 2, 4 or 8.
        group: tokens that are rounded together. With more than there are, nothing is rounded.
    """

    def __init__(self, *, bits: int = 4, group: int = 32) -> None:
        if bits not in (2, 4, 8):  # codes of 3 bits would lie on each other
            raise ValueError(f"bits must be 2, 4 or 8, got {bits}")
        self.bits, self.group = bits, group
        self.length = 0  # tokens held so far, which is also the position of the next one
        self.rounded: tuple[Rounded, ...] = ()  # keys and values, (batch, heads, groups, …) each
        self.newest: tuple[Tensor, ...] = ()  # keys and values of fewer tokens than a group

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        """Take keys and values of new tokens, and return those of all tokens so far.

        Each is (batch, heads, tokens, width), with a width that fills whole bytes. In what is
        returned full groups are rounded, those of new tokens too.
        """
        for name, x in (("keys", keys), ("values", values)):
            if x.size(-1) * self.bits % 8:  # PyTorch would say so when the first group is full
                raise ValueError(f"{name} must have a width of whole bytes, got {x.size(-1)}")
        self.length += keys.size(-2)
        new = (keys, values)
        if self.newest:
            new = tuple(torch.cat(pair, dim=-2) for pair in zip(self.newest, new, strict=True))
        full = new[0].size(-2) // self.group * self.group  # tokens of full groups
        if full:
            groups = [x[..., :full, :].unflatten(-2, (-1, self.group)) for x in new]
            made = quantize(groups[0], self.bits, -2), quantize(groups[1], self.bits, -1)
            if self.rounded:  # one tensor for all groups: a compiled step meets no longer list
                made = joined(self.rounded[0], made[0]), joined(self.rounded[1], made[1])
            self.rounded = made
        self.newest = tuple(x[..., full:, :].clone() for x in new)  # a view would keep all of it
        if not self.rounded:
            return self.newest
        return tuple(map(self._whole, self.rounded, self.newest))

    def _whole(self, rounded: Rounded, newest: Tensor) -> Tensor:
        return torch.cat([dequantize(rounded, self.bits).flatten(-3, -2), newest], dim=-2)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held: codes, lowest numbers, steps, and the tokens that wait."""
        return sum(x.nbytes for part in (*self.rounded, self.newest) for x in part)


def joined(old: Rounded, new: Rounded) -> Rounded:
    """Return the groups of both, (batch, heads, groups, …) each."""
    return tuple(torch.cat(pair, dim=-3) for pair in zip(old, new, strict=True))


def quantize(x: Tensor, bits: int, dim: int) -> Rounded:
    """Round the numbers along `dim`, which share a lowest number and a step, to codes of few bits.

    A code c, from 0 to 2^bits - 1, stands for lowest + c · step. The codes are packed, 8 / bits to
    a byte, along the last dimension: uint8, (…, width · bits / 8). The lowest number and the step
    have the dtype of x, which is finite, and size 1 in `dim`.
    """
    if not x.size(-1):  # nothing has no lowest number
        return x.to(torch.uint8), x, x
    wide = torch.promote_types(x.dtype, torch.float32)  # half precision has too few digits for this
    lowest, highest = x.amin(dim, keepdim=True), x.amax(dim, keepdim=True)
    step = ((highest.to(wide) - lowest) / (2**bits - 1)).to(x.dtype)
    divisor = torch.where(step > 0, step, torch.ones_like(step)).to(wide)
    codes = ((x.to(wide) - lowest) / divisor).round().clamp(0, 2**bits - 1).to(torch.uint8)
    codes = codes.unflatten(-1, (-1, 8 // bits))  # (…, bytes, codes of one byte)
    places = torch.arange(0, 8, bits, dtype=torch.uint8, device=x.device)
    return (codes << places).sum(dim=-1).to(torch.uint8), lowest, step


def dequantize(rounded: Rounded, bits: int) -> Tensor:
    """Return the numbers that the codes stand for, in the dtype of lowest number and step."""
    packed, lowest, step = rounded
    places = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    codes = (packed.unsqueeze(-1) >> places) & (2**bits - 1)  # (…, bytes, codes of one byte)
    wide = torch.promote_types(lowest.dtype, torch.float32)
    numbers = lowest.to(wide) + codes.flatten(-2) * step.to(wide)
    most = torch.finfo(lowest.dtype).max  # which the last code may pass, where the step is rounded
    return numbers.clamp_(-most, most).to(lowest.dtype)
