"""The README's commands start on every Python that it promises, and say plainly where they cannot."""

import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PINS = dict(
    line.split("==")
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    if "==" in line and not line.startswith("#")
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
