"""A run in which a page held leaves a record of it, and no other run does."""

import json
import platform
from datetime import date
from importlib.metadata import version

import pytest

from literate import page as reader
from literate import record
from tests.literate.conftest import LEANING, write
from tests.literate.conftest import PROVEN as PAGE
from tests.literate.test_pytest_face import run

pytest_plugins = ["pytester"]


def found(project, name="docs/a.md"):
    return record.of(reader.read(project.path / name))


def test_a_page_of_which_every_block_held_is_on_record(project):
    run(project, "docs/a.md")
    assert found(project) == record.Record(
        digest=record.digest(reader.read(project.path / "docs/a.md")),
        outputs=2,
        python=platform.python_version(),
        torch=version("torch").partition("+")[0],
        checker=version("literate"),
        platform=f"{platform.system()} {platform.machine()}",
        date=date.today().isoformat(),
    )


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("-n", "2"), marks=pytest.mark.lab)],
    ids=["one process", "two workers"],
)
def test_each_page_has_a_record_of_its_own(project, options):
    project.runpytest_subprocess("-p", "no:randomly", *options).assert_outcomes(passed=9)
    assert all(found(project, name) for name in ("README.md", "docs/a.md", "docs/part/b.md"))
    files = [path for path in (project.path / ".checked").rglob("*") if path.is_file()]
    assert len(files) == 3


def test_runs_of_single_pages_add_up(project):
    run(project, "docs/a.md")
    run(project, "docs/part")
    assert found(project)
    assert found(project, "docs/part/b.md")


@pytest.mark.parametrize(
    "text",
    [
        PAGE.replace("2.0000", "3.0000"),
        PAGE + "\nIt prints 1.4142.\n",
        LEANING,
    ],
    ids=["an output differs", "a number of the text is stale", "it leans on a solution"],
)
def test_a_page_that_fails_has_no_record(project, text):
    write(project, "docs/a.md", text)
    record.write(reader.read(project.path / "docs/a.md"), 1)
    assert run(project, "docs/a.md").ret != 0
    assert found(project) is None


def test_a_run_of_some_blocks_leaves_no_record(project):
    run(project, "docs/a.md::line 8", "docs/a.md::line 16").assert_outcomes(passed=2)
    assert found(project) is None


def test_a_run_of_some_blocks_leaves_the_record_there_is(project):
    run(project, "docs/a.md")
    run(project, "docs/a.md::line 8").assert_outcomes(passed=1)
    assert found(project)


@pytest.mark.lab
def test_a_run_for_a_debugger_leaves_no_record(project):
    project.runpytest_subprocess("docs/a.md", "--pdb").assert_outcomes(passed=3)
    assert found(project) is None


def test_an_output_that_differs_on_this_platform_alone_is_not_counted(project):
    text = PAGE.replace("```output\n2.0000", '```output varies="masks"\n3.0000')
    write(project, "docs/a.md", text)
    run(project, "docs/a.md").assert_outcomes(passed=2, skipped=1)
    assert found(project).outputs == 1


def test_a_page_changed_since_has_no_record(project):
    run(project, "docs/a.md")
    write(project, "docs/a.md", PAGE + "\nMore.\n")
    assert found(project) is None


def test_a_page_whose_include_changed_since_has_no_record(project):
    write(project, "snippets/one.py", "print(1)\n")
    write(project, "docs/a.md", '```python\n--8<-- "one.py"\n```\n\n```output\n1\n```\n')
    run(project, "docs/a.md").assert_outcomes(passed=1)
    assert found(project)
    write(project, "snippets/one.py", "print(2)\n")
    assert found(project) is None


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"digest": 1'])
def test_a_damaged_record_is_none(project, damage):
    run(project, "docs/a.md")
    write(project, ".checked/docs/a.md.json", damage)
    assert found(project) is None


def test_a_record_of_a_later_checker_may_say_more(project):
    run(project, "docs/a.md")
    path = project.path / ".checked/docs/a.md.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"weather": "fine"}))
    assert found(project)


def test_where_nothing_can_be_written_pages_pass_all_the_same(project):
    write(project, ".checked", "in the way")
    run(project, "docs/a.md").assert_outcomes(passed=3)


def test_a_check_returns_each_failure_by_the_line_where_it_is_said(project):
    write(project, "docs/a.md", PAGE.replace("2.0000", "3.0000") + "\nIt prints 1.4142.\n")
    failures = record.check(reader.read(project.path / "docs/a.md"))
    assert {line: report.split(":")[1] for line, report in failures.items()} == {21: "22", 25: "25"}


def test_a_check_says_all_that_does_not_hold_at_a_line(project):
    output = '```output caption="It is 1.4142"\n3.0000'
    write(project, "docs/a.md", PAGE.replace("```output\n2.0000", output))
    (report,) = record.check(reader.read(project.path / "docs/a.md")).values()
    assert "the output differs" in report
    assert "1.4142 stands in no output" in report


def test_a_check_says_what_was_not_run(project):
    write(project, "docs/a.md", PAGE.replace("a = 1", "a = c"))
    failures = record.check(reader.read(project.path / "docs/a.md"))
    _, *later = failures.values()
    assert [report.split(": ")[0] for report in later] == ["docs/a.md:8", "docs/a.md:16"]
    assert all("the block on line 4 failed first" in report for report in later)


def test_a_check_keeps_the_record(project):
    assert record.check(reader.read(project.path / "docs/a.md")) == {}
    assert found(project).outputs == 2
