"""What a phone shows otherwise than a desktop, and loses nothing by it."""

import pytest

from tests.site import book

TOUCH = {"viewport": book.NARROW, "has_touch": True, "is_mobile": True}
LONG = "production/kv-cache.html"
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


def test_long_outputs_are_wrapped_at_first_and_code_when_a_reader_asks(arrive, address):
    page = arrive(LONG, viewport=book.NARROW)
    page.evaluate(book.UNVEIL)
    assert cut(page, OUTPUT) == []
    assert cut(page, CODE)
    said = page.locator(CODE).all_text_contents()
    page.locator("[data-wraps=code]").first.click()
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
    book.scroll_to_the_end(page)
    page.get_by_role("button", name="Forget what I have read").click()
    assert page.evaluate("localStorage.getItem('book-wrap')") is None
    assert cut(page, CODE)
    assert cut(page, OUTPUT) == []


def test_the_switch_is_reached_by_keyboard_and_says_its_state(visit):
    page = visit(LONG, viewport=book.NARROW)
    bar = page.locator(".book-copy", has=page.locator("[data-wraps]")).first
    bar.locator("button").first.focus()
    page.keyboard.press("ArrowLeft")
    wraps = bar.locator("[data-wraps]")
    assert wraps.evaluate("button => button === document.activeElement")
    assert wraps.get_attribute("aria-pressed") == "false"
    page.keyboard.press("Enter")
    assert wraps.get_attribute("aria-pressed") == "true"


def test_an_output_in_columns_keeps_them(visit):
    page = visit(LONG, viewport=book.NARROW)
    rows = page.locator(".output samp.columns").evaluate_all(
        """(texts) => texts.filter((text) => text.checkVisibility()).map((text) =>
          Math.round(text.getBoundingClientRect().height / parseFloat(getComputedStyle(text.parentElement).lineHeight)) - text.textContent.split('\\n').length)"""
    )
    assert rows
    assert set(rows) == {0}


def test_a_desktop_has_no_such_switch_and_no_such_lines(visit):
    page = visit(LONG)
    assert page.locator("[data-wraps]").count() == 0
    line = page.locator(".output .line").first
    assert line.evaluate("line => getComputedStyle(line).display") == "inline"


def test_a_map_without_room_for_its_numbers_says_that_of_the_cell_that_is_tapped(arrive):
    page = arrive("model/heads.html", **TOUCH)
    page.evaluate(book.UNVEIL)
    table = page.locator(".output .heatmap.dense").first
    assert (
        table.evaluate("table => getComputedStyle(table.querySelector('td[style]')).fontSize")
        == "0px"
    )
    said = "table => getComputedStyle(table.caption, '::after').content"
    assert "Tap a cell" in table.evaluate(said)
    cell = table.locator("tbody tr").nth(12).locator("td").nth(5)
    cell.tap()
    assert table.evaluate(said) == f'"Y → B: {cell.text_content()}"'


def test_a_wide_map_of_few_rows_is_turned_and_arrow_keys_follow_what_is_seen(visit):
    page = visit("correctness/order.html", viewport=book.NARROW)
    page.evaluate(book.UNVEIL)
    table = page.locator(".output .heatmap.turned").first
    first = table.locator("tbody td").first
    first.focus()
    before = first.bounding_box()
    page.keyboard.press("ArrowDown")
    now = page.locator("td:focus").bounding_box()
    assert now["x"] == before["x"]
    assert now["y"] > before["y"]


CARDS = """() => [...document.querySelectorAll('.cards')].map((table) => {
  const names = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.querySelector('math') ? '' : cell.textContent.trim());
  return [...table.tBodies[0].rows].map((row) => [...row.cells].slice(1).map((cell, at) =>
    [JSON.parse(getComputedStyle(cell, '::before').content), names[at]]));
})"""


@book.each_page
@book.narrow
def test_on_a_card_each_cell_bears_the_name_of_its_column(look, path):
    for table in look(path, book.NARROW, unfolded=True).evaluate(CARDS):
        for said, name in (pair for row in table for pair in row):
            assert said
            assert name in ("", said)  # a formula is said in words


def test_numbers_of_a_lab_stand_to_the_right_and_words_to_the_left(look):
    page = look("labs/checker.html")
    sides = page.locator(".lab-table").first.evaluate(
        "table => [...table.rows].map((row) => [...row.cells].map((cell) => getComputedStyle(cell).textAlign))"
    )
    assert {tuple(row) for row in sides} == {("left", "left", "right", "right", "right")}
