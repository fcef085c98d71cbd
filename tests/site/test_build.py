"""The built site as files: the build is quiet, every link leads somewhere, every page is sound."""

import json
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import html5lib
import nbformat
import pytest
from lxml import html

from book import search
from literate import compare, export, page, record
from tests.site import book


def start_of(element) -> str:
    """The first letters of an element, to know it by."""
    return html.tostring(element, encoding="unicode")[:120]


def test_the_build_is_strict_and_says_nothing_but_what_it_did(log):
    lines = [line for line in log.splitlines() if line.strip()]
    assert lines[-1] == "exit 0"
    assert [line for line in lines[:-1] if not line.startswith("INFO")] == []


def test_every_page_of_docs_is_in_the_site_and_in_the_navigation(site):
    home = book.parsed(site / "index.html")
    links = home.cssselect(".md-nav--primary a[href]")
    listed = {urldefrag(link.get("href"))[0] for link in links}
    assert {path for path in book.PAGES if not (site / path).exists()} == set()
    assert {path for path in book.PAGES if path not in listed} - {"index.html"} == set()


def test_a_chapter_says_above_its_title_which_of_its_part_it_is(site):
    placed = {}
    for path in book.PAGES:
        for line in book.parsed(site / path).cssselect(".md-content .page-place"):
            assert line.xpath("following::h1")
            links = [urljoin(path, link.get("href")) for link in line.cssselect("a")]
            placed[path] = " ".join(line.text_content().split()), *links
    assert placed["production/kv-cache.html"] == (
        "IV · In production · 6 of 21",
        "production/index.html",
    )
    assert placed["model/heads.html"] == ("III · A model · 2 of 2",)
    assert {"index.html", "production/index.html", "glossary.html"} & {*placed} == set()
    last = [said for said, *_ in placed.values() if re.search(r"(\d+) of \1$", said)]
    assert len(last) == len({said.rpartition(" · ")[0] for said, *_ in placed.values()})


def test_parts_other_than_the_one_that_is_read_are_folded(site):
    sections = book.parsed(site / "production/kv-cache.html").cssselect(
        ".md-nav--primary > .md-nav__list > .md-nav__item--nested"
    )
    opened = [one for one in sections if one.cssselect(".md-nav__toggle[checked]")]
    assert [one.cssselect(".md-ellipsis")[0].text_content().strip() for one in opened] == [
        "IV · In production"
    ]


@pytest.mark.parametrize("path", [*book.PAGES, "404.html"])
def test_html_is_valid(site, path):
    parser = html5lib.HTMLParser(strict=False)
    parser.parse((site / path).read_text(encoding="utf-8"))
    errors = [f"line {at[0]}: {code} {detail}" for at, code, detail in parser.errors]
    assert errors == []


@pytest.mark.parametrize("path", [*book.PAGES, "404.html"])
def test_no_id_is_given_twice(site, path):
    # The theme draws a page's table of contents twice, in the menu and beside the text.
    ids = Counter(book.parsed(site / path).xpath("//@id"))
    assert sorted(name for name, count in ids.items() if count > 1) == []


@pytest.mark.parametrize("path", book.PAGES)
def test_every_figure_output_and_exercise_has_an_address_and_a_link_to_it(site, path):
    (article,) = book.parsed(site / path).cssselect(".md-content article")
    places = article.cssselect("figure, .lab-table")
    starts = re.compile(r"\d+\. (Predict|Change|Prove|Experiment|Mend|Catch)\b")
    bold = article.cssselect("p > strong")
    places += [one.getparent() for one in bold if starts.match(one.text_content())]
    links = article.cssselect("a.headerlink")
    linked = {link.get("href") for link in links}
    assert [start_of(one) for one in places if f"#{one.get('id')}" not in linked] == []
    assert [start_of(link) for link in links if link.get("tabindex") != "-1"] == []


@pytest.mark.parametrize("path", [*book.PAGES, "404.html"])
def test_images_and_drawings_have_text(site, path):
    shown = book.parsed(site / path)
    silent = shown.cssselect("img:not([alt])")
    # An image with an empty alt is decoration; within a chapter none is.
    silent += shown.cssselect(".md-content article img[alt='']")
    for drawing in shown.cssselect(".md-content article svg"):
        hidden = drawing.xpath("ancestor-or-self::*[@aria-hidden='true']")
        if not hidden and not drawing.xpath("(@aria-label | @aria-labelledby)[. != ''] | .//title"):
            silent.append(drawing)
    assert [start_of(one) for one in silent] == []


@cache
def addresses(file: Path) -> set[str]:
    return set(book.parsed(file).xpath("//@id"))


