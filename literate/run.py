"""Run a page's blocks in one real module, and keep what each printed and raised.

While a block runs, the process looks to it like a fresh `python page.py` with `FRESH` set:
`__main__` is the page, its folder is empty, its seed is new. Between blocks everything the page
may have changed is put back, so pages can run in any order and leave nothing behind.
"""

import contextlib
import faulthandler
import io
import linecache
import os
import random
import signal
import sys
import tempfile
import threading
import traceback
import types
import warnings
from dataclasses import dataclass

import torch

from literate.page import shown

# The one place where determinism is set. A page starts from these, in every run.
SEED = 0
THREADS = int(os.environ.get("LITERATE_THREADS", "1"))
DTYPE = torch.float32
PRINT_OPTIONS = {"profile": "default", "sci_mode": None}
WARNING_FILTERS = [("default", None, Warning, None, 0)]

LIMIT = float(os.environ.get("LITERATE_LIMIT", "60"))  # seconds a block may take
GRACE = min(5.0, LIMIT)  # seconds more for native code, which only the end of the process can stop
MOST_PRINTED = 100_000  # characters a block may print

stderr = 2  # where the last word of a run stuck in native code goes; the pytest face moves it


class BlockStopped(BaseException):
    """A block went past a limit; not an Exception, so that `except Exception` lets it through."""

    __module__ = "builtins"  # so that a traceback names it without a module


@dataclass
class Result:
    """What one block did: its printed text, and how it ended.

    `raised` is the name of the exception that ended it, or ""; `last_line` the line a traceback
    ends in; `traceback` its text with true page lines; `line` the page's line that raised.
    """

    printed: str = ""
    raised: str = ""
    last_line: str = ""
    traceback: str = ""
    line: int = 0
    broken: str = ""


class Run:
    """One run of a page. Blocks run once, in order, when first asked for."""

    def __init__(self, page, solutions=True):
        self.page = page
        self.blocks = [b for b in page.blocks if solutions or not b.solution]
        self.results = []
        self.folder = tempfile.TemporaryDirectory(prefix="literate-")
        self.module = types.ModuleType("__main__")
        self.module.__file__ = str(page.path)
        self.state = None
        lines = [line + "\n" for line in page.source.split("\n")]
        linecache.cache[str(page.path)] = (len(page.source), None, lines, str(page.path))

    def upto(self, block):
        """Run the page up to and including `block`; return its Result."""
        index = self.blocks.index(block)
        while len(self.results) <= index:
            self.results.append(self._run(self.blocks[len(self.results)]))
        return self.results[index]

    def all(self):
        """Run every block; return the Results in order."""
        return [self.upto(block) for block in self.blocks]

    def failed_before(self, block):
        """Return the first earlier block that ended in an exception it did not announce, or None."""
        for earlier, result in zip(self.blocks, self.results, strict=False):
            if earlier is block:
                return None
            if result.raised and result.raised != earlier.raises:
                return earlier
        return None

    def close(self):
        """Forget the run: its folder and its lines."""
        linecache.cache.pop(str(self.page.path), None)
        self.folder.cleanup()

    def _run(self, block):
        result, capture = Result(), _Capture()
        with self._installed(), _streams(capture, result):
            try:
                with _time_limit(self.page, block):
                    exec(self._compile(block), self.module.__dict__)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._describe(block, error, result)
        result.printed = capture.getvalue()
        return result

    def _compile(self, block):
        text = "\n" * (block.start - 1) + block.code
        code = compile(text, str(self.page.path), "exec", dont_inherit=True, optimize=0)
        # The last word of a block stuck in native code is a list of frames: let one name the block.
        return code.replace(co_name=f"<block at {self.page.name}:{block.line}>")

    @contextlib.contextmanager
    def _installed(self):
        """Swap the page's state in for the process's own, and back."""
        outside = _capture_state()
        main = sys.modules["__main__"]
        _install_state(self.state or _fresh_state(self.folder.name, str(self.page.path)))
        sys.modules["__main__"] = self.module
        try:
            yield
        finally:
            self.state = _capture_state()
            sys.modules["__main__"] = main
            _install_state(outside)

    def _describe(self, block, error, result):
        """Write what `error` was into `result`, in terms of the page."""
        inner = error.__traceback__
        while inner and inner.tb_frame.f_code.co_filename == __file__:
            inner = inner.tb_next
        report = traceback.TracebackException(type(error), error, inner)
        _relabel(report, self.page)
        places = [n for file, n in _places(error, inner) if file == str(self.page.path)]
        lines = [n for n in places if self.page.origin(n)[0] == self.page.path]
        result.raised = type(error).__name__
        result.last_line = _last_line(error)
        result.traceback = "".join(report.format())
        result.line = lines[-1] if lines else block.line


def _last_line(error):
    """Return the line that names the exception; the first, where the message has several."""
    entries = traceback.format_exception_only(type(error), error)
    name = type(error).__name__
    return next((e for e in reversed(entries) if name in e.split(":")[0]), entries[-1]).split("\n")[
        0
    ]


def _places(error, inner):
    """List the (file, line) pairs that the traceback goes through, outermost first."""
    places = [(f.f_code.co_filename, n) for f, n in traceback.walk_tb(inner)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno or 0))
    return places


