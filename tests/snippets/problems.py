"""Small attention problems, with an oracle that shares no code with the snippets.

A Case says what to make: sizes, dtype, memory layout, mask. A builder turns it into a Problem for the
module of a part: the tensors it depends on, how to call the part, and what it should return.
"""

import math
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tests.wrong import edit, in_any_format  # noqa: F401 - other tests take it from here

SNIPPETS = Path(__file__).parents[2] / "snippets"
BOTH_PATHS = (False, True)  # need_weights: PyTorch's operator, and the formula written out
# Largest error allowed, as a share of the largest expected magnitude (or of 1, if that is more).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-2}

Leaves = dict[str, Tensor]
Result = tuple[Tensor, Tensor | None]


def edited(name: str, *edits: tuple[str, str]) -> ModuleType:
    """Return the snippet `name`, executed from its source with these edits, (old, new), made to it."""
    source = (SNIPPETS / f"{name}.py").read_text(encoding="utf-8")
    for old, new in edits:
        source = edit(source, old, new, f"{name}.py")
    return execute(name, source)


@cache
def execute(name: str, source: str) -> ModuleType:
    """Return a module that holds what the source defines.

    The same source is executed once, and all share the module: leave it as it is.
    """
    module = types.ModuleType(name)
    exec(compile(source, str(SNIPPETS / f"{name}.py"), "exec"), module.__dict__)
    return module


@dataclass(frozen=True)
class Case:
    """What to make. Sizes that a part does not know are ignored by its builder."""

    batch: tuple[int, ...] = (2,)
    T_q: int = 4
    T_k: int = 4
    num_heads: int = 2
    head_dim: int = 3
    value_dim: int = 3
    embed_dim: int = 5
    kv_dim: int = 5
    dtype: torch.dtype = torch.float64
    layout: str = "plain"  # plain, transposed, strided, expanded
    mask: str = "none"  # none, bool, float, padding, empty row, float with empty row, nothing
    mask_batched: bool = False
    causal: bool = False
    scale: float | None = None
    bias: bool = False
    logits: float = 1.0  # factor on the size of the scores
    seed: int = 0

    def without_numbers_in_its_mask(self) -> "Case":
        """The same, with a boolean mask, for a part that takes no other."""
        mask = self.mask.replace("float with ", "").replace("float", "bool")
        return replace(self, mask=mask)


