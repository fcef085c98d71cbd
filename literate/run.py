"""Run a page's blocks in a process of its own, and keep what each printed and raised.

A page gets a fresh process, forked from one that has imported torch and computed nothing, or, where
forking is missing or unsafe, spawned. So nothing of a page can reach another, or this process,
which holds the clock and ends whatever does not end by itself.
"""

import atexit
import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from literate import child, settings
from literate.page import Block, Page, files, name_of

LIMIT = 60.0  # seconds that a block may take, where nothing else is said
GRACE = 5.0  # seconds that a page has to end after its last block
START = 120.0  # seconds that a process may take to import torch
FORKS = sys.platform == "linux"

FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)  # of faulthandler
PLACE = re.compile(r'^(?P<before>[ |]*File )"(?P<file>.*)", line (?P<line>\d+)', re.MULTILINE)


def fetched(root: Path, home: Path) -> dict[str, str]:
    """Put the files of the book at `root` where torch keeps what it has fetched, below `home`.

    Returns the variable of the environment that tells torch so; no page then asks the network.
    """
    folder = home / "hub" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    for file in files(root):
        shutil.copy(file, folder)
    return {"TORCH_HOME": str(home)}


def limit(page: Page) -> float:
    """Return how many seconds a block of `page` may take.

    LITERATE_LIMIT in the environment says so for every page; `timeout` of [tool.literate] in the
    pyproject.toml of the project is one number, or a table of one for each of some pages.
    """
    if asked := os.environ.get("LITERATE_LIMIT"):
        return float(asked)
    timeout = settings.tool(page.root, "literate")[0].get("timeout", LIMIT)
    return float(timeout.get(page.key, LIMIT) if isinstance(timeout, dict) else timeout)


def python_path(page: Page) -> list[str]:
    """Return the folders that the project has pytest put on the path of imports."""
    pytest, folder = settings.tool(page.root, "pytest")
    named = pytest.get("ini_options", {}).get("pythonpath", [])
    names = named.split() if isinstance(named, str) else named
    return [str(folder / name) for name in names]


class NotStarted(Exception):
    """No process could be started for a page; the message says what was tried."""


@dataclass
class Result:
    """What one block did: its printed text, and how it ended.

    `raised` is the name of the exception that ended it, or ""; where no exception did, it is what
    did, in several words. `last_line` is what a traceback ends in, the whole message; `traceback` its
    text with true page lines; `line` the page's line that is to blame. `unshown` is the line of a
    value in which the block ends, shown in a notebook alone, or 0; `errors` is what it wrote to
    standard error. Where the page had ended before, it did not run: `ran` is False.
    """

    printed: str = ""
    raised: str = ""
    last_line: str = ""
    traceback: str = ""
    line: int = 0
    unshown: int = 0
    errors: str = ""
    ran: bool = True


