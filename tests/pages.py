"""The pages of the book, read once for all tests."""

from pathlib import Path

import pytest

from literate.page import pages, read
from literate.pytest_plugin import COLLECTED

ROOT = Path(__file__).parents[1]

PAGES = [COLLECTED.get(path) or read(path) for path in pages(ROOT)]
RUNNING = [page for page in PAGES if page.blocks]


def each(chosen, soon=None):
    """Return a decorator that tries a test on each page of `chosen`.

    Where `soon` names some, as in "docs/start/pytorch.md", `make test` tries these, and leaves the
    others to `make test-labs`. A name that no page of `chosen` has is an error.
    """
    names = {page.name for page in chosen}
    soon = names if soon is None else set(soon)
    if not soon <= names:
        raise LookupError(f"no such page: {', '.join(sorted(soon - names))}")
    parameters = [
        pytest.param(page, id=page.name, marks=[pytest.mark.lab] * (page.name not in soon))
        for page in chosen
    ]
    return pytest.mark.parametrize("page", parameters)
