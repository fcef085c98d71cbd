"""A class that a page shows works where its tensors are: outside of its constructor it makes none without a device."""

import ast

import pytest

from tests.devices import made_without_device
from tests.pages import PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_class_makes_a_tensor_without_saying_where(page):
    found = []
    for block in page.blocks:
        if block.included or block.raises:
            continue
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.ClassDef):
                found += [
                    f"{page.name}, block at line {block.line}, {one}"
                    for one in made_without_device(node)
                ]
    assert found == []
