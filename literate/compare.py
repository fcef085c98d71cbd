"""Compare what a block printed with what the page says, and say where they differ.

Everything but a float agrees only as the same text. Equal floats agree however they are written:
`15.` and `15.0000`, `-0.0` and `0.0`. Another float may lie one unit of the last printed place
away, if both sides write it in one form, with decimals and two significant digits or more; at most one
number in twenty of an output may, rounded up, and those that do keep their order. Where a number
is written otherwise, the printer pads otherwise: then blanks beside numbers count for nothing.
In an output whose numbers are all written alike, each blank counts.
"""

from __future__ import annotations

import difflib
import math
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if (
    TYPE_CHECKING
):  # judging imports neither torch nor what reads Markdown: it is done in a browser, too
    from literate.page import Block, Page
    from literate.run import Result, Run

# What Python, NumPy and PyTorch print for a float: with a point or a signed power, so that neither
# a hash (`8e83948577a`) nor a version (`2.13.0`) nor a name (`block1.0`) is one. The sign of an
# imaginary part belongs to its number.
NUMBER = re.compile(
    r"""( (?:(?<![\w.)\]])[-+]? | (?<=[\d.])[-+](?=[\d.e+-]{1,40}j))
          (?: [0-9]++ (?:\.[0-9]*+(?!\.[0-9]))? e[-+][0-9]{2,3} (?![^\Wj])
            | [0-9]++ \.[0-9]*+ (?!\.[0-9]|[eE][-+]?[0-9])
            | (?:inf|nan) (?!\w)) )""",
    re.VERBOSE,
)
MOVERS = 20  # one number in so many may use its allowance
SHOWN = 8  # lines shown
MOST = 200  # differences told
WIDEST = 160  # characters of a line
NOT_RUN = "not run to the end"  # in the report on a block that follows one that failed


class Part(NamedTuple):
    """Where two lines differ: the place in the printed one, what stands there in both, and the `kind`.

    Numbers are "equal", though written otherwise, "near" or "far"; blanks beside a number are a
    "blank", and all else is "text".
    """

    kind: str
    where: slice
    expected: str
    printed: str


@dataclass
class Difference:
    """One line that differs: its index in the page's text, both versions, and the parts that differ."""

    index: int
    expected: str | None
    printed: str | None
    parts: list[Part]


@dataclass
class Failure:
    """Why a block does not hold: the page's line to look at, and the whole report.

    `follows` is the line of the block that failed before this one could run, or 0.
    """

    line: int
    report: str
    follows: int = 0


def differences(expected: str, printed: str) -> list[Difference]:
    """Return the first Differences between two texts, line by line; none when they agree."""
    before, after = _lines(expected), _lines(printed)
    if len(before) != len(after):
        return _realign(before, after)
    pairs = enumerate(zip(before, after, strict=True))
    differing = [
        Difference(at, old, new, _parts(old, new)) for at, (old, new) in pairs if old != new
    ]
    parts = [part for difference in differing for part in difference.parts]
    near = [part for part in parts if part.kind == "near"]
    excused = {"equal"}
    if any(part.kind in ("equal", "near", "far") for part in parts):
        excused.add("blank")  # another number, so perhaps another padding
    if len(near) <= math.ceil(len(NUMBER.findall(expected)) / MOVERS) and _in_order(near):
        excused.add("near")
    for difference in differing:
        difference.parts = [part for part in difference.parts if part.kind not in excused]
    return [difference for difference in differing if difference.parts][:MOST]


def agree(expected: str, printed: str) -> bool:
    """Say whether `printed` is what the page says, by the rules above."""
    return not differences(expected, printed)


