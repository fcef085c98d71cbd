"""Builds the book once for all workers, serves it on loopback, and opens it in Chromium.

`BOOK_SITE=folder pytest tests/site` tests a site that was built before, as it stands.
"""

import os
from pathlib import Path

import pytest
from filelock import FileLock

from tests.site import book


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.site)


@pytest.fixture(scope="session")
def built(tmp_path_factory, worker_id) -> Path:
    """Folder with `site/` and `build.log`, built by whichever worker comes first."""
    if os.environ.get("BOOK_SITE"):
        return Path(os.environ["BOOK_SITE"]).resolve().parent
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "book"
    with FileLock(f"{folder}.lock"):
        log = folder / "build.log"
        if not log.exists():
            folder.mkdir(parents=True, exist_ok=True)
            result = book.build(folder / "site")
            log.write_text(
                f"{result.stdout}{result.stderr}exit {result.returncode}\n", encoding="utf-8"
            )
    return folder


@pytest.fixture(scope="session")
def log(built) -> str:
    """What the build said, its exit status on the last line."""
    return (built / "build.log").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def site(built) -> Path:
    """The built site, as files."""
    folder = Path(os.environ.get("BOOK_SITE") or built / "site").resolve()
    if not (folder / "index.html").exists():
        pytest.fail(f"the site was not built:\n{(built / 'build.log').read_text(encoding='utf-8')}")
    return folder


@pytest.fixture(scope="session")
def address(site):
    """Address of the served site, with the final slash."""
    with book.served(site) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    """Chromium, or one clear reason why there is none: a skip, under CI=true a failure."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        path = book.chromium_path(started)
        if path is None:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(book.NO_BROWSER)
        launched = started.chromium.launch(executable_path=path, args=book.FLAGS)
        yield launched
        launched.close()


# Keeps what moved on a page without the reader's doing, and how far.
WATCH_SHIFTS = """window.moved = [];
new PerformanceObserver((list) => {
  for (const shift of list.getEntries())
    moved.push([shift.value, ...shift.sources.map(({ node }) => (node?.outerHTML ?? node?.data ?? "").slice(0, 80))]);
}).observe({ type: "layout-shift", buffered: true });"""


class Reader:
    """Opens pages of the site, each in a context of its own, and remembers what went wrong there."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address
        self.contexts, self.wrong = [], []

    def open(self, path, wake=True, **options):
        context = self.browser.new_context(
            **{"viewport": book.WIDE, "reduced_motion": "reduce", **options}
        )
        self.contexts.append(context)
        context.on("page", self._watch)
        context.add_init_script(WATCH_SHIFTS)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.goto(path if "://" in path else self.address + path)
        page.evaluate("document.fonts.ready.then(() => true)")
        if wake and options.get("java_script_enabled", True):
            page.evaluate(book.WAKE)
        return page

    def click_to(self, path, **options):
        """Open home (or, for home, another page), and from there the page by a click in the menu."""
        page = self.open("symbols.html" if path == "index.html" else "index.html", **options)
        page.evaluate(book.CLICK, self.address + path)
        page.evaluate("document.fonts.ready.then(() => true)")
        page.evaluate(book.WAKE)
        return page

    def close(self):
        for context in self.contexts:
            context.close()
        self.contexts.clear()

    def check(self):
        """Fail if a request left for another host, a script threw, or something was missing."""
        wrong, self.wrong = self.wrong, []
        assert not wrong, "\n".join(dict.fromkeys(wrong))

    def _own(self, url):
        return url.startswith((self.address, "data:", "blob:", "file:"))

    def _watch(self, page):
        note = self.wrong.append
        page.on("request", lambda request: self._own(request.url) or note(f"asks {request.url}"))
        page.on("websocket", lambda socket: note(f"opens {socket.url}"))
        page.on("pageerror", lambda error: note(f"throws {error}"))
        page.on(
            "response",
            lambda answer: note(f"{answer.status} {answer.url}") if answer.status >= 400 else None,
        )


@pytest.fixture
def reader(browser, address):
    """A reader of the site, of whose pages nothing may go wrong.

    No request may leave for another host, no script may throw, and nothing may be missing, on the
    page and in whatever the test does there.
    """
    reader = Reader(browser, address)
    yield reader
    reader.close()
    reader.check()


@pytest.fixture
def visit(reader):
    """`visit(path, **options)` opens a page of the site anew."""
    return reader.open


@pytest.fixture(params=["opened", "clicked"])
def arrive(request, reader):
    """`arrive(path, **options)` opens a page; a second run of the test comes there by a click."""
    return reader.open if request.param == "opened" else reader.click_to


@pytest.fixture(scope="module")
def kept(browser, address):
    """The reader whose pages `look` shares, and its open pages by path and options."""
    reader, pages = Reader(browser, address), {}
    yield reader, pages
    reader.close()


@pytest.fixture
def look(kept):
    """`look(path)` is a page as `visit` opens it, kept open for the next test that looks at it.

    Each test finds the window, the scheme, the medium and what is folded as they were; whoever
    changes more opens a page of their own.
    """
    reader, pages = kept

    def at(path, viewport=book.WIDE, **options):
        key = path, tuple(options.items())
        if key not in pages:
            if any(path != other for other, _ in pages):
                reader.close()
                pages.clear()
            pages[key] = reader.open(path, wake=False, viewport=viewport, **options)
            pages[key].wait_for_load_state("networkidle")
            pages[key].evaluate("window.movedAtFirst = [...moved]")
            pages[key].evaluate(book.WAKE)
            pages[key].evaluate("window.unfolded = new Set(document.querySelectorAll('[open]'))")
        page = pages[key]
        page.set_viewport_size(viewport)
        page.emulate_media(media="screen", color_scheme="light")
        page.evaluate(
            "document.querySelectorAll('details').forEach((d) => (d.open = unfolded.has(d)));"
            "scrollTo(0, 0)"
        )
        return page

    yield at
    reader.check()
