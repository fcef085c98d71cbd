"""The process in which a page runs: it executes blocks, says what each did, and judges nothing.

`run.py` starts this file as a script, so that a page finds torch and the standard library here and
nothing else. As `fork` it is a nursery: it imports torch, computes nothing, and forks a page for
each connection that it is handed. As `spawn`, where forking is missing or unsafe, it is one page.
Messages are JSON, so that whoever reads them executes nothing of a page.
"""

import ast
import atexit
import builtins
import contextlib
import ctypes
import faulthandler
import gc
import glob
import io
import linecache
import os
import random
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from json import dumps, loads
from multiprocessing import connection as connections
from pathlib import Path
from typing import TextIO

# The one place where determinism is set. A page starts from these, in every run.
SEED = 0
THREADS = int(os.environ.get("LITERATE_THREADS", "1"))
ENVIRONMENT = {"PYTHONHASHSEED": str(SEED)}

# The variable that names a file of Python, whose `around()` is the context in which blocks run.
AROUND = "LITERATE_AROUND"

MOST_PRINTED = 100_000  # bytes that a block may print

LIBC = ctypes.CDLL(None) if os.name == "posix" else None
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


Warned = tuple[str, str, str, int]  # the message, category, file and line of a warning


class BlockStopped(BaseException):
    """A block went past a limit; not an Exception, so that `except Exception` lets it through."""

    __module__ = "builtins"  # so that a traceback names it without a module


class Printed(io.FileIO):
    """The file that a page prints into, bounded for each block; forked processes share it."""

    start = 0

    def write(self, data) -> int:
        if self.tell() + len(data) > self.start + MOST_PRINTED:
            raise BlockStopped(f"printed more than {MOST_PRINTED:,} bytes")
        return super().write(data)


class NoInput(io.StringIO):
    """Standard input for a block: nobody is there to type."""

    def readline(self, *_):
        raise RuntimeError("a block cannot ask for input: a page runs with nobody at the keyboard")

    read = readline


