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
DASHES = (None, (4, 2), (1, 1.6), (6, 2, 1, 2), (8, 3), (2, 2))
MARKERS = "sD^vxP"
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
}
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
        said, label = _label(text[done : opening.start()])
        parts += [part for part in (said, Tensor(label, shape, cells)) if part]
        done = end
    rest = text[done:].strip("\n")
    return [*parts, rest] if rest.strip() else parts


def _read_brackets(text: str, start: int) -> tuple[list, int]:
    """Read nested brackets of numbers; return them with the position after the last one."""
    open_lists: list[list] = []
    position = start
    while True:
        token = TOKEN.match(text, position)
        if token is None:
            came = text[position : position + 12].split("\n")[0]
            raise DrawingError(f"a heatmap is made of numbers, got {came!r}")
        position = token.end()
        match token["token"]:
            case "[":
                inner: list = []
                if open_lists:
                    open_lists[-1].append(inner)
                open_lists.append(inner)
            case "]":
                closed = open_lists.pop()
                if not open_lists:
                    return closed, position
            case ",":
                pass
            case "...":
                raise DrawingError(
                    "a heatmap needs every number, got a tensor abbreviated with '...'"
                )
            case number:
                open_lists[-1].append(number)


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
    said = "\n".join(lines).strip("\n")
    return (said if said.strip() else ""), label.strip().rstrip(":=").rstrip()


