"""With all keys chosen sparse attention is dense; with fewer it is dense with a mask."""

import torch

from snippets.sparse_attention import attend_chosen, best_keys
from tests.snippets import parts
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, alike, close, draw

TRIED = [
    (4, 2, 5, 5),
    (6, 3, 3, 7),
    (4, 1, 1, 6),
    (2, 2, 70, 70),
]  # the last ones in several pieces


def problem(heads=4, kv_heads=2, T_q=5, T_k=5, width=6):
    """Query, key and value, each asking for its gradient."""
    sizes = (heads, T_q), (kv_heads, T_k), (kv_heads, T_k)
    return [draw(2, n, T, width, seed=i).requires_grad_() for i, (n, T) in enumerate(sizes)]


def past(T_q, T_k):
    """Which keys each query may see, where the queries are the last of the keys."""
    return torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)


def dense(query, key, value, mask):
    """The definition, with each head's keys repeated."""
    key, value = (part.repeat_interleave(query.size(1) // part.size(1), 1) for part in (key, value))
    scores = (query @ key.mT / query.size(-1) ** 0.5).masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num() @ value


def test_all_keys_chosen_is_dense_attention_gradients_too(part):
    for heads, kv_heads, T_q, T_k in TRIED:
        leaves, mask = problem(heads, kv_heads, T_q, T_k), past(T_q, T_k)
        scores = torch.zeros(2, 1, T_q, T_k).masked_fill(~mask, -torch.inf)
        result = part.attend_chosen(*leaves, part.best_keys(scores, 999))
        assert alike(result, dense(*leaves, mask), leaves), (heads, T_q, T_k)


@torch.no_grad()
def test_few_keys_chosen_are_a_mask(part):
    for heads, kv_heads, T_q, T_k in TRIED:
        for own in (1, kv_heads):  # one choice for all heads, and one for each head of keys
            query, key, value = problem(heads, kv_heads, T_q, T_k)
            scores = draw(2, own, T_q, T_k, seed=8).masked_fill(~past(T_q, T_k), -torch.inf)
            chosen = part.best_keys(scores, 3)
            mask = part.keep_chosen(chosen, T_k)
            counted = torch.arange(T_k - T_q + 1, T_k + 1).clamp_max(3)
            assert (mask.sum(-1) == counted).all(), "not the number of keys that was asked for"
            lowest = scores.masked_fill(~mask, torch.inf).amin(-1)
            highest = scores.masked_fill(mask, -torch.inf).amax(-1)
            assert (lowest >= highest).all(), "a better key was left out"
            wanted = dense(query, key, value, mask.repeat_interleave(heads // own, dim=1))
            assert close(part.attend_chosen(query, key, value, chosen), wanted)
            scaled = part.attend_chosen(query * 2, key, value, chosen, scale=0.5 * 6**-0.5)
            assert close(scaled, wanted)


@torch.no_grad()
def test_a_query_without_keys_gets_zeros(part):
    chosen = torch.full((2, 1, 5, 3), -1)
    assert (part.attend_chosen(*problem(), chosen) == 0).all()
    assert not part.keep_chosen(chosen, 5).any()


def test_a_choice_that_would_serve_every_query_is_refused(part):
    for shape in ((2, 5, 3), (2, 1, 1, 3)):
        refuses(f"{shape}", part.attend_chosen, *problem(), torch.zeros(shape).long())


WRONG = {
    "the worst keys are chosen": (
        "dim=-1)\n    return best",
        "dim=-1, largest=False)\n    return best",
    ),
    "an empty place is key 0": ("attn_mask=keep, scale", "attn_mask=None, scale"),
    "groups of heads are dealt round": (
        "query.unflatten(1, (kv_heads, -1)).transpose(2, 3).flatten(0, 1)",
        "query.unflatten(1, (-1, kv_heads)).transpose(1, 2).transpose(2, 3).flatten(0, 1)",
    ),
}


def read_forty(_, query, key, value):
    """Each query reads 40 keys of 300."""
    scores = parts.some(2, 1, parts.T, parts.T, seed=7).to(query.device)
    return attend_chosen(query, key, value, best_keys(scores, 40))


def a_thousand_queries(x):
    """So many that all their scores would be 64 MiB."""
    chosen = torch.zeros(1, 1, 1024, 256, dtype=torch.int64)
    return lambda: attend_chosen(x[None, None, :1024], *2 * [x[None, None]], chosen)


CASES = {"the chosen keys": Case(read_forty, lambda: parts.heads(4, 2))}
MIB = {"1,024 queries, 256 keys for each": (10, a_thousand_queries)}
