"""Ask the site's own Markdown what a page is: which fences it draws, and what they show.

`mkdocs.yml` is the only grammar. The page is converted as the site converts it, with two of its
preprocessors watched: the one that expands includes and the one that finds fences. Each fence
leaves a mark in the HTML, so a mark that is missing, moved or out of sight is an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import yaml
from markdown import Markdown
from pymdownx.snippets import SnippetMissingError, SnippetPreprocessor
from pymdownx.superfences import (
    RE_NESTED_FENCE_START,
    SuperFencesBlockPreprocessor,
    SuperFencesException,
)

from literate.fence import RUNS, Fence, is_drawn_as_python, read_info

CONFIG = Path(__file__).parents[1] / "mkdocs.yml"
BUILT_IN = ("toc", "tables", "fenced_code")  # what MkDocs loads before the extensions of mkdocs.yml

CLOSING = re.compile(r"[> ]*(?P<marks>`{3,}|~{3,}) *$")
MISPLACED = re.compile(r"(?:`{3,}|~{3,}) *[{.]* *(?:py|output)", re.IGNORECASE)
INCLUDE = re.compile(r" *-+8<-+ +([\"'])(?P<file>[^\"':]+)(?::(?P<section>[a-zA-Z][-\w]*))?\1")
FORM = (
    'an include stands alone in a `python` fence, as --8<-- "file.py" or --8<-- "file.py:section"'
)

MARK = "data-fence"  # the attribute of what stands in the HTML for a fence
# A fence is seen where all around it is one of these, and none has an attribute that hides.
SEEN_IN = re.compile(
    "article|aside|blockquote|d[dl]|details|div|figure|li|main|ol|pre|section|t(able|body|d|h|r)|ul"
)
HIDING = re.compile("aria-hidden|hidden|inert|popover|style")
# What changes or hides what others show. A page holds none.
POWERS = re.compile("base|dialog|embed|iframe|link|meta|noscript|object|script|style|template")


class Misread(Exception):
    """What the book does not allow, at a line of the page."""

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


@dataclass
class Include:
    """What one line of the page shows of a file: the lines, and their numbers in the file."""

    file: Path
    lines: list[str]
    numbers: list[int]


@dataclass
class Markup:
    """A page as the site draws it: its fences in order, and its includes by their line."""

    fences: list[Fence]
    includes: dict[int, Include]


def read(text: str, root: Path) -> Markup:
    """Convert `text`, a page of the project at `root`, as the site does; return what it draws.

    Raises Misread where the page and what the site draws of it would differ.
    """
    site, body = markdown(root), text.lstrip("\n")  # as MkDocs hands a page over
    includes = _Includes(site.preprocessors["snippet"], len(text) - len(body))
    finder = _Finder(site.preprocessors["fenced_code_block"], includes)
    site.preprocessors.register(includes, "snippet", 32)
    site.preprocessors.register(finder, "fenced_code_block", 25)
    try:
        html = site.convert(body)
    except Misread:
        raise
    except Exception as error:
        if hasattr(error, "tex"):
            raise Misread(_line_of_formula(error.tex, finder, text), str(error)) from None
        what = f"the site's Markdown fails on this page: {type(error).__name__}: {error}"
        raise Misread(1, what) from error
    _check_drawn(html, finder.found, text)
    return Markup(finder.found, includes.found)


def markdown(root: Path) -> Markdown:
    """Return the site's Markdown, as mkdocs.yml sets it, with includes from the project at `root`."""
    settings = {name: {} for name in BUILT_IN} | _extensions(CONFIG.stat().st_mtime_ns)
    snippets = settings["pymdownx.snippets"]
    settings["pymdownx.snippets"] = snippets | {"base_path": [str(root / snippets["base_path"])]}
    return Markdown(extensions=list(settings), extension_configs=settings)


def _line_of_formula(tex: str, finder: _Finder, text: str) -> int:
    """Return the line where a formula begins; where it holds a fence, that of the fence."""
    if fence := re.search(r"wzxhzdk:(\d+)", tex):
        return finder.found[int(fence[1])].line
    place = re.search(r"\s+".join(map(re.escape, tex.split())), text)
    return text.count("\n", 0, place.start()) + 1 if place else 1


@cache
def _extensions(_saved: int) -> dict[str, dict]:
    """Return the settings of each extension that mkdocs.yml names, as last saved."""
    found = yaml.unsafe_load(CONFIG.read_text(encoding="utf-8"))["markdown_extensions"]
    named = (entry if isinstance(entry, dict) else {entry: None} for entry in found)
    return {name: settings or {} for entry in named for name, settings in entry.items()}


