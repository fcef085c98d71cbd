"""A heatmap shows each number that was printed, shaded by what it says, in a table that can be read aloud."""

import math
import re
import subprocess
import sys

import pytest
import torch
from bs4 import BeautifulSoup
from hypothesis import given, settings
from hypothesis import strategies as st

from book.figures import FigureError, heatmap

WEIGHTS = """\
tensor([[1.0000, 0.0000, 0.0000],
        [0.5517, 0.4483, 0.0000],
        [0.3800, 0.3097, 0.3103]])"""


def maps(text, **options):
    return BeautifulSoup(heatmap.html(text, options), "html.parser")


def cells(table):
    return [[cell.text for cell in row.find_all("td")] for row in table.tbody.find_all("tr")]


def labels(table):
    """Row labels and column labels."""
    return [[th.text for th in part.find_all("th")] for part in (table.tbody, table.thead)]


def titles(drawn):
    """What each caption says before its key."""
    return [caption.contents[0].strip() for caption in drawn.find_all("caption")]


def test_a_heatmap_is_a_table_with_a_caption_scoped_headers_and_one_tab_stop():
    table = maps(WEIGHTS, rows="a b c", cols="= names: x y z").table
    assert labels(table) == [["a", "b", "c"], ["x", "y", "z"]]
    assert {th["scope"] for th in table.tbody.find_all("th")} == {"row"}
    assert {th["scope"] for th in table.thead.find_all("th")} == {"col"}
    assert table.caption.text.startswith("3 × 3 tensor")
    assert len(table.select("[tabindex]")) == 1
    assert table.td.text == ""  # the corner: an empty header would name nothing
    assert labels(maps(WEIGHTS).table) == [["0", "1", "2"], ["0", "1", "2"]]


def test_labels_and_titles_are_text_and_not_markup():
    drawn = heatmap.heat_table([["1.0"]], ["<i>r"], ["<i>c"], "a < b & <i>")
    table = BeautifulSoup(drawn, "html.parser")
    assert table.caption.get_text().startswith("a < b & <i> ")
    assert [head.get_text() for head in table.select("th")] == ["<i>c", "<i>r"]
    assert maps("a < <b>\n\ntensor([[1., 2.]])").pre.get_text() == "a < <b>"


def test_each_cell_of_a_heatmap_that_has_a_name_has_one_too():
    table = maps("tensor([[1, 2], [3, 4]])", name="few").table
    named = {cell["id"]: cell.text for cell in table.tbody.find_all("td")}
    assert named == {"few-0-0": "1", "few-0-1": "2", "few-1-0": "3", "few-1-1": "4"}
    assert maps("[[[1, 2]], [[3, 4]]]", name="few").find(id="few-1-0-1").text == "4"
    assert not maps(WEIGHTS).select("td[id]")


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
    whole = drawn if kind.is_floating_point else drawn.nan_to_num(0, 0, 0)
    printed = str(whole.to(kind))
    shown = [
        [[heatmap.number(cell) for cell in row] for row in cells(table)]
        for table in maps(printed).find_all("table")
    ]
    names = {"tensor": torch.tensor, "torch": torch, "inf": math.inf, "nan": math.nan}
    read = eval(printed.replace("bfloat16", "float32"), names).float()
    values = torch.tensor(shown).float().view(shape)
    assert torch.equal(values.nan_to_num(9e9), read.nan_to_num(9e9))


def test_what_the_block_said_around_its_tensors_is_kept_and_names_them():
    text = f"Two heads\nScores:\n{WEIGHTS}\nWeights = {WEIGHTS}\nrow sums: tensor([1., 1., 1.])"
    drawn = maps(text)
    assert titles(drawn) == ["Scores", "Weights"]
    said = [said.text for said in drawn.select(".said")]
    assert said == ["Two heads", "row sums: tensor([1., 1., 1.])"]
    assert titles(maps("tensor([[1., 2.]], dtype=torch.float64)")) == ["1 × 2 tensor"]


def test_each_slice_of_a_batch_is_named_by_its_index_and_all_share_a_scale():
    drawn = maps(f"heads: {torch.arange(16).view(2, 2, 2, 2)}")
    assert titles(drawn) == ["heads[0, 0]", "heads[0, 1]", "heads[1, 0]", "heads[1, 1]"]
    drawn = maps("tensor([[[4., 1.]], [[2., 1.]]])")
    styles = [td["style"] for td in drawn.find_all("td") if td.has_attr("style")]
    assert styles == ["--v:1.00", "--v:.25", "--v:.50", "--v:.25"]


