"""Labels of a heatmap that name an expression are what it gives."""

import re

import pytest

from book.figures import output
from literate import record
from literate.page import PageError
from literate.update import update
from tests.projects import failures

PAGE = """
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


def test_labels_that_are_what_they_name_hold_are_shown_alone_and_are_no_output(book):
    page = book.read(PAGE)
    page.check_drawn()
    assert record.check(page) == {}
    assert record.of(page).outputs == 1
    figure = output.html(page.fences[1].text, page.fences[1].options)
    labels = re.findall(r'scope="\w+">(\w+)<', figure)
    assert labels == ["7", "9", "she", "rowed", "home"]


@pytest.mark.parametrize(
    ("right", "wrong"), [(": she rowed h", ": rowed she h"), (": 7 9", ": 9 7")]
)
def test_stale_labels_fail_at_their_line_and_are_filled_in(book, right, wrong):
    stale = PAGE.replace(right, wrong)
    (failure,) = failures(book.read(stale))
    assert failure.line == 11
    page = book.read(stale.replace("[[1., 1.]", "[[7., 1.]"))
    assert update(page) == 2
    assert page.path.read_text() == PAGE


def test_labels_in_a_list_keep_their_indent(book):
    right = book.page("- item\n" + PAGE.replace("\n", "\n    ")).read_text()
    page = book.read(right.replace(": she rowed h", ": rowed she h"))
    assert update(page) == 1
    assert page.path.read_text() == right


@pytest.mark.parametrize(
    ("expression", "what"), [("words.copy()", "found a Call"), ("words +", "is no expression")]
)
def test_a_label_runs_no_hidden_code(book, expression, what):
    with pytest.raises(PageError, match=rf"page\.md:11: .*{what}"):
        list(book.read(PAGE.replace("= words:", f"= {expression} :")).steps)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("keys / 2", "rows wants words without blanks"),
        ("gone", "NameError: name 'gone' is not defined"),
    ],
)
def test_labels_that_are_no_words_are_refused(book, expression, says):
    (failure,) = failures(book.read(PAGE.replace("= words:", f"= {expression}:")))
    assert says in failure.report
    assert failure.line == 11
