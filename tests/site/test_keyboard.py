"""A reader without a mouse: where the Tab key stops, and where a click on a link leads the focus."""

from tests.site import book

MODEL = "foundations/averaging.html"
FOCUS = "document.activeElement"


def stops(page, until, most=120):
    """Press Tab until the focus is where `until` says; say what it stopped at, in words."""
    found = []
    while len(found) < most:
        page.keyboard.press("Tab")
        found.append(
            page.evaluate(
                f"""() => {{ const one = {FOCUS};
                  return (one.getAttribute('aria-label') || one.textContent || one.id).trim() }}"""
            )
        )
        if page.evaluate(until):
            return found
    raise AssertionError(f"no end after {most} stops: {found}")


PAST = f"document.querySelector('#exercise-1').compareDocumentPosition({FOCUS}) & 4"


def test_the_first_exercise_is_fewer_than_fifty_tabs_from_the_top(visit):
    page = visit(MODEL)
    assert stops(page, "true") == ["Skip to content"]
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.tagName === 'H1'")
    assert 1 + len(stops(page, PAST)) < 50


def test_the_buttons_of_a_block_are_one_stop_and_arrow_keys_go_between_them(arrive):
    page = arrive(MODEL)
    bar = page.locator(".book-copy").first
    first, second, *_, last = [*bar.locator("button").all()] * 2
    first.focus()
    for key, reached in (("ArrowRight", second), ("ArrowLeft", first), ("ArrowLeft", last)):
        page.keyboard.press(key)
        assert reached.evaluate(f"button => button === {FOCUS}")
        assert bar.locator("[tabindex='0'], button:not([tabindex])").count() == 1
    page.keyboard.press("Tab")
    assert not bar.evaluate(f"bar => bar.contains({FOCUS})")


def test_where_the_menu_folds_a_key_opens_it_and_escape_shuts_it(arrive):
    page = arrive(MODEL, viewport=book.NARROW)
    assert page.locator(".md-sidebar--primary a:visible").count() == 0
    page.locator("body").evaluate("() => document.activeElement.blur()")
    page.get_by_role("button", name="Menu").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(f"{FOCUS}.closest('.md-sidebar--primary') !== null")
    assert page.get_by_role("button", name="Menu").get_attribute("aria-expanded") == "true"
    page.keyboard.press("Escape")
    page.wait_for_function(
        "!document.querySelector('.md-sidebar--primary a').checkVisibility({visibilityProperty: true})"
    )
    assert page.evaluate(f"{FOCUS}.getAttribute('aria-label')") == "Menu"


SEEN = f"""(() => {{
  const one = {FOCUS}, box = one.getBoundingClientRect();
  const inside = one.closest('.md-sidebar--primary') !== null;
  return [inside, !inside || one.contains(document.elementFromPoint(box.x + 9, box.y + 5)), one.textContent]
}})()"""


def test_every_stop_of_the_open_menu_is_in_sight(visit):
    page = visit(MODEL, viewport=book.NARROW)
    page.get_by_role("button", name="Menu").focus()
    page.keyboard.press("Enter")
    inside, stops = True, []
    while inside:
        book.show(page)  # what slides is there
        inside, seen, words = page.evaluate(SEEN)
        assert seen, words
        stops.append(words)
        page.keyboard.press("Tab")
    assert len(stops) > 30


def test_nothing_out_of_sight_is_a_stop_before_the_text(visit):
    page = visit(MODEL, viewport=book.NARROW)
    header = stops(page, f"{FOCUS}.closest('article') !== null")[:-1]
    assert header[:2] == ["Skip to content", "Menu"]
    assert len(header) == 4  # the colours, the search
    wide = stops(visit(MODEL), f"{FOCUS}.closest('article') !== null")
    assert "Search results" not in wide
    assert "Menu" not in wide


# ------------------------------------------------------------------------- after a click, and back


def test_after_a_click_the_focus_is_at_the_new_heading_and_after_back_where_it_was(visit, address):
    page = visit(MODEL)
    assert page.evaluate(f"{FOCUS} === document.body")
    page.evaluate("window.same = true")
    page.evaluate(book.CLICK, address + "foundations/context.html")
    assert page.evaluate(f"{FOCUS} === document.querySelector('article h1')")
    assert page.evaluate("scrollY") == 0
    section = "document.querySelector('#exercises')"
    page.evaluate(f"{section}.scrollIntoView({{ behavior: 'instant' }})")
    book.show(page)
    page.wait_for_function("history.state?.y > 1000")  # the theme has noted it
    here = page.evaluate("scrollY")
    page.evaluate(book.CLICK, address + MODEL)
    assert page.evaluate(f"{FOCUS} === document.querySelector('article h1')")
    page.go_back()
    page.wait_for_function(f"() => {FOCUS} === {section}")
    page.wait_for_function("(here) => Math.abs(scrollY - here) < 2", arg=here)
    assert page.evaluate("window.same")
    page.keyboard.press("Tab")  # and goes on from there
    assert page.evaluate(f"{section}.compareDocumentPosition({FOCUS}) & 4")


def test_a_click_on_an_address_within_a_page_leads_the_focus_there(visit, address):
    page = visit("index.html")
    link = page.locator(".md-nav--primary .md-nav__link[href$='averaging.html']").first
    link.evaluate("link => (link.href += '#exercise-2')")
    page.evaluate(book.CLICK, f"{address}{MODEL}#exercise-2")
    assert page.evaluate(f"{FOCUS}.id") == "exercise-2"
    page.keyboard.press("Tab")
    assert page.evaluate(
        f"document.querySelector('#exercise-2').compareDocumentPosition({FOCUS}) & 4"
    )
