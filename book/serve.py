"""What `mkdocs serve` does beside drawing: it checks each page that is saved, and outlives its errors.

It answers before the book is drawn: a page that is asked for is drawn next, and sent when it is there.

A check has a thread of its own and speaks to the terminal at once; the drawing of its page waits a
moment for it, and a page that computes for longer is drawn again when it is done. What did not
change is neither run nor drawn again. With UPDATE=1 outputs that differ are rewritten.
"""

import contextlib
import os
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from html import escape
from importlib.util import find_spec
from pathlib import Path
from posixpath import dirname, join, normpath

from mkdocs.exceptions import PluginError
from mkdocs.livereload import LiveReloadServer
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page as SitePage
from mkdocs.structure.toc import TableOfContents
from watchdog.events import (
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.polling import PollingObserver

from book import parts
from book.ahead import Ahead
from literate import record, run, update
from literate.page import RUNS, Page, PageError, read

LONGEST = 60.0  # seconds that an answer waits for its page to be drawn
LINKED = re.compile(r"\]\(([^()\s#:]+)").findall
# A file that is only read says nothing: the build reads them all.
SAVED: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]
PATIENCE = 2.0  # seconds that the drawing of a page waits for its check
AROUND = 2  # lines shown before and after one that cannot be read
DRAWN = (*RUNS, "output", "attention")
SHOWN = re.compile(
    r'<div class="language-(?:python|py)3? highlight">|<figure class="(?:output|attention)'
)


class Watcher:
    """Says what is saved when the system tells of it; MkDocs looks at every file twice a second.

    A file by itself is looked at all the same: an editor that saves by another name leaves nothing of
    the one that the system would tell of. With POLL=1 all are, for folders that come from elsewhere.
    """

    def __init__(self, poll: bool):
        self.looks = PollingObserver(timeout=0.5)
        self.is_told = self.looks if poll else Observer()

    def _of(self, path: str) -> BaseObserver:
        return self.is_told if os.path.isdir(path) else self.looks

    def schedule(
        self, handler: FileSystemEventHandler, path: str, recursive: bool
    ) -> ObservedWatch:
        return self._of(path).schedule(handler, path, recursive=recursive, event_filter=SAVED)

    def unschedule(self, watch: ObservedWatch) -> None:
        self._of(watch.path).unschedule(watch)

    def start(self) -> None:
        for observer in {self.is_told, self.looks}:
            observer.start()

    def stop(self) -> None:
        for observer in {self.is_told, self.looks}:
            observer.stop()

    def join(self) -> None:
        for observer in {self.is_told, self.looks}:
            observer.join()


def listen(server: LiveReloadServer) -> None:
    """Let a `Watcher` watch what `server` watches, and will."""
    paths = list(server._watched_paths)
    for path in paths:
        while path in server._watched_paths:
            server.unwatch(path)
    server.observer = Watcher(os.environ.get("POLL", "0") not in ("", "0"))  # type: ignore[assignment]
    for path in paths:
        server.watch(path)


class Check(threading.Thread):
    """A check of a page as it was saved; `failures` reports, by line, on what does not hold."""

    def __init__(self, page: Page, served: "Served"):
        super().__init__(daemon=True)
        self.page, self.served, self.digest = page, served, record.digest(page)
        self.failures: dict[int, str] = {}
        self.done, self.late = threading.Event(), False

    def running(self) -> bool:
        """Wait a moment; say whether the check is still under way, and will have the page redrawn."""
        self.late = bool(self.ident) and not self.done.wait(PATIENCE)
        return self.late and not self.done.is_set()

    def run(self) -> None:
        try:
            self._check()
        except (update.Refused, PageError, RuntimeError, OSError) as error:
            say(f"{self.page.name}: left as it was\n{error}")
        finally:
            self.done.set()
            if self.late:
                self.served.draw_again()

    def _check(self) -> None:
        self.failures = record.check(self.page)
        if self.served.checks[self.page.path] is not self:  # it was saved again meanwhile
            return
        outputs = [step.output.line for step in self.page.steps if step.output and step.is_output]
        hold = f"{len(set(outputs) - set(self.failures))} of {len(outputs)} outputs hold"
        say("\n".join([*self.failures.values(), f"{self.page.name}: {hold}"]))
        # Once: an output that is another each time would be rewritten for ever.
        if self.failures and self.served.updates and self.digest not in self.served.wrote:
            say(f"{self.page.name}: outputs updated: {update.update(self.page)}")
            self.served.wrote.add(record.digest(read(self.page.path)))


