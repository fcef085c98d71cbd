"""Each page in a real browser: what it weighs, whom it asks, how it reads on a screen."""

import functools
import html
import re
import unicodedata
from textwrap import dedent

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from literate.page import read
from tests.site import book

# Bytes beside the files that a page includes for its readers to copy. They are counted before a host
# compresses them, to about a third and a sixth, since each library compresses a little otherwise.
FIRST_VIEW = 434_000
FURTHER_VIEW = 160_000  # of text; what a page includes comes on top
CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
# Home, a chapter and a lab stand for the others where the frame around the text is asked about.
FRAMES = ["index.html", book.CHAPTER, "labs/heads.html"]
PHONE = {"viewport": {"width": 360, "height": 780}, "has_touch": True, "is_mobile": True}


def open_search(page, words):
    """Open search as each width offers it, and type."""
    if page.evaluate("innerWidth") < 960:
        page.locator("label.md-header__button[for=__search]").click()
    else:
        page.locator(".md-search__input").click()
    page.locator(".md-search__input").fill(words[:-1])
    page.locator(".md-search__input").press(words[-1])  # search answers to keys


def close_search(page):
    page.keyboard.press("Escape")
    page.wait_for_function("!document.getElementById('__search').checked")


def asked_elsewhere(page):
    """What a page has asked of another host, and the cookies that it keeps."""
    return page.context.cookies() + page.evaluate(
        "performance.getEntriesByType('resource').map((e) => e.name)"
        ".filter((url) => !url.startsWith(location.origin) && !/^(data|blob):/.test(url))"
    )


@book.each_page
def test_no_page_asks_another_host_to_its_end(look, path):
    page = look(path)  # which fails the test at its end if anything went elsewhere
    book.scroll_to_the_end(page)
    assert asked_elsewhere(page) == []


@pytest.mark.parametrize("path", FRAMES)
def test_searching_and_choosing_colours_asks_no_other_host(visit, path):
    page = visit(path)
    open_search(page, "attention")
    page.wait_for_selector(".md-search-result__item")
    close_search(page)
    for _ in range(3):
        page.locator("[data-md-component=palette] label:not([hidden])").click()
    page.wait_for_load_state("networkidle")
    assert asked_elsewhere(page) == []


@book.each_page
@pytest.mark.parametrize("window", [PHONE, {}], ids=["360", "1280"])
def test_nothing_moves_while_a_page_comes(look, visit, path, window):
    """A busy machine may hand a font over late: then the page is opened anew, with nothing kept."""
    moved = look(path, **window).evaluate("movedAtFirst")
    for _ in range(3):
        if not moved:
            break
        again = visit(path, wake=False, **window)
        again.wait_for_load_state("networkidle")
        moved = again.evaluate("moved")
    assert moved == []


def weight(site, address, urls):
    """Bytes of files, each once, as a browser with a cache fetches them."""
    files = {
        url.removeprefix(address).partition("?")[0] or "index.html"
        for url in urls
        if url.startswith(address)
    }
    return {file: (site / file).stat().st_size for file in sorted(files)}


def watch_requests(page):
    urls = []
    page.on("request", lambda request: urls.append(request.url))
    return urls


@functools.cache
def included(site, path):
    """Bytes of a page that show files in full, coloured as they are."""
    source = book.SOURCES[path]
    fences = read(book.DOCS / source).fences if source in book.CHAPTERS else []
    shown = [fence.include for fence in fences if fence.include]
    files = {dedent("\n".join(each.lines)).strip() for each in shown if not each.section}
    blocks = CODE.findall((site / path).read_text(encoding="utf-8"))
    drawn = [block for block in blocks if html.unescape(TAG.sub("", block)).strip() in files]
    assert len(drawn) >= len(files), f"{path} shows {len(drawn)} of its {len(files)} files"
    return sum(len(block.encode()) for block in drawn)


