"""A chart: a printed table of numbers as lines, in SVG whose colours are the page's.

Imports nothing but the standard library: a page that is run in a browser is drawn by this, too.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape

from book.figures import FigureError

OPTIONS: dict[str, dict] = {"x": {}, "y": {}}
TEXT = "The numbers"

RULE = re.compile(r"(?:[\s|+:]*[-=]{2,})+[\s|+:]*|\s*")  # a line under a table's names, or nothing
NUMBER = re.compile(
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[-+]?\d{1,2})?|[-+]?(?:inf|nan)",
    re.ASCII,
)
LOG_FROM = 50.0  # an axis whose values span this factor is drawn on a log scale

WIDTH, HEIGHT = 360.0, 208.8
TOP, BOTTOM = 8.0, 174.0
LETTER = 6.4  # the width of one, about, in the largest size that a style gives it
LINE_HEIGHT = 12.0  # from the name of a line to the next
MOST_TICKS = 7
COLOURS = 6  # of lines, which the styles name
# How the lines are told apart beside their colours: dashes, and a mark at each number.
DASHES = ("", "6.4 3.2", "1.6 2.6", "9.6 3.2 1.6 3.2", "12.8 4.8", "3.2 3.2")
MARKS = (
    "m-2-2h4v4h-4z",
    "m0-2.8l2.8 2.8-2.8 2.8-2.8-2.8z",
    "m0-2.4l2.4 4.4h-4.8z",
    "m0 2.4l2.4-4.4h-4.8z",
    "m-2-2l4 4m0-4l-4 4",
    "m0-2.8v5.6m-2.8-2.8h5.6",
)


@dataclass(frozen=True)
class Table:
    """A printed table of numbers: the names of its columns, and the columns."""

    names: list[str]
    columns: list[list[float]]


# ------------------------------------------------------------------------------------- reading


def check(text: str, options: dict[str, str]) -> None:
    """Raise FigureError where `text` is no table, or nothing says what several lines count."""
    table = read_table(text)
    if len(table.names) > 2 and not options.get("y"):
        lines = " and ".join(table.names[1:])
        raise FigureError(f'nothing says what {lines} count; wanted y="…", with the unit')


def read_table(text: str) -> Table:
    """Read a printed table: a line of names, then lines of numbers; the first column is x.

    Names may hold single spaces where columns stand two or more spaces apart.

    Raises:
        FigureError: "line N of the fence: …", where a line has another count of columns, or holds
            something that is no number.
    """
    lines = [
        (number, line.replace("|", "  ").strip())
        for number, line in enumerate(text.split("\n"), 1)
        if not RULE.fullmatch(line)
    ]
    if len(lines) < 3:
        raise FigureError(
            f"chart wants a line of names and two or more of numbers, got {len(lines)} lines"
        )
    names = re.split(r"\s{2,}|\t", lines[0][1])
    if len(names) != len(lines[1][1].split()):
        names = lines[0][1].split()
    if len(names) < 2:
        raise FigureError(f"chart wants two or more columns, got {len(names)}: {names[0]!r}")
    rows = [_row(number, line.split(), len(names)) for number, line in lines[1:]]
    return Table(names, [list(column) for column in zip(*rows, strict=True)])


def _row(line: int, cells: list[str], count: int) -> list[float]:
    """Read one line of a table; the first number is where it stands in the chart."""
    if len(cells) != count:
        given = f"{len(cells)} numbers in {' '.join(cells)!r}"
        raise FigureError(f"line {line} of the fence: chart has {count} names, but {given}")
    for cell in cells:
        if not NUMBER.fullmatch(cell) or (cell is cells[0] and cell[-1] in "fn"):
            raise FigureError(f"line {line} of the fence: chart is made of numbers, got {cell!r}")
    return [float(cell.replace(",", "")) for cell in cells]


# ------------------------------------------------------------------------------------- drawing


def html(text: str, options: dict[str, str]) -> str:
    """Return a printed table as a line chart. Its options name what the axes count, with the unit.

    Raises:
        FigureError: as `check` does.
    """
    check(text, options)
    table = read_table(text)
    x_name = options.get("x") or table.names[0]
    y_name = options.get("y") or table.names[1]
    words = escape(_words(table, x_name, y_name))
    lines = _lines(table, x_name, y_name)
    svg = f'<svg role="img" aria-label="{words}" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" font-size="10">'
    return f'<div class="chart">{svg}{lines}</svg></div>'


def _words(table: Table, x_name: str, y_name: str) -> str:
    """The chart in words, for those who cannot see it."""
    x, *series = table.columns
    ends = "; ".join(
        f"{name} goes from {y[0]:g} to {y[-1]:g}"
        for name, y in zip(table.names[1:], series, strict=True)
    )
    return f"Line chart of {y_name} against {x_name}, from {x[0]:g} to {x[-1]:g}: {ends}."


class Axis:
    """Where values stand from `begin` to `end`, and the numbers written beside them."""

    def __init__(self, values: list[float]) -> None:
        self.log = bool(values) and min(values) > 0 and max(values) / min(values) >= LOG_FROM
        scaled = [math.log10(value) if self.log else value for value in values] or [0.0]
        low, high = min(scaled), max(scaled)
        room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
        self.low, self.high = low - room, high + room
        self.begin, self.end = BOTTOM, TOP

    def at(self, value: float) -> float:
        share = ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)

    def ticks(self) -> dict[float, str]:
        """Round numbers within this axis, as they are written, about MOST_TICKS of them."""
        about = (self.high - self.low) / MOST_TICKS
        if self.log:
            powers = range(math.floor(self.low), math.ceil(self.high))
            digits = (1, 2, 5) if about < 0.4 else (1,)
            found = [digit * 10.0**power for power in powers for digit in digits]
            found = [value for value in found if self.low <= math.log10(value) <= self.high]
            return {value: _number(value) for value in found[:: math.ceil(about)]}
        power = math.floor(math.log10(about))
        step = next(nice for nice in (1, 2, 2.5, 5, 10) if nice * 10.0**power >= about * (1 - 1e-9))
        places = max(0, -power + (step == 2.5) - (step == 10))
        step *= 10.0**power
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        values = [step * n for n in range(first, last + 1)]
        large = max(map(abs, values)) >= 1e10 or places > 6
        return {value: f"{value:g}" if large else f"{value:,.{places}f}" for value in values}


def _number(value: float) -> str:
    """A number as a reader writes it: 0.00001, 10, 1,000,000, 1e+12."""
    if 1 <= value < 1e10:
        return f"{value:,.0f}"
    return f"{value:.6f}".rstrip("0").rstrip(".") if 1e-6 <= value < 1 else f"{value:g}"


def _lines(table: Table, x_name: str, y_name: str) -> str:
    """Return what the SVG of a chart holds: axes, and the lines of all columns but the first."""
    x, *series = table.columns
    names = table.names[1:] if len(series) > 1 else [""]
    across = Axis(x)
    up = Axis([value for y in series for value in y if math.isfinite(value)])
    heights = up.ticks()
    across.begin = 24 + LETTER * max(map(len, heights.values()))
    across.end = max(WIDTH / 2, WIDTH - 8 - LETTER * max(map(len, names)))
    drawn = _axes(across, up, heights, x)
    middle = (across.begin + across.end) / 2
    drawn += _text(middle, HEIGHT - 5, x_name + " (log scale)" * across.log, "middle")
    title = y_name + " (log scale)" * up.log
    middle = max((TOP + BOTTOM) / 2, LETTER * len(title) / 2)
    drawn += _text(10, middle, title, "middle", f' transform="rotate(-90 10 {middle:g})"')
    ends = []
    for order, (y, name) in enumerate(zip(series, names, strict=True)):
        points = [(across.at(a), up.at(b)) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
        if points:
            drawn += _line(across, up, x, y, order)
            ends.append((*points[-1], name, f"var(--line-{order % COLOURS + 1})"))
    heights_apart = _apart([height for _, height, *_ in ends])
    for (right, _, name, colour), height in zip(ends, heights_apart, strict=True):
        if name:
            drawn += _text(right + 6, height + 3.5, name, "start", f' style="fill:{colour}"')
    return drawn


def _line(across: Axis, up: Axis, x: list[float], y: list[float], order: int) -> str:
    """Draw the numbers of a column, joined by a line. What is not finite leaves a gap."""
    path = marks = ""
    joins = False
    for a, b in zip(x, y, strict=True):
        if finite := math.isfinite(b):
            place = f"{across.at(a):g} {up.at(b):g}"
            path += f"{'L' if joins else 'M'}{place}"
            marks += f"M{place}{MARKS[order % len(MARKS)]}"
        joins = finite
    colour, dashes = f"var(--line-{order % COLOURS + 1})", DASHES[order % len(DASHES)]
    dashed = f";stroke-dasharray:{dashes}" if dashes else ""
    return (
        f'<path d="{path}" style="fill:none;stroke:{colour};stroke-width:1.6{dashed}"/>'
        f'<path d="{marks}" style="fill:{colour};stroke:{colour}"/>'
    )


def _axes(across: Axis, up: Axis, heights: dict[float, str], x: list[float]) -> str:
    """Draw both axes, a line across at each of `heights`, and the numbers beside them."""
    drawn, used = "", -math.inf
    for value, words in heights.items():
        height = up.at(value)
        drawn += _path(f"M{across.begin:g} {height:g}H{across.end:g}", "var(--line-grid)")
        drawn += _text(across.begin - 5, height + 3.5, words, "end")
    own = {value: f"{value:g}" for value in sorted(x)}  # few numbers are named themselves
    for value, words in (own if across.log or len(own) < 10 else across.ticks()).items():
        half = LETTER * (len(words) + 1) / 2
        if across.at(value) - half >= used:
            drawn += _text(across.at(value), BOTTOM + 14, words, "middle")
            used = across.at(value) + half
    frame = f"M{across.begin:g} {TOP:g}V{BOTTOM:g}H{across.end:g}"
    return drawn + _path(frame, "currentColor")


def _path(d: str, colour: str) -> str:
    return f'<path d="{d}" style="fill:none;stroke:{colour};stroke-width:.7"/>'


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}'
    return f"<text {place}>{escape(words, quote=False)}</text>"


def _apart(heights: list[float]) -> list[float]:
    """Return heights that lie LINE_HEIGHT apart, each as near as can be to that of `heights`."""
    groups: list[list[int]] = []

    def middle(group: list[int]) -> float:
        return sum(heights[i] for i in group) / len(group)

    for i in sorted(range(len(heights)), key=heights.__getitem__):
        group = [i]
        while (
            groups
            and middle(group) - middle(groups[-1]) < LINE_HEIGHT * len(groups[-1] + group) / 2
        ):
            group = groups.pop() + group
        groups.append(group)
    placed = [0.0] * len(heights)
    for group in groups:
        for rank, i in enumerate(group):
            placed[i] = middle(group) + LINE_HEIGHT * (rank - (len(group) - 1) / 2)
    return placed
