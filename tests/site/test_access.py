"""What the pages are to those who hear them, enlarge them, or choose the colours themselves."""

import re

import pytest
from bs4 import BeautifulSoup

from tests.site import book


def unfold(page):
    """Open all that is folded, solutions above all."""
    page.evaluate(
        "for (const fold of document.querySelectorAll('article details')) fold.open = true"
    )


def formulas(site):
    """Every formula of the book, and what is said for it: `(path, LaTeX, words)`."""
    for path in book.PAGES:
        for formula in BeautifulSoup((site / path).read_text("utf-8"), "html.parser")("math"):
            yield path, formula.annotation.get_text(), formula.get("aria-label", "")


def test_every_formula_is_said_in_words(site):
    every = list(formulas(site))
    assert len(every) > 300
    wrong = [one for one in every if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 .,;]*", one[2])]
    assert wrong == []


@pytest.mark.parametrize("path", ["correctness/backward.html"])
def test_a_screen_reader_is_told_the_words_and_may_explore_the_formula(look, site, path):
    page = look(path)
    unfold(page)
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    maths = [node for node in nodes if node["role"]["value"] == "MathMLMath"]
    told = [node["name"]["value"] for node in maths]
    assert sorted(told) == sorted(words for at, _, words in formulas(site) if at == path)
    assert all(node["childIds"] for node in maths)
