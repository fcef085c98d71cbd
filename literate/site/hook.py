"""MkDocs' face of the book: checks each page as it is built, and publishes what to take away.

Thin on purpose. Prose, math and figures are Markdown extensions that any builder can use; this
hook adds the files beside a page, its reading time, and what "copy with everything
above" needs. `python -m literate export` writes the same files without it.
"""

from __future__ import annotations

import logging
import re
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from posixpath import dirname, relpath

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.livereload import LiveReloadServer
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page as SitePage
from mkdocs.utils import CountHandler
from mkdocs.utils.templates import TemplateContext

from literate import export, record
from literate.page import Page, PageError, name_of, pages, read
from literate.site import card, fences, lab, repository, search, weight
from literate.site.math import MathError, symbols
from literate.site.serve import Served, say

Render = Callable[[MkDocsConfig, Files], None]
ROOT = Path(__file__).resolve().parents[2]
WORDS_PER_MINUTE = 200
SECONDS_PER_BLOCK = 15
ARCHIVE = "attention-executed"
KINDS = {".md": "markdown", ".ipynb": "notebook", ".py": "script", "-practice.ipynb": "practice"}
# The pages of the build under way, in reading order; `on_nav` fills it. The `meta` of a page holds
# what its template shows, its program, and the text that a reader may take of it.
_pages: list[SitePage] = []
# What `mkdocs serve` knows of them; None in a build.
_served: Served | None = None
# Of what a fence draws: a cell of a heatmap that has a name, a figure, an exercise.
ADDRESS = re.compile(r'<(?:td|figure|table|p)\b[^>]*? id="([^"]+)"')
CODE = re.compile(r'<div class="language-(?:python|py)3? highlight">')
# The theme shows what such a link leads to when the reader points at it, and fetches it then.
GLOSSARY = re.compile(r'(<a(?= [^>]*href="[./]*glossary\.html#))')
# Names, operators and brackets have the colour of the code around them: three in five of a page's
# elements would say so, each to be sent, laid out and checked.
PLAIN = re.compile(r'<span class="(?:kc|n|o|p|w)">([^<]*)</span>')


def on_startup(command: str, dirty: bool) -> None:
    """Where pages are served, and not built, check what is saved."""
    global _served
    if command == "serve":
        _served = Served()