@pytest.fixture(scope="session")
def longest(site):
    """The page with the most to send of its own; the first formula brings a font with it."""

    def sent(path):
        math = "<math" in (site / path).read_text(encoding="utf-8")
        font = math * (site / "assets/fonts/math.woff2").stat().st_size
        return (site / path).stat().st_size + font - included(site, path)

    return max(book.PAGES, key=sent)


def test_the_first_view_of_the_longest_chapter_is_light(visit, site, address, longest):
    """As it is opened; to its end it may send an explorable's script."""
    page = visit("404.html")
    urls = watch_requests(page)
    loaded = "performance.getEntriesByType('resource').map((e) => e.name)"
    page.goto(address + longest)
    page.wait_for_load_state("networkidle")
    # The page before left a cache; whatever the longest names counts in full.
    everything = weight(site, address, {*urls, *page.evaluate(loaded)})
    table = "\n".join(f"{size:7} {file}" for file, size in everything.items())
    print(f"{sum(everything.values()):7} bytes in all\n{table}")
    assert len(everything) > 8
    assert sum(everything.values()) <= FIRST_VIEW + included(site, longest), table
    page.evaluate(book.WAKE)
    book.scroll_to_the_end(page)
    page.wait_for_load_state("networkidle")
    later = weight(site, address, {*urls, *page.evaluate(loaded)}).keys() - everything.keys()
    assert later <= {"assets/attention.js"}


@book.each_page
def test_each_further_page_is_lighter_still(look, site, address, at_hand, path):
    urls = [address + path, *look(path).evaluate("loadedAtFirst")]
    fresh = {
        file: size
        for file, size in weight(site, address, urls).items()
        if file not in at_hand or file == path
    }
    assert sum(fresh.values()) <= FURTHER_VIEW + included(site, path), fresh


@pytest.fixture(scope="session")
def at_hand(browser, site, address, longest):
    """What a reader of the longest page has fetched."""
    page = browser.new_page(viewport=book.WIDE)
    page.goto(address + longest)
    page.wait_for_load_state("networkidle")
    loaded = page.evaluate("performance.getEntriesByType('resource').map((e) => e.name)")
    page.close()
    return set(weight(site, address, loaded))


# Keeps each style whose address is set once there is text: all of that is laid out anew.
SET_AGAIN = """window.again = [];
new MutationObserver((changes) => {
  for (const { target } of changes) if (target.rel === "stylesheet" && document.body) again.push(target.href);
}).observe(document, { attributeFilter: ["href"], subtree: true });"""


def test_no_style_is_loaded_again_once_there_is_text(visit, address):
    page = visit("cite.html")
    page.context.add_init_script(SET_AGAIN)
    page.goto(address + book.CHAPTER)
    page.wait_for_selector("[data-copy=above]", state="attached")  # the theme has started
    assert page.evaluate("again") == []


# What a narrower window can change in the text. The frame around it is the same on every page.
BY_WIDTH = ["scrollable-region-focusable", "target-size"]


@book.each_page
def test_axe_finds_nothing(look, passed, path):
    """Every rule, in both schemes. No look of text is tried twice, but on those that show the frame."""
    assert axe(look(path), passed=None if path in FRAMES else passed) == []


@book.each_kind
@book.narrow
def test_axe_finds_nothing_on_a_phone(look, passed, path):
    """What a width can change; on pages that show the frame, every rule."""
    passed, rules = (None, None) if path in FRAMES else (passed, BY_WIDTH)
    assert axe(look(path, book.NARROW), passed=passed, rules=rules) == []


@pytest.mark.parametrize("path", FRAMES)
@pytest.mark.parametrize("viewport", [book.WIDE, book.NARROW], ids=["1280", "375"])
def test_axe_finds_nothing_in_the_open_search_and_the_menu_where_it_folds(
    visit, passed, path, viewport
):
    page = visit(path, viewport=viewport)
    open_search(page, "attention")
    page.wait_for_selector(".md-search-result__item")
    assert axe(page, ".md-header", passed) == []
    close_search(page)
    if viewport is book.NARROW:
        page.locator("label.md-header__button[for=__drawer]").click()
        assert axe(page, ".md-sidebar--primary", passed) == []


