"""Figures are the checked text: what is drawn is what was printed, and readable in both schemes."""

import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import html5lib
import pytest
import torch
from bs4 import BeautifulSoup
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown import Markdown
from pymdownx.superfences import SuperFencesException

from book.figures import attention, tables
from book.figures import output as outputs
from book.figures.drawn import figure as output_figure
from book.markdown import fences
from literate import numerals
from literate.page import PageError
from tests.book import by_torch

ROOT = Path(__file__).parents[2]
FENCES = [
    {
        "name": "output",
        "class": "output",
        "validator": fences.output_validator,
        "format": fences.output_format,
    },
    {
        "name": "attention",
        "class": "attention",
        "validator": fences.attention_validator,
        "format": fences.attention_format,
    },
]
WEIGHTS = """\
tensor([[1.0000, 0.0000, 0.0000],
        [0.5517, 0.4483, 0.0000],
        [0.3800, 0.3097, 0.3103]])"""
TABLE = """\
   d  variance of scores  gradient
   4                3.98    0.1421
  16               15.80    0.0714
  64               63.10    0.0204
1024            1,019.70    0.0012"""
BANK = """\
caption: What does bank take?
tokens: river bank mud
embeddings:
  - [1.2, 0.0, 0.0, 0.3]
  - [0.8, 0.8, 0.2, 0.0]
  - [0.9, 0.0, 0.0, 0.9]
query: bank
"""


def draw(markdown):
    """A page of the site, drawn as both builders draw it, checked to be valid HTML."""
    site = Markdown(
        extensions=["attr_list", "md_in_html", "pymdownx.superfences"],
        extension_configs={"pymdownx.superfences": {"custom_fences": FENCES}},
    )
    html = site.convert(markdown)
    html5lib.HTMLParser(strict=True).parseFragment(html)
    return BeautifulSoup(html, "html.parser")


def output(text, options=""):
    return draw(f"```output {options}\n{text}\n```\n").figure


def cells(table):
    return [[cell.text for cell in row.find_all("td")] for row in table.tbody.find_all("tr")]


def words(table):
    """Row labels and column labels of a heatmap."""
    return [th.text for th in table.tbody.find_all("th")], [
        th.text for th in table.thead.find_all("th")
    ]


def titles(drawn):
    """What each caption says before its key."""
    return [caption.contents[0].strip() for caption in drawn.find_all("caption")]


# ------------------------------------------------------------------------------- plain output


def test_plain_output_shows_the_exact_text():
    figure = output("a < b & c\n  tensor(1.)")
    assert figure["class"] == ["output"]
    assert figure.pre.text == "a < b & c\n  tensor(1.)"
    assert figure.figcaption.text == "Output"


def test_an_indented_output_is_drawn_like_any_other():
    figure = draw(
        f"1. item\n\n    ```output heatmap\n{re.sub('^', '    ', WEIGHTS, flags=re.M)}\n    ```\n"
    ).figure
    assert cells(figure.table)[1] == ["0.5517", "0.4483", "0.0000"]


def test_the_caption_the_exception_and_the_reason_to_vary_are_shown():
    assert "A caption & more" in output("1", 'caption="A caption & more"').figcaption.text
    assert output("IndexError: no", 'raises="IndexError"').figcaption.text == "Ends in IndexError"
    assert "Differs between platforms: dropout." in output("1", 'varies="dropout"').figcaption.text


