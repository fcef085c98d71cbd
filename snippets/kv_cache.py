"""A key-value cache: what attention has computed for earlier tokens, kept for the later ones.

    caches = [KVCache(max_tokens=1024) for _ in layers]
    y = attention(prompt, cache=caches[0])  # (batch, T, embed_dim): a whole prompt at once
    y = attention(token, cache=caches[0])  # (batch, 1, embed_dim): one more

It takes batch · heads · max_tokens · (key width + value width) numbers, `nbytes` bytes. It is for
writing text, under torch.no_grad(): a backward pass through two updates ends in PyTorch's error.
Source: Shazeer (2019), "Fast Transformer Decoding: One Write-Head is All You Need", section 2.4.
"""

import torch
from torch import Tensor


class KVCache:
    """Keys and values of the tokens so far, for one layer, in memory that is made once.

    Keys are rotated by their positions before they come here. The new tokens are the last ones, so
    new token i sees length_before + i + 1 keys. A cache cannot tell one text from another: whoever
    changes the text truncates it to the tokens that stay.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.length = 0  # tokens held so far, which is also the position of the next one
        self.positions: Tensor | None = None  # (batch, length), where a layer notes them: a window
        self._keys: Tensor | None = None  # (batch, heads, max_tokens, width)
        self._values: Tensor | None = None

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take keys and values of new tokens, (batch, heads, new, width), and return those of all.

        What is returned are views, (batch, heads, length, width): nothing but the new is copied.
        """
        start, end = self.length, self.length + keys.size(2)
        if end > self.max_tokens:  # one token too many would be written nowhere, without an error
            raise ValueError(f"keys must fit into max_tokens={self.max_tokens}, got {end} tokens")
        memory = self._keys, self._values
        if self._keys is None:
            with torch.inference_mode(False):  # else no update outside of that mode could write
                memory = [
                    new.new_empty(*new.shape[:2], self.max_tokens, new.size(3))
                    for new in (keys, values)
                ]
        for name, new, held in zip(("keys", "values"), (keys, values), memory, strict=True):
            fits = (*held.shape[:2], end - start, held.size(3)), held.dtype, held.device
            came = tuple(new.shape), new.dtype, new.device
            if came != fits:  # a copy would repeat or cast them
                raise ValueError(f"{name} must be {fits}, got {came}")
        self._keys, self._values = memory
        self._keys[:, :, start:end] = keys
        self._values[:, :, start:end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens; what comes next is written over the others."""
        if not 0 <= length <= self.length:
            raise ValueError(f"length must be from 0 to {self.length}, got {length}")
        self.length = length

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order: (new batch,), integers, repeated or not."""
        if self._keys is not None:
            with torch.inference_mode(False):
                kept = self._keys.index_select(0, rows), self._values.index_select(0, rows)
            self._keys, self._values = kept
        if self.positions is not None and self.positions.dim() == 2:
            self.positions = self.positions.index_select(0, rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, 0 before the first update."""
        return sum(held.nbytes for held in (self._keys, self._values) if held is not None)
