"""Small attention problems, with an oracle that shares no code with the snippets.

A Case says what to draw: sizes, dtype, memory layout, mask. A builder turns it into a Problem for
one snippet: the tensors it depends on, how to call the snippet, and what it should return.
An Implementation holds the snippets, as they are or with an edit made to their source.
"""

import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call

SNIPPETS = Path(__file__).parents[2] / "snippets"
NAMES = (
    "scaled_dot_product_attention",
    "self_attention",
    "causal_self_attention",
    "multi_head_attention",
    "cross_attention",
)
WITHOUT_WEIGHTS = ("causal_average", "attention_backward")  # they return the context alone
BEFORE_ATTENTION = ("positions",)  # what is done to the tokens first
BOTH_PATHS = (False, True)  # need_weights: the fused kernel, and the formula written out
# Largest error allowed, as a share of the largest expected magnitude (or of 1, if that is more).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-2}

Leaves = dict[str, Tensor]
Result = tuple[Tensor, Tensor | None]


class Implementation:
    """The snippets, each a module executed from its source file.

    Args:
        edits: for a file's stem, the (old, new) pairs to replace in its source, as `edited` does.
    """

    def __init__(self, edits: dict[str, list[tuple[str, str]]] | None = None) -> None:
        for name in (*NAMES, *WITHOUT_WEIGHTS, *BEFORE_ATTENTION):
            setattr(self, name, edited(name, *(edits or {}).get(name, ())))


def edited(name: str, *edits: tuple[str, str]) -> types.ModuleType:
    """Return the snippet `name`, executed from its source with these edits made to it.

    Args:
        edits: (old, new) pairs to replace, one after the other. How the code is broken into lines
            does not matter, so that a snippet can be formatted anew.

    Raises:
        LookupError: where an old does not occur exactly once, so an edit cannot silently stop
            applying; names the file, the text and how often it occurs.
    """
    source = (SNIPPETS / f"{name}.py").read_text(encoding="utf-8")
    for old, new in edits:
        found = [*in_any_format(old).finditer(source)]
        if len(found) != 1:
            raise LookupError(f"{name}.py: {old!r} occurs {len(found)} times, not once")
        source = source[: found[0].start()] + new + source[found[0].end() :]
    return execute(name, source)


@cache
def in_any_format(code: str) -> re.Pattern[str]:
    """Return what finds `code` however it is broken into lines, with a last comma or without."""
    bare = re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", code))
    marks = [",?\\s*" * (mark in ")]}") + re.escape(mark) for mark in bare]
    before, after = (re.match(r"\s*", text)[0] for text in (code, code[::-1]))
    return re.compile(re.escape(before) + r"\s*".join(marks) + re.escape(after[::-1]))


@cache
def execute(name: str, source: str) -> types.ModuleType:
    """Return a module that holds what the source defines.

    The same source is executed once, and all share the module: leave it as it is.
    """
    module = types.ModuleType(name)
    exec(compile(source, str(SNIPPETS / f"{name}.py"), "exec"), module.__dict__)
    return module


@dataclass(frozen=True)
class Case:
    """What to draw. Sizes that a snippet does not know are ignored by its builder."""

    batch: tuple[int, ...] = (2,)
    T_q: int = 4
    T_k: int = 4
    num_heads: int = 2
    head_dim: int = 3
    value_dim: int = 3  # of one head
    embed_dim: int = 5
    kv_dim: int = 5
    dtype: torch.dtype = torch.float64
    layout: str = "plain"  # plain, transposed, strided, expanded
    mask: str = "none"  # none, bool, float, padding, empty row, float with empty row, nothing
    mask_batched: bool = False
    causal: bool = False
    scale: float | None = None
    bias: bool = False
    num_kv_heads: int | None = None
    wider: int = 0  # than all heads: what embed_dim has, where head_dim is given
    out_dim: int | None = None
    qkv_bias: bool | None = None
    logits: float = 1.0  # factor on the size of the scores
    seed: int = 0