class _Includes(SnippetPreprocessor):
    """The site's includes, watched: where each line came from, and what each include shows."""

    def __init__(self, site: SnippetPreprocessor, skipped: int):
        self.__dict__.update(vars(site))
        self.skipped = skipped  # lines of the page before the first that is converted
        self.origins: list[int] = []  # the page's line, for each line after expansion
        self.found: dict[int, Include] = {}

    def run(self, lines: list[str]) -> list[str]:
        expanded: list[str] = []
        for number, line in enumerate(lines, self.skipped + 1):
            try:
                new = self._expanded(number, line) if "8<-" in line else [line]
            except (SnippetMissingError, OSError, ValueError) as error:
                raise Misread(number, f"{line.strip()}: {error}") from None
            self.origins += [number] * len(new)
            expanded += new
        return expanded

    def _expanded(self, number: int, line: str) -> list[str]:
        """Return what the site makes of a line, and note what it includes."""
        self.seen: set[str] = set()
        self.first = 0
        expanded = self.parse_snippets([line])
        match = INCLUDE.fullmatch(line)
        if expanded == [line]:
            return expanded
        if not match:
            raise ValueError(FORM)
        if not "".join(expanded).strip():
            raise ValueError("the include is empty")
        if any(map(CLOSING.match, expanded)):
            raise ValueError("a fence stands in the file, and would end the one around it")
        file = Path(self.get_snippet_path(match["file"]))
        self.found[number] = Include(file, expanded, self._numbers(file, expanded))
        return expanded

    def extract_section(self, section: str, lines: list[str]) -> list[str]:
        marks = [
            (number, match["type"].lower())
            for number, line in enumerate(lines, 1)
            if (match := self.RE_SNIPPET_SECTION.match(line)) and match["name"] == section
        ]
        if [kind for _, kind in marks] != ["start", "end"]:
            found = ", ".join(kind for _, kind in marks) or "neither"
            raise ValueError(
                f"wanted one start and one end of {section} in the file; found {found}"
            )
        self.first = marks[0][0]
        return super().extract_section(section, lines)

    def _numbers(self, file: Path, expanded: list[str]) -> list[int]:
        """Return, for each expanded line, its number in `file`."""
        lines, at, numbers = file.read_text(encoding="utf-8").split("\n"), self.first, []
        for line in expanded:
            while at < len(lines) and lines[at].strip() != line.strip():
                at += 1
            if at == len(lines):
                raise ValueError("the file includes another file; include that one by itself")
            at += 1
            numbers.append(at)
        return numbers


class _Finder(SuperFencesBlockPreprocessor):
    """The site's finder of fences, watched: it notes each fence, and refuses what it passed over."""

    def __init__(self, site: SuperFencesBlockPreprocessor, includes: _Includes):
        super().__init__(site.md)
        self.config, self.extension = site.config, site.extension
        self.includes = includes
        self.found: list[Fence] = []
        self.opened: Fence | None = None
        self.sources: set[int] = set()  # lines of the includes inside it; 0 for other code

    def search_nested(self, lines: list[str]) -> list[str]:
        self.lines, self.at, self.opened = lines, 0, None
        try:
            super().search_nested(self._watched())
        except (ValueError, SuperFencesException) as error:
            raise Misread(self.line, str(error)) from None
        return self._rebuilt()

    @property
    def line(self) -> int:
        """The line of the page that superfences looks at."""
        return self.includes.origins[min(self.at, len(self.includes.origins) - 1)]

    def reassemble(self, lines) -> None:
        """Leave it to `_rebuilt`, which goes through the lines once."""

    def _rebuilt(self) -> list[str]:
        """Return the lines, each fence replaced by its mark."""
        rebuilt, at = [], 0
        for mark, start, end in self.stack:
            rebuilt += [*self.lines[at:start], mark]
            at = end
        return rebuilt + self.lines[at:]

    def _watched(self) -> Iterator[str]:
        """Give superfences line by line, and look at what it made of each."""
        for at, line in enumerate(self.lines):
            self.at = at
            start = None if self.opened else self._start(line)
            yield line
            if self.fence is None:
                self._check_outside(line, start)
            elif start:
                self.opened, opened_at, self.sources = start, at, set()
            else:
                assert self.opened, "superfences is inside the fence that _start found"
                self._check_inside(line, self.opened)
        if self.opened:
            self.at = opened_at
            raise ValueError(f"unclosed fence; no closing {self.opened.marks} was found")

    def _start(self, line: str) -> Fence | None:
        """Return the fence that `line` opens, None where it opens none."""
        prefix = line[: len(line) - len(line.lstrip("> "))]
        match = RE_NESTED_FENCE_START.match(line, len(prefix))
        return match and Fence(self.line, 0, prefix, match["fence"], *read_info(match))

    def _check_outside(self, line: str, start: Fence | None) -> None:
        """Raise where a fence broke off, and where prose holds what looks like code."""
        if self.opened:
            what = "this line is indented less than its fence, which opened on line"
            raise ValueError(f"{what} {self.opened.line}")
        if start:
            raise ValueError(f"the site does not take `{line.strip()}` for a fence")
        if MISPLACED.search(line) and MISPLACED.search(_without_code_spans(line)):
            raise ValueError("a fence opens on a line of its own; here it is drawn as text")
        included = self.line in self.includes.found
        if included or ("8<-" in line and "8<-" in _without_code_spans(line)):
            raise ValueError(f"{FORM}; found one in the text")

    def _check_inside(self, line: str, fence: Fence) -> None:
        """Raise where a line of code is an include out of place, or almost ends its fence."""
        close = CLOSING.match(line)
        if close and close["marks"].startswith(fence.marks):
            raise ValueError(
                f"found {line.strip()} inside the fence that {fence.marks} opened on line "
                f"{fence.line}; close with the same marks and indent, or open with a longer fence"
            )
        if line.strip(" >"):
            self.sources.add(self.line if self.line in self.includes.found else 0)
        include = max(self.sources, default=0)
        if include and (len(self.sources) > 1 or fence.language not in RUNS):
            self.at = self.includes.origins.index(include)
            raise ValueError(f"{FORM}; found one in other code")
        if fence.language in RUNS and INCLUDE.fullmatch(line.lstrip(" >")):
            raise ValueError(f"{FORM}; the site expands none in a block quote")

    def process_nested_block(self, ws: str, content: str, start: int, end: int) -> None:
        """Note the fence that `content` closes, and leave its mark in place of what it draws."""
        fence = self.opened
        assert fence, "superfences closes what it opened"
        fence.end = self.line
        fence.text = self.rebuild_block(self.code) + "\n" if self.code else ""
        tag = "figure" if fence.language in ("output", "attention") else "div"
        # As deep as what the site draws, since markup that is left open may reach into it.
        mark = f'{MARK}="{len(self.found)}"'
        html = f"<{tag} {mark}><pre><samp {mark}>.</samp></pre></{tag}>"
        self.formatter = lambda **_: html
        super().process_nested_block(ws, content, start, end)
        self.found.append(fence)
        self.opened = None