def test_a_printed_list_of_lists_is_drawn_and_brackets_in_a_sentence_are_not():
    drawn = maps("pairs [[a, b]] and [[1, 2], [3, 4]]")
    assert cells(drawn.table) == [["1", "2"], ["3", "4"]]
    assert "[[a, b]]" in drawn.text


@pytest.mark.parametrize(
    ("numbers", "shades", "key"),
    [
        # Weights go from 0 to 1, whatever they are, and what a mask emptied is hatched.
        ("[[1.0000, 0.0000], [0.2500, 0.7500]]", [1.0, "z", 0.25, 0.75], "0 1 0.0000"),
        ("[[0.33, 0.33, 0.33]]", [0.33, 0.33, 0.33], "0 1"),
        ("[[0.6, 0.4], [0.0, 0.0]]", [0.6, 0.4, "z", "z"], "0 1 0.0"),
        # All else goes from 0 to the largest, or from the smallest where all are far from 0.
        ("[[0.6, 0.3]]", [1.0, 0.5], "0 0.6"),
        ("[[0.3], [0.6]]", [0.5, 1.0], "0 0.6"),
        ("[[2.1, 4.0]]", [0.0, 1.0], "2.1 4.0"),
        ("[[2.0, 4.0]]", [0.5, 1.0], "0 4.0"),
        ("[[3.0, 3.0]]", [1.0, 1.0], "0 3.0"),
        # A negative number has another hue, on a scale that is even about 0.
        ("[[-2.0, 1.0], [-inf, 0.5]]", ["n1.0", 0.5, "z", 0.25], "-2.0 2.0 -inf"),
        ("[[-4., -1.]]", ["n1.0", "n0.25"], "-4. 0"),
        ("[[ True, False]]", [1.0, "z"], "True False"),
        ("[[nan, 1.], [inf, 4.]]", ["q", 0.25, 1.0, 1.0], "0 4. nan"),
        ("[[0., -inf], [0., 0.]]", [0.0, "z", 0.0, 0.0], "0 -inf"),
        ("[[0.0, -0.0]]", ["z", "z"], "0 0.0"),
    ],
)
def test_a_shade_says_how_large_a_number_is(numbers, shades, key):
    table = maps(f"tensor({numbers})").table
    found = [
        "".join(td.get("class", []))
        + (f"{float(td['style'][4:]):g}" if td.has_attr("style") else "")
        for td in table.tbody.find_all("td")
    ]
    assert found == [s if s in ("z", "q") else str(s).removesuffix(".0") for s in shades]
    assert " ".join(table.select_one(".key").text.split()) == key


def test_in_a_plain_map_a_zero_is_a_number_like_the_others():
    assert maps("tensor([[0.0000, 1.0000]])", plain="").select("td.z, .hatch") == []
    infinite = maps("tensor([[0.0000, -inf]])", plain="")
    assert [cell.text for cell in infinite.select("td.z")] == ["-inf"]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("tensor([1., 2.])", {}, "two or more dimensions, got none"),
        ("tensor([[1., ..., 2.]])", {}, "abbreviated with '...'"),
        ("tensor([[1., 2.], [3.]])", {}, "rows of one length, got (1,) and (2,)"),
        ("tensor([[1., x]])", {}, "made of numbers, got ' x]])'"),
        ("tensor([[1., 2.]", {}, "got ''"),
        (
            WEIGHTS,
            {"rows": "a b"},
            'rows="a b" gives 2 labels, but the tensor of shape (3, 3) has 3',
        ),
        (
            WEIGHTS,
            {"cols": "a b c d"},
            "gives 4 labels, but the tensor of shape (3, 3) has 3 columns",
        ),
    ],
)
def test_a_text_that_cannot_be_drawn_is_refused(text, options, said):
    with pytest.raises(FigureError, match=re.escape(said)):
        heatmap.check(text, options)


def test_a_figure_of_an_output_needs_the_standard_library_alone():
    """A page that is run in a browser has nothing else."""
    code = (
        "import sys, book.figures.output as f; f.html('[[1, 2]]', {'heatmap': ''});"
        "f.html('x y\\n1 2\\n2 3', {'chart': ''});"
        "sys.exit(' '.join(n for n in sys.modules if n.split('.')[0] not in"
        " {*sys.stdlib_module_names, 'book', '__main__', 'site', 'sitecustomize'} and '_' not in n) or 0)"
    )
    run = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
