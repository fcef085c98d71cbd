"""Draws printed numbers: tensors as heatmaps, tables as line charts.

Text in, HTML out. A figure is parsed from the very text that the checker compares, so it cannot
show a number that the code beside it does not print. Nothing here imports torch.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import product

OPENING = re.compile(r"(?P<call>tensor\()?(?=\[\[)")
TOKEN = re.compile(
    r"\s*(?P<token>[\[\],]|True|False|\.\.\.|[-+]?(?:inf|nan|\d+\.?\d*(?:e[-+]?\d+)?)(?=[\s,\]]))"
)
CLOSING = re.compile(r"(?:,\s*\w+=(?:\([^)]*\)|[^,()]+))*\)")
ZERO = re.compile(r"-?0*\.?0*(?:e[-+]?\d+)?$")
DASHES = ((None, None), (4, 2), (1, 1.6), (6, 2, 1, 2), (8, 3), (2, 2))
LINES = ("-s", "-D", "-^", "-v", "-x", "-P")  # each with its marker
RULE = re.compile(r"(?:[\s|+:]*[-=]{2,})+[\s|+:]*|\s*")  # a line under a table's names, or nothing
NUMBER = re.compile(
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[-+]?\d{1,2})?|[-+]?(?:inf|nan)",
    re.ASCII,
)
# Names are drawn as they are printed, be they $y_$ or _loss.
CHART = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attention",
    "font.size": 10,
    "text.parse_math": False,
    "figure.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#00ff00",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}
DRAWS = ("d", "x", "y", "transform", "style")  # the attributes that say where, and how
LINK = "{http://www.w3.org/1999/xlink}href"
ROOM = 44  # letters of a map's cells that fit beside each other on a phone
FEW = 4  # rows of a wide map that a phone shows as columns
LETTERS = 12.0  # points from a name at the end of a line to the next
LOG_FROM = 50.0  # an axis whose values span this factor is drawn on a log scale


class DrawingError(ValueError):
    """The text cannot be drawn as asked: the message says what came and what was wanted."""


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


# ------------------------------------------------------------------------------------ heatmaps


def read_tensors(text: str) -> list[str | Tensor]:
    """Split printed text into plain text and the tensors of two or more dimensions in it.

    Raises:
        DrawingError: a tensor is abbreviated with "...", ragged, or not made of numbers.
    """
    parts, done = [], 0
    for opening in OPENING.finditer(text):
        if opening.start() < done:
            continue
        try:
            cells, end = _read_brackets(text, opening.end())
            shape = _shape(cells)
        except DrawingError:
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
            raise DrawingError(f"a heatmap is made of numbers, got {came!r}")
        position, word = token.end(), token["token"]
        if word == "...":
            raise DrawingError("a heatmap needs every number, got a tensor abbreviated with '...'")
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
        raise DrawingError(
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


def heatmaps(text: str, rows: str = "", cols: str = "", name: str = "", plain: bool = False) -> str:
    """Draw each 2-D slice of each tensor in `text` as a table; other text stays text.

    Args:
        text: what a block printed.
        rows, cols: words that label rows and columns, separated by spaces; by default, indices.
        name: what links call the figure: `#name-2-3` is its cell [2, 3].
        plain: zeros are numbers like the others, and not hatched as masked ones are.

    Raises:
        DrawingError: there is no such tensor, or the labels do not fit one.
    """
    parts = read_tensors(text)
    if not any(isinstance(part, Tensor) for part in parts):
        raise DrawingError("heatmap wants a printed tensor of two or more dimensions, got none")
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


def _names(words: str, count: int, option: str, shape: tuple[int, ...]) -> list[str]:
    names = words.split() or [str(position) for position in range(count)]
    if len(names) != count:
        raise DrawingError(
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


# -------------------------------------------------------------------------------------- charts


@dataclass(frozen=True)
class Table:
    """A printed table of numbers: the names of its columns, and the columns."""

    names: list[str]
    columns: list[list[float]]


def read_table(text: str) -> Table:
    """Read a printed table: a line of names, then lines of numbers; the first column is x.

    Names may hold single spaces where columns stand two or more spaces apart.

    Raises:
        DrawingError: "line N of the fence: …", where a line has another count of columns, or holds
            something that is no number.
    """
    lines = [
        (number, line.replace("|", "  ").strip())
        for number, line in enumerate(text.split("\n"), 1)
        if not RULE.fullmatch(line)
    ]
    if len(lines) < 3:
        raise DrawingError(
            f"chart wants a line of names and two or more of numbers, got {len(lines)} lines"
        )
    names = re.split(r"\s{2,}|\t", lines[0][1])
    if len(names) != len(lines[1][1].split()):
        names = lines[0][1].split()
    if len(names) < 2:
        raise DrawingError(f"chart wants two or more columns, got {len(names)}: {names[0]!r}")
    rows = [_row(number, line.split(), len(names)) for number, line in lines[1:]]
    return Table(names, [list(column) for column in zip(*rows, strict=True)])


def _row(line: int, cells: list[str], count: int) -> list[float]:
    """Read one line of a table; the first number is where it stands in the chart."""
    if len(cells) != count:
        given = f"{len(cells)} numbers in {' '.join(cells)!r}"
        raise DrawingError(f"line {line} of the fence: chart has {count} names, but {given}")
    for cell in cells:
        if not NUMBER.fullmatch(cell) or (cell is cells[0] and cell[-1] in "fn"):
            raise DrawingError(f"line {line} of the fence: chart is made of numbers, got {cell!r}")
    return [float(cell.replace(",", "")) for cell in cells]


def _log(values: list[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= LOG_FROM


def _words(table: Table, x_name: str, y_name: str) -> str:
    """The chart in words, for those who cannot see it."""
    x, *series = table.columns
    _, *names = table.names
    ends = "; ".join(
        f"{label} goes from {y[0]:g} to {y[-1]:g}" for label, y in zip(names, series, strict=True)
    )
    return f"Line chart of {y_name} against {x_name}, from {x[0]:g} to {x[-1]:g}: {ends}."


def chart(text: str, x_name: str = "", y_name: str = "") -> str:
    """Draw a printed table as a line chart: inline SVG in the colours of the page.

    Args:
        text: what a block printed.
        x_name, y_name: what the axes count, with the unit; by default, the names of the first column, and
            of the second where there is no third.

    Raises:
        DrawingError: the text is no table of numbers, or nothing says what several lines count.
    """
    table = check_chart(text, y_name)
    x_name, y_name = x_name or table.names[0], y_name or table.names[1]
    words = _words(table, x_name, y_name)
    try:
        import matplotlib  # noqa: F401 - here, so that a page without charts never pays for it
    except ImportError:  # in a reader's browser
        svg = _plain(table, x_name, y_name, words)
    else:
        svg = _slim(_drawn(table, x_name, y_name), words)
    return f'<div class="chart">{svg}</div>'


def _plain(table: Table, x_name: str, y_name: str, words: str) -> str:
    from book.figures import plain_chart

    dashes = [dash if dash[0] else () for dash in DASHES]
    logs, axes = _logs(table), (x_name, y_name)
    drawn = plain_chart.draw(table.names, table.columns, logs, axes, dashes, _apart)
    box = f"0 0 {plain_chart.WIDTH:g} {plain_chart.HEIGHT:g}"
    return f'<svg role="img" aria-label="{escape(words)}" viewBox="{box}">{drawn}</svg>'


def _drawn(table: Table, x_name: str, y_name: str) -> str:
    """Return the SVG of a line chart, as Matplotlib draws it."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    x, *series = table.columns
    with rc_context(CHART):  # type: ignore[arg-type]
        figure = Figure(figsize=(5, 2.9), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        for order, y in enumerate(series):
            y = [value if math.isfinite(value) else math.nan for value in y]  # a gap
            (line,) = axes.plot(
                x, y, LINES[order % 6], color=f"#00ff{order + 1:02x}", clip_on=False
            )
            line.set_dashes(DASHES[order % 6])
        _dress(axes, table, x_name, y_name)
        if len(series) > 1:
            _name_lines(axes, table.names[1:])
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _logs(table: Table) -> tuple[bool, bool]:
    """Say whether x, and whether the others, are drawn on a log scale."""
    x, *series = table.columns
    every = [value for y in series for value in y if math.isfinite(value)]
    return _log(x), bool(every) and _log(every)


def check_chart(text: str, y_name: str) -> Table:
    """Read the table of a chart; raise DrawingError where it cannot be drawn."""
    table = read_table(text)
    if len(table.names) > 2 and not y_name:
        lines = " and ".join(table.names[1:])
        raise DrawingError(f'nothing says what {lines} count; wanted y="…", with the unit')
    return table


def _dress(axes, table: Table, x_name: str, y_name: str) -> None:
    x = table.columns[0]
    logs = dict(zip("xy", _logs(table), strict=True))
    if logs["x"]:
        axes.set_xscale("log", base=2)
        ticks = x[:: math.ceil(len(x) / 9)]
        axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
    if logs["y"]:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: _tick(value))
    axes.minorticks_off()
    axes.set_xlabel(x_name + (" (log scale)" if logs["x"] else ""))
    axes.set_ylabel(y_name + (" (log scale)" if logs["y"] else ""))


