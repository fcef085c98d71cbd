"""Attention in tiles is PyTorch's attention, both ways, and makes and keeps no weights."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from snippets.flash_attention import flash_attention
from tests.snippets.facts import refuses, works
from tests.snippets.parts import Case, alike, close, draw, heads

PADDING = torch.tensor([[True] * 6 + [False] * 4, [False] * 5 + [True] * 5])


def leaves(T_q=7, T_k=10, leading=(2,), head_dim=3, value_dim=4, dtype=torch.float64):
    """Return a query, key and value that ask for gradients."""
    shapes = (T_q, head_dim), (T_k, head_dim), (T_k, value_dim)
    drawn = (draw(*leading, *shape, seed=i) for i, shape in enumerate(shapes))
    return [x.to(dtype).requires_grad_() for x in drawn]


def written_out(query, key, value, key_mask=None, is_causal=False, scale=None):
    """PyTorch's operator with a mask that is written out, and the logsumexp of the scores."""
    T_q, T_k = query.size(-2), key.size(-2)
    keep = torch.ones(T_q, T_k, dtype=torch.bool)
    keep = keep.tril(T_k - T_q) if is_causal else keep
    keep = keep if key_mask is None else keep & key_mask[..., None, :]
    scores = query @ key.mT * (query.size(-1) ** -0.5 if scale is None else scale)
    logsumexp = scores.masked_fill(~keep, -torch.inf).logsumexp(dim=-1)
    return F.scaled_dot_product_attention(query, key, value, keep, scale=scale), logsumexp


def outputs_and_gradients_are_pytorchs_at_every_size_of_a_tile(module):
    for sizes, mask, options in (
        ((7, 10), None, {"scale": 1.7}),
        ((10, 10), None, {"is_causal": True}),
        ((3, 10), None, {"is_causal": True, "scale": -0.5}),
        ((13, 10), None, {"is_causal": True}),  # the first three queries see no key
        ((7, 10), PADDING[1], {"scale": 0.0}),
        ((10, 10), PADDING, {"is_causal": True}),
        ((7, 10), torch.zeros(2, 10, dtype=torch.bool), {}),
        ((7, 0), None, {}),
        ((0, 10), None, {"is_causal": True}),
        ((7, 10), None, {"scale": 1e4}),
    ):
        for block in (1, 4, 100):
            inputs = leaves(*sizes)
            result = module.flash_attention(*inputs, mask, block=block, **options)
            wanted, _ = written_out(*inputs, mask, **options)
            assert alike(result, wanted, inputs), (sizes, options, block)
    inputs = leaves(8, 8, (2, 3))
    wanted = F.scaled_dot_product_attention(*inputs, is_causal=True)
    assert alike(module.flash_attention(*inputs, is_causal=True), wanted, inputs)


def the_logsumexp_is_right_and_so_is_its_gradient(module):
    """-inf for a query that may see no key."""
    for mask in (None, PADDING):
        inputs = leaves(10, 10)
        options = {"is_causal": True, "block": 4, "return_logsumexp": True}
        context, found = module.flash_attention(*inputs, mask, **options)
        wanted_context, wanted = written_out(*inputs, mask, is_causal=True)
        seen = wanted > -torch.inf
        assert torch.equal(found > -torch.inf, seen)
        # In one sum, since a merge with other keys takes the gradients of both.
        pairs = (context, found), (wanted_context, wanted)
        result, wanted = (torch.cat([x.flatten(), y[seen]]) for x, y in pairs)
        assert alike(result, wanted, inputs)


def a_row_without_keys_is_zero(module):
    for inputs, mask, empty in (
        (leaves(10, 7), None, (slice(None), slice(0, 3))),
        (leaves(10, 10), PADDING, (1, slice(0, 5))),
    ):
        context = module.flash_attention(*inputs, mask, is_causal=True, block=4)
        found = torch.autograd.grad(context, inputs, draw(*context.shape))
        assert not context[empty].any()
        assert not found[0][empty].any()
        assert all(gradient.isfinite().all() for gradient in found)


class Made(TorchDispatchMode):
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


