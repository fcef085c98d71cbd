"""The calculator answers as one types, keeps its state in the address, and says what it was asked of."""

import pytest

PAGE = "serving/calculator.html"


@pytest.fixture
def calculator(visit):
    """Opens the page of the calculator, and waits until it answers."""

    def opened(end="", **options):
        page = visit(PAGE + end, **options)
        found = page.locator("cost-calculator")
        found.scroll_into_view_if_needed()
        found.locator("form").wait_for()
        return found

    return opened


def answers(calculator):
    """What it says, by name."""
    return dict(
        zip(
            calculator.locator("dt").all_inner_texts(),
            calculator.locator("dd output").all_inner_texts(),
            strict=True,
        )
    )


def test_it_opens_as_its_page_reckons_once_more(calculator):
    said = answers(calculator())
    assert said["first token"] == "130 ms"
    assert said["a step"] == "9.8 ms"
    assert said["fit in memory"] == "51 texts"
    assert said["a million tokens"] == "0.516 $"


def test_a_number_that_is_typed_changes_what_follows_from_it_and_a_link_keeps_it(calculator):
    found = calculator()
    before = answers(found)
    found.get_by_label("prompt, tokens").fill("16000")
    found.get_by_label("precision").select_option("FP8")
    after = answers(found)
    assert {name for name in after if after[name] == before[name]} <= {"of these in time"}
    assert all("Infinity" not in value and "NaN" not in value for value in after.values())
    address = found.page.url
    assert "#calculator?" in address
    assert answers(calculator("#" + address.partition("#")[2])) == after


def test_what_is_typed_wrong_leaves_numbers(calculator):
    found = calculator()
    for label in ("prompt, tokens", "answer, tokens", "texts at once", "patience, ms a token"):
        found.get_by_role("spinbutton", name=label).fill("")
    assert not any(word in "".join(answers(found).values()) for word in ("NaN", "Infinity"))


def test_why_says_the_formula_with_the_readers_numbers(calculator):
    found = calculator()
    why = found.locator("dd details").nth(4)
    why.locator("summary").click()
    assert "16.1 GB of weights" in why.inner_text()


@pytest.mark.parametrize("width", [375, 1280])
def test_nothing_moves_when_it_comes_and_nothing_is_wider_than_the_page(calculator, width):
    found = calculator(viewport={"width": width, "height": 800})
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    assert found.evaluate("one => one.scrollWidth <= one.clientWidth + 1")
