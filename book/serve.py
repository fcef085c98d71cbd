"""What `mkdocs serve` does beside drawing: it checks each page that is saved, and outlives its errors.

A check has a thread of its own and speaks to the terminal at once; the drawing of its page waits a
moment for it, and a page that computes for longer is drawn again when it is done. What did not
change is neither run nor drawn again. With UPDATE=1 outputs that differ are rewritten.
"""

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from html import escape
from importlib.util import find_spec
from pathlib import Path

from mkdocs.livereload import LiveReloadServer
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page as SitePage
from mkdocs.structure.toc import TableOfContents

from literate import record, run, update
from literate.page import RUNS, Page, PageError, read

PATIENCE = 2.0  # seconds that the drawing of a page waits for its check
AROUND = 2  # lines shown before and after one that cannot be read
DRAWN = (*RUNS, "output", "attention")
SHOWN = re.compile(
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
        self.folder: tempfile.TemporaryDirectory | None = None  # a change in it draws the book anew

    def watch(self, server: LiveReloadServer) -> None:
        """Check what is saved from now on, where there is torch."""
        if find_spec("torch") is None:
            return say("torch is not installed: pages are drawn, and not checked")
        self.folder = tempfile.TemporaryDirectory(prefix="literate-")
        server.watch(self.folder.name)
        return run.prepare()

    def draw_again(self) -> None:
        """Have the book drawn again, as if a page had been saved."""
        assert self.folder, "a check starts where there is one"
        Path(self.folder.name, "done").write_text(str(len(self.checks)))

    def draw(self, page: SitePage, files: Files, draw: Callable[[], None]) -> None:
        """Call `draw` on a MkDocs page unless it is as before; draw its error if it has one."""
        source, root = page.file.src_uri, Path(page.file.src_dir or "").parent
        own = Path(page.file.abs_src_path or "")
        drawings = own.parent.glob("drawings/*.svg")
        texts = [own, *sorted(drawings), *sorted(root.glob("snippets/*.py"))]
        key = [path.read_bytes() for path in texts], sorted(files.src_uris)
        if self.drawn.get(source, ((),))[0] != key:
            page.meta, before = dict(page.meta), dict(vars(page))
            try:
                draw()
            except Exception as error:
                self.drawn.pop(source, None)
                return _draw_error(page, str(error) or repr(error))
            state = vars(page).items()
            new = {name: value for name, value in state if before.get(name) is not value}
            new["links_to_anchors"] = None  # which lead to the pages of this build
            self.drawn[source] = key, new
        vars(page).update(self.drawn[source][1])
        program = page.meta["prepared"].program
        return self._see(program) if program else None

    def _see(self, program: Page) -> None:
        """Check a page if it was saved since it was last seen, and is not known to hold."""
        known = self.checks.get(program.path)
        if known is None or known.digest != record.digest(program):
            check = self.checks[program.path] = Check(program, self)
            if self.folder and program.blocks and not record.of(program):
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


def _draw_error(page: SitePage, message: str) -> None:
    """Make a MkDocs page say what is wrong with its source, and where."""
    say(message)
    at = int(found[1]) if (found := re.search(r"\.md:(\d+): ", message)) else 0
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
