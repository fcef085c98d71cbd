"""A formula is said as a person would read it out."""

import re
from html import unescape

import pytest

from book.markdown.math import mathml


def said(tex, **options):
    return unescape(re.match(r'<math aria-label="([^"]*)"', mathml(tex, **options))[1])


@pytest.mark.parametrize(
    ("tex", "words"),
    [
        (
            r"\operatorname{softmax}(QK^\top/\sqrt{d_k})V",
            "softmax of Q K transposed over the square root of d sub k, V",
        ),
        (r"\operatorname{norm}(f(x))", "norm of f open bracket x close bracket"),
        (r"w(1 - w)", "w open bracket 1 minus w close bracket"),
        (r"(T_q, d)", "open bracket T sub q, d close bracket"),
        (r"\operatorname{softmax}(s)_j", "softmax of s, sub j"),
        (r"(a + b)^2", "open bracket a plus b close bracket squared"),
        (r"\frac{a}{b} c", "a over b, c"),
        (r"\frac{p}{1-p} c", "the fraction p divided by 1 minus p, end fraction, c"),
        (r"\sqrt{2}", "the square root of 2"),
        (r"\sqrt{a + b} c", "the square root of a plus b, end root, c"),
        (r"e^{a-b} c", "e to the a minus b, end power, c"),
        (r"e^{s_i} e^{s_j}", "e to the s sub i, e to the s sub j"),
        (r"10^{-7}", "10 to the minus 7"),
        (r"h_{t-1} W", "h sub t minus 1, end sub, W"),
        (r"w_j^2", "w sub j squared"),
        (r"A^{-\top} A^{-1}", "A inverse transposed A inverse"),
        (r"W_{ij} = 1", "W sub i j equals 1"),
        (r"\sum_k e^{s_k}", "the sum over k of e to the s sub k"),
        (r"\sum_{c=1}^{d} q_c", "the sum from c equals 1 to d of q sub c"),
        (r"\max_j x_j", "the maximum over j of x sub j"),
        (r"\max(x)", "the maximum of x"),
        (r"\mathbb{E}[S]", "the expected value of S"),
        (r"\partial L / \partial X", "partial L over partial X"),
        (r"\|q\|\,\|x\|\cos\theta", "the norm of q, the norm of x, cosine theta"),
        (r"|a| \le b", "the absolute value of a is at most b"),
        (
            r"\underbrace{2Td + T}_{\text{kept: all}} + a",
            "2 T d plus T, which is kept, all, plus a",
        ),
        (r"\text{bytes of all} = 2", "bytes of all equals 2"),
        (r"q \cdot k", "q dot k"),
        (r"2 \cdot 3", "2 times 3"),
        (r"x \leftarrow -\infty", "x becomes minus infinity"),
        (r"C_1, \dots, C_h", "C sub 1, and so on, C sub h"),
        (r"\sqrt{\text{head\_dim}}", "the square root of head dim"),
        (r"a \qquad b", "a, b"),
        (r"\Delta \in \omega", "capital delta in omega"),
        (r"A \cup B", "A union B"),
    ],
)
def test_a_formula_is_said_in_words(tex, words):
    assert said(tex) == words


def test_a_matrix_is_said_row_by_row():
    tex = r"\begin{pmatrix} a & b \\ c & d \end{pmatrix} x"
    assert said(tex, display=True) == "the matrix a, b; c, d, end matrix, x"


def test_lines_set_below_each_other_are_said_one_after_the_other():
    assert said(r"\begin{aligned} a &= b \\ c &= d \end{aligned}") == "a equals b; c equals d"
