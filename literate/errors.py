"""What is wrong with a page, and where."""

from __future__ import annotations

import os
from pathlib import Path


class Misread(Exception):
    """What a page may not hold, at a line of it."""

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


class PageError(Exception):
    """A page that cannot be read as a program: a line for each thing, with what came and what was wanted.

    Line 0 is none: a notebook has no lines that its author knows.
    """

    def __init__(self, path: str | Path, line: int, message: str, *others: Misread):
        self.path, self.line, self.message = Path(path), line, message
        problems = [(line, message), *((other.line, str(other)) for other in others)]
        places = (f"{name_of(path)}:{at}" if at else name_of(path) for at, _ in problems)
        pairs = zip(places, problems, strict=True)
        super().__init__("\n".join(f"{place}: {what}" for place, (_, what) in pairs))


def page_error(path: Path, problems: list[Misread]) -> PageError:
    """Return one error that names all `problems` of a page, in its order."""
    first, *others = sorted(problems, key=lambda problem: problem.line)
    return PageError(path, first.line, str(first), *others)


def name_of(path: str | Path, root: Path | None = None) -> str:
    """Return `path` as it can be typed where one stands: relative to that folder, or to `root` around it."""
    path, here = Path(path), Path.cwd()
    if path.is_relative_to(here):
        return path.relative_to(here).as_posix()
    if root and here.is_relative_to(root) and path.is_relative_to(root):
        return Path(os.path.relpath(path, here)).as_posix()
    return path.as_posix()
