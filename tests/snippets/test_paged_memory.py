"""A text reads its own rows and nothing else; a full block is found by who begins alike, until its room is needed."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from snippets.generate import choose
from snippets.paged_memory import PagedMemory
from snippets.paged_server import PagedServer
from tests.snippets.parts import Case, some
from tests.snippets.test_generate import MODELS, draws, some_prompts


def numbers(tokens, width=3, seed=0):
    """Keys of a text's tokens for two heads, (1, 2, tokens, width), by which they can be told apart."""
    return some(1, 2, len(tokens), width, seed=seed) + tokens[:, None]


def read(memory, table, tokens, keys, values, pieces=None):
    """Let a text be read in pieces, from where its table's blocks end; return what the last one read."""
    start = len(table) * memory.size
    for piece in pieces or (len(tokens) - start,):
        end = start + piece
        assert memory.grow(table, end)
        mask = memory.open([table], torch.arange(start, end)[None])
        found = memory.layers[0].update(*(x[..., start:end, :] for x in (keys, values)))
        memory.keep(table, tokens, start, end)
        start = end
    return *found, mask


def consistent(memory, *tables):
    """The books agree: users are those who name a block, and who is found is full."""
    named = [block for table in tables for block in table]
    assert memory.users == [named.count(block) for block in range(len(memory.users))]
    assert set(memory.unused) == {block for block, users in enumerate(memory.users) if not users}
    assert all(memory.names[block] == name for name, block in memory.known.items())


# Facts, asked of the module that is given, so that a wrong one can be asked, too.


def a_text_reads_what_it_has_written(part):
    tokens = torch.arange(7)
    for size in (1, 3, 16):
        for pieces in ((7,), (2, 1, 4), (1,) * 7):
            memory = part.PagedMemory(1, 8, block_size=size)
            assert memory.grow([], size)  # somebody has the first block
            keys, values = numbers(tokens), numbers(tokens, width=5, seed=1)
            *found, mask = read(memory, [], tokens, keys, values, pieces)
            assert mask.shape == (1, 1, pieces[-1], found[0].size(2))
            assert mask.size(-1) == memory.layers[0].length + pieces[-1]
            assert torch.equal(mask[0, 0].sum(dim=-1), torch.arange(8 - pieces[-1], 8))
            for x, wanted in zip(found, (keys, values), strict=True):
                assert torch.equal(x[:, :, mask[0, 0, -1]], wanted)


def texts_of_other_lengths_are_read_together(part):
    memory = part.PagedMemory(2, 9, block_size=2)
    texts = [torch.arange(n) + 10 * n for n in (7, 1, 4)]
    tables = [[], [], []]
    for text, table in zip(texts, tables, strict=True):
        assert memory.grow(table, len(text) + 1)
        memory.open([table], torch.arange(len(text))[None])
        for layer in memory.layers:
            layer.update(numbers(text), numbers(text))
    mask = memory.open(tables, torch.tensor([[len(text)] for text in texts]))
    new = torch.cat([numbers(text[:1] + 50) for text in texts])
    for layer in memory.layers:
        keys, values = layer.update(new, new)
        assert torch.equal(keys, values)
        for i, text in enumerate(texts):
            wanted = torch.cat([numbers(text), new[i : i + 1]], dim=2)[0]
            assert torch.equal(keys[i][:, mask[i, 0, 0]], wanted)
            assert (keys[i, :, -1] == 0).all() or i == 0  # short tables are filled up with zeros
    consistent(memory, *tables)


def who_begins_alike_finds_whole_blocks(part):
    memory, tokens = part.PagedMemory(1, 20, block_size=2), torch.tensor([5, 6, 7, 8, 9])
    table = []
    read(memory, table, tokens, numbers(tokens), numbers(tokens), (1, 3, 1))
    for other, blocks in (
        ([5, 6, 7, 8, 9, 9], 2),
        ([5, 6, 7, 8], 2),
        ([5, 6, 7], 1),
        ([5], 0),
        ([5, 5, 7, 8], 0),  # the second block is the same, after another beginning
        ([7, 8], 0),
        ([5, 6, 8, 7], 1),
        ([], 0),
    ):
        found = memory.find(torch.tensor(other, dtype=torch.int64))
        assert found == table[:blocks]
        consistent(memory, table, found)
        memory.release(found)
    consistent(memory, table)


