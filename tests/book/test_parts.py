"""The page of a part says what its file and its tests say, and the list of parts has every file."""

import re

import pytest
import yaml

from book import parts, prepare
from literate import page
from literate.site import markdown
from tests.projects import ROOT

SETTINGS = yaml.unsafe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = [source for source, _ in prepare._listed(SETTINGS["nav"])]
TESTS = '''\
"""Equal to the sum, and

not to the product."""

raise SystemError("a build imports no test")


def test_adds_up(part): ...


def test_nan_stays_where_it_is(part): ...


def helper(x, y): ...


WRONG = {"one * too many": ("+", "*")} | {"minus": ("+", "-")}
WRONG |= {"never": ("+", "and")}
CASES = {"two numbers": Case(lambda _, x: x)}
MODULES = {"Sum": Sum}
MIB = {"add": (4 + 1 / 2, lambda x: x), "unknown": (row(3), None)}


def test_gpt2_has_the_same():
    ...
'''
PEERS = '"""It is torch\'s."""\nfrom snippets import other, sums\n\ndef test_of_torch(): ...\n'


@pytest.fixture
def sums(book):
    """A book with one part, its tests, a peer's, and two pages that show it."""
    said = '"""Adds <two>_numbers_ for $5.\n\nIt takes:\n\n    a, b * c\n\n- one `*a*`\n- two\nSource: a_b_.\n"""\n'
    book.snippet("sums.py", f"{said}\n\ndef add(a, b):\n    return a + b\n")
    book.page(TESTS, "tests/snippets/test_sums.py")
    book.page(PEERS, "tests/peers/test_sums.py")
    book.page("import snippets.summary\n", "tests/peers/test_sum.py")
    book.page('# First\n\n```python\n--8<-- "sums.py:add"\n```\n', "docs/a/first.md")
    book.page('# Second\n\n```python\n--8<-- "sums.py"\n```\n', "docs/second.md")
    return book


def shown(book, sources=("second.md", "a/first.md")):
    """The page of the part, as the site draws it, without tags."""
    html = markdown(book.root).convert(parts.page("sums", book.root, sources, "owner/name"))
    return html, re.sub(r"<[^>]+>", "", html)


def test_a_page_says_what_its_file_says_and_shows_it(sums):
    html, text = shown(sums)
    assert "Adds &lt;two&gt;_numbers_ for $5." in text.replace("&#36;", "$").replace("&#95;", "_")
    assert "<pre>" in html
    assert "a, b * c" in text
    assert "<li>one <code>*a*</code></li>" in html
    assert "return a + b" in text
    assert 'download="sums.py" href="../snippets/sums.py"' in html
    assert ">Second</a> and <a" in html
    assert html.index("../second.md") < html.index("../a/first.md")


def test_a_page_says_what_its_tests_hold(sums):
    html, text = shown(sums)
    assert "Equal to the sum, and (test_sums.py)" in text.replace("&#95;", "_")
    held = ["Adds up", "NaN stays where it is", "GPT-2 has the same", "Of torch"]
    assert (
        re.findall(r"<li>(.*)</li>", html[html.index("Equal to") : html.index("Mistakes")]) == held
    )
    assert "https://github.com/owner/name/blob/main/tests/peers/test_sums.py" in html
    wrong = [one.replace("&#42;", "*") for one in re.findall(r"<li>(.*)</li>", html)]
    assert wrong[-3:] == ["one * too many", "minus", "never"]
    assert "Calls tried: two numbers." in text
    assert "Modules tried: Sum." in text
    assert re.findall(r"<td>(.*)</td>", html) == ["add", "4.5 MiB"]


def test_a_part_without_tests_has_a_page_too(sums):
    for path in sums.root.glob("tests/*/*.py"):
        path.unlink()
    assert "<h2" not in shown(sums)[0]


LISTED = (ROOT / "docs/parts.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("part", parts.files(ROOT))
def test_the_list_of_parts_has_each_file_with_a_page_that_shows_it(part):
    found = [line for line in LISTED if line.startswith(f"| [{part}.py]")]
    assert found
    assert set(found) <= set(parts.rows(part, ROOT, PAGES))


def test_the_list_of_parts_has_no_file_that_is_gone():
    listed = re.findall(r"^\| \[(\w+)\.py\]", "\n".join(LISTED), re.M)
    assert sorted(listed) == list(parts.files(ROOT))


def test_a_link_to_the_page_of_a_part_must_name_a_file(sums):
    def check(link):
        page.read(sums.page(f"# A\n\n[It]({link})\n", "docs/a/page.md")).check_drawn()

    check("../parts/sums.md")
    with pytest.raises(page.PageError, match="leads to no file"):
        check("../parts/gone.md")
