"""The layer is its definition, head by head, and PyTorch's own, whole and in shards."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets.multi_head_attention import MultiHeadAttention
from tests.snippets.facts import (
    copy_weights,
    dropout_is_for_training,
    refuses,
    works,
)
from tests.snippets.parts import Case, T, alike, attend, close, draw, texts


def test_outputs_weights_and_gradients_are_those_of_each_head(part):
    """Under masks for each head, of numbers beside is_causal, and of padding; with three inputs."""
    keep = draw(2, 2, 5, 3) > 0
    added = draw(5, 3, seed=2).masked_fill(torch.arange(5)[:, None] == 2, -torch.inf)
    padding = torch.tensor([[True, True, False], [True] * 3])[:, None, None]
    for mask, bias, is_causal in ((keep, True, False), (added, True, True), (padding, False, True)):
        torch.manual_seed(0)
        layer = part.MultiHeadAttention(6, 2, kv_dim=4, bias=bias).double()
        sizes = (5, 6), (3, 4), (3, 4)
        given = [draw(2, *size, seed=i).requires_grad_() for i, size in enumerate(sizes)]
        projections = zip((layer.W_query, layer.W_key, layer.W_value), given, strict=True)
        heads = zip(*(project(x).split(3, dim=-1) for project, x in projections), strict=True)
        own = mask.expand(2, 2, 5, 3).unbind(1)
        pairs = [attend(*x, m, is_causal=is_causal) for x, m in zip(heads, own, strict=True)]
        contexts, shares = zip(*pairs, strict=True)
        wanted, how = layer.out_proj(torch.cat(contexts, -1)), {"is_causal": is_causal}
        result, weights = layer(*given, attn_mask=mask, **how, need_weights=True)
        assert close(weights, torch.stack(shares, dim=1))
        for found in (result, layer(*given, attn_mask=mask, **how)):
            assert alike(found, wanted, [*given, *layer.parameters()])


def test_it_is_the_layer_of_torch(part):
    """Given its weights as the docstring says: outputs and gradients; self and cross, with a mask."""
    torch.manual_seed(0)
    for kv_dim, bias in ((8, True), (5, False)):
        how = {"bias": bias, "batch_first": True, "dtype": torch.float64}
        theirs = nn.MultiheadAttention(8, 2, kdim=kv_dim, vdim=kv_dim, **how)
        for parameter in theirs.parameters():
            nn.init.normal_(parameter)  # biases start at zero, which would hide a mistake
        ours = part.MultiHeadAttention(8, 2, kv_dim=kv_dim, bias=bias).double()
        copy_weights(theirs, ours)
        query, source = draw(3, 4, 8).requires_grad_(), draw(3, 6, kv_dim).requires_grad_()
        keep = torch.rand(3, 2, 4, 6) < 0.7
        keep[..., 0] = True  # where a row has no key, theirs is NaN
        wanted, weights = theirs(
            query, source, source, attn_mask=~keep.flatten(0, 1), average_attn_weights=False
        )
        output, shares = ours(query, source, attn_mask=keep, need_weights=True)
        assert close(shares, weights)
        for result in (output, ours(query, source, attn_mask=keep)):
            assert alike(result, wanted, (query, source))


def test_weights_are_dropped_while_it_is_trained(part):
    """On both paths, beside is_causal too."""
    torch.manual_seed(0)
    layer, x = part.MultiHeadAttention(4, 2, dropout=0.5), torch.randn(4, 4)
    dropout_is_for_training(layer, x, is_causal=True)


@torch.no_grad()
def test_shards_add_up_to_the_whole(part):
    """Give each of two modules two heads of four: their outputs add up, their weights join."""
    torch.manual_seed(0)
    whole = part.MultiHeadAttention(16, 4, kv_dim=5).double()
    query, source, keep = draw(2, 3, 16), draw(2, 6, 5), draw(2, 4, 3, 6) > -0.5
    wanted, shares = whole(query, source, attn_mask=keep, need_weights=True)
    found = []
    for rank, mask in enumerate(keep.chunk(2, dim=1)):
        shard = copy.deepcopy(whole)
        for projection in (shard.W_query, shard.W_key, shard.W_value):
            projection.weight = nn.Parameter(projection.weight.chunk(2)[rank])
            projection.bias = nn.Parameter(projection.bias.chunk(2)[rank])
        shard.out_proj.weight = nn.Parameter(shard.out_proj.weight.chunk(2, dim=1)[rank])
        shard.out_proj.bias = shard.out_proj.bias if rank == 0 else None
        with works("a shard"):
            output, weights = shard(query, source, attn_mask=mask, need_weights=True)
        found.append((output, shard(query, source, attn_mask=mask), weights))
    (slow, fast, first), (slow2, fast2, second) = found
    assert close(slow + slow2, wanted)
    assert close(fast + fast2, wanted)
    assert close(torch.cat([first, second], dim=1), shares)


def test_a_mask_of_another_float_dtype_is_cast(part):
    """The operator refuses one of float64 beside queries of float32, and a CUDA kernel misreads it."""
    torch.manual_seed(0)
    layer, x = part.MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    mask = torch.randn(5, 5, dtype=torch.float64)
    wanted = layer(x, attn_mask=mask.float(), need_weights=True)[0]
    with works("a mask of float64"):
        assert close(layer(x, attn_mask=mask), wanted, 1e-5)


def test_a_mask_beside_is_causal_is_one_mask(part):
    """PyTorch promises to take one of the two; here is the kernel that refuses both."""
    torch.manual_seed(0)
    layer, x = part.MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    keep = torch.ones(5, 5, dtype=torch.bool).triu(-2)
    with sdpa_kernel(SDPBackend.MATH), works("a mask beside is_causal"):
        assert close(layer(x, attn_mask=keep, is_causal=True), layer(x, attn_mask=keep.tril()))


def test_what_would_be_misread_is_refused(part):
    """All of these run in silence without the check."""
    refuses("heads that do not divide", part.MultiHeadAttention, 8, 3)
    layer, x = part.MultiHeadAttention(8, 2), torch.zeros(2, 5, 8)
    refuses("a key without a value", layer, x, x, x[:, :4])
    refuses("a mask for each text or head", layer, x, attn_mask=torch.ones(2, 5, 5).bool())
    numbers = torch.ones(5, 5, dtype=torch.int64)
    refuses("a mask of integers", layer, x, attn_mask=numbers, need_weights=True)
    with pytest.raises(TypeError):  # where nn.MultiheadAttention takes key_padding_mask
        layer(x, x, x, torch.ones(5, 5).bool())


SPLIT = "x.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)"
SOFTMAX = "scores.softmax(dim=-1).masked_fill(no_key, 0.0)"
MERGED = "(weights @ value).transpose(-3, -2).flatten(-2)"
WRONG = {
    "split by view(b, h, t, d): heads get tokens, not features": (
        SPLIT,
        "x.reshape(*x.shape[:-2], -1, x.size(-2), self.head_dim)",
    ),
    "split with the features of the heads interleaved": (
        SPLIT,
        "x.unflatten(-1, (self.head_dim, -1)).movedim(-1, -3)",
    ),
    "merged without transposing back": (
        MERGED,
        "(weights @ value).reshape(*weights.shape[:-3], T_q, -1)",
    ),
    "softmax over the heads": (SOFTMAX, SOFTMAX.replace("-1", "-3")),
    "an empty row is NaN": ("attn_mask.masked_fill(no_key, 0.0)", "attn_mask"),
}

NEXT = torch.ones(T, T, dtype=torch.bool).tril(1)
CASES = {
    "multi_head_attention": Case(
        lambda m, x: m(x, is_causal=True), texts, lambda: MultiHeadAttention(16, 4)
    ),
    "multi_head_attention, weights": Case(
        lambda m, x: m(x, attn_mask=NEXT.to(x.device), is_causal=True, need_weights=True),
        texts,
        lambda: MultiHeadAttention(16, 2),
    ),
}


class Causal(nn.Module):
    """The layer, asked to hide the future, beside a mask of its own and with its weights or without."""

    def __init__(self, **options):
        super().__init__()
        self.layer, self.options = MultiHeadAttention(8, 4), options

    def forward(self, x):
        """(batch, T, 8) → contexts, or weights."""
        keep = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(-2)
        result = self.layer(x, attn_mask=keep, is_causal=True, **self.options)
        return result[1] if self.options else result


MODULES = {
    "MultiHeadAttention": Causal,
    "MultiHeadAttention, weights": lambda: Causal(need_weights=True),
}
MIB = {"multi_head_attention": (20, lambda x: partial(MultiHeadAttention(x.size(1), 1), x[None]))}
