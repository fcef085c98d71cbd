"""MkDocs' face of the book: checks each page as it is built, and publishes what to take away.

Thin on purpose. Prose, math and figures are Markdown extensions that any builder can use; this
hook adds the files beside a page, its reading time, and the text behind "copy with everything
above". `python -m literate export` writes the same files without it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import zipfile
from html import escape, unescape
from itertools import takewhile
from pathlib import Path
from posixpath import dirname, relpath

# Material announces MkDocs 2 on each start; requirements.txt pins mkdocs below it.
os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")

ROOT = Path(__file__).resolve().parents[2]
WORDS_PER_MINUTE = 200
SECONDS_PER_BLOCK = 15
ARCHIVE = "attention-executed"
# The pages of the build under way, in reading order; `on_nav` fills it.
_pages: list = []
CODE = re.compile(r'<div class="language-(?:python|py)3? highlight">')
# Names, operators and brackets have the colour of the code around them: three in five of a page's
# elements would say so, each to be sent, laid out and checked.
PLAIN = re.compile(r'<span class="(?:kc|n|o|p|w)">([^<]*)</span>')


def versions() -> dict[str, str]:
    """Return the versions that the book's outputs were checked on, for `extra` in mkdocs.yml."""
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    torch = re.search(r"^torch==([\w.]+)", pins, re.MULTILINE)
    if torch is None:
        raise ValueError(f"{ROOT / 'requirements.txt'}: no line pins torch==…, wanted exactly one")
    return {"python": ".".join(platform.python_version_tuple()[:2]), "torch": torch[1]}


def on_files(files, config):
    """Publish each snippet as a file of its own, to download from where a page includes it."""
    from mkdocs.structure.files import File

    for path in sorted((ROOT / "snippets").glob("*.py")):
        name = f"snippets/{path.name}"
        if name not in files.src_uris:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_nav(nav, config, files):
    """Remember the pages in reading order; they must be those that the checker knows."""
    from literate.page import pages, shown

    _pages[:] = nav.pages
    root = Path(config.config_file_path).parent
    drawn = {Path(file.abs_src_path) for file in files.documentation_pages()}
    drawn = {path for path in drawn if path.suffix != ".ipynb"}
    for path in sorted(drawn ^ set(pages(root)) - {root / "README.md"}):
        wrong = "the site draws this page, and no test" if path in drawn else "no page of the site"
        raise _stop(f"{shown(path, root)}:1: {wrong}")
    return nav


def on_page_markdown(markdown, page, config, files):
    """Read the page as a program; an error in it stops the build and names page.md:line."""
    if not page.file.src_uri.endswith(".ipynb"):
        page.program = _read(page.file.abs_src_path)
    return markdown


def on_page_content(html, page, config, files):
    """Add what the builder alone can know: downloads, the mark, reading time, what comes next."""
    if page.file.src_uri.endswith(".ipynb"):
        from literate.site import lab

        try:
            html = lab.clean(html, page, files)
        except lab.LabError as error:
            raise _stop(f"docs/{page.file.src_uri}: {error}") from error
        page.meta["downloads"] = {"notebook": Path(page.file.src_uri).name}
        page.meta["offline"] = f"{ARCHIVE}.zip"
    elif program := getattr(page, "program", None):
        html = _with_program(html, page, program)
    html = PLAIN.sub(r"\1", html)
    page.meta.setdefault("description", _first_sentence(html))
    return html


def on_post_build(config):
    """Write each page to take away, the book as text (llms.txt, llms-full.txt), and trim styles."""
    from literate import export
    from literate.site import stylesheets

    stylesheets.trim(Path(config.site_dir))

    site, docs = Path(config.site_dir), Path(config.docs_dir)
    for lab in (page for page in _pages if page.file.src_uri.endswith(".ipynb")):
        shutil.copyfile(docs / lab.file.src_uri, site / lab.file.src_uri)
    pages = [page for page in _pages if page.file.src_uri.endswith(".md")]
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    whole = []
    for page in pages:
        program = page.program
        text = export.markdown(program)
        target = site / _beside(page, ".md")
        target.write_text(text, encoding="utf-8")
        if program.blocks:
            notebook = export.notebook(program, config.site_url)
            (site / _beside(page, ".ipynb")).write_text(notebook, encoding="utf-8")
            script = export.script(program, config.site_url)
            (site / _beside(page, ".py")).write_text(script, encoding="utf-8")
        about = page.meta.get("description", "")
        lines.append(f"- [{page.title}]({config.site_url}{_beside(page, '.md')}): {about}")
        whole.append(f"<!-- {config.site_url}{page.url} -->\n\n{text.strip()}\n")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")
    _zip(site)


# After every plugin: the offline copy holds what they wrote, its search index above all.
on_post_build.mkdocs_priority = -200


def _zip(site):
    """Pack the site into one file that opens from a disk; the same site gives the same bytes."""
    target = site / f"{ARCHIVE}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in site.rglob("*") if path.is_file() and path != target):
            entry = zipfile.ZipInfo(f"{ARCHIVE}/{path.relative_to(site).as_posix()}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())


def _read(path):
    """Read a page, or stop the build with the place and the reason."""
    from literate import page
    from literate.site import fences

    try:
        program = page.read(path)
        fences.check(program)
        return program
    except page.PageError as error:
        raise _stop(error) from error


def _with_program(html, page, program):
    """Attach downloads, the mark and the programs of a chapter that runs code."""
    from literate import export

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
    page.meta["checked"] = sum(block.output is not None for block in program.blocks)
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
    deltas, before = [], ""
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
    text = re.sub(r"<annotation.*?</annotation>|<[^>]+>", "", said)
    text = " ".join(unescape(text).split())
    return re.split(r"(?<=[.?])\s", text)[0]


def _beside(page, suffix: str) -> str:
    return str(Path(page.file.dest_uri).with_name(Path(page.file.src_uri).stem + suffix))


def _stop(message):
    """The exception that ends a build with one plain line."""
    from mkdocs.exceptions import PluginError

    return PluginError(str(message))
