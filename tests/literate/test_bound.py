"""A number of the text that is bound to an expression of the page is what the expression comes to."""

import pytest

from literate import record
from literate.page import PageError
from literate.prose import unsupported_numbers
from literate.update import Refused, update
from tests.projects import failures

PAGE = """
# A page

```python
import torch

weights = torch.tensor([[0.75, 0.25], [0.5338, -0.4662]])
heads, share, many = 3, 0.125, 1234567
```

It has <data value="heads">3</data> heads; *b* gives *a* <data value="weights[1, 0]">0.53</data>.
A share of <data value="share">12.5 %</data>, and a score of <data value="weights[1, 1]">−0.466</data>.
All <data value="many">1,234,567</data>, but for <data value="many - 10 * heads">1234537</data>.

```python
heads = 4
```
"""


def test_numbers_that_are_what_their_expressions_come_to_hold(book):
    page = book.read(PAGE)
    assert failures(page) == []
    assert unsupported_numbers(page) == []
    assert record.check(page) == {}


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        (">3<", ">4<", 11),  # what it is later
        (">0.53<", ">0.54<", 11),
        (">12.5 %<", ">12.5<", 12),
        (">12.5 %<", ">12.6 %<", 12),
        (">−0.466<", ">−0.467<", 12),
        (">1,234,567<", ">1,234,568<", 13),
    ],
)
def test_another_number_fails_at_its_line_and_update_mends_it(book, right, wrong, line):
    page = book.read(PAGE.replace(right, wrong))
    (failure,) = failures(page)
    assert failure.line == line
    assert failure.report.startswith(f"docs/page.md:{line}: a bound number of the text is another")
    update(page)
    mended = ">0.1<" if wrong == ">12.5<" else right
    assert page.path.read_text() == PAGE.replace(right, mended)


def test_a_float_may_differ_as_floats_do_between_processors(book):
    page = PAGE.replace("weights[1, 0]", "(weights[1, 0] + 0.0012000001)").replace("0.53<", "0.54<")
    assert failures(book.read(page)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ('"heads"', '"len(x)"', "wanted names, indices and arithmetic in `len(x)`; found a Call"),
        ('"heads"', '"heads +"', "`heads +` is no expression"),
        (">3<", ">three<", "wanted one plain number in <data>; found `three`"),
        (">3<", ">3 of 4<", "found `3 of 4`"),
        (">3</data>", ">3", "a bound number stands on one line"),
        (' value="heads"', "\nvalue='heads'", "a bound number stands on one line"),
    ],
)
def test_what_is_no_bound_number_is_an_error_at_its_line(book, right, wrong, what):
    with pytest.raises(PageError, match=r"docs/page\.md:11: ") as error:
        list(book.read(PAGE.replace(right, wrong)).steps)
    assert what in str(error.value)


@pytest.mark.parametrize("expression", ["weights", "missing", "True"])
def test_only_a_number_can_be_bound(book, expression):
    page = book.read(PAGE.replace('"heads"', f'"{expression}"'))
    (failure, *_) = failures(page)
    assert failure.report.startswith("docs/page.md:11: ")
    with pytest.raises(Refused):
        update(page)


def test_what_code_says_of_data_binds_nothing(book):
    shown = PAGE + '\nWrite `<data value="x">1</data>`.\n\n```html\n<data value="x">1</data>\n```\n'
    assert len(book.read(shown).steps) == len(book.read(PAGE).steps)


def test_a_number_of_a_solution_is_bound_in_the_solution(book):
    solution = """
??? success "Solution"

    ```python
    answer = 42
    ```

    - It is <data value="answer">42</data>.

It has <data value="heads">4</data> heads.
"""
    page = book.read(PAGE + solution)
    assert [step.solution for step in page.steps if step.is_bound] == [False] * 3 + [True, False]
    assert record.check(page) == {}