@pytest.fixture(scope="session")
def passed():
    """The looks of text that axe has passed, on whichever page."""
    return set()


ALL_BUT_COLOURS = """([where, rules]) => {
  const which = rules ? { runOnly: rules } : { rules: { 'color-contrast': { enabled: false }, 'link-in-text-block': { enabled: false } } };
  return axe.run(where ?? document, { resultTypes: ['violations', 'incomplete'], ...which })
    .then(({ violations, incomplete }) => told([...violations, ...incomplete]));
}"""
TOLD = """window.told = (violations) => violations.flatMap(({ id, nodes }) =>
  nodes.map((node) => `${id}: ${node.html.slice(0, 160)} ${node.failureSummary ?? ''}`));
null"""
# What axe cannot judge of contrast, and why that is no fault here. Any other doubt of axe's fails.
DOUBTS = {
    "bgOverlap": "text of a drawing that stands over a shape of it",
    "elmPartiallyObscured": "a name of the menu, scrolled half under the header",
    "elmPartiallyObscuring": "a name of the menu, half over another that scrolls",
    "imgNode": "text of a drawing, in the colours of the text around it",
    "nonBmp": "a sign of mathematics, in the colour of its formula",
}
# Judges text on a gradient itself: against each colour of the gradient, laid over what lies below.
ON_A_GRADIENT = """window.weakOnGradient = (one) => {
  const read = (text) => [...text.matchAll(/rgba?\\(([^)]*)\\)/g)].map(([, inner]) => inner.split(/[ ,/]+/).map(parseFloat)).map(([r, g, b, a = 1]) => [r, g, b, a]);
  const over = ([r, g, b, a], below) => [r, g, b].map((part, i) => part * a + below[i] * (1 - a));
  const light = (colour) => colour.map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const grounds = (node) => {
    if (!node) return [[255, 255, 255]];
    const { backgroundColor, backgroundImage } = getComputedStyle(node);
    const [own] = read(backgroundColor);
    const below = (own?.[3] === 1 ? [own.slice(0, 3)] : grounds(node.parentElement).map((one) => own ? over(own, one) : one));
    return [...below, ...read(backgroundImage).flatMap((stop) => below.map((one) => over(stop, one)))];
  };
  const { color, fontSize, fontWeight } = getComputedStyle(one), wanted = parseFloat(fontSize) >= (fontWeight >= 700 ? 18.66 : 24) ? 3 : 4.5;
  const ratios = grounds(one).map((ground) => {
    const [dark, bright] = [light(over(read(color)[0], ground)), light(ground)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  });
  return Math.min(...ratios) < wanted ? `${Math.min(...ratios).toFixed(2)} to 1 on a gradient` : '';
};
null"""
# Contrast costs axe more than its other rules together, and is the same wherever text of one colour
# stands on the same grounds. Of each look that has not passed, this tries the first; where axe cannot
# judge, as on a gradient or in a drawing, it could not on another page either.
COLOURS = """async ([where, passed, doubts]) => {
  const grounds = new Map([[null, '']]), looks = new Map(), tried = new Set(passed);
  const ground = (one) => {
    if (!grounds.has(one)) {
      const { backgroundColor, backgroundImage, opacity, filter, mixBlendMode } = getComputedStyle(one);
      const own = [backgroundColor, backgroundImage, opacity, filter, mixBlendMode].join();
      grounds.set(one, ground(one.parentElement) + (own === 'rgba(0, 0, 0, 0),none,1,none,normal' ? '' : `/${own}`));
    }
    return grounds.get(one);
  };
  for (const one of passed ? document.querySelectorAll(`${where ?? 'body'} *`) : []) {
    const says = one.matches('input') || [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!says || !one.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const { color, fontSize, fontWeight, textShadow, textDecorationLine } = getComputedStyle(one), { left, right } = one.getBoundingClientRect();
    if (left < 0 || right > innerWidth) continue;  // in a wider window it is in sight
    const large = parseFloat(fontSize) >= (fontWeight >= 700 ? 18.66 : 24);  // pixels; WCAG asks less of it
    const look = [ground(one), color, large, textShadow, Boolean(one.closest(':disabled, [aria-disabled=true]')),
      one.matches('a') && [textDecorationLine, getComputedStyle(one.parentElement).color]].join();
    if (tried.has(look)) continue;
    tried.add(look);
    looks.set(one, look);
  }
  if (passed && !looks.size) return [[], []];
  for (const one of looks.keys()) one.dataset.look = '';
  const now = passed ? '[data-look]' : '*';
  axe.configure({ rules: [{ id: 'color-contrast', selector: now }, { id: 'link-in-text-block', selector: `a[href]:is(${now})` }],
    checks: [{ id: 'color-contrast', options: { ...CONTRAST, ignoreLength: true } }] });
  const { violations, passes, incomplete } = await axe.run(where ?? document,
    { elementRef: true, resultTypes: ['violations', 'incomplete', ...passed ? ['passes'] : []], runOnly: ['color-contrast', 'link-in-text-block'] });
  for (const one of looks.keys()) delete one.dataset.look;
  const good = [...passes, ...incomplete].filter(({ id }) => id === 'color-contrast').flatMap(({ nodes }) => nodes.map(({ element }) => looks.get(element)));
  const unsure = incomplete.flatMap(({ id, nodes }) => nodes.flatMap(({ element, html, any, all, none }) =>
    [...any, ...all, ...none].map(({ data }) => data?.messageKey).map((key) => key === 'bgGradient' ? weakOnGradient(element) : key in doubts ? '' : `axe cannot judge it: ${key}`)
      .filter(Boolean).map((why) => `${id}: ${html.slice(0, 160)} ${why}`)));
  return [[...told(violations), ...unsure], passed ? good : []];
}"""
# The settings of axe's own check, which a change of one of them replaces.
CONTRAST = """window.CONTRAST = { ignoreUnicode: true, ignorePseudo: false, boldValue: 700, boldTextPt: 14, largeTextPt: 18,
  contrastRatio: { normal: { expected: 4.5 }, large: { expected: 3 } }, pseudoSizeThreshold: 0.25, shadowOutlineEmMax: 0.2, textStrokeEmMin: 0.03 };
null"""


