"""An `attention` fence is an output: its matrices are what the page computes."""

import re

import pytest

from book.figures import attention, drawn
from book.figures.matrices import fill
from literate import record
from literate.page import PageError, read
from literate.run import Run
from literate.update import Refused, update
from tests.projects import failures

PAGE = """
# A page

```python
import torch

class Head:
    W_query = torch.tensor([[0.25, -0.5], [1.0, 2.0]])

x, heads = torch.tensor([[0.125, 0.5]]), [Head]
names, ones = ["one"], torch.ones(1, 1)
```

```attention
tokens = names: one
embeddings = x: [[0.125, 0.500]]
W_query = heads[0].W_query.T:
  - [0.250, 1.000]
  - [-0.500, 2.000]
W_key: [[1.0, 0.0], [0.0, 1.0]]  # typed
W_value = heads[0].W_query[:, 1:]: [[-0.5], [2.0]]
weights = ones:
digits: 3
by_hand: W_key
```

```python
x = x + 1
```
"""


def test_matrices_that_show_what_the_page_computes_hold(book):
    assert failures(book.read(PAGE)) == []


def test_a_figure_is_computed_where_it_stands_and_not_at_the_end(book):
    page = book.read(PAGE)
    assert [step.line for step in page.steps] == [4, 14, 27]


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [("0.125, 0.500]]", "0.725, 0.500]]", 16), ("2.000]", "-2.000]", 19), ("[2.0]", "[2.5]", 21)],
)
def test_a_stale_number_fails_at_its_line(book, right, wrong, line):
    (failure,) = failures(book.read(PAGE.replace(right, wrong)))
    assert failure.line == line
    assert failure.report.startswith(f"docs/page.md:{line}:")


def test_an_expression_that_raises_is_told_as_that_exception(book):
    (failure,) = failures(book.read(PAGE.replace("embeddings = x", "embeddings = y")))
    assert "NameError: name 'y' is not defined" in failure.report.split("\n")[0]


def test_a_number_typed_by_hand_is_left_alone(book):
    assert (
        failures(book.read(PAGE.replace("[[1.0, 0.0], [0.0, 1.0]]", "[[7.0, 8.0], [9.0, 1.0]]")))
        == []
    )


def test_a_figure_adds_no_name_to_the_page(book):
    before = book.read(PAGE + "\n```python\nprint(sorted(vars()))\n```\n")
    after = book.read(
        PAGE.replace("attention", "yaml") + "\n```python\nprint(sorted(vars()))\n```\n"
    )
    assert [_last_printed(before)] == [_last_printed(after)]


def _last_printed(page):
    run = Run(page)
    try:
        return run.all()[-1].printed
    finally:
        run.close()


def test_an_expression_that_fails_is_reported_at_its_line(book):
    (failure,) = failures(book.read(PAGE.replace("= x:", "= unknown:")))
    assert failure.line == 16
    assert "NameError: name 'unknown' is not defined" in failure.report


def test_an_expression_that_is_no_matrix_is_reported_with_its_shape(book):
    (failure,) = failures(book.read(PAGE.replace("= x:", "= x[0]:")))
    assert "embeddings wants a matrix, got shape (2,)" in failure.report


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("torch.randn(1, 2)", "found a Call"),
        ("[[y] for y in x]", "found a ListComp"),
        ("x if x else x", "found a IfExp"),
        ("x +", "is no expression"),
    ],
)
def test_an_expression_runs_no_hidden_code(book, expression, what):
    with pytest.raises(PageError, match=r"page\.md:16: ") as refused:
        list(book.read(PAGE.replace("= x:", f"= {expression}:")).steps)
    assert what in str(refused.value)


def test_a_matrix_that_names_nothing_must_be_said_to_be_by_hand(book):
    with pytest.raises(PageError, match=r"page\.md:20: W_key names no expression"):
        list(book.read(PAGE.replace("by_hand: W_key\n", "")).steps)


def test_a_matrix_by_hand_names_no_expression(book):
    with pytest.raises(PageError, match=r"page\.md:16: embeddings is by hand, and names x"):
        list(book.read(PAGE.replace("by_hand: ", "by_hand: embeddings ")).steps)


def test_update_writes_the_numbers_with_the_places_shown_and_keeps_every_other_byte(book):
    stale = PAGE.replace("0.125, 0.500]]", "0.725, 0.900]]").replace("[-0.500", "[+0.700")
    page = book.read(stale)
    assert update(page) == 1
    assert page.path.read_text() == PAGE


