"""What the search reads of a drawn page."""

import json

import pytest

from book import search
from book.markdown.math import mathml, on_one_line

PAGE = f"""
<h1 id="top">Scores<a class="headerlink" href="#top">¶</a></h1>
<p>A sum of 10<sup>38</sup>
is {mathml("e^{{88}}")} &lt; &amp;.</p>
<figure><svg><title>noise</title></svg><figcaption><b>Output</b>What it shows</figcaption></figure>
<h2 id="code">In <code>code</code></h2>
<pre><code>a = 1
b = 2</code></pre>
<pre><samp>0.25 0.75
IndexError: too many indices</samp></pre>
<table class="heatmap"><tr><td>0.25</td></tr></table>
<table><tr><td>d</td><td>width</td></tr></table>
<details data-search-exclude><summary>Exact</summary><p>0.2500</p></details>
<ul><li>one<br>line</li><li>two</li></ul>
"""


def test_a_page_is_read_section_by_section_in_lines():
    assert search.sections(PAGE) == [
        (
            "",
            "Scores",
            "A sum of 10<sup>38</sup> is e<sup>88</sup> &lt; &amp;.\nWhat it shows",
        ),
        (
            "code",
            "In code",
            "\ta = 1\n\tb = 2\n\tIndexError: too many indices\nd width\none line\ntwo",
        ),
    ]


def index_of(*entries):
    return json.loads(search.script(list(entries)).removeprefix("window.bookIndex = ")[:-2])


def entry(*texts):
    return search.Entry(
        "a.html", "Why?", "", [search.Section("there", "T", text) for text in texts]
    )


def test_the_index_names_for_each_word_the_sections_that_have_it():
    found = index_of(
        entry("Masks of W<sub>q</sub>.", *["a"] * 35, "the masks"), entry("masks\n\tmasks " * 2)
    )
    assert found["words"].split("\n") == ["masks 0 10 1+", "w_q 0"]
    assert "the" in found["idle"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "\tcode.\na heading\nIt is said here, in a sentence as long as an excerpt has to be. More.",
            "It is said here, in a sentence as long as an excerpt has to be.",
        ),
        (
            "Short. Then the next one. And so on, until there is enough to see. More.",
            "Short. Then the next one. And so on, until there is enough to see.",
        ),
        ("\tcode alone", ""),
    ],
)
def test_an_excerpt_is_the_first_sentence_of_its_section(text, told):
    [[*_, [[anchor, title, said]]]] = index_of(entry(text))["pages"]
    assert (anchor, title, said) == ("there", "T", told)


@pytest.mark.parametrize(
    ("tex", "line"),
    [
        ("10^{38}", "10<sup>38</sup>"),
        (r"\sqrt{d_k}", "√d<sub>k</sub>"),
        (r"\sqrt{a+b}", "√(a + b)"),
        (
            r"\operatorname{softmax}(QK^\top/\sqrt{d_k})\,V",
            "softmax(QK<sup>⊤</sup>/√d<sub>k</sub>) V",
        ),
        (r"\frac{a+b}{c_i}", "(a + b)/c<sub>i</sub>"),
        (r"\sum_{j=1}^{n} x_j^2", "∑<sub>j = 1</sub><sup>n</sup>x<sub>j</sub><sup>2</sup>"),
        (r"S = -\infty", "S = −∞"),
        ("e^{-x}", "e<sup>−x</sup>"),
        ("a < b", "a &lt; b"),
        ("(B, T, d)", "(B, T, d)"),
    ],
)
def test_a_formula_is_read_on_one_line(tex, line):
    assert on_one_line(mathml(tex)) == line
