"""What a reader takes away prints what the page shows, wherever it is run."""

import ast
import contextlib
import io
import json
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
from literate.page import PageError, read
from literate.run import fetched
from literate.update import update
from tests.pages import ROOT, RUNNING, each

# A new interpreter for each page takes its time: `make test` starts these, `make test-labs` the rest.
SOON = ("docs/foundations/averaging.md",)
each_page = each(RUNNING, SOON)
ALONE = {"OMP_NUM_THREADS": str(THREADS), "PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def printed_on(page):
    """Return all that the page shows as printed, block after block."""
    return "".join(block.output.text for block in page.blocks if block.output)


def told(page, block):
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
    if all(told(page, block) for block in page.blocks):
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


def spoken_by(program):
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
    assert spoken_by(export.script(page)) == wanted
    assert spoken_by(export.programs(page)[1]) == wanted


@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt"])
def test_a_program_goes_on_past_what_would_end_it(book, name):
    page = book.read(raising(f"raise {name}('over')", name, "print('on')"))
    assert spoken_by(export.script(page)) == f"{name}: over\non\n"
    assert spoken_by(export.programs(page)[1]) == f"{name}: over\non\n"


def test_of_a_message_of_several_lines_a_script_prints_the_one_that_the_page_shows(book):
    code = "error = ValueError('first\\nsecond')\nerror.add_note('third')\nraise error"
    page = book.read(raising(code, "ValueError", "print('on')"))
    assert spoken_by(export.script(page)) == "ValueError: first\non\n"


def test_an_error_of_a_module_is_stored_by_its_own_name(book):
    page = book.read(b'```python\nf()\n```\n\n```output raises="Full"\n_queue.Full: x: y\n```\n')
    cell = nbformat.reads(export.notebook(page), as_version=4).cells[1]
    assert (cell.outputs[0].ename, cell.outputs[0].evalue) == ("Full", "x: y")


def test_code_that_must_raise_keeps_its_bytes_when_it_is_indented(book):
    code = "print(b'''\n  a\nb''')\n1 / 0"
    page = book.read(raising(code, "ZeroDivisionError"))
    assert spoken_by(export.script(page)).startswith("b'\\n  a\\nb'\n")


@pytest.mark.parametrize(
    "code",
    [
        "b = 4\nprint((7\n%b\n))",
        "print(repr('''\n# %%\n# %% [markdown]\n%b\n!ls\ncat a\n'''))",
        "ls = 1\nls\nprint(ls)",
        "print(ascii('''a\u2028b\x0cc'''))",
    ],
)
def test_a_script_holds_the_code_to_the_letter(book, code):
    page = book.read(f"```python\n{code}\n```\n".encode())
    assert f"\n# %%\n{code}\n" in export.script(page)


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
    assert told_as(book, f"{text}\n", "https://example.org/") == [text]


def test_attributes_stay_behind_beside_formulas_and_code(book):
    text = "a `b`{ .diagram } $d$ e{#f} it costs $5 or { .g } and ` is alone { .h }\n\n[a](b.md){ #i }\n"
    assert told_as(book, text) == ["a `b` $d$ e it costs $5 or and ` is alone\n\n[a](b.md)"]


def test_a_fence_that_does_not_run_keeps_its_braces(book):
    assert told_as(book, "```text\ny { .z }\n```\n") == ["```text\ny { .z }\n```"]


# ---- What is for the whole module. ----

FUTURE = "from __future__ import annotations"
ANNOTATED = "def f(x: int): ...\n\n\nprint(f.__annotations__)"


def test_a_future_holds_for_the_blocks_that_follow_as_it_does_in_a_script(book):
    text = f"```python\n{FUTURE}\n```\n\n```python\n{ANNOTATED}\n```\n"
    path = book.page(text.encode())
    update(read(path))
    (output,) = [block.output.text for block in read(path).blocks if block.output]
    assert spoken_by(export.script(read(path))) == output == "{'x': 'int'}\n"


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


def test_pages_of_one_name_keep_their_folders(book):
    for folder in ("a", "b"):
        book.page(f"# {folder}\n", f"docs/{folder}/index.md")
    book.page("# c\n", "docs/c.md")
    assert main(["export", "docs/a/index.md", "docs/b/index.md", "docs/c.md", "-o", "out"]) == 0
    found = {p.relative_to(book.root / "out").as_posix() for p in (book.root / "out").rglob("*.py")}
    assert found == {"a/index.py", "b/index.py", "c.py"}


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


def test_one_page_never_takes_the_place_of_another(book, capsys):
    book.page("# One\n", "README.md")
    book.page("# Two\n", "docs/README.md")
    assert main(["export", "-o", "out", "--force"]) == 1
    assert (
        "docs/README.md: left out/README.ipynb as it was: this command" in capsys.readouterr().err
    )
    assert "# One" in (book.root / "out/README.py").read_text()


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
    assert first.source.endswith(export.PRACTISE.format(colab="in Colab"))
    check = 'def check_1(answer):\n    assert answer == 2, "no"\n    print("Exercise 1: right")'
    assert [cell.source for cell in cells] == [
        export.PRACTICE,
        "# A page\n\n## With code",
        "# not a heading\nx = 1",
        export.GUARD.format(code="    [][0]").rstrip("\n"),
        "## Exercises\n\nRead this.\n\n**1. Change · easy.** What is it?\n\n```text\nkept\n```",
        "answer_1 = ...",
        f"{check}\n\n\npractice.check(1, check_1, answer_1)",
        "<details><summary>Hint</summary>\n\nThink of [this](https://example.org/part/b.html)."
        "\n\nAnd that.\n</details>\n\nGoodbye.\n\n## Sources",
        "y = 2",
        "practice.report()",
    ]
    assert [cell.outputs for cell in cells if cell.cell_type == "code"] == [[]] * 7


@pytest.mark.parametrize(
    ("code", "place"),
    [("x = 1\nx = = 2", "docs/page.md:7"), ('--8<-- "part.py:body"', "snippets/part.py:3")],
)
def test_what_is_not_python_is_named_where_it_stands(book, code, place):
    book.snippet("part.py", "x = 1\n# --8<-- [start:body]\nx = = 2\n# --8<-- [end:body]\n")
    text = f"# A page\n\nWords.\n\n```python\n{code}\n```\n\n## Exercises\n\n**1. Change · easy.** Add.\n"
    with pytest.raises(PageError, match=rf"^{place}: this is not Python: invalid syntax$"):
        export.practice(book.read(text))


def test_a_page_without_exercises_has_no_notebook_to_practise_in(page):
    assert export.practice(page) == ""
    assert set(export.runnable(page)) == {".ipynb", ".py"}


def test_the_heading_says_what_the_page_was_checked_with(book, page):
    def heading():
        return nbformat.reads(export.notebook(page), as_version=4).cells[0].source

    assert "Checked" not in heading()
    (book.root / "requirements.txt").write_text("torchvision==1\ntorch==9.8.7  # why\n")
    assert "*Checked with PyTorch 9.8.7. Nothing is installed here:" in heading()


def test_a_notebook_to_practise_in_leads_to_itself_in_colab(book):
    page = book.read(PRACTISED, "docs/page.md")
    text = export.runnable(page, "", "https://colab.example/page")["-practice.ipynb"]
    assert "[in Colab](https://colab.example/page)" in text


def test_an_answer_is_tried_and_stops_nothing(book):
    """A stub, a wrong answer, one with an error and a right one: each is told, and the last cell counts."""
    answers = (
        ("answer = ...", "not filled in yet"),
        ("def answer(x): ...", "not filled in yet"),
        ('def answer(x):\n    """Say why."""\n    ...', "not filled in yet"),
        ("import functools\n@functools.cache\ndef answer(x): ...", "not right yet: no"),
        ("def answer(x): return x", "not right yet: no"),
        ("def answer(x): return 1", "not right yet: no"),
        ("answer = None", "not right yet: no"),
        ("answer = 1 / 2", "an error came before the check was done"),
        ("def answer(x): return 2", "right"),
    )
    check = """
def check(answer):
    assert not isinstance(answer, float) or undefined
    assert callable(answer) and answer(3) == 2, "no"
    print("Exercise 0: right")
"""
    for code, told in answers:
        program = f"{export.PRACTICE}\n{code}\n{check}\npractice.check(7, check, answer)\npractice.report()"
        first, *lines = spoken_by(program).splitlines()
        assert first == ("Exercise 0: right" if told == "right" else f"Exercise 7: {told}")
        done = told == "right"
        report = [
            f"{int(done)} of 1 exercises done",
            f"Exercise 7: {'done' if done else 'not done yet'}",
        ]
        assert lines[-2:] == report
        assert ("NameError" in "".join(lines)) == told.startswith("an error")


# ---- The stored files that a page loads. ----

LOAD = """\
```python
stored = torch.hub.load_state_dict_from_url("https://example.org/files/{}", check_hash=True)
{}
```

"""


def loading(book, *last):
    """Return a page that loads two files, and sets an exercise that has `last` in its solution."""
    text = "# A page\n\n```python\nimport torch\n```\n\n"
    text += LOAD.format("a-01234567.pt", "first = stored") + LOAD.format(
        "b-89abcdef.pt", "second = stored"
    )
    text += (
        "```python\nthird = second + 1\n```\n\n## Exercises\n\n```python\nanswer_1 = ...\n```\n\n"
    )
    code = "\n".join(f"    {line}" for line in last)
    return book.read(f'{text}??? success "Solution"\n\n    ```python\n{code}\n    ```\n')


def test_the_heading_names_the_files_that_the_code_loads_and_where_to_put_them(book, page):
    loads = loading(book, "answer_1 = first")
    line = (
        "The code loads `a-01234567.pt` and `b-89abcdef.pt` from https://example.org/files/ once. Without a "
        "network, put what it loads into the folder `checkpoints` below the one that `torch.hub.get_dir()` names."
    )
    assert line in nbformat.reads(export.notebook(loads), as_version=4).cells[0].source
    assert f"# *{line}*\n" in export.script(loads)
    assert "checkpoints" not in export.script(page)


@pytest.mark.parametrize(
    ("needs", "named", "left_out"),
    [
        ("answer_1 = first", "`a-01234567.pt`", ["b-89abcdef", "third = "]),
        ("answer_1 = third", "`b-89abcdef.pt`", ["a-01234567"]),
        ("answer_1 = (lambda: first + third)()", "`a-01234567.pt` and `b-89abcdef.pt`", []),
        ("answer_1 = [first for first in range(3)]", "", ["a-0", "b-8", "third = "]),
        ("answer_1 = {first: 1 for first in {3 for third in '3'}}", "", ["a-0", "b-8", "third = "]),
        ("import torch\nanswer_1 = torch.ones(3)", "", ["a-0", "b-8", "third = "]),
    ],
)
def test_a_notebook_to_practise_in_loads_what_its_exercises_need(book, needs, named, left_out):
    cells = nbformat.reads(export.practice(loading(book, *needs.split("\n"))), as_version=4).cells
    assert (f"The code loads {named} from" in cells[0].source) == bool(named)
    assert ("checkpoints" in cells[0].source) == bool(named)
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    every = ["a-01234567", "b-89abcdef", "third = "]
    gone = [text for text in every if text not in code]
    assert len(gone) == len(left_out)
    assert all(text.startswith(short) for text, short in zip(gone, left_out, strict=True))
    assert "import torch\n" in code + "\n"


def test_what_changes_a_needed_name_is_kept_with_what_it_loads(book):
    text = "```python\nmodel = {}\n```\n\n" + LOAD.format("a-01234567.pt", "model.update(stored)")
    text += LOAD.format("b-89abcdef.pt", "model['x'] = stored") + LOAD.format(
        "c-89abcdef.pt", "print(model)"
    )
    page = book.read(
        f"# A\n\n{text}\n## Exercises\n\n```python\nanswer_1 = ...\n\n\nprint(model)\n```\n"
    )
    assert export.stored(export.practised(page).blocks) == ["a-01234567.pt", "b-89abcdef.pt"]


def test_what_a_statement_left_out_would_have_filled_is_left_out_too(book):
    text = LOAD.format("a-01234567.pt", "held = []\nkept = []") + (
        "```python\nheld.append(stored)\nkept.append(1)\n```\n\n```python\nprint(held[0])\n\n\n"
        "def asked():\n    return kept\n```\n\n## Exercises\n\n```python\nanswer_1 = asked()\n```\n"
    )
    page = export.practised(book.read(f"# A\n\n{text}"))
    code = "".join(block.code for block in page.blocks)
    assert "stored" not in code
    assert "print(" not in code
    assert "kept = []\n" in code
    assert "kept.append(1)\n" in code
    assert "return kept" in code
