"""Run a page's blocks in a process of its own, and keep what each printed and raised.

A page gets a fresh process, forked from one that has imported torch and computed nothing, or, where
forking is missing or unsafe, spawned. So nothing of a page can reach another, or this process,
which holds the clock and ends whatever does not end by itself. Under `--pdb` alone pages run in
pytest's own process, where a debugger needs them; what such a page changes, the next one meets.

Runs of one page may share `Snapshots`: then a run goes on from the last block up to which an earlier
one did the same, without its solutions or after a change further down.
"""

import atexit
import builtins
import contextlib
import io
import json
import math
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
from multiprocessing import Pipe, reduction
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
    folder.mkdir(parents=True, exist_ok=True)
    for file in files(root):
        shutil.copy(file, folder)
    return {"TORCH_HOME": str(home)}


class NotStarted(Exception):
    """No process could be started for a page; the message says what was tried."""


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
    changes stays changed. Runs that share `snapshots` follow one another: each is closed, or goes no
    further, before the next begins.
    """

    def __init__(
        self,
        page: Page,
        solutions: bool = True,
        here: bool = False,
        snapshots: "Snapshots | None" = None,
    ):
        self.page = page
        self.blocks = [b for b in page.steps if solutions or not b.solution]
        self.results: list[Result] = []
        self.failed: Block | None = None  # the first that ended as it did not announce
        self.here = here
        self.process: _Here | _Process | None = None
        self.unstarted = ""  # why there is no process for the page
        self.shares = snapshots is not None
        self.snapshots = snapshots or Snapshots()
        self.told: dict[str, Any] = {}  # to each process of the page
        self.forkable = False  # whether a snapshot can be made
        self.since = time.monotonic()  # when the last one was
        self.alive: dict[str, int] = {}  # thread or process → line of the block that started it

    def upto(self, block: Block) -> Result:
        """Run the page up to and including `block`; return its Result."""
        place = self.blocks.index(block)
        self._start()
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
        if not self.shares:
            self.snapshots.close()

    def _run(self, block: Block) -> None:
        self._keep(block)
        if not self.process:
            result = Result(raised="no start", last_line=self.unstarted, line=block.line)
        elif self.process.over:
            result = Result(raised="an end before it", last_line="not run", line=block.line)
        else:
            told = {"code": block.code, "start": block.start, "line": block.line}
            answer = self.process.ask(told | {"shares": self.shares}, LIMIT)
            result = self._result(block, answer)
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
        folder = self.snapshots.empty()
        code = [b.code for b in self.blocks if not (b.raises or b.fill)]
        (folder / "page.py").write_text("\n".join(code), encoding="utf-8")
        told = {"path": str(self.page.path), "source": self.page.source, "folder": str(folder)}
        home = fetched(self.page.root, folder / "torch")
        if self.here:
            os.environ.update(home)
            return _Here(**told)
        home["TMPDIR"] = str(folder / "temporary")
        self.told = told | {"environ": os.environ | child.ENVIRONMENT | home}
        if snapshot := self.snapshots.last(self.page, self.blocks):
            with contextlib.suppress(NotStarted):
                process = _Process(snapshot, self.told)
                self.results, self.alive = [*snapshot.results], dict(snapshot.alive)
                return process
        return _Process(_fork_server() if FORKS else None, self.told)

    def _keep(self, following: Block) -> None:
        """Make a snapshot before the block `following`, where one is due and the process allows it."""
        done = self.blocks[: len(self.results)]
        late = time.monotonic() - self.since > self.snapshots.seconds
        first = following.solution and not any(block.solution for block in done)
        if self.forkable and not self.failed and (late or first):
            assert isinstance(self.process, _Process), "where a page runs here, nothing is shared"
            snapshot = _Snapshot(self.process, _steps(self.page, done), self.results, self.alive)
            self.snapshots.kept.append(snapshot)
            self.since = time.monotonic()
            try:
                self.process = _Process(snapshot, self.told)
            except NotStarted as error:
                self.process, self.unstarted = None, f"the page did not go on: {error}"

    def _result(self, block: Block, answer: dict | None) -> Result:
        """Return the Result of `block`, given the answer of its process; None is no answer in time."""
        if answer is None:
            what = f"the block at {self.page.name}:{block.line} ran longer than {LIMIT:g} s"
            return self._stopped(block, what)
        if "ended" in answer:
            what = f"the block on line {block.line} ended the process of its page"
            return self._stopped(block, f"{what} ({_ending(answer['ended'])})")
        self.alive = {name: self.alive.get(name, block.line) for name in answer["alive"]}
        self.forkable = answer.get("forkable", False)
        for warning in answer["warned"]:
            self._warn(*warning)
        if strayed := self._strayed():
            return strayed
        text, line = self._relabel(answer["traceback"], block)
        result = Result(self._printed(), answer["raised"], answer["last_line"], text, line)
        if answer["broken"]:
            result.broken, result.line = answer["broken"], block.line
        elif answer["unshown"] and not block.raises:
            result.broken, at = answer["unshown"]
            file, at = self.page.origin(at)
            result.line = at if file == self.page.path else line
        elif block.fill and not answer["raised"]:
            try:
                result.printed = block.fill(block.fence.text, json.loads(result.printed))
            except ValueError as error:
                result.raised, result.last_line = "ValueError", str(error)
        return result

    def _end(self, last: Block) -> Result | None:
        """End the page as its interpreter would; return a Result if it does not end well."""
        assert self.process, "the last block ran there"
        answer = self.process.ask(None, min(GRACE, LIMIT))
        if answer is None:
            return self._outlived(last, list(self.alive) or ["an exit handler"])
        if "ended" in answer:
            what = f"the page's exit handlers ended its process ({_ending(answer['ended'])})"
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
        lines = [
            int(mark.suffix[1:]) for mark in Path(self.snapshots.folder.name).glob("strayed.*")
        ]
        what = "the block forked, and the new process ran past its end; end it with os._exit"
        return Result(raised="a fork", last_line=what, line=min(lines)) if lines else None

    def _stopped(self, block: Block, what: str) -> Result:
        """Return the Result of a `block` whose process was ended, or ended itself."""
        stack, path = Path(self.snapshots.folder.name, "stack"), str(self.page.path)
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
        return self.snapshots.printed.read().decode("utf-8", "backslashreplace")

    def _warn(self, message: str, category: str, file: str, line: int) -> None:
        """Warn here of what the page warned of there; no filter of this process makes it an error."""
        kind = getattr(builtins, category, UserWarning)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn_explicit(message, kind, name_of(file, self.page.root), line)


def solutions_come_early(page: Page) -> bool:
    """Say whether a block stands after a solution and is none itself: it must not need the solution."""
    kinds = [block.solution for block in page.blocks]
    return True in kinds and False in kinds[kinds.index(True) :]


def prepare() -> None:
    """Start the fork server, so that the first page does not wait until torch is imported."""
    if FORKS:
        _fork_server()


def _ending(status: int | None) -> str:
    """Say what the exit status of a process means; None is an unknown status."""
    if status is None or status >= 0:
        return f"exit status {'unknown' if status is None else status}"
    return signal.Signals(-status).name


class _Process:
    """A page in a process of its own, and our end of the connection to it.

    It is forked from a fork server or a snapshot; without one it is spawned.
    """

    def __init__(self, source: "_Forks | None", told: dict[str, Any]):
        if not self._begin(source) and isinstance(source, _ForkServer) and source.forked:
            # It could import torch, so something ended it meanwhile, and another takes its place.
            self._begin(_fork_server())
        self._send(told)
        if not self.pid:
            raise NotStarted("Python did not start, or could not import torch")
        if self._receive(START) != {}:
            self.close()
            raise NotStarted("its process did not get as far as the first block")

    def _begin(self, source: "_Forks | None") -> bool:
        """Begin the process, and learn its number; return False, and leave none, where there is none."""
        self.over, self.pid = False, 0
        self.spawned: subprocess.Popen | None = None
        self.connection, theirs = Pipe()
        with theirs:
            if source:
                source.fork(theirs.fileno())
            else:
                self.spawned = _python("spawn", theirs.fileno())
        self.pid = (self._receive(START) or {}).get("pid", 0)
        if source:
            source.forked = source.forked or bool(self.pid)
        if not self.pid:
            self.over = True
            self.connection.close()
            if source:
                source.give_up()
            elif self.spawned:
                self.spawned.kill()
                self.spawned.wait()
        return bool(self.pid)

    def stand_still(self, control: socket.socket) -> None:
        """Make a fork server of the process: it forks pages for the other end of `control`, and runs no further."""
        with control:
            self._send({"stand": "still"})
            reduction.send_handle(self.connection, control.fileno(), self.pid)
        self.over = True
        self.connection.close()

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
            message = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError, ValueError):
            message = _reap(self.spawned) if self.spawned else {"ended": None}
        self.over = "ended" in message
        return message

    def _last_word(self, seconds: float) -> dict:
        """Return what is said when the process ends; {} if that is not within `seconds`."""
        deadline = time.monotonic() + seconds
        while not self.over and (message := self._receive(max(0.0, deadline - time.monotonic()))):
            if self.over:
                return message
        return {}

    def _stop(self, *signals: int) -> None:
        for number in (*signals, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if not self.over:
                with contextlib.suppress(OSError):
                    os.kill(self.pid, number)
                self._last_word(GRACE)


def _reap(process: subprocess.Popen) -> dict:
    """Wait for a spawned page; return its exit status, and what of its process group still ran."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    process.kill()
    message = {"ended": process.wait(), "left": []}
    deadline = time.monotonic() + (min(GRACE, LIMIT) if message["ended"] == 0 else 0.0)
    with contextlib.suppress(AttributeError, OSError):  # no such group, or no groups
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        message["left"] = ["a process"]
    return message


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


