"""Gives each figure, output and exercise of a page an address, and a link to it, as headings have.

An address is the section's and the kind: `#way-one-a-loop-output`, `#way-one-a-loop-output-2`; above
the first section the kind alone. An exercise is a section of its own, `#exercise-2`, so an output of
its solution is `#exercise-2-output`. Another output elsewhere leaves it as it is, and so does one
further down in the same section. A heatmap that has a name is addressed by it, wherever it stands.
"""

from __future__ import annotations

import re
from collections import Counter

from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

PLACE = re.compile(
    r'<h(?P<level>[1-6])\b[^>]*? id="(?P<section>[^"]+)"'
    r"|<p>(?=<strong>(?P<exercise>\d+)\. (?:Predict|Change|Prove|Experiment|Mend|Catch)\b)"
    r'|<(?P<tag>figure|table) class="(?P<kind>output|attention|diagram|lab-figure|lab-table)'
    r'(?P<more>[^"]*)"(?: id="(?P<name>[^"]+)")?'
    r"|(?P<link></(?:strong|figcaption|caption)>)"
)
# A book's words for what stands there; in an address, and in what a link says of itself.
KINDS = {"output": "output", "attention": "explorable", "lab-table": "table"}


def addressed(html: str) -> str:
    """Return the HTML of a page with its addresses; no link of this kind is a tab stop."""
    section, count, linked = "", Counter[str](), ""

    def place(match: re.Match) -> str:
        nonlocal section, linked
        if match["section"]:
            section = "" if match["level"] == "1" else match["section"]
        elif match["exercise"]:
            section = linked = f"exercise-{match['exercise']}"
            return f'<p id="{section}">'
        elif match["kind"]:
            kind = KINDS.get(match["kind"], "figure")
            stem = f"{section}-{kind}" if section else kind
            if not match["name"]:
                count[stem] += 1
            number = f"-{count[stem]}" if count[stem] > 1 else ""
            linked = match["name"] or stem + number
            return f'<{match["tag"]} class="{match["kind"]}{match["more"]}" id="{linked}"'
        elif linked:
            to, linked = linked, ""
            says = f'class="headerlink" href="#{to}" title="Link to this"'
            link = f"<a {says} data-search-exclude>¶</a>"
            return match["link"] + link if match["link"] == "</strong>" else link + match["link"]
        return match[0]

    # Where every heading is in the menu, its own link need not stand in the way of the Tab key.
    return PLACE.sub(place, html).replace('class="headerlink"', 'class="headerlink" tabindex="-1"')


class _Addresses(Postprocessor):
    def run(self, text: str) -> str:
        return addressed(text)


class AddressExtension(Extension):
    """Runs last, on the HTML that the fences have become."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        md.postprocessors.register(_Addresses(md), "addresses", -10)


def makeExtension(**settings) -> AddressExtension:  # noqa: N802 (Python-Markdown's name)
    """Let `markdown_extensions: [book.markdown.addresses]` find the extension."""
    return AddressExtension(**settings)
