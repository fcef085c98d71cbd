"""Masks: each builder is its rule, pair for pair, leaks nothing, and is what FlexAttention makes.

The facts are functions of the module, so that wrong versions of the file can be asked, too.
"""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import snippets.attention_masks
from snippets.attention_masks import alibi_bias, keep_documents, keep_past, keep_window
from tests.snippets.parts import Case, T, heads

SIZES = [(1, 1), (5, 5), (1, 6), (3, 7), (0, 4)]
DOCUMENT = torch.tensor([[5, 5, 5, 2, 2, 7, 7], [0, 0, 0, 0, 0, 0, 0], [1, 2, 3, 3, 3, 3, 4]])
REAL = torch.tensor([[False, False, True, True, True, True, True], [True] * 5 + [False] * 2])


def draw(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def is_rule(keep, queries, keys, rule):
    """Whether a mask, (queries, keys), says what the rule says of each query's and key's place."""
    first = keys - queries
    wanted = [[bool(rule(first + i, j)) for j in range(keys)] for i in range(queries)]
    wanted = torch.tensor(wanted, dtype=torch.bool).view(queries, keys)
    return keep.dtype == torch.bool and torch.equal(keep, wanted)


def the_past_ends_in_the_lower_right_corner(masks):
    for queries, keys in SIZES:
        assert is_rule(masks.keep_past(queries, keys), queries, keys, lambda i, j: j <= i)
    assert is_rule(masks.keep_past(4), 4, 4, lambda i, j: j <= i)


def a_window_counts_the_token_itself(masks):
    for queries, keys in SIZES:
        for window in (1, 2, 4, 9):
            keep = masks.keep_window(window, queries, keys)
            assert is_rule(keep, queries, keys, lambda i, j, w=window: i - w < j <= i)


def a_window_over_a_tree_of_guesses_is_that_of_each_branch_alone(masks):
    """B4. Five tokens are written; 5 and 6 are guesses for position 5, with two more behind each."""
    branches = [5, 7, 8], [6, 9, 10]
    positions = torch.tensor([*range(5), 5, 5, 6, 7, 6, 7])
    tree = torch.zeros(6, 11, dtype=torch.bool)
    for branch in branches:
        for i, row in enumerate(branch):
            tree[row - 5, [*range(5), *branch[: i + 1]]] = True
    query, key, value = draw(3, 2, 2, 11, 4)
    for window in (1, 2, 3, 6):
        shifted = torch.stack([positions, positions + 9])  # as behind padding: the same distances
        for own in (positions, shifted):
            keep = masks.keep_window(window, 6, positions=own)
            assert keep.shape == ((6, 11) if own.dim() == 1 else (2, 1, 6, 11))
            both = keep & tree
            context = F.scaled_dot_product_attention(query[:, :, 5:], key, value, attn_mask=both)
            for branch in branches:
                rows = [*range(5), *branch]
                alone = F.scaled_dot_product_attention(
                    *(x[:, :, rows] for x in (query, key, value)),
                    attn_mask=masks.keep_window(window, 8),
                )
                ours = context[:, :, [row - 5 for row in branch]]
                assert torch.allclose(ours, alone[:, :, 5:], rtol=0, atol=1e-10)
    row_by_row = masks.keep_window(3, 2, positions=torch.arange(5))
    assert torch.equal(row_by_row, masks.keep_window(3, 2, 5))


def sinks_are_the_first_tokens_and_none_to_come(masks):
    for queries, keys in SIZES:
        for sinks in (0, 1, 3):
            keep = masks.keep_sinks(sinks, queries, keys)
            assert is_rule(keep, queries, keys, lambda i, j, s=sinks: j < s and j <= i)


def a_prefix_is_seen_whole_by_all(masks):
    for queries, keys in SIZES:
        keep = masks.keep_prefix(torch.tensor([0, 1, 3]), queries, keys)
        assert keep.shape == (3, 1, queries, keys)
        for one, prefix in zip(keep, (0, 1, 3), strict=True):
            assert is_rule(one[0], queries, keys, lambda i, j, p=prefix: j < p or j <= i)


def padding_is_hidden_as_keys_alone(masks):
    keep = masks.keep_real(REAL)
    assert keep.shape == (2, 1, 1, 7)
    for one, real in zip(keep, REAL.tolist(), strict=True):
        assert is_rule(one[0].expand(7, 7), 7, 7, lambda i, j, real=real: real[j])


def documents_see_themselves(masks):
    for queries in (None, 7, 2):
        keep, asking = masks.keep_documents(DOCUMENT, queries), queries or 7
        assert keep.shape == (3, 1, asking, 7)
        for one, row in zip(keep, DOCUMENT.tolist(), strict=True):
            assert is_rule(one[0], asking, 7, lambda i, j, row=row: row[i] == row[j])


def places_begin_again_with_each_document(masks):
    wanted = [[0, 1, 2, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 2, 3, 0]]
    assert masks.restart_positions(DOCUMENT).tolist() == wanted
    again = torch.tensor([[1, 1, 0, 0, 1]])  # a number may come back: a document is a run
    assert masks.restart_positions(again).tolist() == [[0, 1, 0, 1, 0]]


def only_empty_rows_get_themselves(masks):
    keep = masks.keep_window(2, 7) & masks.keep_real(REAL)
    mended = masks.keep_itself_at_least(keep)
    empty = ~keep.any(dim=-1)
    assert empty.sum(dim=(1, 2)).tolist() == [2, 1]
    assert torch.equal(mended[~empty], keep[~empty])
    assert torch.equal(mended[empty], torch.eye(7, dtype=torch.bool).expand(2, 1, 7, 7)[empty])
    behind = masks.keep_itself_at_least(torch.zeros(2, 5, dtype=torch.bool))
    assert is_rule(behind, 2, 5, lambda i, j: i == j)


def slopes_are_those_of_the_paper(masks):
    assert masks.alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert masks.alibi_slopes(16)[:3].tolist() == pytest.approx([2**-0.5, 2**-1, 2**-1.5])
    assert masks.alibi_slopes(1).tolist() == [2.0**-8]
    # Six heads: the four of 4, then the first and the third of 8.
    assert masks.alibi_slopes(6).tolist() == [0.25, 0.0625, 2.0**-6, 2.0**-8, 0.5, 0.125]


def alibi_takes_a_slope_off_for_each_place(masks):
    for queries, keys in SIZES:
        bias = masks.alibi_bias(4, queries, keys)
        assert bias.shape == (4, queries, keys)
        for head, slope in enumerate(masks.alibi_slopes(4).tolist()):
            for i in range(queries):
                wanted = [-slope * abs(keys - queries + i - j) for j in range(keys)]
                assert bias[head, i].tolist() == pytest.approx(wanted)
    zero = masks.alibi_bias(2, 3)[:, range(3), range(3)]
    assert (zero == 0).all()
    assert not zero.signbit().any()  # it prints as 0, and not as -0


def every(masks):
    """Return masks of 7 tokens by name, with the queries whose future they may see."""
    past, prefix = masks.keep_past(7), torch.tensor([3, 0])
    return {
        "past": (past, 0),
        "window": (masks.keep_window(3, 7), 0),
        "window and sinks": (masks.keep_window(3, 7) | masks.keep_sinks(2, 7), 0),
        "prefix": (masks.keep_prefix(prefix, 7), 3),
        "documents": (past & masks.keep_documents(DOCUMENT[:2]), 0),
        "padded": (past & masks.keep_real(REAL), 0),
        "window, padded, never empty": (
            masks.keep_itself_at_least(masks.keep_window(2, 7) & masks.keep_real(REAL)),
            0,
        ),
    }


def the_last_token_cannot_change_the_past(masks):
    query, key, value = draw(3, 2, 3, 7, 4)
    for name, (keep, _) in every(masks).items():
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=keep)
        for t in range(1, 7):
            changed = [x.clone() for x in (query, key, value)]
            for x in changed:
                x[..., t:, :] += 1.0
            result = F.scaled_dot_product_attention(*changed, attn_mask=keep)
            if name != "prefix" or t >= 3:
                assert torch.equal(result[..., :t, :], context[..., :t, :]), name


