"""A session at Python's prompt runs, and shows what Python answers."""

import json

import pytest

from literate import export
from literate.page import PageError, read
from literate.update import update
from tests.projects import failures

SESSION = """\
# A page

```python
base = 1
```

- In a list:

    ```pycon
    >>> base + 1
    2
    >>> def double(x):
    ...     return 2 * x
    ...
    >>> print("a\\n\\nb")
    a
    <BLANKLINE>
    b

    >>> [double(base), None]
    [2, None]
    >>> double(0.1 + 0.2)
    0.6000000000000001
    >>> [][3]
    Traceback (most recent call last):
      File "<stdin>", line 1, in <module>
    IndexError: list index out of range
    ```

```python
print(double(3))
```

```output
6
```
"""


@pytest.fixture
def page(tmp_path, monkeypatch, no_torch):
    """`page(text)` is a page of a project that adds nothing, read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "pyproject.toml").touch()

    def of(text):
        (tmp_path / "README.md").write_text(text, encoding="utf-8")
        return read(tmp_path / "README.md")

    return of


def test_each_example_of_a_session_runs_in_the_module_of_its_page(page):
    session = page(SESSION)
    assert failures(session) == []
    assert [block.line for block in session.blocks] == [3, 10, 12, 15, 20, 22, 24, 30]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("    2\n", "    3\n", 11, "the output differs"),
        ("    b\n", "    c\n", 18, "the output differs"),
        ("    2\n", "", 10, "prints, and nothing stands below it"),
        ("    ...\n", "    ...\n    1\n", 14, "prints nothing"),
        ("[][3]", "[]", 26, "did not raise IndexError"),
        ("index out of range", "index", 27, "the output differs"),
        ("print(double(3))", "print(_)", 35, "the output differs"),
    ],
)
def test_an_answer_that_python_does_not_give_is_named_by_its_line(page, old, new, line, said):
    failure = failures(page(SESSION.replace(old, new, 1)))[0]
    assert f"README.md:{line}: " in failure.report.splitlines()[0]
    assert said in failure.report.splitlines()[0]


def test_what_a_session_shows_is_rewritten(page):
    wrong = SESSION.replace("    2\n", "", 1).replace("    a\n    <BLANKLINE>\n", "    c\n")
    wrong = wrong.replace("    ...\n", "    ...\n    gone\n").replace("out of range", "lost")
    session = page(wrong)
    assert update(session) == 4
    assert session.path.read_text() == SESSION
    assert update(read(session.path)) == 0


@pytest.mark.parametrize(
    ("fence", "said"),
    [
        (">>> a\n1\n\n2", "README.md:6: text of no example; wanted `>>> `, or <BLANKLINE> for"),
        (">>>a", "README.md:3: this session lacks blank after >>>: '>>>a'"),
        ("a = 1", "README.md:3: text of no example"),
        ("", "README.md:2: a `pycon` fence without an example; wanted `>>> `"),
    ],
)
def test_a_session_that_cannot_be_read_is_an_error_in_one_line(page, fence, said):
    with pytest.raises(PageError) as error:
        page(f"\n```pycon\n{fence}\n```\n")
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_a_session_may_be_skipped(page):
    assert failures(page('```pycon skip="asks the network"\n>>> fetch()\n```\n')) == []


def test_a_notebook_has_the_examples_of_a_session_as_cells(page):
    cells = json.loads(export.notebook(page(SESSION)))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code[1] == "base + 1"
    assert code[2].startswith("def double")
    assert len(code) == 8
