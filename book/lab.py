"""Makes a lab a page of the book: keeps what a notebook says, drops what mkdocs-jupyter wraps it in.

mkdocs-jupyter draws a notebook through nbconvert, with 575 KB of styles, a second copy of the code,
and a script that asks a public server for Mermaid. The cells are lifted out of that and set
in the markup that chapters use, so one stylesheet, one script and one set of checks serve both. What
comes of it is Markdown, as a chapter is: headings, from which a builder makes its menus, and HTML that
it passes on.

A notebook runs from its set-up to its result; a page answers first. So four tags of cells say what
goes where: the `finding` in words, one `figure` and one `table` follow the title, the code is folded,
and what the `machine` printed of itself stands at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from html import escape
from pathlib import Path
from posixpath import dirname, normpath

from bs4 import BeautifulSoup, NavigableString, Tag
from markdown.util import BLOCK_LEVEL_ELEMENTS
from mkdocs_jupyter.nbconvert2 import nb2html

from book.figures.drawing import slim
from book.figures.output import figure as output_figure
from book.markdown.math import mathml
from book.weight import joined
from literate.export import as_html
from literate.fence import Misread, check_shown

MATH = re.compile(
    r"\$\$(?P<display>.+?)\$\$|(?<![\\$\w])\$(?P<inline>(?![\s$])[^$]+?(?<!\s))\$(?![\d$])", re.S
)
NOT_PROSE = ("pre", "code", "math", "svg", "script", "style", "samp")
TAG = "celltag_"  # mkdocs-jupyter's prefix
FINDING, FIGURE, TABLE, MACHINE, SET_UP = "finding", "figure", "table", "machine", "setup"
PLACED = (FINDING, FIGURE, TABLE, MACHINE)
LIFTED = {FIGURE: 'class="lab-figure"', TABLE: 'class="lab-table"'}  # by this they are known
SHOWN = re.compile(r'<figure\b|<table class="lab-table')  # what a reader stops at
# What is coloured in a lab's code, and how; the rest has the colour of the text.
COLOURS = {
    **dict.fromkeys(("k", "kn", "ow"), "k"),
    **dict.fromkeys(("s1", "s2", "sa", "si", "se"), "s2"),
    **{kind: kind for kind in ("c1", "sd", "nf", "nc")},
}
TOKEN = re.compile(r'<span class="(\w+)">([^<]*)</span>')
HEADING = re.compile("h[1-6]")
CODE = re.compile(r"(?s)^(`{3,}).*?^\1|(`+)[^\n]*?\2", re.MULTILINE)
HTML = re.compile(r"</?(?!https?:)[a-zA-Z][^>\n]*>?|<[!?]")
# What Markdown would read in a heading, and in the lines of what it should pass on as they are.
SPECIAL = re.compile(r"([\\`*_{}\[\]$#])")
LINES = re.compile(r"^ +(?=\n)|`|~|\t", re.MULTILINE)
UNDESCRIBED = "No description has been provided for this image"  # nbconvert's own words


class LabError(ValueError):
    """A lab that cannot become a page: says what is wrong with it."""


def markdown(path: Path, source: str, files: Container[str]) -> str:
    """Return the notebook at `path` as the Markdown of a page; see `clean` for the rest."""
    check_text(path)
    return passed_on(clean(nb2html(str(path)), source, files))


def check_text(path: Path) -> None:
    """Raise LabError where a text cell writes HTML, which could imitate what a cell has printed."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"], 1):
        text = CODE.sub("", "".join(cell["source"])) if cell["cell_type"] == "markdown" else ""
        try:
            check_shown(text)
        except Misread as error:
            raise LabError(f"cell {number} holds {error}") from None
        if found := HTML.search(text):
            raise LabError(
                f"cell {number} writes HTML, {found[0]!r}; a lab's text is Markdown alone"
            )


def passed_on(body: BeautifulSoup) -> str:
    """Return Markdown that draws `body`: its headings are Markdown's own, the rest stays HTML."""
    parts = []
    for node in body.contents:
        if isinstance(node, Tag) and HEADING.fullmatch(node.name):
            parts.append(f"{'#' * int(node.name[1])} {_title(node)}")
        elif isinstance(node, Tag):
            # Markdown passes on a block; what may stand in a sentence it would read.
            kept = str(node) if node.name in BLOCK_LEVEL_ELEMENTS else f"<div>{node}</div>"
            parts.append(LINES.sub(lambda found: f"&#{ord(found[0][0])};" + found[0][1:], kept))
    return "\n\n".join(parts) + "\n"


