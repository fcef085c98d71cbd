"""Reads drawn pages into the index of the book's search.

What a page says, section by section, as short lines: a paragraph is one, and so is a line of code,
which begins with a tab. Formulas are on one line too, with their superscripts and subscripts, and
figures and printed numbers are left out: who looks for words finds no table. The index does not hold
these lines. It lists each word once, with the sections that have it, and keeps of each section the
sentence that it begins with: a tenth of the size, for the same answers. How well a page answers
is decided in `docs/assets/search-engine.js`, which knows nothing of the site's builder.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from html import escape, unescape
from html.parser import HTMLParser
from typing import NamedTuple

from book.markdown.math import on_one_line

MATH = re.compile(r"<math\b.*?</math>", re.S)
UNSEEN = {"svg", "script", "style", "template", "samp", "button"}
VOID = {"br", "col", "hr", "img", "input", "link", "source", "wbr"}
LINES = re.compile(r"h[1-6]|p|li|dt|dd|tr|pre|div|figcaption|summary|caption")
# The last line of a block that raised is what a reader has before them, and searches for.
RAISED = re.compile(r"^\w*(?:Error|Exception|Warning): .*", re.M)


WORD = re.compile(r"[\w^√]+")
# Words that a question has and its answer need not have.
IDLE = set(
    re.findall(
        r"\w+",
        "a about an and are as at be by can do does for from had has have how i if in into is it its "
        "many me much my of on or should so that the their them then there these they this to was we "
        "what when where which while who why will with would you your",
    )
)
SENTENCE = re.compile(r"(?<=[.?!:])\s")
OFTEN = 4  # times in a section, from which on a word says what the section is about
LISTS = {"Exercises", "Sources"}  # their first sentence says nothing of the page
LEAST_SAID = 60  # letters: what a section begins with is shown until the sentence that passes them
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Section(NamedTuple):
    """A heading of a page and what stands under it."""

    anchor: str  # "" for what stands under the page's title
    title: str
    text: str  # lines of escaped HTML that has no tags but <sub> and <sup>


class Entry(NamedTuple):
    """A page as the search knows it."""

    url: str
    question: str
    keywords: str  # words that a reader may type and that the page's headings lack
    sections: list[Section]


def sections(html: str) -> list[Section]:
    """Return the sections of a drawn page in order, the first under its title."""
    reader = _Reader()
    reader.feed(MATH.sub(lambda formula: on_one_line(formula[0]), html))
    reader.close()
    return [
        Section(anchor, "".join(title).strip(), "\n".join(_tidy("".join(text))))
        for anchor, title, text in reader.parts
    ]


def script(entries: list[Entry]) -> str:
    """Return the index as a classic script, which loads from a host and from a disk alike.

    `pages` holds of each page its address, question and keywords, and of each section its anchor, its
    title and how it begins, where that says more than the question of its page. `words` has a line for each word: the word, then the sections that have it,
    numbered through the book, each as what is added to the number before, to the base 36; a plus
    follows where the section has the word often.
    """
    pages = [[*entry[:3], list(map(_told, entry.sections))] for entry in entries]
    places: dict[str, list[tuple[int, int]]] = {}
    for number, section in enumerate(section for entry in entries for section in entry.sections):
        for word, times in words(section.text).items():
            places.setdefault(word, []).append((number, times))
    lines = [" ".join([word, *_steps(found)]) for word, found in sorted(places.items())]
    index = {"pages": pages, "words": "\n".join(lines), "idle": sorted(IDLE)}
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    return f"window.bookIndex = {text};\n"


def _told(section: Section) -> tuple[str, str, str]:
    """Return the anchor and the title of a section, and how it begins."""
    says_less = not section.anchor or section.title in LISTS
    return section.anchor, section.title, "" if says_less else beginning(section.text)


def beginning(text: str) -> str:
    """Return the first sentence of a section, with the next ones while that is short, or "" if it has none."""
    prose = (line for line in text.split("\n") if not line.startswith("\t"))
    sentences = SENTENCE.split(next((line for line in prose if line.endswith((".", "?", ":"))), ""))
    said = sentences.pop(0)
    while sentences and len(said) < LEAST_SAID:
        said += " " + sentences.pop(0)
    return said


def plain(text: str) -> str:
    """Return what a line of a section says, without its tags: d_k, 10^38."""
    typed = text.replace("<sub>", "_").replace("<sup>", "^")
    return unescape(re.sub(r"<[^>]+>", "", typed))


def words(text: str) -> Counter[str]:
    """Return the words of a section as one would type them, w_q, 10^38, and how often each is there."""
    typed = plain(text).lower().replace("⊤", "t").replace("∞", "inf")
    return Counter(word for word in WORD.findall(typed) if word not in IDLE)


def _steps(places: list[tuple[int, int]]) -> list[str]:
    """Return the numbers of sections, rising, as `script` writes them."""
    steps, before = [], 0
    for number, times in places:
        steps.append(_base_36(number - before) + "+" * (times >= OFTEN))
        before = number
    return steps


def _base_36(number: int) -> str:
    return (_base_36(number // 36) if number > 35 else "") + DIGITS[number % 36]


def _tidy(text: str) -> list[str]:
    """Return the lines that say something, each with single blanks; code keeps its tab in front."""
    lines = [
        ("\t" if line.startswith("\t") else "") + " ".join(line.split())
        for line in text.split("\n")
    ]
    return [line for line in lines if re.search(r"\w", line)]


class _Reader(HTMLParser):
    """Collects `parts`: the anchor of each section, and the pieces of its title and of its text."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, list[str], list[str]]] = [("", [], [])]
        self.open: list[tuple[str, bool]] = []  # each open tag, and whether what it holds is unseen

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            self._here.append(" ")
            return
        values = dict(attributes)
        if tag in ("h2", "h3") and values.get("id"):
            self.parts.append((values["id"] or "", [], []))
        classes = (values.get("class") or "").split()
        unseen = tag in UNSEEN or "data-search-exclude" in values
        unseen = unseen or "headerlink" in classes or "heatmap" in classes
        unseen = unseen or (tag == "b" and self._within("figcaption"))  # "Output"
        self._end_line(tag)
        self.open.append((tag, unseen))
        self._keep(tag, f"<{tag}>")

    def handle_endtag(self, tag: str) -> None:
        if not self._within(tag):
            return
        self._keep(tag, f"</{tag}>")
        while self.open.pop()[0] != tag:
            pass
        self._end_line(tag)

    def handle_data(self, data: str) -> None:
        if self._within("samp"):
            data = "\n".join(["", *RAISED.findall(data), ""])
        elif any(unseen for _, unseen in self.open):
            return
        line = "\n\t" if self._within("pre") else " "
        self._here.append(escape(data, quote=False).replace("\n", line))

    @property
    def _here(self) -> list[str]:
        """What the next words belong to."""
        _, title, text = self.parts[-1]
        return title if self._within("h1", "h2", "h3") else text

    def _within(self, *tags: str) -> bool:
        return any(tag in tags for tag, _ in self.open)

    def _keep(self, tag: str, mark: str) -> None:
        if tag in ("sub", "sup") and not any(unseen for _, unseen in self.open):
            self._here.append(mark)

    def _end_line(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._here.append(" ")
        elif tag == "pre":
            self._here.append("\n\t")
        elif LINES.fullmatch(tag):
            self._here.append("\n")
