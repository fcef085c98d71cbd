"""What `attention` fences and heatmaps show of a page, which is output too: each thing names what it shows.

    tokens = words: Your journey starts with one step
    embeddings = inputs:                         # an expression of the page, at this place of it
      - [0.43, 0.15, 0.89]
    W_query = head.W_query.weight.T: [[0.316059, -0.168285]]
    weights = weights:                           # what the figure must derive as it opens
    by_hand: W_key W_value                       # what no code of the page holds

An expression looks up, indexes and reckons; it calls nothing, so no hidden code runs. What it gives
is written with the digits that the fence shows, compared like any output, and filled in by updating.
The words, the matrices and the weights of a fence each name an expression or stand under `by_hand`.
The labels of a heatmap may: `rows="= words: Your journey starts with one step"`.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from book.figures.drawn import LABELS
from literate import expressions
from literate.expressions import BEGIN, END, check_expression
from literate.fence import Fence, Misread
from literate.numerals import rounded

SETS = ("choices", "heads")
EMBEDDED = ("embeddings", "W_query", "W_key", "W_value")
PROJECTED = ("queries", "keys", "values")
MATRICES = (*EMBEDDED, *PROJECTED)
WORDS, SWITCHES = ("tokens", "votes"), ("causal", "scaling")
STEPS = ("scores", "scaled", "masked", "weights", "context")  # what a figure derives
NAMED = (*WORDS, *SWITCHES, *MATRICES, *STEPS)  # what may name an expression
MOST_PLACES = 6  # decimal places, where the fence shows none yet
Named = tuple[yaml.ScalarNode, str, str, yaml.Node]  # key, what it names, expression or "", value
Rows = list[list[float]]


def program(fence: Fence) -> str:
    """Return the code that prints, as JSON, each value that the figure in `fence` names; "" for none.

    Raises Misread where something is neither named nor by hand, or its expression is none.
    """
    named, by_hand = _named(fence.text), _by_hand(fence.text)
    code = [""] * fence.text.count("\n")
    for key, name, expression, _ in named:
        at = key.start_mark.line
        wants = name not in SWITCHES
        if (not expression and wants and name not in by_hand) or (expression and name in by_hand):
            what = f"{name} names no expression; wanted `{name} = …:`, or `by_hand: {name}`"
            if expression:
                what = f"{name} is by hand, and names {expression}"
            raise Misread(fence.line + 1 + at, what)
        if expression:
            check_expression(expression, fence.line + 1 + at)
            code[at] += f"({expression}), "
    for panel in _panels(_root(fence.text)):
        if "weights" not in (*by_hand, *(str(key.value).partition(" = ")[0] for key, _ in panel)):
            what = "the figure names no weights, so nothing says that it derives those of the page"
            raise Misread(fence.line, f"{what}; wanted `weights = …:`, or `by_hand: weights`")
    if not any(code):
        return ""
    code[0] = BEGIN + code[0]
    code[-1] += END
    return "\n".join(code) + "\n"


def labels(opening: Fence) -> str:
    """Return the code that prints, as JSON, the labels that a heatmap names; "" for none.

    Raises Misread where such an expression is none.
    """
    matches = [LABELS.fullmatch(opening.options.get(name, "")) for name in ("rows", "cols")]
    named = [match["expression"] for match in matches if match]
    return expressions.program(named, opening.line) if named else ""


def fill_labels(opening: str, values: list) -> str:
    """Return the opening line of a heatmap with the labels that it names replaced by `values`."""
    given = iter(values)

    def filled(option: re.Match) -> str:
        if match := LABELS.fullmatch(option["value"]):
            words = _words(option["name"], next(given))
            return f'{option["name"]}="= {match["expression"]}: {" ".join(words)}"'
        return option[0]

    return re.sub(r'\b(?P<name>rows|cols)="(?P<value>[^"]*)"', filled, opening)


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else []


def _items(node: yaml.Node) -> list[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _cells(node: yaml.Node) -> list[yaml.ScalarNode]:
    return [cell for row in _items(node) for cell in _items(row)]


def _root(body: str) -> yaml.Node | None:
    try:
        return yaml.compose(body, Loader=yaml.SafeLoader)
    except yaml.YAMLError:  # what draws the fence says what is wrong with it
        return None


def _by_hand(body: str) -> list[str]:
    return next((str(v.value).split() for k, v in _pairs(_root(body)) if k.value == "by_hand"), [])


def _panels(root: yaml.Node | None) -> list[list[tuple[yaml.ScalarNode, yaml.Node]]]:
    """Return what each panel of a figure says, with what is said for all of them."""
    every = _pairs(root)
    items = [item for key, value in every if key.value in SETS for item in _items(value)]
    return [[*_pairs(item), *every] for item in items] or [every]


def _named(body: str) -> list[Named]:
    """Return all in `body` that may name an expression, in the order of the text."""

    def below(node: yaml.Node | None) -> Iterator[Named]:
        for key, value in _pairs(node):
            name, _, expression = str(key.value).partition(" = ")
            if name in NAMED:
                yield key, name, expression.strip(), value
            elif name in SETS:
                for item in _items(value):
                    yield from below(item)

    return list(below(_root(body)))


def steps(body: str, values: list) -> list[dict[str, Any]]:
    """Return, for each panel of `body`, what the page computes of STEPS, given all named `values`."""
    named = [key for key, _, expression, _ in _named(body) if expression]
    computed = {key.start_mark.index: value for key, value in zip(named, values, strict=True)}
    computed_steps: list[dict[str, Any]] = []
    for panel in _panels(_root(body)):
        computed_steps.append({})
        for key, _ in reversed(panel):  # what a panel says goes before what is said for all
            name = str(key.value).partition(" = ")[0]
            if name in STEPS and key.start_mark.index in computed:
                computed_steps[-1][name] = computed[key.start_mark.index]
    return computed_steps


def places(body: str) -> list[tuple[str, list[int]]]:
    """Return, for each value that `program` prints, its name and the panels of the figure that show it."""
    panels = _panels(_root(body))

    def shows(
        panel: list[tuple[yaml.ScalarNode, yaml.Node]], key: yaml.ScalarNode, name: str
    ) -> bool:
        # What a panel says goes before what is said for all.
        named = (
            one.start_mark.index for one, _ in panel if str(one.value).partition(" = ")[0] == name
        )
        return next(named, None) == key.start_mark.index

    return [
        (name, [at for at, panel in enumerate(panels) if shows(panel, key, name)])
        for key, name, expression, _ in _named(body)
        if expression
    ]


def computed_cells(body: str) -> list[yaml.ScalarNode]:
    """Return the numbers of `body` that a page computes, in order, with their places in it."""
    return [cell for _, _, expression, node in _named(body) if expression for cell in _cells(node)]


def fill(body: str, values: list, places: int = 0) -> str:
    """Return `body` with what it names replaced by `values`, one for each; steps hold no numbers.

    Each number keeps the decimal places it has, but has `places` at least where it is not exact; a
    matrix of another shape is written anew. Raises ValueError where a value does not fit its name.
    """
    named = [entry for entry in _named(body) if entry[2]]
    for (key, name, _, node), value in reversed(list(zip(named, values, strict=True))):
        if name in MATRICES:
            body = _fill_matrix(body, key, node, _rows(name, value), places)
        elif name not in STEPS:
            body = _fill_words(body, key, node, _words(name, value))
    return body


def _fill_matrix(body: str, key: yaml.Node, node: yaml.Node, rows: Rows, places: int) -> str:
    if [len(_items(row)) for row in _items(node)] == [len(row) for row in rows]:
        numbers = [number for row in rows for number in row]
        for cell, number in reversed(list(zip(_cells(node), numbers, strict=True))):
            written = _written(number, cell.value, places)
            body = body[: cell.start_mark.index] + written + body[cell.end_mark.index :]
        return body
    start = "\n" + " " * (key.start_mark.column + 2) + "- "
    shown = max(places, _places(rows))
    new = "".join(f"{start}[{', '.join(rounded(n, shown) for n in row)}]" for row in rows)
    last = _items(node)[-1] if _items(node) and not node.flow_style else node
    return body[: key.end_mark.index] + ":" + new + body[last.end_mark.index :]


def _fill_words(body: str, key: yaml.Node, node: yaml.Node, words: list[str]) -> str:
    before = [str(item.value) for item in _items(node)] or str(node.value).split()
    if before == words:
        return body
    plain = re.fullmatch(r"[^\W\d_][\w' -]*", text := " ".join(words))
    written = text if plain else json.dumps(words, ensure_ascii=False)
    return f"{body[: key.end_mark.index]}: {written}{body[node.end_mark.index :]}"


def _words(name: str, value: Any) -> list[str]:
    """Return the words of `value`: a text, or a list of words; of a switch, whether it is on."""
    if name in SWITCHES and isinstance(value, bool):
        return ["true" if value else "false"]
    words = value.split() if isinstance(value, str) else value
    right = isinstance(words, list) and all(isinstance(word, str | int) for word in words)
    if name in SWITCHES or not right or any(len(str(word).split()) != 1 for word in words):
        wanted = "true or false" if name in SWITCHES else "words without blanks"
        raise ValueError(f"{name} wants {wanted}, got {value!r}")
    return [str(word) for word in words]


def _rows(name: str, value: Any) -> Rows:
    shape: tuple[int, ...] = ()
    inner = value
    while isinstance(inner, list) and inner:
        shape, inner = (*shape, len(inner)), inner[0]
    if len(shape) != 2 or not isinstance(inner, int | float):
        raise ValueError(f"{name} wants a matrix, got {f'shape {shape}' if shape else value}")
    for row in value:
        for number in row if isinstance(row, list) else [row]:
            if not isinstance(number, int | float) or not math.isfinite(number):
                raise ValueError(f"{name} wants a matrix of numbers, got {number}")
        if not isinstance(row, list) or len(row) != shape[1]:
            raise ValueError(f"{name} wants rows of one length, got {value}")
    return value


def _written(number: float, like: str, places: int) -> str:
    """Return `number` with the places of `like`; a fraction is never written as a whole number."""
    shown = len(like.partition(".")[2]) or (0 if number % 1 == 0 else MOST_PLACES)
    exact = abs(float(rounded(number, shown)) - number) < 0.5 * 10.0**-MOST_PLACES
    return rounded(number, shown if exact else max(shown, places))


def _places(rows: Rows) -> int:
    """Return the fewest decimal places, at least one, that show all numbers to six places."""
    exact = [f"{number:.{MOST_PLACES}f}".rstrip("0") for row in rows for number in row]
    return max(1, *(len(text.partition(".")[2]) for text in exact))
