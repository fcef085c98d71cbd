"""The Markdown of a site as a grammar: which fences it draws, and where a reader sees them.

What may be a fence is found line by line. Then the site's own Markdown converts the page, with one word in the
place of what each fence holds: a fence whose word is missing, moved or out of sight in the HTML is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
from markdown import Markdown
from pygments.lexers import guess_lexer
from pygments.lexers.python import PythonLexer
from pygments.util import ClassNotFound
from pymdownx.snippets import SnippetMissingError
from pymdownx.superfences import SuperFencesException

from literate.errors import Misread
from literate.fence import CODE_SPAN, RUNS, Fence, Include, blank_out, read_info
from literate.includes import ByName, place
from literate.project import Project
from literate.site import Site

QUOTED = r"""(?:[^`"']|"[^"]*"|'[^']*')*"""  # where backticks stand between quotes alone
OPENING = re.compile(rf"(?P<prefix>[> \t]*)(?P<marks>`{{3,}}(?={QUOTED}$)|~{{3,}})(?P<info>.*)")
MARKS = re.compile(r"[> \t]*(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)$")
MISPLACED = re.compile(r"(?:`{3,}|~{3,}) *[{.]* *(?:py|output)", re.IGNORECASE)
INCLUDE = re.compile(r"[> \t]*-+8<-+ +([\"'])(?P<file>[^\"':]+)(?::(?P<section>[a-zA-Z][-\w]*))?\1")
FORM = 'an include stands alone in a `python` fence, as --8<-- "file.py" or --8<-- "file.py:name"'
NAMING = {  # has the site name the language of code in its HTML
    "pymdownx.highlight": {"pygments_lang_class": True},
    "codehilite": {"use_pygments": False},
    "markdown.extensions.codehilite": {"use_pygments": False},
}
LANGUAGE = re.compile(r"\blanguage-(\S+)")

# What a browser shows nothing of, or not as code.
UNSEEN = (
    *(
        "script",
        "style",
        "template",
        "head",
        "title",
        "textarea",
        "noscript",
        "select",
        "svg",
        "dialog",
    ),
    *("h1", "h2", "h3", "h4", "h5", "h6", "iframe", "object", "video", "audio", "canvas"),
)
HIDING = re.compile("aria-hidden|hidden|inert|popover")
UNSEEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0(?![.\d])")


def fences(site: Site, text: str, project: Project) -> tuple[list[Fence], list[Misread]]:
    """Convert `text`, a page of `site`, as the site does; return its fences, and what is wrong with them."""
    problems: list[Misread] = []
    lines = text.split("\n")
    found = list(_candidates(lines, problems))
    kinds = (*RUNS, *project.kinds)
    markdown = site.markdown(NAMING)
    default = _default_language(markdown)
    for fence in found:
        try:
            project.check_opening(fence.language, fence.options)
        except ValueError as error:
            problems.append(Misread(fence.line, str(error)))
        if fence.language in kinds and "8<-" in fence.text:
            _expand(fence, markdown, problems)
        elif not fence.language and default in RUNS:
            fence.language = default
    word = "fence"
    while word in text:
        word += "z"
    if problems:
        return found, problems
    watch = _Watch(markdown, word, found)
    tree, html = Element("article"), ""
    try:
        html = markdown.convert(
            _with_words(lines, found, word).lstrip("\n")
        )  # as MkDocs hands it over
        tree = html5lib.parseFragment(html, container="article", namespaceHTMLElements=False)
    except Exception as error:
        problems.append(watch.failure(error, text))
        return found, problems
    shown = {(pre.findtext("code") or "").strip() for pre in tree.iter("pre")}
    drawn = [one for one in found if one.language in kinds or f"{word}{one.line}x" in shown]
    problems += watch.problems
    problems += _unseen(tree, html, [f for f in drawn if f.language in kinds], word, project)
    problems += _unfenced(tree, blank_out(found, text), word, watch.guesses)
    problems += [
        Misread(
            fence.line, "the site guesses that this is Python; label the fence `python` or `text`"
        )
        for fence in found
        if watch.guesses and not fence.language and _is_guessed(fence.text)
    ]
    if not problems:
        problems += project.drawn(tree, drawn, lines)
    return drawn, problems


def _candidates(lines: list[str], problems: list[Misread]) -> Iterator[Fence]:
    """Yield what may be a fence; add what is almost one to `problems`, and go on behind it."""
    at = 0
    while at < len(lines):
        opening = OPENING.match(lines[at])
        at += 1
        if not opening:
            if MISPLACED.search(CODE_SPAN.sub("", lines[at - 1])):
                what = "a fence opens on a line of its own; here it is drawn as text"
                problems.append(Misread(at, what))
                at = _behind(lines, at)
            continue
        language, options = read_info(opening["info"])
        fence = Fence(at, at, opening["prefix"], opening["marks"], language, options)
        try:
            if (body := _body(fence, lines)) is None:
                continue
            fence.text = "".join(line + "\n" for line in body)
            fence.end = at = at + len(body) + 1
        except Broken as broken:
            problems.append(broken)
            fence.end = at = broken.behind
        yield fence


def _behind(lines: list[str], at: int) -> int:
    """Return the number of the next line of marks alone, which ends a fence that was not understood."""
    ends = (
        n for n in range(at, len(lines)) if (m := MARKS.match(lines[n])) and not m["info"].strip()
    )
    return next(ends, len(lines) - 1) + 1


class Broken(Misread):
    """A fence that does not end as it should; what comes next stands after the line `behind`."""

    def __init__(self, line: int, message: str, behind: int):
        super().__init__(line, message)
        self.behind = behind


def _body(fence: Fence, lines: list[str]) -> list[str] | None:
    """Return the lines of code that `fence` opens; None where it is left alone, as the site leaves it.

    Raises Broken where a fence does not end, or a line in it looks like the end of it or another beginning.
    """
    body: list[str] = []
    watched = fence.language in (*RUNS, "output")
    for at in range(fence.line, len(lines)):
        line = _inside(lines[at], fence.prefix)
        if line is None:
            if not watched:
                return None
            what = f"this line is indented less than its fence, which opened on line {fence.line}"
            raise Broken(at + 1, what, _behind(lines, at))
        if line.rstrip() == fence.marks:
            return body
        marks = MARKS.match(lines[at])
        ends = marks and marks["marks"].startswith(fence.marks) and not marks["info"].strip()
        if watched and ends:
            what = f"found {lines[at].strip()} inside the fence that {fence.marks} opened on line"
            wanted = "close with the same marks and indent, or open with a longer fence"
            raise Broken(at + 1, f"{what} {fence.line}; {wanted}", at + 1)
        inner = read_info(marks["info"])[0] if marks and marks["marks"] == fence.marks else ""
        if inner in (*RUNS, "output"):
            what = f"unclosed fence; {lines[at].strip()} on line {at + 1} would open inside it"
            raise Broken(fence.line, f"{what}. Close it before, or open it with more marks", at)
        body.append(line)
    raise Broken(fence.line, f"unclosed fence; no closing {fence.marks} was found", len(lines))


def _inside(line: str, prefix: str) -> str | None:
    """Return what of `line` stands behind a `prefix` of blanks, tabs and marks of quotes; None where it ends."""
    if line.startswith(prefix):
        return line[len(prefix) :]
    if not line.strip(" \t>"):
        return "" if len(line) < len(prefix) or not line.strip() else None
    if ">" in prefix or line.lstrip(" \t").startswith(">"):
        return None
    width, column = len(prefix.expandtabs(4)), 0
    for number, sign in enumerate(line):
        if column >= width:
            return " " * (column - width) + line[number:]
        if sign not in " \t":
            return None
        column += 4 - column % 4 if sign == "\t" else 1
    return ""


def _with_words(lines: list[str], found: list[Fence], word: str) -> str:
    """Return the page with one word in the place of what each fence holds."""
    lines = list(lines)
    for fence in reversed(found):
        lines[fence.line : fence.end - 1] = [f"{fence.prefix}{word}{fence.line}x"]
    return "\n".join(lines)


class _Watch:
    """Has superfences write the word of each fence, and notes what it says of it."""

    def __init__(self, markdown: Markdown, word: str, found: list[Fence]):
        self.problems: list[Misread] = []
        self.found = {f"{word}{fence.line}x": fence for fence in found}
        self.drawn: list[Fence] = []
        self.refused = ""
        finder = markdown.preprocessors["fenced_code_block"]
        for entry in getattr(getattr(finder, "extension", None), "superfences", []):
            entry["validator"] = self._asking(entry["validator"])
            entry["formatter"] = self._write
        self.guesses = _guesses(markdown)

    def _asking(self, validator: Any) -> Any:
        """Return a validator that keeps what would stop the build, so that the fence is named."""

        def asked(*arguments: Any) -> bool:
            try:
                return validator(*arguments)
            except SuperFencesException as error:
                self.refused = str(error)
                return True

        return asked

    def _write(self, *, src: str, language: str | None, **_: object) -> str:
        fence = self.found.get(src.strip())
        if fence:
            self.drawn.append(fence)
            if self.refused:
                self.problems.append(Misread(fence.line, self.refused))
        elif language in RUNS:
            what = "code of Python comes into the page from a file that it includes; show it in a fence here"
            self.problems.append(Misread(1, what))
        self.refused = ""
        return f"<div><pre><code>{src.strip()}</code></pre></div>"

    def failure(self, error: Exception, text: str) -> Misread:
        """Return what is wrong where the site's Markdown fails on a page."""
        if tex := getattr(error, "tex", ""):
            if hidden := re.search(r"wzxhzdk:(\d+)", tex):  # the place of a fence
                return Misread(self.drawn[int(hidden[1])].line, str(error))
            formula = re.search(r"\s+".join(map(re.escape, tex.split())), text)
            return Misread(text.count("\n", 0, formula.start()) + 1 if formula else 1, str(error))
        line = 1
        if isinstance(error, SnippetMissingError):
            line = next((n for n, one in enumerate(text.split("\n"), 1) if "8<-" in one), 1)
        said = " ".join(str(error).split())
        return Misread(
            line, f"the site's Markdown fails on this page: {type(error).__name__}: {said}"
        )


def _default_language(markdown: Markdown) -> str:
    """Return the language that the site gives to code without a label."""
    for extension in markdown.registeredExtensions:
        if hasattr(extension, "get_pymdownx_highlight_settings"):
            return extension.get_pymdownx_highlight_settings().get("default_lang") or ""
    return ""


def _guesses(markdown: Markdown) -> bool:
    """Say whether the site guesses the language of code without a label."""
    return any(
        extension.getConfig("guess_lang", False) in (True, "block")
        for extension in markdown.registeredExtensions
        if type(extension).__name__ in ("HighlightExtension", "CodeHiliteExtension")
    )


def _is_guessed(code: str) -> bool:
    try:
        return isinstance(guess_lexer(code), PythonLexer)
    except ClassNotFound:
        return False


def _unseen(
    tree: Element, html: str, wanted: list[Fence], word: str, project: Project
) -> Iterator[Misread]:
    """Yield each fence that the site does not show as code, once and in its place; note what is a solution."""
    parents = {child: parent for parent in tree.iter() for child in parent}
    codes = {(code.text or "").strip(): (n, code) for n, code in enumerate(tree.iter("code"))}
    next_drawn = math.inf
    for fence in reversed(wanted):
        place, element = codes.get(own := f"{word}{fence.line}x", (-1, tree))
        if place < 0 or html.count(own) != 1 or parents[element].tag != "pre":
            what = f"the site does not draw this fence, indented by {fence.indent}, as code, here and once"
            yield Misread(
                fence.line, f"{what}: look at its options, its indent, and what stands around it"
            )
            continue
        if place > next_drawn:
            yield Misread(fence.line, "the site draws this fence further down than it stands")
        next_drawn = place
        while (element := parents[element]) is not tree:
            tag = str(element.tag).rpartition("}")[2]
            hiding = [name for name in element.attrib if HIDING.fullmatch(name)]
            hiding += ["style"] * bool(UNSEEN_STYLE.search(element.get("style", "")))
            if hiding or tag in UNSEEN:
                where = " ".join([tag, *hiding])
                yield Misread(
                    fence.line, f"this fence stands in <{where}>; the site would not show it"
                )
                break
            fence.solution = fence.solution or project.solution(element)


def _unfenced(tree: Element, prose: list[str], word: str, guesses: bool) -> Iterator[Misread]:
    """Yield each indented piece of code that the site draws as Python."""
    parents = {child: parent for parent in tree.iter() for child in parent}
    for pre in tree.iter("pre"):
        code = pre.find("code")
        text = "".join(code.itertext()) if code is not None else ""
        if code is None or not text.strip() or text.strip().startswith(word):
            continue
        language = LANGUAGE.search(" ".join(e.get("class", "") for e in (code, pre, parents[pre])))
        if (language and language[1] in RUNS) or (not language and guesses and _is_guessed(text)):
            first = next(line for line in text.split("\n") if line.strip()).strip()
            at = next((n for n, line in enumerate(prose, 1) if line.strip() == first), 1)
            yield Misread(
                at, "the site draws this code as Python, and it does not run; write it in a fence"
            )


def _expand(fence: Fence, markdown: Markdown, problems: list[Misread]) -> None:
    """Put what an include shows into `fence`, where its code is one."""
    code = fence.text.split("\n")
    for number, line in enumerate(code, 1):
        if "8<-" not in line or "snippet" not in markdown.preprocessors:
            continue
        try:
            include = _include(markdown, line, fence.prefix)
            if include and (fence.text.strip() != line.strip() or fence.language not in RUNS):
                raise ValueError(f"{FORM}; found one in other code")
        except (SnippetMissingError, OSError, ValueError) as error:
            problems.append(Misread(fence.line + number, f"{line.strip()}: {error}"))
            return
        if include:
            fence.include = include
            fence.text = "".join(one + "\n" for one in include.lines)


def _include(markdown: Markdown, line: str, prefix: str) -> Include | None:
    """Return what the site makes of a line; None where it leaves it as it is."""
    snippets, match = markdown.preprocessors["snippet"], INCLUDE.fullmatch(line)
    snippets.seen = set()
    expanded = snippets.parse_snippets([line])
    if expanded == [line] and not match:
        return None
    if not match:
        raise ValueError(FORM)
    if expanded == [line] or ">" in prefix:
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
    if any((found := MARKS.match(text)) and not found["info"].strip() for text in expanded):
        raise ValueError("a fence stands in the file, and would end the one around it")
    if [lines[at - 1].strip() for at in numbers] != [text.strip() for text in expanded]:
        raise ValueError("the file includes another file; include that one by itself")
    kept = slice(visible[0], visible[-1] + 1)
    return Include(file, section, expanded[kept], numbers[kept])
