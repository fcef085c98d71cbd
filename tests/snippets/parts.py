"""What the tests of a part say of it for all: test_every_part.py asks it of each, the part's page tells it.

A test of a file tests/snippets/test_<part>.py that takes `part`, and nothing else, is a fact: it holds of the part's
module, and is asked of wrong ones, too. The file may hold, beside its tests,

- WRONG: by what it does, an edit of the part, (old, new), that must break a fact;
- CASES: by what is tried, a Case: right in each dtype, on each device;
- MODULES: by name, what makes a module that maps (2, T, 8) alike: exported and compiled once, it serves each T;
- MIB: by what is called, the most that a call makes beside its input, in MiB, and what makes the call: a function
  of 16,384 tokens of 64 channels, (16384, 64) in float32, that returns a function without arguments.
"""

import importlib
import inspect
import linecache
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from tests.wrong import edit

ROOT = Path(__file__).parents[2]
# What a part imports beside torch. A part is not tried where that is not installed; its own tests say so.
NEEDS = {"flash_kernel": "triton"}
FILES = {
    path.stem: path
    for path in sorted((ROOT / "snippets").glob("*.py"))
    if path.stem not in NEEDS or find_spec(NEEDS[path.stem])
}
T, VOCABULARY = 300, 13  # more tokens than bfloat16 can count


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        call: (module, *inputs) → the result, or several; a module of None is a function.
        inputs: makes the inputs, in float64.
        module: makes the module, or None.
        casts: whether autocast makes it compute in bfloat16; float32 stays float32 otherwise.
        returns: the dtype of the result, given that in which it computes.
        roundings: how many roundings of the size of the result may add up, forward.
        backward: whether it has a backward pass.
        meta: whether it runs where tensors have no numbers: it takes no decision by them.
    """

    call: Callable
    inputs: Callable
    module: Callable = lambda: None
    casts: bool = True
    returns: Callable = lambda dtype: dtype
    roundings: int = 8
    backward: bool = True
    meta: bool = True

    def computes_in(self, tried: str) -> torch.dtype:
        """The dtype in which the result is computed."""
        if tried == "autocast":
            return torch.bfloat16 if self.casts else torch.float32
        return getattr(torch, tried)

    def may_lose(self, dtype: torch.dtype) -> float:
        """The share of the result that may be lost where it is computed in this dtype.

        A rounding loses eps / 2 of a number. A sum over the tokens rounds once more for each of
        them, in float32 at least.
        """
        if not self.roundings:
            return 0.0
        return (self.roundings * torch.finfo(dtype).eps + T * torch.finfo(wide(dtype)).eps) / 2


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums are kept."""
    return torch.promote_types(dtype, torch.float32)


def some(*shape: int, seed: int = 1) -> Tensor:
    """Numbers of bfloat16, as float64: every dtype begins with the same ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).bfloat16().double()


def heads(query: int = 4, key: int = 4, width: int = 8, tokens: int = T) -> tuple[Tensor, ...]:
    """Query, key and value of so many heads."""
    return tuple(some(2, n, tokens, width, seed=n + i) for i, n in enumerate((query, key, key)))


def texts() -> tuple[Tensor]:
    """Vectors of two texts."""
    return (some(2, T, 16),)


def tokens() -> tuple[Tensor]:
    """Two texts as numbers."""
    return (torch.randint(VOCABULARY, (2, 40), generator=torch.Generator().manual_seed(1)),)


def tests_of(part: str) -> ModuleType:
    """The test file of a part."""
    return importlib.import_module(f"tests.snippets.test_{part}")


def facts(part: str) -> list[Callable]:
    """What the tests of a part hold true of its module."""
    tests = tests_of(part)
    named = [it for name, it in vars(tests).items() if name.startswith("test_")]
    return [it for it in named if list(inspect.signature(it).parameters) == ["part"]]


def told(name: str) -> dict[str, tuple[str, object]]:
    """What the test files hold under this name: key → (part, value)."""
    found = {}
    for part in FILES:
        for key, value in getattr(tests_of(part), name, {}).items():
            found[f"{part}: {key}"] = part, value
    return found


def edited(part: str, old: str = "", new: str = "") -> ModuleType:
    """A part, executed from its source with one edit."""
    source = edit(FILES[part].read_text(encoding="utf-8"), old, new, f"{part}.py")
    module, file = ModuleType(part), str(FILES[part].with_suffix(f".{hash(source):x}.py"))
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file  # for inspect
    exec(compile(source, file, "exec"), module.__dict__)
    return module


def attend(query: Tensor, key: Tensor, value: Tensor, mask=None, *, is_causal=False, scale=None):
    """Context and weights by the formula; a query that may see no key gets zeros."""
    scores = query @ key.mT * (query.size(-1) ** -0.5 if scale is None else scale)
    if is_causal:
        past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~past, -torch.inf)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask
    powers = (scores - scores.detach().amax(dim=-1, keepdim=True).clamp(min=-1e300)).exp()
    total = powers.sum(dim=-1, keepdim=True)
    weights = powers / total.masked_fill(total == 0, 1.0)
    return weights @ value, weights


def draw(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers, the same ones each time."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def close(result: Tensor, wanted: Tensor, bar: float = 1e-10) -> bool:
    """Whether two tensors have one shape, one dtype and, but for `bar`, the same numbers, none of them nan."""
    if (result.shape, result.dtype) != (wanted.shape, wanted.dtype):
        return False
    return torch.allclose(result, wanted, rtol=0, atol=bar)


def alike(result: Tensor, wanted: Tensor, leaves: Iterable[Tensor], bar: float = 1e-9) -> bool:
    """Whether two results are close, and the gradients, too, that they give to each of the leaves."""
    if not close(result, wanted, bar):
        return False
    leaves = [*leaves]
    direction = draw(*wanted.shape, seed=3, dtype=wanted.dtype)
    found, right = (
        torch.autograd.grad(one, leaves, direction, retain_graph=True) for one in (result, wanted)
    )
    return all(close(*pair, bar) for pair in zip(found, right, strict=True))
