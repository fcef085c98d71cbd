"""The book says of itself, everywhere, the same: its version, its date, its name and its address."""

import re
import tomllib
from datetime import date
from pathlib import Path

import pytest
import yaml

from literate.compare import pinned_torch

ROOT = Path(__file__).resolve().parents[1]
CITED = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
RELEASED: date = CITED["date-released"]
# In English, whatever language this machine speaks: `%B` would ask it.
MONTH = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
][RELEASED.month - 1]
SPOKEN = f"{RELEASED.day} {MONTH} {RELEASED.year}"


def setting(name):
    """Return what mkdocs.yml says on the one line of this name."""
    (value,) = re.findall(rf"^ *{name}: (.+)$", SETTINGS, re.M)
    return value


def page(name):
    """Return the text of a page, its line breaks as blanks."""
    return " ".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8").split())


def test_the_citation_has_what_the_format_asks_for():
    assert CITED["cff-version"] == "1.2.0"
    assert CITED["authors"] == [{"name": "The authors of Attention, Executed"}]
    assert {"message", "title"} <= set(CITED)
    assert isinstance(RELEASED, date)


def test_the_citation_names_the_book_and_where_it_is():
    assert CITED["title"] == setting("site_name")
    assert CITED["url"] == setting("site_url")
    assert CITED["repository-code"] == f"https://github.com/{setting('repository')}"


@pytest.mark.parametrize("folder", [".", "literate"])
def test_each_package_has_the_version_of_the_book(folder):
    told = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(told)["project"]["version"] == CITED["version"]


@pytest.mark.parametrize(
    "field",
    [
        f"title = {{{CITED['title']}}}",
        f"author = {{{{{CITED['authors'][0]['name']}}}}}",
        f"year = {{{RELEASED.year}}}",
        f"month = {MONTH[:3].lower()}",
        f"version = {{{CITED['version']}}}",
        f"url = {{{CITED['url']}}}",
    ],
    ids=lambda field: field.split()[0],
)
def test_the_entry_for_bibtex_says_what_the_citation_says(field):
    (entry,) = re.findall(r"```bibtex (@book\{.*?\}) ```", page("cite"))
    assert field in re.sub(r" +", " ", entry)


def test_the_sentence_to_cite_says_what_the_citation_says():
    author, title = CITED["authors"][0]["name"], CITED["title"]
    assert f"{author}. *{title}*, version {CITED['version']}, {SPOKEN}. <{CITED['url']}>" in page(
        "cite"
    )


def test_the_example_of_a_number_names_the_pinned_torch():
    assert f"checked with PyTorch {pinned_torch(ROOT)}." in page("cite")


def test_the_newest_entry_of_the_changelog_is_the_version_of_the_book():
    first, *earlier = re.findall(r"## (.*?) \{ #", page("changelog"))
    assert first == f"Version {CITED['version']}, {SPOKEN}"
    assert earlier


def test_every_version_says_what_was_wrong_in_it():
    for entry in page("changelog").split(" ## ")[1:]:
        assert re.search(
            r"Known to be wrong in it: |What was wrong in (it|them), and is mended", entry
        )


def test_the_readme_leads_to_the_book_and_has_a_line_to_clone_it():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"<{setting('site_url')}>" in readme
    assert f"git clone https://github.com/{setting('repository')}\n" in readme
