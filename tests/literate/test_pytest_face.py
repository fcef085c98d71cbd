"""Plain pytest works on pages as people expect it to work on tests."""

import sys
from pathlib import Path

import pytest

from tests.projects import LEANING, SETTINGS, write
from tests.projects import PROVEN as PAGE

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]


def run(project, *arguments):
    quick = [
        word for name in ("xdist", "randomly", "hypothesispytest") for word in ("-p", f"no:{name}")
    ]
    return project.runpytest_inprocess(*quick, *arguments)


def passed(result):
    """Return the ids of the tests that passed, in the order in which they ran."""
    return [line.split()[0] + " " + line.split()[1] for line in result.outlines if "PASSED" in line]


@pytest.mark.parametrize("options", [(), ("--codeblocks",)], ids=["plain", "pytest-codeblocks"])
def test_every_block_is_a_test_named_by_its_page_and_line(project, options):
    write(project, "README.md", PAGE + "\n```bash\nexit 1\n```\n")
    result = run(project, "-v", *options)
    assert passed(result) == [
        f"{page}::line {line}"
        for page in ("README.md", "docs/a.md", "docs/part/b.md")
        for line in (4, 8, 16)
    ]


def test_other_markdown_is_a_page_where_it_is_asked_for_alone(project):
    write(project, "notes/x.md", PAGE)
    assert run(project, "notes").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert passed(run(project, "-v", "notes/x.md"))[0] == "notes/x.md::line 4"


def test_an_editor_finds_each_test_at_its_line(project):
    items, _ = project.inline_genitems("docs/a.md")
    assert [item.location for item in items] == [
        ("docs/a.md", line - 1, f"line {line}")
        for line in (4, 8, 16)  # pytest counts from 0
    ]


def test_choosing_one_block_runs_those_before_it(project):
    result = run(project, "-v", "docs/a.md::line 16")
    assert passed(result) == ["docs/a.md::line 16"]
    result.assert_outcomes(passed=1)


def test_the_names_of_folders_hide_no_page(project):
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (project.path / "pytest.ini").unlink()
    write(project, "pyproject.toml", settings)
    for folder in ("build", "dist", "node_modules", "venv"):
        write(project, f"docs/{folder}/x.md", PAGE)
    run(project, "docs").assert_outcomes(passed=6 * 3)


def test_a_failure_shows_its_place_its_line_and_what_moved(project):
    write(project, "docs/a.md", PAGE.replace("2.0000", "2.0100"))
    result = run(project, "docs/a.md")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines_random(
        [
            "docs/a.md:22: the output differs from what the block on line 16 prints",
            "   22 | 2.0100",
            "  - 2.0100",
            "  + 2.0000",
            "    ^^^^^^",
            "FAILED docs/a.md::line 16*",
        ]
    )
    result.stdout.no_fnmatch_line("*literate/*")


def test_every_failing_block_is_named_and_what_follows_from_another_is_skipped(project):
    text = PAGE.replace("a = 1", "a = c") + "\n```python\n1 / 0\n```\n"
    write(project, "docs/a.md", text)
    result = run(project, "docs/a.md")
    result.assert_outcomes(failed=2, skipped=2)
    result.stdout.fnmatch_lines(["docs/a.md:5: NameError*", "docs/a.md:26: ZeroDivisionError*"])
    result = run(project, "docs/a.md", "-k", "16")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines_random(["It follows from the failure of the block on line 4."])


def test_a_block_that_is_skipped_says_why_and_is_not_run(project):
    """In a project without a site; this book's own skips nothing."""
    for name in SETTINGS:
        (project.path / name).unlink()
    text = PAGE.replace("```python\nprint(a)", '```python skip="needs a card"\nprint(1 / 0)')
    write(project, "docs/a.md", text)
    result = run(project, "-rs", "docs/a.md")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["*docs/a.md:8: skipped: needs a card*"])


def test_the_last_failures_can_be_run_again(project):
    write(project, "docs/a.md", PAGE.replace("2.0000", "3.0000"))
    run(project).assert_outcomes(passed=8, failed=1)
    run(project, "--lf").assert_outcomes(failed=1)
    write(project, "docs/a.md", PAGE)
    run(project, "--lf").assert_outcomes(passed=1)


def test_an_output_that_varies_is_skipped_elsewhere_and_checked_on_the_reference(
    project, monkeypatch
):
    text = PAGE.replace("```output\n2.0000", '```output varies="masks"\n3.0000')
    write(project, "docs/a.md", text)
    result = run(project, "-rs", "docs/a.md")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["*docs/a.md:22: varies (masks); it differs on this platform*"])
    monkeypatch.setattr("literate.compare.on_reference_platform", lambda root: True)
    run(project, "docs/a.md").assert_outcomes(passed=2, failed=1)


def test_a_page_that_leans_on_a_solution_fails(project):
    write(project, "docs/a.md", LEANING)
    result = run(project, "-v", "docs/a.md")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(
        ["docs/a.md::without solutions FAILED*", "docs/a.md:36: the output differs*"]
    )


