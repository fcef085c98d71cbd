"""Turns $…$ and $$…$$ into MathML while the page is built, so that math needs no JavaScript.

A Python-Markdown extension: `$` hugs its formula on both sides (`$5 and $6` stays text), `$$` stands
alone on its lines, and code is left as it is. The LaTeX travels along as an annotation, and the
formula in words as the name that a screen reader speaks. A formula
that cannot be drawn completely stops the build with a `MathError` that names it.
"""

from __future__ import annotations

import re
from html import escape, unescape
from xml.etree import ElementTree

from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.util import STX
from math_core import LatexError, LatexToMathML

from book.markdown.speech import spoken

INLINE = r"(?<![\\$\w])\$(?![\s$])((?:\\.|[^$\\])+?)(?<!\s)\$(?![\d$])([,.;:!?)]*)"
DISPLAY = re.compile(r"\A {0,3}\$\$(?P<tex>.+?)\$\$\s*\Z", re.DOTALL)
# Between two formulas that stand beside each other, as a phone may set them below each other.
APART = re.compile(r"\s*(?:\\quad\s*)*\\qquad(?:\s*\\q?quad)*(?![A-Za-z])\s*")
# Characters after which a formula in a sentence may be wider than a phone; it then scrolls there.
LONG = 20
# Between blanks where a formula is read as text.
RELATIONS = "=≠≈<>≤≥→←∈+−"
PRIMED = re.compile("<msup>(<mi>[^<]*</mi>)<mo>′</mo></msup>")
CONVERTER = LatexToMathML(annotation=True, fancy_error=False)


class MathError(ValueError):
    """A formula that cannot be drawn; the message quotes it, and `tex` is it."""

    def __init__(self, tex: str, reason: str):
        super().__init__(f"cannot draw the formula ${tex}$: {reason}")
        self.tex = tex


def mathml(tex: str, *, display: bool = False) -> str:
    """Draw one formula as a `<math>` element with its LaTeX as an annotation.

    Args:
        tex: LaTeX without the dollar signs, for example `\\frac{QK^\\top}{\\sqrt{d_k}}`.
        display: on lines of its own rather than within a sentence.

    Raises:
        MathError: the formula is malformed, or uses a command or environment that is not known.
    """
    tex = " ".join(tex.split())
    if STX in tex:
        raise MathError(tex, "a fence or something like it stands inside")
    try:
        drawn = CONVERTER.convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        raise MathError(tex, str(error).partition(": ")[2]) from error
    label = escape(spoken(drawn))
    # The only name that every browser tells a screen reader; the formula below it stays to be explored.
    drawn = drawn.replace("<math", f'<math aria-label="{label}"', 1)
    # The prime of the book's font stands high by itself; set as an exponent it would be a speck.
    drawn = PRIMED.sub(r'<mrow>\1<mo lspace="0" rspace="0">′</mo></mrow>', drawn)
    # The book's font has this dot. The search reads the symbols once, not their source as well.
    drawn = drawn.replace(">⋅<", ">·<")
    return drawn.replace("<annotation", "<annotation data-search-exclude")


def side_by_side(tex: str) -> list[str]:
    """Return the formulas that wide spaces part, or the one that has such a space within a bracket or a table."""
    parts = APART.split(tex.strip())
    pairs = [("{", "}"), (r"\begin", r"\end"), (r"\left", r"\right")]
    closed = all(
        part.count(opens) == part.count(closes) for part in parts for opens, closes in pairs
    )
    return parts if closed else [tex]


def symbols(html: str) -> str:
    """Return what a reader sees of a formula, or of a sentence with formulas, without its markup."""
    shown = unescape(re.sub(r"<annotation.*?</annotation>|<[^>]+>", "", html))
    return shown.replace("\N{FUNCTION APPLICATION}", "")


def on_one_line(formula: str) -> str:
    """Return a drawn formula as a line of HTML text: √d<sub>k</sub>, (a + b)/c, e<sup>x</sup>."""
    bare = re.sub(r"<annotation\b.*?</annotation>", "", formula, flags=re.S)
    # XML knows no names but these three and `quot`; HTML has many.
    named = re.sub(r"&(?!lt;|gt;|amp;)\w+;", lambda name: unescape(name[0]), bare)
    line = " ".join(_line(ElementTree.fromstring(named)).split())
    # A sign before a number or a name is no operator.
    return re.sub(r"^− |(<su[bp]>) − |([(,;=≠≈≤≥→∈] ?)− ", r"\1\2−", line)


def _line(node: ElementTree.Element) -> str:
    parts = [_line(child) for child in node]
    match node.tag:
        case "msub" | "munder":
            return f"{parts[0]}<sub>{parts[1]}</sub>"
        case "msup":
            return f"{parts[0]}<sup>{parts[1]}</sup>"
        case "msubsup" | "munderover":
            return f"{parts[0]}<sub>{parts[1]}</sub><sup>{parts[2]}</sup>"
        case "mfrac":
            return "/".join(map(_grouped, parts))
        case "msqrt":
            return "√" + _grouped("".join(parts))
        case "mtr":
            return " ".join(parts) + "; "
        case "mo" if node.text and node.text in RELATIONS:
            return f" {escape(node.text)} "
        case "mo" if node.text == ",":
            return ", "
        case "mspace":
            return " "
    shown = "" if node.text == "\N{FUNCTION APPLICATION}" else escape((node.text or "").strip())
    return shown + "".join(parts)


def _grouped(text: str) -> str:
    """Return `text` in brackets, where without them it would read as less than the whole."""
    return text if re.fullmatch(r"[\w∂]*(<(su[bp])>\w*</\2>)?", text) else f"({text})"


class _Inline(InlineProcessor):
    def handleMatch(self, match, data):  # noqa: N802 (Python-Markdown's name)
        formula, after = mathml(match[1]), match[2]
        # No line begins with the comma after a formula.
        if len(symbols(formula)) > LONG:
            formula = f'<span class="math-long">{formula}{after}</span>'
        elif after:
            formula = f'<span class="math-word">{formula}{after}</span>'
        return self.md.htmlStash.store(formula), match.start(0), match.end(0)


class _Display(BlockProcessor):
    def test(self, parent: ElementTree.Element, block: str) -> bool:
        return DISPLAY.match(block) is not None

    def run(self, parent: ElementTree.Element, blocks: list[str]) -> None:
        match = DISPLAY.match(blocks.pop(0))
        assert match, "`test` saw it match"
        formulas = [mathml(tex, display=True) for tex in side_by_side(match["tex"])]
        kind = "math apart" if len(formulas) > 1 else "math"
        box = ElementTree.SubElement(parent, "div", {"class": kind})
        box.text = "".join(map(self.parser.md.htmlStash.store, formulas))


class MathExtension(Extension):
    """Registers both forms, after code and before emphasis, so `_` and `*` stay math."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        md.ESCAPED_CHARS.append("$")
        md.inlinePatterns.register(_Inline(INLINE, md), "math", 185)
        md.parser.blockprocessors.register(_Display(md.parser), "math", 85)


def makeExtension(**settings) -> MathExtension:  # noqa: N802 (Python-Markdown's name)
    """Let `markdown_extensions: [book.markdown.math]` find the extension."""
    return MathExtension(**settings)
