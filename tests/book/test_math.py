"""Formulas become MathML while the page is built, completely or not at all."""

import markdown
import pytest
from bs4 import BeautifulSoup

from book.markdown.math import MathError, mathml, symbols


def convert(text):
    extensions = ["book.markdown.math", "admonition", "tables", "pymdownx.superfences"]
    return BeautifulSoup(markdown.markdown(text, extensions=extensions), "html.parser")


def test_a_formula_carries_its_latex():
    soup = convert(r"The scores are $q_i \cdot k_j$ here.")
    note = soup.select_one("p > math annotation[encoding='application/x-tex']")
    assert note.get_text() == r"q_i \cdot k_j"
    assert soup.p.get_text().startswith("The scores are q")


def test_punctuation_stays_with_the_formula_before_it():
    soup = convert("With $x$, or ($y$), and $z$ too.")
    assert [word.get_text()[-1] for word in soup.select(".math-word")] == [",", ","]
    assert soup.p.get_text().count("(") == soup.p.get_text().count(")") == 1


def test_a_displayed_formula_stands_in_a_box_of_its_own():
    soup = convert("Before.\n\n$$\n\\frac{1}{2}\n$$\n\nAfter.")
    assert soup.select_one("div.math > math[display=block] mfrac")
    assert [p.get_text() for p in soup.select("p")] == ["Before.", "After."]


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $6.",
        "`$x$` is code",
        "```\n$x$ and $$y$$\n```",
        r"an escaped \$x\$ pair",
        "5$ or 6$",
    ],
    ids=["prices", "code", "fence", "escaped", "after numbers"],
)
def test_what_is_not_math_stays_text(text):
    soup = convert(text)
    assert soup.find("math") is None
    assert "$" in soup.get_text()


def test_formulas_work_in_lists_tables_and_admonitions():
    soup = convert("- one\n\n    $$x$$\n\n| a |\n| --- |\n| $y_1$ |\n\n!!! note\n    $$z$$\n")
    assert soup.select_one("li .math math")
    assert soup.select_one("td math")
    assert soup.select_one(".admonition .math math")


@pytest.mark.parametrize("tex", [r"\operatorname{softmax}(x)", r"\mathrm{softmax}(x)"])
def test_a_function_name_is_one_word(tex):
    assert "<mi>softmax</mi>" in mathml(tex)


@pytest.mark.parametrize(
    ("tex", "spaces"),
    [
        (r"w_j \max_j x_j", 2),
        (r"\cos\theta", 1),
        (r"\operatorname{softmax}(x)", 0),
        (r"a = \max(x)", 0),
        (r"d_{\mathrm{model}}", 0),
        (r"w \, \log x", 2),
        (r"\cos^2 x", 1),
    ],
)
def test_a_function_name_keeps_a_distance_from_letters_alone(tex, spaces):
    assert mathml(tex).count('="0.1667em"') == spaces


@pytest.mark.parametrize(
    ("tex", "bound"), [("S = -1", 1), ("a - 1", 0), ("(a) - 1", 0), ("-1", 1), (r"x \ge -c", 1)]
)
def test_a_sign_is_bound_to_what_follows_it(tex, bound):
    assert mathml(tex).count('rspace="0">−') == bound


@pytest.mark.parametrize("tex", [r"-\infty", r"\partial x", r"x_1, \dots, x_n"])
def test_a_symbol_is_no_operator(tex):
    operators = BeautifulSoup(mathml(tex), "html.parser").select("mo")
    assert {sign.get_text() for sign in operators} <= {"−", ",", "."}


def test_aligned_equations_keep_their_columns():
    rows = BeautifulSoup(
        mathml(r"\begin{aligned}a&=b\\c&=d\end{aligned}", display=True), "html.parser"
    )
    assert [len(row.select("mtd")) for row in rows.select("mtr")] == [2, 2]
    assert rows.select("mtd[style^='text-align: right']")


def test_latex_over_several_lines_travels_as_one():
    soup = convert("$$\na +\n  b\n$$")
    assert soup.select_one("annotation").get_text() == "a + b"


@pytest.mark.parametrize("tex", [r"\|a\| - 1", r"|a| - 1", r"[a] - 1"])
def test_a_sign_after_a_norm_subtracts(tex):
    assert "<mo>−" in mathml(tex)


def test_a_long_formula_scrolls_with_its_punctuation():
    soup = convert("$a + b + c + d + e + f + g + h + i + j + k$, so")
    assert soup.select_one("span.math-long").get_text().endswith(",")
    assert not convert("$a + b$ so").select("span")


@pytest.mark.parametrize("tex", ["a & b", r"\text{\nosuch}", r"a \nosuch b", "a_{b &= c}"])
def test_what_is_wrong_with_a_formula_is_quoted(tex):
    with pytest.raises(MathError, match=r'\$: (Found "&"|Unknown command "\\nosuch")'):
        mathml(tex)


def test_a_product_is_written_with_the_dot_that_the_font_has():
    assert symbols(mathml(r"a \cdot b")) == "a·b"


def test_a_function_and_what_it_is_applied_to_are_read_without_a_sign_between():
    assert symbols(convert(r"So $f = \max(x)$, or $a < b$.").p.decode()) == "So f=max(x), or a<b."


def test_a_prime_stands_beside_its_letter_and_is_no_exponent():
    drawn = mathml("e^{m - m'} = x'")
    assert drawn.count("<msup>") == 1
    assert drawn.count('<mo lspace="0" rspace="0">′</mo></mrow>') == 2
    assert 'aria-label="e to the m minus m prime' in drawn


@pytest.mark.parametrize(
    ("tex", "formulas"),
    [
        (r"a = b, \qquad c = d, \quad e", 2),
        (r"a \qquad\quad b \qquad\qquad c", 3),
        (r"a \quad b", 1),
        (r"\frac{a \qquad b}{c}", 1),
        (r"\begin{aligned} a &= b \qquad c \end{aligned}", 1),
        (r"\begin{pmatrix} a & b \end{pmatrix} \qquad c", 2),
    ],
)
def test_formulas_beside_each_other_can_be_set_below_each_other(tex, formulas):
    box = convert(f"$$ {tex} $$").select_one("div.math")
    assert len(box.find_all("math", recursive=False)) == formulas
    assert ("apart" in box["class"]) == (formulas > 1)
