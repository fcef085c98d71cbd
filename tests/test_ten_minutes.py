"""A chapter in ten minutes: the steps of CONTRIBUTING.md, followed to the letter in a copy of the project."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[1]
OURS = (".ci", "book", "docs", "literate", "overrides", "processor", "snippets", "tests", "tools")

QUESTION = "How does a cap keep a score from growing without end?"
CHAPTER = f"""\
# Soft caps

{QUESTION} By the end of this chapter you can cap a score without a corner.

<figure class="diagram">

![A line that rises and becomes flat](drawings/capped.svg "A capped line")

<figcaption>The line rises, and becomes flat.</figcaption>
</figure>

A cap is a function that changes small scores little, and large ones much:

```python
import torch

scores = torch.tensor([1.0, 10.0, 1000.0])
print(30 * torch.tanh(scores / 30))
```

```output
```

The largest score is 30 now.
"""
ROW = f"| [Soft caps](softcap.md) | {QUESTION} | cap a score |\n"
WRONG = """
["foundations/softcap.md"]
'no cap' = ['torch.tanh(scores / 30)', '(scores / 30)']
"""


def make(project, *words):
    """Run `make` in a copy of the project, with the environment of these tests; return what it said."""
    outer = ("CI", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    command = ["make", "--silent", "--old-file", ".venv/installed", *words]
    done = subprocess.run(
        [*command, f"BIN={Path(sys.executable).parent}"],
        cwd=project,
        env=environment | {"PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path):
    copy = tmp_path / "book"
    copy.mkdir()
    for path in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(path, copy)
    for name in OURS:
        unbuilt = shutil.ignore_patterns("__pycache__", ".*cache")
        shutil.copytree(ROOT / name, copy / name, ignore=unbuilt)
    return copy


def insert(path, before, text):
    old = path.read_text(encoding="utf-8")
    assert old.count(before) == 1, f"{path.name} has one {before!r}"
    path.write_text(old.replace(before, text + before), encoding="utf-8")


TESTS = "docs/foundations/softcap.md tests/test_story.py tests/test_glossary.py tests/test_wrong_pages.py"


def test_a_chapter_that_follows_the_steps_passes_the_tests_and_is_built(project):
    steps = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = steps.partition("## A chapter in ten minutes")[2].partition("\n## ")[0]
    named = {"docs/<part>/index.md", "tests/wrong_pages.toml", "mkdocs.yml", "make update PAGE="}
    assert [name for name in named if name not in steps] == []
    page = project / "docs/foundations/softcap.md"
    page.write_text(CHAPTER, encoding="utf-8")
    shutil.copy(ROOT / "docs/foundations/drawings/speak.svg", page.parent / "drawings/capped.svg")
    insert(project / "mkdocs.yml", "  - II · The layer:\n", "      - foundations/softcap.md\n")
    assert make(project, "update", "PAGE=docs/foundations/softcap.md")[0] == 0
    assert "tensor([ 0.9996,  9.6454, 30.0000])" in page.read_text(encoding="utf-8")
    with (project / "tests/wrong_pages.toml").open("a", encoding="utf-8") as table:
        table.write(WRONG)
    index = project / "docs/foundations/index.md"
    insert(index, "\nEach chapter says", ROW)
    chosen = "softcap or story or every_chapter or first_page or glossary"
    status, said = make(project, "test", f'ARGS={TESTS} -k "{chosen}"')
    assert status == 0, said
    assert int(re.search(r"(\d+) passed", said)[1]) > 10
    status, said = make(project, "build")
    assert status == 0, said
    index.write_text(index.read_text(encoding="utf-8").replace(ROW, ""), encoding="utf-8")
    status, said = make(project, "test", f"ARGS={TESTS} -k first_page")
    assert status != 0
    assert "softcap.md" in said
