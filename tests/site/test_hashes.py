"""Addresses within a page: each leads to its place, on a desktop and on a phone."""

import functools
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from tests.site import book

SIZES = pytest.mark.parametrize(
    "size",
    [pytest.param(book.WIDE, id="wide"), pytest.param(book.NARROW, id="phone", marks=book.narrow)],
)
# What has an address of its own, beside what the book links to.
NAMED = "article :is(h1, h2, h3, h4, figure, p, div)[id]"

# Goes to each of these places, and returns those where it did not arrive: what is seen first is the
# place, under the room that it keeps above it, or the end of the page is in sight.
MISSED = """async (names) => {
  const missed = [];
  // A page that stands there already would go nowhere.
  history.replaceState(history.state, "", location.pathname);
  for (const name of names) {
    const place = document.getElementById(name);
    location.hash = "#" + encodeURIComponent(name);
    const top = place.getBoundingClientRect().top - parseFloat(getComputedStyle(place).scrollMarginTop);
    const atEnd = scrollY + innerHeight >= document.documentElement.scrollHeight - 2 && top > 0;
    const atTop = scrollY === 0 && top < 0;
    if (!place.checkVisibility() || !(Math.abs(top) <= 2 || atEnd || atTop)) missed.push([name, Math.round(top)]);
  }
  history.replaceState(history.state, "", location.pathname);
  return missed;
}"""


def places(site, path):
    """The names of all places of a page that have an address, or are linked to."""
    named = [one.get("id") for one in book.parsed(site / path).cssselect(NAMED)]
    return [*dict.fromkeys(named), *sorted(linked(site).get(path, set()) - {*named, ""})]


@functools.cache
def linked(site):
    """The names of places that pages of the site link to, by page."""
    found = {}
    for path in book.PAGES:
        for link in book.parsed(site / path).cssselect(".md-content a[href*='#']"):
            address, name = urldefrag(urljoin(path, link.get("href")))
            found.setdefault(address, set()).add(unquote(name))
    return found


@book.each_page
@SIZES
def test_every_address_of_a_page_leads_to_its_place(look, site, path, size):
    assert look(path, size).evaluate(MISSED, places(site, path)) == []


def test_a_link_within_a_page_leaves_the_page_as_the_reader_has_made_it(visit):
    shown = visit(book.CHAPTER, wake=False)
    shown.evaluate("document.querySelector('article').made = true")
    shown.locator(".md-sidebar--secondary a[href*='#']").nth(2).click()
    shown.wait_for_function("location.hash")
    shown.evaluate(book.QUIET)
    shown.go_back()
    shown.evaluate(book.QUIET)
    assert shown.evaluate("[location.hash, document.querySelector('article').made]") == ["", True]


# A heading below a figure that comes to life.
BELOW_A_FIGURE = (
    "correctness/causal-mask.html#now-break-it",
    "foundations/dot-product.html#what-likeness-cannot-find",
    "foundations/query-key-value.html#now-break-it",
    "foundations/scaling.html#which-width-is-d",
)
TOP = "(name) => document.getElementById(name).getBoundingClientRect().top"
IN_SIGHT = """(name) => {
  const { top, bottom } = document.getElementById(name).getBoundingClientRect();
  return Math.max(top, 0) + 200 < Math.min(bottom, innerHeight);
}"""
MOVED = "moved.reduce((sum, [shift]) => sum + shift, 0)"


def arrived(shown, name):
    """Whether a page, loaded and alive, shows a place near its top, and nothing has moved."""
    shown.evaluate(book.DRAWN)
    shown.evaluate(book.QUIET)
    shown.evaluate(book.DRAWN)
    assert -1 <= shown.evaluate(TOP, name) <= 140
    assert shown.evaluate(MOVED) < 0.01


