"""Projects that are not this book are read as they are: what their site shows as Python runs, or an error says why."""

import os
import re
import warnings
from pathlib import Path

import pytest

from literate.page import PageError, name_of, pages, read, root_of
from literate.site import MissingExtension
from tests.projects import ROOT, unsupported_numbers

pytest_plugins = ["pytester"]
CODE = "```python\nprint(1)\n```\n"


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """`stranger(files)` writes a project, and reads its page docs/page.md."""
    monkeypatch.chdir(tmp_path)

    def stranger(files, page="docs/page.md"):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read(tmp_path / page)

    return stranger


def codes(page):
    return [block.code for block in page.blocks]


SITES = {
    "inherited": {
        "mkdocs.yml": "INHERIT: base.yml\nsite_name: a\n",
        "base.yml": "markdown_extensions: [admonition, pymdownx.superfences]\n",
    },
    "by its other name": {
        "mkdocs.yaml": "markdown_extensions: [admonition, pymdownx.superfences]\n"
    },
    "from the environment": {
        "mkdocs.yml": "site_name: !ENV [NO_SUCH, a]\nmarkdown_extensions: [admonition, pymdownx.superfences]\n"
    },
    "relative to a page": {
        "mkdocs.yml": "markdown_extensions:\n- admonition\n- pymdownx.superfences\n"
        "- pymdownx.snippets:\n    base_path: [!relative $docs_dir]\n"
    },
}


@pytest.mark.parametrize("files", SITES.values(), ids=SITES)
def test_mkdocs_own_loader_reads_its_configuration(stranger, files):
    indented = "!!! note\n\n    " + CODE.replace("\n", "\n    ") + "\n"
    assert codes(stranger({**files, "docs/page.md": indented})) == ["print(1)\n"]


