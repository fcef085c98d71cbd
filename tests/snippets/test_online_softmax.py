"""Parts of the keys, attended to apart and merged, are attention, gradients too."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from snippets import online_softmax as REAL
from tests.snippets.parts import Case, T, heads, wide

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def leaves(leading=(2,), T_q=3, T_k=7, head_dim=4, value_dim=5, dtype=torch.float64, seed=0):
    """Return a random query, key and value that ask for gradients."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((T_q, head_dim), (T_k, head_dim), (T_k, value_dim))
    return [
        torch.randn(*leading, *shape, generator=generator, dtype=torch.float64)
        .to(dtype)
        .requires_grad_()
        for shape in shapes
    ]


def in_parts(module, query, key, value, mask, ends):
    """Attend to the keys up to each of `ends` in turn, and return the parts."""
    parts, start = [], 0
    for end in ends:
        columns = None if mask is None else mask[..., start:end]
        parts.append(
            module.attend_part(query, key[..., start:end, :], value[..., start:end, :], columns)
        )
        start = end
    return parts


def merged(module, parts, seed=0):
    """Merge the parts two by two, along a random tree."""
    generator = torch.Generator().manual_seed(seed)
    while len(parts) > 1:
        i, j = torch.randperm(len(parts), generator=generator)[:2].tolist()
        rest = [part for k, part in enumerate(parts) if k not in (i, j)]
        parts = [*rest, module.merge(parts[i], parts[j])]
    return parts[0]


def oracle(query, key, value, mask):
    """PyTorch's operator, with context 0 for a query that sees no key."""
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    some = mask.any(dim=-1, keepdim=True)
    return F.scaled_dot_product_attention(query, key, value, mask | ~some).masked_fill(~some, 0.0)


def gradients(output, inputs, seed=1):
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return torch.autograd.grad(output, inputs, direction.to(output.dtype))


CAUSAL = torch.ones(3, 7, dtype=torch.bool).tril()
EMPTY_ROW = torch.tensor([[True] * 7, [False] * 7, [False] * 6 + [True]])
MASKS = {"no mask": None, "causal": CAUSAL, "a row without keys": EMPTY_ROW}


def trees_give_the_whole(module, mask, dtype=torch.float64, ends=(2, 2, 3, 6, 7)):
    inputs, tolerance = leaves(dtype=dtype), TOLERANCE[dtype]
    for seed in range(5):
        wanted = oracle(*inputs, mask)
        result = merged(module, in_parts(module, *inputs, mask, ends), seed).context()
        torch.testing.assert_close(result, wanted, atol=tolerance, rtol=0)
        pairs = zip(gradients(result, inputs), gradients(wanted, inputs), strict=True)
        for ours, theirs in pairs:
            torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


def random_trees_of_merges_give_attention_and_its_gradients(module):
    for mask in MASKS.values():
        trees_give_the_whole(module, mask)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_in_float32_too(mask):
    trees_give_the_whole(REAL, mask, torch.float32)


@given(
    leading=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    ends=st.lists(st.integers(0, 9), max_size=6).map(sorted),
    T_q=st.integers(0, 4),
    value_dim=st.integers(1, 4),
    share=st.sampled_from([0.0, 0.3, 0.8]),
    size=st.sampled_from([1.0, 100.0, 1e4]),
    seed=st.integers(0, 1000),
)
def test_any_cut_and_any_tree_is_attention(leading, ends, T_q, value_dim, share, size, seed):
    query, key, value = leaves(leading, T_q, 9, 4, value_dim, seed=seed)
    mask = torch.rand(T_q, 9, generator=torch.Generator().manual_seed(seed)) >= share
    parts = in_parts(REAL, size * query, key, value, mask, [*ends, 9])
    wanted = oracle(size * query, key, value, mask)
    result = merged(REAL, parts, seed).context()
    torch.testing.assert_close(result, wanted, atol=1e-10 * max(1.0, size / 100), rtol=0)


