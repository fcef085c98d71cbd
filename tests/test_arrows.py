"""Imports lead one way: the checker knows no book, nothing that is used knows a test, and no circle is left."""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HOUSES = ("literate", "book", "processor", "tools", "snippets")
# What each may import of ours, beside itself.
MAY = {
    "literate": set(),
    "processor": set(),
    "snippets": set(),
    "book": {"literate"},
    "tools": {"literate", "book", "processor", "snippets"},
}
# What configuration has a module load: the checker reads mkdocs.yml and pyproject.toml.
READS = {"mkdocs.yml": "literate.site", "pyproject.toml": "literate.settings"}


@cache
def modules():
    """Return the path of each module of ours by its name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for house in HOUSES
        for path in (ROOT / house).rglob("*.py")
    }


def imported(path):
    """Return the names of the modules of ours that the file at `path` imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {name for name in found if name in modules() or name.partition(".")[0] == "tests"}


def configured():
    """Yield, as (reader, module), what configuration makes the checker import."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    extensions = yaml.unsafe_load(text)["markdown_extensions"]
    names = {name for one in extensions for name in ([one] if isinstance(one, str) else one)}
    names |= set(re.findall(r"!!python/name:([\w.]+)\.\w+", text))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    yield from ((READS["mkdocs.yml"], name) for name in names & modules().keys())
    named = re.search(r'^project = "([\w.]+):', project, re.MULTILINE)
    assert named, "pyproject.toml names what the book adds to the checker"
    yield READS["pyproject.toml"], named[1]


def test_configuration_names_modules_of_ours():
    assert {module.partition(".")[0] for _, module in configured()} == {"book", "literate"}


@pytest.mark.parametrize("house", HOUSES)
def test_a_house_imports_only_what_it_may(house):
    for name, path in modules().items():
        if name.partition(".")[0] == house:
            others = {other.partition(".")[0] for other in imported(path)} - {house}
            assert others <= MAY[house], f"{name} imports {others - MAY[house]}"


def test_no_circle_is_left_that_imports_or_configuration_make():
    graph = {name: imported(path) - {name} for name, path in modules().items()}
    # A package that is named on the way to a module of it holds no code that could ask for one.
    packages = {"book", "book.figures", "book.markdown", "literate", "tools"}
    for package in packages:
        assert not imported(modules()[package]), f"{package} imports"
    for reader, module in configured():
        graph[reader].add(module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))
