"""What must be true of attention, as functions that raise AssertionError when it is not.

The same facts are asked of the snippets (test_facts.py) and of deliberately wrong versions of
them (tests/test_wrong_versions.py), so the checks are themselves checked.
"""

import copy
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.snippets.problems import (
    BOTH_PATHS,
    SNIPPETS,
    TOLERANCE,
    Case,
    Implementation,
    Leaves,
    Problem,
    Result,
    function_problem,
)


def first_to_notice(facts: Iterable[Callable], *arguments: object) -> str | None:
    """Return the name of the first of `facts` that fails when it is asked of `arguments`, or None.

    A fact fails by its assertion, or by a ValueError that a part raises. A crash is no notice: it says
    that the part no longer runs, and nothing of what the fact holds true.
    """
    for fact in facts:
        try:
            fact(*arguments)
        except (AssertionError, pytest.fail.Exception):
            return fact.__name__
        except ValueError as error:
            raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
            if raised_in.parent == SNIPPETS:
                return fact.__name__
        except Exception:
            continue
    return None


@contextmanager
def works(what: str) -> Iterator[None]:
    """Fail where `what` raises anything: that it runs at all is the fact."""
    try:
        yield
    except Exception as error:
        pytest.fail(f"{what} raises {type(error).__name__}: {error}")


def assert_equal(
    what: str, result: Tensor, wanted: Tensor, dtype: torch.dtype, slack: float = 1.0
) -> None:
    """Assert the same shape, and an error within the dtype's share of the largest magnitude."""
    assert result.shape == wanted.shape, f"{what}: shape {result.shape}, wanted {wanted.shape}"
    result, wanted = result.detach().double(), wanted.detach().double()
    assert result.isfinite().all(), f"{what}: not finite: {result}"
    if result.numel() == 0:
        return
    error = (result - wanted).abs().max().item()
    allowed = slack * TOLERANCE[dtype] * max(1.0, wanted.abs().max().item())
    assert error <= allowed, f"{what}: off by {error:.3g}, allowed {allowed:.3g}"


def in_float64(leaves: Leaves) -> Leaves:
    """Return the same numbers as float64 leaves."""
    return {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}


def gradients(output: Tensor, leaves: Leaves, seed: int = 0) -> Leaves:
    """Return the gradient of a random weighting of output with respect to every leaf."""
    if not output.requires_grad:  # an oracle's answer to no query at all
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    found = torch.autograd.grad(
        output, list(leaves.values()), direction.to(output.dtype), allow_unused=True
    )
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), found, strict=True)
    }


def outputs_equal_the_definition(problem: Problem, slack: float = 1.0) -> None:
    """Context vectors, and weights where asked for, are the oracle's, in the inputs' dtype."""
    context, weights = problem.oracle(in_float64(problem.leaves))
    for need_weights in problem.paths:
        ours, our_weights = problem.call(problem.leaves, need_weights)
        assert ours.dtype == problem.dtype, f"context is {ours.dtype}, wanted {problem.dtype}"
        assert_equal(f"context, need_weights={need_weights}", ours, context, problem.dtype, slack)
        if need_weights:
            assert_equal("weights", our_weights, weights, problem.dtype, slack)


def gradients_equal_the_definition(problem: Problem, slack: float = 1.0) -> None:
    """Each input and each parameter gets the oracle's gradient, on both paths."""
    leaves = in_float64(problem.leaves)
    context = problem.oracle(leaves)[0]
    wanted = gradients(context, leaves)
    # The gradient of a parameter adds up a term of each query. Each is rounded, and they may cancel.
    slack *= max(1.0, context[..., 0].numel() / 8)
    for need_weights in problem.paths:
        result = gradients(problem.call(problem.leaves, need_weights)[0], problem.leaves)
        for name in wanted:
            what = f"gradient of {name}, need_weights={need_weights}"
            assert_equal(what, result[name], wanted[name], problem.dtype, slack)


