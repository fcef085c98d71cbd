"""The hooks that MkDocs calls: each page is prepared as it is rendered, and its downloads are published.

This module is thin on purpose. Prose, math and figures are Markdown extensions that any builder can use;
`prepare` makes the rest. Where processes can be forked, pages are rendered ahead, side by side. The index of the
search is made here, since its box belongs to the theme.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.livereload import LiveReloadServer
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page as SitePage
from mkdocs.utils import CountHandler
from mkdocs.utils.templates import TemplateContext

from book import ahead, parts, prepare, run, search
from book.markdown.math import MathError
from book.serve import Served, apply, say
from literate.page import PageError, name_of, pages

ROOT = Path(__file__).resolve().parents[1]
# The pages of the build under way, in reading order; `on_nav` fills it. The `meta` of a page holds
# what its template shows, and what was prepared.
_pages: list[SitePage] = []
# What renders them ahead, if anything does.
_ahead: ahead.Ahead | None = None
# What `mkdocs serve` knows of them; None in a build.
_served: Served | None = None
# The metadata of a page to begin with: the theme's index leaves it out, since the book has its own. What
# MkDocs took for metadata counts for nothing: `prepare` reads it, and takes what an author may set.
UNSEARCHED = {"search": {"exclude": True}}
# Each kind of figure has a folder. Its style and its script join assets/figures.css and assets/figures.js, in
# this order; another script there, which a page may want later, is a file of its own.
FIGURES = Path(__file__).parent / "figures"
KINDS = ("heatmap", "chart", "gallery", "explorable", "calculator")
# Of what a fence draws: a cell of a heatmap that has a name, a figure, an exercise.
ADDRESS = re.compile(r'<(?:td|figure|table|p)\b[^>]*? id="([^"]+)"')


class _Lab(File):
    """A notebook, which MkDocs takes for a page."""

    def is_documentation_page(self) -> bool:
        return True


def on_startup(command: str, dirty: bool) -> None:
    """Check each page that is saved, if pages are served and not built."""
    global _served
    if command == "serve":
        _served = Served()


def on_serve(
    server: LiveReloadServer, config: MkDocsConfig, builder: Callable[..., None]
) -> LiveReloadServer:
    """Check each page that is saved from now on. Pages that nobody has saved are rendered, and not run."""
    if _served:
        _served.watch(server)
    return server


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the version that templates show, and the script of the search.

    A book with a dead link is served all the same: only a build is strict.
    """
    config.extra["edition"] = prepare.edition(Path(config.config_file_path).parent)
    # Before the theme's own script, which would start a search of its own.
    config.extra["polyfills"] = ["assets/search.js"]
    log = logging.getLogger("mkdocs")
    if _served:
        log.handlers = [one for one in log.handlers if not isinstance(one, CountHandler)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make pages of the labs and of the parts, and publish each snippet as a file, to which pages link."""
    place = config.docs_dir, config.site_dir, config.use_directory_urls
    labs = {path: _Lab(path, *place) for path in files.src_uris if path.endswith(".ipynb")}
    files = Files([labs.get(file.src_uri, file) for file in files])
    listed = parts.LIST in files.src_uris
    for name, path in parts.files(Path(config.config_file_path).parent).items():
        if f"snippets/{path.name}" not in files.src_uris:
            files.append(File.generated(config, f"snippets/{path.name}", abs_src_path=str(path)))
        if listed:
            page = File.generated(config, f"parts/{name}.md", abs_src_path=str(path))
            page.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(page)
    for name, content in _assets().items():
        files.append(File.generated(config, f"assets/{name}", content=content))
    return files


def _assets() -> dict[str, str]:
    """Return the styles and the scripts of figures, by the name of the file that pages load."""
    texts = {"figures.css": (FIGURES / "figures.css").read_text(encoding="utf-8"), "figures.js": ""}
    for path in (path for kind in KINDS for path in sorted((FIGURES / kind).glob("*.[cj]s*"))):
        name = f"figures{path.suffix}" if path.stem == path.parent.name else path.name
        texts[name] = texts.get(name, "") + path.read_text(encoding="utf-8")
    return texts


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remember the pages in reading order, then those of parts; the others must be those that the checker knows."""
    made = [file.page for file in files.documentation_pages() if prepare.is_part(file.src_uri)]
    _pages[:] = [*nav.pages, *filter(None, made)]
    if _served:
        _served.begin(_pages)
    root = Path(config.config_file_path).parent
    sources = [Path(file.abs_src_path or "") for file in files.documentation_pages()]
    drawn = {path for path in sources if path.suffix not in (".ipynb", ".py")}
    for path in sorted(drawn ^ set(pages(root)) - {root / "README.md"}):
        wrong = "the site draws this page, and no test" if path in drawn else "no page of the site"
        if path.suffix == ".ipynb":
            wrong = "a notebook stands in docs/labs/, where tests read it"
        message = f"{name_of(path, root)}:1: {wrong}"
        if not _served:
            raise PluginError(message)
        say(message)
    _render_ahead(config, files)
    return nav


def _render_ahead(config: MkDocsConfig, files: Files) -> None:
    """Begin to render all pages, the longest first in a build; once where pages are served."""
    global _ahead
    if not ahead.can_fork() or (_served and _served.ahead):
        return
    pages = {page.file.src_uri: page for page in _pages}
    if _served:
        _served.ahead = ahead.Ahead(
            lambda name: _rendered(pages[name], config, files), [*pages], _served.build_again
        )
    else:
        sizes = {name: len(page.file.content_bytes) for name, page in pages.items()}
        longest = sorted(pages, key=lambda name: -sizes[name])
        _ahead = ahead.Ahead(lambda name: _rendered(pages[name], config, files), longest)


def on_page_markdown(markdown: str, page: SitePage, config: MkDocsConfig, files: Files) -> str:
    """Have `_render` render the page, in place of MkDocs."""
    page.meta = dict(UNSEARCHED)
    vars(page)["render"] = lambda *_: _render(page, config, files)
    return markdown


def _render(page: SitePage, config: MkDocsConfig, files: Files) -> None:
    """Set what rendering `page` results in, whether it is rendered now or was rendered ahead."""
    render = partial(_rendered, page, config, files)
    if _served:
        return _served.render(page, files, render)
    source = page.file.src_uri
    result = _ahead.take(source) if _ahead and source in _ahead else render()
    return apply(result, page, files)


def _rendered(page: SitePage, config: MkDocsConfig, files: Files) -> dict[str, Any]:
    """Render a page and the files beside it; return the attributes that this sets, for `take`.

    An error in it stops the build and names page.md:line.
    """
    path, source = Path(page.file.abs_src_path or ""), page.file.src_uri
    page.meta = dict(UNSEARCHED)
    before = dict(vars(page))
    try:
        prepared = prepare.page(path, source, config)
        page.markdown = prepared.text
        SitePage.render(page, config, files)
    except PageError as error:
        raise PluginError(str(error)) from error
    except MathError as error:  # in a lab; a chapter has been read
        raise PluginError(f"{name_of(path)}: {error}") from error
    root = Path(config.config_file_path).parent
    prepare.describe(prepared, page.content or "", config, root)
    page.meta |= {**prepared.meta, "prepared": prepared}
    if not prepare.is_part(source):  # the list of parts is searched in their place
        page.meta["sections"] = search.sections(page.content or "")
    if page.present_anchor_ids is not None:  # MkDocs looks for none in what a fence has drawn
        page.present_anchor_ids |= set(ADDRESS.findall(page.content or ""))
    state = {name: value for name, value in vars(page).items() if before.get(name) is not value}
    links = page.links_to_anchors or {}  # by file; another process, and another build, has others
    return state | {
        "meta": page.meta,
        "links_to_anchors": {file.src_uri: anchors for file, anchors in links.items()},
    }


def on_page_context(
    context: TemplateContext, page: SitePage, config: MkDocsConfig, nav: Navigation
) -> TemplateContext:
    """Show the result of the last check, if pages are served."""
    if _served and "check" in page.meta:
        prepared = page.meta["prepared"]
        state = _served.mark(page, prepared.program)  # a record may be there after it
        page.meta.update(prepare.known(prepared, config.extra["repository"]))
        page.meta["check"] |= state
    page.meta["served"] = _served is not None
    return context


# After every plugin: the offline copy holds what they wrote.
@event_priority(-200)
def on_post_build(config: MkDocsConfig) -> None:
    """Write the downloads: those of each page, the book as text, and the whole site as a zip."""
    _write_index(config)
    if _ahead:
        _ahead.close()
    site = Path(config.site_dir)
    run.write(Path(config.config_file_path).parent, site / "assets")
    prepared = [page.meta["prepared"] for page in _pages if "prepared" in page.meta]
    for one in prepared:
        for name, content in one.beside.items():
            (site / one.source).with_name(name).write_bytes(content)
    for name, text in prepare.llms(config, prepared).items():
        (site / name).write_text(text, encoding="utf-8")
    if _served:
        return _served.end()
    return prepare.pack(site)


def on_build_error(error: Exception) -> None:
    """Stop rendering: no further page will be asked for."""
    if _ahead:
        _ahead.close()


def _write_index(config: MkDocsConfig) -> None:
    """Write the index of the search. The home page is not in it, since it leads to all the others."""
    keywords = config.extra.get("keywords", {})
    entries = [
        search.Entry(
            page.url,
            unescape(page.meta["description"]),
            keywords.get(page.file.src_uri, ""),
            page.meta["sections"],
        )
        for page in _pages
        if "sections" in page.meta and not page.is_homepage
    ]
    site = Path(config.site_dir)
    (site / "assets/search-index.js").write_text(search.script(entries), encoding="utf-8")
    # The theme's own index is empty, and it reads that before it listens; from a disk, as a script.
    settings = (site / "search/search_index.json").read_text(encoding="utf-8")
    (site / "search/search_index.js").write_text(f"var __index = {settings}", encoding="utf-8")
