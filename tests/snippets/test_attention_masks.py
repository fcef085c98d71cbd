"""Masks: each builder is its rule, pair for pair, where the queries are the last of the keys."""

import math

import pytest
import torch
import torch.nn.functional as F

from snippets.attention_masks import (
    alibi_bias,
    keep_documents,
    keep_past,
    keep_sinks,
    keep_window,
)
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, T, heads

SIZES = [(1, 1), (5, 5), (1, 6), (3, 7), (0, 4)]
DOCUMENT = torch.tensor([[5, 5, 5, 2, 2, 7, 7], [0, 0, 0, 0, 0, 0, 0], [1, 2, 3, 3, 3, 3, 4]])
REAL = torch.tensor([[False, False, True, True, True, True, True], [True] * 5 + [False] * 2])


def is_rule(keep, queries, keys, rule):
    """Whether a mask, (queries, keys), says what the rule says of each query's and key's place."""
    first = keys - queries
    wanted = [[bool(rule(first + i, j)) for j in range(keys)] for i in range(queries)]
    return keep.dtype == torch.bool and keep.shape == (queries, keys) and keep.tolist() == wanted


def test_the_past_ends_in_the_lower_right_corner(part):
    for queries, keys in SIZES:
        assert is_rule(part.keep_past(queries, keys), queries, keys, lambda i, j: j <= i)


def test_a_window_counts_the_token_itself(part):
    for queries, keys in SIZES:
        for window in (1, 2, 4, 9):
            keep = part.keep_window(window, queries, keys)
            assert is_rule(keep, queries, keys, lambda i, j, w=window: i - w < j <= i)


def test_a_window_over_a_tree_of_guesses_goes_by_the_position_of_each(part):
    """Five tokens are written; two are guesses for position 5, with two more behind each."""
    tree = torch.tensor([*range(5), 5, 5, 6, 7, 6, 7])
    for positions in (tree, torch.stack([tree, tree + 9, tree.flip(0)])):
        for window in (1, 2, 6):
            keep = part.keep_window(window, 6, positions=positions)
            rows = positions[None] if positions.dim() == 1 else positions
            assert keep.shape == ((6, 11) if positions.dim() == 1 else (3, 1, 6, 11))
            for one, own in zip(keep.view(-1, 6, 11), rows.tolist(), strict=True):
                assert is_rule(one, 6, 11, lambda i, j, w=window, p=own: p[i] - w < p[j] <= p[i])


def test_sinks_are_the_first_tokens_and_none_to_come(part):
    for queries, keys in SIZES:
        for sinks in (0, 1, 3):
            keep = part.keep_sinks(sinks, queries, keys)
            assert is_rule(keep, queries, keys, lambda i, j, s=sinks: j < s and j <= i)


def test_a_prefix_is_seen_whole_by_all(part):
    for queries, keys in SIZES:
        keep = part.keep_prefix(torch.tensor([0, 1, 3]), queries, keys)
        assert keep.shape == (3, 1, queries, keys)
        for one, prefix in zip(keep, (0, 1, 3), strict=True):
            assert is_rule(one[0], queries, keys, lambda i, j, p=prefix: j < p or j <= i)


def test_padding_is_hidden_as_keys_alone(part):
    assert part.keep_real(REAL).tolist() == [[[row]] for row in REAL.tolist()]


def test_documents_see_themselves(part):
    for keep, asking in (
        (part.keep_documents(DOCUMENT), 7),
        (part.keep_documents(DOCUMENT, 2), 2),
    ):
        assert keep.shape == (3, 1, asking, 7)
        for one, row in zip(keep, DOCUMENT.tolist(), strict=True):
            assert is_rule(one[0], asking, 7, lambda i, j, row=row: row[i] == row[j])


def test_places_begin_again_with_each_document(part):
    wanted = [[0, 1, 2, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 2, 3, 0]]
    assert part.restart_positions(DOCUMENT).tolist() == wanted
    again = torch.tensor([[1, 1, 0, 0, 1]])  # a number may come back: a document is a run
    assert part.restart_positions(again).tolist() == [[0, 1, 0, 1, 0]]


