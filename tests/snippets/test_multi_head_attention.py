"""The layer is its definition, head by head, and PyTorch's own, whole and in shards."""

import copy
import os
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing, nn

from snippets.multi_head_attention import MultiHeadAttention
from tests.snippets import facts
from tests.snippets.facts import (
    asked_of,
    assert_equal,
    copy_weights,
    dropout_is_for_training,
    gradients,
    projections_are_only_called,
    refuses,
    works,
)
from tests.snippets.parts import Case, T, texts
from tests.snippets.problems import CASES as PROBLEMS
from tests.snippets.problems import multi_head_problem


def it_is_the_layer_of_torch(part):
    """Given its weights as the docstring says: outputs, weights, gradients; self and cross, with a mask."""
    torch.manual_seed(0)
    for kv_dim, bias in ((8, True), (8, False), (5, True)):
        theirs = nn.MultiheadAttention(
            8, 2, bias=bias, kdim=kv_dim, vdim=kv_dim, batch_first=True, dtype=torch.float64
        )
        if bias:
            nn.init.normal_(theirs.in_proj_bias)  # they start at zero, which would hide a mistake
            nn.init.normal_(theirs.out_proj.bias)
        ours = part.MultiHeadAttention(8, 2, kv_dim=kv_dim, bias=bias).double()
        copy_weights(theirs, ours)
        query = torch.randn(3, 4, 8, dtype=torch.float64, requires_grad=True)
        source = torch.randn(3, 6, kv_dim, dtype=torch.float64, requires_grad=True)
        keep = torch.rand(3, 2, 4, 6) < 0.7
        keep[..., 0] = True  # where a row has no key, theirs is NaN
        their_output, their_weights = theirs(
            query, source, source, attn_mask=~keep.flatten(0, 1), average_attn_weights=False
        )
        inputs = {"query": query, "source": source}
        wanted = gradients(their_output, inputs)
        output, weights = ours(query, source, attn_mask=keep, need_weights=True)
        assert_equal("weights", weights, their_weights, torch.float64)
        for result in (output, ours(query, source, attn_mask=keep)):
            assert_equal("output", result, their_output, torch.float64)
            for name, gradient in gradients(result, inputs).items():
                assert_equal(f"gradient of {name}", gradient, wanted[name], torch.float64)


def keys_come_from_the_query_and_values_from_the_keys(part):
    """Where they are not given."""
    torch.manual_seed(0)
    layer, x = part.MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    source = x.flip(1)
    assert torch.equal(layer(x), layer(x, x, x))
    assert torch.equal(layer(x, source), layer(x, source, source))
    assert not torch.equal(layer(x, source, x), layer(x, source))


def weights_are_dropped_while_it_is_trained(part):
    """On both paths, beside is_causal too."""
    torch.manual_seed(0)
    layer, x = part.MultiHeadAttention(4, 2, dropout=0.5), torch.randn(4, 4)
    for is_causal in (False, True):
        dropout_is_for_training(layer, x, is_causal=is_causal)


def whatever_maps_the_same_widths_may_take_a_projections_place(part):
    """An adapter around each, as LoRA has."""
    torch.manual_seed(0)
    x, source = torch.randn(2, 3, 8), torch.randn(2, 5, 6)
    projections_are_only_called(part.MultiHeadAttention(8, 2, kv_dim=6), x, source)


@torch.no_grad()
def shards_add_up_to_the_whole(part):
    """Give each of two modules two heads of four: their outputs add up, their weights join."""
    torch.manual_seed(0)
    whole = part.MultiHeadAttention(16, 4, kv_dim=5)
    query, source = torch.randn(2, 3, 16), torch.randn(2, 6, 5)
    keep = torch.rand(2, 4, 3, 6) < 0.7
    context, weights = whole(query, source, attn_mask=keep, need_weights=True)
    sums, found = [], []
    for rank, mask in enumerate(keep.chunk(2, dim=1)):
        shard = shard_of(whole, rank, 2)
        with works("a shard"):
            result, shares = shard(query, source, attn_mask=mask, need_weights=True)
        found.append(shares)
        sums.append(torch.stack([result, shard(query, source, attn_mask=mask)]))
    assert_equal("weights", torch.cat(found, 1), weights, torch.float32)
    assert_equal("outputs", sum(sums), torch.stack([context, context]), torch.float32)


