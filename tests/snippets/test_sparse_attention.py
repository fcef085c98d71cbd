"""With all keys chosen sparse attention is dense; with fewer it stays within its bound; nothing hidden is chosen."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from snippets import sparse_attention
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.sparse_attention import (
    Indexer,
    attend_chosen,
    best_keys,
    choose_blocks,
    compressed_attention,
    indexer_loss,
    keep_chosen,
)
from tests.snippets.facts import first_to_notice
from tests.snippets.problems import edited

GROUPS = [(4, 4), (4, 2), (6, 3), (4, 1)]  # (heads, kv_heads)
LENGTHS = [(5, 5), (3, 7), (1, 6), (1, 1)]  # (T_q, T_k)


def some(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def lengths(heads, kv_heads):
    """LENGTHS, and for one kind of heads so many queries that they are taken in several pieces."""
    return [*LENGTHS, (150, 150)] if (heads, kv_heads) == (4, 2) else LENGTHS


def problem(heads=4, kv_heads=2, T_q=5, T_k=5, width=6):
    """Query, key and value, each asking for its gradient."""
    sizes = (heads, T_q), (kv_heads, T_k), (kv_heads, T_k)
    return [some(2, n, T, width, seed=i).requires_grad_() for i, (n, T) in enumerate(sizes)]


def past(T_q, T_k):
    """Which keys each query may see, where the queries are the last of the keys."""
    return torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)


def dense(query, key, value, mask):
    """The definition, with each head's keys repeated."""
    key, value = (part.repeat_interleave(query.size(1) // part.size(1), 1) for part in (key, value))
    scores = (query @ key.mT / query.size(-1) ** 0.5).masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num() @ value


def an_indexer(module, k, rotate=None, **options):
    torch.manual_seed(0)
    options |= {} if rotate is None else {"rope_dim": 4, "rotate": rotate}
    made = module.Indexer(12, 3, 6, k=k, **options).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def turn(x, positions):
    """A rotation for tests: each half of the channels by the position's angle."""
    angle = positions.to(x.dtype)[..., None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1
    )


def their_scores(indexer, x, asks=None):
    """The indexer's scores, written out key by key; -inf for the future."""
    asks, T = x if asks is None else asks, x.size(1)
    query = indexer.W_query(asks).unflatten(-1, (3, 6)).transpose(1, 2)
    key = F.layer_norm(
        indexer.W_key(x), (6,), indexer.key_norm.weight, indexer.key_norm.bias, eps=1e-6
    )
    if indexer.rotate:
        places = torch.arange(T)
        query = torch.cat([turn(query[..., :4], places), query[..., 4:]], dim=-1)
        key = torch.cat([turn(key[..., :4], places), key[..., 4:]], dim=-1)
    weight = indexer.W_weight(x)
    scores = torch.full((len(x), T, T), -torch.inf, dtype=x.dtype)
    for t in range(T):
        for s in range(t + 1):
            products = (query[:, :, t] * key[:, None, s]).sum(-1).clamp_min(0)  # (batch, heads)
            scores[:, t, s] = (products * weight[:, t]).sum(-1) / 18**0.5
    return scores


def of(scores, chosen):
    """The scores of the chosen keys, the best first; -inf where there is none."""
    taken = scores.gather(-1, chosen.clamp_min(0)).masked_fill(chosen < 0, -torch.inf)
    return taken.sort(dim=-1, descending=True).values


# Facts about a module of the file, which is the real one or a wrong version of it.


def all_keys_chosen_is_dense_attention_gradients_too(module):
    for heads, kv_heads in GROUPS:
        for T_q, T_k in lengths(heads, kv_heads):
            leaves, mask = problem(heads, kv_heads, T_q, T_k), past(T_q, T_k)
            chosen = module.best_keys(
                torch.zeros(2, 1, T_q, T_k).masked_fill(~mask, -torch.inf), 999
            )
            result, wanted = module.attend_chosen(*leaves, chosen), dense(*leaves, mask)
            assert torch.allclose(result, wanted, rtol=0, atol=1e-10), (heads, T_q, T_k)
            direction = some(*result.shape, seed=3)
            pairs = (torch.autograd.grad(it, leaves, direction) for it in (result, wanted))
            for one, other in zip(*pairs, strict=True):
                assert torch.allclose(one, other, rtol=0, atol=1e-9), (heads, T_q, T_k)


@torch.no_grad()
def few_keys_chosen_are_a_mask(module):
    for heads, kv_heads in GROUPS:
        for T_q, T_k in lengths(heads, kv_heads):
            for own in (1, kv_heads):  # one choice for all heads, and one for each head of keys
                query, key, value = problem(heads, kv_heads, T_q, T_k)
                scores = some(2, own, T_q, T_k, seed=8).masked_fill(~past(T_q, T_k), -torch.inf)
                chosen = module.best_keys(scores, 3)
                mask = module.keep_chosen(chosen, T_k)
                assert (mask & ~past(T_q, T_k)).sum() == 0, "the future is kept"
                counted = torch.arange(T_k - T_q + 1, T_k + 1).clamp_max(3)
                assert (mask.sum(-1) == counted).all(), "not the number of keys that was asked for"
                lowest = scores.masked_fill(~mask, torch.inf).amin(-1)
                highest = scores.masked_fill(mask, -torch.inf).amax(-1)
                assert (lowest >= highest).all(), "a better key was left out"
                mask = mask.repeat_interleave(heads // own, dim=1)
                result = module.attend_chosen(query, key, value, chosen)
                assert torch.allclose(result, dense(query, key, value, mask), rtol=0, atol=1e-10)
                wide = module.attend_chosen(query * 2, key, value, chosen, scale=0.5 * 6**-0.5)
                assert torch.allclose(wide, result, rtol=0, atol=1e-10)


@torch.no_grad()
def a_query_without_keys_gets_zeros(module):
    query, key, value = problem(4, 2)
    chosen = torch.full((2, 1, 5, 3), -1)
    assert (module.attend_chosen(query, key, value, chosen) == 0).all()
    assert not module.keep_chosen(chosen, 5).any()


@torch.no_grad()
def the_indexer_scores_by_its_formula(module):
    for rotate in (None, turn):
        indexer, x = an_indexer(module, 4, rotate), some(2, 9, 12)
        scores = indexer.scores(x)
        assert torch.allclose(scores, their_scores(indexer, x), rtol=0, atol=1e-10)
        kept = module.keep_chosen(indexer(x), 9)[:, 0]
        lowest = scores.masked_fill(~kept, torch.inf).amin(-1)
        highest = scores.masked_fill(kept, -torch.inf).amax(-1)
        assert (lowest >= highest - 1e-10).all(), "a better key was left out"
    indexer, asks = an_indexer(module, 4, query_dim=5), some(2, 9, 5, seed=4)
    wanted = their_scores(indexer, x, asks)
    assert torch.allclose(indexer.scores(x, asks=asks), wanted, rtol=0, atol=1e-10)


@torch.no_grad()
def in_pieces_it_chooses_what_it_chooses_at_once(module):
    T = 150
    indexer, x = an_indexer(module, 4, turn), some(2, T, 12)
    scores = indexer.scores(x)
    wanted = scores.topk(4).values  # equal scores, as zeros are, may be chosen in any order
    whole = indexer(x)[:, 0]
    assert torch.allclose(of(scores, whole), wanted, rtol=0, atol=1e-10)
    for sizes in ([T - 1, 1], [70, 1, 79]):
        cache, start = KVCache(T), 0
        for piece in x.split(sizes, dim=1):
            end = start + piece.size(1)
            chosen = indexer(piece, cache=cache)[:, 0]
            result = of(scores[:, start:end], chosen)
            assert torch.allclose(result, wanted[:, start:end], rtol=0, atol=1e-10), sizes
            start = end
    assert cache.nbytes == 2 * T * 6 * 8  # one key of head_dim numbers for each token, no values


@torch.no_grad()
def a_mask_takes_the_place_of_the_triangle(module):
    indexer, x = an_indexer(module, 3), some(2, 8, 12)
    assert torch.equal(indexer(x, attn_mask=past(8, 8)), indexer(x))
    keep = (some(2, 1, 8, 8, seed=5) > -0.5) & past(8, 8)  # one for each text
    kept = module.keep_chosen(indexer(x, attn_mask=keep), 8)
    assert not (kept & ~keep).any()
    assert (kept.sum(-1) == keep.sum(-1).clamp_max(3)).all()


def the_loss_is_the_divergence_and_leaves_the_attention_alone(module):
    weights = some(2, 3, 6, 6, seed=2).masked_fill(~past(6, 6), -torch.inf).softmax(-1)
    weights.requires_grad_()
    scores = some(2, 6, 6, seed=3).masked_fill(~past(6, 6), -torch.inf).requires_grad_()
    loss = module.indexer_loss(scores, weights)
    target, wanted = weights.detach().mean(1), 0.0
    for text in range(2):
        for t in range(6):
            told = torch.distributions.Categorical(logits=scores[text, t, : t + 1])
            asked = torch.distributions.Categorical(probs=target[text, t, : t + 1])
            wanted = wanted + torch.distributions.kl_divergence(asked, told) / 12
    assert torch.allclose(loss, wanted, rtol=0, atol=1e-10)
    moved, others = torch.autograd.grad(loss, (scores, weights), allow_unused=True)
    assert others is None
    assert torch.allclose(moved, (scores.softmax(-1) - target) / 12, rtol=0, atol=1e-10)
    perfect = target.log().masked_fill(~past(6, 6), -torch.inf)
    assert module.indexer_loss(perfect, weights).abs() < 1e-10


@torch.no_grad()
def blocks_are_dense_where_all_are_chosen_and_keys_where_they_hold_one(module):
    for heads, kv_heads in GROUPS:
        for T_q, T_k in LENGTHS:
            query, key, value = problem(heads, kv_heads, T_q, T_k)
            wanted = dense(query, key, value, past(T_q, T_k))
            for size in (1, 2, 3, T_k, T_k + 2):
                chosen = module.choose_blocks(query, key, 999, size)
                assert torch.equal(
                    module.keep_chosen(chosen, T_k),
                    past(T_q, T_k).expand(2, kv_heads, -1, -1),
                )
                result = module.attend_chosen(query, key, value, chosen)
                assert torch.allclose(result, wanted, rtol=0, atol=1e-10), size
            scores = query.unflatten(1, (kv_heads, -1)).sum(2) @ key.mT
            scores = scores.masked_fill(~past(T_q, T_k), -torch.inf)
            own = torch.eye(T_k, dtype=torch.bool)[-T_q:]
            best = module.best_keys(scores.masked_fill(own, torch.inf), 3)
            kept = module.keep_chosen(module.choose_blocks(query, key, 3, 1), T_k)
            assert torch.equal(kept, module.keep_chosen(best, T_k))


@torch.no_grad()
def a_block_is_scored_by_the_mean_of_its_keys(module):
    query, key, _ = problem(1, 1, 12, 12)
    kept = module.keep_chosen(module.choose_blocks(query, key, 2, 3), 12)
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


FACTS = [
    all_keys_chosen_is_dense_attention_gradients_too,
    few_keys_chosen_are_a_mask,
    a_query_without_keys_gets_zeros,
    the_indexer_scores_by_its_formula,
    in_pieces_it_chooses_what_it_chooses_at_once,
    a_mask_takes_the_place_of_the_triangle,
    the_loss_is_the_divergence_and_leaves_the_attention_alone,
    blocks_are_dense_where_all_are_chosen_and_keys_where_they_hold_one,
    a_block_is_scored_by_the_mean_of_its_keys,
    compressed_keys_are_dense_where_a_block_is_a_token,
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_the_part_holds_to(fact):
    fact(edited("sparse_attention"))


WRONG = {
    "no relu": ("products.relu()", "products"),
    "the relu comes after the sum": (
        "(weight.mT[..., None] * products.relu()).sum(dim=1)",
        "(weight.mT[..., None] * products).sum(dim=1).relu()",
    ),
    "the heads have no weights": ("weight.mT[..., None] * products", "products"),
    "the worst keys are chosen": (
        "dim=-1)\n    return best",
        "dim=-1, largest=False)\n    return best",
    ),
    "hidden keys stay chosen": ('best.values == float("-inf"), -1', "best.values > 1e300, -1"),
    "the mask shows the key before": (
        "keep.scatter(-1, chosen + 1, True)[..., 1:]",
        "keep.scatter(-1, chosen.clamp_min(0), True)[..., 1:]",
    ),
    "an empty place is key 0": ("attn_mask=(places >= 0)[:, :, None]", "attn_mask=None"),
    "groups of heads are dealt round": (
        "query.unflatten(1, (kv_heads, -1)).transpose(2, 3).flatten(0, 1)",
        "query.unflatten(1, (-1, kv_heads)).transpose(1, 2).transpose(2, 3).flatten(0, 1)",
    ),
    "the scale is forgotten": (
        "scale=scale,\n        )\n        contexts",
        "scale=None,\n        )\n        contexts",
    ),
    "the key is not normed": ("key = self.key_norm(key).to", "key = key.to"),
    "the key is not rotated": (
        "torch.cat([self.rotate(part[..., :end], positions), part[..., end:]], dim=-1)",
        "torch.cat([self.rotate(part[..., :end], positions) if part is query else part[..., :end], part[..., end:]], dim=-1)",
    ),
    "queries are made from the token": (
        "self.W_query(x if asks is None else asks)",
        "self.W_query(x if asks is None else x[..., : asks.size(-1)])",
    ),
    "places begin anew": (
        "torch.arange(past, past + x.size(1), device",
        "torch.arange(0, x.size(1), device",
    ),
    "the future is seen": ("<= place[rows, None]", "<= place[rows, None] + 1"),
    "the mask is not looked at": (
        "keep = attn_mask[..., rows, :]",
        "keep = torch.ones_like(attn_mask)[..., rows, :]",
    ),
    "every piece has the mask of the first": (
        "place[rows, None]",
        "place[slice(0, rows.stop - (rows.start or 0)), None][: place[rows].numel()]",
    ),
    "the loss moves the attention": ("weights.detach().mean(dim=1)", "weights.mean(dim=1)"),
    "the divergence the other way round": (
        "(target * (known - told))",
        "(told.exp() * (told - known))",
    ),
    "one head is imitated": ("weights.detach().mean(dim=1)", "weights.detach()[:, 0]"),
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


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_is_caught(what):
    wrong = edited("sparse_attention", WRONG[what])
    assert first_to_notice(FACTS, wrong), f"{what}: every fact holds"


@given(T=st.integers(1, 12), k=st.integers(1, 12), seed=st.integers(0, 10**6))
@torch.no_grad()
def test_the_error_is_at_most_twice_the_lost_weight_times_the_longest_value(T, k, seed):
    query, key, value = (some(1, 1, T, 4, seed=seed + i) * 2 for i in range(3))
    chosen = best_keys(some(1, 1, T, T, seed=seed + 3).masked_fill(~past(T, T), -torch.inf), k)
    weights = (query @ key.mT / 2).masked_fill(~past(T, T), -torch.inf).softmax(-1)
    lost = (weights * ~keep_chosen(chosen, T)).sum(-1)
    error = (attend_chosen(query, key, value, chosen) - weights @ value).norm(dim=-1)
    assert (error <= 2 * lost * value.norm(dim=-1).max() + 1e-12).all()


@torch.no_grad()
def test_the_mask_serves_another_layer():
    attention = GroupedQueryAttention(12, 4, num_kv_heads=2, head_dim=6).double()
    x = some(2, 9, 12)
    for k in (3, 9):
        chosen = an_indexer(sparse_attention, k)(x)
        query, key, value = (
            project(x).unflatten(-1, (-1, 6)).transpose(1, 2)
            for project in (attention.W_query, attention.W_key, attention.W_value)
        )
        read = attend_chosen(query, key, value, chosen).transpose(1, 2).flatten(2)
        result = attention(x, attn_mask=keep_chosen(chosen, 9))
        assert torch.allclose(result, attention.out_proj(read), rtol=0, atol=1e-10)
        assert torch.allclose(result, attention(x), rtol=0, atol=1e-10) == (k == 9)


def test_scores_are_float32_where_the_layer_is_bfloat16():
    indexer = Indexer(12, 3, 6, k=4)
    x = some(2, 20, 12, dtype=torch.float32).bfloat16()
    narrow = indexer.bfloat16().scores(x)
    exact = indexer.double().scores(x.double())
    assert narrow.dtype == torch.float32
    assert torch.allclose(narrow.double(), exact, rtol=0, atol=0.05)


def test_training_by_the_loss_finds_the_keys_that_a_head_reads():
    torch.manual_seed(0)
    x, keys = some(8, 12, 12, seed=1), some(12, 4, seed=2)
    query, key = x @ keys * 2, x @ keys
    weights = (query @ key.mT).masked_fill(~past(12, 12), -torch.inf).softmax(-1)[:, None]
    indexer = Indexer(12, 4, 6, k=3).double()
    optimizer = torch.optim.Adam(indexer.parameters(), 0.02)
    lost = []
    for _ in range(60):
        lost.append((weights * ~keep_chosen(indexer(x), 12)).sum(-1).mean().item())
        optimizer.zero_grad()
        indexer_loss(indexer.scores(x), weights).backward()
        optimizer.step()
    assert lost[-1] < lost[0] / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"chosen": torch.zeros(2, 5, 3, dtype=torch.int64)},
            r"chosen must have shape .2, 1 or 2, 5, n.",
        ),
        ({"chosen": torch.zeros(2, 3, 5, 3, dtype=torch.int64)}, r"chosen must have shape"),
        ({"key": some(2, 3, 5, 6)}, r"kv_heads dividing 4"),
        ({"value": some(2, 2, 4, 6)}, r"key and value must have shape"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = dict(zip(("query", "key", "value"), problem(), strict=True))
    arguments["chosen"] = torch.zeros(2, 1, 5, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        attend_chosen(**arguments | change)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, r"k must be a positive integer, got 0"),
        ({"query_dim": 0}, r"query_dim must be a positive integer"),
        ({"rope_dim": 8}, r"rope_dim must be 0 … 6"),
        ({"rope_dim": 4}, r"rotate is given and only there"),
        ({"rotate": turn}, r"rotate is given and only there"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Indexer(**{"embed_dim": 12, "num_heads": 3, "head_dim": 6, "k": 2} | arguments)


def test_the_indexer_refuses_what_it_cannot_read():
    indexer = Indexer(12, 3, 6, k=2)
    with pytest.raises(ValueError, match=r"x must have shape .batch, T, 12., got .3, 12."):
        indexer(torch.zeros(3, 12))
    with pytest.raises(ValueError, match=r"attn_mask must be boolean"):
        indexer(torch.zeros(1, 3, 12), attn_mask=torch.zeros(3, 3))


@torch.no_grad()
def test_blocks_and_compressed_keys_of_the_last_queries_are_those_of_all():
    query, key, value = problem(4, 2, 9, 9)
    for size in (2, 3, 4):
        kept = keep_chosen(choose_blocks(query, key, 2, size), 9)
        assert torch.equal(
            keep_chosen(choose_blocks(query[:, :, -3:], key, 2, size), 9), kept[:, :, -3:]
        )
        whole = compressed_attention(query, key, value, size)
        last = compressed_attention(query[:, :, -3:], key, value, size)
        assert torch.allclose(last, whole[:, :, -3:], rtol=0, atol=1e-10)
