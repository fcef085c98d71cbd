"""What the pages are to those who hear them, enlarge them, or choose the colours themselves."""

import io
import re

import pytest
from PIL import Image

from tests.site import book

# A row of a heatmap in which no cell is hidden, so that each has the length of its bar.
WHOLE_ROW = ".heatmap tbody tr:not(:has(td:not([style])))"


def formulas(site):
    """Every formula of the book, and what is said for it: `(path, LaTeX, words)`."""
    for path in book.PAGES:
        for formula in book.parsed(site / path).iter("math"):
            yield path, formula.findtext(".//annotation"), formula.get("aria-label", "")


def test_every_formula_is_said_in_words(site):
    every = list(formulas(site))
    assert len(every) > 300
    wrong = [one for one in every if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 .,;]*", one[2])]
    assert wrong == []


def test_a_screen_reader_is_told_the_words_and_may_explore_the_formula(look, site):
    path = "symbols.html"
    page = look(path, unfolded=True)
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    maths = [node for node in nodes if node["role"]["value"] == "MathMLMath"]
    told = [node["name"]["value"] for node in maths]
    assert sorted(told) == sorted(words for at, _, words in formulas(site) if at == path)
    assert all(node["childIds"] for node in maths)


def painted(page, locator):
    """What is painted where an element stands."""
    return Image.open(io.BytesIO(locator.screenshot())).convert("RGB")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_forced_colours_a_scale_and_its_cells_are_told_by_length(look, scheme):
    page = look("correctness/causal-mask.html", forced_colors="active")
    book.show(page, color_scheme=scheme)
    for bar in page.locator(".output .key .bar").all():
        inside = painted(page, bar).crop((2, 2, 30, 10))
        assert len(inside.getcolors()) > 1, "a blank scale"
    for cell in page.locator(f".output {WHOLE_ROW}").first.locator("td").all():
        share = float(cell.get_attribute("style").partition(":")[2])
        picture = painted(page, cell)
        line = [picture.getpixel((x, picture.height - 2)) for x in range(picture.width)]
        ink = picture.getpixel((2, 2))  # the paper
        assert abs(sum(one != ink for one in line) / len(line) - share) < 0.1


def test_in_forced_colours_what_has_the_focus_has_a_ring(look):
    page = look("correctness/causal-mask.html", forced_colors="active")
    rings = page.evaluate(
        """() => [".heatmap td[tabindex='0']", ".attention button", ".attention input:checked", "summary", "article a[href]"].map((selector) => {
          const found = document.querySelector(selector);
          found.focus({ focusVisible: true });
          const ring = getComputedStyle(found.matches("input") ? found.nextSibling : found);
          return `${ring.outlineStyle} ${parseFloat(ring.outlineWidth) >= 2}`;
        })"""
    )
    assert rings == ["solid true"] * 5


MOVING = """() => [document.documentElement, ...document.querySelectorAll("body *")].filter((node) =>
  [undefined, "::before", "::after"].some((part) => {
    const { animationDuration, transitionDuration, scrollBehavior } = getComputedStyle(node, part);
    return scrollBehavior === "smooth" || `${animationDuration}, ${transitionDuration}`.split(", ").some((time) => parseFloat(time) > 0.001);
  })).map((node) => node.outerHTML.slice(0, 80))"""


def test_who_wants_no_motion_gets_none(visit):
    page = visit("index.html", reduced_motion="no-preference")
    assert page.evaluate(MOVING), "nothing would move anyway"
    book.show(page, reduced_motion="reduce")
    assert page.evaluate(MOVING) == []


# At 320 pixels a window of 1280 is enlarged four times. The header repeats the heading, and may cut it.
# A field scrolls what is written in it, whatever its style says.
LOST = """() => [...document.querySelectorAll("body *:not(input)")].filter((node) => {
  const style = getComputedStyle(node), cut = /hidden|clip/;
  if (!node.checkVisibility() || node.clientWidth < 2 || node.closest("svg, math, .md-sidebar, .md-search, .status, .book-unseen, .md-skip, .md-header__topic + *")) return false;
  return (cut.test(style.overflowX) && node.scrollWidth > node.clientWidth + 1) || (cut.test(style.overflowY) && node.scrollHeight > node.clientHeight + 1);
}).map((node) => node.outerHTML.slice(0, 120))"""
SPACED = "* { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important } p { margin-bottom: 2em !important }"
RICH = [
    "index.html",
    "correctness/backward.html",
    "correctness/causal-mask.html",
    "foundations/scaling.html",
    "labs/nine-ways.html",
    "glossary.html",
]


@pytest.mark.parametrize("path", RICH)
def test_nothing_is_lost_four_times_enlarged_nor_with_the_text_spaced_out(look, path):
    page = look(path, {"width": 320, "height": 256}, unfolded=True)
    for spacing in ("/* none */", SPACED):
        style = page.add_style_tag(content=spacing)
        book.show(page)
        assert page.evaluate("document.scrollingElement.scrollWidth") == 320
        lost = page.evaluate(LOST)
        style.evaluate("(element) => element.remove()")
        assert lost == [], spacing
