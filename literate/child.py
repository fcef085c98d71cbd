"""The process in which a page runs: it executes blocks and reports what each did; it compares nothing.

`run.py` starts this file as a script, so that a page finds torch and the standard library here and
nothing else. As `fork` it is a fork server: it imports torch, computes nothing, and forks a page for
each connection that it is handed. As `spawn`, where forking is missing or unsafe, it is one page.
A page that has run some blocks can become a fork server, too: its forks go on from there.
Messages are JSON, so that reading one executes nothing of a page.

While a block runs, `__main__` is the page, as it is when a reader runs the exported script, so pickle and
`inspect.getsource` behave as they do there. Code of an include is compiled at lines after the end of the
page, since an include is one line and its code many; `Page.origin` leads a traceback back to its file.
"""

import __future__

import ast
import atexit
import builtins
import contextlib
import ctypes
import faulthandler
import functools
import gc
import glob
import importlib
import io
import linecache
import os
import random
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
import weakref
from json import dumps, loads
from multiprocessing import connection as connections
from multiprocessing import reduction
from pathlib import Path
from typing import Any, NoReturn

# The one place where determinism is set: here, in `determine`, and in the variables of ENVIRONMENT.
SEED = 0
THREADS = int(os.environ.get("LITERATE_THREADS", "1"))
# OpenBLAS starts a thread when numpy is imported, unless it is told to keep to one. A thread of torch
# that waits for work keeps its core busy, unless it is told to sleep: with two pages on two cores, a
# block of half a second once took a minute.
ENVIRONMENT = {
    "PYTHONHASHSEED": str(SEED),
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",  # in small letters, which a Turkish libgomp reads, too
}

# The variable that names a file of Python, whose `block_context()` is the context in which blocks run.
CONTEXT = "LITERATE_CONTEXT"

MOST_PRINTED = 100_000  # bytes that a block may print

FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)

LIBC = ctypes.CDLL(None) if os.name == "posix" else None
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def determine() -> None:
    """Set every seed and the number of threads.

    This is done in the page's own process, since a fork keeps no thread and draws new seeds.
    """
    random.seed(SEED)
    if numpy := _installed("numpy.random"):
        numpy.seed(SEED)
    if torch := _installed("torch"):
        torch.default_generator.manual_seed(SEED)
        torch.set_num_threads(THREADS)


