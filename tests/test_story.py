"""What the chapters keep of the book's style, so far as a test can tell."""

import re

import yaml

from book.drawing import LINE
from tests.pages import PAGES, ROOT, each
from tests.projects import PARTS

CHAPTERS = [
    page
    for page in PAGES
    if page.path.parent.name in ("start", *PARTS)
    and page.path.stem not in ("index", "gallery", "calculator")  # two tools, which are figures
]
every_chapter = each(CHAPTERS)
PICTURE = re.compile(r"<svg.*?</svg>", re.DOTALL)
DECIMAL = re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])")


@every_chapter
def test_a_picture_comes_before_the_first_block(page):
    picture = PICTURE.search(page.shown)
    assert picture
    assert picture.start() < page.shown.find("```python")


def test_every_drawing_is_a_file_that_a_page_shows():
    shown = {
        page.path.parent / found["file"] for page in PAGES for found in LINE.finditer(page.text)
    }
    assert shown == set((ROOT / "docs").glob("**/drawings/*"))
    assert [page.name for page in PAGES if "<svg" in page.text] == []


def test_the_first_page_of_a_part_lists_its_chapters_once_in_the_order_of_the_menu():
    menu = re.findall(r"^ +- (\w+)/([\w-]+\.\w+)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M)
    firsts = [
        page for page in PAGES if page.path.stem == "index" and page.path.parent.name != "docs"
    ]
    assert len(firsts) > 4
    for page in firsts:
        listed = re.findall(r"^\| \[.*?\]\((.*?)\)", page.text, re.M)
        assert listed == [
            name for part, name in menu if part == page.path.parent.name and name != "index.md"
        ]


@every_chapter
def test_every_decimal_in_a_picture_is_printed_on_its_page(page):
    printed = " ".join(block.output.text for block in page.blocks if block.output)
    known = {float(number) for number in re.findall(r"\d+\.\d*(?:e[-+]?\d+)?", printed)}
    for picture in PICTURE.findall(page.shown):
        for number in DECIMAL.findall(re.sub(r"<[^>]*>", " ", picture)):
            places = len(number.partition(".")[2])
            assert any(round(value, places) == float(number) for value in known), number


def test_the_first_figure_of_the_book_is_the_trained_head():
    """All of it is computed by the code above, which reads that head; the checker compares the two."""
    home = next(page for page in PAGES if page.name == "docs/index.md")
    fence = next(f for f in home.fences if f.language == "attention")
    assert "files/bank-c9b02ad1.pt" in home.text[: home.text.index("```attention")]
    for shown in yaml.safe_load(fence.text)["choices"]:
        computed = {name.partition(" = ")[0] for name in shown if " = " in name}
        assert computed == {"tokens", "queries", "keys", "values", "weights"}


@each(PAGES)
def test_a_line_that_begins_with_a_hash_is_a_heading(page):
    """Wrapped badly, the number of an issue becomes one."""
    prose = re.sub(r"^ *(`{3,}|~{3,}).*?^ *\1", "", page.text, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^ *#+(?!#| ).*$", prose, re.MULTILINE) == []
