"""What the tests of the site share: where its pages are, and how to look into them."""

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
from unittest.mock import ANY

import lxml.html
import pytest

from literate import page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHAPTERS = [
    path.relative_to(DOCS).as_posix() for path in page.pages(ROOT) if path.is_relative_to(DOCS)
]
LABS = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("labs/*.ipynb"))
SOURCES = {source.rpartition(".")[0] + ".html": source for source in [*CHAPTERS, *LABS]}
PAGES = list(SOURCES)

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
    # Chromium heeds the last such list alone, so what Playwright turns off stands here again: above
    # all PaintHolding, under which a click on a page that has just come may be lost.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,PaintHolding,"
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,ThirdPartyStoragePartitioning,"
    "AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,"
    "PreconnectToSearch",
]
NO_BROWSER = (
    "There is no Chromium here, so the site's tests in a browser cannot run; "
    "`playwright install chromium` or `apt-get install chromium` brings one."
)

# Clicks on the menu's link to an address, and waits until the page is there. Until the sitemap has
# come the theme lets a click pass, and the browser would load the page anew: here it may not.
CLICK = """async (address) => {
  // By what it leads to, looked for anew in each frame: the theme's script writes the whole address, a
  // moment later in a slow window, and Firefox may still be reading the menu.
  const link = () =>
    [...document.querySelectorAll(".md-nav--primary .md-nav__link")].find(({ href }) => href === address);
  const container = () => document.querySelector('[data-md-component=container]'), left = container();
  let instant = false;
  const watch = (event) => { instant = event.defaultPrevented; event.preventDefault(); };
  addEventListener("click", watch);
  for (let frame = 0; !instant; frame++) {
    if (frame > 600) throw new Error(`${link() ? "navigation is not instant" : "no link in the menu"}: ${address}`);
    link()?.click();
    await new Promise(requestAnimationFrame);
  }
  removeEventListener("click", watch);
  // It tells a new listener of the page that is there, which may be the one that is left.
  let told;
  await new Promise((filled) => { told = document$.subscribe(() => container() !== left && filled()) });
  told.unsubscribe(); // or it keeps the page that was left
  // The theme shuts the search 125 ms after it left a page, by a timer that was set before this one.
  await new Promise((passed) => setTimeout(passed, 125));
}"""


# Waits until what a script or a test has changed is drawn: in three frames the window has its size,
# what is laid out is painted, and styles that follow a scroll know it. A font is asked for when a
# frame first needs it, so it is waited for after them, and what it sets is laid out once more.
DRAWN = """async () => {
  const frames = async () => {
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  };
  await frames();
  if (document.fonts.status === "loaded") return;
  await document.fonts.ready;
  await frames();
}"""

# Waits until a page that has come asks for nothing more.
QUIET = """async () => {
  const asked = () => performance.getEntriesByType("resource").length;
  for (let before = -1; before !== asked(); ) {
    before = asked();
    await new Promise((passed) => setTimeout(passed, 100));
  }
}"""

FOLDED = ".md-content article details"  # all of a page's text that may be folded
# Opens what one selector names and folds all else that another does, waits until the page has been
# told of each, and returns how many changed.
FOLD = """async ([open, all]) => {
  const changed = [...document.querySelectorAll(all)].filter((one) => one.open !== one.matches(open));
  await Promise.all(changed.map((one) => new Promise((told) => {
    one.addEventListener("toggle", told, { once: true });
    one.open = !one.open;
  })));
  return changed.length;
}"""

# Shows what the text asks to predict, as a reader who asks for it does.
UNVEIL = """() => document.querySelectorAll('.md-content .veiled').forEach((figure) => {
  figure.classList.remove('veiled');
  figure.querySelector('.unveil')?.remove();
})"""

# Goes one page back, and waits until it is there.
BACK = """async () => {
  const container = () => document.querySelector('[data-md-component=container]'), left = container();
  history.back();
  let told;
  await new Promise((filled) => { told = document$.subscribe(() => container() !== left && filled()) });
  told.unsubscribe();
}"""

CHAPTER = "foundations/dot-product.html"  # has every feature
KINDS = ["index.html", "foundations/index.html", CHAPTER, "labs/heads.html", "glossary.html"]
# Uses each feature of a chapter once, in any engine, and says what came of it: `USED` where all works.
USED = {
    "focus": "H1",
    "copied": [True, True],
    "heatmap": True,
    "explorable": ["Scores", "Scaled", "Masked", "Weights", "Context"],
    "linked": True,
    "math": True,
    "solution": [False, True],
    "palette": 3,
    "named": "Search the book",
    "scrolled": 0,
}
USED_AFTER_BACK = USED | {"focus": ANY, "scrolled": ANY}  # where the reader was
# Looks at the first explorable of a page, as a reader does: its script comes when it is near.
WAKE = """async () => {
  const figure = document.querySelector('figure.attention');
  if (!figure || customElements.get('attention-explorable')) return;
  const { scrollX, scrollY } = window;
  figure.scrollIntoView();
  await customElements.whenDefined('attention-explorable');
  scrollTo(scrollX, scrollY);
}"""

