"""Builds the book once for all workers, serves it on loopback, and opens it in Chromium.

`BOOK_SITE=folder pytest tests/site` tests a site that was built before, as it stands.
"""

import os
import threading
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
    server = book.server_for(site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


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


@pytest.fixture
def visit(browser, address):
    """`visit(path, **options)` opens a page of the site in a context of its own.

    No request may leave for another host, no script may throw, and nothing may be missing, on the
    page and in whatever the test does there.
    """
    contexts, wrong = [], []

    def watch(page):
        page.on("request", lambda request: _own(request.url) or wrong.append(f"asks {request.url}"))
        page.on("websocket", lambda socket: wrong.append(f"opens {socket.url}"))
        page.on("pageerror", lambda error: wrong.append(f"throws {error}"))
        page.on(
            "response",
            lambda answer: (
                wrong.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None
            ),
        )

    def _own(url):
        return url.startswith((address, "data:", "blob:", "file:"))

    def open_page(path, **options):
        context = browser.new_context(
            **{"viewport": book.WIDE, "reduced_motion": "reduce", **options}
        )
        contexts.append(context)
        context.on("page", watch)
        # Whatever is asked of another host gets no answer here, so no test leans on one.
        context.route(lambda url: not _own(url), lambda route: route.abort())
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.goto(path if "://" in path else address + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong, "\n".join(dict.fromkeys(wrong))