def _relabel(report, page):
    """Make each frame of `report`, and of what caused it, name the file a reader would open."""
    stack = []
    for frame in report.stack:
        file, line = frame.filename, frame.lineno
        if file == __file__:  # where a limit was met, or input was refused
            continue
        if file == str(page.path):
            file, line = page.origin(line)
        text = frame.line  # looked up before the place is renamed
        name = "<module>" if frame.name.startswith("<block at ") else frame.name
        stack.append(traceback.FrameSummary(shown(file, page.root), line, name, line=text))
    report.stack = traceback.StackSummary.from_list(stack)
    if getattr(report, "filename", None) == str(page.path):
        file, line = page.origin(int(report.lineno or 0))
        report.filename, report.lineno = shown(file, page.root), str(line)
    for cause in (report.__cause__, report.__context__):
        if cause:
            _relabel(cause, page)


class _Capture(io.StringIO):
    """Standard output for one block: bounded, and still readable after the block closes it."""

    def __init__(self):
        super().__init__()
        self.closed_by_block = False
        self.size = 0

    def write(self, text):
        self.size += len(text)
        if self.size > MOST_PRINTED:
            raise BlockStopped(f"printed more than {MOST_PRINTED:,} characters")
        return super().write(text)

    def close(self):
        self.closed_by_block = True


class _NoInput(io.StringIO):
    """Standard input for a block: nobody is there to type."""

    def readline(self, *_):
        raise RuntimeError("a block cannot ask for input: a page runs with nobody at the keyboard")

    read = readline


STREAMS = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")


@contextlib.contextmanager
def _streams(capture, result):
    """Give a block its own stdin and stdout; note in `result` when it went round stdout."""
    kept = {name: getattr(sys, name) for name in STREAMS}
    descriptor = os.dup(1)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 1)
        before = os.fstat(1)
        sys.stdin = sys.__stdin__ = _NoInput()
        sys.stdout = sys.__stdout__ = capture
        try:
            yield
        finally:
            result.broken = _went_round(capture, before)
            for name, stream in kept.items():
                setattr(sys, name, stream)
            os.dup2(descriptor, 1)
            os.close(descriptor)


def _went_round(capture, before):
    """Say what a block did to standard output besides printing, or "" when it did nothing."""
    if getattr(sys, "stdout", None) is not capture:
        return "the block replaced sys.stdout and did not put it back"
    if capture.closed_by_block:
        return "the block closed sys.stdout"
    try:
        now = os.fstat(1)
    except OSError:
        return "the block closed file descriptor 1, standard output"
    if not os.path.samestat(now, before):
        return "the block replaced file descriptor 1, standard output"
    return "the block wrote to file descriptor 1, past sys.stdout; use print" if now.st_size else ""


@contextlib.contextmanager
def _time_limit(page, block):
    """Stop a block after LIMIT seconds; a block stuck in native code ends the process instead.

    In that case the traceback on standard error names the page and the line.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return

    def stop(*_):
        place = f"{page.name}:{block.line}"
        raise BlockStopped(f"the block at {place} ran longer than {LIMIT:g} s")

    handler = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT, 1.0)  # again each second, should it be swallowed
    faulthandler.dump_traceback_later(LIMIT + GRACE, exit=True, file=stderr)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        faulthandler.cancel_dump_traceback_later()


# What a page may change in the process: how to read it, and how to set it.


def _folder():
    try:
        return os.getcwd()
    except FileNotFoundError:  # the block deleted the folder it stood in
        return tempfile.gettempdir()


def _set_environ(values):
    os.environ.clear()
    os.environ.update(values)


def _set_filters(filters):
    warnings.resetwarnings()
    warnings.filters[:] = filters


def _set_list(target):
    return lambda values: target.__setitem__(slice(None), values)


def _print_options():
    return dict(vars(torch._tensor_str.PRINT_OPTS))


def _set_print_options(options):
    vars(torch._tensor_str.PRINT_OPTS).update(options)


def _set_device(device):
    torch.set_default_device(None if device == torch.device("cpu") else device)


STATE = {
    "folder": (_folder, os.chdir),
    "environ": (lambda: dict(os.environ), _set_environ),
    "argv": (lambda: list(sys.argv), _set_list(sys.argv)),
    "import path": (lambda: list(sys.path), _set_list(sys.path)),
    "warning filters": (lambda: list(warnings.filters), _set_filters),
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "random": (random.getstate, random.setstate),
    "torch random": (torch.get_rng_state, torch.set_rng_state),
    "print options": (_print_options, _set_print_options),
    "dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "device": (torch.get_default_device, _set_device),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "grad": (torch.is_grad_enabled, torch.set_grad_enabled),
    "anomaly": (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "fast path": (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "matmul precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
}


def _capture_state():
    return {name: read() for name, (read, _) in STATE.items()}


def _install_state(state):
    """Set what differs, and only that: some of these are slow to set."""
    for name, value in state.items():
        read, write = STATE[name]
        now = read()
        same = torch.equal(now, value) if isinstance(value, torch.Tensor) else now == value
        if not same:
            write(value)


def _fresh_state(folder, script):
    """Return the state in which every page begins."""
    outside = _capture_state()
    torch.manual_seed(SEED)
    random.seed(SEED)
    torch.set_printoptions(**PRINT_OPTIONS)
    torch.set_default_dtype(DTYPE)
    fresh = _capture_state()
    _install_state(outside)
    return fresh | {
        "folder": folder,
        "argv": [script],
        "warning filters": WARNING_FILTERS,
        "threads": THREADS,
        "device": torch.device("cpu"),
        "grad": True,
        "anomaly": False,
        "fast path": True,
        "deterministic": 0,
        "matmul precision": "highest",
    }
