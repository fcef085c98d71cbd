"""Turns $…$ and $$…$$ into MathML while the page is built, so that math needs no JavaScript.

A Python-Markdown extension: `$` hugs its formula on both sides (`$5 and $6` stays text), `$$` stands
alone on its lines, and code is left as it is. The LaTeX travels along as an annotation. A formula
that cannot be drawn completely stops the build with a `MathError` that names it.
"""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

MATHML = "http://www.w3.org/1998/Math/MathML"
INLINE = r"(?<![\\$\w])\$(?![\s$])((?:\\.|[^$\\])+?)(?<!\s)\$(?![\d$])([,.;:!?)]*)"
DISPLAY = re.compile(r"\A {0,3}\$\$(?P<tex>.+?)\$\$\s*\Z", re.DOTALL)
# Environments that the converter knows under another name.
SAME_AS = {"aligned": "align*", "gathered": "align*"}
# Characters after which a formula in a sentence may be wider than a phone; it then scrolls there.
LONG = 20
# What the converter takes for operators, with room on both sides, and is none.
LETTERS = "∞∂…⊤"
CLOSING = (")", "]", "|", "‖")  # a sign after one of these adds or subtracts
UNKNOWN = re.compile(r"\\[A-Za-z]+|[&\\]")


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
    named = re.sub(
        r"\\(begin|end)\{(\w+)\}",
        lambda match: rf"\{match[1]}{{{SAME_AS.get(match[2], match[2])}}}",
        tex,
    )
    try:
        markup = convert(named, display="block" if display else "inline")
        root = ElementTree.fromstring(markup.replace("<mi>&</mi>", "<mi>&amp;</mi>"))
    except Exception as error:
        reason = " ".join(filter(None, [type(error).__name__, str(error)]))
        raise MathError(tex, reason) from error
    _refuse_leftovers(root, tex)
    _join_words(root)
    _give_room(root)
    _bind_signs(root)
    _align_columns(root)
    return _serialize(_annotated(root, tex))


def _refuse_leftovers(root: ElementTree.Element, tex: str) -> None:
    """Raise where the converter passed LaTeX through as if it were a letter."""
    for element in root.iter():
        if UNKNOWN.fullmatch(element.text or ""):
            raise MathError(tex, f"{element.text} is not known")


def _join_words(root: ElementTree.Element) -> None:
    r"""Make \mathrm{softmax} and \operatorname{softmax} one word each, not seven letters."""
    for parent in root.iter():
        letters = list(parent)
        if len(letters) > 1 and all(
            letter.tag == f"{{{MATHML}}}mi" and letter.get("mathvariant") == "normal"
            for letter in letters
        ):
            word = ElementTree.Element(f"{{{MATHML}}}mi")
            word.text = "".join(letter.text or "" for letter in letters)
            parent[:] = [word]
        for child in parent:
            named = re.fullmatch(rf"[A-Za-z]{{2,}}|[{LETTERS}]", child.text or "")
            if child.tag == f"{{{MATHML}}}mo" and named:
                child.tag = f"{{{MATHML}}}mi"
                child.attrib.clear()


def _give_room(root: ElementTree.Element) -> None:
    """Put a thin space between a function's name and a letter beside it, as LaTeX does."""
    for row in root.iter(f"{{{MATHML}}}mrow"):
        for place, pair in reversed(list(enumerate(pairwise(row), 1))):
            others = [element for element in pair if not _is_name(element)]
            if len(others) < 2 and all(_text(element)[:1].isalnum() for element in others):
                row.insert(place, ElementTree.Element(f"{{{MATHML}}}mspace", {"width": "0.167em"}))


def _bind_signs(root: ElementTree.Element) -> None:
    """Set a sign after another operator close to what it belongs to, as in = -1."""
    for row in root.iter():
        for before, sign in pairwise(row):
            both = before.tag == sign.tag == f"{{{MATHML}}}mo"
            if both and sign.text in ("−", "+", "±") and before.text not in CLOSING:
                sign.set("form", "prefix")


def _is_name(element: ElementTree.Element) -> bool:
    """Say whether an element is a function's name, with an index or without."""
    base = element[0] if element.tag.endswith(("msub", "msup", "munder")) else element
    return base.tag.endswith("mi") and len(base.text or "") > 1


def _text(element: ElementTree.Element) -> str:
    return "".join(element.itertext()).strip()


def _align_columns(root: ElementTree.Element) -> None:
    """Say column alignment in CSS: browsers dropped the attribute."""
    for cell in root.iter(f"{{{MATHML}}}mtd"):
        side = cell.attrib.pop("columnalign", None)
        if side:
            cell.set("style", f"text-align: {side}")


def _annotated(root: ElementTree.Element, tex: str) -> ElementTree.Element:
    """Wrap the formula in `semantics` beside its source."""
    semantics = ElementTree.Element(f"{{{MATHML}}}semantics")
    row = ElementTree.SubElement(semantics, f"{{{MATHML}}}mrow")
    row[:] = list(root)
    # The search index reads the symbols once, not their source as well.
    annotation = ElementTree.SubElement(
        semantics,
        f"{{{MATHML}}}annotation",
        {"encoding": "application/x-tex", "data-search-exclude": ""},
    )
    annotation.text = tex
    root[:] = [semantics]
    return root


def _serialize(root: ElementTree.Element) -> str:
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{MATHML}}}")
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


class _Inline(InlineProcessor):
    def handleMatch(self, match, data):  # noqa: N802 (Python-Markdown's name)
        formula, after = mathml(match[1]), match[2]
        # No line begins with the comma after a formula.
        if len(re.sub(r"<annotation.*|<[^>]+>", "", formula)) > LONG:
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
        box = ElementTree.SubElement(parent, "div", {"class": "math"})
        box.text = self.parser.md.htmlStash.store(mathml(match["tex"], display=True))


class MathExtension(Extension):
    """Registers both forms, after code and before emphasis, so `_` and `*` stay math."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        md.ESCAPED_CHARS.append("$")
        md.inlinePatterns.register(_Inline(INLINE, md), "math", 185)
        md.parser.blockprocessors.register(_Display(md.parser), "math", 85)


def makeExtension(**settings) -> MathExtension:  # noqa: N802 (Python-Markdown's name)
    """Let `markdown_extensions: [literate.site.math]` find the extension."""
    return MathExtension(**settings)
