"""The Markdown of a site as a grammar: which fences it draws, and what they show.

`mkdocs.yml` says which extensions read a page. The page is converted as the site converts it, but for
two of its preprocessors: includes are expanded one by one, and the finder of fences is watched. Each
fence leaves a mark in the HTML, so a mark that is missing, moved or out of sight is an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import yaml
from markdown import Markdown
from pymdownx.snippets import SnippetMissingError
from pymdownx.superfences import SuperFencesBlockPreprocessor, SuperFencesException

from literate.fence import CODE_SPAN, RUNS, Fence, Include, Misread, check_characters
from literate.includes import ByName, place
from literate.project import Project

CONFIG = "mkdocs.yml"
FINDER = "pymdownx.superfences"
SNIPPETS = ("pymdownx.snippets", "literate.includes")
BUILT_IN = ("toc", "tables", "fenced_code")  # what MkDocs loads before the extensions of mkdocs.yml

CLOSING = re.compile(r"[> ]*(?P<marks>`{3,}|~{3,}) *$")
OPENING = re.compile(r"[> ]*(?:`{3,}|~{3,})(?P<info>.*)")
MISPLACED = re.compile(r"(?:`{3,}|~{3,}) *[{.]* *(?:py|output)", re.IGNORECASE)
INCLUDE = re.compile(r"[> ]*-+8<-+ +([\"'])(?P<file>[^\"':]+)(?::(?P<section>[a-zA-Z][-\w]*))?\1")
FORM = 'an include stands alone in a `python` fence, as --8<-- "file.py" or --8<-- "file.py:name"'

# A fence is seen where all around it is one of these, and none has an attribute that hides.
SEEN_IN = re.compile(
    "article|aside|blockquote|d[dl]|details|div|figure|li|main|ol|pre|section|t(able|body|d|h|r)|ul"
)
HIDING = re.compile("aria-hidden|hidden|inert|popover|style")


def fences(text: str, root: Path, project: Project) -> list[Fence]:
    """Convert `text`, a page of the project at `root`, as its site does; return its fences.

    Raises Misread where the page and what the site draws of it would differ.
    """
    site, body = markdown(root), text.lstrip("\n")  # as MkDocs hands a page over
    mark = "data-made"
    while mark in text.lower():  # so that no author can write it
        mark += "-"
    html = project.html(site, text, mark) if project.html else None
    finder = _Finder(site, _includes(site, text), len(text) - len(body), mark, project)
    if "snippet" in site.preprocessors:
        site.preprocessors.deregister("snippet")
    site.preprocessors.register(finder, "fenced_code_block", 25)
    try:
        drawn = site.convert(body)
    except Misread:
        raise
    except Exception as error:
        if hasattr(error, "tex"):
            raise Misread(_line_of_formula(error.tex, finder, text), str(error)) from None
        what = f"the site's Markdown fails on this page: {type(error).__name__}: {error}"
        raise Misread(1, what) from error
    tree = html5lib.parseFragment(drawn, container="article", namespaceHTMLElements=False)
    _check_marks(tree, finder.fences, mark)
    check_characters(finder.fences, text, (*RUNS, *project.kinds))
    if html:
        html.check(tree, finder.fences)
    return finder.fences


def reads(root: Path) -> bool:
    """Say whether the project at `root` has a site whose Markdown finds fences as this module does."""
    config = root / CONFIG
    return config.exists() and FINDER in _extensions(config, config.stat().st_mtime_ns)


def markdown(root: Path) -> Markdown:
    """Return the Markdown of the site at `root`, with its includes."""
    config = root / CONFIG
    settings = {name: {} for name in BUILT_IN} | _extensions(config, config.stat().st_mtime_ns)
    for name in settings.keys() & set(SNIPPETS):
        base = settings[name].get("base_path", ".")
        folders = [str(root / one) for one in ([base] if isinstance(base, str) else base)]
        settings[name] = settings[name] | {"base_path": folders}
    return Markdown(extensions=list(settings), extension_configs=settings)


@lru_cache
def _extensions(config: Path, _saved: int) -> dict[str, dict]:
    """Return the settings of each extension that mkdocs.yml names, as last saved."""
    named = (yaml.unsafe_load(config.read_text(encoding="utf-8")) or {}).get(
        "markdown_extensions", []
    )
    entries = (
        named.items()
        if isinstance(named, dict)
        else (
            pair
            for entry in named
            for pair in (entry.items() if isinstance(entry, dict) else [(entry, None)])
        )
    )
    return {name: settings or {} for name, settings in entries}


def _line_of_formula(tex: str, finder: _Finder, text: str) -> int:
    """Return the line where a formula begins; where it holds a fence, that of the fence."""
    if fence := re.search(r"wzxhzdk:(\d+)", tex):
        return finder.fences[int(fence[1])].line
    place = re.search(r"\s+".join(map(re.escape, tex.split())), text)
    return text.count("\n", 0, place.start()) + 1 if place else 1


def _includes(site: Markdown, text: str) -> dict[int, Include]:
    """Return what each line of a page that is an include shows, by its number."""
    includes: dict[int, Include] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if "8<-" in line and "snippet" in site.preprocessors:
            try:
                include = _include(site, line)
            except (SnippetMissingError, OSError, ValueError) as error:
                raise Misread(number, f"{line.strip()}: {error}") from None
            if include:
                includes[number] = include
    return includes


def _include(site: Markdown, line: str) -> Include | None:
    """Return what the site makes of a line; None where it leaves it as it is."""
    snippets, match = site.preprocessors["snippet"], INCLUDE.fullmatch(line)
    snippets.seen = set()
    expanded = snippets.parse_snippets([line])
    if not match:
        if expanded == [line]:
            return None
        raise ValueError(FORM)
    if expanded == [line]:
        raise ValueError(f"{FORM}; the site expands none in a block quote")
    file, section = Path(snippets.get_snippet_path(match["file"])), match["section"]
    lines = file.read_text(encoding="utf-8").split("\n")
    find = snippets.RE_SNIPPET_SECTION.match
    marks = {at: mark for at, text in enumerate(lines, 1) if (mark := find(text))}
    first, last = 0, len(lines) + 1
    if section:
        ends = {at: mark["type"] for at, mark in marks.items() if mark["name"] == section}
        if not ends and isinstance(snippets, ByName):
            begin, end = place(section, lines)
            first, last = begin - 1, end + 1
        elif list(ends.values()) == ["start", "end"]:
            first, last = ends
        else:
            what = f"wanted one start and one end of {section} in the file; found"
            raise ValueError(f"{what} {', '.join(ends.values())}")
    numbers = [at for at in range(first + 1, last) if at not in marks]
    visible = [at for at, text in enumerate(expanded) if text.strip()]
    if not visible:
        raise ValueError("the include is empty")
    if any(map(CLOSING.match, expanded)):
        raise ValueError("a fence stands in the file, and would end the one around it")
    if [lines[at - 1].strip() for at in numbers] != [text.strip() for text in expanded]:
        raise ValueError("the file includes another file; include that one by itself")
    drawn = site.preprocessors["normalize_whitespace"].run(expanded)
    kept = slice(visible[0], visible[-1] + 1)
    return Include(file, section, drawn[kept], numbers[kept])


class _Finder(SuperFencesBlockPreprocessor):
    """The site's finder of fences, watched: it notes each fence, and refuses what it passed over."""

    def __init__(
        self,
        site: Markdown,
        includes: dict[int, Include],
        skipped: int,
        made: str,
        project: Project,
    ):
        super().__init__(site)
        self.project = project
        watched = site.preprocessors["fenced_code_block"]
        self.config, self.extension = watched.config, watched.extension
        self.extension.superfences = [
            {"test": lambda _: True, "validator": self._accept, "formatter": self._note}
        ]
        self.includes, self.made = includes, made
        self.skipped = skipped  # lines of the page before the first that is converted
        self.fences: list[Fence] = []
        self.line = self.opened = 0  # where it looks on the page, and where the last fence opened

    def search_nested(self, lines: list[str]) -> list[str]:
        try:
            super().search_nested(self._watched(lines))
        except (ValueError, SuperFencesException) as error:
            raise Misread(self.line, str(error)) from None
        rebuilt, at = [], 0  # once through the lines, each fence replaced by its mark
        for mark, start, end in self.stack:
            rebuilt += [*lines[at:start], mark]
            at = end
        return rebuilt + lines[at:]

    def reassemble(self, lines: Iterator[str]) -> None:
        """Leave it to `search_nested`, which has a list of them."""

    def _watched(self, lines: list[str]) -> Iterator[str]:
        """Give superfences line by line, and look at what it made of each."""
        first = self.skipped + 1
        for self.line, self.text in enumerate(lines, first):
            before, count = self.fence, len(self.fences)
            yield self.text
            if self.fence and not before:
                self.opened = self.line
            elif self.fence:
                self._check_inside()
            elif not before:
                self._check_outside()
            elif len(self.fences) == count:
                what = "this line is indented less than its fence, which opened on line"
                raise ValueError(f"{what} {self.opened}")
        if self.fence:
            self.line = self.opened
            raise ValueError(f"unclosed fence; no closing {self.fence} was found")

    def _check_outside(self) -> None:
        """Raise where prose holds what looks like code."""
        if opening := OPENING.match(self.text):
            what = f"cannot read the info string `{opening['info'].strip()}`"
            raise ValueError(f'{what}; wanted `language key="value" …`')
        if MISPLACED.search(self.text) and MISPLACED.search(CODE_SPAN.sub("", self.text)):
            raise ValueError("a fence opens on a line of its own; here it is drawn as text")
        if self.line in self.includes:
            raise ValueError(f"{FORM}; found one in the text")

    def _check_inside(self) -> None:
        """Raise where a line of code almost ends its fence, or begins another one."""
        opening = OPENING.match(self.text)
        marks = self.text.strip("> ")[: len(self.fence)]
        if opening and opening["info"].strip() and marks == self.fence:
            what = f"unclosed fence; {self.text.strip()} on line {self.line} would open inside it"
            self.line = self.opened
            raise ValueError(f"{what}. Close it before, or open it with more marks")
        close = CLOSING.match(self.text)
        if close and close["marks"].startswith(self.fence):
            raise ValueError(
                f"found {self.text.strip()} inside the fence that {self.fence} opened on line "
                f"{self.opened}; close with the same marks and indent, or open with a longer fence"
            )

    def _accept(self, language: str | None, inputs: dict[str, str], options, attrs, md) -> bool:
        """Take what superfences read of an info string, if the book allows it."""
        # It reads a flag as a key whose value is its own name.
        options |= {key: "" if value == key else value for key, value in inputs.items()}
        try:
            self.project.check_opening(language or "", options)
        except ValueError as error:
            raise SuperFencesException(str(error)) from None
        if self.classes:
            raise SuperFencesException(f"cannot read `.{self.classes[0]}` in `{self.text.strip()}`")
        for key in options:
            if len(re.findall(rf"\s{key}=[\"']", self.text)) > 1:
                raise SuperFencesException(f"option `{key}` is given twice")
        return True

    def _note(self, *, src: str, language: str | None, options: dict[str, str], **_: object) -> str:
        """Note the fence that ends here; return the mark that stands for what it draws."""
        fence = Fence(self.opened, self.line, self.ws, self.fence, language or "", options)
        fence.text = src + "\n" if self.code else ""
        included = [line for line in range(self.opened, self.line) if line in self.includes]
        if included:
            if fence.language not in RUNS or "\n" in src.strip():
                self.line = included[-1]
                raise SuperFencesException(f"{FORM}; found one in other code")
            fence.include = self.includes[included[0]]
            fence.text = "".join(line[fence.indent :] + "\n" for line in fence.include.lines)
        mark = f'{self.made}="{len(self.fences)}"'
        self.fences.append(fence)
        # As deep as what the site draws, since markup that is left open may reach into it.
        tag = "figure" if fence.language in self.project.kinds else "div"
        return f"<{tag} {mark}><pre {self.made}><samp {mark}>.</samp></pre></{tag}>"


