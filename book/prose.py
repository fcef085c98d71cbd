"""Hold the numbers of prose against what the page prints and computes with.

A number of two digits or more, wherever the text shows or speaks one, must stand in an output or in
the code of its page, rounded to the digits it shows; a percent sign means a hundredth. Comments,
docstrings, titles and labels hold nothing. It is looked up from the paragraph outwards, and belongs
to the nearest block or output that holds it. Numbers that one block or output holds come in its
order. One of two digits, which chance would find on any page, must be held nearby. A sentence may
link what stands elsewhere: a section, another page, or a cell, which is then compared by itself.

What a sentence reckons out, `64 · 32 · 32 = 65,536`, holds by itself, and must be right. Sections
named Sources, years, versions, section and issue numbers are no results. The rare number that comes
from elsewhere says so: `<span class="by-hand" title="why">1,234</span>`.
"""

import html
import json
import math
import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from markdown.extensions.toc import slugify

from book import measured
from book.figures.explorable import fence as explorable
from book.numerals import Numbers, Numeral, constants, numerals, results, wrong_sums
from literate.errors import Misread, name_of
from literate.fence import RUNS, SESSION, blank_out
from literate.project import PageText

DIGITS = 2  # written digits from which on a number is held
FEW = 2  # significant digits that chance finds on any page, so that they are held nearby alone:
BEFORE, AFTER = 6, 3  # by one of so many blocks and outputs
LARGEST = (65504.0, 2.0**128 * (1 - 2.0**-24))  # of float16 and of float32

YEAR = r"(?:19\d\d|20[0-3]\d)"
MONTHS = (  # in the language of the text, whatever that of the machine
    "January|February|March|April|May|June|July|August|September|October|November|December"
)
LIST = r"\d[\d.]*(?:(?:,|,? and|,? or)\s\d[\d.]*)*"
OPAQUE = (  # markup of which a reader gets no attribute
    r'<span class="by-hand" title="[^"]+">[^<]*</span>',
    r"<!--(?s:.*?)(?:-->|\Z)",
)
NOT_PROSE = (  # what is no prose: markup, addresses, code, and numbers that are names
    *OPAQUE,
    r"<[a-zA-Z/][^<>]*>",
    r"(?<=\])\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*",
    r"^ *\[[^\]\n^][^\]\n]*\]: +\S+",
    r"\[\^[^\]\n]+\]:?",
    r"https?://\S+",
    r"(?<![\^_])\{:? ?(?:[.#]|[a-z-]+=)[^{}\n]*\}",
    r"(?<!`)(?P<marks>`++)(?:[^`\n]|\n(?!\s*\n))+(?P=marks)",
    rf"\b(?:[Ss]ections?|[Cc]hapters?|[Ee]xercises?|[Aa]ppendix|[Vv]ersions?)\s{LIST}",
    rf"\b(?:Python|PyTorch|torch|IEEE|CC BY|Attribution|Llama|Debian)\s{LIST}",
    rf"\b{YEAR}s?-\d\d-\d\d\b|\b{YEAR}s\b",
    r"\bsince\s\d+\.\d[\d.]*",
    rf"\((?:[^()\d]*,\s)?{YEAR}(?=[),])",
    rf"\b\d\d? (?:{MONTHS})\b(?: {YEAR})?",
    rf"\b(?:in|of|since|until|by|{MONTHS})\s{YEAR}\b(?!,\d|\s(?!this\b|does\b)[a-z]{{3,}}s\b)",
)
MARKUP = re.compile("|".join(NOT_PROSE), re.MULTILINE)
# A number that is written in pieces, `1**3**` or `&#49;3`, which a reader sees as one; what code shows stays.
DIGIT = r"&#(?:4[89]|5[0-7]|x3\d);"
PIECES = re.compile(
    r"(?P<code>(?P<marks>`++)(?:[^`\n]|\n(?!\s*\n))+(?P=marks))"
    rf"|(?:\d|{DIGIT})*{DIGIT}(?:\d|{DIGIT})*"
    r"|\d+(?:[.,]\d+)*(?P<last>\*\*?)\d+(?:[.,]\d+)*(?P=last)\d*"
    r"|(?P<first>\*\*?)\d+(?:[.,]\d+)*(?P=first)\d+"
)
OPAQUE_MARKUP = re.compile("|".join(OPAQUE))
SPAN = re.compile(r"`+[^`A-Za-z]*\d(?:[^`A-Za-z]|(?<=\d)e(?=[-+]?\d))*`+")  # of code, numbers alone
TEXT_ATTRIBUTE = re.compile(r'\b(?:aria-label|aria-description|title|alt)="([^"]*)"')
HEADING = re.compile(r"(?P<level>#+) +(?:\d+\. +)?(?P<name>.*?)(?: +\{.*\})? *$")
APART = ("Sources", "Dates", "Versions")
EXPLORABLE = "attention"  # the label of its fence
CAPTION = re.compile(r"^caption:.*(?:\n +.*)*", re.MULTILINE)  # of an explorable
TEXT_OPTIONS = ("title", "caption", "varies")  # options of a fence that a reader sees as text
LINK = re.compile(r"\]\((?P<file>[^()\s#:]+\.(?:md|ipynb))(?:#[^()\s]*)?\)")
PLACE = re.compile(r"\]\((?P<file>[^()\s#:]+\.(?:md|ipynb))?(?:#(?P<anchor>[^()\s]*))?(?=[)\s])")
CELL = re.compile(r"\[(?P<text>[^\[\]]*)\]\(#(?P<name>[a-z][a-z_]*)(?P<index>(?:-\d+){2,})\)")
END_OF_DESC = "</desc>"  # ends the description of a drawing; its own words begin
PARAGRAPHS = re.compile(r"\f|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s|\n\s*\|")
SENTENCES = re.compile(r"(?<=[.?!])\s+(?=[A-Z*`(\[\"$])")
PICTURE = re.compile(r"<(?:svg|text|figcaption)\b")