def what_is_found_is_read(part):
    memory, tokens = part.PagedMemory(1, 20, block_size=2), torch.arange(5)
    keys, values = numbers(tokens), numbers(tokens, seed=1)
    first: list[int] = []
    read(memory, first, tokens, keys, values)
    second = memory.find(tokens[:-1])
    found = read(memory, second, tokens, keys, values)
    assert second[:2] == first[:2]
    assert second[2] != first[2]
    for x, wanted in zip(found, (keys, values), strict=False):
        assert torch.equal(x[:, :, :5], wanted)


def blocks_outlive_their_text_until_their_room_is_needed(part):
    memory = part.PagedMemory(1, 6, block_size=2)
    texts = [torch.tensor([n, n, n, n, n]) for n in range(4)]

    def use(text):
        table = memory.find(text[:-1])
        known = len(table)
        read(memory, table, text, numbers(text), numbers(text))
        memory.release(table)
        consistent(memory)
        return known

    assert [use(texts[0]), use(texts[1])] == [
        0,
        0,
    ]  # four full blocks, and two of which no more is known
    assert [use(texts[0]), use(texts[1]), use(texts[0])] == [2, 2, 2]
    assert use(texts[2]) == 0  # two blocks of nobody and, of text 1, the end
    assert use(texts[0]) == 2
    assert use(texts[1]) == 1
    assert use(texts[2]) == 1  # whose end went for that of text 1
    assert use(texts[0]) == 1  # whose end went for that of text 2


def who_is_in_use_keeps_its_blocks(part):
    memory, a, table = part.PagedMemory(1, 4, block_size=2), torch.tensor([1] * 5), []
    keys = numbers(a)
    read(memory, table, a, keys, keys)
    other = memory.find(a[:-1])
    assert not memory.grow([], 4)  # one is unused
    assert not memory.grow(other, 8)
    assert len(other) == 2
    memory.release(table)  # `other` still uses two
    consistent(memory, other)
    rest = []
    assert memory.grow(rest, 4)
    assert not set(rest) & set(other)
    memory.open([other], torch.tensor([[3]]))
    found = memory.layers[0].update(keys[:, :, 3:4], keys[:, :, 3:4])[0]
    assert torch.equal(found, keys[:, :, :4])


def a_block_that_was_taken_is_not_found_any_more(part):
    memory, (a, b) = part.PagedMemory(1, 2, block_size=2), torch.tensor([[1] * 4, [2] * 4])
    for text in (a, b, a):
        table = memory.find(text)
        assert table == []
        read(memory, table, text, numbers(text), numbers(text))
        memory.release(table)
        consistent(memory)
    assert len(memory.find(a)) == 2


def of_two_alike_one_is_found(part):
    memory, a = part.PagedMemory(1, 4, block_size=2), torch.tensor([1, 1, 1])
    one, two = [], []
    for table in (one, two):  # the second does not look
        read(memory, table, a, numbers(a), numbers(a))
    three = memory.find(a)
    assert three == one[:1]
    for table in (three, one, two):
        memory.release(table)
    consistent(memory)
    taken = []
    assert memory.grow(taken, 6)  # of four blocks the one that is found is the last to go
    assert len(memory.find(a)) == 1


def a_nan_stays_in_its_text(part):
    query = some(2, 2, 1, 3, seed=4)
    for bad in (torch.nan, torch.inf, -torch.inf):
        memory = part.PagedMemory(1, 4, block_size=2)
        texts = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])]
        given = [numbers(text) for text in texts]
        given[1][:, :, 1] = bad
        tables = [[], []]
        for text, table, x in zip(texts, tables, given, strict=True):
            assert memory.grow(table, 3)
            memory.open([table], torch.arange(2)[None])
            memory.layers[0].update(x[:, :, :2], x[:, :, :2])
            memory.keep(table, text, 0, 2)
        mask = memory.open(tables, torch.tensor([[2], [2]]))  # neighbours in a pass
        new = torch.cat(given)[:, :, 2:]
        context = F.scaled_dot_product_attention(query, *memory.layers[0].update(new, new), mask)
        wanted = F.scaled_dot_product_attention(query[:1], given[0], given[0])
        assert torch.allclose(context[:1], wanted)
        assert memory.find(texts[1][:2]) == []  # it may have come from a later token
        memory.release(tables[1])
        later = []  # the block of the nan, used again, and not to its end
        assert memory.grow(later, 1)
        mask, x = memory.open([later], torch.tensor([[0]])), given[0][:, :, :1]
        context = F.scaled_dot_product_attention(x, *memory.layers[0].update(x, x), mask)
        assert torch.equal(context, x)


