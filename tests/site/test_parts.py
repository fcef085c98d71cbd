"""The pages of parts, which are made of files: all are there, and one is looked at for all."""

import pytest

from book import parts
from tests.site import book
from tests.site.test_reading import FURTHER_VIEW, axe
from tests.site.test_widths import ALWAYS, LOOK, SHOWN

ONE = "parts/kv_cache.html"


def test_each_part_has_a_page_that_shows_its_file_and_is_no_chapter(site):
    assert len(parts.files(book.ROOT)) > 20
    listed = book.parsed(site / "parts.html").xpath("//article//a/@href")
    for name, path in parts.files(book.ROOT).items():
        file = site / f"parts/{name}.html"
        drawn, lines = book.parsed(file), path.read_text(encoding="utf-8").splitlines()
        text = "\n".join(line for line in lines if "--8<--" not in line).strip()
        assert f"parts/{name}.html" in listed
        assert text in [one.text_content().strip() for one in drawn.cssselect("pre > code")]
        assert f"../snippets/{name}.py" in drawn.xpath("//a[@download]/@href")
        assert drawn.cssselect(".mark, .page-bar, #guarded") == []
        assert f"/edit/main/snippets/{name}.py" in drawn.cssselect(".page-mend a")[0].get("href")
        assert file.stat().st_size < FURTHER_VIEW
    assert {file.suffix for file in (site / "parts").iterdir()} == {".html"}


def test_a_chapter_leads_from_the_file_that_it_shows_to_its_page(site):
    links = book.parsed(site / "production/kv-cache.html").cssselect(".take-file a")
    hrefs = [link.get("href") for link in links]
    assert hrefs[hrefs.index("../snippets/kv_cache.py") + 1] == f"../{ONE}"


@pytest.mark.parametrize("window", [book.WIDE, book.NARROW], ids=["1280", "375"])
def test_axe_finds_nothing_on_the_page_of_a_part(look, window):
    assert axe(look(ONE, window)) == []


@pytest.mark.parametrize("width", [375, 768, 1265])
def test_the_page_of_a_part_fits_each_window(look, width):
    found = look(ONE, {"width": width, "height": 900}).evaluate(LOOK)
    assert {kind: found[kind] for kind in (*ALWAYS, *SHOWN) if found[kind]} == {}


def test_the_page_of_a_part_has_a_copy_button_and_offers_no_run(look):
    page = look(ONE)
    boxes = page.locator(".highlight")
    assert page.locator(".highlight [data-copy]").count() == boxes.count() > 0
    assert page.locator("[data-run]").count() == 0