@pytest.mark.parametrize("path", [*book.PAGES, "404.html"])
def test_links_lead_to_files_and_anchors_that_exist(site, path):
    dead = []
    for link in book.parsed(site / path).xpath("//@href | //@src"):
        target, anchor = urldefrag(link)
        if re.match(r"[a-z][a-z0-9+.-]*:|//", target):
            continue
        file = ((site / path).parent / unquote(target)).resolve() if target else site / path
        if target.startswith("/"):
            file = site / target.lstrip("/")
        if not file.is_file():
            dead.append(f"{target} is not there")
        elif anchor and unquote(anchor) not in addresses(file):
            dead.append(f"{target}#{anchor} has no such anchor")
    assert sorted(set(dead)) == []


@pytest.mark.parametrize("path", [*book.PAGES, "404.html"])
def test_nothing_is_loaded_from_another_host(site, path):
    """Also what a browser would load only sometimes: by a style, a script, in print."""
    shown = book.parsed(site / path)
    loaded = shown.xpath("//@src | //@srcset | //link[not(@rel='canonical')]/@href")
    assert [url for url in loaded if re.match(r"https?:|//", url)] == []
    code = [one.text_content() for one in shown.iter("script", "style")]
    assert re.findall(r"(?:import|fetch|url)\s*\(\s*[\"']?https?:[^\s\"')]+", "\n".join(code)) == []


def test_styles_load_only_from_the_site(site):
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:|//)[^\s\"')]+", text) == [], sheet


def test_trimmed_styles_keep_every_class_that_pages_show(site):
    """The theme's styles are trimmed to what pages use; no class in use may lose its rules."""
    stock = Path(find_spec("material").origin).parent / "templates/assets/stylesheets"
    kept = "".join(
        file.read_text(encoding="utf-8") for file in site.glob("assets/stylesheets/*.css")
    )
    full = "".join(
        (stock / file.name).read_text() for file in site.glob("assets/stylesheets/*.css")
    )
    shown = {
        name
        for path in book.PAGES
        for classes in book.parsed(site / path).xpath("//@class")
        for name in classes.split()
    }

    def styled(css):
        return {name for name in shown if re.search(rf"\.{re.escape(name)}(?![\w-])", css)}

    assert len(kept) < len(full)
    assert styled(full) - styled(kept) == set()


