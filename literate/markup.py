"""Ask the site's own Markdown what a page is: which fences it draws, and what they show.

`mkdocs.yml` is the only grammar. The page is converted as the site converts it, but for two of its
preprocessors: includes are expanded one by one, and the finder of fences is watched. Each fence
leaves a mark in the HTML, so a mark that is missing, moved or out of sight is an error.

What the site draws from Markdown is marked too. All other tags and attributes are the author's, who
may write those of WRITTEN and no others: what a page shows as checked cannot be covered or imitated.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import yaml
from markdown import Markdown
from markdown.treeprocessors import Treeprocessor
from pymdownx.snippets import SnippetMissingError
from pymdownx.superfences import SuperFencesBlockPreprocessor, SuperFencesException

from literate.fence import (
    OUTPUTS,
    RUNS,
    Fence,
    Include,
    check_language,
    check_options,
    without,
)

CONFIG = Path(__file__).parents[1] / "mkdocs.yml"
BUILT_IN = ("toc", "tables", "fenced_code")  # what MkDocs loads before the extensions of mkdocs.yml

CLOSING = re.compile(r"[> ]*(?P<marks>`{3,}|~{3,}) *$")
OPENING = re.compile(r"[> ]*(?:`{3,}|~{3,})(?P<info>.*)")
MISPLACED = re.compile(r"(?:`{3,}|~{3,}) *[{.]* *(?:py|output)", re.IGNORECASE)
CODE_SPAN = re.compile(r"(?<!`)(`++).*?(?<!`)\1(?!`)")  # to the next run as long
INCLUDE = re.compile(r"[> ]*-+8<-+ +([\"'])(?P<file>[^\"':]+)(?::(?P<section>[a-zA-Z][-\w]*))?\1")
FORM = (
    'an include stands alone in a `python` fence, as --8<-- "file.py" or --8<-- "file.py:section"'
)

# A fence is seen where all around it is one of these, and none has an attribute that hides.
SEEN_IN = re.compile(
    "article|aside|blockquote|d[dl]|details|div|figure|li|main|ol|pre|section|t(able|body|d|h|r)|ul"
)
HIDING = re.compile("aria-hidden|hidden|inert|popover|style")
# The characters that a browser or Python-Markdown drops, and those that turn the order of letters
# round: a reader would see another program than the one that ran.
UNSHOWN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

SVG = "{http://www.w3.org/2000/svg}"
PAINT = "class fill fill-opacity stroke stroke-width stroke-opacity stroke-dasharray stroke-linecap"
LETTERS = "font-size font-weight font-style text-anchor"
# The tags and attributes that an author may write: those of the drawings, a few words of HTML, and the
# boxes of the home page. No `style`, no event handler, no form, table or `pre`, for each of them could
# hide, cover or imitate what was checked, and Markdown draws the rest. The site's own tags are not here.
WRITTEN = {
    **{"br": "", "code": "", "em": "", "figcaption": "", "p": ""},
    **{"data": "value", "div": "class", "figure": "class", "span": "class title"},
    f"{SVG}svg": f"{PAINT} {LETTERS} viewBox width role aria-labelledby style",
    f"{SVG}g": f"{PAINT} {LETTERS} transform",
    f"{SVG}title": "id",
    f"{SVG}desc": "id",
    f"{SVG}defs": "",
    f"{SVG}marker": "id viewBox markerWidth markerHeight markerUnits orient refX refY",
    f"{SVG}path": f"{PAINT} d marker-end",
    f"{SVG}line": f"{PAINT} x1 y1 x2 y2 marker-end",
    f"{SVG}rect": f"{PAINT} x y width height rx",
    f"{SVG}circle": f"{PAINT} cx cy r",
    f"{SVG}polygon": f"{PAINT} points",
    f"{SVG}text": f"{PAINT} {LETTERS} x y transform",
    f"{SVG}tspan": f"{PAINT} {LETTERS} x y dx dy",
}
LISTED = ("id", "class", "download")  # what an attribute list, { … }, may give
# The classes of the site's styles that a page may use: those that only colour or arrange.
HTML_CLASSES = "diagram home home-lead home-proof home-why home-line home-start home-doors by-hand"
SVG_CLASSES = "soft accent plain kept"
# What a value must look like, where another could reach out of its drawing, and in words.
VALUES = {
    "id": (  # an underline begins the theme's own; the other kinds are given to what fences draw
        r"(?!__|exercise-\d|(.*-)?(output|explorable|figure|table)(-\d+)?$)[\w-]+",
        "an address that neither the site nor a figure gives",
    ),
    "style": (r"max-width:100%;height:auto", "max-width:100%;height:auto"),
    "fill": (r"currentColor|none|context-stroke|var\(--[\w-]+\)", "currentColor or none"),
    "stroke": (r"currentColor|none|var\(--[\w-]+\)", "currentColor or none"),
    "marker-end": (r"url\(#[\w-]+\)", "url(#name)"),
    "transform": (r"((translate|rotate|scale)\([-\d., ]+\) ?)+", "translate, rotate or scale"),
    "download": (r"\w+\.py", "the name of a snippet"),
    "title": (r".*", "text"),
    "value": (r"[^<>]+", "an expression of the page"),
}
OTHER_VALUE = r"[^:()]*", "numbers and words"
# What a note may be called; another name is a class like any other, which the site's styles may hide.
NOTES = "note abstract info tip success question warning failure danger bug example quote"
ADDRESS = re.compile(r"(?:https?://|mailto:)|(?![a-z][a-z\d+.-]*:|//)", re.IGNORECASE)


class Misread(Exception):
    """What the book does not allow, at a line of the page."""

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


def read(text: str, root: Path) -> list[Fence]:
    """Convert `text`, a page of the project at `root`, as the site does; return its fences.

    Raises Misread where the page and what the site draws of it would differ.
    """
    site, body = markdown(root), text.lstrip("\n")  # as MkDocs hands a page over
    written = _Written(site, text)
    finder = _Finder(site, _includes(site, text), len(text) - len(body), written.mark)
    site.preprocessors.deregister("snippet")
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
    drawn = html5lib.parseFragment(html, container="article", namespaceHTMLElements=False)
    _check_marks(drawn, finder.found, written.mark)
    _check_characters(finder.found, text)
    written.check(drawn, finder.found)
    return finder.found


def markdown(root: Path) -> Markdown:
    """Return the site's Markdown, as mkdocs.yml sets it, with includes from the project at `root`."""
    settings = {name: {} for name in BUILT_IN} | _extensions(CONFIG.stat().st_mtime_ns)
    snippets = settings["pymdownx.snippets"]
    settings["pymdownx.snippets"] = snippets | {"base_path": [str(root / snippets["base_path"])]}
    return Markdown(extensions=list(settings), extension_configs=settings)


