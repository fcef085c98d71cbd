"""A build says what it did and no more, stops where something is wrong and names it; a publication keeps editions."""

import json
import os
import re
import subprocess
import sys
import zipfile
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
import yaml
from lxml import html
from mkdocs.config import load_config
from mkdocs.structure.files import get_files, set_exclusions
from mkdocs.utils.meta import get_data

from book import prepare, repository
from literate import compare, page, record
from literate.record import Record
from tests.site import book
from tests.site.test_files import REPOSITORY

WORKFLOW = yaml.safe_load((book.ROOT / ".github/workflows/book.yml").read_text(encoding="utf-8"))
FEW = """\
```python
print("tensor([[4, 5]])")
```

```output heatmap name="few"
tensor([[4, 5]])
```"""
PROVEN = "# {}\n\nWhy? So. And on.\n\n```python\nprint(1)\n```\n\n```output\n1\n```\n"
TAG = '</title><img src="x" onerror="f()">'
BOOK = {
    "index": f"# Home\n\n{FEW}\n\n[On](next.md#there), [4](#few-0-0), [5](#few-0-1)\n",
    "next": "# Next\n\n## There\n",
    "short": "# Short\n",
    "long": "# Long\n\n" + "word " * 600 + "\n\n```python\na = 1\n```\n" * 8,
    "proven": PROVEN.format("Proven"),
    "changed": PROVEN.format("Changed"),
    "older": PROVEN.format("Older"),
    "tag": f'# The `{TAG}` of it\n\nWhy "`{TAG}`" & `&lt;b>`? So.\n',
}


def test_the_build_is_strict_and_says_nothing_but_what_it_did(built):
    log = (built / "build.log").read_text(encoding="utf-8")
    lines = [line for line in log.splitlines() if line.strip()]
    assert lines[-1] == "exit 0"
    assert [line for line in lines[:-1] if not line.startswith("INFO")] == []


# ---------------------------------------------------------------- a small book of another's


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small book in another's repository, of which some pages were checked; `small(path)` is a file of its site."""
    folder = tmp_path_factory.mktemp("small")
    project = book.small_book(folder / "book", **BOOK)
    settings = project / "mkdocs.yml"
    assert settings.read_text("utf-8").count(REPOSITORY) == 1
    settings.write_text(settings.read_text("utf-8").replace(REPOSITORY, "someone/elsewhere"))
    said = {"proven": {"python": "9.8.7", "platform": "Abacus", "date": "2001-02-03"}}
    said |= {"changed": {}, "older": {"torch": "1.2.3"}}
    for name, words in said.items():
        record.write(page.read(project / f"docs/{name}.md"), 1)
        path = project / f".checked/docs/{name}.md.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | words))
    (project / "docs/changed.md").write_text(f"{BOOK['changed']}\nMore.\n")
    result = book.build(folder / "site", project)
    assert result.returncode == 0, result.stderr
    return lambda path: (folder / "site" / path).read_text(encoding="utf-8")


def test_the_mark_says_what_the_record_says_and_what_was_not_checked_so_has_none(small):
    found = {name: html.fromstring(small(f"{name}.html")).find_class("mark") for name in BOOK}
    said = {
        name: " ".join(m.text_content().split()) for name, marks in found.items() for m in marks
    }
    versions = f"PyTorch {compare.pinned_torch(book.ROOT)} and Python 9.8.7"
    assert f"1 output compared on 2001-02-03, with {versions} on Abacus." in said.pop("proven")
    assert {name: text[:16] for name, text in said.items()} == dict.fromkeys(
        ("index", "changed", "older"), "Not checked yet."
    )


def test_a_page_says_how_many_minutes_it_takes_and_at_least_one(small):
    found = [re.findall(r"\d+ min read", small(f"{name}.html")) for name in ("short", "long")]
    assert found == [["1 min read"], ["5 min read"]]


