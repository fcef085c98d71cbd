"""Makes a lab a page of the book: Markdown, as a chapter is, from the cells of a notebook.

What a cell says in words stands as it was written, and the site's own Markdown draws it; code and what
it showed become HTML in the markup that chapters use, so one stylesheet, one script and one set of
checks serve both.

A notebook runs from its set-up to its result; a page answers first. So four tags of cells say what
goes where: the `finding` in words, one `figure` and one `table` follow the title, the code is folded,
and what the `machine` printed of itself stands at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import nbformat
from bs4 import BeautifulSoup, Tag
from markdown.util import BLOCK_LEVEL_ELEMENTS
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers.python import PythonLexer

from book.figures.heatmap import on_a_phone
from book.figures.lab_chart import dress
from book.figures.output import html as output_figure

FINDING, FIGURE, TABLE, MACHINE, SET_UP = "finding", "figure", "table", "machine", "setup"
PLACED = (FINDING, FIGURE, TABLE, MACHINE)
LIFTED = {FIGURE: 'class="lab-figure"', TABLE: 'class="lab-table'}  # by this they are known
SHOWN = re.compile(r'<figure\b|<table class="lab-table')  # what a reader stops at
# What is coloured in a lab's code, and how; an element for each token would be half of what a lab weighs.
COLOURS = {
    **dict.fromkeys(("k", "kn", "ow"), "k"),
    **dict.fromkeys(("s1", "s2", "sa", "si", "se"), "s2"),
    **{kind: kind for kind in ("c1", "sd", "nf", "nc")},
}
TOKEN = re.compile(r'<span class="(\w+)">([^<]*)</span>')
COUNTED = re.compile(r"[−-]?[\d.]")  # how a cell of a column of numbers begins
# Columns, and letters of a word in their names, that fit side by side on a phone.
MANY, SHORT = 7, 6
JOINT = re.compile(r"(?<=[a-z][._=])(?=\w)")
# What Markdown would read in lines of HTML, which it should pass on as they are.
LINES = re.compile(r"^ +(?=\n)|`|~|\t", re.MULTILINE)


class Cell(NamedTuple):
    """What a page shows of a cell: by its tags where, its `text` or its code, and what it showed."""

    tags: set[str]
    text: list[str]
    shown: list[str]


class LabError(ValueError):
    """A lab that cannot become a page: says what is wrong with it."""


def markdown(path: Path) -> str:
    """Return the notebook at `path` as the Markdown of a page.

    Raises:
        LabError: a cell holds what a page cannot show, or a tag is missing or given twice.
    """
    cells, drawings = [], count(1)
    for number, cell in enumerate(nbformat.read(path, 4).cells, 1):
        tags = set(cell.metadata.get("tags", []))
        try:
            if cell.cell_type == "code":
                cells.append(
                    Cell(tags, _folded(cell.source, tags), _outputs(cell.outputs, drawings))
                )
            else:
                cells.append(Cell(tags, [cell.source], []))
        except LabError as error:
            raise LabError(f"cell {number} {error}") from None
    return "\n\n".join(_answer_first(cells)) + "\n"


def _answer_first(cells: list[Cell]) -> list[str]:
    """Return the page's parts: title, what the tags place above, the other cells, the machine."""
    placed: dict[str, list[str]] = {}
    others = []
    for tags, text, shown in cells:
        if twice := placed.keys() & tags:
            raise LabError(f"two cells are tagged `{min(twice)}`")
        placed |= {tag: [_lift(shown, tag)] for tag in LIFTED if tag in tags}
        if FINDING in tags:
            section = '<section id="finding" markdown="1">'
            placed[FINDING], text = [section, *text, "</section>"], []
        if MACHINE in tags:
            placed[MACHINE], shown = shown, []
        others.append([*text, *shown])
    if missing := [tag for tag in PLACED if tag not in placed]:
        raise LabError(f"no cell is tagged `{missing[0]}`; a lab needs {', '.join(PLACED)}")
    title, *rest = others
    above = [placed[tag] for tag in (FINDING, FIGURE, TABLE)]
    return [part for parts in (title, *above, *rest, placed[MACHINE]) for part in parts]


def _lift(shown: list[str], tag: str) -> str:
    """Take the first figure or table out of what a cell showed."""
    for place, part in enumerate(shown):
        if LIFTED[tag] in part:
            return shown.pop(place)
    raise LabError(f"the cell tagged `{tag}` shows none")


