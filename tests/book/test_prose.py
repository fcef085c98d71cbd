"""A number in the text is one that the page prints or computes with."""

import json
import re

import pytest

from book.numerals import numerals, results, wrong_sums
from book.prose import stale_in_notebook
from literate.page import text_at
from tests.pages import PAGES
from tests.projects import unsupported_numbers

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
    return unsupported_numbers(
        book.read(PAGE.replace("{text}", text).replace("{caption}", caption))
    )


@pytest.mark.parametrize(
    "text",
    [
        "It prints 0.28912, or 0.289 for short.",
        "A share of 28.9 %, 28.91% or 28.9 per cent.",
        "From 1,048,576 or $1{,}048{,}576$ pairs, at a width of 1,536.",
        "The lowest is -144.5, in type −144.5; it lies 144.5 below, or 145 in round numbers.",
        "A part in 5.81e-06, or 5.81 · 10⁻⁶, or $5.81 \\cdot 10^{-6}$.",
        "In code it is `0.28912`.",
        "A width of 1,5**36**, 1,*53*6 or 1,5&#51;&#x36;; `2**3**2` is code.",
        "| a | b |\n|---|---|\n| 0.289 | 1,536 |",
    ],
)
def test_a_printed_number_may_be_rounded_and_written_as_people_write(book, text):
    assert complaints(book, text) == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It prints 0.28812.", "0.28812"),
        ("A share of 29.9 %.", "29.9 %"),
        ("A share of 28.9 in all.", "28.9"),
        ("From 1,048,676 pairs.", "1,048,676"),
        ("The highest is −0.289.", "−0.289"),
        ("A part in 5.81 · 10⁻⁷.", "5.81 · 10⁻⁷"),
        ("In code it is `0.28812`.", "0.28812"),
        ("| a |\n|---|\n| 0.288 |", "0.288"),
        ("<svg><text>0.288</text></svg>", "0.288"),
        ("A pair of 20 in all.", "20"),
        ("Out of 0144.5.", "0144.5"),
        ("It is so since 13 heads.", "13"),
        ("A window of 2000 tokens.", "2000"),
        ("With 1**3** heads.", "13"),
        ("With *1*3 heads.", "13"),
        ("With &#49;&#51; heads.", "13"),
        ("With 1&#x33; heads.", "13"),
        ("Places 144.5–500.", "500"),
        ("It takes 0.4812x as long, or 0.289x.", "0.4812"),
        ("It is 16× as fast.", "16"),
        ("A footnote.[^1]\n\n[^1]: It was 777.", "777"),
        ('See [this](other.md "It was 777").', "777"),
        ('![Pairs](a.png "All 777 pairs")', "777"),
        ("In code it is `(0.289, 777)`.", "777"),
        ('```text title="777 pairs"\n888\n```', "777"),
        ("## Sources of error\n\nPage 777.", "777"),
    ],
)
def test_a_stale_number_is_named_as_it_is_written(book, text, number):
    (found,) = complaints(book, text)
    assert f": {number} stands in no output or code" in found


def test_a_complaint_names_the_line_and_the_nearest_printed_numbers(book):
    (found,) = complaints(book, "Right: 0.289.\nOn the next line\nit is 0.281.")
    assert found.startswith("docs/page.md:15: 0.281 ")
    assert found.endswith("; nearest: -144.5, 5.812e-06, 0.28912, 1536")


def test_a_caption_is_prose(book):
    (found,) = complaints(book, "", caption="Falls to 0.281")
    assert found.startswith("docs/page.md:9: 0.281 ")


def test_the_caption_of_an_attention_fence_is_prose_and_its_numbers_may_be_quoted(book):
    figure = "It is 0.722.\n\n```attention\ncaption: Falls to 0.281\ntokens: a\nembeddings = x: [[0.722]]\n```\n"
    (found,) = complaints(book, figure)
    assert found.startswith("docs/page.md:16: 0.281 ")


@pytest.mark.parametrize(
    "text",
    [
        "So 6 · 6 · 30 = 1,080 pairs.",
        "So 64 × 32 × 32 = 65,536, and 1,536 · 2 = 3,072.",
        "So $24 \\cdot 16 \\cdot 16 = 6144$, and ${24} \\times 16^2 = 6144$.",
        "Now 1/8 is 0.125, and (2 + 3) ÷ 8 is 0.625.",
        "All 32² · 2^{9} = 524,288 of them.",
        "The gap, 144.5 − 8, is 136.5.",
    ],
)
def test_what_a_sentence_reckons_out_holds(book, text):
    assert complaints(book, text) == []


