"""Numbers of the text that are bound to an expression of the page: outputs of one number.

    In head 0, *bank* gives *rowed* <data value="weights[6, 1]">0.47</data> of its attention.

A reader sees the number alone. As in a figure, the expression looks up, indexes and reckons, at this
place of the page, and calls nothing. The number must be its value, rounded to the digits shown; a
percent sign means a hundredth. A number of any size may be bound, one of a single digit too.
"""

import re
from collections.abc import Iterator
from html import unescape

from literate import expressions
from literate.fence import Fence, Misread, blank_out
from literate.numerals import Numbers, Numeral, numerals

KIND = "bound"  # the language of a line of text with such numbers, among fences
BOUND = re.compile(r'<data value="(?P<expression>[^"]+)">(?P<shown>[^<]*)</data>')
CODE = re.compile(r"(`++).*?\1")
SLACK = 1e-5  # by so large a share a float may differ between processors


def lines(fences: list[Fence], text: str) -> Iterator[Fence]:
    """Yield each line of a page's `text` that binds a number, as a fence of its own kind.

    Raises Misread where the element is not whole, or shows anything but one plain number.
    """
    prose = blank_out(fences, text)
    for number, line in enumerate(prose, 1):
        if "<data" not in CODE.sub("", line):
            continue
        bound = list(BOUND.finditer(line))
        if len(bound) != line.count("<data"):
            what = 'a bound number stands on one line, as `<data value="weights[1, 2]">0.47</data>`'
            raise Misread(number, what)
        for match in bound:
            if not _number(match["shown"]):
                raise Misread(
                    number, f"wanted one plain number in <data>; found `{match['shown']}`"
                )
        fence = Fence(number, number, "", "", KIND, {}, line + "\n")
        fence.solution = _in_solution(prose, number - 1)
        yield fence


def program(fence: Fence) -> str:
    """Return the code that prints, as JSON, the value of each expression on the line in `fence`."""
    bound = (unescape(match["expression"]) for match in BOUND.finditer(fence.text))
    return expressions.program(bound, fence.line)


def fill(line: str, values: list) -> str:
    """Return `line` with each bound number that is not its value, as shown, replaced by it."""
    for match, value in reversed(list(zip(BOUND.finditer(line), values, strict=True))):
        if type(value) not in (int, float):
            raise ValueError(f"{match['expression']} is no number, but {value}")
        one = _number(match["shown"])
        assert one, "`lines` found one"
        if not Numbers(more=[value, value * (1 + SLACK), value * (1 - SLACK)]).hold(one):
            line = line[: match.start("shown")] + _written(value, one) + line[match.end("shown") :]
    return line


def _number(shown: str) -> Numeral | None:
    """Return the one number that is all of `shown`; None where it shows another thing."""
    numbers = list(numerals(shown))
    plain = re.fullmatch(r"[-−]?[\d,]+(?:\.\d+)?(?:\s?%)?", shown)
    return numbers[0] if plain and len(numbers) == 1 else None


def _written(value: float, like: Numeral) -> str:
    """Return `value` in the form of `like`: its decimal places, commas, minus and percent sign."""
    percent = re.search(r"\s?%$", like.text)
    places = len(like.text.removesuffix(percent[0] if percent else "").partition(".")[2])
    comma = "," if "," in like.text or abs(value) >= 10_000 else ""
    text = f"{value * (100 if percent else 1):{comma}.{places}f}{percent[0] if percent else ''}"
    return text.replace("-", "−") if "−" in like.text else text


def _in_solution(prose: list[str], at: int) -> bool:
    """Say whether line `at` stands in a solution, further in than the line that opens it."""
    inside = len(prose[at]) - len(prose[at].lstrip())
    for line in reversed(prose[:at]):
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < inside:
            if re.match(r"\?\?\?\+? +success +\"Solution", line.strip()):
                return True
            inside = indent
    return False
