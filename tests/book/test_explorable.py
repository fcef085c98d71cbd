"""An explorable opens as its fence says: what is read, what the script is told, what is drawn."""

import json
import math
import sys

import pytest
from bs4 import BeautifulSoup

from book.figures import attention, explorable, tables

TWO = "tokens: a b\nembeddings: [[1, 0], [2, 1]]\n"


def drawn(body):
    """Return the figure of an `attention` fence."""
    return BeautifulSoup(explorable.figure(body), "html.parser")


def told(body):
    """Return what the script is told."""
    return json.loads(drawn(body).find("attention-explorable")["config"])


def first_row(body):
    """Return the first row of the weights, as drawn."""
    return [cell.get_text() for cell in drawn(body).table.tbody.tr.find_all("td")]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('tokens: "a\\u202eb c"\nembeddings: [[1], [2]]', "line 1 of the fence: U.202E"),
        (f"{TWO}query: true", "query wants one of a b, .* got True"),
        (f"{TWO}digits: 7", "digits wants a whole number from 0 to 6, got '7'"),
        (f"{TWO}digits: true", "digits wants a whole number from 0 to 6, got 'true'"),
        (f"{TWO}digits: -1", "digits wants a whole number"),
        ("tokens: a b a\nembeddings: [[1], [2], [3]]\nquery: a", "where a word repeats; got 'a'"),
        (
            f"{TWO}choices:\n- name: one\n- name: two\n  tokens: a b c\n  embeddings: [[1], [2], [3]]",
            "line 5 of the fence: choices have one count of tokens; got 2 and 3",
        ),
        (f"{TWO}choices: [{{name: one}}]", "choices wants a list of two or more items"),
    ],
)
def test_what_cannot_be_meant_is_refused(body, said):
    with pytest.raises(ValueError, match=said):
        attention.read(body)


def test_digits_from_none_to_six_are_shown():
    assert first_row(f"{TWO}digits: 0") == ["0", "1"]
    assert first_row(f"{TWO}digits: 6") == ["0.268941", "0.731059"]


def test_twelve_tokens_fit():
    body = f"tokens: {'a ' * 12}\nembeddings: [{', '.join(['[1]'] * 12)}]"
    assert len(attention.read(body).panels[0].tokens) == 12


def test_a_word_that_repeats_is_named_by_its_position():
    assert attention.read("tokens: a b a\nembeddings: [[1], [2], [3]]\nquery: 2").query == 2


def test_it_opens_with_its_switches_as_they_are_set():
    assert first_row(TWO) == ["0.2689", "0.7311"]
    assert first_row(f"{TWO}scaling: true") == ["0.3302", "0.6698"]
    assert first_row(f"{TWO}causal: true") == ["1.0000", "0.0000"]
    assert first_row(f"{TWO}hidden: a") == ["0.0000", "1.0000"]


def test_the_script_is_told_all_but_the_caption():
    body = f"{TWO}caption: Once\nquery: b\nstep: weights\ncausal: true\nhidden: a\ncontrols: query"
    assert told(body) == {
        "side": False,
        "query": 1,
        "step": 3,
        "causal": True,
        "scaling": False,
        "hidden": [0],
        "digits": 4,
        "controls": ["query"],
        "votes": [],
        "channels": [],
        "panels": [{"name": "", "tokens": ["a", "b"], "embeddings": [[1, 0], [2, 1]]}],
    }


SENTENCE = f"{TWO}query: b\nvotes: up down\ndigits: 2"


def test_a_sentence_shows_each_word_with_its_weight_and_what_is_voted_for():
    steps = attention.compute(
        attention.read(SENTENCE).panels[0], causal=False, scaling=False, hidden=()
    )
    shares = [f"{weight:.2f}" for weight in steps["weights"][1]]
    words = drawn(SENTENCE).select(".word")
    assert [word.get_text() for word in words] == [f"a{shares[0]}", f"b{shares[1]}"]
    assert [word["class"] for word in words] == [["word"], ["word", "on"]]
    up, down = (f"{vote:.2f}" for vote in steps["context"][1])
    assert (
        drawn(SENTENCE).select_one(".votes").get_text()
        == f"b → up scores: up {up}, down {down}; the higher wins"
    )
    assert drawn(SENTENCE).table is None


