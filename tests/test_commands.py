"""The README's commands start on every Python that it promises, and say plainly where they cannot."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name as canonical

ROOT = Path(__file__).parents[1]
OURS = {"book", "literate", "processor", "snippets", "tests", "tools"}
IN_THE_PAGE = {"page"}  # small_torch/page.py, as what runs in a browser finds it
PINS = dict(
    re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.M)
)


def test_every_pin_installs_on_the_first_release_of_python_311():
    wanted = {}
    for name, version in PINS.items():
        installed = metadata.distribution(name)
        assert installed.version.partition("+")[0] == version, f"{name} is not what is pinned"
        wanted[f"{name}=={version}"] = installed.metadata.get("Requires-Python", "")
    refused = [
        f"{pin} wants {python}"
        for pin, python in wanted.items()
        if "3.11.0" not in SpecifierSet(python)
    ]
    assert refused == []


def test_what_the_project_asks_for_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [need for needs in project["optional-dependencies"].values() for need in needs]
    pins = {canonical(name): version for name, version in PINS.items()}
    for need in map(Requirement, asked):
        assert pins[canonical(need.name)] in need.specifier, need


def test_what_the_project_imports_is_asked_for():
    """Triton is an extra of its own, in requirements-triton.txt, since it is as large as all the others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [need for needs in project["optional-dependencies"].values() for need in needs]
    asked = {canonical(Requirement(need).name) for need in needs}
    brought = metadata.packages_distributions()
    for module in sorted(
        imported() - set(sys.stdlib_module_names) - OURS - IN_THE_PAGE - {"triton"}
    ):
        assert asked & {canonical(name) for name in brought[module]}, module


def imported() -> set[str]:
    """The names of the modules that the project's Python files import, without their parts."""
    files = [file for folder in OURS for file in (ROOT / folder).rglob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    names = [part.name for node in nodes if isinstance(node, ast.Import) for part in node.names]
    names += [n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
    return {name.partition(".")[0] for name in names}


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make here")
@pytest.mark.parametrize(
    ("said", "found"), [("Python 3.10.13", "is Python 3.10.13"), ("", "is nothing that runs")]
)
def test_a_python_that_is_too_old_gets_one_line(tmp_path, said, found):
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "old-python"
    old.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{said}'\n", encoding="utf-8")
    old.chmod(0o755)
    command = ["make", "--no-print-directory", "test", f"PYTHON={old}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "The book needs Python 3.11 or newer" in line
    assert found in line
    assert not (tmp_path / ".venv").exists()


def test_line_ends_are_the_same_on_every_system():
    """A digest in a chapter counts them: git changes none, and no file that it tracks has CRLF."""
    rules = (ROOT / ".gitattributes").read_text(encoding="utf-8").splitlines()
    assert rules[-1] == "* -text"
    if not (ROOT / ".git").exists():
        pytest.skip("this copy of the book is no checkout, so nobody says what belongs to it")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    contents = {file: file.read_bytes() for file in files if file.is_file()}
    texts = {file: content for file, content in contents.items() if b"\0" not in content}
    assert len(texts) > 200
    pictures = {".png", ".woff2", ".pt", ".zip"}
    wrong = [f for f, text in texts.items() if b"\r\n" in text and f.suffix not in pictures]
    assert wrong == []
