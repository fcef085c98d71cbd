"""Rewrite the outputs of a page that no longer agree with what its blocks print."""

import os
import re
import tempfile
from pathlib import Path

from literate import compare
from literate.run import Run


class Refused(Exception):
    """The page was left as it was; the message says why."""


def update(page):
    """Bring the outputs of `page` up to date; return how many changed.

    An output within tolerance stays as it is. Raises Refused under CI, and when a block raises
    what the page does not announce, closes stdout or runs too long; the page is then untouched.
    """
    if os.environ.get("CI"):
        raise Refused("CI is set: outputs are updated by an author, who reads the diff")
    changes = _changes(page)
    if changes:
        _replace(page.path, _rewritten(page.path, changes))
    return len(changes)


def _changes(page):
    """Run the page; return (block, text it must print) for each output that must change."""
    run, changes = Run(page), []
    try:
        for block in page.blocks:
            result = run.upto(block)
            failure = compare.judge(page, block, result)
            if not failure:
                continue
            if result.broken or result.raised != (block.raises or ""):
                raise Refused(failure.report)
            if "8<-" in result.printed:
                what = "the block prints `8<-`, which the site would take for an include"
                raise Refused(f"{page.name}:{block.line}: {what}")
            if not _kept_elsewhere(page, block):
                changes.append((block, compare.text_of(block, result)))
    finally:
        run.close()
    return changes


def _kept_elsewhere(page, block):
    """Say whether the output belongs to the reference platform, and this is another."""
    varies = block.output and "varies" in block.output.options
    return varies and not compare.on_reference_platform(page.root)


def _rewritten(path, changes):
    """Return the new bytes of the page, every other byte as it was."""
    raw = path.read_bytes().decode("utf-8")
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", raw)  # each with its own ending
    ending = re.search(r"[\r\n]+$", lines[0])[0]
    if not lines[-1].endswith(("\r", "\n")):
        lines[-1] += ending
    for block, printed in reversed(changes):  # bottom up, so that line numbers stay true
        if block.output is None:
            start = end = block.fence.end
            new = [block.fence.prefix.rstrip(), *_fence(block.fence, "output", printed)]
        elif not printed:
            start, end, new = block.fence.end, block.output.end, []
        else:
            start, end = block.output.line - 1, block.output.end
            info = lines[start].lstrip(" >\t\ufeff").lstrip("`~").rstrip()
            new = _fence(block.output, info, printed)
        lines[start:end] = [line + ending for line in new]
    return "".join(lines).encode("utf-8")


def _fence(like, info, printed):
    """Return the lines of a fence at the place of `like`, long enough for what it holds."""
    mark = like.marks[0]
    longest = max((len(run) for run in re.findall(re.escape(mark) + "+", printed)), default=0)
    marks = mark * max(len(like.marks), longest + 1 if longest >= 3 else 0)
    body = [(like.prefix + line).rstrip() for line in printed.rstrip("\n").split("\n")]
    return [f"{like.prefix}{marks}{info}", *body, like.prefix + marks]


def _replace(path, content):
    """Write `content` beside `path`, then move it there: at any moment it is the old or the new."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, path.stat().st_mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