def what_comes_after_a_nan_is_not_found_either(part):
    memory, tokens = part.PagedMemory(2, 4, block_size=2), torch.arange(6)
    table, x = [], numbers(tokens)
    assert memory.grow(table, 6)
    memory.open([table], tokens[None])
    memory.layers[0].update(x, x)
    x[:, :, 3] = torch.nan
    memory.layers[1].update(x, x)
    for start in range(6):
        memory.keep(table, tokens, start, start + 1)
    assert memory.find(tokens) == table[:1]
    assert memory.find(tokens[4:]) == []  # nor under the name of a beginning


def a_block_that_was_taken_forgets_its_name(part):
    memory, rest, (a, b) = (
        part.PagedMemory(1, 4, block_size=2),
        [],
        torch.tensor([[1, 1, 2, 2], [7, 7, 8, 8]]),
    )
    table, x = [], numbers(b)
    read(memory, table, a, numbers(a), numbers(a))
    memory.release(table)
    assert memory.grow(rest, 4)
    x[:, :, 0] = (
        torch.nan
    )  # so that the first of its blocks gets no name, and the second none after it
    read(memory, [], b, x, x, (2, 2))
    memory.release(rest)
    read(memory, [], a, numbers(a), numbers(a))
    assert len(memory.find(torch.cat([a, b[2:]]))) == 2


def served_from_it_a_text_is_the_one_written_alone(part):
    start = some_prompts(6)[0]
    prompts = [start, start, torch.cat([start, start[:3]]), start[:5], start.flip(0)]
    wanted = []
    for prompt, generator in zip(prompts, draws(range(5)), strict=True):
        server = PagedServer(MODELS["llama"], PagedMemory(2, 8), choose)
        wanted.append(server.add(prompt, 5, generator))
        while server.step():
            pass
    for size, blocks in ((1, 24), (2, 7), (4, 9)):
        memory = part.PagedMemory(2, blocks, block_size=size)
        for _ in range(3):  # later ones find what was left
            server = PagedServer(MODELS["llama"], memory, choose)
            requests = [server.add(p, 5, g) for p, g in zip(prompts, draws(range(5)), strict=True)]
            for _ in range(200):
                if not server.step():
                    break
            for request, alone in zip(requests, wanted, strict=True):
                assert torch.equal(request.tokens, alone.tokens)
            consistent(memory)


FACTS = [
    a_text_reads_what_it_has_written,
    texts_of_other_lengths_are_read_together,
    who_begins_alike_finds_whole_blocks,
    what_is_found_is_read,
    blocks_outlive_their_text_until_their_room_is_needed,
    who_is_in_use_keeps_its_blocks,
    a_block_that_was_taken_is_not_found_any_more,
    of_two_alike_one_is_found,
    a_nan_stays_in_its_text,
    what_comes_after_a_nan_is_not_found_either,
    a_block_that_was_taken_forgets_its_name,
    served_from_it_a_text_is_the_one_written_alone,
]