@pytest.mark.parametrize(
    "text",
    ["So 6 · 7 = 42.\nAnd there are 42.", "- 6 · 7 = 42\n- and 42", "| 6 · 7 |\n| 42 |"],
)
def test_arithmetic_holds_in_its_own_sentence_item_or_row_alone(book, text):
    (found,) = complaints(book, text)
    assert found.startswith("docs/page.md:14: 42 ")


@pytest.mark.parametrize(
    "text",
    [
        "About e = 2.718 and π = 3.1416.",
        "The largest float16 is 65,504; exp passes it from 11.1 on, and float32's, $e^{88.7}$.",
        "GPT-2024 and H200, [#1061](https://x.org/issues/1061) and https://x.org/777",
        "[text](other/777/x.md) and [site]\n\n[site]: ../777/x.md",
        "It was shown by Luong (2015), (Vaswani et al., 2017), in 2019, and mended in August 2026, to last until 2031.",
        "See section 3.2.1, Chapter 3.14 and 3.15, Python 3.11, 3.12 and 3.13, Llama 3.1 and torch 2.13.0.",
        "The class is `Model1234(777)`, at 2.13.1.",
        "<svg class='soft' width='360'></svg> ![pic](a.png){ #at-777 }",
        "<!-- not shown: 777 -->",
        "```text\n777\n```",
        "## Sources\n\nPage 777.\n\n### Notes\n\nAnd 888.",
        "Two of 7, and 3.",
        "It is kept to 10⁻¹⁰, or $10^{-7}$; the rest is 1,536 % 9.",
        "On 22 January 2023, under CC BY 4.0, from 2026-08-01.",
        "A footnote.[^12]\n\n[^12]: Of that.",
    ],
)
def test_names_years_versions_and_addresses_are_no_results(book, text):
    assert complaints(book, text) == []


@pytest.mark.parametrize(
    "code",
    [
        "# 777",
        "x = 1  # 777",
        '"""777"""',
        'def f():\n    """Of 777."""',
        'x = "777"',
        'x = f"{1:777}"',
    ],
)
def test_what_computes_nothing_holds_nothing(book, code):
    page = f"```python\n{code}\n```\n\nIt is 777.\n"
    assert len(unsupported_numbers(book.read(page))) == 1
    assert unsupported_numbers(book.read(page + "\n```python\ny = [-777]\n```\n")) == []


@pytest.mark.parametrize(
    "fence",
    [
        '```python title="777"\n1 + 1\n```',
        '```output heatmap rows="777" cols="1"\ntensor([[0.5]])\n```',
    ],
)
def test_titles_and_labels_hold_nothing(book, fence):
    page = f"```python\nprint(1)\n```\n\n{fence}\n\nIt is 777.\n"
    assert any(": 777 stands" in found for found in unsupported_numbers(book.read(page)))


TABLE = """
# A page

```python title="A table"
print(table)
```

```output heatmap name="first"
tensor([[0.11, 0.12], [0.13, 0.14]])
```

{text}
"""


@pytest.mark.parametrize(
    ("text", "late"),
    [
        ("From 0.11 to 0.12, then 0.14.", []),
        ("From 0.11 to 0.14, and 0.11 again.", []),
        ("From 0.12 to 0.11.", ["0.11"]),
        ("First it is 0.13. Then 0.12.", ["0.12"]),
        ("First it is 0.13.\n\nThen 0.12.", []),
        ("- First it is 0.13.\n- Then 0.12.", []),
        ("First [0.13](#first-1-0), then 0.12.", []),
    ],
)
def test_numbers_of_one_output_come_in_its_order_or_are_linked(book, text, late):
    found = unsupported_numbers(book.read(TABLE.replace("{text}", text)))
    assert [re.search(r":\d+: (\S+) comes too late: .* line 8 ", one)[1] for one in found] == late


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("It is [0.12](#first-0-1).", ""),
        ("It is [0.1](#first-1-1).", ""),
        (
            "It is [0.12](#first-1-0).",
            "0.12 links cell [1, 0] of the figure first, which shows 0.13",
        ),
        ("It is [0.12](#first-2-2).", "0.12 links cell [2, 2] of the figure first, which is none"),
        (
            "It is [0.12](#second-0-1).",
            "0.12 links cell [0, 1] of the figure second, which is none",
        ),
        ("It is [all of it](#first-2-2).", ""),
    ],
)
def test_a_linked_number_is_compared_with_that_very_cell(book, text, wrong):
    found = unsupported_numbers(book.read(TABLE.replace("{text}", text)))
    assert [one.partition(": ")[2] for one in found] == [wrong] * bool(wrong)