def on_serve(
    server: LiveReloadServer, config: MkDocsConfig, builder: Callable[..., None]
) -> LiveReloadServer:
    """Check from now on; what is there at the start is drawn, and not run."""
    if _served:
        _served.watch(server)
    return server


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Say which version is drawn. Serve a book in which a link is dead, too; only a build is strict."""
    cited = Path(config.config_file_path).with_name("CITATION.cff")
    if cited.exists():
        config.extra["edition"] = yaml.safe_load(cited.read_text(encoding="utf-8"))["version"]
    # Before the theme's own script, which would start a search of its own. A builder that knows no
    # hooks writes no index of ours, and keeps its search.
    config.extra["polyfills"] = ["assets/search.js"]
    log = logging.getLogger("mkdocs")
    if _served:
        log.handlers = [one for one in log.handlers if not isinstance(one, CountHandler)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Publish each snippet as a file of its own, to download from where a page includes it."""
    for path in sorted((ROOT / "snippets").glob("*.py")):
        name = f"snippets/{path.name}"
        if name not in files.src_uris:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remember the pages in reading order; they must be those that the checker knows."""
    _pages[:] = nav.pages
    root = Path(config.config_file_path).parent
    sources = [Path(file.abs_src_path or "") for file in files.documentation_pages()]
    drawn = {path for path in sources if path.suffix != ".ipynb"}
    for path in sorted(drawn ^ set(pages(root)) - {root / "README.md"}):
        wrong = "the site draws this page, and no test" if path in drawn else "no page of the site"
        message = f"{name_of(path, root)}:1: {wrong}"
        if not _served:
            raise PluginError(message)
        say(message)
    return nav


def on_page_markdown(markdown: str, page: SitePage, config: MkDocsConfig, files: Files) -> str:
    """Have the page drawn by us: read as a program before, completed after."""
    page.meta["search"] = {"exclude": True}  # from the theme's index; the book has its own
    draw = partial(_draw, page, page.render, config, files)
    vars(page)["render"] = lambda *_: _served.draw(page, files, draw) if _served else draw()
    return markdown


def _draw(page: SitePage, render: Render, config: MkDocsConfig, files: Files) -> None:
    """Draw a page and what is beside it; an error in it stops the build and names page.md:line."""
    page.meta["offline"] = f"{ARCHIVE}.zip"
    try:
        if page.file.src_uri.endswith(".ipynb"):
            render(config, files)
            page.content = lab.clean(page.content or "", page, files)
            # Its code is folded, and read by few; its figures and tables are read.
            page.meta["minutes"] = _minutes(page.content, len(lab.SHOWN.findall(page.content)))
            page.meta["downloads"] = {"notebook": Path(page.file.src_uri).name}
        else:
            program = page.meta["program"] = read(page.file.abs_src_path or "")
            fences.check(program)
            render(config, files)
            _complete(page, program, config.site_url or "")
    except PageError as error:
        raise PluginError(str(error)) from error
    except (MathError, lab.LabError) as error:
        raise PluginError(f"docs/{page.file.src_uri}: {error}") from error
    page.meta["sections"] = search.sections(page.content or "")
    page.content = GLOSSARY.sub(r"\1 data-preview", PLAIN.sub(r"\1", page.content or ""))
    if page.present_anchor_ids is not None:  # MkDocs looks for none in what a fence has drawn
        page.present_anchor_ids |= set(ADDRESS.findall(page.content))
    page.meta.setdefault("description", _first_sentence(page.content))
    book = config.extra["repository"]
    page.meta["edit"] = repository.edit(book, page.file.src_uri)
    page.meta["card"] = _beside(page, ".png")
    if "script" in page.meta.get("downloads", {}):
        page.meta["colab"] = repository.colab(book, _beside(page, ".ipynb"))


def on_page_context(
    context: TemplateContext, page: SitePage, config: MkDocsConfig, nav: Navigation
) -> TemplateContext:
    """Say what is known of the page: nothing, unless a check of this very text is on record."""
    program, source = page.meta.get("program"), page.file.src_uri
    if program and any(block.output for block in program.blocks):
        page.meta["check"] = _served.mark(page) if _served else {}
        page.meta["check"]["record"] = record.of(program)
    if "check" in page.meta or source.endswith(".ipynb"):
        known = page.meta.get("check", {}).get("record")
        page.meta["report"] = repository.report(config.extra["repository"], source, known)
    page.meta["served"] = _served is not None
    return context


# After every plugin: the offline copy holds what they wrote.
@event_priority(-200)
def on_post_build(config: MkDocsConfig) -> None:
    """Write each page to take away, the book as text (llms.txt, llms-full.txt), and make it light."""
    _write_index(config)
    if not _served:
        weight.lighten(Path(config.site_dir))
    site, docs = Path(config.site_dir), Path(config.docs_dir)
    for notebook in [page.file.src_uri for page in _pages if page.file.src_uri.endswith(".ipynb")]:
        shutil.copyfile(docs / notebook, site / notebook)
    for page in _pages:
        if not _served and "card" in page.meta:
            fonts, title = docs / "assets/fonts", page.meta.get("title") or str(page.title)
            drawn = card.draw(title, config.site_name, page.content or "", fonts)
            (site / page.meta["card"]).write_bytes(drawn)
    pages = [page for page in _pages if "taken" in page.meta]
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    whole = []
    for page in pages:
        for suffix, text in page.meta["taken"].items():
            (site / _beside(page, suffix)).write_text(text, encoding="utf-8")
        about = page.meta.get("description", "")
        lines.append(f"- [{page.title}]({config.site_url}{_beside(page, '.md')}): {about}")
        whole.append(
            f"<!-- {config.site_url}{page.url} -->\n\n{page.meta['taken']['.md'].strip()}\n"
        )
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")
    if not _served:
        _zip(site)


def _write_index(config: MkDocsConfig) -> None:
    """Write what the search reads. The home page is not in it: it leads to all the others."""
    keywords = config.extra.get("keywords", {})
    found = [
        search.Entry(
            page.url,
            page.meta["description"],
            keywords.get(page.file.src_uri, ""),
            page.meta["sections"],
        )
        for page in _pages
        if "sections" in page.meta and not page.is_homepage
    ]
    site = Path(config.site_dir)
    (site / "assets/search-index.js").write_text(search.script(found), encoding="utf-8")
    # The theme's own index is empty, and it reads that before it listens; from a disk, as a script.
    settings = (site / "search/search_index.json").read_text(encoding="utf-8")
    (site / "search/search_index.js").write_text(f"var __index = {settings}", encoding="utf-8")


def _zip(site: Path) -> None:
    """Pack the site into one file that opens from a disk; the same site gives the same bytes."""
    target = site / f"{ARCHIVE}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in site.rglob("*") if path.is_file() and path != target):
            entry = zipfile.ZipInfo(f"{ARCHIVE}/{path.relative_to(site).as_posix()}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())


def _taken(program: Page, site_url: str) -> dict[str, str]:
    """Return what a reader may take of a chapter: the text of each file, by its suffix."""
    taken = {".md": export.markdown(program)}
    return taken | (export.runnable(program, site_url) if program.blocks else {})


def _complete(page: SitePage, program: Page, site_url: str) -> None:
    """Attach to a drawn chapter its reading time, what to take of it, and links to included files."""
    name, html = Path(page.file.src_uri).stem, page.content or ""
    page.meta["minutes"] = _minutes(html, len(program.blocks))
    page.meta["taken"] = _taken(program, site_url)
    page.meta["downloads"] = {KINDS[suffix]: name + suffix for suffix in page.meta["taken"]}
    pieces = zip(export.pieces(program), program.blocks, strict=True)
    page.meta["guarded"] = {i: piece for i, (piece, block) in enumerate(pieces) if block.raises}
    blocks = iter(program.blocks)

    def mark(code: re.Match) -> str:
        included = next(blocks).included
        if included is None:
            return code[0]
        href = relpath(f"snippets/{included.name}", dirname(page.url) or ".")
        link = f'<a class="take-file" href="{href}" download>Download {escape(included.name)}</a>'
        return link + code[0]

    page.content = CODE.sub(mark, html)


def _minutes(html: str, blocks: int) -> int:
    """Return the minutes that a page takes to read, with so many blocks to look at among its words."""
    hidden = r"<(pre|math|svg|template|table)\b.*?</\1>|<[^>]+>"
    words = len(re.sub(hidden, " ", html, flags=re.S).split())
    seconds = words * 60 / WORDS_PER_MINUTE + blocks * SECONDS_PER_BLOCK
    return max(1, round(seconds / 60))


def _first_sentence(html: str) -> str:
    """Return the first sentence of the first paragraph, which asks the chapter's question."""
    paragraph = re.search(r"<p>(.*?)</p>", html, re.DOTALL)
    said = paragraph[1].replace("<msqrt>", "√") if paragraph else ""
    text = " ".join(symbols(said).split())
    return re.split(r"(?<=[.?])\s", text)[0]


def _beside(page: SitePage, suffix: str) -> str:
    return str(Path(page.file.dest_uri).with_name(Path(page.file.src_uri).stem + suffix))
