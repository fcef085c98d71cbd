"""What the pages are to those who hear them, enlarge them, choose the colours themselves, or have no mouse."""

import pytest

from tests.site import book, browsers
from tests.site.browsers import NARROW

MODEL = "foundations/averaging.html"
MASKED = "correctness/causal-mask.html"  # has masked cells, a scale and an explorable
FOCUS = "document.activeElement"

# ---------------------------------------------------------------------------------- formulas


def test_a_screen_reader_is_told_the_words_of_each_formula_and_may_explore_it(visit, site):
    path = "symbols.html"
    shown = visit(path)
    browsers.unfold(shown)
    nodes = shown.context.new_cdp_session(shown).send("Accessibility.getFullAXTree")["nodes"]
    maths = [node for node in nodes if node["role"]["value"] == "MathMLMath"]
    told = sorted(node["name"]["value"] for node in maths)
    assert told == sorted(one.get("aria-label") for one in book.parsed(site / path).iter("math"))
    assert all(node["childIds"] for node in maths)


def test_a_formula_is_seen_with_scripts_off(visit, page_with):
    shown = visit(page_with("<math"), java_script_enabled=False)
    formulas = shown.locator(".md-content article math:not(details:not([open]) math)")
    boxes = [formula.bounding_box() for formula in formulas.all()]
    assert all(box and box["width"] > 3 and box["height"] > 5 for box in boxes)
    assert shown.locator(".md-content article math annotation:visible").count() == 0


# Puts each character that a formula of the book has into one formula of this page. A letter alone is set in
# italics, one of a word is not.
SPELL = """(every) => {
  const row = document.querySelector('.md-content article math mrow');
  for (const [tag, text] of every) {
    const one = document.createElementNS(row.namespaceURI, tag);
    one.textContent = text;
    one.dataset.asked = '';
    row.append(one);
  }
}"""