class Served:
    """The book of one `mkdocs serve`: its pages as last drawn, and the checks of those saved."""

    def __init__(self):
        self.checks: dict[Path, Check] = {}
        self.wrote: set[str] = set()  # digests of the pages that UPDATE=1 wrote
        self.updates = os.environ.get("UPDATE", "0") not in ("", "0")
        self.drawn: dict[str, tuple[tuple, dict]] = {}  # source → what it was, what became of it
        self.ahead: Ahead | None = None  # what draws the pages as they were at the start
        self.first: dict[str, tuple] = {}  # source → what it was then
        self.pending: set[str] = set()  # sources that are not drawn yet, in the site as it is built
        self.sources: dict[str, str] = {}  # by address
        self.built = threading.Condition()  # held where `pending` is read or changed by a request
        self.left: set[str] = set()  # the same, in the build under way
        self.folder = tempfile.TemporaryDirectory(prefix="serve-")  # a change draws the book anew
        self.checking = False  # whether what is saved is checked

    def watch(self, server: LiveReloadServer) -> None:
        """Answer requests from now on; check what is saved, where there is torch.

        Raises PluginError where the address is taken.
        """
        _check_free(server)
        listen(server)
        server.watch(self.folder.name)
        answer, root = server.serve_request, server.mount_path

        def wait_and_answer(environ: dict, start_response: Callable) -> Iterable[bytes]:
            self._wait_for(environ["PATH_INFO"].removeprefix(root) or "index.html")
            return answer(environ, start_response)

        server.set_app(wait_and_answer)
        if find_spec("torch") is None:
            return say("torch is not installed: pages are drawn, and not checked")
        self.checking = True
        return run.prepare()

    def _wait_for(self, address: str) -> None:
        """Return when the page at `address` is in the site, and have it drawn before all others."""
        source = self.sources.get(address)
        with self.built:
            if source not in self.pending or self.ahead is None:
                return
        self.ahead.ask(source)
        if self.ahead.is_done(source):
            self.draw_again()
        with self.built:
            self.built.wait_for(lambda: source not in self.pending, LONGEST)

    def draw_again(self) -> None:
        """Have the book drawn again, as if a page had been saved."""
        with contextlib.suppress(FileNotFoundError):  # as the server ends
            Path(self.folder.name, "done").write_text(str(time.monotonic()))

    def begin(self, pages: list[SitePage]) -> None:
        """Note that the site is built again, of these pages."""
        self.sources = {page.url or "index.html": page.file.src_uri for page in pages}
        self.left = set()

    def end(self) -> None:
        """Note that the site is built; answer who waited for a page of it."""
        with self.built:
            self.pending = self.left
            self.built.notify_all()

    def draw(self, page: SitePage, files: Files, draw: Callable[[], dict]) -> None:
        """Draw a MkDocs page unless it is as before; draw its error if it has one."""
        source = page.file.src_uri
        key = _state_of(page, files)
        is_first = self.first.setdefault(source, key) == key
        ahead = self.ahead if is_first and self.ahead and source in self.ahead else None
        known = self.drawn.get(source, ((),))[0] == key
        if not known and ahead and not ahead.is_done(source):
            self.left.add(source)
            page.content, page.toc = "", TableOfContents([])
            return
        try:
            if not known:
                self.drawn[source] = key, ahead.take(source) if ahead else draw()
        except Exception as error:
            self.drawn.pop(source, None)
            _draw_error(page, str(error) or repr(error))
            return
        take(page, files, self.drawn[source][1])
        if self.left:
            page.links_to_anchors = None  # which may lead into pages that are not drawn yet
        if program := page.meta["prepared"].program:
            self._see(program, new=ahead is None)

    def _see(self, program: Page, new: bool) -> None:
        """Check a page if it is `new` or was saved since it was last seen, and is not known to hold."""
        known = self.checks.get(program.path)
        if known and known.digest == record.digest(program):
            return
        check = self.checks[program.path] = Check(program, self)
        saved = self.checking and (new or known is not None)
        if not (saved and program.blocks) or record.of(program):
            return
        if renewed := record.renew(program):
            say(f"{program.name}: its prose changed; {renewed.outputs} outputs hold as before")
        else:
            check.start()

    def mark(self, page: SitePage, program: Page) -> dict[str, object]:
        """Draw each failure of a MkDocs page where it stands; return what the page's mark must say."""
        check = self.checks[program.path]
        running, left = check.running(), dict(check.failures)
        fences = [fence for fence in program.fences if fence.language in DRAWN]
        before = iter([left.pop(fence.line, "") for fence in fences])
        page.content = SHOWN.sub(
            lambda match: _box(next(before, "")) + match[0], page.content or ""
        )
        page.content = _box("\n".join(left.values())) + page.content
        return {"failing": len(check.failures), "running": running}


