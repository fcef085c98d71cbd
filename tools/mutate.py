"""Do the tests of a part notice when its code is changed? Prints each change that they let pass.

One change at a time: a comparison, an operator, a sign, a number, or a branch taken always or never. The part's
test file is run on the changed module in a process of its own; what takes a minute counts as noticed. A survivor is a test that is missing, or a line that changes nothing and may go.
"""

import argparse
import ast
import multiprocessing
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType

import pytest
import torch  # noqa: F401 - once, and not in each process

ROOT, SECONDS = Path(__file__).parents[1], 60  # for one change
PAIRS = [(ast.Eq, ast.NotEq), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Is, ast.IsNot)]
PAIRS += [(ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or)]
OTHER = dict(PAIRS) | {second: first for first, second in PAIRS}
OTHER |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
OTHER |= {ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr}


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield each node below this one, but for annotations."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in ("annotation", "returns"):
                yield child
                yield from executed(child)


def alternatives(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Yield what a node may be changed to: a field, and its other value."""
    match node:
        case ast.Compare(ops=[first, *others]):
            yield "ops", [OTHER[type(first)](), *others]
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in OTHER:
            yield "op", OTHER[type(operator)]()
        case ast.UnaryOp(op=sign, operand=operand):
            yield "operand", ast.UnaryOp(sign, operand)  # a sign twice is none
        case ast.Constant(value=bool(value)):
            yield "value", not value
        case ast.Constant(value=int(value) | float(value)):
            yield from (("value", value + 1), ("value", value - 1))
        case ast.If() | ast.IfExp() | ast.While():
            yield from (("test", ast.Constant(True)), ("test", ast.Constant(False)))


def changes(source: str, file: str) -> list[tuple[int, CodeType]]:
    """Return the line of each change that makes another program, and the program, by line."""
    tree, found = ast.parse(source), []
    programs = {ast.unparse(tree)}
    for node in executed(tree):
        for field, value in alternatives(node):
            before = getattr(node, field)
            setattr(node, field, value)
            if (program := ast.unparse(tree)) not in programs:
                programs.add(program)
                code = compile(ast.fix_missing_locations(tree), file, "exec")
                found.append((getattr(node, "lineno", 0), code))
            setattr(node, field, before)
    return sorted(found, key=lambda change: change[0])


def survives(code: CodeType, part: str, test: Callable) -> bool:
    """Whether `test`, given the module, returns in time and without an error; in another process."""

    def run() -> None:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
        module = ModuleType(part)
        exec(code, module.__dict__)
        test(module)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(SECONDS)
    process.kill()
    process.join()
    return process.exitcode == 0


def run_tests(module: ModuleType) -> None:
    """Run the test file of a part on this module; raise where a test fails."""
    sys.modules[f"snippets.{module.__name__}"] = module
    file = f"{ROOT}/tests/snippets/test_{module.__name__}.py"
    assert pytest.main(["-qx", "-p", "no:cacheprovider", file]) == 0


def main() -> None:
    """Print the survivors of each part, and how many changes were noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help="files of snippets/; none: all")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many changes of each part")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in asked.parts or sorted(path.stem for path in (ROOT / "snippets").glob("*.py")):
        file = f"snippets/{part}.py"
        source = (ROOT / file).read_text(encoding="utf-8")
        every = changes(source, str(ROOT / file))
        size = min(asked.sample or len(every), len(every))
        tried = sorted(random.Random(0).sample(every, size), key=lambda change: change[0])
        left = [line for line, code in tried if survives(code, part, run_tests)]
        for line in left:
            print(f"{file}:{line}: {source.splitlines()[line - 1].strip()}")
        print(f"{part}: {size - len(left)} of {size} noticed, of {len(every)} possible", flush=True)


if __name__ == "__main__":
    main()