def a_packed_row_is_its_documents_one_by_one(masks):
    query, key, value = draw(3, 3, 2, 7, 4)
    keep = masks.keep_past(7) & masks.keep_documents(DOCUMENT)
    packed = F.scaled_dot_product_attention(query, key, value, attn_mask=keep)
    for row, numbers in enumerate(DOCUMENT.tolist()):
        for number in set(numbers):
            its = torch.tensor([n == number for n in numbers])
            alone = F.scaled_dot_product_attention(
                *(x[row, :, its] for x in (query, key, value)), is_causal=True
            )
            assert torch.allclose(packed[row, :, its], alone, rtol=0, atol=1e-10)


FACTS = [
    thing
    for thing in list(vars().values())
    if inspect.isfunction(thing)
    and list(inspect.signature(thing).parameters) == ["masks"]
    and thing.__name__ != "every"
]

WRONG = {
    "the upper left corner": (
        "return tokens[..., keys - queries :]",
        "return tokens[..., :queries]",
    ),
    "inverted": (
        "return place <= _asking",
        "return place > _asking",
    ),
    "cannot see itself": (
        "return place <= _asking",
        "return place < _asking",
    ),
    "a window one too wide": ("queries - window + 1)", "queries - window)"),
    "a window that does not count itself": (
        "keep.triu_(keep.size(1) - queries - window + 1)",
        "keep.tril_(keep.size(1) - queries - 1).triu_(keep.size(1) - queries - window)",
    ),
    "a window on both sides": (
        "keep.triu_(keep.size(1) - queries - window + 1)",
        "keep.fill_(True).triu_(keep.size(1) - queries - window + 1).tril_(keep.size(1) - queries + window - 1)",
    ),
    "sinks to come": (
        "keep[:, sinks:] = False",
        "keep[:, :sinks], keep[:, sinks:] = True, False",
    ),
    "one sink more": ("keep[:, sinks:]", "keep[:, sinks + 1 :]"),
    "the prefix asks, and is not seen": (
        "past | (place < prefix[:, None, None, None])",
        "past | (place[:, None] < prefix[:, None, None, None])",
    ),
    "the prefix and nothing else": ("past | (place", "past & (place"),
    "padding hidden as queries": ("real[:, None, None, :]", "real[:, None, :, None]"),
    "padding kept": ("return real[:", "return ~real[:"),
    "other documents": ("document[:, None, :])[:, None]", "document[:, None, :] + 1)[:, None]"),
    "rows for positions": ("positions[..., None, :]", "torch.arange(positions.size(-1))"),
    "a window of positions, one too wide": ("(seen > asks - window)", "(seen >= asks - window)"),
    "a window of positions that knows no past": ("(seen <= asks) & (seen", "(seen"),
    "one text's positions for all": ("else keep[:, None]", "else keep[:1, None]"),
    "texts where heads stand": ("else keep[:, None]", "else keep"),
    "places go on": ("return place - (place * begins).cummax(dim=1).values", "return place"),
    "places from 1": ("return place - (place", "return place + 1 - (place"),
    "all rows see themselves": (
        "(itself & ~keep.any(dim=-1, keepdim=True))",
        "itself",
    ),
    "an empty row sees all": ("(itself & ~keep", "(~keep"),
    "slopes one too steep": ("2 ** (-8 * (i + 1) / power)", "2 ** (-8 * i / power)"),
    "the odd slopes twice": ("(-4 * (2 * i + 1) / power)", "(-8 * (i + 1) / power)"),
    "a reward for distance": ("* -distance", "* distance"),
    "the future is near": (
        "(place - _asking(place, queries)[:, None]).abs()",
        "(_asking(place, queries)[:, None] - place)",
    ),
    "zeros with a sign": (
        "return alibi_slopes(num_heads, device=device)[:, None, None] * -distance",
        "return -alibi_slopes(num_heads, device=device)[:, None, None] * distance",
    ),
}


