"""A stranger installs the checker alone, from its wheel, and checks pages that it has never seen."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from textwrap import dedent

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
CHECKER = ROOT / "literate"

# Pages built as those of known documentation are, with text of our own. The first is like a tutorial of
# docs.python.org: plain, with code in a list. The second is like a guide of FastAPI's: notes, tabs, and code
# that stands in a file.
PLAIN = """\
# Counting words

Text before code, and code that shows nothing.

```python
text = "to be or not to be"
```

1.  Count the words:

    ```python
    from collections import Counter
    counts = Counter(text.split())
    print(counts["be"], len(counts))
    ```

    ```output
    2 4
    ```

2.  Ask for one that is not there:

    ```python
    {}["who"]
    ```

    ```output raises="KeyError"
    KeyError: 'who'
    ```

> ```python
> print(f"{2 / 3:.4f}")
> ```
>
> ```output
> 0.6667
> ```

The word *be* stands there 2 times. This is no Python:

```console
python -m this
```
"""
SITE = {
    "mkdocs.yml": """\
        site_name: Somebody else's
        theme:
          name: material
        markdown_extensions:
          - admonition
          - pymdownx.details
          - pymdownx.snippets:
              base_path: [parts]
          - pymdownx.superfences
          - pymdownx.tabbed:
              alternate_style: true
        """,
    "parts/area.py": """\
        def area(radius):
            return 3 * radius**2
        """,
    "docs/index.md": """\
        # Areas

        <div class="grid cards" markdown="0">HTML of their own</div>

        ```python title="area.py"
        --8<-- "area.py"
        ```

        !!! note "Call it"

            ```python hl_lines="1"
            print(area(5))
            ```

            ```output
            75
            ```

        === "Python"

            ```python
            print(area(2.5))
            ```

            ```output
            18.75
            ```

        === "JavaScript"

            ```js
            console.log(area(2.5))
            ```
        """,
}
TORCH = """\
# Rows

```python
import torch

print(torch.arange(4.0).softmax(dim=0))
```

```output
tensor([0.0321, 0.0871, 0.2369, 0.6439])
```
"""


def closure(*names):
    """Return the installed distributions that `names` need, with these themselves."""
    found, waiting = {}, list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in found:
            found[name] = metadata.distribution(name)
            needs = map(Requirement, found[name].requires or ())
            waiting += [
                need.name
                for need in needs
                if not need.marker or need.marker.evaluate({"extra": ""})
            ]
    return found.values()


def declared(extra=""):
    """Return the names of what the checker's own pyproject.toml asks for."""
    project = tomllib.loads((CHECKER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [Requirement(need).name for need in needs]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The checker's wheel, built from a copy of its folder."""
    folder = tmp_path_factory.mktemp("wheel")
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    copy = shutil.copytree(CHECKER, folder / "literate", ignore=leave)
    build = "import setuptools.build_meta as build; print(build.build_wheel('..'))"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    return next(folder.glob("literate_pages-*.whl"))


def bare(wheel, folder, *extras):
    """Make in `folder` a Python that has the wheel, what it asks for, and nothing else; return its path."""
    venv.create(folder, symlinks=os.name == "posix")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    wanted = [*declared(), *(name for extra in extras for name in declared(extra))]
    for distribution in closure(*wanted):
        for top in {file.parts[0] for file in distribution.files or ()} - {".."}:
            source = Path(str(distribution.locate_file(top)))
            if source.exists() and not (site / top).exists():
                try:
                    (site / top).symlink_to(source)
                except OSError as error:  # as on Windows, for who may make none
                    pytest.skip(f"no symbolic link can be made here: {error}")
    shutil.unpack_archive(wheel, site, "zip")
    return python


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """A Python without torch."""
    return bare(wheel, tmp_path_factory.mktemp("bare"))


@pytest.fixture
def run(python, tmp_path, monkeypatch):
    """Run a module of a bare Python in a folder of pages, and return what it did."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for variable in [name for name in os.environ if name.startswith(("PYTEST_", "COV_"))]:
        monkeypatch.delenv(variable)

    def command(*arguments, by=python):
        return subprocess.run(
            [by, "-m", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return command


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")


BOOKS = {
    "without a site": {"README.md": PLAIN, "docs/more.md": PLAIN},
    "with a site": SITE,
    "its own README": {"README.md": (CHECKER / "README.md").read_text(encoding="utf-8")},
}


@pytest.mark.parametrize("files", BOOKS.values(), ids=BOOKS)
def test_a_wheel_alone_finds_a_wrong_output_at_its_line_updates_it_and_finds_none(
    run, tmp_path, files
):
    wrong = {
        name: re.sub(r"(?m)^( *(?:> )?)(2 4|75|\[0\.5, 0\.25.*)$", r"\g<1>0", text)
        for name, text in files.items()
    }
    assert wrong != files
    write(tmp_path, wrong)
    name = next(name for name in files if wrong[name] != files[name])
    line = (
        dedent(wrong[name])
        .split("\n")
        .index(next(line for line in dedent(wrong[name]).split("\n") if line.strip() == "0"))
    )
    done = run("pytest", "-q")
    assert done.returncode == 1
    assert f"{name}:{line + 1}: the output differs" in done.stdout
    assert run("literate", "update").returncode == 0
    for name, text in files.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == dedent(text)
    done = run("pytest", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    if files is SITE:
        assert run("literate", "export", "docs/index.md").returncode == 0
        assert (tmp_path / "index.ipynb").exists()
        assert run("index").stdout == "75\n18.75\n"


def test_a_page_may_use_torch_where_it_is_installed(run, wheel, tmp_path, tmp_path_factory):
    write(tmp_path, {"docs/rows.md": TORCH})
    assert "No module named 'torch'" in run("pytest", "-q").stdout
    done = run("pytest", "-q", by=bare(wheel, tmp_path_factory.mktemp("bare"), "torch"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_holds_the_checker_and_nothing_of_the_book(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    modules = {name for name in names if name.endswith(".py")}
    assert modules == {f"literate/{path.name}" for path in CHECKER.glob("*.py")}
    assert not any(name.startswith("book") for name in names)
