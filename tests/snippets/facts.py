"""What must be true of attention, as functions that raise AssertionError when it is not.

The same facts are asked of the parts and of wrong versions of them, so the facts are themselves checked.
"""

import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

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


def it_is_its_definition(problem: Problem) -> None:
    """Contexts, weights where the part returns them, and gradients are the oracle's; a hidden key weighs 0."""
    context, weights = problem.oracle(problem.leaves)
    wanted = gradients(context, problem.leaves)
    for need_weights in problem.paths:
        ours, our_weights = problem.call(problem.leaves, need_weights)
        assert_equal(f"context, need_weights={need_weights}", ours, context, torch.float64)
        if need_weights:
            assert_equal("weights", our_weights, weights, torch.float64)
            assert (our_weights[problem.bias == -torch.inf] == 0).all(), "a hidden key has weight"
        for name, found in gradients(ours, problem.leaves).items():
            what = f"gradient of {name}, need_weights={need_weights}"
            assert_equal(what, found, wanted[name], torch.float64)


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


def asked_of(build: Callable, cases: Iterable[Case]) -> list[Callable]:
    """Return the facts above as functions of a part's module, each of them for each of the cases."""

    def asked(fact: Callable, number: int, case: Case) -> Callable:
        def holds(part: ModuleType) -> None:
            fact(build(part, case))

        holds.__name__ = f"{fact.__name__}, case {number}"
        return holds

    facts = (it_is_its_definition, a_query_without_keys_gets_zeros)
    return [asked(fact, number, case) for fact in facts for number, case in enumerate(cases, 1)]


def refuses(what: str, call: Callable, *arguments: object, **options: object) -> None:
    """Fail unless the call raises a ValueError."""
    try:
        call(*arguments, **options)
    except ValueError:
        return
    raise AssertionError(f"{what} is not refused")


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