def axe(page, where=None, passed=None, rules=None):
    """Try all rules of axe on part of a page, in the dark those on colour; return each violation.

    The schemes differ in nothing but colour. A look of text among `passed` is not tried again, and what
    passes is added there; without it the contrast of each word is tried. With `rules`, of all that
    are not on colour these alone are tried.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
        for script in (TOLD, ON_A_GRADIENT, CONTRAST):
            page.evaluate(script)
    found = []
    for scheme in ("light", "dark"):
        book.show(page, color_scheme=scheme)
        page.wait_for_function(  # no panel is on its way; what follows a scroll never ends
            "document.getAnimations().every((moving) => moving.timeline !== document.timeline)"
        )
        wrong = page.evaluate(ALL_BUT_COLOURS, [where, rules]) if scheme == "light" else []
        colours, good = page.evaluate(
            COLOURS, [where, None if passed is None else sorted(passed), DOUBTS]
        )
        found += [f"{scheme}: {one}" for one in wrong + colours]
        if passed is not None:
            passed.update(good)
    return found


@book.each_page
def test_nothing_but_code_and_tables_scrolls_sideways_on_a_phone(look, path):
    page = look(path, unfolded=True, **PHONE)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 360
    outside = page.evaluate(
        """() => [...document.querySelectorAll('.md-content article *')].filter((element) => {
          const box = element.getBoundingClientRect();
          if (!box.width || !box.height || box.right <= 361) return false;
          for (let up = element.parentElement; up; up = up.parentElement)
            if (/auto|scroll|hidden|clip/.test(getComputedStyle(up).overflowX) && up.tagName !== 'BODY' && up.tagName !== 'HTML'
                && up.getBoundingClientRect().right <= 361) return false;
          return true;
        }).map((element) => element.outerHTML.slice(0, 120))"""
    )
    assert outside == []


# What of a page the Tab key stops at, and that neither acts nor scrolls.
IDLE = """() => [...document.querySelectorAll('.md-content article *')].filter((one) =>
    one.tabIndex >= 0 && one.checkVisibility({ visibilityProperty: true })
    && !one.matches('a[href], button, input, summary, .heatmap td')
    && one.scrollWidth <= one.clientWidth + 1).map((one) => one.outerHTML.slice(0, 120))"""


@book.each_page
@book.unfolded
@pytest.mark.parametrize("window", [PHONE, {}], ids=["360", "1280"])
def test_the_tab_key_stops_at_what_acts_or_scrolls_and_nowhere_else(look, path, window):
    """What scrolls has a name as well."""
    page = look(path, unfolded=True, **window)
    assert page.evaluate(IDLE) == []
    boxes = page.evaluate(
        """() => [...document.querySelectorAll('.md-content article *')].filter((box) =>
            /auto|scroll/.test(getComputedStyle(box).overflowX) && box.scrollWidth > box.clientWidth + 1 && box.clientWidth)
          .map((box) => ({
            html: box.outerHTML.slice(0, 120),
            reached: box.tabIndex >= 0 || box.querySelector('a, button, input, [tabindex="0"]') !== null,
            named: Boolean(box.getAttribute('aria-label') || box.querySelector('caption, [aria-label]')),
          }))"""
    )
    assert [box["html"] for box in boxes if not box["reached"]] == []
    assert [box["html"] for box in boxes if not box["named"]] == []


@book.each_page
@pytest.mark.parametrize("window", [PHONE, {}], ids=["360", "1280"])
def test_no_code_lies_under_its_buttons(look, path, window):
    covered = look(path, **window).evaluate(
        """() => [...document.querySelectorAll('.md-content .highlight')].flatMap((block) => {
          const code = block.querySelector('pre > code'), bar = block.querySelector('.book-copy').getBoundingClientRect();
          const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), range = new Range(), under = [];
          for (let node; (node = walker.nextNode()); ) {
            range.selectNodeContents(node);
            for (const text of range.getClientRects())
              if (text.right > bar.left + 1 && text.left < bar.right && text.bottom > bar.top && text.top < bar.bottom && node.data.trim())
                under.push(node.data);
          }
          return under;
        })"""
    )
    assert covered == []


@pytest.fixture(scope="module")
def with_math(site):
    """The page with the most formulas."""
    count = {path: (site / path).read_text(encoding="utf-8").count("<math") for path in book.PAGES}
    found = max(book.PAGES, key=count.get)
    assert count[found] > 5, "no page has enough math to test it"
    return found


def test_math_is_read_with_scripts_off(visit, with_math):
    page = visit(with_math, java_script_enabled=False)
    formulas = page.locator(".md-content article math:not(details:not([open]) math)")
    boxes = [formula.bounding_box() for formula in formulas.all()]
    assert all(box and box["width"] > 3 and box["height"] > 5 for box in boxes)
    assert page.locator(".md-content article math annotation:visible").count() == 0


def test_math_is_selectable_and_read_aloud_as_math(visit, with_math):
    page = visit(with_math)
    chosen = page.evaluate(
        """() => {
          const formula = [...document.querySelectorAll('.md-content article math')].find((m) => m.textContent.length > 8);
          getSelection().selectAllChildren(formula.querySelector('semantics > mrow'));
          return [getSelection().toString(), formula.querySelector('semantics > mrow').textContent];
        }"""
    )
    # What is copied are the letters as they are set, in mathematical italics.
    copied, meant = (re.sub(r"\s", "", unicodedata.normalize("NFKC", text)) for text in chosen)
    assert copied == meant != ""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    roles = [node.get("role", {}).get("value") for node in nodes]
    assert (
        roles.count("MathMLMath") + roles.count("math")
        == page.locator(".md-content article math:visible").count()  # what is folded is not told
    )


FORMULA = re.compile(r"<math.*?</math>", re.DOTALL)
LETTERS = re.compile(r"<m[ion]\b[^>]*>([^<]+)<")


@pytest.fixture(scope="session")
def spelt(site):
    """Pages that together have every character of the book's formulas, each with its new ones."""
    found, seen = {}, set()
    for path in book.PAGES:
        formulas = "".join(FORMULA.findall((site / path).read_text(encoding="utf-8")))
        letters = set(html.unescape("".join(LETTERS.findall(formulas)))) - seen
        if letters:
            found[path], seen = letters, seen | letters
    return found