def _without_code_spans(line: str) -> str:
    """Return a line of prose without its code spans: from a run of backticks to the next as long."""
    parts = re.split("(`+)", line)  # a run of backticks at each odd index
    last = {run: index for index, run in enumerate(parts) if index % 2}
    kept, at = [], 0
    while at < len(parts):
        if last.get(parts[at], at) > at:
            at = parts.index(parts[at], at + 1)
        else:
            kept.append(parts[at])
        at += 1
    return "".join(kept)


def _check_drawn(html: str, fences: list[Fence], text: str) -> None:
    """Raise unless `html` shows the marks of `fences` in order, and nothing that looks like them.

    Fills in which fences are solutions.
    """
    root = html5lib.parseFragment(html, container="article", namespaceHTMLElements=False)
    parents = {child: parent for parent in root.iter() for child in parent}
    marks = [element for element in root.iter() if element.get(MARK)]
    times = Counter(mark.get(MARK) for mark in marks)
    for number, fence in enumerate(fences):
        pair, name = marks[2 * number : 2 * number + 2], str(number)
        if times[name] != 2 or any(mark.get(MARK) != name for mark in pair):
            what = f"the site does not draw this fence, indented by {fence.indent}, here and once"
            where = "it stands in no list, note or tab so far in, or in other markup"
            raise Misread(fence.line, f"{what}: {where}")
        element = pair[1]
        while (element := parents[element]) is not root:
            hiding = "".join(f" {name}" for name in element.attrib if HIDING.fullmatch(name))
            if hiding or not SEEN_IN.fullmatch(element.tag):
                what = f"this fence stands in <{element.tag}{hiding}>; the site would not show it"
                raise Misread(fence.line, what)
            fence.solution = fence.solution or _is_solution(element)
    for element in root.iter():
        if isinstance(element.tag, str):  # a comment has none
            _check_made_by_a_fence(element, fences, text)


def _is_solution(element: Element) -> bool:
    summary = element.findtext("summary") or ""
    return (
        element.tag == "details"
        and "success" in element.get("class", "").split()
        and summary.startswith("Solution")
    )


def _check_made_by_a_fence(element: Element, fences: list[Fence], text: str) -> None:
    """Raise where the page itself writes what only a fence may draw, or what changes the page."""
    tag = element.tag.rpartition("}")[2]
    classes = element.get("class", "").split()
    languages = [name for name in classes if name.startswith("language-")]
    python = next((n for n in languages if is_drawn_as_python(n.removeprefix("language-"))), None)
    if POWERS.fullmatch(tag):
        found, what = rf"<{tag}\b", f"a page holds no <{tag}>; it could change what is shown"
    elif tag == "attention-explorable":
        found, what = f"<{tag}", f"this <{tag}> shows numbers, and no fence made it"
    elif tag == "figure" and "output" in classes:
        found, what = r"<figure\b[^>]*\boutput\b", "this output is written, and no fence made it"
    elif python:
        found, what = re.escape(python), f"`{python}` is drawn as Python, and no fence made it"
    else:
        return
    lines = text.split("\n")
    for fence in fences:
        lines[fence.line - 1 : fence.end] = [""] * (fence.end - fence.line + 1)
    prose = "\n".join(lines)
    place = re.search(found, prose, re.IGNORECASE)
    raise Misread(prose.count("\n", 0, place.start()) + 1 if place else 1, what)