@pytest.mark.parametrize("option", ["caption", "varies"])
def test_a_caption_shows_its_signs_and_tags_as_they_are_written(option):
    assert "where i < j <b>& k" in output("1", f'{option}="where i < j <b>& k"').figcaption.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("heatmpa", "unknown option `heatmpa`"),
        ('rows="a b"', "`rows` is of a `heatmap`"),
        ('name="first"', "`name` is of a `heatmap`"),
        ("plain", "`plain` is of a `heatmap`"),
        ('heatmap name="The first"', "is not a word in small letters"),
        ("heatmap chart", "not both"),
        (
            'heatmap rows="a b"',
            'rows="a b" gives 2 labels, but the tensor of shape (3, 3) has 3 rows',
        ),
        ('heatmap cols="a b c d"', "gives 4 labels, but the tensor of shape (3, 3) has 3 columns"),
    ],
)
def test_a_wrong_option_stops_the_build_and_says_what_was_wanted(options, said):
    with pytest.raises(SuperFencesException, match=re.escape(said)):
        output(WEIGHTS, options)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("tensor([1., 2.])", {"heatmap": ""}, "two or more dimensions, got none"),
        ("tensor([[1., ..., 2.]])", {"heatmap": ""}, "abbreviated with '...'"),
        ("tensor([[1., 2.], [3.]])", {"heatmap": ""}, "rows of one length, got (1,) and (2,)"),
        ("tensor([[1., x]])", {"heatmap": ""}, "made of numbers, got ' x]])'"),
        ("tensor([[1.2.3]])", {"heatmap": ""}, "made of numbers, got '1.2.3]])'"),
        ("tensor([[1., 2.]", {"heatmap": ""}, "got ''"),
        ("d y", {"chart": ""}, "a line of names and two or more of numbers, got 1"),
        ("d y\n1 2\n1 2 3", {"chart": ""}, "2 names, but 3 numbers in '1 2 3'"),
        (
            "d y\n1 2\n1 many",
            {"chart": ""},
            "line 3 of the fence: chart is made of numbers, got 'many'",
        ),
        ("d\n1\n2", {"chart": ""}, "two or more columns, got 1"),
        ("d a b\n1 2 3\n2 3 4", {"chart": ""}, "nothing says what a and b count; wanted y="),
        ("1", {"wide": ""}, "unknown option `wide`"),
    ],
)
def test_a_text_that_cannot_be_drawn_is_refused_before_the_build(text, options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        outputs.check(text, options)


def test_a_text_that_can_be_drawn_passes_the_check():
    outputs.check(WEIGHTS, {"heatmap": "", "rows": "a b c"})
    outputs.check(TABLE, {"chart": "", "y": "a share"})
    outputs.check("tensor([[1., ...", {})


def test_drawing_needs_neither_torch_nor_until_a_chart_comes_matplotlib():
    code = (
        "import sys, book.figures.drawn as f; f.figure('[[1, 2]]', {'heatmap': ''});"
        "sys.exit(' '.join({'torch', 'matplotlib', 'numpy'} & set(sys.modules)) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_nothing_is_kept_between_pages():
    page = f'```output heatmap\n{WEIGHTS}\n```\n\n```output chart y="a share"\n{TABLE}\n```\n\n```attention\n{BANK}\n```\n'
    assert str(draw(page)) == str(draw(page))


# ------------------------------------------------------------------------------------ heatmaps


def test_a_heatmap_is_a_table_with_a_caption_scoped_headers_and_one_tab_stop():
    table = output(WEIGHTS, 'heatmap rows="a b c" cols="x y z"').table
    assert words(table) == (["a", "b", "c"], ["x", "y", "z"])
    assert {th["scope"] for th in table.tbody.find_all("th")} == {"row"}
    assert {th["scope"] for th in table.thead.find_all("th")} == {"col"}
    assert table.caption.text.startswith("3 × 3 tensor")
    assert len(table.select("[tabindex]")) == 1
    assert table.td.text == ""  # the corner: an empty header would name nothing


def test_without_labels_rows_and_columns_carry_the_indices_that_python_uses():
    assert words(output(WEIGHTS, "heatmap").table) == (["0", "1", "2"], ["0", "1", "2"])


def test_a_zero_is_hatched_as_a_masked_cell_is_unless_the_map_is_plain():
    text = "tensor([[0.0000, 1.0000]])"
    assert output(text, "heatmap").select("td.z") != []
    assert output(text, "heatmap plain").select("td.z, .hatch") == []
    infinite = "tensor([[0.0000, -inf]])"
    assert [cell.text for cell in output(infinite, "heatmap plain").select("td.z")] == ["-inf"]


def test_each_cell_of_a_heatmap_that_has_a_name_has_one_too():
    (table,) = BeautifulSoup(
        tables.heatmaps("tensor([[1, 2], [3, 4]])", name="few"), "html.parser"
    ).find_all("table")
    assert {cell["id"]: cell.text for cell in table.tbody.find_all("td")} == {
        "few-0-0": "1",
        "few-0-1": "2",
        "few-1-0": "3",
        "few-1-1": "4",
    }
    second = BeautifulSoup(tables.heatmaps("[[[1, 2]], [[3, 4]]]", name="few"), "html.parser")
    assert second.find(id="few-1-0-1").text == "4"
    assert not output(WEIGHTS, "heatmap").select("td[id]")


def test_the_exact_text_stays_one_keystroke_away_and_out_of_the_search():
    details = output(WEIGHTS, "heatmap").details
    assert details.pre.text == WEIGHTS
    assert details.has_attr("data-search-exclude")


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    kind=st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16]),
    seed=st.integers(0, 99),
    exponent=st.integers(-6, 8),
)
def test_every_cell_of_every_slice_is_what_torch_printed(shape, kind, seed, exponent):
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 10.0**exponent
    if kind.is_floating_point and seed % 3 == 0:
        drawn[..., -1] = [-math.inf, math.nan, math.inf][seed // 3 % 3]
    printed = str(
        drawn.nan_to_num(0, 0, 0).to(kind) if not kind.is_floating_point else drawn.to(kind)
    )
    drawn_tables = BeautifulSoup(tables.heatmaps(printed), "html.parser").find_all("table")
    values = torch.tensor(
        [[[tables.number(cell) for cell in row] for row in cells(t)] for t in drawn_tables]
    )
    names = {"tensor": torch.tensor, "torch": torch, "inf": math.inf, "nan": math.nan}
    read = eval(printed.replace("bfloat16", "float32"), names).float()
    assert torch.equal(values.float().view(shape).nan_to_num(9e9), read.nan_to_num(9e9))


def test_what_the_block_said_around_its_tensors_is_kept():
    text = f"Two heads\nScores:\n{WEIGHTS}\nWeights = {WEIGHTS}\nrow sums: tensor([1., 1., 1.])"
    figure = output(text, "heatmap")
    assert titles(figure) == ["Scores", "Weights"]
    assert [said.text for said in figure.select(".said")] == [
        "Two heads",
        "row sums: tensor([1., 1., 1.])",
    ]


def test_each_slice_of_a_batch_is_named_by_its_index():
    text = str(torch.arange(16).view(2, 2, 2, 2))
    drawn = output(f"heads: {text}", "heatmap")
    assert titles(drawn) == ["heads[0, 0]", "heads[0, 1]", "heads[1, 0]", "heads[1, 1]"]


def test_a_printed_list_of_lists_is_drawn_and_brackets_in_a_sentence_are_not():
    figure = output("pairs [[a, b]] and [[1, 2], [3, 4]]", "heatmap")
    assert cells(figure.table) == [["1", "2"], ["3", "4"]]
    assert "[[a, b]]" in figure.text


def shades(text):
    """Class and shade of each cell, and the key, of the one tensor in `text`."""
    table = output(text, "heatmap").table
    found = [
        (
            " ".join(td.get("class", [])),
            float(re.search(r"--v:([\d.]+)", td["style"])[1]) if td.has_attr("style") else None,
        )
        for td in table.tbody.find_all("td")
    ]
    return found, " ".join(table.select_one(".key").text.split())


def test_weights_are_shaded_from_zero_and_what_the_mask_emptied_is_hatched():
    found, key = shades("tensor([[1.0000, 0.0000], [0.2500, 0.7500]])")
    assert found == [("", 1.0), ("z", None), ("", 0.25), ("", 0.75)]
    assert key == "0 1 0.0000"


@pytest.mark.parametrize(
    ("text", "shaded"),
    [
        ("tensor([[0.33, 0.33, 0.33]])", [0.33] * 3),  # they sum to 1 as far as they are printed
        (
            "tensor([[0.6, 0.4], [0.0, 0.0]])",
            [0.6, 0.4, None, None],
        ),  # a row that attends to nothing
        ("tensor([[0.6, 0.3]])", [1.0, 0.5]),  # no weights
        ("tensor([[0.3], [0.6]])", [0.5, 1.0]),  # a column of one
    ],
)
def test_weights_are_shaded_from_zero_to_one_whatever_they_are(text, shaded):
    assert [shade for _, shade in shades(text)[0]] == shaded


def test_slices_of_one_tensor_share_a_scale():
    figure = output("tensor([[[4., 1.]], [[2., 1.]]])", "heatmap")
    drawn = [td["style"] for td in figure.find_all("td") if td.has_attr("style")]
    assert drawn == ["--v:1.00", "--v:.25", "--v:.50", "--v:.25"]


def test_scores_of_both_signs_get_a_scale_that_is_even_about_zero():
    found, key = shades("tensor([[-2.0, 1.0], [-inf, 0.5]])")
    assert found == [("n", 1.0), ("", 0.5), ("z", None), ("", 0.25)]
    assert key == "-2.0 2.0 -inf"


def test_values_far_from_zero_are_shaded_from_the_smallest_and_the_key_says_so():
    found, key = shades("tensor([[150., 160.], [155., 152.]])")
    assert found == [("", 0.0), ("", 1.0), ("", 0.5), ("", 0.2)]
    assert key == "150. 160."


def test_negative_values_alone_keep_their_own_hue():
    found, key = shades("tensor([[-4., -1.]])")
    assert found == [("n", 1.0), ("n", 0.25)]
    assert key == "-4. 0"


def test_a_boolean_mask_shades_true_and_hatches_false():
    found, key = shades("tensor([[ True, False]])")
    assert found == [("", 1.0), ("z", None)]
    assert key == "True False"


def test_nan_is_marked_and_does_not_disturb_the_scale():
    found, key = shades("tensor([[nan, 1.], [inf, 4.]])")
    assert found == [("q", None), ("", 0.25), ("", 1.0), ("", 1.0)]
    assert key == "0 4. nan"


def test_a_tensor_of_zeros_has_no_shade_at_all():
    assert shades("tensor([[0., -0.]])")[0] == [("z", None)] * 2


# ------------------------------------------------------------------------------------ contrast

CSS = (ROOT / "docs/assets/figures.css").read_text(encoding="utf-8")
BOOK = (ROOT / "docs/assets/book.css").read_text(encoding="utf-8")


def colours(scheme):
    """The colours that a scheme names, `{name: (r, g, b)}`, from 0 to 1."""
    blocks = re.findall(rf'\[data-md-color-scheme="{scheme}"\] \{{(.*?)\}}', BOOK + CSS, re.S)
    named = re.findall(r"--((?:book|heat|line)[\w-]*): #([0-9a-f]{6});", "".join(blocks))
    return {
        name: tuple(int(value[i : i + 2], 16) / 255 for i in (0, 2, 4)) for name, value in named
    }


def contrast(one, other):
    """Contrast ratio of two colours, by WCAG 2.2."""

    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize("hue", ["heat-1", "heat-minus"])
def test_the_number_in_a_cell_is_readable_at_every_shade(scheme, hue):
    named = colours(scheme)
    for shade in range(101):
        share = shade / 100
        behind = [
            share * deep + (1 - share) * pale
            for deep, pale in zip(named[hue], named["heat-0"], strict=True)
        ]
        assert contrast(named["heat-ink"], behind) >= 4.5, (scheme, hue, share)


@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize(
    ("front", "behind"),
    [
        ("heat-ink", "heat-stripe"),
        ("book-quiet", "book-paper"),
        ("book-quiet", "book-raised"),
        ("book-accent", "book-accent-wash"),
        ("book-accent", "book-raised"),
        ("book-paper", "book-accent"),
    ],
)
def test_labels_keys_and_stripes_are_readable(scheme, front, behind):
    named = colours(scheme)
    assert contrast(named[front], named[behind]) >= 4.5


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_the_lines_of_a_chart_stand_out_from_the_page(scheme):
    named = colours(scheme)
    for line in range(1, 5):
        assert contrast(named[f"line-{line}"], named["book-paper"]) >= 3


def test_shades_grow_with_the_value_on_either_scheme():
    for scheme in ("default", "slate"):
        named = colours(scheme)
        for hue in ("heat-1", "heat-minus"):
            assert contrast(named[hue], named["heat-0"]) >= 1.9, (scheme, hue)


# -------------------------------------------------------------------------------------- charts


def test_a_chart_is_small_repeats_to_the_byte_and_carries_no_ids():
    drawn = tables.chart(TABLE, y_name="a share")
    assert drawn == tables.chart(TABLE, y_name="a share")
    assert len(drawn) < 12_000
    assert 'id="' not in drawn
    assert "DejaVu" not in drawn
    assert "<use" not in drawn


def test_a_chart_says_in_words_what_it_shows():
    words = output(TABLE, 'chart y="a share"').svg["aria-label"]
    assert words == (
        "Line chart of a share against d, from 4 to 1024: variance of scores goes from 3.98 to 1019.7; "
        "gradient goes from 0.1421 to 0.0012."
    )


def test_a_chart_takes_its_colours_from_the_page_and_tells_lines_apart_without_them():
    drawn = tables.chart(TABLE, y_name="a share")
    assert not re.findall(r"#[0-9a-f]{6}", drawn)
    assert {"currentColor", "var(--line-1)", "var(--line-2)"} <= set(
        re.findall(r"currentColor|var\([^)]*\)", drawn)
    )
    assert drawn.count("stroke-dasharray") == 1  # the second line


def test_every_number_of_the_table_is_a_point_in_its_place():
    drawn = tables.chart("x y\n1 3\n2 1\n3 2\n4 4")
    points = [tuple(map(float, p)) for p in re.findall(r'translate\(([\d.]+) ([\d.]+)\)"', drawn)]
    assert len(points) == 4
    (left, _), *_, (right, _) = points
    low, high = points[1][1], points[3][1]
    for (x, y), number, value in zip(points, (1, 2, 3, 4), (3, 1, 2, 4), strict=True):
        assert x == pytest.approx(left + (right - left) * (number - 1) / 3, abs=0.3)
        assert y == pytest.approx(low + (high - low) * (value - 1) / 3, abs=0.3)


def test_axes_are_logarithmic_where_the_numbers_span_decades_and_say_so():
    assert "d (log scale)" in tables.chart(TABLE, y_name="a share")
    assert "log scale" not in tables.chart("x y\n1 3\n2 1\n3 2")
    assert "log scale" not in tables.chart("x y\n0 0\n500 -1\n1000 200")


def ends_of(drawn, names):
    """Where the name of each line begins, in the drawing: x and y."""
    return [
        [float(re.search(rf'{axis}="([\d.]+)"[^>]*>{name}<', drawn)[1]) for axis in "xy"]
        for name in names
    ]


def test_each_line_of_a_chart_is_named_at_its_end_apart_from_the_others():
    names = ["low", "near it", "high", "as high"]
    drawn = tables.chart("  ".join(["d", *names]) + "\n1  2  2  5  5\n2  3  3.01  9  9", y_name="y")
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])
    ends = ends_of(drawn, names)
    for name, (left, _) in zip(names, ends, strict=True):
        assert width * 0.75 < left < width - 5 * len(name)
    heights = sorted(y for _, y in ends)
    assert all(b - a >= 11 for a, b in itertools.pairwise(heights))
    assert heights[2] - heights[1] > 50  # two ends, of two names each


