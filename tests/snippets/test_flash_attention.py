"""Attention in tiles is PyTorch's attention, both ways."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from snippets import flash_attention as flash
from snippets import online_softmax
from tests.snippets.parts import Case, heads

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def leaves(T_q=7, T_k=10, leading=(2,), head_dim=3, value_dim=4, dtype=torch.float64, seed=0):
    """Return a random query, key and value that ask for gradients."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((T_q, head_dim), (T_k, head_dim), (T_k, value_dim))
    return [
        torch.randn(*leading, *shape, generator=generator, dtype=torch.float64)
        .to(dtype)
        .requires_grad_()
        for shape in shapes
    ]


def oracle(query, key, value, key_mask=None, is_causal=False, scale=None):
    """PyTorch's operator with a mask that is written out, and context 0 for a row without keys."""
    T_q, T_k = query.size(-2), key.size(-2)
    keep = torch.ones(T_q, T_k, dtype=torch.bool)
    keep = keep.tril(T_k - T_q) if is_causal else keep
    if key_mask is not None:
        keep = keep & key_mask[..., None, :]
    some = keep.any(dim=-1, keepdim=True)
    context = F.scaled_dot_product_attention(query, key, value, keep | ~some, scale=scale)
    return context.masked_fill(~some, 0.0)


def gradients(output, inputs, seed=1):
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return torch.autograd.grad(output, inputs, direction.to(output.dtype))


