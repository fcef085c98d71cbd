"""Dresses a drawing of a lab, as Matplotlib made it: in the book's colours, with room for a phone's letters."""

from __future__ import annotations

import re

from bs4 import Tag

# The labs' colours of lines, in their order, and the book's, which follow the scheme.
COLOURS = ("#1c7ed6", "#c2611f", "#2b8a53", "#9060d0", "#c2255c", "#6b6b1e")
LINES = {colour: f"var(--line-{number})" for number, colour in enumerate(COLOURS, 1)}
LETTER = 13 * 0.525  # how wide a letter is, or little more, at the size that a phone gives it


def dress(svg: Tag) -> None:
    """Give `svg`, in place, the book's colours, room for its words, and a width and height in pixels."""
    _widen(svg)
    _size(svg)
    for drawn in svg.select("[style]"):
        style = str(drawn["style"])
        drawn["style"] = re.sub("|".join(COLOURS), lambda found: LINES[found[0]], style)


def _widen(svg: Tag) -> None:
    """Give room at both sides to words that would reach beyond them in a phone's larger letters."""
    box = [float(part) for part in str(svg.get("viewbox") or svg.get("viewBox", "")).split()]
    if len(box) != 4:
        return
    left, right = box[0], box[0] + box[2]
    for text in svg.select("text[x][style]"):
        if "rotate(-90" in str(text.get("transform", "")):
            continue
        width, x = LETTER * len(text.get_text(strip=True)), float(str(text["x"]))
        anchor = re.search(r"text-anchor: (\w+)", str(text["style"]))
        starts = x - {"middle": width / 2, "end": width}.get(anchor[1] if anchor else "", 0.0)
        left, right = min(left, starts), max(right, starts + width)
    for name in ("viewbox", "viewBox"):
        if svg.get(name):
            svg[name] = f"{left:g} {box[1]:g} {right - left:g} {box[3]:g}"


def _size(svg: Tag) -> None:
    """Say the drawing's size in pixels, so that its room is there before any stylesheet is."""
    style = dict(re.findall(r"([\w-]+):\s*([^;]+)", str(svg.get("style", ""))))
    box = str(svg.get("viewbox") or svg.get("viewBox", "")).split()
    if style.get("width") == "100%" and style.get("max-width", "").endswith("px") and len(box) == 4:
        width = float(style["max-width"].removesuffix("px"))
        svg["width"], svg["height"] = f"{width:g}", f"{width * float(box[3]) / float(box[2]):g}"
        del svg["style"]
