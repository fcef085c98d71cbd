"""An output shows what was printed, to the letter; its fence says how, or what is wrong."""

import re

import html5lib
import pytest
from bs4 import BeautifulSoup
from markdown import Markdown
from pymdownx.superfences import SuperFencesException

from book.figures import output
from book.figures.options import check
from book.markdown import fences

FENCE = {
    "name": "output",
    "class": "output",
    "validator": fences.output_validator,
    "format": fences.output_format,
}
WEIGHTS = "tensor([[1.0000, 0.0000],\n        [0.5517, 0.4483]])"


def drawn(markdown):
    """A page of the site, checked to be valid HTML."""
    site = Markdown(
        extensions=["attr_list", "md_in_html", "pymdownx.superfences"],
        extension_configs={"pymdownx.superfences": {"custom_fences": [FENCE]}},
    )
    html = site.convert(markdown)
    html5lib.HTMLParser(strict=True).parseFragment(html)
    return BeautifulSoup(html, "html.parser")


def figure(text, options=""):
    return drawn(f"```output {options}\n{text}\n```\n").figure


def test_plain_output_shows_the_exact_text():
    shown = figure("a < b & c\n  tensor(1.)")
    assert shown["class"] == ["output"]
    assert shown.pre.text == "a < b & c\n  tensor(1.)"
    assert shown.figcaption.text == "Output"


def test_an_indented_output_is_shown_like_any_other():
    indented = re.sub("^", "    ", f"```output heatmap\n{WEIGHTS}\n```", flags=re.M)
    assert drawn(f"1. item\n\n{indented}\n").table.td


def test_the_caption_the_exception_and_the_reason_to_vary_are_shown_as_they_are_written():
    assert "where i < j <b>& k" in figure("1", 'caption="where i < j <b>& k"').figcaption.text
    assert figure("IndexError: no", 'raises="IndexError"').figcaption.text == "Ends in IndexError"
    varies = figure("1", 'varies="dropout <b>"').figcaption.text
    assert "Differs between platforms: dropout <b>." in varies


def test_the_text_of_a_figure_stays_one_keystroke_away_and_out_of_the_search():
    for text, options in ((WEIGHTS, "heatmap"), ("x y\n1 2\n2 3", "chart")):
        shown = figure(text, options).details
        assert shown.pre.text == text
        assert shown.has_attr("data-search-exclude")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("heatmpa", "unknown option `heatmpa`"),
        ('rows="a b"', "`rows` is of a `heatmap`"),
        ('heatmap name="The first"', "is not a word in small letters"),
        ("heatmap chart", "not both"),
        ('heatmap rows="a"', 'rows="a" gives 1 labels'),
    ],
)
def test_a_wrong_option_stops_the_build_and_says_what_was_wanted(options, said):
    with pytest.raises(SuperFencesException, match=re.escape(said)):
        figure(WEIGHTS, options)


def test_a_text_that_cannot_be_shown_is_refused_before_the_build():
    check(WEIGHTS, {"heatmap": "", "rows": "a b"})
    check("tensor([[1., ...", {})
    for text, options in (("1", {"heatmap": ""}), ("d y", {"chart": ""}), ("1", {"wide": ""})):
        with pytest.raises(ValueError, match=r"two or more|unknown option"):
            check(text, options)


def printed(text):
    return BeautifulSoup(output.html(text, {}), "html.parser").samp


def test_what_is_said_of_a_name_goes_on_below_itself_on_a_phone():
    text = "date      2026\nversions  Python, PyTorch and what else there is in it\nnone"
    said = printed(text)
    assert said.get_text() == text
    assert [line["style"] for line in said.select(".line")] == ["--in:8", "--in:8", "--in:0"]


def test_a_row_of_signs_that_are_counted_is_not_wrapped():
    text = "A rwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww\nB ...............rwwwwwww"
    assert printed(text)["class"] == ["columns"]
    assert printed("a b c d e f g h i j k l m n o p q r s t u v w x y z")["class"] == ["long"]