def test_update_fills_in_an_empty_matrix(book):
    page = book.read(
        PAGE.replace("W_query.T:\n  - [0.250, 1.000]\n  - [-0.500, 2.000]", "W_query.T:")
    )
    update(page)
    wanted = PAGE.replace("0.250, 1.000", "0.25, 1.00").replace("-0.500, 2.000", "-0.50, 2.00")
    assert page.path.read_text() == wanted


HEADS = """\
heads:
  - name: a
    W_query = one: [[1.0]]
  - name: b
    # kept
    W_query = two:
      - [1.0]
      - [2.0]
    # kept too
    W_key: [[3.0]]
"""


def test_each_head_has_its_own_matrices():
    assert fill(HEADS, [[[14.0]], [[5.0], [6.0]]]) == HEADS.replace("1.0]]", "14.0]]").replace(
        "- [1.0]\n      - [2.0]", "- [5.0]\n      - [6.0]"
    )


def test_a_matrix_of_another_shape_is_written_anew_and_comments_stay():
    assert fill(HEADS, [[[4.0]], [[5.5, 6.123456789]]]) == HEADS.replace("1.0]]", "4.0]]").replace(
        "- [1.0]\n      - [2.0]", "- [5.500000, 6.123457]"
    )


def test_a_fraction_is_never_written_as_a_whole_number():
    assert fill("keys = x: [[1, 2]]", [[[1.25, 2.0]]]) == "keys = x: [[1.250000, 2]]"


@pytest.mark.parametrize(
    "stale", ["keys = x:\n", "keys = x: [[1.0], [2.0]]\n", "keys = x: [[1.0, 2.0]]\n"]
)
def test_a_matrix_is_written_a_row_a_line_and_whole_numbers_with_one_place(stale):
    assert fill(stale, [[[4.0]]]) == "keys = x:\n  - [4.0]\n"


def test_what_says_only_how_a_figure_looks_names_no_expression():
    with pytest.raises(ValueError, match="line 1 of the fence: unknown key 'digits = places'"):
        attention.read("digits = places: 2\n")


# ---- The words, the switches, and what a figure derives. ----

HEAD = """
# A page

```python
import torch

words = "she rowed home".split()
other = ["she", "home", "rowed"]
causal, divided, ballots = True, True, ["orilla", "banco"]
x = torch.tensor([[0.4321, 0.1234], [-0.6543, 1.2345], [0.9876, -0.8765]]).double()
scores = x @ x.T
masked = (scores / 2**0.5).masked_fill(torch.ones(3, 3).triu(1) == 1, float("-inf"))
weights = torch.softmax(masked, dim=-1)
last, context = weights[2], weights @ x
```

```attention
tokens = words: she rowed home
embeddings = x:
  - [0.4321, 0.1234]
  - [-0.6543, 1.2345]
  - [0.9876, -0.8765]
scores = scores:
weights = weights:
context = context:
query: home
causal = causal: true
scaling = divided: true
votes = ballots: orilla banco
digits: 4
```
"""


