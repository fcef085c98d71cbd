"""Same text, same numbers; few floats of three digits may move by one unit of their last printed place."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from literate.child import MOST_PRINTED
from literate.compare import agree, check, differences, on_reference_platform
from literate.run import Result

EQUAL = {
    "the same": ("a 1 2.5", "a 1 2.5"),
    "nothing": ("", "\n"),
    "the last place, up": ("0.1234", "0.1235"),
    "the last place, down": ("-80.1706", "-80.1705"),
    "the last place, with a carry": ("0.9999", "1.0000"),
    "the last place, with fewer digits": ("10.00", "9.99"),
    "the last place of a power": ("5.4641e-20", "5.4640e-20"),
    "the last place across powers": ("1.0000e-20", "9.9999e-21"),
    "zero has no sign": ("[0.0000, -0.0000]", "[-0.0000, 0.0000]"),
    "zero has no sign when whole": ("[-0., 1.]", "[0., 1.]"),
    "zero has no sign in a list": ("[-0.0, 1.0]", "[0.0, 1.0]"),
    "zero has no sign after a word": ("x=0.00", "x=-0.00"),
    "zero has no sign as an imaginary part": ("(1.50-0.00j)", "(1.50+0.00j)"),
    "whole numbers beside one that is not": ("[15., 2.]", "[15.0000, 2.0000]"),
    "a sign of plus": ("+0.500", "+0.501"),
    "padding, where a number grew": ("[[ 9.9999, -inf]]", "[[10.0000,    -inf]]"),
    "padding of what is no number": ("[[ 9.99, nan]]", "[[10.00,   nan]]"),
    "padding of other rows": ("[[ 9.99],\n [ 2.50]]", "[[10.00],\n [  2.50]]"),
    "padding beside a sign of zero": ("[[-0.00,  1.00]]", "[[0.00, 1.00]]"),
    "padding after a number": ("9.99  m", "10.00 m"),
    "blanks at the ends of lines": ("a  \nb", "a\nb   "),
    "blank lines at the end": ("a\n\n\n", "a"),
    "nan": ("[nan, 1.0]", "[nan, 1.0]"),
    "the real part": ("(1.50+2.50j)", "(1.51+2.50j)"),
    "the imaginary part": ("(1.50-2.50e-05j)", "(1.50-2.51e-05j)"),
    "a percentage": ("12.5%", "12.6%"),
    "a number with a unit": ("1.50x", "1.51x"),
    "a number at the end of a sentence": ("It is 1.25.", "It is 1.26."),
    "the end of a range": ("0.500-0.750 of 1", "0.500-0.751 of 1"),
}
DIFFERENT = {
    "two units": ("0.1234", "0.1236"),
    "two units across zero": ("0.0011", "-0.0011"),
    "two units of the smaller power": ("1.0000e-20", "9.9998e-21"),
    "the place before the last": ("0.1234", "0.1244"),
    "two units of a power": ("5.4641e-20", "5.4643e-20"),
    "another power": ("5.4641e-20", "5.4641e-21"),
    "one significant digit": ("0.0001", "0.0002"),
    "two significant digits": ("0.0010", "0.0011"),
    "two significant digits of one": ("1.00", "0.99"),
    "two significant digits of a power": ("8.5e-04", "8.6e-04"),
    "fewer digits than are printed": ("3.1", "3.10"),
    "more digits of one that is not whole": ("[15., 0.5]", "[15.0000, 0.5000]"),
    "a value with a power": ("1.0000e+00", "1.0000"),
    "money": ("$20.00", "$19.99"),
    "none": ("0.0000", "0.0001"),
    "none, from below": ("0.0000", "-0.0001"),
    "a bare power": ("1e-12", "2e-12"),
    "the power of a bare power": ("1e-04", "1e-05"),
    "a bare power and zero": ("1e-04", "0e-04"),
    "fewer places": ("0.1234", "0.123"),
    "more places": ("0.123", "0.1234"),
    "a power against none": ("1.00e+00", "1.01"),
    "whole against nearly whole": ("[1., 0.]", "[0.9999, 0.0000]"),
    "whole floats": ("15.", "16."),
    "an integer": ("12", "13"),
    "an integer against a float": ("1", "1."),
    "the sign of an integer": ("-1", "1"),
    "zero as an integer has a sign": ("-0", "0"),
    "the sign of a float": ("-0.5000", "0.5000"),
    "a sign of plus gone": ("+0.50", "0.60"),
    "inf against a number": ("inf", "1.0"),
    "the sign of inf": ("-inf", "inf"),
    "nan against inf": ("nan", "inf"),
    "a version": ("2.13.0", "2.13.1"),
    "an address": ("10.10.10.10", "10.10.10.11"),
    "a name with a point": ("block1.0", "block1.1"),
    "a hash": ("8e83948577a", "8e83948578a"),
    "a hash of digits and an e": ("1234e56", "1235e56"),
    "a part of a hash": ("12e-4567-ab", "13e-4567-ab"),
    "a hash that would be another's value": ("80e10", "8e11"),
    "a hash that begins as another's value": ("10e-12ab", "1e-11ab"),
    "a mantissa of a power beyond any float": ("2.5e+9999999", "2.6e+9999999"),
    "a power beyond any float": ("2e9999999", "3e9999999"),
    "a number with separators": ("1,024.5", "1,025.5"),
    "a bracket gone": ("[[1.0]]", "[1.0]"),
    "a number gone": ("[1.0, 2.0]", "[1.0]"),
    "two numbers swapped": ("[1.0, 2.0]", "[2.0, 1.0]"),
    "near numbers swapped": ("[0.13, 0.14]", "[0.14, 0.13]"),
    "a column reversed": ("a 1.1\nb 1.2\nc 1.3", "a 1.3\nb 1.2\nc 1.1"),
    "a comma gone": ("[1.0, 2.0]", "[1.0 2.0]"),
    "a word": ("the car", "the cat"),
    "blanks joined": ("a b", "ab"),
    "blanks within a string": ("'a  b'", "'a b'"),
    "a blank between words and marks": ("a =1", "a = 1"),
    "a value in another column": ("a  1.5   -", "a   -   1.5"),
    "a value moved along": ("1.50        2.50", "1.50  2.50"),
    "a caret moved": ("x = = 1\n    ^", "x = = 1\n   ^"),
    "a caret moved below a number that moved": ("1.25 = = 1\n    ^", "1.26 = = 1\n   ^"),
    "blanks between words beside a number that moved": ("a  b 1.25", "a b 1.26"),
    "padding where no number moved": ("[[ 1.00, 22.00]]", "[[1.00, 22.00]]"),
    "padding of whole numbers": ("[ 1, 22]", "[1, 22]"),
    "the indent of rows": ("tensor([[1],\n        [2]])", "tensor([[1],\n    [2]])"),
    "the indent of a row whose number moved": ("  a 1.25", "a 1.26"),
    "an indent gone": ("  a", "a"),
    "a line gone": ("a\nb", "a"),
    "a line broken in two": ("a b", "a\nb"),
    "a blank line within": ("a\nb", "a\n\nb"),
    "a shape": ("torch.Size([2, 3])", "torch.Size([3, 2])"),
}


@pytest.mark.parametrize(("page", "printed"), EQUAL.values(), ids=EQUAL)
def test_these_agree(page, printed):
    assert agree(page, printed)


@pytest.mark.parametrize(("page", "printed"), DIFFERENT.values(), ids=DIFFERENT)
def test_these_differ(page, printed):
    assert not agree(page, printed)


def row(count, moved=0, by=1):
    """Return `count` floats a line of five, far apart, the first `moved` of them moved by `by` units."""
    values = [f"{10 + i + (by / 100 if i < moved else 0):.2f}" for i in range(count)]
    return "\n".join(" ".join(values[i : i + 5]) for i in range(0, count, 5))


@pytest.mark.parametrize(("count", "most"), [(2, 1), (20, 1), (21, 2), (40, 2), (41, 3), (200, 10)])
def test_one_number_in_twenty_may_move_rounded_up(count, most):
    assert agree(row(count), row(count, most))
    assert not agree(row(count), row(count, most + 1))


def test_a_zero_of_another_sign_uses_no_allowance():
    page = "[15.0000, -0.0000]\n" + row(5)
    assert agree(page, "[15.0000, 0.0000]\n" + row(5, 1))


def test_a_project_says_from_how_many_digits_on_a_float_may_move(book):
    page = book.read("```python\nf()\n```\n\n```output\n3.4\n```\n")
    (block,) = page.blocks
    for digits, holds in ((2, True), (3, False)):
        page = replace(page, project=replace(page.project, significant=digits))
        assert (check(page, block, Result(printed="3.3\n")) is None) is holds


def test_an_exact_output_lets_nothing_move(book):
    page = book.read("```python\nf()\n```\n\n```output exact\n0.1234 0.0000\n```\n")
    (block,) = page.blocks
    for printed in ("0.1235 0.0000\n", "0.1234 -0.0000\n"):
        assert check(page, block, Result(printed=printed)).line == 6
    assert check(page, block, Result(printed="0.1234 0.0000\n")) is None


def test_numbers_that_move_keep_their_order():
    assert not agree(f"{row(60)}\n0.133 0.134", f"{row(60)}\n0.134 0.133")
    assert agree(f"{row(60)}\n0.133 0.134", f"{row(60)}\n0.134 0.135")


@given(st.text("0123456789.e-+ jnaif\n[],", max_size=30), st.text("0123456789.e-+ j", max_size=12))
def test_any_text_can_be_held_against_any_other(page, printed):
    assert agree(page, page)
    assert agree(page, printed) == agree(printed, page)


@pytest.mark.parametrize("lines", [2, MOST_PRINTED // len("[0.1234, 0.2345]\n")])
@pytest.mark.parametrize("change", ["one line more", "every line wrong", "every line moved"])
def test_a_difference_of_many_lines_is_found_and_shown_in_part(lines, change):
    page = "[0.1234, 0.2345]\n" * lines
    printed = {
        "one line more": page + "[0.1234, 0.2345]",
        "every line wrong": page.replace("0.1234", "0.1299"),
        "every line moved": page.replace("0.1234", "0.1235"),
    }[change]
    assert 1 <= len(differences(page, printed)) <= max(2, lines // 8)


@pytest.mark.parametrize(
    ("page", "printed", "index"),
    [
        ("a\nb\nc", "a\nc", 1),
        ("a\nb\nc", "b\nc", 0),
        ("a\nb\nc", "a\nb", 2),
        ("a\nc", "a\nb\nc", 1),
        ("a\nb", "a\nb\nc", 2),
        ("a\nb", "a\nx\ny\nb", 1),
    ],
)
def test_a_line_gone_or_come_is_found_where_it_was(page, printed, index):
    assert differences(page, printed)[0].index == index


# ---- The verdict on a block. ----

PRINTS = """
    ```python
    print(x)
    ```

    ```output{options}
    tensor([0.100, 0.200])
    tensor([0.300, 0.400])
    ```
    """


@pytest.fixture
def verdict(book):
    """Return a function that judges a block which must print two tensors, given its Result."""

    def verdict(options="", **result):
        page = book.read(PRINTS.replace("{options}", options))
        return check(page, page.blocks[0], Result(**result))

    return verdict


def test_a_mismatch_is_shown_as_a_short_diff_that_marks_what_moved(verdict):
    failure = verdict(printed="tensor([0.100, 0.200])\ntensor([0.350, 0.400])\n")
    assert failure.line == 8
    assert failure.report == (
        "docs/page.md:8: the output differs from what the block on line 2 prints\n"
        "    8 | tensor([0.300, 0.400])\n"
        "  - tensor([0.300, 0.400])\n"
        "  + tensor([0.350, 0.400])\n"
        "            ^^^^^\n"
        "To accept it: python -m literate update docs/page.md"
    )


def test_a_long_diff_is_cut_short(book):
    lines = "\n".join(f"x{i}" for i in range(40))
    page = book.read(f"```python\nf()\n```\n\n```output\n{lines}\n```\n")
    failure = check(page, page.blocks[0], Result(printed=lines.replace("x", "y") + "\n"))
    assert failure.report.count("\n  - ") == 8
    assert "… and 32 more lines" in failure.report


def test_a_long_line_is_shown_around_what_moved(book):
    line = "abcd " * 1000
    page = book.read(f"```python\nf()\n```\n\n```output\n{line}1.50 end\n```\n")
    failure = check(page, page.blocks[0], Result(printed=f"{line}2.75 end\n"))
    *_, old, new, marks, _ = failure.report.split("\n")
    assert max(map(len, (old, new, marks))) <= 164
    assert new[marks.index("^") : marks.rindex("^") + 1] == "2.75"
    assert old == new.replace("2.75", "1.50").replace("+", "-")


def test_the_text_that_moved_is_marked_to_the_letter(book):
    page = book.read("```python\nf()\n```\n\n```output\nthe car is 1.50 old\n```\n")
    failure = check(page, page.blocks[0], Result(printed="the cat is 2.50 odd\n"))
    *_, new, marks, _ = failure.report.split("\n")
    assert new == "  + the cat is 2.50 odd"
    assert marks == "          ^    ^^^^  ^"


INDEX_ERROR, KEY_ERROR = ' raises="IndexError"', {"raised": "KeyError", "last_line": "KeyError: 1"}
VERDICTS = {  # the options of the output, what came of the block, the line that is blamed, and words of the report
    "nothing printed": (
        "",
        {},
        6,
        "prints nothing; print what is wanted here, or delete this output",
    ),
    "an exception": (
        "",
        KEY_ERROR
        | {"line": 3, "traceback": "Traceback …", "printed": "1\n", "errors": "careful\n"},
        3,
        "3: KeyError: 1\n    3 | print(x)\nTraceback …\nIt printed:\n  + 1\n"
        "It wrote to standard error:\n  + careful",
    ),
    "no exception": (INDEX_ERROR, {"printed": "1\n"}, 6, "did not raise IndexError"),
    "another exception": (
        INDEX_ERROR,
        KEY_ERROR | {"line": 3},
        3,
        "KeyError: 1; the page expects IndexError",
    ),
}


@pytest.mark.parametrize(("options", "result", "line", "words"), VERDICTS.values(), ids=VERDICTS)
def test_a_block_that_does_not_do_what_the_page_says_fails(verdict, options, result, line, words):
    failure = verdict(options, **result)
    assert failure.line == line
    assert words in failure.report


@pytest.mark.parametrize("raises", ["", INDEX_ERROR])
def test_a_block_that_leaves_its_line_open_fails(book, raises):
    """Where a page begins a new output, a script would go on in that line."""
    page = book.read(f"```python\nf()\n```\n\n```output{raises}\none\n```\n")
    how = {"raised": "IndexError", "last_line": "two"} if raises else {}
    failure = check(page, page.blocks[0], Result(printed="one", **how))
    assert "docs/page.md:1: the block on line 1 leaves its last line open" in failure.report


def test_an_announced_exception_is_shown_after_what_was_printed(book):
    page = book.read(
        '```python\nf()\n```\n\n```output raises="IndexError"\none\nIndexError: too far\n```\n'
    )
    (block,) = page.blocks

    def result(printed, last_line):
        return Result(printed=printed, raised="IndexError", last_line=last_line)

    assert check(page, block, result("one\n", "IndexError: too far")) is None
    assert check(page, block, result("one\n", "IndexError: too near")).line == 7
    assert check(page, block, result("", "IndexError: too far")).line == 6


def test_a_report_names_a_path_that_can_be_typed(verdict, book, monkeypatch):
    (book.root / "elsewhere").mkdir()
    monkeypatch.chdir(book.root / "elsewhere")
    report = verdict(printed="x\n").report
    assert report.startswith("../docs/page.md:7: ")
    assert "update ../docs/page.md" in report


@pytest.mark.parametrize(
    ("system", "machine", "pin", "reference"),
    [
        ("Linux", "x86_64", "{torch}", True),
        ("Linux", "aarch64", "{torch}", False),
        ("Darwin", "arm64", "{torch}", False),
        ("Linux", "x86_64", "0.0.1", False),
    ],
)
def test_the_reference_platform_is_linux_on_x86_with_the_pinned_torch(
    book, monkeypatch, system, machine, pin, reference
):
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("literate.compare.version", lambda name: "2.13.0+cpu")
    book.page(f"a==1\ntorch=={pin.format(torch='2.13.0')}\n", "requirements.txt")
    assert on_reference_platform(book.root) is reference


def test_carriage_returns_and_tabs_agree_with_what_the_page_can_hold(book):
    page = book.read("```python\nf()\n```\n\n```output\na\nb   c\nd\n```\n")
    assert check(page, page.blocks[0], Result(printed="a\r\nb\tc\rd\n")) is None
