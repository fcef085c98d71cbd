"""A chapter is renamed by one command: what named it names the new page, and its old address leads there."""

import subprocess

import pytest

from tools import rename

FILES = {
    "mkdocs.yml": "nav:\n  - part/old.md\n  - part/older.md\nextra:\n  part/old.md: words\n",
    "docs/part/old.md": "# Old\n\n[Above](#old), [other](other.md), [glossary](../glossary.md#old).\n",
    "docs/part/other.md": "[A](old.md), [b](old.md#there), [c](../part/old.md), [d](older.md).\n",
    "docs/glossary.md": "### Old { #old }\n\n[Taught](part/old.md) here. [Not this](old.md).\n",
    "docs/labs/lab.ipynb": '{"source": ["[x](../part/old.md#there)"]}',
    "docs/old.md": "another page of the same name\n",
    "tests/facts.py": 'PAGE = "docs/part/old.md"\nOTHER = "docs/part/old-one.md"\n',
    "ignored.txt": "part/old.md",
    ".gitignore": "ignored.txt\n",
}


@pytest.fixture
def book(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "docs/picture.png").write_bytes(b"\0part/old.md")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_all_that_named_a_chapter_names_it_anew_and_nothing_else_changes(book):
    changed = rename.rename(book, "docs/part/old.md", "new")
    expected = FILES | {
        "mkdocs.yml": "nav:\n  - part/new.md\n  - part/older.md\nextra:\n  part/new.md: words\n",
        "docs/part/other.md": "[A](new.md), [b](new.md#there), [c](../part/new.md), [d](older.md).\n",
        "docs/glossary.md": "### Old { #old }\n\n[Taught](part/new.md) here. [Not this](old.md).\n",
        "docs/labs/lab.ipynb": '{"source": ["[x](../part/new.md#there)"]}',
        "tests/facts.py": 'PAGE = "docs/part/new.md"\nOTHER = "docs/part/old-one.md"\n',
    }
    expected["docs/part/new.md"] = expected.pop("docs/part/old.md")
    assert {name: (book / name).read_text() for name in expected} == expected
    assert not (book / "docs/part/old.md").exists()
    assert sorted(changed) == [
        *("docs/glossary.md", "docs/labs/lab.ipynb", "docs/part/other.md"),
        *("mkdocs.yml", "tests/facts.py"),
    ]
    assert (book / "docs/picture.png").read_bytes() == b"\0part/old.md"


def test_the_old_address_leads_to_the_new_page_and_to_the_place_in_it(book):
    rename.rename(book, "docs/part/old.md", "new")
    moved = (book / "docs/part/old.html").read_text()
    assert 'content="1; url=new.html"' in moved
    assert 'location.replace("new.html" + location.search + location.hash)' in moved
    assert '<a href="new.html">' in moved


@pytest.mark.parametrize(
    ("page", "name"),
    [
        *(("docs/part/gone.md", "new"), ("mkdocs.yml", "new"), ("docs/labs/lab.ipynb", "new")),
        *(("docs/part/old.md", "other"), ("docs/part/old.md", "New"), ("docs/part/old.md", "a/b")),
    ],
)
def test_what_cannot_be_renamed_is_said_and_left_as_it_is(book, page, name):
    with pytest.raises(ValueError, match="wanted"):
        rename.rename(book, page, name)
    assert {path: (book / path).read_text() for path in FILES} == FILES