def far(between, text, after=""):
    """Return a page with `between` blocks between the one that prints 42 and 2,048, and `text`."""
    blocks = "\n## Next\n\n```python\nx = 1\n```\n" * between
    first = "# A page\n\n## First\n\n```python\nx = 42, 2048\n```\n"
    return f"{first}{blocks}\n{text}\n{after}"


@pytest.mark.parametrize(
    ("between", "text", "held"),
    [
        (5, "It is 42, or 2,048.", True),
        (6, "It is 2,048.", True),
        (6, "It is 42.", False),
        (9, "It is [42](#first).", True),
        (9, "It is [42](#next).", False),
        (9, '<figure class="diagram"><svg>\n<text>42</text>\n</svg></figure>', True),
    ],
)
def test_a_number_of_two_digits_is_held_nearby_by_a_link_or_in_a_picture(book, between, text, held):
    found = unsupported_numbers(book.read(far(between, text)))
    assert [": 42 stands in no output or code nearby" in one for one in found] == [True] * (
        not held
    )


def test_the_section_that_a_link_names_holds_its_number_and_another_does_not(book):
    other = "# O\n\n## A, `b`\n\n```python\nx = 777\n```\n\n### In it\n\n```python\nx = 888\n```\n\n## C\n\n```python\nx = 999\n```\n"
    book.page(other, "docs/other.md")
    assert complaints(book, "It was 777 and 888 [there](other.md#a-b).") == []
    assert len(complaints(book, "It was 999 [there](other.md#a-b).")) == 1
    assert complaints(book, "It was 888 [there](other.md#in-it-output-2).") == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("So 9 · 26 = 234.", []),
        ("So 9 · 26 = 235 here.", ["9 * 26 = 235, but comes to 234"]),
        ("So 9 · 25 = 234.", ["9 * 25 = 234, but comes to 225"]),
        ("Now 1/8 = 12.5 %, and 1/8 = 12.5.", ["1/8 = 12.5, but comes to 0.125"]),
    ],
)
def test_an_equation_must_be_right_and_then_holds_its_terms(book, text, wrong):
    found = [one for one in complaints(book, text) if "the text says" in one]
    assert [one.partition("the text says ")[2] for one in found] == wrong
    assert wrong or complaints(book, text) == []


def test_a_stray_backtick_hides_no_later_paragraph(book):
    assert len(complaints(book, "A stray ` here.\n\nIt is 0.281, and ` again.")) == 1


def test_the_page_that_a_sentence_links_holds_its_number(book):
    book.page("```python\nprint(777)\n```\n\n```output\n777\n```\n", "docs/part/other.md")
    assert complaints(book, "It was 777 in [the other](part/other.md#there).") == []
    (found,) = complaints(book, "See [the other](part/other.md). It was 777.")
    assert ": 777 stands" in found


def test_a_number_from_elsewhere_says_why(book):
    marked = '<span class="by-hand" title="by the census of 1900">777</span>'
    assert complaints(book, f"There were {marked} people.") == []
    assert len(complaints(book, f"There were {marked.replace('by the census of 1900', '')}.")) == 1


def test_the_book_marks_fewer_than_twenty_numbers_as_coming_from_elsewhere():
    assert sum(page.text.count('class="by-hand"') for page in PAGES) < 20


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
    return stale_in_notebook(path, text_at)


def test_the_text_of_a_lab_is_held_by_its_code_and_its_stored_outputs(tmp_path):
    assert lab(tmp_path, json.dumps({"cells": CELLS})) == []


@pytest.mark.parametrize(
    "told", ['<svg aria-label="Of 888"><path d="M 999"/></svg>', '<img alt="Of 888" width="999">']
)
def test_what_html_has_a_reader_hear_is_text(tmp_path, told):
    cells = [*CELLS, {"cell_type": "markdown", "source": told}]
    (found,) = lab(tmp_path, json.dumps({"cells": cells}))
    assert "cell 4, line 1: 888 " in found


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


def test_a_full_stop_belongs_to_no_number():
    assert list(results("It is 13 - 2. Then")) == [11.0]
    assert list(wrong_sums("It is 13 - 2. Then")) == []
    assert [*wrong_sums("So 7 · 6 = 41.")] != []


@pytest.mark.parametrize("text", ["9^9^9^9", "1/0", "(1 + 2", "2 ** 3 ** 4 ** 5 ** 6", "1e999 + 1"])
def test_arithmetic_without_a_result_has_none(text):
    assert list(results(text)) == []