class Play:
    """A page at play in this process: one real module, `__main__` while a block runs.

    `source` is the page as one Python file, each line where tracebacks find it. In `folder` stand
    `page`, the folder where it works; `page.py`, its script, which multiprocessing may import
    again; `printed`, what it prints; and in a process of its own `aside`, what went to descriptor
    1 past sys.stdout, and `stack`, where it was when it was ended.
    """

    def __init__(self, path: str, source: str, folder: str):
        self.path, self.folder = path, Path(folder)
        self.error: BaseException | None = None
        self.module = types.ModuleType("__main__")
        self.module.__file__ = self.script = str(self.folder / "page.py")
        lines = [line + "\n" for line in source.split("\n")]
        for file in (path, self.script):
            linecache.cache[file] = (len(source), None, lines, file)
        self.stdout, self.stderr = self._stdout(), sys.stderr
        self.aside: int | None = None
        self.went_aside = 0
        self.unshown = "", 0
        self.around = contextlib.nullcontext()
        os.chdir(self.folder / "page")
        random.seed(SEED)  # which a fork draws anew
        self._spread()

    def _spread(self) -> None:
        """Set the number of threads: here and not before, since a thread does not survive a fork."""
        import torch

        torch.set_num_threads(THREADS)

    def take_over(self, environ: dict[str, str]) -> None:
        """Make this process the page's own, as `python page.py` would be in an empty folder."""
        os.environ.clear()
        os.environ.update(environ)
        sys.argv[:] = [self.script]
        sys.path.insert(0, os.getcwd())
        sys.modules["__main__"] = self.module
        sys.stdin = sys.__stdin__ = NoInput()  # type: ignore[misc, assignment]
        sys.stdout = sys.__stdout__ = self.stdout  # type: ignore[misc]
        warnings.resetwarnings()
        warnings.simplefilter("default")
        self.aside = os.open(self.folder / "aside", os.O_RDWR | os.O_CREAT)
        os.dup2(self.aside, 1)
        self.stack = (self.folder / "stack").open("wb")
        faulthandler.enable(self.stack, all_threads=False)
        if file := environ.get(AROUND):
            self.around = runpy.run_path(file)["around"]()

    def execute(self, code: str, start: int) -> None:
        """Execute `code`, whose first line is line `start` of the page's source."""
        text = "\n" * (start - 1) + code
        flag = ast.PyCF_ONLY_AST
        program = compile(text, self.path, "exec", flag, dont_inherit=True, optimize=0)
        assert isinstance(program, ast.Module), "the tree of a program that is executed"
        last = _last_expression(program)
        if last:
            program.body.pop()
        with self.around:
            compiled = compile(program, self.path, "exec", dont_inherit=True, optimize=0)
            exec(compiled, self.module.__dict__)
            if last:
                body = ast.Expression(last.value)
                compiled = compile(body, self.path, "eval", dont_inherit=True, optimize=0)
                value = eval(compiled, self.module.__dict__)
                if _is_for_show(last.value, value):
                    what = "the block ends in a value, which a page does not show; print it"
                    self.unshown = what, last.lineno
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot and pyplot.get_fignums():
            pyplot.close("all")
            what = "the block leaves a figure open, which a page does not show; print its numbers"
            self.unshown = what, (last or program.body[-1]).lineno

    def end(self) -> None:
        """End as the interpreter does: wait for threads, then call what `atexit` was given."""
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()

    def report(self, action: Callable[..., object], *arguments: object) -> dict:
        """Call `action`, a part of the page, and say what came of it.

        "raised" names the exception that ended it, or is ""; "last_line" and "traceback" are its
        text. "broken" says how it went round stdout. "unshown" says what it shows
        in a notebook and nowhere else, and the line of the source where. "warned" lists message, category, file and line
        of each warning, "alive" the threads and processes that run on.
        """
        said = {"raised": "", "last_line": "", "traceback": ""}
        warned: list[Warned] = []
        self.error, self.unshown = None, ("", 0)
        with self._installed(warned):
            try:
                action(*arguments)
            except BaseException as error:
                self.error = error
                said["raised"] = type(error).__name__ or "an exception without a name"
                said["last_line"] = _encodable(_last_line(error))
                said["traceback"] = _encodable("".join(traceback.format_exception(error)))
            ending = {"warned": warned, "unshown": self.unshown, "alive": _alive()}
            return said | {"broken": self._went_round(), **ending}

    @contextlib.contextmanager
    def _installed(self, warned: list[Warned]) -> Iterator[None]:
        """Put the page's module, stdout and log of warnings in place, and back."""
        if self._closed():
            self.stdout = self._stdout()
        self.stdout.buffer.start = self.stdout.buffer.tell()
        outside = sys.stdout, sys.modules["__main__"], warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if sys.stderr is not self.stderr:  # the page shows them itself
                return outside[2](message, category, filename, lineno, file, line)
            said = _encodable(str(message))
            return warned.append((said, category.__name__, filename, lineno))

        sys.stdout, sys.modules["__main__"], warnings.showwarning = self.stdout, self.module, show
        try:
            yield
        finally:
            sys.stdout, sys.modules["__main__"], warnings.showwarning = outside

    def _stdout(self) -> "io.TextIOWrapper[Printed]":
        file = Printed(self.folder / "printed", "a")
        return io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)

    def _closed(self) -> bool:
        try:
            return self.stdout.closed
        except ValueError:  # detached
            return True

    def _went_round(self) -> str:
        """Say what was done to standard output besides printing, or "" when nothing was."""
        if getattr(sys, "stdout", None) is not self.stdout:
            return "the block replaced sys.stdout and did not put it back"
        if self._closed():
            return "the block closed sys.stdout"
        if self.aside is None:
            return ""
        if LIBC:
            LIBC.fflush(None)
        aside, before = os.fstat(self.aside), self.went_aside
        self.went_aside = aside.st_size
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(1), aside):
                wrote = "the block wrote to file descriptor 1, past sys.stdout; use print"
                return wrote if before != aside.st_size else ""
        os.dup2(self.aside, 1)
        return "the block closed or replaced file descriptor 1, standard output"


def _last_expression(program: ast.Module) -> ast.Expr | None:
    """Return the expression that `program` ends in, if it does; one that names its value is none."""
    last = program.body[-1] if program.body else None
    if isinstance(last, ast.Expr) and not isinstance(last.value, ast.NamedExpr):
        return last
    return None


def _is_for_show(expression: ast.expr, value: object) -> bool:
    """Say whether a block that ends in `expression` would have its `value` seen, as in a notebook.

    A call may be there for what it does: it is taken for a question where it is a built-in's or
    returns an array, unless its name ends in `_`, as the names of what works in place do.
    """
    text = isinstance(expression, ast.Constant) and isinstance(value, str)
    if text or value is None or value is ...:
        return False
    if not isinstance(expression, ast.Call):
        return True
    function = expression.func
    if isinstance(function, ast.Name) and hasattr(builtins, function.id):
        return True
    arrays = sys.modules["torch"].Tensor, sys.modules["numpy"].ndarray
    return isinstance(value, arrays) and not ast.unparse(function).endswith("_")