class Source(NamedTuple):
    """What may hold numbers: a block or an output, by the line where it begins."""

    line: int
    numbers: Numbers
    ordered: bool = True  # a notebook is not: it shows tables as text and as HTML


# What no page need print: e, π, the largest numbers, and the scores from which on exp passes them.
CONSTANTS = Source(
    0, Numbers(more=(math.e, math.pi, *LARGEST, *map(math.log, LARGEST))), ordered=False
)


class Text(NamedTuple):
    """A page or a notebook: its prose, what may hold the numbers in it, and its figures with names."""

    lines: str
    sources: list[Source]
    figures: dict[str, str]
    folder: Path
    read: Callable[[Path], PageText]
    is_notebook: bool = False


def problems(page: PageText) -> list[Misread]:
    """Return what is wrong with the numbers in the prose of `page`: each that nothing holds."""
    return [Misread(line, what) for line, what in _complaints(text_of(page))]


def stale_in_notebook(path: Path, read: Callable[[Path], PageText]) -> list[str]:
    """Return the same, as lines, for the Markdown cells of a notebook, whose code and stored outputs hold the numbers."""
    places = [
        f"cell {number}, line {line}"
        for number, cell in enumerate(_cells(path), 1)
        for line in range(1, _text(cell).count("\n") + 3)
    ]
    complaints = _complaints(_of_notebook(path, read))
    return [f"{name_of(path)}: {places[line - 1]}: {what}" for line, what in complaints]


def quotes(page: PageText) -> bool:
    """Say whether the prose of `page` has a number that something must hold."""
    return any(one.digits >= DIGITS for one in numerals(_mask(_prose(page))))


class Paragraph(NamedTuple):
    """A paragraph, an item of a list or a row of a table: where it begins, and its text.

    `lines` has the links and `prose`, as long, blanks for all that is no prose.
    """

    text: Text
    line: int
    lines: str
    prose: str

    @property
    def quoted(self) -> list[Numeral]:
        """The numbers that something must hold."""
        return [one for one in numerals(self.prose) if one.digits >= DIGITS]

    def replaced(self, start: int, end: int, new: str) -> "Paragraph":
        """Return this paragraph with `new` for what stands from `start` to `end`."""
        lines, prose = (t[:start] + new + t[end:] for t in (self.lines, self.prose))
        return self._replace(lines=lines, prose=prose)

    def complaints(self) -> Iterator[tuple[int, str]]:
        """Yield (line, complaint) for each number that nothing holds, and each wrong equation."""
        sources = _outwards(self.text.sources, self.line)
        # The text of a picture or of a notebook stands before what computes it.
        everywhere = self.text.is_notebook or PICTURE.search(self.lines) is not None
        reached: dict[int, int] = {}  # of each source, by its line, the place of the last quoted
        earlier: set[float] = set()
        for start, end in _parts(SENTENCES, self.prose):
            sentence = Paragraph(
                self.text,
                self.line + self.prose.count("\n", 0, start),
                self.lines[start:end],
                self.prose[start:end],
            )
            if sentence.quoted:
                yield from sentence._unheld(sources, everywhere, reached, earlier)
                for what in wrong_sums(sentence.prose):
                    yield sentence.line, f"the text says {what}"

    def _unheld(
        self,
        sources: list[tuple[float, Source]],
        everywhere: bool,
        reached: dict[int, int],
        earlier: set[float],
    ) -> Iterator[tuple[int, str]]:
        """Yield (line, complaint) for each number of this sentence that `sources` do not hold."""
        reckoned = Source(0, Numbers(more=results(self.prose)), ordered=False)
        cells = list(CELL.finditer(self.lines))
        linked = _Linked(self)
        for one in self.quoted:
            line = self.line + self.prose.count("\n", 0, one.start)
            cell = next((c for c in cells if c.start() <= one.start < c.end()), None)
            within = math.inf if everywhere or one.significant > FEW else BEFORE
            known = [reckoned, CONSTANTS] if one.significant > FEW else [reckoned]
            near = (source for distance, source in sources if distance < within)
            source = next((s for s in chain(known, near, linked) if s.numbers.hold(one)), None)
            if cell:
                if wrong := _wrong_cell(self.text, cell, one):
                    yield line, wrong
            elif source is None or one.padded:
                yield line, self._nothing_holds(one)
            elif (
                source.ordered and one.value not in earlier
            ):  # one that is said again may be anywhere
                earlier.add(one.value)
                places = source.numbers.hold(one)
                at = next((at for at in places if at >= reached.get(source.line, 0)), None)
                if at is None:
                    where = f"the block or output on line {source.line}"
                    what = f"{one.text} comes too late: {where} has it before what was quoted last"
                    yield line, f"{what}; keep its order, or link the cell"
                else:
                    reached[source.line] = at

    def _nothing_holds(self, one: Numeral) -> str:
        known = Numbers(more=[v for s in self.text.sources for v, _ in s.numbers.pairs])
        nearby = "" if one.padded or not known.hold(one) else " nearby"
        what = f"{one.text} stands in no output or code{nearby}, nor where its sentence links"
        return f"{what}; nearest: {known.near(one.value)}"


