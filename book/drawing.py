"""A drawing is a file beside its chapter, and one line of the chapter shows it:

    <figure class="diagram">

    ![What it shows, for who cannot see it](drawings/speak.svg "Its title")

    <figcaption>What to see in it.</figcaption>
    </figure>

So every viewer of Markdown shows the picture, as an image. The site and the checks want it in the page:
there it has the page's colours, its words are read and its numbers are checked. `inlined` puts it in the
place of its line, as one line, so each line of the page keeps its number.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from literate.errors import Misread

SVG = "{http://www.w3.org/2000/svg}"
FIGURE = '<figure class="diagram">'
LINE = re.compile(
    r'^ *!\[(?P<said>.+)\]\((?P<file>drawings/(?P<name>[\w-]+)\.svg) "(?P<title>[^"]+)"\) *$',
    re.MULTILINE,
)
IMAGE = re.compile(r"!\[.*\]\((?:\./)?drawings/")
FORM = f'stands alone on its line, in {FIGURE}, as ![text for who cannot see it](drawings/name.svg "title")'
# What the line says, and what the page gives.
GIVEN = ("aria-labelledby", "role", "style")
DESCRIPTIONS = ("desc", "title")
PAINTS = re.compile(r"currentColor|none|context-stroke|var\(--[\w-]+\)")  # fit both colour schemes
TAGS = ["svg", "g", "defs", "marker", "path", "line", "rect", "circle", "polygon", "text", "tspan"]
# How a drawing looks by itself: the colours of docs/assets/book.css, which a page gives it. The one style
# that a file may hold.
STYLE = (
    "svg{--md-default-bg-color:#fdfcfa;background:var(--md-default-bg-color);color:#22262a;"
    "font-family:sans-serif}text{fill:currentColor;stroke:none}"
    ":is(rect,circle,path).soft{fill:currentColor;fill-opacity:.07}.accent{color:#0a6b63}"
    "@media(prefers-color-scheme:dark){svg{--md-default-bg-color:#15181b;color:#dfe2e4}.accent{color:#62cdbf}}"
)


def inlined(text: str, folder: Path) -> str:
    """Return the `text` of a page in `folder` with each drawing in the place of the line that shows it.

    Raises Misread where a line shows no drawing, or in another form.
    """
    lines, above = text.split("\n"), ""
    for at, line in enumerate(lines):
        if IMAGE.search(line):
            image = LINE.match(line)
            if not image or above != FIGURE:
                raise Misread(at + 1, f"a drawing {FORM}")
            try:
                lines[at] = _inline(folder / image["file"], image["title"], image["said"])
            except (OSError, ValueError) as error:
                raise Misread(at + 1, f"{image['file']}{error}") from None
        above = line.strip() or above
    return "\n".join(lines)


def named(text: str, line: int) -> str:
    """Return "drawings/name.svg: " where that `line` of a page shows a drawing, else ""."""
    image = LINE.match(text.split("\n")[line - 1])
    return f"{image['file']}: " if image else ""


def _inline(path: Path, title: str, said: str) -> str:
    """Return the drawing at `path` as one line of HTML, with its title and its description."""
    root, name = read(path), path.stem
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        for key, value in element.items():
            own = f"{name}-{value}" if key == "id" else value.replace("url(#", f"url(#{name}-")
            element.set(key, own)
    root.set("style", "max-width:100%;height:auto")
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    words = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(said)}</desc>'
    drawn = ElementTree.tostring(root, "unicode").replace(">", f">{words}", 1)
    return re.sub(r"[ \t\r\n]+", " ", drawn).strip()


def read(path: Path) -> ElementTree.Element:
    """Return the drawing in the file at `path`, without its style.

    Raises ValueError, which begins with ":" and what is wrong, where it is none.
    """
    if not path.is_file():
        beside = ", ".join(sorted(one.stem for one in path.parent.glob("*.svg"))) or "nothing"
        raise ValueError(f": there is no such drawing; in its folder: {beside}")
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f":{error.position[0]}: not well-formed: {error}") from None
    if root.tag != f"{SVG}svg":
        tag = root.tag.rpartition("}")[2]
        raise ValueError(f': it begins with <{tag}>; wanted <svg xmlns="{SVG[1:-1]}">')
    for style in root.findall(f"{SVG}style"):
        if style.text != STYLE or style.attrib or len(style):
            raise ValueError(": its <style> is not `STYLE` of book/drawing.py; wanted that or none")
        root.remove(style)
    for element in root.iter():
        space, _, tag = element.tag.rpartition("}")
        foreign = [name for name in element.attrib if name.startswith("{")]
        if f"{space}}}" != SVG or foreign:
            raise ValueError(f": <{tag}> or an attribute of it is of another language than SVG")
        if tag in DESCRIPTIONS:
            raise ValueError(f": it holds a <{tag}>; the line that shows it says that")
        if tag not in TAGS:
            raise ValueError(f": a drawing holds no <{tag}>")
        for name in ("fill", "stroke"):
            if not PAINTS.fullmatch(element.get(name, "none")):
                raise ValueError(
                    f': {name}="{element.get(name)}" fits one colour scheme; wanted currentColor'
                )
        for name in GIVEN:
            if name in element.attrib:
                raise ValueError(f": <{tag}> has `{name}`, which the page gives it; delete it")
    return root