class _Forks:
    """A process that pages are forked from, and our end of the socket that leads to it."""

    def __init__(self):
        self.forked = False  # whether a page came from it
        self.control, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def fork(self, handle: int) -> None:
        """Have a page forked on the connection `handle`, which ends where this process has ended."""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self.control, [str(min(GRACE, LIMIT)).encode()], [handle])

    def give_up(self) -> None:
        """Have it end, at once."""
        self.control.close()


class _ForkServer(_Forks):
    """The process that has imported torch and computed nothing."""

    def __init__(self):
        super().__init__()
        with self.theirs, contextlib.ExitStack() as undone:
            undone.enter_context(self.control)
            self.process = _python("fork", self.theirs.fileno())
            undone.pop_all()
        atexit.register(self.end)

    def give_up(self) -> None:
        self.process.kill()
        self.process.wait()
        _fork_server.cache_clear()

    def end(self) -> None:
        """Wait for it to kill what its pages left, and to end."""
        self.control.close()
        self.process.wait()


class _Snapshot(_Forks):
    """A page that stands still after some `steps`, with their results."""

    def __init__(self, process: _Process, steps: tuple, results: list[Result], alive: dict):
        super().__init__()
        process.stand_still(self.theirs)
        self.steps, self.results, self.alive = steps, [*results], dict(alive)