def check(page: Page, block: Block, result: Result) -> Failure | None:
    """Return the Failure of `block`, given the Result of running it, or None when it holds."""
    printed, output = text_of(block, result), block.output
    where = f"the block on line {block.line}"
    if result.broken:
        return _failure(page, result.line or block.line, result.broken)
    if result.raised and result.raised != block.raises:
        wanted = f"; the page expects {block.raises}" if block.raises else ""
        parts = result.traceback, _so_far(result.printed)
        return _failure(page, result.line, result.last_line + wanted, *parts)
    if result.printed and not result.printed.endswith("\n"):
        what = f"{where} leaves its last line open, in which a script would go on; end the line"
        return _failure(page, block.line, what, _so_far(result.printed))
    if output is None:
        what = f"{where} prints, and no `output` fence follows it"
        return _failure(page, block.line, what, _so_far(printed)) if printed else None
    if block.raises and not result.raised:
        return _failure(page, output.line, f"{where} did not raise {block.raises}")
    if not printed:
        return _failure(
            page,
            output.line,
            f"{where} prints nothing; print what is wanted here, or delete this output",
        )
    if differing := differences(output.text, printed):
        what = f"the output differs from what {where} prints"
        accept = f"To accept it: make update PAGE={page.name}"
        return _failure(page, output.line + 1 + differing[0].index, what, _diff(differing), accept)
    return None


def run_and_check(run: Run, block: Block) -> tuple[Failure | None, str]:
    """Run a page up to `block`.

    Returns why the block does not hold, and why that is excused on this platform, if it is.
    """
    result, page = run.upto(block), run.page
    if run.failed and run.failed.line < block.line:
        what = f"{NOT_RUN}: the block on line {run.failed.line} failed first"
        return Failure(block.line, f"{page.name}:{block.line}: {what}", run.failed.line), ""
    failure = check(page, block, result)
    why = block.output.options.get("varies", "") if block.output and failure else ""
    # What is installed and pinned is read for an output that varies, and for no other.
    excused = why and not result.raised and not on_reference_platform(page.root)
    return failure, why if excused else ""


def text_of(block: Block, result: Result) -> str:
    """Return what the output fence of `block` must hold: what it printed, and how it ended."""
    ending = result.last_line if block.raises and result.raised else ""
    text = result.printed + ending
    return text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)  # as the page is read


def on_reference_platform(root: Path) -> bool:
    """Say whether this is where `varies` outputs are checked: Linux x86-64, pinned torch."""
    here = platform.system(), platform.machine(), pinned_torch(root)
    return here == ("Linux", "x86_64", version_of("torch"))


def pinned_torch(root: Path) -> str:
    """Return the version of torch in the requirements of the book below `root`; "" without any."""
    pins = root / "requirements.txt"
    pinned = re.search(r"^torch==(\S+)", pins.read_text(), re.MULTILINE) if pins.exists() else None
    return pinned[1] if pinned else ""


def version_of(package: str) -> str:
    """Return the version of an installed package without the name of its build, such as +cpu."""
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return "unknown"


def _lines(text: str) -> list[str]:
    """Split a text into lines, without blanks at their ends and without empty lines at the end of all."""
    lines = [line.rstrip() for line in text.split("\n")]
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


def _parts(old: str, new: str) -> list[Part]:
    """Return the Parts in which two lines differ."""
    before, after = NUMBER.split(old), NUMBER.split(new)
    if len(before) != len(after):
        return [_text(old, new)]
    parts, at = [], 0
    for place, (a, b) in enumerate(zip(before, after, strict=True)):
        if a != b and place % 2:  # texts stand at even places, numbers at odd ones
            parts.append(Part(_distance(a, b), slice(at, at + len(b)), a, b))
        elif a != b:
            parts.append(_text(a, b, at))
        at += len(b)
    return parts


def _text(old: str, new: str, at: int = 0) -> Part:
    """Return the Part in which two texts between numbers differ; `new` begins at column `at` of its line."""
    start = _alike(old, new, eq)
    end = _alike(old[start:][::-1], new[start:][::-1], eq)
    where = slice(at + start, at + max(len(new) - end, start + 1))
    # The blanks that begin a line stand beside a number only where nothing else does.
    same = old.strip() == new.strip() if at else old.rstrip() == new.rstrip()
    return Part("blank" if same else "text", where, old, new)


