"""An explorable opens as its fence says, and what it shows is what the page computes."""

import json
import re

import html5lib
import pytest
import torch
from bs4 import BeautifulSoup

from book import numerals
from book.figures import explorable
from book.figures.explorable.fence import filled, read
from book.figures.explorable.steps import Panel, compute
from literate.page import PageError
from literate.update import Refused, update
from tests.book import by_torch
from tests.projects import failures

BANK = """\
caption: What does bank take?
tokens: river bank mud
embeddings:
  - [1.2, 0.0, 0.0, 0.3]
  - [0.8, 0.8, 0.2, 0.0]
  - [0.9, 0.0, 0.0, 0.9]
query: bank
"""
TWO = "tokens: a b\nembeddings: [[1, 0], [2, 1]]\n"


def shown(body):
    """The figure of a fence, checked to be valid HTML."""
    html = explorable.html(body)
    html5lib.HTMLParser(strict=True).parseFragment(html)
    return BeautifulSoup(html, "html.parser")


def config(body):
    """What the script is given."""
    return json.loads(shown(body).find("attention-explorable")["config"])


def first_row(body):
    """The first row of the weights."""
    return [cell.get_text() for cell in shown(body).table.tbody.tr.find_all("td")]


# ------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "line 1 of the fence: wanted `key: value` lines"),
        ("tokens: a b\ntoken: c", "line 2 of the fence: 'token' is none of tokens,"),
        ("tokens: a b\ntokens: a b", "line 2 of the fence: 'tokens' is given twice"),
        ("digits = places: 2\n", "line 1 of the fence: 'digits = places' is none of"),
        ("tokens: [a, b", "of the fence: expected ',' or ']'"),
        ("tokens: a", "line 1 of the fence: wanted tokens, embeddings"),
        ("tokens: [1, 2]\nembeddings: [[1], [2]]", "line 1 of the fence: tokens wants words"),
        (
            f"tokens: {'a ' * 13}\nembeddings: []",
            "line 1 of the fence: tokens wants 12 words at most",
        ),
        (
            "tokens: a b\nembeddings:\n - [1]\n - [.nan]",
            "line 2 of the fence: embeddings wants 2 rows",
        ),
        ("tokens: a b\nembeddings:\n - [1]\n - [1, 2]", "rows of numbers, all of one length"),
        ("tokens: a b\nembeddings: [[1]]", "line 2 of the fence: embeddings wants 2 rows"),
        (
            f"{TWO}queries: [[1], [2]]\nkeys: [[1], [2]]\nvalues: [[1], [2]]",
            "embeddings and queries exclude each other",
        ),
        ("tokens: a\nqueries: [[1]]\nkeys: [[1]]", "wanted tokens, queries, keys, values"),
        (
            "tokens: a\nqueries: [[1]]\nkeys: [[1, 2]]\nvalues: [[1]]",
            "line 3 of the fence: keys wants 1 columns as queries",
        ),
        (
            BANK.replace("query: bank", "query: loan"),
            "line 7 of the fence: query wants one of river",
        ),
        (
            f"{TWO}query: true",
            "query wants one of a b, or a position where a word repeats, got True",
        ),
        ("tokens: a b a\nembeddings: [[1], [2], [3]]\nquery: a", "where a word repeats, got 'a'"),
        (BANK + "step: softmax", "line 8 of the fence: step wants any of scores scaled"),
        (BANK + "controls: zoom", "line 8 of the fence: controls wants any of query step"),
        (BANK + "causal: 1", "line 8 of the fence: causal wants true or false, got 1"),
        (BANK + "digits: 9", "line 8 of the fence: digits wants a number from 0 to 6, got 9"),
        (BANK + "choices: [{name: a}]", "line 8 of the fence: choices wants two or more items"),
        (
            BANK + "choices:\n- name: a\n- name: b\n  tokens: a b\n  embeddings: [[1], [2]]",
            "as many words",
        ),
        (f"{TWO}query: b\nvotes: up", "votes wants a query, and 2 words"),
        (f"{TWO}votes: up down", "line 3 of the fence: votes wants a query"),
        (f"{TWO}channels: wet", "channels wants 2 words"),
    ],
)
def test_a_wrong_explorable_names_its_line_and_what_was_wanted(body, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        read(body)


def test_a_figure_opens_with_its_switches_and_digits_as_they_are_set():
    assert first_row(TWO) == ["0.2689", "0.7311"]
    assert first_row(f"{TWO}scaling: true") == ["0.3302", "0.6698"]
    assert first_row(f"{TWO}causal: true") == ["1.0000", "0.0000"]
    assert first_row(f"{TWO}digits: 0") == ["0", "1"]
    assert read("tokens: a b a\nembeddings: [[1], [2], [3]]\nquery: 2").query == 2


def test_the_script_is_given_all_but_the_caption():
    body = f"{TWO}caption: Once\nquery: b\nstep: weights\ncausal: true\ncontrols: query"
    assert config(body) == {
        "query": 1,
        "step": 3,
        "causal": True,
        "scaling": False,
        "digits": 4,
        "controls": ["query"],
        "votes": [],
        "channels": [],
        "panels": [{"name": "", "tokens": ["a", "b"], "embeddings": [[1, 0], [2, 1]]}],
    }


def test_whatever_stands_in_a_word_is_text_and_not_markup():
    body = 'tokens: ["it\'s", "<b>&amp;", "\\"é\\""]\nembeddings: [[1], [2], [3]]\n'
    assert config(body)["panels"][0]["tokens"] == ["it's", "<b>&amp;", '"é"']
    figure = shown(f"{TWO}caption: 1 < 2 & <b>3</b>\nchoices:\n- name: <i>BERT's\n- name: b\n")
    assert figure.figcaption.get_text() == "1 < 2 & <b>3</b>"
    assert figure.caption.get_text().startswith("<i>BERT's: attention weights")
    assert not figure.select("b")


def test_without_scripts_a_reader_sees_the_weights_and_the_context_vectors():
    wanted = by_torch.attention(read(BANK).panels[0], causal=False, scaling=False)
    tables = shown(BANK).select("attention-explorable table")
    for table, step in zip(tables, ("weights", "context"), strict=True):
        rows = [[cell.text for cell in row.find_all("td")] for row in table.tbody.find_all("tr")]
        by_torch.assert_shown(step, rows, wanted[step], 4)
    assert [th.text for th in tables[0].find_all("th")] == ["river", "bank", "mud"] * 2


def test_each_choice_is_named_and_shown():
    body = f"{TWO}choices:\n- name: one\n- name: two\n  embeddings: [[1, 2], [3, 4]]\n"
    titles = [caption.contents[0] for caption in shown(body).find_all("caption")]
    assert titles[::2] == ["One: attention weights ", "Two: attention weights "]
    assert config(body)["panels"][1]["embeddings"] == [[1, 2], [3, 4]]


def test_a_sentence_shows_each_word_with_its_weight_and_what_is_voted_for():
    body = f"{TWO}query: b\nvotes: up down\ndigits: 2"
    steps = compute(read(body).panels[0], causal=False, scaling=False)
    shares = [f"{weight:.2f}" for weight in steps["weights"][1]]
    words = shown(body).select(".word")
    assert [word.get_text() for word in words] == [f"a{shares[0]}", f"b{shares[1]}"]
    assert [word["class"] for word in words] == [["word"], ["word", "on"]]
    up, down = (f"{vote:.2f}" for vote in steps["context"][1])
    votes = shown(body).select_one(".votes").get_text()
    assert votes == f"b → up scores: up {up}, down {down}; the higher wins"
    assert shown(body).table is None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scaling", [False, True])
@pytest.mark.parametrize("kind", ["embeddings", "given", "extreme"])
def test_each_step_is_what_torch_computes(kind, causal, scaling):
    generator = torch.Generator().manual_seed(7)

    def rows(*shape):
        return torch.randn(shape, generator=generator).tolist()

    matrices = {"queries": rows(4, 6), "keys": rows(4, 6), "values": rows(4, 2)}
    if kind == "embeddings":
        matrices = {"embeddings": rows(4, 3)}
    if kind == "extreme":
        matrices["queries"] = [[10.0, 0.0], [0.0, 1000.0], [-10.0, 0.0], [0.0, 0.0]]
        matrices["keys"] = [[10.0, 10.0], [-10.0, 1000.0], [0.0, -10.0], [10.0, 9.5]]
    panel, switches = Panel(list("abcd"), matrices), {"causal": causal, "scaling": scaling}
    ours = compute(panel, **switches)
    for step, wanted in by_torch.attention(panel, **switches).items():
        by_torch.assert_equal(step, ours[step], wanted)


def test_numbers_are_shown_as_python_rounds_them():
    assert numerals.rounded(0.125, 2) == "0.12"
    assert numerals.rounded(-0.00001, 4) == "0.0000"


# ------------------------------------------------------------------- what of it the page computes

PAGE = """
# A page

```python
import torch

words = "she rowed home".split()
x = torch.tensor([[0.4321, 0.1234], [-0.6543, 1.2345], [0.9876, -0.8765]]).double()
scores = x @ x.T
masked = (scores / 2**0.5).masked_fill(torch.ones(3, 3).triu(1) == 1, float("-inf"))
weights = torch.softmax(masked, dim=-1)
last = weights[2]
```

```attention
tokens = words: she rowed home
embeddings = x:
  - [0.4321, 0.1234]
  - [-0.6543, 1.2345]
  - [0.9876, -0.8765]
weights = weights:
query: home
causal: true
scaling: true
votes: orilla banco
digits: 4
```

```python
x = x + 1
```
"""


def test_a_figure_that_shows_what_the_page_computes_where_it_stands_holds(book):
    assert failures(book.read(PAGE)) == []
    assert failures(book.read(PAGE.replace("weights = weights:", "weights = last:"))) == []


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("she rowed home\nemb", "she home rowed\nemb", 16),
        ("[0.4321, 0.1234]\n  -", "[0.4326, 0.1234]\n  -", 18),
    ],
)
def test_what_is_stale_fails_at_its_line_and_an_update_changes_nothing_else(
    book, right, wrong, line
):
    stale = PAGE.replace(right, wrong)
    (failure,) = failures(book.read(stale))
    assert failure.line == line
    page = book.read(stale)
    assert update(page) == 1
    assert page.path.read_text() == PAGE


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("causal: true", "causal: false", "row 0, column 0 of the weights: the figure"),
        ("scaling: true\n", "", "row 1, column 0 of the weights"),
        ("weights = weights", "weights = x", "derives weights of 3 rows of 3 numbers"),
        ("weights = weights", "weights = words", "the page computes"),
        ("weights = weights", "weights = None", "the page computes None"),
        ("tokens = words", "tokens = x", "tokens wants words without blanks"),
        ("embeddings = x", "embeddings = x[0]", "embeddings wants a matrix of numbers"),
        ("embeddings = x", "embeddings = x / 0", "wants a matrix of numbers"),
        ("embeddings = x", "embeddings = unknown", "NameError: name 'unknown' is not defined"),
    ],
)
def test_what_the_page_does_not_compute_is_refused(book, right, wrong, says):
    stale = PAGE.replace(right, wrong)
    (failure,) = failures(book.read(stale))
    assert says in failure.report
    with pytest.raises(Refused):
        update(book.read(stale))


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("= x:", "= torch.randn(3, 2):", r"page\.md:17: .*found a Call"),  # no hidden code
        ("= x:", "= x +:", r"page\.md:17: .*is no expression"),
        ("tokens = words", "tokens", r"page\.md:16: tokens names no expression"),
        ("weights = weights:\n", "", r"page\.md:15: the figure names no weights"),
    ],
)
def test_all_that_a_figure_shows_names_what_it_is(book, right, wrong, said):
    with pytest.raises(PageError, match=said):
        list(book.read(PAGE.replace(right, wrong)).steps)


