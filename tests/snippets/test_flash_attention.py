"""Attention in tiles is PyTorch's attention, both ways, and makes and keeps no weights."""

import torch
import torch.nn.functional as F
from torch.autograd import gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from snippets.flash_attention import flash_attention
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, alike, draw, heads

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


def test_outputs_and_gradients_are_pytorchs_at_every_size_of_a_tile(part):
    for sizes, mask, options in (
        ((7, 10), None, {"scale": 1.7}),
        ((10, 10), None, {"is_causal": True}),
        ((3, 10), None, {"is_causal": True, "scale": -0.5}),
        ((13, 10), None, {"is_causal": True}),  # the first three queries see no key
        ((10, 10), PADDING, {"is_causal": True, "scale": 0.0}),
        ((7, 0), None, {}),
        ((7, 10), PADDING[1], {"scale": 1e4}),
    ):
        for block in (1, 4):
            inputs = leaves(*sizes)
            result = part.flash_attention(*inputs, mask, block=block, **options)
            wanted, _ = written_out(*inputs, mask, **options)
            assert alike(result, wanted, inputs), (sizes, options, block)
    inputs = leaves(8, 8, (2, 3))
    wanted = F.scaled_dot_product_attention(*inputs, is_causal=True)
    assert alike(part.flash_attention(*inputs, is_causal=True), wanted, inputs)


def test_the_logsumexp_is_right_and_so_is_its_gradient(part):
    """-inf for a query that may see no key."""
    for mask in (None, PADDING):
        inputs = leaves(10, 10)
        options = {"is_causal": True, "block": 4, "return_logsumexp": True}
        context, found = part.flash_attention(*inputs, mask, **options)
        wanted_context, wanted = written_out(*inputs, mask, is_causal=True)
        seen = wanted > -torch.inf
        assert torch.equal(found > -torch.inf, seen)
        # In one sum, since a merge with other keys takes the gradients of both.
        pairs = (context, found), (wanted_context, wanted)
        result, wanted = (torch.cat([x.flatten(), y[seen]]) for x, y in pairs)
        assert alike(result, wanted, inputs)


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


def test_hidden_tiles_are_skipped_and_no_tensor_is_larger_than_an_input(part):
    """Two products a tile forward, five backward, for n(n + 1)/2 tiles of n²."""
    for is_causal, tiles in ((True, 6 * 7 // 2), (False, 6 * 6)):
        inputs = leaves(120, 120, leading=(), value_dim=3)
        with Made() as forward:
            context = part.flash_attention(*inputs, is_causal=is_causal, block=20)
        with Made() as backward:
            context.sum().backward()
        assert (forward.products, backward.products) == (2 * tiles, 5 * tiles)
        assert max(forward.size, backward.size) == 20 * 20 > 120 * 3


def test_between_the_passes_the_inputs_are_kept_the_result_and_a_number_a_query(part):
    inputs, seen = leaves(50, 50, leading=(), value_dim=3), {}

    def note(tensor):
        seen[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        part.flash_attention(*inputs, is_causal=True, block=16)
    assert sum(tensor.numel() for tensor in seen.values()) == 4 * 50 * 3 + 50


def test_second_derivatives_pass_gradgradcheck(part):
    def attend(*inputs):
        return part.flash_attention(*inputs, is_causal=True, block=2, return_logsumexp=True)

    inputs = leaves(3, 3, leading=(), head_dim=2, value_dim=2)
    assert gradgradcheck(attend, inputs, raise_exception=False)


def test_what_would_be_misread_is_refused(part):
    query, key, value = leaves(leading=(2, 2))
    refuses("a mask for each text", part.flash_attention, query, key, value, PADDING)
    refuses("zeros and ones", part.flash_attention, query, key, value, PADDING[0].double())
    refuses("more keys than values", part.flash_attention, query, key, value[..., :9, :])
    refuses("one value for all keys", part.flash_attention, query, key, value[..., :1, :])


CASES = {"causal": Case(lambda _, *x: flash_attention(*x, is_causal=True, block=64), heads)}
MIB = {
    "in tiles of 1,024": (
        21.6,
        lambda x: lambda: flash_attention(x, x, x, is_causal=True, block=1024),
    ),
}
END = "T_k if offset is None else rows.stop + offset"
WRONG = {
    "the accumulator is not rescaled": (
        "weighted = weighted * factor[..., None] + powers",
        "weighted = weighted + powers",
    ),
    "-inf minus -inf": (
        "finite = maximum.masked_fill(maximum == -torch.inf, 0.0)  # or",
        "finite = maximum  # or",
    ),
    "the triangle in the upper left corner": (
        "key.size(-2) - query.size(-2) if is_causal",
        "0 if is_causal",
    ),
    "nothing is skipped": (END, "T_k"),
    "the row sum is forgotten": ("(d_c @ v.mT - row_sum[..., rows, None])", "(d_c @ v.mT)"),
    "the gradient of the logsumexp is lost": (".sum(dim=-1) - d_logsumexp", ".sum(dim=-1)"),
}
