"""Draws what Matplotlib drew with a fifth of its elements, and says how large it is.

Matplotlib wraps each tick, label and mark in groups of its own and points to the mark's shape once
for each place. SVG can set a shape at all points of one path, and needs no group that says nothing.
"""

from __future__ import annotations

import re

from bs4 import BeautifulSoup, Tag

UNTURNED = re.compile(r"rotate\(-?0 [\d. -]+\)")
NUMBER = r"-?[\d.]+"


def slim(svg: Tag) -> None:
    """Redraw `svg` in place with fewer elements, and give it a width and height in pixels."""
    _size(svg)
    _marks(svg)
    for path in svg.select('path[style="fill: none"]'):  # a background that nobody sees
        path.decompose()
    for text in svg.select("text[transform]"):
        if UNTURNED.fullmatch(str(text["transform"])):
            del text["transform"]
    for path in svg.select("path[d]"):
        path["d"] = re.sub(r"\s*([A-Za-z])\s*", r"\1", str(path["d"])).strip()
    for group in svg.select("g, defs"):
        if not group.attrs and (group.name == "g" or not group.find(True)):
            group.unwrap()
    for blank in svg.find_all(string=re.compile(r"^\s+$")):
        blank.replace_with("\n" if "\n" in blank else " ")


def _size(svg: Tag) -> None:
    """Say the drawing's size in pixels, so that its room is there before any stylesheet is."""
    style = dict(re.findall(r"([\w-]+):\s*([^;]+)", str(svg.get("style", ""))))
    box = str(svg.get("viewbox") or svg.get("viewBox", "")).split()
    if style.get("width") == "100%" and style.get("max-width", "").endswith("px") and len(box) == 4:
        width = float(style["max-width"].removesuffix("px"))
        svg["width"], svg["height"] = f"{width:g}", f"{width * float(box[3]) / float(box[2]):g}"
        del svg["style"]


def _marks(svg: Tag) -> None:
    """Set each shape that is used at several points of a group by one path through them."""
    sets: dict[tuple[str, str, str], list[Tag]] = {}
    for use in svg.select("use[x][y]"):
        clip = use.parent.get("clip-path", "") if use.parent else ""
        key = str(use["xlink:href"])[1:], str(use.get("style", "")), str(clip)
        sets.setdefault(key, []).append(use)
    shapes = {str(shape["id"]): shape for shape in svg.select("defs > path[id]")}
    for number, ((name, style, _), uses) in enumerate(sets.items(), 1):
        if len(uses) > 1 and name in shapes:
            _set(shapes[name], f"{name}-{number}", style, uses)
    used = {str(use["xlink:href"])[1:] for use in svg.select("use")}
    for name in shapes.keys() - used:
        shapes[name].decompose()


def _set(shape: Tag, name: str, style: str, uses: list[Tag]) -> None:
    """Put in place of `uses` a marker that is drawn as `shape`, and a path that sets it at each point."""
    made = BeautifulSoup().new_tag
    marker = made("marker", attrs={"id": name, "markerunits": "userSpaceOnUse"})
    marker["overflow"], marker["style"] = "visible", style
    marker.append(made("path", attrs={"d": str(shape["d"]), "style": str(shape.get("style", ""))}))
    # Marks stand at the points between the first and the last, so those two are extra.
    points = "".join(f"L{use['x']} {use['y']}" for use in uses)
    path = made("path", attrs={"d": f"M0 0{points}L0 0", "fill": "none"})
    path["style"] = f"marker-mid: url(#{name})"
    uses[0].insert_before(marker)
    uses[0].replace_with(path)
    for use in uses[1:]:
        use.decompose()