def _title(heading: Tag) -> str:
    """Return what a heading says, for Markdown to read as it stands."""
    for link in heading.select("a.headerlink"):
        link.decompose()
    for text in list(heading.find_all(string=True)):
        text.replace_with(NavigableString(SPECIAL.sub(r"\\\1", " ".join(text.split("\n")))))
    return heading.decode_contents().strip()


def clean(html: str, source: str, files: Container[str]) -> BeautifulSoup:
    """Return the notebook `html` as drawn by mkdocs-jupyter in the book's own markup.

    Args:
        html: the notebook's cells, styles and scripts included.
        source: the notebook, named from docs/; it resolves links.
        files: the files of docs/, named likewise; every link within the book must be one of them.

    Raises:
        LabError: nothing is there to show, a tag is missing or given twice, or a link leads nowhere.
    """
    soup = BeautifulSoup(html, "html.parser")
    for unwanted in soup(["style", "script", "clipboard-copy"]):
        unwanted.decompose()
    cells = soup.select(".jp-Notebook > .jp-Cell")
    if not cells:
        raise LabError("no cells found in what mkdocs-jupyter drew")
    body = BeautifulSoup("\n".join(_answer_first(cells)), "html.parser")
    _draw_math(body)
    _resolve_links(body, source, files)
    _unique_ids(body)
    return body


def _answer_first(cells: list[Tag]) -> list[str]:
    """Return the page's parts: title, what the tags place above, the other cells, the machine."""
    placed: dict[str, list[str]] = {}
    others = []
    for cell in cells:
        tags = _tags(cell)
        if twice := placed.keys() & tags:
            raise LabError(f"two cells are tagged `{min(twice)}`")
        if "jp-MarkdownCell" in cell["class"]:
            prose = "".join(_prose(one) for one in cell.select(".jp-MarkdownOutput"))
            if FINDING in tags:
                placed[FINDING] = [f'<section id="finding">{prose}</section>']
            else:
                others.append([prose])
            continue
        shown = _outputs(cell)
        placed |= {tag: [_lift(shown, tag)] for tag in LIFTED if tag in tags}
        if MACHINE in tags:
            placed[MACHINE], shown = shown, []
        others.append([*_folded(cell, tags), *shown])
    if missing := [tag for tag in PLACED if tag not in placed]:
        raise LabError(f"no cell is tagged `{missing[0]}`; a lab needs {', '.join(PLACED)}")
    title, *rest = others
    above = [placed[tag] for tag in (FINDING, FIGURE, TABLE)]
    return [part for parts in (title, *above, *rest, placed[MACHINE]) for part in parts]


def _tags(cell: Tag) -> set[str]:
    """Return the tags of a cell, which mkdocs-jupyter writes as classes somewhere in it."""
    names = [
        name for part in [cell, *cell.select("div")] for name in part.get_attribute_list("class")
    ]
    return {name.removeprefix(TAG) for name in names if name and name.startswith(TAG)}


def _lift(shown: list[str], tag: str) -> str:
    """Take the first figure or table out of what a cell showed."""
    for place, part in enumerate(shown):
        if LIFTED[tag] in part:
            return shown.pop(place)
    raise LabError(f"the cell tagged `{tag}` shows none")


def _prose(prose: Tag) -> str:
    """Return a Markdown cell's own HTML, its headings linked as in a chapter."""
    for anchor in prose.select("a.anchor-link"):
        anchor["class"], anchor["title"] = "headerlink", "Link to this section"
    for block in prose.select("div.highlight"):
        assert block.pre, "nbconvert draws code in one"
        block.replace_with(BeautifulSoup(_listing(block.pre, "text"), "html.parser"))
    return prose.decode_contents()


