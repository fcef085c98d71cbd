"""A run in which a page held leaves a record of it, and no other run does."""

import pkgutil
import platform
import shutil
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pytest

from literate import page as reader
from literate import record
from tests.literate.test_pytest_face import run
from tests.projects import LEANING, write
from tests.projects import PROVEN as PAGE

pytest_plugins = ["pytester"]


def found(project, name="docs/a.md"):
    return record.of(reader.read(project.path / name))


class SomeDay(date):
    """A day that lasts as long as a test does."""

    @classmethod
    def today(cls):
        return cls(2024, 2, 29)


def test_a_page_of_which_every_block_held_is_on_record(project, monkeypatch):
    monkeypatch.setattr(record, "date", SomeDay)
    run(project, "docs/a.md")
    page = reader.read(project.path / "docs/a.md")
    assert found(project) == record.Record(
        digest=record.digest(page),
        program=record.program(page),
        outputs=2,
        python=platform.python_version(),
        torch=version("torch").partition("+")[0],
        checker=record.checker(page),
        platform=f"{platform.system()} {platform.machine()}",
        date="2024-02-29",
    )


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("-n", "2"), marks=pytest.mark.lab)],
    ids=["one process", "two workers"],
)
def test_each_page_has_a_record_of_its_own(project, no_torch, options):
    project.runpytest_subprocess("-p", "no:randomly", *options).assert_outcomes(passed=9)
    assert all(found(project, name) for name in ("README.md", "docs/a.md", "docs/part/b.md"))
    files = [path for path in (project.path / ".checked").rglob("*") if path.is_file()]
    assert len(files) == 3


FAILING = {
    "an output differs": PAGE.replace("2.0000", "3.0000"),
    "a number of the text is stale": PAGE + "\nIt prints 1.4142.\n",
    "it leans on a solution": LEANING,
}


@pytest.mark.parametrize("text", FAILING.values(), ids=FAILING)
def test_a_page_that_fails_has_no_record(project, text):
    write(project, "docs/a.md", text)
    page = reader.read(project.path / "docs/a.md")
    for fails in (lambda: run(project, "docs/a.md").ret, lambda: record.check(page)):
        record.write(page, 1)
        assert fails()
        assert found(project) is None


QUOTING = PAGE + "\nIt prints 2.0000.\n"  # each number of the text is looked up, as the last thing


def crash(*_, **__):
    raise TypeError("the checker's own")


def crash_at_the_second(judge):
    """Return `judge`, which goes wrong at the second output that it compares."""
    outputs = []

    def crashing(page, block, result):
        outputs.extend([block] if block.output else [])
        return crash() if len(outputs) == 2 else judge(page, block, result)

    return crashing


CRASHES = {
    "at the last output": ("literate.compare.check", crash_at_the_second),
    "at the text": ("literate.page.Page.prose_problems", lambda _: crash),
    "as the page is ended": ("literate.run.Run.close", lambda close: lambda run: crash(close(run))),
    "as it begins": ("literate.run.Run.__init__", lambda _: crash),
}


@pytest.mark.parametrize(("place", "made"), CRASHES.values(), ids=CRASHES)
def test_a_crash_of_the_checker_leaves_no_record(project, monkeypatch, place, made):
    write(project, "docs/a.md", QUOTING)
    page, sound = reader.read(project.path / "docs/a.md"), pkgutil.resolve_name(place)
    record.write(page, 2)
    monkeypatch.setattr(place, made(sound))
    assert run(project, "docs/a.md").ret != 0
    assert found(project) is None
    record.write(page, 2)
    monkeypatch.setattr(place, made(sound))  # again at the second
    with pytest.raises(TypeError, match="the checker's own"):
        record.check(page)
    assert found(project) is None


def test_a_run_of_some_blocks_makes_no_record_and_leaves_the_one_there_is(project):
    run(project, "docs/a.md::line 8", "docs/a.md::line 16").assert_outcomes(passed=2)
    assert found(project) is None
    record.write(reader.read(project.path / "docs/a.md"), 2)
    run(project, "docs/a.md::line 8").assert_outcomes(passed=1)
    assert found(project)


CHANGES = {  # of what a page consists, by the file and its new text
    "the page": ("docs/a.md", "Text.\n"),
    "an include": ("snippets/one.py", "print(2)\n"),
    "a file": ("docs/files/note.txt", "two"),
    "another file": ("docs/files/more.txt", ""),
    "a damaged record": (".checked/docs/a.md.json", '{"digest": 1'),
    "a record of another form": (".checked/docs/a.md.json", "[]"),
}


@pytest.mark.parametrize(("name", "text"), CHANGES.values(), ids=CHANGES)
def test_a_page_of_which_something_changed_since_has_no_record(project, name, text):
    write(project, "snippets/one.py", "print(1)\n")
    write(project, "docs/files/note.txt", "one")
    write(project, "docs/a.md", '```python\n--8<-- "one.py"\n```\n')
    record.write(reader.read(project.path / "docs/a.md"), 0)
    assert found(project)
    write(project, name, text)
    assert found(project) is None


