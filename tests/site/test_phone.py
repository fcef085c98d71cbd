"""What a phone shows otherwise than a desktop, what a narrow box says that it hides, and words that are explained."""

import re

import pytest
from PIL import ImageChops

from tests.site import book, browsers
from tests.site.axe import axe
from tests.site.browsers import NARROW, PHONE

LONG, HEADS = "cache/kv-cache.html", "model/heads.html"
CODE, OUTPUT = ".md-content .highlight pre > code", ".md-content .output samp.long"


def cut(page, what):
    """Which of the boxes that hold `what` hide part of it."""
    return page.locator(what).evaluate_all(
        """(texts) => texts.map((text) => text.closest('pre')).filter((box) => box.checkVisibility())
          .flatMap((box) => [box, box.querySelector('code') ?? box]).filter((box) => box.clientWidth && box.scrollWidth > box.clientWidth + 1)
          .map((box) => box.textContent.slice(0, 60))"""
    )


# Of each line that goes on below: where its letters begin, and where the rows after the first do.
HANGING = """(texts) => texts.filter((text) => text.checkVisibility()).flatMap((text) => [...text.querySelectorAll('.line')].flatMap((line) => {
  const letters = document.createTreeWalker(line, NodeFilter.SHOW_TEXT), range = new Range(), rows = new Map();
  for (let node; (node = letters.nextNode()); )
    for (let at = 0; at < node.length; at++) {
      range.setStart(node, at); range.setEnd(node, at + 1);
      const { left, width, bottom } = range.getBoundingClientRect(), row = Math.round(bottom / 6);
      if (width && node.data[at].trim()) rows.set(row, Math.min(left, rows.get(row) ?? Infinity));
    }
  const [first, ...others] = rows.values();
  return others.length ? [[first, Math.min(...others), Math.max(...others)]] : [];
}))"""
# Rows that an output in columns takes beyond its lines.
ROWS = """(texts) => texts.filter((text) => text.checkVisibility()).map((text) =>
  Math.round(text.getBoundingClientRect().height / parseFloat(getComputedStyle(text.parentElement).lineHeight)) - text.textContent.split('\\n').length)"""


def test_long_outputs_are_wrapped_at_first_and_code_when_a_reader_asks(arrive, address):
    page = arrive(LONG, viewport=NARROW)
    page.evaluate(browsers.UNVEIL)
    assert cut(page, OUTPUT) == []
    assert cut(page, CODE)
    assert set(page.locator(".output samp.columns").evaluate_all(ROWS)) == {0}
    said = page.locator(CODE).all_text_contents()
    switch = page.locator("[data-wraps=code]:visible").first
    assert switch.get_attribute("aria-pressed") == "false"
    switch.press("Enter")
    assert switch.get_attribute("aria-pressed") == "true"
    assert cut(page, CODE) == []
    assert page.locator(CODE).all_text_contents() == said
    for what in (CODE, OUTPUT):
        bent = page.locator(what).evaluate_all(HANGING)
        assert bent
        assert [one for one in bent if not one[0] <= one[1] == pytest.approx(one[2])] == []
        assert sum(first + 8 < rest for first, rest, _ in bent) > 0.9 * len(bent)
    page.goto(address + "foundations/scaling.html")
    assert cut(page, CODE) == []
    page.locator("[data-wraps=output]").first.click()
    assert cut(page, OUTPUT)
    page.reload()
    assert cut(page, OUTPUT)
    browsers.scroll_to_the_end(page)
    page.get_by_role("button", name="Forget what I have read").click()
    assert page.evaluate("localStorage.getItem('book-wrap')") is None
    assert cut(page, CODE)
    assert cut(page, OUTPUT) == []


def test_a_desktop_has_no_such_switch_and_no_such_lines(visit):
    page = visit(LONG)
    assert page.locator("[data-wraps]").count() == 0
    line = page.locator(".output .line").first
    assert line.evaluate("line => getComputedStyle(line).display") == "inline"