def test_a_page_is_described_by_the_question_that_it_asks_first_and_a_tag_in_it_stays_text(small):
    assert '<meta name="description" content="Why?">' in small("proven.html")
    asked = f'Why "{TAG}" & &lt;b>?'
    drawn, before = (html.document_fromstring(small(f"{name}.html")) for name in ("tag", "older"))
    assert drawn.cssselect("[onerror]") == []
    about = drawn.cssselect("meta[name=description], meta[property='og:description']")
    assert {one.get("content") for one in about} == {asked}
    assert [one.text_content() for one in before.cssselect(".book-next em")] == [asked]
    assert json.dumps(asked) in small("assets/search-index.js")
    assert f"): {asked}\n" in small("llms.txt")


def test_every_address_follows_from_the_one_setting(small):
    links = html.document_fromstring(small("proven.html")).xpath("//a/@href")
    ours = [link.partition("?")[0] for link in links if "github" in link and ".io" not in link]
    assert {*ours} == {
        "https://github.com/someone/elsewhere",
        "https://github.com/someone/elsewhere/edit/main/docs/proven.md",
        "https://github.com/someone/elsewhere/issues/new",
        "https://colab.research.google.com/github/someone/elsewhere/blob/gh-pages/proven.ipynb",
    }
    for path in ("proven.html", "proven.ipynb", "index.html", "llms.txt", "assets/book.js"):
        assert REPOSITORY not in small(path), path


# ------------------------------------------------------------------------- what stops a build


def test_a_build_names_all_that_leads_nowhere_and_what_the_menu_lacks(tmp_path):
    wrong = {
        "index": f"# Home\n\n{FEW}\n\n[On](next.md#gone), [5](#few-0-2)\n",
        "next": "# Next\n",
    }
    project = book.small_book(tmp_path / "book", **wrong)
    (project / "docs/stray.md").write_text("# Stray\n", encoding="utf-8")
    result = book.build(tmp_path / "site", project)
    assert result.returncode != 0
    said = ("next.md#gone", "#few-0-2", 'not included in the "nav"', "stray.md")
    assert [words for words in said if words not in result.stderr] == []


def test_an_error_in_a_page_stops_the_build_which_names_its_line(tmp_path):
    """What else is an error, `tests/literate` and `tests/book` ask of the page alone."""
    project = book.small_book(tmp_path / "book", index="# A\n\nBad: $\\nosuch{x}$ here.\n")
    result = book.build(tmp_path / "site", project)
    assert result.returncode != 0
    assert "docs/index.md:3: " in result.stderr
    assert "$\\nosuch{x}$" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_lab_without_its_figure_is_refused(tmp_path):
    project = book.small_book(tmp_path, index="# Home\n")
    notebook = nbformat.read(book.DOCS / "labs/gpt.ipynb", 4)
    for cell in notebook.cells:
        cell.metadata.get("tags", []).count("figure") and cell.metadata.tags.remove("figure")
    path = project / "docs/labs/hasty.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook, path)
    config = load_config(str(project / "mkdocs.yml"))
    with pytest.raises(page.PageError, match=r"labs/hasty\.ipynb.*no cell is tagged `figure`"):
        prepare.page(path, "labs/hasty.ipynb", config)


# --------------------------------------------------------------- what is a page, to MkDocs and us

NAMES = ("a.md", "b.mkd", "build/c.md", "venv/d.markdown", "e/templates/f.md", "e.mdown", "f.mkdn")
OTHERS = ("g.txt", "h.MD", "templates/i.md", ".j.md", ".k/l.md", "m.md.bak")


def test_a_page_is_what_mkdocs_publishes_as_one(tmp_path):
    (tmp_path / "mkdocs.yml").write_text("site_name: A book\n")
    for name in (*NAMES, *OTHERS):
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).touch()
    config = load_config(str(tmp_path / "mkdocs.yml"))
    files = get_files(config)
    set_exclusions(files, config)
    published = sorted(file.src_uri for file in files.documentation_pages())
    assert published == sorted(NAMES)
    found = page.pages(tmp_path)
    assert sorted(path.relative_to(tmp_path / "docs").as_posix() for path in found) == published


FRONTS = [
    "---\ntitle: x\n---\n",
    "---\ntitle: x\n...\n\n\n",
    "--- \nhide: [toc]\n--- \n",
    "---\n\n---\n",
    "---\nText\n---\n",
    "---\na: b: c\n---\n",
    "---\n- a\n---\n",
    "----\na: 1\n---\n",
    "---\na: 1\n",
    "\nAnswer: 42\n",
    "   Answer:\n    42\n",
]


