"""A chart shows each number of a printed table where it stands, and says what it shows."""

import itertools
import math
import re

import pytest
from bs4 import BeautifulSoup
from hypothesis import given, settings
from hypothesis import strategies as st

from book.figures import FigureError, chart
from literate.page import PageError

TABLE = """\
   d  variance of scores  gradient
   4                3.98    0.1421
  16               15.80    0.0714
  64               63.10    0.0204
1024            1,019.70    0.0012"""


def chart_of(text, **options):
    return BeautifulSoup(chart.html(text, {"y": "a share"} | options), "html.parser").svg


def labels(svg):
    return [text.get_text() for text in svg.find_all("text")]


def marks(svg):
    """Where the mark of each number stands, for each line."""
    lines = re.findall(r'<path d="((?:M[\d.]+ [\d.]+m[^M"]+)+)"', str(svg))
    return [[(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)", d)] for d in lines]


def test_a_chart_says_in_words_what_it_shows():
    assert chart_of(TABLE)["aria-label"] == (
        "Line chart of a share against d, from 4 to 1024: variance of scores goes from 3.98 to 1019.7; "
        "gradient goes from 0.1421 to 0.0012."
    )


def test_every_number_of_the_table_has_its_mark_and_what_is_not_finite_leaves_a_gap():
    svg = chart_of("x y\n1 3\n2 1\n3 nan\n4 4\n5 2")
    (points,) = marks(svg)
    numbers = [(1, 3), (2, 1), (4, 4), (5, 2)]
    (left, _), *_, (right, _) = points
    low, high = points[1][1], points[2][1]
    for (x, y), (number, value) in zip(points, numbers, strict=True):
        assert x == pytest.approx(left + (right - left) * (number - 1) / 4, abs=0.2)
        assert y == pytest.approx(low + (high - low) * (value - 1) / 3, abs=0.2)
    assert re.search(r'd="M[^M"]+L[^M"]+M[^M"]+L[^M"]+"', str(svg))


def test_a_number_stands_at_the_height_of_its_tick():
    svg = chart_of("x y\n0 0\n1 50\n2 100")
    (points,) = marks(svg)
    ticks = {
        text.get_text(): float(text["y"]) for text in svg.find_all("text", {"text-anchor": "end"})
    }
    for (_, y), words in zip(points, ["0", "50", "100"], strict=True):
        assert words not in ticks or ticks[words] == pytest.approx(y + 3.5, abs=0.2)
    assert {"0", "100"} <= ticks.keys()


def test_an_axis_is_logarithmic_where_its_numbers_span_fifty_times_and_says_so():
    assert {"d (log scale)", "a share (log scale)"} <= {*labels(chart_of(TABLE))}
    assert "x (log scale)" in labels(chart_of("x y\n1 3\n50 1"))
    assert "log scale" not in str(chart_of("x y\n1 3\n49 1"))
    assert "log scale" not in str(chart_of("x y\n0 0\n500 -1\n1000 200"))


def test_ticks_are_written_as_a_reader_writes_them():
    assert {"0.00001", "0.001", "0.1", "10", "1,000"} <= {
        *labels(chart_of("x y\n1 0.000008\n2 2000"))
    }
    assert {"0.0", "0.2", "1.0"} <= {*labels(chart_of("x y\n1 0\n2 1"))}
    assert {"400,000", "1,000,000"} <= {*labels(chart_of("x y\n1 0\n2 1000000"))}


def test_lines_are_told_apart_by_dashes_and_marks_and_take_the_colours_of_the_page():
    svg = chart_of(TABLE)
    assert not re.findall(r"#[0-9a-f]{3}", str(svg))
    assert str(svg).count("stroke-dasharray") == 1  # the second line
    first, second = svg.find_all("path", style=re.compile(r"^fill:var"))
    assert first["d"].partition("m")[2].split("M")[0] != second["d"].partition("m")[2].split("M")[0]
    assert {"var(--line-1)", "var(--line-2)"} <= set(re.findall(r"var\([^)]*\)", str(svg)))


def test_each_of_several_lines_is_named_at_its_end_apart_from_the_others():
    names = ["low", "near it", "high", "as high"]
    svg = chart_of("  ".join(["d", *names]) + "\n1  2  2  5  5\n2  3  3.01  9  9")
    places = {
        text.get_text(): (float(text["x"]), float(text["y"])) for text in svg.find_all("text")
    }
    for name in names:
        assert chart.WIDTH * 0.75 < places[name][0] < chart.WIDTH - 5 * len(name)
    heights = sorted(places[name][1] for name in names)
    assert all(b - a >= 11 for a, b in itertools.pairwise(heights))
    assert heights[2] - heights[1] > 50  # two ends, of two names each
    early = chart_of("d  a  b\n1  5  1\n2  nan  9\n3  nan  9").find("text", string="a")
    assert float(early["x"]) < chart.WIDTH / 2  # at its last number


@pytest.mark.parametrize("name", ["_loss", "$y_$", "a_b^c", "\\\\alpha", "100%", "a < b"])
def test_the_name_of_a_line_is_shown_as_it_is_printed(name):
    assert name in labels(chart_of(f"x  y  {name}\n1  2  3\n2  3  4"))


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1,024", 1024),
        ("1,234,567.5", 1234567.5),
        ("-.5", -0.5),
        ("1e-05", 1e-05),
        ("5.", 5),
        ("inf", math.inf),
    ],
)
def test_a_number_in_a_chart_is_what_it_says(cell, value):
    assert chart.read_table(f"x y\n1 {cell}\n2 3").columns[1][0] == value


