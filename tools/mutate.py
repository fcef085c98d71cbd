"""Do the tests of a part notice when its code is changed? Prints each change that they let pass.

    python -m tools.mutate                             every part: a night's work
    python -m tools.mutate llama rope --sample 40      40 changes of each of two parts

One change is made at a time: a comparison, an operator, a sign, a number, or a branch always taken or never. In
a process of its own, the part's FACTS are asked of the changed module, and then pytest runs its test file with
the module in place of the part. A change that takes longer than the limit counts as noticed.
A survivor is a test that is missing, or a line that changes nothing and may go.
"""

import argparse
import ast
import contextlib
import importlib
import multiprocessing
import os
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
PARTS = sorted(path.stem for path in (ROOT / "snippets").glob("*.py"))
Change = tuple[int, types.CodeType]  # the line, and the whole module with the change in it

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


def changes(source: str, file: str) -> list[Change]:
    """Return every change of the source that is another program, in the order of its lines."""
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


def survives(code: types.CodeType, part: str, test: Callable, limit: float) -> bool:
    """Whether `test`, given the module, returns in time and without an error; in a process of its own."""

    def run() -> None:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        module = types.ModuleType(part)
        module.__file__ = code.co_filename
        exec(code, module.__dict__)
        test(module)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(limit)
    process.kill()
    process.join()
    return process.exitcode == 0


def test_part(module: types.ModuleType) -> None:
    """Ask its FACTS of a part, and run its test file; raise where one does not hold."""
    name = module.__name__
    sys.modules[f"snippets.{name}"] = module
    setattr(importlib.import_module("snippets"), name, module)
    for fact in getattr(importlib.import_module(f"tests.snippets.test_{name}"), "FACTS", ()):
        fact(module)
    file = ROOT / f"tests/snippets/test_{name}.py"
    if pytest.main(["-qx", "-p", "no:cacheprovider", str(file)]) != pytest.ExitCode.OK:
        raise AssertionError(name)


def main(arguments: list[str] | None = None) -> None:
    """Print the survivors of each part, and how many changes were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], metavar="part")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many changes of each part")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one change")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for part in asked.parts or PARTS:
        path = ROOT / f"snippets/{part}.py"
        source = path.read_text(encoding="utf-8")
        tried = every = changes(source, str(path))
        if asked.sample and asked.sample < len(every):
            tried = random.Random(0).sample(every, asked.sample)
        left = 0
        for line, code in sorted(tried, key=lambda change: change[0]):
            if survives(code, part, test_part, asked.limit):
                left += 1
                print(
                    f"snippets/{part}.py:{line}: {source.splitlines()[line - 1].strip()}",
                    flush=True,
                )
        print(
            f"{part}: {len(tried) - left} of {len(tried)} noticed, of {len(every)} possible",
            flush=True,
        )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
