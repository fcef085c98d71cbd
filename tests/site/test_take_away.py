"""Where a page leads: to Colab, with all that it needs there, to its source, to a form for a report."""

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

from book import prepare, repository, take_away
from literate import compare
from literate.record import Record
from tests import pages
from tests.site import book

RUNNING = [page for page in pages.RUNNING if page.name not in ("README.md",)]
SETTINGS = (book.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
REPOSITORY = re.search(r"^  repository: (.+)$", SETTINGS, re.M)[1]
SITE = re.search(r"^site_url: (.+)$", SETTINGS, re.M)[1]
WORKFLOW = yaml.safe_load((book.ROOT / ".github/workflows/book.yml").read_text(encoding="utf-8"))


def name_of(page):
    return page.name.removeprefix("docs/").removesuffix(".md")


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
def test_a_chapter_leads_to_its_notebook_in_colab(site, page):
    name = name_of(page)
    every = book.parsed(site / f"{name}.html").xpath("//a/@href")
    links = [link for link in every if link.startswith("https://colab.research.google.com")]
    if name == "index":
        assert links == []
        return
    published = f"https://colab.research.google.com/github/{REPOSITORY}/blob/gh-pages/"
    practised = [f"{name}-practice.ipynb"] * (take_away.EXERCISES in page.lines)
    assert links == [published + notebook for notebook in (f"{name}.ipynb", *practised)]
    for file in (f"{name}.ipynb", *practised):
        notebook = nbformat.read(site / file, as_version=4)
        torch = compare.pinned_torch(book.ROOT)
        assert f"Checked with PyTorch {torch}." in notebook.cells[0].source
        assert (f"[in Colab]({published}{file})" in notebook.cells[0].source) == (file in practised)
        code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
        assert re.findall(r"^\s*[!%].*|\bpip\b", code, re.M) == []


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
def test_a_notebook_elsewhere_gets_the_files_that_its_page_loads(site, page):
    """It fetches them from the book's own address, where they lie under a name that holds their digest."""
    code = "\n".join(block.code for block in page.blocks)
    if "load_state_dict_from_url" in code:
        assert f'"{SITE}files/' in code
        assert code.count("load_state_dict_from_url(") == code.count("check_hash=True")
    for name in re.findall(r"[\w-]+\.pt\b", code):
        if (book.DOCS / "files" / name).exists() or "-" in name:
            published = (site / "files" / name).read_bytes()
            assert hashlib.sha256(published).hexdigest().startswith(name[:-3].rpartition("-")[2])


def test_the_site_is_published_on_the_branch_that_colab_reads(tmp_path):
    *_, step = WORKFLOW["jobs"]["publish"]["steps"]
    command, _, _, branch = step["run"].split()
    assert (command, branch) == (".ci/publish", repository.PUBLISHED)
    assert WORKFLOW[True]["push"]["branches"] == [repository.SOURCES]
    publish, git = branch_of(tmp_path)
    for text in ("{}", '{"again": 1}'):
        publish(text)
        assert git("show", f"{branch}:part/page.ipynb") == text
    assert ".nojekyll" in git("ls-tree", "-r", "--name-only", branch).split()
    assert git("rev-list", "--count", branch).strip() == "1"


def branch_of(folder):
    """Return what publishes a site of one notebook from a new repository, and git where it arrives."""
    (folder / "site/part").mkdir(parents=True)
    (folder / "site/.gitignore").write_text("*.ipynb\n")

    def git(*words, place="remote"):
        words = ["git", "-C", place, *words]
        return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout

    def publish(text, *edition, place="checkout"):
        (folder / "site/part/page.ipynb").write_text(text)
        words = [
            str(book.ROOT / ".ci/publish"),
            "../site",
            "origin",
            repository.PUBLISHED,
            *edition,
        ]
        subprocess.run(words, cwd=folder / place, check=True, capture_output=True)

    git("init", "--quiet", "--bare", "remote", place=".")
    git("clone", "--quiet", "remote", "checkout", place=".")
    commit = "-c user.name=a -c user.email= commit --quiet --allow-empty --message=x"
    git(*commit.split(), place="checkout")
    return publish, git


def test_an_edition_that_was_published_stays_at_its_address(tmp_path):
    publish, git = branch_of(tmp_path)
    for text, *edition in (("1", "v1.0"), ("2",), ("3", "v2.0"), ("4",), ("5", "v2.0")):
        publish(text, *edition)
    held = {
        path: git("show", f"{repository.PUBLISHED}:{path}")
        for path in git("ls-tree", "-r", "--name-only", repository.PUBLISHED).split()
        if path.endswith(".ipynb")
    }
    assert held == {
        "part/page.ipynb": "4",
        "v1.0/part/page.ipynb": "1",
        "v2.0/part/page.ipynb": "5",
    }


def test_only_a_tag_of_an_edition_names_one(tmp_path):
    publish, _ = branch_of(tmp_path)
    for name in ("vintage", "../v1", "2.0"):
        with pytest.raises(subprocess.CalledProcessError):
            publish("1", name)
    *_, step = WORKFLOW["jobs"]["release"]["steps"]
    command, _, _, branch, edition = step["run"].split()
    assert (command, branch, edition) == (".ci/publish", repository.PUBLISHED, '"$GITHUB_REF_NAME"')
    assert {"gate", "everything"} <= set(WORKFLOW["jobs"]["release"]["needs"])


@pytest.mark.parametrize(
    "source", [page.name for page in RUNNING] + [f"docs/{lab}" for lab in book.LABS]
)
def test_a_page_of_numbers_leads_to_a_report(site, source):
    path = source.removeprefix("docs/").rpartition(".")[0] + ".html"
    (link,) = book.parsed(site / path).cssselect("a.report")
    assert parse_qs(urlsplit(link.get("href")).query)["page"] == [source]


@pytest.mark.parametrize("path", book.PAGES)
def test_a_page_leads_to_its_source(site, path):
    source = next(s for s in [*book.CHAPTERS, *book.LABS] if s.rpartition(".")[0] == path[:-5])
    verb = "blob" if source.endswith(".ipynb") else "edit"
    link = f'<a href="https://github.com/{REPOSITORY}/{verb}/main/docs/{source}">'
    assert (site / path).read_text(encoding="utf-8").count(link) == 1


def test_the_offline_copy_says_how_to_open_it_and_where_its_files_go(tmp_path):
    (tmp_path / "index.html").write_text("<p>Here.</p>")
    prepare.pack(tmp_path)
    with zipfile.ZipFile(tmp_path / "attention-executed.zip") as archive:
        first, *names = archive.namelist()
        said = archive.read(first).decode()
    assert (first, names) == ("attention-executed/README.txt", ["attention-executed/index.html"])
    assert said.startswith("Open index.html in a browser")
    (command,) = re.findall(r"python -c \"(.+)\"", said)
    environ = {"TORCH_HOME": "/there", "PATH": os.environ["PATH"]}
    words = [sys.executable, "-c", command]
    done = subprocess.run(words, env=environ, check=True, capture_output=True, text=True)
    assert done.stdout == "/there/hub\n"


FORM = yaml.safe_load((book.ROOT / f".github/ISSUE_TEMPLATE/{repository.FORM}").read_text())


def test_a_report_fills_in_the_form():
    record = Record("digest", "program", 3, "3.11.2", "2.13.0", "1", "Linux x86_64", "2026-01-02")
    url = urlsplit(repository.report("owner/name", "part/a page.md", record))
    assert (url.netloc, url.path) == ("github.com", "/owner/name/issues/new")
    told = {name: value for name, (value,) in parse_qs(url.query).items()}
    assert told == {
        "template": "wrong-number.yml",
        "page": "docs/part/a page.md",
        "versions": "PyTorch 2.13.0, Python 3.11.2, Linux x86_64, checked on 2026-01-02",
    }
    for source, versions in (
        ("a.md", "the page was not checked"),
        ("a.ipynb", "those that the lab prints"),
    ):
        (said,) = parse_qs(repository.report("owner/name", source, None))["versions"]
        assert said == versions
    fields = {field.get("id") for field in FORM["body"]}
    assert {*told, "block"} - {"template"} <= fields


def test_every_address_follows_from_the_one_setting(tmp_path):
    project = book.small_book(
        tmp_path,
        index="# Home\n",
        page="# A page\n\n```python\nprint(1)\n```\n\n```output\n1\n```\n",
    )
    settings = project / "mkdocs.yml"
    assert settings.read_text("utf-8").count(REPOSITORY) == 1
    settings.write_text(
        settings.read_text("utf-8").replace(REPOSITORY, "someone/elsewhere"), "utf-8"
    )
    result = book.build(tmp_path / "site", project)
    assert result.returncode == 0, result.stderr
    html = (tmp_path / "site/page.html").read_text("utf-8")
    soup = BeautifulSoup(html, "html.parser")
    led = {
        a["href"].partition("?")[0]
        for a in soup.select("a[href*='github']")
        if "github.io" not in a["href"]
    }
    assert led == {
        "https://github.com/someone/elsewhere",
        "https://github.com/someone/elsewhere/edit/main/docs/page.md",
        "https://github.com/someone/elsewhere/issues/new",
        "https://colab.research.google.com/github/someone/elsewhere/blob/gh-pages/page.ipynb",
    }
    for file in (tmp_path / "site").rglob("*"):
        if file.suffix in (".html", ".ipynb", ".js", ".md", ".txt", ".xml"):
            assert REPOSITORY not in file.read_text("utf-8"), file


# ---- In a browser. ----

CHAPTER = "model/heads.html"


def test_a_report_names_the_block_that_was_pointed_at_last(arrive):
    shown = arrive(CHAPTER)
    link = shown.locator("a.report")
    shown.locator(".md-content figure.output").nth(1).hover()
    shown.wait_for_function(  # its script comes with the first pointer on the page
        "performance.getEntriesByType('resource').some(({ name }) => name.endsWith('asked.js'))"
    )
    book.show(shown)
    link.hover()
    program = next(page for page in RUNNING if page.name == "docs/model/heads.md")
    outputs = [n for n, block in enumerate(program.blocks, 1) if block.output]
    told = parse_qs(urlsplit(link.get_attribute("href")).query)
    first = program.blocks[outputs[1] - 1].code.split("\n")[0]
    assert told["block"] == [f"{outputs[1]}: {first}"]
    assert told["page"] == ["docs/model/heads.md"]
