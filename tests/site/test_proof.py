"""The promise itself, on the built site: what a page shows is what ran, and what was compared."""

import pytest
from mkdocs.config import load_config
from mkdocs.structure.files import get_files, set_exclusions
from mkdocs.utils.meta import get_data

from literate import markup, page
from tests.site import book

# The text of what is visible, one entry for each element, as a reader would copy it.
VISIBLE = """(boxes) => boxes
  .filter((box) => box.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
  .filter((box) => { const { width, height } = box.getBoundingClientRect(); return width && height; })
  .map((box) => box.textContent)"""
CODE = ", ".join(f".language-{name} pre > code" for name in ("python", "py", "python3", "py3"))


@book.each_chapter
def test_the_python_and_the_outputs_that_a_page_shows_are_those_that_were_checked(look, path):
    blocks = page.read(book.DOCS / book.SOURCES[path]).blocks
    shown = look(path, unfolded=True)
    article = shown.locator(".md-content article")
    assert [code.strip("\n") for code in article.locator(CODE).evaluate_all(VISIBLE)] == [
        block.code.strip("\n") for block in blocks
    ]
    assert article.locator("figure.output samp").evaluate_all(VISIBLE) == [
        block.output.text.strip("\n") for block in blocks if block.output
    ]


NAMES = ("a.md", "b.mkd", "build/c.md", "venv/d.markdown", "e/templates/f.md", "e.mdown", "f.mkdn")
OTHERS = ("g.txt", "h.MD", "templates/i.md", ".j.md", ".k/l.md", "m.md.bak")


def test_a_page_is_what_mkdocs_publishes_as_one(tmp_path):
    (tmp_path / "mkdocs.yml").write_text("site_name: A book\n")
    for name in (*NAMES, *OTHERS):
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).touch()
    config = load_config(str(tmp_path / "mkdocs.yml"))
    files = get_files(config)
    set_exclusions(files, config)
    published = sorted(file.src_uri for file in files.documentation_pages())
    assert published == sorted(NAMES)
    found = page.pages(tmp_path)
    assert sorted(path.relative_to(tmp_path / "docs").as_posix() for path in found) == (published)


FRONTS = [
    "---\na: 1\n---\n",
    "---\na: 1\n...\n\n\n",
    "--- \na: [1]\n--- \n",
    "---\n\n---\n",
    "---\nText\n---\n",
    "---\na: b: c\n---\n",
    "---\n- a\n---\n",
    "----\na: 1\n---\n",
    " ---\na: 1\n---\n",
    "---\na: 1\n",
    "",
    "\nAnswer: 42\n",
    "An answer: 42\n",
    "Answer: 42\n",
    "   Answer:\n    42\n",
    "https://example.org\n",
]


@pytest.mark.parametrize("front", FRONTS)
def test_metadata_is_what_mkdocs_takes_for_metadata(front):
    text = front + "\n# Title\n"
    shown, data = get_data(text)
    try:
        kept = page.without_front_matter(text)
    except markup.Misread:
        assert data
        assert not front.startswith("---")
    else:
        assert kept.strip("\n") == shown.strip("\n")
        assert kept.count("\n") == text.count("\n")