class _Linked:
    """The sources of the places that a paragraph links. They are read only if no other holds a number."""

    def __init__(self, paragraph: Paragraph):
        self.paragraph = paragraph

    def __iter__(self) -> Iterator[Source]:
        yield from self.linked

    @cached_property
    def linked(self) -> list[Source]:
        text, linked = self.paragraph.text, []
        for link in PLACE.finditer(self.paragraph.lines):
            other = text
            if link["file"]:
                path = (text.folder / link["file"]).resolve()
                if not path.is_file():  # the build says so
                    continue
                other = _read(path, path.stat().st_mtime_ns, text.read)
            first, last = _section(other, link["anchor"] or "")
            # Their lines are not those of this page.
            linked += [s._replace(line=-s.line) for s in other.sources if first <= s.line <= last]
        return linked


def paragraphs(text: Text) -> Iterator[Paragraph]:
    """Yield the parts of a text whose numbers are held together."""
    prose = _mask(text.lines)
    for start, end in _parts(PARAGRAPHS, prose):
        line = prose.count("\n", 0, start) + 1
        yield Paragraph(text, line, text.lines[start:end], prose[start:end])


def _complaints(text: Text) -> Iterator[tuple[int, str]]:
    for paragraph in paragraphs(text):
        if paragraph.quoted:
            yield from paragraph.complaints()


