"""What this book asks of a page beside what every page must hold: links that lead somewhere, whole exercises."""

import re
from difflib import get_close_matches
from os.path import relpath
from pathlib import Path

from literate.fence import CODE_SPAN, Misread
from literate.page import Page

LINK = re.compile(r"\]\((?![a-z]+:|#|//)([^()\s#?]+)")
EXERCISES = "## Exercises"
EXERCISE = re.compile(r"\*\*(\d+)\. ")
# The lines that an exercise has, in their order, of which {n} is its number.
PARTS = (
    '```python title="Your answer"',
    '??? tip "Hint"',
    '```python title="Check"',
    "def check_{n}(",
    '??? success "Solution"',
    "check_{n}(answer_{n})",
    "Exercise {n}: right",
)


def check(page: Page) -> None:
    """Raise Misread at the first line of `page` that breaks a rule of this book."""
    _check_links(page)
    if EXERCISES in page.lines:
        start = page.lines.index(EXERCISES)
        asked = [
            (at, found[1]) for at, line in enumerate(page.lines) if (found := EXERCISE.match(line))
        ]
        asked = [one for one in asked if one[0] > start]
        ends = [at for at, _ in asked[1:]] + [len(page.lines)]
        for (at, number), end in zip(asked, ends, strict=True):
            _check_exercise(page.lines[at:end], at + 1, number)


def _check_links(page: Page) -> None:
    """Raise Misread at the first link to a file that the book does not have."""
    inside = {line for fence in page.fences for line in range(fence.line, fence.end + 1)}
    for at, line in enumerate(page.lines, 1):
        for link in [] if at in inside else LINK.findall(CODE_SPAN.sub("", line)):
            if not _leads_somewhere(page.path.parent / link, page.root):
                raise Misread(at, f"the link `{link}` leads to no file{_meant(link, page)}")


def _leads_somewhere(target: Path, root: Path) -> bool:
    """Say whether `target` is a file, or a snippet, which the site publishes beside its pages."""
    return target.exists() or (
        target.parent.name == "snippets" and (root / "snippets" / target.name).exists()
    )


def _meant(link: str, page: Page) -> str:
    """Return a question that names the page which `link` comes nearest to; "" where none is near."""
    here = page.path.parent
    known = [Path(relpath(path, here)).as_posix() for path in (page.root / "docs").glob("**/*.md")]
    near = get_close_matches(link, known, 1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _check_exercise(lines: list[str], first: int, number: str) -> None:
    """Raise Misread unless the exercise of these `lines`, the first of the page's line `first`, is whole."""
    at = 0
    for part in (part.format(n=number) for part in PARTS):
        places = [place for place, line in enumerate(lines) if line.strip().startswith(part)]
        if not places:
            raise Misread(first, f"exercise {number} lacks the line `{part}`")
        if places[0] < at:
            raise Misread(first + places[0], f"exercise {number}: `{part}` stands too early")
        at = places[0]
