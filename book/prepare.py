"""Makes of the book what a builder only has to draw: text with metadata, and files to take away.

MkDocs asks page by page, through a hook, while it draws. Nothing here knows a builder.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from html import escape, unescape
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any

import yaml

from book import card, lab, parts, repository, run, search, take_away
from book.markdown.math import symbols
from book.minify import minify
from literate import export, record
from literate.errors import Misread
from literate.fence import blank_out
from literate.page import (
    Page,
    PageError,
    front_matter,
    is_page,
    read,
    root_of,
    without_front_matter,
)

WORDS_PER_MINUTE = 200
SECONDS_PER_BLOCK = 15
ARCHIVE = "attention-executed"
KINDS = {".md": "markdown", ".ipynb": "notebook", ".py": "script", "-practice.ipynb": "practice"}
# What the archive says of itself.
OFFLINE = """\
Open index.html in a browser: the whole book works from the disk, but for Run, which needs a host.

Some notebooks and scripts load a trained model. Without a network, copy files/*.pt into the folder where
PyTorch keeps what it has loaded, "checkpoints" below the one that this command prints:

    python -c "import torch; print(torch.hub.get_dir())"
"""
PYODIDE = "assets/vendor/pyodide"  # which no browser starts from a disk

PRELOAD = re.compile(r'<link rel="preload"[^>]*as="font"[^>]*>\n?')
DEFINED = re.compile(
    r'<a (?=[^>]*\bdata-preview\b)[^>]*href="[^"]*glossary\.html#(?P<word>[\w-]+)"'
)


@dataclass
class Prepared:
    """A page as a builder draws it.

    `source` names it from docs/; `meta` is what its template shows, `text` its Markdown without
    front matter, and `beside` each file that lies beside it, by name. A lab has no `program`.
    """

    source: str
    title: str
    meta: dict[str, Any]
    text: str
    beside: dict[str, bytes]
    program: Page | None = None


def page(path: Path, source: str, config: Mapping[str, Any]) -> Prepared:
    """Prepare the chapter, the lab or the part at `path`; when it is drawn, `describe` completes it.

    Args:
        path: the Markdown file, the notebook, or the file of snippets/.
        source: its name from docs/.
        config: what mkdocs.yml says: `site_name`, `site_url`, `nav` and `extra`.

    Raises:
        PageError: the page is not what the book allows; names its line, unless it is a lab.
    """
    if path.suffix == ".py":
        sources = [name for name, _ in _listed(config["nav"])]
        book = config["extra"]["repository"]
        return Prepared(source, "", {}, parts.page(path.stem, root_of(path), sources, book), {})
    if path.suffix == ".ipynb" and not is_page(path, root_of(path)):
        try:
            text = lab.markdown(path)
        except lab.LabError as error:
            raise PageError(path, Misread(0, str(error))) from error
        return Prepared(source, "", {}, text, {path.name: path.read_bytes()})
    program = read(path)
    program.check_drawn()
    practised = Path(source).with_name(f"{Path(source).stem}-practice.ipynb").as_posix()
    colab = repository.colab(config["extra"]["repository"], practised)
    beside = _taken(program, config.get("site_url") or "", colab)
    exercises = colab if Path(practised).name in beside else ""
    if known := run.known(program):
        notebook = Path(source).with_suffix(".ipynb").as_posix()
        colab = repository.colab(config["extra"]["repository"], notebook)
        beside[known["program"]] = run.program(program, colab).encode()
    listed = parts.LIST in dict(_listed(config.get("nav") or []))
    text = _linked(program, source, exercises, listed)
    return Prepared(source, "", {}, text, beside, program)


def describe(prepared: Prepared, html: str, config: Mapping[str, Any], root: Path) -> None:
    """Complete a page, which was drawn as `html`: its title, its metadata and its card.

    What its author wrote as metadata stays. `root` is the project, which holds the fonts of the card.
    """
    source = Path(prepared.source)
    listed = dict(_listed(config.get("nav") or [])).get(prepared.source)
    prepared.title = listed or _heading(html) or source.stem
    if is_part(prepared.source):
        prepared.meta = _metadata_of_part(prepared, html, config)
        return
    prepared.meta = meta = _metadata(prepared, html, config)
    fonts = root / "docs/assets/fonts"
    picture = card.draw(meta.get("title") or prepared.title, config["site_name"], html, fonts)
    prepared.beside[Path(meta["card"]).name] = picture


def known(prepared: Prepared, repository_name: str) -> dict[str, Any]:
    """Return what is known of a page now, as metadata: its mark, and where a wrong number is reported.

    The mark claims nothing unless a check of this very text is on record. A chapter without outputs
    has neither.
    """
    meta: dict[str, Any] = {}
    program, last_check = prepared.program, None
    if program and any(block.output for block in program.blocks):
        last_check = record.of(program)
        meta["check"] = {"record": asdict(last_check) if last_check else None}
    if meta or not program:
        meta["report"] = repository.report(repository_name, prepared.source, last_check)
    return meta


def edition(root: Path) -> str | None:
    """Return the version of the book of the project at `root`, where its CITATION.cff says one."""
    cited = root / "CITATION.cff"
    if not cited.exists():
        return None
    return str(yaml.safe_load(cited.read_text(encoding="utf-8"))["version"])


def llms(config: Mapping[str, Any], prepared: Iterable[Prepared]) -> dict[str, str]:
    """Return the book as text for machines: its chapters, listed in llms.txt, whole in the other.

    Args:
        config: what mkdocs.yml says: `site_name`, `site_description` and `site_url`.
        prepared: the pages in reading order.
    """
    url = config.get("site_url") or ""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    whole = []
    for one in prepared:
        if one.program:
            asked = unescape(one.meta["description"])
            lines.append(f"- [{one.title}]({url}{one.source}): {asked}")
            text = one.beside[Path(one.source).name].decode().strip()
            whole.append(f"<!-- {url}{export.as_html(one.source)} -->\n\n{text}\n")
    return {"llms.txt": "\n".join(lines) + "\n", "llms-full.txt": "\n\n".join(whole)}


def pack(site: Path) -> None:
    """Make a built site light, and pack it into one file that opens from a disk.

    The same site gives the same bytes. A README.txt is in the archive alone.
    """
    minify(site)
    target = site / f"{ARCHIVE}.zip"
    every = (path for path in site.rglob("*") if path.is_file() and path != target)
    paths = sorted(path for path in every if path.parent != site / PYODIDE)
    files = {path.relative_to(site).as_posix(): path.read_bytes() for path in paths}
    files = _for_a_disk(files)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {"README.txt": OFFLINE.encode(), **files}.items():
            entry = zipfile.ZipInfo(f"{ARCHIVE}/{name}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)


def _for_a_disk(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files of the site as they work where no page may fetch another.

    A preload fails there, so text waits for its font, which is near. A definition, which the theme would
    fetch from the glossary, is the title of the link.
    """
    words = {}
    if glossary := files.get("glossary.html"):
        read = search.sections(glossary.decode())
        words = {section.anchor: search.plain(search.beginning(section.text)) for section in read}

    def defined(link: re.Match) -> str:
        said = words.get(link["word"], "")
        return f'{link[0]} title="{escape(said)}"' if said else link[0]

    fitted = dict(files)
    for name, content in files.items():
        if name.endswith(".html"):
            text = PRELOAD.sub("", content.decode())
            fitted[name] = DEFINED.sub(defined, text).encode()
        elif name.startswith("assets/") and name.endswith(".css"):
            fitted[name] = content.replace(b"font-display:optional", b"font-display:block")
    return fitted


def _taken(program: Page, site_url: str, colab: str) -> dict[str, bytes]:
    """Return what a reader may take of a chapter: each file, by its name.

    `colab` is the address at which Colab opens the notebook to practise in.
    """
    taken = {".md": export.markdown(program, site_url)}
    if program.blocks:
        taken |= export.runnable(program, site_url)
        if practice := take_away.practice(program, site_url, colab):
            taken["-practice.ipynb"] = practice
    return {program.path.stem + suffix: text.encode() for suffix, text in taken.items()}


def _metadata(prepared: Prepared, html: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a page that is drawn as `html`."""
    program, source = prepared.program, Path(prepared.source)
    blocks = program.blocks if program else []
    book = config["extra"]["repository"]
    # The code of a lab is folded, and read by few; its figures and tables are read.
    stops = len(blocks) if program else len(lab.SHOWN.findall(html))
    downloads = {
        kind: name
        for suffix, kind in KINDS.items()
        if (name := source.stem + suffix) in prepared.beside
    }
    meta: dict[str, Any] = {"description": _first_sentence(html)}
    meta |= (program and front_matter(program.text)) or {}
    # The theme draws it as it is, in an attribute, too; `<b>` in a sentence is a word about a tag.
    meta["description"] = escape(meta["description"])
    meta |= {"minutes": _minutes(html, stops), "downloads": downloads, "offline": f"{ARCHIVE}.zip"}
    meta |= _place(prepared.source, config.get("nav") or [])
    meta |= {"edit": repository.edit(book, f"docs/{prepared.source}"), **known(prepared, book)}
    meta["card"] = source.with_name(f"{source.stem}.png").as_posix()
    if program:
        pieces = zip(export.pieces(program), blocks, strict=True)
        guarded = [[i, piece] for i, (piece, block) in enumerate(pieces) if block.raises]
        meta["guarded"] = guarded
        if runs := run.known(program):
            meta["run"] = runs
    if "script" in downloads:
        meta["colab"] = repository.colab(book, source.with_suffix(".ipynb").as_posix())
    return meta


def is_part(source: str) -> bool:
    """Say whether the page of this name is made of a file of snippets/. It is no chapter, and has no mark."""
    return dirname(source) == "parts"


def _metadata_of_part(prepared: Prepared, html: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the page of a part: what it is, and where its file is mended."""
    book, name = config["extra"]["repository"], Path(prepared.source).stem
    return {
        "description": escape(_first_sentence(html)),
        "offline": f"{ARCHIVE}.zip",
        "place": {"part": dict(_listed(config["nav"]))[parts.LIST], "page": "../parts.html"},
        "edit": repository.edit(book, f"snippets/{name}.py"),
    }


def _place(source: str, nav: list) -> dict[str, Any]:
    """Return where in the book a page stands, as its metadata `place`: its part, and its number in it.

    The page of a part itself, and one in no part, have none. `at` begins at 1; `page` is the address of
    the part's own page, seen from this one, or "".
    """
    for part, listed in [
        pair for entry in nav if isinstance(entry, dict) for pair in entry.items()
    ]:
        pages = [page for page, _ in _listed(listed)] if isinstance(listed, list) else []
        numbered = [page for page in pages if Path(page).name != "index.md"]
        if source in numbered:
            own = next((page for page in pages if page not in numbered), "")
            address = relpath(export.as_html(own), dirname(source) or ".") if own else ""
            at = numbered.index(source) + 1
            return {"place": {"part": part, "page": address, "at": at, "of": len(numbered)}}
    return {}


def _minutes(html: str, stops: int) -> int:
    """Return the minutes that a page takes to read, with so many stops among its words."""
    hidden = r"<(pre|math|svg|template|table)\b.*?</\1>|<[^>]+>"
    words = len(re.sub(hidden, " ", html, flags=re.S).split())
    seconds = words * 60 / WORDS_PER_MINUTE + stops * SECONDS_PER_BLOCK
    return max(1, round(seconds / 60))


def _first_sentence(html: str) -> str:
    """Return the first sentence of the first paragraph, which asks the chapter's question."""
    paragraph = re.search(r"<p>(.*?)</p>", html, re.DOTALL)
    sentence = paragraph[1].replace("<msqrt>", "√") if paragraph else ""
    text = " ".join(symbols(sentence).split())
    return re.split(r"(?<=[.?])\s", text)[0]


def _heading(html: str) -> str:
    """Return the title of a drawn page, or ""."""
    heading = re.search(r"<h1\b[^>]*>(.*?)</h1>", html, re.DOTALL)
    text = re.sub(r"<a class=\"headerlink\".*?</a>|<[^>]+>", "", heading[1] if heading else "")
    return unescape(text).strip()


def _linked(program: Page, source: str, exercises: str, listed: bool) -> str:
    """Return the text of a chapter with its drawings, and links to what a reader may take where it stands.

    That is each included file, above it, with its page where the parts are `listed`, and the exercises as a
    notebook, under their heading, where Colab opens them at the address `exercises`, if any.
    """
    lines = without_front_matter(program.shown).split("\n")
    prose = blank_out(program.fences, program.shown)
    added = {
        block.line - 1: _file_link(block.included, source, block.fence.prefix, listed)
        for block in program.blocks
        if block.included
    }
    if exercises:
        notebook = f"{Path(source).stem}-practice.ipynb"
        # As HTML, since a builder looks for what Markdown links to among its own files.
        links = f'<a href="{notebook}" download>Exercises as a notebook</a> <a href="{exercises}">in Colab</a>'
        line = f'<p class="take-file">{links}</p>'
        added[prose.index(take_away.EXERCISES) + 1] = ["", line, ""]
    for at in sorted(added, reverse=True):
        lines[at:at] = added[at]
    return "\n".join(lines).lstrip("\n")


def _file_link(file: Path, source: str, prefix: str, listed: bool) -> list[str]:
    """Return the lines of links to a snippet and to its page, each with the `prefix` of its block."""
    here = dirname(source) or "."
    said = file.name.replace("_", "\\_")
    link = (
        f'[Download {said}]({relpath(f"snippets/{file.name}", here)}){{ download="{file.name}" }}'
    )
    if listed:
        link += f" · [how it was tested]({relpath(f'parts/{file.stem}.md', here)})"
    return [(prefix + line).rstrip() for line in ("", link, "{ .take-file }", "")]


def _listed(entries: list) -> Iterator[tuple[str, str | None]]:
    """Yield the source of each page that a nav lists, in order, with its title there, if any."""
    for entry in entries:
        for title, what in entry.items() if isinstance(entry, dict) else [(None, entry)]:
            if isinstance(what, str):
                yield what, title
            else:
                yield from _listed(what)
