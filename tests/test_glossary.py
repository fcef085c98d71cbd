"""The glossary and the book hold together: each word is used, and each link finds its word."""

import re
from collections import Counter
from pathlib import Path

import nbformat

DOCS = Path(__file__).resolve().parents[1] / "docs"
GLOSSARY = DOCS / "glossary.md"
ENTRIES = re.findall(r"^### .+ \{ #([\w-]+) \}$", GLOSSARY.read_text(encoding="utf-8"), re.M)


def prose(path: Path) -> str:
    """The Markdown of a page: of a lab, that of its Markdown cells."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def linked_words() -> set[str]:
    """Anchors of the glossary that pages and labs link to."""
    pages = [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]
    return {
        word for page in pages for word in re.findall(r"\(\S*glossary\.md#([^\s)]+)", prose(page))
    }


def test_every_heading_of_a_word_has_an_anchor():
    assert GLOSSARY.read_text(encoding="utf-8").count("\n### ") == len(ENTRIES)


def test_no_word_is_explained_twice():
    assert [word for word, count in Counter(ENTRIES).items() if count > 1] == []


def test_every_word_is_linked_from_a_page():
    assert sorted(set(ENTRIES) - linked_words()) == []


def test_links_to_the_glossary_find_their_words():
    within = set(re.findall(r"\]\(#([^\s)]+)", prose(GLOSSARY)))
    assert sorted((linked_words() | within) - set(ENTRIES)) == []
