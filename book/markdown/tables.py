"""Sets each table in a box that scrolls, while the page is built.

The theme does so by a script, after the page was drawn, and what stands below the table moves. A
Python-Markdown extension, so that every builder draws the same.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor


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


class Tables(Extension):
    """Boxes every table that has no class of its own."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        """Take part in the reading of a page, after its tables and their attributes are there."""
        md.treeprocessors.register(_Boxes(md), "boxed-tables", 1)


def makeExtension(**settings) -> Tables:  # noqa: N802 (Python-Markdown's name)
    """Let `markdown_extensions: [book.markdown.tables]` find the extension."""
    return Tables(**settings)
