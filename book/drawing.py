"""A drawing is a file beside its chapter, and one line of the chapter shows it:

    <figure class="diagram">

    ![What it shows, for who cannot see it](drawings/speak.svg "Its title")

    <figcaption>What to see in it.</figcaption>
    </figure>

So every viewer of Markdown shows the picture, as an image. The site and the checks want it in the page:
there it has the page's colours, its words are read and its numbers are checked. `inlined` puts it in the
place of its line, as one line, so each line of the page keeps its number; what it may hold is what any
page may write (`html.py`), and is checked there. A <style> in the file is for who looks at the file alone.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from book.html import SVG
from literate.fence import Misread

FIGURE = '<figure class="diagram">'
LINE = re.compile(
    r'^ *!\[(?P<said>.+)\]\((?P<file>drawings/(?P<name>[\w-]+)\.svg) "(?P<title>[^"]+)"\) *$',
    re.MULTILINE,
)
IMAGE = re.compile(r"!\[.*\]\((?:\./)?drawings/")
FORM = f'stands alone on its line, in {FIGURE}, as ![text for who cannot see it](drawings/name.svg "title")'


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
            except OSError as error:
                raise Misread(at + 1, f"{image['file']}: {error.strerror}") from None
            except ElementTree.ParseError as error:
                where = f"{image['file']}:{error.position[0]}"
                raise Misread(at + 1, f"{where}: not well-formed: {error}") from None
        above = line.strip() or above
    return "\n".join(lines)


def named(text: str, line: int) -> str:
    """Return "drawings/name.svg: " where that `line` of a page shows a drawing, else ""."""
    image = LINE.match(text.split("\n")[line - 1])
    return f"{image['file']}: " if image else ""


def _inline(path: Path, title: str, said: str) -> str:
    """Return the drawing at `path` as one line of HTML, with its title, its description and ids of its own."""
    root, name = ElementTree.parse(path).getroot(), path.stem
    for style in root.findall(f"{SVG}style"):
        root.remove(style)
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
