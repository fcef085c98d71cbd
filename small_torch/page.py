"""Runs the blocks of a page under Pyodide, and says what each did.

A page is one module, `__main__`, as when a reader runs it as a script. Each page begins with a torch of its own,
whose state no other page has changed.
"""

import ast
import builtins
import contextlib
import importlib
import importlib.machinery
import io
import linecache
import random
import sys
import time
import traceback
import types
import warnings

import small_torch_files
import small_torch_kernels
import small_torch_random

SEED = 0
MOST_PRINTED = 100_000  # characters that a block may print
LACKS = "is not in the small torch"
# What is taken of JavaScript is taken once and kept, so that moments.mjs can go back to any moment.
TAKEN = [
    getattr(js, name)
    for js in (small_torch_kernels, small_torch_random, small_torch_files)
    for name in dir(js)
]
# How an error ends a page's block for want of something: what the error is, how its text begins, and what to say.
MISSING = (
    (ModuleNotFoundError, "No module named ", ""),
    (ImportError, "cannot import name ", ""),
    (RuntimeError, "can't start new thread", "a page cannot start threads"),
    (OSError, "Function not implemented", "a page cannot start processes"),
    (OSError, "[Errno 138] emscripten", "a page cannot start processes"),
)


class Printed(io.StringIO):
    """What a block prints, within bounds; `tell`, if any, is told each piece."""

    def __init__(self, tell=None):
        super().__init__()
        self.tell_of = tell

    def write(self, text):
        if self.tell() + len(text) > MOST_PRINTED:
            raise BlockStopped(f"printed more than {MOST_PRINTED:,} characters")
        if self.tell_of:
            self.tell_of(text)
        return super().write(text)


class NoInput(io.StringIO):
    """Standard input for a block: nobody is there to type."""

    def readline(self, *_):
        raise RuntimeError("a block cannot ask for input: nobody answers it here")


class BlockStopped(BaseException):
    """A block did what none may; not an Exception, so that `except Exception` lets it through."""

    __module__ = "builtins"


class Absent:
    """Has a module of torch brought that is not here yet; what cannot be brought, the small torch lacks."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("torch."):
            return None
        if small_torch_files.bring():
            importlib.invalidate_caches()
            if found := importlib.machinery.PathFinder.find_spec(name, path):
                return found
        raise ModuleNotFoundError(f"{name} {LACKS} of this page; open the page in Colab", name=name)


class Page:
    """A page that runs: `source` is its program as one text, each line where tracebacks find it."""

    def __init__(self, path, source):
        for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
            del sys.modules[name]
        if not any(type(finder).__name__ == "Absent" for finder in sys.meta_path):
            sys.meta_path.append(Absent())
        self.path, self.module = path, types.ModuleType("__main__")
        self.module.__file__ = path
        self.keep(source)
        random.seed(SEED)
        importlib.import_module("torch").default_generator.manual_seed(SEED)

    def keep(self, source):
        """Keep the text of the page where tracebacks and `inspect` find it."""
        lines = [line + "\n" for line in source.split("\n")]
        linecache.cache[self.path] = (len(source), None, lines, self.path)

    def run(self, code, start=1, tell=None):
        """Run `code`, whose first line is line `start` of the page; return what it printed and how it ended.

        `lines` are those of the page that an error has passed; `tell`, if any, is told what is printed at once.
        """
        printed, errors = Printed(tell), Printed()
        said = {"raised": "", "last_line": "", "traceback": "", "lacks": "", "lines": []}
        main, sys.modules["__main__"] = sys.modules["__main__"], self.module
        stdin, sys.stdin = sys.stdin, NoInput()
        begun = time.perf_counter()
        try:
            with (
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(errors),
                warnings.catch_warnings(),
            ):
                warnings.showwarning = show_warning
                self.execute("\n" * (start - 1) + code)
        except BaseException as error:
            said["raised"] = type(error).__name__
            said["last_line"] = self.last_line(error)
            said["traceback"] = "".join(traceback.format_exception(error))
            said["lacks"] = lacking(error)
            said["lines"] = self.lines_of(error)
        finally:
            sys.stdin = stdin
            sys.modules["__main__"] = main
        said |= {"printed": printed.getvalue(), "errors": errors.getvalue()}
        return {"seconds": time.perf_counter() - begun, **said}

    def execute(self, code):
        """Execute a program of this page; a value in which it ends for show is printed, as a notebook shows it."""
        names = vars(self.module)
        program = compile(code, self.path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        end = program.body[-1] if program.body else None
        asks = isinstance(end, ast.Expr) and not isinstance(end.value, ast.NamedExpr)
        if asks:
            program.body.pop()
        exec(compile(program, self.path, "exec", dont_inherit=True), names)
        if asks:
            ending = compile(ast.Expression(end.value), self.path, "eval", dont_inherit=True)
            if is_for_show(end.value, value := eval(ending, names)):
                print(repr(value))

    def lines_of(self, error):
        """Return the lines of the page that `error` has passed, the innermost last."""
        if isinstance(error, SyntaxError) and error.filename == self.path:
            return [error.lineno or 0]
        frames = traceback.extract_tb(error.__traceback__)
        return [frame.lineno or 0 for frame in frames if frame.filename == self.path]

    @staticmethod
    def last_line(error):
        """Return the line that names the exception; the first, where the message has several."""
        entries = traceback.format_exception_only(error)
        named = (entry for entry in entries if not entry.startswith(" "))
        return next(named, entries[-1]).split("\n")[0]


def show_warning(message, category, *_):
    """Write a warning without the place, which is a line of the page's whole program."""
    print(f"{category.__name__}: {message}", file=sys.stderr)


def is_for_show(expression, value):
    """Say whether a block that ends in `expression` asks for its `value`, as the checker of pages says it, too."""
    text = isinstance(expression, ast.Constant) and isinstance(value, str)
    if text or value is None or value is ...:
        return False
    if not isinstance(expression, ast.Call):
        return True
    function = expression.func
    if isinstance(function, ast.Name) and hasattr(builtins, function.id):
        return True
    is_tensor = isinstance(value, sys.modules["torch"].Tensor)
    return is_tensor and not ast.unparse(function).endswith("_")


def lacking(error):
    """Say what the small torch lacks, where that is why an error was raised; otherwise ""."""
    while error is not None:
        text = str(error)
        if LACKS in text:
            return text.partition(";")[0]
        for kind, begins, meaning in MISSING:
            if isinstance(error, kind) and text.startswith(begins):
                return meaning or text
        error = error.__cause__ or error.__context__
    return ""