def an_empty_part_changes_nothing(module):
    """The identity, bit for bit: no keys at all, or none that may be seen."""
    query, key, value = leaves()
    part = module.attend_part(query, key, value)
    hidden = torch.zeros(3, 7, dtype=torch.bool)
    for nothing in (
        module.attend_part(query, key[..., :0, :], value[..., :0, :]),
        module.attend_part(query, key, value, hidden),
    ):
        assert (nothing.maximum == -torch.inf).all()
        for both in (module.merge(part, nothing), module.merge(nothing, part)):
            for result, wanted in zip(both, part, strict=True):
                assert torch.equal(result, wanted)
        twice = module.merge(nothing, nothing)
        assert torch.equal(twice.context(), torch.zeros_like(twice.weighted))
        assert (twice.logsumexp() == -torch.inf).all()


def a_row_without_keys_has_gradients_of_zero_and_no_nan(module):
    inputs = leaves()
    d_query, d_key, d_value = gradients(
        merged(module, in_parts(module, *inputs, EMPTY_ROW, (3, 7))).context(), inputs
    )
    assert (d_query[:, 1] == 0).all()
    assert all(gradient.isfinite().all() for gradient in (d_query, d_key, d_value))


def merging_commutes(module):
    parts = in_parts(module, *leaves(), None, (3, 7))
    for one, other in zip(module.merge(*parts), module.merge(*parts[::-1]), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def scores_of_ten_thousand_are_right_gradients_too(module):
    large_scores_stay_right(module, 1.0)
    large_scores_stay_right(module, 1000.0)


def large_scores_stay_right(module, spread):
    """Scores of up to ±1e4, in float32: whole numbers, so that products are exact."""
    generator = torch.Generator().manual_seed(0)
    for offset in (1e4, -1e4) if spread == 1.0 else (0.0,):
        query, key = torch.randint(-3, 4, (2, 6, 4), generator=generator).float()
        query[:, 0], key[:, 0] = 1.0, offset
        value = torch.randn(6, 3, generator=generator)
        inputs = [tensor.requires_grad_() for tensor in (query, key, value)]
        parts = [
            module.attend_part(query, key[a:b], value[a:b], scale=spread)
            for a, b in ((0, 1), (1, 5), (5, 6))
        ]
        result = merged(module, parts).context()
        exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
        wanted = F.scaled_dot_product_attention(*exact, scale=spread)
        torch.testing.assert_close(result.double(), wanted, atol=1e-5, rtol=0)
        for ours, theirs in zip(gradients(result, inputs), gradients(wanted, exact), strict=True):
            assert ours.isfinite().all()
            # What rounding leaves of a weight, 1e-7, d_query multiplies by the scale and the keys.
            allowed = 1e-5 * spread * max(1.0, abs(offset))
            torch.testing.assert_close(ours.double(), theirs, atol=allowed, rtol=0)


def a_kernels_results_can_be_merged(module):
    """Contexts and logsumexps, as kernels hand them over, carry the gradients of both."""
    inputs = leaves()
    parts = in_parts(module, *inputs, EMPTY_ROW, (3, 5, 7))
    handed = [module.from_context(part.context(), part.logsumexp()) for part in parts]
    result, wanted = merged(module, handed).context(), oracle(*inputs, EMPTY_ROW)
    torch.testing.assert_close(result, wanted, atol=1e-10, rtol=0)
    result, wanted = merged(module, handed).context()[:, 0], oracle(*inputs, EMPTY_ROW)[:, 0]
    for ours, theirs in zip(gradients(result, inputs), gradients(wanted, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def the_logsumexp_is_right(module):
    query, key, value = leaves()
    whole = merged(module, in_parts(module, query, key, value, None, (2, 7)))
    wanted = torch.logsumexp(query @ key.mT / 2, dim=-1)
    torch.testing.assert_close(whole.logsumexp(), wanted, atol=1e-10, rtol=0)
    for ours, theirs in zip(
        gradients(whole.logsumexp(), (query, key)), gradients(wanted, (query, key)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def test_gradcheck_passes_through_a_merge():
    def attend(*inputs):
        return merged(REAL, in_parts(REAL, *inputs, CAUSAL, (2, 7))).context()

    assert gradcheck(attend, leaves())


def a_later_key_cannot_change_an_earlier_query(module):
    query, key, value = (tensor.detach() for tensor in leaves(leading=(), T_q=6, T_k=6))
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    before = merged(module, in_parts(module, query, key, value, mask, (2, 6))).context()
    key[-1], value[-1] = 7.0, -9.0
    after = merged(module, in_parts(module, query, key, value, mask, (2, 6))).context()
    assert torch.equal(before[:-1], after[:-1])
    assert not torch.equal(before[-1], after[-1])


@pytest.mark.lab
def test_works_under_compile_and_vmap():
    query, key, value = (tensor.detach() for tensor in leaves())

    def attend(query, key, value):
        one, other = in_parts(REAL, query, key, value, None, (2, 7))
        return REAL.merge(one, other).context()

    compiled = torch.compile(attend, backend="eager")
    torch.testing.assert_close(compiled(query, key, value), attend(query, key, value))
    torch.testing.assert_close(torch.vmap(attend)(query, key, value), attend(query, key, value))


MISREAD = {
    "one mask for each text, beside heads": lambda part: part.attend_part(
        *(leaf[:, None] for leaf in leaves()), torch.ones(2, 3, 7, dtype=torch.bool)
    ),
    "a mask without queries": lambda part: part.attend_part(*leaves(), torch.ones(7) > 0),
    "numbers to add": lambda part: part.attend_part(*leaves(), torch.zeros(3, 7)),
    "a logsumexp as wide as keepdim leaves it": lambda part: part.from_context(
        torch.zeros(2, 3, 5), torch.zeros(2, 3, 1)
    ),
}


@pytest.mark.parametrize("what", MISREAD)
def test_what_would_be_misread_is_refused(what):
    with pytest.raises(ValueError, match="must be"):
        MISREAD[what](REAL)


FACTS = [
    random_trees_of_merges_give_attention_and_its_gradients,
    an_empty_part_changes_nothing,
    a_row_without_keys_has_gradients_of_zero_and_no_nan,
    merging_commutes,
    scores_of_ten_thousand_are_right_gradients_too,
    a_kernels_results_can_be_merged,
    the_logsumexp_is_right,
    a_later_key_cannot_change_an_earlier_query,
]
WRONG = {
    "the values are not rescaled": ("part.weighted * factor[..., None]", "part.weighted"),
    "the sum is not rescaled": ("part.total * factor", "part.total"),
    "outputs are averaged": (
        "return Partial(maximum, total, weighted)",
        "return from_context((first.context() + second.context()) / 2, maximum + total.log())",
    ),
    "-inf minus -inf": ("return maximum.masked_fill(maximum == -torch.inf, 0.0)", "return maximum"),
    "the smaller maximum": (
        "maximum = torch.maximum(first.maximum, second.maximum)",
        "maximum = torch.minimum(first.maximum, second.maximum)",
    ),
    "no maximum at all": (".amax(dim=-1).detach()", ".amax(dim=-1).detach() * 0"),
    "divided by nothing": (
        "self.total.masked_fill(self.total == 0, 1.0)[..., None]",
        "self.total[..., None]",
    ),
    "the scale is forgotten": ("(query * scale) @ key.mT", "query @ key.mT"),
    "the mask is turned round": ("~attn_mask, -torch.inf", "attn_mask, -torch.inf"),
    "the maximum of all rows": (
        "torch.cat([scores, lowest], dim=-1).amax(dim=-1)",
        "scores.amax((-2, -1))[..., None].expand(scores.shape[:-1])",
    ),
    "the logsumexp without the maximum": ("self.maximum + self.total.log()", "self.total.log()"),
    "the gradient of the logsumexp is lost": (
        "total = torch.exp(logsumexp - _finite(maximum))",
        "total = torch.exp(maximum - _finite(maximum))",
    ),
}


def one_after_the_other(_, query, key, value):
    """Attention to one key after the other, merged: T sums in a row."""
    total = REAL.attend_part(query, key[..., :1, :], value[..., :1, :])
    for i in range(1, T):
        new = REAL.attend_part(query, key[..., i : i + 1, :], value[..., i : i + 1, :])
        total = REAL.merge(total, new)
    return total.context(), total.logsumexp()


CASES = {
    "one key after the other": Case(
        one_after_the_other, lambda: heads(2, 2), returns=wide, roundings=32
    )
}
MIB = {  # a sixteenth of the keys: three tensors as large as their scores
    "attend_part": (
        192,
        lambda x: lambda: REAL.attend_part(x, x[: len(x) // 16], x[: len(x) // 16]),
    ),
}