def nothing_is_nan(problem: Problem) -> None:
    """Outputs, weights and gradients are finite, on both paths."""
    for need_weights in problem.paths:
        context, weights = problem.call(problem.leaves, need_weights)
        found = gradients(context, problem.leaves) | {"context": context}
        for name, tensor in (found | ({"weights": weights} if need_weights else {})).items():
            assert tensor.isfinite().all(), f"{name}, need_weights={need_weights}: {tensor}"


def weights_are_shares_of_the_kept_keys(problem: Problem) -> None:
    """A row of weights is ≥ 0, exactly 0 where hidden, > 0 where kept, and sums to 1 (or is empty)."""
    _, weights = problem.call(problem.leaves, True)
    kept = problem.bias > -torch.inf
    assert weights.shape == kept.shape, f"weights {weights.shape}, wanted {kept.shape}"
    assert (weights[~kept] == 0).all(), "a hidden key has weight"
    assert (weights[kept] > 0).all(), "a kept key has no weight"
    assert_equal("row sums", weights.sum(-1), kept.any(-1).double(), problem.dtype)


def a_query_without_keys_gets_zeros(problem: Problem) -> None:
    """Rows hidden everywhere: weights 0, context 0, and nothing but zeros in the gradient."""
    empty = (problem.bias == -torch.inf).all(-1)  # (..., T_q)
    several_heads = "out_proj.weight" in problem.leaves
    rows = empty.all(-2) if several_heads else empty  # (..., T_q), empty in every head
    # Of a context of zeros, out_proj leaves its bias, which alone has a gradient.
    wanted = problem.leaves.get("out_proj.bias", torch.zeros(()))
    for need_weights in problem.paths:
        context, weights = problem.call(problem.leaves, need_weights)
        if need_weights:
            assert (weights[empty] == 0).all(), "weights of an empty row"
        assert (context[rows] == wanted).all(), f"empty row, need_weights={need_weights}: {context}"
        for name, gradient in gradients(context[rows], problem.leaves).items():
            what = f"gradient of {name}, need_weights={need_weights}"
            assert name == "out_proj.bias" or (gradient == 0).all(), what


def the_future_cannot_change_the_past(problem: Problem) -> None:
    """Replace every token after t, in every input: outputs up to t stay the same, bit for bit."""
    assert problem.causal
    longest = max(problem.leaves[name].size(-2) for name in problem.inputs)
    for t in range(longest - 1):
        same, changed = dict(problem.leaves), dict(problem.leaves)
        for name in problem.inputs:
            same[name], changed[name] = (problem.leaves[name].detach().clone() for _ in range(2))
            changed[name][..., t + 1 :, :] = 7.0 - 3.0 * same[name][..., t + 1 :, :]
        for need_weights in problem.paths:
            before = problem.call(same, need_weights)[0][..., : t + 1, :]
            after = problem.call(changed, need_weights)[0][..., : t + 1, :]
            assert torch.equal(before, after), f"token {t}, need_weights={need_weights}"


def the_past_can_change_the_present(problem: Problem) -> None:
    """Each output has a gradient with respect to every value it may see, and to no other."""
    name = problem.inputs[-1]  # values come from it
    source = problem.leaves[name]
    kept = (problem.bias > -torch.inf).flatten(0, -3).any(0)  # (T_q, T_k), in any head
    for need_weights in problem.paths:
        context, _ = problem.call(problem.leaves, need_weights)
        for i in range(context.size(-2)):
            (gradient,) = torch.autograd.grad(
                context[..., i, :].square().sum(), source, retain_graph=True
            )
            seen = (gradient != 0).any(-1).flatten(0, -2).any(0)
            assert torch.equal(seen, kept[i]), (
                f"query {i} sees {seen.nonzero().flatten().tolist()}, "
                f"wanted {kept[i].nonzero().flatten().tolist()}, need_weights={need_weights}"
            )


def no_sample_can_change_another(problem: Problem) -> None:
    """Replace every sample but the first: the first one's output stays the same, bit for bit."""
    same, changed = dict(problem.leaves), dict(problem.leaves)
    for name in problem.inputs:
        same[name], changed[name] = (problem.leaves[name].detach().clone() for _ in range(2))
        changed[name][1:] = 7.0 - 3.0 * same[name][1:]
    for need_weights in problem.paths:
        before, after = (problem.call(it, need_weights)[0][0] for it in (same, changed))
        assert torch.equal(before, after), f"need_weights={need_weights}"