def _last_line(error: BaseException) -> str:
    """Return the line that names the exception; the first, where the message has several."""
    entries = traceback.format_exception_only(error)
    name = type(error).__name__
    named = (entry for entry in reversed(entries) if name in entry.split(":")[0])
    return next(named, entries[-1]).split("\n")[0]


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _alive() -> list[str]:
    """Name the threads and processes that a page must end before it ends."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    threads = [f"thread {thread.name}" for thread in others if not thread.daemon]
    return threads + [f"process {pid}" for pid in _children()]


def _children() -> list[int]:
    """List the processes whose parent is this one; none where the system does not tell."""
    found = []
    for file in glob.glob("/proc/self/task/*/children"):
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in Path(file).read_text().split()]
    return found


def play(connection: connections.Connection) -> None:
    """Run the blocks that come over `connection`, and report on each; never returns."""
    own, told = os.getpid(), loads(connection.recv_bytes())
    environ = told.pop("environ")
    page = Play(**told)
    page.take_over(environ)
    connection.send_bytes(dumps({"pid": own}).encode())
    while block := loads(connection.recv_bytes()):
        said = page.report(page.execute, block["code"], block["start"])
        if os.getpid() != own:  # the block forked, and this is the other one
            if isinstance(page.error, SystemExit):
                raise page.error
            (page.folder / f"strayed.{block['line']}").touch()
            os._exit(1)
        connection.send_bytes(dumps(said).encode())
    connection.send_bytes(dumps(page.report(page.end)).encode())
    os._exit(0)


def nursery(control: socket.socket) -> connections.Connection:
    """Fork a page for each connection that comes over `control`; returns it in the page's process.

    When a page has ended, what it left running is killed after the seconds of grace that came with
    its connection, and the connection is told: {"ended": exit status, "left": names}.
    """
    assert LIBC, "Linux, where pages fork, has one"
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a page leaves running becomes a child of ours
    pages: dict[int, tuple[int, connections.Connection, float]] = {}
    while True:
        for ready in connections.wait([control, *pages]):
            if ready in pages:
                page = pages.pop(ready)
                os.close(ready)
                _bury(*page, {pid for pid, *_ in pages.values()})
                continue
            grace, handles, *_ = socket.recv_fds(control, 64, 1, socket.MSG_CMSG_CLOEXEC)
            if not handles:  # whoever started this process is gone
                _kill_all(set())
                os._exit(0)
            connection = connections.Connection(handles[0])
            pid = os.fork()
            if pid:
                pages[os.pidfd_open(pid)] = pid, connection, float(grace)
                continue
            os.setsid()
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
            return connection  # and let go of the control and of other pages' connections


def _bury(pid: int, connection: connections.Connection, grace: float, pages: set[int]) -> None:
    """Tell `connection` how the page `pid` ended, once nothing of it runs any more."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    deadline = time.monotonic() + (grace if status == 0 else 0.0)
    while (left := _orphans(pages)) and time.monotonic() < deadline:
        time.sleep(0.005)
    _kill_all(pages)
    names = [f"process {orphan}" for orphan in left]
    with contextlib.suppress(OSError), connection:
        connection.send_bytes(dumps({"ended": status, "left": names}).encode())


def _orphans(pages: set[int]) -> list[int]:
    """List the children that are no page and still run; those that have ended are reaped."""
    others = [pid for pid in _children() if pid not in pages]
    return [pid for pid in others if os.waitpid(pid, os.WNOHANG) == (0, 0)]


def _kill_all(pages: set[int]) -> None:
    while left := _orphans(pages):
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def determine() -> None:
    """Set every seed."""
    import numpy as np
    import torch

    np.random.seed(SEED)
    torch.manual_seed(SEED)


def main(kind: str, handle: str) -> None:
    """Be a nursery on the socket `handle`, or one page on the connection `handle`."""
    warnings.simplefilter("ignore")
    determine()
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        # Of torch's: a page that ends has its own alone.
        finalizer.atexit = False
    gc.freeze()  # what every page shares is never looked through again, and so not copied
    if LIBC:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if kind == "fork":
        connection = nursery(socket.socket(fileno=int(handle)))
    else:
        line = vars(connections).get("PipeConnection", connections.Connection)
        connection = line(int(handle))
    play(connection)


if __name__ == "__main__":
    script = sys.modules["__main__"]  # kept, though a page takes its name
    main(*sys.argv[1:])