def _parts(ends: re.Pattern, text: str) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of each part of `text` that `ends` divides."""
    cuts = [match.start() for match in ends.finditer(text)]
    return zip([0, *cuts], [*cuts, len(text)], strict=True)


def _outwards(sources: list[Source], line: int) -> list[tuple[float, Source]]:
    """Return the sources with their distances from `line`, nearest first; what follows is further."""
    before = [source for source in reversed(sources) if source.line <= line]
    after = [source for source in sources if source.line > line]
    step = BEFORE / AFTER
    distances = [
        *enumerate(before),
        *((step * (k + 0.75), source) for k, source in enumerate(after)),
    ]
    return sorted(distances, key=lambda pair: pair[0])


def _wrong_cell(text: Text, cell: re.Match, one: Numeral) -> str:
    index = tuple(int(number) for number in cell["index"][1:].split("-"))
    value = _cell_values(text.figures.get(cell["name"], "")).get(index)
    if value is not None and Numbers(more=[value]).hold(one):
        return ""
    shown = "is none" if value is None else f"shows {value:g}"
    return f"{one.text} links cell {list(index)} of the figure {cell['name']}, which {shown}"


def _cell_values(printed: str) -> dict[tuple[int, ...], float]:
    """Return the numbers of a printed tensor by their indices."""
    values: dict[tuple[int, ...], float] = {}
    index: list[int] = []
    for token in re.findall(r"[\[\]]|-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan)", printed):
        if token == "[":
            index.append(0)
        elif token == "]":
            index[-1:] = []
        elif index:
            values.setdefault(tuple(index), float(token))
        if index and token != "[":
            index[-1] += 1
    return values


def _section(text: Text, anchor: str) -> tuple[int, int]:
    """Return the first and last line of the section that `anchor` names, or in which it stands."""
    lines = text.lines.split("\n")
    heads = [
        (
            number,
            len(head["level"]),
            slugify(re.sub(r"\]\([^)]*\)|[*`\[\]]", "", head["name"]), "-"),
        )
        for number, line in enumerate(lines, 1)
        if (head := HEADING.match(line))
    ]
    # An anchor may also name something in a section, whose name it then begins with.
    around = [head for head in heads if head[2] and f"{anchor}-".startswith(f"{head[2]}-")]
    if not around:
        return 1, len(lines)
    number, level, _ = max(around, key=lambda head: len(head[2]))
    return number, next((n - 1 for n, k, _ in heads if n > number and k <= level), len(lines))


@lru_cache(maxsize=64)
def _read(path: Path, _saved: int, read: Callable[[Path], PageText]) -> Text:
    return _of_notebook(path, read) if path.suffix == ".ipynb" else text_of(read(path))


def _prose(page: PageText) -> str:
    """Return the text of `page` without its fences, but for their captions and titles, and without tables of labs."""
    lines = blank_out(page.fences, page.shown)
    lines = ["" if measured.numbers(line) else line for line in lines]
    for fence in page.fences:
        lines[fence.line - 1] = " ; ".join(fence.options.get(name, "") for name in TEXT_OPTIONS)
        if fence.language == EXPLORABLE and (caption := CAPTION.search(fence.text)):
            first = fence.line + fence.text.count("\n", 0, caption.start())
            rows = caption[0].split("\n")
            lines[first : first + len(rows)] = rows
    return "\n".join(lines)


def _mask(text: str) -> str:
    """Return `text` with blanks in place of all that is no prose, so that lines and columns stay."""
    lines, apart = [], 0
    for line in text.split("\n"):
        heading = HEADING.match(line)
        if heading and (not apart or len(heading["level"]) <= apart):
            apart = len(heading["level"]) if heading["name"] in APART else 0
        lines.append(" " * len(line) if apart else line)
    return MARKUP.sub(_blank, PIECES.sub(_joined, "\n".join(lines)))


def _joined(match: re.Match) -> str:
    """Return a number in one piece, and blanks for what it was put together with."""
    if match["code"]:
        return match[0]
    return html.unescape(match[0]).replace("*", "").ljust(len(match[0]))


def _blank(match: re.Match) -> str:
    """Return blanks in place of markup, and leave what a reader sees or hears of it."""
    if SPAN.fullmatch(match[0]):
        return match[0]
    blank = re.sub(r"[^\n]", " ", match[0])
    if match[0] == END_OF_DESC:
        return "\f" + blank[1:]
    if match[0][0] in "<{" and not OPAQUE_MARKUP.fullmatch(match[0]):
        for attribute in TEXT_ATTRIBUTE.finditer(match[0]):
            blank = blank[: attribute.start(1)] + attribute[1] + blank[attribute.end(1) :]
    return blank


def text_of(page: PageText) -> Text:
    """Return the prose of `page`, and what may hold the numbers in it."""
    sources, figures = [], {}
    for fence in page.fences:
        if fence.language in RUNS:
            numbers = Numbers(more=constants(fence.text))
        elif fence.language == EXPLORABLE:
            numbers = Numbers(cell.value for cell in explorable.computed_cells(fence.text))
        elif fence.language == SESSION:
            numbers = Numbers([fence.text])
        elif fence.language == "output":
            numbers = Numbers([fence.text])
            figures[fence.options.get("name", "")] = fence.text
        else:
            continue
        sources.append(Source(fence.line, numbers))
    for line, shown in enumerate(page.shown.split("\n"), 1):
        if texts := measured.numbers(shown):
            sources.append(Source(line, Numbers(texts), ordered=False))
    sources.sort(key=lambda source: source.line)
    return Text(_prose(page), sources, figures, page.path.parent, page.read)


def _of_notebook(path: Path, read: Callable[[Path], PageText]) -> Text:
    """Return a notebook as one text: each cell with a blank line after it, and blanks for code."""
    lines: list[str] = []
    sources: list[Source] = []
    for cell in _cells(path):
        line, source = len(lines) + 1, _text(cell)
        if cell["cell_type"] == "code":
            printed = [
                part
                for output in cell["outputs"]
                for part in (output.get("text", ""), *output.get("data", {}).values())
            ]
            texts = [re.sub(r"<[^<>]*>", " ", "".join(part)) for part in printed]
            sources.append(Source(line, Numbers(more=constants(source)), ordered=False))
            sources.append(Source(line, Numbers(texts), ordered=False))
            source = re.sub(r"[^\n]", "", source)
        lines += [*source.split("\n"), ""]
    return Text("\n".join(lines), sources, {}, path.parent, read, is_notebook=True)


def _text(cell: dict) -> str:
    return "".join(cell["source"])


def _cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]
