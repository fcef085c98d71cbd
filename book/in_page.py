"""Runs the program of a page in a reader's browser, and says what came of it.

`docs/assets/run-worker.js` loads this file and what it imports, as `run.py` has packed them, into Pyodide, and
calls `begin`, `above` and `run`. The small torch's own `page` runs the blocks, as it does where its pages are tested.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from page import Page  # type: ignore[import-not-found]

from book.figures import output as output_figure
from literate import compare

TOO_MUCH = ("Array buffer allocation failed", "cannot fit 'int' into an index-sized integer")
FULL = "MemoryError: this is more than the memory of a page holds"
DEEP = "RecursionError: a function calls itself without an end"
LEFT = "SystemExit: a block cannot end the page"
# A frame of a traceback, and the code that it shows.
FRAME = re.compile(r'^ +File "(.*)", line (\d+)(.*)\n((?:    .*\n)*)', re.MULTILINE)
SIGNIFICANT = 2  # as in `project.py`, which is not packed


@dataclass
class Step:
    """A block to run: its place on the page, its code, the line where that begins, and what ends it.

    Nothing else on the page needs an `exercise`: an error in one stops nothing, and it can be done again.
    """

    at: int
    code: str
    start: int
    raises: str | None = None
    exercise: bool = False

    @property
    def end(self) -> int:
        return self.start + self.code.count("\n")


class Program:
    """The program of one page, in one module, as far as it has run."""

    def __init__(self, name: str):
        self.name = name
        self.page = Page(name, "")
        self.ran: list[Step] = []
        self.lines: list[str] = []

    def run(self, step: Step, tell_of: Callable[[str], object] | None = None) -> Any:
        """Run one block, and return what it did, as `literate.compare` wants to be told; `line` is one of its own."""
        step.start = max(step.start, self.ran[-1].end + 1 if self.ran else 1)
        self.ran.append(step)
        self.lines += [""] * (step.end - len(self.lines))
        self.lines[step.start - 1 : step.end] = step.code.split("\n")
        self.page.keep("\n".join(self.lines))
        said = self.page.run(step.code, step.start, tell_of)
        inside = [line for line in said.pop("lines") if step.start <= line <= step.end]
        said["line"] = inside[-1] - step.start + 1 if inside else 0
        return types.SimpleNamespace(**said)

    def traceback(self, text: str) -> str:
        """Return the text of a traceback with the frames of this page alone, each by its block and the line there."""

        def frame(match: re.Match) -> str:
            file, line, rest, code = match.groups()
            began = [step for step in self.ran if step.start <= int(line)]
            if file != self.name or not began:
                return ""
            return (
                f"  Block {began[-1].at + 1}, line {int(line) - began[-1].start + 1}{rest}\n{code}"
            )

        return FRAME.sub(frame, text).replace(", in <module>", "")

    def values(self, code: str) -> list | None:
        """Return what `code`, a program of `book.figures.expressions`, prints of the module as it is now.

        None where a name in it is not there, or means something else now.
        """
        said = self.page.run(code)
        return None if said["raised"] else json.loads(said["printed"])


_program: Program | None = None


def begin(page: str) -> None:
    """Begin the program of a page anew."""
    global _program
    _program = Program(page)


def above(asked: str) -> str:
    """Run those of the `steps` that have not run; return what stopped one, as JSON, or ""."""
    assert _program
    steps = [Step(**step) for step in json.loads(asked)["steps"]]
    for step in steps[len(_program.ran) :]:
        result = _program.run(step)
        if result.raised and result.raised != step.raises and not step.exercise:
            return json.dumps(_refused(_program, step, result))
    return ""


def run(asked: str, tell_of: Callable[[str], object] | None = None) -> str:
    """Run the last of the steps that are asked for, where all above it have run; JSON in, JSON out.

    `asked` names the `steps` in order, and the `output` that the page shows below it, if any: its `text`, its
    `options`, and the `labels` that the page computes. `figures` holds the code of what explorables show after it.
    """
    assert _program
    request = json.loads(asked)
    last = Step(**request["steps"][-1])
    result = _program.run(last, tell_of)
    if result.raised and result.raised != last.raises:
        return json.dumps(_refused(_program, last, result))
    said = _judged(_program, last, result, request.get("output"))
    said["figures"] = [_program.values(code) for code in request.get("figures", [])]
    return json.dumps(said)


def _refused(program: Program, step: Step, result: Any) -> dict[str, Any]:
    """Say where a block stopped, in words that a reader can use, and what it had printed."""
    lines = step.code.split("\n")
    error = result.last_line
    if result.raised == "MemoryError" or any(words in error for words in TOO_MUCH):
        error = FULL
    elif result.raised == "SystemExit":
        error = LEFT
    elif "Maximum call stack size exceeded" in error or result.raised == "RecursionError":
        error = DEEP
    return {
        "at": step.at,
        "error": error,
        "lacks": result.lacks,
        "whole": program.traceback(result.traceback),
        "errors": result.errors,
        "line": result.line,
        "text": lines[result.line - 1].strip() if result.line else "",
        "html": output_figure.html(result.printed, {}) if result.printed else "",
    }


def _judged(
    program: Program, step: Step, result: Any, output: dict[str, Any] | None
) -> dict[str, Any]:
    """Say what a block printed that ran to its end, and what of it moved from what the page shows."""
    block: Any = types.SimpleNamespace(raises=step.raises)
    printed = compare.text_of(block, result)
    said: dict[str, Any] = {"at": step.at, "printed": printed, "errors": result.errors}
    if output:
        found = compare.differences(output["text"], printed, significant=SIGNIFICANT)
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
    said["html"] = _drawn(program, printed, output or {}) if printed else ""
    return said


def _drawn(program: Program, printed: str, output: dict[str, Any]) -> str:
    """Draw what was printed as the page draws its output, or as text where that cannot be."""
    options = dict(output.get("options", {}))
    options.pop("predict", None)
    try:
        if labels := output.get("labels"):
            values = program.values(labels["code"]) or []
            words = (
                value if isinstance(value, str) else " ".join(map(str, value)) for value in values
            )
            options |= dict(zip(labels["names"], words, strict=True))
        return output_figure.html(printed, options)
    except (ValueError, ImportError):
        plain = {key: options[key] for key in ("caption", "raises", "varies") if key in options}
        return output_figure.html(printed, plain)
