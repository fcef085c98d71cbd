"""An exercise can be done: its stub is refused with a reason, its solution is right, and a hint stands between."""

import re
from dataclasses import replace

import nbformat

from literate import export
from literate.run import Run
from tests.pages import PAGES, each

EXERCISE = re.compile(
    r"^\*\*(\d+)\. (Predict|Change|Prove|Experiment) · (easy|medium|hard)\.\*\*", re.M
)
CHECK = re.compile(r"^def check_(\d+)\(", re.M)
TRY = """
try:
    exec({!r}, globals())
except AssertionError as refusal:
    print("refused:", refusal)
"""


def exercises(page):
    """Return the text of the section in which `page` sets exercises; "" where it sets none."""
    return page.text.partition("\n## Exercises\n")[2]


def practised(page):
    """Return the cells of the page's practice notebook."""
    notebook = nbformat.reads(export.practice(page), as_version=4)
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
def test_each_exercise_says_its_kind_and_level_and_has_all_its_parts(page):
    text = exercises(page)
    found = list(EXERCISE.finditer(text))
    assert [int(match[1]) for match in found] == list(range(1, len(found) + 1)) != []
    assert len(re.findall(r"^\*\*\d+\.", text, re.M)) == len(found)
    ends = [match.start() for match in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=True):
        exercise, number = text[match.start() : end], match[1]
        parts = (
            'python title="Your answer"',
            'python title="Check"',
            f"def check_{number}(",
            '??? tip "Hint"',
            '??? success "Solution"',
            f"\n    check_{number}(answer_{number})\n",
            f"\n    Exercise {number}: right\n",
        )
        places = [exercise.find(part) for part in parts]
        assert -1 not in places, f"exercise {number} lacks {parts[places.index(-1)]!r}"
        assert places == sorted(places), f"exercise {number}: its parts stand in another order"


# Each runs its page anew: `make test` tries a few, `make test-labs` the rest.
SOON = (
    "docs/foundations/averaging.md",
    "docs/foundations/dot-product.md",
    "docs/correctness/order.md",
    "docs/correctness/masks.md",
)


@each(SETTING, SOON)
def test_each_check_refuses_the_stub_and_accepts_the_solution_in_the_practice_notebook(page):
    tries, checked = [], []
    for cell in practised(page):
        if cell.cell_type == "code" and (check := CHECK.search(cell.source)):
            solved = [code for number, code in solutions(page) if number == check[1]]
            tries += [TRY.format(cell.source), *solved, cell.source]
            checked.append((check[1], len(tries) - len(solved) - 2, len(tries) - 1))
        elif cell.cell_type == "code":
            tries.append(cell.source)
    # No two blocks are equal, so that each has a result of its own.
    blocks = [replace(page.blocks[0], code=c, output=None, start=n) for n, c in enumerate(tries, 1)]
    run = Run(replace(page, blocks=blocks, fences=[]))
    try:
        results = run.all()
    finally:
        run.close()
    assert [result.traceback for result in results if result.raised] == []
    for number, stub, solution in checked:
        assert re.match(r"refused: \S", results[stub].printed), results[stub].printed
        assert results[solution].printed.endswith(f"Exercise {number}: right\n")


@each(SETTING)
def test_the_practice_notebook_has_every_part_of_an_exercise_but_its_solution(page):
    cells = practised(page)
    text = "\n\n".join(cell.source for cell in cells)
    code = [cell for cell in cells if cell.cell_type == "code"]
    asked = [match[0] for match in EXERCISE.finditer(exercises(page))]
    assert [match[0] for match in EXERCISE.finditer(text)] == asked
    called = [cell.source.split("\n")[-1] for cell in code if CHECK.search(cell.source)]
    assert called == [f"check_{n}(answer_{n})" for n in range(1, len(asked) + 1)]
    hints = [cell for cell in cells if cell.source.count("<details>")]
    assert sum(cell.source.count("<summary>Hint</summary>") for cell in hints) == len(asked)
    assert [c for c in hints if c.source.count("<details>") != c.source.count("</details>")] == []
    assert [code for _, code in solutions(page) if code.strip() in text] == []
    assert "Solution" not in text
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []


@each(SETTING)
def test_the_practice_notebook_has_the_code_of_the_page_and_little_else(page):
    kept = [block for block in page.blocks if not block.solution]
    code = [cell for cell in practised(page) if cell.cell_type == "code"]
    assert len(code) == len(kept)
    for block, cell in zip(kept, code, strict=True):
        assert block.raises or cell.source.startswith(block.code.rstrip("\n"))
    before = "".join(cell.source for cell in practised(page)).partition("## Exercises")[0]
    told = page.text.partition("\n## Exercises\n")[0]
    sentences = [s for s in re.findall(r"^[A-Z][^`\n]{60,}$", told, re.M) if s in before]
    assert [s for s in sentences if not any(s in block.code for block in kept)] == []