def gradients_pass_gradcheck(problem: Problem) -> None:
    """Finite differences agree with the backward pass, for every input and parameter, in float64."""
    assert problem.dtype == torch.float64
    names = list(problem.leaves)
    for need_weights in problem.paths:

        def outputs(*tensors: Tensor, need_weights: bool = need_weights) -> Tensor | Result:
            found = problem.call(dict(zip(names, tensors, strict=True)), need_weights)
            return found if need_weights else found[0]

        assert torch.autograd.gradcheck(outputs, tuple(problem.leaves.values()), atol=1e-6)


def dropout_keeps_the_average(implementation: Implementation) -> None:
    """While training, weights are 0 or doubled at p = ½, right on average; in eval, untouched."""
    torch.manual_seed(0)
    T, samples = 4, 20_000
    function = implementation.scaled_dot_product_attention.scaled_dot_product_attention
    query, key = torch.randn(2, T, 3)
    # With the unit vectors as values, the context vectors are the weights that were applied.
    value = torch.eye(T)
    plain = function(query, key, value)
    many = [part.expand(samples, T, -1) for part in (query, key, value)]
    context, weights = function(*many, dropout_p=0.5, need_weights=True)
    assert torch.equal(context, weights), "the weights returned are not those applied"
    for dropped in (weights, function(*many, dropout_p=0.5)):
        _assert_dropped("function", dropped, plain)
    for module in (
        implementation.causal_self_attention.CausalSelfAttention(3, 4, dropout=0.5),
        implementation.multi_head_attention.MultiHeadAttention(4, 2, dropout=0.5, kv_dim=4),
    ):
        _dropout_of_a_module(module, T, samples)


@torch.no_grad()
def _dropout_of_a_module(module: nn.Module, T: int, samples: int) -> None:
    x = torch.randn(T, module.embed_dim)
    many = x.expand(samples, T, -1)
    name = type(module).__name__
    context, weights = module.eval()(x, need_weights=True)
    assert torch.equal(module(x, need_weights=True)[0], context), f"{name}: eval is random"
    assert_equal(f"{name} in eval", module(x), context, torch.float32)
    module.train()
    dropped_context, dropped = module(many, need_weights=True)
    _assert_dropped(name, dropped, weights)
    for result in (dropped_context, module(many)):
        assert result.std(0).max() > 0.01, f"{name}: nothing was dropped"
        error = (result.mean(0) - context).abs().max().item()
        assert error < 0.03, f"{name}: context off by {error:.3f} on average"


def _assert_dropped(name: str, dropped: Tensor, plain: Tensor) -> None:
    kept = dropped != 0
    share = kept[:, plain > 0].double().mean().item()
    assert 0.48 < share < 0.52, f"{name}: kept a share of {share:.3f}, wanted ½"
    wanted = (2 * plain).expand_as(dropped)[kept]
    assert_equal(f"{name}: weights that were kept", dropped[kept], wanted, torch.float32)


def equal_to_torch_operator(implementation: Implementation, case: Case) -> None:
    """The function equals F.scaled_dot_product_attention: outputs and gradients, both paths."""
    problem = function_problem(implementation, case)
    query, key, value = (problem.leaves[name] for name in ("query", "key", "value"))
    if case.mask == "none" and (case.scale is None or case.scale > 0):
        options = {"is_causal": case.causal}
    else:  # with a scale of 0 or less, is_causal makes theirs NaN
        options = {"attn_mask": problem.bias.to(case.dtype)}
    theirs = F.scaled_dot_product_attention(query, key, value, scale=case.scale, **options)
    wanted = gradients(theirs, problem.leaves)
    for need_weights in BOTH_PATHS:
        ours, _ = problem.call(problem.leaves, need_weights)
        assert_equal(f"context, need_weights={need_weights}", ours, theirs, case.dtype)
        for name, gradient in gradients(ours, problem.leaves).items():
            what = f"gradient of {name}, need_weights={need_weights}"
            assert_equal(what, gradient, wanted[name], case.dtype)


