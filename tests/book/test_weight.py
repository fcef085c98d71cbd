"""A site is light: a style goes where nothing can match it, white space where it says nothing."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from book import weight


@pytest.fixture
def trimmed(tmp_path):
    """Return a function that trims `css` for a site of one page, and returns what stayed."""

    def trimmed(css, page='<p class="used" data-kind="one">', script="", own=""):
        files = {
            "assets/stylesheets/theme.css": css,
            "part/page.html": page,
            "assets/javascripts/theme.js": script,
            "assets/own.css": own,
        }
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        weight.trim(tmp_path)
        assert (tmp_path / "assets/own.css").read_text(encoding="utf-8") == own
        return (tmp_path / "assets/stylesheets/theme.css").read_text(encoding="utf-8")

    return trimmed


@pytest.mark.parametrize(
    "css",
    [
        ".used{a:b}",
        "p{a:b}",
        "#gone{a:b}",
        ".used:not(.gone){a:b}",
        "p:is(.gone,.used){a:b}",
        "p:where(:not(.gone)){a:b}",
        "[data-kind]{a:b}",
        "[data-kind=one]{a:b}",
        '[data-kind="one"]{a:b}',
        '[data-kind^="one"]{a:b}',
        "@media print{.used{a:b}}",
        "@supports (a:b){.used{a:b}}",
        "@font-face{a:b}",
        "@keyframes gone{from{a:b}}",
        '@charset "utf-8";.used{a:b}',
        '.used{a:"};.gone{"}',
    ],
)
def test_what_can_match_stays(trimmed, css):
    assert trimmed(css).replace(" ", "") == css.replace(" ", "")


@pytest.mark.parametrize(
    "css",
    [
        ".gone{a:b}",
        ".used .gone{a:b}",
        ".used.gone{a:b}",
        "p.gone:hover{a:b}",
        "[data-kind=two]{a:b}",
        "[data-kind~='two']{a:b}",
        "@media print{.gone{a:b}}",
        "@supports (a:b){.gone{a:b}}",
        ".gone{a:'}.used{'}",
        ".gone:is(p,:not(a,b)),[data-kind='a,b']{a:b}",
        "/* a remark */",
        "[data-md-color-switching] *,[data-md-color-switching] :after{a:b}",
    ],
)
def test_what_cannot_match_goes(trimmed, css):
    assert trimmed(css) == ""


def test_of_several_selectors_those_stay_that_can_match(trimmed):
    assert trimmed(".gone,.used:is(a,b),.gone p,p{a:b}") == ".used:is(a,b),p{a:b}"


def test_a_name_that_only_a_script_knows_stays(trimmed):
    script = 'element.className = "md-later", gone = "md-version md-source__facts"'
    css = ".md-later{a:b}.gone{a:b}.md-version,[class^=md-version]{a:b}.md-source__facts{a:b}"
    assert trimmed(css, script=script) == ".md-later{a:b}"


def test_a_word_of_the_text_keeps_no_style(trimmed):
    assert trimmed(".card{a:b}", page="<p>card</p>") == ""
    assert trimmed(".card{a:b}", page="<script>f('card')</script>") == ".card{a:b}"


def test_a_component_that_a_page_shows_stays(trimmed):
    css = ".md-version{a:b}"
    assert trimmed(css, page='<p class="md-version">', script="") == css


def test_a_picture_that_no_rule_reads_goes(trimmed):
    css = ':root{--a:url("x;y");--b:url(z);--c:red;--d:url("w")}p{mask:var(--a)}'
    left = trimmed(css, own="p{mask:var( --d )}")
    assert '--a:url("x;y")' in left
    assert '--d:url("w")' in left
    assert "--b" not in left
    assert "--c:red" in left


def test_a_picture_that_only_a_trimmed_rule_read_goes_too(trimmed):
    assert "--a" not in trimmed(":root{--a:url(x);}.gone{mask:var(--a)}")


def test_indentation_and_empty_lines_go():
    assert weight.close_up("<ul>\n\n   <li> a  b</li>  \n <li>") == "<ul>\n<li> a  b</li>\n<li>"


@pytest.mark.parametrize("tag", ["pre", "samp", "script", "style", "template", "textarea"])
def test_white_space_that_is_text_stays(tag):
    html = f"<p>\n<{tag} class='a'>\n\n  one\n   two\n</{tag}>\n<i>"
    assert weight.close_up(html) == html


def test_the_theme_s_script_still_has_what_is_cut_from_it():
    """After an upgrade that words it otherwise nothing would be cut, and nobody would know."""
    folder = Path(find_spec("material").origin).parent / "templates/assets/javascripts"
    whole = next(folder.glob("bundle.*.min.js")).read_text(encoding="utf-8")
    cut = weight.without_copying(whole)
    for part in ("clipboard.js", "--md-mermaid"):
        assert [part in script for script in (whole, cut)] == [True, False]
    assert len(cut) > 0.8 * len(whole)


def test_colours_that_follow_themselves_are_one():
    code = (
        '<pre><span></span><code><span class="s2">a</span> <span class="s2">b</span></code></pre>'
    )
    assert weight.close_up(code) == '<pre><code><span class="s2">a b</span></code></pre>'
    two = '<code><span class="k">a</span><span class="s2">b</span></code>'
    assert weight.close_up(two) == two


def test_the_words_of_the_search_keep_no_style(trimmed, tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/search-index.js").write_text("const words = ['card']", encoding="utf-8")
    assert trimmed(".card{a:b}") == ""


def test_a_name_or_an_operator_in_code_is_no_element(tmp_path):
    (tmp_path / "page.html").write_text(
        '<pre><span class="n">a</span> <span class="o">=</span> <span class="mi">1</span></pre>'
    )
    weight.minify(tmp_path)
    assert (tmp_path / "page.html").read_text() == '<pre>a = <span class="mi">1</span></pre>'


def test_a_part_of_a_string_is_no_element_of_its_own(tmp_path):
    parts = [
        ("sa", "f"),
        ("s2", '"a '),
        ("si", "{"),
        ("n", "x"),
        ("si", ":"),
        ("s2", ".2f"),
        ("si", "}"),
        ("s2", '"'),
    ]
    drawn = "".join(f'<span class="{kind}">{said}</span>' for kind, said in parts)
    (tmp_path / "page.html").write_text(f"<pre>{drawn}</pre>")
    weight.minify(tmp_path)
    wanted = '<pre><span class="s2">f"a {</span>x<span class="s2">:.2f}"</span></pre>'
    assert (tmp_path / "page.html").read_text() == wanted


def test_what_bears_another_name_in_code_keeps_its_colour():
    """The theme has one colour for both, or none for the one that is left out."""
    folder = Path(find_spec("material").origin).parent / "templates/assets/stylesheets"
    styles = next(folder.glob("main.*.min.css")).read_text(encoding="utf-8")
    rules = re.findall(r"((?:\.highlight \.\w+,?)+)\{color:var\((--[\w-]+)\)\}", styles)
    colours = {
        kind: colour for kinds, colour in rules for kind in re.findall(r"\.(\w+)(?=,|$)", kinds)
    }
    ink = [f"--md-code-hl-{name}-color" for name in ("name", "operator", "punctuation")]
    for kind, name in weight.COLOURS.items():
        assert colours.get(kind) in ([None, colours[name]] if name else [None, *ink])
