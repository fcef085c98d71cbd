"""The checker is tested by damage: whatever is changed in an output is caught, at its line."""

import random
import re
import subprocess
import sys

import pytest

from literate.page import read
from tests.pages import PAGES, ROOT, RUNNING
from tools import mutants


@pytest.fixture(scope="module")
def page():
    """The first page of the book that prints."""
    return next(page for page in RUNNING if any(block.output for block in page.blocks))


SOON = (
    "docs/start/pytorch.md",
    "docs/foundations/dot-product.md",
    "docs/correctness/masks.md",
)
SOME = [page for page in RUNNING if page.name in SOON]


@pytest.mark.parametrize(
    "books", [SOME, pytest.param(RUNNING, marks=pytest.mark.lab)], ids=["some pages", "the book"]
)
def test_a_sample_of_all_damage_is_caught_at_the_right_line(books, monkeypatch):
    monkeypatch.chdir(ROOT)
    everything = sum(len(mutants.chosen(page, 2)) for page in books)
    assert everything >= 1000
    caught, missed, kinds = mutants.survey(books, every=everything // 100, quiet=True)
    assert [(page.name, mutant.kind, mutant.lines) for page, mutant in missed] == []
    assert caught >= 100
    assert len(kinds) >= 13


def test_each_output_of_a_page_is_damaged_in_every_way_it_offers(page):
    damaged = {mutant.block for mutant in mutants.mutants(page)}
    assert damaged == {i for i, block in enumerate(page.blocks) if block.output}


@pytest.mark.lab
def test_every_wrong_digit_in_a_figure_is_caught(tmp_path):
    page = read(ROOT / "docs/foundations/dot-product.md")
    figures = [one for one in mutants.mutants(page) if one.kind == "digit of a figure"]
    assert len(figures) == 42
    laboratory, results = mutants.Laboratory(tmp_path), mutants.outcomes(page)
    assert all(laboratory.caught(page, results, mutant) for mutant in figures)


@pytest.mark.parametrize(
    ("books", "every"),
    [(PAGES, 10), pytest.param(PAGES, 1, marks=pytest.mark.lab)],
    ids=["one in ten", "all"],
)
def test_wrong_numbers_in_the_text_are_noticed_as_contributing_says(books, every):
    tally = mutants.survey_of_text(books, every)
    assert tally.held + tally.by_hand >= tally.large > 10
    for kind, share in (("digits", 0.9), ("exchanges", 2 / 3), ("percents", 0.8)):
        tried, noticed = getattr(tally, kind)
        assert noticed >= share * tried >= 1, kind


PROSE = """
# A page

```python
heads, weight = 12, 0.4712
print(heads, weight)
```

```output
12 0.4712
```

It has 12 heads with a weight of 0.47.
"""


def test_each_digit_each_two_numbers_and_each_percent_sign_are_tried(tmp_path):
    path = tmp_path / "docs/page.md"
    path.parent.mkdir()
    path.write_text(PROSE)
    tally = mutants.survey_of_text([read(path)])
    assert (tally.numerals, tally.large, tally.held) == (2, 2, 2)
    assert tally.digits == (9 * (2 + 3), 9 * (2 + 3))
    assert tally.exchanges == (1, 1)
    assert tally.percents == (2, 2)


def test_a_checker_of_text_that_let_anything_pass_would_be_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr("literate.prose.Paragraph.complaints", lambda self: iter(()))
    path = tmp_path / "page.md"
    path.write_text(PROSE)
    tally = mutants.survey_of_text([read(path)])
    assert (tally.digits[1], tally.exchanges[1], tally.percents[1]) == (0, 0, 0)


def test_a_checker_that_let_anything_pass_would_be_found_out(page, monkeypatch, tmp_path):
    monkeypatch.setattr("literate.compare.differences", lambda expected, printed: [])
    laboratory = mutants.Laboratory(tmp_path)
    mutant = next(mutants.mutants(page))
    assert not laboratory.caught(page, mutants.outcomes(page), mutant)


def damage(text):
    """Return {kind: the damaged lines} of an output of one line."""
    draw, found = random.Random(0), {}
    for damaged in (mutants._renumbered, mutants._reworded, mutants._moved):
        for kind, line in damaged(text, draw):
            found.setdefault(kind, []).append(line)
    return found


def test_a_power_and_an_only_digit_are_damaged_in_their_last_place():
    assert mutants._exact_places("1e-12") == [3, 4, 0]
    assert mutants._exact_places("0.05") == [3]
    assert mutants._exact_places("0.15") == []
    assert damage("below 1e-12: True")["exact digit"] != ["below 1e-12: True"]


def test_the_sign_of_a_zero_is_no_damage_and_equal_numbers_cannot_be_swapped():
    assert not {"sign flipped", "numbers swapped"} & damage("[0.00, -0.00]").keys()
    assert damage("[0, 1.5]")["sign flipped"] == ["[-0, 1.5]", "[0, -1.5]"]
    assert damage("[0, 1.5]")["numbers swapped"] == ["[1.5, 0]"]


def test_layout_is_damaged_by_blanks_carets_and_values_that_move():
    found = damage("  a  1.5 -")
    assert found["blank added"] == ["   a  1.5 -", "  a   1.5 -", "  a  1.5  -"]
    assert found["blank removed"] == [" a  1.5 -", "  a 1.5 -", "  a  1.5-"]
    assert found["value moved"] == [" a   1.5 -", "  a 1.5  -"]
    assert damage("   ^")["caret moved"] == ["    ^"]


def test_a_column_is_reversed_as_far_as_its_rows_are_alike():
    table = ["n  x", "1  5.5", "2  5.5", "3  5.6", "end"]
    assert list(mutants._reversed_columns(table)) == [
        ["n  x", "3  5.5", "2  5.5", "1  5.6", "end"],
        ["n  x", "1  5.6", "2  5.5", "3  5.5", "end"],
    ]


@pytest.mark.lab
def test_tens_of_damaged_pages_fail_under_pytest_each_at_its_line(page, tmp_path):
    mutants.Laboratory(tmp_path)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["literate.pytest_plugin"]\n')
    chosen = list(mutants.mutants(page))
    chosen = chosen[:: len(chosen) // 24]
    (tmp_path / "docs").mkdir(exist_ok=True)
    for number, mutant in enumerate(chosen):
        text = re.sub(r"\]\([^)]*\)", "]", mutant.text(page))  # from here its links lead nowhere
        (tmp_path / "docs" / f"m{number}.md").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "docs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    found = re.findall(r"^docs/m(\d+)\.md:(\d+): the output differs", done.stdout, re.MULTILINE)
    assert len(chosen) >= 20
    assert sorted(int(number) for number, _ in found) == list(range(len(chosen))), done.stdout
    for number, line in found:
        assert int(line) in chosen[int(number)].lines
