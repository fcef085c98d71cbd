"""What the tests of the site share: where its pages are, and how to look into them."""

import contextlib
import functools
import gzip
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from literate import page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHAPTERS = [
    path.relative_to(DOCS).as_posix() for path in page.pages(ROOT) if path.is_relative_to(DOCS)
]
LABS = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("labs/*.ipynb"))
PAGES = [source.rpartition(".")[0] + ".html" for source in [*CHAPTERS, *LABS]]

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 375, "height": 800}
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No other host has an address here, so no test leans on one.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    # A window that nobody sees would load two pages of its own for the address bar: half the cost.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
]
NO_BROWSER = (
    "There is no Chromium here, so the site's tests in a browser cannot run; "
    "`playwright install chromium` or `apt-get install chromium` brings one."
)


def build(target: Path, project: Path = ROOT) -> subprocess.CompletedProcess:
    """Build the book of `project` into `target`, as `make build` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    # Plain output, and none of what a caller's shell may have silenced.
    environment = {**os.environ, "NO_COLOR": "1"}
    environment.pop("NO_MKDOCS_2_WARNING", None)
    return subprocess.run(
        command,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def copy_project(target: Path, docs: bool = True) -> Path:
    """Copy what builds the book to `target`, to be changed there."""
    for folder in ("overrides", "snippets", *(["docs"] if docs else ["docs/assets"])):
        shutil.copytree(ROOT / folder, target / folder)
    for file in ("mkdocs.yml", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, target / file)
    shutil.copytree(
        ROOT / "literate", target / "literate", ignore=shutil.ignore_patterns("__pycache__")
    )
    return target


def gzipped(path: Path) -> int:
    """Size in bytes of a file as a host sends it; fonts are compressed already."""
    content = path.read_bytes()
    return len(content) if path.suffix == ".woff2" else len(gzip.compress(content, 9))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Keep the test's own output readable."""

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
def served(folder: Path):
    """Serve `folder`, which may be filled later, on loopback; give its address, with the slash."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def chromium_path(playwright) -> str | None:
    """Path of a Chromium: Playwright's own where installed, else the system's, else None."""
    own = playwright.chromium.executable_path
    names = ("chromium", "chromium-browser", "google-chrome")
    return own if os.path.exists(own) else next(filter(None, map(shutil.which, names)), None)


if __name__ == "__main__":  # the last word of `make test`
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        here = chromium_path(started)
    print(
        "Skipped: the labs, which `make test-labs` runs, and the tests of the site. "
        + (f"`make test-site` runs them in {here}." if here else NO_BROWSER)
    )
