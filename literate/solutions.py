"""Find out whether a page could print something else for a reader who opens no solution."""

import ast

from literate.page import Page


def leans_on_solutions(page: Page) -> bool:
    """Say whether a block after a solution could do something else where no solution is run.

    It cannot where it only defines functions and classes, imports, or names constants, and reads none of
    the names that solutions make. In this book that is nearly every block after a solution.
    """
    made: set[str] = set()
    for block in page.steps:
        program = _parsed(block.code)
        if block.solution:
            made |= _names(program)
        elif made and not _only_defines(program.body, made):
            return True
    return False


def _parsed(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError:  # running it says so
        return ast.Module([], [])


def _names(program: ast.Module) -> set[str]:
    """Return every name that `program` sets, defines or imports, at any depth, and one for its being there."""
    names = {""}
    for node in ast.walk(program):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


def _only_defines(body: list[ast.stmt], made: set[str]) -> bool:
    """Say whether the statements of `body` call nothing, and read none of the names `made`, as they run."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            if not _only_defines(statement.body, made):
                return False
            statement.body = []
        elif isinstance(statement, ast.FunctionDef):
            statement.body = []  # it runs when it is called
        elif isinstance(statement, ast.Assign | ast.Expr):
            if not isinstance(statement.value, ast.Constant):
                return False
        elif not isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
            return False
        for node in ast.walk(statement):
            name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else ""
            if isinstance(node, ast.Call) or (name in made and name):
                return False
    return True
