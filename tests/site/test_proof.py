"""The promise itself, on the built site: what a page shows is what ran, and what was compared."""

import shutil

import pytest
from mkdocs.config import load_config
from mkdocs.structure.files import get_files, set_exclusions
from mkdocs.utils.meta import get_data

from book import prepare
from literate import page
from tests.site import book

# The text of what is visible, one entry for each element, as a reader would copy it.
VISIBLE = """(boxes) => boxes
  .filter((box) => box.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
  .filter((box) => { const { width, height } = box.getBoundingClientRect(); return width && height; })
  .map((box) => box.textContent)"""
CODE = ", ".join(f".language-{name} pre > code" for name in ("python", "py", "python3", "py3"))


@book.each_chapter
@book.unfolded
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


HUGE = """(svg) => {
  const rect = document.createElementNS(svg.namespaceURI, 'rect');
  for (const [name, value] of Object.entries({ x: -9e3, y: -9e3, width: 2e4, height: 2e4 })) {
    rect.setAttribute(name, value);
  }
  svg.append(rect);
}"""
ON_TOP = """(boxes) => boxes.map((box) => {
  box.scrollIntoView({ block: 'center' });
  const { left, top, width, height } = box.getBoundingClientRect();
  return box.contains(document.elementFromPoint(left + width / 2, top + height / 2));
})"""


def test_no_drawing_covers_what_stands_beside_it(visit):
    shown = visit("foundations/averaging.html")
    shown.locator("figure.diagram svg").evaluate_all(f"(all) => all.forEach({HUGE})")
    on_top = shown.locator(".md-content article figure.output:visible").evaluate_all(ON_TOP)
    assert len(on_top) > 3
    assert all(on_top)


def test_a_notebook_that_no_test_reads_stops_the_build_which_names_it(tmp_path):
    project = book.small_book(tmp_path / "book", index="# Home\n")
    (project / "docs/part").mkdir()
    shutil.copy(book.DOCS / "labs/gpt.ipynb", project / "docs/part/gpt.ipynb")
    for nav in ("", "  - part/gpt.ipynb\n"):
        with (project / "mkdocs.yml").open("a", encoding="utf-8") as settings:
            settings.write(nav)
        result = book.build(tmp_path / "site", project)
        assert result.returncode != 0
        assert "docs/part/gpt.ipynb:1: a notebook stands in docs/labs/" in result.stderr
        with pytest.raises(page.PageError, match="a notebook stands in docs/labs/"):
            prepare.page(
                project / "docs/part/gpt.ipynb",
                "part/gpt.ipynb",
                load_config(str(project / "mkdocs.yml")),
            )


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
    "---\ntitle: x\n---\n",
    "---\ntitle: x\n...\n\n\n",
    "--- \nhide: [toc]\n--- \n",
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
def test_metadata_is_what_mkdocs_takes_for_metadata(front, book):
    text = front + "\n# Title\n"
    shown, data = get_data(text)
    if data and not front.startswith("---"):
        with pytest.raises(page.PageError, match="take it for metadata"):
            book.read(text)
        return
    kept = page.without_front_matter(text)
    assert kept.strip("\n") == shown.strip("\n")
    assert kept.count("\n") == text.count("\n")