@cache
def _extensions(_saved: int) -> dict[str, dict]:
    """Return the settings of each extension that mkdocs.yml names, as last saved."""
    found = yaml.unsafe_load(CONFIG.read_text(encoding="utf-8"))["markdown_extensions"]
    named = (entry if isinstance(entry, dict) else {entry: None} for entry in found)
    return {name: settings or {} for entry in named for name, settings in entry.items()}


def _line_of_formula(tex: str, finder: _Finder, text: str) -> int:
    """Return the line where a formula begins; where it holds a fence, that of the fence."""
    if fence := re.search(r"wzxhzdk:(\d+)", tex):
        return finder.found[int(fence[1])].line
    place = re.search(r"\s+".join(map(re.escape, tex.split())), text)
    return text.count("\n", 0, place.start()) + 1 if place else 1


def _includes(site: Markdown, text: str) -> dict[int, Include]:
    """Return what each line of a page that is an include shows, by its number."""
    found = {}
    for number, line in enumerate(text.split("\n"), 1):
        if "8<-" in line:
            try:
                include = _include(site, line)
            except (SnippetMissingError, OSError, ValueError) as error:
                raise Misread(number, f"{line.strip()}: {error}") from None
            if include:
                found[number] = include
    return found


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
        if list(ends.values()) != ["start", "end"]:
            what = f"wanted one start and one end of {section} in the file; found"
            raise ValueError(f"{what} {', '.join(ends.values())}")
        first, last = ends
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

    def __init__(self, site: Markdown, includes: dict[int, Include], skipped: int, made: str):
        super().__init__(site)
        watched = site.preprocessors["fenced_code_block"]
        self.config, self.extension = watched.config, watched.extension
        self.extension.superfences = [
            {"test": lambda _: True, "validator": self._accept, "formatter": self._note}
        ]
        self.includes, self.made = includes, made
        self.skipped = skipped  # lines of the page before the first that is converted
        self.found: list[Fence] = []
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
            before, count = self.fence, len(self.found)
            yield self.text
            if self.fence and not before:
                self.opened = self.line
            elif self.fence:
                self._check_inside()
            elif not before:
                self._check_outside()
            elif len(self.found) == count:
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
            check_language(language or "")
            check_options(language or "", options)
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
        mark = f'{self.made}="{len(self.found)}"'
        self.found.append(fence)
        # As deep as what the site draws, since markup that is left open may reach into it.
        tag = "figure" if fence.language in OUTPUTS else "div"
        return f"<{tag} {mark}><pre {self.made}><samp {mark}>.</samp></pre></{tag}>"


