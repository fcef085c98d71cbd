"""The book in the two engines that are not Chromium's: what a chapter does, and at night every page."""

import shutil
from unittest.mock import ANY

import pytest

from tests.site import book, browsers
from tests.site.test_pages import MISSED, places

WATCH = """<script>if (!window.wrong) {
  window.wrong = [];
  addEventListener("error", (e) => wrong.push(e.message || e.target.src || e.target.href), true);
  addEventListener("unhandledrejection", (e) => wrong.push(String(e.reason)));
}</script>"""

# WebKitGTK's window is never narrower than 447 pixels: its pages are seen in a frame of a phone's size.
PHONE = '<iframe style="border: 0; width: {width}px; height: {height}px"></iframe>'.format(
    **browsers.NARROW
)
LOAD = """(address) => new Promise((loaded) => {
  const frame = document.querySelector("iframe");
  frame.onload = () => loaded(frame.contentWindow.innerWidth);
  frame.src = address;
})"""
WITHIN = (
    "(code, ...given) => document.querySelector('iframe').contentWindow.eval(`(${code})`)(...given)"
)

# Waits until the first result of the search is in sight, under nothing else, and returns its words.
FIRST_RESULT = """async () => {
  for (const end = performance.now() + 25_000; performance.now() < end; ) {
    const first = document.querySelector('.md-search-result__item');
    const box = first?.getBoundingClientRect();
    if (first?.contains(document.elementFromPoint(box.left + 40, box.top + 20)))
      return first.textContent.toLowerCase();
    await new Promise(requestAnimationFrame);
  }
  throw new Error('the search shows no result');
}"""


@pytest.fixture(scope="module")
def address(site, tmp_path_factory):
    """Where the site is served with an ear for errors in each page."""
    folder = tmp_path_factory.mktemp("watched") / "site"
    shutil.copytree(site, folder)
    for file in folder.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("<head>", f"<head>{WATCH}", 1), encoding="utf-8")
    (folder / "phone.html").write_text(PHONE, encoding="utf-8")
    with book.served(folder) as address:
        yield address


@pytest.fixture
def open_page(engine, address):
    """`open_page(path)` opens a page in the engine; no script may throw, nothing may be missing."""

    def at(path):
        engine.go(address + path)
        engine.run("() => document.fonts.ready.then(() => true)")
        engine.run(browsers.WAKE)
        return engine

    yield at
    assert engine.run("() => wrong") == []


# The families that were loaded.
FONTS = """async () => {
  await document.fonts.ready;
  return [...document.fonts].filter((font) => font.status === 'loaded').map((font) => font.family.replaceAll('"', ''));
}"""


# What went wrong on a page, or is not complete there.
WRONG = """async () => {
  const count = (what) => document.querySelectorAll(`.md-content article ${what}`).length;
  const dead = () => count('attention-explorable') !== count('attention-explorable .controls');
  while (document.readyState !== 'complete') await new Promise(requestAnimationFrame);
  // Its script comes with the page, and may come after it.
  for (const end = performance.now() + 10_000; dead() && performance.now() < end; )
    await new Promise(requestAnimationFrame);
  const told = [...wrong];
  if (count('.highlight pre > code') !== count('[data-copy=copy]')) told.push('a block is not copied');
  if (dead()) told.push('an explorable is dead');
  const marked = [...document.querySelectorAll('.md-content article :is([data-hides], [role=group][tabindex])')];
  if (marked.some((box) => !/auto|scroll/.test(getComputedStyle(box).overflowX)))
    told.push('what cannot scroll fades, or is a tab stop');
  if (count('h1') !== 1) told.push(`${count('h1')} titles`);
  return told;
}"""


@pytest.mark.night
def test_every_page_loads_without_an_error_and_each_address_leads_to_its_place(open_page, site):
    def wrong(path):
        engine = open_page(path)
        return engine.run(WRONG) + engine.run(MISSED, places(site, path))

    assert {path: found for path in book.PAGES if (found := wrong(path))} == {}


@pytest.mark.night
def test_each_address_of_every_page_leads_to_its_place_on_a_phone(engine, address, site):
    engine.go(address + "phone.html")

    def missed(path):
        assert engine.run(LOAD, address + path) == browsers.NARROW["width"]
        engine.run(WITHIN, "() => document.fonts.ready.then(() => true)")
        engine.run(WITHIN, browsers.WAKE)
        return engine.run(WITHIN, MISSED, places(site, path)) + engine.run(WITHIN, "() => wrong")

    assert {path: found for path in book.PAGES if (found := missed(path))} == {}


@pytest.mark.smoke
def test_every_feature_works_after_a_click_and_after_going_back(open_page, address):
    engine = open_page("index.html")
    engine.run(browsers.CLICK, address + book.CHAPTER)
    # WebKit may not yet have scrolled to the top when it has told of the page; Chromium is asked for that.
    assert engine.run(browsers.USE) == browsers.USED | {"scrolled": ANY}
    engine.run(browsers.CLICK, address + "glossary.html")
    engine.run(browsers.BACK)
    assert engine.run(browsers.USE) == browsers.USED_AFTER_BACK
    title = "() => document.querySelector('article h1').firstChild.data"
    assert engine.run(title) == "The dot product"


@pytest.mark.smoke
def test_search_gives_results_after_a_click(open_page, address):
    engine = open_page("index.html")
    engine.run(browsers.CLICK, address + "foundations/index.html")
    engine.run("() => document.querySelector('.md-search__input').focus()")
    engine.keys("softmax")
    assert "softmax" in engine.run(FIRST_RESULT)


@pytest.mark.night
def test_a_chapter_is_set_in_the_books_fonts_math_too(open_page, page_with):
    assert {"Book", "Book Code", "Book Math"} <= {*open_page(page_with("<math")).run(FONTS)}


# WebKit alone lets punctuation hang in margins, and would eat the first bracket of a formula.
HANGING = """() => [...document.querySelectorAll('pre, code, samp, kbd, math, math *, figure, attention-explorable, table')]
  .filter((element) => !['none', undefined].includes(getComputedStyle(element).hangingPunctuation))
  .map((element) => element.outerHTML.slice(0, 80))"""


@pytest.mark.night
@pytest.mark.parametrize("mark", ["<math", "<attention-explorable", "<samp"])
def test_no_code_formula_or_figure_hangs_its_punctuation(open_page, page_with, mark):
    assert open_page(page_with(mark)).run(HANGING) == []
