"""The built site as files: every page is sound, leads where it says, weighs little and can be taken away."""

import functools
import hashlib
import html
import io
import json
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from urllib.parse import parse_qs, unquote, urldefrag, urljoin, urlsplit

import html5lib
import lxml.html
import nbformat
import pytest
from PIL import Image

from book import parts, prepare, search, take_away
from literate import compare, export, page
from tests import pages
from tests.site import book
from tests.site.book import nothing

SETTINGS = (book.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
REPOSITORY = re.search(r"^  repository: (.+)$", SETTINGS, re.M)[1]
SITE = re.search(r"^site_url: (.+)$", SETTINGS, re.M)[1]
PUBLISHED = f"https://colab.research.google.com/github/{REPOSITORY}/blob/gh-pages/"
PARTS = [f"parts/{name}.html" for name in parts.files(book.ROOT)]
RUNNING = [running for running in pages.RUNNING if running.name != "README.md"]
# Bytes beside the files that a page includes for its readers to copy. They are counted before a host
# compresses them, to about a third and a sixth, since each library compresses a little otherwise.
FIRST_VIEW = 426_000  # and the list of pages that the theme asks for, 14 KB
FURTHER_VIEW = 160_000
LAB = 150_000
CARD = 30 * 1024


def start_of(element) -> str:
    """The first letters of an element, to know it by."""
    return lxml.html.tostring(element, encoding="unicode")[:120]


@book.each(*book.PAGES, "404.html", *PARTS)
def test_html_is_valid(site, path):
    parser = html5lib.HTMLParser(strict=False)
    parser.parse((site / path).read_text(encoding="utf-8"))
    assert [f"line {at[0]}: {code} {detail}" for at, code, detail in parser.errors] == []


# ------------------------------------------------------------------------------- of every page


@functools.cache
def addresses(file: Path) -> set[str]:
    return set(book.parsed(file).xpath("//@id"))


def dead_links(site, path):
    for link in book.parsed(site / path).xpath("//@href | //@src"):
        target, anchor = urldefrag(link)
        if re.match(r"[a-z][a-z0-9+.-]*:|//", target):
            continue
        file = ((site / path).parent / unquote(target)).resolve() if target else site / path
        if target.startswith("/"):
            file = site / target.lstrip("/")
        if not file.is_file():
            yield f"{target} is not there"
        elif anchor and unquote(anchor) not in addresses(file):
            yield f"{target}#{anchor} has no such anchor"


def without_text(shown):
    """Images and drawings that say nothing to who cannot see them; in a chapter none is decoration."""
    yield from shown.cssselect("img:not([alt]), .md-content article img[alt='']")
    for drawing in shown.cssselect(".md-content article svg"):
        hidden = drawing.xpath("ancestor-or-self::*[@aria-hidden='true']")
        if not hidden and not drawing.xpath("(@aria-label | @aria-labelledby)[. != ''] | .//title"):
            yield drawing


def without_address(article):
    """Figures, tables of labs and exercises that have no address, or no link to it that Tab passes over."""
    places = article.cssselect("figure, .lab-table")
    starts = re.compile(r"\d+\. (Predict|Change|Prove|Experiment|Mend|Catch)\b")
    bold = article.cssselect("p > strong")
    places += [one.getparent() for one in bold if starts.match(one.text_content())]
    links = article.cssselect("a.headerlink")
    linked = {link.get("href") for link in links}
    yield from (one for one in places if f"#{one.get('id')}" not in linked)
    yield from (link for link in links if link.get("tabindex") != "-1")


def from_other_hosts(shown):
    """What is loaded from elsewhere: also by a style, a script, in print."""
    loaded = shown.xpath("//@src | //@srcset | //link[not(@rel='canonical')]/@href")
    yield from (url for url in loaded if re.match(r"https?:|//", url))
    code = "\n".join(one.text_content() for one in shown.iter("script", "style"))
    yield from re.findall(r"(?:import|fetch|url)\s*\(\s*[\"']?https?:[^\s\"')]+", code)


@pytest.mark.parametrize("path", [*book.PAGES, *PARTS, "404.html"])
def test_a_page_is_sound(site, path):
    shown = book.parsed(site / path)
    (article,) = shown.cssselect(".md-content article")
    # The theme draws a page's table of contents twice, in the menu and beside the text.
    ids = Counter(shown.xpath("//@id"))
    words = [one.get("aria-label", "") for one in shown.iter("math")]
    nothing(
        twice=[name for name, count in ids.items() if count > 1],
        dead=sorted(set(dead_links(site, path))),
        silent=[*map(start_of, without_text(shown))],
        nowhere=[*map(start_of, without_address(article))],
        elsewhere=[*from_other_hosts(shown)],
        unsaid=[one for one in words if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 .,;]*", one)],
    )


@pytest.mark.parametrize("path", book.PAGES)
def test_a_page_says_what_it_is_where_it_is_and_leads_to_its_source(site, path):
    head = book.parsed(site / path).find("head")

    def said(name):
        (tag,) = head.cssselect(f"meta[property='{name}'], meta[name='{name}']")
        return tag.get("content")

    (canonical,) = head.cssselect("link[rel=canonical]")
    assert canonical.get("href") == said("og:url") == SITE + path
    assert said("description") == said("og:description") != ""
    assert head.findtext("title").startswith(said("og:title"))
    assert said("og:image") == f"{SITE}{path.removesuffix('.html')}.png"
    assert said("twitter:card") == "summary_large_image"
    source = book.SOURCES[path]
    verb = "blob" if source.endswith(".ipynb") else "edit"
    link = f'<a href="https://github.com/{REPOSITORY}/{verb}/main/docs/{source}">'
    assert (site / path).read_text(encoding="utf-8").count(link) == 1


def test_no_two_pages_have_the_same_title_description_or_picture_and_a_picture_is_light(site):
    for tag in ("description", "og:title"):
        found = [
            book.parsed(site / path).xpath(f"//meta[@property='{tag}' or @name='{tag}']/@content")[
                0
            ]
            for path in book.PAGES
        ]
        assert [one for one, count in Counter(found).items() if count > 1] == []
    pictures = [(site / path).with_suffix(".png").read_bytes() for path in book.PAGES]
    assert {Image.open(io.BytesIO(png)).size for png in pictures} == {(1200, 630)}
    assert len(set(pictures)) == len(pictures)
    assert max(map(len, pictures)) <= CARD


# ----------------------------------------------------------------------------------- the menu


def test_every_page_is_in_the_menu_and_parts_other_than_the_one_that_is_read_are_folded(site):
    menu = ".md-nav--primary > .md-nav__list > .md-nav__item--nested"
    links = book.parsed(site / "index.html").cssselect(".md-nav--primary a[href]")
    listed = {urldefrag(link.get("href"))[0] for link in links}
    assert {path for path in book.PAGES if path not in listed} - {"index.html"} == set()
    sections = book.parsed(site / "cache/kv-cache.html").cssselect(menu)
    opened = [one for one in sections if one.cssselect(".md-nav__toggle[checked]")]
    names = [one.cssselect(".md-ellipsis")[0].text_content().strip() for one in opened]
    assert names == ["V · What a step costs, and the cache"]


def test_a_chapter_says_above_its_title_which_of_its_part_it_is(site):
    placed = {}
    for path in book.PAGES:
        for line in book.parsed(site / path).cssselect(".md-content .page-place"):
            assert line.xpath("following::h1")
            links = [urljoin(path, link.get("href")) for link in line.cssselect("a")]
            placed[path] = " ".join(line.text_content().split()), *links
    said, part = placed["cache/kv-cache.html"]
    assert re.fullmatch(r"V · What a step costs, and the cache · 2 of \d+", said)
    assert part == "cache/index.html"
    assert {"index.html", "cache/index.html", "glossary.html"} & {*placed} == set()
    last = [said for said, *_ in placed.values() if re.search(r"(\d+) of \1$", said)]
    assert len(last) == len({said.rpartition(" · ")[0] for said, *_ in placed.values()})


# ---------------------------------------------------------------------------------- the weight


@functools.cache
def included(site, path):
    """Bytes of a page that show files in full, coloured as they are."""
    source = book.SOURCES.get(path)
    fences = page.read(book.DOCS / source).fences if source in book.CHAPTERS else []
    shown = [fence.include for fence in fences if fence.include]
    files = {dedent("\n".join(each.lines)).strip() for each in shown if not each.section}
    blocks = re.findall(r"<pre\b.*?</pre>", (site / path).read_text("utf-8"), re.DOTALL)
    drawn = [one for one in blocks if html.unescape(re.sub(r"<[^>]+>", "", one)).strip() in files]
    assert len(drawn) >= len(files), f"{path} shows {len(drawn)} of its {len(files)} files"
    return sum(len(block.encode()) for block in drawn)


def loaded_by(site, path):
    """The files that a page names for a browser to load, and the fonts that its styles may ask for."""
    shown = book.parsed(site / path)
    named = shown.xpath("//link[@rel='stylesheet' or @rel='icon' or @rel='preload']/@href")
    named += shown.xpath("//script/@src | //img/@src")
    files = {((site / path).parent / unquote(urldefrag(one)[0])).resolve() for one in named}
    fonts = {*(site / "assets/fonts").glob("*.woff2")}
    return files | (
        fonts if shown.cssselect("math") else fonts - {site / "assets/fonts/math.woff2"}
    )


@pytest.mark.parametrize("path", [*book.PAGES, *PARTS])
def test_a_page_is_light_and_lighter_still_to_who_has_read_another(site, path):
    """What its scripts fetch while it opens is asked in a browser, see `test_using.py`."""
    own = (site / path).stat().st_size
    everything = loaded_by(site, path)
    further = everything - loaded_by(site, book.CHAPTER)
    sizes = {file: file.stat().st_size for file in everything}
    assert own + sum(sizes.values()) <= FIRST_VIEW + included(site, path), sizes
    assert own + sum(sizes[file] for file in further) <= FURTHER_VIEW + included(site, path)


def test_styles_load_only_from_the_site_and_keep_every_class_that_pages_show(site):
    """The theme's styles are trimmed to what pages use; no class in use may lose its rules."""
    sheets = {file: file.read_text(encoding="utf-8") for file in site.rglob("*.css")}
    outside = r"(?:@import|url\()\s*[\"']?(?:https?:|//)[^\s\"')]+"
    assert [found for text in sheets.values() for found in re.findall(outside, text)] == []
    stock = Path(find_spec("material").origin).parent / "templates/assets/stylesheets"
    theme = [*site.glob("assets/stylesheets/*.css")]
    kept, full = (
        "".join(map(sheets.get, theme)),
        "".join((stock / file.name).read_text() for file in theme),
    )
    every = [one for path in book.PAGES for one in book.parsed(site / path).xpath("//@class")]
    shown = {name for classes in every for name in classes.split()}

    def styled(css):
        return {name for name in shown if re.search(rf"\.{re.escape(name)}(?![\w-])", css)}

    assert len(kept) < len(full)
    assert styled(full) - styled(kept) == set()


# ----------------------------------------------------------------------------- to take away


@pytest.mark.parametrize("source", book.CHAPTERS)
def test_a_page_and_the_files_that_it_shows_are_there_to_take_away(site, source):
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
    shown = book.parsed(beside(".html"))
    links = set(shown.xpath("//a[@download]/@href"))
    wanted = [".md", *export.runnable(program)] if program.blocks else [".md"]
    if source != "index.md":
        assert {beside("").name + suffix for suffix in wanted} <= links
    offered = [link.get("href") for link in shown.cssselect(".take-file a")]
    for name in {block.included.name for block in program.blocks if block.included}:
        named = [link for link in offered if name in link]
        assert named, f"{name} is shown on {source} without a link to it"
        file = (beside(".html").parent / named[0]).resolve()
        assert file.read_bytes() == (book.ROOT / "snippets" / name).read_bytes()


@pytest.mark.parametrize("running", RUNNING, ids=lambda running: running.name)
def test_a_chapter_leads_to_its_notebook_in_colab_which_finds_its_files(site, running):
    """A notebook fetches files from the book's own address, where they lie under a name that holds their digest."""
    name = running.name.removeprefix("docs/").removesuffix(".md")
    every = book.parsed(site / f"{name}.html").xpath("//a/@href")
    links = [link for link in every if link.startswith("https://colab.research.google.com")]
    practised = [f"{name}-practice.ipynb"] * (take_away.EXERCISES in running.lines)
    files = [] if name == "index" else [f"{name}.ipynb", *practised]
    assert links == [PUBLISHED + file for file in files]
    for file in files:
        first, *cells = nbformat.read(site / file, as_version=4).cells
        assert f"Checked with PyTorch {compare.pinned_torch(book.ROOT)}." in first.source
        assert (f"[in Colab]({PUBLISHED}{file})" in first.source) == (file in practised)
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        assert re.findall(r"^\s*[!%].*|\bpip\b", code, re.M) == []
    code = "\n".join(block.code for block in running.blocks)
    if "load_state_dict_from_url" in code:
        assert f'"{SITE}files/' in code
    for name in re.findall(r"[\w-]+-[0-9a-f]{8}\.pt\b", code):
        digest = hashlib.sha256((site / "files" / name).read_bytes()).hexdigest()
        assert digest.startswith(name[:-3].rpartition("-")[2])


@pytest.mark.parametrize(
    "source", [running.name for running in RUNNING] + [f"docs/{lab}" for lab in book.LABS]
)
def test_a_page_of_numbers_leads_to_a_report(site, source):
    path = source.removeprefix("docs/").rpartition(".")[0] + ".html"
    (link,) = book.parsed(site / path).cssselect("a.report")
    assert parse_qs(urlsplit(link.get("href")).query)["page"] == [source]


def test_the_book_is_published_as_text_for_machines(site):
    short = (site / "llms.txt").read_text(encoding="utf-8")
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    for source in book.CHAPTERS:
        assert f"/{source})" in short
        assert (site / source).read_text(encoding="utf-8").strip() in whole
    assert "--8<--" not in whole
    assert short.startswith("# Attention, Executed\n\n> ")


def test_the_offline_copy_is_the_whole_site_waits_for_its_fonts_and_explains_its_words(
    site, unzipped
):
    """No page may fetch another from a disk, a preload fails there, and Python starts from none."""
    files = {path.relative_to(site) for path in site.rglob("*") if path.is_file()}
    offline = {path.relative_to(unzipped) for path in unzipped.rglob("*") if path.is_file()}
    python = {path.relative_to(site) for path in (site / prepare.PYODIDE).iterdir()}
    assert files - offline == {Path("attention-executed.zip"), *python}
    assert "font-display:block" in (unzipped / "assets/book.css").read_text(encoding="utf-8")
    for path in book.PAGES:
        shown = book.parsed(unzipped / path)
        assert shown.cssselect("link[rel=preload]") == []
        links = shown.cssselect("a[data-preview]")
        assert [link.get("href") for link in links if not link.get("title")] == []
    [link] = book.parsed(unzipped / book.CHAPTER).cssselect("a[data-preview][href$='#token']")[:1]
    assert link.get("title").startswith("One unit of a sequence")


# --------------------------------------------------------------------------- labs and parts


@pytest.mark.parametrize("source", book.LABS)
def test_a_lab_goes_from_the_answer_to_the_machine_and_weighs_what_it_says(site, source):
    path = site / f"{source.removesuffix('.ipynb')}.html"
    (article,) = book.parsed(path).cssselect(".md-content article")
    every = [*article.iter()]
    wanted = [
        *("h1", ".page-bar", "#finding", ".lab-figure", "table.lab-table"),
        *("#how-it-was-measured", "details > .highlight", "#sources", "#the-machine"),
    ]
    places = [every.index(article.cssselect(selector)[0]) for selector in wanted]
    assert places == sorted(places)
    assert article.cssselect("figure.output samp")[-1].text_content().startswith("date ")
    assert re.match(r"\s*\d+ min read", article.cssselect(".page-bar")[0].text_content())
    assert len(every) <= 2_000
    cells = [
        cell for cell in nbformat.read(book.DOCS / source, 4).cells if cell.cell_type == "code"
    ]
    code = [one.text_content().strip() for one in article.cssselect(".language-python code")]
    nothing(
        open=[
            one for one in article.cssselect(".language-python") if one.getparent().tag != "details"
        ],
        unsized=[s for s in article.cssselect("svg") if not (s.get("width") and s.get("height"))],
        brought=article.cssselect("style, script, [class*=jp-], clipboard-copy"),
    )
    assert code == [text for cell in cells if (text := cell.source.strip())]
    assert path.stat().st_size <= LAB
    assert (site / source).read_bytes() == (book.DOCS / source).read_bytes()
    # The search holds no line of it more often than it stands there.
    found = search.sections(lxml.html.tostring(article, encoding="unicode"))
    text = lxml.html.fromstring(f"<p>{' '.join(section.text for section in found)}</p>")
    plain, lines = " ".join(text.text_content().split()), "\n".join(cell.source for cell in cells)
    for cell in cells:
        longest = max(cell.source.splitlines(), key=len).strip()
        assert plain.count(" ".join(longest.split())) <= lines.count(longest), longest


def test_each_part_has_a_page_that_shows_its_file_and_is_no_chapter(site):
    assert len(PARTS) > 20
    listed = book.parsed(site / "parts.html").xpath("//article//a/@href")
    for name, path in parts.files(book.ROOT).items():
        drawn = book.parsed(site / f"parts/{name}.html")
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "\n".join(line for line in lines if "--8<--" not in line).strip()
        assert f"parts/{name}.html" in listed
        assert text in [one.text_content().strip() for one in drawn.cssselect("pre > code")]
        assert f"../snippets/{name}.py" in drawn.xpath("//a[@download]/@href")
        assert drawn.cssselect(".mark, .page-bar, #guarded, [data-run]") == []
        assert f"/edit/main/snippets/{name}.py" in drawn.cssselect(".page-mend a")[0].get("href")
    assert {file.suffix for file in (site / "parts").iterdir()} == {".html"}
    links = book.parsed(site / "cache/kv-cache.html").cssselect(".take-file a")
    hrefs = [link.get("href") for link in links]
    assert hrefs[hrefs.index("../snippets/gpt.py") + 1] == "../parts/gpt.html"


# --------------------------------------------------------------------------------- the search


def test_search_holds_every_page_but_home_each_formula_once_and_the_keywords_of_pages(site):
    said = (site / "assets/search-index.js").read_text(encoding="utf-8")
    index = json.loads(said.partition("=")[2].rstrip(";\n"))
    found = {url: sections for url, *_, sections in index["pages"]}
    assert found.keys() == set(book.PAGES) - {"index.html"}
    assert [url for url, sections in found.items() if not sections[0][1]] == []
    assert "\\frac" not in str(found)
    assert not re.search(r"^frac ", index["words"], re.M)
    named = re.findall(r"^    ([\w/-]+\.(?:md|ipynb)): ", SETTINGS, re.M)
    assert set(named) <= {*book.CHAPTERS, *book.LABS}
