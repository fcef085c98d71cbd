"""Small attention problems in float64, with an oracle that shares no code with the snippets.

A Case says what to make: sizes, mask, scale. A builder turns it into a Problem for the module of a part: the
tensors it depends on, how to call the part, and what it should return.
"""

import linecache
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tests.wrong import edit

SNIPPETS = Path(__file__).parents[2] / "snippets"
BOTH_PATHS = (False, True)  # need_weights: PyTorch's operator, and the formula written out
# Largest error allowed, as a share of the largest expected magnitude (or of 1, if that is more).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-2}

Leaves = dict[str, Tensor]


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
    module, file = types.ModuleType(name), str(SNIPPETS / f"{name}.{hash(source):x}.py")
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file  # for inspect
    exec(compile(source, file, "exec"), module.__dict__)
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
    mask: str = "none"  # none, bool, float, padding, empty row, float with empty row
    mask_batched: bool = False
    causal: bool = False
    scale: float | None = None
    bias: bool = False
    logits: float = 1.0  # factor on the size of the scores
    seed: int = 0


@dataclass
class Problem:
    """One part with everything it depends on.

    Attributes:
        leaves: inputs and parameters by name; each requires a gradient.
        inputs: the names of those leaves that hold sequences, (..., T, width).
        call: (leaves, need_weights) → (context, weights or None), by the part.
        oracle: leaves → (context, weights), by definition.
        bias: the shape of the weights; 0 or the mask's value, -inf where hidden.
        causal: whether the future must be hidden.
        paths: the values of need_weights that the part knows.
    """

    leaves: Leaves
    inputs: tuple[str, ...]
    call: Callable[[Leaves, bool], tuple[Tensor, Tensor | None]]
    oracle: Callable[[Leaves], tuple[Tensor, Tensor]]
    bias: Tensor
    causal: bool
    paths: tuple[bool, ...] = BOTH_PATHS


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float):
    """Return context and weights, by the definition: hidden keys add 0 to each sum, and no -inf is computed with."""
    keep = bias > -torch.inf
    scores = query @ key.mT * scale + bias.masked_fill(~keep, 0.0)
    largest = scores.detach().masked_fill(~keep, -1e300).amax(dim=-1, keepdim=True)
    exps = torch.where(keep, scores - largest, 0.0).exp() * keep
    total = exps.sum(dim=-1, keepdim=True)
    weights = exps / torch.where(total > 0, total, 1.0)
    return weights @ value, weights


def leaf(case: Case, generator: torch.Generator, tokens: int, width: int) -> Tensor:
    """Return random numbers (*case.batch, tokens, width) that ask for a gradient."""
    shape = (*case.batch, tokens, width)
    numbers = torch.randn(shape, generator=generator, dtype=torch.float64) * case.logits**0.5
    return numbers.requires_grad_()


