"""What a reader finds: in the box of every page, from a disk, and where an address leads nowhere."""

import re

import pytest

from tests.site import book
from tests.site.test_reading import open_search

QUERIES = book.ROOT / "tests/site/queries.txt"
ENOUGH = 0.96

# Types a query into the open box anew, and gives the pages that it finds, in order.
FOUND = """async (query) => {
  const input = document.querySelector(".md-search__input");
  const said = document.querySelector(".md-search-result__meta");
  const until = async (holds) => {
    for (let frame = 0; !holds(); frame++) {
      if (frame > 600) throw new Error(`no answer to ${query}: ${said.textContent}`);
      await new Promise(requestAnimationFrame);
    }
  };
  const type = (text) => {
    input.value = text;
    input.dispatchEvent(new KeyboardEvent("keyup"));
  };
  type("");
  await until(() => said.textContent.startsWith("Type to"));
  type(query);
  await until(() => !said.textContent.startsWith("Type to"));
  return [...document.querySelectorAll(".md-search-result__item")].map(
    (item) => new URL(item.querySelector("a").href).pathname.slice(1));
}"""


def queries():
    """Each query of the table, with the pages that answer it best."""
    lines = QUERIES.read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line and not line.startswith("#")]
    return [(query.strip(), {f"{page}.html" for page in pages.split()}) for query, pages in rows]


@pytest.fixture
def box(look):
    """`box(query)` gives the pages that the search box of a chapter finds, the best first."""
    page = look("foundations/context.html")
    page.locator(".md-search__input").focus()
    page.locator(".md-search__output").wait_for()
    yield lambda query: page.evaluate(FOUND, query)
    page.keyboard.press("Escape")
    # The theme opens the box where the focus has come back, if it looked while it was away: 1 ms later.
    page.evaluate("new Promise((passed) => setTimeout(passed, 20))")


def test_the_best_page_is_among_the_first_three(box, capsys):
    wanted = queries()
    assert {page for _, pages in wanted for page in pages} <= set(book.PAGES)
    missed = {
        query: found[:3] for query, pages in wanted if not pages & set((found := box(query))[:3])
    }
    with capsys.disabled():
        print(
            f"\nthe best page is among the first three for {len(wanted) - len(missed)} of {len(wanted)}"
        )
    assert len(missed) <= (1 - ENOUGH) * len(wanted), missed


@pytest.mark.parametrize(
    ("typed", "near"), [("backprobagatoin", "backpropagation"), ("sofmatcks", "softmax")]
)
def test_where_nothing_is_found_the_nearest_word_is_a_press_of_enter_away(box, look, typed, near):
    assert box(typed) == []
    page = look("foundations/context.html")
    offered = page.locator(".md-search-result__meta a")
    assert offered.inner_text() == near
    page.keyboard.press("Enter")
    page.locator(".md-search-result__item").first.wait_for()
    assert page.locator(".md-search__input").input_value() == near
    box(typed)
    offered.click()
    page.locator(".md-search-result__item").first.wait_for()


def test_every_query_has_an_answer_or_a_word_near_it(box, look):
    page = look("foundations/context.html")
    for query in ("zzzzzz", "x" * 60, "<b>", "42.", "é", "\\", "constructor __proto__"):
        assert box(query) or page.locator(".md-search-result__meta").inner_text(), query
    assert box("?") == []


def test_excerpts_keep_what_is_raised_and_lowered(box, look):
    box("QK^T")
    page = look("foundations/context.html")
    excerpts = page.locator(".md-search-result__link article")
    assert "<sup>" in "".join(excerpts.evaluate_all("(all) => all.map((one) => one.innerHTML)"))


MARKED = "[...document.querySelectorAll('.md-content mark')].map((mark) => mark.textContent.toLowerCase())"


def test_a_page_opened_by_a_link_marks_the_words_of_its_address(visit):
    shown = visit("foundations/scaling.html?h=variance+head_dim")
    shown.locator(".md-content mark").first.wait_for()
    assert set(shown.evaluate(MARKED)) == {"variance", "head_dim"}


def test_a_result_leads_to_its_words_and_marks_them(arrive):
    shown = arrive("symbols.html")
    open_search(shown, "vareance")
    shown.locator(".md-search-result__item a").first.click()
    shown.locator(".md-content mark:visible").first.wait_for()
    assert "variance" in shown.evaluate(MARKED)


# Bytes before compression; a host sends a little more than a third of them.
FIRST_SEARCH = 412_000  # packed, 150 KiB
SIZES = """performance.getEntriesByType("resource").map((entry) => [entry.name, entry.decodedBodySize])"""


# What stands between the title of each section and the words that it lacks.
EXCERPT = """(results) => results.map((result) =>
  [...result.childNodes].filter((part) => !part.matches?.("div, h1, h2, .md-search-result__terms"))
    .map((part) => part.textContent).join("").trim())"""


def test_what_is_shown_of_a_section_are_sentences(box, look):
    page = look("foundations/context.html")
    for query in ("softmax nan", "masked_fill", "training loss"):
        box(query)
        told = page.locator(".md-search-result__link article:has(h2)").evaluate_all(EXCERPT)
        assert [text for text in told if not re.search(r"[.?!:]$", text)] == []


def test_a_page_fetches_nothing_of_the_search_before_it_is_reached_for(visit):
    shown = visit("symbols.html")
    fetched = "performance.getEntriesByType('resource').map((entry) => entry.name)"
    heavy = re.compile(r"search-index|search-engine|minisearch|workers/")
    shown.wait_for_load_state("networkidle")
    before = shown.evaluate(fetched)
    assert [name for name in before if heavy.search(name)] == []
    open_search(shown, "softmax")
    shown.locator(".md-search-result__item").first.wait_for()
    assert [name for name in shown.evaluate(fetched) if "search-index" in name]
    assert sum(size for name, size in shown.evaluate(SIZES) if name not in before) < FIRST_SEARCH


# ------------------------------------------------------------------------- an address without page


def lost(reader, path, **options):
    """The page shown for an address that no page has; that it is missing is no fault of it."""
    page = reader.open(path, **options)
    reader.wrong.remove(f"404 {reader.address}{path}")
    return page


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("correctness/causal_mask/", "correctness/causal-mask.html"),
        ("chapters/positional-encoding.html", "correctness/order.html"),
        ("multihead-attenton", "correctness/multi-head.html"),
        ("model/gpt/index.html", "model/gpt.html"),
    ],
)
def test_a_missing_address_leads_to_what_it_names(reader, address, path, wanted):
    page = lost(reader, path)
    links = page.locator(".book-lost li a")
    links.first.wait_for()
    found = links.evaluate_all("(all) => all.map((link) => link.href)")
    assert address + wanted in found[:3]
    page.locator("#book-lost").fill("dropout")
    page.locator(f".book-lost a[href='{address}correctness/dropout.html']").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(address + "correctness/dropout.html")


def test_a_missing_address_that_says_nothing_offers_the_box(reader):
    page = lost(reader, "zzzz-qqqq%")
    page.locator(".book-lost [role=status] button").click()
    page.locator(".book-lost li a").first.wait_for()


def test_the_page_for_a_missing_address_needs_no_script(reader, address):
    page = lost(reader, "gone/away.html", java_script_enabled=False)
    assert page.locator("h1").inner_text() == "No page has this address"
    assert not page.locator(".book-lost").is_visible()
    page.locator(".md-content article p a").click()
    assert page.url == address + "index.html"
