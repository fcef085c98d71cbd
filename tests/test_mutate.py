"""A change of a part that no fact notices is found, and one that a fact notices is not."""

import pytest

from tools.mutate import changes, survives

SOURCE = """
def odd(x: int = 1) -> int:
    if x < 0:
        raise ValueError(x)
    return 2 * x + 1
"""


def odd_is_one_more_than_twice(module):
    assert [module.odd(0), module.odd(), module.odd(3)] == [1, 3, 7]
    with pytest.raises(ValueError, match="-1"):
        module.odd(-1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("fact", "lines"), [(odd_is_one_more_than_twice, []), (id, [2, 3, 5])])
def test_a_change_survives_where_no_fact_looks(fact, lines):
    every = changes(SOURCE, "odd.py")
    found = {line for line, code in every if survives(code, "odd", fact)}
    assert sorted(found) == lines
