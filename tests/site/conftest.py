"""Builds the book once for all workers, serves it on loopback, and opens it in browsers.

`BOOK_SITE=folder pytest tests/site` tests a site that was built before, as it stands.
"""

import os
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

from tests.site import book, browsers

# Seconds after which a test fails, and its worker ends with it, because a browser that stands still answers
# nobody; the other workers go on, and a new one takes its place. The site is built within this time, too.
STANDS_STILL = 600


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.site)
    item.add_marker(pytest.mark.timeout(STANDS_STILL, method="thread"))


def pytest_collection_modifyitems(items):
    """What builds books of its own comes first, while another worker builds the site."""
    items.sort(key=lambda item: item.path.name not in ("test_serve.py", "test_figures.py"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With -n, keep the tests of a file on one worker, which has its books and browsers; a page goes to any."""
    from xdist.scheduler import LoadScopeScheduling

    class SiteScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return nodeid if "test_pages.py" in nodeid else nodeid.partition("::")[0]

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


def lacking(why):
    """Skip a test whose browser is not here, with one clear reason; under CI=true fail."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)


@pytest.fixture(scope="session")
def browser():
    """Chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        path = browsers.chromium_path(started)
        if path is None:
            lacking(browsers.NO_BROWSER)
        launched = started.chromium.launch(executable_path=path, args=browsers.FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def reader(browser, address):
    """A reader of the site, of whose pages nothing may go wrong.

    No request may leave for another host, no script may throw, and nothing may be missing, on the
    page and in whatever the test does there.
    """
    reader = browsers.Reader(browser, address)
    yield reader
    reader.close()


@pytest.fixture
def visit(reader):
    """`visit(path, **options)` opens a page of the site anew."""
    return reader.open


@pytest.fixture
def arrive(reader):
    """`arrive(path, **options)` comes to a page by a click in another, after which scripts must find what is new."""
    return reader.click_to


@pytest.fixture(scope="module", params=browsers.ENGINES)
def engine(request, tmp_path_factory):
    """Firefox, and WebKitGTK."""
    try:
        with browsers.ENGINES[request.param](tmp_path_factory.mktemp(request.param)) as engine:
            yield engine
    except browsers.Missing as missing:
        lacking(str(missing))


@pytest.fixture(scope="session")
def page_with(site):
    """`page_with(mark)` is the page whose HTML holds `mark` most often."""

    def found(mark):
        count = {path: (site / path).read_text(encoding="utf-8").count(mark) for path in book.PAGES}
        most = max(count, key=count.get)
        assert count[most], f"no page has {mark}"
        return most

    return found
