"""What runs is what the site draws as python, block for block and letter for letter."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown import Markdown
from mkdocs.config import load_config

from literate.page import PageError, pages, read
from tests.literate.test_page import FORMS

ROOT = Path(__file__).parents[2]
PYTHON = re.compile(r"language-(?:python|py)3?$")


@pytest.fixture(scope="module")
def site():
    """The site's own Markdown, with every extension and setting of mkdocs.yml."""
    config = load_config(str(ROOT / "mkdocs.yml"))
    return Markdown(
        extensions=config["markdown_extensions"], extension_configs=config["mdx_configs"]
    )


def drawn(site, text):
    """Return the text of each block that the site draws as python, without blank lines at its ends."""
    html = BeautifulSoup(site.reset().convert(text), "html.parser")
    boxes = html.find_all("div", class_=PYTHON)
    return [box.find_all("pre")[-1].get_text().strip("\n") for box in boxes]


def collected(path):
    """Return the text of each block of a page that runs, without blank lines at its ends."""
    return [block.code.strip("\n") for block in read(path).blocks]


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_form_is_drawn_as_it_is_run(book, site, text):
    path = book.page(text.encode())
    body = re.sub(r"\A---\n.*?\n---\n", "", text.removeprefix("\ufeff"), flags=re.DOTALL)
    assert drawn(site, body) == collected(path) == ["print(1)"]


@pytest.mark.parametrize("path", pages(ROOT), ids=lambda path: path.name)
def test_every_page_of_the_book_is_drawn_as_it_is_run(site, path, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = re.sub(r"\A---\n.*?\n---\n", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert drawn(site, text) == collected(path)


OPENERS = ("- item", "1. item", "!!! note", '??? success "Solution"', '=== "Tab"', ":   term")
PROSE = ("text", "", "> quote", "<div>", "</div>", "<!-- remark -->", "# Heading", "[^1]: foot")
MARKS = ("```", "````", "~~~", "~~~~")
INFOS = (
    "python",
    "py",
    " python3",
    "{ .python }",
    '{ .py title="a" }',
    'python title="b"',
    "text",
    "",
)
CODE = (
    "a = 1",
    "    b = 2",
    "",
    "'''",
    "# > c",
    "> d",
    "- e",
    "```",
    "~~~",
    "<!--",
    "x\ty",
    "&amp;",
)


@st.composite
def chunks(draw):
    """Draw lines that begin at one indent: a fence as an author writes one, or what stands around."""
    indent = draw(
        st.sampled_from(("", "", "", "    ", "    ", "        ", "  ", "> ", "> > ", "\t"))
    )
    if draw(st.booleans()):
        lines = [draw(st.sampled_from(OPENERS + PROSE))]
    else:
        marks = draw(st.sampled_from(MARKS))
        body = draw(st.lists(st.sampled_from(CODE), max_size=4))
        lines = [marks + draw(st.sampled_from(INFOS)), *body, marks]
    if draw(st.booleans()):
        lines.append("")
    return [indent + line for line in lines]


@st.composite
def texts(draw):
    """Draw a page, now and then with one line out of place."""
    drawn_chunks = draw(st.lists(chunks(), min_size=1, max_size=7))
    lines = [line for chunk in drawn_chunks for line in chunk]
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(lines) - 1))
        lines[at] = draw(
            st.sampled_from((" " + lines[at], lines[at].lstrip(), lines[at] + "`", ""))
        )
    return "\n".join(lines) + "\n"


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=texts())
def test_any_page_that_is_read_is_drawn_as_it_is_run(book, site, text):
    try:
        ran = collected(book.page(text.encode()))
    except PageError:
        return
    assert drawn(site, text) == ran
