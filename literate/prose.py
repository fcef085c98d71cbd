"""Hold the numbers of prose against what the page prints and computes with.

A number of three significant digits or more, in text, a caption or a formula, must stand in an
output, the code or the options of its page, or of a page that its sentence links, rounded to the
digits it shows; a share may be said in percent. What a sentence reckons out, `64 · 32 · 32 = 65,536`,
holds by itself. Sections named Sources, years, versions, section and issue numbers are no results.
The rare number that comes from elsewhere says so: `<span class="by-hand" title="why">1,234</span>`.
"""

import json
import math
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from literate.fence import OUTPUTS, without
from literate.numerals import Numbers, numerals, results
from literate.page import Page, name_of, read

DIGITS = 3  # significant digits from which on a number is held
LARGEST = (65504.0, 2.0**128 * (1 - 2.0**-24))  # of float16 and of float32
# What no page need print: e, π, the largest numbers, and the scores from which on exp passes them.
CONSTANTS = (math.e, math.pi, *LARGEST, *map(math.log, LARGEST))

YEAR = r"(?:19\d\d|20[0-3]\d)"
MONTHS = (  # in the language of the book, whatever that of the machine
    "January|February|March|April|May|June|July|August|September|October|November|December"
)
LIST = r"\d[\d.]*(?:(?:,| and|, and)\s\d[\d.]*)*"
HIDDEN = (  # from whom prose is told: markup, addresses, code, and numbers that are names
    r'<span class="by-hand" title="[^"]+">[^<]*</span>',
    r"<!--(?s:.*?)(?:-->|\Z)",
    r"<[a-zA-Z/][^<>]*>",
    r"(?<=\])\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\s+\"[^\"]*\")?\)",
    r"^ *\[[^\]\n]+\]: .*$",
    r"https?://\S+",
    r"(?<![\^_])\{:? ?(?:[.#]|[a-z]+=)[^{}\n]*\}",
    r"(?<!`)(?P<marks>`++)(?:[^`\n]|\n(?!\s*\n))+(?P=marks)",
    rf"\b(?:[Ss]ections?|[Cc]hapters?|[Ee]xercises?|[Aa]ppendix|[Vv]ersions?)\s{LIST}",
    rf"\b(?:Python|PyTorch|torch|Debian|IEEE)\s{LIST}",
    rf"\((?:[^()\d]*,\s)?{YEAR}(?=[),])",
    rf"\b(?:in|of|since|until|by|{MONTHS})\s{YEAR}\b(?!,\d)",
)
MARKUP = re.compile("|".join(HIDDEN), re.MULTILINE)
SPAN = re.compile(r"`+[-−]?[\d.,_]*\d(?:[eE][-+]?\d+)?`+")  # of code, and a number no less
HEADING = re.compile(r"(#+) +(?P<apart>(?:\d+\. +)?(?:Sources|Dates|Versions)\b)?")
CAPTION = re.compile(r"^caption:.*$", re.MULTILINE)
LINK = re.compile(r"\]\((?P<file>[^()\s#:]+\.(?:md|ipynb))(?:#[^()\s]*)?\)")
ENDS = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s|\n\s*\||(?<=[.?!])\s+(?=[A-Z*`(\[\"$])")


def stale(page: Page) -> list[str]:
    """Return a line for each number in the prose of `page` that nothing holds, at `page.md:line`."""
    found = _complaints(_prose(page), _of_page(page), page.path.parent)
    return [f"{page.name}:{line}: {what}" for line, what in found]


def stale_in_notebook(path: Path) -> list[str]:
    """Return the same for the Markdown cells of a lab, held by its code and its stored outputs."""
    known = _of_notebook(path)
    return [
        f"{name_of(path)}: cell {number}, line {line}: {what}"
        for number, cell in enumerate(_cells(path), 1)
        if cell["cell_type"] == "markdown"
        for line, what in _complaints("".join(cell["source"]), known, path.parent)
    ]


def quotes(page: Page) -> bool:
    """Say whether there is a number to hold in the prose of `page`."""
    return any(one.significant >= DIGITS for one in numerals(_mask(_prose(page))))


def _complaints(text: str, known: Numbers, folder: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, complaint) for each number of `text` that is neither known nor reckoned out."""
    prose = _mask(text)
    ends = [match.start() for match in ENDS.finditer(prose)]
    line = 1
    for start, end in zip([0, *ends], [*ends, len(prose)], strict=True):
        sentence = prose[start:end]
        quoted = [one for one in numerals(sentence) if one.significant >= DIGITS]
        reckoned = Numbers(more=(*CONSTANTS, *results(sentence))) if quoted else known
        for one in quoted:
            links = (folder / link["file"] for link in LINK.finditer(text, start, end))
            sources = chain((known, reckoned), map(_linked, links))
            if not any(source.hold(one) for source in sources):
                what = f"{one.text} stands in no output or code of this page, nor of one that its"
                near = f"sentence links; nearest: {known.near(one.value)}"
                yield line + sentence.count("\n", 0, one.start), f"{what} {near}"
        line += sentence.count("\n")


def _prose(page: Page) -> str:
    """Return the text of `page` without its fences, but for their captions."""
    lines = without(page.fences, page.text)
    for fence in page.fences:
        lines[fence.line - 1] = fence.options.get("caption", "")
        if fence.language == "attention" and (caption := CAPTION.search(fence.text)):
            lines[fence.line + fence.text.count("\n", 0, caption.start())] = caption[0]
    return "\n".join(lines)


def _mask(text: str) -> str:
    """Return `text` with blanks for what is no prose, each line and column where it was."""
    lines, apart = [], 0
    for line in text.split("\n"):
        heading = HEADING.match(line)
        if heading and (not apart or len(heading[1]) <= apart):
            apart = len(heading[1]) if heading["apart"] else 0
        lines.append(" " * len(line) if apart else line)
    return MARKUP.sub(_blank, "\n".join(lines))


def _blank(match: re.Match) -> str:
    return match[0] if SPAN.fullmatch(match[0]) else re.sub(r"[^\n]", " ", match[0])


def _of_page(page: Page) -> Numbers:
    texts = [block.code for block in page.blocks]
    for fence in page.fences:
        texts += [option for name, option in fence.options.items() if name != "caption"]
        if fence.language in OUTPUTS:
            texts.append(CAPTION.sub("", fence.text))
    return Numbers(texts)


def _of_notebook(path: Path) -> Numbers:
    texts = []
    for cell in _cells(path):
        if cell["cell_type"] == "code":
            texts.append("".join(cell["source"]))
            for output in cell["outputs"]:
                printed = [output.get("text", ""), *output.get("data", {}).values()]
                texts += [re.sub(r"<[^<>]*>", " ", "".join(part)) for part in printed]
    return Numbers(texts)


def _cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def _linked(path: Path) -> Numbers:
    if not path.is_file():  # the build says so
        return Numbers()
    return _of_notebook(path) if path.suffix == ".ipynb" else _of_page(read(path))
