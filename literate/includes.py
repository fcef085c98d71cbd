"""Lets an include show a class or a function by its name: `--8<-- "kv_cache.py:KVCache"`.

A Markdown extension that takes the place of pymdownx.snippets, with its settings. What the marks of a section
delimit in a file is shown as ever; where no mark has the name, the class or function of that name at the top of the file is, with its
decorators and without what stands around it.
"""

from __future__ import annotations

import ast
from typing import Any

from markdown import Markdown
from pymdownx.snippets import SnippetExtension, SnippetMissingError, SnippetPreprocessor

NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def place(name: str, lines: list[str]) -> tuple[int, int]:
    """Return the first and the last line of the class or function `name` of a file, counted from 1.

    Raises SnippetMissingError, which lists the names that there are.
    """
    try:
        found = [node for node in ast.parse("\n".join(lines)).body if isinstance(node, NAMED)]
    except SyntaxError as error:
        what = f"no section is marked {name}, and the file is no Python: {error.msg}"
        raise SnippetMissingError(f"{what}, line {error.lineno}") from None
    places = [
        (min(part.lineno for part in (node, *node.decorator_list)), node.end_lineno or 0)
        for node in found
        if node.name == name
    ]
    if len(places) != 1:
        what = f"wanted one section, class or function named {name}; the file has"
        names = ", ".join(node.name for node in found) or "no class and no function"
        raise SnippetMissingError(f"{what} {names}")
    return places[0]


class ByName(SnippetPreprocessor):
    """The preprocessor of pymdownx.snippets, which knows names, too."""

    def extract_section(self, section: str, lines: list[str]) -> list[str]:
        """Return the lines of a section that marks delimit, or of a class or function of its name."""
        marks = [self.RE_SNIPPET_SECTION.match(line) for line in lines]
        if any(mark and mark["name"] == section for mark in marks):
            return super().extract_section(section, lines)
        first, last = place(section, lines)
        shown = zip(lines, marks, strict=True)
        return [line for line, mark in [*shown][first - 1 : last] if not mark]


class Includes(SnippetExtension):
    """pymdownx.snippets, by name."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        """Register what `reset` of the extension knows by this name."""
        super().extendMarkdown(md)
        md.preprocessors.register(ByName(self.getConfigs(), md), "snippet", 32)


def makeExtension(**settings: Any) -> Includes:  # noqa: N802 (Python-Markdown's name)
    """Let `markdown_extensions: [literate.includes]` find the extension."""
    return Includes(**settings)