@dataclass
class Problem:
    """One part with everything it depends on.

    Attributes:
        leaves: inputs and parameters by name; each requires a gradient.
        inputs: the names of those leaves that hold sequences, (..., T, width).
        call: (leaves, need_weights) → (context, weights or None), by the part.
        oracle: leaves in float64 → (context, weights), by definition.
        bias: float64, the shape of the weights; 0 or the mask's value, -inf where hidden.
        causal: whether the future must be hidden.
        paths: the values of need_weights that the part knows.
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


def leaf(case: Case, generator: torch.Generator, tokens: int, width: int) -> Tensor:
    """Return a leaf (*case.batch, tokens, width), in the memory layout of the case."""

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


def mask_of(case: Case, generator: torch.Generator, batch: tuple[int, ...], T_q: int, T_k: int):
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
    """Return (context, weights or None), whichever way a part was asked."""
    return result if need_weights else (result, None)


def function_problem(part: ModuleType, case: Case) -> Problem:
    """scaled_dot_product_attention, which takes query, key and value as they are."""
    generator = torch.Generator().manual_seed(case.seed)
    leaves = {
        "query": leaf(case, generator, case.T_q, case.head_dim),
        "key": leaf(case, generator, case.T_k, case.head_dim),
        "value": leaf(case, generator, case.T_k, case.value_dim),
    }
    mask, bias = mask_of(case, generator, case.batch, case.T_q, case.T_k)
    bias = hide_future(bias) if case.causal else bias
    scale = case.head_dim**-0.5 if case.scale is None else case.scale
    options = {"is_causal": case.causal, "scale": case.scale}

    def call(leaves: Leaves, need_weights: bool) -> Result:
        function, inputs = part.scaled_dot_product_attention, leaves.values()
        return pair(function(*inputs, mask, **options, need_weights=need_weights), need_weights)

    def oracle(leaves: Leaves) -> tuple[Tensor, Tensor]:
        return attend(leaves["query"], leaves["key"], leaves["value"], bias, scale)

    return Problem(leaves, tuple(leaves), call, oracle, bias, case.causal, case.dtype)


def module_problem(
    case: Case,
    module: nn.Module,
    inputs: Leaves,
    options: dict,
    oracle: Callable,
    bias: Tensor,
    paths: tuple[bool, ...] = BOTH_PATHS,
) -> Problem:
    """A Problem for a module: its parameters are leaves beside its inputs."""
    module.to(case.dtype)
    biases = {name for name, _ in module.named_parameters() if name.endswith("bias")}
    assert biases == {f"{name}.bias" for name, _ in module.named_children() if case.bias}

    def call(leaves: Leaves, need_weights: bool) -> Result:
        parameters = {name: leaves[name] for name, _ in module.named_parameters()}
        arguments = tuple(leaves[name] for name in inputs)
        asked = {"need_weights": need_weights} if True in paths else {}
        result = functional_call(module, parameters, arguments, options | asked)
        return pair(result, need_weights)

    leaves, causal = inputs | dict(module.named_parameters()), case.causal
    return Problem(leaves, tuple(inputs), call, oracle, bias, causal, case.dtype, paths)


def self_problem(part: ModuleType, case: Case) -> Problem:
    """SelfAttention, whose queries, keys and values come from x."""
    case = replace(case.without_numbers_in_its_mask(), causal=False)
    generator = torch.Generator().manual_seed(case.seed)
    torch.manual_seed(case.seed)
    asked = {"bias": True} if case.bias else {}
    module = part.SelfAttention(case.embed_dim, case.head_dim, **asked)
    inputs = {"x": leaf(case, generator, case.T_q, case.embed_dim)}
    mask, bias = mask_of(case, generator, case.batch, case.T_q, case.T_q)
    oracle = single_head_oracle("x", "x", bias)
    return module_problem(case, module, inputs, {"attn_mask": mask}, oracle, bias, (False,))


def causal_problem(part: ModuleType, case: Case) -> Problem:
    """CausalSelfAttention, which takes no mask: it has its own."""
    case = replace(case, causal=True)
    generator = torch.Generator().manual_seed(case.seed)
    torch.manual_seed(case.seed)
    asked = {"bias": True} if case.bias else {}
    module = part.CausalSelfAttention(case.embed_dim, case.head_dim, **asked)
    inputs = {"x": leaf(case, generator, case.T_q, case.embed_dim)}
    bias = hide_future(torch.zeros(*case.batch, case.T_q, case.T_q, dtype=torch.float64))
    return module_problem(case, module, inputs, {}, single_head_oracle("x", "x", bias), bias)


def cross_problem(part: ModuleType, case: Case) -> Problem:
    """CrossAttention, whose keys and values come from a source of another length and width."""
    case = replace(case.without_numbers_in_its_mask(), causal=False)
    generator = torch.Generator().manual_seed(case.seed)
    torch.manual_seed(case.seed)
    sizes = case.embed_dim, case.kv_dim, case.head_dim, case.value_dim
    asked = {"bias": True} if case.bias else {}
    module = part.CrossAttention(*sizes, **asked)
    inputs = {
        "x": leaf(case, generator, case.T_q, case.embed_dim),
        "source": leaf(case, generator, case.T_k, case.kv_dim),
    }
    mask, bias = mask_of(case, generator, case.batch, case.T_q, case.T_k)
    oracle = single_head_oracle("x", "source", bias)
    return module_problem(case, module, inputs, {"attn_mask": mask}, oracle, bias, (False,))


def single_head_oracle(queries: str, keys: str, bias: Tensor) -> Callable:
    """The oracle of the three modules with one head."""

    def oracle(leaves: Leaves) -> tuple[Tensor, Tensor]:
        query = linear(leaves, "W_query", leaves[queries])
        key = linear(leaves, "W_key", leaves[keys])
        value = linear(leaves, "W_value", leaves[keys])
        return attend(query, key, value, bias, query.size(-1) ** -0.5)

    return oracle


def multi_head_problem(part: ModuleType, case: Case) -> Problem:
    """MultiHeadAttention, from three inputs of two widths; its masks have no or all four dimensions."""
    case = replace(case, batch=(*case.batch, 2)[:1])
    generator = torch.Generator().manual_seed(case.seed)
    torch.manual_seed(case.seed)
    embed_dim, d = case.num_heads * case.head_dim, case.head_dim
    asked = {} if case.bias else {"bias": False}
    module = part.MultiHeadAttention(embed_dim, case.num_heads, kv_dim=case.kv_dim, **asked)
    inputs = {
        "query": leaf(case, generator, case.T_q, embed_dim),
        "key": leaf(case, generator, case.T_k, case.kv_dim),
        "value": leaf(case, generator, case.T_k, case.kv_dim),
    }
    batch = (*case.batch, case.num_heads)
    mask, bias = mask_of(case, generator, batch, case.T_q, case.T_k)
    bias = hide_future(bias) if case.causal else bias

    def oracle(leaves: Leaves) -> tuple[Tensor, Tensor]:
        query = linear(leaves, "W_query", leaves["query"])
        key = linear(leaves, "W_key", leaves["key"])
        value = linear(leaves, "W_value", leaves["value"])
        heads = [  # each head is a slice of the features
            attend(
                *(part[..., h * d : h * d + d] for part in (query, key, value)), bias[:, h], d**-0.5
            )
            for h in range(case.num_heads)
        ]
        contexts, weights = zip(*heads, strict=True)
        return linear(leaves, "out_proj", torch.cat(contexts, -1)), torch.stack(weights, -3)

    options = {"attn_mask": mask, "is_causal": case.causal}
    return module_problem(case, module, inputs, options, oracle, bias)


def average_problem(part: ModuleType, case: Case) -> Problem:
    """causal_average: attention whose scores are all zero, since its queries are."""
    generator = torch.Generator().manual_seed(case.seed)
    leaves = {"x": leaf(case, generator, case.T_q, case.embed_dim)}
    bias = hide_future(torch.zeros(*case.batch, case.T_q, case.T_q, dtype=torch.float64))

    def call(leaves: Leaves, need_weights: bool) -> Result:
        return part.causal_average(leaves["x"]), None

    def oracle(leaves: Leaves) -> tuple[Tensor, Tensor]:
        return attend(torch.zeros_like(leaves["x"]), leaves["x"], leaves["x"], bias, 1.0)

    return Problem(leaves, ("x",), call, oracle, bias, True, case.dtype, (False,))


# Sizes that are all different, so that no two of them can be exchanged unseen.
SIZES = Case(T_q=4, T_k=5, num_heads=2, head_dim=3, value_dim=2, embed_dim=5, kv_dim=4, bias=True)
CASES = [
    replace(SIZES, causal=True),
    replace(SIZES, causal=True, T_q=5, T_k=3, mask="bool", mask_batched=True, seed=1),
    replace(SIZES, mask="float", scale=0.3, seed=2),
    replace(SIZES, mask="empty row", seed=3),
    replace(SIZES, mask="float with empty row", causal=True, seed=5),
    replace(SIZES, mask="padding", causal=True, seed=4),
    replace(SIZES, causal=True, batch=(2, 2), value_dim=3, scale=0.0, seed=6),
    replace(SIZES, causal=True, batch=(2, 2), value_dim=3, scale=-0.5, seed=7),
    replace(SIZES, T_k=4, bias=False, seed=8),
]
