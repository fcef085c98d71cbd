"""With all keys chosen sparse attention is dense; with fewer it is dense with a mask, within its bound."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.sparse_attention import attend_chosen, best_keys, keep_chosen
from tests.snippets import parts

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


# Facts


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


FACTS = [
    all_keys_chosen_is_dense_attention_gradients_too,
    few_keys_chosen_are_a_mask,
    a_query_without_keys_gets_zeros,
]

WRONG = {
    "the worst keys are chosen": (
        "dim=-1)\n    return best",
        "dim=-1, largest=False)\n    return best",
    ),
    "hidden keys stay chosen": ('best.values == float("-inf"), -1', "best.values > 1e300, -1"),
    "the mask shows the key before": (
        "keep.scatter(-1, chosen + 1, True)[..., 1:]",
        "keep.scatter(-1, chosen.clamp_min(0), True)[..., 1:]",
    ),
    "an empty place is key 0": ("attn_mask=keep, scale", "attn_mask=None, scale"),
    "groups of heads are dealt round": (
        "query.unflatten(1, (kv_heads, -1)).transpose(2, 3).flatten(0, 1)",
        "query.unflatten(1, (-1, kv_heads)).transpose(1, 2).transpose(2, 3).flatten(0, 1)",
    ),
    "the scale is forgotten": ("scale=scale)", "scale=None)"),
    "all read the keys of the first": (
        "one.index_select(0, where) for one",
        "x[0].index_select(0, where) for one",
    ),
}


def read_forty(_, query, key, value):
    """Each query reads 40 keys of 300."""
    scores = parts.some(2, 1, parts.T, parts.T, seed=7).to(query.device)
    return attend_chosen(query, key, value, best_keys(scores, 40))


def call_of(x):
    """Each query reads 256 keys of 16,384."""
    chosen = torch.zeros(1, 1, len(x), 256, dtype=torch.int64)
    return lambda: attend_chosen(*3 * [x[None, None]], chosen)


CASES = {
    "the chosen keys": parts.Case(read_forty, lambda: parts.heads(4, 2)),
}
MIB = {"attend_chosen": (14, call_of)}


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
        scores = some(2, 1, 9, 9, seed=5).masked_fill(~past(9, 9), -torch.inf)
        chosen = best_keys(scores, k)
        query, key, value = (
            project(x).unflatten(-1, (-1, 6)).transpose(1, 2)
            for project in (attention.W_query, attention.W_key, attention.W_value)
        )
        read = attend_chosen(query, key, value, chosen).transpose(1, 2).flatten(2)
        result = attention(x, attn_mask=keep_chosen(chosen, 9))
        assert torch.allclose(result, attention.out_proj(read), rtol=0, atol=1e-10)
        assert torch.allclose(result, attention(x), rtol=0, atol=1e-10) == (k == 9)


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 1, 1, 3)])
def test_a_choice_that_would_serve_every_query_is_refused(shape):
    with pytest.raises(ValueError, match="chosen"):
        attend_chosen(*problem(), torch.zeros(shape, dtype=torch.int64))
