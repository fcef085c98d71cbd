"""A reader who comes to a place within a page, or to a figure, is there and stays there; what prints, prints whole."""

import re

import pytest

from tests.site import book, browsers, paper

SIZES = pytest.mark.parametrize("size", [browsers.WIDE, browsers.NARROW], ids=["wide", "phone"])
# A heading below a figure that comes to life.
BELOW_A_FIGURE = {
    "correctness/causal-mask.html": "now-break-it",
    "foundations/dot-product.html": "what-likeness-cannot-find",
    "foundations/query-key-value.html": "now-break-it",
    "foundations/scaling.html": "which-width-is-d",
}
WITH_A_FIGURE = ["index.html", *BELOW_A_FIGURE]
TOP = "(name) => document.getElementById(name).getBoundingClientRect().top"
MOVED = "moved.reduce((sum, [shift]) => sum + shift, 0)"


@SIZES
@book.each(*BELOW_A_FIGURE)
def test_a_page_opened_at_a_place_below_a_figure_is_there_and_stays(visit, address, path, size):
    """With an empty cache, then with a full one."""
    name = BELOW_A_FIGURE[path]
    shown = visit(f"{path}#{name}", viewport=size, wake=False)
    for _ in range(2):
        browsers.show(shown)
        shown.evaluate(browsers.QUIET)
        browsers.show(shown)
        assert -1 <= shown.evaluate(TOP, name) <= 140
        assert shown.evaluate(MOVED) < 0.01
        shown.goto("about:blank")
        shown.goto(f"{address}{path}#{name}")


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


def test_a_page_opened_at_a_place_stays_there_when_what_is_above_grows(visit, address):
    """As in Firefox, which goes there before the fonts have come."""
    shown = visit("cite.html", viewport=browsers.NARROW, wake=False)
    shown.add_init_script(GROW)
    shown.goto(f"{address}positions/rope.html#now-break-it")
    shown.evaluate("grown")
    browsers.show(shown)
    assert -1 <= shown.evaluate(TOP, "now-break-it") <= 140


IN_SIGHT = """(figure) => {
  const { top, bottom } = figure.getBoundingClientRect();
  return Math.max(top, 0) + 200 < Math.min(bottom, innerHeight);
}"""
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


@SIZES
@book.each(*WITH_A_FIGURE)
def test_a_figure_has_one_height_before_its_script_and_in_each_state_and_a_state_an_address(
    visit, address, site, path, size
):
    """Where it has not one height, say under `room` of its fence how much it needs."""
    asleep = []
    shown = visit("cite.html", viewport=size, wake=False)
    shown.route("**/attention.js", lambda script: asleep.append(script))
    shown.goto(address + path)
    figure = shown.locator("figure.attention")
    figure.scroll_into_view_if_needed()
    browsers.show(shown)
    before = figure.evaluate(ASLEEP)
    shown.wait_for_function("document.querySelector('script[src$=\"attention.js\"]')")
    shown.evaluate(browsers.QUIET)
    asleep[0].continue_()
    figure.locator(".controls").wait_for(state="attached")
    browsers.show(shown)
    assert figure.evaluate(HEIGHTS) == [before]
    if size == browsers.NARROW:
        assert before <= 641  # it is seen nearly whole
    if path in BELOW_A_FIGURE:
        shown = visit(f"{path}#{figure.get_attribute('id')}?query=2", viewport=size, wake=False)
        figure = shown.locator("figure.attention")
        figure.locator(".controls").wait_for()
        browsers.show(shown)
        assert figure.evaluate(IN_SIGHT)
        assert figure.locator("tbody tr").nth(2).get_attribute("class") == "on"


# ---------------------------------------------------------------------------- a lab's first screen

# Where the finding ends, where the figure does with its caption, and where its drawing begins.
PLACES = """() => {
  const box = (selector) => document.querySelector(selector).getBoundingClientRect();
  return [box('#finding').bottom, box('.lab-figure').bottom, box('.lab-figure').top];
}"""


