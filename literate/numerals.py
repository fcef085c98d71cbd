"""Read the numbers that a text writes: 1,048,576, −0.5, 5.8e-06, 3.4 · 10³⁸, 28.9 %, 64 · 32 · 32."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")
NUMERAL = re.compile(
    r"""(?<![\w.\#])(?<!\w-)(?P<sign>(?<![\w)\]}{])[-−])?
        (?P<digits>(?:\d{1,3}(?:(?:,|\{,\}|_)\d{3})+|\d+)(?:\.(?P<places>\d+))?)
        (?:[eE](?P<e>[-+]?\d{1,4})
         |\s?(?:[·×]|\\cdot|\\times)\s?10(?:\^\{?(?P<power>[-−]?\d{1,4})\}?|(?P<raised>⁻?[⁰¹²³⁴-⁹]{1,4})))?
        (?!\.?\d|\w)(?P<percent>\s?\\?%|\sper\scent)?""",
    re.VERBOSE,
)
OPERATORS = str.maketrans({"·": "*", "×": "*", "÷": "/", "−": "-", "^": "**", "{": "(", "}": ")"})
OPERAND = r"\(?\d++(?:\.\d++)?+(?:e[-+]?\d++)?+\)?"
ARITHMETIC = re.compile(rf"(?<![\w.]){OPERAND}(?: *(?:\*\*|[-+*/]) *{OPERAND}){{1,9}}")


class Numeral:
    """One number as it is written. `unit` is what one step of its last digit is worth."""

    def __init__(self, match: re.Match):
        self.text, self.start = match[0].strip(), match.start()
        exponent = match["e"] or match["power"] or match["raised"] or "0"
        exponent = int(exponent.translate(SUPERSCRIPT))
        size = float(re.sub(r"[^\d.]", "", match["digits"]) + f"e{exponent}")
        self.value = -size if match["sign"] else size
        self.unit = float(f"1e{exponent - len(match['places'] or '')}")
        self.significant = len(re.sub(r"\D", "", match["digits"]).lstrip("0"))
        self.signed, self.percent = bool(match["sign"]), bool(match["percent"])


def numerals(text: str) -> Iterator[Numeral]:
    """Yield the numbers that `text` writes, in order."""
    return map(Numeral, NUMERAL.finditer(text))


class Numbers:
    """Numbers that may be quoted: those of `texts`, and `more`."""

    def __init__(self, texts: Iterable[str] = (), more: Iterable[float] = ()):
        self.texts = {one.value: one.text for text in texts for one in numerals(text)}
        self.values = sorted({*self.texts, *more})

    def hold(self, quoted: Numeral) -> bool:
        """Say whether one of them, rounded as `quoted` is, is it; signs and shares as people say."""
        values = [quoted.value] if quoted.signed else [quoted.value, -quoted.value]
        scales = [1, 100] if quoted.percent else [1]
        return any(self._within(value / s, quoted.unit / s) for value in values for s in scales)

    def near(self, number: float, count: int = 2) -> str:
        """Return the nearest ones as they are written, up to `count` on each side."""
        at = bisect_left(self.values, number)
        around = self.values[max(0, at - count) : at + count]
        return ", ".join(self.texts.get(value, f"{value:g}") for value in around) or "none"

    def _within(self, value: float, unit: float) -> bool:
        room = unit * (0.5 + 1e-6)
        at = bisect_left(self.values, value - room)
        return at < len(self.values) and self.values[at] <= value + room


def results(sentence: str) -> Iterator[float]:
    """Yield what the arithmetic that `sentence` writes out comes to."""
    plain = re.sub(r"(?<=\d)(?:,|\{,\})(?=\d{3})|\$", "", sentence)
    plain = re.sub(r"\\(?:cdot|times)\s?", "*", plain)
    plain = re.sub(r"[⁰¹²³⁴-⁹⁻]+", lambda match: "**" + match[0].translate(SUPERSCRIPT), plain)
    for match in ARITHMETIC.finditer(plain.translate(OPERATORS)):
        floats = re.sub(r"\d[\d.]*(?:e[-+]?\d+)?", lambda one: repr(float(one[0])), match[0])
        try:
            result = eval(floats, {"__builtins__": {}})  # floats, operators and brackets, no more
        except (ArithmeticError, NameError, SyntaxError):  # a name: inf
            continue
        if isinstance(result, float):
            yield result


def rounded(value: float, digits: int) -> str:
    """Return `value` with so many decimal places: Python's rounding, and no minus before a zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text
