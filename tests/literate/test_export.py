"""What a reader takes away prints what the page shows, wherever it is run."""

import ast
import json
import os
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from literate import compare, export
from literate.__main__ import main
from literate.child import THREADS
from literate.page import pages, read
from tools.mutants import ROOT

PAGES = [page for page in map(read, pages(ROOT)) if page.blocks]
ALONE = {"OMP_NUM_THREADS": str(THREADS), "PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def printed_on(page):
    """Return all that the page shows as printed, block after block."""
    return "".join(block.output.text for block in page.blocks if block.output)


def told(page, block):
    """Say whether what `block` prints is promised on this machine."""
    varies = block.output and "varies" in block.output.options
    return not varies or compare.on_reference_platform(page.root)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_exported_script_prints_what_its_page_shows(page, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(export.script(page), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", str(script)],
        cwd=tmp_path,
        env=ALONE,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if all(told(page, block) for block in page.blocks):
        found = compare.differences(printed_on(page), done.stdout)
        assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_exported_notebook_prints_what_its_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", str(THREADS))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = nbformat.reads(export.notebook(page), as_version=4)
    nbformat.validate(book)
    stored = [cell.outputs for cell in book.cells if cell.cell_type == "code"]
    NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    for block, cell, before in zip(page.blocks, cells, stored, strict=True):
        shown, printed = text_of(before), text_of(cell.outputs)
        if told(page, block):
            assert compare.differences(shown, printed) == [], f"{page.name}:{block.line}"


def text_of(outputs):
    """Return what a cell printed, and the name of the error that ended it."""
    printed = [
        output.text if output.output_type == "stream" else output.ename for output in outputs
    ]
    assert all(output.get("name", "stdout") == "stdout" for output in outputs), outputs
    return "".join(printed)


# ---- The form of what is exported. ----

PAGE = """\
    ---
    title: x
    ---

    # A page { .wide }

    See [the next](../b.md#part), [home](index.md), [this](#here) and [that](https://example.org/).

    ```python title="sum.py"
    print(1)
    ```

    ```output caption="One"
    1
    ```

    !!! note "Look"

        Inside.

        ??? tip

            Deeper.

        Back.

    Outside.

    === "One"

        ```python
        print(2)
        ```

        ```output
        2
        ```

    ```text
    not run
    ```

    ```python
    --8<-- "part.py:body"
    ```

    ```python
    print(3)
    text = '''
    flush
    '''
    [][body]
    ```

    ```output raises="IndexError"
    3
    IndexError: list index out of range
    ```

    ```python
    print(text)
    ```

    ```output

    flush

    ```
    """


@pytest.fixture
def page(book):
    """A page with one of everything."""
    book.snippet("part.py", "x = 1\n# --8<-- [start:body]\nbody = 5\n# --8<-- [end:body]\n")
    return book.read(PAGE, "docs/part/page.md")


@pytest.fixture
def cells(page):
    """The cells of that page's notebook."""
    return nbformat.reads(export.notebook(page, "https://example.org/book/"), as_version=4).cells


def test_a_notebook_is_valid_and_the_same_every_time(page):
    text = export.notebook(page)
    nbformat.validate(json.loads(text))
    assert text == export.notebook(page)


def test_a_notebook_holds_every_block_with_its_output(page, cells):
    codes = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.source for cell in codes] == [block.code.rstrip("\n") for block in page.blocks]
    assert codes[0].outputs == [{"output_type": "stream", "name": "stdout", "text": "1\n"}]
    assert codes[2].outputs == []
    assert [cell.execution_count for cell in codes] == [1, 2, 3, 4, 5]


def test_includes_are_expanded(cells):
    assert any(cell.source == "body = 5" for cell in cells)


def test_an_announced_exception_is_stored_as_an_error(cells):
    cell = next(cell for cell in cells if "[][body]" in cell.source)
    stream, error = cell.outputs
    assert stream.text == "3\n"
    assert (error.ename, error.evalue) == ("IndexError", "list index out of range")
    assert cell.metadata.tags == ["raises-exception"]


def test_admonitions_become_block_quotes(cells):
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert "> **Look**\n>\n> Inside.\n>\n> > **Tip**\n> >\n> > Deeper.\n" in text
    assert "\n> Back.\n" in text
    assert "\nOutside.\n" in text
    assert "!!!" not in text
    assert "???" not in text


def test_front_matter_and_attributes_stay_behind(cells):
    text = "\n".join(cell.source for cell in cells)
    assert "title: x" not in text
    assert "# A page\n" in text


def test_links_lead_to_the_site(cells):
    text = "\n".join(cell.source for cell in cells)
    assert "[that](https://example.org/)" in text
    assert "(https://example.org/book/b" in text
    assert "../b.md" not in text
    assert "(index.md)" not in text


def test_fences_that_do_not_run_are_kept_as_text(cells):
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert "```text\nnot run\n```" in text
    assert "```output" not in text


def test_a_script_runs_on_past_an_announced_exception(page, tmp_path):
    script = export.script(page)
    ast.parse(script)
    path = tmp_path / "script.py"
    path.write_text(script, encoding="utf-8")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.stdout == "1\n2\n3\nIndexError: list index out of range\n\nflush\n\n"
    assert done.stderr == ""


def test_every_program_ends_in_its_block_and_prints_what_the_page_shows(page, capsys):
    programs = export.programs(page)
    assert len(programs) == len(page.blocks)
    for program, block in zip(programs, page.blocks, strict=True):
        assert program.endswith(block.code)
    exec(compile(programs[4], "program", "exec"), {})
    assert capsys.readouterr().out == "1\n2\n3\nIndexError: list index out of range\n\nflush\n\n"


def test_plain_markdown_is_the_page_with_its_includes_expanded(book, page):
    text = export.markdown(page)
    assert "8<-" not in text
    again = book.read(text.encode(), "docs/part/again.md")
    assert [block.code for block in again.blocks] == [block.code for block in page.blocks]


# ---- The command. ----


def test_the_command_writes_a_page_beside_where_one_stands(book, page, capsys):
    assert main(["export", "docs/part/page.md"]) == 0
    assert sorted(p.name for p in book.root.iterdir() if p.stem == "page") == [
        "page.ipynb",
        "page.py",
    ]
    assert "docs/part/page.md → page.ipynb" in capsys.readouterr().out


def test_the_command_writes_the_book_into_folders_as_it_stands_in_them(book, page):
    book.page("# Home\n", "docs/index.md")
    book.page("# Part\n", "docs/part/index.md")
    book.page("# Read me\n", "README.md")
    assert main(["export", "-o", "out"]) == 0
    found = {p.relative_to(book.root / "out").as_posix() for p in (book.root / "out").rglob("*.py")}
    assert found == {"README.py", "index.py", "part/index.py", "part/page.py"}


def test_the_command_names_what_it_cannot_read(book, capsys):
    book.page("```python\n")
    assert main(["export"]) == 1
    assert "docs/page.md:1: unclosed fence" in capsys.readouterr().err
