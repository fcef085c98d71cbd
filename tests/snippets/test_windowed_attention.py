"""Windowed: a token sees the last positions alone, in a text, in pieces, padded, and in a tree of guesses."""

from functools import partial

import torch

from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.rope import RotaryPositions
from snippets.windowed_attention import Windowed
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, close, draw, texts

WINDOW = 3
ROWS = torch.arange(9)
CAUSAL = torch.ones(9, 9, dtype=torch.bool).tril()


def layer(part):
    """A small layer with a window, with the same weights each time."""
    torch.manual_seed(0)
    attention = GroupedQueryAttention(16, 4, num_kv_heads=2, rotate=RotaryPositions(4))
    return part.Windowed(attention, WINDOW).double().requires_grad_(False)


def in_pieces(made, x, sizes, cache, positions=None, mask=None):
    """What a layer returns for a text that it reads in pieces of these sizes."""
    results, start = [], 0
    for piece in x.split(sizes, dim=1):
        end, how = start + piece.size(1), {}
        if positions is not None:
            how["positions"] = positions[..., start:end]
        if mask is not None:
            how["attn_mask"] = mask[..., start:end, :end]
        results.append(made(piece, cache=cache, **how))
        start = end
    return torch.cat(results, dim=1)


def test_it_is_attention_with_a_mask_of_positions(part):
    x, made, padded = draw(2, 9, 16), layer(part), torch.stack([ROWS, ROWS - 2]).clamp(min=0)
    real = torch.stack([ROWS >= 0, ROWS >= 2])[:, None, None] & CAUSAL | torch.eye(9).bool()
    for positions, mask in (
        (None, None),
        (padded, real),  # the second text begins after two tokens of padding
        (ROWS, torch.ones(9, 9).bool()),  # even this shows nothing that is to come
        (torch.tensor([0, 1, 2, 1, 4, 5, 6, 6, 8]), None),  # nor does a later token's position
    ):
        places = ROWS if positions is None else positions
        back = places[..., None] - places[..., None, :]
        near = (back >= 0) & (back < WINDOW)
        near = near if near.dim() == 2 else near[:, None]
        keep = near & (CAUSAL if mask is None else mask)
        wanted = made.attention(x, positions=positions, attn_mask=keep)
        for sizes in ([9], [4, 1, 4]):
            assert close(in_pieces(made, x, sizes, KVCache(9), positions, mask), wanted)


def test_a_guess_gets_what_its_branch_gets_alone(part):
    """A tree after five tokens: two first guesses, and two that follow each of them."""
    x, made, cache = draw(1, 11, 16), layer(part), KVCache(20)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 6]])
    keep, branches = torch.ones(11, 11).tril().bool(), ((5, 7), (5, 8), (6, 9), (6, 10))
    keep[5:, 5:] = torch.eye(6).bool()
    for first, second in branches:
        keep[second, first] = True
    result = in_pieces(made, x, [5, 2, 4], cache, positions, keep)
    for branch in branches:
        rows = [*range(5), *branch]
        assert close(result[:, list(branch)], made(x[:, rows])[:, 5:])
    cache.truncate(5)  # none is taken, and the text goes on by itself, at positions for all texts
    assert close(made(x[:, 5:7], cache=cache), made(x[:, :7])[:, 5:])


def test_chosen_texts_keep_their_positions(part):
    x, made, cache = draw(2, 8, 16), layer(part), KVCache(8)
    positions = torch.stack([ROWS[:8], 2 * ROWS[:8]])
    wanted = made(x, positions=positions)
    made(x[:, :6], positions=positions[:, :6], cache=cache)
    cache.select(torch.tensor([1, 0]))
    result = made(x.flip(0)[:, 6:], positions=positions.flip(0)[:, 6:], cache=cache)
    assert close(result, wanted.flip(0)[:, 6:])


class Rolling(KVCache):
    """Drops what a window of 3 needs no more."""

    def update(self, keys, values):
        """Return what is kept and what comes, and keep the last of it."""
        held = [one.clone() for one in super().update(keys, values)]
        self.truncate(0)
        super().update(*(one[:, :, 1 - WINDOW :] for one in held))
        return held


def test_a_cache_may_drop_its_first_tokens(part):
    x, made, cache = draw(1, 9, 16), layer(part), Rolling(4)
    assert close(in_pieces(made, x, [1] * 9, cache, ROWS), made(x))
    assert cache.length == WINDOW - 1


def test_what_would_be_misread_is_refused(part):
    made, x = layer(part), draw(3, 4, 16)
    refuses("one for each text, or head", partial(made, x, attn_mask=torch.ones(3, 4, 4).bool()))
    refuses("numbers to add", partial(made, x, attn_mask=torch.zeros(4, 4)))
    cache = KVCache(9)
    made.attention(x, cache=cache)  # positions of its own, which nobody has noted
    refuses("a cache of others", partial(made, x, cache=cache))
    part.Windowed(made.attention, 1)
    refuses("a token that sees nothing", part.Windowed, made.attention, 0)


WRONG = {
    "rows are counted, not positions": ("if positions is None else", "if True else"),
    "a draft refused stays": ("[..., :past]", "[..., -past or None :]"),
    "what comes later is seen": ("device=x.device).tril(past)", "device=x.device)"),
}


def tried():
    """A layer for vectors of 16 channels."""
    return Windowed(GroupedQueryAttention(16, 4, num_kv_heads=2, rotate=RotaryPositions(4)), 9)


CASES = {
    "windowed": Case(lambda module, x: module(x), texts, tried),
    "windowed, cached": Case(
        lambda module, x: in_pieces(module, x, [291, 1, 8], KVCache(300)),
        texts,
        tried,
        backward=False,
    ),
}
MODULES = {"Windowed": lambda: Windowed(GroupedQueryAttention(8, 4, num_kv_heads=2), 3)}
