"""A number in the text is one that the page prints or computes with."""

import dataclasses
import json
import re

import pytest

from literate import prose
from literate.numerals import numerals, results
from literate.prose import stale, stale_in_notebook
from tests.pages import PAGES

PAGE = """
# A page

```python
width = 1_536
print(0.28912, -144.5, 1048576, 5.812e-06)
```

```output caption="{caption}"
0.28912 -144.5 1048576 5.812e-06
```

{text}
"""


def complaints(book, text, caption="Numbers"):
    """Return what is said of a page that prints 0.28912, -144.5, 1048576 and 5.812e-06."""
    return stale(book.read(PAGE.replace("{text}", text).replace("{caption}", caption)))


@pytest.mark.parametrize(
    "text",
    [
        "It prints 0.28912, or 0.289 for short.",
        "A share of 28.9 %, 28.91% or 28.9 per cent.",
        "From 1,048,576 or $1{,}048{,}576$ pairs, at a width of 1,536.",
        "The lowest is -144.5, in type −144.5; it lies 144.5 below, or 145 in round numbers.",
        "A part in 5.81e-06, or 5.81 · 10⁻⁶, or $5.81 \\cdot 10^{-6}$.",
        "In code it is `0.28912`.",
        "| a | b |\n|---|---|\n| 0.289 | 1,536 |",
    ],
)
def test_a_printed_number_may_be_rounded_and_written_as_people_write(book, text):
    assert complaints(book, text) == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It prints 0.28812.", "0.28812"),
        ("It prints 0.288.", "0.288"),
        ("A share of 29.9 %.", "29.9 %"),
        ("A share of 28.9 in all.", "28.9"),
        ("From 1,048,676 pairs.", "1,048,676"),
        ("From $1{,}048{,}676$ pairs.", "1{,}048{,}676"),
        ("The highest is −0.289.", "−0.289"),
        ("A part in 5.81e-07.", "5.81e-07"),
        ("A part in 5.81 · 10⁻⁷.", "5.81 · 10⁻⁷"),
        ("In code it is `0.28812`.", "0.28812"),
        ("- a list of 0.288", "0.288"),
        ("| a |\n|---|\n| 0.288 |", "0.288"),
        ("!!! note\n    Inside, 0.288.", "0.288"),
        ("<svg><text>0.288</text></svg>", "0.288"),
        ("A pair of 2048 in all.", "2048"),
    ],
)
def test_a_stale_number_is_named_as_it_is_written(book, text, number):
    (found,) = complaints(book, text)
    assert f": {number} stands in no output or code" in found


def test_a_complaint_names_the_line_and_the_nearest_printed_numbers(book):
    (found,) = complaints(book, "Right: 0.289.\nOn the next line\nit is 0.281.")
    assert found.startswith("docs/page.md:15: 0.281 ")
    assert found.endswith("; nearest: -144.5, 5.812e-06, 0.28912, 1_536")


def test_a_number_below_all_has_its_nearest_above(book):
    (found,) = complaints(book, "It prints -777.")
    assert found.endswith("; nearest: -144.5, 5.812e-06")


def test_a_caption_is_prose(book):
    (found,) = complaints(book, "", caption="Falls to 0.281")
    assert found.startswith("docs/page.md:9: 0.281 ")


def test_the_caption_of_an_attention_fence_is_prose_and_its_numbers_may_be_quoted(book):
    figure = "It is 0.722.\n\n```attention\ncaption: Falls to 0.281\ntokens: a\nembeddings: [[0.722]]\n```\n"
    (found,) = complaints(book, figure)
    assert found.startswith("docs/page.md:16: 0.281 ")


@pytest.mark.parametrize(
    "text",
    [
        "So 6 · 6 · 30 = 1,080 pairs.",
        "So 64 × 32 × 32 = 65,536, and 1,536 · 2 = 3,072.",
        "So $24 \\cdot 16 \\cdot 16 = 6144$, and ${24} \\times 16^2 = 6144$.",
        "Now 1/8 is 0.125, and (2 + 3) ÷ 16 is 0.3125.",
        "All 32² · 2^{9} = 524,288 of them.",
        "The gap, 144.5 − 28, is 116.5.",
    ],
)
def test_what_a_sentence_reckons_out_holds(book, text):
    assert complaints(book, text) == []


def test_arithmetic_that_is_wrong_does_not_hold(book):
    (found,) = complaints(book, "So 6 · 6 · 30 = 1,180 pairs.")
    assert ": 1,180 stands" in found


@pytest.mark.parametrize(
    "text",
    ["So 6 · 30 = 180.\nAnd there are 180.", "- 6 · 30 = 180\n- and 180", "| 6 · 30 |\n| 180 |"],
)
def test_arithmetic_holds_in_its_own_sentence_item_or_row_alone(book, text):
    (found,) = complaints(book, text)
    assert found.startswith("docs/page.md:14: 180 ")


