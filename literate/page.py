"""Read a Markdown page into blocks of code and the outputs they must print.

What a reader sees as Python is what runs: the grammar of the project says what is a fence. Whatever the two could
differ on is an error that names `page.md:line`, so no block is ever left out in silence.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import yaml

from literate import session, settings
from literate.errors import Misread, PageError, name_of
from literate.fence import HIDES, RUNS, SESSION, Fence, blank_out, check_shown
from literate.project import PLAIN, Kind, PageText, Project
from literate.settings import root_of
from literate.site import site_of

SUFFIXES = (".markdown", ".mdown", ".mkdn", ".mkd", ".md")  # of what MkDocs takes for a page
LABELS = "labels"  # stands as the language of a fence that is the opening line of another
FRONT_MATTER = re.compile(r"---[ \t]*\n(?P<data>.*?\n)(?:---|\.\.\.)[ \t]*\n", re.DOTALL)
METADATA = re.compile(r" {0,3}[A-Za-z0-9_-]+:")
CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7}) \S")
COMMENTED_CODE = re.compile(rf"{HIDES}+ *(?:{'|'.join(RUNS)}) *")
NO_KIND = Kind()


@dataclass
class Block:
    """A piece of code that runs, and the output it must print, if any.

    `start` is the line of `Page.source` on which the code begins; it equals the page's own line
    except for an include, whose text stands after the end of the page. What shows values of the page,
    such as a figure, is its own output: its code prints them as JSON, and `fill` writes them into it.
    """

    fence: Fence
    code: str
    output: Fence | None = None
    start: int = 0
    fill: Callable[[str, list], str] | None = None

    @property
    def line(self) -> int:
        return self.fence.line + self.is_labels

    @property
    def solution(self) -> bool:
        return self.fence.solution

    @property
    def included(self) -> Path | None:
        return self.fence.include.file if self.fence.include else None

    @property
    def raises(self) -> str | None:
        return self.output.options.get("raises") if self.output else None

    @property
    def skip(self) -> str | None:
        """Why this block is shown and does not run, where it says so, or lacks what it needs."""
        return self.fence.options.get("skip") or self.lacks

    @property
    def lacks(self) -> str | None:
        """Why this block cannot run on this machine: the module that it needs is not installed."""
        needed = self.fence.options.get("needs")
        return f"{needed} is not installed" if needed and not find_spec(needed) else None

    @property
    def is_session(self) -> bool:
        """Say whether this is an example of a session, which shows the values of its expressions."""
        return self.fence.language == SESSION

    @property
    def is_output(self) -> bool:
        """Say whether this counts among the outputs that the page shows and a check compares."""
        return self.output is not None and not self.is_labels

    @property
    def is_labels(self) -> bool:
        """Say whether this prints the opening line of a fence, whose options the page computes."""
        return self.fence.language == LABELS


@dataclass
class Page:
    """A Markdown page, read. `fences` holds every fence, `blocks` those that run.

    `source` is the page as one Python file: code on its own lines, blanks for prose, and the
    text of includes after the end of the page. `shown` is the text with its drawings in it, on the lines
    that show them.
    """

    path: Path
    root: Path
    text: str
    shown: str
    fences: list[Fence]
    blocks: list[Block]
    project: Project = PLAIN

    @property
    def name(self) -> str:
        """The path of the page, as it can be typed here."""
        return name_of(self.path, self.root)

    @property
    def key(self) -> str:
        """The path of the page from its root, wherever one stands."""
        return self.path.relative_to(self.root).as_posix()

    @cached_property
    def source(self) -> str:
        lines = [""] * max(len(self.lines) - 1, *(block.start - 1 for block in self.blocks), 0)
        for block in self.blocks:
            code = block.code.split("\n")[:-1]
            lines[block.start - 1 : block.start - 1 + len(code)] = code
        return "\n".join(lines) + "\n"

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def steps(self) -> list[Block]:
        """What a run goes through: the blocks, and what figures show, each as a block."""
        blocks = []
        try:
            for fence in self.fences:
                kind = self.kind(fence)
                if kind.body and (code := kind.body.program(fence)):
                    blocks.append(Block(fence, code, fence, fence.line + 1, kind.body.fill))
                if kind.opening and (code := kind.opening.program(fence)):
                    opening = Fence(fence.line - 1, fence.line, "", "", LABELS, {})
                    opening.text = self.lines[fence.line - 1] + "\n"
                    opening.solution = fence.solution
                    blocks.append(Block(opening, code, opening, fence.line, kind.opening.fill))
        except Misread as error:
            raise PageError(self.path, error) from None
        return sorted([*self.blocks, *blocks], key=lambda block: block.line)

    def kind(self, fence: Fence) -> Kind:
        """Return what a fence means in the project of this page; of code, nothing."""
        return self.project.kinds.get(fence.language, NO_KIND)

    def check_drawn(self) -> None:
        """Raise PageError where a fence cannot be drawn, or a rule of the project is broken."""
        problems = []
        for fence in self.fences:
            try:
                self.kind(fence).check(fence.text, fence.options)
            except ValueError as error:
                inside = re.search(r"line (\d+) of the fence", str(error))
                problems.append(Misread(fence.line + int(inside[1] if inside else 0), str(error)))
        problems += self.project.check(self.path, self.root, self.lines, self.fences)
        if problems:
            raise PageError(self.path, *problems)

    def origin(self, line: int) -> tuple[Path, int]:
        """Return the (path, line) that a reader would open for `line` of `source`."""
        for block in self.blocks:
            include, at = block.fence.include, line - block.start
            if include and 0 <= at < len(include.numbers):
                return include.file, include.numbers[at]
        return self.path, line

    def prose_problems(self) -> list[Misread]:
        """Return what the project finds wrong with the text."""
        return self.project.prose.problems(self.as_text) if self.project.prose else []

    @property
    def as_text(self) -> PageText:
        return PageText(self.path, self.shown, self.fences, text_at)


def is_page(path: str | Path, root: str | Path) -> bool:
    """Say whether the file at `path` is a page of the project at `root`: its README, or in its docs.

    In docs it is what MkDocs publishes as one: any Markdown file, but for names that begin with a dot and
    for the folder templates. One that is not named .md is a page too, which `read` refuses.
    """
    path, root = Path(path), Path(root)
    if path == root / "README.md":
        return True
    docs = settings.docs_of(root)
    if not path.is_relative_to(docs) or not path.name.endswith(SUFFIXES):
        return False
    parts = path.relative_to(docs).parts
    return parts[0] != "templates" and not any(part.startswith(".") for part in parts)


def pages(root: str | Path) -> list[Path]:
    """Return the paths of all pages of the project at `root`: the README, then its docs in order."""
    root = Path(root)
    folders = os.walk(settings.docs_of(root), followlinks=True)
    paths = sorted(Path(folder, name) for folder, _, names in folders for name in names)
    readme = root / "README.md"
    return [path for path in [readme, *paths] if is_page(path, root) and path.exists()]


def files(root: str | Path) -> list[Path]:
    """Return what every page finds in torch's cache, as though it had been fetched."""
    folder = settings.project(Path(root)).files
    return sorted(path for path in Path(root, folder).glob("*") if path.is_file()) if folder else []


