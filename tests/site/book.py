"""The book as the tests of the site build and serve it: its pages, small books of a test's own, a host."""

import contextlib
import functools
import http.server
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import lxml.html
import pytest

from book import parts
from literate import page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHAPTERS = [
    path.relative_to(DOCS).as_posix() for path in page.pages(ROOT) if path.is_relative_to(DOCS)
]
LABS = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("labs/*.ipynb"))
SOURCES = {source.rpartition(".")[0] + ".html": source for source in [*CHAPTERS, *LABS]}
PAGES = list(SOURCES)

CHAPTER = "foundations/dot-product.html"  # has exercises, and each feature but a chart
# One page of each kind is asked at each change, all others at night.
KINDS = [
    *("index.html", "foundations/index.html", CHAPTER, "model/heads.html"),
    *("labs/heads.html", "glossary.html", "parts/kv_cache.html"),
]


def each(*pages: str):
    """Try a test on pages: on one of each kind at each change, on the others at night."""
    marked = [
        path if path in KINDS else pytest.param(path, marks=pytest.mark.night) for path in pages
    ]
    return pytest.mark.parametrize("path", marked)


each_page = each(*PAGES, *(f"parts/{name}.html" for name in parts.files(ROOT)))


def nothing(**wrong):
    """Fail with what was found wrong, by what that is."""
    said = [f"{what}: {found}" for what, found in wrong.items() if found]
    assert not said, "\n".join(said)


def build(target: Path, project: Path = ROOT) -> subprocess.CompletedProcess:
    """Build the book of `project` into `target`: `make build`, with this Python's packages."""
    return make(project, "build", f"ARGS=--site-dir {shlex.quote(str(target))}")


def make(project: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run make in `project`, with this Python's packages.

    The literate of `project` draws it, and nothing that the caller's shell or make has set counts.
    """
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "NO_MKDOCS_2_WARNING", "VENV")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    return subprocess.run(
        [
            *("make", "--silent", "--old-file", ".venv/installed"),
            f"BIN={Path(sys.executable).parent}",
            *arguments,
        ],
        cwd=project,
        env={**environment, "NO_COLOR": "1", "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def copy_project(target: Path, docs: bool = True) -> Path:
    """Copy what builds the book to `target`, to be changed there."""
    for folder in (
        "snippets",
        *(["docs", "small_torch"] if docs else ["docs/assets"]),
    ):
        shutil.copytree(ROOT / folder, target / folder)
    for file in ("Makefile", "mkdocs.yml", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, target / file)
    if not docs:  # of other pages, so none of this book's old addresses leads anywhere
        settings = (target / "mkdocs.yml").read_text(encoding="utf-8")
        settings = re.sub(r"redirect_maps:\n( {8}.*\n)+", "redirect_maps: {}\n", settings)
        (target / "mkdocs.yml").write_text(settings, encoding="utf-8")
    for folder in ("book", "literate", "processor"):
        compiled = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, target / folder, ignore=compiled)
    return target


def small_book(project: Path, **pages: str) -> Path:
    """Make of `project` a book in this book's theme that has these pages alone, all in the nav."""
    copy_project(project, docs=False)
    for name, text in pages.items():
        (project / f"docs/{name}.md").write_text(text, encoding="utf-8")
    settings = (project / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    nav = "".join(f"  - {name}.md\n" for name in pages)
    (project / "mkdocs.yml").write_text(f"{settings}\nnav:\n{nav}", encoding="utf-8")
    return project


@functools.cache
def parsed(path: Path) -> lxml.html.HtmlElement:
    """A page as a tree, which tests share and none changes."""
    return lxml.html.document_fromstring(path.read_text(encoding="utf-8"))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def handle(self):
        """A browser may go on to another page before it has its answer."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    policy = ""  # that each answer carries

    def end_headers(self):
        if self.policy:
            self.send_header("Content-Security-Policy", self.policy)
        super().end_headers()

    def log_message(self, *_):
        """Keep the test's own output readable."""

    def send_error(self, code, *arguments, **options):
        """Show the book's own page where there is none, as its host does."""
        lost = Path(self.directory) / "404.html"
        if code != 404 or not lost.exists():
            super().send_error(code, *arguments, **options)
            return
        content = lost.read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        if self.path != "/sitemap.xml":
            super().do_GET()
            return
        # Navigation is instant only among the pages of the sitemap, which names the public address.
        host, port = self.server.server_address
        text = (Path(self.directory) / "sitemap.xml").read_text(encoding="utf-8")
        content = re.sub(r"<loc>https://[^/]+/", f"<loc>http://{host}:{port}/", text).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def served(folder: Path, policy: str = ""):
    """Serve `folder`, which may be filled later, on loopback; give its address, with the slash."""
    kind = type("Handler", (_Quiet,), {"policy": policy})
    handler = functools.partial(kind, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