def _name_lines(axes, names: list[str]) -> None:
    """Write the name of each line at its end, apart from the other names."""
    axes.figure.draw_without_rendering()  # which gives the axes their place
    points = 72 / axes.figure.dpi
    ends = []
    for line, name in zip(axes.lines, names, strict=True):
        drawn = [point for point in line.get_xydata().tolist() if math.isfinite(point[1])]
        if drawn:
            ends.append((line, name, drawn[-1]))
    heights = [axes.transData.transform(end)[1] * points for *_, end in ends]
    for (line, name, end), height, place in zip(ends, heights, _apart(heights), strict=True):
        axes.annotate(
            name,
            end,
            (6, place - height),
            textcoords="offset points",
            va="center",
            color=line.get_color(),
            annotation_clip=False,
        )


def _apart(heights: list[float]) -> list[float]:
    """Return heights that lie a line of letters apart, each as near as can be to that of `heights`."""
    groups: list[list[int]] = []

    def middle(group: list[int]) -> float:
        return sum(heights[i] for i in group) / len(group)

    for i in sorted(range(len(heights)), key=heights.__getitem__):
        group = [i]
        while groups and middle(group) - middle(groups[-1]) < LETTERS * len(groups[-1] + group) / 2:
            group = groups.pop() + group
        groups.append(group)
    placed = [0.0] * len(heights)
    for group in groups:
        for rank, i in enumerate(group):
            placed[i] = middle(group) + LETTERS * (rank - (len(group) - 1) / 2)
    return placed


