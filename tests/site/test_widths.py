"""How pages use the width of a window, from a phone's to a wide screen's."""

import io
import tomllib

import pytest
from PIL import Image, ImageChops

from tests.site import book

SCROLL_BAR = 15  # pixels that an old-fashioned one takes of a window
DESKTOPS = (book.WIDE["width"] - SCROLL_BAR, 1440, 1920)

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


def window(width):
    return {"width": width, "height": 900}


@book.each_page
@book.unfolded
def test_a_page_uses_each_window_and_on_a_desktop_nothing_scrolls_sideways(look, path):
    page = look(path, window(768), unfolded=True)
    wrong = {}
    for width in (768, 1024, *DESKTOPS):
        book.show(page, window(width))
        found = page.evaluate(LOOK)
        asked = (*ALWAYS, "scrolls") if width in DESKTOPS else (*ALWAYS, *SHOWN)
        wrong |= {f"at {width}, {kind}": found[kind] for kind in asked if found[kind]}
    assert wrong == {}


@book.each_page
@book.narrow
def test_a_phone_shows_charts_maps_and_tables_whole_and_says_where_more_is_hidden(look, path):
    page = look(path, book.NARROW, unfolded=True)
    found = page.evaluate(LOOK)
    assert {
        kind: found[kind] for kind in (*ALWAYS, *SHOWN, "is cut", "runs together") if found[kind]
    } == {}
    assert page.evaluate(WORDS) == []


def test_a_line_as_long_as_the_formatter_allows_fits(visit, site):
    longest = tomllib.loads((book.ROOT / "pyproject.toml").read_text())["tool"]["ruff"][
        "line-length"
    ]
    path = next(path for path in book.PAGES if 'class="success"' in (site / path).read_text())
    page = visit(path)
    book.unfold(page)
    too_wide = """(letters) => {
      const line = 'm'.repeat(letters);
      return [...document.querySelectorAll('.md-content article pre > code')].filter((code) => {
        code.textContent = line;
        return code.scrollWidth > code.clientWidth;
      }).length;
    }"""
    for width in DESKTOPS:
        book.show(page, window(width))
        assert page.evaluate(too_wide, longest) == 0
        assert page.evaluate(too_wide, longest + 20) > 0, "this would pass whatever the width"


CHOOSE = """(kind) => {
  window.chosen = [...document.querySelectorAll('.md-content article ' + kind)].find((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth + 60);
  chosen.scrollIntoView({ block: 'center', behavior: 'instant' });
}"""
SCROLL = "(share) => { chosen.scrollLeft = share * (chosen.scrollWidth - chosen.clientWidth); }"
PLACE = "(() => { const box = chosen.getBoundingClientRect(); return [box.left, Math.max(box.top, 80), box.right, Math.min(box.bottom, 780)]; })()"
SIDES = {0: {"right"}, 0.5: {"left", "right"}, 1: {"left"}}  # by the share that is scrolled
COLOURS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "forced": {"forced_colors": "active"},
}


# Maps, tables, formulas and outputs in columns fit a phone, or nearly so; here they do not.
WIDE = """.heatmap { min-width: 900px } .lab-table td { min-width: 90px !important }
  .math math { font-size: 3em !important } .output samp.columns { font-size: 1em !important }"""


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("foundations/scaling.html", ["pre > code", ".output pre", ".math"]),
        ("model/heads.html", [".heat"]),
        ("labs/scaling.html", [".book-scroll"]),
    ],
)
def test_a_box_fades_at_the_side_where_it_hides_something(visit, path, kinds):
    page = visit(path, viewport=book.NARROW)
    page.evaluate(book.UNVEIL)
    page.add_style_tag(content=WIDE)
    page.evaluate("dispatchEvent(new Event('resize'))")
    for name, colours in COLOURS.items():
        book.show(page, **colours)
        for kind in kinds:
            page.evaluate(CHOOSE, kind)
            for share, sides in SIDES.items() if name == "light" else [(0.5, {"left", "right"})]:
                page.evaluate(SCROLL, share)
                book.show(page)
                assert faded(page) == sides, (name, kind, share)


# As Playwright adds one where scripts run.
ADD_STYLE = """(css) => {
  const style = document.createElement('style');
  style.textContent = css;
  document.head.append(style);
}"""


def test_with_scripts_off_a_box_fades_as_well(visit):
    page = visit("foundations/scaling.html", viewport=book.NARROW, java_script_enabled=False)
    page.evaluate(ADD_STYLE, WIDE)  # a long output wraps there, one in columns scrolls
    for kind in ("pre > code", ".math", ".output pre:has(.columns)"):
        page.evaluate(CHOOSE, kind)
        name = page.evaluate("getComputedStyle(chosen).animationName")
        assert name.startswith("book-fades"), kind


def faded(page):
    """The sides of the chosen box that look otherwise than where nothing shows what it hides."""
    left, top, right, bottom = page.evaluate(PLACE)
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}

    def picture():
        return Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("L")

    shown = picture()
    plain = page.add_style_tag(
        content="*, ::after { mask-image: none !important } .heatmap :is(th, td)::after { opacity: 0 !important }"
    )
    book.show(page)
    differs = ImageChops.difference(shown, picture()).point(lambda value: 255 * (value > 24))
    plain.evaluate("(style) => style.remove()")
    book.show(page)
    middle = differs.width // 2
    halves = {"left": (0, 0, middle, differs.height), "right": (middle, 0, *differs.size)}
    return {side for side, half in halves.items() if differs.crop(half).getbbox()}


def test_the_ring_around_a_box_in_focus_is_not_cut_by_its_fade(visit):
    page = visit("foundations/query-key-value.html", viewport=book.NARROW)
    page.evaluate(CHOOSE, "pre > code")
    page.keyboard.press("Tab")
    page.evaluate("chosen.focus()")
    style = page.evaluate(
        "(({ outlineStyle, outlineOffset }) => [outlineStyle, outlineOffset])(getComputedStyle(chosen))"
    )
    assert style[0] == "solid"
    assert float(style[1].removesuffix("px")) < 0
