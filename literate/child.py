"""The process in which a page runs: it executes blocks and reports what each did; it compares nothing.

`run.py` starts this file as a script, so that a page finds torch and the standard library here and
nothing else. As `fork` it is a fork server: it imports torch, computes nothing, and forks a page for
each connection that it is handed. As `spawn`, where forking is missing or unsafe, it is one page.
Messages are JSON, so that reading one executes nothing of a page.

While a page runs, `__main__` is the page, as it is when a reader runs the exported script, so pickle and
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
import traceback
import types
import warnings
import weakref
from json import dumps, loads
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

# The one place where determinism is set: here, in `set_seeds`, and in the variables of ENVIRONMENT.
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


def set_seeds() -> None:
    """Set every seed and the number of threads.

    This is done in the page's own process, since a fork keeps no thread and draws new seeds.
    """
    random.seed(SEED)
    if numpy := _import("numpy.random"):
        numpy.seed(SEED)
    if torch := _import("torch"):
        torch.default_generator.manual_seed(SEED)
        torch.set_num_threads(THREADS)


def _import(name: str) -> Any:
    """Return the module of this name, or None where it is not installed: a page may do without it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


class PrintedTooMuch(BaseException):
    """A block prints without an end. It is no Exception, so that `except Exception` does not catch it."""

    __module__ = "builtins"  # so that a traceback names it without a module


class Printed(io.FileIO):
    """The file that a page prints into, bounded for each block; forked processes share it."""

    start = 0

    def write(self, data) -> int:
        if self.tell() + len(data) > self.start + MOST_PRINTED:
            raise PrintedTooMuch(f"the block printed more than {MOST_PRINTED:,} bytes")
        return super().write(data)


class PageProcess:
    """The page of this process: one real module, `__main__`, as `python page.py` is in an empty folder.

    `source` is the page as one Python file, each line where tracebacks find it; `imports` are folders
    from which it imports, too. In `folder` stand `page`, the folder where it works, and `temporary`;
    `page.py`, its script, which multiprocessing may import again; `printed` and `errors`, what came to
    standard output and error from Python, native code and processes alike; and `stack`, where the page
    was when it was ended.
    """

    def __init__(
        self, path: str, source: str, folder: str, environ: dict[str, str], imports: list[str]
    ):
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(Path(folder, "page"))
        self.path, self.process = path, os.getpid()
        self.futures = 0  # what `from __future__` has turned on, for all blocks that follow
        self.module = sys.modules["__main__"] = types.ModuleType("__main__")
        self.module.__file__ = script = str(Path(folder, "page.py"))
        lines = [line + "\n" for line in source.split("\n")]
        for file in (path, script):
            linecache.cache[file] = (len(source), None, lines, file)
        sys.argv[:] = [script]
        sys.path[:0] = [os.getcwd(), *imports]
        tempfile.tempdir = None  # what was found out before this environment was
        self.printed = Printed(Path(folder, "printed"), "a")
        stdout = io.TextIOWrapper(self.printed, "utf-8", newline="\n", write_through=True)
        sys.stdout = sys.__stdout__ = stdout  # type: ignore[misc]
        os.dup2(self.printed.fileno(), 1)
        with open(Path(folder, "errors"), "ab") as errors:
            os.dup2(errors.fileno(), 2)
        stack = os.open(Path(folder, "stack"), os.O_WRONLY | os.O_CREAT)
        faulthandler.enable(stack, all_threads=False)
        warnings.resetwarnings()
        warnings.simplefilter("default")
        set_seeds()
        context = environ.get(CONTEXT)
        self.context = runpy.run_path(context)["block_context"]() if context else None

    def report(self, code: str, start: int, echo: bool = False) -> dict[str, Any]:
        """Execute `code`, whose first line is line `start` of the page's source; return its outcome.

        "raised" names the exception that ended it, or is ""; "last_line" and "traceback" are its
        text. Where it is to `echo`, expressions are printed, as at the prompt. "unshown" is the line
        of a value in which it ends and which no page shows, or 0.
        """
        outcome: dict[str, Any] = {"raised": "", "last_line": "", "traceback": "", "unshown": 0}
        self.printed.start = self.printed.tell()
        try:
            outcome["unshown"] = self._execute(code, start, echo)
        except BaseException as error:
            outcome["raised"] = type(error).__name__ or "an exception without a name"
            outcome["last_line"] = _encodable(_last_line(error))
            outcome["traceback"] = _encodable(_traceback(error))
        if os.getpid() != self.process:
            os.write(1, b"the block forked, and the new process ran past its end; use os._exit\n")
            os._exit(1)
        if LIBC:
            LIBC.fflush(None)
        return outcome

    def _execute(self, code: str, start: int, echo: bool) -> int:
        """Execute `code`; return the line of what it shows in a notebook and nowhere else, or 0."""
        text, names, shows = "\n" * (start - 1) + code, self.module.__dict__, False
        flags = ast.PyCF_ONLY_AST | self.futures
        program: Any = compile(text, self.path, "exec", flags, optimize=0)
        end: Any = program.body[-1] if program.body else ast.Pass(lineno=start)
        # What an expression names is named to be used later; any other may be there to be seen.
        last = isinstance(end, ast.Expr) and not isinstance(end.value, ast.NamedExpr)
        if echo:
            program, last = ast.Interactive(program.body), False
        if last:
            program.body.pop()
        with self.context or contextlib.nullcontext():
            mode = "single" if echo else "exec"
            begun = compile(program, self.path, mode, self.futures, optimize=0)
            self.futures |= begun.co_flags & FUTURES
            exec(begun, names)
            if last:
                last_program = compile(ast.Expression(end.value), self.path, "eval", optimize=0)
                shows = _is_for_show(end.value, eval(last_program, names))
        return end.lineno if shows else 0


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