def _check_marks(root: Element, fences: list[Fence], mark: str) -> None:
    """Raise unless `root` shows the marks of `fences` in order, each as often as it was made.

    Fills in which fences are solutions.
    """
    parents = {child: parent for parent in root.iter() for child in parent}
    marks = [
        (element, found) for element in root.iter() if (found := element.get(mark, "")).isdigit()
    ]
    times = Counter(number for _, number in marks)
    tabs: dict[Element, tuple[Element, int]] = {}  # a set of tabs → the one that runs, and its line
    for number, fence in enumerate(fences):
        pair, name = marks[2 * number : 2 * number + 2], str(number)
        if times[name] != 2 or any(found != name for _, found in pair):
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


def check_shown(text: str, line: int = 1) -> None:
    """Raise Misread where `text`, which begins on `line`, holds a character of UNSHOWN."""
    if found := UNSHOWN.search(text):
        what = f"the control character U+{ord(found[0]):04X}, which the site would not show"
        raise Misread(line + text.count("\n", 0, found.start()), what)


def _check_characters(fences: list[Fence], text: str) -> None:
    """Raise where a page writes a character of UNSHOWN as `&#x202E;`, or one of no width in code."""
    for number, line in enumerate(without(fences, text), 1):
        check_shown(unescape(CODE_SPAN.sub("", line)) if "&" in line else "", number)
    for fence in fences:
        unseen = (
            one for one in fence.text if UNSHOWN.match(one) or unicodedata.category(one) == "Cf"
        )
        invisible = next(unseen, "")
        if invisible and fence.language in (*RUNS, *OUTPUTS):
            at = fence.text.count("\n", 0, fence.text.index(invisible)) + 1
            name = f"U+{ord(invisible):04X}"
            what = f"the invisible character {name} in code; write it as an escape"
            if fence.include:
                what = f"{fence.include.file.name}:{fence.include.numbers[at - 1]}: {what}"
                at = 1
            raise Misread(fence.line + at, what)