def equal_to_torch_module(implementation: Implementation, case: Case) -> None:
    """MultiHeadAttention equals nn.MultiheadAttention, given its weights: outputs and gradients."""
    torch.manual_seed(case.seed)
    embed_dim, kv_dim = case.num_heads * case.head_dim, case.kv_dim
    theirs = nn.MultiheadAttention(
        embed_dim,
        case.num_heads,
        bias=case.bias,
        kdim=kv_dim,
        vdim=kv_dim,
        batch_first=True,
        dtype=case.dtype,
    )
    ours = implementation.multi_head_attention.MultiHeadAttention(
        embed_dim, case.num_heads, kv_dim=kv_dim, bias=case.bias
    ).to(case.dtype)
    if case.bias:
        nn.init.normal_(theirs.in_proj_bias)  # they start at zero, which would hide a mistake
        nn.init.normal_(theirs.out_proj.bias)
    copy_weights(theirs, ours)
    samples = case.batch[0]
    query = torch.randn(samples, case.T_q, embed_dim, dtype=case.dtype, requires_grad=True)
    source = torch.randn(samples, case.T_k, kv_dim, dtype=case.dtype, requires_grad=True)
    keep = torch.rand(samples, case.num_heads, case.T_q, case.T_k) < 0.7
    keep[..., 0] = True  # where a row has no key, theirs is NaN
    if case.causal:
        keep &= torch.ones(case.T_q, case.T_k, dtype=torch.bool).tril()
    inputs = {"query": query, "source": source}
    their_output, their_weights = theirs(
        query, source, source, attn_mask=~keep.flatten(0, 1), average_attn_weights=False
    )
    wanted = gradients(their_output, inputs)
    for need_weights in BOTH_PATHS:
        output = ours(query, source, attn_mask=keep, need_weights=need_weights)
        if need_weights:
            output, weights = output
            assert_equal("weights", weights, their_weights, case.dtype)
        assert_equal(f"output, need_weights={need_weights}", output, their_output, case.dtype)
        for name, gradient in gradients(output, inputs).items():
            assert_equal(f"gradient of {name}", gradient, wanted[name], case.dtype)


@torch.no_grad()
def shards_add_up_to_the_whole(implementation: Implementation) -> None:
    """Give each of two modules two heads of four: their outputs add up, their weights join."""
    torch.manual_seed(0)
    whole = implementation.multi_head_attention.MultiHeadAttention(16, 4, kv_dim=5, value_dim=24)
    query, source = torch.randn(2, 3, 16), torch.randn(2, 6, 5)
    keep = torch.rand(2, 4, 3, 6) < 0.7
    context, weights = whole(query, source, attn_mask=keep, need_weights=True)
    shards = [shard(whole, rank, 2) for rank in (0, 1)]
    masks = keep.chunk(2, dim=1)
    for need_weights in BOTH_PATHS:
        try:
            parts = [
                module(query, source, attn_mask=mask, need_weights=need_weights)
                for module, mask in zip(shards, masks, strict=True)
            ]
        except ValueError as error:
            raise AssertionError(f"a shard is refused: {error}") from error
        if need_weights:
            parts, found = zip(*parts, strict=True)
            assert_equal("weights", torch.cat(found, 1), weights, torch.float32)
        assert_equal(f"sum, need_weights={need_weights}", sum(parts), context, torch.float32)


def shard(whole: nn.Module, rank: int, ranks: int) -> nn.Module:
    """Return a copy of a MultiHeadAttention that holds its share of the heads alone."""
    part = copy.deepcopy(whole)
    for projection in (part.W_query, part.W_key, part.W_value):
        projection.weight = nn.Parameter(projection.weight.chunk(ranks)[rank])
        projection.bias = nn.Parameter(projection.bias.chunk(ranks)[rank])
    part.out_proj.weight = nn.Parameter(part.out_proj.weight.chunk(ranks, dim=1)[rank])
    part.out_proj.bias = part.out_proj.bias if rank == 0 else None
    return part


