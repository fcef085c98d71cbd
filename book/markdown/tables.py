"""Sets each table in a box that scrolls, while the page is built, and says which a phone shows as cards.

The theme does the first by a script, after the page was drawn, and what stands below the table moves. A
Python-Markdown extension, so that every builder draws the same.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import HTML_PLACEHOLDER_RE

COLUMNS, ROOM = 3, 60  # a table of so many columns and letters, or more, is cards on a phone
ARIA_LABEL = re.compile(r'aria-label="([^"]*)"')  # of a formula


class _Boxes(Treeprocessor):
    def run(self, root: Element) -> None:
        for parent in list(root.iter()):
            for place, table in enumerate(list(parent)):
                if table.tag == "table" and not table.get("class"):
                    table.set("class", "book-table")
                    box = Element("div", {"class": "book-scroll"})
                    box.tail, table.tail = table.tail, None
                    box.append(table)
                    parent[place] = box
                    self._label(table)

    def _label(self, table: Element) -> None:
        """Where a phone has no room for the columns, give each cell but the first the name of its own."""
        rows = [[self._text(cell) for cell in row] for row in table.iter("tr")]
        widths = [max(map(len, column)) for column in zip(*rows, strict=False)]
        if len(widths) < COLUMNS or sum(widths) < ROOM:
            return
        table.set("class", "book-table cards")
        for row in table.iterfind("tbody/tr"):
            for cell, name in zip(list(row)[1:], rows[0][1:], strict=False):
                cell.set("data-label", name)

    def _text(self, cell: Element) -> str:
        """Return what a cell says, a formula in words."""

        def words(kept: re.Match) -> str:
            said = ARIA_LABEL.search(str(self.md.htmlStash.rawHtmlBlocks[int(kept[1])]))
            return said[1] if said else ""

        return HTML_PLACEHOLDER_RE.sub(words, "".join(cell.itertext())).strip()


class Tables(Extension):
    """Boxes every table that has no class of its own."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        """Take part in the reading of a page, after its tables and their attributes are there."""
        md.treeprocessors.register(_Boxes(md), "boxed-tables", 1)


def makeExtension(**settings) -> Tables:  # noqa: N802 (Python-Markdown's name)
    """Let `markdown_extensions: [book.markdown.tables]` find the extension."""
    return Tables(**settings)
