"""An `attention` fence is an output: its matrices are what the page computes."""

import pytest

from literate import compare
from literate.matrices import fill
from literate.page import PageError
from literate.run import Run
from literate.site import explorable
from literate.update import update

PAGE = """
# A page

```python
import torch

class Head:
    W_query = torch.tensor([[0.25, -0.5], [1.0, 2.0]])

x, heads = torch.tensor([[0.125, 0.5]]), [Head]
```

```attention
tokens: one
embeddings = x: [[0.125, 0.500]]
W_query = heads[0].W_query.T:
  - [0.250, 1.000]
  - [-0.500, 2.000]
W_key: [[1.0], [0.0]]  # typed
W_value = heads[0].W_query[:, 1:]: [[-0.5], [2.0]]
by_hand: W_key
```

```python
x = x + 1
```
"""


def failures(page):
    """Run `page`; return the Failure of each step that does not hold."""
    run = Run(page)
    try:
        return [
            found for block in run.blocks if (found := compare.judge(page, block, run.upto(block)))
        ]
    finally:
        run.close()


def test_matrices_that_show_what_the_page_computes_hold(book):
    assert failures(book.read(PAGE)) == []


def test_a_figure_is_computed_where_it_stands_and_not_at_the_end(book):
    page = book.read(PAGE)
    assert [step.line for step in page.steps] == [4, 13, 24]


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [("0.125, 0.500]]", "0.725, 0.500]]", 15), ("2.000]", "-2.000]", 18), ("[2.0]", "[2.5]", 20)],
)
def test_a_stale_number_fails_at_its_line(book, right, wrong, line):
    (failure,) = failures(book.read(PAGE.replace(right, wrong)))
    assert failure.line == line
    assert failure.report.startswith(f"docs/page.md:{line}:")


def test_an_expression_that_raises_is_told_as_that_exception(book):
    (failure,) = failures(book.read(PAGE.replace("embeddings = x", "embeddings = y")))
    assert "NameError: name 'y' is not defined" in failure.report.split("\n")[0]


def test_a_number_typed_by_hand_is_left_alone(book):
    assert failures(book.read(PAGE.replace("[[1.0], [0.0]]", "[[7.0], [8.0]]"))) == []


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
    assert failure.line == 15
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
    with pytest.raises(PageError, match=r"page\.md:15: ") as refused:
        list(book.read(PAGE.replace("= x:", f"= {expression}:")).steps)
    assert what in str(refused.value)


def test_a_matrix_that_names_nothing_must_be_said_to_be_by_hand(book):
    with pytest.raises(PageError, match=r"page\.md:19: W_key names no expression"):
        list(book.read(PAGE.replace("by_hand: W_key\n", "")).steps)


def test_a_matrix_by_hand_names_no_expression(book):
    with pytest.raises(PageError, match=r"page\.md:15: embeddings is by hand, and names x"):
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


def test_only_a_matrix_names_an_expression():
    with pytest.raises(ValueError, match="line 1 of the fence: unknown key 'tokens = words'"):
        explorable.read("tokens = words: a b\n")
