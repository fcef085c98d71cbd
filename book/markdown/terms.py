"""Marks each link to a word of the glossary, so that the word is explained where it stands.

The builder's own script shows what such a link leads to when the reader points at it, and fetches it
then. A Python-Markdown extension, so that every builder draws the same.
"""

from __future__ import annotations

import re

from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

# One builder has named the page by now, another names it later.
GLOSSARY = re.compile(r'(<a(?= [^>]*href="[./]*glossary\.(?:html|md)#))')


class _Terms(Postprocessor):
    def run(self, text: str) -> str:
        return GLOSSARY.sub(r"\1 data-preview", text)


class TermExtension(Extension):
    """Runs last, on the HTML of the whole page, labs and drawings included."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        md.postprocessors.register(_Terms(md), "terms", -20)


def makeExtension(**settings) -> TermExtension:  # noqa: N802 (Python-Markdown's name)
    """Let `markdown_extensions: [book.markdown.terms]` find the extension."""
    return TermExtension(**settings)