@pytest.mark.parametrize("front", FRONTS)
def test_metadata_is_what_mkdocs_takes_for_metadata(front, book):
    text = front + "\n# Title\n"
    shown, data = get_data(text)
    if data and not front.startswith("---"):
        with pytest.raises(page.PageError, match="take it for metadata"):
            book.read(text)
        return
    kept = page.without_front_matter(text)
    assert kept.strip("\n") == shown.strip("\n")
    assert kept.count("\n") == text.count("\n")


# ------------------------------------------------------------------------ what is published, where


@pytest.fixture
def published(tmp_path):
    """`publish(text, edition)` publishes a site of one notebook from a new repository; `git` asks where it arrives."""
    (tmp_path / "site/part").mkdir(parents=True)
    (tmp_path / "site/.gitignore").write_text("*.ipynb\n")

    def git(*words, place="remote"):
        words = ["git", "-C", place, *words]
        return subprocess.run(
            words, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    def publish(text, *edition):
        (tmp_path / "site/part/page.ipynb").write_text(text)
        words = [str(book.ROOT / ".ci/publish"), "../site", "origin", repository.PUBLISHED]
        subprocess.run(
            [*words, *edition], cwd=tmp_path / "checkout", check=True, capture_output=True
        )

    git("init", "--quiet", "--bare", "remote", place=".")
    git("clone", "--quiet", "remote", "checkout", place=".")
    commit = "-c user.name=a -c user.email= commit --quiet --allow-empty --message=x"
    git(*commit.split(), place="checkout")
    return publish, git


def test_what_is_published_is_the_branch_that_colab_reads_and_each_edition_stays(published):
    publish, git = published
    branch = repository.PUBLISHED
    for text, *edition in (("1", "v1.0"), ("2",), ("3", "v2.0"), ("4",), ("5", "v2.0")):
        publish(text, *edition)
    files = git("ls-tree", "-r", "--name-only", branch).split()
    held = {path: git("show", f"{branch}:{path}") for path in files if path.endswith(".ipynb")}
    assert held == {
        "part/page.ipynb": "4",
        "v1.0/part/page.ipynb": "1",
        "v2.0/part/page.ipynb": "5",
    }
    assert ".nojekyll" in files
    assert git("rev-list", "--count", branch).strip() == "1"
    for name in ("vintage", "../v1", "2.0"):
        with pytest.raises(subprocess.CalledProcessError):
            publish("1", name)


def test_the_workflow_publishes_main_on_that_branch_and_a_tag_as_an_edition():
    jobs, branch = WORKFLOW["jobs"], repository.PUBLISHED
    steps = {name: jobs[name]["steps"][-1]["run"].split() for name in ("publish", "release")}
    assert (steps["publish"][0], steps["publish"][3]) == (".ci/publish", branch)
    command, _, _, *where = steps["release"]
    assert (command, *where) == (".ci/publish", branch, '"$GITHUB_REF_NAME"')
    assert WORKFLOW[True]["push"]["branches"] == [repository.SOURCES]
    assert {"gate", "everything"} <= set(jobs["release"]["needs"])


def test_a_report_fills_in_the_form():
    checked = Record("digest", "program", 3, "3.11.2", "2.13.0", "1", "Linux x86_64", "2026-01-02")
    url = urlsplit(repository.report("owner/name", "part/a page.md", checked))
    assert (url.netloc, url.path) == ("github.com", "/owner/name/issues/new")
    told = {name: value for name, (value,) in parse_qs(url.query).items()}
    assert told == {
        "template": "wrong-number.yml",
        "page": "docs/part/a page.md",
        "versions": "PyTorch 2.13.0, Python 3.11.2, Linux x86_64, checked on 2026-01-02",
    }
    form = yaml.safe_load((book.ROOT / f".github/ISSUE_TEMPLATE/{repository.FORM}").read_text())
    fields = {field.get("id") for field in form["body"]}
    assert {*told, "block"} - {"template"} <= fields


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
