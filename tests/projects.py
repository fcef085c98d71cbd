"""A book of one's own for each test: a folder with pages, snippets and the settings of this site."""

import os
from pathlib import Path
from textwrap import dedent

import pytest

from literate import compare
from literate import page as reader
from literate.run import Run

ROOT = Path(__file__).parents[1]
# The folders of docs/ that hold the chapters of the parts.
PARTS = (
    "foundations",
    "correctness",
    "model",
    "positions",
    "cache",
    "kernels",
    "memories",
    "serving",
)
# The Markdown of this site, with tabs, which others have, and what the book adds to the checker.
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
FIRST = "\nmarkdown_extensions:\n"
SETTINGS = {
    "mkdocs.yml": SITE.replace(
        FIRST, f"{FIRST}  - pymdownx.tabbed:\n      alternate_style: true\n"
    ),
    "pyproject.toml": '[tool.literate]\nproject = "book.project:PROJECT"\n',
}


class Book:
    """A project in a folder of its own. `page` and `snippet` write files; `read` reads one back."""

    def __init__(self, root):
        self.root = root
        for name, text in SETTINGS.items():
            (root / name).write_text(text, encoding="utf-8")

    def page(self, text, name="docs/page.md"):
        """Write a page; `text` is dedented, and bytes are written as they are."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
        return path

    def snippet(self, name, text):
        """Write a file that pages can include."""
        return self.page(text, f"snippets/{name}")

    def read(self, text, name="docs/page.md"):
        """Write a page and read it."""
        return reader.read(self.page(text, name))


@pytest.fixture
def book(tmp_path, monkeypatch):
    """An empty book; the test stands in its root, as an author would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return Book(tmp_path)


@pytest.fixture
def no_torch(tmp_path_factory, monkeypatch):
    """Have every Python that starts from now on find no torch, and so start at once."""
    folder = tmp_path_factory.mktemp("no-torch")
    (folder / "torch.py").write_text("raise ModuleNotFoundError('torch')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT)]))


def unsupported_numbers(page):
    """Return the report on each number in the text of `page` that nothing holds."""
    return [f"{page.name}:{problem.line}: {problem}" for problem in page.prose_problems()]


def failures(page):
    """Run `page`; return the Failure of each step that does not hold."""
    run = Run(page)
    try:
        return [
            found for block in run.blocks if (found := compare.check(page, block, run.upto(block)))
        ]
    finally:
        run.close()


PROVEN = """
# A page

```python
a = 1
```

```python
print(a)
```

```output
1
```

```python
b = a + 1
print(f"{b:.4f}")
```

```output
2.0000
```
"""

# What makes of it a page that leans on its solution: the last block prints another number without.
LEANING = f"""{PROVEN}
??? success "Solution"

    ```python
    a = 7
    ```

```python
print(a)
```

```output
7
```
"""


def write(pytester, name, text):
    """Write a file of the project."""
    path = pytester.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def project(pytester, monkeypatch):
    """A project of two good pages; `run` runs pytest on it without a process of its own."""
    monkeypatch.delenv("CI", raising=False)
    for name in ("docs/a.md", "docs/part/b.md", "README.md"):
        write(pytester, name, PROVEN)
    for name, text in SETTINGS.items():
        write(pytester, name, text)
    write(pytester, "conftest.py", 'pytest_plugins = ["literate.pytest_plugin"]\n')
    quiet = "ignore:assertions not in test modules:pytest.PytestConfigWarning"  # under python -O
    settings = f"testpaths = README.md docs\nfilterwarnings =\n    error\n    {quiet}\n"
    write(pytester, "pytest.ini", f"[pytest]\n{settings}")
    return pytester