def _installed(name: str) -> Any:
    """Return the module of this name, or None where it is not installed: a page may do without it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


class BlockStopped(BaseException):
    """A block did what no block may do. It is no Exception, so that `except Exception` does not catch it."""

    __module__ = "builtins"  # so that a traceback names it without a module


class Printed(io.FileIO):
    """The file that a page prints into, bounded for each block; forked processes share it."""

    start = 0

    def write(self, data) -> int:
        if self.tell() + len(data) > self.start + MOST_PRINTED:
            raise BlockStopped(f"printed more than {MOST_PRINTED:,} bytes")
        return super().write(data)

    def close(self) -> None:
        raise BlockStopped("the block closed sys.stdout")


class NoInput(io.StringIO):
    """The standard input of a block, which raises: nobody is there to type."""

    def readline(self, *_):
        raise RuntimeError("a block cannot ask for input: a page runs with nobody at the keyboard")

    read = readline


class PageProcess:
    """A page that runs in this process: one real module, `__main__` while a block runs.

    `source` is the page as one Python file, each line where tracebacks find it. In `folder` stand
    `page`, the folder where it works, and `temporary`; `page.py`, its script, which multiprocessing may
    import again; `printed`, what it prints; and in a process of its own `aside`, what went to
    descriptor 1 past sys.stdout, and `stack`, where it was when it was ended.
    """

    def __init__(self, path: str, source: str, folder: str):
        self.path, self.folder = path, Path(folder)
        self.error: BaseException | None = None
        self.future = 0  # what `from __future__` has turned on, for all blocks that follow
        self.module = types.ModuleType("__main__")
        self.module.__file__ = self.script = str(self.folder / "page.py")
        self.show(source)
        self.printed = Printed(self.folder / "printed", "a")
        self.stdout = io.TextIOWrapper(self.printed, "utf-8", newline="\n", write_through=True)
        self.stderr = sys.stderr
        self.aside: tuple[int, tuple] | None = None  # a descriptor, and what its file is like
        self.block_context = contextlib.nullcontext()
        self.descriptors: list[str] = []  # those that are open before the page opens any
        self.had_threads = False  # whether the page has started any, even if they are over
        os.chdir(self.folder / "page")
        determine()

    def show(self, source: str) -> None:
        """Have tracebacks and `inspect` show the lines of `source`."""
        lines = [line + "\n" for line in source.split("\n")]
        for file in (self.path, self.script):
            linecache.cache[file] = (len(source), None, lines, file)

    def take_over(self, environ: dict[str, str]) -> None:
        """Make this process the page's own, as `python page.py` would be in an empty folder."""
        os.environ.clear()
        os.environ.update(environ)
        sys.argv[:] = [self.script]
        sys.path.insert(0, os.getcwd())
        tempfile.tempdir = None  # what was found out before this environment was
        sys.modules["__main__"] = self.module
        sys.stdin = sys.__stdin__ = NoInput()  # type: ignore[misc, assignment]
        sys.stdout = sys.__stdout__ = self.stdout  # type: ignore[misc]
        warnings.resetwarnings()
        warnings.simplefilter("default")
        aside = os.open(self.folder / "aside", os.O_RDWR | os.O_CREAT)
        os.dup2(aside, 1)
        self.aside = aside, _file_of(1)
        self.stack = (self.folder / "stack").open("wb")
        faulthandler.enable(self.stack, all_threads=False)
        self._notice_threads()
        if file := environ.get(CONTEXT):
            self.block_context = runpy.run_path(file)["block_context"]()

    def execute(self, code: str, start: int) -> tuple[str, int] | None:
        """Execute `code`, whose first line is line `start` of the page's source.

        Returns what it shows in a notebook and nowhere else, if anything, and the line where.
        """
        text, names, shows = "\n" * (start - 1) + code, self.module.__dict__, None
        flags = ast.PyCF_ONLY_AST | self.future
        program: Any = compile(text, self.path, "exec", flags, optimize=0)
        end: Any = program.body[-1] if program.body else ast.Pass(lineno=start)
        # What an expression names is named to be used later; any other may be there to be seen.
        last = isinstance(end, ast.Expr) and not isinstance(end.value, ast.NamedExpr)
        if last:
            program.body.pop()
        with self.block_context:
            begun = compile(program, self.path, "exec", self.future, optimize=0)
            self.future |= begun.co_flags & FUTURES
            exec(begun, names)
            if last:
                last_program = compile(ast.Expression(end.value), self.path, "eval", optimize=0)
                if _is_for_show(end.value, eval(last_program, names)):
                    shows = "ends in a value, which a page does not show; print it"
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot and pyplot.get_fignums():
            pyplot.close("all")
            shows = "leaves a figure open, which a page does not show; print its numbers"
        return (f"the block {shows}", end.lineno) if shows else None

    def end(self) -> None:
        """End as the interpreter does: wait for threads, then call what `atexit` was given."""
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()

    def leave(self, code: object) -> NoReturn:
        """End a process that the page forked, with the status that `sys.exit(code)` stands for.

        It ends as the page itself does, without the destructors of native code: those of torch's
        threads, which a fork does not take along, would crash here.
        """
        self.end()
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
        os._exit((code or 0) & 0xFF)

    def report(self, code: str, start: int) -> dict[str, Any]:
        """Execute `code` and return its outcome.

        "raised" names the exception that ended it, or is ""; "last_line" and "traceback" are its
        text. "broken" says how it went round stdout, "unshown" what `execute` returned. "warned" lists
        message, category, file and line of each warning, "alive" the threads and processes that run on.
        """
        warned: list[tuple[str, str, str, int]] = []
        outcome: dict[str, Any] = {"raised": "", "last_line": "", "traceback": "", "unshown": None}
        outside = sys.stdout, sys.modules["__main__"], warnings.showwarning

        def show(message, category, filename, lineno, file=None, line=None):
            if sys.stderr is not self.stderr:  # the page shows them itself
                return outside[2](message, category, filename, lineno, file, line)
            return warned.append((_encodable(str(message)), category.__name__, filename, lineno))

        self.error, self.printed.start = None, self.printed.tell()
        sys.stdout, sys.modules["__main__"], warnings.showwarning = self.stdout, self.module, show
        try:
            outcome["unshown"] = self.execute(code, start)
        except BaseException as error:
            self.error = error
            outcome["raised"] = type(error).__name__ or "an exception without a name"
            outcome["last_line"] = _encodable(_last_line(error))
            outcome["traceback"] = _encodable("".join(traceback.format_exception(error)))
        outcome |= {"warned": warned, "alive": _alive(), "broken": self._went_round()}
        sys.stdout, sys.modules["__main__"], warnings.showwarning = outside
        return outcome

    def _notice_threads(self) -> None:
        """Remember it when the page starts a thread."""
        start = threading.Thread.start

        @functools.wraps(start)
        def noticed(thread: threading.Thread) -> None:
            self.had_threads = True
            start(thread)

        threading.Thread.start = noticed  # type: ignore[assignment, method-assign]

    def is_forkable(self) -> bool:
        """Say whether a fork of this process would be the same page: one thread ever, and its own memory.

        A fork takes no other thread along, and what OpenMP noted of one that is over would stop it: in
        a fork of a page that had had threads, their products sometimes waited for ever. Processes, open
        files, shared memory and what lies in the page's folders it would share with this process, and
        with other forks.
        """
        if (
            self.had_threads
            or sys.platform != "linux"
            or _children()
            or _descriptors() != self.descriptors
        ):
            return False
        mappings = Path("/proc/self/maps").read_text(errors="replace").splitlines()
        folders = (self.folder / "page", self.folder / "temporary")
        return not (
            len(os.listdir("/proc/self/task")) > 1
            or any(line.split()[1] == "rw-s" for line in mappings)
            or any(any(folder.iterdir()) for folder in folders)
        )

    def _went_round(self) -> str:
        """Say what was done to standard output besides printing, or "" when nothing was."""
        if getattr(sys, "stdout", None) is not self.stdout:
            return "the block replaced sys.stdout and did not put it back"
        if LIBC:
            LIBC.fflush(None)
        if not self.aside or _file_of(1) == self.aside[1]:
            return ""
        os.dup2(self.aside[0], 1)
        self.aside = self.aside[0], _file_of(1)
        return "the block went past sys.stdout, to file descriptor 1; use print"