def test_a_map_without_room_for_its_numbers_says_that_of_the_cell_that_is_tapped(arrive):
    page = arrive(HEADS, **PHONE)
    page.evaluate(browsers.UNVEIL)
    table = page.locator(".output .heatmap.dense").first
    size = "table => getComputedStyle(table.querySelector('td[style]')).fontSize"
    assert table.evaluate(size) == "0px"
    said = "table => getComputedStyle(table.caption, '::after').content"
    assert "Tap a cell" in table.evaluate(said)
    cell = table.locator("tbody tr").nth(12).locator("td").nth(5)
    cell.tap()
    assert table.evaluate(said) == f'"Y → B: {cell.text_content()}"'


def test_a_wide_map_of_few_rows_is_turned_and_arrow_keys_follow_what_is_seen(visit):
    page = visit("correctness/order.html", viewport=NARROW)
    page.evaluate(browsers.UNVEIL)
    first = page.locator(".output .heatmap.turned").first.locator("tbody td").first
    first.focus()
    before = first.bounding_box()
    page.keyboard.press("ArrowDown")
    now = page.locator("td:focus").bounding_box()
    assert now["x"] == before["x"]
    assert now["y"] > before["y"]


def test_numbers_of_a_lab_stand_to_the_right_and_words_to_the_left(visit):
    sides = (
        visit("labs/checker.html")
        .locator(".lab-table")
        .first.evaluate(
            "table => [...table.rows].map((row) => [...row.cells].map((cell) => getComputedStyle(cell).textAlign))"
        )
    )
    assert {tuple(row) for row in sides} == {("left", "left", "right", "right", "right")}


# -------------------------------------------------------------------- what a narrow box hides

# Maps, tables, formulas and outputs in columns fit a phone, or nearly so; here they do not.
STRETCHED = """.heatmap { min-width: 900px } .lab-table td { min-width: 90px !important }
  .math math { font-size: 3em !important } .output samp.columns { font-size: 1em !important }"""
# As Playwright adds one where scripts run.
ADD_STYLE = """(css) => {
  const style = document.createElement('style');
  style.textContent = css;
  document.head.append(style);
  return style;
}"""
CHOOSE = """(kind) => {
  window.chosen = [...document.querySelectorAll('.md-content article ' + kind)].find((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth + 60);
  chosen.scrollIntoView({ block: 'center', behavior: 'instant' });
}"""
SCROLL = "(share) => { chosen.scrollLeft = share * (chosen.scrollWidth - chosen.clientWidth); }"
PLACE = "(() => { const box = chosen.getBoundingClientRect(); return [box.left, Math.max(box.top, 80), box.right, Math.min(box.bottom, 780)]; })()"
NO_FADE = "*, ::after { mask-image: none !important } .heatmap :is(th, td)::after { opacity: 0 !important }"


def faded(page):
    """The sides of the chosen box that look otherwise than where nothing shows what it hides."""
    left, top, right, bottom = page.evaluate(PLACE)
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    shown = browsers.picture(page, clip=clip)
    plain = page.evaluate_handle(ADD_STYLE, NO_FADE)
    browsers.show(page)
    differs = ImageChops.difference(shown, browsers.picture(page, clip=clip)).convert("L")
    differs = differs.point(lambda value: 255 * (value > 24))
    plain.evaluate("(style) => style.remove()")
    browsers.show(page)
    middle = differs.width // 2
    halves = {"left": (0, 0, middle, differs.height), "right": (middle, 0, *differs.size)}
    return {side for side, half in halves.items() if differs.crop(half).getbbox()}


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("foundations/scaling.html", ["pre > code", ".output pre", ".math"]),
        (HEADS, [".heat"]),
        ("labs/scaling.html", [".book-scroll"]),
    ],
)
def test_a_box_fades_at_the_side_where_it_hides_something(visit, path, kinds):
    page = visit(path, viewport=NARROW)
    page.evaluate(browsers.UNVEIL)
    page.evaluate(ADD_STYLE, STRETCHED)
    page.evaluate("dispatchEvent(new Event('resize'))")
    sides = {0: {"right"}, 0.5: {"left", "right"}, 1: {"left"}}  # by the share that is scrolled
    for kind in kinds:
        page.evaluate(CHOOSE, kind)
        for share in sides:
            page.evaluate(SCROLL, share)
            browsers.show(page)
            assert faded(page) == sides[share], (kind, share)
    for colours in ({"color_scheme": "dark"}, {"forced_colors": "active"}):
        browsers.show(page, **colours)
        page.evaluate(SCROLL, 0.5)
        browsers.show(page)
        assert faded(page) == sides[0.5], colours


