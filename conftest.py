import pytest

pytest_plugins = ["literate.pytest_plugin", "processor.pytest_plugin", "tests.projects"]
# Helpers whose assertions are those of tests: checked, and explained, under `python -O` too.
pytest.register_assert_rewrite("tests.book.by_torch", "tests.snippets.facts")
