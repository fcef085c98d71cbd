"""Says a formula in words, for those who hear it: "Q K transposed over the square root of d sub k".

MathML in, words out. What a pause would tell a listener, a comma tells a voice; where something
with signs in it ends, "end power" or "end fraction" says so. A sign that has no word here has the
name that Unicode gives it.
"""

from __future__ import annotations

import re
import unicodedata
from xml.etree import ElementTree

# Those that compare two sides need no pause before them.
RELATIONS = {
    "=": "equals",
    "≠": "does not equal",
    "≈": "is about",
    "<": "is less than",
    ">": "is greater than",
    "≤": "is at most",
    "≥": "is at least",
    "∈": "in",
    "←": "becomes",
    "→": "goes to",
}
OPERATORS = {
    "+": "plus",
    "−": "minus",
    "/": "over",
    "×": "times",
    "∘": "times, element by element,",
    "⋅": "dot",
} | RELATIONS
NAMES = {
    "sin": "sine",
    "cos": "cosine",
    "𝔼": "the expected value",
    "Var": "the variance",
    "rowsum": "the row sum",
    "concat": "the concatenation",
    "max": "the maximum",
    "min": "the minimum",
    "∑": "the sum",
    "∏": "the product",
    "∂": "partial",
    "⊤": "transpose",
    "∞": "infinity",
}
# What is taken over an index; elsewhere an index below is one.
OVER = ("∑", "∏", "max", "min")
POWERS = {
    "2": "squared",
    "3": "cubed",
    "⊤": "transposed",
    "−⊤": "inverse transposed",
    "−1": "inverse",
    "′": "prime",
}
BRACKETS = {"(": "open bracket", ")": "close bracket"} | {"[": "open bracket", "]": "close bracket"}
APPLIED = "\N{FUNCTION APPLICATION}"
UNDER_BRACE = ["bottom curly bracket"]


class _Function(str):
    """A word that is "of" what follows it in brackets."""


def spoken(mathml: str) -> str:
    """Return a `<math>` element, drawn by math_core, in words; empty where it shows nothing.

    Args:
        mathml: the element as text, one formula, every named entity of it `&ApplyFunction;`.
    """
    words = _words(_said(ElementTree.fromstring(mathml.replace("&ApplyFunction;", APPLIED))))
    text = re.sub(r"(\s*,)+", ",", " ".join(words))
    return re.sub(rf",(?= (?:{'|'.join(RELATIONS.values())})\b)", "", text).strip(" ,.")


def _said(element: ElementTree.Element) -> list[str]:
    """Return what an element says, its brackets and signs as they stand."""
    kind, children = element.tag.rpartition("}")[2], list(element)
    if kind == "mspace":
        return [","] * (float(element.get("width", "0em").removesuffix("em")) >= 1)
    if kind == "annotation":
        return []
    if kind in ("mi", "mo", "mn", "mtext"):
        return _leaf(kind, (element.text or "").strip())
    if kind == "mfrac":
        return _fraction(*map(_said, children))
    if kind == "msqrt":
        inner = [word for child in children for word in _said(child)]
        return ["the square root of", *_ended(inner, "root")]
    if kind in ("msub", "msup", "msubsup", "munder", "mover", "munderover"):
        return _scripts(kind, children)
    if kind == "mtable":
        rows = [", ".join(" ".join(_words(_said(cell))) for cell in row) for row in children]
        return ["; ".join(rows)]
    said = [word for child in children for word in _said(child)]
    # A table in brackets of its own is a matrix.
    if kind == "mrow" and "mtable" in [child.tag.rpartition("}")[2] for child in children]:
        said = ["the matrix", *said[1:-1], ",", "end matrix", ","]
    return said


def _leaf(kind: str, text: str) -> list[str]:
    if text in NAMES:
        name = NAMES[text]
        return [_Function(name) if text.isalpha() or text in OVER else name]
    if kind == "mtext":
        return [" ".join(text.replace("_", " ").split()).replace(":", ",")]
    if len(text) > 1:
        return [_Function(text) if text.isalpha() else text]
    if text in (APPLIED, ""):
        return []
    if text in BRACKETS or text in OPERATORS or text in ",‖.|" or (text.isascii() and kind != "mo"):
        return [text]
    name = unicodedata.name(unicodedata.normalize("NFKC", text), text).lower()
    return [name.removeprefix("greek small letter ").replace("greek capital letter", "capital")]


def _scripts(kind: str, children: list[ElementTree.Element]) -> list[str]:
    """Say a base, and what stands below and above it."""
    base, *scripts = children
    below = _said(scripts.pop(0)) if kind.startswith(("msub", "munder")) else []
    above = _said(scripts[0]) if scripts else []
    said = _said(base)
    if below == UNDER_BRACE:
        return said
    if (
        base.tag.rpartition("}")[2] == "munder"
    ):  # its brace stands between it and what is said of it
        return [*said, ",", "which is", *below, ","]
    if "".join(base.itertext()).strip() in OVER:
        limits = ["from", *below, "to", *above] if above else ["over", *below]
        return [*said, *limits, "of"]
    if below:
        said += ["sub", *_ended(below, "sub")]
    if above:
        power = "".join(scripts[0].itertext())
        said += [POWERS[power]] if power in POWERS else ["to the", *_ended(above, "power")]
    return said


def _fraction(above: list[str], below: list[str]) -> list[str]:
    if _signs(above) or _signs(below):
        pause = [","] * (len(above) > 1)
        return ["the fraction", *above, *pause, "divided by", *below, ",", "end fraction", ","]
    return [*above, "over", *below, ","]


def _ended(words: list[str], what: str) -> list[str]:
    """Say where it ends: in words if it holds signs, by a pause if it holds more than one word."""
    return [*words, ",", f"end {what}", ","] if _signs(words) else words + [","] * (len(words) > 1)


def _signs(words: list[str]) -> bool:
    """Say whether there are signs between words; one before them all is part of what they say."""
    return any(word in OPERATORS or word in BRACKETS for word in words[1:])


def _words(said: list[str]) -> list[str]:
    """Turn brackets and signs into words, each by what stands beside it."""
    said = [word for word in said if word]
    words: list[str] = []
    closing: list[str] = []  # what the brackets and norms that are open will say at their end
    for before, word, after in zip(["", *said], said, [*said[1:], ""], strict=False):
        if word in ("(", "["):
            applied = isinstance(before, _Function)
            words.append("of" if applied else BRACKETS[word])
            closing.append("," if applied else BRACKETS[")"])
        elif word in (")", "]"):
            words.append(closing.pop() if closing else BRACKETS[word])
        elif word in ("‖", "|"):
            if closing and closing[-1] == word:
                closing.pop()
                words.append(",")
            else:
                closing.append(word)
                words.append("the norm of" if word == "‖" else "the absolute value of")
        elif word == "⋅" and (before.isdigit() or after.isdigit()):
            words.append("times")
        elif word == ".":
            words += ["and so on", ","] if before == "." == after else []
        else:
            words.append(OPERATORS.get(word, word))
    return words
