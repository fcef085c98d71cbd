"""A key-value cache: what attention has computed for earlier tokens, kept for the later ones.

Needs PyTorch 2.5 or newer and nothing else.
Source: Shazeer (2019), "Fast Transformer Decoding: One Write-Head is All You Need", section 2.4
(keys and values carried from step to step). Memory made once: the book's chapter on the cache.
"""

import torch
from torch import Tensor


class KVCache:
    """Keys and values of the tokens so far, for one layer.

        caches = [KVCache(max_tokens=1024) for _ in layers]
        y = attention(prompt, cache=caches[0])    # all tokens of the prompt at once
        y = attention(token, cache=caches[0])     # (batch, 1, embed_dim): one more

    Whoever rotates keys by their position rotates them before they come here, and whoever masks
    keeps in mind that the new tokens are the last ones: new token i sees length_before + i + 1.

    Memory is made at the first update, for max_tokens tokens at once, in the dtype and on the
    device of what came: batch · heads · max_tokens · (key width + value width) numbers, `nbytes`
    bytes. Each later update copies the new tokens into it and nothing else.

    It holds keys, and not the tokens that they were made of, so it cannot tell one text from
    another. Whoever hands a whole text to a model with a cache compares what was read with what it
    begins with, and truncates the caches where the two part.

    It is for writing text, under torch.no_grad() or torch.inference_mode(): a backward pass through
    several updates ends in PyTorch's error that memory was overwritten.

    Args:
        max_tokens: most tokens that it can hold.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(self, max_tokens: int) -> None:
        if not isinstance(max_tokens, int) or max_tokens < 1:
            raise ValueError(f"max_tokens must be a positive integer, got {max_tokens!r}")
        self.max_tokens = max_tokens
        self.length = 0  # tokens held so far, which is also the position of the next one
        self._keys: Tensor | None = None  # (batch, heads, max_tokens, width)
        self._values: Tensor | None = None

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take the keys and values of new tokens, and return those of all tokens so far.

        Args:
            keys: (batch, heads, new tokens, width).
            values: (batch, heads, new tokens, width); heads and width may differ from the keys'.

        Returns:
            Two views of the cache, (batch, heads, length, width): nothing is copied for them, and
            a later update does not change what they show, unless truncate came between.
        """
        if self._keys is None or self._values is None:
            self._check(keys, values, keys, values)
            # A tensor made in inference mode could not be written to outside of it.
            with torch.inference_mode(False):
                self._keys, self._values = (
                    torch.empty(
                        (*new.shape[:-2], self.max_tokens, new.size(-1)),
                        dtype=new.dtype,
                        device=new.device,
                    )
                    for new in (keys, values)
                )
        else:
            self._check(keys, values, self._keys, self._values)
        start, end = self.length, self.length + keys.size(-2)
        self._keys[..., start:end, :] = keys
        self._values[..., start:end, :] = values
        self.length = end  # only now, when both are written
        return self._keys[..., :end, :], self._values[..., :end, :]

    def truncate(self, length: int) -> None:
        """Forget all tokens but the first `length`: a draft refused, or 0 for a new text.

        No memory moves: what comes next is written over what was forgotten.
        """
        if not isinstance(length, int) or not 0 <= length <= self.length:
            raise ValueError(f"length must be an integer from 0 to {self.length}, got {length!r}")
        self.length = length

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order, as a beam search does or a batch that ends.

        Args:
            rows: (new batch,), integers below the batch; one may come several times. An integer
                that is no row is the error of index_select: IndexError, on a processor.
        """
        if (
            not isinstance(rows, Tensor)
            or rows.dim() != 1
            or rows.dtype not in (torch.int64, torch.int32)
        ):
            came = (
                f"{rows.dtype} of {tuple(rows.shape)}" if isinstance(rows, Tensor) else repr(rows)
            )
            raise ValueError(f"rows must be integers of shape (new batch,), got {came}")
        if self._keys is not None and self._values is not None:
            with torch.inference_mode(False):
                kept = self._keys.index_select(0, rows), self._values.index_select(0, rows)
            self._keys, self._values = kept  # only now, when both are there

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, 0 before the first update."""
        return sum(held.nbytes for held in (self._keys, self._values) if held is not None)

    def __repr__(self) -> str:
        return f"KVCache(max_tokens={self.max_tokens}, length={self.length})"

    def _check(self, keys: Tensor, values: Tensor, held_keys: Tensor, held_values: Tensor) -> None:
        """Raise ValueError unless the new tokens fit each other, what is held, and the room."""
        for name, new, held in (("keys", keys, held_keys), ("values", values, held_values)):
            if not isinstance(new, Tensor) or new.dim() != 4:
                came = tuple(new.shape) if isinstance(new, Tensor) else repr(new)
                raise ValueError(
                    f"{name} must have shape (batch, heads, tokens, width), got {came}"
                )
            if (new.shape[:2], new.size(3)) != (held.shape[:2], held.size(3)):
                wanted = f"({held.size(0)}, {held.size(1)}, tokens, {held.size(3)})"
                raise ValueError(f"{name} must have shape {wanted}, got {tuple(new.shape)}")
            if (new.dtype, new.device) != (held.dtype, held.device):  # a copy would cast unasked
                raise ValueError(
                    f"{name} must be {held.dtype} on {held.device} as what the cache holds, "
                    f"got {new.dtype} on {new.device}"
                )
        if (values.size(0), values.size(2)) != (keys.size(0), keys.size(2)):
            raise ValueError(
                f"values must have the batch and the tokens of keys, {tuple(keys.shape)}: "
                f"got {tuple(values.shape)}"
            )
        if self.length + keys.size(2) > self.max_tokens:
            raise ValueError(
                f"keys must fit into what is left of max_tokens={self.max_tokens}: "
                f"got {keys.size(2)} tokens after {self.length}"
            )
