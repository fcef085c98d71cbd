"""A word of the glossary is explained where it stands, when a reader asks."""

import re

from tests.site import book
from tests.site.test_phone import TOUCH
from tests.site.test_reading import axe

CHAPTER = "model/heads.html"


def test_a_word_of_the_glossary_is_explained_where_it_stands(arrive, address):
    """Only when asked for, by pointer and by keyboard; one may point into it, and Escape shuts it."""
    shown = arrive(CHAPTER)
    shown.wait_for_load_state("networkidle")
    asked = []
    shown.on("request", lambda request: asked.append(request.url.removeprefix(address)))
    link, tip = shown.locator("a[data-preview]").first, shown.locator(".md-tooltip2--active")
    shown.evaluate("scrollBy(0, 10)")
    assert asked == []
    link.hover()
    tip.wait_for()
    assert "glossary.html" in asked
    assert set(asked) <= {"glossary.html", "assets/asked.js"}
    shown.locator(".md-tooltip2--active[aria-label=Head]").wait_for()
    assert "One attention with its own queries and weights." in tip.inner_text()
    assert "¶" not in tip.inner_text()
    assert axe(shown, ".md-tooltip2--active") == []
    tip.locator("a").last.hover()
    tip.wait_for()
    shown.keyboard.press("Escape")
    tip.wait_for(state="hidden")
    shown.mouse.move(2, 2)
    tip.wait_for(state="detached")
    link.focus()
    tip.wait_for()
    shown.keyboard.press("Escape")
    tip.wait_for(state="hidden")
    assert shown.evaluate("document.activeElement.hasAttribute('data-preview')")


def test_a_definition_keeps_its_formulas(visit):
    shown = visit("foundations/scaling.html")
    link = shown.locator("a[data-preview][href$='#scaled-dot-product-attention']").first
    link.hover()
    shown.locator(".md-tooltip2--active math").first.wait_for()


def test_from_a_disk_a_word_of_the_glossary_is_a_plain_link(visit, unzipped):
    shown = visit((unzipped / CHAPTER).as_uri())
    link = shown.locator("a[data-preview]").first
    link.hover()
    assert shown.locator(".md-tooltip2").count() == 0
    link.click()
    shown.wait_for_url(re.compile(r"^file:.*glossary\.html#head$"))


def test_on_a_phone_a_word_opens_in_a_sheet_and_the_page_stays(arrive, address):
    shown = arrive(CHAPTER, **TOUCH)
    shown.wait_for_load_state("networkidle")
    link, sheet = (
        shown.locator("article a[data-preview]").first,
        shown.locator(".md-tooltip2--active"),
    )
    link.tap()
    sheet.locator("button").wait_for()
    assert shown.url == address + CHAPTER
    box = sheet.locator(".md-tooltip2__inner").bounding_box()
    assert box["x"] == 0
    assert box["y"] + box["height"] == TOUCH["viewport"]["height"]
    assert axe(shown, ".md-tooltip2--active") == []
    sheet.get_by_role("button", name="Close").tap()
    sheet.wait_for(state="hidden")
    link.tap()
    sheet.wait_for()
    sheet.get_by_role("link", name="In the glossary").tap()
    shown.wait_for_url(re.compile(r"glossary\.html#head$"))


def test_the_glossary_shows_the_words_that_are_named_as_typed_or_else_those_that_say_it(arrive):
    shown = arrive("glossary.html")
    names = shown.locator("article h3:visible")
    every = names.count()
    shown.get_by_label("Find a word").fill("Causal mask")
    assert names.count() == 1
    assert names.first.inner_text().startswith("Causal mask")
    assert shown.locator("article h2:visible").count() == 1
    assert shown.locator(".book-filter [role=status]").inner_text() == f"1 of {every} words"
    shown.get_by_label("Find a word").fill("torch")
    assert 1 < names.count() < every
    shown.evaluate("location.hash = '#head'")
    shown.wait_for_function("document.querySelector('#book-filter').value === ''")
    assert names.count() == every


def test_the_filter_is_sent_with_the_glossary_alone(visit, address):
    asked = "performance.getEntriesByType('resource').some(({ name }) => name.endsWith('assets/glossary.js'))"
    shown = visit(CHAPTER)
    assert not shown.evaluate(asked)
    shown.evaluate(book.CLICK, address + "glossary.html")
    assert shown.evaluate(asked)
