"""Run a page's blocks in a process of its own, and keep what each printed and raised.

A page gets a fresh process, forked from one that has imported torch and computed nothing, or, where
forking is missing or unsafe, spawned. So nothing of a page can reach another, or this process,
which holds the clock and ends whatever does not end by itself. Under `--pdb` alone pages run in
pytest's own process, where a debugger needs them; what such a page changes, the next one meets.
"""

import atexit
import builtins
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
import time
import warnings
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any

from literate import child
from literate.page import Block, Page, files, name_of

LIMIT = float(os.environ.get("LITERATE_LIMIT", "60"))  # seconds a block may take
GRACE = 5.0  # seconds that threads and processes have to end when their page does, LIMIT at most
START = 120.0  # seconds that a process may take to import torch
FORKS = sys.platform == "linux"

FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)  # of faulthandler
PLACE = re.compile(r'^(?P<before>[ |]*File )"(?P<file>.*)", line (?P<line>\d+)', re.MULTILINE)
OURS = re.compile(
    rf'^[ |]*File "{re.escape(child.__file__)}".*\n(?:[ |]* {{4}}.*\n)*', re.MULTILINE
)


def fetched(root: Path, home: Path) -> dict[str, str]:
    """Put the files of the book at `root` where torch keeps what it has fetched, below `home`.

    Returns the variable of the environment that tells torch so; no page then asks the network.
    """
    folder = home / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    for file in files(root):
        shutil.copy(file, folder)
    return {"TORCH_HOME": str(home)}


class NotStarted(Exception):
    """No process could be had for a page; the message says what was tried."""


@dataclass
class Result:
    """What one block did: its printed text, and how it ended.

    `raised` is the name of the exception that ended it, or ""; where no exception did, it is what
    did, in several words. `last_line` is the line a traceback ends in; `traceback` its text with
    true page lines; `line` the page's line that is to blame; `broken` how the block went round
    stdout, or what it shows in a notebook alone.
    """

    printed: str = ""
    raised: str = ""
    last_line: str = ""
    traceback: str = ""
    line: int = 0
    broken: str = ""


