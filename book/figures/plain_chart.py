"""Draws a line chart without Matplotlib, which Python in a reader's browser does not have.

Scales, colours and dashes are those of `tables.chart`; where the axes stand is worked out more simply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 360.0, 208.8
LEFT, TOP, BOTTOM = 46.0, 8.0, 170.0
LETTER = 5.8  # the width of one, about
MARGIN = 0.05  # of an axis, beyond its values
MOST_TICKS = 6
DOT = 2.0


@dataclass
class Scale:
    """An axis: which values stand from `begin` to `end`, and whether they are drawn by their logarithms."""

    values: list[float]
    begin: float
    end: float
    log: bool

    def __post_init__(self) -> None:
        drawn = [math.log10(value) if self.log else value for value in self.values] or [0.0]
        low, high = min(drawn), max(drawn)
        room = MARGIN * (high - low) or 0.5
        self.low, self.high = low - room, high + room

    def at(self, value: float) -> float:
        share = ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)

    def ticks(self) -> list[float]:
        """Round numbers of this axis, at most MOST_TICKS and one; powers of ten where it is logarithmic."""
        about = (self.high - self.low) / MOST_TICKS
        power = 10.0 ** math.floor(math.log10(about))
        step = next(
            power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= about * (1 - 1e-9)
        )
        step = math.ceil(step) if self.log else step
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        found = [round(step * n, 12) for n in range(first, last + 1)]
        return [10.0**tick for tick in found] if self.log else found


def draw(
    names: list[str],
    columns: list[list[float]],
    logs: tuple[bool, bool],
    axes: tuple[str, str],
    dashes: Sequence[tuple[float, ...]],
    apart: Callable[[list[float]], list[float]],
) -> str:
    """Return what an SVG of WIDTH and HEIGHT holds: lines of all columns but the first against that.

    Args:
        names: of the columns.
        logs, axes: of x and of y, whether it is logarithmic, and what it counts.
        dashes: of each line.
        apart: moves heights apart, so that the names there can be read.
    """
    x, *series = columns
    longest = max(map(len, names[1:])) if len(series) > 1 else 0
    across = Scale(x, LEFT, WIDTH - 12 - LETTER * longest, logs[0])
    every = [value for y in series for value in y if math.isfinite(value)]
    up = Scale(every, BOTTOM, TOP, logs[1])
    drawn = ""
    for tick in x[:: math.ceil(len(x) / 9)] if logs[0] or len(x) < 10 else across.ticks():
        drawn += _text(across.at(tick), BOTTOM + 18, f"{tick:g}", "middle")
    for tick in up.ticks():
        height = up.at(tick)
        drawn += _line([(LEFT - 4, height), (across.end, height)], "grid", 0.6)
        drawn += _text(LEFT - 8, height + 3.5, f"{tick:g}", "end")
    middle = (TOP + BOTTOM) / 2
    drawn += _text((LEFT + across.end) / 2, HEIGHT - 5, axes[0], "middle")
    drawn += _text(10, middle, axes[1], "middle", f' transform="rotate(-90 10 {middle:g})"')
    ends = []
    for order, y in enumerate(series):
        colour = str(order % 4 + 1)
        points = [(across.at(a), up.at(b)) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
        drawn += _line(points, colour, 1.6, dashes[order % len(dashes)])
        for place, height in points:
            drawn += (
                f'<circle cx="{place}" cy="{height}" r="{DOT}" style="fill: var(--line-{colour})"/>'
            )
        ends += [(points[-1], names[order + 1], colour)] if points and longest else []
    heights = apart([height for (_, height), *_ in ends])
    for ((place, _), name, colour), height in zip(ends, heights, strict=True):
        style = f' style="fill: var(--line-{colour})"'
        drawn += _text(place + 6, height + 3.5, name, "start", style)
    return drawn


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="10px"{more}'
    return f"<text {place}>{escape(words, quote=False)}</text>"


def _line(points: list[tuple[float, float]], colour: str, width: float, dashes: tuple = ()) -> str:
    path = " L ".join(f"{x} {y}" for x, y in points)
    style = f"fill: none; stroke: var(--line-{colour}); stroke-width: {width}"
    if dashes:
        style += f"; stroke-dasharray: {' '.join(str(width * dash) for dash in dashes)}"
    return f'<path d="M {path}" style="{style}"/>' if points else ""