def _tick(value: float) -> str:
    """A power of ten as a reader writes it: 0.00001, 10, 1,000,000, 1e+12."""
    if 1 <= value < 1e10:
        return f"{value:,.0f}"
    return f"{value:.6f}".rstrip("0").rstrip(".") if 1e-6 <= value < 1 else f"{value:g}"


def _slim(svg: str, words: str) -> str:
    """Keep what draws, text and paths: no ids, which would repeat on a page, its font and colours."""
    from xml.etree import ElementTree

    root = ElementTree.fromstring(svg)
    marks = {
        f"#{path.get('id')}": path.get("d", "") for path in root.iterfind(".//{*}defs/{*}path")
    }
    drawn = ""
    for element in root.iter():
        kind, given = element.tag.partition("}")[2], dict(element.items())
        if kind == "use":
            place = f"translate({given.pop('x')} {given.pop('y')})"
            kind, given = "path", {"d": marks[given[LINK]], "transform": place} | given
        if kind in ("text", "path") and "id" not in given:
            values = {name: _on_page(given[name]) for name in DRAWS if name in given}
            attributes = "".join(f' {name}="{value}"' for name, value in values.items() if value)
            inner = escape(element.text or "", quote=False)
            drawn += f"<{kind}{attributes}>{inner}</{kind}>" if inner else f"<{kind}{attributes}/>"
    box = f'viewBox="{root.get("viewBox")}"'
    return f'<svg role="img" aria-label="{escape(words)}" {box}>{drawn}</svg>'


def _on_page(value: str) -> str:
    """An attribute in the page's colours, which light and dark schemes change, to a tenth of a unit."""
    value = re.sub(r"font-family:[^;]*;?|stroke-dashoffset: 0;|rotate\(-0 .*", "", value)
    value = value.replace("#00ff00", "var(--line-grid)").replace("#000000", "currentColor")
    value = re.sub(
        r"#00ff(..)", lambda line: f"var(--line-{(int(line[1], 16) - 1) % 4 + 1})", value
    )
    return " ".join(re.sub(r"(\d\.\d)\d+", r"\1", value).split())
