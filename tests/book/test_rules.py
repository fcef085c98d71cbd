"""A link of a page leads to a file, and an exercise has all its parts: what breaks this is named by its line."""

import pytest

from literate.page import PageError

EXERCISE = """\
# A page

See [the other](other.md#there), [a part](snippets/part.py), [the net](https://example.org/a.md).

Not `[a link](gone.md)`, nor

```text
[this](gone.md)
```

## Exercises

**1. Change · easy.** Add.

```python title="Your answer"
answer_1 = ...
```

??? tip "Hint"

    Add.

```python title="Check"
def check_1(answer):
    print("Exercise 1: right")
```

??? success "Solution"

    ```python
    answer_1 = 2
    check_1(answer_1)
    ```

    ```output
    Exercise 1: right
    ```
"""


def drawn(book, text):
    book.page("# Other\n", "docs/other.md")
    book.snippet("part.py", "x = 1\n")
    book.read(text).check_drawn()


def test_a_page_whose_links_lead_somewhere_and_whose_exercise_is_whole_is_drawn(book):
    drawn(book, EXERCISE)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        (
            "other.md#",
            "othr.md#",
            3,
            "the link `othr.md` leads to no file; did you mean `other.md`?",
        ),
        ("snippets/part.py", "snippets/gone.py", 3, "the link `snippets/gone.py` leads to no file"),
        ('??? tip "Hint"', '??? tip "Help"', 13, 'exercise 1 lacks the line `??? tip "Hint"`'),
        (
            "    Exercise 1: right",
            "    Exercise 1: done",
            13,
            "exercise 1 lacks the line `Exercise 1: right`",
        ),
        (
            'python title="Your answer"\nanswer_1 = ...\n```\n\n??? tip "Hint"\n\n    Add.\n',
            'text\n```\n\n??? tip "Hint"\n\n    Add.\n\n```python title="Your answer"\nanswer_1 = ...\n```\n',
            18,
            'exercise 1: `??? tip "Hint"` stands too early',
        ),
    ],
    ids=["a dead link", "a part that is gone", "no hint", "no verdict", "a hint before the stub"],
)
def test_what_breaks_a_rule_is_named_by_its_line(book, old, new, line, said):
    assert EXERCISE.count(old) == 1
    with pytest.raises(PageError) as caught:
        drawn(book, EXERCISE.replace(old, new))
    assert str(caught.value).startswith(f"docs/page.md:{line}: {said}")


PREDICTED = """\
# A page

Two and two. Predict the sum:

```python
print(2 + 2)
```

```output predict
4
```
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("output predict", "output", "the text asks to predict this output"),
        (
            "Predict the",
            "Here is the",
            "this output is veiled, and the paragraph above asks for no",
        ),
        ("Predict the sum:\n", "Predict it.\n\nThe sum:\n", "this output is veiled"),
    ],
)
def test_an_output_is_veiled_where_the_text_asks_to_predict_it_and_nowhere_else(
    book, old, new, said
):
    drawn(book, PREDICTED)
    with pytest.raises(PageError, match=rf"docs/page\.md:\d+: {said}"):
        drawn(book, PREDICTED.replace(old, new))