USE = """async () => {
  const one = (what) => document.querySelector(`.md-content article ${what}`);
  // By the clock: an engine may leave out the frames of a window that nobody sees.
  const until = async (holds) => {
    for (let tries = 0; !holds(); tries++) {
      if (tries > 2000) throw new Error(`never: ${holds}, in a window that is ${document.visibilityState}`);
      await new Promise((passed) => setTimeout(passed, 20));
    }
  };
  const told = { focus: document.activeElement.tagName, scrolled: scrollY };
  // An engine may let a script copy only after a real click; what would be copied is asked here.
  let copied;
  Object.defineProperty(navigator, 'clipboard',
    { configurable: true, value: { writeText: async (text) => { copied = text } } });
  const block = document.querySelectorAll('.md-content article .language-python')[1];
  const code = block.querySelector('pre > code').textContent;
  told.copied = [];
  for (const button of block.querySelectorAll('[data-copy]')) {
    delete button.dataset.done;
    button.click();
    await until(() => 'done' in button.dataset);
    told.copied.push(told.copied.length ? copied.length > code.length && copied.includes(code) : copied === code);
  }
  const cell = one('.output .heatmap tbody td');
  cell.focus();
  cell.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true, cancelable: true }));
  told.heatmap = document.activeElement === cell.nextElementSibling;
  const figure = one('figure.attention');
  figure.scrollIntoView();
  await until(() => figure.querySelector('.stepper'));
  told.explorable = [...figure.querySelectorAll('.stepper li button')].map((button) => {
    button.click();
    return figure.querySelector('[aria-current=step]').textContent;
  });
  const before = location.href;
  history.replaceState(history.state, '', `#${figure.id}?query=0`);
  dispatchEvent(new HashChangeEvent('hashchange'));
  told.linked = figure.querySelector('tbody tr').className === 'on';
  history.replaceState(history.state, '', before);
  told.math = one('math').getBoundingClientRect().height > 8;
  const solution = one('details.success'), inside = solution.querySelector('pre');
  told.solution = [];
  for (const open of [false, true]) {
    if (open) solution.querySelector('summary').click();
    told.solution.push(inside.checkVisibility());
  }
  solution.open = false;
  const schemes = [];
  for (let turn = 0; turn < 3; turn++) {
    document.querySelector('[data-md-component=palette] label:not([hidden])').click();
    schemes.push(document.body.dataset.mdColorScheme + document.body.dataset.mdColorMedia);
  }
  told.palette = new Set(schemes).size;
  told.named = document.querySelector('.md-search').getAttribute('aria-label');
  return told;
}"""


# How a test looks at a page that it shares, where it is not in a wide window as it opens.
paper, unfolded, narrow = map(pytest.mark.window, ("paper", "unfolded", "narrow"))

# Each page in turn; all tests of a page follow each other, and share it.
each_page = pytest.mark.parametrize("path", PAGES)
# One page of each kind; the others at night.
each_kind = pytest.mark.parametrize(
    "path",
    [path if path in KINDS else pytest.param(path, marks=pytest.mark.engines) for path in PAGES],
)
each_chapter = pytest.mark.parametrize(
    "path", [path for path in PAGES if SOURCES[path] in CHAPTERS]
)
# The strip under a runnable block, and whether its run has ended.
STRIP = """(at) => {
  const strip = document.querySelectorAll('[data-run=run]')[at].closest('.highlight').nextElementSibling;
  return strip?.matches('.run-strip') ? strip : null;
}"""
ENDED = f"""(at) => {{
  const state = ({STRIP})(at)?.dataset.state;
  return state && !['running', 'edited'].includes(state);
}}"""


def show(page, viewport=None, **media):
    """Give a page a window, a medium, a scheme, and wait until it is drawn so."""
    if viewport:
        page.set_viewport_size(viewport)
    if media:
        page.emulate_media(**media)
    if scheme := {"light": "default", "dark": "slate"}.get(media.get("color_scheme")):
        page.wait_for_function("(name) => document.body.dataset.mdColorScheme === name", arg=scheme)
    page.evaluate(DRAWN)


def open_in_its_fonts(page, address):
    """Open a page that waits for its fonts, since those that would stand in are the machine's."""

    def wait(styles):
        answer = styles.fetch()
        text = re.sub(r"font-display:\s*optional", "font-display: block", answer.text())
        styles.fulfill(response=answer, body=text)

    page.route("**/*.css", wait)
    page.goto(address)
    page.evaluate(DRAWN)
    assert set(page.evaluate("[...document.fonts].map((font) => font.display)")) == {"block"}


def scroll_to_the_end(page):
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.evaluate(DRAWN)


def unfold(page):
    """Open all that is folded, solutions above all."""
    page.evaluate(FOLD, [FOLDED, FOLDED])
    page.evaluate(DRAWN)


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
        timeout=180,
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
        "Skipped: the labs and most exports, which `make test-labs` runs, and the tests of the site. "
        + (f"`make test-site` runs them in {here}." if here else NO_BROWSER)
    )
