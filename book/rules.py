"""What this book asks of a page beside what every page must hold.

Links lead somewhere, exercises are whole, an output that the text asks to predict is veiled, front matter sets
what it is for, and nothing runs that no reader sees.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import pairwise
from os.path import relpath
from pathlib import Path
from xml.etree.ElementTree import Element

import yaml

from literate.errors import Misread
from literate.fence import CODE_SPAN, RUNS, SESSION, Fence

# What front matter sets, beside `hide`, and what that may hide.
METADATA, HIDEABLE = ("title", "description"), ("navigation", "toc")
FILES = "docs/files"  # the folder of what pages load
IMPORTABLE = (".py", ".pyc", ".pyd", ".so")  # how the names of files end that Python imports
FRONT_MATTER = re.compile(r"---\s*\n(.*?\n)(?:---|\.\.\.)\s*\n", re.DOTALL)
BLANKS = re.compile(r"^ +$", re.MULTILINE)
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


def solution(element: Element) -> bool:
    """Say whether `element` is a folded solution, which a reader may leave shut."""
    summary = element.findtext("summary") or ""
    folded = element.tag == "details" and "success" in element.get("class", "").split()
    return folded and summary.startswith("Solution")


def check(path: Path, root: Path, lines: list[str], fences: list[Fence]) -> Iterator[Misread]:
    """Yield where the `lines` of the page at `path` break a rule of this book."""
    yield from _front_matter("\n".join(lines))
    yield from _files(root)
    inside = {line for fence in fences for line in range(fence.line, fence.end + 1)}
    for at, line in enumerate(lines, 1):
        for link in [] if at in inside else LINK.findall(CODE_SPAN.sub("", line)):
            if not _leads_somewhere(path.parent / link, root):
                yield Misread(at, f"the link `{link}` leads to no file{_meant(link, path, root)}")
        if "8<-" in line and (at not in inside or not _runs(fences, at)):
            yield Misread(at, "an include stands in a `python` fence")
    for fence in fences:
        if fence.hidden:
            yield Misread(fence.line, "code in a comment, which no reader sees; show it")
        if fence.language == SESSION:
            yield Misread(
                fence.line, "a session, which no page runs here; write `python`, `output`"
            )
        if fence.language in (*RUNS, "output") and "\t" in fence.text:
            yield Misread(
                fence.line,
                "a tab in this fence, which the site draws as blanks; write blanks, or \\t",
            )
        if fence.language in RUNS and BLANKS.search(fence.text):
            yield Misread(
                fence.line,
                "a line of blanks in this fence, which a notebook empties; write \\x20, or nothing",
            )
    for code, output in pairwise(fences):
        if output.language == "output" and not output.solution:
            first = code.line - 1
            deeper = " " * (output.indent + 1)
            while not lines[first].strip() or lines[first].startswith(deeper):
                first -= 1  # to the opening line of what holds the block alone, such as a fold
            yield from _veil(lines[:first], output)
    if EXERCISES in lines:
        first = lines.index(EXERCISES)
        exercises = [(at, EXERCISE.match(line)) for at, line in enumerate(lines) if at > first]
        asked = [(at, match[1]) for at, match in exercises if match]
        ends = [at for at, _ in asked[1:]] + [len(lines)]
        for (at, number), end in zip(asked, ends, strict=True):
            yield from _exercise(lines[at:end], at + 1, number)


def _runs(fences: list[Fence], line: int) -> bool:
    return any(one.line <= line <= one.end and one.language in RUNS for one in fences)


def _front_matter(text: str) -> Iterator[Misread]:
    """Yield what front matter sets that it is not for: templates draw it as it is written."""
    front = FRONT_MATTER.match(text)
    try:
        data = yaml.compose(front[1], yaml.SafeLoader) if front else None
    except yaml.YAMLError:  # text between two rules; of front matter, `read` says so
        return
    for key, value in data.value if isinstance(data, yaml.MappingNode) else []:
        name, line = str(key.value), key.start_mark.line + 2
        if name == "hide":
            items = value.value if isinstance(value, yaml.SequenceNode) else [value]
            if not isinstance(value, yaml.SequenceNode) or {i.value for i in items} - {*HIDEABLE}:
                yield Misread(line, f"`hide` wants a list of {' and '.join(HIDEABLE)}")
        elif name not in METADATA:
            yield Misread(line, f"front matter sets {', '.join(METADATA)} and hide; found `{name}`")
        elif value.tag != "tag:yaml.org,2002:str" or set('<>"') & set(value.value):
            yield Misread(line, f'`{name}` wants plain text, in which no <, > or " stands')


def _files(root: Path) -> Iterator[Misread]:
    """Yield where docs/files/ holds what is no data, and where a notebook lies that no test reads."""
    for path in sorted((root / FILES).glob("*")):
        if not path.is_file() or path.name.lower().endswith(IMPORTABLE):
            what = "holds files of data alone; pages could import this, and would not show it"
            yield Misread(1, f"{FILES}/ {what}: {path.name}")
    for path in sorted((root / "docs").glob("**/*.ipynb")):
        if path.parent != root / "docs/labs":
            yield Misread(
                1, f"a notebook stands in docs/labs/, where tests read it; found {path.name}"
            )


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


def _veil(lines: list[str], output: Fence) -> Iterator[Misread]:
    """Yield an `output` that is not veiled where the last of `lines` ask to predict it, or is elsewhere."""
    above = "\n".join(lines).rstrip().rpartition("\n\n")[2]
    asked, veiled = bool(ASKED.search(above)), "predict" in output.options
    if asked and not veiled:
        yield Misread(output.line, "the text asks to predict this output; wanted ```output predict")
    if veiled and not asked:
        yield Misread(
            output.line, "this output is veiled, and the paragraph above asks for no *Predict*"
        )


def _exercise(lines: list[str], first: int, number: str) -> Iterator[Misread]:
    """Yield what is missing in the exercise of these `lines`, which begin on the page's line `first`."""
    at = 0
    for part in (part.format(n=number) for part in PARTS):
        places = [place for place, line in enumerate(lines) if line.strip().startswith(part)]
        if not places:
            yield Misread(first, f"exercise {number} lacks the line `{part}`")
        elif places[0] < at:
            yield Misread(first + places[0], f"exercise {number}: `{part}` stands too early")
        else:
            at = places[0]
