"""CommonMark as a grammar: the fences of a Markdown file that belongs to no site."""

from __future__ import annotations

import re
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from literate.fence import RUNS, Fence, Misread, check_characters
from literate.project import Project

INFO = re.compile(
    r"(?P<language>[^\s{}]*)(?P<options>(?:\s+[\w-]+(?:=(?:\"[^\"]*\"|'[^']*'))?)*)\s*"
)
OPTION = re.compile(r"(?P<key>[\w-]+)(?:=(?P<quote>[\"'])(?P<value>.*?)(?P=quote))?(?=\s|$)")


def fences(text: str, root: Path, project: Project) -> list[Fence]:
    """Return the fences of `text` in order, in lists and quotes too.

    Raises Misread where an info string cannot be read, or a fence is not closed.
    """
    lines = text.split("\n")
    read = [
        _fence(token, lines, project)
        for token in MarkdownIt("commonmark").parse(text)
        if token.type == "fence"
    ]
    check_characters(read, text, (*RUNS, *project.kinds))
    return read


def _fence(token: Token, lines: list[str], project: Project) -> Fence:
    assert token.map, "a block has lines"
    first, end = token.map  # from 0; `end` is the line after the last
    opening, closing = lines[first], lines[end - 1]
    at = first + 1
    if end - 1 == first or not re.fullmatch(rf"[> ]*{re.escape(token.markup)}+ *", closing):
        raise Misread(at, f"unclosed fence; no closing {token.markup} was found")
    info = INFO.fullmatch(token.info.strip())
    if not info:
        what = f"cannot read the info string `{token.info.strip()}`"
        raise Misread(at, f'{what}; wanted `language key="value" …`')
    options = {
        match["key"]: match["value"] or "" for match in OPTION.finditer(info["options"].strip())
    }
    try:
        project.check_opening(info["language"], options)
    except ValueError as error:
        raise Misread(at, str(error)) from None
    prefix = opening[: opening.index(token.markup)]
    return Fence(at, end, prefix, token.markup, info["language"], options, token.content)
