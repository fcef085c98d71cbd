"""A drawing that a program draws is what its page prints now."""

import pytest

from literate.page import read
from tools import draw

# One number of a page for each drawing that is drawn from what the page prints, and another number.
NUMBERS = {
    "foundations/drawings/averaging-steps.svg": ("0.20", "0.25"),
    "foundations/drawings/averaging-product.svg": ("1.25", "1.50"),
    "foundations/drawings/dot-asks.svg": ("0.52", "0.42"),
    "start/drawings/start-table.svg": ("[3., 0., 0.]", "[2., 0., 0.]"),
    "start/drawings/start-dim.svg": ("[6., 1., 3.]", "[5., 1., 3.]"),
    "start/drawings/start-product.svg": ("[ 6., -3.]", "[ 5., -3.]"),
    "start/drawings/start-fit.svg": ("[11., 12., 13.]", "[11., 12., 14.]"),
    "correctness/drawings/order-clocks.svg": ("0.84,  0.54", "0.54,  0.84"),
    "examples/drawings/avg.svg": ("0.8426", "0.7426"),
    "production/drawings/vision.svg": ("·###", "·##·"),
    "production/drawings/sinks.svg": ("sink 0.91", "sink 0.51"),
    "production/drawings/ring-zigzag.svg": ("[36, 64, 64, 64]", "[36, 64, 64, 54]"),
}
BY_RULE = {"masks", "who", "cross-places", "cache"}  # from the masks of snippets/, or a count


@pytest.mark.parametrize("name", draw.DRAWINGS)
def test_a_drawing_is_what_its_page_prints(name):
    page, made = draw.DRAWINGS[name]
    drawn = (draw.ROOT / "docs" / name).read_text(encoding="utf-8")
    assert str(made(read(draw.ROOT / "docs" / page))) == drawn, "run `make drawings`"


@pytest.mark.parametrize("name", NUMBERS)
def test_another_number_of_the_page_makes_another_drawing(name):
    page, made = draw.DRAWINGS[name]
    changed = read(draw.ROOT / "docs" / page)
    old, new = NUMBERS[name]
    for block in changed.blocks:
        if block.output:
            block.output.text = block.output.text.replace(old, new)
    assert str(made(changed)) != (draw.ROOT / "docs" / name).read_text(encoding="utf-8")


def test_every_drawing_is_drawn_from_numbers_or_by_a_rule():
    stems = {
        name.rpartition("/")[2].removesuffix(".svg") for name in draw.DRAWINGS.keys() - NUMBERS
    }
    assert stems == BY_RULE
    assert NUMBERS.keys() <= draw.DRAWINGS.keys()


def test_a_drawing_names_the_output_that_its_page_lacks():
    page = read(draw.ROOT / "docs/foundations/averaging.md")
    with pytest.raises(
        LookupError, match=r"averaging\.md: 0 blocks that print hold `no such code`"
    ):
        draw.tensors(page, "no such code")