def _folded(cell: Tag, tags: set[str]) -> list[str]:
    """Return a cell's code in a box that one click opens; the set-up is the same in every lab."""
    code = cell.select_one(".highlight-ipynb pre")
    if not code or not code.get_text().strip():
        return []
    lines = code.get_text().strip().count("\n") + 1
    about = " and the ".join(tag for tag in LIFTED if tag in tags)
    name, unsearched = f"Code of the {about} at the top" if about else "Code", ""
    if SET_UP in tags:
        leans = "names the machine" if MACHINE in tags else "the cells below lean on"
        name, unsearched = f"Set-up that {leans}", " data-search-exclude"
    return [
        f'<details class="folded"{unsearched}><summary>{name}, {lines} line{"s" * (lines != 1)}'
        f"</summary>{_listing(code, 'python')}</details>"
    ]


def _listing(pre: Tag, language: str) -> str:
    inner = _coloured(pre.decode_contents().removeprefix("<span></span>").strip("\n"))
    return (
        f'<div class="language-{language} highlight"><pre><span></span>'
        f"<code>{inner}\n</code></pre></div>"
    )


def _coloured(code: str) -> str:
    """Return highlighted `code` with one element for each stretch of a colour.

    An element for each token was half of what a lab is made of, in code that few unfold.
    """

    def colour(token: re.Match) -> str:
        kind = COLOURS.get(token[1])
        return f'<span class="{kind}">{token[2]}</span>' if kind else token[2]

    return joined(TOKEN.sub(colour, code))


def _outputs(cell: Tag) -> list[str]:
    """Return what a cell showed: text as outputs, drawings and tables as they are."""
    parts, printed = [], ""
    for output in cell.select(".jp-OutputArea-child"):
        text = output.select_one(".jp-RenderedText pre")
        if text:
            printed += text.get_text().rstrip("\n") + "\n"
            continue
        if printed:
            parts.append(output_figure(printed, {}))
            printed = ""
        parts += [_shown(shown) for shown in output.select(".jp-OutputArea-output")[:1]]
    return parts + ([output_figure(printed, {})] if printed else [])


def _shown(shown: Tag) -> str:
    """Return a drawing, a table or an image; whatever is drawn must also be said."""
    for image in shown.select("img"):
        if image.get("alt", UNDESCRIBED) == UNDESCRIBED:
            raise LabError(
                "an image has no text for those who cannot see it; show it as HTML with one"
            )
    for svg in shown.select("svg"):
        svg["role"] = str(svg.get("role", "img"))
        slim(svg)
    for own in shown.select("div[style*=overflow]"):
        own.unwrap()
    for table in shown.select("table.lab-table"):
        table.wrap(BeautifulSoup().new_tag("div", attrs={"class": "book-scroll"}))
    return shown.decode_contents().strip()


def _draw_math(body: BeautifulSoup) -> None:
    """Turn $…$ into MathML; nbconvert leaves it to a script."""
    for text in [t for t in body.find_all(string=MATH) if not t.find_parent(NOT_PROSE)]:
        drawn, at = "", 0
        for match in MATH.finditer(text):
            formula = mathml(match["display"] or match["inline"], display=bool(match["display"]))
            drawn += escape(text[at : match.start()], quote=False)
            drawn += f'<span class="math">{formula}</span>' if match["display"] else formula
            at = match.end()
        drawn += escape(text[at:], quote=False)
        text.replace_with(BeautifulSoup(drawn, "html.parser"))


def _resolve_links(body: BeautifulSoup, source: str, files: Container[str]) -> None:
    """Point links to sources at the pages made from them, as a builder does in a chapter."""
    for link in body.select("a[href]"):
        target, mark, anchor = str(link["href"]).partition("#")
        if not target or re.match(r"[a-z]+:|//", target):
            continue
        if normpath(f"{dirname(source)}/{target}") not in files:
            raise LabError(f"link to {link['href']!r} leads to no file of the book")
        link["href"] = as_html(target) + mark + anchor


def _unique_ids(body: BeautifulSoup) -> None:
    """Give each drawing's ids a number of its own; Matplotlib repeats them from plot to plot."""
    for number, svg in enumerate(body.select("svg"), 1):
        own = re.sub(r'( id="|href="#|url\(#)', rf"\1drawing-{number}-", str(svg))
        svg.replace_with(BeautifulSoup(own, "html.parser"))