def _check_free(server: LiveReloadServer) -> None:
    """Raise PluginError where something else listens at the address of `server`."""
    host, port = str(server.server_address[0]), server.server_address[1]
    with socket.socket(server.address_family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, server.allow_reuse_address)
        try:
            probe.bind((host, port))
        except OSError as error:
            at = f"{host}:{port} cannot be served at: {error.strerror}"
            raise PluginError(f"{at}; name another, make serve ADDRESS=127.0.0.1:8001") from None


def _state_of(page: SitePage, files: Files) -> tuple:
    """Return all that the drawing of a page depends on: files, and which of its links lead somewhere."""
    own, folder = Path(page.file.abs_src_path or ""), dirname(page.file.src_uri)
    text = own.read_text(encoding="utf-8", errors="replace")
    if own.suffix == ".py":
        beside = parts.made_of(own.stem, own.parents[1])
    else:
        snippets = Path(page.file.src_dir or "").parent / "snippets"
        included = {snippets / one for one in parts.INCLUDED.findall(text)}
        beside = sorted(included | set(own.parent.glob("drawings/*.svg")))
    links = {normpath(join(folder, one)) for one in LINKED(text)}
    texts = [(path, path.read_bytes()) for path in beside if path.is_file()]
    return text, texts, sorted(link for link in links if link in files.src_uris)


def take(page: SitePage, files: Files, drawn: dict) -> None:
    """Set on a MkDocs page what was `drawn`, in another process or for another build."""
    links = {files.get_file_from_path(name): to for name, to in drawn["links_to_anchors"].items()}
    vars(page).update(drawn | {"meta": dict(drawn["meta"]), "links_to_anchors": links})


def _draw_error(page: SitePage, message: str) -> None:
    """Show, in place of a MkDocs page, what is wrong with its source, and where."""
    say(message)
    at = int(place[1]) if (place := re.search(r"\.md:(\d+): ", message)) else 0
    text = Path(page.file.abs_src_path or "").read_text(encoding="utf-8", errors="replace")
    lines = list(enumerate(text.split("\n"), 1))[max(at - AROUND - 1, 0) : at + AROUND]
    around = "".join(f"\n{'▸' if n == at else ' '}{n:5} | {line}" for n, line in lines if at)
    page.toc = TableOfContents([])
    page.content = f"<h1>{escape(page.file.name)}</h1>{_box(message + around)}"


def _box(report: str) -> str:
    return f'<pre class="differs" role="note">{escape(report)}</pre>' if report else ""


def say(message: str) -> None:
    """Say it on the terminal, at once."""
    print(message, file=sys.stderr, flush=True)
