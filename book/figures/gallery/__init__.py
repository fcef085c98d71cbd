"""A gallery: a printed table of models as one that links each word to its chapter, and draws what each layer is.

Imports nothing but the standard library: a page that is run in a browser is drawn by this, too.
"""

from __future__ import annotations

import re
from html import escape

from book.figures import FigureError

OPTIONS: dict[str, dict] = {}
TEXT = "The table as it was printed"

COLUMNS = 10
REFUSED = ("name", "family", "year", "published", "why")
# What a letter of the column `layers` stands for, and the word of the chapter.
KINDS = {"F": "full", "W": "window", "L": "latent", "M": "memory"}
# How a word of the column `attention` begins, and the chapter that explains it, seen from another part of the book.
CHAPTERS = {
    "multi-head": "../correctness/multi-head.html",
    "grouped": "../cache/grouped-query.html",
    "one key head": "../cache/grouped-query.html",
    "window": "../positions/masks.html#a-window-at-work",
    "latent": "../cache/latent-attention.html",
    "memory": "../memories/gated-memory.html",
    "sinks": "../memories/gates-and-sinks.html",
    "gate": "../memories/gates-and-sinks.html",
    "QK-norm": "../memories/gates-and-sinks.html",
    "softcap": "../memories/gates-and-sinks.html",
    "stretched": "../positions/stretching.html",
}
HEAD = (
    ("Model", "text"),
    ("Year", "number"),
    ("Weights, 10⁹", "number"),
    ("Layers", "number"),
    ("Attention", "text"),
    ("Bytes a token", "number"),
    ("MiB at 131,072", "number"),
    ("GB a step", "number"),
)


def check(text: str, options: dict[str, str]) -> None:
    """Raise FigureError where a line of `text` is no row of a gallery."""
    read(text)


def read(text: str) -> list[list[str]]:
    """Return the cells of each row but the first, which names the columns.

    A row has COLUMNS cells, or those of REFUSED, where a model could not be described.
    """
    rows = [[cell.strip() for cell in line.split(" | ")] for line in text.strip("\n").split("\n")]
    for number, cells in enumerate(rows, 1):
        if len(cells) not in (COLUMNS, len(REFUSED)):
            wanted = f"{COLUMNS} cells, or {len(REFUSED)}: {', '.join(REFUSED)}"
            raise FigureError(f"line {number} of the fence: wanted {wanted}, got {len(cells)}")
        if number > 1 and len(cells) == COLUMNS and set(cells[5]) - KINDS.keys():
            raise FigureError(
                f"line {number} of the fence: layers of {'/'.join(KINDS)}: {cells[5]}"
            )
    return rows[1:]


def html(text: str, options: dict[str, str]) -> str:
    """Return a printed table of models as a table that a script may sort and filter."""
    rows = read(text)
    most = max((_number(cells[8]) for cells in rows if len(cells) == COLUMNS), default=1)
    head = "".join(f'<th scope="col" data-by="{by}">{name}</th>' for name, by in HEAD)
    body = "".join(_row(cells, most) for cells in rows)
    return f'<div class="gallery"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def file(name: str) -> str:
    """Return the name of the file with the facts of a model, without its suffix."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower())


def _row(cells: list[str], most: float) -> str:
    """One model. Its attributes are what the script filters by."""
    name, family, year, weights = cells[:4]
    title = f'<th scope="row"><a href="models/{file(name)}.json">{escape(name)}</a></th>'
    if len(cells) != COLUMNS:
        said = f'<td colspan="5" class="refused">{escape(cells[4])}</td>'
        kinds, rest = "refused", f"{_cell(HEAD[2][0], weights.removesuffix('B'))}{said}"
    else:
        met, layers, attention, more, cache, step = cells[4:]
        kinds = " ".join(word for letter, word in KINDS.items() if letter in layers)
        bar = f'<i class="bar" style="--share:{_number(cache) / most:.3f}"></i>'
        rest = (
            _cell(
                HEAD[2][0], weights if met == weights else f"{weights} <small>{met} a token</small>"
            )
            + _cell(HEAD[3][0], f"{len(layers)} {_strip(layers)}")
            + _cell(HEAD[4][0], ", ".join(map(_linked, attention.split(", "))))
            + _cell(HEAD[5][0], more)
            + _cell(HEAD[6][0], cache + bar)
            + _cell(HEAD[7][0], step)
        )
    said = f'data-family="{escape(family)}" data-year="{year}" data-kind="{kinds}"'
    size = f'data-size="{_number(weights.removesuffix("B"))}"'
    return f"<tr {said} {size}>{title}{_cell(HEAD[1][0], year)}{rest}</tr>"


def _cell(name: str, content: str) -> str:
    return f'<td data-name="{name}">{content}</td>'


def _linked(word: str) -> str:
    """A word of the column `attention`, as a link to its chapter."""
    chapter = next((CHAPTERS[begin] for begin in CHAPTERS if word.startswith(begin)), None)
    return f'<a href="{chapter}">{escape(word)}</a>' if chapter else escape(word)


def _strip(layers: str) -> str:
    """The kinds of all layers, the first at the left, as a strip; in words, how many of each there are."""
    words = ", ".join(f"{layers.count(one)} {KINDS[one]}" for one in dict.fromkeys(layers))
    runs = [(match[0][0], match.start(), len(match[0])) for match in re.finditer(r"(.)\1*", layers)]
    paths = {
        kind: "".join(f"M{at} 0h{count}v1h-{count}z" for one, at, count in runs if one == kind)
        for kind in dict.fromkeys(layers)
    }
    drawn = "".join(f'<path class="{KINDS[kind]}" d="{path}"/>' for kind, path in paths.items())
    box = f'viewBox="0 0 {len(layers)} 1" preserveAspectRatio="none"'
    return f'<svg role="img" aria-label="{words}" {box}>{drawn}</svg> <small>{words}</small>'


def _number(text: str) -> float:
    return float(text.replace(",", ""))
