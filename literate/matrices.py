"""The matrices of `attention` fences, which are outputs too: each names what it shows.

    tokens: Your journey starts with one step
    embeddings = inputs:                         # an expression of the page, at this place of it
      - [0.43, 0.15, 0.89]
    W_query = head.W_query.weight.T: [[0.316059, -0.168285]]
    by_hand: W_key W_value                       # matrices that no code of the page holds

An expression looks up, indexes and reckons; it calls nothing, so no hidden code runs. What it gives
is written with the digits that the fence shows, compared like any output, and filled in by updating.
"""

import ast
from collections.abc import Iterator
from typing import Any

import yaml

from literate.fence import Fence
from literate.markup import Misread
from literate.numerals import rounded

SETS = ("choices", "heads")
EMBEDDED = ("embeddings", "W_query", "W_key", "W_value")
PROJECTED = ("queries", "keys", "values")
MATRICES = (*EMBEDDED, *PROJECTED)
MOST_PLACES = 6  # decimal places, where the fence shows none yet
ALLOWED = (
    *(ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.Constant),
    *(ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Load),
)
# What a figure is for a run: a program that prints the values of its expressions as JSON.
BEGIN = "print(__import__('json').dumps(["
END = "], default=lambda one: one.tolist() if hasattr(one, 'tolist') else str(type(one))))"
Named = tuple[yaml.ScalarNode, str, str, yaml.Node]  # key, matrix, expression or "", value
Rows = list[list[float]]


def program(fence: Fence) -> str:
    """Return the code that prints, as JSON, each value that the figure in `fence` names; "" for none.

    Raises Misread where a matrix is neither named nor by hand, or its expression is none.
    """
    named, by_hand = _named(fence.text), _by_hand(fence.text)
    code = [""] * fence.text.count("\n")
    for key, name, expression, _ in named:
        at = key.start_mark.line
        if bool(expression) == (name in by_hand):
            what = f"{name} names no expression; wanted `{name} = …:`, or `by_hand: {name}`"
            if expression:
                what = f"{name} is by hand, and names {expression}"
            raise Misread(fence.line + 1 + at, what)
        if expression:
            _check(expression, fence.line + 1 + at)
            code[at] += f"({expression}), "
    if not any(code):
        return ""
    code[0] = BEGIN + code[0]
    code[-1] += END
    return "\n".join(code) + "\n"


def _check(expression: str, line: int) -> None:
    try:
        for node in ast.walk(ast.parse(expression, mode="eval")):
            if not isinstance(node, ALLOWED):
                what = f"wanted names, indices and arithmetic in `{expression}`"
                raise Misread(line, f"{what}; found a {type(node).__name__}")
    except SyntaxError as error:
        raise Misread(line, f"`{expression}` is no expression: {error.msg}") from None


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


def _named(body: str) -> list[Named]:
    """Return each matrix of `body`, in the order of the text."""

    def below(node: yaml.Node | None) -> Iterator[Named]:
        for key, value in _pairs(node):
            name, _, expression = str(key.value).partition(" = ")
            if name in MATRICES:
                yield key, name, expression.strip(), value
            elif name in SETS:
                for item in _items(value):
                    yield from below(item)

    return list(below(_root(body)))


def computed_cells(body: str) -> list[yaml.ScalarNode]:
    """Return the numbers of `body` that a page computes, in order, with their places in it."""
    return [cell for _, _, expression, node in _named(body) if expression for cell in _cells(node)]


def fill(body: str, values: list) -> str:
    """Return `body` with the numbers of its named matrices replaced by `values`, one for each.

    Each number keeps the decimal places it has; a matrix of another shape is written anew. Raises
    ValueError where a value is not a matrix.
    """
    named = [matrix for matrix in _named(body) if matrix[2]]
    for (key, name, _, node), value in reversed(list(zip(named, values, strict=True))):
        rows = _rows(name, value)
        if [len(_items(row)) for row in _items(node)] == [len(row) for row in rows]:
            numbers = [number for row in rows for number in row]
            for cell, number in reversed(list(zip(_cells(node), numbers, strict=True))):
                written = _written(number, cell.value)
                body = body[: cell.start_mark.index] + written + body[cell.end_mark.index :]
        else:
            start = "\n" + " " * (key.start_mark.column + 2) + "- "
            places = _places(rows)
            new = "".join(f"{start}[{', '.join(rounded(n, places) for n in row)}]" for row in rows)
            last = _items(node)[-1] if _items(node) and not node.flow_style else node
            body = body[: key.end_mark.index] + ":" + new + body[last.end_mark.index :]
    return body


def _rows(name: str, value: Any) -> Rows:
    shape: tuple[int, ...] = ()
    inner = value
    while isinstance(inner, list) and inner:
        shape, inner = (*shape, len(inner)), inner[0]
    if len(shape) == 2 and isinstance(inner, int | float):
        return value
    raise ValueError(f"{name} wants a matrix, got {f'shape {shape}' if shape else value}")


def _written(number: float, like: str) -> str:
    """Return `number` with the places of `like`; a fraction is never written as a whole number."""
    return rounded(number, len(like.partition(".")[2]) or (0 if number % 1 == 0 else MOST_PLACES))


def _places(rows: Rows) -> int:
    """Return the fewest decimal places, at least one, that show all numbers to six places."""
    exact = [f"{number:.{MOST_PLACES}f}".rstrip("0") for row in rows for number in row]
    return max(1, *(len(text.partition(".")[2]) for text in exact))
