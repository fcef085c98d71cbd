"""CommonMark as a grammar: the fences of a Markdown file that belongs to no site."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from literate.errors import Misread
from literate.fence import Fence, read_info
from literate.project import Project


def fences(text: str, project: Project) -> tuple[list[Fence], list[Misread]]:
    """Return the fences of `text` in order, in lists and quotes too, and what is wrong with them."""
    lines = text.split("\n")
    found: list[Fence] = []
    problems: list[Misread] = []
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "fence":
            try:
                found.append(_fence(token, lines, project))
            except Misread as error:
                problems.append(error)
    return found, problems


def _fence(token: Token, lines: list[str], project: Project) -> Fence:
    assert token.map, "a block has lines"
    first, end = token.map  # from 0; `end` is the line after the last
    opening, closing = lines[first], lines[end - 1]
    at = first + 1
    if end - 1 == first or not re.fullmatch(rf"[> \t]*{re.escape(token.markup)}+\s*", closing):
        raise Misread(at, f"unclosed fence; no closing {token.markup} was found")
    language, options = read_info(token.info)
    try:
        project.check_opening(language, options)
    except ValueError as error:
        raise Misread(at, str(error)) from None
    # What opens an item of a list stands on its first line alone.
    prefix = re.sub(r"[^>\s]", " ", opening[: opening.index(token.markup)])
    return Fence(at, end, prefix, token.markup, language, options, token.content)
