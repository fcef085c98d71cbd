"""MkDocs' face of the book: checks each page as it is built, and publishes what to take away.

Thin on purpose. Prose, math and figures are Markdown extensions that any builder can use; this
hook adds the files beside a page, its reading time, and the text behind "copy with everything
above". `python -m literate export` writes the same files without it.
"""

from __future__ import annotations

import logging
import re
import shutil
import zipfile
from functools import partial
from html import escape
from itertools import takewhile
from pathlib import Path
from posixpath import dirname, relpath

from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File
from mkdocs.utils import CountHandler

from literate import export, record
from literate.page import Page, PageError, pages, read, shown
from literate.site import fences, lab, stylesheets
from literate.site.math import MathError, symbols
from literate.site.serve import Served, say

ROOT = Path(__file__).resolve().parents[2]
WORDS_PER_MINUTE = 200
SECONDS_PER_BLOCK = 15
ARCHIVE = "attention-executed"
# The pages of the build under way, in reading order; `on_nav` fills it.
_pages: list = []
# What `mkdocs serve` knows of them; None in a build.
_served: Served | None = None
CODE = re.compile(r'<div class="language-(?:python|py)3? highlight">')
# Names, operators and brackets have the colour of the code around them: three in five of a page's
# elements would say so, each to be sent, laid out and checked.
PLAIN = re.compile(r'<span class="(?:kc|n|o|p|w)">([^<]*)</span>')


def on_startup(command: str, dirty: bool) -> None:
    """Where pages are served, and not built, check what is saved."""
    global _served
    if command == "serve":
        _served = Served()


def on_serve(server, config, builder):
    """Check from now on; what is there at the start is drawn, and not run."""
    if _served:
        _served.watch(server)
    return server


def on_config(config):
    """Serve a book in which a link is dead, too; only a build is strict."""
    log = logging.getLogger("mkdocs")
    for counter in [found for found in log.handlers if isinstance(found, CountHandler)]:
        if _served:
            log.removeHandler(counter)
    return config


def on_files(files, config):
    """Publish each snippet as a file of its own, to download from where a page includes it."""
    for path in sorted((ROOT / "snippets").glob("*.py")):
        name = f"snippets/{path.name}"
        if name not in files.src_uris:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_nav(nav, config, files):
    """Remember the pages in reading order; they must be those that the checker knows."""
    _pages[:] = nav.pages
    root = Path(config.config_file_path).parent
    drawn = {Path(file.abs_src_path) for file in files.documentation_pages()}
    drawn = {path for path in drawn if path.suffix != ".ipynb"}
    for path in sorted(drawn ^ set(pages(root)) - {root / "README.md"}):
        wrong = "the site draws this page, and no test" if path in drawn else "no page of the site"
        _stop(f"{shown(path, root)}:1: {wrong}")
    return nav


def on_page_markdown(markdown, page, config, files):
    """Have the page drawn by us: read as a program before, completed after."""
    draw = partial(_draw, page, page.render, config, files)
    page.render = lambda *_: _served.draw(page, files, draw) if _served else draw()
    return markdown


def _draw(page, render, config, files):
    """Draw a page and what is beside it; an error in it stops the build and names page.md:line."""
    try:
        if page.file.src_uri.endswith(".ipynb"):
            _draw_lab(page, render, config, files)
        else:
            _draw_chapter(page, render, config, files)
    except PageError as error:
        raise PluginError(str(error)) from error
    except (MathError, lab.LabError) as error:
        raise PluginError(f"docs/{page.file.src_uri}: {error}") from error
    page.content = PLAIN.sub(r"\1", page.content)
    page.meta.setdefault("description", _first_sentence(page.content))


def _draw_lab(page, render, config, files):
    render(config, files)
    page.content = lab.clean(page.content, page, files)
    page.meta["downloads"] = {"notebook": Path(page.file.src_uri).name}
    page.meta["offline"] = f"{ARCHIVE}.zip"


def _draw_chapter(page, render, config, files):
    page.program = program = read(page.file.abs_src_path)
    fences.check(program)
    render(config, files)
    page.taken = _taken(program, config.site_url)
    page.content = _with_program(page.content, page, program)


