"""Read the numbers that a text writes: 1,048,576, −0.5, 5.8e-06, 3.4 · 10³⁸, 28.9 %, 16×, 481–500."""

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property

SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")
NUMERAL = re.compile(
    r"""(?<![\w.\#])(?<![A-Za-z_]-)(?P<sign>(?<![\w)\]}{])[-−])?
        (?P<digits>(?:\d{1,3}(?:(?:,|\{,\}|_)\d{3})+|\d+)(?:\.(?P<places>\d+))?)
        (?:[eE](?P<e>[-+]?\d{1,4})
         |(?<=(?<!\d)10)(?:\^\{?(?P<ten>[-−]?\d{1,4})\}?|(?P<tenth>⁻?[⁰¹²³⁴-⁹]{1,4}))
         |\s?(?:[·×]|\\cdot|\\times)\s?10(?:\^\{?(?P<power>[-−]?\d{1,4})\}?|(?P<raised>⁻?[⁰¹²³⁴-⁹]{1,4})))?
        (?!\.?\d)(?P<percent>(?:\s?\\?%|\sper\scent)(?!\s?\d))?""",
    re.VERBOSE,
)
OPERATORS = str.maketrans({"·": "*", "×": "*", "÷": "/", "−": "-", "^": "**", "{": "(", "}": ")"})
# Python 3.11.2 misreads `?+` behind a group: it would take a full stop in.
OPERAND = r"\(?\d++(?:\.\d++|(?!\.\d))(?:e[-+]?\d++|(?!e[-+]?\d))\)?"
ARITHMETIC = re.compile(rf"(?<![\w.]){OPERAND}(?: *(?:\*\*|[-+*/]) *{OPERAND}){{1,9}}")
# What an equation may state, and what before it leaves its left side open.
POWER_OF_TEN = re.compile(r"[\d.]+ *\* *10 *\*\* *\(?[-\d]+\)?")
STATED = re.compile(
    r"\s*=\s*(?P<number>-?\d+(?:\.\d+)?(?:\s?\\?%)?)(?!\w|\.?\d|\s*[*/+^(]|\s*-\s*\d)"
)
OPEN = re.compile(r"(?:(?<=\S)|(?<=\S\s))[-+*/^(]\s?\Z")  # no dash of a list


class Numeral:
    """One number as it is written; a percent sign means a hundredth.

    `unit` is what one step of its last digit is worth; `digits` counts those that are written, and
    `significant` those from the first that is no zero.
    """

    def __init__(self, match: re.Match):
        self.text, self.start = match[0].strip(), match.start()
        ten = match["ten"] or match["tenth"]  # as in 10⁻⁵, whose one digit is a 1
        exponent = ten or match["e"] or match["power"] or match["raised"] or "0"
        exponent = int(exponent.translate(SUPERSCRIPT)) - (2 if match["percent"] else 0)
        digits = "1" if ten else re.sub(r"[^\d.]", "", match["digits"])
        size = float(f"{digits}e{exponent}")
        self.value = -size if match["sign"] else size
        self.unit = float(f"1e{exponent - len(match['places'] or '')}")
        self.digits = len(digits.replace(".", ""))
        self.significant = len(digits.replace(".", "").lstrip("0"))
        self.padded = re.match(r"0\d", digits) is not None
        self.signed = bool(match["sign"])


def numerals(text: str) -> Iterator[Numeral]:
    """Yield the numbers that `text` writes, in order."""
    return map(Numeral, NUMERAL.finditer(text))


def constants(code: str) -> Iterator[float]:
    """Yield the numbers that Python `code` computes with, in order: no comment, no string holds one."""

    def below(node: ast.AST, sign: int) -> Iterator[float]:
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield sign * float(value)
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        for inner in ast.iter_child_nodes(node):
            yield from below(inner, -1 if negative else 1)

    with suppress(SyntaxError):  # what runs the code says so
        yield from below(ast.parse(code), 1)


class Numbers:
    """Numbers that may be quoted, in their order: those of `texts`, and `more`."""

    def __init__(self, texts: Iterable[str] = (), more: Iterable[float] = ()):
        written = [(one.value, one.text) for text in texts for one in numerals(text)]
        self.pairs = [*written, *((value, f"{value:g}") for value in more)]

    @cached_property
    def places(self) -> list[tuple[float, int]]:
        """The numbers by size, each with its place among the others."""
        return sorted((value, place) for place, (value, _) in enumerate(self.pairs))

    def hold(self, quoted: Numeral) -> list[int]:
        """Return the places of those that are `quoted`, rounded as it is; people leave out a minus."""
        places_held, room = [], quoted.unit * (0.5 + 1e-6)
        for value in {quoted.value} if quoted.signed else {quoted.value, -quoted.value}:
            at = bisect_left(self.places, (value - room, -1))
            while at < len(self.places) and self.places[at][0] <= value + room:
                places_held.append(self.places[at][1])
                at += 1
        return sorted(places_held)

    def near(self, number: float, count: int = 2) -> str:
        """Return the nearest ones as they are written, up to `count` on each side."""
        texts = dict(self.pairs)
        values = sorted(texts)
        at = bisect_left(values, number)
        return ", ".join(texts[v] for v in values[max(0, at - count) : at + count]) or "none"


def results(sentence: str) -> Iterator[float]:
    """Yield what the arithmetic that `sentence` writes out comes to, and the terms of what is right.

    An equation holds its terms: another number in it would make it wrong.
    """
    plain = _plain(sentence)
    for match, result in _reckoned(plain):
        yield result
        if (stated := _stated(plain, match)) and Numbers(more=[result]).hold(stated):
            yield from (abs(one.value) for one in numerals(match[0]))


def wrong_sums(sentence: str) -> Iterator[str]:
    """Yield each equation of `sentence` between numbers alone whose two sides are not equal."""
    plain = _plain(sentence)
    for match, result in _reckoned(plain):
        stated = _stated(plain, match)
        if stated and not Numbers(more=[result]).hold(stated):
            yield f"{match[0]} = {stated.text}, but comes to {result:.12g}"


def _stated(plain: str, sum_: re.Match) -> Numeral | None:
    """Return what the text says a `sum_` is; None where it does not, or where it is part of another."""
    stated = STATED.match(plain, sum_.end())
    if not stated or OPEN.search(plain, 0, sum_.start()):
        return None
    return next(numerals(stated["number"]))


def _plain(sentence: str) -> str:
    plain = re.sub(r"(?<=\d)(?:,|\{,\})(?=\d{3})|\$", "", sentence)
    plain = re.sub(r"\\(?:cdot|times)\s?", "*", plain)
    plain = re.sub(r"[⁰¹²³⁴-⁹⁻]+", lambda match: "**" + match[0].translate(SUPERSCRIPT), plain)
    return plain.translate(OPERATORS)


def _reckoned(plain: str) -> Iterator[tuple[re.Match, float]]:
    for match in ARITHMETIC.finditer(plain):
        if POWER_OF_TEN.fullmatch(match[0]):  # one number
            continue
        floats = re.sub(r"\d[\d.]*(?:e[-+]?\d+)?", lambda one: repr(float(one[0])), match[0])
        try:
            result = eval(floats, {"__builtins__": {}})  # floats, operators and brackets, no more
        except (ArithmeticError, NameError, SyntaxError):  # a name: inf
            continue
        if isinstance(result, float):
            yield match, result


def rounded(value: float, digits: int) -> str:
    """Return `value` with so many decimal places: Python's rounding, and no minus before a zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text
