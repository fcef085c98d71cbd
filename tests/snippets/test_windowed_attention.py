"""Windowed: a token sees the last positions alone, in a text, in pieces, padded, and in a tree of guesses."""

import pytest
import torch

from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.rope import RotaryPositions
from snippets.windowed_attention import Windowed
from tests.snippets.parts import Case, texts

WINDOW = 3


def layer(part):
    """A small layer with a window, with the same weights each time."""
    torch.manual_seed(0)
    attention = GroupedQueryAttention(16, 4, num_kv_heads=2, rotate=RotaryPositions(4))
    return part.Windowed(attention, WINDOW).double().requires_grad_(False)


def some(batch, T):
    """Vectors of T tokens."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, T, 16, dtype=torch.float64, generator=generator)


def near(result, wanted):
    """Assert that they are equal but for rounding in float64."""
    assert torch.allclose(result, wanted, rtol=0, atol=1e-10)


# Facts about a module of the file, which is the real one or a wrong version of it.


def it_sees_the_last_positions_alone(part):
    x, rows = some(1, 9), torch.arange(9)
    keep = (rows <= rows[:, None]) & (rows > rows[:, None] - WINDOW)
    made = layer(part)
    near(made(x), made.attention(x, attn_mask=keep))


def in_pieces_it_is_what_it_is_at_once(part):
    x, made, cache = some(2, 9), layer(part), KVCache(20)
    whole = made(x)
    near(torch.cat([made(piece, cache=cache) for piece in x.split([4, 1, 4], dim=1)], dim=1), whole)
    cache.truncate(5)  # a draft refused
    near(made(x[:, 5:], cache=cache), whole[:, 5:])


# A tree of guesses after five tokens: two first guesses, and two that follow each of them.
PARENTS = (None, None, 0, 0, 1, 1)
BRANCHES = ((0, 2), (0, 3), (1, 4), (1, 5))


def tree_mask(past):
    """(6, past + 6): a guess sees the text, its ancestors and itself."""
    keep = torch.zeros(6, past + 6, dtype=torch.bool)
    keep[:, :past] = True
    for row, parent in enumerate(PARENTS):
        keep[row, past + row] = True
        if parent is not None:
            keep[row, past:] |= keep[parent, past:]
    return keep


def a_guess_gets_what_its_branch_gets_alone(part):
    x, made = some(1, 11), layer(part)
    depth = torch.tensor([0, 0, 1, 1, 1, 1])
    for sizes in ([6], [2, 4]):  # at once, or level by level
        for batched in (False, True):
            cache, done = KVCache(20), 0
            made(x[:, :5], cache=cache)
            results = []
            for size in sizes:
                end = done + size
                positions = 5 + depth[done:end]
                positions = positions[None] if batched else positions
                keep = tree_mask(5)[done:end, : 5 + end]
                guesses = x[:, 5 + done : 5 + end]
                results.append(made(guesses, positions=positions, attn_mask=keep, cache=cache))
                done = end
            result = torch.cat(results, dim=1)
            for branch in BRANCHES:
                rows = torch.tensor([0, 1, 2, 3, 4, *(5 + guess for guess in branch)])
                near(result[:, list(branch)], made(x[:, rows])[:, 5:])
            cache.truncate(5)  # none is taken, and the text goes on by itself
            near(made(x[:, 5:7], cache=cache), made(x[:, :7])[:, 5:])


def texts_of_one_batch_have_their_own_positions(part):
    x, made, cache = some(2, 8), layer(part), KVCache(8)
    pad = 2  # before the second text
    positions = torch.stack([torch.arange(8), torch.arange(8) - pad]).clamp(min=0)
    real = torch.stack([torch.ones(8), torch.arange(8) >= pad]).bool()
    keep = (torch.ones(8, 8).tril().bool() & real[:, None] | torch.eye(8).bool())[:, None]
    first = made(x[:, :6], positions=positions[:, :6], attn_mask=keep[..., :6, :6], cache=cache)
    last = made(x[:, 6:], positions=positions[:, 6:], attn_mask=keep[..., 6:, :], cache=cache)
    result = torch.cat([first, last], dim=1)
    near(result[:1], made(x[:1]))
    near(result[1:, pad:], made(x[1:, pad:]))


def chosen_texts_keep_their_positions(part):
    x, made, positions = (
        some(2, 8),
        layer(part),
        torch.stack([torch.arange(8), 2 * torch.arange(8)]),
    )
    wanted, cache = made(x, positions=positions), KVCache(8)
    made(x[:, :6], positions=positions[:, :6], cache=cache)
    cache.select(torch.tensor([1, 0]))
    result = made(x.flip(0)[:, 6:], positions=positions.flip(0)[:, 6:], cache=cache)
    near(result, wanted.flip(0)[:, 6:])


def a_token_after_it_is_not_seen_even_at_an_earlier_position(part):
    x, made = some(1, 4), layer(part)
    moved = x.clone()
    moved[:, 3] += 1
    positions = torch.tensor([0, 1, 2, 1])
    near(made(moved, positions=positions)[:, :3], made(x, positions=positions)[:, :3])


def a_mask_shows_nothing_that_is_to_come(part):
    x, made = some(1, 6), layer(part)
    near(made(x, attn_mask=torch.ones(6, 6, dtype=torch.bool)), made(x))


def a_cache_may_drop_its_first_tokens(part):
    x, made, cache = some(1, 9), layer(part), Rolling()
    whole = made(x)
    for T in range(9):
        near(made(x[:, T : T + 1], positions=torch.tensor([T]), cache=cache), whole[:, T : T + 1])
    assert cache.length == WINDOW - 1


class Rolling:
    """Keeps what a window still needs."""

    length, held = 0, None

    def update(self, keys, values):
        """Return what is kept and what comes, and keep the last of it."""
        both = [
            torch.cat(pair, dim=2)
            for pair in zip(self.held or (keys[:, :, :0],) * 2, (keys, values), strict=True)
        ]
        self.held = tuple(one[:, :, 1 - WINDOW :] for one in both)
        self.length = self.held[0].size(2)
        return both


FACTS = [
    it_sees_the_last_positions_alone,
    in_pieces_it_is_what_it_is_at_once,
    a_guess_gets_what_its_branch_gets_alone,
    texts_of_one_batch_have_their_own_positions,
    chosen_texts_keep_their_positions,
    a_token_after_it_is_not_seen_even_at_an_earlier_position,
    a_mask_shows_nothing_that_is_to_come,
    a_cache_may_drop_its_first_tokens,
]
WRONG = {
    "the window is one too wide": ("keys > asks - self.window", "keys >= asks - self.window"),
    "the window is one too narrow": ("asks - self.window", "asks - self.window + 1"),
    "rows are counted, not positions": ("if positions is None else", "if True else"),
    "what was cached is forgotten": ("[..., :past]", "[..., :past] * 0"),
    "a draft refused stays": ("[..., :past]", "[..., -past or None :]"),
    "what comes later is seen": ("device=x.device).tril(past)", "device=x.device)"),
    "a later position is seen": ("(keys <= asks)", "(keys == keys)"),
    "the tree's mask is dropped": ("keep = attn_mask & (", "keep = (attn_mask | True) & ("),
    "positions are not handed on": ("positions=positions, attn_mask", "positions=None, attn_mask"),
    "the dropped tokens are remembered": ("seen.size(-1) - cache.length :", ": cache.length"),
}


def test_what_would_be_misread_is_refused():
    made, x = layer_of_the_file(), some(3, 4)
    with pytest.raises(ValueError, match="attn_mask must be"):  # one for each text, or each head?
        made(x, attn_mask=torch.ones(3, 4, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="attn_mask must be boolean"):
        made(x, attn_mask=torch.zeros(4, 4))
    cache = KVCache(9)
    made.attention(x, cache=cache)  # positions of its own, which nobody has noted
    with pytest.raises(ValueError, match="cache must be filled by this layer"):
        made(x, positions=torch.arange(4, 8), cache=cache)
    with pytest.raises(ValueError, match="window must be 1 or more"):
        Windowed(made.attention, 0)


def test_a_window_takes_a_mask_besides():
    made, x = layer_of_the_file(), some(1, 6)
    seen = torch.ones(6, 6, dtype=torch.bool).tril()
    seen[4:, 3] = False
    moved = x.clone()
    moved[:, 3] += 1
    change = (made(moved, attn_mask=seen) - made(x, attn_mask=seen)).abs().amax(-1)[0] > 1e-6
    assert change.tolist() == [False] * 3 + [True] + [False] * 2


def layer_of_the_file():
    """The layer of the file as it is."""
    from snippets import windowed_attention

    return layer(windowed_attention)


def in_pieces(module, x):
    """What a layer returns for a text in three pieces, with a cache."""
    cache = KVCache(x.size(1))
    pieces = x.split([x.size(1) - 9, 1, 8], dim=1)
    return torch.cat([module(piece, cache=cache) for piece in pieces], dim=1)


def tried():
    """A layer for vectors of 16 channels."""
    return Windowed(GroupedQueryAttention(16, 4, num_kv_heads=2, rotate=RotaryPositions(4)), 9)


CASES = {
    "windowed": Case(lambda module, x: module(x), texts, tried),
    "windowed, cached": Case(in_pieces, texts, tried, backward=False),
}
MODULES = {"Windowed": lambda: Windowed(GroupedQueryAttention(8, 4, num_kv_heads=2), 3)}