def test_an_empty_matrix_is_filled_in_with_two_decimals_more_than_are_shown(book):
    body = "tokens = words: a b\nembeddings = x:\n# kept\nweights = w:\ndigits: 1\nquery: a\n"
    text = filled(body, ["a b", [[1 / 3], [2.0]], [0.365, 0.635]])
    assert "embeddings = x:\n  - [0.333]\n  - [2.000]\n# kept" in text
    assert "embeddings = x:\n  - [1.0]" in filled(body, ["a b", [[1.0], [2.0]], [0.269, 0.731]])


def test_each_choice_is_held_to_its_own_weights(book):
    page = """
```python
words, rows, others = "a b", [[1.0], [0.0]], [[0.0], [1.0]]
first, second = [0.731059, 0.268941], [0.268941, 0.731059]
```

```attention
tokens = words: a b
query: b
values = rows: [[1.0], [0.0]]
keys = others: [[0.0], [1.0]]
queries = others: [[0.0], [1.0]]
weights = second:
choices:
  - name: one
  - name: two
    keys = rows: [[1.0], [0.0]]
    weights = first:
digits: 2
```
"""
    assert failures(book.read(page)) == []
    (failure,) = failures(book.read(page.replace("weights = first", "weights = second")))
    assert "row 0, column 0 of the weights" in failure.report
