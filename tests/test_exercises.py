"""An exercise can be done: its stub is refused with a reason, its solution is right, and a hint stands between."""

import ast
import json
import re
import shutil
from dataclasses import replace
from functools import cache

import nbformat
import pytest
from nbclient import NotebookClient

from book import heading, take_away
from literate import export
from literate.run import Run
from tests import answers, tries
from tests.pages import PAGES, ROOT, each

EXERCISE = re.compile(
    r"^\*\*(\d+)\. (Predict|Change|Prove|Experiment|Mend|Catch) · (easy|medium|hard)\.\*\*", re.M
)
CHECK = re.compile(r"^def check_(\d+)\(", re.M)
STUB = re.compile(r"^(?:def |class )?answer_(\d+)\b", re.M)


def exercises(page):
    """Return the text of the section in which `page` sets exercises; "" where it sets none."""
    return page.text.partition("\n## Exercises\n")[2]


def practised(page):
    """Return the cells of the page's practice notebook."""
    return _practised(page.name)


@cache
def _practised(name):
    page = next(page for page in PAGES if page.name == name)
    notebook = nbformat.reads(take_away.practice(page), as_version=4)
    nbformat.validate(notebook)
    return notebook.cells


def solutions(page):
    """Return each block of a solution, after the number of the exercise that it belongs to."""
    number, found = "", []
    for block in page.blocks:
        number = check[1] if (check := CHECK.search(block.code)) else number
        found += [(number, block.code)] * block.solution
    return found


SETTING = [page for page in PAGES if exercises(page)]


@each(SETTING)
def test_each_exercise_says_its_kind_and_level(page):
    text = exercises(page)
    found = [int(match[1]) for match in EXERCISE.finditer(text)]
    assert found == list(range(1, len(found) + 1)) != []
    assert len(re.findall(r"^\*\*\d+\.", text, re.M)) == len(found)


# Each runs its page anew: `make test` tries one, `make test-labs` the rest.
SOON = ("docs/foundations/averaging.md",)


def solved(page, cells):
    """Return the code of `cells` with each solution of `page` after its stub, not called yet."""
    filled = []
    for cell in cells:
        filled.append(cell.source)
        if not CHECK.search(cell.source) and (stub := STUB.search(cell.source)):
            own = [code for number, code in solutions(page) if number == stub[1]]
            filled += [code.replace(f"check_{stub[1]}(answer_{stub[1]})\n", "") for code in own]
    return filled


NOWHERE = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")


def put_files(cells, folder):
    """Put the files that a practice notebook names into `folder`."""
    folder.mkdir(parents=True)
    for name in heading.STORED.findall(cells[0].source):
        shutil.copy(ROOT / "docs/files" / name, folder)


@pytest.fixture
def printed_by(tmp_path, monkeypatch, recwarn):
    """Return a function that runs the code of a notebook, without a network, and returns its lines.

    Of the files of the book those are there that the notebook names.
    """
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)

    def printed_by(page, code):
        put_files(practised(page), tmp_path / "docs/files")
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        results = played(replace(page, root=tmp_path), code)
        assert [str(warning) for warning in recwarn] == []
        return "".join(result.printed for result in results).splitlines()

    return printed_by


def unsolved(page):
    """Return what a check says, exercise by exercise, of a stub that nobody has touched."""
    said = {"Mend": "not right yet: .+"}
    kinds = [match[2] for match in EXERCISE.finditer(exercises(page))]
    return [f"Exercise {n}: {said.get(k, 'not filled in yet')}" for n, k in enumerate(kinds, 1)]


def agree(lines, patterns):
    """Say whether the lines that speak of exercises are those of `patterns`, in their order."""
    told = [line for line in lines if line.startswith("Exercise ")]
    return len(told) == len(patterns) and all(map(re.fullmatch, patterns, told))


@each(SETTING, SOON)
def test_with_the_solutions_a_practice_notebook_says_that_all_is_done(page, printed_by):
    cells = [cell for cell in practised(page) if cell.cell_type == "code"]
    lines = printed_by(page, solved(page, cells))
    numbers = range(1, len(unsolved(page)) + 1)
    said = [f"Exercise {n}: {word}" for word in ("right", "done") for n in numbers]
    assert agree(lines, said), lines
    assert lines[-1 - len(numbers)] == f"{len(numbers)} of {len(numbers)} exercises done"


