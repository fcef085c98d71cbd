"""What this book asks of a page beside what every page must hold.

Links lead somewhere, exercises are whole, and an output that the text asks to predict is veiled.
"""

import re
from difflib import get_close_matches
from itertools import pairwise
from os.path import relpath
from pathlib import Path

from literate.fence import CODE_SPAN, Fence, Misread

LINK = re.compile(r"\]\((?![a-z]+:|#|//)([^()\s#?]+)")
ASKED = re.compile(r"\bPredict\b")
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


def check(path: Path, root: Path, lines: list[str], fences: list[Fence]) -> None:
    """Raise Misread at the first of the `lines` of the page at `path` that breaks a rule of this book."""
    inside = {line for fence in fences for line in range(fence.line, fence.end + 1)}
    for at, line in enumerate(lines, 1):
        for link in [] if at in inside else LINK.findall(CODE_SPAN.sub("", line)):
            if not _leads_somewhere(path.parent / link, root):
                raise Misread(at, f"the link `{link}` leads to no file{_meant(link, path, root)}")
    for code, output in pairwise(fences):
        if output.language == "output" and not output.solution:
            first = code.line - 1
            while code.indent > output.indent and not lines[first].startswith("???"):
                first -= 1  # of a folded block it is the fold that stands below the paragraph
            _check_veil(lines[:first], output)
    if EXERCISES in lines:
        first = lines.index(EXERCISES)
        exercises = [(at, EXERCISE.match(line)) for at, line in enumerate(lines) if at > first]
        asked = [(at, match[1]) for at, match in exercises if match]
        ends = [at for at, _ in asked[1:]] + [len(lines)]
        for (at, number), end in zip(asked, ends, strict=True):
            _check_exercise(lines[at:end], at + 1, number)


def _leads_somewhere(target: Path, root: Path) -> bool:
    """Say whether `target` is a file, or a snippet or the page made of it, which the site publishes."""
    made = {"snippets": target.name, "parts": target.with_suffix(".py").name}
    snippet = made.get(target.parent.name)
    return target.exists() or (snippet is not None and (root / "snippets" / snippet).exists())


def _meant(link: str, path: Path, root: Path) -> str:
    """Return a question that names the page which `link` comes nearest to; "" where none is near."""
    pages = [
        Path(relpath(page, path.parent)).as_posix() for page in (root / "docs").glob("**/*.md")
    ]
    near = get_close_matches(link, pages, 1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _check_veil(lines: list[str], output: Fence) -> None:
    """Raise Misread unless `output` is veiled where the last paragraph of `lines` asks to predict it."""
    above = "\n".join(lines).rstrip().rpartition("\n\n")[2]
    asked, veiled = bool(ASKED.search(above)), "predict" in output.options
    if asked and not veiled:
        raise Misread(output.line, "the text asks to predict this output; wanted ```output predict")
    if veiled and not asked:
        raise Misread(
            output.line, "this output is veiled, and the paragraph above asks for no *Predict*"
        )


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
