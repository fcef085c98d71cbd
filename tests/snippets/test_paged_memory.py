"""A text reads its own rows and nothing else; a full block is found by who begins alike, until its room is needed."""

import random

import torch
import torch.nn.functional as F

from snippets.paged_memory import PagedMemory
from tests.snippets.parts import Case, close, draw, some


def numbers(tokens, width=3, seed=1):
    """Keys of a text's tokens for two heads, (1, 2, tokens, width), by which they can be told apart."""
    return draw(1, 2, len(tokens), width, seed=seed) + tokens[:, None]


def read(memory, table, tokens, keys, values=None, *, start=0, pieces=None):
    """Let a text be read in pieces from `start` on; return what the last one read, and its mask."""
    for piece in pieces or (len(tokens) - start,):
        end = start + piece
        assert memory.grow(table, end)
        mask = memory.open([table], torch.arange(start, end)[None])
        new = (x[..., start:end, :] for x in (keys, keys if values is None else values))
        found = memory.layers[0].update(*new)
        memory.keep(table, tokens, start, end)
        start = end
    return *found, mask


def consistent(memory, *tables):
    """The books agree: users are those who name a block, and who is found is full."""
    named = [block for table in tables for block in table]
    assert memory.users == [named.count(block) for block in range(len(memory.users))]
    assert set(memory.unused) == {block for block, users in enumerate(memory.users) if not users}
    assert all(memory.names[block] == name for name, block in memory.known.items())


def test_whatever_comes_and_goes_a_text_reads_its_own_rows(part):
    chance = random.Random(0)
    for size in (1, 2, 3):
        memory, running, refused = part.PagedMemory(1, 9, block_size=size), [], 0
        for _ in range(60):
            if running and chance.random() < 0.5:
                memory.release(running.pop(chance.randrange(len(running))))
            tokens = torch.tensor([chance.randrange(2) for _ in range(chance.randint(1, 9))])
            table = memory.find(tokens)
            known, start = list(table), len(table) * size
            if not memory.grow(table, len(tokens)):
                assert table == known
                memory.release(table)
                refused += 1
                continue
            running.append(table)
            consistent(memory, *running)
            if new := len(tokens) - start:
                keys = (tokens * 2 ** torch.arange(len(tokens))).cumsum(0)  # of it and all before
                keys, pieces = keys.double()[None, None, :, None], (1, new - 1) if new > 1 else None
                *found, mask = read(
                    memory, table, tokens, keys, keys + 0.5, start=start, pieces=pieces
                )
                assert mask.sum() == sum(range(start + 1 + (new > 1), len(tokens) + 1))
                assert torch.equal(found[0][:, :, mask[0, 0, -1]], keys)
                assert torch.equal(found[1][:, :, mask[0, 0, -1]], keys + 0.5)
        assert refused or size > 1


def test_texts_of_other_lengths_are_read_together(part):
    memory = part.PagedMemory(2, 9, block_size=2)
    texts, tables = [torch.arange(n) + 10 * n for n in (7, 1, 4)], [[], [], []]
    for text, table in zip(texts, tables, strict=True):
        assert memory.grow(table, len(text) + 1)
        memory.open([table], torch.arange(len(text))[None])
        for layer in memory.layers:
            layer.update(numbers(text), numbers(text))
    mask = memory.open(tables, torch.tensor([[len(text)] for text in texts]))
    assert mask.size(-1) == memory.layers[1].length + 1
    new = torch.cat([numbers(text[:1] + 50) for text in texts])
    for layer in memory.layers:
        keys, values = layer.update(new, new)
        assert torch.equal(keys, values)
        for i, text in enumerate(texts):
            wanted = torch.cat([numbers(text), new[i : i + 1]], dim=2)[0]
            assert torch.equal(keys[i][:, mask[i, 0, 0]], wanted)
            assert (keys[i, :, -1] == 0).all() or i == 0  # short tables are filled up with zeros
    consistent(memory, *tables)


def test_who_begins_alike_finds_whole_blocks(part):
    memory, tokens, table = part.PagedMemory(1, 20, block_size=2), torch.arange(5) + 5, []
    read(memory, table, tokens, numbers(tokens), pieces=(1, 3, 1))
    for other, blocks in (
        ([5, 6, 7, 8, 9, 9], 2),
        ([5, 6, 7], 1),
        ([5, 5, 7, 8], 0),  # the second block is the same, after another beginning
        ([7, 8], 0),
        ([5, 6, 8, 7], 1),
        ([], 0),
    ):
        found = memory.find(torch.tensor(other, dtype=torch.int64))
        assert found == table[:blocks]
        consistent(memory, table, found)
        memory.release(found)


