"""Runs the program of a page in a reader's browser, and says what came of it.

`docs/assets/run-worker.js` loads this file and what it imports, as `run.py` has packed them, into Pyodide, and
calls `run`. Nothing but the standard library is imported; a page finds `torch` where one was packed, too.
As in `literate/child.py`, the page is `__main__` while it runs, every seed is set before its first block, and
the code of a block stands on its own lines, so that an error names the line of the page.
"""

from __future__ import annotations

import __future__

import ast
import contextlib
import importlib
import io
import json
import linecache
import random
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from book.figures import drawn
from literate import compare

SEED = 0
MOST_PRINTED = 100_000  # characters that a block may print
FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
FULL = "MemoryError: this is more than the memory of a page holds"
DEEP = "RecursionError: the function calls itself without an end"


class BlockStopped(BaseException):
    """A block did what none may; not an Exception, so that `except Exception` lets it through."""

    __module__ = "builtins"  # so that a traceback names it without a module


class Printed(io.StringIO):
    """What a block prints, up to a bound; `tell_of` is told of each piece."""

    def __init__(self, tell_of: Callable[[str], object]):
        super().__init__()
        self.tell_of = tell_of

    def write(self, text: str) -> int:
        if self.tell() + len(text) > MOST_PRINTED:
            raise BlockStopped(f"printed more than {MOST_PRINTED:,} characters")
        self.tell_of(text)
        return super().write(text)


class NoInput(io.StringIO):
    """Standard input for a block: nobody is there to type."""

    def readline(self, *_: object) -> str:  # type: ignore[override]
        raise RuntimeError("a block cannot ask for input: nobody answers it here")


@dataclass
class Step:
    """A block to run: its place on the page, its code, the line where that begins, and what ends it.

    `free` says that nothing below needs it, so that an error in it stops nothing else: an exercise.
    """

    at: int
    code: str
    start: int
    raises: str | None = None
    free: bool = False

    @property
    def end(self) -> int:
        return self.start + self.code.count("\n")


@dataclass
class Result:
    """What one block did, as `literate.compare` wants to be told. `line` counts from 1 in the block."""

    printed: str = ""
    raised: str = ""
    last_line: str = ""
    line: int = 0


@dataclass
class Program:
    """The program of one page, in one module, as far as it has run."""

    name: str
    ran: list[Step] = field(default_factory=list)
    future: int = 0  # what `from __future__` has turned on, for all blocks that follow

    def __post_init__(self) -> None:
        self.module = types.ModuleType("__main__")
        self.module.__file__ = self.name
        self.lines: list[str] = []
        for module in (
            sys.modules.keys() - OURS
        ):  # what a page has changed there, the next is not to meet
            del sys.modules[module]
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        random.seed(SEED)
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("torch").manual_seed(SEED)

    def run(self, step: Step, tell_of: Callable[[str], object] = lambda text: None) -> Result:
        """Run one block; an exception is told, and ends nothing else."""
        self._place(step)
        self.ran.append(step)
        printed, result = Printed(tell_of), Result()
        with self._as_main(printed):
            try:
                text = "\n" * (step.start - 1) + step.code
                program = compile(text, self.name, "exec", self.future, dont_inherit=True)
                self.future |= program.co_flags & FUTURES
                exec(program, self.module.__dict__)
            except BaseException as error:
                result.raised = type(error).__name__
                result.last_line, result.line = _last_line(error), self._line(error, step)
        result.printed = printed.getvalue()
        return result

    def values(self, code: str) -> list:
        """Return what `code`, a program of `literate.expressions`, prints of the module as it is now."""
        printed = Printed(lambda text: None)
        with self._as_main(printed):
            exec(code, self.module.__dict__)
        return json.loads(printed.getvalue())

    def _place(self, step: Step) -> None:
        """Put a block on its own lines, or below what was written longer than it was."""
        step.start = max(step.start, self.ran[-1].end + 1 if self.ran else 1)
        self.lines += [""] * (step.end - len(self.lines))
        self.lines[step.start - 1 : step.end] = step.code.split("\n")
        kept = [line + "\n" for line in self.lines]
        linecache.cache[self.name] = (len(kept), None, kept, self.name)

    @contextlib.contextmanager
    def _as_main(self, printed: Printed) -> Iterator[None]:
        outside = sys.stdout, sys.stdin, sys.modules["__main__"]
        sys.stdout, sys.stdin, sys.modules["__main__"] = printed, NoInput(), self.module
        try:
            yield
        finally:
            sys.stdout, sys.stdin, sys.modules["__main__"] = outside

    def _line(self, error: BaseException, step: Step) -> int:
        """Return the line of `step` that is to blame for `error`; 0 where none of it is known."""
        if isinstance(error, SyntaxError) and error.filename == self.name:
            lines = [error.lineno or 0]
        else:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno or 0 for frame in frames if frame.filename == self.name]
        inside = [line for line in lines if step.start <= line <= step.end]
        return inside[-1] - step.start + 1 if inside else 0