@SIZES
@book.each(*(path for path in book.PAGES if book.SOURCES[path] in book.LABS))
def test_the_first_screen_of_a_lab_holds_the_answer_and_lies_still_when_fonts_come_late(
    visit, address, path, size
):
    shown, late = visit("assets/favicon.svg", viewport=size), []
    shown.route("**/*.woff2", lambda font: late.append(font))
    shown.goto(address + path, wait_until="domcontentloaded")
    painted = "performance.getEntriesByType('paint').length > 1"
    shown.wait_for_function(f"document.querySelector('.book-copy') && {painted}")
    assert late
    for font in late:
        font.continue_()
    shown.unroute("**/*.woff2")
    browsers.show(shown)
    assert shown.evaluate("moved") == []
    browsers.open_in_its_fonts(shown, address + path)
    finding, figure, drawn = shown.evaluate(PLACES)
    assert finding < size["height"]
    if size == browsers.WIDE:
        assert figure <= size["height"]
    else:
        assert drawn < size["height"] - 200


# ------------------------------------------------------------------------------------- on paper


def test_the_light_scheme_and_letter_paper_print_the_same(visit):
    shown = visit("correctness/causal-mask.html")
    _, dark = paper.printed(shown, format="Letter")
    _, light = paper.printed(shown, "light", format="Letter")
    assert light == dark


def text_of(sheets):
    return "".join(line for lines, _ in sheets for line in lines[:-1])


def test_solutions_and_hints_are_printed_at_the_end_by_the_number_of_their_exercise(arrive):
    shown = arrive("examples/two-banks.html")
    folded = shown.locator("article details.success").count()
    numbers = range(1, folded + 1)
    answers = shown.locator("article details.success pre").all_text_contents()
    body, title, end = text_of(paper.printed(shown)[1]).rpartition("SolutionsSolutiontoexercise1")
    assert folded > 1
    assert title
    for kind, there in (("Hint", body), ("Solution", title + end)):
        assert re.findall(rf"{kind}toexercise(\d+)(?!:|\d)", there) == [str(n) for n in numbers]
        for number in numbers:
            assert f"{kind}toexercise{number}:attheendofthischapter" in body
    assert all(paper.bare(line) in end for answer in answers for line in answer.split("\n"))
    assert shown.locator(".book-solutions").count() == 0  # printing is over


def test_with_scripts_off_what_is_folded_is_printed_where_it_stands(visit):
    shown = visit("examples/two-banks.html", java_script_enabled=False)
    every = [line for lines, _ in paper.sheets(shown.pdf()) for line in lines]
    assert "check_1(answer_1)" in every


def test_an_explorable_prints_what_is_chosen_and_nothing_to_press(visit):
    shown = visit("correctness/causal-mask.html")
    shown.evaluate("""() => {
      const [bank, mask] = ["bank", "causal mask"].map((name) => [...document.querySelectorAll(".attention label")].find((label) => label.textContent === name));
      bank.click();
      mask.click();
    }""")
    figure = shown.locator(".attention").first
    browsers.show(shown, media="print")
    said = figure.inner_text()
    assert re.search(r"Query\s+bank\s", said)
    assert [one for one in ("causal mask", "Scaled", "Edit", "Hide") if one in said] == []
    for kept in (".output .heatmap", ".attention .heatmap"):
        cell = shown.locator(f"{kept} td").nth(5)
        assert cell.is_visible()
        assert cell.evaluate("cell => getComputedStyle(cell).printColorAdjust") == "exact"
    assert not shown.locator(".output:has(.heats) details").first.is_visible()
    row = figure.locator("tr.on").inner_text().split()
    _, sheets = paper.printed(shown)
    assert any("".join(row) in line for lines, _ in sheets for line in lines)


def test_the_code_of_a_lab_is_not_printed_but_said_to_be_in_its_notebook(visit):
    shown = visit("labs/nine-ways.html")
    folded = shown.locator("article > .folded")
    said = [paper.bare(text) for text in folded.locator("summary").all_text_contents()]
    code = max(folded.first.locator("pre").text_content().split("\n"), key=len)
    text = text_of(paper.printed(shown)[1])
    assert len(said) > 5
    assert [line for line in said if f"{line}:inthenotebookofthislab" not in text] == []
    assert paper.bare(code) not in text
