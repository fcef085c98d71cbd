"""A site is light: a style goes where nothing can match it, and code has an element for each colour."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from book.minify import COLOURS, close_up, coloured, minify


@pytest.fixture
def kept(tmp_path):
    """Return a function that minifies a site of one page, and returns what stays of the theme's `css`."""

    def kept(css, page='<p class="used" data-kind="one">', script="", own=""):
        files = {
            "assets/stylesheets/theme.css": css,
            "part/page.html": page,
            "assets/javascripts/theme.js": script,
            "assets/search-index.js": "const words = ['card']",
            "assets/own.css": own,
        }
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        minify(tmp_path)
        return (tmp_path / "assets/stylesheets/theme.css").read_text(encoding="utf-8")

    return kept


@pytest.mark.parametrize(
    "css",
    [
        ".used{a:b}",
        "p{a:b}",
        ".used:not(.gone){a:b}",
        "p:is(.gone,.used){a:b}",
        "[data-kind=one]{a:b}",
        '[data-kind^="one"]{a:b}',
        "@media print{.used{a:b}}",
        "@supports (a:b){.used{a:b}}",
        "@keyframes gone{from{a:b}}",
        '.used{a:"};.gone{"}',
    ],
)
def test_what_can_match_stays(kept, css):
    assert kept(css) == css


@pytest.mark.parametrize(
    "css",
    [
        ".used .gone{a:b}",
        "p.gone:hover{a:b}",
        "[data-kind~='two']{a:b}",
        "@media print{.gone{a:b}}",
        ".gone:is(p,:not(a,b)),[data-kind='a,b']{a:b}",
        "/* a remark */",
        ".card{a:b}",  # a word of the search alone
        "[data-md-color-switching] *,[data-md-color-switching] :after{a:b}",
    ],
)
def test_what_cannot_match_goes(kept, css):
    assert kept(css) == ""


def test_of_several_selectors_those_stay_that_can_match(kept):
    assert kept(".gone,.used:is(a,b),.gone p,p{a:b}") == ".used:is(a,b),p{a:b}"


def test_a_name_that_only_a_script_knows_stays_and_a_word_of_the_text_keeps_nothing(kept):
    css = ".md-later{a:b}.gone{a:b}.md-version{a:b}"
    script = 'element.className = "md-later", gone = "md-version"'
    assert kept(css, page="<p>gone</p>", script=script) == ".md-later{a:b}"


def test_a_picture_that_no_rule_reads_goes(kept):
    css = ':root{--a:url("x;y");--b:url(z);--c:red}.gone{mask:var(--b)}p{mask:var(--a)}'
    assert kept(css) == ':root{--a:url("x;y");--c:red}p{mask:var(--a)}'
    assert "--b" in kept(css, own="p{mask:var(--b)}")


def test_white_space_goes_where_it_is_no_text():
    assert close_up("<ul>\n\n   <li> a  b</li>  \n <li>") == "<ul>\n<li> a  b</li>\n<li>"
    html = "<p>\n<samp class='a'>\n\n  one\n   two\n</samp>\n<i>"
    assert close_up(html) == html


def test_code_has_an_element_for_each_stretch_of_a_colour():
    parts = [("sa", "f"), ("s2", '"a '), ("si", "{"), ("n", "x"), ("si", ":"), ("s2", '.2f"')]
    code = "".join(f'<span class="{kind}">{said}</span>' for kind, said in parts)
    assert coloured(code) == '<span class="s2">f"a {</span>x<span class="s2">:.2f"</span>'
    two = '<code><span class="k">a</span><span class="s2">b</span></code>'
    assert coloured(two) == two


def test_what_bears_another_name_in_code_keeps_its_colour():
    """The theme has one colour for both, or none for the one that is left out."""
    folder = Path(find_spec("material").origin).parent / "templates/assets/stylesheets"
    styles = next(folder.glob("main.*.min.css")).read_text(encoding="utf-8")
    rules = re.findall(r"((?:\.highlight \.\w+,?)+)\{color:var\((--[\w-]+)\)\}", styles)
    colours = {
        kind: colour for kinds, colour in rules for kind in re.findall(r"\.(\w+)(?=,|$)", kinds)
    }
    ink = [f"--md-code-hl-{name}-color" for name in ("name", "operator", "punctuation")]
    for kind, name in COLOURS.items():
        assert colours.get(kind) in ([None, colours[name]] if name else [None, *ink])
