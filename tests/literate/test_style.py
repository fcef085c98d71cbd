"""Python files and the code in pages are formatted and linted by the same rules."""

from tests.pages import PAGES, each
from tools import style


def test_python_files_are_formatted_and_clean():
    assert style.ruff("check", "--output-format", "concise", "--quiet", ".") == ""
    assert style.ruff("format", "--check", "--quiet", ".") == ""


def test_the_code_in_pages_is_formatted(monkeypatch):
    monkeypatch.chdir(style.ROOT)
    changes = style.formatted(PAGES)
    assert [f"{page.name}:{block.line}" for page, block, _ in changes] == []


@each(PAGES)
def test_the_code_in_pages_is_clean(page, monkeypatch):
    monkeypatch.chdir(style.ROOT)
    assert style.linted(page) == []


def test_a_fault_in_a_page_is_named_by_its_line(book):
    page = book.read("Text.\n\n```python\nimport os\nprint(missing)\n```\n")
    assert [found.split(" ")[0] for found in style.linted(page)] == [
        "docs/page.md:4:8:",
        "docs/page.md:5:7:",
    ]


def test_names_of_earlier_blocks_and_includes_are_known(book):
    book.snippet("part.py", "def part():\n    return 1\n")
    page = book.read('```python\n--8<-- "part.py"\n```\n\n```python\na = part()\nprint(a)\n```\n')
    assert style.linted(page) == []
    assert style.formatted([page]) == []


def test_formatting_keeps_the_page_around_the_code(book):
    text = "> ```python\n> a   = 1\n> ```\n\n~~~py\nb=[1,\n 2]\n~~~\n\nText.\n"
    page = book.read(text.encode())
    changes = style.formatted([page])
    style.fix(page, [(block, code) for _, block, code in changes])
    assert (
        page.path.read_text() == "> ```python\n> a = 1\n> ```\n\n~~~py\nb = [1, 2]\n~~~\n\nText.\n"
    )
