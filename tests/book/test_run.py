"""What a page carries to be run in a browser: where its blocks begin, and what they must print."""

import json

import pytest

from book import run
from book.figures.explorable import fence as explorable
from literate.page import read
from tests.pages import PAGES, ROOT, each

LABELLED = """\
# A page

```python
words = "she rowed"
print([[1, 2], [3, 4]])
```

```output heatmap rows="= words: she rowed"
[[1, 2], [3, 4]]
```

```python
raise KeyError("x")
```

```output raises="KeyError"
KeyError: 'x'
```
"""


@pytest.fixture
def page(tmp_path):
    """A page of a project whose small torch runs all of it but its second block."""
    (tmp_path / "pyproject.toml").write_text('[tool.literate]\nproject = "book.project:PROJECT"\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text(LABELLED)
    (tmp_path / "small_torch").mkdir()
    (tmp_path / "small_torch/runs.json").write_text('{"docs/page.md": {"1": "it raises"}}')
    return read(tmp_path / "docs/page.md")


def test_a_page_says_which_blocks_do_not_run_and_why(page):
    known = run.known(page)
    assert (known["runs"], known["blocks"], known["unrun"]) == (1, 2, '{"1":"it raises"}')


def test_a_page_of_which_nobody_knows_whether_it_runs_offers_nothing(page):
    (page.root / "small_torch/runs.json").unlink()
    assert run.known(page) is None


def test_a_block_says_where_it_begins_and_what_it_must_print(page):
    first, second = json.loads(run.program(page))["blocks"]
    assert first["start"] == 4
    assert first["output"]["text"] == "[[1, 2], [3, 4]]\n"
    assert first["output"]["labels"]["names"] == ["rows"]
    assert "words" in first["output"]["labels"]["code"]
    assert second["raises"] == "KeyError"


@each([page for page in PAGES if "## Exercises" in page.text])
def test_each_exercise_has_its_stub_its_check_and_its_solution(page):
    blocks = json.loads(run.program(page))["blocks"]
    found = {kind: [b[kind] for b in blocks if kind in b] for kind in ("stub", "check", "solution")}
    assert sorted(set(found["stub"])) == found["check"] == sorted(set(found["solution"])) != []


def test_code_without_comments_and_docstrings_computes_the_same():
    code = '"""A."""\n# b\ndef f(x):\n    """C."""\n    return x + 1  # d\n\n\ndef g():\n    """E."""\n'
    slim = run.slim(code)
    assert not [letter for letter in "ABCDE" if f'"{letter}.' in slim.replace("'", '"')]
    names = {}
    exec(slim, names)
    assert (names["f"](1), names["g"]()) == (2, None)


def test_a_value_of_one_panel_is_shown_there_and_one_of_all_in_all():
    body = "choices:\n  - name: a\n    tokens = x: b c\n  - name: d\n    tokens = z: e f\nembeddings = y:\n  - [1]\n"
    assert explorable.places(body) == [("tokens", [0]), ("tokens", [1]), ("embeddings", [0, 1])]


def test_what_is_packed_is_there():
    assert [name for name in run.PACKED if not (ROOT / name).exists()] == []


def test_what_a_page_fetches_later_is_there():
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / run.SMALL_TORCH).glob("**/*.py")]
    assert [name for name in run.LAZY if not any(file.startswith(name) for file in files)] == []