def test_no_two_texts_have_one_name(part):
    """Python's own hash of -1 and of -2 is one number, and so it is of tuples of them."""
    memory = part.PagedMemory(1, 1)
    texts = [[-1], [-2], [1, 2], [12], [1, 2, 3], [1, 23]]
    assert len({memory.name_of(b"", torch.tensor(text)) for text in texts}) == 6
    short = memory.name_of(b"", torch.tensor([3], dtype=torch.int32))
    assert short == memory.name_of(b"", torch.tensor([3]))


def test_blocks_outlive_their_text_until_their_room_is_needed(part):
    memory, texts = part.PagedMemory(1, 6, block_size=2), [torch.tensor([n] * 5) for n in range(3)]
    # Two texts leave four full blocks, and two of which no more is known. The third text takes
    # these two and, of text 1, the end; then the end of the one that was used least recently goes.
    for which, blocks in zip(
        (0, 1, 0, 1, 0, 2, 0, 1, 2, 0), (0, 0, 2, 2, 2, 0, 2, 1, 1, 1), strict=True
    ):
        table = memory.find(texts[which][:-1])
        assert len(table) == blocks
        read(memory, table, texts[which], numbers(texts[which]), start=2 * blocks)
        memory.release(table)
        consistent(memory)


def test_a_nan_stays_in_its_text(part):
    query = draw(2, 2, 1, 3)
    for bad in (torch.nan, torch.inf):
        memory, tables = part.PagedMemory(1, 4, block_size=2), [[], []]
        texts = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])]
        given = [numbers(text) for text in texts]
        given[1][:, :, 1] = bad
        for text, table, x in zip(texts, tables, given, strict=True):
            read(memory, table, text, x, pieces=(2,))
            assert memory.grow(table, 3)
        mask = memory.open(tables, torch.tensor([[2], [2]]))  # neighbours in a pass
        new = torch.cat(given)[:, :, 2:]
        context = F.scaled_dot_product_attention(query, *memory.layers[0].update(new, new), mask)
        assert close(context[:1], F.scaled_dot_product_attention(query[:1], given[0], given[0]))
        assert memory.find(texts[1][:2]) == []  # it may have come from a later token
        memory.release(tables[1])
        later = []  # the block of the nan, used again, and not to its end
        assert memory.grow(later, 1)
        mask, x = memory.open([later], torch.tensor([[0]])), given[0][:, :, :1]
        context = F.scaled_dot_product_attention(x, *memory.layers[0].update(x, x), mask)
        assert torch.equal(context, x)


def test_what_comes_after_a_nan_is_not_found_either(part):
    """Be it in the second layer alone."""
    memory, tokens, table = part.PagedMemory(2, 4, block_size=2), torch.arange(6), []
    x = numbers(tokens)
    assert memory.grow(table, 6)
    memory.open([table], tokens[None])
    memory.layers[0].update(x, x)
    memory.layers[1].update(x, x.masked_fill(tokens[:, None] == 3, torch.nan))
    for start in range(6):
        memory.keep(table, tokens, start, start + 1)
    assert memory.find(tokens) == table[:1]
    assert memory.find(tokens[4:]) == []  # nor under the name of a beginning


WRONG = {
    "a name is that of the block alone": ("sha256(before + str", "sha256(str"),
    "blocks that are not full are found": (
        "range(start // self.size, end // self.size)",
        "range(start // self.size, -(-end // self.size))",
    ),
    "a block in use is taken": ("self.unused.pop(table[-1], None)", "pass"),
    "the beginning goes first": ("in reversed(table):", "in table:"),
    "blocks are not cleared": ("held[block] = 0", "pass"),
}


def written(_, *new):
    """What two texts read, written in two pieces."""
    memory, tables = PagedMemory(1, 60), [[], []]
    for start, end in ((0, 170), (170, 300)):
        assert all(memory.grow(table, end) for table in tables)
        memory.open(tables, torch.arange(start, end, device=new[0].device).expand(2, -1))
        found = memory.layers[0].update(*(x[:, :, start:end] for x in new))
    return found


CASES = {
    "two texts": Case(
        written,
        lambda: (some(2, 4, 300, 8), some(2, 4, 300, 8, seed=2)),
        roundings=0,
        casts=False,
        backward=False,
    )
}
