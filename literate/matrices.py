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
from collections.abc import Iterator, Sequence

import yaml

from literate.page import Block, Fence, Page
from literate.site.explorable import EMBEDDED, PROJECTED, shown

SETS = ("choices", "heads")
MATRICES = (*EMBEDDED, *PROJECTED)
MOST_PLACES = 6  # decimal places, where the fence shows none yet
ALLOWED = (
    *(ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.Constant),
    *(ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Load),
)
Named = tuple[yaml.ScalarNode, str, str, yaml.Node]  # key, matrix, expression or "", value


def figures(page: Page) -> list[Block]:
    """Return a block for each `attention` fence that `page` computes, which prints its right body.

    Raises:
        PageError: a matrix is neither named nor by hand, or its expression is none, at its line.
    """
    found = [_figure(page, fence) for fence in page.fences if fence.language == "attention"]
    return [block for block in found if block]


def _figure(page: Page, fence: Fence) -> Block | None:
    root = _root(fence.text)
    named = list(_named(root))
    by_hand = _by_hand(root)
    code = [""] * fence.text.count("\n")
    for key, name, expression, _ in named:
        line = key.start_mark.line
        if bool(expression) == (name in by_hand):
            what = f"{name} names no expression; wanted `{name} = …:`, or `by_hand: {name}`"
            if expression:
                what = f"{name} is by hand, and names {expression}"
            raise page.error(fence.line + 1 + line, what)
        if expression:
            code[line] += f"({_checked(page, fence.line + 1 + line, expression)}), "
    if not any(code):
        return None
    code[0] = f"print(__import__({__name__!r}, fromlist='*').filled({fence.text!r}, [" + code[0]
    code[-1] += "]), end='')"
    return Block(fence, "\n".join(code) + "\n", fence, start=fence.line + 1)


def _checked(page: Page, line: int, expression: str) -> str:
    try:
        for node in ast.walk(ast.parse(expression, mode="eval")):
            if not isinstance(node, ALLOWED):
                what = f"wanted names, indices and arithmetic in `{expression}`"
                raise page.error(line, f"{what}; found a {type(node).__name__}")
    except SyntaxError as error:
        raise page.error(line, f"`{expression}` is no expression: {error.msg}") from None
    return expression


def _root(body: str) -> yaml.Node | None:
    try:
        return yaml.compose(body, Loader=yaml.SafeLoader)
    except yaml.YAMLError:  # what draws the fence says what is wrong with it
        return None


def _by_hand(root: yaml.Node | None) -> list[str]:
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return next((str(v.value).split() for k, v in pairs if k.value == "by_hand"), [])


def _named(node: yaml.Node | None) -> Iterator[Named]:
    """Yield each matrix below `node`, in the order of the text."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        name, _, expression = str(key.value).partition(" = ")
        if name in MATRICES:
            yield key, name, expression.strip(), value
        elif name in SETS and isinstance(value, yaml.SequenceNode):
            for item in value.value:
                yield from _named(item)


def computed_cells(body: str) -> list[yaml.ScalarNode]:
    """Return the numbers of `body` that a page computes, in order, with their places in it."""
    matrices = [node for _, _, expression, node in _named(_root(body)) if expression]
    return [cell for node in matrices for row in _items(node) for cell in _items(row)]


def filled(body: str, values: Sequence) -> str:
    """Return `body` with the numbers of its named matrices replaced by `values`, one for each.

    Each number keeps the decimal places it has; a matrix of another shape is written anew.

    Raises:
        ValueError: a value is not a matrix.
    """
    named = [matrix for matrix in _named(_root(body)) if matrix[2]]
    for (key, name, _, node), value in reversed(list(zip(named, values, strict=True))):
        rows = _rows(name, value)
        cells = [cell for row in _items(node) for cell in _items(row)]
        if [len(_items(row)) for row in _items(node)] == [len(row) for row in rows]:
            numbers = [number for row in rows for number in row]
            for cell, number in reversed(list(zip(cells, numbers, strict=True))):
                written = _written(number, cell.value)
                body = body[: cell.start_mark.index] + written + body[cell.end_mark.index :]
        else:
            start = "\n" + " " * (key.start_mark.column + 2) + "- "
            places = _places(number for row in rows for number in row)
            text = (", ".join(shown(number, places) for number in row) for row in rows)
            last = _items(node)[-1] if _items(node) and not node.flow_style else node
            new = "".join(f"{start}[{row}]" for row in text)
            body = body[: key.end_mark.index] + ":" + new + body[last.end_mark.index :]
    return body


def _items(node: yaml.Node) -> list[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _rows(name: str, value) -> list[list[float]]:
    rows = value.tolist() if hasattr(value, "tolist") else value
    cells = [cell for row in rows for cell in row] if _nested(rows) else []
    if not cells or not all(isinstance(cell, int | float) for cell in cells):
        came = f"shape {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise ValueError(f"{name} wants a matrix, got {came}")
    return rows


def _nested(rows) -> bool:
    return isinstance(rows, list | tuple) and all(isinstance(row, list | tuple) for row in rows)


def _written(number: float, like: str) -> str:
    """Return `number` with the places of `like`; a fraction is never written as a whole number."""
    return shown(number, len(like.partition(".")[2]) or (0 if number % 1 == 0 else MOST_PLACES))


def _places(numbers) -> int:
    """Return the fewest decimal places, at least one, that show `numbers` to six places."""
    exact = [f"{number:.{MOST_PLACES}f}".rstrip("0") for number in numbers]
    return max(1, *(len(text.partition(".")[2]) for text in exact))
