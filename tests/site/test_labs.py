"""The labs as pages: each answers on its first screen, lies still, and has its code one click away."""

import re

import nbformat
import pytest
from bs4 import BeautifulSoup

from tests.site import book
from tests.site.test_using import CLICK_AND_READ

PATHS = [source.removesuffix(".ipynb") + ".html" for source in book.LABS]
each_lab = pytest.mark.parametrize("path", PATHS)

# Sums what moves from the first frame on, whoever moves it.
WATCH = """window.moved = [];
new PerformanceObserver((list) => moved.push(...list.getEntries())).observe({type: 'layout-shift', buffered: true});"""
MOVED = """() => moved.map((entry) => [entry.value, ...entry.sources.map((source) =>
    (source.node?.textContent ?? 'gone').trim().slice(0, 40))])"""
# Where the finding ends, where the figure does with its caption, and where its drawing begins.
PLACES = """() => {
  const box = (selector) => document.querySelector(selector).getBoundingClientRect();
  return [box('#finding').bottom, box('.lab-figure').bottom, box('.lab-figure').top];
}"""


def open_with_late_fonts(page, address, path):
    """Open a page whose fonts come when its text has been painted."""
    page.add_init_script(WATCH)
    late = []
    page.route("**/*.woff2", lambda font: late.append(font))
    page.goto(address + path, wait_until="domcontentloaded")
    page.wait_for_function(
        "document.querySelector('.book-copy') && performance.getEntriesByType('paint').length > 1"
    )
    assert late
    for font in late:
        font.continue_()
    page.unroute("**/*.woff2")
    page.evaluate(book.DRAWN)


each_window = pytest.mark.parametrize("viewport", [book.WIDE, book.NARROW], ids=["1280", "375"])


@each_lab
@each_window
def test_the_first_screen_holds_the_answer(visit, address, path, viewport):
    page = visit("assets/favicon.svg", viewport=viewport)
    book.open_in_its_fonts(page, address + path)
    finding, figure, drawn = page.evaluate(PLACES)
    assert finding < viewport["height"]
    if viewport == book.WIDE:
        assert figure <= viewport["height"]
    else:
        assert drawn < viewport["height"] - 200


@each_lab
@each_window
def test_nothing_of_a_lab_moves_when_its_fonts_come_late(visit, address, path, viewport):
    page = visit("assets/favicon.svg", viewport=viewport)
    open_with_late_fonts(page, address, path)
    assert page.evaluate(MOVED) == []


@each_lab
def test_a_lab_goes_from_the_answer_to_the_machine(site, path):
    article = BeautifulSoup((site / path).read_text("utf-8"), "html.parser").select_one("article")
    every = article.find_all(True)
    wanted = [
        *("h1", ".page-bar", "#finding", ".lab-figure", "table.lab-table"),
        *("#how-it-was-measured", "details > .highlight", "#sources", "#the-machine"),
    ]
    found = [article.select_one(selector) for selector in wanted]
    assert None not in found
    places = [next(n for n, tag in enumerate(every) if tag is one) for one in found]
    assert places == sorted(places)
    assert article.select("figure.output samp")[-1].get_text().startswith("date ")
    assert re.match(r"\d+ min read", article.select_one(".page-bar").get_text(strip=True))
    assert article.select(".language-python:not(details > *)") == []
    assert [
        svg for svg in article.select("svg") if not (svg.get("width") and svg.get("height"))
    ] == []
    assert len(every) <= 2_000


def test_the_code_of_a_lab_is_one_click_away_and_copied_like_any_other(arrive):
    page = arrive("labs/gpt.html")
    cells = nbformat.read(book.DOCS / "labs/gpt.ipynb", 4).cells
    drew = next(cell for cell in cells if "figure" in cell.metadata.get("tags", []))
    folded = page.locator("details", has_text="Code of the figure at the top")
    assert folded.locator("code").is_hidden()
    folded.locator("summary").click()
    assert folded.locator("code").is_visible()
    copy = folded.get_by_role("button", name="Copy this block")
    (copied,) = copy.evaluate(CLICK_AND_READ)
    assert copied.strip() == drew.source


def test_a_lab_from_a_disk_and_without_scripts_still_answers_and_unfolds(visit, site):
    page = visit((site / "labs/heads.html").as_uri(), java_script_enabled=False)
    assert page.locator("#finding").is_visible()
    assert page.locator(".lab-figure svg").first.is_visible()
    folded = page.locator("details:has(.highlight)").first
    folded.locator("summary").click()
    assert folded.locator("code").is_visible()


def test_a_lab_that_lacks_its_figure_stops_the_build_which_names_it(tmp_path):
    project = book.small_book(tmp_path / "book", index="# Home\n")
    notebook = nbformat.read(book.DOCS / "labs/gpt.ipynb", 4)
    for cell in notebook.cells:
        cell.metadata.get("tags", []).count("figure") and cell.metadata.tags.remove("figure")
    (project / "docs/labs").mkdir()
    nbformat.write(notebook, project / "docs/labs/hasty.ipynb")
    with (project / "mkdocs.yml").open("a", encoding="utf-8") as settings:
        settings.write("  - labs/hasty.ipynb\n")
    result = book.build(tmp_path / "site", project)
    assert result.returncode != 0
    assert "docs/labs/hasty.ipynb: no cell is tagged `figure`" in result.stderr