CASES = {
    "past and documents": Case(
        lambda _, *x: F.scaled_dot_product_attention(
            *x,
            keep_past(T, device=x[0].device)
            & keep_documents(torch.arange(T, device=x[0].device)[None] // 100),
        ),
        heads,
    ),
    "ALiBi": Case(
        lambda _, q, k, v: F.scaled_dot_product_attention(
            q,
            k,
            v,
            alibi_bias(4, T, device=q.device)
            .masked_fill(~keep_past(T, device=q.device), -math.inf)
            .to(q.dtype),
        ),
        heads,
    ),
}

MIB = {  # a byte for each pair, and no other mask beside it
    "keep_past": (256, lambda x: lambda: keep_past(len(x))),
    "keep_window": (256, lambda x: lambda: keep_window(1024, len(x))),
    "keep_sinks": (256, lambda x: lambda: snippets.attention_masks.keep_sinks(4, len(x))),
}


@given(st.integers(1, 4), st.integers(1, 6), st.integers(2, 5))
def test_a_stack_of_windows_hears_layers_times_width_less_one_and_itself(layers, window, seed):
    reach = torch.eye(30)
    for _ in range(layers):
        reach = keep_window(window, 30).float() @ reach
    assert (reach[-1] > 0).sum() == min(30, layers * (window - 1) + 1)


def test_one_head_without_positions_has_no_preference_and_alibi_gives_it_one():
    even = torch.zeros(1, 2, 6, 4)
    bias = alibi_bias(2, 6).masked_fill(~keep_past(6), -math.inf)
    weights = F.scaled_dot_product_attention(even, even, torch.eye(6).expand(1, 2, 6, 6), bias)[0]
    assert (weights[:, -1].diff(dim=-1) > 0).all()
    ratio = weights[0, -1, 4] / weights[0, -1, 3]
    assert ratio.item() == pytest.approx(math.exp(2**-4))


@pytest.mark.lab
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("name", [*every(snippets.attention_masks), "ALiBi"])
def test_flex_attention_gives_the_same(name):
    """Outputs only: in PyTorch 2.13 it has no backward pass on a processor."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    document, real, prefix = DOCUMENT[:2], REAL, torch.tensor([3, 0])
    slopes = snippets.attention_masks.alibi_slopes(3)
    rules = {
        "past": lambda b, h, i, j: j <= i,
        "window": lambda b, h, i, j: (j <= i) & (i - j < 3),
        "window and sinks": lambda b, h, i, j: (j <= i) & ((i - j < 3) | (j < 2)),
        "prefix": lambda b, h, i, j: (j <= i) | (j < prefix[b]),
        "documents": lambda b, h, i, j: (j <= i) & (document[b, i] == document[b, j]),
        "padded": lambda b, h, i, j: (j <= i) & real[b, j],
        "ALiBi": lambda b, h, i, j: j <= i,
    }
    rules["window, padded, never empty"] = lambda b, h, i, j: (
        (j <= i)
        & (i - j < 2)
        & (real[b, j] | ((i == j) & ~(real[b, j] | real[b, (j - 1).clamp(0)])))
    )
    score_mod = None
    if name == "ALiBi":
        keep = alibi_bias(3, 7).masked_fill(~keep_past(7), -math.inf)
        score_mod = lambda score, b, h, i, j: score - slopes[h] * (i - j)  # noqa: E731
    else:
        keep = every(snippets.attention_masks)[name][0]
    query, key, value = draw(3, 2, 3, 7, 8, dtype=torch.float32)
    blocks = create_block_mask(rules[name], 2, None, 7, 7, device="cpu")
    result = flex_attention(query, key, value, score_mod, blocks)
    wanted = F.scaled_dot_product_attention(query, key, value, attn_mask=keep)
    assert torch.allclose(result, wanted, rtol=0, atol=1e-5)


MISREAD = {
    "more queries than keys": lambda masks: masks.keep_past(5, 4),
    "more queries than documents": lambda masks: masks.keep_documents(DOCUMENT, 8),
    "fewer than no queries": lambda masks: masks.keep_documents(DOCUMENT, -1),
    "a window of nothing": lambda masks: masks.keep_window(0, 4),
    "sinks from the end": lambda masks: masks.keep_sinks(-1, 4),
    "zeros and ones, which would be added": lambda masks: masks.keep_real(REAL.float()),
}


@pytest.mark.parametrize("what", MISREAD)
def test_what_would_be_misread_is_refused(what):
    with pytest.raises(ValueError, match="must be"):
        MISREAD[what](snippets.attention_masks)
