"""A heatmap: each printed tensor as a table, whose cells are shaded by what they say.

It is parsed from the very text that the checker compares, so it cannot show a number that the code beside it
does not print. Imports nothing but the standard library: a page that is run in a browser is drawn by this, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import product

from book.figures import FigureError

OPTIONS: dict[str, dict] = {
    "plain": {"flag": True},
    "rows": {},
    "cols": {},
    "name": {"form": re.compile(r"[a-z][a-z_]*$"), "words": "a word in small letters"},
}
TEXT = "Exact text"

# What a heatmap names for its labels, an expression and the words that it gives.
LABELS = re.compile(r"= (?P<expression>.+?):(?: (?P<words>.*)|$)")
OPENING = re.compile(r"(?P<call>tensor\()?(?=\[\[)")
TOKEN = re.compile(
    r"\s*(?P<token>[\[\],]|True|False|\.\.\.|[-+]?(?:inf|nan|\d+\.?\d*(?:e[-+]?\d+)?)(?=[\s,\]]))"
)
CLOSING = re.compile(r"(?:,\s*\w+=(?:\([^)]*\)|[^,()]+))*\)")
ZERO = re.compile(r"-?0*\.?0*(?:e[-+]?\d+)?$")
ROOM = 44  # letters of a map's cells that fit beside each other on a phone
FEW = 4  # rows of a wide map that a phone shows as columns


@dataclass(frozen=True)
class Tensor:
    """A printed tensor of two or more dimensions: its label, its shape, and its cells as text."""

    label: str
    shape: tuple[int, ...]
    cells: list

    def slices(self) -> Iterator[tuple[tuple[int, ...], list[list[str]]]]:
        """Yield `(index, rows)` for each 2-D slice; the index of a 2-D tensor is empty."""
        for index in product(*map(range, self.shape[:-2])):
            rows = self.cells
            for position in index:
                rows = rows[position]
            yield index, rows


def read_tensors(text: str) -> list[str | Tensor]:
    """Split printed text into plain text and the tensors of two or more dimensions in it.

    Raises:
        FigureError: a tensor is abbreviated with "...", ragged, or not made of numbers.
    """
    parts, done = [], 0
    for opening in OPENING.finditer(text):
        if opening.start() < done:
            continue
        try:
            cells, end = _read_brackets(text, opening.end())
            shape = _shape(cells)
        except FigureError:
            if opening["call"]:
                raise
            continue  # two brackets in a sentence are a sentence
        if opening["call"]:
            closing = CLOSING.match(text, end)
            end = closing.end() if closing else end
        words, label = _label(text[done : opening.start()])
        parts += [part for part in (words, Tensor(label, shape, cells)) if part]
        done = end
    rest = text[done:].strip("\n")
    return [*parts, rest] if rest.strip() else parts


def _read_brackets(text: str, start: int) -> tuple[list, int]:
    """Read nested brackets of numbers; return them with the position after the last one."""
    opened: list[list] = []
    position = start
    while True:
        token = TOKEN.match(text, position)
        if token is None:
            came = text[position : position + 12].split("\n")[0]
            raise FigureError(f"a heatmap is made of numbers, got {came!r}")
        position, word = token.end(), token["token"]
        if word == "...":
            raise FigureError("a heatmap needs every number, got a tensor abbreviated with '...'")
        if word == "[":
            opened.append([])
        elif word == "]":
            closed = opened.pop()
            if not opened:
                return closed, position
            opened[-1].append(closed)
        elif word != ",":
            opened[-1].append(word)


def _shape(cells: list | str) -> tuple[int, ...]:
    """Shape of nested lists, which must be rectangular and hold something."""
    if isinstance(cells, str):
        return ()
    inner = {_shape(item) for item in cells}
    if len(inner) != 1:
        raise FigureError(
            "a heatmap needs rows of one length, got " + " and ".join(map(str, inner))
        )
    return (len(cells), *inner.pop())


def _label(text: str) -> tuple[str, str]:
    """Split what was printed before a tensor into earlier lines and the label of the tensor."""
    *lines, label = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not label.strip() and lines and lines[-1].rstrip().endswith(":"):
        label = lines.pop()
    words = "\n".join(lines).strip("\n")
    return (words if words.strip() else ""), label.strip().rstrip(":=").rstrip()


def check(text: str, options: dict[str, str]) -> None:
    """Raise FigureError where `text` holds no tensor, or the labels do not fit one."""
    html(text, options)


def html(text: str, options: dict[str, str]) -> str:
    """Return each 2-D slice of each tensor in `text` as a table; other text stays text.

    Options:
        rows, cols: words that label rows and columns, separated by spaces; by default, indices.
        name: what links call the figure: `#name-2-3` is its cell [2, 3].
        plain: zeros are numbers like the others, and not hatched as masked ones are.

    Raises:
        FigureError: there is no such tensor, or the labels do not fit one.
    """
    rows, cols = (labels_of(options.get(key, "")) for key in ("rows", "cols"))
    name, plain = options.get("name", ""), "plain" in options
    parts = read_tensors(text)
    if not any(isinstance(part, Tensor) for part in parts):
        raise FigureError("heatmap wants a printed tensor of two or more dimensions, got none")
    drawn = []
    for part in parts:
        if isinstance(part, str):
            drawn.append(f'<pre class="said">{escape(part, quote=False)}</pre>')
            continue
        row_names, column_names = (
            _names(words, count, option, part.shape)
            for option, words, count in zip(
                ("rows", "cols"), (rows, cols), part.shape[-2:], strict=True
            )
        )
        slices = list(part.slices())
        together = [row for _, cells in slices for row in cells]
        for index, cells in slices:
            place = "-".join([name, *map(str, index)]) if name else ""
            title = _title(part, index)
            names = row_names, column_names
            drawn.append(heat_table(cells, *names, title, place, plain, together))
    return f'<div class="heats">{"".join(drawn)}</div>'


def labels_of(option: str) -> str:
    """Return the labels that `option`, the `rows` or `cols` of a heatmap, shows."""
    match = LABELS.fullmatch(option)
    return match["words"] or "" if match else option


def _names(words: str, count: int, option: str, shape: tuple[int, ...]) -> list[str]:
    names = words.split() or [str(position) for position in range(count)]
    if len(names) != count:
        raise FigureError(
            f'{option}="{words}" gives {len(names)} labels, but the tensor of shape {shape} '
            f"has {count} {'rows' if option == 'rows' else 'columns'}"
        )
    return names


def _title(tensor: Tensor, index: tuple[int, ...]) -> str:
    size = " × ".join(map(str, tensor.shape[-2:]))
    place = f"[{', '.join(map(str, index))}]" if index else ""
    return f"{tensor.label}{place}" if tensor.label else f"{size} tensor{place}"


def number(cell: str) -> float:
    """The value of a printed cell: True is 1, False is 0."""
    return float(cell == "True") if cell in ("True", "False") else float(cell)


def heat_table(
    cells: list[list[str]],
    rows: list[str],
    cols: list[str],
    title: str,
    name: str = "",
    plain: bool = False,
    together: list[list[str]] | None = None,
) -> str:
    """A table of printed cells, each shaded by its value, with its scale in the caption.

    Cell [2, 3] of a table that has a name can be linked to: `#name-2-3`. The scale is that of the rows
    `together`, those of all tables that one compares with this one; by default that of `cells`.
    """
    shade, key = _scale(together or cells, plain, [cell for row in cells for cell in row])
    head = "".join(f'<th scope="col">{escape(label)}</th>' for label in cols)
    body = "".join(
        f'<tr><th scope="row">{escape(label)}</th>{"".join(map(shade, row))}</tr>'
        for label, row in zip(rows, cells, strict=True)
    )
    # One tab stop a table; arrow keys do the rest.
    body = body.replace("<td", '<td tabindex="0"', 1)
    if name:
        places = product(range(len(rows)), range(len(cols)))
        body = re.sub("<td", lambda _: '<td id="{}-{}-{}"'.format(name, *next(places)), body)
    kind, style = on_a_phone(cells, rows)
    shape = f' {kind}" style="{style}' if kind else ""
    return (
        f'<div class="heat"><table class="heatmap{shape}"><caption>{escape(title)} <span class="key">{key}</span></caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def on_a_phone(cells: list[list[str]], rows: list[str]) -> tuple[str, str]:
    """Return the class and the style of a map by which a phone shows it whole; ("", "") where it fits.

    A wide map of few rows is `turned`: each of its columns is a line. Another one is `dense`: its cells
    are small and without numbers, one of which is shown at a time.
    """
    across = len(cells[0])
    if across * (max(len(cell) for row in cells for cell in row) + 0.5) <= ROOM:
        return "", ""
    if len(rows) <= FEW:
        return "turned", f"--lines:{across};--rows:{len(rows)}"
    return "dense", f"--name:{max(map(len, rows))}"


def _are_weights(rows: list[list[str]]) -> bool:
    """Say whether each row holds shares that sum to 1, as far as they are printed, or nothing but zeros."""
    sums = set()
    for row in rows:
        unit = 10.0 ** -min(len(cell.partition(".")[2]) for cell in row)
        values = [number(cell) for cell in row]
        if len(row) == 1 or not all(0 <= value <= 1 for value in values):
            return False
        sums.add(1 if abs(sum(values) - 1) <= len(row) * unit / 2 else sum(values))
    return 1 in sums and sums <= {0, 1}


def _scale(
    rows: list[list[str]], plain: bool, cells: list[str]
) -> tuple[Callable[[str], str], str]:
    """Choose how values become shades: a function from a cell to its `<td>`, and the key to `cells`.

    Attention weights are shaded from 0 to 1, so that two maps of them can be compared. All else runs from
    0 to the largest magnitude in `rows`, with a second hue for negative numbers; where all values are alike
    and far from 0, as unscaled scores are, from the smallest instead. What prints as False, or as zero in a
    table that is not `plain`, is hatched, unless −∞ is there, which is then.
    """
    finite = [cell for row in rows for cell in row if math.isfinite(number(cell))] or ["0"]
    least = min(finite, key=number)
    top = max((cell.lstrip("-") for cell in finite), key=number)
    base = least if number(top) / 2 < number(least) < number(top) else "0"
    if _are_weights(rows):
        base, top = "0", "1"
    low, high = number(base), number(top)
    empty = [cell for cell in cells if cell == "False" or (not plain and ZERO.match(cell))]
    hatched = dict.fromkeys(["-inf"] if "-inf" in cells else empty)

    def shade(cell: str) -> str:
        value = number(cell)
        if math.isnan(value):
            return f'<td class="q">{cell}</td>'
        if cell in hatched:
            return f'<td class="z">{cell}</td>'
        share = (abs(value) - low) / (high - low) if high > low else 0.0
        share = 1.0 if math.isinf(value) else share
        kind = ' class="n"' if value < 0 else ""
        return f'<td{kind} style="--v:{share:.2f}">{cell}</td>'.replace("--v:0.", "--v:.")

    if set(cells) <= {"True", "False"}:
        key = ['<i class="bar full"></i> True']
    elif number(least) < 0:
        both = max(map(number, finite)) > 0
        key = [
            f'-{top} <i class="bar both"></i> {top}' if both else f'-{top} <i class="bar n"></i> 0'
        ]
    else:
        key = [f'{base} <i class="bar"></i> {top}' if low < high else base]
    key += [
        f'<i class="hatch"></i> {cell}'
        for cell in dict.fromkeys(cell.replace("-0", "0") for cell in hatched)
    ]
    key += ['<i class="odd"></i> nan'] if "nan" in cells else []
    return shade, " ".join(f"<span>{part}</span>" for part in key)