def test_a_page_that_does_not_lean_on_its_solutions_passes(project):
    text = LEANING.replace("a = 7", "c = 7").replace("\n7\n", "\n1\n")
    write(project, "docs/a.md", text)
    run(project, "docs/a.md").assert_outcomes(passed=6)


ENDING = {
    "in a block": ("import os\nos._exit(0)", 4),
    "in an exit handler": ("import atexit, os\natexit.register(os._exit, 0)", 16),
}


@pytest.mark.parametrize(("code", "line"), ENDING.values(), ids=ENDING)
def test_a_page_that_ends_its_process_fails_and_every_other_page_runs(project, code, line):
    write(project, "docs/a.md", PAGE.replace("a = 1", f"a = 1\n{code}"))
    result = run(project)
    after = 0 if line == 16 else 2
    result.assert_outcomes(passed=8 - after, failed=1, skipped=after)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.re_match_lines([r"docs/a\.md:\d+: .* ended .*process.* \(exit status 0\)"])


def test_what_a_page_that_holds_writes_to_standard_error_is_listed_and_fails_nothing(project):
    warns = PAGE.replace("a = 1", "a = 1\nimport warnings\nwarnings.warn('old')")
    write(project, "docs/a.md", warns)
    result = run(project, "docs/a.md")
    result.assert_outcomes(passed=3, warnings=1)
    result.stdout.fnmatch_lines(["*docs/a.md:7: UserWarning: old"])


@pytest.mark.lab
def test_coverage_follows_a_page_into_its_process(project, monkeypatch):
    write(project, "parts.py", "def double(x):\n    return 2 * x\n")
    write(project, ".coveragerc", f"[run]\nparallel = true\ndata_file = {project.path}/.coverage\n")
    monkeypatch.setenv("COVERAGE_PROCESS_START", str(project.path / ".coveragerc"))
    monkeypatch.setenv("PYTHONPATH", str(project.path))
    write(
        project, "docs/a.md", PAGE.replace("a = 1", "from parts import double\na = double(1) - 1")
    )
    project.runpytest_subprocess("docs/a.md").assert_outcomes(passed=3)
    coverage = [sys.executable, "-m", "coverage"]
    project.run(*coverage, "combine")
    project.run(*coverage, "report").stdout.fnmatch_lines(["parts.py *100%"])


@pytest.mark.lab
def test_with_workers_a_page_stays_on_one(project):
    text = PAGE.replace("a = 1", "import os\na = 1\nfirst = os.environ['PYTEST_XDIST_WORKER']")
    text += "\n```python\nassert os.environ['PYTEST_XDIST_WORKER'] == first\n```\n"
    for name in "abcd":
        write(project, f"docs/{name}.md", text)
    result = project.runpytest_subprocess("-n", "2", "-v", "docs", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=4 * 4 + 3)
    workers = {}
    for line in result.outlines:
        if "PASSED" in line:
            workers.setdefault(line.split("::")[0].split()[-1], set()).add(line.split()[0])
    assert len(workers) == 5
    assert all(len(used) == 1 for used in workers.values())
    assert len(set.union(*workers.values())) == 2


@pytest.mark.lab
def test_a_checkout_that_cannot_be_written_to_can_be_tested(project):
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (project.path / "pytest.ini").unlink()
    write(project, "pyproject.toml", settings)
    result = project.runpytest_subprocess("-v", "-o", "cache_dir=/dev/null/cache", "docs")
    result.assert_outcomes(passed=6)


@pytest.mark.lab
def test_assertions_hold_under_an_optimizing_python(project, monkeypatch):
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (project.path / "pytest.ini").unlink()
    write(project, "pyproject.toml", settings)
    raising = 'assert 1 == 2\n```\n\n```output raises="AssertionError"\nAssertionError'
    write(project, "docs/a.md", PAGE.replace("a = 1", raising, 1))
    write(project, "docs/part/b.md", PAGE.replace("a = 1", "a = 1\nassert a == 2", 1))
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    result = project.runpytest_subprocess("-v", "docs/a.md::line 4", "docs/part/b.md::line 4")
    result.assert_outcomes(passed=1, failed=1)


def test_a_stale_number_in_the_text_fails_the_prose_of_its_page(project):
    write(project, "docs/a.md", PAGE + "\nIt is 2.000, and then 2.125.\n")
    result = run(project, "-v", "docs/a.md")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["docs/a.md::prose FAILED*", "docs/a.md:25: 2.125 stands in no*"])


def test_a_figure_is_a_test_named_by_its_line(project):
    figure = "\n```attention\ntokens = word: x\nembeddings = rows: [[2.5]]\nweights = one:\n```\n"
    write(project, "docs/a.md", PAGE + figure + "\n```python\nc = 1\n```\n")
    write(
        project,
        "docs/part/b.md",
        PAGE.replace("a = 1", "a, word, rows, one = 1, 'x', [[2.5]], [[1.0]]") + figure,
    )
    result = run(project, "-v", "docs")
    result.stdout.fnmatch_lines(["docs/a.md::line 25 FAILED*", "docs/part/b.md::line 25 PASSED*"])