class Snapshots:
    """Where runs of one page stood still, and the folder in which they work, one after another.

    A run makes one before its first solution, and whenever so many `seconds` have passed.
    """

    def __init__(self, seconds: float = math.inf):
        self.seconds = seconds
        self.kept: list[_Snapshot] = []
        self.folder = tempfile.TemporaryDirectory(prefix="literate-", ignore_cleanup_errors=True)
        self.printed = io.FileIO(Path(self.folder.name, "printed"), "w+")

    def last(self, page: Page, blocks: list[Block]) -> _Snapshot | None:
        """Return the last one that a run of `blocks` passes; let go of those that it does not pass."""
        steps = _steps(page, blocks)
        for snapshot in self.kept[:]:
            if snapshot.steps != steps[: len(snapshot.steps)] or len(snapshot.steps) == len(steps):
                snapshot.give_up()
                self.kept.remove(snapshot)
        return self.kept[-1] if self.kept else None

    def empty(self) -> Path:
        """Return the folder, empty but for what its snapshots hold open."""
        folder = Path(self.folder.name).resolve()
        for name in ("page", "temporary"):
            (folder / name).mkdir(exist_ok=True)
            for path in (folder / name).iterdir():  # the folder itself stays: processes stand in it
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for mark in folder.glob("strayed.*"):
            mark.unlink()
        self.printed.read()
        return folder

    def close(self) -> None:
        """End all that stands still, and delete the folder."""
        for snapshot in self.kept:
            snapshot.give_up()
        self.printed.close()
        self.folder.cleanup()


def _steps(page: Page, blocks: list[Block]) -> tuple:
    """Return, for each block, all that its result depends on, the blocks above it aside."""
    stored = [
        (path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files(page.root)
    ]
    return tuple(
        (b.code, b.start, b.line, b.raises, b.fence.text if b.fill else "", stored) for b in blocks
    )


@cache
def _fork_server() -> _ForkServer:
    """Return the fork server of this process; the first call starts it."""
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
