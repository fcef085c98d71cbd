"""Compare what a block printed with what the page says, and say where they differ.

Everything but a float agrees only as the same text, and so does a float with another count of digits:
`3.1` is not `3.10`. A float printed with three significant digits or more, or as many as the project
says, may lie one unit of the last printed place away; at most one number in twenty of an output may, rounded up, and those that do keep
their order. Two things are equal, since other kernels return them: zeros of either sign, and a whole
number as tensors print it, `1.`, where another of its tensor is no longer whole, `1.0000`. Where a
number is written otherwise, the printer may pad otherwise: then blanks beside numbers count for nothing.
In an output whose numbers are all written alike, each blank counts. Under the option `exact`, only the
same text agrees.

An amount of money, `$20.00`, is no float: what it counts in is exact.
"""

from __future__ import annotations

import difflib
import math
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

SIGNIFICANT = (
    3  # digits that a float has at least where it may move; a project may say another number
)

# Comparing imports neither torch nor what reads Markdown: it is done in a browser, too.
if TYPE_CHECKING:
    from literate.page import Block, Page
    from literate.run import Result, Run

# What Python, NumPy and PyTorch print for a float: with a point or a signed power, so that neither
# a hash (`8e83948577a`) nor a version (`2.13.0`) nor a name (`block1.0`) is one. The sign of an
# imaginary part belongs to its number.
NUMBER = re.compile(
    r"""( (?:(?<![\w.)\]$€£¥])[-+]? | (?<=[\d.])[-+](?=[\d.e+-]{1,40}j))
          (?: [0-9]++ (?:\.[0-9]*+(?!\.[0-9]))? e[-+][0-9]{2,3} (?![^\Wj])
            | [0-9]++ \.[0-9]*+ (?!\.[0-9]|[eE][-+]?[0-9])
            | (?:inf|nan) (?!\w)) )""",
    re.VERBOSE,
)
MOVABLE = 20  # one number in so many may use its allowance
SHOWN = 8  # lines shown
MOST = 200  # differences returned
WIDEST = 160  # characters of a line


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

    `follows` is the line of a block that failed before, where this one fails by that alone, or 0;
    `excuse` says why it is no failure here, or is "".
    """

    line: int
    report: str
    follows: int = 0
    excuse: str = ""


def differences(
    expected: str, printed: str, exact: bool = False, significant: int = SIGNIFICANT
) -> list[Difference]:
    """Return the first Differences between two texts, line by line; none when they agree.

    Where they must agree exactly, no number may move, and nowhere one of fewer `significant` digits.
    """
    before, after = _lines(expected), _lines(printed)
    if len(before) != len(after):
        return _realign(before, after)
    pairs = enumerate(zip(before, after, strict=True))
    differing = [
        Difference(at, old, new, _parts(old, new, significant))
        for at, (old, new) in pairs
        if old != new
    ]
    if exact:
        return differing[:MOST]
    parts = [part for difference in differing for part in difference.parts]
    near = [part for part in parts if part.kind == "near"]
    excused = {"equal"}
    if any(part.kind in ("equal", "near", "far") for part in parts):
        excused.add("blank")  # another number, so perhaps another padding
    if len(near) <= math.ceil(len(NUMBER.findall(expected)) / MOVABLE) and _in_order(near):
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

    def failure(line: int, what: str, *parts: str) -> Failure:
        errors = _so_far("It wrote to standard error", result.errors)
        return _failure(page, line, what, *parts, errors)

    so_far = _so_far("It printed", result.printed)
    if block.skip:
        return None
    if result.unshown:
        what = "the block ends in a value, which a page does not show; print it"
        return failure(result.unshown, what)
    if result.raised and result.raised != block.raises:
        wanted = f"; the page expects {block.raises}" if block.raises else ""
        return failure(result.line, result.last_line + wanted, result.traceback, so_far)
    if result.printed and not result.printed.endswith("\n"):
        what = f"{where} leaves its last line open, in which a script would go on; end the line"
        return failure(block.line, what, so_far)
    if output is None:
        wanted = "nothing stands below it" if block.is_session else "no `output` fence follows it"
        what = f"{where} prints, and {wanted}"
        return failure(block.line, what, so_far) if printed else None
    if block.raises and not result.raised:
        return failure(output.line, f"{where} did not raise {block.raises}")
    if not printed:
        what = f"{where} prints nothing; print what is wanted here, or delete this output"
        return failure(output.line, what)
    accept = f"To accept it: python -m literate update {path_of(page)}"
    exact, significant = "exact" in output.options, page.project.significant
    if differing := differences(output.text, printed, exact, significant):
        what = f"the output differs from what {where} prints"
        return failure(output.line + 1 + differing[0].index, what, _diff(differing), accept)
    return None


def run_and_check(run: Run, block: Block) -> Failure | None:
    """Run a page up to `block`; return why it does not hold, and if so, why that is excused, or None."""
    result, page = run.upto(block), run.page
    if why := block.skip:
        return Failure(block.line, "", excuse=f"{path_of(page)}:{block.line}: skipped: {why}")
    failure = check(page, block, result)
    if failure and (before := _cause(run, block, result)):
        failure.follows = before.line
        failure.report += f"\nIt follows from the failure of the block on line {before.line}."
    if failure and may_differ(page, block) and not result.raised:
        why = block.output.options["varies"] if block.output else ""
        differs = f"varies ({why}); it differs on this platform"
        failure.excuse = f"{path_of(page)}:{failure.line}: {differs}"
    return failure


def _cause(run: Run, block: Block, result: Result) -> Block | None:
    """Return the block whose failure left nothing to run in, or without a name that `block` misses."""
    failed = [one for one in run.failed if one.line < block.line]
    if not result.ran:
        return failed[0] if failed else None
    missing = re.match(r"NameError: name '(\w+)' is not defined", result.last_line)
    word = re.compile(rf"\b{missing[1]}\b") if missing else None
    return next((one for one in failed if word and word.search(one.code)), None)


def may_differ(page: Page, block: Block) -> bool:
    """Say whether the output of `block` belongs to the reference platform, and this is another.

    An output that is still to be filled in belongs to every platform.
    """
    output = block.output
    varies = output and "varies" in output.options and output.text.strip()
    # What is installed and pinned is read for an output that varies, and for no other.
    return bool(varies) and not on_reference_platform(page.root)


def text_of(block: Block, result: Result) -> str:
    """Return what the output fence of `block` must hold: what it printed, and how it ended."""
    ending = result.last_line if block.raises and result.raised else ""
    text = result.printed + ending
    return text.replace("\r\n", "\n").replace("\r", "\n")  # as the page is read


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
    """Split a text into lines, without blanks at their ends and without empty lines at the end of all.

    No reader tells a tab from blanks.
    """
    lines = [line.expandtabs(4).rstrip() for line in text.split("\n")]
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


def _parts(old: str, new: str, significant: int) -> list[Part]:
    """Return the Parts in which two lines differ."""
    before, after = NUMBER.split(old), NUMBER.split(new)
    if len(before) != len(after):
        return [_text(old, new)]
    parts, at = [], 0
    for place, (a, b) in enumerate(zip(before, after, strict=True)):
        if a != b and place % 2:  # texts stand at even places, numbers at odd ones
            parts.append(Part(_distance(a, b, significant), slice(at, at + len(b)), a, b))
        elif a != b:
            parts.append(_text(a, b, at))
        at += len(b)
    return parts


def _text(old: str, new: str, at: int = 0) -> Part:
    """Return the Part in which two texts between numbers differ; `new` begins at column `at` of its line."""
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    where = slice(at + start, at + max(len(new) - end, start + 1))
    # The blanks that begin a line stand beside a number only where nothing else does.
    same = old.strip() == new.strip() if at else old.rstrip() == new.rstrip()
    return Part("blank" if same else "text", where, old, new)


def _distance(page: str, printed: str, significant: int) -> str:
    """Say whether two numbers are "equal", "near" (one unit of their last place) or "far"."""
    old, new = Decimal(page), Decimal(printed)
    (places, power), (places_now, power_now) = _form(page), _form(printed)
    if old == new and page[-1] != printed[-1] and "." in (page[-1], printed[-1]):
        return "equal"  # a whole number, printed with others that are whole or are not
    if (places, power) != (places_now, power_now):
        return "far"
    if old == new:  # as text they differ
        return "far" if old else "equal"
    if not places or min(_significant(page), _significant(printed)) < significant:
        return "far"
    unit = Decimal(1).scaleb(min(int(number.as_tuple().exponent) for number in (old, new)))
    return "near" if abs(old - new) <= unit else "far"


def _form(number: str) -> tuple[int, bool]:
    """Return how many decimal places a number has, and whether it has a power."""
    mantissa, power, _ = number.partition("e")
    return len(mantissa.partition(".")[2]), bool(power)


def _significant(number: str) -> int:
    """Count the digits of a number from the first that is not zero."""
    return len(number.partition("e")[0].replace(".", "").lstrip("-+0"))


def _in_order(near: list[Part]) -> bool:
    """Say whether the numbers that moved keep their order, so that no exchange passes for rounding."""
    values = sorted((Decimal(part.expected), Decimal(part.printed)) for part in near)
    printed = [new for _, new in values]
    return printed == sorted(printed)


def _realign(before: list[str], after: list[str]) -> list[Difference]:
    """Return the first Differences between texts of different length."""
    start = _alike(before, after)
    before, after = before[start : start + MOST], after[start : start + MOST]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    differing = []
    for _, i, i_end, j, j_end in (step for step in matcher.get_opcodes() if step[0] != "equal"):
        for step, (old, new) in enumerate(zip_longest(before[i:i_end], after[j:j_end])):
            parts = [] if None in (old, new) else [_text(old, new)]
            differing.append(Difference(start + min(i + step, max(i_end - 1, i)), old, new, parts))
    return differing


def _alike(old: Sequence, new: Sequence) -> int:
    """Count the items with which both sequences begin alike."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


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
    report = [f"{path_of(page)}:{line}: {what}", f"{line:5} | {text}"]
    return Failure(line, "\n".join(report + [part.rstrip("\n") for part in parts if part]))


def path_of(page: Page) -> str:
    """Return the path of a page as it can be typed where this process was started."""
    return Path(os.path.relpath(page.path)).as_posix()


def _so_far(what: str, text: str) -> str:
    lines = [f"\n  + {line[:WIDEST]}" for line in text.rstrip("\n").split("\n")]
    more = f"\n  … and {len(lines) - SHOWN} more lines" if len(lines) > SHOWN else ""
    return f"{what}:" + "".join(lines[:SHOWN]) + more if text else ""
