"""A chapter cannot hide a wrong mechanism: put one into its own code, and an output gives way.

`wrong_pages.toml` has for each chapter the mistakes that people make with it. The page is run with that
one edit, and at least one of its checked outputs must no longer agree.
"""

import shutil
import tomllib

import pytest

from literate import compare
from literate.page import read
from literate.run import Run
from tests.projects import PARTS, ROOT, SETTINGS
from tests.wrong import edit

WRONG = tomllib.loads((ROOT / "tests/wrong_pages.toml").read_text(encoding="utf-8"))
# Each edit runs its page anew: `make test` tries those of these chapters, `make test-labs` the rest.
SOON = ("foundations/averaging.md", "foundations/dot-product.md")


def wrong_text(page, old, new):
    return edit((ROOT / "docs" / page).read_text(encoding="utf-8"), old, new, f"docs/{page}")


def wrong_page(page, text, folder):
    """Return `page` as it reads with this text, in a copy of what it needs of the project."""
    for name, setting in SETTINGS.items():
        (folder / name).write_text(setting, encoding="utf-8")
    for kept in ("snippets", "docs/files", "docs/labs", f"docs/{page.partition('/')[0]}/drawings"):
        shutil.copytree(ROOT / kept, folder / kept)
    copy = folder / "docs" / page
    copy.write_text(text, encoding="utf-8")
    return read(copy)


def first_failure(page):
    """Run `page` and return the report of its first block that does not hold, or None."""
    run = Run(page)
    try:
        for block in page.blocks:
            if failure := compare.check(page, block, run.upto(block)):
                return failure.report
    finally:
        run.close()
    return None


@pytest.mark.parametrize(
    ("page", "what"),
    [
        pytest.param(page, what, id=f"{page}: {what}", marks=[pytest.mark.lab] * (page not in SOON))
        for page, edits in WRONG.items()
        for what in edits
    ],
)
def test_a_wrong_line_in_a_chapter_changes_a_checked_output(page, what, tmp_path):
    old, new = WRONG[page][what]
    if any(block.lacks for block in read(ROOT / "docs" / page).blocks):
        pytest.skip("what its blocks need is not installed")
    report = first_failure(wrong_page(page, wrong_text(page, old, new), tmp_path))
    assert report, f"docs/{page} printed the same with {new!r} in place of {old!r}"


def test_a_chapter_that_is_left_as_it_is_holds(tmp_path):
    same, _ = next(iter(WRONG[SOON[0]].values()))
    assert first_failure(wrong_page(SOON[0], wrong_text(SOON[0], same, same), tmp_path)) is None


def test_every_chapter_is_made_wrong_and_holds_each_line_that_is_replaced():
    chapters = {path for part in PARTS for path in (ROOT / "docs" / part).glob("*.md")}
    names = {path.relative_to(ROOT / "docs").as_posix() for path in chapters}
    assert set(WRONG) == {name for name in names if not name.endswith("/index.md")}
    for page, edits in WRONG.items():
        for old, new in edits.values():
            assert wrong_text(page, old, new)
