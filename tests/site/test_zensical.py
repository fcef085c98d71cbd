"""The book outlives its builder: Zensical, which knows no hooks, draws the same from what is prepared."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from filelock import FileLock
from lxml import html

from literate import page, record
from tests.site import book

pytestmark = pytest.mark.engines
CHECKED = "foundations/averaging"
# Zensical marks where an article begins, and holds the marks of another run of the tests.
APART = "#__skip, .mark, .report, [href='#checked']"
OWN = re.compile(
    r"assets/(?:javascripts/|stylesheets/|images/|search-index\.js|vendor/iframe-worker)"
    r"|search[/.]|sitemap\.xml"
)


@pytest.fixture(scope="session")
def zensical(tmp_path_factory, worker_id) -> Path:
    """The site as `make zensical` writes it, with a record of one page, for all workers."""
    if find_spec("zensical") is None:
        said = "zensical is not installed, so the site is not built a second time"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(said)
    base = tmp_path_factory.getbasetemp()
    project = (base if worker_id == "master" else base.parent) / "zensical"
    with FileLock(f"{project}.lock"):
        if not project.exists():
            book.copy_project(project)
            shutil.copy(book.ROOT / "CITATION.cff", project)
            record.write(page.read(project / f"docs/{CHECKED}.md"), 17)
            result = book.make(project, "zensical")
            if result.returncode:
                (project / ".book/failed").write_text(result.stdout + result.stderr)
    failed = project / ".book/failed"
    assert not failed.exists(), failed.read_text()
    return project / ".book/site"


def _page(folder: Path, path: str) -> html.HtmlElement:
    return html.document_fromstring((folder / path).read_text(encoding="utf-8"))


def _drawn(part: html.HtmlElement) -> Iterator[str | dict]:
    """Yield what a part of a page draws: each element with its attributes, and the words between."""
    for apart in part.cssselect(APART):
        apart.drop_tree()
    for element in part.iter():
        element.attrib.pop("data-search-exclude", None)  # Zensical obeys it, and drops it
        if "href" in element.attrib:
            element.set("href", element.get("href").removeprefix("./"))
        yield {"element": element.tag, **element.attrib}
        yield from (element.text or "").split()
        yield from (element.tail or "").split()


@pytest.mark.parametrize("path", [*book.PAGES, "404.html"])
def test_a_page_is_the_same_under_zensical(zensical, site, path):
    ours, theirs = (_page(folder, path) for folder in (site, zensical))
    for part in ("article", "footer.md-footer"):
        one, other = (list(_drawn(drawn.cssselect(part)[0])) for drawn in (ours, theirs))
        assert len(one) > 5
        assert other == one
    about = "meta[name=description], meta[property], meta[name^=twitter], link[rel=canonical]"
    said = [[dict(tag.attrib) for tag in drawn.cssselect(about)] for drawn in (ours, theirs)]
    assert said[0]
    assert said[1] == said[0]


def test_the_same_files_are_there_to_take_away_under_zensical(zensical, site):
    ours, theirs = (
        {
            name: path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and not OWN.match(name := path.relative_to(folder).as_posix())
        }
        for folder in (site, zensical)
    )
    assert sorted(theirs) == sorted(ours)
    drawn = (".html", ".zip", ".css")
    assert [n for n in ours if not n.endswith(drawn) and theirs[n] != ours[n]] == []


def test_the_mark_is_earned_under_zensical(zensical):
    shown = {name: _page(zensical, f"{name}.html") for name in (CHECKED, "foundations/scaling")}
    said = {
        name: " ".join(one.cssselect(".mark")[0].text_content().split())
        for name, one in shown.items()
    }
    assert said[CHECKED].startswith("Every output on this page was checked.")
    assert "17 outputs compared" in said[CHECKED]
    assert said["foundations/scaling"].startswith("Not checked yet.")
    reports = [one.cssselect(".report")[0].get("href") for one in shown.values()]
    assert ["not+checked" in href for href in reports] == [False, True]


def test_search_holds_every_page_and_each_formula_once_under_zensical(zensical):
    found = json.loads((zensical / "search.json").read_text(encoding="utf-8"))["items"]
    held = {item["location"].partition("#")[0] for item in found}
    assert set(book.PAGES) - {"index.html"} <= held
    assert [item["location"] for item in found if "\\frac{" in item["text"]] == []
    assert "assets/search.js" not in (zensical / "symbols.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("index", "# Home\n\n[On](next.md#there)\n", ""),
        ("index", "# Home\n\n[On](gone.md)\n", "gone.md"),
        ("index", "# Home\n\n[On](next.md#gone)\n", "next.md#gone"),
        ("index", "# Home\n\nBad: $\\nosuch{x}$ here.\n", "docs/index.md:3: "),
        ("stray", "# Stray\n", "docs/stray.md:1: "),
    ],
    ids=["sound", "dead link", "dead anchor", "bad formula", "page missing from the nav"],
)
def test_what_is_wrong_with_a_page_stops_make_zensical(tmp_path, name, text, said):
    book.small_book(tmp_path, index="# Home\n", next="# Next\n\n## There\n")
    (tmp_path / f"docs/{name}.md").write_text(text, encoding="utf-8")
    result = book.make(tmp_path, "zensical")
    assert (result.returncode != 0) == bool(said), result.stderr
    assert said in re.sub(r"\x1b\[[\d;]*m", "", result.stdout + result.stderr)


@contextlib.contextmanager
def _reading(site: Path, browser, start: str) -> Iterator[tuple]:
    """Give a page on which nothing may go wrong, the site's address, and how a reader goes on there."""
    with book.served(site) as address:
        address = address if start == "served" else site.as_uri() + "/"
        shown = browser.new_page(viewport=book.WIDE)
        wrong = []
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        shown.on(
            "request",
            lambda request: (
                request.url.startswith((address, "data:", "blob:")) or wrong.append(request.url)
            ),
        )

        def go_on(path: str) -> None:
            if start == "served":
                shown.evaluate(book.CLICK, address + path)
            else:
                shown.goto(address + path)

        yield shown, address, go_on
        shown.close()
    assert wrong == []


