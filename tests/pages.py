"""The pages of the book, read once for all tests."""

import pytest

from literate.page import pages, read
from tools.mutants import ROOT

PAGES = [read(path) for path in pages(ROOT)]
RUNNING = [page for page in PAGES if page.blocks]


def each(chosen, later=lambda page: False):
    """Return a decorator that tries a test on each page of `chosen`, and on some `later`.

    Those `make test` leaves to `make test-labs`.
    """
    parameters = [
        pytest.param(page, id=page.name, marks=[pytest.mark.lab] * later(page)) for page in chosen
    ]
    return pytest.mark.parametrize("page", parameters)
