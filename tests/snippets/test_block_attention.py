"""Blocks: dense where all are chosen, keys where they hold one; compressed keys are dense where a block is a token."""

import torch

from snippets.block_attention import choose_blocks, compressed_attention
from snippets.sparse_attention import attend_chosen, keep_chosen
from tests.snippets import parts
from tests.snippets.test_sparse_attention import GROUPS, LENGTHS, dense, past, problem

# Facts


@torch.no_grad()
def blocks_are_dense_where_all_are_chosen_and_keys_where_they_hold_one(module):
    for heads, kv_heads in GROUPS:
        for T_q, T_k in LENGTHS:
            query, key, value = problem(heads, kv_heads, T_q, T_k)
            wanted = dense(query, key, value, past(T_q, T_k))
            for size in (1, 2, 3, T_k, T_k + 2):
                chosen = module.choose_blocks(query, key, 999, size)
                assert torch.equal(
                    keep_chosen(chosen, T_k),
                    past(T_q, T_k).expand(2, kv_heads, -1, -1),
                )
                result = attend_chosen(query, key, value, chosen)
                assert torch.allclose(result, wanted, rtol=0, atol=1e-10), size
            scores = query.unflatten(1, (kv_heads, -1)).sum(2) @ key.mT
            scores = scores.masked_fill(~past(T_q, T_k), -torch.inf)
            own = torch.eye(T_k, dtype=torch.bool)[-T_q:]
            best = module.best_keys(scores.masked_fill(own, torch.inf), 3)
            kept = keep_chosen(module.choose_blocks(query, key, 3, 1), T_k)
            assert torch.equal(kept, keep_chosen(best, T_k))


@torch.no_grad()
def a_block_is_scored_by_the_mean_of_its_keys(module):
    query, key, _ = problem(1, 1, 12, 12)
    kept = keep_chosen(module.choose_blocks(query, key, 2, 3), 12)
    for text in range(2):
        for t in range(12):
            means = [key[text, 0, s : s + 3].mean(0) for s in range(0, t // 3 * 3, 3)]
            scores = [(query[text, 0, t] @ mean).item() for mean in means]
            blocks = {t // 3} | ({scores.index(max(scores))} if scores else set())
            wanted = [s <= t and s // 3 in blocks for s in range(12)]
            assert kept[text, 0, t].tolist() == wanted, t


@torch.no_grad()
def compressed_keys_are_dense_where_a_block_is_a_token(module):
    for heads, kv_heads in GROUPS:
        for T_q, T_k in LENGTHS:
            query, key, value = problem(heads, kv_heads, T_q, T_k)
            result = module.compressed_attention(query, key, value, 1)
            wanted = dense(query, key, value, past(T_q, T_k))
            assert torch.allclose(result, wanted, rtol=0, atol=1e-10)
    query, key, value = problem(4, 2, 8, 8)
    result = module.compressed_attention(query, key, value, 3)
    means = [x[:, :, :6].unflatten(2, (2, 3)).mean(3) for x in (key, value)]
    keep = torch.tensor([[t >= 2, t >= 5] for t in range(8)])  # a block ends before it is read
    assert torch.allclose(result, dense(query, *means, keep), rtol=0, atol=1e-10)


@torch.no_grad()
def the_last_queries_choose_and_read_what_they_do_among_all(module):
    query, key, value = problem(4, 2, 9, 9)
    for size in (2, 3, 4):
        kept = keep_chosen(module.choose_blocks(query, key, 2, size), 9)
        assert torch.equal(
            keep_chosen(module.choose_blocks(query[:, :, -3:], key, 2, size), 9), kept[:, :, -3:]
        )
        whole = module.compressed_attention(query, key, value, size)
        last = module.compressed_attention(query[:, :, -3:], key, value, size)
        assert torch.allclose(last, whole[:, :, -3:], rtol=0, atol=1e-10)


FACTS = [
    blocks_are_dense_where_all_are_chosen_and_keys_where_they_hold_one,
    a_block_is_scored_by_the_mean_of_its_keys,
    compressed_keys_are_dense_where_a_block_is_a_token,
    the_last_queries_choose_and_read_what_they_do_among_all,
]

WRONG = {
    "the worst blocks are chosen": (
        "dim=-1)\n    return best",
        "dim=-1, largest=False)\n    return best",
    ),
    "hidden blocks stay chosen": ('best.values == float("-inf"), -1', "best.values > 1e300, -1"),
    "a block has the sum of its keys": (".mean(dim=-2)", ".amax(dim=-2)"),
    "the own block has to be among the best": (
        'scores.masked_fill(block == place // size, float("inf"))',
        "scores",
    ),
    "the own block is seen to its end": (
        "(best < 0) | (keys > place[..., None])",
        "(best < 0) | (keys >= T_k)",
    ),
    "blocks begin one key late": ("keys = best * size +", "keys = best * size + 1 +"),
    "a block is read before it ends": (
        "torch.arange(1, T_k // size + 1",
        "torch.arange(0, T_k // size",
    ),
}


def read_blocks(_, query, key, value):
    """All blocks, which makes the choice the same in each dtype."""
    return attend_chosen(query, key, value, choose_blocks(query, key, 999, 8))


CASES = {
    "chosen": parts.Case(read_blocks, lambda: parts.heads(4, 2)),
    "compressed": parts.Case(lambda _, *x: compressed_attention(*x, 4), lambda: parts.heads(4, 2)),
}
