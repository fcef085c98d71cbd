"""Draws the picture that stands beside a shared link: a page's title, and its first heatmap.

The shades are those of the page itself, so a card cannot show a number that the page does not print.
"""

import io
import re
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

SIZE = 1200, 630  # pixels, as those who show cards ask for
EDGE = 80
PAPER, INK, QUIET, ACCENT = "#fdfcfa", "#22262a", "#5a6067", "#0a6b63"
ZERO, MORE, LESS, HATCHED = (
    "#faf8f4",
    "#3fb0a1",
    "#e58f3e",
    "#dcd8d0",
)  # as book/figures/figures.css
LOGO = [[1.0], [0.45, 1.0], [0.25, 0.6, 1.0]]  # as docs/assets/favicon.svg: a causal mask
LARGEST = 48  # rows or columns of a heatmap that can be told apart on a card
COLOURS = 64

HEATMAP = re.compile(r'<table class="heatmap[^>]*>.*?<tbody>(.*?)</tbody>', re.DOTALL)
CELL = re.compile(r"<td(?P<attributes>[^>]*)>")
SHADE = re.compile(r"--v:([\d.]+)")


def draw(title: str, book: str, html: str, fonts: Path) -> bytes:
    """Return a card as PNG: the title of a page, the name of the book, the first heatmap in `html`.

    A page without one has the book's mark in its place. The same page gives the same bytes.
    """
    card = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(card)
    width, height = SIZE
    side = 400
    _grid(pen, _heatmap(html) or _mark(), (width - EDGE - side, (height - side) // 2), side)
    room = width - 3 * EDGE - side
    font, lines = _fit(title, room, fonts)
    pen.multiline_text((EDGE, EDGE), "\n".join(lines), INK, font, spacing=font.size * 0.2)
    base = height - EDGE
    _grid(pen, _mark(), (EDGE, base - 40), 40)
    pen.text((EDGE + 60, base - 20), book, QUIET, _font(fonts, 34), anchor="lm")
    png = io.BytesIO()
    card.quantize(COLOURS).save(png, "PNG", optimize=True)
    return png.getvalue()


def _heatmap(html: str) -> list[list[str]]:
    """Return the colours of the first heatmap in `html` that a card can show; [] without one."""
    for body in HEATMAP.findall(html):
        rows = [
            [_colour(cell["attributes"]) for cell in CELL.finditer(row)]
            for row in body.split("</tr>")[:-1]
        ]
        if rows and max(len(rows), len(rows[0])) <= LARGEST:
            return rows
    return []


def _colour(attributes: str) -> str:
    shade = SHADE.search(attributes)
    if shade is None:
        return HATCHED
    return _blend(ZERO, LESS if 'class="n"' in attributes else MORE, float(shade[1]))


def _mark() -> list[list[str]]:
    """Return the colours of the book's logo."""
    return [[_blend(PAPER, ACCENT, share) for share in row] for row in LOGO]


def _blend(start: str, end: str, share: float) -> str:
    """Return the colour that lies `share` of the way between two."""
    pairs = [(int(start[i : i + 2], 16), int(end[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _grid(pen: ImageDraw.ImageDraw, rows: list[list[str]], at: tuple[int, int], side: int) -> None:
    """Draw square cells into a square of `side` pixels whose upper left corner is `at`, centred."""
    columns = max(map(len, rows))
    step = side / max(columns, len(rows))
    edge = step - min(4, round(step / 6))
    left, top = at[0] + (side - step * columns) / 2, at[1] + (side - step * len(rows)) / 2
    for i, row in enumerate(rows):
        for j, colour in enumerate(row):
            x, y = left + j * step, top + i * step
            pen.rectangle((round(x), round(y), round(x + edge) - 1, round(y + edge) - 1), colour)


def _fit(title: str, room: int, fonts: Path) -> tuple[ImageFont.FreeTypeFont, list[str]]:
    """Return the largest font in which `title` fits `room` pixels and stands clear of the book, and its lines."""
    for size in range(84, 40, -4):
        font, lines = _font(fonts, size), [""]
        for word in title.split():
            longer = f"{lines[-1]} {word}".strip()
            lines = [*lines[:-1], longer] if font.getlength(longer) <= room else [*lines, word]
        lines = [line for line in lines if line]
        if len(lines) * 1.25 * size <= 360 and max(map(font.getlength, lines)) <= room:
            break
    return font, lines


@cache
def _font(fonts: Path, size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.truetype(str(fonts / "text.woff2"), size)
    font.set_variation_by_axes([600])
    return font
