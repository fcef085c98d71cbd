"""Find the code that the last blocks of a page need, by the names that each statement makes and uses."""

import ast
import builtins
import re
import symtable

from literate.page import Block


def needed(before: list[Block], after: list[Block], loads: str) -> list[str]:
    """Return the code of each block of `before` without what loads, and nothing needs.

    Those are the statements in which `loads` is named, and all that use what these make, as far as
    neither the blocks `after` nor what they need names what they make. "" is a block of nothing else.
    """
    programs = [ast.parse(block.code).body for block in (*before, *after)]
    names = {statement: _names(statement) for program in programs for statement in program}
    imported = {
        name
        for program in programs[: len(before)]
        for statement in program
        for node in ast.walk(statement)
        for name in _modules(node)
    }
    asked, kept = set[str](), set[tuple[int, int]]()
    for place, program in reversed([*enumerate(programs)]):
        for statement in reversed(program):
            made, changed, used = names[statement]
            if place >= len(before) or (made | changed - imported) & asked:
                asked = asked - made | used
                kept.add((place, statement.lineno))
    left, gone = [], set[str]()
    for place, (block, program) in enumerate(zip(before, programs, strict=False)):
        code = block.code.split("\n")
        lines: list[str | None] = [*code]
        for statement in program:
            made, changed, used = names[statement]
            marks = getattr(statement, "decorator_list", [])
            first = min(node.lineno for node in (statement, *marks))
            loading = loads in "\n".join(code[first - 1 : statement.end_lineno])
            if (place, statement.lineno) not in kept and (loading or used & gone):
                gone |= made | changed - imported
                lines[first - 1 : statement.end_lineno] = [None] * (
                    statement.end_lineno - first + 1
                )
            else:
                gone -= made
        rest = "\n".join(line for line in lines if line is not None)
        trimmed = re.sub(r"\n{4,}", "\n\n\n", rest).strip("\n") + "\n"
        rest = trimmed if None in lines else block.code
        left.append(rest if ast.parse(rest).body or not program else "")
    return left


def names(code: str) -> list[tuple[set[str], set[str], set[str], set[str]]]:
    """Return, for each statement of `code`, which names it makes, changes and uses, and which it imports."""
    return [
        (*_names(statement), {name for node in ast.walk(statement) for name in _imported(node)})
        for statement in ast.parse(code).body
    ]


def _imported(node: ast.AST) -> list[str]:
    aliases = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
    return [(name.asname or name.name).partition(".")[0] for name in aliases]


def _modules(node: ast.AST) -> list[str]:
    names = node.names if isinstance(node, ast.Import) else []
    return [(name.asname or name.name).partition(".")[0] for name in names]


def _names(statement: ast.stmt) -> tuple[set[str], set[str], set[str]]:
    """Return which names of the page a statement makes, which it changes, and which it uses."""
    text = ast.unparse(_Generators().visit(ast.parse(ast.unparse(statement))))
    module = symtable.symtable(text, "page", "exec")
    symbols = module.get_symbols()
    made = {name.get_name() for name in symbols if name.is_assigned() or name.is_imported()}
    used, scopes = set[str](), [module]
    for scope in scopes:
        scopes += scope.get_children()
        referenced = [name for name in scope.get_symbols() if name.is_referenced()]
        used |= {name.get_name() for name in referenced if scope is module or name.is_global()}
    if isinstance(statement, ast.For):  # what it counts with is not asked of what stands before
        used -= _loaded(statement.target) - _loaded(statement.iter)
    changed = set[str]()
    for node in ast.walk(statement):
        part = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)
        done = isinstance(node, ast.Expr) and not ast.unparse(node).startswith("print(")
        changed |= _loaded(node) if part or done else set()
    return made, changed & used - set(dir(builtins)), used


class _Generators(ast.NodeTransformer):
    """Makes a generator of each comprehension: from Python 3.12 on, the names of others count as the page's."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.DictComp):
            node = ast.GeneratorExp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)
        elif isinstance(node, ast.ListComp | ast.SetComp):
            node = ast.GeneratorExp(node.elt, node.generators)
        return self.generic_visit(node)


def _loaded(tree: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(tree) if isinstance(name, ast.Name)}