def read(path: str | Path) -> Page:
    """Read the Markdown file at `path` into a `Page`.

    Raises PageError for whatever its project does not allow, with a line for each thing.
    """
    path = Path(path).resolve()
    root = root_of(path)
    ours, reads = settings.project(root), settings.grammar(path, root)
    try:
        if path.suffix != ".md":
            raise Misread(1, f"the name of a page ends in .md; found {path.name}")
        text = _decode(path.read_bytes())
        shown = ours.drawings.inlined(text, path.parent)
    except Misread as error:
        raise PageError(path, error) from None
    lines, problems = text.split("\n"), _problems_of_text(shown, site_of(root) is not None)
    fences, found = reads(without_front_matter(shown), ours)
    problems += found
    problems += [
        Misread(number, "a drawing or a table in a fence, which is not shown; move it out")
        for number, (written, seen) in enumerate(zip(lines, shown.split("\n"), strict=True), 1)
        if written != seen and any(fence.line < number < fence.end for fence in fences)
    ]
    fences = sorted([*fences, *_hidden(fences, text)], key=lambda fence: fence.line)
    problems += [
        Misread(
            number, "a mark of a conflict that git has left; choose one side, and delete the marks"
        )
        for number, line in enumerate(blank_out(fences, text), 1)
        if CONFLICT.match(line)
    ]
    blocks = _blocks(fences, lines, problems)
    if problems:
        raise PageError(path, *(_in_drawing(problem, ours, text) for problem in problems))
    return Page(path, root, text, shown, fences, blocks, ours)


def text_at(path: Path) -> PageText:
    """Read the page at `path` for a check of its text."""
    return read(path).as_text


def _in_drawing(problem: Misread, ours: Project, text: str) -> Misread:
    """Return `problem` with the name of the drawing that its line shows, if any."""
    return Misread(problem.line, f"{ours.drawings.named(text, problem.line)}{problem}")