def test_the_name_of_a_line_stands_at_its_last_number():
    drawn = tables.chart("d  a  b\n1  5  1\n2  nan  9\n3  nan  9", y_name="y")
    (early, _), (late, _) = ends_of(drawn, ["a", "b"])
    assert early < late - 100


def test_axes_say_what_they_count():
    drawn = output(TABLE, 'chart x="width, d" y="a share"').svg
    words = [text.get_text() for text in drawn.find_all("text")]
    assert {"width, d (log scale)", "a share (log scale)"} <= {*words}


def test_the_numbers_of_a_chart_stay_one_keystroke_away():
    assert output(TABLE, 'chart y="a share"').details.pre.text == TABLE


@pytest.mark.parametrize("name", ["_loss", "$y_$", "$y$", "a_b^c", "\\\\alpha", "100%"])
def test_the_name_of_a_line_is_drawn_as_it_is_printed(name):
    drawn = BeautifulSoup(
        tables.chart(f"x  y  {name}\n1  2  3\n2  3  4", y_name="y"), "html.parser"
    )
    assert name in [text.get_text() for text in drawn.find_all("text")]


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
    assert tables.read_table(f"x y\n1 {cell}\n2 3").columns[1][0] == value


@pytest.mark.parametrize("cell", ["0,5", "1,02", "1,0245", "-", "--1", "1_000", "n/a", "٣", "1e5x"])
def test_what_is_no_number_stops_a_chart_at_its_line(book, cell):
    text = f"```python\nf()\n```\n\n```output chart\nx  y\n---  ---\n1  2\n2  {cell}\n3  4\n```\n"
    with pytest.raises(PageError, match=rf"^docs/page\.md:9: .*numbers, got '{re.escape(cell)}'"):
        book.read(text).check_drawn()