served_or_from_a_disk = pytest.mark.parametrize("start", ["served", "from a disk"])


@served_or_from_a_disk
def test_a_reader_can_copy_under_zensical(zensical, browser, start):
    with _reading(zensical, browser, start) as (shown, address, go_on):
        shown.goto(f"{address}symbols.html")
        go_on(f"{CHECKED}.html")
        blocks = len(page.read(book.DOCS / f"{CHECKED}.md").blocks)
        assert shown.locator("[data-copy=above]").count() == blocks


@served_or_from_a_disk
def test_a_reader_finds_a_page_by_its_words_under_zensical(zensical, browser, start):
    with _reading(zensical, browser, start) as (shown, address, go_on):
        # A served index comes late here: when the reader has gone to another folder, and asks.
        late = []
        shown.route("**/search.json", lambda index: late.append(index))
        shown.goto(f"{address}symbols.html")
        go_on(f"{CHECKED}.html")
        assert len(late) == (start == "served")
        box = shown.get_by_role("combobox", name="Search")
        first = shown.locator("a[aria-selected=true]")
        opened = {"causal mask": lambda: box.press("Enter"), "what heads learn": first.click}
        for words, open_first in opened.items():
            shown.locator(".md-search__button").click()
            while late:
                late.pop().continue_()
            # All words at once, and none before: no result answers the first letters, or the last search.
            box.fill("")
            first.wait_for(state="detached")
            box.fill(words)
            first.wait_for()
            found = first.get_attribute("href").partition("?")[0]
            assert found != shown.url.partition("?")[0]
            open_first()
            shown.wait_for_url(lambda url, found=found: url.partition("?")[0] == found)
            there = (zensical / found.removeprefix(address)).read_text(encoding="utf-8")
            heading = re.search(r'<h1 id="(.+?)"', there)[1]
            shown.locator(f"article h1[id='{heading}']").wait_for()
            text = shown.locator("article").text_content().lower()
            assert [word for word in words.split() if word not in text] == []