class _Written(Treeprocessor):
    """What an author wrote as HTML: all that the site's own Markdown did not mark as made by it."""

    def __init__(self, site: Markdown, text: str):
        super().__init__(site)
        self.text = text
        self.mark = "data-made"
        while self.mark in text.lower():  # so that no author can write it
            self.mark += "-"
        self.listed: list[tuple[str, str, str]] = []  # tag, name and value, of attribute lists
        site.postprocessors.deregister("addresses")  # which writes on what the author wrote
        site.treeprocessors.register(self, "written", -100)
        blocks, inline = site.parser.blockprocessors, site.inlinePatterns
        self._watch(site.preprocessors["html_block"], "run", self._note_elements)
        self._watch(site.treeprocessors["indent-highlight"], "run", self._mark_text)
        self._watch(blocks["math"], "run", self._mark_text)
        self._watch(inline["math"], "handleMatch", self._mark_text)
        lists = site.treeprocessors["attr_list"]
        vars(lists)["assign_attrs"] = self._noting(lists.assign_attrs)

    def _watch(self, processor: Any, name: str, note: Callable[[int], None]) -> None:
        """Have `note` look at what `processor` stores, from the place in the stash that it is given."""
        method, stash = getattr(processor, name), self.md.htmlStash

        def watched(*args: Any) -> Any:
            first = len(stash.rawHtmlBlocks)
            result = method(*args)
            note(first)
            return result

        vars(processor)[name] = watched

    def _note_elements(self, first: int) -> None:
        """Mark HTML around Markdown as the author's, before it stands among what the site makes."""
        for stored in self.md.htmlStash.rawHtmlBlocks[first:]:
            for element in [] if isinstance(stored, str) else stored.iter():
                element.set(self.mark, "not")

    def _mark_text(self, first: int) -> None:
        """Mark each tag of the HTML that the site itself has written."""
        stored = self.md.htmlStash.rawHtmlBlocks
        stored[first:] = [
            re.sub(r"<(?=[a-z])[\w-]+", rf"\g<0> {self.mark}", one) for one in stored[first:]
        ]

    def _noting(self, assign: Callable[..., str]) -> Callable[..., str]:
        """Return `assign`, which gives an element its attribute list, so that what it gives is noted."""

        def noted(element: Element, *args: Any, **kwargs: Any) -> str:
            before = dict(element.attrib)
            remainder = assign(element, *args, **kwargs)
            for name, value in element.attrib.items():
                if value != before.get(name):
                    new = value.removeprefix(before.get(name, "")) if name == "class" else value
                    self.listed.append((str(element.tag), name, new.strip()))
            return remainder

        return noted

    def run(self, root: Element) -> None:
        """Mark all that stands in the tree as made by the site, but for what is noted as not."""
        for element in root.iter():
            if element is not root and self.mark not in element.attrib:
                element.set(self.mark, "")

    def check(self, root: Element, fences: list[Fence]) -> None:
        """Raise at the first tag or attribute of the page drawn as `root` that no author may write."""
        self.prose = "\n".join(without(fences, self.text))
        for tag, name, value in self.listed:
            self._check_attribute(tag, name, value, LISTED, r"\{[^}\n]*")
        for element in root.iter():
            if element is root or not isinstance(element.tag, str):  # which a comment has not
                continue
            for name in ("href", "src"):
                if not ADDRESS.match("".join(element.get(name, "").split())):
                    value = element.get(name, "")
                    raise self._wrong(re.escape(value), f"the address `{value}` leads to no page")
            if element.get(self.mark, "not") == "not":
                self._check_element(element)
            elif element.tag == "details" or "admonition" in element.get("class", "").split():
                for name in {*element.get("class", "").split()} - {"admonition"}:
                    if name not in NOTES.split():
                        what = f"a note is no `{name}`; wanted one of {NOTES}"
                        raise self._wrong(rf"(!!!|\?\?\?).*{re.escape(name)}", what)
        self._check_ids(root, fences)

    def _check_element(self, element: Element) -> None:
        """Raise unless an author may write `element` with its attributes."""
        tag = element.tag.rpartition("}")[2]
        if element.tag not in WRITTEN:
            what = f"a page holds no <{tag}>; it could change or imitate what is shown as checked"
            place = rf"</?{re.escape(tag)}(?![-\w])"
            raise self._wrong(place, f"{what}. Write it as Markdown")
        for name, value in element.attrib.items():
            if name != self.mark:
                allowed = tuple(WRITTEN[element.tag].split())
                written = name.rpartition("}")[2]
                self._check_attribute(element.tag, written, value, allowed, rf"<{tag}\b[^>]*")

    def _check_attribute(
        self, tag: str, name: str, value: str, allowed: tuple[str, ...], before: str
    ) -> None:
        """Raise unless `name` is one of those `allowed`, with a `value` that it may have."""
        shown = {"id": "#", "class": r"\."}.get(name, "")
        place = rf"{before}(?:(?<![-\w]){re.escape(name)}\b|(?<=\{{){shown})"
        if name not in allowed:
            where = f"<{tag.rpartition('}')[2]}>"
            wanted = ", ".join(allowed) or "none"
            raise self._wrong(place, f"{where} has no attribute `{name}` here; wanted {wanted}")
        classes = SVG_CLASSES if tag.startswith(SVG) else HTML_CLASSES
        for one in value.split() if name == "class" else []:
            if one not in classes.split():
                what = f"the class `{one}` is the site's own; wanted one of {classes}"
                raise self._wrong(rf"{before}{re.escape(one)}", what)
        form, words = VALUES.get(name, OTHER_VALUE)
        if not re.fullmatch(form, value, re.DOTALL):
            what = f'{name}="{value}" could reach beyond its place; wanted {words}'
            raise self._wrong(rf"{before}{re.escape(value)}", what)

    def _check_ids(self, root: Element, fences: list[Fence]) -> None:
        """Raise where two things of the page have one address."""
        names: dict[str, int] = {}
        for fence in fences:
            if name := fence.options.get("name"):
                first = names.setdefault(name, fence.line)
                if first != fence.line:
                    what = f'name="{name}" is taken by the heatmap at line {first}'
                    raise Misread(fence.line, what)
        ids = [found for element in root.iter() if (found := element.get("id"))]
        cells = [found for found in ids for name in names if re.fullmatch(rf"{name}(-\d+)+", found)]
        for one, times in Counter([*ids, *names]).items():
            if times > 1 or one in cells:
                what = f"the address `{one}` is taken; each stands once on a page"
                address = re.escape(one)
                raise self._wrong(rf"(?s:.*)(#|id=[\"']?){address}\b|{address}", what)

    def _wrong(self, pattern: str, what: str) -> Misread:
        """Return the error that says `what` at the line where a match of `pattern` ends."""
        lines = (unescape(CODE_SPAN.sub("", line)) for line in self.prose.split("\n"))
        prose = "\n".join(line.replace("\n", " ") for line in lines)
        found = re.search(pattern, prose, re.IGNORECASE)
        return Misread(prose.count("\n", 0, found.end()) + 1 if found else 1, what)
