"""The backward pass that was derived by hand is autograd's."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from snippets.attention_backward import attention
from snippets.attention_masks import keep_window
from tests.snippets.facts import assert_equal, works
from tests.snippets.parts import Case, T, heads


def leaves(leading=(2,), T_q=3, T_k=4, head_dim=2, value_dim=5, dtype=torch.float64, seed=0):
    """Return a random query, key and value that ask for gradients."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((T_q, head_dim), (T_k, head_dim), (T_k, value_dim))
    return [
        torch.randn(*leading, *shape, generator=generator, dtype=torch.float64)
        .to(dtype)
        .requires_grad_()
        for shape in shapes
    ]


def causal(T_q=3, T_k=4):
    return torch.ones(T_q, T_k, dtype=torch.bool).tril()


def gradients(output, inputs, seed=1):
    """Return the gradient of a random weighting of output with respect to each input."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return torch.autograd.grad(output, inputs, direction.to(output.dtype))


MASKS = {
    "no mask": None,
    "causal": causal(),
    "one key hidden": torch.tensor([[True, False, True, True]]),
    "a row without keys": torch.tensor([[True] * 4, [False] * 4, [True, False, True, False]]),
}


def gradcheck_passes(part):
    for mask in MASKS.values():
        passes = gradcheck(
            lambda q, k, v, m=mask: part.attention(q, k, v, m), leaves(), raise_exception=False
        )
        assert passes


@given(
    leading=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    T_q=st.integers(0, 4),
    T_k=st.integers(1, 4),
    head_dim=st.integers(1, 4),
    value_dim=st.integers(1, 4),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    is_causal=st.booleans(),
    scale=st.sampled_from([None, 1.0, 0.3, 0.0, -0.5]),
    seed=st.integers(0, 1000),
)
def test_outputs_and_gradients_are_pytorchs(
    leading, T_q, T_k, head_dim, value_dim, dtype, is_causal, scale, seed
):
    inputs = leaves(leading, T_q, T_k, head_dim, value_dim, dtype, seed)
    mask = causal(T_q, T_k) if is_causal else None
    ours = attention(*inputs, mask, scale=scale)
    theirs = F.scaled_dot_product_attention(*inputs, mask, scale=scale)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5}[dtype]
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
    if T_q:
        wanted = gradients(theirs, inputs)
        for result, want in zip(gradients(ours, inputs), wanted, strict=True):
            torch.testing.assert_close(result, want, atol=tolerance, rtol=tolerance)


def an_added_mask_gets_its_gradient(part):
    inputs = leaves()
    for shape in ((3, 4), (1, 4), (2, 3, 4), (2, 1, 4)):
        bias = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        bias.requires_grad_()
        assert gradcheck(part.attention, (*inputs, bias), raise_exception=False)


def gradients_of_broadcast_dimensions_add_up(part):
    query = leaves(leading=(2, 3))[0]
    key, value = leaves(leading=(1, 1))[1:]
    with works("broadcasting"):
        ours = gradients(part.attention(query, key, value), (query, key, value))
    theirs = gradients(F.scaled_dot_product_attention(query, key, value), (query, key, value))
    for result, want in zip(ours, theirs, strict=True):
        assert result.shape == want.shape
        torch.testing.assert_close(result, want, atol=1e-10, rtol=0)


def a_hidden_key_gets_a_gradient_of_exactly_zero(part):
    query, key, value = leaves()
    mask = torch.tensor([[True, False, True, True]])
    _, d_key, d_value = gradients(part.attention(query, key, value, mask), (query, key, value))
    assert torch.equal(d_key[:, 1], torch.zeros(2, 2, dtype=torch.float64))
    assert torch.equal(d_value[:, 1], torch.zeros(2, 5, dtype=torch.float64))
    assert d_key[:, 0].abs().min() > 0


def a_query_without_keys_gets_context_zero_and_gradient_zero(part):
    inputs = leaves()
    context = part.attention(*inputs, MASKS["a row without keys"])
    d_query = gradients(context, inputs)[0]
    assert torch.equal(context[:, 1], torch.zeros(2, 5, dtype=torch.float64))
    assert torch.equal(d_query[:, 1], torch.zeros(2, 2, dtype=torch.float64))
    assert d_query[:, 0].abs().min() > 0


def no_keys_at_all_give_zeros(part):
    inputs = leaves(T_k=0)
    context = part.attention(*inputs)
    assert torch.equal(context, torch.zeros(2, 3, 5, dtype=torch.float64))
    assert all(g.eq(0).all() for g in gradients(context, inputs))


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_large_logits_stay_finite_and_equal(size):
    query, key, value = leaves(dtype=torch.float32)
    inputs = [(query * size).detach().requires_grad_(), key, value]
    ours = gradients(attention(*inputs), inputs)
    theirs = gradients(F.scaled_dot_product_attention(*inputs), inputs)
    # What rounding leaves of a saturated row, some 1e-7, d_key multiplies by each large query and adds.
    allowed = (1e-5, 1e-5 * abs(size), 1e-5)
    for result, want, atol in zip(ours, theirs, allowed, strict=True):
        assert result.isfinite().all()
        torch.testing.assert_close(result, want, atol=atol, rtol=1e-5)


def nothing_of_the_size_of_the_scores_is_kept_between_the_passes(part):
    inputs = leaves(leading=(), T_q=50, T_k=60)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor
    ):
        part.attention(*inputs)
    assert max(kept) == 60 * 5 < 50 * 60


@pytest.mark.lab
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_works_under_compile_and_torch_func():
    inputs = leaves()
    compiled = torch.compile(attention, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), attention(*inputs))
    result = torch.func.grad(lambda q: attention(q, *inputs[1:]).sum())(inputs[0])
    want = torch.autograd.grad(attention(*inputs).sum(), inputs[0])[0]
    torch.testing.assert_close(result, want)


def second_derivatives_pass_gradgradcheck(part):
    for mask in (causal(), MASKS["a row without keys"].double().log()):
        attend = partial(part.attention, attn_mask=mask)
        assert gradgradcheck(attend, leaves(leading=()), raise_exception=False)


def mixed(inputs):
    """Return fresh leaves of three dtypes."""
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    return [
        it.detach().to(dtype).requires_grad_() for it, dtype in zip(inputs, dtypes, strict=True)
    ]


@pytest.mark.parametrize("inside", [False, True], ids=["backward after", "backward inside"])
@pytest.mark.parametrize("masked", ["no mask", "boolean", "added"])
def test_under_autocast_both_passes_do_what_pytorchs_operator_does(masked, inside):
    mask = {"no mask": None, "boolean": causal(), "added": causal().float().log()}[masked]
    # Not the context itself: the larger the gradient that comes in, the more two 16-bit numbers, of
    # which one is subtracted from the other, lose.
    direction = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1))
    found = []
    for attend in (attention, F.scaled_dot_product_attention):
        inputs = mixed(leaves())
        with torch.autocast("cpu", torch.bfloat16):
            context = attend(*inputs, mask)
            if inside:
                result = torch.autograd.grad((context.float() * direction).sum(), inputs)
        if not inside:
            result = torch.autograd.grad((context.float() * direction).sum(), inputs)
        assert context.dtype == torch.bfloat16
        assert [g.dtype for g in result] == [it.dtype for it in inputs]
        found.append((context, *result))
    for one, other in zip(*found, strict=True):
        # What is subtracted adds up to |direction| · |value|, up to 8, and so loses 8 · 2⁻⁸ on each
        # side; times the scale and a key or a query, 0.7 · 2, that is 0.09 of gradients near 1.
        assert_equal("context or gradient", one, other, torch.bfloat16, slack=3.0)


def test_autocast_leaves_float64_alone():
    inputs = leaves()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attention(*inputs), attention(*leaves()))
        assert attention(*inputs).dtype == torch.float64


def test_vmap_goes_through_both_passes():
    inputs, mask = leaves(leading=(3, 2)), torch.rand(3, 1, 3, 4) < 0.7
    mapped = torch.func.vmap(torch.func.vmap(attention))
    torch.testing.assert_close(mapped(*inputs), attention(*inputs))

    def loss(query, key, value, mask):
        return attention(query, key, value, mask).square().sum()

    result = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*inputs, mask)
    wanted = torch.autograd.grad(attention(*inputs, mask).square().sum(), inputs)
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other)
    shared = torch.func.vmap(attention, in_dims=(0, None, None))
    query, key, value = inputs[0], inputs[1][0], inputs[2][0]
    torch.testing.assert_close(shared(query, key, value), attention(query, key, value))


def test_shapes_are_known_without_numbers():
    inputs = [part.detach().to("meta").requires_grad_() for part in leaves()]
    context = attention(*inputs)
    assert context.shape == (2, 3, 5)
    found = torch.autograd.grad(context.sum(), inputs)
    assert [part.shape for part in found] == [part.shape for part in inputs]


MISREAD = {
    "a mask for each text, beside heads": lambda q, k, v: (
        *(part[:, None] for part in (q, k, v)),
        causal().expand(2, 3, 4),
    ),
    "a mask of keys alone": lambda q, k, v: (q, k, v, causal()[0]),
    "ones and zeros, which would be added": lambda q, k, v: (q, k, v, causal().long()),
}


@pytest.mark.parametrize("what", MISREAD)
def test_what_would_be_misread_is_refused(what):
    with pytest.raises(ValueError, match=r"^attn_mask must be"):
        attention(*MISREAD[what](*leaves()))


FACTS = [
    gradcheck_passes,
    an_added_mask_gets_its_gradient,
    gradients_of_broadcast_dimensions_add_up,
    a_hidden_key_gets_a_gradient_of_exactly_zero,
    a_query_without_keys_gets_context_zero_and_gradient_zero,
    no_keys_at_all_give_zeros,
    nothing_of_the_size_of_the_scores_is_kept_between_the_passes,
    second_derivatives_pass_gradgradcheck,
]
WRONG = {
    "row sum forgotten": ("(d_weights - row_sum)", "d_weights"),
    "row sum added": ("d_weights - row_sum", "d_weights + row_sum"),
    "sum over the queries": (
        "(d_context * context).sum(dim=-1",
        "(weights * d_weights).sum(dim=-2",
    ),
    "only the diagonal of softmax's derivative": (
        "weights * (d_weights - row_sum)",
        "weights * (1 - weights) * d_weights",
    ),
    "scale forgotten": ("d_scores = d_scaled * ctx.scale", "d_scores = d_scaled"),
    "scale applied twice": ("d_scaled * ctx.scale", "d_scaled * ctx.scale * ctx.scale"),
    "key for query": ("d_query = d_scores @ key", "d_query = d_scores @ value[..., :2]"),
    "mask forgotten in the second pass": (
        "weights = attention_weights(query, key, attn_mask, ctx.scale)",
        "weights = attention_weights(query, key, None, ctx.scale)",
    ),
    "scale forgotten in the second pass": (
        "weights = attention_weights(query, key, attn_mask, ctx.scale)",
        "weights = attention_weights(query, key, attn_mask, 1.0)",
    ),
    "scores taken for weights": (
        "d_value = weights.mT",
        "d_value = (query @ key.mT * ctx.scale).mT",
    ),
    "the scale for the mask, too": ("d_scaled.sum_to_size", "d_scores.sum_to_size"),
    "the weights are kept": (
        "ctx.save_for_backward(query, key, value, attn_mask, context)",
        "ctx.save_for_backward(query, key, value, attn_mask, query @ key.mT)",
    ),
    "a row without keys is even": (
        ".softmax(dim=-1).masked_fill(no_key, 0.0)",
        ".softmax(dim=-1)",
    ),
    "0 by 0 in a row without keys": ("scaled.masked_fill(no_key, 0.0).softmax", "scaled.softmax"),
    "broadcast keys hear from one row": (
        "d_key.sum_to_size(key.shape)",
        "d_key[: key.size(0), : key.size(1)]",
    ),
}


def both_passes(x):
    """Attention and its gradients; the copy that asks for them is made before the count."""
    x = x.clone().requires_grad_()

    def call():
        with torch.enable_grad():
            attention(x, x, x).sum().backward()

    return call


CASES = {
    "attention": Case(lambda _, *x: attention(*x, keep_window(9, T, device=x[0].device)), heads)
}
MIB = {"attention, both passes": (4112, both_passes)}  # the weights and three of their derivatives
