"""The checker is tested by damage: whatever is changed in an output is caught, at its line."""

import re
import subprocess
import sys

import pytest

from literate.page import pages, read
from tools import mutants
from tools.mutants import ROOT


@pytest.fixture(scope="module")
def page():
    """The first page of the book that prints."""
    return next(page for page in map(read, pages(ROOT)) if any(b.output for b in page.blocks))


def test_a_sample_of_all_damage_to_the_book_is_caught_at_the_right_line(monkeypatch):
    monkeypatch.chdir(ROOT)
    everything = sum(len(mutants.chosen(read(path), 2)) for path in pages(ROOT))
    assert everything >= 1000
    caught, missed, kinds = mutants.survey(every=everything // 150, quiet=True)
    assert [(page.name, mutant.kind, mutant.lines) for page, mutant in missed] == []
    assert caught >= 100
    assert len(kinds) == 8


def test_each_output_of_a_page_is_damaged_in_every_way_it_offers(page):
    damaged = {mutant.block for mutant in mutants.mutants(page)}
    assert damaged == {i for i, block in enumerate(page.blocks) if block.output}


def test_a_checker_that_let_anything_pass_would_be_found_out(page, monkeypatch, tmp_path):
    monkeypatch.setattr("literate.compare.differences", lambda expected, printed: [])
    laboratory = mutants.Laboratory(tmp_path)
    mutant = next(mutants.mutants(page))
    assert not laboratory.caught(page, mutants.outcomes(page), mutant)


@pytest.mark.parametrize(
    ("page", "printed", "equal"),
    [
        ("0.10", "0.11", True),
        ("0.10", "0.12", False),
        ("0.00", "-0.00", True),
        ("0.", "-0.", True),
        ("1.", "2.", False),
        ("1", "2", False),
        ("1e-05", "1e-06", False),
        ("1.50e-05", "1.51e-05", True),
        ("1.50e-05", "1.52e-05", False),
    ],
)
def test_what_counts_as_equal_is_worked_out_apart_from_the_checker(page, printed, equal):
    assert mutants._equal(page, printed) is equal


def test_tens_of_damaged_pages_fail_under_pytest_each_at_its_line(page, tmp_path):
    mutants.Laboratory(tmp_path)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["literate.pytest_plugin"]\n')
    chosen = list(mutants.mutants(page))
    chosen = chosen[:: len(chosen) // 24]
    (tmp_path / "docs").mkdir()
    for number, mutant in enumerate(chosen):
        (tmp_path / "docs" / f"m{number}.md").write_text(mutant.text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "docs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    found = re.findall(r"^docs/m(\d+)\.md:(\d+): the output differs", done.stdout, re.MULTILINE)
    assert len(chosen) >= 20
    assert sorted(int(number) for number, _ in found) == list(range(len(chosen))), done.stdout
    for number, line in found:
        assert int(line) in chosen[int(number)].lines