def _decode(raw: bytes) -> str:
    """Return the text of a page, whose lines end as Python's do."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the page as UTF-8"
        raise Misread(line, what) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if text.endswith("\n") else text + "\n"


def front_matter(text: str) -> dict | None:
    """Return what the site takes for the metadata of a page; None where it takes nothing for it."""
    front = FRONT_MATTER.match(text)
    try:
        data = yaml.safe_load(front["data"]) if front else None
    except yaml.YAMLError:
        return None
    return data if isinstance(data, dict) else None


def without_front_matter(text: str) -> str:
    """Return `text` with blank lines for what the site takes for metadata, as MkDocs decides it.

    A page may open with a rule: between two of them, only what YAML reads as a mapping is metadata.
    """
    front = FRONT_MATTER.match(text)
    if not front or front_matter(text) is None:
        return text
    return "\n" * front[0].count("\n") + text[front.end() :]


def _problems_of_text(text: str, on_site: bool) -> list[Misread]:
    """Return what is wrong with a page's characters, and with its metadata."""
    problems, front = [], FRONT_MATTER.match(text)
    try:
        check_shown(text)
    except Misread as error:
        problems.append(error)
    if front and METADATA.match(front["data"]):
        try:
            yaml.safe_load(front["data"])
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 2 if error.problem_mark else 1
            what = f"front matter that is no YAML: {error.problem}; put quotes around a value"
            problems.append(Misread(line, what))
    elif on_site and not front and METADATA.match(text):
        first = text.partition("\n")[0].strip()
        what = f"the site would not show the first line, `{first}`, but take it for metadata"
        problems.append(Misread(1, f"{what}; begin with a heading"))
    return problems


def _hidden(fences: list[Fence], text: str) -> list[Fence]:
    """Return the comments of a page that hold code, from `<!-- python` to `-->`, each as a fence."""
    lines, found, start = blank_out(fences, text), [], 0
    for number, line in enumerate(lines, 1):
        if COMMENTED_CODE.fullmatch(line):
            start = number
        elif start and line.strip() == "-->":
            code = "".join(one + "\n" for one in lines[start : number - 1])
            found.append(Fence(start, number, "", HIDES, RUNS[0], {}, code))
            start = 0
    return found


def _blocks(fences: list[Fence], lines: list[str], problems: list[Misread]) -> list[Block]:
    """Turn fences into blocks, each with the output that follows it; add what is wrong to `problems`."""
    blocks: list[Block] = []
    previous, end = None, -(-len(lines) // 1000) * 1000  # so that another line moves no include
    for fence in fences:
        try:
            if fence.language in RUNS:
                start = end if fence.include else fence.line + 1
                blocks.append(Block(fence, fence.text, start=start))
                end += len(fence.include.lines) if fence.include else 0
                _check_future(blocks[-1], first=len(blocks) == 1)
            elif fence.language == SESSION:
                for source, output in session.examples(fence):
                    blocks.append(Block(source, source.text, output, source.line))
                    _check_future(blocks[-1], first=len(blocks) == 1)
            elif fence.language == "output":
                _check_place(fence, previous, lines)
                blocks[-1].output = fence
                _check_raises(blocks[-1])
                _check_future(blocks[-1], first=len(blocks) == 1)
        except Misread as error:
            problems.append(error)
        previous = fence
    return blocks


def _check_place(fence: Fence, previous: Fence | None, lines: list[str]) -> None:
    """Raise Misread unless `fence`, an output, stands right after a block that has none.

    The block may be the last thing of a fold that the output is not in: what it prints stays open.
    """
    if previous is None or previous.language not in (*RUNS, "output"):
        raise Misread(fence.line, "output without a block; wanted a `python` fence right before it")
    at = f"on line {previous.line}"
    if any(line.strip(" >") for line in lines[previous.end : fence.line - 1]):
        what = f"output without a block; text stands between it and the fence {at}"
        raise Misread(fence.line, what)
    if previous.language == "output":
        raise Misread(fence.line, f"two outputs for one block; the first is {at}")
    if not previous.prefix.startswith(fence.prefix) or previous.solution != fence.solution:
        what = f"output is indented by {fence.indent}, its block {at} by {previous.indent}"
        raise Misread(fence.line, what)


def _check_raises(block: Block) -> None:
    """Raise Misread where a block must end in an exception, and cannot begin."""
    try:
        ast.parse(block.code if block.raises else "")
    except SyntaxError as error:
        what = f"this block is no program, and cannot raise {block.raises}: {error.msg}"
        raise Misread(block.line, what) from None


def _check_future(block: Block, first: bool) -> None:
    """Raise Misread where `block` changes the language after the page has begun in another."""
    try:
        late = "__future__" in block.code and (block.raises or not first)
        program = ast.parse(block.code if late else "")
    except SyntaxError:  # running it says so
        return
    for node in program.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            what = "`from __future__` holds for the whole page, which is one module; wanted it in"
            line = block.line + (0 if block.included else node.lineno)
            raise Misread(line, f"{what} the first block, which raises nothing")