def mask_of(case: Case, generator: torch.Generator, batch: tuple[int, ...], T_q: int, T_k: int):
    """Return the mask to pass (or None), and what it adds to the scores: (*batch, T_q, T_k)."""
    if case.mask == "none":
        return None, torch.zeros(*batch, T_q, T_k, dtype=torch.float64)
    shape = (*batch, T_q, T_k) if case.mask_batched else (T_q, T_k)
    if case.mask == "padding":
        shape = (*batch[:1], *(1 for _ in batch[1:]), 1, T_k)  # the same in each head
    keep = torch.rand(shape, generator=generator) < 0.6
    if case.mask.endswith("empty row"):
        keep[..., T_q // 2, :] = False
    added = torch.zeros(shape, dtype=torch.float64).masked_fill(~keep, -torch.inf)
    if case.mask.startswith("float"):
        added = torch.randn(shape, generator=generator, dtype=torch.float64) + added
        return added, added.expand(*batch, T_q, T_k)
    return keep, added.expand(*batch, T_q, T_k)


def hide_future(bias: Tensor) -> Tensor:
    """Return bias with -inf wherever the key's index is above the query's."""
    return bias.masked_fill(torch.ones(bias.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)


def linear(leaves: Leaves, name: str, x: Tensor) -> Tensor:
    """Return x projected by the nn.Linear of that name, written out."""
    projected = x @ leaves[f"{name}.weight"].T
    return projected + leaves[f"{name}.bias"] if f"{name}.bias" in leaves else projected


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
    options = {"attn_mask": mask, "is_causal": case.causal, "scale": case.scale}

    def call(leaves: Leaves, need_weights: bool):
        attention = part.scaled_dot_product_attention
        result = attention(*leaves.values(), **options, need_weights=need_weights)
        return result if need_weights else (result, None)

    def oracle(leaves: Leaves):
        return attend(*leaves.values(), bias, scale)

    return Problem(leaves, tuple(leaves), call, oracle, bias, case.causal)


def module_problem(
    case: Case,
    module: nn.Module,
    inputs: Leaves,
    options: dict,
    oracle: Callable,
    bias: Tensor,
    paths: tuple[bool, ...],
) -> Problem:
    """A Problem for a module: its parameters are leaves beside its inputs."""
    parameters = dict(module.double().named_parameters())
    biases = {name for name in parameters if name.endswith("bias")}
    assert biases == {f"{name}.bias" for name, _ in module.named_children() if case.bias}

    def call(leaves: Leaves, need_weights: bool):
        own = {name: leaves[name] for name in parameters}
        asked = {"need_weights": need_weights} if True in paths else {}
        arguments = tuple(leaves[name] for name in inputs)
        result = functional_call(module, own, arguments, options | asked)
        return result if need_weights else (result, None)

    return Problem(inputs | parameters, tuple(inputs), call, oracle, bias, case.causal, paths)


def one_head_problem(case: Case, make: Callable, has_source=False) -> Problem:
    """A module with one head, whose masks are boolean; a causal one takes none, and gives its weights."""
    generator = torch.Generator().manual_seed(case.seed)
    torch.manual_seed(case.seed)
    module = make(**{"bias": True} if case.bias else {})
    inputs = {"x": leaf(case, generator, case.T_q, case.embed_dim)}
    if has_source:
        inputs["source"] = leaf(case, generator, case.T_k, case.kv_dim)
    *_, keys = inputs
    mask, bias = mask_of(case, generator, case.batch, case.T_q, inputs[keys].size(-2))
    bias = hide_future(bias) if case.causal else bias
    options, paths = ({}, BOTH_PATHS) if case.causal else ({"attn_mask": mask}, (False,))

    def oracle(leaves: Leaves):
        query = linear(leaves, "W_query", leaves["x"])
        key, value = (linear(leaves, name, leaves[keys]) for name in ("W_key", "W_value"))
        return attend(query, key, value, bias, query.size(-1) ** -0.5)

    return module_problem(case, module, inputs, options, oracle, bias, paths)


def boolean(case: Case) -> Case:
    """The same, with a boolean mask, for a part that takes no other and is not causal."""
    mask = case.mask.replace("float with ", "").replace("float", "bool")
    return replace(case, mask=mask, causal=False)


def self_problem(part: ModuleType, case: Case) -> Problem:
    """SelfAttention, whose queries, keys and values come from x."""
    make = partial(part.SelfAttention, case.embed_dim, case.head_dim)
    return one_head_problem(boolean(case), make)


def causal_problem(part: ModuleType, case: Case) -> Problem:
    """CausalSelfAttention, which takes no mask: it has its own."""
    make = partial(part.CausalSelfAttention, case.embed_dim, case.head_dim)
    return one_head_problem(replace(case, mask="none", causal=True), make)


def cross_problem(part: ModuleType, case: Case) -> Problem:
    """CrossAttention, whose keys and values come from a source of another length and width."""
    sizes = case.embed_dim, case.kv_dim, case.head_dim, case.value_dim
    return one_head_problem(boolean(case), partial(part.CrossAttention, *sizes), has_source=True)


def multi_head_problem(part: ModuleType, case: Case) -> Problem:
    """MultiHeadAttention, from three inputs of two widths; its masks have no or all four dimensions."""
    case = replace(case, batch=case.batch[:1])
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

    def oracle(leaves: Leaves):
        query, key, value = (linear(leaves, f"W_{name}", leaves[name]) for name in inputs)
        heads = [  # each head is a slice of the features
            attend(*(x[..., h * d : h * d + d] for x in (query, key, value)), bias[:, h], d**-0.5)
            for h in range(case.num_heads)
        ]
        contexts, weights = zip(*heads, strict=True)
        return linear(leaves, "out_proj", torch.cat(contexts, -1)), torch.stack(weights, -3)

    options = {"attn_mask": mask, "is_causal": case.causal}
    return module_problem(case, module, inputs, options, oracle, bias, BOTH_PATHS)


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
    replace(SIZES, batch=(0,)),
]
