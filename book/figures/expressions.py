"""Expressions of a page, whose values it shows in its text or in a figure.

An expression looks up, indexes and reckons; it calls nothing, so no hidden code runs. Its values are
printed as JSON by a program, and compared like any output.
"""

import ast
from collections.abc import Iterable

from literate.fence import Misread

ALLOWED = (
    *(ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.Constant),
    *(ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Load),
)
BEGIN = "print(__import__('json').dumps(["
END = "], default=lambda one: one.tolist() if hasattr(one, 'tolist') else str(type(one))))"


def check_expression(expression: str, line: int) -> None:
    """Raise Misread, at `line`, unless `expression` looks up, indexes and reckons alone."""
    try:
        for node in ast.walk(ast.parse(expression, mode="eval")):
            if not isinstance(node, ALLOWED):
                what = f"wanted names, indices and arithmetic in `{expression}`"
                raise Misread(line, f"{what}; found a {type(node).__name__}")
    except SyntaxError as error:
        raise Misread(line, f"`{expression}` is no expression: {error.msg}") from None


def program(expressions: Iterable[str], line: int) -> str:
    """Return the code that prints, as JSON, the values of `expressions`, which stand on `line`."""
    code = ""
    for expression in expressions:
        check_expression(expression, line)
        code += f"({expression}), "
    return f"{BEGIN}{code}{END}\n"