def _file_of(descriptor: int) -> tuple:
    """Return the device, the inode and the size of the file behind a descriptor; () where it is closed."""
    with contextlib.suppress(OSError):
        state = os.fstat(descriptor)
        return state.st_dev, state.st_ino, state.st_size
    return ()


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
    kinds = (("torch", "Tensor"), ("numpy", "ndarray"))
    arrays = tuple(getattr(sys.modules[name], kind) for name, kind in kinds if name in sys.modules)
    return isinstance(value, arrays) and not ast.unparse(function).endswith("_")


def _last_line(error: BaseException) -> str:
    """Return the line of a traceback that names the exception, the first one if its message has several."""
    entries = traceback.format_exception_only(error)
    # Before it stands the code of a SyntaxError, indented; after it stand notes.
    named = (entry for entry in entries if not entry.startswith(" "))
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
    children = []
    for file in glob.glob("/proc/self/task/*/children"):
        with contextlib.suppress(OSError):
            children += [int(pid) for pid in Path(file).read_text().split()]
    return children


def _descriptors() -> list[str]:
    """List what is open in this process, the listing itself included."""
    return sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else []


def serve_page(connection: connections.Connection, page: PageProcess | None = None) -> None:
    """Run the blocks that come over `connection`, and report on each; never returns.

    Where there is a `page`, this process is a fork of it, and goes on with the blocks that follow.
    """
    own = os.getpid()
    _say(connection, pid=own)  # first of all: so a page that does not start can be ended
    told = loads(connection.recv_bytes())
    environ = told.pop("environ")
    if page:
        page.show(told["source"])
    else:
        page = PageProcess(**told)
        page.take_over(environ)
    page.descriptors = _descriptors()
    _say(connection)
    while request := loads(connection.recv_bytes()):
        if "stand" in request:
            control = reduction.recv_handle(connection)
            connection.close()
            state = random.getstate()  # which a fork would draw anew
            connection = fork_server(socket.socket(fileno=control))
            random.setstate(state)
            serve_page(connection, page)
        outcome = page.report(request["code"], request["start"])
        if os.getpid() != own:  # the block forked, and this is the other one
            if isinstance(page.error, SystemExit):
                page.leave(page.error.code)
            (page.folder / f"strayed.{request['line']}").touch()
            os._exit(1)
        # Where other runs may go on from here; it takes as long as a small block.
        forkable = request["shares"] and page.is_forkable()
        _say(connection, **outcome, forkable=forkable)
    page.end()
    _say(connection)
    os._exit(0)