@dataclass
class Problem:
    """One snippet with everything it depends on.

    Attributes:
        leaves: inputs and parameters by name; each requires a gradient.
        inputs: the names of those leaves that hold sequences, (..., T, width).
        call: (leaves, need_weights) → (context, weights or None), by the snippet.
        oracle: leaves in float64 → (context, weights), by definition.
        bias: float64, the shape of the weights; 0 or the mask's value, -inf where hidden.
        causal: whether the future must be hidden.
        paths: the values of need_weights that the snippet knows.
    """

    leaves: Leaves
    inputs: tuple[str, ...]
    call: Callable[[Leaves, bool], Result]
    oracle: Callable[[Leaves], tuple[Tensor, Tensor]]
    bias: Tensor
    causal: bool
    dtype: torch.dtype
    paths: tuple[bool, ...] = BOTH_PATHS


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float):
    """Return context and weights, one row at a time, from the kept keys alone: no -inf anywhere."""
    shape = bias.shape[:-2]
    flat = [
        part.expand(*shape, *part.shape[-2:]).reshape(math.prod(shape), *part.shape[-2:])
        for part in (query, key, value, bias)
    ]
    contexts, rows = [], []
    for q, k, v, b in zip(*flat, strict=True):
        for i in range(q.size(0)):
            kept = (b[i] > -torch.inf).nonzero().flatten()
            scores = (k[kept] * q[i]).sum(1) * scale + b[i][kept]
            exps = (scores - (scores.max() if len(kept) else 0.0)).exp()
            row = exps / exps.sum()
            rows.append(row.new_zeros(k.size(0)).index_put((kept,), row))
            contexts.append((row[:, None] * v[kept]).sum(0))
    if not rows:
        return (
            query.new_zeros(*shape, query.size(-2), value.size(-1)),
            query.new_zeros(*shape, query.size(-2), key.size(-2)),
        )
    return (
        torch.stack(contexts).reshape(*shape, query.size(-2), value.size(-1)),
        torch.stack(rows).reshape(*shape, query.size(-2), key.size(-2)),
    )


