"""Hold what a block printed against what the page says, and say where they part.

Text and integers agree when they are the same. A float agrees when it has the same form and lies
within one unit of the last place that the page prints. `-0.0000` is `0.0000`; `1.`, which the
tensor printer writes when every element is whole, is `1.0000`. Runs of blanks count as one, and
the blank that the printer puts between `[` and a number, to leave room for a sign, counts as none.
"""

import difflib
import platform
import re
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest

TOKEN = re.compile(
    r"""(?P<blank>[^\S\n]+)
      | (?P<word>[^\W\d]\w* | \d+(?:\.\d+){2,})
      | (?P<float>(?<![\w.)\]])[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)
                | \d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)
      | (?P<integer>\d+)
      | (?P<mark>.)""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    spaced: bool  # a run of blanks stands before it


@dataclass
class Difference:
    """One line that differs: its index in the page's text, both versions, and which parts moved."""

    index: int
    expected: str | None
    printed: str | None
    moved: list[slice] = field(default_factory=list)


@dataclass
class Failure:
    """Why a block does not hold: the page's line to look at, and the whole report."""

    line: int
    report: str


def differences(expected, printed):
    """Return the Differences between two texts, line by line; none when they agree."""
    before, after = _lines(expected), _lines(printed)
    found = []
    for index, old, new in _aligned(before, after):
        moved = _moved(old, new)
        if moved is not None:
            found.append(Difference(index, old, new, moved))
    return found


def agree(expected, printed):
    """Say whether `printed` is what the page says, by the rules above."""
    return not differences(expected, printed)


def judge(page, block, result):
    """Return the Failure of `block`, given the Result of running it, or None when it holds."""
    printed = text_of(block, result)
    where = f"the block on line {block.line}"
    if result.broken:
        return _failure(page, block.line, result.broken)
    if result.raised and result.raised != block.raises:
        wanted = f"; the page expects {block.raises}" if block.raises else ""
        report = f"{result.last_line}{wanted}"
        return _failure(page, result.line, report, result.traceback, _so_far(result.printed))
    if block.raises and not result.raised:
        return _failure(page, block.output.line, f"{where} did not raise {block.raises}")
    if block.output is None:
        if printed:
            what = f"{where} prints, and no `output` fence follows it"
            return _failure(page, block.line, what, _so_far(printed))
        return None
    if not printed:
        return _failure(page, block.output.line, f"{where} prints nothing; delete this output")
    return _mismatch(page, block, printed)


def text_of(block, result):
    """Return what the output fence of `block` must hold: what it printed, and how it ended."""
    ending = result.last_line if block.raises and result.raised else ""
    gap = "\n" if ending and result.printed and not result.printed.endswith("\n") else ""
    text = result.printed + gap + ending
    return text.replace("\r\n", "\n").replace("\r", "\n")  # as the page is read


def on_reference_platform(root):
    """Say whether this is where `varies` outputs are checked: Linux x86-64, pinned torch."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    pins = root / "requirements.txt"
    pinned = re.search(r"^torch==(\S+)", pins.read_text(), re.MULTILINE) if pins.exists() else None
    try:
        return bool(pinned) and version("torch").split("+")[0] == pinned[1]
    except PackageNotFoundError:
        return False


def _lines(text):
    lines = [line.rstrip() for line in text.split("\n")]
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


def _aligned(before, after):
    """Pair the lines of two texts; yields (index on the page, line or None, line or None)."""
    if len(before) == len(after):
        yield from ((i, *pair) for i, pair in enumerate(zip(before, after, strict=True)))
        return
    matcher = difflib.SequenceMatcher(None, _squeezed(before), _squeezed(after), autojunk=False)
    for _, i, i_end, j, j_end in matcher.get_opcodes():
        for step, (old, new) in enumerate(zip_longest(before[i:i_end], after[j:j_end])):
            yield min(i + step, max(i_end - 1, i)), old, new


def _squeezed(lines):
    return [" ".join(line.split()) for line in lines]


def _tokens(line):
    found, spaced = [], False
    for match in TOKEN.finditer(line):
        if match.lastgroup == "blank":
            spaced = True
            continue
        padding = match.lastgroup in ("float", "integer") and found and found[-1].text == "["
        found.append(Token(match.lastgroup, match[0], match.start(), spaced and not padding))
        spaced = False
    return found


def _moved(old, new):
    """Return None when two lines agree, else the parts of `new` that moved."""
    if old is None or new is None:
        return []
    if old == new:
        return None
    before, after = _tokens(old), _tokens(new)
    pairs = list(zip(before, after, strict=False))
    moved = [slice(b.start, b.start + len(b.text)) for a, b in pairs if not _same(a, b)]
    return moved if moved or len(before) != len(after) else None


def _same(a, b):
    if (a.kind, a.spaced) != (b.kind, b.spaced):
        return False
    return a.text == b.text or (a.kind == "float" and _close(a.text, b.text))


def _close(page, printed):
    if page.endswith(".") or printed.endswith("."):
        return Decimal(page) == Decimal(printed)
    (places, exponent), form = _form(page), _form(printed)
    if (places, exponent is None) != (form[0], form[1] is None):
        return False
    unit = Decimal(1).scaleb((exponent or 0) - places)
    return abs(Decimal(page) - Decimal(printed)) <= unit


def _form(number):
    """Return how many places a float's text has, and its exponent (None without one)."""
    mantissa, _, exponent = number.lower().partition("e")
    return len(mantissa.partition(".")[2]), int(exponent) if exponent else None


def _mismatch(page, block, printed):
    found = differences(block.output.text, printed)
    if not found:
        return None
    report = "\n".join(_drawn(d) for d in found[:8])
    if len(found) > 8:
        report += f"\n  … and {len(found) - 8} more lines"
    line = block.output.line + 1 + found[0].index
    what = f"the output differs from what the block on line {block.line} prints"
    return _failure(page, line, what, report, f"To accept it: make update PAGE={page.name}")


def _drawn(difference):
    """Draw one difference as page line, printed line and marks under what moved."""
    lines = []
    if difference.expected is not None:
        lines.append(f"  - {difference.expected}")
    if difference.printed is not None:
        lines.append(f"  + {difference.printed}")
    if difference.moved:
        marks = [" "] * max(part.stop for part in difference.moved)
        for part in difference.moved:
            marks[part] = "^" * (part.stop - part.start)
        lines.append("    " + "".join(marks))
    return "\n".join(lines)


def _failure(page, line, what, *parts):
    lines = page.text.split("\n")
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    report = [f"{page.name}:{line}: {what}", f"{line:5} | {text}"]
    return Failure(line, "\n".join(report + [p.rstrip("\n") for p in parts if p]))


def _so_far(printed):
    if not printed:
        return ""
    kept = "\n".join(f"  + {line}" for line in printed.rstrip("\n").split("\n")[:8])
    more = printed.rstrip("\n").count("\n") - 7
    return f"It printed:\n{kept}" + (f"\n  … and {more} more lines" if more > 0 else "")
