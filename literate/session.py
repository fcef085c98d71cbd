"""Read a session at Python's prompt, a `pycon` fence, into examples: each runs, and shows what stands below it."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from dataclasses import replace

from literate.errors import Misread
from literate.fence import SESSION, Fence

BLANK = "<BLANKLINE>"  # how doctest writes an empty line of an output


def examples(fence: Fence) -> Iterator[tuple[Fence, Fence | None]]:
    """Yield each example of a session as two fences: its source, and its output, if any.

    Either begins on the line before the text that is compared, as an opening line stands before it. Of a
    traceback that is the exception and its message. Raises Misread where `fence` cannot be read.
    """
    try:
        parts = doctest.DocTestParser().parse(fence.text)
    except ValueError as error:
        at, what = re.findall(r"line (\d+) of the docstring for <string> (.*)", str(error))[0]
        raise Misread(fence.line + int(at), f"this session {what}") from None
    line, rows = fence.line, fence.text.split("\n")  # the last line that was read; all of them
    for part in parts:
        if isinstance(part, str):
            if part.strip():
                what = f"text of no example; wanted `>>> `, or {BLANK} for an empty line above it"
                raise Misread(line + 1 + len(part) - len(part.lstrip("\n")), what)
            line += part.count("\n")
            continue
        end = line + 1
        while re.match(r"\s*\.\.\.( |$)", rows[end - fence.line]):
            end += 1  # an empty one is none of the source
        source = replace(fence, line=line + 1, end=end, text=part.source)
        text, options, line = part.want, dict[str, str](), end + part.want.count("\n")
        if part.exc_msg:
            text = part.exc_msg
            options["raises"] = text.partition(":")[0].strip().rpartition(".")[2]
        output = replace(
            fence,
            line=line - text.count("\n"),
            end=line,
            language="output",
            options=options,
            text=re.sub(rf"^{BLANK}$", "", text, flags=re.MULTILINE),
        )
        yield source, output if text else None
    if all(isinstance(part, str) for part in parts):
        raise Misread(fence.line, f"a `{SESSION}` fence without an example; wanted `>>> `")


def lines(like: Fence, printed: str) -> list[str]:
    """Return the lines that show in a session what an example has `printed`."""
    rows = printed.rstrip("\n").split("\n") if printed else []
    return [like.prefix + (row or BLANK) for row in rows]