def on_page_context(context, page, config, nav):
    """Say what is known of the page: nothing, unless a check of this very text is on record."""
    program = getattr(page, "program", None)
    if program and any(block.output for block in program.blocks):
        page.meta["check"] = _served.mark(page) if _served else {}
        page.meta["check"]["record"] = record.of(program)
    return context


# After every plugin: the offline copy holds what they wrote, its search index above all.
@event_priority(-200)
def on_post_build(config):
    """Write each page to take away, the book as text (llms.txt, llms-full.txt), and trim styles."""
    if not _served:
        stylesheets.trim(Path(config.site_dir))
    site, docs = Path(config.site_dir), Path(config.docs_dir)
    for notebook in [page.file.src_uri for page in _pages if page.file.src_uri.endswith(".ipynb")]:
        shutil.copyfile(docs / notebook, site / notebook)
    pages = [page for page in _pages if getattr(page, "program", None)]
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    whole = []
    for page in pages:
        for suffix, text in page.taken.items():
            (site / _beside(page, suffix)).write_text(text, encoding="utf-8")
        about = page.meta.get("description", "")
        lines.append(f"- [{page.title}]({config.site_url}{_beside(page, '.md')}): {about}")
        whole.append(f"<!-- {config.site_url}{page.url} -->\n\n{page.taken['.md'].strip()}\n")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")
    if not _served:
        _zip(site)


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
    if program.blocks:
        taken[".ipynb"] = export.notebook(program, site_url)
        taken[".py"] = export.script(program, site_url)
    return taken


def _stop(message: str) -> None:
    """End a build with one plain line; say it, where the book is served."""
    if not _served:
        raise PluginError(message)
    say(message)


def _with_program(html, page, program):
    """Attach downloads, the mark and the programs of a chapter that runs code."""
    name = Path(page.file.src_uri).stem
    page.meta["offline"] = f"{ARCHIVE}.zip"
    page.meta["downloads"] = {"markdown": f"{name}.md"}
    prose = len(
        re.sub(r"<(pre|math|svg|template|table)\b.*?</\1>|<[^>]+>", " ", html, flags=re.S).split()
    )
    seconds = prose * 60 / WORDS_PER_MINUTE + len(program.blocks) * SECONDS_PER_BLOCK
    page.meta["minutes"] = max(1, round(seconds / 60))
    if not program.blocks:
        return html
    page.meta["downloads"] |= {"notebook": f"{name}.ipynb", "script": f"{name}.py"}
    page.meta["programs"] = _deltas(export.programs(program))
    return _with_downloads(html, page, program)


def _with_downloads(html, page, program):
    """Put a link to the file under each block that shows part of it."""
    blocks = iter(program.blocks)

    def mark(match):
        included = next(blocks).included
        if included is None:
            return match[0]
        href = relpath(f"snippets/{included.name}", dirname(page.url) or ".")
        link = f'<a class="take-file" href="{href}" download>Download {escape(included.name)}</a>'
        return link + match[0]

    return CODE.sub(mark, html)


def _deltas(programs: list[str]) -> list[dict[str, int | str]]:
    """Say each program as what it keeps of the one before and what it adds.

    Programs grow block by block, so a page would otherwise carry its code once a block.
    """
    deltas: list[dict[str, int | str]] = []
    before = ""
    for program in programs:
        pairs = zip(before, program, strict=False)
        keep = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        deltas.append({"keep": keep, "add": escape(program[keep:], quote=False)})
        before = program
    return deltas


def _first_sentence(html: str) -> str:
    """Return the first sentence of the first paragraph, which asks the chapter's question."""
    paragraph = re.search(r"<p>(.*?)</p>", html, re.DOTALL)
    said = paragraph[1].replace("<msqrt>", "√") if paragraph else ""
    text = " ".join(symbols(said).split())
    return re.split(r"(?<=[.?])\s", text)[0]


def _beside(page, suffix: str) -> str:
    return str(Path(page.file.dest_uri).with_name(Path(page.file.src_uri).stem + suffix))
