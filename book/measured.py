"""A chapter shows a table of a lab by one line, which stands alone between empty lines:

    [table: One step of writing](../labs/steps.ipynb "on NVIDIA H200; rows 64 | 8,192; columns with a cache")

The caption of the table begins with the text. What stands in quotes may be left out, and so may each part of it: the
device, where the lab ran on two, and the rows and columns, by their names. Any viewer of Markdown shows a link to the
lab. The site and the checks read the table from the stored notebook, with the machine and the day under it; a page that
is taken away holds it as Markdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from literate.errors import Misread

BEGINS = re.compile(r"\s*(?:[>*+-] +)*\[table: ")
LINE = re.compile(
    r'\[table: (?P<caption>.+)\]\((?P<file>[^()\s"]+\.ipynb)(?: "(?P<parts>[^"]+)")?\) *'
)
FORM = 'a table stands alone between empty lines, as [table: caption](../labs/name.ipynb "rows A | B; columns C")'
FIGURE = '<div class="measured">'
PART = re.compile(r" *(?P<name>on|rows|columns) +(?P<value>.+?) *")
DEVICE = re.compile(r"On (.+)")  # what tools/labs.py writes above the outputs of a second device


class Table(NamedTuple):
    """A table that a cell showed, and on which device; "" is the processor."""

    device: str
    caption: str
    rows: list[list[str]]  # the first one names the columns; the first of each names the row


class Measured(NamedTuple):
    """What a chapter shows: a table, and where its numbers come from."""

    table: Table
    machine: str
    day: str
    lab: str  # its title
    file: str


def inlined(text: str, folder: Path) -> str:
    """Return the `text` of a page in `folder` with each table of a lab in the place of the line that shows it.

    Raises Misread where a line shows none, or in another form.
    """
    lines = text.split("\n")
    for at, line in enumerate(text.split("\n")):
        if FIGURE in line:
            raise Misread(at + 1, f"a table of a lab is read from its notebook; {FORM}")
        if BEGINS.match(line):
            around = [*lines[at - 1 : at], *lines[at + 1 : at + 2]]
            if not LINE.fullmatch(line) or any(one.strip() for one in around):
                raise Misread(at + 1, FORM)
            try:
                lines[at] = _html(_measured(line, folder))
            except ValueError as error:
                raise Misread(at + 1, str(error)) from None
    return "\n".join(lines)


def numbers(line: str) -> list[str]:
    """Return the texts whose numbers a line of a page holds once its table is in it; none for another line."""
    return re.findall(r">([^<>]+)<", line) if line.startswith(FIGURE) else []


def taken(line: str, folder: Path) -> str:
    """Return what stands for a line of a page in `folder` where the page is taken away: a table in Markdown."""
    if not LINE.fullmatch(line):
        return line
    shown = _measured(line, folder)
    head, *rows = [[cell.replace("|", "\\|") for cell in row] for row in shown.table.rows]
    marks = ["---", *["---:"] * (len(head) - 1)]
    under = f"*{_under(shown)} [{shown.lab}]({shown.file}).*"
    table = [f"| {' | '.join(row)} |" for row in (head, marks, *rows)]
    return "\n".join([f"*{shown.table.caption}*", "", *table, "", under])


def files(text: str) -> list[str]:
    """Return the notebooks whose tables the `text` of a page shows, as its lines name them."""
    return [line["file"] for one in text.split("\n") if (line := LINE.fullmatch(one))]


def _under(shown: Measured) -> str:
    return f"Measured on {shown.machine}, on {shown.day}, in the lab"


def _html(shown: Measured) -> str:
    """Return a figure as one line: the table as its lab shows it, and where its numbers come from."""
    from book import lab  # imported late: most pages show no table

    head, *rows = shown.table.rows
    names = "".join(f'<th scope="col">{escape(name, quote=False)}</th>' for name in head)
    body = ""
    for name, *cells in rows:
        values = "".join(f"<td>{escape(cell, quote=False)}</td>" for cell in cells)
        body += f'<tr><th scope="row">{escape(name, quote=False)}</th>{values}</tr>'
    caption = f"<caption>{escape(shown.table.caption, quote=False)}</caption>"
    table = lab.table(
        f'<table class="lab-table">{caption}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>'
    )
    page = shown.file.removesuffix(".ipynb") + ".html"
    link = f'<a href="{page}">{escape(shown.lab, quote=False)}</a>'
    under = f"{escape(_under(shown), quote=False)} {link}."
    return f"{FIGURE}{table}<p>{under}</p></div>"


def _measured(line: str, folder: Path) -> Measured:
    """Return what a line shows. Raises ValueError where its lab, its table or a part of it is not there."""
    match = LINE.fullmatch(line)
    assert match
    parts: dict[str, str] = {}
    for part in filter(None, (match["parts"] or "").split(";")):
        said = PART.fullmatch(part)
        if not said or said["name"] in parts:
            raise ValueError(f"wanted on, rows and columns, each once; found `{part.strip()}`")
        parts[said["name"]] = said["value"]
    path = folder / match["file"]
    if not path.is_file():
        labs = sorted(one.name for one in path.parent.glob("*.ipynb"))
        raise ValueError(
            f"{match['file']}: there is no such lab; in its folder: {', '.join(labs) or 'nothing'}"
        )
    notebook = json.loads(path.read_text(encoding="utf-8"))
    try:
        table = _chosen([*_tables(notebook)], match["caption"], parts.get("on"))
        table = _selected(table, parts.get("rows"), parts.get("columns"))
        machine, day = _machine(notebook, table.device)
    except ValueError as error:
        raise ValueError(f"{match['file']}: {error}") from None
    return Measured(table, machine, day, notebook["metadata"]["title"], match["file"])


def _shown(cells: list[dict]) -> Iterator[tuple[str, dict]]:
    """Yield each output of the `cells`, with the device that it was made on."""
    for cell in cells:
        device = ""
        for output in cell.get("outputs", []):
            if heading := DEVICE.fullmatch(_text(output.get("data", {}).get("text/plain", ""))):
                device = heading[1]
            else:
                yield device, output


def _text(source: str | list[str]) -> str:
    return "".join(source)  # which the format of notebooks keeps as one text, or by lines


def _tables(notebook: dict) -> Iterator[Table]:
    for device, output in _shown(notebook["cells"]):
        html = _text(output.get("data", {}).get("text/html", ""))
        if '<table class="lab-table">' in html:
            table = ElementTree.fromstring(html).find("table")
            assert table is not None
            rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
            yield Table(device, table.findtext("caption", ""), rows)


def _chosen(tables: list[Table], caption: str, device: str | None) -> Table:
    """Return the table whose caption begins so: that of the `device`, or of the first one that has it."""
    named = [one for one in tables if one.caption.startswith(caption)]
    first = named[0].device if named and device is None else device
    found = [one for one in named if one.device == first]
    if len(found) != 1:
        where = "" if device is None else f" on {device}"
        have = "; ".join(dict.fromkeys(one.caption for one in tables)) or "none"
        what = "no table" if not found else "more than one table"
        raise ValueError(f"{what}{where} has a caption that begins `{caption}`; it has: {have}")
    return found[0]


def _selected(table: Table, rows: str | None, columns: str | None) -> Table:
    """Return the `table` with some of its rows and columns, in the order in which they are named."""
    head, *body = table.rows
    across = _places(head[1:], columns, "column")
    down = _places([row[0] for row in body], rows, "row")
    kept = [head, *(body[place] for place in down)]
    return table._replace(rows=[[row[0], *(row[place + 1] for place in across)] for row in kept])


def _places(names: list[str], wanted: str | None, what: str) -> list[int]:
    if wanted is None:
        return [*range(len(names))]
    chosen = [name.strip() for name in wanted.split("|")]
    for name in chosen:
        if names.count(name) != 1:
            raise ValueError(f"no {what} is named `{name}`; the {what}s are {' | '.join(names)}")
    return [names.index(name) for name in chosen]


def _machine(notebook: dict, device: str) -> tuple[str, str]:
    """Return the name of the machine that a lab was run on, and the day."""
    cells = [one for one in notebook["cells"] if "machine" in one["metadata"].get("tags", [])]
    for on, output in _shown(cells):
        if on == device:
            lines = (line.split(maxsplit=1) for line in _text(output["text"]).splitlines())
            said = dict(line for line in lines if len(line) == 2)
            return device or said["processor"], said["date"]
    raise ValueError(f"no cell says on which machine {device or 'it'} was measured")
