"""Linear attention is the mean by its weights, in chunks of any size, in pieces, and kept in float32."""

from itertools import pairwise

import torch

from snippets.linear_attention import elu_plus_one, linear_attention
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, alike, close, draw, heads


def drawn(*shape):
    """Query, key and value, from (..., T, head_dim, value_dim)."""
    *leading, T, head_dim, value_dim = shape
    widths = head_dim, head_dim, value_dim
    return [draw(*leading, T, width, seed=i).requires_grad_() for i, width in enumerate(widths)]


def test_it_is_the_mean_by_its_weights_at_every_size_of_a_chunk(part):
    """Outputs and gradients; the state is the sum of the keys' features times the values."""
    for shape, chunk_size in (
        ((9, 4, 3), 4),
        ((2, 3, 8, 5, 5), 64),
    ):
        query, key, value = drawn(*shape)
        weights = (elu_plus_one(query) @ elu_plus_one(key).mT).tril()
        wanted = weights @ value / weights.sum(dim=-1, keepdim=True)
        result, state = part.linear_attention(query, key, value, chunk_size=chunk_size)
        assert alike(result, wanted, (query, key, value))
        ones = torch.ones_like(value[..., :1])
        assert close(state, elu_plus_one(key).mT @ torch.cat([value, ones], dim=-1))


def test_without_normalize_it_is_a_plain_sum(part):
    query, key, value = drawn(2, 9, 4, 3)
    result, state = part.linear_attention(
        query, key, value, feature_map=torch.exp, normalize=False, chunk_size=4
    )
    weights = (query.exp() @ key.exp().mT).tril()
    assert close(result, weights @ value)
    assert close(state, key.exp().mT @ value)


def test_a_text_may_come_in_pieces(part):
    inputs, state, outputs = drawn(2, 70, 4, 3), None, []
    whole, last = part.linear_attention(*inputs)
    for start, end in pairwise((0, 5, 6, 70)):
        output, state = part.linear_attention(*(x[:, start:end] for x in inputs), state=state)
        outputs.append(output)
    assert close(torch.cat(outputs, dim=1), whole)
    assert close(state, last)


def test_sums_are_kept_in_float32_or_in_the_widest_dtype_of_the_inputs(part):
    """In bfloat16 a sum stops at 256, where adding 1 changes nothing."""
    ones = torch.ones(1, 4096, 1, dtype=torch.bfloat16)
    output, state = part.linear_attention(ones, ones, ones, feature_map=lambda x: x)
    assert (output.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert state.tolist() == [[[4096.0, 4096.0]]]
    inputs = drawn(9, 4, 3)
    wanted, _ = part.linear_attention(*inputs)
    for wide in range(3):
        mixed = [x if i == wide else x.float() for i, x in enumerate(inputs)]
        result, state = part.linear_attention(*mixed)
        assert (result.dtype, state.dtype) == (mixed[2].dtype, torch.float64)
        assert close(result.double(), wanted, 1e-5)


def test_the_feature_map_is_positive_as_far_down_as_it_says(part):
    for dtype, lowest in ((torch.float64, -708), (torch.float32, -87), (torch.float16, -9)):
        x = torch.tensor([lowest, -1.0, -0.0, 0.0, 1.0, 30.0], dtype=dtype).requires_grad_()
        result = part.elu_plus_one(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        power = x.detach().double().exp()
        for found, wanted in ((result, x.double() + 1), (gradient, 1.0)):
            exact = torch.where(x > 0, wanted, power)
            assert (result > 0).all()
            assert ((found.double() - exact).abs() <= 2 * torch.finfo(dtype).eps * exact).all(), (
                dtype
            )


def test_what_would_be_misread_is_refused(part):
    """The last query would read what is left."""
    query, key, value = drawn(2, 5, 4, 3)
    fewer_keys, fewer_values = key[:, :4], value[:, :4]
    refuses("fewer keys and values", part.linear_attention, query, fewer_keys, fewer_values)
    refuses("fewer values", part.linear_attention, query, key, fewer_values)


READ = "q @ state + (q @ k.mT).tril() @ v"
WRONG = {
    "leaves the present out": (READ, "q @ state + (q @ k.mT).tril(-1) @ v"),
    "reads the whole chunk": (READ, "q @ state + (q @ k.mT) @ v"),
    "never divides": ("output[..., :-1] / output[..., -1:]", "output[..., :-1]"),
    "elu + 1": ("x.clamp(max=0).exp() + F.relu(x)", "F.elu(x) + 1"),
    "a state in half precision": ("dtype = torch.float32\n", "dtype = parts[0].dtype\n"),
}

CASES = {"linear_attention": Case(lambda _, *x: linear_attention(*x)[0], heads, casts=False)}
MIB = {"linear_attention": (24, lambda x: lambda: linear_attention(x, x, x, chunk_size=512))}