WRONG = {
    "a name is that of the block alone": ("sha256(before + str", "sha256(str"),
    "a name is that of what came before": ("+ str(tokens.tolist()).encode()", ""),
    "blocks that are not full are found": (
        "range(start // self.size, end // self.size)",
        "range(start // self.size, -(-end // self.size))",
    ),
    "a block is known when its first token is read": (
        "end // self.size):",
        "min(end // self.size + 1, len(table))):",
    ),
    "the last pieces are not looked at": (
        "range(start // self.size, end // self.size)",
        "range(-(-start // self.size), end // self.size)",
    ),
    "a block in use is taken": ("self.unused.pop(table[-1], None)", "pass"),
    "a user is not counted": ("self.users[table[-1]] += 1", "pass"),
    "one who leaves frees the block for all": (
        "self.users[block] -= 1",
        "self.users[block] = 0",
    ),
    "a block that was taken is still known": ("del self.known[self.names[block]]", "pass"),
    "a block that was taken keeps its name": (
        "self.names[block], self.users[block] = None, 1",
        "self.users[block] = 1",
    ),
    "the newest goes first": ("popitem(last=False)", "popitem(last=True)"),
    "the beginning goes first": ("in reversed(table):", "in table:"),
    "blocks that nobody finds are kept like others": (
        "last=self._can_be_found(block))",
        "last=True)",
    ),
    "blocks are not cleared": ("held[block] = 0", "pass"),
    "one layer is cleared": (
        "for layer in self.layers for held in layer.held]",
        "for layer in self.layers[:1] for held in layer.held]",
    ),
    "keys alone are looked at": (
        "for x in self._all_held()",
        "for x in self._all_held()[::2][:1]",
    ),
    "what follows a nan gets a name": (
        "if before is None or not",
        "before = before or b''\n            if not",
    ),
    "a nan can be found": (".isfinite().all() for", ".isfinite().any() for"),
    "the last of two alike is found": (
        "self.known.setdefault(name, table[i])",
        "self.known[name] = table[i]",
    ),
    "short tables are filled up with the first block": (
        "[len(self.users)] * (most",
        "[0] * (most",
    ),
    "a token sees later ones": ("rows <= positions", "rows <= 1 + positions"),
    "a token does not see itself": ("rows <= positions", "rows < positions"),
    "one block too many": ("-(-length // self.size)", "(length // self.size + 1)"),
    "rows of a block in another order": (
        "self.positions % self.size\n",
        "-1 - self.positions % self.size\n",
    ),
    "blocks in another order": ("self.positions // self.size)", "self.positions * 0)"),
    "keys are kept for all texts alike": (
        "held[self.tables]",
        "held[self.tables[:1]].expand_as(held[self.tables])",
    ),
    "the length has the new tokens in it": (" - self.positions.size(1)", ""),
}


def written(_, *new):
    """What two texts read, written in two pieces."""
    memory = PagedMemory(1, 60)
    tables = [[], []]
    for start, end in ((0, 170), (170, 300)):
        assert all(memory.grow(table, end) for table in tables)
        positions = torch.arange(start, end, device=new[0].device).expand(2, -1)
        memory.open(tables, positions)
        found = memory.layers[0].update(*(x[:, :, start:end] for x in new))
    return found


CASES = {
    "two texts": Case(
        written,
        lambda: (some(2, 4, 300, 8), some(2, 4, 300, 8, seed=2)),
        roundings=0,
        backward=False,
        casts=False,
    )
}


@settings(max_examples=40)
@given(st.data(), st.integers(1, 4), st.integers(1, 12))
def test_whatever_comes_and_goes_its_books_agree(data, size, blocks):
    memory, running = PagedMemory(1, blocks, block_size=size), []
    for _ in range(20):
        if running and data.draw(st.booleans()):
            memory.release(running.pop(data.draw(st.integers(0, len(running) - 1))))
        text = torch.tensor(data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=9)))
        table = memory.find(text)
        start = len(table) * size
        before = list(table)
        if not memory.grow(table, len(text)):
            assert table == before
            memory.release(table)
        elif start < len(text):
            memory.open([table], torch.arange(start, len(text))[None])
            keys = text[None, None, :, None].double()  # of these tokens, and so after those before
            after = keys.cumsum(dim=2) + 10 * torch.arange(1, len(text) + 1)[:, None]
            found = memory.layers[0].update(*(x[:, :, start:] for x in (keys, after)))
            for x, wanted in zip(found, (keys, after), strict=True):
                assert torch.equal(x[:, :, : len(text)], wanted)
            memory.keep(table, text, start, len(text))
            running.append(table)
        else:
            running.append(table)
        consistent(memory, *running)


def test_no_two_texts_have_one_name():
    """Python's own hash of -1 and of -2 is one number, and so it is of tuples of them."""
    memory = PagedMemory(1, 1)
    texts = [[-1], [-2], [1, 2], [12], [1, 2, 3], [1, 23]]
    assert len({memory.name_of(b"", torch.tensor(text)) for text in texts}) == 6
    of_32_bits = memory.name_of(b"", torch.tensor([3], dtype=torch.int32))
    assert of_32_bits == memory.name_of(b"", torch.tensor([3]))