@pytest.mark.parametrize("source", book.CHAPTERS)
def test_a_page_is_there_to_take_away(site, source):
    program = page.read(book.DOCS / source)
    beside = (site / source).with_suffix
    assert "--8<--" not in beside(".md").read_text(encoding="utf-8")
    if program.blocks:
        notebook = nbformat.reads(beside(".ipynb").read_text(encoding="utf-8"), 4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert len(code) == len(program.blocks)
        script = beside(".py").read_text(encoding="utf-8")
        compile(script, source, "exec")
        # Taken away, a file has no neighbours: what it links to it names in full.
        told = "\n".join(line for line in script.splitlines() if line.startswith("#"))
        for text in (told, *(cell.source for cell in notebook.cells if cell not in code)):
            assert re.findall(r"\]\((?!https?:|#)[^)\s]+\)", text) == []
    links = set(book.parsed(beside(".html")).xpath("//a[@download]/@href"))
    wanted = [".md", *export.runnable(program)] if program.blocks else [".md"]
    if source != "index.md":
        assert {beside("").name + suffix for suffix in wanted} <= links


@pytest.mark.parametrize("source", book.CHAPTERS)
def test_an_included_file_can_be_downloaded_where_it_is_shown(site, source):
    program = page.read(book.DOCS / source)
    path = source.removesuffix(".md") + ".html"
    for included in {block.included.name for block in program.blocks if block.included}:
        every = book.parsed(site / path).cssselect(".take-file a")
        links = [link.get("href") for link in every if included in link.get("href")]
        assert links, f"{included} is shown on {path} without a link to it"
        file = ((site / path).parent / links[0]).resolve()
        assert file.read_bytes() == (book.ROOT / "snippets" / included).read_bytes()


@pytest.fixture
def marked(tmp_path):
    """`marked(text)` builds a book with this page; returns what its mark says, None without one."""
    project = book.small_book(tmp_path, index=PROVEN)

    def build(text):
        (project / "docs/index.md").write_text(text, encoding="utf-8")
        result = book.build(tmp_path / "site", project)
        assert result.returncode == 0, result.stderr
        shown = html.fromstring((tmp_path / "site/index.html").read_text(encoding="utf-8"))
        for mark in shown.find_class("mark"):
            return " ".join(mark.text_content().split())
        return None

    build.project = project
    return build


PROVEN = "# Home\n\n```python\nprint(1)\n```\n\n```output\n1\n```\n"


def test_a_page_that_nobody_checked_says_so(marked):
    assert marked(PROVEN).startswith("Not checked yet.")


def test_the_mark_says_what_the_record_says(marked):
    record.write(page.read(marked.project / "docs/index.md"), 1)
    path = marked.project / ".checked/docs/index.md.json"
    words = {"python": "9.8.7", "platform": "Abacus", "date": "2001-02-03"}
    path.write_text(json.dumps(json.loads(path.read_text()) | words))
    said = marked(PROVEN)
    versions = f"PyTorch {compare.pinned_torch(marked.project)} and Python 9.8.7"
    assert f"1 output compared on 2001-02-03, with {versions} on Abacus." in said


def test_a_page_that_was_checked_with_another_torch_has_no_mark(marked):
    record.write(page.read(marked.project / "docs/index.md"), 1)
    path = marked.project / ".checked/docs/index.md.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"torch": "1.2.3"}))
    assert marked(PROVEN).startswith("Not checked yet.")


def test_a_page_that_changed_since_it_was_checked_has_no_mark(marked):
    record.write(page.read(marked.project / "docs/index.md"), 1)
    assert marked(PROVEN + "\nMore.\n").startswith("Not checked yet.")


def test_a_page_without_outputs_has_nothing_to_check(marked):
    assert marked("# Home\n\nWords.\n") is None


def test_the_book_is_published_as_text_for_machines(site):
    short = (site / "llms.txt").read_text(encoding="utf-8")
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    for source in book.CHAPTERS:
        assert f"/{source})" in short
        assert (site / source).read_text(encoding="utf-8").strip() in whole
    assert "--8<--" not in whole
    assert short.startswith("# Attention, Executed\n\n> ")


@pytest.mark.parametrize("source", book.LABS)
def test_a_lab_weighs_no_more_than_its_content(site, source):
    path = source.removesuffix(".ipynb") + ".html"
    assert (site / path).stat().st_size <= 150_000
    (article,) = book.parsed(site / path).cssselect(".md-content article")
    assert article.cssselect("style, script, [class*=jp-], clipboard-copy") == []
    blocks = article.cssselect(".language-python.highlight code")
    shown = [code.text_content().strip() for code in blocks]
    cells = [
        cell["source"].strip()
        for cell in nbformat.read(book.DOCS / source, 4).cells
        if cell.cell_type == "code"
    ]
    assert shown == [cell for cell in cells if cell]
    assert (site / source).read_bytes() == (book.DOCS / source).read_bytes()


def index_of(site):
    """What the search reads: its pages, by address, and its words."""
    said = (site / "assets/search-index.js").read_text(encoding="utf-8")
    index = json.loads(said.partition("=")[2].rstrip(";\n"))
    return {url: sections for url, *_, sections in index["pages"]}, index["words"]


@pytest.mark.parametrize("source", book.LABS)
def test_search_finds_the_code_of_a_lab_once(site, source):
    drawn = book.parsed(site / f"{source.removesuffix('.ipynb')}.html").cssselect("article")[0]
    found = search.sections(html.tostring(drawn, encoding="unicode"))
    plain = " ".join(_text_of(" ".join(section.text for section in found)).split())
    cells = [
        cell for cell in nbformat.read(book.DOCS / source, 4).cells if cell.cell_type == "code"
    ]
    for cell in cells:
        longest = max(cell.source.splitlines(), key=len).strip()
        wanted = cell.source.count(longest)
        total = sum(other.source.count(longest) for other in cells)
        assert plain.count(" ".join(longest.split())) <= max(wanted, total), longest


def _text_of(html):
    parts = []
    parser = HTMLParser()
    parser.handle_data = parts.append
    parser.feed(html)
    return "".join(parts)


def test_keywords_are_those_of_pages():
    settings = (book.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"^    ([\w/-]+\.(?:md|ipynb)): ", settings, re.M)
    assert named
    assert set(named) <= {*book.CHAPTERS, *book.LABS}


def test_search_holds_every_page_but_home_and_each_formula_once(site):
    pages, words = index_of(site)
    assert pages.keys() == set(book.PAGES) - {"index.html"}
    assert [url for url, sections in pages.items() if not sections[0][1]] == []
    assert "\\frac" not in str(pages)
    assert not re.search(r"^frac ", words, re.M)


FEW = """\
```python
print("tensor([[4, 5]])")
```

```output heatmap name="few"
tensor([[4, 5]])
```"""
SOUND = {
    "index": f"# Home\n\n{FEW}\n\n[On](next.md#there), [4](#few-0-0), [5](#few-0-1)\n",
    "next": "# Next\n\n## There\n",
}


def test_make_build_writes_a_sound_book(tmp_path):
    project = book.small_book(tmp_path, **SOUND)
    result = book.build(tmp_path / "site", project)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "site/next.html").exists()


