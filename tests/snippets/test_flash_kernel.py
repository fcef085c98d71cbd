"""The kernel in Triton is the definition of attention, both ways, at the sizes that kernels get wrong."""

import pytest
import torch

from tests.snippets.facts import refuses
from tests.snippets.parts import Case, alike, draw, heads

pytest.importorskip("triton")

from snippets import flash_kernel as real


def inputs(T_q, T_k, query_heads=2, key_heads=2):
    """Return a query, key and value in float32 that ask for gradients."""
    shapes = (query_heads, T_q), (key_heads, T_k), (key_heads, T_k)
    drawn = (draw(1, *shape, 16, seed=i, dtype=torch.float32) for i, shape in enumerate(shapes))
    return [x.requires_grad_() for x in drawn]


def by_definition(query, key, value, is_causal):
    """softmax(QKᵀ/√d)V; a query that sees no key gets 0."""
    share = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(share, dim=1) for x in (key, value))
    scores = query @ key.mT / query.size(-1) ** 0.5
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool)
    keep = keep.tril(key.size(2) - query.size(2)) if is_causal else keep
    # A row that is hidden whole is masked after the softmax, too, so that its gradients are 0.
    rows = keep.any(dim=-1, keepdim=True)
    weights = scores.masked_fill(~keep & rows, -torch.inf).softmax(-1)
    return weights.masked_fill(~rows, 0.0) @ value


def holds(module, T_q, T_k, query_heads, key_heads, is_causal, block):
    """Assert that outputs and gradients are those of the definition."""
    leaves = inputs(T_q, T_k, query_heads, key_heads)
    result = module.flash_kernel(*leaves, is_causal, block)
    assert alike(result, by_definition(*leaves, is_causal), leaves, 1e-5), (T_q, T_k, block)


def test_a_text_that_ends_within_a_tile(part):
    holds(part, 20, 20, 1, 1, True, 16)
    holds(part, 17, 20, 1, 1, False, 16)


def test_fewer_queries_than_keys_count_from_the_last(part):
    holds(part, 3, 20, 1, 1, True, 16)


def test_a_query_that_sees_no_key_is_zero_and_so_is_its_gradient(part):
    holds(part, 20, 17, 1, 1, True, 16)


def test_neighbouring_heads_share_keys_and_values(part):
    holds(part, 3, 5, 4, 2, False, 16)


def test_what_would_be_misread_is_refused(part):
    query, key, value = inputs(5, 5, 4, 2)
    refuses("more keys than values", part.flash_kernel, query, key, value[:, :, :4])
    refuses("three heads of keys for four", part.flash_kernel, query, query[:, :3], query[:, :3])
    refuses("keys of another width", part.flash_kernel, query, key[..., :8], value[..., :8])
    refuses(
        "keys of two texts",
        part.flash_kernel,
        query,
        *(x.repeat(2, 1, 1, 1) for x in (key, value)),
    )


CASES = {
    "causal, by groups": Case(
        lambda _, *x: real.flash_kernel(*x, True),
        lambda: heads(2, 1, 16, 40),
        casts=False,
        meta=False,
    )
}
WRONG = {
    "the filling of the last tile is attended to": (
        "seen = columns[None, :] < T_k",
        "seen = columns[None, :] >= 0",
    ),
    "the triangle in the upper left corner": (
        "<= rows[:, None] + T_k - T_q)",
        "<= rows[:, None])",
    ),
    "the sum is not corrected": ("total = total * factor + tl.sum", "total = total + tl.sum"),
    "the values are not corrected": ("weighted * factor[:, None] + product", "weighted + product"),
    "powers of e of scores for powers of 2": (
        "tl.exp2(scores - finite[:, None])",
        "tl.exp(scores - finite[:, None])",
    ),
    "every second head shares": (
        "k = load(K, head // G, columns, T_k, D)  #",
        "k = load(K, head % G, columns, T_k, D)  #",
    ),
    "the row sum is forgotten": ("(d_weights - row_sum[:, None])", "d_weights"),
    "keys hear from the last block of queries alone": ("d_k += product", "d_k = product"),
    "values hear from the last head of a group alone": ("d_v += product", "d_v = product"),
    "queries hear from the last block of keys alone": ("d_q += product", "d_q = product"),
    "the gradient is not scaled": ("store(D_Q, d_q * scale", "store(D_Q, d_q"),
    "four heads for three": ("or heads % key.size(1)", ""),
}


@pytest.mark.parametrize("T", [31, 32, 33, 127, 129])
def test_a_tile_nearly_full_full_or_just_over(T):
    holds(real, T, T, 1, 1, True, 64 if T > 64 else 32)


def test_one_query_asks_all_keys_of_a_cache():
    for T_k in (1, 33):
        holds(real, 1, T_k, 2, 1, True, 16)


def test_all_keys_are_hidden_from_every_query_of_a_tile():
    holds(real, 20, 2, 1, 1, True, 16)
