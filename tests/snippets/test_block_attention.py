"""Blocks are chosen by the mean of their keys, and a compressed key is the mean of a block that has ended."""

import itertools

import torch
import torch.nn.functional as F

from snippets.block_attention import choose_blocks, compressed_attention
from snippets.sparse_attention import attend_chosen
from tests.snippets.parts import Case, close, draw, heads

# (heads, kv_heads, T_q, T_k): the queries are the last of the keys
SIZES = [(4, 4, 7, 7), (4, 2, 3, 7), (6, 3, 12, 12), (1, 1, 1, 1)]


def drawn(heads, kv_heads, T_q, T_k):
    """Query, key and value of two texts."""
    sizes = (heads, T_q), (kv_heads, T_k), (kv_heads, T_k)
    return [draw(2, n, tokens, 6, seed=i) for i, (n, tokens) in enumerate(sizes)]


def places_read(query, keys, place, k, size):
    """The keys of the best k blocks for one group of queries, (group, width), at a place."""
    own = place // size
    means = [keys[size * block : size * (block + 1)].mean(dim=0) for block in range(own)]
    scores = [(query.sum(dim=0) @ mean).item() for mean in means]
    best = sorted(range(own), key=scores.__getitem__, reverse=True)[: k - 1]
    return [s for s in range(place + 1) if s // size in (own, *best)]


def test_the_own_block_is_read_and_those_whose_mean_scores_best(part):
    for H, g, T_q, T_k in SIZES:
        query, key, _ = drawn(H, g, T_q, T_k)
        groups = query.unflatten(1, (g, -1))  # (batch, kv_heads, group, T_q, width)
        for k, size in ((1, 3), (2, 3), (3, 1), (999, 2), (2, 20)):
            chosen = part.choose_blocks(query, key, k, size)
            for text, head, i in itertools.product(range(2), range(g), range(T_q)):
                asks, place = groups[text, head, :, i], T_k - T_q + i
                found = chosen[text, head, i].tolist()
                read = places_read(asks, key[text, head], place, k, size)
                assert sorted(found) == [-1] * (len(found) - len(read)) + read, (k, size)


def test_compressed_keys_are_the_means_of_blocks_that_have_ended(part):
    for H, g, T_q, T_k in SIZES:
        query, key, value = drawn(H, g, T_q, T_k)
        for size in (1, 2, 3):
            ends = range(size, T_k + 1, size)
            means = [
                torch.stack([x[:, :, :0].sum(2), *(x[:, :, e - size : e].mean(2) for e in ends)], 2)
                for x in (key, value)
            ]  # a key and a value of zeros before them, which nobody sees
            keep = [[False, *(end <= T_k - T_q + i + 1 for end in ends)] for i in range(T_q)]
            result = part.compressed_attention(query, key, value, size)
            shared = [x.repeat_interleave(H // g, dim=1) for x in means]
            wanted = F.scaled_dot_product_attention(query, *shared, torch.tensor(keep))
            assert close(result, wanted), (H, g, size)


WRONG = {
    "the worst blocks are chosen": (
        "dim=-1)\n    return best",
        "dim=-1, largest=False)\n    return best",
    ),
    "the own block has to be among the best": (
        'scores.masked_fill(block == place // size, float("inf"))',
        "scores",
    ),
    "the queries are taken for the first": (
        "torch.arange(T_k - T_q, T_k,",
        "torch.arange(0, T_q,",
    ),
}


def read_blocks(_, query, key, value):
    """All blocks, which makes the choice the same in each dtype."""
    return attend_chosen(query, key, value, choose_blocks(query, key, 999, 8))


CASES = {
    "chosen": Case(read_blocks, lambda: heads(4, 2)),
    "compressed": Case(lambda _, *x: compressed_attention(*x, 4), lambda: heads(4, 2)),
}