def hidden_tiles_are_skipped_and_no_tensor_is_larger_than_an_input(module):
    """Two products a tile forward, five backward, for n(n + 1)/2 tiles of n²."""
    for is_causal, tiles in ((True, 6 * 7 // 2), (False, 6 * 6)):
        inputs = leaves(120, 120, leading=(), value_dim=3)
        with Made() as forward:
            context = module.flash_attention(*inputs, is_causal=is_causal, block=20)
        with Made() as backward:
            context.sum().backward()
        assert (forward.products, backward.products) == (2 * tiles, 5 * tiles)
        assert max(forward.size, backward.size) == 20 * 20 > 120 * 3


def between_the_passes_the_inputs_are_kept_the_result_and_a_number_a_query(module):
    inputs, seen = leaves(50, 50, leading=(), value_dim=3), {}

    def note(tensor):
        seen[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        module.flash_attention(*inputs, is_causal=True, block=16)
    assert sum(tensor.numel() for tensor in seen.values()) == 4 * 50 * 3 + 50


def under_autocast_it_casts_as_pytorchs_operator_and_the_way_back_is_not_cast(module):
    """Wherever backward() is called; float64 stays as it is."""
    found = []
    for inside in (True, False):
        query, key, value = leaves(dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = module.flash_attention(query, key.bfloat16(), value, block=4)
            wanted = F.scaled_dot_product_attention(query, key.bfloat16(), value)
            wide = module.flash_attention(*leaves())
        assert wide.dtype == torch.float64
        assert close(wide, F.scaled_dot_product_attention(*leaves()))
        assert close(result, wanted, 0.02)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside), works("the way back"):
            direction = draw(*result.shape).to(result.dtype)
            found.append(torch.autograd.grad(result, (query, key, value), direction))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
    assert all(gradient.dtype == torch.float32 for gradient in found[0])


def second_derivatives_pass_gradgradcheck(module):
    def attend(*inputs):
        return module.flash_attention(*inputs, is_causal=True, block=2, return_logsumexp=True)

    inputs = leaves(3, 3, leading=(), head_dim=2, value_dim=2)
    assert gradgradcheck(attend, inputs, raise_exception=False)


def vmap_goes_through_both_passes(module):
    inputs = leaves()

    def loss(query, key, value):
        return module.flash_attention(query, key, value, is_causal=True, block=4).square().sum()

    with works("vmap"):
        result = torch.vmap(torch.func.grad(loss))(*inputs)
    (wanted,) = torch.autograd.grad(loss(*inputs), inputs[:1])
    assert close(result, wanted)


def what_would_be_misread_is_refused(module):
    query, key, value = leaves(leading=(2, 2))
    refuses("a mask for each text", module.flash_attention, query, key, value, PADDING)
    refuses("zeros and ones", module.flash_attention, query, key, value, PADDING[0].double())
    refuses("more keys than values", module.flash_attention, query, key, value[..., :9, :])
    refuses("one value for all keys", module.flash_attention, query, key, value[..., :1, :])


FACTS = [
    outputs_and_gradients_are_pytorchs_at_every_size_of_a_tile,
    the_logsumexp_is_right_and_so_is_its_gradient,
    a_row_without_keys_is_zero,
    hidden_tiles_are_skipped_and_no_tensor_is_larger_than_an_input,
    between_the_passes_the_inputs_are_kept_the_result_and_a_number_a_query,
    under_autocast_it_casts_as_pytorchs_operator_and_the_way_back_is_not_cast,
    second_derivatives_pass_gradgradcheck,
    vmap_goes_through_both_passes,
    what_would_be_misread_is_refused,
]

CASES = {"causal": Case(lambda _, *x: flash_attention(*x, is_causal=True, block=64), heads)}
MIB = {
    "in tiles of 1,024": (
        21.6,
        lambda x: lambda: flash_attention(x, x, x, is_causal=True, block=1024),
    ),
}
END = "T_k if offset is None else rows.stop + offset"
KEPT = "ctx.save_for_backward(query, key, value, key_mask, *output)"
WRONG = {
    "the accumulator is not rescaled": (
        "weighted = weighted * factor[..., None] + powers",
        "weighted = weighted + powers",
    ),
    "-inf minus -inf": (
        "finite = maximum.masked_fill(maximum == -torch.inf, 0.0)  # or",
        "finite = maximum  # or",
    ),
    "each tile counts its rows from 0": (
        "torch.arange(rows.start, rows.stop, device=query.device)[:, None]",
        "torch.arange(rows.stop - rows.start, device=query.device)[:, None]",
    ),
    "the triangle in the upper left corner": (
        "key.size(-2) - query.size(-2) if is_causal",
        "0 if is_causal",
    ),
    "nothing is skipped": (END, "T_k"),
    "the padding of the first block for all": (
        "~key_mask[..., None, columns]",
        "~key_mask[..., None, : columns.stop - columns.start]",
    ),
    "the row sum is forgotten": ("(d_c @ v.mT - row_sum[..., rows, None])", "(d_c @ v.mT)"),
    "keys hear from the last block of queries alone": (
        "d_key[..., columns, :] += d_scores",
        "d_key[..., columns, :] = d_scores",
    ),
    "the gradient of the logsumexp is lost": (".sum(dim=-1) - d_logsumexp", ".sum(dim=-1)"),
    "the weights are kept": (KEPT, KEPT.replace("value,", "value, query @ key.mT,")),
}


@pytest.mark.lab
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_it_compiles():
    compiled = torch.compile(flash_attention, backend="eager", fullgraph=True)
    assert close(compiled(*leaves(), block=4), written_out(*leaves())[0])
