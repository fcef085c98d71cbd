"""What is a fence on a page: the grammars that a project may have."""

from collections.abc import Callable
from pathlib import Path

from literate import commonmark, site_markdown
from literate.fence import Fence
from literate.project import Project

# Returns the fences of a text, a page of the project in a folder; raises Misread.
Grammar = Callable[[str, Path, Project], list[Fence]]


def of(root: Path) -> Grammar:
    """Return the grammar of the project at `root`: that of its site, or CommonMark where it has none."""
    return site_markdown.fences if site_markdown.reads(root) else commonmark.fences