OURS = frozenset(sys.modules)
_program = Program("")


def run(asked: str, tell_of: Callable[[str], object] = lambda text: None) -> str:
    """Run a block of a page, after the blocks above it that have not run so; JSON in, JSON out.

    `asked` names the `page`, its `steps` in order, of which the last is asked for, and the `output` that the
    page shows below it, if any: its `text`, its `options`, and the `labels` that the page computes.
    """
    request = json.loads(asked)
    steps = [Step(**step) for step in request["steps"]]
    last = steps[-1]
    for step in _left(request["page"], steps):
        result = _program.run(step, tell_of if step is last else lambda text: None)
        if result.raised and result.raised != step.raises and not (step.free and step is not last):
            said = _refused(step, result)
            if step is last:
                said["html"] = drawn.figure(result.printed, {}) if result.printed else ""
            return json.dumps(said)
    return json.dumps(_judged(last, result, request.get("output")))


def _left(page: str, steps: list[Step]) -> list[Step]:
    """Return which of `steps` are to be run: those that have not, or all, where others have."""
    global _program
    ran = [(step.at, step.code) for step in _program.ran]
    wanted = [(step.at, step.code) for step in steps]
    if _program.name == page and len(ran) < len(wanted) and ran == wanted[: len(ran)]:
        return steps[len(ran) :]
    _program = Program(page)
    return steps


def _refused(step: Step, result: Result) -> dict[str, Any]:
    """Say where a block stopped, and make a program of it no more: it may have run half."""
    _program.name = ""
    lines = step.code.split("\n")
    text = lines[result.line - 1].strip() if result.line else ""
    return {"at": step.at, "error": result.last_line, "line": result.line, "text": text}


def _judged(step: Step, result: Result, output: dict[str, Any] | None) -> dict[str, Any]:
    """Say what a block printed that ran to its end, and what of it moved from what the page shows."""
    block: Any = types.SimpleNamespace(raises=step.raises)
    printed = compare.text_of(block, result)  # type: ignore[arg-type]
    said: dict[str, Any] = {"at": step.at, "printed": printed}
    if output:
        found = compare.differences(output["text"], printed)
        said["moved"] = [
            [
                one.index,
                one.expected,
                one.printed,
                [[p.where.start, p.where.stop] for p in one.parts],
            ]
            for one in found
        ]
        said["lines"] = len(output["text"].rstrip("\n").split("\n"))
    if step.raises and not result.raised:
        said["missed"] = step.raises
    said["html"] = _drawn(printed, output or {}) if printed else ""
    return said


def _drawn(printed: str, output: dict[str, Any]) -> str:
    """Draw what was printed as the page draws its output, or as text where that cannot be."""
    options = dict(output.get("options", {}))
    options.pop("predict", None)
    try:
        if labels := output.get("labels"):
            values = _program.values(labels["code"])
            words = (
                value if isinstance(value, str) else " ".join(map(str, value)) for value in values
            )
            options |= dict(zip(labels["names"], words, strict=True))
        return drawn.figure(printed, options)
    except (ValueError, ImportError, BlockStopped):
        plain = {key: options[key] for key in ("caption", "raises", "varies") if key in options}
        return drawn.figure(printed, plain)


def _last_line(error: BaseException) -> str:
    """Return the line that names the exception, in words that a reader can use."""
    entries = traceback.format_exception_only(error)
    # Before it stands the code of a SyntaxError, indented; after it stand notes.
    named = (entry for entry in entries if not entry.startswith(" "))
    line = next(named, entries[-1]).split("\n")[0]
    if isinstance(error, MemoryError) or "Array buffer allocation failed" in line:
        return FULL
    if "Maximum call stack size exceeded" in line:
        return DEEP
    return line