def _folded(source: str, tags: set[str]) -> list[str]:
    """Return a cell's code in a box that one click opens; the set-up is the same in every lab."""
    source = source.strip()
    if not source:
        return []
    lines = source.count("\n") + 1
    about = " and the ".join(tag for tag in LIFTED if tag in tags)
    name, unsearched = f"Code of the {about} at the top" if about else "Code", ""
    if SET_UP in tags:
        leans = "names the machine" if MACHINE in tags else "the cells below lean on"
        name, unsearched = f"Set-up that {leans}", " data-search-exclude"
    return [
        _passed_on(
            f'<details class="folded"{unsearched}><summary>{name}, {lines} line{"s" * (lines != 1)}'
            '</summary><div class="language-python highlight"><pre><span></span>'
            f"<code>{_coloured(source)}</code></pre></div></details>"
        )
    ]


def _coloured(source: str) -> str:
    def colour(token: re.Match) -> str:
        kind = COLOURS.get(token[1])
        return f'<span class="{kind}">{token[2]}</span>' if kind else token[2]

    return TOKEN.sub(colour, highlight(source, PythonLexer(), HtmlFormatter(nowrap=True)))


def _outputs(outputs: list[dict], drawings: Iterator[int]) -> list[str]:
    """Return what a cell showed: text as outputs, drawings and tables as they are."""
    parts, printed = [], ""
    for output in outputs:
        data = output.get("data", {"text/plain": output.get("text")})
        if "text/html" in data:
            parts += [*_printed(printed), _passed_on(_shown(data["text/html"], drawings))]
            printed = ""
        elif data.keys() == {"text/plain"} and data["text/plain"] is not None:
            printed += data["text/plain"].rstrip("\n") + "\n"
        else:
            shown = ", ".join(data) if "data" in output else output["output_type"]
            raise LabError(f"shows {shown}; wanted text, or HTML with a text for each image")
    return parts + _printed(printed)


def _printed(text: str) -> list[str]:
    return [_passed_on(output_figure(text, {}))] if text else []


def _shown(html: str, drawings: Iterator[int]) -> str:
    """Return a drawing, a table or an image; whatever is drawn must also be said."""
    shown = BeautifulSoup(html, "html.parser")
    for unwanted in shown(["style", "script"]):
        unwanted.decompose()
    for image in shown.select("img"):
        if not image.get("alt"):
            raise LabError(
                "shows an image that has no text for those who cannot see it; give it an alt"
            )
    for own in shown.select("div[style*=overflow]"):
        own.unwrap()
    _fit_tables(shown)
    for table in shown.select("table.heatmap"):
        rows = table.select("tbody > tr")
        cells = [[cell.get_text() for cell in row.select("td")] for row in rows]
        kind, style = on_a_phone(cells, [row.th.get_text() for row in rows if row.th])
        if kind:
            table["class"], table["style"] = f"heatmap {kind}", style
    for svg, number in zip(shown.select("svg"), drawings, strict=False):
        svg["role"] = str(svg.get("role", "img"))
        dress(svg)
        # Matplotlib repeats its ids from plot to plot.
        numbered = re.sub(r'( id="|href="#|url\(#)', rf"\1drawing-{number}-", str(svg))
        svg.replace_with(BeautifulSoup(numbered, "html.parser"))
    first = next((node.name for node in shown.contents if isinstance(node, Tag)), "")
    # Markdown passes on a block; what may stand in a sentence it would read.
    text = str(shown).strip()
    return text if first in BLOCK_LEVEL_ELEMENTS else f"<div>{text}</div>"


def table(html: str) -> str:
    """Return a table of a lab as pages show it."""
    shown = BeautifulSoup(html, "html.parser")
    _fit_tables(shown)
    return str(shown)


def _fit_tables(shown: BeautifulSoup) -> None:
    for table in shown.select("table.lab-table"):
        table.wrap(BeautifulSoup().new_tag("div", attrs={"class": "book-scroll"}))
        _tell_words(table)


def _tell_words(table: Tag) -> None:
    """Mark the cells of each column that holds words; numbers, the other columns, stand to the right.

    The long name of a row, such as nn.MultiheadAttention, gets places where its line may end; the long
    names of many columns stand upright on a phone.
    """
    lines = [row.find_all(["th", "td"]) for row in table.select("tr")]
    if not lines:
        return
    head, *rows = lines
    if len(head) >= MANY and max(len(word) for name in head for word in name.text.split()) > SHORT:
        table["class"] = "lab-table upright"
    for name, *cells in zip(head, *rows, strict=False):
        named = [cell for cell in cells if cell.name == "th" and re.search("[a-z]", cell.text)]
        if named or 2 * sum(bool(COUNTED.match(cell.text)) for cell in cells) < len(cells):
            for cell in (name, *cells):
                cell["class"] = "words"
        for cell in named:
            parts = JOINT.split(cell.text)
            cell.clear()
            for number, part in enumerate(parts):
                cell.extend([BeautifulSoup().new_tag("wbr"), part] if number else [part])


def _passed_on(html: str) -> str:
    """Return `html` so that Markdown passes it on as it is."""
    return LINES.sub(lambda match: f"&#{ord(match[0][0])};" + match[0][1:], html)
