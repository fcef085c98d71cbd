"""What must be true of attention, as functions that raise AssertionError when it is not.

The same facts are asked of the parts and of wrong versions of them, so the facts are themselves checked.
"""

import copy
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.snippets.problems import SNIPPETS, TOLERANCE, Case, Leaves, Problem


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
    if result.numel():
        error = (result - wanted).abs().max().item()
        allowed = slack * TOLERANCE[dtype] * max(1.0, wanted.abs().max().item())
        assert error <= allowed, f"{what}: off by {error:.3g}, allowed {allowed:.3g}"


def gradients(output: Tensor, leaves: Leaves) -> Leaves:
    """Return the gradient of a random weighting of output with respect to every leaf."""
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    found = torch.autograd.grad(
        output, list(leaves.values()), direction.to(output.dtype), materialize_grads=True
    )
    return dict(zip(leaves, found, strict=True))


def outputs_equal_the_definition(problem: Problem) -> None:
    """Contexts, and weights where the part returns them, are the oracle's; a hidden key weighs 0."""
    context, weights = problem.oracle(problem.leaves)
    for need_weights in problem.paths:
        ours, our_weights = problem.call(problem.leaves, need_weights)
        assert_equal(f"context, need_weights={need_weights}", ours, context, torch.float64)
        if need_weights:
            assert_equal("weights", our_weights, weights, torch.float64)
            assert (our_weights[problem.bias == -torch.inf] == 0).all(), "a hidden key has weight"


def gradients_equal_the_definition(problem: Problem) -> None:
    """Each input and each parameter gets the oracle's gradient, on both paths."""
    wanted = gradients(problem.oracle(problem.leaves)[0], problem.leaves)
    for need_weights in problem.paths:
        result = gradients(problem.call(problem.leaves, need_weights)[0], problem.leaves)
        for name in wanted:
            what = f"gradient of {name}, need_weights={need_weights}"
            assert_equal(what, result[name], wanted[name], torch.float64)


def a_query_without_keys_gets_zeros(problem: Problem) -> None:
    """Rows hidden everywhere: weights 0, context 0, and zeros in the gradient, without a NaN on the way."""
    empty = (problem.bias == -torch.inf).all(-1)  # (..., T_q)
    several_heads = "out_proj.weight" in problem.leaves
    rows = empty.all(-2) if several_heads else empty  # (..., T_q), empty in every head
    # Of a context of zeros, out_proj leaves its bias, which alone has a gradient.
    wanted = problem.leaves.get("out_proj.bias", torch.zeros(()))
    with warnings.catch_warnings(action="ignore"), torch.autograd.detect_anomaly():
        for need_weights in problem.paths if rows.any() else ():
            context, weights = problem.call(problem.leaves, need_weights)
            if need_weights:
                assert (weights[empty] == 0).all(), "weights of an empty row"
            assert (context[rows] == wanted).all(), f"need_weights={need_weights}: {context}"
            for name, gradient in gradients(context[rows], problem.leaves).items():
                what = f"gradient of {name}, need_weights={need_weights}"
                assert name == "out_proj.bias" or (gradient == 0).all(), what


def the_future_cannot_change_the_past(problem: Problem) -> None:
    """Replace every token after t, in every input: outputs up to t stay the same, bit for bit."""
    longest = max(problem.leaves[name].size(-2) for name in problem.inputs)
    for t in range(longest - 1) if problem.causal else ():
        same = {name: leaf.detach() for name, leaf in problem.leaves.items()}
        changed = dict(same)
        for name in problem.inputs:
            changed[name] = same[name].clone()
            changed[name][..., t + 1 :, :] = 7.0 - 3.0 * same[name][..., t + 1 :, :]
        for need_weights in problem.paths:
            before = problem.call(same, need_weights)[0][..., : t + 1, :]
            after = problem.call(changed, need_weights)[0][..., : t + 1, :]
            assert torch.equal(before, after), f"token {t}, need_weights={need_weights}"


def asked_of(build: Callable, cases: Iterable[Case]) -> list[Callable]:
    """Return the facts above as functions of a part's module, each of them for each of the cases."""

    def asked(fact: Callable, number: int, case: Case) -> Callable:
        def holds(part: ModuleType) -> None:
            fact(build(part, case))

        holds.__name__ = f"{fact.__name__}, case {number}"
        return holds

    facts = (
        outputs_equal_the_definition,
        gradients_equal_the_definition,
        a_query_without_keys_gets_zeros,
        the_future_cannot_change_the_past,
    )
    return [asked(fact, number, case) for fact in facts for number, case in enumerate(cases, 1)]


def refuses(what: str, call: Callable, *arguments: object, **options: object) -> None:
    """Fail unless the call raises a ValueError."""
    try:
        call(*arguments, **options)
    except ValueError:
        return
    raise AssertionError(f"{what} is not refused")


def a_mask_beside_is_causal_is_one_mask(attention: Callable) -> None:
    """PyTorch promises to take one of the two. What its kernel raises comes out, and is tried no second time."""
    keep = torch.ones(5, 5, dtype=torch.bool).triu(-2)
    wanted = attention(attn_mask=keep.tril())
    with sdpa_kernel(SDPBackend.MATH), works("a mask beside is_causal"):
        result = attention(attn_mask=keep, is_causal=True)
    assert_equal("both as one", result, wanted, torch.float32)
    first_fails = mock.patch.object(
        F, "scaled_dot_product_attention", side_effect=[RuntimeError("out of memory"), wanted]
    )
    with first_fails, pytest.raises(RuntimeError, match="out of memory"):
        attention(attn_mask=keep, is_causal=True)


def dropped_at_one_half(what: str, dropped: Tensor, plain: Tensor) -> None:
    """Of thousands of samples of the same weights, half are 0, and the rest are doubled."""
    kept = dropped != 0
    share = kept[:, plain > 0].double().mean().item()
    assert 0.48 < share < 0.52, f"{what}: kept a share of {share:.3f}, wanted ½"
    assert_equal(what, dropped[kept], (2 * plain).expand_as(dropped)[kept], torch.float32)


@torch.no_grad()
def dropout_is_for_training(layer: nn.Module, x: Tensor, **options: object) -> None:
    """In eval nothing is dropped; while training half of the weights are, of each sample by itself."""
    many = x.expand(8_000, *x.shape)
    context, weights = layer.eval()(x[None], need_weights=True, **options)
    assert_equal("eval", layer(x[None], **options), context, torch.float32)
    layer.train()
    dropped_context, dropped = layer(many, need_weights=True, **options)
    dropped_at_one_half("weights", dropped, weights[0])
    for result in (dropped_context, layer(many, **options)):
        assert result.std(0).max() > 0.01, "nothing was dropped"
        error = (result.mean(0) - context[0]).abs().max().item()
        assert error < 0.03, f"context off by {error:.3f} on average"


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


@torch.no_grad()
def projections_are_only_called(module: nn.Module, *inputs: Tensor) -> None:
    """Put an adapter around each: the same as with the adapter's matrices added to the weights."""
    adapted = copy.deepcopy(module)
    for name, linear in list(module.named_children()):
        adapter = Adapter(getattr(adapted, name))
        setattr(adapted, name, adapter)
        linear.weight += adapter.up.weight @ adapter.down.weight
    with works("an adapter in place of a projection"):
        result = adapted(*inputs)
    assert_equal("with adapters", result, module(*inputs), torch.float32)


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