def test_an_output_that_differs_on_this_platform_alone_is_not_counted(project):
    text = PAGE.replace("```output\n2.0000", '```output varies="masks"\n3.0000')
    write(project, "docs/a.md", text)
    run(project, "docs/a.md").assert_outcomes(passed=2, skipped=1)
    assert found(project).outputs == 1


@pytest.mark.parametrize("how", ["by pytest", "by a check"])
def test_a_file_that_changes_while_a_page_runs_leaves_it_without_a_record(
    project, monkeypatch, how
):
    judge = record.compare.check

    def change_a_file(page, block, result):
        write(project, "docs/files/note.txt", "changed")
        return judge(page, block, result)

    write(project, "docs/files/note.txt", "at first")
    monkeypatch.setattr("literate.compare.check", change_a_file)
    if how == "by pytest":
        run(project, "docs/a.md").assert_outcomes(passed=3)
    else:
        assert record.check(reader.read(project.path / "docs/a.md")) == {}
    assert found(project) is None


def test_a_checker_is_another_one_when_its_code_is(tmp_path):
    copy = shutil.copytree(Path(record.__file__).parent, tmp_path / "literate")
    changed = copy / "compare.py"
    changed.write_bytes(changed.read_bytes().replace(b"\n", b"\r\n"))
    assert record._digest_of_code(copy) == record.CHECKER
    changed.write_text(changed.read_text(encoding="utf-8") + "# more\n", encoding="utf-8")
    assert record._digest_of_code(copy) != record.CHECKER


@pytest.mark.parametrize(
    ("pinned", "torch", "counts"),
    [("2.1.0", "2.1.0", True), ("2.1.0", "2.2.0", False), ("", "2.2.0", True)],
    ids=["the pinned torch", "another torch", "a book that pins none"],
)
def test_a_record_counts_that_was_made_with_the_torch_of_the_book(
    project, monkeypatch, pinned, torch, counts
):
    monkeypatch.setattr("literate.compare.version", lambda package: f"{torch}+cpu")
    record.write(reader.read(project.path / "docs/a.md"), 2)
    write(project, "requirements.txt", f"torch=={pinned}\n" if pinned else "numpy\n")
    assert bool(found(project)) is counts


def test_where_nothing_can_be_written_pages_pass_all_the_same(project):
    write(project, ".checked", "in the way")
    run(project, "docs/a.md").assert_outcomes(passed=3)


@pytest.mark.parametrize("needed", ["json", "no_such_module"])
@pytest.mark.parametrize("how", ["by pytest", "by a check"])
def test_a_page_whose_block_lacks_what_it_needs_is_not_marked(project, needed, how):
    block = f'\n```{{ .python needs="{needed}" }}\nimport {needed}\nprint(2)\n```\n\n```output\n2\n```\n'
    write(project, "docs/a.md", PAGE + block)
    lacks = needed != "json"
    if how == "by pytest":
        run(project, "docs/a.md").assert_outcomes(passed=4 - lacks, skipped=int(lacks))
    else:
        assert record.check(reader.read(project.path / "docs/a.md")) == {}
    assert bool(found(project)) is not lacks


def test_a_check_returns_each_failure_by_the_line_where_it_is_said(project):
    output = '```output caption="It is 1.4142"\n3.0000'
    text = PAGE.replace("```output\n2.0000", output) + "\nIt prints 1.5151.\n"
    write(project, "docs/a.md", text)
    failures = record.check(reader.read(project.path / "docs/a.md"))
    assert [*failures] == [21, 25]
    assert "docs/a.md:22: the output differs" in failures[21]
    assert "docs/a.md:21: 1.4142 stands in no output" in failures[21]


def test_a_check_says_what_follows_from_another_failure(project):
    write(project, "docs/a.md", PAGE.replace("a = 1", "a = c"))
    failures = record.check(reader.read(project.path / "docs/a.md"))
    _, *later = failures.values()
    assert len(later) == 2
    assert all("follows from the failure of the block on line 4" in report for report in later)


# ---- What a record is of. ----


def test_a_forged_mark_fails_the_run_and_says_where(project):
    write(project, "docs/a.md", f"---\ncheck: {{outputs: 57}}\n---\n{PAGE}")
    result = run(project, "docs/a.md")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["docs/a.md:2: front matter sets title, description and hide*"])


def test_a_page_of_which_only_the_prose_changed_is_recorded_without_a_run(project, monkeypatch):
    path = project.path / "docs/a.md"
    record.write(reader.read(path), 2)
    before = record.of(reader.read(path))
    path.write_text(path.read_text(encoding="utf-8") + "\nMore words.\n", encoding="utf-8")
    page = reader.read(path)
    assert record.of(page) is None
    monkeypatch.setattr(record, "Run", None)  # so nothing runs
    assert record.renew(page) == record.of(page) == replace(before, digest=record.digest(page))


@pytest.mark.parametrize(
    ("old", "new"),
    [("print(", "print( "), ("```output\n", "```output\n9"), ("\n# ", "\n# It is 3.1415: ")],
)
def test_a_page_whose_program_or_outputs_changed_or_whose_number_is_unheld_is_not(
    project, old, new
):
    path = project.path / "docs/a.md"
    text = "\n" + path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    record.write(reader.read(path), 2)
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert record.renew(reader.read(path)) is None
