"""What a reader takes away prints what the page shows, wherever it is run."""

import os
import subprocess
import sys

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

from literate import compare, export
from literate.__main__ import main
from literate.child import THREADS
from literate.page import PageError
from literate.run import fetched
from tests.pages import ROOT, RUNNING, each

# A new interpreter for each page takes its time: `make test` starts these, `make test-labs` the rest.
SOON = ("docs/foundations/averaging.md",)
each_page = each(RUNNING, SOON)
ALONE = {"OMP_NUM_THREADS": str(THREADS), "PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def printed_on(page):
    """Return all that the page shows as printed, block after block."""
    return "".join(block.output.text for block in page.blocks if block.output)


def promised(page, block):
    """Say whether what `block` prints is promised on this machine."""
    varies = block.output and "varies" in block.output.options
    return not varies or compare.on_reference_platform(page.root)


@each_page
def test_every_exported_script_prints_what_its_page_shows(page, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(export.script(page), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", str(script)],
        cwd=tmp_path,
        env=ALONE | fetched(ROOT, tmp_path / "torch"),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if all(promised(page, block) for block in page.blocks):
        found = compare.differences(printed_on(page), done.stdout)
        assert found == []


@each_page
def test_every_exported_notebook_prints_what_its_page_shows(page, tmp_path, monkeypatch):
    for name, value in fetched(ROOT, tmp_path / "torch").items():
        monkeypatch.setenv(name, value)
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
        if promised(page, block):
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

    # A page { #page }

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


def test_a_notebook_holds_every_block_with_its_output(page, cells):
    codes = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.source for cell in codes] == [block.code.rstrip("\n") for block in page.blocks]
    assert codes[0].outputs == [{"output_type": "stream", "name": "stdout", "text": "1\n"}]
    assert codes[2].outputs == []
    assert [cell.execution_count for cell in codes] == [1, 2, 3, 4, 5]
    stream, error = codes[3].outputs
    assert stream.text == "3\n"
    assert (error.ename, error.evalue) == ("IndexError", "list index out of range")
    assert codes[3].metadata.tags == ["raises-exception"]
    assert "[docs/part/page.md](https://example.org/book/part/page.html)" in cells[0].source
    texts = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert "```text\nnot run\n```" in texts
    assert "```output" not in texts


def test_admonitions_become_block_quotes(cells):
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert "> **Look**\n>\n> Inside.\n>\n> > **Tip**\n> >\n> > Deeper.\n" in text
    assert "\n> Back.\n" in text
    assert "\nOutside.\n" in text
    assert "!!!" not in text
    assert "???" not in text


def test_plain_markdown_is_the_page_with_its_includes_expanded(book, page):
    text = export.markdown(page)
    assert "8<-" not in text
    again = book.read(text.encode(), "docs/part/again.md")
    assert [block.code for block in again.blocks] == [block.code for block in page.blocks]


def prose_of(book, text, site_url=""):
    """Return the Markdown cells of a page's notebook, without the heading."""
    page = book.read(text.encode(), "docs/part/page.md")
    cells = nbformat.reads(export.notebook(page, site_url), as_version=4).cells
    return [cell.source for cell in cells[1:] if cell.cell_type == "markdown"]


def test_links_to_sources_lead_to_the_pages_made_from_them(book):
    text = "[a](b.md) [c](../labs/d.ipynb#e) [f](#here) [g](/h.md) [i](j.mdx)\n"
    assert prose_of(book, text, "https://example.org/") == [
        "[a](https://example.org/part/b.html) [c](https://example.org/labs/d.html#e) "
        "[f](https://example.org/part/page.html#here) [g](/h.md) [i](https://example.org/part/j.mdx)"
    ]


def test_an_explorable_becomes_a_link_at_its_place(book):
    fence = "```attention\ntokens: a b\nembeddings: [[1], [2]]\n```"
    inside = fence.replace("\n", "\n    ")
    text = f"{fence}\n\n!!! note\n\n    {inside}\n"
    link = "*An interactive figure stands here on [the page](https://example.org/part/page.html).*"
    assert prose_of(book, text, "https://example.org/") == [f"{link}\n\n> **Note**\n>\n> {link}"]


def test_what_stands_in_an_admonition_keeps_its_own_indent(book):
    text = "!!! note\n\n    - a\n\n        deep\n\n    ```text\n    x\n      y { .z }\n    ```\n\nOut.\n"
    assert prose_of(book, text) == [
        "> **Note**\n>\n> - a\n>\n>     deep\n>\n> ```text\n> x\n>   y { .z }\n> ```\n\nOut."
    ]


def printed_by(program):
    """Return what a program prints that ends well, run as a file of its own."""
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def raising(code, name, then=""):
    """Return the text of a page with a block that raises, and one after it."""
    fence = f'```python\n{code}\n```\n\n```output raises="{name}"\n{name}\n```\n'
    return (fence + (f"\n```python\n{then}\n```\n" if then else "")).encode()


def test_a_reader_s_own_names_outlive_an_error_that_the_page_shows(book):
    code = "error, traceback, sys = 1, 2, 3\nbefore = set(globals())\n1 / 0"
    then = "print(error, traceback, sys, sorted(set(globals()) - before))"
    page = book.read(raising(code, "ZeroDivisionError", then))
    wanted = "ZeroDivisionError: division by zero\n1 2 3 ['before']\n"
    assert printed_by(export.script(page)) == wanted
    assert printed_by(export.programs(page)[1]) == wanted


def test_an_error_of_a_module_is_stored_by_its_own_name(book):
    page = book.read(b'```python\nf()\n```\n\n```output raises="Full"\n_queue.Full: x: y\n```\n')
    cell = nbformat.reads(export.notebook(page), as_version=4).cells[1]
    assert (cell.outputs[0].ename, cell.outputs[0].evalue) == ("Full", "x: y")


def test_an_editor_that_knows_cells_reads_a_script_as_the_notebook(page):
    again = jupytext.reads(export.script(page), fmt="py:percent")
    cells = nbformat.reads(export.notebook(page), as_version=4).cells
    assert [cell.cell_type for cell in again.cells] == [cell.cell_type for cell in cells]
    prose = [(cell.source, old.source) for cell, old in zip(again.cells, cells, strict=True)]
    assert [new for new, old in prose if "[][body]" not in old] == [
        old for _, old in prose if "[][body]" not in old
    ]


LEFT = [
    "so $x^{.481}$ is",
    'so `f"{#a}"` and ``a`{.b}`` are',
    "$$\na^{.5}\n+ b^{.7}\n$$",
    "a `span of\ntwo {.lines}` and `layers[0](x)`",
    "$f[0](x)$",
]


@pytest.mark.parametrize("text", LEFT)
def test_formulas_and_code_in_the_text_stay_as_they_are(book, text):
    assert prose_of(book, f"{text}\n", "https://example.org/") == [text]


def test_attributes_stay_behind_beside_formulas_and_code(book):
    text = "a `b`{ .diagram } $d$ e{#f} it costs $5 or { .g } and ` is alone { .h }\n\n[a](b.md){ #i }\n"
    assert prose_of(book, text) == ["a `b` $d$ e it costs $5 or and ` is alone\n\n[a](b.md)"]


# ---- What is for the whole module. ----

FUTURE = "from __future__ import annotations"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"```python\na = 1\n```\n\n```python\n\n{FUTURE}\n```\n", 7),
        ('```python\na = 1\n```\n\n```python\n--8<-- "part.py"\n```\n', 5),
        (f'```python\n{FUTURE}\n1 / 0\n```\n\n```output raises="A"\nA\n```\n', 2),
    ],
)
def test_a_future_that_would_come_late_in_a_script_is_an_error(book, text, line):
    book.snippet("part.py", f"{FUTURE}\n")
    with pytest.raises(PageError, match=rf"page\.md:{line}: `from __future__` holds for the whole"):
        book.read(text.encode())


# ---- The command. ----


def test_the_command_writes_the_book_into_folders_as_it_stands_in_them(book, page):
    book.page("# Home\n", "docs/index.md")
    book.page("# Part\n", "docs/part/index.md")
    book.page("# Read me\n", "README.md")
    assert main(["export", "-o", "out"]) == 0
    found = {p.relative_to(book.root / "out").as_posix() for p in (book.root / "out").rglob("*.py")}
    assert found == {"README.py", "index.py", "part/index.py", "part/page.py"}


def test_a_reader_s_own_file_is_overwritten_only_when_that_is_asked_for(book, page, capsys):
    own = book.page("mine = 1\n", "page.py")
    assert main(["export", "docs/part/page.md"]) == 1
    error = "docs/part/page.md: left page.py as it was: it stands there already, with other text; "
    assert capsys.readouterr().err == f"{error}--force overwrites it\n"
    assert own.read_text() == "mine = 1\n"
    assert not (book.root / "page.ipynb").exists()
    assert main(["export", "docs/part/page.md", "--force"]) == 0
    assert own.read_text(encoding="utf-8") == export.script(page)
    assert main(["export", "docs/part/page.md"]) == 0  # what stands there is what would be written