def test_the_ring_of_a_box_in_focus_is_whole(visit):
    page = visit("foundations/query-key-value.html", viewport=NARROW)
    page.evaluate(CHOOSE, "pre > code")
    page.keyboard.press("Tab")
    page.evaluate("chosen.focus()")
    ring = page.evaluate("[getComputedStyle(chosen)].map((s) => [s.outlineStyle, s.outlineOffset])")
    assert [(style, float(offset[:-2]) < 0) for style, offset in ring] == [("solid", True)]


# -------------------------------------------------------------------- a word that is explained

TIP = ".md-tooltip2--active"


def test_a_word_of_the_glossary_is_explained_where_it_stands(arrive, address):
    """Only when asked for, by pointer and by keyboard; one may point into it, and Escape shuts it."""
    shown = arrive(HEADS)
    shown.wait_for_load_state("networkidle")
    asked = []
    shown.on("request", lambda request: asked.append(request.url.removeprefix(address)))
    link, tip = shown.locator("a[data-preview]").first, shown.locator(TIP)
    shown.evaluate("scrollBy(0, 10)")
    assert asked == []
    link.hover()
    tip.wait_for()
    assert "glossary.html" in asked
    assert set(asked) <= {"glossary.html", "assets/asked.js"}
    shown.locator(f"{TIP}[aria-label=Head]").wait_for()
    assert "One attention with its own queries and weights." in tip.inner_text()
    assert "¶" not in tip.inner_text()
    assert axe(shown, TIP) == []
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


def test_a_definition_keeps_its_formulas_and_from_a_disk_a_word_is_a_plain_link(visit, unzipped):
    shown = visit("foundations/scaling.html")
    shown.locator("a[data-preview][href$='#scaled-dot-product-attention']").first.hover()
    shown.locator(f"{TIP} math").first.wait_for()
    shown = visit((unzipped / HEADS).as_uri())
    link = shown.locator("a[data-preview]").first
    link.hover()
    assert shown.locator(".md-tooltip2").count() == 0
    link.click()
    shown.wait_for_url(re.compile(r"^file:.*glossary\.html#head$"))


def test_on_a_phone_a_word_opens_in_a_sheet_and_the_page_stays(arrive, address):
    shown = arrive(HEADS, **PHONE)
    shown.wait_for_load_state("networkidle")
    link, sheet = shown.locator("article a[data-preview]").first, shown.locator(TIP)
    link.tap()
    sheet.locator("button").wait_for()
    assert shown.url == address + HEADS
    box = sheet.locator(".md-tooltip2__inner").bounding_box()
    assert box["x"] == 0
    assert box["y"] + box["height"] == NARROW["height"]
    assert axe(shown, TIP) == []
    sheet.get_by_role("button", name="Close").tap()
    sheet.wait_for(state="hidden")
    link.tap()
    sheet.wait_for()
    sheet.get_by_role("link", name="In the glossary").tap()
    shown.wait_for_url(re.compile(r"glossary\.html#head$"))


def test_the_glossary_shows_the_words_that_are_named_as_typed_or_else_those_that_say_it(arrive):
    """Its filter is sent with it alone."""
    asked = "performance.getEntriesByType('resource').some(({ name }) => name.endsWith('assets/glossary.js'))"
    shown = arrive(book.CHAPTER)
    assert not shown.evaluate(asked)
    shown.evaluate(browsers.CLICK, shown.url.replace(book.CHAPTER, "glossary.html"))
    assert shown.evaluate(asked)
    names, field = shown.locator("article h3:visible"), shown.get_by_label("Find a word")
    every = names.count()
    field.fill("Causal mask")
    assert names.count() == 1
    assert names.first.inner_text().startswith("Causal mask")
    assert shown.locator("article h2:visible").count() == 1
    assert shown.locator(".book-filter [role=status]").inner_text() == f"1 of {every} words"
    field.fill("torch")
    assert 1 < names.count() < every
    shown.evaluate("location.hash = '#head'")
    shown.wait_for_function("document.querySelector('#book-filter').value === ''")
    assert names.count() == every