def test_only_empty_rows_get_themselves(part):
    keep = torch.tensor([[True, False, False, False], [False] * 4, [False, True, True, False]])
    behind = part.keep_itself_at_least(keep)  # of four keys the queries are the last three
    assert behind.tolist() == [keep[0].tolist(), [False, False, True, False], keep[2].tolist()]
    assert part.keep_itself_at_least(keep[None, None]).tolist() == [[behind.tolist()]]


def test_slopes_are_those_of_the_paper(part):
    assert part.alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert part.alibi_slopes(16)[:3].tolist() == pytest.approx([2**-0.5, 2**-1, 2**-1.5])
    assert part.alibi_slopes(1).tolist() == [2.0**-8]
    # Six heads: the four of 4, then the first and the third of 8.
    assert part.alibi_slopes(6).tolist() == [0.25, 0.0625, 2.0**-6, 2.0**-8, 0.5, 0.125]


def test_alibi_takes_a_slope_off_for_each_place(part):
    for queries, keys in SIZES:
        bias = part.alibi_bias(4, queries, keys)
        assert bias.shape == (4, queries, keys)
        for head, slope in enumerate(part.alibi_slopes(4).tolist()):
            for i in range(queries):
                wanted = [-slope * abs(keys - queries + i - j) for j in range(keys)]
                assert bias[head, i].tolist() == pytest.approx(wanted)
    zero = part.alibi_bias(2, 3)[:, range(3), range(3)]
    assert (zero == 0).all()
    assert not zero.signbit().any()  # it prints as 0, and not as -0


def test_what_would_be_misread_is_refused(part):
    refuses("more queries than keys", part.keep_past, 5, 4)
    refuses("more queries than documents", part.keep_documents, DOCUMENT, 8)
    refuses("fewer than no queries", part.keep_documents, DOCUMENT, -1)
    refuses("a window of nothing", part.keep_window, 0, 4)
    refuses("sinks from the end", part.keep_sinks, -1, 4)
    refuses("zeros and ones, which would be added", part.keep_real, REAL.float())


WINDOW = "keep.triu_(keep.size(1) - queries - window + 1)"
WRONG = {
    "the upper left corner": (
        "return tokens[..., keys - queries :]",
        "return tokens[..., :queries]",
    ),
    "a window on both sides": (
        WINDOW,
        f"keep.fill_(True).{WINDOW[5:]}.tril_(keep.size(1) - queries + window - 1)",
    ),
    "rows for positions": ("positions[..., None, :]", "torch.arange(positions.size(-1))"),
    "padding hidden as queries": ("real[:, None, None, :]", "real[:, None, :, None]"),
    "places go on": ("return place - (place * begins).cummax(dim=1).values", "return place"),
    "the odd slopes twice": ("(-4 * (2 * i + 1) / power)", "(-8 * (i + 1) / power)"),
}


def past_and_documents(_, *x):
    """Documents of a hundred tokens."""
    place = torch.arange(T, device=x[0].device)[None]
    keep = keep_past(T, device=x[0].device) & keep_documents(place // 100)
    return F.scaled_dot_product_attention(*x, keep)


def alibi(_, query, key, value):
    """Distances, and nothing to come."""
    past = keep_past(T, device=query.device)
    bias = alibi_bias(4, T, device=query.device).masked_fill(~past, -math.inf)
    return F.scaled_dot_product_attention(query, key, value, bias.to(query.dtype))


CASES = {"past and documents": Case(past_and_documents, heads), "ALiBi": Case(alibi, heads)}
MIB = {  # a byte for each pair, and no other mask beside it
    "keep_past": (256, lambda x: lambda: keep_past(len(x))),
    "keep_window": (256, lambda x: lambda: keep_window(1024, len(x))),
    "keep_sinks": (256, lambda x: lambda: keep_sinks(4, len(x))),
}