def test_a_figure_that_derives_what_the_page_computes_holds(book):
    assert failures(book.read(HEAD)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("she rowed home\nemb", "she home rowed\nemb", 18),
        ("she rowed home\nemb", "she rowed home home\nemb", 18),
        ("causal: true", "causal: false", 27),
        ("divided: true", "divided: false", 28),
        ("orilla banco\n", "banco orilla\n", 29),
    ],
)
def test_a_stale_word_or_switch_fails_at_its_line(book, right, wrong, line):
    stale = HEAD.replace(right, wrong)
    (failure,) = failures(book.read(stale))
    assert failure.line == line
    page = book.read(stale)
    assert update(page) == 1
    assert page.path.read_text() == HEAD


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        (
            "causal = causal: true",
            "causal: false",
            "row 0, column 0 of the weights: the figure derives 0.3",
        ),
        ("causal = causal: true\n", "", "row 0, column 0 of the weights: the figure derives 0.3"),
        ("scaling = divided: true", "scaling: false", "row 1, column 0 of the weights"),
        ("scaling = divided: true\n", "", "row 1, column 0 of the weights"),
        ("digits: 4", "digits: 4\nhidden: she", "row 0, column 0 of the weights"),
        ("weights = weights", "weights = x", "derives weights of 3 rows of 3 numbers"),
        ("weights = weights", "weights = causal", "derives weights of 3 rows"),
        ("weights = weights", "weights = words", "the page computes she"),
        ("weights = weights", "weights = scores", "row 0, column 0 of the weights"),
        ("scores = scores", "scores = weights", "row 0, column 0 of the scores"),
        ("context = context", "context = x", "row 1, column 0 of the context"),
        ("tokens = words", "tokens = x", "tokens wants words without blanks"),
        ("tokens = words", "tokens = causal", "tokens wants words without blanks"),
        ("tokens = words", "tokens = None", "tokens wants words without blanks, got None"),
        ("causal = causal", "causal = words", "causal wants true or false"),
        ("causal = causal", "causal = None", "causal wants true or false, got None"),
        ("embeddings = x", "embeddings = None", "embeddings wants a matrix, got None"),
        ("embeddings = x", "embeddings = x / 0", "wants a matrix of numbers, got (inf|-inf|nan)"),
        ("embeddings = x", "embeddings = x * float", "TypeError"),
        ("weights = weights", "weights = None", "the page computes None"),
    ],
)
def test_what_the_page_does_not_compute_is_refused(book, right, wrong, says):
    stale = HEAD.replace(right, wrong)
    (failure,) = failures(book.read(stale))
    assert re.search(says, failure.report)
    with pytest.raises(Refused):
        update(book.read(stale))


def test_one_row_of_the_page_is_that_of_the_query(book):
    row = HEAD.replace("weights = weights", "weights = last")
    assert failures(book.read(row)) == []
    (failure,) = failures(book.read(row.replace("query: home", "query: rowed")))
    assert "row 0, column 0 of the weights" in failure.report
    tables = row.replace("query: home\n", "").replace("votes = ballots: orilla banco\n", "")
    (failure,) = failures(book.read(tables))
    assert "weights is one row of the page, and no query says which" in failure.report


def test_a_figure_names_its_weights_or_says_that_they_are_by_hand(book):
    gone = "weights = weights:\n"
    with pytest.raises(PageError, match=r"page\.md:17: the figure names no weights"):
        list(book.read(HEAD.replace(gone, "")).steps)
    by_hand = book.read(HEAD.replace(gone, "").replace("digits: 4", "digits: 4\nby_hand: weights"))
    assert failures(by_hand) == []


@pytest.mark.parametrize("name", ["tokens", "votes"])
def test_words_that_name_nothing_must_be_said_to_be_by_hand(book, name):
    unnamed = re.sub(rf"{name} = \w+", name, HEAD)
    with pytest.raises(PageError, match=f"{name} names no expression"):
        list(book.read(unnamed).steps)
    assert failures(book.read(unnamed.replace("digits: 4", f"digits: 4\nby_hand: {name}"))) == []


def test_a_figure_of_too_few_decimals_shows_what_the_page_does_not_and_update_mends_it(book):
    rough = re.sub(r"(\.\d)\d+", r"\1", HEAD.split("```attention")[1])
    stale = f"{HEAD.split('```attention')[0]}```attention{rough}"
    (failure,) = failures(book.read(stale))
    assert "+   - [0.4321, 0.1234]" in failure.report
    page = book.read(stale)
    assert update(page) == 1
    assert page.path.read_text() == HEAD


THIRDS = """
```python
import torch

x = torch.tensor([[1.0], [2.0], [-1.0]]) / 3
weights = torch.softmax(x @ x.T, dim=-1)
```

```attention
tokens: a b c
embeddings = x: [[0.3], [0.7], [-0.3]]
weights = weights:
digits: DIGITS
by_hand: tokens
```
"""


@pytest.mark.parametrize("digits", [0, 1, 2, 3, 4])
def test_a_matrix_gets_the_decimals_that_its_figure_needs(book, digits):
    page = book.read(THIRDS.replace("DIGITS", str(digits)))
    update(page)
    body = page.path.read_text().split("```attention\n")[1].split("```")[0]
    shown = attention.compute(attention.read(body).panels[0], causal=False, scaling=False)
    exact = attention.Panel(list("abc"), {"embeddings": [[1 / 3], [2 / 3], [-1 / 3]]})
    wanted = attention.compute(exact, causal=False, scaling=False)
    for step in attention.STEPS:
        for row, other in zip(shown[step], wanted[step], strict=True):
            assert [f"{n:.{digits}f}" for n in row] == [f"{n:.{digits}f}" for n in other]
    assert failures(book.read(page.path.read_text())) == []


