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

    def __init__(self, path: Path, *problems: Misread):
        in_order = sorted(problems, key=lambda problem: problem.line)
        self.path, self.line, self.message = path, in_order[0].line, str(in_order[0])
        name = name_of(path)
        super().__init__(
            "\n".join(
                f"{name}:{one.line}: {one}" if one.line else f"{name}: {one}" for one in in_order
            )
        )


def name_of(path: str | Path, root: Path | None = None) -> str:
    """Return `path` as it can be typed where one stands: relative to that folder, or to `root` around it."""
    path, here = Path(path), Path.cwd()
    if path.is_relative_to(here):
        return path.relative_to(here).as_posix()
    if root and here.is_relative_to(root) and path.is_relative_to(root):
        return Path(os.path.relpath(path, here)).as_posix()
    return path.as_posix()
