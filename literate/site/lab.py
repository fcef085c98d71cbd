"""Makes a lab a page of the book: keeps what a notebook says, drops what mkdocs-jupyter wraps it in.

mkdocs-jupyter draws a notebook through nbconvert, with 575 KB of styles, a second copy of the code,
and a script that asks a public server for Mermaid. The cells are lifted out of that and set
in the markup that chapters use, so one stylesheet, one script and one set of checks serve both.
"""

from __future__ import annotations

import re
from html import escape
from posixpath import dirname, normpath, relpath

from bs4 import BeautifulSoup, Tag
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from literate.site import fences
from literate.site.math import mathml

MATH = re.compile(
    r"\$\$(?P<display>.+?)\$\$|(?<![\\$\w])\$(?P<inline>(?![\s$])[^$]+?(?<!\s))\$(?![\d$])", re.S
)
NOT_PROSE = ("pre", "code", "math", "svg", "script", "style", "samp")
FOLDED = "celltag_setup"
UNDESCRIBED = "No description has been provided for this image"  # nbconvert's own words


class LabError(ValueError):
    """A lab that cannot become a page: says what is wrong with it."""


def clean(html: str, page: Page, files: Files) -> str:
    """Return the notebook `html` as drawn by mkdocs-jupyter in the book's own markup.

    Args:
        html: the page's content, styles and scripts included.
        page: the MkDocs page; its source path resolves links.
        files: the MkDocs files; every link within the book must be one of them.

    Raises:
        LabError: nothing is there to show, or a link leads nowhere.
    """
    soup = BeautifulSoup(html, "html.parser")
    for unwanted in soup(["style", "script", "clipboard-copy"]):
        unwanted.decompose()
    parts = []
    # mkdocs-jupyter wraps each code cell in a second one that carries its tags.
    for cell in soup.select(".jp-Notebook > .jp-Cell"):
        if "jp-MarkdownCell" in cell["class"]:
            parts += [_prose(prose) for prose in cell.select(".jp-MarkdownOutput")]
        else:
            parts += _code_cell(cell)
    if not parts:
        raise LabError("no cells found in what mkdocs-jupyter drew")
    body = BeautifulSoup("\n".join(parts), "html.parser")
    _draw_math(body)
    _resolve_links(body, page, files)
    _unique_ids(body)
    return str(body)


def _prose(prose: Tag) -> str:
    """Return a Markdown cell's own HTML, its headings linked as in a chapter."""
    for anchor in prose.select("a.anchor-link"):
        anchor["class"], anchor["title"] = "headerlink", "Link to this section"
    for block in prose.select("div.highlight"):
        assert block.pre, "nbconvert draws code in one"
        block.replace_with(BeautifulSoup(_listing(block.pre, "text"), "html.parser"))
    return prose.decode_contents()


def _code_cell(cell: Tag) -> list[str]:
    code = cell.select_one(".highlight-ipynb pre")
    parts = [_listing(code, "python")] if code and code.get_text().strip() else []
    if parts and any(
        FOLDED in tagged.get_attribute_list("class") for tagged in [cell, *cell.select(".jp-Cell")]
    ):
        parts = [
            f"<details data-search-exclude><summary>Set-up that the cells below lean on</summary>{parts[0]}</details>"
        ]
    return parts + _outputs(cell)


def _listing(pre: Tag, language: str) -> str:
    inner = pre.decode_contents().removeprefix("<span></span>").strip("\n")
    return (
        f'<div class="language-{language} highlight"><pre><span></span>'
        f"<code>{inner}\n</code></pre></div>"
    )


def _outputs(cell: Tag) -> list[str]:
    """Return what a cell showed: text as outputs, drawings and tables as they are."""
    parts, printed = [], ""
    for output in cell.select(".jp-OutputArea-child"):
        text = output.select_one(".jp-RenderedText pre")
        if text:
            printed += text.get_text().rstrip("\n") + "\n"
            continue
        if printed:
            parts.append(fences.output_figure(printed, {}))
            printed = ""
        parts += [_shown(shown) for shown in output.select(".jp-OutputArea-output")[:1]]
    return parts + ([fences.output_figure(printed, {})] if printed else [])


def _shown(shown: Tag) -> str:
    """Return a drawing, a table or an image; whatever is drawn must also be said."""
    for image in shown.select("img"):
        if image.get("alt", UNDESCRIBED) == UNDESCRIBED:
            raise LabError(
                "an image has no text for those who cannot see it; show it as HTML with one"
            )
    for svg in shown.select("svg:not([role])"):
        svg["role"] = "img"
    for own in shown.select("div[style*=overflow]"):
        own.unwrap()
    for wide, box in (("table.lab-table", "book-scroll"), (".lab-figure > svg", "book-drawing")):
        for found in shown.select(wide):
            found.wrap(BeautifulSoup().new_tag("div", attrs={"class": box}))
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


def _resolve_links(body: BeautifulSoup, page: Page, files: Files) -> None:
    """Point links to sources at the pages made from them, as MkDocs does in a chapter."""
    for link in body.select("a[href]"):
        target, mark, anchor = str(link["href"]).partition("#")
        if not target or re.match(r"[a-z]+:|//", target):
            continue
        found = files.get_file_from_path(normpath(f"{dirname(page.file.src_uri)}/{target}"))
        if found is None:
            raise LabError(f"link to {link['href']!r} leads to no file of the book")
        link["href"] = relpath(found.url, dirname(page.file.url) or ".") + mark + anchor


def _unique_ids(body: BeautifulSoup) -> None:
    """Give each drawing's ids a number of its own; Matplotlib repeats them from plot to plot."""
    for number, svg in enumerate(body.select("svg"), 1):
        own = re.sub(r'( id="|href="#|url\(#)', rf"\1drawing-{number}-", str(svg))
        svg.replace_with(BeautifulSoup(own, "html.parser"))