def test_a_page_is_described_by_the_question_that_it_asks_first(tmp_path):
    book.build(tmp_path / "site", book.small_book(tmp_path, index="# Home\n\nWhy? So. And on.\n"))
    html = (tmp_path / "site/index.html").read_text("utf-8")
    assert '<meta name="description" content="Why?">' in html


def test_a_tag_that_a_first_sentence_or_a_heading_names_stays_text(tmp_path):
    tag = '</title><img src="x" onerror="f()">'
    text = f'# The `{tag}` of it\n\nWhy "`{tag}`" & `&lt;b>`? So.\n'
    project = book.small_book(tmp_path, index=text, next=text)
    result = book.build(tmp_path / "site", project)
    assert result.returncode == 0, result.stderr
    asked = f'Why "{tag}" & &lt;b>?'
    for name in ("index", "next"):
        drawn = html.document_fromstring((tmp_path / f"site/{name}.html").read_text("utf-8"))
        assert drawn.cssselect("[onerror]") == []
        about = drawn.cssselect("meta[name=description], meta[property='og:description']")
        assert {one.get("content") for one in about} == {asked}
    footer = html.document_fromstring((tmp_path / "site/index.html").read_text("utf-8"))
    assert [one.text_content() for one in footer.cssselect(".book-next em")] == [asked]
    index = (tmp_path / "site/assets/search-index.js").read_text("utf-8")
    assert json.dumps(asked) in index
    assert f"): {asked}\n" in (tmp_path / "site/llms.txt").read_text("utf-8")


def test_a_page_says_how_many_minutes_it_takes_and_at_least_one(tmp_path):
    long = "# Long\n\n" + "word " * 600 + "\n\n```python\na = 1\n```\n" * 8
    book.build(
        tmp_path / "site", book.small_book(tmp_path, index="# Home\n", short="# Short\n", long=long)
    )
    found = [(tmp_path / f"site/{name}.html").read_text("utf-8") for name in ("short", "long")]
    assert [re.findall(r"\d+ min read", html) for html in found] == [["1 min read"], ["5 min read"]]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("index", "# Home\n\n[On](gone.md)\n", ["index.md:3: the link `gone.md` leads to no file"]),
        ("index", "# Home\n\n[On](next.md#gone)\n", ["index.md", "next.md#gone"]),
        ("index", f"# Home\n\n{FEW}\n\n[5](#few-0-2)\n", ["index.md", "#few-0-2"]),
        ("stray", "# Stray\n", ['not included in the "nav"', "stray.md"]),
    ],
    ids=["dead link", "dead anchor", "cell that is not there", "page missing from the nav"],
)
def test_make_build_fails_and_names_what_is_wrong(tmp_path, name, text, said):
    project = book.small_book(tmp_path, **SOUND)
    (project / f"docs/{name}.md").write_text(text, encoding="utf-8")
    result = book.build(tmp_path / "site", project)
    assert result.returncode != 0
    assert [words for words in said if words not in result.stderr] == []


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("# A\n\n```output\n1\n```\n", 3, "output without a block"),
        ("# A\n\n```python\nprint(1)\n", 3, "unclosed"),
        ('# A\n\n```python\n--8<-- "missing.py"\n```\n', 4, "missing.py"),
        ("# A\n\n```python\nprint(1)\n```\n\n```output heatmap\n1\n```\n", 7, "heatmap"),
        (f"# A\n\n{FEW}\n\n{FEW}\n", 15, 'name="few" is taken by the heatmap at line 7'),
        ("# A\n\n```attention\ntokens: a b\n```\n", 4, "line"),
        ("# A\n\nBad: $\\nosuch{x}$ here.\n", 3, "$\\nosuch{x}$"),
    ],
    ids=[
        "stray output",
        "unclosed fence",
        "missing include",
        "no tensor",
        "a name given twice",
        "bad figure",
        "bad formula",
    ],
)
def test_an_error_in_a_page_stops_the_build_and_names_the_line(tmp_path, body, line, said):
    project = book.small_book(tmp_path, index=body)
    result = book.build(tmp_path / "site", project)
    assert result.returncode != 0
    assert said in result.stderr
    assert "index.md" in result.stderr
    if line:
        assert f"docs/index.md:{line}: " in result.stderr
        assert "Traceback" not in result.stderr
