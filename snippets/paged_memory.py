"""Keys and values of many texts, in blocks; texts that begin alike share the first of them.

    memory = PagedMemory(len(model.blocks), blocks=64)
    table = memory.find(tokens[:-1])           # blocks of its beginning that are there already
    memory.grow(table, len(tokens))            # room for the rest; False: too few are unused
    unread, positions = …                      # (texts, new tokens) each, equally many
    mask = memory.open([table, …], positions)  # the model reads these texts next
    logits = model(unread, positions=positions, attn_mask=mask, caches=memory.layers)
    memory.keep(table, tokens, start, end)     # its blocks that got full can now be found
    memory.release(table)                      # they are kept until their room is needed

For writing, under torch.no_grad(). A text is given copies of the rows of its own table, at each
step, in each layer: a kernel that follows tables copies nothing. Sources: Kwon et al. (2023),
PagedAttention; vLLM's documentation, "Automatic Prefix Caching".
"""

from collections import OrderedDict
from hashlib import sha256

import torch
from torch import Tensor


class LayerMemory:
    """The blocks of one layer; it takes the place of a cache in the model."""

    def __init__(self, blocks: int, size: int) -> None:
        self.blocks, self.size = blocks, size
        self.held: list[Tensor] = []  # keys and values, (blocks + 1, size, heads, width) each
        self.tables = self.positions = torch.zeros(0, 0, dtype=torch.int64)  # of the next pass

    @property
    def length(self) -> int:
        """How many keys each text gets beside its new ones; the mask hides those of no token."""
        return self.tables.size(1) * self.size - self.positions.size(1)

    def update(self, *new: Tensor) -> list[Tensor]:
        """Write keys and values, (texts, heads, new tokens, width); return the texts' rows."""
        if not self.held:  # the last block is nobody's and stays 0: it fills up short tables
            shapes = [(self.blocks + 1, self.size, x.size(1), x.size(3)) for x in new]
            self.held = [x.new_zeros(shape) for x, shape in zip(new, shapes, strict=True)]
        block, row = self.tables.gather(1, self.positions // self.size), self.positions % self.size
        for held, part in zip(self.held, new, strict=True):
            held[block, row] = part.transpose(1, 2)
        return [held[self.tables].flatten(1, 2).transpose(1, 2) for held in self.held]


class PagedMemory:
    """Which text uses which blocks, for all layers alike; each block holds block_size tokens.

    A text's table names its blocks, in order; each table that names a block is a user of it. A full
    block has a name, a hash of all tokens of its text up to its end, by which texts that begin so
    find it. One that is not full has one user, so nobody writes where somebody else reads.
    A block without users can be found until `grow` takes it: one that nobody can find first, then
    the least recently used. It is cleared then, because a mask does not hide a nan: 0 · nan = nan.
    For that reason a block with a nan gets no name, nor do those that come after it.
    """

    def __init__(self, layers: int, blocks: int, *, block_size: int = 16) -> None:
        self.size = block_size
        self.layers = [LayerMemory(blocks, block_size) for _ in range(layers)]
        self.users = [0] * blocks  # how many tables name each block
        self.unused = OrderedDict.fromkeys(range(blocks))  # no users; the next to be taken is first
        self.names: list[bytes | None] = [None] * blocks  # of what is in a full block
        self.known: dict[bytes, int] = {}  # of several blocks with one name, the one that is found

    def name_of(self, before: bytes, tokens: Tensor) -> bytes:
        """Return a block's name: a hash of its tokens and of the name of the block before it."""
        return sha256(before + str(tokens.tolist()).encode()).digest()

    def find(self, tokens: Tensor) -> list[int]:
        """Return the blocks in which the longest beginning of a text lies, with one user more."""
        table, name = [], b""
        for part in tokens.split(self.size):
            name = self.name_of(name, part)
            if len(part) < self.size or name not in self.known:
                break
            table.append(self.known[name])
            self.users[table[-1]] += 1
            self.unused.pop(table[-1], None)
        return table

    def grow(self, table: list[int], length: int) -> bool:
        """Give a text blocks for so many tokens; False, and nothing done, if too few are unused.

        What `find` has put into the table stays there, until it is released.
        """
        missing = -(-length // self.size) - len(table)
        if missing > len(self.unused):
            return False
        for _ in range(missing):
            block, _ = self.unused.popitem(last=False)
            if self._can_be_found(block):
                del self.known[self.names[block]]
            self.names[block], self.users[block] = None, 1
            for held in self._keys_and_values():
                held[block] = 0
            table.append(block)
        return True

    def open(self, tables: list[list[int]], positions: Tensor) -> Tensor:
        """Let the next pass read these texts, positions (texts, new tokens); return its mask."""
        most, device = max(map(len, tables)), positions.device
        filled = [table + [len(self.users)] * (most - len(table)) for table in tables]
        for layer in self.layers:
            layer.tables, layer.positions = torch.tensor(filled, device=device), positions
        rows = torch.arange(most * self.size, device=device)
        return rows <= positions[:, None, :, None]  # (texts, 1, new tokens, rows); True keeps

    def keep(self, table: list[int], tokens: Tensor, start: int, end: int) -> None:
        """Name the blocks that are full since tokens start to end were read: others find them."""
        for i in range(start // self.size, end // self.size):
            block, before = table[i], self.names[table[i - 1]] if i else b""
            finite = all(x[block].isfinite().all() for x in self._keys_and_values())
            if before is None or not finite:  # then those after it get no name either
                break
            self.names[block] = self.name_of(before, tokens[i * self.size : (i + 1) * self.size])
            self.known.setdefault(self.names[block], block)

    def release(self, table: list[int]) -> None:
        """End a text's use of its blocks; those of no other user wait, to be found or taken."""
        for block in reversed(table):  # the last is taken first: it is found only after the others
            self.users[block] -= 1
            if not self.users[block]:
                self.unused[block] = None
                self.unused.move_to_end(block, last=self._can_be_found(block))
        table.clear()

    def _can_be_found(self, block: int) -> bool:
        return self.known.get(self.names[block]) == block

    def _keys_and_values(self) -> list[Tensor]:
        return [held for layer in self.layers for held in layer.held]
