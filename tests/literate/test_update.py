"""Updating writes what blocks print, all of it and nothing else, or leaves the page alone."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from literate import update as updater
from literate.__main__ import main
from literate.page import read
from literate.update import Refused, rewrite, update
from tests.chance import fuzz
from tests.systems import POSIX

ROOT = Path(updater.__file__).parents[1]


@pytest.fixture
def updated(book):
    """Return a function that writes a page, updates it, and returns its new text."""

    def updated(text):
        path = book.page(text)
        update(read(path))
        return path.read_bytes().decode()

    return updated


def page(code, output=None, options=""):
    """Return a page of one block; without an output when that is None."""
    text = f"Before.\n\n```python\n{code}\n```\n"
    return (
        text + ("" if output is None else f"\n```output{options}\n{output}\n```\n") + "\nAfter.\n"
    )


OPTIONS = ' heatmap rows="a b"  caption="Of `x`"'
MATRIX = "tensor([[1., 2.], [3., 4.]])"
REWRITTEN = {  # what a page says, and what it says then
    "an output": (page("print(1)\nprint(2)", "0"), page("print(1)\nprint(2)", "1\n2")),
    "one that is missing": (page("print(1)"), page("print(1)", "1")),
    "one that is obsolete": (page("a = 1", "1"), page("a = 1")),
    "one with options": (
        page(f"print('{MATRIX}')", "0", OPTIONS),
        page(f"print('{MATRIX}')", MATRIX, OPTIONS),
    ),
    "the end of an exception": (
        page("print(1)\n{}[2]", "KeyError: 1", ' raises="KeyError"'),
        page("print(1)\n{}[2]", "1\nKeyError: 2", ' raises="KeyError"'),
    ),
    "between tildes": (
        "~~~python\nprint(1)\n~~~\n\n~~~~output\n0\n~~~~\n",
        "~~~python\nprint(1)\n~~~\n\n~~~~output\n1\n~~~~\n",
    ),
    "one that holds a fence": (
        page("print('`' * 3)"),
        page("print('`' * 3)", "```").replace("```output\n```\n```", "````output\n```\n````"),
    ),
}


@pytest.mark.parametrize(("old", "new"), REWRITTEN.values(), ids=REWRITTEN)
def test_what_a_block_prints_is_written_and_all_else_is_kept(updated, old, new):
    odd = "\ufeffMixed ends\nof lines\rand blanks  \n\tand tabs\n\n   \n"
    assert updated((odd + old).encode()) == odd + new


def test_an_output_within_tolerance_stays_as_it_is(book):
    path = book.page(page("print('0.1234 -0.00')", "0.1235 0.00"))
    before = path.stat()
    assert update(read(path)) == 0
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_options_of_an_output_outlive_a_block_that_prints_nothing_for_a_moment(book):
    text = page("print(1)", "0") + page("# print(2)", "2", ' caption="Two"')
    path = book.page(text)
    with pytest.raises(
        Refused,
        match=r"docs/page\.md:18: .* prints nothing; print what is wanted here, or delete this output",
    ):
        update(read(path))
    assert path.read_text() == text


def test_several_outputs_change_at_once_and_each_stays_in_its_place(updated):
    text = page("print(1)") + page("print(2)", "0") + page("a = 1", "0") + page("print(3)", "3")
    new = page("print(1)", "1") + page("print(2)", "2") + page("a = 1") + page("print(3)", "3")
    assert updated(text) == new


@pytest.mark.parametrize("prefix", ["    ", "> ", "  "])
def test_indent_is_kept(updated, prefix):
    start = "!!! note\n\n" if prefix == "    " else ""
    lines = ["```python", "print('a\\n\\nb')", "```"]
    old = start + "".join(f"{prefix}{line}\n" for line in lines)
    new = [prefix.rstrip(), *(prefix + line for line in ("```output", "a", "", "b", "```"))]
    new[3] = new[3].rstrip()
    assert updated(old.encode()).rstrip("\n") == old + "\n".join(line.rstrip() for line in new)


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_line_ends_are_kept(book, ending):
    old = page("print(1)", "0") + page("print(2)") + page("a = 3", "3")
    new = page("print(1)", "1") + page("print(2)", "2") + page("a = 3")
    path = book.page(old.replace("\n", ending).encode())
    update(read(path))
    assert path.read_bytes().decode() == new.replace("\n", ending)


@fuzz(25)
@given(
    printed=st.text(st.sampled_from("ab 1.-\n\r`~>#[]é\u2028\x0c"), max_size=30),
    prefix=st.sampled_from(["", "> "]),
    old=st.sampled_from([None, "old"]),
)
def test_what_was_updated_agrees_and_a_second_time_changes_nothing(book, printed, prefix, old):
    text = page(f"print({printed!r})", old)
    path = book.page("".join(f"{prefix}{line}\n" for line in text.split("\n")).encode())
    update(read(path))
    new = path.read_bytes()
    assert update(read(path)) == 0
    assert path.read_bytes() == new


# ---- When it must not write. ----

REFUSED = {
    "an exception": ("print(1)\nraise KeyError('x')", "KeyError: 'x'"),
    "leaving": ("import sys\nprint(1)\nsys.exit()", "SystemExit"),
    "a syntax error": ("print(1)\nb = = 1", "SyntaxError"),
    "a value": ("print(1)\n1 + 1", "ends in a value"),
    "an include in what it prints": ("print('-8' + '<-')", "is no page, in its line 19: -8<-"),
    "what no page can hold": (
        r"print('a\0b')",
        "is no page, in its line 19: the control character",
    ),
}


@pytest.mark.parametrize(("code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_page_is_left_alone_when_a_block_fails(book, code, words):
    path = book.page(page("print(1)", "0") + page(code, "0"))
    before = path.read_bytes()
    with pytest.raises(Refused, match=r"docs/page\.md:") as caught:
        update(read(path))
    assert words in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "code",
    ["print(object())", "import uuid\nprint(uuid.uuid4())", "import time\nprint(time.time_ns())"],
)
def test_what_another_run_prints_otherwise_is_not_written(book, code):
    path = book.page(page(code))
    with pytest.raises(Refused, match=r"page\.md:3: the block .*(it runs again|in each process)"):
        update(read(path))
    assert path.read_text() == page(code)


def test_a_number_that_no_figure_can_show_is_not_written_into_one(book):
    values = "words, first, a = 'x y', [1.0, 0.0], [[0.1, 0.2], [0.3, {}]]"
    figure = "tokens = words: x y\nweights = first:\nembeddings = a: [[0.1, 0.2], [0.3, 0.4]]\ncausal: true\nquery: x\n"
    figure = f"\n```attention\n{figure}```\n"
    path = book.page(page(values.format("0.5")) + figure)
    assert update(read(path)) == 1
    before = page(values.format("float('nan')")) + figure
    path.write_text(before)
    with pytest.raises(Refused, match=r"embeddings wants a matrix of numbers, got .*nan"):
        update(read(path))
    assert path.read_text() == before


def test_nothing_is_written_under_ci_or_into_a_page_that_is_read_only(book, monkeypatch):
    path = book.page(page("print(1)", "0"))
    path.chmod(0o444)
    with pytest.raises(Refused, match=r"docs/page\.md: is read-only"):
        update(read(path))
    path.chmod(0o644)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Refused, match="CI is set"):
        update(read(path))
    assert path.read_text() == page("print(1)", "0")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (' raises="KeyError"', "did not raise KeyError"),
        (" heatmap", "in its line 7: heatmap wants a printed tensor"),
    ],
)
def test_what_was_printed_is_not_written_where_its_options_want_something_else(
    book, options, words
):
    text = page("print(1)", MATRIX, options)
    path = book.page(text)
    with pytest.raises(Refused, match=words):
        update(read(path))
    assert path.read_text() == text


def test_edits_that_would_make_other_blocks_are_not_made(book):
    path = book.page(page("print(1)", "0"))
    before = path.read_text()
    with pytest.raises(Refused, match="is no page, in its line 3: unclosed fence"):
        rewrite(read(path), [(slice(4, 9), [])])
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["page.md"]


def test_an_output_that_varies_is_kept_elsewhere_than_on_the_reference_platform(book, monkeypatch):
    text = page("print(1)", "0", ' varies="why"')
    path = book.page(text)
    assert update(read(path)) == 0
    path.write_text(text.replace("\n0\n", "\n"))
    assert update(read(path)) == 1  # an empty one is filled in everywhere
    path.write_text(text)
    monkeypatch.setattr("literate.compare.on_reference_platform", lambda root: True)
    assert update(read(path)) == 1
    assert path.read_text() == text.replace("\n0\n", "\n1\n")


# ---- How it is written. ----


@POSIX
def test_a_symbolic_link_stays_one_and_the_file_keeps_its_mode(book):
    path = book.page(page("print(1)", "0"), "elsewhere/page.md")
    path.chmod(0o640)
    link = book.root / "docs" / "page.md"
    link.parent.mkdir()
    link.symlink_to(path)
    (book.root / "elsewhere" / "mkdocs.yml").touch()
    update(read(link))
    assert link.is_symlink()
    assert path.read_text() == page("print(1)", "1")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_write_that_fails_leaves_the_page_and_nothing_else(book, capsys, monkeypatch):
    path = book.page(page("print(1)", "0"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["update", "docs/page.md"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert path.read_text() == page("print(1)", "0")
    assert [p.name for p in path.parent.iterdir()] == ["page.md"]


# ---- When others write too. ----

MEANWHILE = {
    "in prose": "page.write_text(page.read_text() + 'An afterthought.\\n')",
    "in the code": "page.write_text(page.read_text().replace('print(1)', 'print(2)'))",
    "to something unreadable": "page.write_bytes(b'`' * 3 + b'python \\xff')",
    "in what it includes": "(page.parents[1] / 'snippets/part.py').write_text('a = 2')",
}


@pytest.mark.parametrize("change", MEANWHILE.values(), ids=MEANWHILE)
def test_a_page_saved_during_the_run_stays_as_it_was_saved(book, change):
    book.snippet("part.py", "a = 1\n")
    include = '```python\n--8<-- "part.py"\n```\n\n'
    target = book.root / "docs/page.md"
    code = f"from pathlib import Path\npage = Path({str(target)!r})\n{change}"
    before = include + page(code) + page("print(1)", "0")
    program = read(book.page(before.encode()))
    saved = {}
    namespace = {}
    exec(code, namespace)  # what the editor will leave
    for file in (target, book.root / "snippets/part.py"):
        saved[file] = file.read_bytes()
    target.write_bytes(before.encode())
    book.snippet("part.py", "a = 1\n")
    with pytest.raises(Refused, match=r"docs/page\.md: changed meanwhile; run again"):
        update(program)
    assert {file: file.read_bytes() for file in saved} == saved


def test_a_page_saved_at_the_last_moment_stays_as_it_was_saved(book, monkeypatch):
    path = book.page(page("print(1)", "0"))
    monkeypatch.setattr("literate.update._check", lambda *_: path.write_text("Saved."))
    with pytest.raises(Refused, match="changed meanwhile"):
        update(read(path))
    assert path.read_text() == "Saved."


# ---- The command. ----


def test_the_command_says_what_it_did(book, capsys):
    book.page(page("print(1)", "0"))
    assert main(["update", "docs/page.md"]) == 0
    assert main(["update"]) == 0
    assert capsys.readouterr().out == ("docs/page.md: 1 output updated\ndocs/page.md: agrees\n")


def test_the_command_fails_for_one_page_and_goes_on_with_the_next(book, capsys):
    book.page(page("raise KeyError(1)"), "docs/a.md")
    book.page("```python\n", "docs/b.md")
    book.page(page("print(1)", "0"), "docs/c.md")
    assert main(["update", *(f"docs/{name}.md" for name in ("a", "gone", "b", "c"))]) == 1
    captured = capsys.readouterr()
    assert "docs/a.md: left as it was\ndocs/a.md:4: KeyError: 1" in captured.err
    assert "docs/b.md:1: unclosed fence" in captured.err
    assert "gone.md" in captured.err
    assert captured.out == "docs/c.md: 1 output updated\n"
