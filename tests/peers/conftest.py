"""What the parts are compared with takes seconds to import: `make test-labs` does, and `make test` does not."""

import pytest


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.lab)
