"""What this book adds to an exported page: its heading, and a notebook to practise in."""

import json
import subprocess
import sys

import nbformat

from book import take_away
from literate import export

PRACTISED = """\
    ---
    title: x
    ---

    # A page

    Words before.

    ## Bare

    ## With code

    ```python
    # not a heading
    x = 1
    ```

    ```python
    [][0]
    ```

    ```output raises="IndexError"
    IndexError: list index out of range
    ```

    ```text
    not run
    ```

    ## Exercises

    Read this.

    **1. Change · easy.** What is it?

    ```text
    kept
    ```

    ```python title="Your answer"
    answer_1 = ...
    ```

    ```python title="Check"
    def check_1(answer):
        assert answer == 2, "no"
        print("Exercise 1: right")
    ```

    ??? tip "Hint"

        Think of [this](b.md).

        And that.

    ??? success "Solution"

        It is two.

        ```python
        answer_1 = 2
        check_1(answer_1)
        ```

        ```output
        Exercise 1: right
        ```

    Goodbye.

    ## Sources

    More words.

    ```python
    y = 2
    ```
    """


def test_a_notebook_to_practise_in_has_the_code_then_the_exercises_and_no_solution(book):
    page = book.read(PRACTISED, "docs/part/page.md")
    text = take_away.practice(page, "https://example.org/")
    nbformat.validate(json.loads(text))
    first, *cells = nbformat.reads(text, as_version=4).cells
    assert first.source.startswith("*From the book")
    assert first.source.endswith(take_away.PRACTISE.format(colab="in Colab"))
    check = 'def check_1(answer):\n    assert answer == 2, "no"\n    print("Exercise 1: right")'
    assert [cell.source for cell in cells] == [
        take_away.PRACTICE,
        "# A page\n\n## With code",
        "# not a heading\nx = 1",
        export.GUARD.format(code="    [][0]").rstrip("\n"),
        "## Exercises\n\nRead this.\n\n**1. Change · easy.** What is it?\n\n```text\nkept\n```",
        "answer_1 = ...",
        f"{check}\n\n\npractice.check(1, check_1, answer_1)",
        "<details><summary>Hint</summary>\n\nThink of [this](https://example.org/part/b.html)."
        "\n\nAnd that.\n</details>\n\nGoodbye.\n\n## Sources",
        "y = 2",
        "practice.report()",
    ]
    assert [cell.outputs for cell in cells if cell.cell_type == "code"] == [[]] * 7


def test_a_notebook_to_practise_in_leads_to_itself_in_colab(book):
    page = book.read(PRACTISED, "docs/page.md")
    text = take_away.practice(page, colab="https://colab.example/page")
    assert "[in Colab](https://colab.example/page)" in text


def test_an_answer_is_tried_and_stops_nothing(book):
    """A stub, a wrong answer, one with an error and a right one: each is told, and the last cell counts."""
    answers = (
        ("answer = ...", "not filled in yet"),
        ("def answer(x): ...", "not filled in yet"),
        ('def answer(x):\n    """Say why."""\n    ...', "not filled in yet"),
        ("import functools\n@functools.cache\ndef answer(x): ...", "not right yet: no"),
        ("def answer(x): return x", "not right yet: no"),
        ("def answer(x): return 1", "not right yet: no"),
        ("answer = None", "not right yet: no"),
        ("answer = 1 / 2", "an error came before the check was done"),
        ("def answer(x): return 2", "right"),
    )
    check = """
def check(answer):
    assert not isinstance(answer, float) or undefined
    assert callable(answer) and answer(3) == 2, "no"
    print("Exercise 0: right")
"""
    for code, told in answers:
        program = f"{take_away.PRACTICE}\n{code}\n{check}\npractice.check(7, check, answer)\npractice.report()"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        first, *lines = done.stdout.splitlines()
        assert first == ("Exercise 0: right" if told == "right" else f"Exercise 7: {told}")
        done = told == "right"
        report = [
            f"{int(done)} of 1 exercises done",
            f"Exercise 7: {'done' if done else 'not done yet'}",
        ]
        assert lines[-2:] == report
        assert ("NameError" in "".join(lines)) == told.startswith("an error")


LOADING = """
# A page

```python
import torch

stored = torch.hub.load_state_dict_from_url("https://example.org/files/a-01234567.pt", check_hash=True)
```
"""


def test_the_heading_says_what_was_checked_and_names_the_files_that_the_code_loads(book):
    def heading(text):
        return nbformat.reads(export.notebook(book.read(text)), as_version=4).cells[0].source

    assert "Checked" not in heading("# A page\n")
    (book.root / "requirements.txt").write_text("torchvision==1\ntorch==9.8.7  # why\n")
    assert "*From the book **Attention, Executed**: docs/page.md." in heading(LOADING)
    assert "*Checked with PyTorch 9.8.7. Nothing is installed here:" in heading(LOADING)
    assert "The code loads `a-01234567.pt` from https://example.org/files/ once." in heading(
        LOADING
    )
    assert "checkpoints" not in heading("# A page\n")