def _check_marks(root: Element, fences: list[Fence], mark: str) -> None:
    """Raise unless `root` shows the marks of `fences` in order, each as often as it was made.

    Fills in which fences are solutions.
    """
    parents = {child: parent for parent in root.iter() for child in parent}
    marks = [
        (element, number_marked)
        for element in root.iter()
        if (number_marked := element.get(mark, "")).isdigit()
    ]
    times = Counter(number for _, number in marks)
    tabs: dict[Element, tuple[Element, int]] = {}  # a set of tabs → the one that runs, and its line
    for number, fence in enumerate(fences):
        pair, name = marks[2 * number : 2 * number + 2], str(number)
        if times[name] != 2 or any(number_marked != name for _, number_marked in pair):
            what = f"the site does not draw this fence, indented by {fence.indent}, here and once"
            where = "it stands in no list, note or tab so far in, or in other markup"
            raise Misread(fence.line, f"{what}: {where}")
        element = pair[1][0]
        while (element := parents[element]) is not root:
            hiding = "".join(f" {name}" for name in element.attrib if HIDING.fullmatch(name))
            if hiding or not SEEN_IN.fullmatch(element.tag):
                what = f"this fence stands in <{element.tag}{hiding}>; the site would not show it"
                raise Misread(fence.line, what)
            if fence.language in RUNS and element.get("class") == "tabbed-block":
                tab, line = tabs.setdefault(parents[element], (element, fence.line))
                if tab is not element:
                    what = f"two tabs of one set run code, and the first is on line {line}"
                    why = "a page is one program, which would run both one after the other"
                    raise Misread(fence.line, f"{what}; {why}")
            fence.solution = fence.solution or _is_solution(element)


def _is_solution(element: Element) -> bool:
    summary = element.findtext("summary") or ""
    return (
        element.tag == "details"
        and "success" in element.get("class", "").split()
        and summary.startswith("Solution")
    )