@pytest.mark.parametrize(
    "text",
    [
        "About e = 2.718 and π = 3.1416.",
        "The largest float16 is 65,504; exp passes it from 11.1 on, and float32's, $e^{88.7}$.",
        "GPT-2024 and H200, [#1061](https://x.org/issues/1061) and https://x.org/777",
        "[text](other/777/x.md) and [site]\n\n[site]: ../777/x.md",
        "It was shown by Luong (2015), (Vaswani et al., 2017), in 2019, and mended in August 2026, to last until 2031.",
        "See section 3.2.1, Chapter 3.14 and 3.15, Python 3.11, 3.12 and 3.13, and torch 2.13.0.",
        "The class is `Model1234(777)`, at 2.13.1.",
        "<figure class='x' width='360'></figure> ![pic](a.png){ width=777 .x }",
        "<!-- not shown: 777 -->",
        "```text\n777\n```",
        "## Sources\n\nPage 777.\n\n### Notes\n\nAnd 888.",
        "Two of 12, and 0.05.",
    ],
)
def test_names_years_versions_and_addresses_are_no_results(book, text):
    assert complaints(book, text) == []


def test_prose_goes_on_after_the_sources(book):
    assert len(complaints(book, "## Sources\n\nPage 777.\n\n## After\n\nThere are 777.")) == 1


def test_a_stray_backtick_hides_no_later_paragraph(book):
    assert len(complaints(book, "A stray ` here.\n\nIt is 0.281, and ` again.")) == 1


def test_a_number_in_code_hides_no_text_after_it(book):
    assert len(complaints(book, "It is `0.289`, then 0.281, and `x`.")) == 1


def test_the_page_that_a_sentence_links_holds_its_number(book):
    book.page("```python\nprint(777)\n```\n\n```output\n777\n```\n", "docs/part/other.md")
    assert complaints(book, "It was 777 in [the other](part/other.md#there).") == []
    (found,) = complaints(book, "See [the other](part/other.md). It was 777.")
    assert ": 777 stands" in found


def test_a_number_from_elsewhere_says_why(book):
    marked = '<span class="by-hand" title="by the census of 1900">777</span>'
    assert complaints(book, f"There were {marked} people.") == []
    assert len(complaints(book, f"There were {marked.replace('by the census of 1900', '')}.")) == 1


def test_the_text_of_every_page_holds():
    assert [found for page in PAGES for found in stale(page)] == []


def test_the_book_marks_fewer_than_ten_numbers_as_coming_from_elsewhere():
    assert sum(page.text.count('class="by-hand"') for page in PAGES) < 10


def damaged(page):
    """Change the first digit of each number held in the text of `page`; return page and count."""
    lines, count = page.text.split("\n"), 0
    texts = zip(
        prose._prose(page).split("\n"), prose._mask(prose._prose(page)).split("\n"), strict=True
    )
    for number, (text, masked) in enumerate(texts):
        for one in reversed(list(numerals(masked))):
            if text == lines[number] and one.significant >= prose.DIGITS:
                first = re.compile("[1-9]").search(text, one.start)
                digit = str(int(first[0]) % 9 + 1)
                lines[number] = (
                    lines[number][: first.start()] + digit + lines[number][first.end() :]
                )
                text, count = lines[number], count + 1
    return dataclasses.replace(page, text="\n".join(lines)), count


def test_six_in_seven_wrong_digits_in_the_text_of_the_book_are_noticed():
    """The others happen to make another number of the page."""
    books = [damaged(page) for page in PAGES]
    total = sum(count for _, count in books)
    assert total > 100
    assert sum(len(stale(page)) for page, _ in books) >= 6 / 7 * total


CELLS = [
    {"cell_type": "markdown", "source": ["# A lab\n", "\n", "It takes 0.722 of 512.\n"]},
    {
        "cell_type": "code",
        "source": "size = 512",
        "outputs": [
            {"output_type": "stream", "text": ["0.72", "2\n"]},
            {"output_type": "display_data", "data": {"text/html": "<td width=777>1,234</td>"}},
        ],
    },
    {"cell_type": "markdown", "source": "And so 1,234 again."},
]


def lab(tmp_path, text):
    path = tmp_path / "lab.ipynb"
    path.write_text(text)
    return stale_in_notebook(path)


def test_the_text_of_a_lab_is_held_by_its_code_and_its_stored_outputs(tmp_path):
    assert lab(tmp_path, json.dumps({"cells": CELLS})) == []


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("takes 0.722", "takes 0.822", "cell 1, line 3: 0.822 "),
        ('"0.72"', '"0.82"', "cell 1, line 3: 0.722 "),
        ("so 1,234", "so 777", "cell 3, line 1: 777 "),
    ],
)
def test_a_stale_number_in_a_lab_is_named_by_cell_and_line(tmp_path, old, new, place):
    (found,) = lab(tmp_path, json.dumps({"cells": CELLS}).replace(old, new))
    assert place in found


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("1,048,576", 1048576, 1),
        ("−0.50", -0.5, 0.01),
        ("5.8e-06", 5.8e-6, 1e-7),
        ("3.4 · 10³⁸", 3.4e38, 1e37),
    ],
)
def test_a_numeral_has_a_value_and_a_unit(text, value, unit):
    (one,) = numerals(text)
    assert (one.value, one.unit) == (value, unit)


@pytest.mark.parametrize("text", ["9^9^9^9", "1/0", "(1 + 2", "2 ** 3 ** 4 ** 5 ** 6", "1e999 + 1"])
def test_arithmetic_without_a_result_has_none(text):
    assert list(results(text)) == []