def test_more_digits_than_decimals_can_carry_are_refused(book):
    (failure,) = failures(book.read(THIRDS.replace("DIGITS", "6")))
    assert "show fewer `digits`" in failure.report


CHOICES = """
```python
rows, others = [[1.0], [0.0]], [[0.0], [1.0]]
even, first, second = [0.5, 0.5], [0.731059, 0.268941], [0.268941, 0.731059]
```

```attention
tokens: a b
query: b
weights = even:
choices:
  - name: one
    embeddings = rows: [[1.0], [0.0]]
  - name: two
    queries = rows: [[0.0], [1.0]]
    keys = others: [[0.0], [1.0]]
    values = rows: [[1.0], [0.0]]
    weights = second:
by_hand: tokens
digits: 2
```
"""


def test_each_choice_is_held_to_its_own_weights(book):
    right = CHOICES.replace("queries = rows", "queries = others")
    assert failures(book.read(right)) == []
    (failure,) = failures(book.read(right.replace("weights = second", "weights = first")))
    assert "row 0, column 0 of the weights" in failure.report
    with pytest.raises(PageError, match="the figure names no weights"):
        list(book.read(right.replace("weights = even:\n", "")).steps)


# ---- The labels of heatmaps. ----

LABELLED = """
# A page

```python
import torch

words, keys = "she rowed home".split(), torch.tensor([7, 9])
print(torch.ones(3, 2))
```

```output heatmap rows="= words: she rowed home" cols="= keys: 7 9" caption="rows=no cols=no"
tensor([[1., 1.],
        [1., 1.],
        [1., 1.]])
```
"""


def test_labels_that_are_what_they_name_hold_and_are_drawn_alone(book):
    page = book.read(LABELLED)
    page.check_drawn()
    assert failures(page) == []
    figure = drawn.figure(page.fences[1].text, page.fences[1].options)
    assert re.findall(r'scope="(\w+)">(\w+)<', figure) == [
        *[("col", "7"), ("col", "9")],
        *[("row", "she"), ("row", "rowed"), ("row", "home")],
    ]


@pytest.mark.parametrize(
    ("right", "wrong"), [(": she rowed h", ": rowed she h"), (": 7 9", ": 9 7")]
)
def test_stale_labels_fail_at_their_line_and_are_filled_in(book, right, wrong):
    stale = LABELLED.replace(right, wrong)
    (failure,) = failures(book.read(stale))
    assert failure.line == 11
    page = book.read(stale)
    assert update(page) == 1
    assert page.path.read_text() == LABELLED


def test_labels_and_output_are_both_brought_up_to_date(book):
    path = book.page(
        LABELLED.replace(": she rowed h", ": rowed she h").replace("[[1., 1.]", "[[7., 1.]")
    )
    assert update(read(path)) == 2
    assert path.read_text() == LABELLED


def test_labels_in_a_list_keep_their_indent(book):
    right = book.page("- item\n" + LABELLED.replace("\n", "\n    ")).read_text()
    path = book.page(right.replace(": she rowed h", ": rowed she h"))
    assert update(read(path)) == 1
    assert path.read_text() == right


@pytest.mark.parametrize(
    ("expression", "what"),
    [("words.copy()", "found a Call"), ("words +", "is no expression"), ("", "no expression")],
)
def test_a_label_runs_no_hidden_code(book, expression, what):
    with pytest.raises(PageError, match=rf"page\.md:11: .*{what}"):
        list(book.read(LABELLED.replace("= words:", f"= {expression} :")).steps)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("keys / 2", "rows wants words without blanks"),
        ("None", "rows wants words without blanks, got None"),
        ("gone", "NameError: name 'gone' is not defined"),
    ],
)
def test_labels_that_are_no_words_are_refused(book, expression, says):
    (failure,) = failures(book.read(LABELLED.replace("= words:", f"= {expression}:")))
    assert says in failure.report
    assert failure.line == 11


def test_labels_are_no_output_of_their_own(book):
    page = book.read(LABELLED)
    assert record.check(page) == {}
    assert record.of(page).outputs == 1