def assert_attention(module, inputs, *arguments, block=4, **options):
    """Assert that output and gradients are the oracle's."""
    tolerance = TOLERANCE[inputs[0].dtype]
    result = module.flash_attention(*inputs, *arguments, block=block, **options)
    wanted = oracle(*inputs, *arguments, **options)
    torch.testing.assert_close(result, wanted, atol=tolerance, rtol=tolerance)
    pairs = zip(gradients(result, inputs), gradients(wanted, inputs), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


PADDING = torch.tensor([[True] * 6 + [False] * 4, [False] * 5 + [True] * 5])
SITUATIONS = {
    "plain": ((7, 10), None, {}),
    "causal": ((10, 10), None, {"is_causal": True}),
    "causal, fewer queries": ((3, 10), None, {"is_causal": True}),
    "causal, more queries": ((13, 10), None, {"is_causal": True}),
    "padding": ((7, 10), PADDING, {}),
    "padding and causal": ((10, 10), PADDING, {"is_causal": True}),
    "nothing but padding": ((7, 10), torch.zeros(2, 10, dtype=torch.bool), {}),
    "a scale": ((7, 10), None, {"scale": 1.7}),
    "no keys": ((7, 0), None, {}),
    "no queries": ((0, 10), None, {"is_causal": True}),
}


def case_holds(module, name, dtype=torch.float64, blocks=(1, 4, 100)):
    sizes, key_mask, options = SITUATIONS[name]
    for block in blocks:
        assert_attention(module, leaves(*sizes, dtype=dtype), key_mask, block=block, **options)


def outputs_and_gradients_are_pytorchs(module):
    for name in SITUATIONS:
        case_holds(module, name)


@pytest.mark.parametrize("name", SITUATIONS)
def test_in_float32_too(name):
    case_holds(flash, name, torch.float32)


@pytest.mark.parametrize("is_causal", [False, True])
def test_it_is_pytorchs_fused_operator(is_causal):
    inputs = leaves(48, 48, leading=(2, 3), head_dim=8, value_dim=8)
    result = flash.flash_attention(*inputs, is_causal=is_causal, block=20)
    wanted = F.scaled_dot_product_attention(*inputs, is_causal=is_causal)
    torch.testing.assert_close(result, wanted, atol=1e-10, rtol=0)
    for ours, theirs in zip(gradients(result, inputs), gradients(wanted, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


@given(
    leading=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    T_q=st.integers(0, 9),
    T_k=st.integers(0, 9),
    block=st.integers(1, 10),
    value_dim=st.integers(1, 4),
    is_causal=st.booleans(),
    share=st.sampled_from([None, 0.3, 0.9]),
    scale=st.sampled_from([None, 0.0, -0.5, 30.0]),
    seed=st.integers(0, 1000),
)
def test_any_sizes_and_any_block_give_attention(
    leading, T_q, T_k, block, value_dim, is_causal, share, scale, seed
):
    inputs = leaves(T_q, T_k, leading, 3, value_dim, seed=seed)
    mask = None
    if share is not None:
        mask = torch.rand(*leading, T_k, generator=torch.Generator().manual_seed(seed)) >= share
    assert_attention(flash, inputs, mask, block=block, is_causal=is_causal, scale=scale)


def test_gradcheck_passes_and_second_derivatives_too():
    def attend(*inputs):
        return flash.flash_attention(*inputs, is_causal=True, block=2, return_logsumexp=True)

    assert gradcheck(attend, leaves(3, 5, leading=()))
    assert gradgradcheck(attend, leaves(3, 3, leading=(), head_dim=2, value_dim=2))


def a_row_without_keys_is_zero(module):
    for inputs, mask in ((leaves(10, 7), None), (leaves(10, 10), PADDING)):
        context = module.flash_attention(*inputs, mask, is_causal=True, block=4)
        empty = (slice(None), slice(0, 3)) if mask is None else (1, slice(0, 5))
        assert torch.equal(context[empty], torch.zeros_like(context[empty]))
        found = gradients(context, inputs)
        assert torch.equal(found[0][empty], torch.zeros_like(found[0][empty]))
        assert all(gradient.isfinite().all() for gradient in found)


def the_logsumexp_is_right(module):
    inputs = leaves(10, 10)
    _, logsumexp = module.flash_attention(*inputs, is_causal=True, block=4, return_logsumexp=True)
    keep = torch.ones(10, 10, dtype=torch.bool).tril()
    scores = (inputs[0] @ inputs[1].mT * 3**-0.5).masked_fill(~keep, -torch.inf)
    wanted = torch.logsumexp(scores, dim=-1)
    torch.testing.assert_close(logsumexp, wanted, atol=1e-10, rtol=0)
    pairs = zip(gradients(logsumexp, inputs[:2]), gradients(wanted, inputs[:2]), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def test_results_for_parts_of_the_keys_can_be_merged_gradients_too():
    inputs = query, key, value = leaves()
    parts = [
        online_softmax.from_context(
            *flash.flash_attention(
                query, key[:, i:j], value[:, i:j], block=3, return_logsumexp=True
            )
        )
        for i, j in ((0, 4), (4, 10))
    ]
    result, wanted = online_softmax.merge(*parts).context(), oracle(*inputs)
    torch.testing.assert_close(result, wanted, atol=1e-10, rtol=0)
    for ours, theirs in zip(gradients(result, inputs), gradients(wanted, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def the_future_cannot_change_the_past(module):
    """With the queries last of the keys, and blocks that do not divide: no earlier row moves."""
    query, key, value = (tensor.detach() for tensor in leaves(6, 10))
    before = module.flash_attention(query, key, value, is_causal=True, block=4)
    for t in range(5):
        key_t, value_t = key.clone(), value.clone()
        key_t[:, t + 5 :], value_t[:, t + 5 :] = 7.0, -9.0  # row t sees keys 0 … t + 4
        after = module.flash_attention(query, key_t, value_t, is_causal=True, block=4)
        assert torch.equal(before[:, : t + 1], after[:, : t + 1])
        assert not torch.equal(before[:, t + 1], after[:, t + 1])


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that an operation returns, and counts the products."""

    def __init__(self):
        super().__init__()
        self.size = self.products = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        made = operation(*args, **(kwargs or {}))
        self.products += operation.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm)
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.size = max(self.size, tensor.numel())
        return made


def no_tensor_is_as_large_as_the_scores(module):
    """Forward and backward: the largest is a tile, or as large as an input."""
    inputs = leaves(200, 200, leading=(), head_dim=4, value_dim=4)
    with Largest() as largest:
        context = module.flash_attention(*inputs, is_causal=True, block=20)
        context.sum().backward()
    assert largest.size == 200 * 4


def hidden_tiles_are_skipped(module):
    """Two products a tile forward, five backward, for n(n + 1)/2 tiles of n²."""
    inputs = leaves(60, 60, leading=())
    for is_causal, tiles in ((True, 6 * 7 // 2), (False, 6 * 6)):
        with Largest() as counter:
            context = module.flash_attention(*inputs, is_causal=is_causal, block=10)
        assert counter.products == 2 * tiles
        with Largest() as counter:
            context.sum().backward()
        assert counter.products == 5 * tiles


def little_is_kept(module):
    """Between the passes: the inputs, the result, and one number for each query."""
    inputs, seen = leaves(50, 50, leading=(), head_dim=4, value_dim=4), {}

    def note(tensor):
        seen[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        module.flash_attention(*inputs, is_causal=True, block=16)
    assert sum(tensor.numel() for tensor in seen.values()) == 4 * 50 * 4 + 50


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_scores_of_ten_thousand_stay_right(size):
    query, key, value = leaves(dtype=torch.float32)
    inputs = [(query * size).detach().requires_grad_(), key, value]
    result, wanted = flash.flash_attention(*inputs, block=3), oracle(*inputs)
    torch.testing.assert_close(result, wanted, atol=1e-5, rtol=0)
    assert all(gradient.isfinite().all() for gradient in gradients(result, inputs))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_float32(dtype):
    inputs = [tensor.detach().to(dtype) for tensor in leaves(40, 40)]
    result = flash.flash_attention(*inputs, block=16)
    exact = oracle(*(tensor.double() for tensor in inputs))
    assert result.dtype == dtype
    torch.testing.assert_close(result, exact.to(dtype), atol=torch.finfo(dtype).eps, rtol=0)


def test_autocast_casts_as_pytorchs_operator_does():
    inputs = leaves(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = flash.flash_attention(inputs[0], inputs[1].bfloat16(), inputs[2], block=4)
        wanted = F.scaled_dot_product_attention(inputs[0], inputs[1].bfloat16(), inputs[2])
    assert result.dtype == wanted.dtype == torch.bfloat16
    torch.testing.assert_close(result, wanted, atol=0.02, rtol=0)
    assert all(gradient.dtype == torch.float32 for gradient in gradients(result, inputs))


def test_a_backward_pass_within_autocast_is_the_one_outside():
    found = []
    for inside in (True, False):
        parts = leaves(dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            context = flash.flash_attention(*parts, block=4)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
            found.append(gradients(context, parts))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_autocast_leaves_float64_as_pytorchs_operator_does():
    inputs = leaves()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result, wanted = flash.flash_attention(*inputs), F.scaled_dot_product_attention(*inputs)
    assert result.dtype == wanted.dtype == torch.float64
    torch.testing.assert_close(result, wanted, atol=1e-10, rtol=0)


def test_works_under_vmap_and_on_the_meta_device():
    inputs = [tensor.detach() for tensor in leaves()]

    def loss(query, key, value):
        return flash.flash_attention(query, key, value, is_causal=True, block=4).square().sum()

    result = torch.vmap(torch.func.grad(loss))(*inputs)
    query = inputs[0].clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(query, *inputs[1:]), query)
    torch.testing.assert_close(result, wanted, atol=1e-10, rtol=0)
    assert flash.flash_attention(*(tensor.to("meta") for tensor in inputs)).shape == (2, 7, 4)


@pytest.mark.lab
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_works_under_compile():
    inputs = leaves()
    compiled = torch.compile(flash.flash_attention, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs, block=4), oracle(*inputs))


MISREAD = {
    "a mask for each text, beside heads": lambda q, k, v: (
        *(part[:, None].expand(2, 2, -1, -1) for part in (q, k, v)),
        torch.ones(2, 10) > 0,
    ),
    "zeros and ones": lambda q, k, v: (q, k, v, torch.ones(2, 10)),
    "more values than keys": lambda q, k, v: (q, k[:, :9], v),
    "one value for all keys": lambda q, k, v: (q, k, v[:, :1]),
}


@pytest.mark.parametrize("what", MISREAD)
def test_what_would_be_misread_is_refused(what):
    with pytest.raises(ValueError, match=" must "):
        flash.flash_attention(*MISREAD[what](*leaves()))


def test_a_mask_of_another_length_is_refused():
    with pytest.raises(RuntimeError):  # by PyTorch: a slice of it would fit the first tiles
        flash.flash_attention(*leaves(), torch.ones(2, 11, dtype=torch.bool), block=2)


FACTS = [
    outputs_and_gradients_are_pytorchs,
    a_row_without_keys_is_zero,
    the_logsumexp_is_right,
    the_future_cannot_change_the_past,
    no_tensor_is_as_large_as_the_scores,
    hidden_tiles_are_skipped,
    little_is_kept,
]
CASES = {
    "causal": Case(lambda _, *x: flash.flash_attention(*x, is_causal=True, block=64), heads),
}
MIB = {
    "in tiles of 1,024": (
        21.6,
        lambda x: lambda: flash.flash_attention(x, x, x, is_causal=True, block=1024),
    ),
}
WRONG = {
    "the accumulator is not rescaled": (
        "weighted = weighted * factor[..., None] + powers",
        "weighted = weighted + powers",
    ),
    "the sum is not rescaled": ("total = total * factor", "total = total"),
    "-inf minus -inf": (
        "finite = maximum.masked_fill(maximum == -torch.inf, 0.0)  # or",
        "finite = maximum  # or",
    ),
    "-inf minus -inf on the way back": (
        "finite = logsumexp.masked_fill(logsumexp == -torch.inf, 0.0)",
        "finite = logsumexp",
    ),
    "each tile counts its rows from 0": (
        "torch.arange(rows.start, rows.stop, device=query.device)[:, None]",
        "torch.arange(rows.stop - rows.start, device=query.device)[:, None]",
    ),
    "each tile counts its columns from 0": (
        "torch.arange(columns.start, columns.stop, device=query.device)",
        "torch.arange(columns.stop - columns.start, device=query.device)",
    ),
    "the triangle in the upper left corner": (
        "key.size(-2) - query.size(-2) if is_causal",
        "0 if is_causal",
    ),
    "tiles are skipped as if both began together": (
        "T_k if offset is None else rows.stop + offset",
        "T_k if offset is None else min(rows.stop, T_k)",
    ),
    "one tile too few": ("for j in range(0, end, block)]", "for j in range(0, end - 1, block)]"),
    "nothing is skipped": ("T_k if offset is None else rows.stop + offset", "T_k"),
    "the diagonal is hidden": ("j > i + offset", "j >= i + offset"),
    "the diagonal looks one ahead": ("j > i + offset", "j > i + offset + 1"),
    "a tile on the diagonal is taken for a whole one": (
        "columns.stop - 1 > rows.start + offset",
        "columns.start > rows.start + offset",
    ),
    "the padding is seen": (
        "scores = scores.masked_fill(~key_mask[..., None, columns], -torch.inf)",
        "pass",
    ),
    "the padding of the first block for all": (
        "~key_mask[..., None, columns]",
        "~key_mask[..., None, : columns.stop - columns.start]",
    ),
    "the row sum is forgotten": ("(d_c @ v.mT - row_sum[..., rows, None])", "(d_c @ v.mT)"),
    "the row sum of the first block for all": (
        "row_sum[..., rows, None]",
        "row_sum[..., : rows.stop - rows.start, None]",
    ),
    "the scale is forgotten on the way back": ("d_scores @ k * ctx.scale", "d_scores @ k"),
    "the scale comes twice": ("d_scores.mT @ q", "d_scores.mT @ q * ctx.scale"),
    "keys hear from the last block of queries alone": (
        "d_key[..., columns, :] += d_scores",
        "d_key[..., columns, :] = d_scores",
    ),
    "the gradient of the logsumexp is lost": (".sum(dim=-1) - d_logsumexp", ".sum(dim=-1)"),
    "the gradient of the logsumexp is added": (
        ".sum(dim=-1) - d_logsumexp",
        ".sum(dim=-1) + d_logsumexp",
    ),
    "the weights are kept": (
        "ctx.save_for_backward(query, key, value, key_mask, *output)",
        "ctx.save_for_backward(query, key, value, query @ key.mT, *output)",
    ),
    "all keys are asked, for a tile": (
        "scores = tile_scores(q, k, key_mask, rows, columns, offset)",
        "q @ key.to(wide).mT; scores = tile_scores(q, k, key_mask, rows, columns, offset)",
    ),
    "divided by nothing": ("total.masked_fill(total == 0, 1.0)[..., None]", "total[..., None]"),
}