@SIZES
@pytest.mark.parametrize("place", BELOW_A_FIGURE)
def test_a_page_opened_at_a_place_below_a_figure_is_there_and_stays(visit, address, place, size):
    """With an empty cache, then with a full one."""
    name = place.partition("#")[2]
    shown = visit(place, viewport=size, wake=False)
    arrived(shown, name)
    shown.goto("about:blank")
    shown.goto(address + place)
    arrived(shown, name)


# Once the page has come it grows at its top, and is told of fonts, as where they come late. Nothing else holds what is
# in sight; and however slow the machine, it is not too late for the page to go to its place again.
GROW = """const later = setTimeout;
window.setTimeout = (what, wait, ...more) => later(what, wait === 3000 ? 1e8 : wait, ...more);
window.grown = new Promise((done) => addEventListener('load', () => later(() => {
  document.documentElement.style.overflowAnchor = 'none';
  document.querySelector('article').insertAdjacentHTML('afterbegin', '<div style="height: 500px"></div>');
  document.fonts.dispatchEvent(new Event('loadingdone'));
  done();
}, 300)))"""


def test_a_page_opened_at_a_place_stays_there_when_what_is_above_grows(visit):
    """As in Firefox, which goes there before the fonts have come."""
    shown = visit("cite.html", viewport=book.NARROW, wake=False)
    shown.add_init_script(GROW)
    shown.goto(shown.url.replace("cite.html", "production/rope.html#now-break-it"))
    shown.evaluate("grown")
    shown.evaluate(book.DRAWN)
    assert -1 <= shown.evaluate(TOP, "now-break-it") <= 140


@SIZES
@pytest.mark.parametrize("place", BELOW_A_FIGURE)
def test_a_page_opened_at_a_state_of_a_figure_shows_it(visit, site, place, size):
    path = place.partition("#")[0]
    [name] = [one.get("id") for one in book.parsed(site / path).cssselect("figure.attention")]
    shown = visit(f"{path}#{name}?query=2", viewport=size, wake=False)
    shown.locator(f"#{name} .controls").wait_for()
    shown.evaluate(book.DRAWN)
    assert shown.evaluate(IN_SIGHT, name)
    assert shown.locator(f"#{name} tbody tr").nth(2).get_attribute("class") == "on"


# Steps, queries and choices of a figure, each once, and the heights that it has on the way.
HEIGHTS = """(figure) => {
  const heights = new Set(), alive = figure.querySelector("attention-explorable");
  const note = () => heights.add(Math.round(alive.getBoundingClientRect().height));
  note();
  const steps = figure.querySelectorAll(".stepper li button").length;
  for (let step = 0; step < Math.max(1, steps); step++) {
    figure.querySelectorAll(".stepper li button")[step]?.click();
    for (let i = 0; i < figure.querySelectorAll(".segments input").length; i++) {
      figure.querySelectorAll(".segments input")[i].click();
      note();
    }
  }
  return [...heights];
}"""
ASLEEP = "(figure) => Math.round(figure.querySelector('attention-explorable').getBoundingClientRect().height)"
WITH_A_FIGURE = ["index.html", *(place.partition("#")[0] for place in BELOW_A_FIGURE)]


@SIZES
@pytest.mark.parametrize("path", WITH_A_FIGURE)
def test_a_figure_has_one_height_before_its_script_and_in_each_state(visit, path, size):
    """Where it has not, say under `room` of its fence how much it needs."""
    asleep = []

    def hold(script):
        asleep.append(script)

    shown = visit("cite.html", viewport=size, wake=False)
    shown.route("**/attention.js", hold)
    shown.goto(shown.url.replace("cite.html", path))
    figure = shown.locator("figure.attention")
    figure.scroll_into_view_if_needed()
    shown.evaluate(book.DRAWN)
    before = figure.evaluate(ASLEEP)
    shown.wait_for_function("document.querySelector('script[src$=\"attention.js\"]')")
    shown.evaluate(book.QUIET)
    asleep[0].continue_()
    figure.locator(".controls").wait_for(state="attached")
    shown.evaluate(book.DRAWN)
    assert figure.evaluate(HEIGHTS) == [before]
