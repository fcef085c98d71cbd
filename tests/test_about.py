"""The book says of itself, everywhere, the same: its version, its date, its name and its address."""

import re
import tomllib
from datetime import date
from pathlib import Path

import yaml

from literate.compare import pinned_torch

ROOT = Path(__file__).resolve().parents[1]
CITED = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
RELEASED: date = CITED["date-released"]
MONTHS = "January February March April May June July August September October November December"
MONTH = MONTHS.split()[RELEASED.month - 1]  # `%B` would ask the language of this machine
SPOKEN = f"{RELEASED.day} {MONTH} {RELEASED.year}"


def setting(name):
    """Return what mkdocs.yml says on the one line of this name."""
    (value,) = re.findall(rf"^ *{name}: (.+)$", SETTINGS, re.M)
    return value


def page(name):
    """Return the text of a page, its line breaks as blanks."""
    return " ".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8").split())


def test_the_citation_names_the_book_and_where_it_is():
    assert CITED["cff-version"] == "1.2.0"
    assert CITED["authors"] == [{"name": "The authors of Attention, Executed"}]
    assert CITED["message"]
    assert CITED["title"] == setting("site_name")
    assert CITED["url"] == setting("site_url")
    assert CITED["repository-code"] == f"https://github.com/{setting('repository')}"


def test_each_package_has_the_version_of_the_book():
    for folder in (".", "literate"):
        told = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
        assert tomllib.loads(told)["project"]["version"] == CITED["version"]


def test_the_page_to_cite_says_what_the_citation_says():
    (author,), title, url = (one["name"] for one in CITED["authors"]), CITED["title"], CITED["url"]
    said = re.sub(r" +", " ", page("cite"))
    (entry,) = re.findall(r"```bibtex (@book\{.*?\}) ```", said)
    fields = {
        "title": f"{{{title}}}",
        "author": f"{{{{{author}}}}}",
        "year": f"{{{RELEASED.year}}}",
        "month": MONTH[:3].lower(),
        "version": f"{{{CITED['version']}}}",
        "url": f"{{{url}}}",
    }
    assert [name for name in fields if f"{name} = {fields[name]}" not in entry] == []
    assert f"{author}. *{title}*, version {CITED['version']}, {SPOKEN}. <{url}>" in said
    assert f"checked with PyTorch {pinned_torch(ROOT)}." in said


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
