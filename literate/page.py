"""Read a Markdown page into blocks of code and the outputs they must print.

What a reader sees as Python is what runs: the grammar of the project says what is a fence.
Whatever the two could differ on is a `PageError` that names `page.md:line`, so no block is ever
left out in silence.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from literate import settings
from literate.fence import RUNS, Fence, Misread, check_shown
from literate.project import PLAIN, Kind, Project
from literate.settings import Grammar
from literate.site_markdown import OPENING

# How the names of files end that Python imports; what front matter sets, and what it may hide.
IMPORTABLE = (".py", ".pyc", ".pyd", ".so")
METADATA_WORDS, HIDDEN = ("title", "description"), ("navigation", "toc")
# What MkDocs takes for a page; the book wants the last.
SUFFIXES = (".markdown", ".mdown", ".mkdn", ".mkd", ".md")
LABELS = "labels"  # stands as the language of a fence that is the opening line of another
LABS = ("labs",)  # the folder of docs/ in which tests read notebooks
FRONT_MATTER = re.compile(r"---[ \t]*\n(?P<data>.*?\n)(?:---|\.\.\.)[ \t]*\n", re.DOTALL)
METADATA = re.compile(r" {0,3}[A-Za-z0-9_-]+:")
NO_KIND = Kind()


class PageError(Exception):
    """A page that cannot be read as a program; says where, what came and what was wanted.

    Line 0 is none: a notebook has no lines that its author knows.
    """

    def __init__(self, path: str | Path, line: int, message: str):
        place = f"{name_of(path)}:{line}" if line else name_of(path)
        super().__init__(f"{place}: {message}")
        self.path, self.line, self.message = Path(path), line, message


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
        return name_of(self.path, self.root)

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
            raise self.error(error.line, str(error)) from None
        return sorted([*self.blocks, *blocks], key=lambda block: block.line)

    def kind(self, fence: Fence) -> Kind:
        """Return what a fence means in the project of this page; of code, nothing."""
        return self.project.kinds.get(fence.language, NO_KIND)

    def check_drawn(self) -> None:
        """Raise PageError at the first fence that cannot be drawn, or where a rule of the project is broken."""
        for fence in self.fences:
            try:
                self.kind(fence).check(fence.text, fence.options)
            except ValueError as error:
                inside = re.search(r"line (\d+) of the fence", str(error))
                raise self.error(fence.line + int(inside[1] if inside else 0), str(error)) from None
        try:
            self.project.check(self.path, self.root, self.lines, self.fences)
        except Misread as error:
            raise self.error(error.line, str(error)) from None

    def origin(self, line: int) -> tuple[Path, int]:
        """Return the (path, line) that a reader would open for `line` of `source`."""
        for block in self.blocks:
            include, at = block.fence.include, line - block.start
            if include and 0 <= at < len(include.numbers):
                return include.file, include.numbers[at]
        return self.path, line

    def error(self, line: int, message: str) -> PageError:
        return PageError(self.path, line, message)


def name_of(path: str | Path, root: Path | None = None) -> str:
    """Return `path` as people write it: relative to the root, or to where they stand."""
    path = Path(path)
    for base in filter(None, (root, Path.cwd())):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return path.as_posix()


def root_of(path: str | Path) -> Path:
    """Return the project that `path` belongs to: the nearest folder with a mkdocs.yml."""
    path = Path(path).resolve()
    return next((p for p in path.parents if (p / "mkdocs.yml").exists()), path.parent)


def is_page(path: str | Path, root: str | Path) -> bool:
    """Say whether the file at `path` is a page of the book below `root`: the README, or in docs/.

    In docs/ it is what MkDocs publishes as one: any Markdown file, but for names that begin with a
    dot and for docs/templates/. One that is not named .md is a page too, which `read` refuses, and so
    is a notebook outside docs/labs/, the only folder in which tests read notebooks.
    """
    path, root = Path(path), Path(root)
    if not path.is_relative_to(root / "docs"):
        return path == root / "README.md"
    parts = path.relative_to(root / "docs").parts
    hidden = parts[0] == "templates" or any(part.startswith(".") for part in parts)
    notebook = path.suffix == ".ipynb" and parts[:-1] != LABS
    return (path.name.endswith(SUFFIXES) or notebook) and not hidden


def pages(root: str | Path) -> list[Path]:
    """Return the paths of all pages of the book below `root`: the README, then docs/ in order."""
    root = Path(root)
    folders = os.walk(root / "docs", followlinks=True)
    paths = sorted(Path(folder, name) for folder, _, names in folders for name in names)
    readme = root / "README.md"
    return [path for path in [readme, *paths] if is_page(path, root) and path.exists()]


def files(root: str | Path) -> list[Path]:
    """Return what every page finds in torch's cache, as though it had been fetched: docs/files/."""
    return sorted(path for path in Path(root).glob("docs/files/*") if path.is_file())