@pytest.mark.parametrize("row", ["-  -", "2", "2 3 4", "- -"])
def test_a_row_that_is_not_like_the_others_stops_a_chart_at_its_line(row):
    with pytest.raises(tables.DrawingError, match=r"^line 3 of the fence: "):
        tables.read_table(f"x  y\n1  2\n{row}\n3  4")


@pytest.mark.parametrize("cell", ["inf", "nan"])
def test_a_chart_needs_to_know_where_a_point_stands(cell):
    with pytest.raises(tables.DrawingError, match=r"^line 3 of the fence: .*got '" + cell):
        tables.read_table(f"x  y\n1  2\n{cell}  3")


@pytest.mark.parametrize(
    "rule", ["--- ---", "======", "|---|:--|", "+----+----+", "| --- | --- |", "  "]
)
def test_a_line_under_the_names_of_a_chart_is_no_row(rule):
    assert tables.read_table(f"| x | y |\n{rule}\n| 1 | 2 |\n| 3 | 4 |").columns == [
        [1, 3],
        [2, 4],
    ]


CELLS = st.sampled_from(
    ["0", "-1", "1", "0.5", "1e-38", "3e38", "-3e38", "1,024", "inf", "-inf", "nan"]
)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(
        st.tuples(CELLS.filter(lambda cell: cell[-1] not in "fn"), CELLS, CELLS),
        min_size=2,
        max_size=4,
    )
)
def test_a_table_that_can_be_read_can_be_drawn(rows):
    text = "x  a  b\n" + "\n".join("  ".join(row) for row in rows)
    assert tables.chart(text, y_name="y").count("<text") >= 3


