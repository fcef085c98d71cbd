"""An exercise can be done: its stub is refused with a reason, its solution is right, and a hint stands between."""

import re
from dataclasses import replace

from literate.run import Run
from tests.pages import PAGES, each

EXERCISE = re.compile(
    r"^\*\*(\d+)\. (Predict|Change|Prove|Experiment) · (easy|medium|hard)\.\*\*", re.M
)
CHECK = re.compile(r"^def check_(\d+)\(", re.M)
PROBE = """
try:
    check_{0}(answer_{0})
except AssertionError as refusal:
    print("refused:", refusal)
"""


def exercises(page):
    """Return the text of the section in which `page` sets exercises; "" where it sets none."""
    return page.text.partition("\n## Exercises\n")[2]


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


# Chapters that train much take their time: `make test-labs` tries these.
LONG = ("context", "scaling", "dropout", "gpt", "heads")


@each(SETTING, later=lambda page: page.path.stem in LONG)
def test_each_check_refuses_the_stub_and_says_why(page):
    blocks = [
        replace(block, code=block.code + PROBE.format(found[1]))
        if (found := CHECK.search(block.code))
        else block
        for block in page.blocks
    ]
    run = Run(replace(page, blocks=blocks), solutions=False)
    try:
        printed = {block.line: result for block, result in zip(run.blocks, run.all(), strict=True)}
    finally:
        run.close()
    checks = [block for block in blocks if CHECK.search(block.code)]
    assert len(checks) == len(EXERCISE.findall(exercises(page)))
    for block in checks:
        result = printed[block.line]
        said = result.traceback or result.printed
        assert re.match(r"refused: \S", said), f"{page.name}:{block.line}: {said}"
