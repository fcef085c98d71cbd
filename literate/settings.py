"""What a project says of itself: by mkdocs.yml what a fence is, by pyproject.toml what it adds."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from literate import commonmark, site_markdown
from literate.errors import Misread, PageError
from literate.fence import Fence
from literate.project import PLAIN, Project
from literate.site import CONFIGS, site_of

# Returns the fences of a text, and what is wrong with it.
Grammar = Callable[[str, Project], tuple[list[Fence], list[Misread]]]
PYPROJECT = "pyproject.toml"


def root_of(path: str | Path) -> Path:
    """Return the project that `path` belongs to: the nearest folder with a mkdocs.yml or a pyproject.toml."""
    path = Path(path).resolve()
    marks = (*CONFIGS, PYPROJECT)
    around = (p for p in path.parents if any((p / mark).exists() for mark in marks))
    return next(around, path.parent)


def docs_of(root: Path) -> Path:
    """Return the folder that holds the pages of the project at `root`."""
    site = site_of(root)
    return site.docs if site else root / "docs"


def grammar(path: Path, root: Path) -> Grammar:
    """Return the grammar of the page at `path`: that of its site, or CommonMark where no site shows it."""
    site = site_of(root)
    if site and path.is_relative_to(site.docs):
        return partial(site_markdown.fences, site)
    return commonmark.fences


def project(root: Path) -> Project:
    """Return the Project of the pyproject.toml that is nearest to `root`; a plain one where none names one."""
    settings, folder = tool(root, "literate")
    named = settings.get("project", "")
    return _load(named, str(folder)) if named else PLAIN


def tool(root: Path, name: str) -> tuple[dict[str, Any], Path]:
    """Return the settings of the tool `name` in the nearest pyproject.toml at `root` or above, and its folder."""
    for folder in (root, *root.parents):
        file = folder / PYPROJECT
        if file.exists():
            return _read(file, file.stat().st_mtime_ns).get("tool", {}).get(name, {}), folder
    return {}, root


@lru_cache
def _read(file: Path, _saved: int) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise PageError(file, Misread(0, f"{error}")) from None


@lru_cache
def _load(name: str, root: str) -> Project:
    module, _, attribute = name.partition(":")
    sys.path.append(root)  # as for a command that is started there by `python -m`
    try:
        return getattr(importlib.import_module(module), attribute)
    finally:
        sys.path.remove(root)