def test_names_in_a_chart_may_hold_spaces_bars_and_markup():
    table = tables.read_table("| d | a < b |\n|---|---|\n| 1 | 2 |\n| 2 | 3 |")
    assert table.names == ["d", "a < b"]
    assert "a &lt; b" in tables.chart("d  a < b\n1  2\n2  3")


# -------------------------------------------------------------------------------- explorables


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "line 1 of the fence: empty"),
        ("- 1", "line 1 of the fence: wanted `key: value` lines, got a sequence"),
        ("tokens: a b\ntoken: c", "line 2 of the fence: unknown key 'token'"),
        ("tokens: a b\ntokens: a b", "line 2 of the fence: tokens is given twice"),
        ("tokens: [a, b", "of the fence: expected ',' or ']'"),
        ("embeddings: [[1]]", "line 1 of the fence: tokens is missing"),
        ("tokens: a", "line 1 of the fence: embeddings is missing"),
        ("tokens: [1, 2]\nembeddings: [[1], [2]]", "line 1 of the fence: tokens wants words"),
        (f"tokens: {'a ' * 13}", "line 1 of the fence: wanted 1 to 12 tokens, got 13"),
        ("tokens: a b\nembeddings:\n - [1]\n - [x]", "line 4 of the fence: wanted a number"),
        ("tokens: a b\nembeddings:\n - [1]\n - [.nan]", "line 4 of the fence: wanted a number"),
        ("tokens: a b\nembeddings:\n - [1]\n - [true]", "line 4 of the fence: wanted a number"),
        (
            "tokens: a b\nembeddings:\n - [1]\n - [20000]",
            "line 4 of the fence: wanted a number from -10000 to 10000",
        ),
        (
            "tokens: a b\nembeddings:\n - [1]\n - [1, 2]",
            "line 4 of the fence: embeddings has rows of 1 and of 2",
        ),
        (
            "tokens: a b\nembeddings:\n - [1]\n - 2",
            "line 4 of the fence: embeddings wants rows like",
        ),
        (
            "tokens: a b\nembeddings: 3",
            "line 2 of the fence: embeddings wants a list of rows, got '3'",
        ),
        (
            "tokens: a b\nembeddings: [[1]]",
            "line 2 of the fence: embeddings has 1 rows, wanted 2 as the tokens",
        ),
        (
            "tokens: a\nembeddings: [[1]]\nqueries: [[1]]",
            "line 3 of the fence: queries and embeddings exclude",
        ),
        (
            "tokens: a\nqueries: [[1]]\nkeys: [[1]]",
            "values is missing; wanted queries, keys, values",
        ),
        (
            "tokens: a\nqueries: [[1]]\nkeys: [[1, 2]]\nvalues: [[1]]",
            "line 3 of the fence: keys has 2 columns, wanted 1",
        ),
        ("tokens: a\nembeddings: [[1]]\nW_key: [[1]]", "W_query is missing"),
        (
            "tokens: a\nembeddings: [[1, 2]]\nW_query: [[1]]\nW_key: [[1]]\nW_value: [[1]]",
            "line 3 of the fence: W_query has 1 rows, wanted 2 as the embedding",
        ),
        (BANK + "query: loan", "query is given twice"),
        (
            BANK.replace("query: bank", "query: loan"),
            "line 7 of the fence: query wants one of river bank mud",
        ),
        (
            BANK.replace("query: bank", "query: 3"),
            "line 7 of the fence: query wants one of river bank mud",
        ),
        (BANK + "hidden: loan", "line 8 of the fence: hidden wants one of river bank mud"),
        (BANK + "step: softmax", "line 8 of the fence: step wants any of scores, scaled"),
        (BANK + "controls: query zoom", "line 8 of the fence: controls wants any of query, step"),
        (BANK + "causal: 1", "line 8 of the fence: causal wants true or false, got '1'"),
        (BANK + "digits: 9", "line 8 of the fence: digits wants a whole number from 0 to 6"),
        (BANK + "heads: [{name: a}]", "line 8 of the fence: heads wants a list of two or more"),
        (
            BANK + "heads: [{name: a}, {}]",
            "line 8 of the fence: name is missing; each of heads has one",
        ),
        (
            BANK + "heads:\n- name: a\n- name: b\n  tokens: a b c",
            "line 10 of the fence: heads look at one list of tokens",
        ),
        (
            BANK + "choices: 1\nheads: 1",
            "line 9 of the fence: choices and heads exclude each other",
        ),
    ],
)
def test_a_wrong_explorable_names_its_line_and_what_was_wanted(body, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        attention.read(body)


def test_a_wrong_explorable_stops_the_build():
    with pytest.raises(SuperFencesException, match="line 1 of the fence"):
        draw("```attention\nsize: 3\n```")
    with pytest.raises(SuperFencesException, match="wanted no options, got heatmap"):
        draw("```attention heatmap\ntokens: a\n```")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scaling", [False, True])
@pytest.mark.parametrize("hidden", [(), (0,), (0, 1, 2, 3)])
@pytest.mark.parametrize("kind", ["embeddings", "projected", "given", "extreme"])
def test_each_step_is_what_torch_computes(kind, causal, scaling, hidden):
    generator = torch.Generator().manual_seed(7)
    rows = lambda *shape: torch.randn(shape, generator=generator).tolist()  # noqa: E731
    matrices = {
        "embeddings": lambda: {"embeddings": rows(4, 3)},
        "projected": lambda: {
            "embeddings": rows(4, 3),
            "W_query": rows(3, 5),
            "W_key": rows(3, 5),
            "W_value": rows(3, 2),
        },
        "given": lambda: {"queries": rows(4, 6), "keys": rows(4, 6), "values": rows(4, 2)},
        "extreme": lambda: {
            "queries": [[10.0, 0.0], [0.0, 10.0], [-10.0, 0.0], [0.0, 0.0]],
            "keys": [[10.0, 10.0], [-10.0, 10.0], [0.0, -10.0], [10.0, 9.5]],
            "values": rows(4, 2),
        },
    }[kind]()
    panel = attention.Panel(list("abcd"), matrices)
    ours = attention.compute(panel, causal=causal, scaling=scaling, hidden=hidden)
    for step, wanted in by_torch.attention(
        panel, causal=causal, scaling=scaling, hidden=hidden
    ).items():
        by_torch.assert_equal(step, ours[step], wanted)


def test_without_scripts_the_reader_sees_the_weights_and_the_context_vectors():
    spec = attention.read(BANK)
    wanted = by_torch.attention(spec.panels[0], causal=False, scaling=False, hidden=())
    drawn = draw(f"```attention\n{BANK}\n```").select("attention-explorable table")
    for table, step in zip(drawn, ("weights", "context"), strict=True):
        by_torch.assert_shown(step, cells(table), wanted[step], 4)
    assert words(drawn[0]) == (["river", "bank", "mud"], ["river", "bank", "mud"])
    assert drawn[1].caption.text.startswith("Context vectors")


def test_heads_are_shown_one_beside_the_other_and_named():
    body = (
        BANK
        + "heads:\n- name: plain\n- name: twice\n  embeddings: [[2.4, 0], [1.6, 1.6], [1.8, 0]]\n"
    )
    assert titles(draw(f"```attention\n{body}\n```")) == [
        "Plain: attention weights",
        "Plain: context vectors",
        "Twice: attention weights",
        "Twice: context vectors",
    ]


def test_whatever_stands_in_a_token_reaches_the_script_unharmed():
    body = 'tokens: ["it\'s", "<b>&amp;", "\\"é\\""]\nembeddings: [[1], [2], [3]]'
    element = draw(f"```attention\n{body}\n```").find("attention-explorable")
    assert json.loads(element["config"])["panels"][0]["tokens"] == ["it's", "<b>&amp;", '"é"']


def test_numbers_are_shown_as_python_rounds_them():
    assert numerals.rounded(0.125, 2) == "0.12"
    assert numerals.rounded(-0.00001, 4) == "0.0000"
    assert numerals.rounded(-math.inf, 4) == "-inf"


@pytest.mark.parametrize(
    ("name", "most"), [("attention.js", 27_000), ("figures.js", 3_500), ("figures.css", 23_200)]
)
def test_what_a_figure_adds_to_the_first_view_stays_small(name, most):
    assert (ROOT / "docs/assets" / name).stat().st_size < most


def test_a_zero_is_a_score_where_minus_infinity_is_what_hides():
    masked = output_figure("tensor([[0., -inf],\n        [0., 0.]])", {"heatmap": ""})
    assert masked.count('class="z"') == 1
    weights = output_figure(
        "tensor([[1.0000, 0.0000],\n        [0.5000, 0.5000]])", {"heatmap": ""}
    )
    assert weights.count('class="z"') == 1


def printed(text):
    """What the page shows of a plain output."""
    return BeautifulSoup(output_figure(text, {}), "html.parser").samp


def test_what_is_said_of_a_name_goes_on_below_itself_on_a_phone():
    text = "date      2026\nversions  Python, PyTorch and what else there is in it\nnone"
    said = printed(text)
    assert said.get_text() == text
    assert [line["style"] for line in said.select(".line")] == ["--in:8", "--in:8", "--in:0"]


def test_a_row_of_signs_that_are_counted_is_not_wrapped():
    text = "A rwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww\nB ...............rwwwwwww"
    assert printed(text)["class"] == ["columns"]
    assert printed("a b c d e f g h i j k l m n o p q r s t u v w x y z")["class"] == ["long"]
