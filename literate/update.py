"""Rewrite the outputs of a page that no longer agree with what its blocks print."""

import os
import re
from contextlib import closing, suppress

from filelock import FileLock

from literate import compare
from literate.page import Block, Fence, Page, PageError, read
from literate.run import Run

Edit = tuple[slice, list[str]]  # lines of a page, from 0, and what takes their place


class Refused(Exception):
    """The page was left as it was; the message says why."""


def update(page: Page) -> int:
    """Bring the outputs of `page` up to date; return how many changed.

    An output within tolerance stays as it is. Raises Refused under CI, when a block raises
    what the page does not announce, closes stdout or runs too long, and when the page changed
    meanwhile or is read-only; the page is then untouched.
    """
    if os.environ.get("CI"):
        raise Refused("CI is set: outputs are updated by an author, who reads the diff")
    edits = _edits(page)
    if edits:
        rewrite(page, edits)
    return len(edits)


def rewrite(page: Page, edits: list[Edit]) -> None:
    """Make all `edits` at once, given in the page's order; every other byte stays.

    Raises Refused where the page or what it includes is no longer what was read, or is read-only.
    """
    path, changed = page.path, Refused(f"{page.name}: changed meanwhile; run again")
    if not path.stat().st_mode & 0o222 or not os.access(path, os.W_OK):
        raise Refused(f"{page.name}: is read-only")
    new, lock = path.with_name(f".{path.name}.tmp"), path.with_name(f".{path.name}.lock.tmp")
    with FileLock(lock):  # keeps other updates away; it ends with its process, however that ends
        try:
            old = path.read_bytes()
            if not _unchanged(page):
                raise changed
            with new.open("wb") as file:
                file.write(_apply(old.decode("utf-8"), edits).encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
            new.chmod(path.stat().st_mode)
            if path.read_bytes() != old:
                raise changed
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
            with suppress(PermissionError):  # Windows deletes it itself
                lock.unlink(missing_ok=True)


def fence_lines(like: Fence, info: str, text: str) -> list[str]:
    """Return the lines of a fence at the place of `like`, long enough for the `text` it holds."""
    mark = like.marks[0]
    longest = max((len(run) for run in re.findall(re.escape(mark) + "+", text)), default=0)
    marks = mark * max(len(like.marks), longest + 1 if longest >= 3 else 0)
    body = [(like.prefix + line).rstrip() for line in text.rstrip("\n").split("\n")]
    return [f"{like.prefix}{marks}{info}", *body, like.prefix + marks]


def _edits(page: Page) -> list[Edit]:
    """Run the page; return what must change on it."""
    edits = []
    with closing(Run(page)) as run:
        for block in run.blocks:
            result = run.upto(block)
            failure = compare.judge(page, block, result)
            if failure and (result.broken or result.raised != (block.raises or "")):
                raise Refused(failure.report)
            if failure and "8<-" in result.printed:
                what = "the block prints `8<-`, which the site would take for an include"
                raise Refused(f"{page.name}:{block.line}: {what}")
            # What varies belongs to the reference platform.
            varies = block.output and "varies" in block.output.options
            if failure and not (varies and not compare.on_reference_platform(page.root)):
                edits.append(_edit(page, block, compare.text_of(block, result)))
    return edits


def _edit(page: Page, block: Block, printed: str) -> Edit:
    """Return the edit that adds, deletes or replaces the output of `block`."""
    end = block.fence.end
    if block.output is None:
        new = [block.fence.prefix.rstrip(), *fence_lines(block.fence, "output", printed)]
        return slice(end, end), new
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
    for place, new in reversed(edits):  # bottom up, so that line numbers stay true
        lines[place] = [line + ending for line in new]
    return "".join(lines)


def _unchanged(page: Page) -> bool:
    """Say whether what is on the disk is still what was read: the page, and what it includes."""
    with suppress(PageError):
        now = read(page.path)
        return (now.text, now.source) == (page.text, page.source)
    return False
