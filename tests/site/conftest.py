"""Builds the book once for all workers, serves it on loopback, and opens it in Chromium.

`BOOK_SITE=folder pytest tests/site` tests a site that was built before, as it stands.
"""

import os
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

from tests.site import book

# What these files ask of each page they read from its HTML; the others open it, and share it.
APART = (
    "test_build.py",
    "test_labs.py",
    "test_sharing.py",
    "test_take_away.py",
)


WINDOWS = ("wide", "paper", "unfolded", "narrow")  # in which order a page is looked at
# Seconds after which a test fails, and its worker ends with it, because a browser that stands still answers
# nobody; the other workers go on, and a new one takes its place. The site is built within this time, too.
STANDS_STILL = 600


def shared_page(nodeid):
    """The page that a test opens for others as well, or None."""
    named = [path for path in book.PAGES if f"[{path}]" in nodeid or f"-{path}]" in nodeid]
    file = nodeid.partition("::")[0].rpartition("/")[2]
    return max(named, key=len) if named and file not in APART else None


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.site)


@pytest.hookimpl(trylast=True)  # after pytest's own order
def pytest_collection_modifyitems(items):
    """What builds books of its own comes first, while another worker builds the site; pages last.

    Of a page, the tests that look at it in one window follow each other: each change of a window costs
    as much as several of them.
    """
    places = {path: number for number, path in enumerate(book.PAGES, 1)}

    def place(item):
        if "site" not in item.keywords:
            return 0, 0
        item.add_marker(pytest.mark.timeout(STANDS_STILL, method="thread"))
        if item.path.name == "test_serve.py":
            return -1, 0
        number = places.get(shared_page(item.nodeid), 0)
        mark = item.get_closest_marker("window")
        return number, WINDOWS.index(mark.args[0]) if number and mark else 0

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With -n, keep the tests of a shared page on one worker, and so those of a file."""
    from xdist.scheduler import LoadScopeScheduling

    class SiteScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return shared_page(nodeid) or nodeid.partition("::")[0]

        def remove_node(self, node):
            """A test that ended its worker has failed; xdist would hand it to each new one again."""
            ended = super().remove_node(node)
            for tests in self.workqueue.values():
                if ended in tests:
                    tests[ended] = True
            return ended

    return SiteScheduling(config, log)


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


@pytest.fixture(scope="session")
def unzipped(site, tmp_path_factory) -> Path:
    """The offline copy that the site offers, unpacked on a disk."""
    folder = tmp_path_factory.mktemp("offline")
    with zipfile.ZipFile(site / "attention-executed.zip") as archive:
        archive.extractall(folder)
    return folder / "attention-executed"


@pytest.fixture(scope="session")
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
# Keeps what moved and what was loaded until now.
AT_FIRST = """window.movedAtFirst = [...moved];
window.loadedAtFirst = performance.getEntriesByType("resource").map((entry) => entry.name);"""


# Goes to the top, and says whether the reader was elsewhere, or looked at other than a light screen.
AT_THE_TOP = """() => {
  const other = scrollY !== 0 || !matchMedia("screen and (prefers-color-scheme: light)").matches;
  scrollTo(0, 0);
  return other;
}"""


class Reader:
    """Opens pages of the site, each in a context of its own, and remembers what went wrong there."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address
        self.contexts, self.wrong = [], []

    def open(self, path, wake=True, **options):
        context = self.browser.new_context(
            **{
                "viewport": book.WIDE,
                "reduced_motion": "reduce",
                "permissions": ["clipboard-read", "clipboard-write"],
                **options,
            }
        )
        self.contexts.append(context)
        context.on("page", self._watch)
        context.add_init_script(WATCH_SHIFTS)
        page = context.new_page()
        page.set_default_timeout(30_000)  # a busy machine is no fault of a page
        page.goto(path if "://" in path else self.address + path)
        if options.get("java_script_enabled", True):
            page.evaluate(book.DRAWN)
            if wake:
                page.evaluate(book.WAKE)
        return page

    def click_to(self, path, **options):
        """Open home (or, for home, another page), and from there the page by a click in the menu."""
        page = self.open("symbols.html" if path == "index.html" else "index.html", **options)
        return self.go(page, path)

    def go(self, page, path):
        """Go from an open page to another by a click in the menu."""
        page.evaluate(book.CLICK, self.address + path)
        page.evaluate(book.DRAWN)
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