def test_the_folder_of_pages_is_the_one_that_the_site_names(stranger, tmp_path):
    page = stranger(
        {"mkdocs.yml": "docs_dir: guide\n", "guide/page.md": CODE, "docs/no.md": ""},
        "guide/page.md",
    )
    assert pages(tmp_path) == [page.path]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("site_name: [\n", "mkdocs.yml:2: expected the node content"),
        ("INHERIT: gone.yml\n", "mkdocs.yml: Inherited config file 'gone.yml' does not exist"),
        ("markdown_extensions: 3\n", "mkdocs.yml: markdown_extensions: Invalid Markdown Ext"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_one_line(stranger, config, said):
    with pytest.raises(PageError) as error:
        stranger({"mkdocs.yml": config, "docs/page.md": CODE})
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_a_page_is_read_without_an_extension_that_is_not_installed_and_that_is_said_once(stranger):
    files = {
        "mkdocs.yml": "markdown_extensions: [nowhere.to_be_found, admonition]\n",
        "docs/page.md": CODE,
    }
    with pytest.warns(
        MissingExtension, match=r"mkdocs\.yml: .* without the extension nowhere"
    ) as said:
        stranger(files)
    assert len(said) == 1
    with warnings.catch_warnings(action="error"):
        assert codes(read("docs/page.md")) == ["print(1)\n"]


PLAIN, FENCED = (
    "site_name: a\n",
    "markdown_extensions: [pymdownx.superfences, pymdownx.highlight]\n",
)
DEFAULT = (
    "markdown_extensions:\n- pymdownx.superfences\n- pymdownx.highlight: {default_lang: python}\n"
)
GUESSING = DEFAULT.replace("default_lang: python", "guess_lang: true")
HILITE = "markdown_extensions: [codehilite]\n"
APPENDED = (
    "markdown_extensions:\n- pymdownx.superfences\n- pymdownx.snippets: {auto_append: [end.md]}\n"
)
INDENTED = "Text\n\n    :::python\n    print(1)\n"
# What the page says, and what becomes of it: the code that runs, or the line of an error and words of it.
DRAWN = {
    "a fence in a box": (PLAIN, f"<div>\n{CODE}</div>\n", ["print(1)\n"]),
    "a fence in a list that is drawn as text": (
        PLAIN,
        "- a\n\n    " + CODE.replace("\n", "\n    "),
        (3, "draw"),
    ),
    "code without a label": (FENCED, "```\nimport os\n```\n", []),
    "code without a label where Python is the rule": (
        DEFAULT,
        "```\nimport os\n```\n",
        ["import os\n"],
    ),
    "indented code where Python is the rule": (
        DEFAULT,
        "Text\n\n    import os\n",
        (3, "as Python"),
    ),
    "code without a label where the site guesses": (
        GUESSING,
        "```\nimport os\n```\n",
        (1, "label the fence"),
    ),
    "indented code with a label": (HILITE, INDENTED, (4, "as Python, and it does not run")),
    "indented code with a label that nobody reads": (FENCED, INDENTED, []),
    "code that a file appends": (APPENDED, "Text\n", (1, "comes into the page from a file")),
    "code in a comment": (FENCED, f"<!--\n\n{CODE}-->\n", (3, "does not draw this fence")),
    "code in a box that is not seen": (
        "markdown_extensions: [pymdownx.superfences, md_in_html]\n",
        f'<div style="display: none" markdown>\n\n{CODE}\n</div>\n',
        (3, "stands in <div style>"),
    ),
    "options of the site": (
        "markdown_extensions: [pymdownx.superfences, attr_list]\n",
        "```{ .python .annotate title='a' data-x=\"1\" }\nprint(1)\n```\n",
        ["print(1)\n"],
    ),
    "options that the site does not read": (
        FENCED,
        '```python who="me"\nprint(1)\n```\n',
        (1, "draw"),
    ),
}


@pytest.mark.parametrize(("config", "text", "wanted"), DRAWN.values(), ids=DRAWN)
def test_what_a_site_shows_as_python_runs_or_is_an_error(stranger, config, text, wanted):
    files = {"mkdocs.yml": config, "docs/page.md": text, "end.md": CODE}
    if isinstance(wanted, list):
        assert codes(stranger(files)) == wanted
    else:
        with pytest.raises(PageError) as error:
            stranger(files)
        assert str(error.value).startswith(f"docs/page.md:{wanted[0]}: ")
        assert wanted[1] in str(error.value)
        assert "\n" not in str(error.value)


LANGUAGES = [
    "mermaid",
    "csv",
    "env",
    "tree",
    "math",
    "json5",
    "pytb",
    "ipython",
    "cython",
    "starlark",
    "python-repl",
    "text",
    "console",
]


@pytest.mark.parametrize("config", [{}, {"mkdocs.yml": FENCED}], ids=["no site", "a site"])
def test_a_fence_that_is_no_python_is_left_alone(stranger, config):
    text = "".join(f"```{language}\na --> b\n```\n\n" for language in LANGUAGES)
    page = stranger({**config, "docs/page.md": text})
    assert [fence.language for fence in page.fences] == LANGUAGES
    assert page.blocks == []


@pytest.mark.parametrize(
    "label", ["pyhton", "Python", "PYTHON3", "python,", "python:a", "phyton", "Output", "{python}"]
)
@pytest.mark.parametrize("config", [{}, {"mkdocs.yml": FENCED}], ids=["no site", "a site"])
def test_what_is_almost_python_is_suspicious(stranger, config, label):
    with pytest.raises(
        PageError, match=r"docs/page\.md:3: unknown language .*; wanted `(python|output)"
    ):
        stranger({**config, "docs/page.md": f"Text\n\n```{label}\nprint(1)\n```\n"})


def test_rules_of_a_book_bind_no_stranger(stranger):
    text = """---
tags: [a]
date: 2030-01-01
icon: material/tag
---

# HTTP/1.1 has 2068 lines

See [a page](gone.md). Predict it. <details><summary>S</summary>A \U0001f469\u200d\U0001f52c</details>

=== "A"

    ```python
    a = "\U0001f469\u200d\U0001f52c\t|"
    ```

=== "B"

    ```python
    b = '''
   \t
    '''
    ```
"""
    site = "markdown_extensions: [pymdownx.superfences, pymdownx.tabbed]\n"
    page = stranger({"mkdocs.yml": site, "docs/page.md": text, "docs/a.ipynb": "{}"})
    page.check_drawn()
    assert unsupported_numbers(page) == []
    assert codes(page) == ['a = "\U0001f469\u200d\U0001f52c\t|"\n', "b = '''\n\n'''\n"]


def test_bytes_are_bytes(stranger):
    code = "print(len('a\tb'))\nx = '''\n   \n\t\n'''\n"
    assert codes(stranger({"docs/page.md": f"```python\n{code}```\n"})) == [code]
    assert codes(stranger({"mkdocs.yml": FENCED, "docs/page.md": f"```python\n{code}```\n"})) == [
        code
    ]
    indented = "\t```python\n\tif x:\n\t\ty\n\t```\n"
    note = "markdown_extensions: [admonition, pymdownx.superfences]\n"
    page = stranger({"mkdocs.yml": note, "docs/page.md": f"!!! note\n\n{indented}"})
    assert codes(page) == ["if x:\n\ty\n"]


def test_code_may_stand_in_a_comment_that_no_renderer_shows(stranger):
    text = f"<!-- python\nx = 1\n-->\n\n{CODE}\n<!-- a remark -->\n"
    for config in ({}, {"mkdocs.yml": FENCED}):
        page = stranger({**config, "docs/page.md": text})
        assert codes(page) == ["x = 1\n", "print(1)\n"]
        assert [fence.hidden for fence in page.fences] == [True, False]
        assert page.source.split("\n")[:6] == ["", "x = 1", "", "", "", "print(1)"]


def test_a_block_may_say_why_it_is_skipped(stranger):
    text = '```python skip="needs a server"\nconnect()\n```\n'
    assert [block.skip for block in stranger({"docs/page.md": text + CODE}).blocks] == [
        "needs a server",
        None,
    ]
    with pytest.raises(PageError, match="option `skip` needs a value"):
        stranger({"docs/page.md": text.replace("needs a server", "")})


BROKEN = {
    "conflict": (
        "<<<<<<< ours\n\n```python\na = 1\n```\n\n=======\n\n```python\na = 2\n```\n\n>>>>>>> theirs\n",
        [1, 13],
    ),
    "front matter": ("---\ntitle: A: b\n---\n\nText\n", [2]),
    "each error of a page": (
        "```pyhton\n1\n```\n\n```Output\n1\n```\n\n---\n\n```python\n1\n",
        [1, 5, 11],
    ),
}


@pytest.mark.parametrize("config", [{}, {"mkdocs.yml": FENCED}], ids=["no site", "a site"])
@pytest.mark.parametrize(("text", "lines"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_named_each_by_its_line(stranger, config, text, lines):
    with pytest.raises(PageError) as error:
        stranger({**config, "docs/page.md": text})
    found = [re.match(r"docs/page\.md:(\d+): ", line) for line in str(error.value).split("\n")]
    assert [int(match[1]) for match in found] == lines


def test_a_project_without_a_site_begins_at_its_pyproject(stranger, tmp_path):
    page = stranger(
        {"pyproject.toml": "", "docs/deep/page.md": CODE, "README.md": ""},
        "docs/deep/page.md",
    )
    assert page.root == root_of(page.path) == tmp_path
    assert [name_of(path) for path in pages(tmp_path)] == ["README.md", "docs/deep/page.md"]


def test_a_page_has_a_name_that_can_be_typed_where_one_stands(stranger, tmp_path, monkeypatch):
    page = stranger({"mkdocs.yml": PLAIN, "docs/page.md": CODE, "src/a.py": ""})
    for folder, name in (
        ("docs", "page.md"),
        ("src", "../docs/page.md"),
        ("..", f"{tmp_path.name}/docs/page.md"),
    ):
        monkeypatch.chdir(tmp_path / folder)
        assert page.name == name
        assert os.path.samefile(page.name, page.path)
        assert page.key == "docs/page.md"


def test_the_checker_has_no_word_of_this_book():
    words = "exercise|heatmap|explorable|chapter|labs?|attention|llama|hook|snippets/|docs/files"
    for path in sorted(Path(ROOT, "literate").glob("*.py")):
        found = re.search(rf"\b(?:{words})\b", path.read_text(encoding="utf-8"), re.IGNORECASE)
        assert not found, f"{path.name} says {found[0]}"


def test_a_page_that_cannot_be_read_fails_alone_and_names_each_line(pytester):
    pytester.makepyprojecttoml("")
    pytester.makeconftest('pytest_plugins = ["literate.pytest_plugin"]\n')
    good, bad = CODE + "\n```output\n1\n```\n", "```pyhton\n```\n\n```Output\n```\n"
    for name, text in (("a", bad), ("b", good)):
        (pytester.mkdir("docs") if name == "a" else pytester.path / "docs").joinpath(
            f"{name}.md"
        ).write_text(text)
    result = pytester.runpytest("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["docs/a.md:1: unknown language*", "docs/a.md:4: unknown language*"]
    )