def read(path: str | Path, reads: Grammar | None = None) -> Page:
    """Read the Markdown file at `path` into a `Page`; without a grammar, by that of its project.

    Raises PageError for anything the project does not allow; the message names the line.
    """
    path = Path(path).resolve()
    root = root_of(path)
    _check_files(root)
    try:
        if path.suffix == ".ipynb":
            what = "a notebook stands in docs/labs/, where tests read it"
            raise Misread(1, f"{what}; found {name_of(path, root)}")
        if path.suffix != ".md":
            raise Misread(1, f"the name of a page ends in .md; found {path.name}")
        text, ours = _decode(path.read_bytes()), settings.project(root)
        shown = ours.drawings.inlined(text, path.parent)
        fences = _fences(text, shown, root, ours, reads or settings.grammar(root))
        return Page(path, root, text, shown, fences, _blocks(fences, text.split("\n")), ours)
    except Misread as error:
        raise PageError(path, error.line, str(error)) from None


def _fences(text: str, shown: str, root: Path, ours: Project, reads: Grammar) -> list[Fence]:
    """Return the fences of a page; what is wrong in a drawing of it names the drawing, too."""
    try:
        check_shown(shown)
        fences = reads(without_front_matter(shown), root, ours)
    except Misread as error:
        if not (file := ours.drawings.named(text, error.line)):
            raise
        raise Misread(error.line, f"{file}{error}") from None
    written, drawn = text.split("\n"), shown.split("\n")
    for fence in fences:
        for line in range(fence.line, fence.end):
            if written[line] != drawn[line]:
                raise Misread(line + 1, "a drawing in a fence, which is not shown; move it out")
    return fences


def _decode(raw: bytes) -> str:
    """Return the text of a page as Python-Markdown sees it: tabs expanded, blank lines empty."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the page as UTF-8"
        raise Misread(line, what) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)
    text = re.sub(r"(?<=\n) +\n", "\n", text)
    check_shown(text)
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
    if not front and METADATA.match(text):
        first = text.partition("\n")[0].strip()
        what = f"the site would not show the first line, `{first}`, but take it for metadata"
        raise Misread(1, f"{what}; begin with a heading")
    if not front or front_matter(text) is None:
        return text
    for number, line in enumerate(front["data"].split("\n"), 2):
        if OPENING.match(line):
            raise Misread(number, "code in front matter; show it and run it, or delete it")
    _check_metadata(yaml.compose(front["data"], yaml.SafeLoader))
    return "\n" * front[0].count("\n") + text[front.end() :]


def _check_metadata(data: yaml.MappingNode) -> None:
    """Raise Misread unless front matter sets what an author may set, to what is plain text.

    Templates draw metadata as it is, and the mark of a page and its downloads are metadata too.
    """
    for key, value in data.value:
        name, line = str(key.value), key.start_mark.line + 2
        if name == "hide":
            items = value.value if isinstance(value, yaml.SequenceNode) else [value]
            if not isinstance(value, yaml.SequenceNode) or any(
                i.value not in HIDDEN for i in items
            ):
                raise Misread(line, f"`hide` wants a list of {' and '.join(HIDDEN)}")
        elif name not in METADATA_WORDS:
            allowed = ", ".join(METADATA_WORDS)
            raise Misread(line, f"front matter sets {allowed} and hide; found `{name}`")
        elif value.tag != "tag:yaml.org,2002:str" or not _is_plain(value.value):
            raise Misread(line, f'`{name}` wants plain text, in which no <, > or " stands')


def _is_plain(text: str) -> bool:
    """Say whether `text` is drawn as it is written, in a title and in an attribute."""
    return " ".join(text.split()).isprintable() and not set('<>"') & set(text)


def _check_files(root: Path) -> None:
    """Raise PageError where docs/files/ holds what is no data, and what no page shows would run."""
    for path in sorted(root.glob("docs/files/*")):
        if not path.is_file():
            raise PageError(path, 0, "docs/files/ holds files alone, and this is none")
        if path.name.lower().endswith(IMPORTABLE):
            what = "pages could import this file, and would not show it; keep code in snippets/"
            raise PageError(path, 0, what)


def _blocks(fences: list[Fence], lines: list[str]) -> list[Block]:
    """Turn fences into blocks, each with the output that follows it."""
    blocks: list[Block] = []
    previous, end = None, -(-len(lines) // 1000) * 1000  # so that another line moves no include
    for fence in fences:
        if fence.language in RUNS:
            blocks.append(Block(fence, fence.text, start=end if fence.include else fence.line + 1))
            end += len(fence.include.lines) if fence.include else 0
        elif fence.language == "output":
            _check_place(fence, previous, lines)
            blocks[-1].output = fence
            _check_raises(blocks[-1])
        previous = fence
    for block in blocks:
        _check_future(block, first=block is blocks[0])
    return blocks


def _check_place(fence: Fence, previous: Fence | None, lines: list[str]) -> None:
    """Raise Misread unless `fence`, an output, stands right after a block that has none."""
    if previous is None or previous.language not in (*RUNS, "output"):
        raise Misread(fence.line, "output without a block; wanted a `python` fence right before it")
    at = f"on line {previous.line}"
    if any(line.strip(" >") for line in lines[previous.end : fence.line - 1]):
        what = f"output without a block; text stands between it and the fence {at}"
        raise Misread(fence.line, what)
    if previous.language == "output":
        raise Misread(fence.line, f"two outputs for one block; the first is {at}")
    if previous.prefix != fence.prefix:
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