ASK = """(letters) => {
  for (const letter of letters)
    [...document.querySelectorAll('.md-content article math :is(mi, mo, mn)')]
      .find((one) => one.textContent.includes(letter))?.setAttribute('data-asked', '');
}"""


def test_math_is_set_in_its_own_font(visit, spelt):
    assert len(spelt) > 1
    for path, letters in spelt.items():
        page = visit(path)
        book.unfold(page)
        page.evaluate(ASK, sorted(letters))
        assert fonts_of_formulas(page) == set(), path
        page.close()


def fonts_of_formulas(page):
    """The glyphs of formulas on a page, of those that ASK marked, that no font of ours has."""
    loaded = page.evaluate(
        "[...document.fonts].filter((f) => f.status === 'loaded').map((f) => f.family.replaceAll('\"', ''))"
    )
    assert {"Book", "Book Code", "Book Math"} <= set(loaded)
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    ids = session.send(
        "DOM.querySelectorAll",
        {"nodeId": root, "selector": "[data-asked]"},
    )["nodeIds"]
    # A glyph that the subset lacks would come from whatever the reader's system has.
    # The text's own face may stand in for a word; a system's font may not.
    strangers, ours = set(), set()
    for node in ids:
        for font in session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]:
            ours.add(font["familyName"])
            if not font["isCustomFont"]:
                glyph = session.send("DOM.getOuterHTML", {"nodeId": node})["outerHTML"]
                strangers.add(f"{glyph} {font['familyName']}")
    assert ours, "no glyph was looked at"
    return strangers


LINES = """() => [...document.querySelectorAll('.md-content__inner > p')].flatMap((p) => {
  const walker = document.createTreeWalker(p, NodeFilter.SHOW_TEXT), lines = new Map(), range = new Range();
  if (p.querySelector('math, code')) return [];
  for (let node; (node = walker.nextNode()); )
    for (let i = 0; i < node.length; i++) {
      range.setStart(node, i); range.setEnd(node, i + 1);
      const rect = range.getBoundingClientRect();
      if (rect.width) lines.set(Math.round(rect.bottom / 8), (lines.get(Math.round(rect.bottom / 8)) ?? 0) + 1);
    }
  return [...lines.values()].slice(0, -1);
})"""


@book.each_page
def test_lines_of_text_have_a_length_that_reads_well(look, visit, address, path):
    """A busy machine may hand a font over late: then the page is opened anew, and waits for it."""

    def usual(page):
        lengths = sorted(page.evaluate(LINES))
        return lengths[len(lengths) // 2] if lengths else 60

    length = usual(look(path))
    if not 60 <= length <= 75:
        page = visit("404.html")
        book.open_in_its_fonts(page, address + path)
        length = usual(page)
    assert 60 <= length <= 75
