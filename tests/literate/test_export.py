"""What a reader takes away prints what the page shows, wherever it is run."""

import ast
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from literate import compare, export
from literate.__main__ import main
from literate.child import THREADS
from literate.page import files
from tests.pages import RUNNING, each
from tools.mutants import ROOT

# A new interpreter for each page takes its time: `make test` starts these, `make test-labs` the rest.
SOON = ("docs/foundations/averaging.md",)
each_page = each(RUNNING, SOON)
ALONE = {"OMP_NUM_THREADS": str(THREADS), "PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def printed_on(page):
    """Return all that the page shows as printed, block after block."""
    return "".join(block.output.text for block in page.blocks if block.output)


def beside(folder):
    """Put into `folder` what a reader may keep beside a script: the book's files."""
    for file in files(ROOT):
        shutil.copy(file, folder)


def told(page, block):
    """Say whether what `block` prints is promised on this machine."""
    varies = block.output and "varies" in block.output.options
    return not varies or compare.on_reference_platform(page.root)


@each_page
def test_every_exported_script_prints_what_its_page_shows(page, tmp_path):
    beside(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(export.script(page), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", str(script)],
        cwd=tmp_path,
        env=ALONE,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if all(told(page, block) for block in page.blocks):
        found = compare.differences(printed_on(page), done.stdout)
        assert found == []


@each_page
def test_every_exported_notebook_prints_what_its_page_shows(page, tmp_path, monkeypatch):
    beside(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", str(THREADS))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("PYTHONOPTIMIZE", raising=False)  # it takes away the assertions of a page
    book = nbformat.reads(export.notebook(page), as_version=4)
    nbformat.validate(book)
    stored = [cell.outputs for cell in book.cells if cell.cell_type == "code"]
    NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
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
    assert text.endswith("}\n")


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


def test_several_includes_of_a_page_are_expanded_each_in_its_place(book):
    book.snippet("one.py", "a = 1\nb = 2\n")
    book.snippet("two.py", "\nc = 3\n")
    page = book.read(
        b'One.\n\n```python\n--8<-- "one.py"\n```\n\nTwo.\n\n```python\n--8<-- "two.py"\n```\n'
    )
    assert export.markdown(page) == (
        "One.\n\n```python\na = 1\nb = 2\n```\n\nTwo.\n\n```python\nc = 3\n```\n"
    )


def told_as(book, text, site_url=""):
    """Return the Markdown cells of a page's notebook, without the heading."""
    page = book.read(text.encode(), "docs/part/page.md")
    cells = nbformat.reads(export.notebook(page, site_url), as_version=4).cells
    return [cell.source for cell in cells[1:] if cell.cell_type == "markdown"]


@pytest.mark.parametrize("end", ["---", "..."])
def test_front_matter_ends_where_it_says(book, end):
    assert told_as(book, f"---\ntitle: x\n{end}\n\nText.\n") == ["Text."]


def test_a_page_that_opens_without_front_matter_keeps_its_first_line(book):
    assert told_as(book, "First.\n\nSecond.\n") == ["First.\n\nSecond."]


def test_the_heading_names_the_page_and_leads_to_it(page):
    def heading(site_url):
        return nbformat.reads(export.notebook(page, site_url), as_version=4).cells[0].source

    assert "*From the book **Attention, Executed**: docs/part/page.md." in heading("")
    address = "https://example.org/book/part/page.html"
    assert f"[docs/part/page.md]({address})" in heading("https://example.org/book/")


def test_a_page_outside_the_book_leads_to_the_site(book):
    page = book.read("See [a](b.md).\n", "README.md")
    text = export.notebook(page, "https://example.org/book/")
    assert "[README.md](https://example.org/book/)" in text


def test_links_to_sources_lead_to_the_pages_made_from_them(book):
    text = "[a](b.md) [c](../labs/d.ipynb#e) [f](#here) [g](/h.md) [i](j.mdx)\n"
    assert told_as(book, text, "https://example.org/") == [
        "[a](https://example.org/part/b.html) [c](https://example.org/labs/d.html#e) "
        "[f](https://example.org/part/page.html#here) [g](/h.md) [i](https://example.org/part/j.mdx)"
    ]


def test_an_explorable_becomes_a_link_at_its_place(book):
    fence = "```attention\ntokens: a b\nembeddings: [[1], [2]]\n```"
    inside = fence.replace("\n", "\n    ")
    text = f"{fence}\n\n!!! note\n\n    {inside}\n"
    link = "*An interactive figure stands here on [the page](https://example.org/part/page.html).*"
    assert told_as(book, text, "https://example.org/") == [f"{link}\n\n> **Note**\n>\n> {link}"]


def test_what_stands_in_an_admonition_keeps_its_own_indent(book):
    text = "!!! note\n\n    - a\n\n        deep\n\n    ```text\n    x\n      y { .z }\n    ```\n\nOut.\n"
    assert told_as(book, text) == [
        "> **Note**\n>\n> - a\n>\n>     deep\n>\n> ```text\n> x\n>   y { .z }\n> ```\n\nOut."
    ]


def test_an_admonition_may_have_no_title(book):
    (text,) = told_as(book, '!!! note ""\n\n    Text.\n')
    assert [line.strip("> ") for line in text.split("\n")] == ["", "", "Text."]


def test_a_script_says_nothing_of_notebooks(page):
    script = export.script(page)
    assert script.startswith("# %% [markdown]\n")
    assert "raises-exception" not in script


def test_what_a_block_printed_before_it_raised_is_stored_to_the_letter(book):
    text = '```python\nf()\n```\n\n```output raises="KeyError"\n{}KeyError: 1\n```\n'
    for printed in ("", "a\n\nb\n"):
        page = book.read(text.replace("{}", printed).encode())
        (cell,) = nbformat.reads(export.notebook(page), as_version=4).cells[1:]
        assert [o.text for o in cell.outputs if o.output_type == "stream"] == [printed] * bool(
            printed
        )
        assert (cell.outputs[-1].ename, cell.outputs[-1].evalue) == ("KeyError", "1")


def test_code_that_must_raise_keeps_its_strings_when_it_is_indented(book):
    code = "name = 'x'\ntext = f\"\"\"\n{name}\n  end\"\"\"\n'''\nalone\n'''\nprint(text)\n1 / 0"
    page = book.read(
        f'```python\n{code}\n```\n\n```output raises="ZeroDivisionError"\nZeroDivisionError: x\n```\n'.encode()
    )
    spoken = io.StringIO()
    with contextlib.redirect_stdout(spoken):
        exec(export.pieces(page)[0], {})
    assert spoken.getvalue() == "\nx\n  end\nZeroDivisionError: division by zero\n"


def test_code_that_must_raise_keeps_its_empty_lines_empty(book):
    page = book.read(
        '```python\na = 1\n\na / 0\n```\n\n```output raises="ZeroDivisionError"\nx\n```\n'
    )
    assert "try:\n    a = 1\n\n    a / 0\n" in export.pieces(page)[0]


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


def test_the_command_writes_a_notebook_to_practise_in_where_a_page_sets_exercises(book):
    book.page(PRACTISED, "docs/page.md")
    assert main(["export", "docs/page.md"]) == 0
    assert (book.root / "page-practice.ipynb").read_text(encoding="utf-8") == export.practice(
        book.read(PRACTISED, "docs/page.md")
    )


# ---- The notebook to practise in. ----

PRACTISED = """\
    ---
    title: x
    ---

    # A page

    Words before.

    ## Bare

    ## With code

    ```python
    # not a heading
    x = 1
    ```

    ```python
    [][0]
    ```

    ```output raises="IndexError"
    IndexError: list index out of range
    ```

    ```text
    not run
    ```

    ## Exercises

    Read this.

    **1. Change · easy.** What is it?

    ```text
    kept
    ```

    ```python title="Your answer"
    answer_1 = ...
    ```

    ```python title="Check"
    def check_1(answer):
        assert answer == 2, "no"
        print("Exercise 1: right")
    ```

    ??? tip "Hint"

        Think of [this](b.md).

        And that.

    ??? success "Solution"

        It is two.

        ```python
        answer_1 = 2
        check_1(answer_1)
        ```

        ```output
        Exercise 1: right
        ```

    Goodbye.

    ## Sources

    More words.

    ```python
    y = 2
    ```
    """


def test_a_notebook_to_practise_in_has_the_code_then_the_exercises_and_no_solution(book):
    page = book.read(PRACTISED, "docs/part/page.md")
    text = export.practice(page, "https://example.org/")
    nbformat.validate(json.loads(text))
    first, *cells = nbformat.reads(text, as_version=4).cells
    assert first.source.startswith("*From the book")
    assert first.source.endswith(export.PRACTISE)
    check = 'def check_1(answer):\n    assert answer == 2, "no"\n    print("Exercise 1: right")'
    assert [cell.source for cell in cells] == [
        "# A page\n\n## With code",
        "# not a heading\nx = 1",
        export.GUARD.format(code="    [][0]").rstrip("\n"),
        "## Exercises\n\nRead this.\n\n**1. Change · easy.** What is it?\n\n```text\nkept\n```",
        "answer_1 = ...",
        f"{check}\n\n\ncheck_1(answer_1)",
        "<details><summary>Hint</summary>\n\nThink of [this](https://example.org/part/b.html)."
        "\n\nAnd that.\n</details>\n\nGoodbye.\n\n## Sources",
        "y = 2",
    ]
    assert [cell.outputs for cell in cells if cell.cell_type == "code"] == [[]] * 5


def test_a_page_without_exercises_has_no_notebook_to_practise_in(page):
    assert export.practice(page) == ""
    assert set(export.runnable(page)) == {".ipynb", ".py"}


def test_the_heading_says_what_the_page_was_checked_with(book, page):
    def heading():
        return nbformat.reads(export.notebook(page), as_version=4).cells[0].source

    assert "Checked" not in heading()
    (book.root / "requirements.txt").write_text("torchvision==1\ntorch==9.8.7  # why\n")
    assert "*Checked with PyTorch 9.8.7. Nothing is installed here:" in heading()