class Run:
    """One run of a page. Blocks run once, in order, when first asked for; the page ends with its last.

    With `here` the page runs in this process, for a debugger: nothing limits it, and what it
    changes stays changed.
    """

    def __init__(self, page: Page, solutions: bool = True, here: bool = False):
        self.page = page
        self.blocks = [b for b in page.steps if solutions or not b.solution]
        self.results: list[Result] = []
        self.failed: Block | None = None  # the first that ended as it did not announce
        self.here = here
        self.process: _Here | _Process | None = None
        self.unstarted = ""  # why there is no process for the page
        self.folder = tempfile.TemporaryDirectory(prefix="literate-", ignore_cleanup_errors=True)
        self.printed = io.FileIO(Path(self.folder.name, "printed"), "w+")
        self.alive: dict[str, int] = {}  # thread or process → line of the block that started it

    def upto(self, block: Block) -> Result:
        """Run the page up to and including `block`; return its Result."""
        place = self.blocks.index(block)
        while len(self.results) <= place:
            self._run(self.blocks[len(self.results)])
        return self.results[place]

    def all(self) -> list[Result]:
        """Run every block; return the Results in order."""
        return [self.upto(block) for block in self.blocks]

    def inside(self, line: int) -> TracebackType | None:
        """Return a traceback that leads into a page that runs here, for a debugger; else None."""
        return self.process.inside(line) if isinstance(self.process, _Here) else None

    def close(self) -> None:
        """End the page, wherever it is, and delete its folder."""
        if self.process:
            self.process.close()
        self.printed.close()
        self.folder.cleanup()

    def _run(self, block: Block) -> None:
        self._start()
        if not self.process:
            result = Result(raised="no start", last_line=self.unstarted, line=block.line)
        elif self.process.over:
            result = Result(raised="an end before it", last_line="not run", line=block.line)
        else:
            told = {"code": block.code, "start": block.start, "line": block.line}
            result = self._result(block, self.process.ask(told, LIMIT))
        if block is self.blocks[-1] and result.raised in ("", block.raises):
            result = self._end(block) or result
        if self.process and result.raised and result.raised != block.raises:
            self.failed = self.failed or block
        self.results.append(result)

    def _start(self) -> None:
        """Start the page with its first block. What could not be started is not tried again."""
        if not (self.process or self.unstarted):
            try:
                self.process = self._begin()
            except (NotStarted, ImportError) as error:  # the latter where the page runs here
                self.unstarted = f"the page was not run: {error}"

    def _begin(self) -> "_Here | _Process":
        folder = Path(self.folder.name).resolve()
        (folder / "page").mkdir(exist_ok=True)
        home = fetched(self.page.root, folder / "torch")
        code = [b.code for b in self.blocks if not (b.raises or b.fill)]
        (folder / "page.py").write_text("\n".join(code), encoding="utf-8")
        told = {"path": str(self.page.path), "source": self.page.source, "folder": str(folder)}
        if self.here:
            os.environ.update(home)
            return _Here(**told)
        return _Process(**told, environ=os.environ | child.ENVIRONMENT | home)

    def _result(self, block: Block, said: dict | None) -> Result:
        """Return what came of `block`, given what its process said; None when it said nothing."""
        if said is None:
            what = f"the block at {self.page.name}:{block.line} ran longer than {LIMIT:g} s"
            return self._stopped(block, what)
        if "ended" in said:
            what = f"the block on line {block.line} ended the process of its page"
            return self._stopped(block, f"{what} ({_ending(said['ended'])})")
        self.alive = {name: self.alive.get(name, block.line) for name in said["alive"]}
        for warning in said["warned"]:
            self._warn(*warning)
        if strayed := self._strayed():
            return strayed
        text, line = self._relabel(said["traceback"], block)
        result = Result(self._printed(), said["raised"], said["last_line"], text, line)
        if said["broken"]:
            result.broken, result.line = said["broken"], block.line
        elif said["unshown"] and not block.raises:
            result.broken, at = said["unshown"]
            file, at = self.page.origin(at)
            result.line = at if file == self.page.path else line
        elif block.fill and not said["raised"]:
            try:
                result.printed = block.fill(block.fence.text, json.loads(result.printed))
            except ValueError as error:
                result.raised, result.last_line = "ValueError", str(error)
        return result

    def _end(self, last: Block) -> Result | None:
        """End the page as its interpreter would; return a Result if it does not end well."""
        assert self.process, "the last block ran there"
        said = self.process.ask(None, min(GRACE, LIMIT))
        if said is None:
            return self._outlived(last, list(self.alive) or ["an exit handler"])
        if "ended" in said:
            what = f"the page's exit handlers ended its process ({_ending(said['ended'])})"
            return self._stopped(last, what)
        left = self.process.left()
        if printed := self._printed():
            return self._stopped(last, f"after its last block the page printed {printed[:60]!r}")
        return self._strayed() or (self._outlived(last, left) if left else None)

    def _outlived(self, last: Block, names: list[str]) -> Result:
        what = f"{', '.join(names)} outlives the page, which must end what it starts"
        line = min((self.alive[name] for name in names if name in self.alive), default=last.line)
        return Result(raised="what was left running", last_line=what, line=line)

    def _strayed(self) -> Result | None:
        """Return a Result if a process that a block forked ran on past the end of that block."""
        lines = [int(mark.suffix[1:]) for mark in Path(self.folder.name).glob("strayed.*")]
        what = "the block forked, and the new process ran past its end; end it with os._exit"
        return Result(raised="a fork", last_line=what, line=min(lines)) if lines else None

    def _stopped(self, block: Block, what: str) -> Result:
        """Return the Result of a `block` whose process was ended, or ended itself."""
        stack, path = Path(self.folder.name, "stack"), str(self.page.path)
        words = stack.read_text(errors="replace") if stack.exists() else ""
        for file in (path, child.__file__):  # which faulthandler writes in ASCII
            words = words.replace(file.encode("ascii", "backslashreplace").decode(), file)
        text, lines = "", self.page.source.split("\n")
        for file, line, name in FRAME.findall(words):  # the innermost comes first
            code = f"    {lines[int(line) - 1].strip()}\n" if file == path else ""
            text = f'  File "{file}", line {line}, in {name}\n{code}{text}'
        text, line = self._relabel(text and f"Traceback (most recent call last):\n{text}", block)
        return Result(self._printed(), "the end of its process", what, text, line)

    def _relabel(self, text: str, block: Block) -> tuple[str, int]:
        """Return a traceback that names the files a reader would open, and the page's line in it."""
        line = block.line

        def place(match: re.Match) -> str:
            nonlocal line
            file, at = match["file"], int(match["line"])
            if file == str(self.page.path):
                file, at = self.page.origin(at)
                line = at if file == self.page.path else line
            return f'{match["before"]}"{name_of(file, self.page.root)}", line {at}'

        return PLACE.sub(place, OURS.sub("", text)), line

    def _printed(self) -> str:
        """Return what the page has printed since this was last asked."""
        return self.printed.read().decode("utf-8", "backslashreplace")

    def _warn(self, message: str, category: str, file: str, line: int) -> None:
        """Warn here of what the page warned of there; no filter of this process makes it an error."""
        kind = getattr(builtins, category, UserWarning)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn_explicit(message, kind, name_of(file, self.page.root), line)


def solutions_come_early(page: Page) -> bool:
    """Say whether a block that is no solution stands after one that is: it must not lean on it."""
    kinds = [block.solution for block in page.blocks]
    return True in kinds and False in kinds[kinds.index(True) :]


def prepare() -> None:
    """Start what pages are forked from, so that the first does not wait for torch."""
    if FORKS:
        _fork_server()


def _ending(status: int | None) -> str:
    """Say what the exit status of a process means; None where it is not known."""
    if status is None or status >= 0:
        return f"exit status {'unknown' if status is None else status}"
    return signal.Signals(-status).name