def test_every_character_of_a_formula_is_in_a_font_of_ours(visit, site, page_with):
    """One that the subset lacks would come from whatever the reader's system has."""
    letters = {
        (one.tag, text if len(text) == 1 else 2 * letter)
        for path in book.PAGES
        for one in book.parsed(site / path).cssselect("mi, mo, mn")
        for text in [one.text_content().strip()]
        for letter in text
    }
    assert len(letters) > 50
    shown = visit(page_with("<math"))
    browsers.unfold(shown)
    shown.evaluate(SPELL, sorted(letters))
    browsers.show(shown)
    session = shown.context.new_cdp_session(shown)
    for domain in ("DOM", "CSS"):
        session.send(f"{domain}.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    asked = {"nodeId": root, "selector": "[data-asked]"}
    fonts = {}
    for node in session.send("DOM.querySelectorAll", asked)["nodeIds"]:
        html = session.send("DOM.getOuterHTML", {"nodeId": node})["outerHTML"]
        fonts[html] = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    assert len(fonts) == len(letters)
    strangers = [html for html, used in fonts.items() if not all(f["isCustomFont"] for f in used)]
    assert strangers == []


# ------------------------------------------------------------------------- colours and sizes


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_forced_colours_a_scale_and_its_cells_are_told_by_length(visit, scheme):
    shown = visit(MASKED, forced_colors="active")
    shown.evaluate(browsers.UNVEIL)
    browsers.show(shown, color_scheme=scheme)
    for bar in shown.locator(".output .key .bar").all():
        assert len(browsers.picture(bar).crop((2, 2, 30, 10)).getcolors()) > 1, "a blank scale"
    # A row in which no cell is hidden, so that each has the length of its bar.
    row = shown.locator(".output .heatmap tbody tr:not(:has(td:not([style])))").first
    for cell in row.locator("td").all():
        share = float(cell.get_attribute("style").partition(":")[2])
        picture = browsers.picture(cell)
        line = [picture.getpixel((x, picture.height - 2)) for x in range(picture.width)]
        paper = picture.getpixel((2, 2))
        assert abs(sum(one != paper for one in line) / len(line) - share) < 0.1


def test_in_forced_colours_what_is_masked_and_what_has_the_focus_keep_a_mark(visit):
    shown = visit(MASKED, forced_colors="active")
    shown.evaluate(browsers.UNVEIL)
    masked = shown.locator(".output td.z").first
    assert masked.evaluate("cell => getComputedStyle(cell).borderTopStyle") == "dashed"
    rings = shown.evaluate(
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
    shown = visit("index.html", reduced_motion="no-preference")
    assert shown.evaluate(MOVING), "nothing would move anyway"
    browsers.show(shown, reduced_motion="reduce")
    assert shown.evaluate(MOVING) == []


# At 320 pixels a window of 1280 is enlarged four times. The header repeats the heading, and may cut it.
# A field scrolls what is written in it, whatever its style says.
LOST = """() => [...document.querySelectorAll("body *:not(input)")].filter((node) => {
  const style = getComputedStyle(node), cut = /hidden|clip/;
  if (!node.checkVisibility() || node.clientWidth < 2 || node.closest("svg, math, .md-sidebar, .md-search, .book-unseen, .md-skip, .md-header__topic + *")) return false;
  return (cut.test(style.overflowX) && node.scrollWidth > node.clientWidth + 1) || (cut.test(style.overflowY) && node.scrollHeight > node.clientHeight + 1);
}).map((node) => node.outerHTML.slice(0, 120))"""
SPACED = "* { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important } p { margin-bottom: 2em !important }"
RICH = (MASKED, "correctness/backward.html", "foundations/scaling.html", "labs/nine-ways.html")


@book.each("index.html", book.CHAPTER, "labs/heads.html", "glossary.html", *RICH)
def test_nothing_is_lost_four_times_enlarged_nor_with_the_text_spaced_out(visit, path):
    shown = visit(path, viewport={"width": 320, "height": 256})
    shown.evaluate(browsers.UNVEIL)
    browsers.unfold(shown)
    for spacing in ("/* none */", SPACED):
        shown.add_style_tag(content=spacing)
        browsers.show(shown)
        assert shown.evaluate("document.scrollingElement.scrollWidth") == 320
        assert shown.evaluate(LOST) == [], spacing


# ------------------------------------------------------------------------------- by keyboard


def stops(shown, until, most=120):
    """Press Tab until the focus is where `until` says; say what it stopped at, in words."""
    found = []
    while len(found) < most:
        shown.keyboard.press("Tab")
        found.append(
            shown.evaluate(
                f"(({FOCUS}.getAttribute('aria-label') || {FOCUS}.textContent || {FOCUS}.id).trim())"
            )
        )
        if shown.evaluate(until):
            return found
    raise AssertionError(f"no end after {most} stops: {found}")


def test_the_first_exercise_is_fewer_than_fifty_tabs_from_the_top(visit):
    shown = visit(MODEL)
    assert stops(shown, "true") == ["Skip to content"]
    shown.keyboard.press("Enter")
    shown.wait_for_function(f"{FOCUS}.tagName === 'H1'")
    past = f"document.querySelector('#exercise-1').compareDocumentPosition({FOCUS}) & 4"
    assert 1 + len(stops(shown, past)) < 50


def test_the_buttons_of_a_block_are_one_stop_and_arrow_keys_go_between_them(arrive):
    shown = arrive(MODEL)
    bar = shown.locator(".book-copy").first
    first, second, *_, last = [*bar.locator("button").all()] * 2
    first.focus()
    for key, reached in (("ArrowRight", second), ("ArrowLeft", first), ("ArrowLeft", last)):
        shown.keyboard.press(key)
        assert reached.evaluate(f"button => button === {FOCUS}")
        assert bar.locator("[tabindex='0'], button:not([tabindex])").count() == 1
    shown.keyboard.press("Tab")
    assert not bar.evaluate(f"bar => bar.contains({FOCUS})")


SEEN = f"""(() => {{
  const one = {FOCUS}, box = one.getBoundingClientRect();
  const inside = one.closest('.md-sidebar--primary') !== null;
  return [inside, !inside || one.contains(document.elementFromPoint(box.x + 9, box.y + 5)), one.textContent]
}})()"""


def test_where_the_menu_folds_a_key_opens_it_each_stop_is_in_sight_and_escape_shuts_it(arrive):
    shown = arrive(MODEL, viewport=NARROW)
    button = shown.get_by_role("button", name="Menu")
    assert shown.locator(".md-sidebar--primary a:visible").count() == 0
    button.focus()
    shown.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    found, inside = [], True
    while inside:
        browsers.show(shown)  # what slides is there
        inside, seen, words = shown.evaluate(SEEN)
        assert seen, words
        found.append(words)
        shown.keyboard.press("Tab" if inside else "Shift+Tab")
    assert len(found) > 30
    shown.keyboard.press("Escape")
    shown.wait_for_function(
        "!document.querySelector('.md-sidebar--primary a').checkVisibility({visibilityProperty: true})"
    )
    assert shown.evaluate(f"{FOCUS}.getAttribute('aria-label')") == "Menu"


def test_nothing_out_of_sight_is_a_stop_before_the_text(visit):
    shown = visit(MODEL, viewport=NARROW)
    header = stops(shown, f"{FOCUS}.closest('article') !== null")[:-1]
    assert header[:2] == ["Skip to content", "Menu"]
    assert len(header) == 4  # the colours, the search
    wide = stops(visit(MODEL), f"{FOCUS}.closest('article') !== null")
    assert not {"Search results", "Menu"} & {*wide}


def test_after_a_click_the_focus_is_at_the_new_heading_and_after_back_where_it_was(visit, address):
    shown = visit(MODEL)
    assert shown.evaluate(f"{FOCUS} === document.body")
    shown.evaluate("window.same = true")
    shown.evaluate(browsers.CLICK, address + "foundations/context.html")
    assert shown.evaluate(f"{FOCUS} === document.querySelector('article h1')")
    assert shown.evaluate("scrollY") == 0
    section = "document.querySelector('#exercises')"
    shown.evaluate(f"{section}.scrollIntoView({{ behavior: 'instant' }})")
    browsers.show(shown)
    shown.wait_for_function("history.state?.y > 1000")  # the theme has noted it
    here = shown.evaluate("scrollY")
    shown.evaluate(browsers.CLICK, address + MODEL)
    assert shown.evaluate(f"{FOCUS} === document.querySelector('article h1')")
    shown.go_back()
    shown.wait_for_function(f"() => {FOCUS} === {section}")
    shown.wait_for_function("(here) => Math.abs(scrollY - here) < 2", arg=here)
    assert shown.evaluate("window.same")
    shown.keyboard.press("Tab")  # and goes on from there
    assert shown.evaluate(f"{section}.compareDocumentPosition({FOCUS}) & 4")


def test_a_click_on_an_address_within_a_page_leads_the_focus_there(visit, address):
    shown = visit("index.html")
    link = shown.locator(".md-nav--primary .md-nav__link[href$='averaging.html']").first
    link.evaluate("link => (link.href += '#exercise-2')")
    shown.evaluate(browsers.CLICK, f"{address}{MODEL}#exercise-2")
    assert shown.evaluate(f"{FOCUS}.id") == "exercise-2"
