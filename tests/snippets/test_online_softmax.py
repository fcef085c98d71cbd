"""Parts of the keys, attended to apart and merged, are attention; the checks that say so can fail."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from snippets import online_softmax
from tests.snippets.problems import edited

REAL = edited("online_softmax")
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


def random_trees_give_the_whole(module, mask=None, dtype=torch.float64, ends=(2, 2, 3, 6, 7)):
    inputs, tolerance = leaves(dtype=dtype), TOLERANCE[dtype]
    for seed in range(5):
        wanted = oracle(*inputs, mask)
        result = merged(module, in_parts(module, *inputs, mask, ends), seed).context()
        torch.testing.assert_close(result, wanted, atol=tolerance, rtol=0)
        pairs = zip(gradients(result, inputs), gradients(wanted, inputs), strict=True)
        for ours, theirs in pairs:
            torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


CAUSAL = torch.ones(3, 7, dtype=torch.bool).tril()
EMPTY_ROW = torch.tensor([[True] * 7, [False] * 7, [False] * 6 + [True]])
MASKS = {"no mask": None, "causal": CAUSAL, "a row without keys": EMPTY_ROW}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_random_trees_of_merges_give_attention_and_its_gradients(mask, dtype):
    random_trees_give_the_whole(REAL, mask, dtype)


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


def test_an_empty_part_is_the_identity():
    an_empty_part_changes_nothing(REAL)


def test_a_row_without_keys_has_gradients_of_zero_and_no_nan():
    inputs = leaves()
    d_query, d_key, d_value = gradients(
        merged(REAL, in_parts(REAL, *inputs, EMPTY_ROW, (3, 7))).context(), inputs
    )
    assert (d_query[:, 1] == 0).all()
    assert all(gradient.isfinite().all() for gradient in (d_query, d_key, d_value))


def merging_commutes(module):
    parts = in_parts(module, *leaves(), None, (3, 7))
    for one, other in zip(module.merge(*parts), module.merge(*parts[::-1]), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_merging_commutes():
    merging_commutes(REAL)


def large_scores_stay_right(module, spread=1.0):
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


def test_scores_of_ten_thousand_are_right_gradients_too():
    large_scores_stay_right(REAL)
    large_scores_stay_right(REAL, spread=1000.0)


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


def test_a_kernels_context_and_logsumexp_can_be_merged():
    a_kernels_results_can_be_merged(REAL)


def the_logsumexp_is_right(module):
    query, key, value = leaves()
    whole = merged(module, in_parts(module, query, key, value, None, (2, 7)))
    wanted = torch.logsumexp(query @ key.mT / 2, dim=-1)
    torch.testing.assert_close(whole.logsumexp(), wanted, atol=1e-10, rtol=0)
    for ours, theirs in zip(
        gradients(whole.logsumexp(), (query, key)), gradients(wanted, (query, key)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def test_the_logsumexp_and_its_gradient_are_pytorchs():
    the_logsumexp_is_right(REAL)


def test_gradcheck_passes_through_a_merge():
    def attend(*inputs):
        return merged(REAL, in_parts(REAL, *inputs, CAUSAL, (2, 7))).context()

    assert gradcheck(attend, leaves())


def test_a_later_key_cannot_change_an_earlier_query():
    query, key, value = (tensor.detach() for tensor in leaves(leading=(), T_q=6, T_k=6))
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    before = merged(REAL, in_parts(REAL, query, key, value, mask, (2, 6))).context()
    key[-1], value[-1] = 7.0, -9.0
    after = merged(REAL, in_parts(REAL, query, key, value, mask, (2, 6))).context()
    assert torch.equal(before[:-1], after[:-1])
    assert not torch.equal(before[-1], after[-1])


@pytest.mark.lab
def test_works_under_compile_and_vmap():
    query, key, value = (tensor.detach() for tensor in leaves())

    def attend(query, key, value):
        one, other = in_parts(online_softmax, query, key, value, None, (2, 7))
        return online_softmax.merge(one, other).context()

    compiled = torch.compile(attend, backend="eager")
    torch.testing.assert_close(compiled(query, key, value), attend(query, key, value))
    torch.testing.assert_close(torch.vmap(attend)(query, key, value), attend(query, key, value))


BAD = {
    "query": lambda q, k, v: (q[0, 0], k, v),
    "key": lambda q, k, v: (q, k[..., :1], v),
    "value": lambda q, k, v: (q, k, v[:, :2]),
    "attn_mask must be boolean": lambda q, k, v: (q, k, v, torch.zeros(3, 7)),
    "attn_mask must have shape": lambda q, k, v: (q, k, v, torch.ones(7) > 0),
    "attn_mask must have shape (?=.*mask\\[:, None\\])": lambda q, k, v: (
        *(part[:1, None].expand(2, 2, -1, -1) for part in (q, k, v)),
        torch.ones(2, 1, 1) > 0,
    ),
}


@pytest.mark.parametrize("named", BAD)
def test_a_bad_argument_is_named(named):
    with pytest.raises(ValueError, match=f"^{named}.*got"):
        REAL.attend_part(*BAD[named](*leaves()))


def test_a_logsumexp_of_another_shape_is_named():
    with pytest.raises(ValueError, match=r"^logsumexp must .* \(2, 3\): got shape \(3,\)"):
        REAL.from_context(torch.zeros(2, 3, 5), torch.zeros(3))


FACTS = {
    "random trees": random_trees_give_the_whole,
    "random trees, masked": lambda module: random_trees_give_the_whole(module, EMPTY_ROW),
    "empty": an_empty_part_changes_nothing,
    "commutes": merging_commutes,
    "large": large_scores_stay_right,
    "spread": lambda module: large_scores_stay_right(module, 1000.0),
    "kernel": a_kernels_results_can_be_merged,
    "logsumexp": the_logsumexp_is_right,
}
WRONG = {
    "the values are not rescaled": (
        "part.weighted * factor[..., None]",
        "part.weighted",
        "random trees",
    ),
    "the sum is not rescaled": ("part.total * factor", "part.total", "random trees"),
    "outputs are averaged": (
        "return Partial(maximum, total, weighted)",
        "return from_context((first.context() + second.context()) / 2, maximum + total.log())",
        "random trees",
    ),
    "-inf minus -inf": (
        "return maximum.masked_fill(maximum == -torch.inf, 0.0)",
        "return maximum",
        "empty",
    ),
    "the smaller maximum": (
        "maximum = torch.maximum(first.maximum, second.maximum)",
        "maximum = torch.minimum(first.maximum, second.maximum)",
        "spread",
    ),
    "no maximum at all": (".amax(dim=-1).detach()", ".amax(dim=-1).detach() * 0", "large"),
    "divided by nothing": (
        "self.total.masked_fill(self.total == 0, 1.0)[..., None]",
        "self.total[..., None]",
        "empty",
    ),
    "the scale is forgotten": ("(query * scale) @ key.mT", "query @ key.mT", "random trees"),
    "the mask is turned round": (
        "~attn_mask, -torch.inf",
        "attn_mask, -torch.inf",
        "random trees, masked",
    ),
    "the maximum of all rows": (
        "torch.cat([scores, lowest], dim=-1).amax(dim=-1)",
        "scores.amax((-2, -1))[..., None].expand(scores.shape[:-1])",
        "spread",
    ),
    "the logsumexp without the maximum": (
        "self.maximum + self.total.log()",
        "self.total.log()",
        "logsumexp",
    ),
    "the gradient of the logsumexp is lost": (
        "total = torch.exp(logsumexp - _finite(maximum))",
        "total = torch.exp(maximum - _finite(maximum))",
        "kernel",
    ),
}


def test_every_fact_holds():
    for fact in FACTS.values():
        fact(REAL)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_version_is_caught(name):
    old, new, fact = WRONG[name]
    wrong = edited("online_softmax", (old, new))
    with pytest.raises(AssertionError):
        FACTS[fact](wrong)
