"""What a reader finds: in the box of every page, and where an address leads nowhere."""

import re

import pytest

from tests.site import book
from tests.site.axe import axe
from tests.site.browsers import NARROW

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


def open_search(page, words):
    """Open search as each width offers it, and type."""
    if page.evaluate("innerWidth") < 960:
        page.locator("label.md-header__button[for=__search]").click()
    else:
        page.locator(".md-search__input").click()
    page.locator(".md-search__input").fill(words[:-1])
    page.locator(".md-search__input").press(words[-1])  # search answers to keys
    page.locator(".md-search-result__item").first.wait_for()


def queries():
    """Each query of the table, with the pages that answer it best."""
    lines = QUERIES.read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line and not line.startswith("#")]
    return [(query.strip(), {f"{page}.html" for page in pages.split()}) for query, pages in rows]


@pytest.fixture
def box(visit):
    """`box(query)` gives the pages that the search box of a chapter finds, the best first; `box.page` is that page."""

    def found(query):
        return found.page.evaluate(FOUND, query)

    found.page = visit("foundations/context.html")
    found.page.locator(".md-search__input").focus()
    found.page.locator(".md-search__output").wait_for()
    return found


def test_the_best_page_is_among_the_first_three(box):
    wanted = queries()
    assert {page for _, pages in wanted for page in pages} <= set(book.PAGES)
    missed = {
        query: found[:3] for query, pages in wanted if not pages & set((found := box(query))[:3])
    }
    assert len(missed) <= (1 - ENOUGH) * len(wanted), missed


@pytest.mark.parametrize(
    ("typed", "near"), [("backprobagatoin", "backpropagation"), ("sofmatcks", "softmax")]
)
def test_where_nothing_is_found_the_nearest_word_is_a_press_of_enter_away(box, typed, near):
    assert box(typed) == []
    assert box.page.locator(".md-search-result__meta a").inner_text() == near
    box.page.keyboard.press("Enter")
    box.page.locator(".md-search-result__item").first.wait_for()
    assert box.page.locator(".md-search__input").input_value() == near


def test_every_query_has_an_answer_or_a_word_near_it(box):
    for query in ("zzzzzz", "x" * 60, "<b>", "42.", "é", "\\", "constructor __proto__"):
        assert box(query) or box.page.locator(".md-search-result__meta").inner_text(), query
    assert box("?") == []


# What stands between the title of each section and the words that it lacks.
EXCERPT = """(results) => results.map((result) =>
  [...result.childNodes].filter((part) => !part.matches?.("div, h1, h2, .md-search-result__terms"))
    .map((part) => part.textContent).join("").trim())"""


def test_what_is_shown_of_a_section_are_sentences_with_what_is_raised(box):
    shown = box.page.locator(".md-search-result__link article:has(h2)")
    for query in ("softmax nan", "masked_fill", "training loss"):
        box(query)
        told = shown.evaluate_all(EXCERPT)
        assert [text for text in told if not re.search(r"[.?!:]$", text)] == []
    box("QK^T")
    excerpts = box.page.locator(".md-search-result__link article")
    assert "<sup>" in "".join(excerpts.evaluate_all("(all) => all.map((one) => one.innerHTML)"))


MARKED = "[...document.querySelectorAll('.md-content mark')].map((mark) => mark.textContent.toLowerCase())"


def test_a_result_leads_to_its_words_and_marks_them_as_does_a_link_that_names_them(arrive, address):
    shown = arrive("symbols.html")
    open_search(shown, "vareance")
    shown.locator(".md-search-result__item a").first.click()
    shown.locator(".md-content mark:visible").first.wait_for()
    assert "variance" in shown.evaluate(MARKED)
    shown.goto(f"{address}foundations/scaling.html?h=variance+head_dim")
    shown.locator(".md-content mark").first.wait_for()
    assert set(shown.evaluate(MARKED)) == {"variance", "head_dim"}


FIRST_SEARCH = 440_000  # bytes before compression; a host sends a little more than a third of them
SIZES = """performance.getEntriesByType("resource").map((entry) => [entry.name, entry.decodedBodySize])"""


def test_a_page_fetches_nothing_of_the_search_before_it_is_reached_for(visit):
    shown = visit("symbols.html")
    shown.wait_for_load_state("networkidle")
    before = dict(shown.evaluate(SIZES))
    heavy = re.compile(r"search-index|search-engine|minisearch|workers/")
    assert [name for name in before if heavy.search(name)] == []
    open_search(shown, "softmax")
    after = dict(shown.evaluate(SIZES))
    assert [name for name in after if "search-index" in name]
    assert sum(size for name, size in after.items() if name not in before) < FIRST_SEARCH


@pytest.mark.parametrize("window", [{}, {"viewport": NARROW}], ids=["1280", "375"])
def test_axe_finds_nothing_in_the_open_search_and_the_menu_where_it_folds(visit, window):
    shown = visit(book.CHAPTER, **window)
    open_search(shown, "attention")
    assert axe(shown, ".md-header") == []
    shown.keyboard.press("Escape")
    shown.wait_for_function("!document.getElementById('__search').checked")
    if window:
        shown.locator("label.md-header__button[for=__drawer]").click()
        assert axe(shown, ".md-sidebar--primary") == []


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