@each(SETTING, ())
def test_a_practice_notebook_runs_in_jupyter_as_it_is_and_says_what_is_not_filled_in_yet(
    page, tmp_path, monkeypatch
):
    put_files(practised(page), tmp_path / "torch/hub/checkpoints")
    home = {"TORCH_HOME": str(tmp_path / "torch"), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    for name, value in (NOWHERE | home | {"no_proxy": "127.0.0.1,localhost"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = nbformat.reads(take_away.practice(page), as_version=4)
    NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    assert [output for output in outputs if output.get("name") != "stdout"] == []
    lines = "".join(output.text for output in outputs).splitlines()
    report = [f"Exercise {n}: not done yet" for n in range(1, len(unsolved(page)) + 1)]
    assert agree(lines, unsolved(page) + report), lines


@each(SETTING)
def test_the_practice_notebook_has_every_part_of_an_exercise_but_its_solution(page):
    cells = practised(page)
    text = "\n\n".join(cell.source for cell in cells)
    code = [cell for cell in cells if cell.cell_type == "code"]
    asked = [match[0] for match in EXERCISE.finditer(exercises(page))]
    assert [match[0] for match in EXERCISE.finditer(text)] == asked
    called = [cell.source.split("\n")[-1] for cell in code if CHECK.search(cell.source)]
    numbers = range(1, len(asked) + 1)
    assert called == [f"practice.check({n}, check_{n}, answer_{n})" for n in numbers]
    hints = [cell for cell in cells if cell.source.count("<details>")]
    assert sum(cell.source.count("<summary>Hint</summary>") for cell in hints) == len(asked)
    assert [c for c in hints if c.source.count("<details>") != c.source.count("</details>")] == []
    assert [code for _, code in solutions(page) if code.strip() in text] == []
    assert "Solution" not in text
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []


@each(SETTING)
def test_the_practice_notebook_has_the_code_of_the_page_and_little_else(page):
    kept = take_away.practised(page).blocks
    first, *code, last = [cell for cell in practised(page) if cell.cell_type == "code"]
    assert (first.source, last.source) == (take_away.PRACTICE, "practice.report()")
    assert [cell.source for cell in code] == [block.code.rstrip("\n") for block in kept]
    practised_at = {block.line: block.code.splitlines() for block in kept}
    for block in page.blocks:
        whole, left = block.code.splitlines(), practised_at.get(block.line, [])
        if not (block.solution or block.raises):
            assert [
                line for line in left if line not in ["", *whole] and "practice.check(" not in line
            ] == []
            assert set(whole) <= set(left)
    before = "".join(cell.source for cell in practised(page)).partition("## Exercises")[0]
    told = page.text.partition("\n## Exercises\n")[0]
    sentences = [s for s in re.findall(r"^[A-Z][^`\n]{60,}$", told, re.M) if s in before]
    code = "\n".join(block.code for block in kept)
    assert [sentence for sentence in sentences if sentence not in code] == []


def catching(page):
    """Return the numbers of the exercises in which a reader writes a test."""
    return [match[1] for match in EXERCISE.finditer(exercises(page)) if match[2] == "Catch"]


def without_an_assert(code, number):
    """Return the test that is the solution of an exercise, each time without one of its assertions."""
    count = sum(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code)))
    found = {}
    for gone in range(count):
        program = ast.parse(code.replace(f"check_{number}(answer_{number})", ""))
        asserts = [node for node in ast.walk(program) if isinstance(node, ast.Assert)]
        asserts[gone].test = ast.Constant(True)
        made = ast.unparse(ast.fix_missing_locations(program))
        found[f"without assertion {gone + 1}"] = f"{made}\nanswer = answer_{number}\n"
    return found


def trial(page):
    """Return the steps of a run of `page` in which each exercise is tried, and where each try stands.

    A step is code; a try is (the number of an exercise, the name of a form, its place among the steps).
    """
    steps = [f"__tries__, __stubs__ = __import__('runpy').run_path({tries.__file__!r}), {{}}"]
    found, number = [], ""
    for block, code in zip(page.blocks, export.pieces(page), strict=True):
        if block.lacks:
            continue
        steps.append(code)
        if check := CHECK.search(code):
            number = check[1]
        elif not block.solution and (stub := STUB.search(code)):
            steps.append(f"__stubs__[{stub[1]!r}] = answer_{stub[1]}")
        elif f"check_{number}(answer_{number})" in code:
            by_hand = {
                f"{kind} by hand, {n}": code
                for kind, listed in (("right", answers.RIGHT), ("wrong", answers.WRONG))
                for n, code in enumerate(listed.get(page.name, {}).get(int(number), []), 1)
            }
            if number in catching(page):
                no_tests = answers.NO_TEST | without_an_assert(block.code, number)
                by_hand |= {f"wrong by hand, {what}": code for what, code in no_tests.items()}
            generated = dict.fromkeys([*tries.RIGHT_FORMS, *tries.WRONG_FORMS], "")
            for form, hand in (generated | by_hand).items():
                told = f"{number!r}, {form!r}, globals(), __stubs__[{number!r}], {hand!r}"
                found.append((int(number), form, len(steps)))
                steps.append(f"__tries__['attempt']({told})")
    return steps, found


def played(page, steps):
    """Run `steps` one by one in one process, as blocks of `page`; return their results."""
    blocks, start = [], 1
    for step in steps:  # one below the other, so that each has a result and lines of its own
        code = step.rstrip("\n") + "\n"
        blocks.append(replace(page.blocks[0], code=code, output=None, start=start))
        start += code.count("\n")
    run = Run(replace(page, text="", blocks=blocks, fences=[]))
    try:
        results = run.all()
    finally:
        run.close()
    assert [result.traceback for result in results if result.raised] == []
    return results


def behaved(form, said):
    """Say whether a check that `said` this to an answer of `form` treated it as it should."""
    right = form in tries.RIGHT_FORMS or form.startswith("right by hand")
    return said == "right" if right else bool(re.match(r"refused: \S", said))


@each(SETTING, SOON)
def test_each_check_takes_right_answers_in_any_form_and_refuses_wrong_ones(page):
    steps, found = trial(page)
    results = played(page, steps)
    said = {(n, form): json.loads(results[at].printed) for n, form, at in found}
    odd = {key: what for key, what in said.items() if what and not behaved(key[1], what)}
    pardoned = answers.PARDONED.get(page.name, {})
    odd_still = {n: [form for m, form in odd if m == n] for n, _ in odd}
    weak = {n: [f for f in odd_still[n] if f not in pardoned.get(n, {})] for n in odd_still}
    weak = {n: listed for n, listed in weak.items() if listed}
    told = [f"exercise {n}, {form}: {what}" for (n, form), what in odd.items()]
    assert weak == answers.WEAK.get(page.name, {}), "\n".join(
        ["not as tests/answers.py says", *told]
    )
    needless = [
        (n, form) for n, listed in pardoned.items() for form in listed if (n, form) not in odd
    ]
    assert needless == [], "pardoned, and as it should be without"
