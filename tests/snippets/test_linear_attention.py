"""Linear attention: equal to its definition in every form, and causal."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from snippets.linear_attention import elu_plus_one, linear_attention
from tests.snippets.parts import Case, heads

F64 = torch.float64


def draw(*shape, seed=0, dtype=F64):
    """Queries, keys and values; shape is (..., T, head_dim, value_dim)."""
    torch.manual_seed(seed)
    *batch, T, head_dim, value_dim = shape
    query, key = torch.randn(2, *batch, T, head_dim, dtype=dtype)
    return query, key, torch.randn(*batch, T, value_dim, dtype=dtype)


def by_definition(query, key, value):
    """The weighted mean, from the whole matrix of weights."""
    weights = (elu_plus_one(query) @ elu_plus_one(key).mT).tril()
    return weights @ value / weights.sum(dim=-1, keepdim=True)


def gradients(output, inputs):
    torch.manual_seed(1)
    return torch.autograd.grad((output * torch.randn_like(output)).sum(), inputs)


def assert_close(result, wanted, atol=1e-10):
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


# Facts


def linear_attention_is_its_definition(part):
    for shape, chunk_size in (
        ((9, 4, 3), 4),
        ((2, 3, 8, 5, 5), 3),
        ((2, 1, 2, 6), 64),
        ((7, 2, 2), 1),
    ):
        inputs = [piece.requires_grad_() for piece in draw(*shape)]
        result, state = part.linear_attention(*inputs, chunk_size=chunk_size)
        wanted = by_definition(*inputs)
        assert state.shape == (*shape[:-3], shape[-2], shape[-1] + 1)
        assert_close([result, *gradients(result, inputs)], [wanted, *gradients(wanted, inputs)])


def without_normalize_it_is_a_plain_sum(part):
    query, key, value = draw(2, 9, 4, 3)
    result, state = part.linear_attention(
        query, key, value, feature_map=lambda x: x, normalize=False, chunk_size=4
    )
    assert_close([result, state], [(query @ key.mT).tril() @ value, key.mT @ value])


def a_text_may_come_in_pieces(part):
    inputs = draw(2, 11, 4, 3)
    whole, last = part.linear_attention(*inputs, chunk_size=4)
    state, outputs = None, []
    for start, end in ((0, 5), (5, 6), (6, 11)):
        pieces = [x[..., start:end, :] for x in inputs]
        output, state = part.linear_attention(*pieces, chunk_size=4, state=state)
        outputs.append(output)
    assert_close([torch.cat(outputs, dim=-2), state], [whole, last])


def the_future_cannot_change_the_past(part):
    inputs = draw(9, 4, 3)
    before, _ = part.linear_attention(*inputs, chunk_size=4)
    for t in range(9):
        changed = [x.clone() for x in inputs]
        for x in changed:
            x[t] = -x[t] + 0.1
        after, _ = part.linear_attention(*changed, chunk_size=4)
        moved = (after - before).abs().amax(dim=-1) > 1e-9
        assert moved[t:].all()
        assert not moved[:t].any()


def the_state_is_as_wide_as_the_widest_of_all_the_inputs(part):
    inputs = draw(2, 9, 4, 3)
    wanted, _ = part.linear_attention(*inputs)
    for wide in range(3):
        mixed = [x if i == wide else x.float() for i, x in enumerate(inputs)]
        result, state = part.linear_attention(*mixed)
        assert state.dtype == F64
        assert result.dtype == mixed[2].dtype
        assert_close([result.double()], [wanted], atol=1e-5)


def the_feature_map_is_positive_as_far_down_as_it_says(part):
    for dtype, lowest in ((F64, -708), (torch.float32, -87), (torch.float16, -9)):
        x = torch.tensor([lowest, -20.0, -9.0, -1.0, -0.0, 0.0, 1.0, 30.0], dtype=dtype)
        x = x[x >= lowest].requires_grad_()
        result = part.elu_plus_one(x)
        assert (result > 0).all(), dtype
        wanted = torch.where(x > 0, x.double() + 1, x.double().exp())
        atol = 2 * torch.finfo(dtype).eps
        assert ((result.double() - wanted).abs() <= atol * wanted).all(), dtype
        (gradient,) = torch.autograd.grad(result.sum(), x)
        wanted = torch.where(x > 0, 1.0, x.double().exp())
        assert ((gradient.double() - wanted).abs() <= atol * wanted).all(), dtype
    query = torch.full((4, 2), -18.0)
    output, _ = part.linear_attention(query, query, torch.ones(4, 1))
    torch.testing.assert_close(output, torch.ones(4, 1), rtol=0, atol=1e-6)


def a_long_sum_is_kept_in_float32(part):
    ones = torch.ones(1, 4096, 1, dtype=torch.bfloat16)
    _, state = part.linear_attention(ones, ones, ones, feature_map=lambda x: x)
    assert state.dtype == torch.float32
    assert state.tolist() == [[[4096.0, 4096.0]]]
    output, _ = part.linear_attention(ones, ones, ones)
    assert output.dtype == torch.bfloat16


FACTS = [
    linear_attention_is_its_definition,
    without_normalize_it_is_a_plain_sum,
    a_text_may_come_in_pieces,
    the_future_cannot_change_the_past,
    a_long_sum_is_kept_in_float32,
    the_state_is_as_wide_as_the_widest_of_all_the_inputs,
    the_feature_map_is_positive_as_far_down_as_it_says,
]


READ = "q @ state + (q @ k.mT).tril() @ v"
WRONG = {
    "leaves the present out": (READ, "q @ state + (q @ k.mT).tril(-1) @ v"),
    "reads the whole chunk": (READ, "q @ state + (q @ k.mT) @ v"),
    "forgets what came before the chunk": (READ, "(q @ k.mT).tril() @ v"),
    "counts the chunk twice": (READ, "q @ (state + k.mT @ v) + (q @ k.mT).tril() @ v"),
    "keeps the last chunk alone": ("state = state + k.mT @ v", "state = k.mT @ v"),
    "never divides": ("output[..., :-1] / output[..., -1:]", "output[..., :-1]"),
    "no feature map": ("feature_map(query), feature_map(key)", "query, key"),
    "the feature map of the query alone": (
        "feature_map(query), feature_map(key)",
        "feature_map(query), key",
    ),
    "relu in place of elu + 1": ("x.clamp(max=0).exp() + F", "1 + F"),
    "elu + 1": ("x.clamp(max=0).exp() + F.relu(x)", "F.elu(x) + 1"),
    "the dtype of the query alone": ("for part in parts:", "for part in parts[:1]:"),
    "a state in half precision": ("dtype = torch.float32\n", "dtype = parts[0].dtype\n"),
    "ignores the state that it is given": (
        "if state is None:",
        "if True:",
    ),
}


CASES = {
    "linear_attention": Case(lambda _, *x: linear_attention(*x)[0], heads, casts=False),
}
MIB = {
    "linear_attention": (24, lambda x: lambda: linear_attention(x, x, x)),
}


@given(st.integers(1, 20), st.integers(1, 25), st.integers(0, 2**31))
def test_the_size_of_a_chunk_changes_nothing(T, chunk_size, seed):
    inputs = draw(T, 3, 2, seed=seed)
    assert_close(
        linear_attention(*inputs, chunk_size=chunk_size), linear_attention(*inputs, chunk_size=1)
    )


@given(st.integers(1, 12), st.integers(0, 2**31))
def test_an_output_lies_between_the_smallest_and_the_largest_value(T, seed):
    query, key, value = draw(T, 3, 2, seed=seed)
    output, _ = linear_attention(5 * query, 5 * key, value)
    assert (output >= value.amin(dim=0) - 1e-9).all()
    assert (output <= value.amax(dim=0) + 1e-9).all()


def test_keys_at_right_angles_are_recalled_exactly():
    key, value = torch.eye(6, dtype=F64), draw(6, 6, 4)[2]
    state = linear_attention(key, key, value, feature_map=lambda x: x, normalize=False)[1]
    assert_close([key @ state], [value], atol=1e-12)


def test_enough_features_make_it_softmax_attention():
    query, key, value = draw(2, 9, 1, 3)

    def powers(x):
        n = torch.arange(40, dtype=x.dtype)
        return x**n / torch.lgamma(n + 1).div(2).exp()

    result, _ = linear_attention(query, key, value, feature_map=powers, chunk_size=4)
    wanted = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(result, wanted, rtol=0, atol=1e-10)


@pytest.mark.lab
def test_it_compiles():
    torch._dynamo.reset()
    inputs = draw(2, 20, 4, 3)
    compiled = torch.compile(linear_attention, backend="eager", fullgraph=True)
    assert_close(compiled(*inputs, chunk_size=8), linear_attention(*inputs, chunk_size=8))


def test_what_would_be_misread_is_refused():
    q, k, v = draw(2, 5, 4, 3)
    for key, value in ((k[:, :4], v[:, :4]), (k[:, :4], v), (k, v[:, :4])):
        with pytest.raises(ValueError, match="same T"):  # the last query would read what is left
            linear_attention(q, key, value)
