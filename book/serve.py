"""What `mkdocs serve` does beside rendering: it checks each page that is saved, and outlives its errors.

It answers before the book is rendered: a page that is asked for is rendered next, and sent when it is there.

A check has a thread of its own and speaks to the terminal at once; the rendering of its page waits a
moment for it, and a page that computes for longer is rendered again when it is done. What did not
change is neither run nor rendered again. With UPDATE=1 outputs that differ are rewritten.
"""

import os
import re
import socket
import sys
import threading
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

from book import measured, parts
from book.ahead import Ahead
from literate import record, run, update
from literate.page import RUNS, Page, PageError, read

LONGEST = 60.0  # seconds that an answer waits for its page to be rendered
LINKED = re.compile(r"\]\(([^()\s#:]+)").findall
PATIENCE = 2.0  # seconds that the rendering of a page waits for its check
AROUND = 2  # lines shown before and after one that cannot be read
BOXED = (*RUNS, "output", "attention")
BOX = re.compile(
    r'<div class="language-(?:python|py)3? highlight">|<figure class="(?:output|attention)'
)


class Check(threading.Thread):
    """A check of a page as it was saved; `failures` reports, by line, on what does not hold."""

    def __init__(self, page: Page, served: "Served"):
        super().__init__(daemon=True)
        self.page, self.served, self.digest = page, served, record.digest(page)
        self.failures: dict[int, str] = {}
        self.done, self.late = threading.Event(), False

    def running(self) -> bool:
        """Wait a moment; say whether the check is still under way, and will have the page rendered again."""
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
                self.served.build_again()

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
    """The book of one `mkdocs serve`: its pages as last rendered, and the checks of those saved."""

    def __init__(self):
        self.checks: dict[Path, Check] = {}
        self.wrote: set[str] = set()  # digests of the pages that UPDATE=1 wrote
        self.updates = os.environ.get("UPDATE", "0") not in ("", "0")
        self.rendered: dict[str, tuple[tuple, dict]] = {}  # source → what it was, what became of it
        self.ahead: Ahead | None = None  # what renders the pages as they were at the start
        self.at_start: dict[str, tuple] = {}  # source → what it was then
        # Sources that are not rendered yet, in the site as it is built.
        self.missing: set[str] = set()
        self.sources: dict[str, str] = {}  # by address
        self.built = threading.Condition()  # held where `missing` is read or changed by a request
        self.missing_next: set[str] = set()  # the same, in the build under way
        self.server: LiveReloadServer | None = None
        self.checking = False  # whether what is saved is checked

    def watch(self, server: LiveReloadServer) -> None:
        """Answer requests from now on; check what is saved, where there is torch.

        Raises PluginError where the address is taken.
        """
        _check_free(server)
        self.server = server
        answer, root = server.serve_request, server.mount_path

        def wait_and_answer(environ: dict, start_response: Callable) -> Iterable[bytes]:
            self._wait_for(environ["PATH_INFO"].removeprefix(root) or "index.html")
            return answer(environ, start_response)

        server.set_app(wait_and_answer)
        if find_spec("torch") is None:
            return say("torch is not installed: pages are rendered, and not checked")
        self.checking = True
        return run.prepare()

    def _wait_for(self, address: str) -> None:
        """Return when the page at `address` is in the site, and have it rendered before all others."""
        source = self.sources.get(address)
        with self.built:
            if source not in self.missing or self.ahead is None:
                return
        self.ahead.ask(source)
        if self.ahead.is_done(source):
            self.build_again()
        with self.built:
            self.built.wait_for(lambda: source not in self.missing, LONGEST)

    def build_again(self) -> None:
        """Have the book rendered again, as if a page had been saved."""
        if self.server:
            with self.server._rebuild_cond:
                self.server._want_rebuild = True
                self.server._rebuild_cond.notify_all()

    def begin(self, pages: list[SitePage]) -> None:
        """Note that the site is built again, of these pages."""
        self.sources = {page.url or "index.html": page.file.src_uri for page in pages}
        self.missing_next = set()

    def end(self) -> None:
        """Note that the site is built; answer who waited for a page of it."""
        with self.built:
            self.missing = self.missing_next
            self.built.notify_all()

    def render(self, page: SitePage, files: Files, render: Callable[[], dict]) -> None:
        """Render a MkDocs page unless it is as before; show its error if it has one."""
        source = page.file.src_uri
        key = _state_of(page, files)
        is_first = self.at_start.setdefault(source, key) == key
        ahead = self.ahead if is_first and self.ahead and source in self.ahead else None
        known = self.rendered.get(source, ((),))[0] == key
        if not known and ahead and not ahead.is_done(source):
            self.missing_next.add(source)
            page.content, page.toc = "", TableOfContents([])
            return
        try:
            if not known:
                self.rendered[source] = key, ahead.take(source) if ahead else render()
        except Exception as error:
            self.rendered.pop(source, None)
            _show_error(page, str(error) or repr(error))
            return
        apply(self.rendered[source][1], page, files)
        if self.missing_next:
            page.links_to_anchors = None  # which may lead into pages that are not rendered yet
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
        fences = [fence for fence in program.fences if fence.language in BOXED]
        before = iter([left.pop(fence.line, "") for fence in fences])
        page.content = BOX.sub(lambda match: _box(next(before, "")) + match[0], page.content or "")
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
    """Return all that the rendering of a page depends on: files, and which of its links lead somewhere."""
    own, folder = Path(page.file.abs_src_path or ""), dirname(page.file.src_uri)
    text = own.read_text(encoding="utf-8", errors="replace")
    if own.suffix == ".py":
        beside = parts.made_of(own.stem, own.parents[1])
    else:
        snippets = Path(page.file.src_dir or "").parent / "snippets"
        included = {snippets / one for one in parts.INCLUDED.findall(text)}
        labs = {own.parent / one for one in measured.files(text)}
        beside = sorted(included | labs | set(own.parent.glob("drawings/*.svg")))
    links = {normpath(join(folder, one)) for one in LINKED(text)}
    texts = [(path, path.read_bytes()) for path in beside if path.is_file()]
    return text, texts, sorted(link for link in links if link in files.src_uris)


def apply(result: dict, page: SitePage, files: Files) -> None:
    """Set on a MkDocs page what rendering it resulted in, in another process or for another build."""
    links = {files.get_file_from_path(name): to for name, to in result["links_to_anchors"].items()}
    vars(page).update(result | {"meta": dict(result["meta"]), "links_to_anchors": links})


def _show_error(page: SitePage, message: str) -> None:
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