class Adapter(nn.Module):
    """A projection changed by a matrix of rank one, as LoRA does it: it has no weight itself."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 1, bias=False)
        self.up = nn.Linear(1, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) → (..., out_features)."""
        return self.base(x) + self.up(self.down(x))


def modules(implementation: Implementation) -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    """Return each snippet's module with inputs that fit it, by the snippet's name."""
    x, source = torch.randn(2, 3, 8), torch.randn(2, 3, 6)
    return {
        "self_attention": (implementation.self_attention.SelfAttention(8, 4), (x,)),
        "causal_self_attention": (
            implementation.causal_self_attention.CausalSelfAttention(8, 4),
            (x,),
        ),
        "multi_head_attention": (
            implementation.multi_head_attention.MultiHeadAttention(8, 2, kv_dim=6),
            (x, source, source),
        ),
        "cross_attention": (implementation.cross_attention.CrossAttention(8, 6, 4), (x, source)),
    }


def projections_are_only_called(implementation: Implementation) -> None:
    """Put an adapter around each: the same as with the adapter's matrices added to the weights."""
    torch.manual_seed(0)
    for name, (module, inputs) in modules(implementation).items():
        adapted = copy.deepcopy(module)
        for projection, linear in list(module.named_children()):
            adapter = Adapter(getattr(adapted, projection))
            setattr(adapted, projection, adapter)
            with torch.no_grad():
                linear.weight += adapter.up.weight @ adapter.down.weight
        for need_weights in BOTH_PATHS:
            wanted = module(*inputs, need_weights=need_weights)
            try:
                result = adapted(*inputs, need_weights=need_weights)
            except AttributeError as error:
                raise AssertionError(f"{name} asks more of a projection: {error}") from error
            pairs = zip(result, wanted, strict=True) if need_weights else [(result, wanted)]
            for one, other in pairs:
                assert_equal(f"{name} with adapters", one, other, torch.float32)


def a_mask_comes_by_its_name(implementation: Implementation) -> None:
    """After the inputs, where nn.MultiheadAttention wants key_padding_mask, stands no mask of ours."""
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    for name, (module, inputs) in modules(implementation).items():
        try:
            module(*inputs, mask)
        except TypeError:
            continue
        raise AssertionError(f"{name} takes a mask without its name")


@torch.no_grad()
def copy_weights(theirs: nn.MultiheadAttention, ours: nn.Module) -> None:
    """Copy the weights of nn.MultiheadAttention, as the docstring of MultiHeadAttention says."""
    if theirs.in_proj_weight is not None:
        matrices = theirs.in_proj_weight.chunk(3)
    else:
        matrices = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    projections = (ours.W_query, ours.W_key, ours.W_value)
    for projection, matrix in zip(projections, matrices, strict=True):
        projection.weight.copy_(matrix)
    if theirs.in_proj_bias is not None:
        for projection, bias in zip(projections, theirs.in_proj_bias.chunk(3), strict=True):
            projection.bias.copy_(bias)
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())


def each_token_gets_the_position_of_its_place(implementation: Implementation) -> None:
    """Sinusoids are the paper's formula from any start; a learned table adds the row of each place."""
    module = implementation.positions
    for first in (0, 3):
        places = torch.arange(first, first + 4, dtype=torch.float64)
        result = module.sinusoidal_positions(4, 6, first=first)
        for channel in range(6):
            angle = places / 10000 ** (2 * (channel // 2) / 6)
            wanted = angle.cos() if channel % 2 else angle.sin()
            assert_equal(
                f"channel {channel} from {first}", result[:, channel], wanted, torch.float32
            )
        torch.manual_seed(0)
        learned, x = module.LearnedPositions(7, 6), torch.randn(2, 4, 6)
        rows = learned.table.weight[first : first + 4]
        assert_equal(f"learned from {first}", learned(x, first=first), x + rows, torch.float32)
