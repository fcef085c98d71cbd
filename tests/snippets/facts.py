"""What the tests of several parts share: who notices a wrong version, what is refused, what dropout does."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.snippets.parts import ROOT

# Largest error allowed, as a share of the largest expected magnitude (or of 1, if that is more).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-2}


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
            if raised_in.parent == ROOT / "snippets":
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