def heatmaps(text: str, rows: str = "", cols: str = "") -> str:
    """Draw each 2-D slice of each tensor in `text` as a table; other text stays text.

    Args:
        text: what a block printed.
        rows, cols: words that label rows and columns, separated by spaces; by default, indices.

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
        for index, cells in part.slices():
            drawn.append(heat_table(cells, row_names, column_names, _title(part, index)))
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


def heat_table(cells: list[list[str]], rows: list[str], cols: list[str], title: str) -> str:
    """A table of printed cells, each shaded by its value, with its scale in the caption."""
    shade, key = _scale([cell for row in cells for cell in row])
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in cols)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(map(shade, row))}</tr>'
        for name, row in zip(rows, cells, strict=True)
    )
    body = body.replace(
        "<td", '<td tabindex="0"', 1
    )  # one tab stop a table; arrow keys do the rest
    return (
        f'<div class="heat"><table class="heatmap"><caption>{escape(title)} <span class="key">{key}</span></caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _scale(cells: list[str]) -> tuple[Callable[[str], str], str]:
    """Choose how values become shades: a function from a cell to its `<td>`, and the key to it.

    Shade runs from 0 to the largest magnitude, with a second hue for negative numbers. Where all
    values are alike and far from 0, as unscaled scores are, it runs from the smallest instead.
    """
    finite = [cell for cell in cells if math.isfinite(number(cell))]
    values = [number(cell) for cell in finite]
    low_text, low, high_text, high = "0", 0.0, "0", 0.0
    if values:
        high_text, high = max(
            zip((cell.lstrip("-") for cell in finite), map(abs, values), strict=True),
            key=lambda pair: pair[1],
        )
        if min(values) < 0:
            low_text = f"-{high_text}"
        elif min(values) > high / 2 and min(values) < high:
            low_text, low = min(zip(finite, values, strict=True), key=lambda pair: pair[1])

    hidden = _hidden(cells)

    def shade(cell: str) -> str:
        value = number(cell)
        if math.isnan(value):
            return f'<td class="q">{cell}</td>'
        if cell in hidden:
            return f'<td class="z">{cell}</td>'
        share = (
            1.0 if math.isinf(value) else (abs(value) - low) / (high - low) if high > low else 0.0
        )
        kind = ' class="n"' if value < 0 else ""
        return f'<td{kind} style="--v:{share:.2f}">{cell}</td>'.replace("--v:0.", "--v:.")

    return shade, _key(cells, values, low_text, high_text)


def _hidden(cells: list[str]) -> list[str]:
    """Return the texts that are hatched: −∞ where it occurs, else what prints as zero or False."""
    if "-inf" in cells:
        return ["-inf"]
    return list(dict.fromkeys(cell for cell in cells if cell == "False" or ZERO.match(cell)))


def _key(cells: list[str], values: list[float], low_text: str, high_text: str) -> str:
    """The printed scale: what the palest and the deepest shade stand for, and what is hatched."""
    if set(cells) <= {"True", "False"}:
        parts = ['<i class="bar full"></i> True']
    elif values and min(values) < 0 < max(values):
        parts = [f'{low_text} <i class="bar both"></i> {high_text}']
    elif values and min(values) < 0:
        parts = [f'{low_text} <i class="bar n"></i> 0']
    elif number(low_text) == number(high_text):
        parts = [low_text]  # one shade
    else:
        parts = [f'{low_text} <i class="bar"></i> {high_text}']
    hatched = dict.fromkeys(cell.replace("-0", "0") for cell in _hidden(cells))
    parts += [f'<i class="hatch"></i> {cell}' for cell in hatched]
    parts += ['<i class="odd"></i> nan'] if "nan" in cells else []
    return " ".join(f"<span>{part}</span>" for part in parts)


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
        found = f"{len(cells)} numbers in {' '.join(cells)!r}"
        raise DrawingError(f"line {line} of the fence: chart has {count} names, but {found}")
    for cell in cells:
        if not NUMBER.fullmatch(cell) or (cell is cells[0] and cell[-1] in "fn"):
            raise DrawingError(f"line {line} of the fence: chart is made of numbers, got {cell!r}")
    return [float(cell.replace(",", "")) for cell in cells]


def chart(text: str) -> str:
    """Draw a printed table as a line chart: inline SVG in the colours of the page.

    Raises:
        DrawingError: the text is no table of numbers.
    """
    table = read_table(text)
    return f'<div class="chart">{_svg(table)}</div>'


def _log(values: list[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= LOG_FROM


def _words(table: Table) -> str:
    """The chart in words, for those who cannot see it."""
    x, *series = table.columns
    name, *names = table.names
    ends = "; ".join(
        f"{label} goes from {y[0]:g} to {y[-1]:g}" for label, y in zip(names, series, strict=True)
    )
    return f"Line chart against {name}, from {x[0]:g} to {x[-1]:g}: {ends}."


def _svg(table: Table) -> str:
    from matplotlib import rc_context  # here, so that a page without charts never pays for it
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    x, *series = table.columns
    with rc_context(CHART):  # type: ignore[arg-type]
        figure = Figure(figsize=(5, 2.9), layout="constrained", frameon=False)
        FigureCanvasSVG(figure)
        axes = figure.add_subplot(frameon=True)
        axes.patch.set_visible(False)
        for order, y in enumerate(series):
            y = [value if math.isfinite(value) else math.nan for value in y]  # a gap
            (line,) = axes.plot(x, y, marker=MARKERS[order % 6], markersize=4, clip_on=False)
            line.set(color=f"#00ff{order + 1:02x}", linewidth=1.6)
            line.set_dashes(DASHES[order % 6] or (None, None))
        _dress(axes, table)
        if len(series) > 1:
            sizes = [len(name) + 8 for name in table.names[1:]]  # a name, and its line before it
            columns = len(sizes) if sum(sizes) <= 62 else max(1, 62 // max(sizes))
            figure.legend(
                axes.lines,
                table.names[1:],
                loc="outside upper left",
                ncols=columns,
                frameon=False,
            )
        file = io.StringIO()
        figure.savefig(
            file, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    return _slim(file.getvalue(), _words(table))


def _dress(axes, table: Table) -> None:
    x, *series = table.columns
    every = [value for y in series for value in y if math.isfinite(value)]
    logs = {"x": _log(x), "y": bool(every) and _log(every)}
    if logs["x"]:
        axes.set_xscale("log", base=2)
        axes.set_xticks(
            x[:: math.ceil(len(x) / 9)], [f"{value:g}" for value in x[:: math.ceil(len(x) / 9)]]
        )
    if logs["y"]:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: _tick(value))
    axes.minorticks_off()
    axes.set_xlabel(table.names[0] + (" (log scale)" if logs["x"] else ""))
    name = table.names[1] if len(series) == 1 else ""
    axes.set_ylabel((f"{name} (log scale)" if name else "log scale") if logs["y"] else name)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#00ff00", linewidth=0.6)
    axes.tick_params(length=0)


def _tick(value: float) -> str:
    """A power of ten as a reader writes it: 0.00001, 10, 1e+08."""
    return f"{value:.6f}".rstrip("0").rstrip(".") if 1e-6 <= value < 1 else f"{value:g}"


def _slim(svg: str, words: str) -> str:
    """Keep what draws: no ids, which would repeat on a page, no clips, the page's font and colours."""
    svg = svg[svg.index("<svg") :]
    shapes = dict(re.findall(r'<path id="(\w+)" d="([^"]*)"', svg))
    shapes = {name: re.sub(r"\s+", " ", path).strip() for name, path in shapes.items()}
    svg = re.sub(r"<metadata>.*?</metadata>|<defs>.*?</defs>|<!--.*?-->", "", svg, flags=re.S)

    def marker(use: re.Match) -> str:
        place = dict(re.findall(r'(\w+)="([-\d.]+)"', use[0]))
        style = re.search(r'style="([^"]*)"', use[0])
        drawn = f' style="{style[1]}"' if style else ""
        return (
            f'<path d="{shapes[use[1]]}" transform="translate({place["x"]} {place["y"]})"{drawn}/>'
        )

    svg = re.sub(r'<use xlink:href="#(\w+)"[^>]*/>', marker, svg)
    svg = re.sub(
        r'<path d="(?:M 0 0 L 0 [-\d.]+|M 0 0 L [-\d.]+ 0)" [^>]*/>', "", svg
    )  # ticks of no length
    svg = re.sub(r' (?:id|xmlns:xlink|xmlns|version|clip-path|width|height)="[^"]*"', "", svg)
    svg = re.sub(
        r"font-family:[^;\"]*;?\s*|\s*transform=\"rotate\(-0 [^\"]*\"|stroke-dashoffset: 0;?\s*",
        "",
        svg,
    )
    svg = re.sub(
        r"#00ff(0[1-9a-f])", lambda found: f"var(--line-{(int(found[1], 16) - 1) % 4 + 1})", svg
    )
    svg = svg.replace("#00ff00", "var(--line-grid)").replace("#000000", "currentColor")
    svg = re.sub(
        r"<[^>]+>", lambda tag: re.sub(r"(\d\.\d)\d+", r"\1", tag[0]), svg
    )  # never the text
    svg = re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><")
    while (
        fewer := re.sub(r"<g[^>]*></g>|<g/>|<g>((?:<(?:text|path)(?:(?!</?g).)*))</g>", r"\1", svg)
    ) != svg:
        svg = fewer
    return svg.strip().replace("<svg", f'<svg role="img" aria-label="{escape(words)}"', 1)