def shard_of(whole, rank, ranks):
    """Return a copy of a MultiHeadAttention that holds its share of the heads alone."""
    part = copy.deepcopy(whole)
    for projection in (part.W_query, part.W_key, part.W_value):
        projection.weight = nn.Parameter(projection.weight.chunk(ranks)[rank])
        projection.bias = nn.Parameter(projection.bias.chunk(ranks)[rank])
    part.out_proj.weight = nn.Parameter(part.out_proj.weight.chunk(ranks, dim=1)[rank])
    part.out_proj.bias = part.out_proj.bias if rank == 0 else None
    return part


def a_mask_of_another_float_dtype_is_cast(part):
    """The operator refuses one of float64 beside queries of float32, and a CUDA kernel misreads it."""
    torch.manual_seed(0)
    layer, x = part.MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    mask = torch.randn(5, 5, dtype=torch.float64)
    wanted = layer(x, attn_mask=mask.float(), need_weights=True)[0]
    with works("a mask of float64"):
        assert_equal("output", layer(x, attn_mask=mask), wanted, torch.float32)


def a_mask_beside_is_causal_is_one_mask(part):
    """Of all heads."""
    torch.manual_seed(0)
    layer = part.MultiHeadAttention(8, 2)
    facts.a_mask_beside_is_causal_is_one_mask(partial(layer, torch.randn(2, 5, 8)))


def what_would_be_misread_is_refused(part):
    """All of these run in silence without the check."""
    refuses("heads that do not divide", part.MultiHeadAttention, 8, 3)
    layer, x = part.MultiHeadAttention(8, 2), torch.zeros(2, 5, 8)
    refuses("a key without a value", layer, x, x, x[:, :4])
    refuses("a mask for each text or head", layer, x, attn_mask=torch.ones(2, 5, 5).bool())
    numbers = torch.ones(5, 5, dtype=torch.int64)
    refuses("a mask of integers", layer, x, attn_mask=numbers, need_weights=True)
    with pytest.raises(TypeError):  # where nn.MultiheadAttention takes key_padding_mask
        layer(x, x, x, torch.ones(5, 5).bool())


FACTS = [
    *asked_of(multi_head_problem, PROBLEMS),
    it_is_the_layer_of_torch,
    keys_come_from_the_query_and_values_from_the_keys,
    whatever_maps_the_same_widths_may_take_a_projections_place,
    shards_add_up_to_the_whole,
    a_mask_of_another_float_dtype_is_cast,
    a_mask_beside_is_causal_is_one_mask,
    what_would_be_misread_is_refused,
    weights_are_dropped_while_it_is_trained,
]

