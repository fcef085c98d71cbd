"""Labels of a heatmap that the page computes: `rows="= words: Your journey starts with one step"`."""

import re

from book.figures import expressions
from book.figures.explorable.fence import words_of
from book.figures.heatmap import LABELS
from literate.fence import Fence


def program(opening: Fence) -> str:
    """Return the code that prints, as JSON, the labels that a heatmap names; "" for none.

    Raises Misread where such an expression is none.
    """
    matches = [LABELS.fullmatch(opening.options.get(name, "")) for name in ("rows", "cols")]
    named = [match["expression"] for match in matches if match]
    return expressions.program(named, opening.line) if named else ""


def filled(opening: str, values: list) -> str:
    """Return the opening line of a heatmap with the labels that it names replaced by `values`."""
    given = iter(values)

    def fill(option: re.Match) -> str:
        if match := LABELS.fullmatch(option["value"]):
            words = words_of(option["name"], next(given))
            return f'{option["name"]}="= {match["expression"]}: {" ".join(words)}"'
        return option[0]

    return re.sub(r'\b(?P<name>rows|cols)="(?P<value>[^"]*)"', fill, opening)