@pytest.mark.parametrize("cell", ["0,5", "1,02", "1,0245", "-", "--1", "1_000", "n/a", "٣", "1e5x"])
def test_what_is_no_number_stops_a_chart_at_its_line(book, cell):
    text = f"```python\nf()\n```\n\n```output chart\nx  y\n---  ---\n1  2\n2  {cell}\n3  4\n```\n"
    with pytest.raises(PageError, match=rf"^docs/page\.md:9: .*numbers, got '{re.escape(cell)}'"):
        book.read(text).check_drawn()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("d y", "a line of names and two or more of numbers, got 1"),
        ("d y\n1 2\n1 2 3", "line 3 of the fence: chart has 2 names, but 3 numbers in '1 2 3'"),
        ("x  y\n1  2\nnan  3", "line 3 of the fence: chart is made of numbers, got 'nan'"),
        ("d\n1\n2", "two or more columns, got 1"),
        ("d a b\n1 2 3\n2 3 4", "nothing says what a and b count; wanted y="),
    ],
)
def test_what_is_no_table_is_refused(text, said):
    with pytest.raises(FigureError, match=re.escape(said)):
        chart.check(text, {})


@pytest.mark.parametrize("rule", ["--- ---", "======", "|---|:--|", "+----+----+", "  "])
def test_a_line_under_the_names_of_a_chart_is_no_row(rule):
    read = chart.read_table(f"| x | y |\n{rule}\n| 1 | 2 |\n| 3 | 4 |")
    assert read.columns == [[1, 3], [2, 4]]


CELLS = st.sampled_from(
    ["0", "-1", "1", "0.5", "1e-38", "3e38", "-3e38", "1,024", "inf", "-inf", "nan"]
)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(CELLS.filter(lambda cell: cell[-1] not in "fn"), CELLS, CELLS),
        min_size=2,
        max_size=4,
    )
)
def test_a_table_that_can_be_read_can_be_shown(rows):
    text = "x  a  b\n" + "\n".join("  ".join(row) for row in rows)
    drawn = chart.html(text, {"y": "y"})
    assert drawn.count("<text") >= 3
    assert not re.search(r'(?:d|x|y)="[^"]*(?:nan|inf)', drawn)