class Run:
    """One run of a page. Blocks run once, in order, when first asked for; the page ends with its last.

    A block that fails ends nothing: the next one runs, as far as the process of the page is there.
    """

    def __init__(self, page: Page, solutions: bool = True):
        self.page = page
        self.blocks = [b for b in page.steps if solutions or not b.solution]
        self.last = next((b for b in reversed(self.blocks) if not b.skip), None)
        self.results: list[Result] = []
        self.failed: list[Block] = []  # those that ended as they did not announce
        self.limit = limit(page)
        self.process: _Process | None = None
        self.lacking = ""  # why there is no process, or none any more
        self.folder = tempfile.TemporaryDirectory(prefix="literate-", ignore_cleanup_errors=True)
        self.printed, self.errors = (
            io.FileIO(Path(self.folder.name, name), "w+") for name in ("printed", "errors")
        )

    def upto(self, block: Block) -> Result:
        """Run the page up to and including `block`; return its Result."""
        place = self.blocks.index(block)
        for one in self.blocks[len(self.results) : place + 1]:
            result = Result() if one.skip else self._run(one)
            if one is self.last and result.raised in ("", one.raises):
                result = self._end(one) or result
            if result.raised not in ("", one.raises):
                self.failed.append(one)
            self.results.append(result)
        return self.results[place]

    def all(self) -> list[Result]:
        """Run every block; return the Results in order."""
        return [self.upto(block) for block in self.blocks]

    def close(self) -> None:
        """End the page, wherever it is, and delete its folder."""
        if self.process:
            self.process.close()
        self.printed.close()
        self.errors.close()
        self.folder.cleanup()

    def _run(self, block: Block) -> Result:
        if not (self.process or self.lacking):
            try:
                self.process = self._start()
            except NotStarted as error:
                self.lacking = f"the page was not run: {error}"
        if self.lacking or not self.process:
            return Result(raised="no process", last_line=self.lacking, line=block.line, ran=False)
        asked = {"code": block.code, "start": block.start, "echo": block.is_session}
        answer = self.process.ask(asked, self.limit)
        if answer is None:
            at = f"the block at {name_of(self.page.path)}:{block.line}"
            return self._stopped(block, f"{at} ran longer than {self.limit:g} s")
        if "ended" in answer:
            what = f"the block on line {block.line} ended the process of its page"
            return self._stopped(block, f"{what} ({_status(answer['ended'])})")
        text, line = self._relabel(answer["traceback"], block)
        result = Result(self._printed(), answer["raised"], answer["last_line"], text, line)
        result.errors = self._errors(block)
        if answer["unshown"] and not block.raises:
            file, shown = self.page.origin(answer["unshown"])
            result.unshown = shown if file == self.page.path else block.line
        elif block.fill and not answer["raised"]:
            try:
                result.printed = block.fill(block.fence.text, json.loads(result.printed))
            except ValueError as error:
                result.raised, result.last_line = "ValueError", str(error)
        return result

    def _start(self) -> "_Process":
        folder = Path(self.folder.name).resolve()
        for name in ("page", "temporary"):
            (folder / name).mkdir()
        code = [b.code for b in self.blocks if not (b.raises or b.fill or b.skip)]
        (folder / "page.py").write_text("\n".join(code), encoding="utf-8")
        environ = os.environ | child.ENVIRONMENT | fetched(self.page.root, folder / "torch")
        environ["TMPDIR"] = str(folder / "temporary")
        page = {"path": str(self.page.path), "source": self.page.source, "folder": str(folder)}
        return _Process(page | {"environ": environ, "imports": python_path(self.page)})

    def _end(self, last: Block) -> Result | None:
        """End the page as its interpreter would; return a Result if it does not end well."""
        if not self.process or self.process.over:
            return None
        answer = self.process.ask(None, GRACE)
        if answer is None:
            what = "a thread or an exit handler runs on"
            return self._stopped(last, f"the page did not end after its last block: {what}")
        if "ended" in answer:
            what = "the page's exit handlers ended its process"
            return self._stopped(last, f"{what} ({_status(answer['ended'])})")
        if printed := self._printed():
            return self._stopped(last, f"after its last block the page printed {printed[:60]!r}")
        return None

    def _stopped(self, block: Block, what: str) -> Result:
        """Return the Result of a `block` whose process was ended, or ended itself."""
        self.lacking = f"not run: the page ended with the block on line {block.line}"
        stack, path = Path(self.folder.name, "stack"), str(self.page.path)
        words = stack.read_text(errors="replace") if stack.exists() else ""
        for file in (path, child.__file__):  # which faulthandler writes in ASCII
            words = words.replace(file.encode("ascii", "backslashreplace").decode(), file)
        text, lines = "", self.page.source.split("\n")
        for file, line, name in FRAME.findall(words):  # the innermost comes first
            code = f"    {lines[int(line) - 1].strip()}\n" if file == path else ""
            if file != child.__file__:
                text = f'  File "{file}", line {line}, in {name}\n{code}{text}'
        text, line = self._relabel(text and f"Traceback (most recent call last):\n{text}", block)
        errors = self._errors(block)
        return Result(self._printed(), "the end of its process", what, text, line, errors=errors)

    def _relabel(self, text: str, block: Block) -> tuple[str, int]:
        """Return a traceback that names the files a reader would open, and the page's line in it."""
        line = block.line

        def place(match: re.Match) -> str:
            nonlocal line
            file, at = Path(match["file"]), int(match["line"])
            if file == self.page.path:
                file, at = self.page.origin(at)
                line = at if file == self.page.path else line
            return f'{match["before"]}"{name_of(file)}", line {at}'

        return PLACE.sub(place, text), line

    def _printed(self) -> str:
        """Return what the page has printed since this was last asked."""
        return self.printed.readall()[: child.MOST_PRINTED].decode("utf-8", "backslashreplace")

    def _errors(self, block: Block) -> str:
        """Return what the page wrote to standard error since this was last asked, as `_relabel` does."""
        text = self.errors.readall()[: child.MOST_PRINTED].decode("utf-8", "backslashreplace")
        text = self._relabel(text, block)[0]
        return text.replace(str(self.page.path), name_of(self.page.path))