def _distance(page: str, printed: str) -> str:
    """Say whether two numbers are "equal", "near" (one unit of their last place) or "far"."""
    old, new = Decimal(page), Decimal(printed)
    if old == new:
        return "equal"
    form = _form(page)
    if form is None or form != _form(printed):
        return "far"
    unit = Decimal(1).scaleb(min(int(number.as_tuple().exponent) for number in (old, new)))
    return "near" if abs(old - new) <= unit else "far"


def _form(number: str) -> tuple[int, bool] | None:
    """Return how many decimals a number has and whether it has a power; None if it must be exact."""
    mantissa, power, _ = number.partition("e")
    whole, _, decimals = mantissa.partition(".")
    significant = (whole + decimals).lstrip("-+0")
    return (len(decimals), bool(power)) if decimals and len(significant) > 1 else None


def _in_order(near: list[Part]) -> bool:
    """Say whether the numbers that moved keep their order, so that no exchange passes for rounding."""
    values = sorted((Decimal(part.expected), Decimal(part.printed)) for part in near)
    printed = [new for _, new in values]
    return printed == sorted(printed)


def _realign(before: list[str], after: list[str]) -> list[Difference]:
    """Return the first Differences between texts of different length, after the lines in which both begin."""
    start = _alike(before, after, _near_lines)
    end = _alike(before[start:][::-1], after[start:][::-1], _near_lines)
    before, after = before[start : len(before) - end], after[start : len(after) - end]
    before, after = before[:MOST], after[:MOST]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    differing = []
    for _, i, i_end, j, j_end in (step for step in matcher.get_opcodes() if step[0] != "equal"):
        for step, (old, new) in enumerate(zip_longest(before[i:i_end], after[j:j_end])):
            parts = [] if None in (old, new) else [_text(old, new)]
            differing.append(Difference(start + min(i + step, max(i_end - 1, i)), old, new, parts))
    return differing


def _near_lines(old: str, new: str) -> bool:
    return old == new or all(part.kind in ("equal", "near") for part in _parts(old, new))


def _alike(before: Sequence, after: Sequence, same: Callable) -> int:
    """Count the items with which both sequences begin alike."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((i for i, pair in pairs if not same(*pair)), min(len(before), len(after)))


def _diff(differing: list[Difference]) -> str:
    """Show each difference as the page's line, the printed line, and marks under what differs."""
    rows = []
    for difference in differing[:SHOWN]:
        places = [part.where for part in difference.parts]
        left = places[0].start - WIDEST // 2 if places and places[0].stop > WIDEST else 0
        marks = [" "] * max((place.stop for place in places), default=0)
        for place in places:
            marks[place] = "^" * (place.stop - place.start)
        lines = (
            ("  - ", difference.expected),
            ("  + ", difference.printed),
            ("    ", "".join(marks) or None),
        )
        rows += [sign + line[left : left + WIDEST] for sign, line in lines if line is not None]
    more, least = len(differing) - SHOWN, "at least " if len(differing) >= MOST else ""
    return "\n".join(rows) + (f"\n  … and {least}{more} more lines" if more > 0 else "")


def _failure(page: Page, line: int, what: str, *parts: str) -> Failure:
    text = page.lines[line - 1].strip() if 0 < line <= len(page.lines) else ""
    report = [f"{page.name}:{line}: {what}", f"{line:5} | {text}"]
    return Failure(line, "\n".join(report + [part.rstrip("\n") for part in parts if part]))


def _so_far(printed: str) -> str:
    lines = [f"\n  + {line[:WIDEST]}" for line in printed.rstrip("\n").split("\n")]
    more = f"\n  … and {len(lines) - SHOWN} more lines" if len(lines) > SHOWN else ""
    return "It printed:" + "".join(lines[:SHOWN]) + more if printed else ""