# A window of `look` remembers nothing of the page before.
FORGET = "try { localStorage.clear(); sessionStorage.clear() } catch { /* about:blank has none */ }"


@pytest.fixture(scope="session")
def kept(browser, address):
    """The reader whose windows `look` uses, and these windows by their options."""
    reader, windows = Reader(browser, address), {}
    yield reader, windows
    reader.close()


@pytest.fixture
def look(kept):
    """`look(path)` is a page as `visit` opens it, kept open for the next test that looks at it.

    Each test finds the window, the scheme, the medium and what is folded as they were, or with
    `unfolded` all of the text open; what the text asks to predict is shown. Whoever changes more opens a page of their own. The next page
    comes into the same window, which keeps nothing: no file, nothing stored.
    """
    reader, windows = kept

    def window_at(path, viewport, options):
        key = tuple(options.items())
        if key not in windows:
            page = windows[key] = reader.open("404.html", viewport=viewport, **options)
            page.add_init_script(FORGET)
            page.context.new_cdp_session(page).send(
                "Network.setCacheDisabled", {"cacheDisabled": True}
            )
        page = windows[key]
        if page.url.partition("#")[0] != reader.address + path:
            book.show(page, viewport, media="screen", color_scheme="light")
            page.goto(reader.address + path)
            page.evaluate(book.DRAWN)
            page.evaluate(book.QUIET)
            page.evaluate(AT_FIRST)
            page.evaluate(book.WAKE)
            page.evaluate(book.UNVEIL)
            page.evaluate(
                "document.querySelectorAll('[open]').forEach((d) => (d.dataset.first = ''))"
            )
        return page

    def at(path, viewport=book.WIDE, unfolded=False, **options):
        page = window_at(path, viewport, options)
        open_ones = f"[data-first], {book.FOLDED}" if unfolded else "[data-first]"
        changed = page.evaluate(book.FOLD, [open_ones, "details"])
        if changed:
            page.evaluate(book.DRAWN)  # what was opened is measured in a frame of its own
        if page.evaluate(AT_THE_TOP) or changed or page.viewport_size != viewport:
            book.show(page, viewport, media="screen", color_scheme="light")
        return page

    yield at
    reader.check()


@pytest.fixture(scope="session")
def walker(browser, address):
    """The reader who walks through the book, by clicks alone."""
    reader = Reader(browser, address)
    yield reader
    reader.close()


@pytest.fixture
def walk(walker):
    """`walk(path)` goes to a page by a click in the menu, from the page where the last test stood.

    It is the same window all along, unless it stands at that page already, as that test left it.
    """

    def to(path):
        if not walker.contexts:
            walker.open("index.html" if path != "index.html" else "symbols.html")
            walker.contexts[0].pages[0].evaluate("window.same = true")
        page = walker.contexts[0].pages[0]
        if page.url.partition("#")[0] == walker.address + path:
            return page
        try:
            return walker.go(page, path)
        except Exception:  # the next test starts afresh
            walker.close()
            raise

    yield to
    walker.check()


@pytest.fixture(scope="session")
def disk(browser, unzipped):
    """The reader of the offline copy, and the one window that they read it in."""
    reader = Reader(browser, unzipped.as_uri() + "/")
    yield reader, reader.open("404.html")
    reader.close()


@pytest.fixture
def from_disk(disk):
    """`from_disk(path)` opens a page of the offline copy, in the same window each time."""
    reader, page = disk

    def to(path):
        page.goto(reader.address + path)
        book.show(page)
        return page

    yield to
    reader.check()