def test_a_hidden_word_of_a_sentence_says_so():
    hidden = drawn(f"{SENTENCE}\nhidden: a").select_one(".word")
    assert hidden.small.get_text() == "off"
    assert hidden["style"] == "--v:0.00"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"{TWO}query: b\nvotes: up", "votes has 1 words, but the values have 2 columns"),
        (f"{TWO}votes: up down", "line 3 of the fence: votes are those of one query"),
        (
            f"{TWO}query: b\nvotes: up down\nheads:\n- name: x\n- name: y",
            "votes and heads exclude each other",
        ),
        (f"{TWO}channels: wet", "channels has 1 words, but the embeddings have 2 columns"),
    ],
)
def test_votes_and_channels_that_do_not_fit_are_refused(body, said):
    with pytest.raises(ValueError, match=said):
        attention.read(body)


def test_heads_stand_side_by_side_and_choices_do_not():
    items = "\n- name: one\n- name: two\n"
    assert told(f"{TWO}heads:{items}")["side"]
    assert not told(f"{TWO}choices:{items}")["side"]


def test_what_an_item_says_goes_before_what_all_say():
    body = f"{TWO}choices:\n- name: one\n- name: two\n  tokens: c d\n"
    assert [panel["tokens"] for panel in told(body)["panels"]] == [["a", "b"], ["c", "d"]]


def test_a_caption_and_a_name_are_text_and_not_markup():
    figure = drawn(f"{TWO}caption: 1 < 2 & <b>3</b>\n")
    assert figure.figcaption.get_text() == "1 < 2 & <b>3</b>"
    assert not figure.select("b")
    named = drawn(f"{TWO}choices:\n- name: <i>BERT's\n- name: b\n")
    assert named.caption.get_text().startswith("<i>BERT's: attention weights")


def test_a_title_keeps_its_capitals():
    titles = drawn(f"{TWO}choices:\n- name: of BERT\n- name: b\n").select("caption")
    assert titles[0].get_text().startswith("Of BERT: attention weights")


def test_large_scores_overflow_nothing():
    panel = attention.read("tokens: a b\nembeddings: [[1000], [-1000]]").panels[0]
    weights = attention.compute(panel, causal=False, scaling=False)["weights"]
    assert weights == [[1.0, 0.0], [0.0, 1.0]]


def test_scores_are_scaled_by_the_width_of_the_keys():
    panel = attention.read(
        "tokens: a\nqueries: [[4, 0, 0, 0]]\nkeys: [[2, 0, 0, 0]]\nvalues: [[1]]"
    ).panels[0]
    assert attention.compute(panel, causal=False, scaling=True)["scaled"] == [[4.0]]


# ---- The tables that explorables share with heatmaps. ----


def table(rows, names=("a", "b"), title="t"):
    """Return the drawn table of `rows` of printed cells."""
    drawn = tables.heat_table(rows, list(names), [str(i) for i in range(len(rows[0]))], title)
    return BeautifulSoup(drawn, "html.parser")


def test_a_title_and_labels_are_text_and_not_markup():
    soup = BeautifulSoup(
        tables.heat_table([["1.0"]], ["<i>r"], ["<i>c"], "a < b & <i>"), "html.parser"
    )
    assert soup.caption.get_text().startswith("a < b & <i> ")
    assert [head.get_text() for head in soup.select("th")] == ["<i>c", "<i>r"]
    assert not soup.caption.select("i:not([class])")


def test_a_table_is_one_tab_stop():
    assert len(table([["1.0", "2.0"], ["3.0", "4.0"]]).select("[tabindex]")) == 1


def shades(*cells):
    """Return the shade of each cell, in hundredths."""
    styles = [cell.get("style", "--v:0") for cell in table([list(cells)], ["a"]).tbody.select("td")]
    return [round(100 * float(style.removeprefix("--v:"))) for style in styles]


def test_shade_grows_from_zero_unless_all_values_are_far_from_it():
    assert shades("1.0", "4.0") == [25, 100]
    assert shades("2.0", "4.0") == [50, 100]
    assert shades("2.1", "4.0") == [0, 100]
    assert shades("-1.0", "4.0") == [25, 100]
    assert shades("3.0", "3.0") == [100, 100]


