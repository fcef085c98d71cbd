"""Each page in Chromium, on a desktop, on a phone, on paper and from a disk: all that is asked of every page.

A page of each kind is asked at each change, the others at night. A test opens its page once, and names
everything that it finds wrong there.
"""

import functools
from urllib.parse import unquote, urldefrag, urljoin

from literate import export, page
from tests.pages import RUNNING
from tests.site import book, browsers, paper
from tests.site.axe import BY_WIDTH, axe
from tests.site.book import nothing

DESKTOPS = (1280 - 15, 1440, 1920)  # an old-fashioned scroll bar takes 15 pixels of a window


# ---------------------------------------------------------------------------- asked of a page

# Of whom it has asked something that is not its own host.
ELSEWHERE = """() => performance.getEntriesByType('resource').map((entry) => entry.name)
  .filter((url) => !url.startsWith(location.origin) && !/^(data|blob):/.test(url))"""

# How long its lines are: the letters of each line but the last of each paragraph of plain text.
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

# At what the Tab key stops although it neither acts nor scrolls, and what scrolls and is not reached or has no name.
STOPS = """() => {
  const all = [...document.querySelectorAll('.md-content article *')], say = (one) => one.outerHTML.slice(0, 120);
  const hides = (one) => one.clientWidth && one.scrollWidth > one.clientWidth + 1;
  const boxes = all.filter((box) => /auto|scroll/.test(getComputedStyle(box).overflowX) && hides(box));
  return [
    ...all.filter((one) => one.tabIndex >= 0 && one.checkVisibility({ visibilityProperty: true })
      && !one.matches('a[href], button, input, select, summary, .heatmap td') && !hides(one)).map((one) => `idle: ${say(one)}`),
    ...boxes.filter((box) => box.tabIndex < 0 && !box.querySelector('a, button, input, [tabindex="0"]')).map((one) => `not reached: ${say(one)}`),
    ...boxes.filter((box) => !box.getAttribute('aria-label') && !box.querySelector('caption, [aria-label]')).map((one) => `no name: ${say(one)}`),
  ];
}"""

