"""Each table of a page stands in a box that scrolls, and one with a class of its own stays as it is."""

import pytest
from bs4 import BeautifulSoup
from markdown import markdown

ROWS = "| a | b |\n| --- | --: |\n| 1 | 2 |\n"


def convert(text):
    extensions = ["tables", "attr_list", "md_in_html", "admonition", "book.markdown.tables"]
    return BeautifulSoup(markdown(text, extensions=extensions), "html.parser")


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        f"before\n\n{ROWS}\nafter",
        "!!! note\n\n" + "".join(f"    {line}\n" for line in ROWS.split("\n")),
        f'<div markdown="1">\n\n{ROWS}\n</div>',
    ],
    ids=["alone", "between", "in a note", "in HTML"],
)
def test_a_table_stands_in_a_box_where_it_stood(text):
    soup = convert(text)
    box = soup.table.parent
    assert (box.name, box["class"]) == ("div", ["book-scroll"])
    assert soup.table["class"] == ["book-table"]
    assert [cell.get_text() for cell in box.find_all(["th", "td"])] == ["a", "b", "1", "2"]


def test_what_stands_around_two_tables_stays_in_its_place():
    soup = convert(f"one\n\n{ROWS}\ntwo\n\n{ROWS}\nthree")
    assert [tag.name for tag in soup.find_all(recursive=False)] == ["p", "div", "p", "div", "p"]
    assert [p.get_text() for p in soup.find_all("p")] == ["one", "two", "three"]