def test_infinity_has_the_deepest_shade():
    assert shades("inf", "1.0", "4.0") == [100, 25, 100]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("weights = tensor([[1., 2.]])", "weights"),
        ("weights: tensor([[1., 2.]])", "weights"),
        ("tensor([[1., 2.]])", "1 × 2 tensor"),
        ("batch tensor([[[1., 2.]], [[3., 4.]]])", "batch[0]"),
        ("tensor([[1., 2.]], dtype=torch.float64)", "1 × 2 tensor"),
    ],
)
def test_a_heatmap_is_titled_by_what_was_printed_before_it(text, label):
    soup = BeautifulSoup(tables.heatmaps(text), "html.parser")
    assert soup.caption.get_text().startswith(f"{label} ")
    assert not soup.select("pre")


def test_what_was_said_around_a_heatmap_is_text_and_not_markup():
    soup = BeautifulSoup(tables.heatmaps("a < <b>\n\ntensor([[1., 2.]])"), "html.parser")
    assert soup.pre.get_text() == "a < <b>"


def test_ticks_are_written_as_a_reader_writes_them():
    assert [tables._tick(v) for v in (1e-5, 0.01, 0.5, 1.0, 1e6, 1e12, 1e-7)] == [
        "0.00001",
        "0.01",
        "0.5",
        "1",
        "1,000,000",
        "1e+12",
        "1e-07",
    ]


def test_an_axis_of_fifty_times_or_more_is_logarithmic():
    assert tables._log([1.0, 50.0])
    assert not tables._log([1.0, 49.0])
    assert not tables._log([0.0, 50.0])
    assert not tables._log([math.nan, 50.0])


def test_one_line_is_named_on_its_axis_and_several_at_their_ends():
    def words(text, **names):
        soup = BeautifulSoup(tables.chart(text, **names), "html.parser")
        return [label.get_text() for label in soup.select("text")]

    assert words("x loss\n1 2\n2 3").count("loss") == 1
    several = words("x loss gain\n1 2 3\n2 3 4", y_name="nats")
    assert (several.count("loss"), several.count("nats")) == (1, 1)


def test_what_a_chart_says_in_words_is_text_and_not_markup():
    drawn = tables.chart('x  "a" < b\n1  2\n2  3')
    assert (
        BeautifulSoup(drawn, "html.parser").svg["aria-label"].endswith('"a" < b goes from 2 to 3.')
    )


def places(drawn, mark):
    """Return where the points of each line stand, as shares of the way from its first to its last."""
    lines = [path["d"] for path in drawn.select("path") if mark in path.get("style", "")]
    points = [
        [tuple(map(float, p.split())) for p in d[2:].replace("\n", " ").split(" L ")] for d in lines
    ]
    return [
        [
            (
                (x - line[0][0]) / (line[-1][0] - line[0][0]),
                (y - line[0][1]) / (line[-1][1] - line[0][1]),
            )
            for x, y in line
        ]
        for line in points
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x  a\n1  2\n2  5\n4  3",
        "x  a  b\n1  0.1  3\n2  5  8\n4  3  20",
        "x  a\n1  1\n10  40\n1000  200",
    ],
    ids=["a line", "two", "logarithms"],
)
def test_without_matplotlib_a_chart_is_the_same(text, monkeypatch):
    """Its words, its names, and where its points stand between the ends of a line."""
    theirs = BeautifulSoup(tables.chart(text, "steps", "size"), "html.parser")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ours = BeautifulSoup(tables.chart(text, "steps", "size"), "html.parser")
    assert ours.svg["aria-label"] == theirs.svg["aria-label"]
    assert ours.svg["viewbox"] == theirs.svg["viewbox"]
    lines = text.split("\n")[0].split()[1:]
    said = {element.text.replace(" (log scale)", "") for element in ours.select("text")}
    assert said >= {"size", "steps", *(lines if len(lines) > 1 else [])}
    close = pytest.approx
    for ours_, theirs_ in zip(
        places(ours, "width: 1.6"), places(theirs, "width: 1.6"), strict=True
    ):
        for (x, y), (a, b) in zip(ours_, theirs_, strict=True):
            assert (x, y) == (close(a, abs=0.02), close(b, abs=0.02))