def _traceback(error: BaseException) -> str:
    """Return the text of a traceback, without the frames of this file."""
    whole = traceback.TracebackException.from_exception(error)
    whole.stack[:] = [frame for frame in whole.stack if frame.filename != __file__]
    return "".join(whole.format())


def _last_line(error: BaseException) -> str:
    """Return what a traceback ends in: the exception and its message, without the code of a SyntaxError.

    The notes of an exception, which stand after its message, are left out.
    """
    entries = traceback.format_exception_only(error)
    named = (entry for entry in entries if not entry.startswith(" "))
    return next(named, entries[-1]).rstrip("\n")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def serve_page(connection: Connection) -> NoReturn:
    """Run the blocks that come over `connection`, and report on each."""
    page = PageProcess(**loads(connection.recv_bytes()))
    while request := loads(connection.recv_bytes()):
        _send(connection, page.report(**request))
    # As the interpreter ends: it waits for threads, then calls what `atexit` was given.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _send(connection, {})
    os._exit(0)


def _send(connection: Connection, message: dict[str, object]) -> None:
    connection.send_bytes(dumps(message).encode())


def fork_server(control: socket.socket) -> Connection:
    """Fork a keeper, and it a page, for each connection that comes over `control`.

    Returns the connection in the process of the page; itself it ends with the other end of `control`.
    """
    assert LIBC, "Linux, where pages fork, has one"
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    while True:
        _, handles, *_ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not handles:
            _kill_children()
            os._exit(0)
        if not os.fork():
            control.close()
            return _keep(Connection(handles[0]))
        os.close(handles[0])
        with contextlib.suppress(ChildProcessError):  # keepers that are done
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _keep(connection: Connection) -> Connection:
    """Fork a page, in whose process this returns; kill what it leaves running, and tell how it ended."""
    assert LIBC
    os.setsid()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a page leaves running becomes a child of ours
    pid = os.fork()
    if not pid:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return connection
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _kill_children()
    with contextlib.suppress(OSError):
        _send(connection, {"ended": status})
    os._exit(0)


def _kill_children() -> None:
    """Kill every child of this process, and those that become its children by that."""
    while children := _children():
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _children() -> list[int]:
    """List the processes whose parent is this one."""
    files = glob.glob("/proc/self/task/*/children")
    return [int(pid) for file in files for pid in Path(file).read_text().split()]


def main(kind: str, handle: str) -> NoReturn:
    """Be a fork server on the socket `handle`, or one page on the connection `handle`."""
    _import("numpy.random")
    if _import("torch") and kind == "fork":
        # An optimizer's first step imports it, and takes longer over that than over many steps.
        _import("torch._dynamo")

    warnings.simplefilter("ignore")
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        # Of torch's: a page that ends has its own alone.
        finalizer.atexit = False
    gc.freeze()  # what every page shares is never looked through again, and so not copied
    if LIBC:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if kind == "fork":
        connection = fork_server(socket.socket(fileno=int(handle)))
    else:
        connection = vars(connections).get("PipeConnection", Connection)(int(handle))
    _send(connection, {"pid": os.getpid()})  # so that a page that does not go on can be ended
    serve_page(connection)


if __name__ == "__main__":
    script = sys.modules["__main__"]  # kept, though a page takes its name
    main(*sys.argv[1:])
