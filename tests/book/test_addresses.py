"""Every figure, output and exercise has an address that stays, and a link to it."""

import re

from bs4 import BeautifulSoup

from book.figures.output import html as output_figure
from book.markdown.addresses import addressed

OUTPUT = output_figure("1", {})
EXERCISE = "<p><strong>{}. Prove · easy.</strong> Why?</p>"


def ids(*parts):
    """The addresses that a page of these parts has, headings left out."""
    soup = BeautifulSoup(addressed("".join(parts)), "html.parser")
    return [one["id"] for one in soup.select("[id]") if not re.match("h[1-6]", one.name)]


def heading(name, level=2):
    return f'<h{level} id="{name}">{name}</h{level}>'


def test_an_address_is_the_section_and_the_kind():
    figure = '<figure class="diagram"><svg></svg><figcaption>A</figcaption></figure>'
    explorable = '<figure class="attention"><figcaption>A</figcaption></figure>'
    table = '<table class="lab-table"><caption>A</caption></table>'
    parts = (heading("a", 3), OUTPUT, figure, explorable, table)
    assert ids(*parts) == ["a-output", "a-figure", "a-explorable", "a-table"]
    assert ids(heading("title", 1), OUTPUT) == ["output"]


def test_an_output_added_in_another_section_or_further_down_leaves_an_address_as_it_is():
    before = ids(heading("a"), OUTPUT, heading("b"), OUTPUT)
    assert before == ["a-output", "b-output"]
    assert ids(heading("a"), OUTPUT, OUTPUT, heading("b"), OUTPUT, OUTPUT) == [
        *("a-output", "a-output-2"),
        *("b-output", "b-output-2"),
    ]


def test_a_heatmap_with_a_name_keeps_its_address_wherever_it_stands():
    named = output_figure("[[1, 2]]", {"heatmap": "", "name": "few"})
    assert ids(heading("a"), OUTPUT, named, OUTPUT) == [
        *("a-output", "few", "few-0-0", "few-0-1"),
        "a-output-2",
    ]


def test_an_exercise_is_a_section_of_its_own():
    parts = (EXERCISE.format(1), OUTPUT, EXERCISE.format(2), OUTPUT, heading("b"), OUTPUT)
    assert ids(*parts) == [
        *("exercise-1", "exercise-1-output"),
        *("exercise-2", "exercise-2-output"),
        "b-output",
    ]


def test_each_address_has_one_link_that_is_no_tab_stop_and_no_word_of_the_search():
    drawn = addressed(heading("a") + OUTPUT + EXERCISE.format(1) + "<p><strong>1. So</strong></p>")
    links = BeautifulSoup(drawn, "html.parser").select("a")
    assert [link["href"] for link in links] == ["#a-output", "#exercise-1"]
    assert {link["tabindex"] for link in links} == {"-1"}
    assert all(link.has_attr("data-search-exclude") for link in links)
    assert [link.parent.name for link in links] == ["figcaption", "p"]
