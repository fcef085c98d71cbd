"""A drawing is a file that a line of a page shows; what it holds is held like the page's own words."""

import re

import pytest
from bs4 import BeautifulSoup

from book import drawing
from literate import export, record
from literate.page import PageError, read
from literate.site import markdown
from tests.pages import ROOT
from tests.projects import unsupported_numbers

FIGURE = """\
# A page

<figure class="diagram">

![Two boxes [0, 1] & an arrow](drawings/boxes.svg "From a < b")

<figcaption>Look.</figcaption>
</figure>
"""
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" width="9">
<!-- a remark -->
<marker id="arrow"><path d="M0 0"/></marker>
<path class="soft" d="M0 0
L1 1" marker-end="url(#arrow)"/><text>a &lt; b</text>
</svg>
"""


@pytest.fixture
def shown(book):
    """`shown(svg, figure)` reads a page that shows the drawing `svg`."""

    def shown(svg=SVG, figure=FIGURE):
        book.page(svg.encode(), "docs/drawings/boxes.svg")
        return book.read(figure)

    return shown


def test_a_drawing_stands_in_the_page_with_its_words_and_ids_of_its_own(book, shown):
    page = shown()
    figure = BeautifulSoup(markdown(book.root).convert(page.shown), "html.parser").figure
    svg = figure.svg
    assert (svg["role"], svg["aria-labelledby"]) == ("img", "boxes-title boxes-desc")
    assert svg["style"] == "max-width:100%;height:auto"
    assert svg.select_one("#boxes-title").text == "From a < b"
    assert svg.select_one("#boxes-desc").text == "Two boxes [0, 1] & an arrow"
    assert svg.marker["id"] == "boxes-arrow"
    assert svg.select_one("path.soft")["marker-end"] == "url(#boxes-arrow)"
    assert svg.find_all("text")[-1].text == "a < b"
    assert (figure.figcaption.contents[0], "img" in {tag.name for tag in figure(True)}) == (
        "Look.",
        False,
    )


def test_each_line_of_a_page_keeps_its_number(shown):
    page = shown()
    written, drawn = page.text.split("\n"), page.shown.split("\n")
    assert [n for n, (a, b) in enumerate(zip(written, drawn, strict=True), 1) if a != b] == [5]


def test_two_drawings_may_use_one_id(book, shown):
    book.page(SVG.encode(), "docs/drawings/other.svg")
    page = shown(figure=FIGURE + FIGURE[9:].replace("boxes.svg", "other.svg"))
    ids = re.findall(r'\bid="([^"]+)"', page.shown)
    assert len(ids) == len(set(ids)) == 6


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("</svg>", "", r"boxes\.svg:\d+: not well-formed"),
        ("<svg xmlns", "<svg xmln", r"boxes\.svg: it begins with <svg>; wanted <svg xmlns="),
        ("<text>", "<text style='top:0'>", r"boxes\.svg: <text> has `style`"),
        ("<text>", "<text fill='#111'>", r"boxes\.svg: fill=.* fits one colour scheme"),
        ("<text>", "<script>x()</script><text>", r"boxes\.svg: a drawing holds no <script>"),
        ("<text>", "<style>text{}</style><text>", r"boxes\.svg: its <style> is not `STYLE`"),
        ("<text>", "<title>T</title><text>", r"boxes\.svg: it holds a <title>; the line"),
        ("width=", "role='img' width=", r"boxes\.svg: <svg> has `role`, which the page gives it"),
        ("<text>", '<pre xmlns="http://www.w3.org/1999/xhtml">1</pre><text>', "another language"),
        ("<text>", '<text xml:space="preserve">', r"boxes\.svg: <text> or an attribute .*another"),
        ("a &lt; b", "a \u202e b", r"boxes\.svg: the control character U\+202E"),
        ('id="arrow"', 'id="title"', r"boxes\.svg: the address `boxes-title` is taken"),
    ],
)
def test_what_a_drawing_may_not_hold_is_an_error_at_its_line(shown, old, new, said):
    assert old in SVG
    with pytest.raises(PageError, match=said) as raised:
        shown(SVG.replace(old, new, 1))
    assert raised.value.line == 5


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        (
            "boxes.svg",
            "boxen.svg",
            5,
            r"boxen\.svg: there is no such drawing; in its folder: boxes",
        ),
        (' "From a < b"', "", 5, "a drawing stands alone on its line"),
        ("![", "See ![", 5, "a drawing stands alone on its line"),
        ('b")', 'b") here', 5, "a drawing stands alone on its line"),
        (
            '<figure class="diagram">',
            "<figure>",
            5,
            "a drawing stands alone on its line, in <figure",
        ),
        ("(drawings", "(./drawings", 5, "a drawing stands alone"),
        ("# A page", "```text", 5, "a drawing or a table in a fence"),
    ],
)
def test_a_line_that_shows_no_drawing_is_an_error(shown, old, new, line, said):
    assert old in FIGURE
    end = "```\n" if new == "```text" else ""
    with pytest.raises(PageError, match=said) as raised:
        shown(figure=FIGURE.replace(old, new, 1) + end)
    assert raised.value.line == line


def test_the_style_that_a_drawing_has_by_itself_stays_in_its_file(shown):
    page = shown(SVG.replace("<!-- a remark -->", f"<style>{drawing.STYLE}</style>"))
    assert "<svg" in page.shown
    assert "<style" not in page.shown


def test_a_drawing_by_itself_has_the_colours_of_the_page():
    css = (ROOT / "docs/assets/book.css").read_text(encoding="utf-8")
    schemes = re.findall(r'scheme="(?:default|slate)"\] \{\n( +--book-paper.*?)\}', css, re.S)
    for scheme, style in zip(schemes, drawing.STYLE.split("@media"), strict=True):
        names = ("paper", "ink", "accent")
        page = [re.search(rf"--book-{name}: (\S+);", scheme)[1] for name in names]
        assert re.findall(r"#\w+", style) == page


def test_another_drawing_is_another_page(book, shown):
    before = record.digest(shown())
    assert record.digest(shown()) == before
    assert record.digest(shown(SVG.replace("M0 0\n", "M0 1\n"))) != before


def test_the_numbers_of_a_drawing_are_those_of_its_page(shown):
    assert unsupported_numbers(shown()) == []
    (report,) = unsupported_numbers(shown(SVG.replace("a &lt; b", "0.288")))
    assert report.startswith("docs/page.md:5: 0.288 stands in no output or code")
    code = "\n```python\nx = 0.288\n```\n"
    assert unsupported_numbers(shown(SVG.replace("a &lt; b", "0.288"), FIGURE + code)) == []


def test_what_a_drawing_is_said_to_show_and_its_own_words_are_each_in_order(shown):
    code = "\n```python\nx = 0.288, 0.377\n```\n"
    both = FIGURE.replace("Two boxes", "0.288 and 0.377") + code
    assert unsupported_numbers(shown(SVG.replace("a &lt; b", "0.288, 0.377"), both)) == []
    (report,) = unsupported_numbers(shown(SVG.replace("a &lt; b", "0.377, 0.288"), both))
    assert "0.288 comes too late" in report


def test_who_takes_a_page_away_gets_its_drawings_from_the_site(book, shown):
    page = shown(figure=FIGURE + "\n```python\nx = 1\n```\n")
    address = "](https://book.org/drawings/boxes.svg "
    taken = [export.markdown(page, "https://book.org/")]
    taken += export.runnable(page, "https://book.org/").values()
    assert len(taken) == 3
    for text in taken:
        assert address in text.replace('\\"', '"')
        assert "<svg" not in text
    again = book.page(taken[0], "elsewhere/page.md")
    assert read(again).shown == taken[0]
