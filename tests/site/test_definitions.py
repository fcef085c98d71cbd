"""A word of the glossary is explained where it stands, when a reader asks."""

import re

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
    assert "One attention with its own queries, keys, values and weights." in tip.inner_text()
    assert "¶" not in tip.inner_text()
    assert axe(shown, ".md-tooltip2--active") == []
    tip.locator("a").hover()
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