SCALED = "query * self.head_dim**-0.5"
SPLIT = "x.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)"
SOFTMAX = "scores.softmax(dim=-1).masked_fill(no_key, 0.0)"
MERGED = "(weights @ value).transpose(-3, -2).flatten(-2)"
ALONE = f"return self.out_proj({MERGED}), weights"
DROPOUT = "self.dropout if self.training else 0.0"
HEADS = {
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
    "heads in reverse order": (MERGED, MERGED.replace("@ value)", "@ value).flip(-3)")),
    "all heads share one query": (SCALED, "query[..., :1, :, :].expand_as(query)" + SCALED[5:]),
    "no output projection": (
        ALONE,
        f"return {MERGED} + 0 * self.out_proj.weight[0, 0], weights",
    ),
}
OPERATOR = "query, key, value, attn_mask, dropout, is_causal"
WRONG = HEADS | {
    "merged without transposing back, by the operator": (
        "context.transpose(-3, -2).flatten(-2)",
        "context.reshape(*context.shape[:-3], T_q, -1)",
    ),
    "a shard cuts its heads by their number, not by their width": (
        "(-1, self.head_dim)",
        "(self.out_proj.out_features // self.head_dim, -1)",
    ),
    "reaches into the weight of a projection": (
        "self.W_value(value)",
        "self.W_value(value.to(self.W_value.weight.dtype))",
    ),
    "a matrix used without its transpose": (
        "self.W_query(query)",
        "(query @ self.W_query.weight + (self.W_query.bias if self.W_query.bias is not None else 0))",
    ),
    "takes a mask where PyTorch's layer takes another": (
        "*,\n        attn_mask: Tensor | None = None,",
        "attn_mask: Tensor | None = None,\n        *,",
    ),
    "weights averaged over the heads": (
        ALONE,
        ALONE.replace(", weights", ", weights.mean(-3, keepdim=True).expand_as(weights)"),
    ),
    "scaled by the embedding dimension": (SCALED, "query * self.out_proj.in_features**-0.5"),
    "values taken from the keys' input": ("value = key if value is None else value", "value = key"),
    "values taken from the queries' input": ("value = key if value", "value = query if value"),
    "no bias where it is asked for": (
        "self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)",
        "self.out_proj = nn.Linear(embed_dim, embed_dim)",
    ),
    "heads that do not divide are narrower": ("if embed_dim % num_heads:", "if False:"),
    # Masks
    "an additive mask is scaled": (
        "scores += attn_mask.masked_fill(no_key, 0.0)",
        "scores += 0.5 * attn_mask.masked_fill(no_key, 0.0)",
    ),
    "inverted": ("zeros.masked_fill(~attn_mask", "zeros.masked_fill(attn_mask"),
    "is_causal and a mask: off by one": (".triu(1)", ".triu(2)"),
    "is_causal and a mask: hides the present": (".triu(1)", ".triu(0)"),
    "is_causal forgotten beside a mask": (
        "_hide_future(attn_mask, T_q, T_k), False",
        "attn_mask, False",
    ),
    "is_causal forgotten where weights are asked for": (
        "if is_causal else scores",
        "if False else scores",
    ),
    "is_causal forgotten by the operator": (OPERATOR, OPERATOR.replace("is_causal", "False")),
    "the mask is forgotten by the operator": (OPERATOR, OPERATOR.replace("attn_mask", "None")),
    "the mask of another sample": (
        "attn_mask, is_causal = _hide_future(attn_mask,",
        "attn_mask, is_causal = _hide_future(attn_mask.flip(0),",
    ),
    "the operator gets a mask beside is_causal": (
        "if is_causal and attn_mask is not None:",
        "if False:",
    ),
    "an empty row is NaN": ("attn_mask.masked_fill(no_key, 0.0)", "attn_mask"),
    "an empty row is uniform": (SOFTMAX, SOFTMAX.partition(".masked_fill")[0]),
    "a mask of another dtype is passed on": (".to(query.dtype)", ""),
    "a mask of integers is added": ("elif not attn_mask.is_floating_point():", "elif False:"),
    "a mask for each text is laid over the heads": (
        "attn_mask.dim() == 3:",
        "attn_mask.dim() == 0:",
    ),
    "the operator reads beyond the last value": ("if value.size(-2) != T_k:", "if False:"),
    # Dropout
    "left on in eval": (DROPOUT, "self.dropout"),
    "on in eval only": (DROPOUT, DROPOUT.replace("if self", "if not self")),
    "the operator drops nothing": (OPERATOR, OPERATOR.replace("dropout", "0.0")),
    "only the operator drops": (
        "F.dropout(_softmax(scores, attn_mask), dropout)",
        "_softmax(scores, attn_mask)",
    ),
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


def one_text(x):
    """The call for one text."""
    layer = MultiHeadAttention(x.size(1), 1)
    return lambda: layer(x[None])


MIB = {"multi_head_attention": (20, one_text)}

RANKS = 2


def on_each_rank(rank, folder):
    """Build the layer whole and split, on the same numbers, and store what both give."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    warnings.simplefilter("ignore")
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank)}
    store = dist.FileStore(str(Path(folder, "store")), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, 4).double()
    x, keep = torch.randn(2, 5, 16, dtype=torch.float64), torch.rand(2, 1, 1, 5) < 0.7
    wanted = output_and_gradients(layer, x, keep)
    plan = {part: ColwiseParallel() for part in ("W_query", "W_key", "W_value")}
    plan["out_proj"] = RowwiseParallel()
    split = parallelize_module(layer, init_device_mesh("cpu", (RANKS,)), plan)
    assert split.W_query.weight.to_local().size(0) == 8  # two heads of the four
    result = output_and_gradients(split, x, keep)
    if rank == 0:
        torch.save((wanted, result), Path(folder, "found.pt"))
    dist.barrier()
    dist.destroy_process_group()


def output_and_gradients(layer, x, keep):
    """Return the output and the gradient of each parameter, each of them whole."""
    layer.zero_grad()
    output = layer(x, attn_mask=keep, is_causal=True)
    output.square().sum().backward()
    found = {name: parameter.grad for name, parameter in layer.named_parameters()}
    found["output"] = output.detach()
    # What came from several processes is gathered, and waited for by reckoning with it.
    return {
        name: (it.full_tensor() if hasattr(it, "full_tensor") else it) * 1.0
        for name, it in found.items()
    }


@pytest.mark.lab
def test_split_over_two_processes_it_is_the_whole_layer(tmp_path):
    multiprocessing.spawn(on_each_rank, args=(str(tmp_path),), nprocs=RANKS)
    wanted, result = torch.load(tmp_path / "found.pt", weights_only=True)
    assert wanted.keys() == result.keys()
    for name in wanted:
        assert_equal(name, result[name], wanted[name], torch.float64)