# Code that lies under the buttons of its block.
COVERED = """() => [...document.querySelectorAll('.md-content .highlight')].flatMap((block) => {
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

# What stands outside of a window, or scrolls the page.
OUTSIDE = """() => [...document.querySelectorAll('.md-content article *')].filter((element) => {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || box.right <= innerWidth + 1) return false;
  for (let up = element.parentElement; up; up = up.parentElement)
    if (/auto|scroll|hidden|clip/.test(getComputedStyle(up).overflowX) && up.tagName !== 'BODY' && up.tagName !== 'HTML'
        && up.getBoundingClientRect().right <= innerWidth + 1) return false;
  return true;
}).map((element) => element.outerHTML.slice(0, 120)).concat(document.scrollingElement.scrollWidth > innerWidth ? ['the page'] : [])"""

# What is wrong with a page at its width: each test asks for some of these lists.
LOOK = """() => {
  const article = document.querySelector('.md-content article');
  const all = [...article.querySelectorAll('*')], box = (one) => one.getBoundingClientRect();
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  const words = (one) => { const range = new Range(); range.selectNodeContents(one); return box(range); };
  const near = (one, next) => {
    const a = words(one), b = words(next);
    return a.width && b.width && b.left - a.right < 5 && a.top < b.bottom && b.top < a.bottom;
  };
  const room = box(document.querySelector('.md-content__inner'));
  const parts = [...article.children].filter((part) => part.checkVisibility() && box(part).width > 1);
  const menus = [...document.querySelectorAll('.md-sidebar')].filter((menu) => menu.checkVisibility() && box(menu).right > 0);
  const boxes = all.filter((one) => one.clientWidth && /auto|scroll/.test(getComputedStyle(one).overflowX));
  const hides = (one) => one.scrollWidth > one.clientWidth + 1;
  const fades = (one) => getComputedStyle(one).maskImage !== 'none';
  const figures = [...article.querySelectorAll('.heat, .book-scroll, :is(.chart, .lab-figure) svg')];
  const found = {
    scrolls: boxes.filter(hides),
    overlaps: parts.filter((part, i) => i && meet(box(part), box(parts[i - 1]))),
    'lies under a menu': parts.filter((part) => menus.some((menu) => box(part).right > box(menu).left + 1 && box(part).left < box(menu).right - 1)),
    'leaves room': parts.filter((part) => part.matches('.highlight') && box(part).width < room.width - 1),
    'is cut': figures.filter((one) => (hides(one) && one.clientWidth && !one.matches('svg')) || box(one).right > innerWidth),
    'runs together': [...article.querySelectorAll('.lab-table tr')].flatMap((row) => [...row.cells].filter((cell, i) => i && near(row.cells[i - 1], cell))),
    'hides and does not say so': boxes.filter((one) => hides(one) && !fades(one)),
    'hides nothing and fades': boxes.filter((one) => one.scrollWidth <= one.clientWidth && fades(one)),
  };
  for (const kind in found) found[kind] = found[kind].map((one) => `${one.outerHTML.slice(0, 50)} ${one.textContent.trim().slice(0, 50)}`);
  found.wider = document.scrollingElement.scrollWidth > innerWidth ? ['the page'] : [];
  return found;
}"""
WORDS = """() => [...document.querySelectorAll('.md-content article :is(.chart, .lab-figure) svg')].flatMap((svg) => {
  const words = [...svg.querySelectorAll('text')].map((text) => {
    const { a, b } = text.getScreenCTM(), box = text.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
    return { said: text.textContent.trim(), box, size, slanted: Math.abs(a * b) > 0.01 };
  });
  const frame = svg.getBoundingClientRect(), straight = words.filter((word) => !word.slanted);
  const cover = ({ box: one }, { box: other }) =>
    Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1 && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 3;
  return [
    ...words.filter(({ box }) => box.left < 0 || box.right > innerWidth || box.top < frame.top - 8 || box.bottom > frame.bottom + 8).map(({ said }) => `outside: ${said}`),
    ...words.filter(({ size }) => size < 9.3).map(({ said, size }) => `${size} px: ${said}`),
    ...straight.filter((one, i) => straight.slice(0, i).some((other) => cover(one, other))).map(({ said }) => `covered: ${said}`),
  ];
})"""
ALWAYS = ("overlaps", "lies under a menu", "leaves room", "wider")
SHOWN = ("hides and does not say so", "hides nothing and fades")

# What each cell of a card says that it is, and the name of its column; of a formula, nothing.
CARDS = """() => [...document.querySelectorAll('.cards')].map((table) => {
  const names = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.querySelector('math') ? '' : cell.textContent.trim());
  return [...table.tBodies[0].rows].map((row) => [...row.cells].slice(1).map((cell, at) =>
    [JSON.parse(getComputedStyle(cell, '::before').content), names[at]]));
})"""

# The text of what is visible, one entry for each element, as a reader would copy it.
VISIBLE = """(boxes) => boxes
  .filter((box) => box.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
  .filter((box) => { const { width, height } = box.getBoundingClientRect(); return width && height; })
  .map((box) => box.textContent)"""
CODE = ", ".join(f".language-{name} pre > code" for name in ("python", "py", "python3", "py3"))

# Presses buttons, and returns what each has copied, to a clipboard that keeps what is written to it.
CLICK_AND_KEEP = """(buttons) => {
  const copied = [], { clipboard } = navigator;
  const give = (value) => Object.defineProperty(navigator, 'clipboard', { configurable: true, value });
  give({ writeText: async (text) => copied.push(text) });
  for (const button of buttons) button.click();
  give(clipboard);
  return copied;
}"""


def places(site, path):
    """The names of all places of a page that have an address, or are linked to."""
    named = "article :is(h1, h2, h3, h4, figure, p, div)[id]"
    names = [one.get("id") for one in book.parsed(site / path).cssselect(named)]
    return [*dict.fromkeys(names), *sorted(linked(site).get(path, set()) - {*names, ""})]


@functools.cache
def linked(site):
    """The names of places that pages of the site link to, by page."""
    found = {}
    for path in book.PAGES:
        for link in book.parsed(site / path).cssselect(".md-content a[href*='#']"):
            address, name = urldefrag(urljoin(path, link.get("href")))
            found.setdefault(address, set()).add(unquote(name))
    return found


def moved(visit, path, **window):
    """What moves while a page comes, and how many letters the middle one of its lines has.

    A busy machine may hand a font over late: then the page is opened anew.
    """
    for _ in range(4):
        shown = visit(path, wake=False, **window)
        shown.evaluate(browsers.QUIET)
        found, lengths = shown.evaluate("moved"), sorted(shown.evaluate(LINES))
        if not found:
            break
        shown.close()
    return found, lengths[len(lengths) // 2] if lengths else 60, shown


def features(shown):
    """What must be there once on a page, however one came to it."""
    shown.evaluate(browsers.WAKE)
    return shown.evaluate(
        """() => ({
          title: document.querySelector('.md-content article h1').firstChild.textContent,
          copy: document.querySelectorAll('.md-content article [data-copy=copy]').length,
          above: document.querySelectorAll('.md-content article [data-copy=above]').length,
          blocks: document.querySelectorAll('.md-content article .highlight pre > code').length,
          formulas: document.querySelectorAll('.md-content article math').length,
          alive: [...document.querySelectorAll('attention-explorable')].filter((e) => e.matches(':defined') && e.querySelector('input, button')).length,
          explorables: document.querySelectorAll('attention-explorable').length,
          named: document.querySelector('.md-search').getAttribute('aria-label'),
          mark: document.querySelectorAll('.mark').length,
        })"""
    )


# --------------------------------------------------------------------------------- the tests


@book.each_page
def test_on_a_desktop_a_page_lies_still_and_each_place_and_window_of_it_is_sound(visit, site, path):
    shifts, letters, shown = moved(visit, path)
    shown.evaluate(browsers.WAKE)
    shown.evaluate(browsers.UNVEIL)
    wrong = {
        "moves while it comes": shifts,
        "length of a line": None if 60 <= letters <= 75 else letters,
        "does not lead to its place": shown.evaluate(MISSED, places(site, path)),
        "under its buttons": shown.evaluate(COVERED),
        "axe": axe(shown),
    }
    browsers.unfold(shown)
    wrong["stops of the Tab key"] = shown.evaluate(STOPS)
    for width in (768, 1024, *DESKTOPS):
        browsers.show(shown, {"width": width, "height": 900})
        found = shown.evaluate(LOOK)
        asked = ("scrolls",) if width in DESKTOPS else SHOWN
        wrong |= {f"at {width}, {kind}": found[kind] for kind in (*ALWAYS, *asked)}
    nothing(**wrong)


@book.each_page
def test_on_a_phone_a_page_shows_all_that_it_has(visit, site, path):
    shifts, _, shown = moved(visit, path, **browsers.PHONE)
    shown.evaluate(browsers.WAKE)
    shown.evaluate(browsers.UNVEIL)
    wrong = {
        "moves while it comes": shifts,
        "does not lead to its place": shown.evaluate(MISSED, places(site, path)),
        "under its buttons": shown.evaluate(COVERED),
        "axe": axe(shown, rules=BY_WIDTH),
    }
    browsers.unfold(shown)
    wrong["stops of the Tab key"] = shown.evaluate(STOPS)
    found = shown.evaluate(LOOK)
    wrong |= {kind: found[kind] for kind in (*ALWAYS, *SHOWN, "is cut", "runs together")}
    wrong["words of a chart"] = shown.evaluate(WORDS)
    pairs = [pair for table in shown.evaluate(CARDS) for row in table for pair in row]
    wrong["cells of a card"] = [said for said, name in pairs if not said or name not in ("", said)]
    for width in (375, 360):
        browsers.show(shown, {"width": width, "height": 780})
        wrong[f"outside of {width}"] = shown.evaluate(OUTSIDE)
    nothing(**wrong)


@book.each_page
def test_after_a_click_after_going_back_and_from_a_disk_a_page_is_whole(
    visit, reader, unzipped, path
):
    """And whatever is pressed on it, no other host is asked: `reader` hears of it."""
    alone = features(visit(path))
    assert alone["copy"] == alone["blocks"]
    assert alone["alive"] == alone["explorables"]
    if path in book.PAGES:  # the menu leads to no page of a part
        shown = reader.click_to(path)
        assert features(shown) == alone
        shown.evaluate(
            browsers.CLICK,
            reader.address + "cite.html"
            if path != "cite.html"
            else reader.address + "symbols.html",
        )
        shown.evaluate(browsers.BACK)
        browsers.show(shown)
        assert shown.url == reader.address + path
        assert features(shown) == alone
        assert shown.evaluate("window.same"), "a page was loaded anew: navigation was not instant"
        browsers.scroll_to_the_end(shown)
        pressed = (
            ".md-content article :is(summary, button:not([data-run]))"  # test_run.py runs blocks
        )
        shown.evaluate("(all) => document.querySelectorAll(all).forEach((b) => b.click())", pressed)
        shown.wait_for_load_state("networkidle")
        nothing(cookies=shown.context.cookies(), elsewhere=shown.evaluate(ELSEWHERE))
    stored = visit((unzipped / path).as_uri())
    assert features(stored) == alone
    assert stored.evaluate(
        "[...document.fonts].some((f) => f.family.includes('Book') && f.status === 'loaded')"
    )


@book.each(*(path for path in book.PAGES if book.SOURCES[path] in book.CHAPTERS))
def test_the_python_and_the_outputs_that_a_page_shows_and_copies_are_those_that_were_checked(
    visit, path
):
    """A block is copied with everything above it."""
    checked = page.read(book.DOCS / book.SOURCES[path])
    shown = visit(path)
    shown.evaluate(browsers.UNVEIL)
    browsers.unfold(shown)
    article = shown.locator(".md-content article")
    assert [code.strip("\n") for code in article.locator(CODE).evaluate_all(VISIBLE)] == [
        block.code.strip("\n") for block in checked.blocks
    ]
    assert article.locator("figure.output samp").evaluate_all(VISIBLE) == [
        block.output.text.strip("\n") for block in checked.blocks if block.output
    ]
    if checked.name in {running.name for running in RUNNING}:
        copied = article.locator("[data-copy=above]").evaluate_all(CLICK_AND_KEEP)
        assert copied == export.programs(checked)


@book.each_page
def test_a_page_is_printed_whole_and_legibly_from_the_dark_scheme(visit, path):
    held, sheets = paper.printed(visit(path))
    every = [line for lines, _ in sheets for line in lines]
    text = "".join(line for lines, _ in sheets for line in lines[:-1])
    wrong = {
        "faint": sorted({ink for _, inks in sheets for ink in inks if paper.faint(ink)}),
        "wide": held["wide"],
        "outputs larger than code": not held["smaller"],
        "buttons": held["buttons"],
        "a figure on two sheets": [
            figure
            for figure in held["whole"]
            if not any(all(row in "".join(lines) for row in figure) for lines, _ in sheets)
        ],
        "nearly empty": [lines for lines, _ in sheets[:-1] if len(lines) <= paper.LINES],
        "a heading at the end of a sheet": [
            lines[-2] for lines, _ in sheets[:-1] if lines[-2] in held["headings"]
        ],
        "an address that is not printed": [url for url in held["outside"] if url not in text],
    }
    # No line is broken that fits: a row of a tensor stays a row.
    for kind in ("printed", "code"):
        short = {paper.bare(one) for one in held[kind] if len(one.rstrip()) <= paper.COLUMNS} - {""}
        wrong[f"a broken line, {kind}"] = [
            line for line in short if not any(line in there for there in every)
        ]
    nothing(**wrong)
    assert held["address"] in every[0]
    assert [lines[-1] for lines, _ in sheets] == [
        f"{n}/{len(sheets)}" for n in range(1, len(sheets) + 1)
    ]
    assert "127.0.0.1" not in text