class _Process:
    """A page in a process of its own, and our end of the line to it."""

    def __init__(self, **told):
        fork_server = _fork_server() if FORKS else None
        if not self._begin(fork_server) and fork_server and fork_server.forked:
            # It could import torch, so something ended it meanwhile, and another takes its place.
            self._begin(_fork_server())
        self._send(told)
        if not self.pid:
            raise NotStarted("Python did not start, or could not import torch")
        if self._receive(START) != {}:
            self.close()
            raise NotStarted("its process did not get as far as the first block")

    def _begin(self, fork_server: "_ForkServer | None") -> bool:
        """Begin the process, and learn its number; return False, and leave none, where there is none."""
        self.over, self.pid = False, 0
        self.spawned: subprocess.Popen | None = None
        self.connection, theirs = Pipe()
        with theirs:
            if fork_server:
                fork_server.fork(theirs.fileno())
            else:
                self.spawned = _python("spawn", theirs.fileno())
        self.pid = (self._receive(START) or {}).get("pid", 0)
        if fork_server:
            fork_server.forked = fork_server.forked or bool(self.pid)
        if not self.pid:
            self.over = True
            self.connection.close()
            process = fork_server.process if fork_server else self.spawned
            assert process, "one of the two was to begin it"
            process.kill()
            process.wait()
            _fork_server.cache_clear()
        return bool(self.pid)

    def ask(self, request: dict | None, seconds: float) -> dict | None:
        """Send `request` and return the answer; None, and the end of the process, after `seconds`.

        {"ended": its exit status} is the answer of a process that ended by itself.
        """
        self._send(request)
        answer = self._receive(seconds)
        if answer is None:
            self._stop(signal.SIGABRT)  # at which faulthandler writes down where it was
        return answer

    def left(self) -> list[str]:
        """Wait for a page that ends well; name the processes that outlived it, and were killed."""
        return self._last_word(START).get("left", [])

    def close(self) -> None:
        """End the process, whatever it does."""
        self._stop()
        self.connection.close()

    def _send(self, message: dict | None) -> None:
        with contextlib.suppress(OSError):  # it has ended, and its last word is waiting
            self.connection.send_bytes(json.dumps(message).encode())

    def _receive(self, seconds: float) -> dict | None:
        try:
            if not self.connection.poll(seconds):
                return None
            said = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError, ValueError):
            said = _reap(self.spawned) if self.spawned else {"ended": None}
        self.over = "ended" in said
        return said

    def _last_word(self, seconds: float) -> dict:
        """Return what is said when the process ends; {} if that is not within `seconds`."""
        deadline = time.monotonic() + seconds
        while not self.over and (said := self._receive(max(0.0, deadline - time.monotonic()))):
            if self.over:
                return said
        return {}

    def _stop(self, *signals: int) -> None:
        for number in (*signals, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if not self.over:
                with contextlib.suppress(OSError):
                    os.kill(self.pid, number)
                self._last_word(GRACE)


def _reap(process: subprocess.Popen) -> dict:
    """Wait for a spawned page, and say how it ended and whether its group outlived it."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    process.kill()
    said = {"ended": process.wait(), "left": []}
    deadline = time.monotonic() + (min(GRACE, LIMIT) if said["ended"] == 0 else 0.0)
    with contextlib.suppress(AttributeError, OSError):  # no such group, or no groups
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        said["left"] = ["a process"]
    return said


def _python(kind: str, handle: int) -> subprocess.Popen:
    """Start child.py as a `kind`, with a `handle` to what leads here; no terminal reaches it."""
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
    """The process that pages are forked from, and our end of the line to it."""

    def __init__(self):
        self.forked = False  # whether a page came from it
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as undone:
            undone.enter_context(self.control)
            self.process = _python("fork", theirs.fileno())
            undone.pop_all()
        atexit.register(self.end)

    def fork(self, handle: int) -> None:
        """Have a page forked on the connection `handle`, which ends where this process has ended."""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self.control, [str(min(GRACE, LIMIT)).encode()], [handle])

    def end(self) -> None:
        """Wait for it to kill what its pages left, and to end."""
        self.control.close()
        self.process.wait()


@cache
def _fork_server() -> _ForkServer:
    """Start this process's fork_server, once."""
    return _ForkServer()


class _Here:
    """A page in this process, for a debugger."""

    over = False

    def __init__(self, **told):
        self.folder = os.getcwd()
        self.page = child.PageProcess(**told)

    def ask(self, request: dict | None, _seconds: float) -> dict:
        """Run the block that `request` tells, if any; what the page leaves running runs on."""
        return self.page.report(request["code"], request["start"]) if request else {}

    def left(self) -> list[str]:
        """Return nothing: all that the page left is in this process."""
        return []

    def inside(self, line: int) -> TracebackType | None:
        """Return the traceback of the last exception, or one that stands on `line` of the page."""
        if not self.page.error:
            self.page.report("raise LookupError", line)
        assert self.page.error, "a LookupError at least"
        return self.page.error.__traceback__

    def close(self) -> None:
        """Go back to where the process stood."""
        io.FileIO.close(self.page.printed)
        os.chdir(self.folder)