def _say(connection: connections.Connection, **message: object) -> None:
    connection.send_bytes(dumps(message).encode())


def fork_server(control: socket.socket) -> connections.Connection:
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
                _reap(*page, {pid for pid, *_ in pages.values()})
                continue
            grace, handles, *_ = socket.recv_fds(control, 64, 1, socket.MSG_CMSG_CLOEXEC)
            if not handles:  # the process at the other end has ended
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
            control.close()
            return connection  # and let go of other pages' connections


def _reap(pid: int, connection: connections.Connection, grace: float, pages: set[int]) -> None:
    """Tell `connection` how the page `pid` ended, once nothing of it runs any more."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    deadline = time.monotonic() + (grace if status == 0 else 0.0)
    while (left := _orphans(pages)) and time.monotonic() < deadline:
        time.sleep(0.005)
    _kill_all(pages)
    with contextlib.suppress(OSError), connection:
        _say(connection, ended=status, left=[f"process {orphan}" for orphan in left])


def _orphans(pages: set[int]) -> list[int]:
    """List the children that still run and are no pages; reap those that have ended."""
    others = [pid for pid in _children() if pid not in pages]
    return [pid for pid in others if os.waitpid(pid, os.WNOHANG) == (0, 0)]


def _kill_all(pages: set[int]) -> None:
    while left := _orphans(pages):
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main(kind: str, handle: str) -> None:
    """Be a fork server on the socket `handle`, or one page on the connection `handle`."""
    _installed("numpy.random")
    if _installed("torch") and kind == "fork":
        # An optimizer's first step imports it, and takes longer over that than over many steps.
        _installed("torch._dynamo")

    warnings.simplefilter("ignore")
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        # Of torch's: a page that ends has its own alone.
        finalizer.atexit = False
    gc.freeze()  # what every page shares is never looked through again, and so not copied
    if LIBC:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if kind == "fork":
        serve_page(fork_server(socket.socket(fileno=int(handle))))
    else:
        line = vars(connections).get("PipeConnection", connections.Connection)
        serve_page(line(int(handle)))


if __name__ == "__main__":
    script = sys.modules["__main__"]  # kept, though a page takes its name
    main(*sys.argv[1:])
