"""Rewrite the outputs of a page that no longer agree with what its blocks print.

A page that has changed since it was run, or that includes a file which has, is left as it is. What is
written reads back as the same blocks, with outputs that agree and can be drawn.
"""

import os
import re
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

from literate import compare, session
from literate.page import Block, Fence, Page, PageError, read
from literate.run import Result, Run

ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-f]{6,}>")  # of an object in memory
Edit = tuple[slice, list[str]]  # lines of a page, from 0, and what takes their place


class Refused(Exception):
    """The page was left as it was; the message says why."""


def update(page: Page) -> int:
    """Bring the outputs of `page` up to date; return how many changed.

    An output within tolerance stays as it is. Raises Refused under CI, when a block raises
    what the page does not announce or runs too long, when what would be written is
    something else in a second run, as an address or a time is, when an output that has options
    would go, when what was printed would not be read back the same or cannot be drawn, and when the
    page changed meanwhile or is read-only; the page is then untouched.
    """
    if os.environ.get("CI"):
        raise Refused("CI is set: outputs are updated by an author, who reads the diff")
    results = _run(page)
    edits = _edits(page, results)
    if edits:
        if _unchanged(page):  # else `rewrite` says so
            _refuse_what_moves(page, results, _run(page))
        rewrite(page, edits, lambda new: _check(new, page, results))
    return len(edits)


def _run(page: Page) -> list[Result]:
    with closing(Run(page)) as run:
        return run.all()


def _refuse_what_moves(page: Page, results: list[Result], again: list[Result]) -> None:
    """Raise Refused where a block that does not hold printed something else the second time."""
    for block, first, second in zip(page.steps, results, again, strict=True):
        if not compare.check(page, block, first):
            continue
        one, other = (compare.text_of(block, result) for result in (first, second))
        where = f"{compare.path_of(page)}:{block.line}: the block on line {block.line}"
        if address := ADDRESS.search(one):  # by chance it may be the same twice
            raise Refused(f"{where} prints {address[0]!r}, which is another in each process")
        if found := compare.differences(one, other):
            now, then = found[0].expected, found[0].printed
            what = f"prints {now!r}, and {then!r} when it runs again; print what stays the same"
            raise Refused(f"{where} {what}")


def rewrite(page: Page, edits: list[Edit], check: Callable[[Page], None] | None = None) -> None:
    """Make all `edits` at once, given in the page's order; every other byte stays.

    Raises Refused where the page or what it includes is no longer what was read, or is read-only, or
    where the new page could not be read; and whatever `check` raises, which is given the new page.
    """
    path, changed = page.path, Refused(f"{compare.path_of(page)}: changed meanwhile; run again")
    if not path.stat().st_mode & 0o222 or not os.access(path, os.W_OK):
        raise Refused(f"{compare.path_of(page)}: is read-only")
    # The suffix of a page, since it is read as one; the dot keeps it from being one of the book.
    new = path.with_name(f".{path.stem}.{os.getpid()}.tmp.md")
    old = path.read_bytes()
    if not _unchanged(page):
        raise changed
    try:
        new.write_bytes(_apply(old.decode("utf-8"), edits).encode("utf-8"))
        new.chmod(path.stat().st_mode)
        written = replace(read(new), path=path)
        if check:
            check(written)
        if path.read_bytes() != old:
            raise changed
        new.replace(path)
    except PageError as error:
        what = f"what would be written is no page, in its line {error.line}"
        raise Refused(f"{compare.path_of(page)}: {what}: {error.message}") from None
    finally:
        new.unlink(missing_ok=True)


def fence_lines(like: Fence, info: str, text: str) -> list[str]:
    """Return the lines of a fence at the place of `like`, long enough for the `text` it holds."""
    mark = like.marks[0]
    longest = max((len(run) for run in re.findall(re.escape(mark) + "+", text)), default=0)
    marks = mark * max(len(like.marks), longest + 1 if longest >= 3 else 0)
    body = [(like.prefix + line).rstrip() for line in text.rstrip("\n").split("\n")]
    return [f"{like.prefix}{marks}{info}", *body, like.prefix + marks]


def _edits(page: Page, results: list[Result]) -> list[Edit]:
    """Return what must change on `page`, given the Result of each of its steps."""
    edits = []
    for block, result in zip(page.steps, results, strict=True):
        failure = compare.check(page, block, result)
        if failure and (result.unshown or result.raised != (block.raises or "")):
            raise Refused(failure.report)
        if failure and not compare.may_differ(page, block):
            printed = compare.text_of(block, result)
            if block.output and block.output.options and not printed:
                raise Refused(f"{failure.report} yourself, since its options would be lost")
            edits.append(_edit(page, block, printed))
    return edits


def _check(new: Page, page: Page, results: list[Result]) -> None:
    """Raise unless `new` has the blocks of `page`, shows what they printed, and can be drawn."""
    if [block.code for block in new.blocks] != [block.code for block in page.blocks]:
        raise Refused(
            f"{compare.path_of(page)}: what would be written would be read as other blocks"
        )
    for block, result in zip(new.steps, results, strict=True):
        failure = compare.check(new, block, result)
        if failure and not compare.may_differ(new, block):
            raise Refused(f"what would be written would not agree: {failure.report}")
    new.check_drawn()


def _edit(page: Page, block: Block, printed: str) -> Edit:
    """Return the edit that adds, deletes or replaces the output of `block`."""
    end = block.fence.end
    if block.is_session:
        shown = block.output or Fence(end, end, "", "", "", {})
        return slice(shown.line, shown.end), session.lines(block.fence, printed)
    if block.output is None:
        new = [block.fence.prefix.rstrip(), *fence_lines(block.fence, "output", printed)]
        return slice(end, end), new
    if block.is_labels:
        return slice(block.output.line, block.output.end), printed.rstrip("\n").split("\n")
    if not printed:
        return slice(end, block.output.end), []
    start = block.output.line - 1
    info = page.lines[start].lstrip(" >").lstrip("`~").rstrip()
    return slice(start, block.output.end), fence_lines(block.output, info, printed)


def _apply(text: str, edits: list[Edit]) -> str:
    """Make the edits in `text`, whose lines may end in any way; new ones end as the first does."""
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)  # each with its own ending
    ending = lines[0][len(lines[0].rstrip("\r\n")) :]
    if not lines[-1].endswith(("\r", "\n")):
        lines[-1] += ending
    # Bottom up, so that line numbers stay true; the labels of an output after the output around them.
    in_order = sorted(edits, key=lambda edit: (edit[0].start, edit[0].stop), reverse=True)
    for place, new in in_order:
        lines[place] = [line + ending for line in new]
    return "".join(lines)


def _unchanged(page: Page) -> bool:
    """Say whether what is on the disk is still what was read: the page, and what it includes."""
    with suppress(PageError):
        now = read(page.path)
        return (now.text, now.source) == (page.text, page.source)
    return False
