"""Says of each block of code how long its first line is, while the page is built.

On a phone the buttons of a block would cover the end of a long first line, so the styles move that line down.
If a script said how long it is, the page would move when the script comes. A Python-Markdown extension, so
that every builder draws the same.
"""

from __future__ import annotations

import re
from html import unescape

from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

FIRST_LINE = re.compile(r"(?P<start><pre\b[^>]*><span></span><code)>(?P<line>[^\n]*)")
LONG = 24  # letters, which leave room for the buttons on any phone


class _FirstLines(Postprocessor):
    def run(self, text: str) -> str:
        return FIRST_LINE.sub(_measured, text)


def _measured(found: re.Match) -> str:
    length = len(unescape(re.sub(r"<[^>]+>", "", found["line"])))
    style = f' style="--first-line:{length}"' if length > LONG else ""
    return f"{found['start']}{style}>{found['line']}"


class Code(Extension):
    """Measures the first line of every highlighted block."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        """Take part in the writing of a page, after its blocks of code are there."""
        md.postprocessors.register(_FirstLines(md), "first-lines", 5)


def makeExtension(**settings) -> Code:  # noqa: N802 (Python-Markdown's name)
    """Let `markdown_extensions: [book.markdown.code]` find the extension."""
    return Code(**settings)