def prepare() -> None:
    """Start the fork server, so that the first page does not wait until torch is imported."""
    if FORKS:
        _fork_server()


def _status(status: int | None) -> str:
    """Say what the exit status of a process means; None is an unknown status."""
    if status is None or status >= 0:
        return f"exit status {'unknown' if status is None else status}"
    return signal.Signals(-status).name


class _Process:
    """A page in a process of its own, forked or spawned, and our end of the connection to it."""

    def __init__(self, page: dict[str, Any]):
        self.over = False
        self.spawned: subprocess.Popen | None = None
        self.connection, theirs = Pipe()
        with theirs:
            if FORKS:
                server = _fork_server()
                server.fork(theirs)
            else:
                self.spawned = _python("spawn", theirs.fileno())
        self.pid = (self._receive(START) or {}).get("pid", 0)
        if not self.pid:
            self.connection.close()
            started = self.spawned or server.process
            started.kill()
            started.wait()
            raise NotStarted("Python did not start, or could not import torch")
        self._send(page)

    def ask(self, request: dict | None, seconds: float) -> dict | None:
        """Send `request` and return the answer; None, and the end of the process, after `seconds`.

        {"ended": its exit status} is the answer of a process that ended by itself. Asked for nothing,
        a page ends, and what it left running is killed.
        """
        self._send(request)
        answer = self._receive(seconds)
        if answer is None:
            self._kill(
                getattr(signal, "SIGABRT", signal.SIGTERM)
            )  # faulthandler writes where it was
        elif request is None and not self.over:
            self._receive(START)
        return answer

    def close(self) -> None:
        """End the process, whatever it does."""
        self._kill()
        self.connection.close()

    def _send(self, message: dict | None) -> None:
        with contextlib.suppress(OSError):  # it has ended, and its last word is waiting
            self.connection.send_bytes(json.dumps(message).encode())

    def _receive(self, seconds: float) -> dict | None:
        try:
            if not self.connection.poll(seconds):
                return None
            message = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError, ValueError):
            message = {"ended": _reap(self.spawned) if self.spawned else None}
        self.over = "ended" in message
        return message

    def _kill(self, *signals: int) -> None:
        for number in (*signals, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if not self.over:
                with contextlib.suppress(OSError):
                    os.kill(self.pid, number)
                while not self.over and self._receive(GRACE) is not None:
                    pass


def _reap(process: subprocess.Popen) -> int:
    """Wait for a spawned page, kill what of its process group still runs, and return its exit status."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    process.kill()
    status = process.wait()
    with contextlib.suppress(AttributeError, OSError):  # no such group, or no groups
        os.killpg(process.pid, signal.SIGKILL)
    return status


def _python(kind: str, handle: int) -> subprocess.Popen:
    """Start child.py as a `kind` of process, which inherits one end of a connection as `handle`.

    It has no standard input and no terminal.
    """
    inherited: dict[str, Any]
    if sys.platform == "win32":
        os.set_handle_inheritable(handle, True)
        inherited = {"close_fds": False, "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    else:
        inherited = {"pass_fds": [handle], "start_new_session": True}
    command = [sys.executable, "-P", child.__file__, kind, str(handle)]
    null, environ = subprocess.DEVNULL, os.environ | child.ENVIRONMENT
    try:
        return subprocess.Popen(command, env=environ, stdin=null, stdout=null, **inherited)
    except OSError as error:
        raise NotStarted(f"{sys.executable} did not start: {error.strerror}") from None


class _ForkServer:
    """The process that has imported torch and computed nothing, and our end of the socket to it."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as undone:
            undone.enter_context(self.control)
            self.process = _python("fork", theirs.fileno())
            undone.pop_all()
        atexit.register(self.close)

    def fork(self, connection: Connection) -> None:
        """Have a page forked on this connection, which ends where this process has ended."""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self.control, [b"page"], [connection.fileno()])

    def close(self) -> None:
        """Wait for it to kill what its pages left, and to end."""
        self.control.close()
        self.process.wait()


_fork_servers: list[_ForkServer] = []  # of this process: the last one that was started, if any


def _fork_server() -> _ForkServer:
    """Return the fork server of this process; start one where there is none, or none any more."""
    if not _fork_servers or _fork_servers[-1].process.poll() is not None:
        _fork_servers[:] = [_ForkServer()]
    return _fork_servers[-1]
