"""What breaks a rule of this book is named by its line: links, exercises, veils, front matter, HTML, hidden code."""

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
        ("text\n[this](gone.md)\n", "pycon\n>>> 1\n1\n", 7, "a session, which no page runs here"),
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
    ids=[
        "a dead link",
        "a part that is gone",
        "a session",
        "no hint",
        "no verdict",
        "a hint before the stub",
    ],
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


def test_what_a_folded_block_prints_stands_open_below_the_fold(book):
    code = '??? example "The code"\n\n    ```python\n    print(2 + 2)\n    ```\n'
    folded = PREDICTED.replace("```python\nprint(2 + 2)\n```\n", code)
    drawn(book, folded)
    drawn(book, folded.replace("??? example", "!!! note"))
    [block] = book.read(folded).blocks
    assert (block.output.text, block.output.indent) == ("4\n", 0)
    with pytest.raises(PageError, match="this output is veiled"):
        drawn(book, folded.replace("Predict", "Here is"))


FRONT = {
    "a mark": ("title: x\ncheck: {record: {outputs: 57}}", 3, "found `check`"),
    "a mark merged in": ("<<: {check: {outputs: 57}}", 2, "found `<<`"),
    "a title that is none": ("title:", 2, "plain text"),
    "a tag": ("title: x <p class=mark>57 outputs</p>", 2, "plain text"),
    "what is hidden, in words": ("hide: toc", 2, "`hide` wants a list of navigation and toc"),
    "code": ("x: |\n  ```python\n  a = 1\n  ```", 2, "found `x`"),
}


@pytest.mark.parametrize(("front", "line", "words"), FRONT.values(), ids=FRONT)
def test_front_matter_sets_what_it_is_for_and_nothing_else(book, front, line, words):
    drawn(book, "---\ntitle: Keys & values\nhide: [toc, navigation]\n---\n\n# A page\n")
    with pytest.raises(PageError, match=rf"^docs/page\.md:{line}: .*{words}"):
        drawn(book, f"---\n{front}\n---\n\n# A page\n")


PYTHON = "```python\nprint(1)\n```\n"
MISLEADING = {
    "a tag that hides": ("# A\n\n<style>\n</style>\n", "3: a page holds no <style>"),
    "an output by hand": ("# A\n\nThen <samp>1</samp>.\n", "3: a page holds no <samp>"),
    "one address twice": ("# A\n\n## B { #b }\n\n## C { #b }\n", "5: the address `b` is taken"),
    "a formula that is none": ("# A\n\nIt is $ \\frac{1}{2} $.\n", "3: the site shows `\\frac`"),
    "a formula that does not end": (
        "# A\n\nIt is\n\n$$\na + b\n\nMore.\n",
        "5: the site shows `$$`",
    ),
    "a fence that is none": ("# A\n\n```text who\n1\n```\n", "3: the site draws no code"),
    "code in a comment": ("# A\n\n<!-- python\nx = 1\n-->\n", "3: code in a comment"),
    "a skipped block": ('# A\n\n```{ .python skip="why" }\n1\n```\n', "3: unknown option `skip`"),
    "a tab in code": ("# A\n\n```python\nx = '\t'\n```\n", "3: a tab in this fence"),
    "a line of blanks in a string": (
        b'# A\n\n```python\nx = """\n \n"""\n```\n',  # a text would be dedented
        "3: a line of blanks in this fence",
    ),
    "an include in the text": (
        '# A\n\n--8<-- "part.py"\n',
        "3: an include stands in a `python` fence",
    ),
    "an include in a text": ('# A\n\n```text\n--8<-- "part.py"\n```\n', "4: an include stands"),
}


@pytest.mark.parametrize(("text", "said"), MISLEADING.values(), ids=MISLEADING)
def test_what_would_mislead_by_accident_is_named(book, text, said):
    with pytest.raises(PageError) as error:
        drawn(book, text)
    assert str(error.value).startswith(f"docs/page.md:{said}")


def test_what_pages_write_as_html_and_only_talk_of_it_is_drawn(book):
    figure = '<figure class="diagram">\n<svg viewBox="0 0 9 9">\n<text>a</text></svg>\n<figcaption>It <em>is</em>.'
    said = "Write `<style>`, $a<b$ and `\\frac`, `$$` or ```` ``` ````; see <https://example.org>, <br>it costs $5."
    drawn(book, f"# A\n\n{figure}</figcaption>\n</figure>\n\n{said}\n\n$$\n\\frac{{a}}{{b}}\n$$\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("docs/files/helper.PY", "files of data alone; .*: helper.PY"),
        ("docs/files/deep/a.pt", "files of data alone; .*: deep"),
        ("docs/part/two.ipynb", "a notebook stands in docs/labs/, .*two.ipynb"),
    ],
)
def test_a_file_that_stands_where_it_should_not_is_refused_by_its_name(book, name, said):
    book.page("", name)
    with pytest.raises(PageError, match=said):
        drawn(book, "# A\n")