def draw(case: Case, generator: torch.Generator, tokens: int, width: int) -> Tensor:
    """Return a leaf (*case.batch, tokens, width), in the memory layout that the case asks for."""

    def normal(*shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (numbers * case.logits**0.5).to(case.dtype)

    if case.layout == "transposed":
        tensor = normal(*case.batch, width, tokens).mT
    elif case.layout == "strided":
        tensor = normal(*case.batch, tokens, 2 * width)[..., ::2]
    elif case.layout == "expanded":
        tensor = normal(*(1 for _ in case.batch), tokens, width).expand(*case.batch, tokens, width)
    else:
        tensor = normal(*case.batch, tokens, width)
    return tensor.detach().requires_grad_()


def draw_mask(case: Case, generator: torch.Generator, batch: tuple[int, ...], T_q: int, T_k: int):
    """Return the mask to pass (or None), and what it adds to the scores: (*batch, T_q, T_k)."""
    shape = (*batch, T_q, T_k) if case.mask_batched else (T_q, T_k)
    keep = torch.rand(shape, generator=generator) < 0.6
    if case.mask == "none":
        return None, torch.zeros(*batch, T_q, T_k, dtype=torch.float64)
    if case.mask == "padding":
        samples = (*batch[:1], *(1 for _ in batch[1:]))  # (batch, 1, ...): the same in each head
        keep = torch.rand((*samples, 1, T_k), generator=generator) < 0.6
    if case.mask.endswith("empty row") and T_q:
        keep[..., T_q // 2, :] = False
    if case.mask == "nothing":
        keep[...] = False
    hide = torch.zeros(keep.shape, dtype=torch.float64).masked_fill(~keep, -torch.inf)
    if case.mask.startswith("float"):
        added = torch.randn(keep.shape, generator=generator).to(case.dtype) + hide.to(case.dtype)
        return added, added.double().expand(*batch, T_q, T_k)
    return keep, hide.expand(*batch, T_q, T_k)


def hide_future(bias: Tensor) -> Tensor:
    """Return bias with -inf wherever the key's index is above the query's."""
    T_q, T_k = bias.shape[-2:]
    future = torch.arange(T_k) > torch.arange(T_q)[:, None]
    return bias.masked_fill(future, -torch.inf)


def linear(leaves: Leaves, name: str, x: Tensor) -> Tensor:
    """Return x projected by the nn.Linear of that name, written out."""
    projected = x @ leaves[f"{name}.weight"].T
    return projected + leaves[f"{name}.bias"] if f"{name}.bias" in leaves else projected


def pair(result: Tensor | tuple[Tensor, Tensor], need_weights: bool) -> Result:
    """Return (context, weights or None), whichever way a snippet was asked."""
    return result if need_weights else (result, None)


def function_problem(implementation: Implementation, case: Case) -> Problem:
    """scaled_dot_product_attention, which takes query, key and value as they are."""
    generator = torch.Generator().manual_seed(case.seed)
    leaves = {
        "query": draw(case, generator, case.T_q, case.head_dim),
        "key": draw(case, generator, case.T_k, case.head_dim),
        "value": draw(case, generator, case.T_k, case.value_dim),
    }
    mask, bias = draw_mask(case, generator, case.batch, case.T_q, case.T_k)
    bias = hide_future(bias) if case.causal else bias
    scale = case.head_dim**-0.5 if case.scale is None else case.scale

    def call(leaves: Leaves, need_weights: bool) -> Result:
        function = implementation.scaled_dot_product_attention.scaled_dot_product_attention
        result = function(
            leaves["query"],
            leaves["key"],
            leaves["value"],
            mask,
            is_causal=case.causal,
            scale=case.scale,
            need_weights=need_weights,
        )
        return pair(result, need_weights)

    def oracle(leaves: Leaves) -> tuple[Tensor, Tensor]:
        return attend(leaves["query"], leaves["key"], leaves["value"], bias, scale)

    return Problem(leaves, ("query", "key", "value"), call, oracle, bias, case.causal, case.dtype)


def module_problem(
    case: Case,
    module: nn.Module,
    inputs: Leaves,
    options: dict,
    oracle: Callable,
    bias: Tensor,
    causal: bool,
) -> Problem:
    """A Problem for a module: its parameters are leaves beside its inputs."""
    module.to(case.dtype)

    def call(leaves: Leaves, need_weights: bool) -> Result:
        parameters = {name: leaves[name] for name, _ in module.named_parameters()}
        arguments = tuple(leaves[name] for name in inputs)
        result = functional_call(
            module, parameters, arguments, options | {"need_weights": need_weights}
        )
        return pair(result, need_weights)

    leaves = inputs | dict(module.named_parameters())
    return Problem(leaves, tuple(inputs), call, oracle, bias, causal, case.dtype)


def self_problem(implementation: Implementation, case: Case) -> Problem:
    """SelfAttention, whose queries, keys and values come from x."""
    generator = torch.Generator().manual_seed(case.seed)
    torch.manual_seed(case.seed)
    module = implementation.self_attention.SelfAttention(
        case.embed_dim, case.head_dim, bias=case.bias
    )
    x = draw(case, generator, case.T_q, case.embed_dim)
    mask, bias = draw_mask(case, generator, case.batch, case.T_q, case.T_q)
    return module_problem(
        case, module, {"x": x}, {"attn_mask": mask}, single_head_oracle("x", "x", bias), bias, False
    )


def causal_problem(implementation: Implementation, case: Case) -> Problem:
    """CausalSelfAttention, which takes no mask: it has its own."""
    generator = torch.Generator().manual_seed(case.seed)
    torch.manual_seed(case.seed)
    module = implementation.causal_self_attention.CausalSelfAttention(
        case.embed_dim, case.head_dim, bias=case.bias
    )
    x = draw(case, generator, case.T_q, case.embed_dim)
    bias = hide_future(torch.zeros(*case.batch, case.T_q, case.T_q, dtype=torch.float64))
    return module_problem(
        case, module, {"x": x}, {}, single_head_oracle("x", "x", bias), bias, True
    )


def cross_problem(implementation: Implementation, case: Case) -> Problem:
    """CrossAttention, whose keys and values come from a source of another length and width."""
    generator = torch.Generator().manual_seed(case.seed)
    torch.manual_seed(case.seed)
    module = implementation.cross_attention.CrossAttention(
        case.embed_dim, case.kv_dim, case.head_dim, case.value_dim, bias=case.bias
    )
    inputs = {
        "x": draw(case, generator, case.T_q, case.embed_dim),
        "source": draw(case, generator, case.T_k, case.kv_dim),
    }
    mask, bias = draw_mask(case, generator, case.batch, case.T_q, case.T_k)
    return module_problem(
        case,
        module,
        inputs,
        {"attn_mask": mask},
        single_head_oracle("x", "source", bias),
        bias,
        False,
    )


def single_head_oracle(queries: str, keys: str, bias: Tensor) -> Callable:
    """The oracle of the three modules with one head."""

    def oracle(leaves: Leaves) -> tuple[Tensor, Tensor]:
        query = linear(leaves, "W_query", leaves[queries])
        key = linear(leaves, "W_key", leaves[keys])
        value = linear(leaves, "W_value", leaves[keys])
        return attend(query, key, value, bias, query.size(-1) ** -0.5)

    return oracle


def multi_head_problem(implementation: Implementation, case: Case) -> Problem:
    """MultiHeadAttention, from three inputs of two widths."""
    generator = torch.Generator().manual_seed(case.seed)
    torch.manual_seed(case.seed)
    embed_dim = case.num_heads * case.head_dim + case.wider
    module = implementation.multi_head_attention.MultiHeadAttention(
        embed_dim,
        case.num_heads,
        kv_dim=case.kv_dim,
        num_kv_heads=case.num_kv_heads,
        head_dim=case.head_dim if case.wider else None,
        value_dim=case.num_heads * case.value_dim,
        out_dim=case.out_dim,
        bias=case.bias,
        qkv_bias=case.qkv_bias,
    )
    group = case.num_heads // (case.num_kv_heads or case.num_heads)
    inputs = {
        "query": draw(case, generator, case.T_q, embed_dim),
        "key": draw(case, generator, case.T_k, case.kv_dim),
        "value": draw(case, generator, case.T_k, case.kv_dim),
    }
    batch = (*case.batch, case.num_heads)
    mask, bias = draw_mask(case, generator, batch, case.T_q, case.T_k)
    bias = hide_future(bias) if case.causal else bias

    def oracle(leaves: Leaves) -> tuple[Tensor, Tensor]:
        query = linear(leaves, "W_query", leaves["query"])
        key = linear(leaves, "W_key", leaves["key"])
        value = linear(leaves, "W_value", leaves["value"])
        contexts, weights = [], []
        for head in range(case.num_heads):  # each head is a slice of the features
            shared = head // group  # a head of keys and values serves a group of queries' heads
            context, row = attend(
                query[..., head * case.head_dim : (head + 1) * case.head_dim],
                key[..., shared * case.head_dim : (shared + 1) * case.head_dim],
                value[..., shared * case.value_dim : (shared + 1) * case.value_dim],
                bias[..., head, :, :],
                case.head_dim**-0.5,
            )
            contexts.append(context)
            weights.append(row)
        return linear(leaves, "out_proj", torch.cat(contexts, -1)), torch.stack(weights, -3)

    options = {"attn_mask": mask, "is_causal": case.causal}
    return module_problem(case, module, inputs, options, oracle, bias, case.causal)


def average_problem(implementation: Implementation, case: Case) -> Problem:
    """causal_average: attention whose scores are all zero, since its queries are."""
    generator = torch.Generator().manual_seed(case.seed)
    leaves = {"x": draw(case, generator, case.T_q, case.embed_dim)}
    bias = hide_future(torch.zeros(*case.batch, case.T_q, case.T_q, dtype=torch.float64))

    def call(leaves: Leaves, need_weights: bool) -> Result:
        return implementation.causal_average.causal_average(leaves["x"]), None

    def oracle(leaves: Leaves) -> tuple[Tensor, Tensor]:
        return attend(torch.zeros_like(leaves["x"]), leaves["x"], leaves["x"], bias, 1.0)

    return Problem(leaves, ("x",), call, oracle, bias, True, case.dtype, (False,))


def backward_problem(implementation: Implementation, case: Case) -> Problem:
    """attention, whose backward pass is written by hand."""
    problem = function_problem(implementation, replace(case, causal=False))
    generator = torch.Generator().manual_seed(case.seed)
    mask, bias = draw_mask(case, generator, case.batch, case.T_q, case.T_k)
    scale = case.head_dim**-0.5 if case.scale is None else case.scale

    def call(leaves: Leaves, need_weights: bool) -> Result:
        query, key, value = leaves["query"], leaves["key"], leaves["value"]
        attention = implementation.attention_backward.attention
        return attention(query, key, value, mask, scale=case.scale), None

    def oracle(leaves: Leaves) -> tuple[Tensor, Tensor]:
        return attend(leaves["query"], leaves["key"], leaves["value"], bias, scale)

    inputs = ("query", "key", "value")
    return Problem(problem.leaves, inputs, call, oracle, bias, False, case.dtype, (False,))


BUILDERS = {
    "scaled_dot_product_attention": function_problem,
    "self_attention": self_problem,
    "causal_self_attention": causal_problem,
    "multi_head_attention": multi_head_problem,
    "cross_attention": cross_problem,
}
BUILDERS_WITHOUT_WEIGHTS = {
    "causal_average": average_problem,
    "attention_backward": backward_problem,
}
