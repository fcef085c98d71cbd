"""What a project says of itself: by mkdocs.yml what a fence is, by pyproject.toml what it may show."""

import importlib
import sys
import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from literate import commonmark, site_markdown
from literate.fence import Fence
from literate.project import PLAIN, Project

# Returns the fences of a text, a page of the project in a folder; raises Misread.
Grammar = Callable[[str, Path, Project], list[Fence]]


def grammar(root: Path) -> Grammar:
    """Return the grammar of the project at `root`: that of its site, or CommonMark where it has none."""
    return site_markdown.fences if site_markdown.reads(root) else commonmark.fences


def project(root: Path) -> Project:
    """Return the Project that the pyproject.toml in `root` names; a plain one where it names none."""
    settings = root / "pyproject.toml"
    saved = settings.stat().st_mtime_ns if settings.exists() else 0
    named = _named(settings, saved) if saved else ""
    return _load(named, str(root)) if named else PLAIN


@lru_cache
def _named(settings: Path, _saved: int) -> str:
    """Return what pyproject.toml, as last saved, names as the project; "" for none."""
    tools = tomllib.loads(settings.read_text(encoding="utf-8")).get("tool", {})
    return tools.get("literate", {}).get("project", "")


@lru_cache
def _load(name: str, root: str) -> Project:
    module, _, attribute = name.partition(":")
    sys.path.append(root)  # as for a command that is started there by `python -m`
    try:
        return getattr(importlib.import_module(module), attribute)
    finally:
        sys.path.remove(root)
