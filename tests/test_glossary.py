"""The glossary and the book hold together: each word is used, and each link finds its word."""

import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest

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


# Words that pages use in their everyday sense, too: of these only a link to the glossary counts.
EVERYDAY = {"batch", "channel", "head", "key", "mask", "position", "query", "sequence", "value"}
EVERYDAY |= {"decoder", "encoder", "gradient", "loss", "padding", "parameter", "sampling", "shape"}
# How people say a word, its anchor, and the chapter that teaches it.
TAUGHT = re.findall(
    r"^### (.+?) \{ #([\w-]+) \}\n(?:(?!### ).*\n)*?Taught in \[.+\]\((.+)\)\.$",
    prose(GLOSSARY),
    re.MULTILINE,
)


def reading_order() -> list[str]:
    """The chapters, in the order of the menu."""
    menu = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    parts = "start|foundations|correctness|model|positions|cache|kernels|memories|serving"
    listed = re.findall(rf"(?:{parts})/[\w-]+\.md", menu)
    return [page for page in listed if not page.endswith("/index.md")]


def told(page: str) -> str:
    """What a chapter tells: without its code, its pictures, its sources and the targets of links."""
    text = prose(DOCS / page).partition("\n## Sources\n")[0]
    text = re.sub(r"^ *```.*?^ *```$|^!\[.*$|`[^`\n]*`", "", text, flags=re.M | re.S)
    return re.sub(r"\]\((?!\S*glossary)[^)]*\)", "]", text)


def test_every_word_names_the_chapter_that_teaches_it():
    assert sorted(word for _, word, _ in TAUGHT) == sorted(ENTRIES)
    assert {where for _, _, where in TAUGHT} <= set(reading_order())


@pytest.mark.parametrize("page", reading_order())
def test_no_chapter_needs_a_word_that_a_later_one_teaches(page):
    order, text = reading_order(), told(page)
    needed = set()
    for name, word, where in TAUGHT:
        if order.index(where) <= order.index(page):
            continue
        spoken = rf"\b{re.escape(name)}s?\b"
        used = word not in EVERYDAY and re.search(spoken, text, re.IGNORECASE)
        needed |= {word} if used or f"glossary.md#{word})" in text else set()
    assert needed == set()


def test_the_first_part_points_forward_four_times_at_most():
    order = reading_order()
    forward = []
    for page in order:
        if page.startswith("foundations/"):
            for name in re.findall(r"\]\(([\w./-]+\.md)", prose(DOCS / page)):
                target = (DOCS / page).parent.joinpath(name).resolve().relative_to(DOCS).as_posix()
                if target in order and order.index(target) > order.index(page) + 1:
                    forward.append(f"{page} → {target}")
    assert len(forward) <= 4, forward
