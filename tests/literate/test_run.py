"""A page is one real module; a block that misbehaves is named, and leaves nothing behind."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from literate import compare
from literate import run as runner
from literate.solutions import leans_on_solutions
from tests.systems import FORK, LINUX, POSIX, each_where_it_can


@pytest.fixture
def play(book):
    """Return a function that writes a page, runs it whole and returns its Results."""
    runs = []

    def play(text, **options):
        run = runner.Run(book.read(text), **options)
        runs.append(run)
        return run.all()

    yield play
    for run in runs:
        run.close()


@pytest.fixture
def verdict(book):
    """Return a function that writes a page of blocks, runs it, and returns its first failure."""

    def verdict(text):
        page = book.read(text)
        run = runner.Run(page)
        try:
            found = (compare.check(page, block, run.upto(block)) for block in page.blocks)
            return next((failure for failure in found if failure), None)
        finally:
            run.close()

    return verdict


def code(*blocks):
    """Return a page of python fences; the first line of code of the first is line 2."""
    return "\n".join(f"```python\n{textwrap.dedent(block).strip()}\n```\n" for block in blocks)


# ---- One real module. ----


def test_the_source_of_functions_and_classes_can_be_read(book, play):
    book.snippet("parts.py", "class Part:\n    pass\n\n\ndef use(x):\n    return x\n")
    raising = code("class Half:\n    size = 2\n1 / 0")
    announced = '```output raises="ZeroDivisionError"\nx\n```\n'
    read = "import inspect\nfor one in (Part, use, Half):\n    print(inspect.getsource(one))"
    *_, last = play(code('--8<-- "parts.py"') + raising + announced + code(read))
    sources = (
        "class Part:\n    pass\n",
        "def use(x):\n    return x\n",
        "class Half:\n    size = 2\n",
    )
    assert last.printed == "".join(f"{source}\n" for source in sources)


def test_a_page_is_main_in_an_empty_folder_and_finds_what_a_script_finds(play):
    main, found, _, own = play(
        code(
            """
            import os, sys
            print(__name__ == "__main__", sys.modules["__main__"].__dict__ is globals())
            print(os.listdir(), sys.argv == [__file__])
            """,
            'print([name for name in ("pytest", "markdown", "literate") if name in sys.modules])',
            "import pathlib; _ = pathlib.Path('own.py').write_text('a = 7')",
            "import own\nprint(own.a)",
        )
    )
    assert (main.printed, found.printed, own.printed) == ("True True\n[] True\n", "[]\n", "7\n")
    assert sys.modules["__main__"].__name__ == "__main__"


def test_pickle_and_dataclasses_and_annotations_work(play):
    (result,) = play(
        code("""
        import pickle
        from dataclasses import dataclass
        from typing import get_type_hints

        @dataclass
        class Shape:
            tokens: "int"

        shape = pickle.loads(pickle.dumps(Shape(3)))
        print(shape, shape == Shape(3), get_type_hints(Shape), Shape.__module__)
        """)
    )
    assert result.printed == "Shape(tokens=3) True {'tokens': <class 'int'>} __main__\n"


def test_the_script_of_a_page_holds_neither_figures_nor_what_must_raise(play):
    figure = "```attention\ntokens = word: a\nembeddings = a: [[1.0]]\nweights = a:\n```\n"
    raising = code("1 / 0") + '```output raises="ZeroDivisionError"\nx\n```\n'
    read = "import pathlib\nprint(pathlib.Path(__file__).read_text())"
    *_, last = play(code("word, a = 'a', [[1.0]]") + figure + raising + code(read))
    assert last.printed == f"word, a = 'a', [[1.0]]\n\n{read}\n\n"


# ---- Tracebacks. ----


def test_a_traceback_goes_through_the_page(play):
    _, result = play(
        code(
            "def divide(x):\n    return 1 / x",
            "a = 1\ndivide(0)",
        )
    )
    assert result.raised == "ZeroDivisionError"
    assert result.line == 3
    assert re.sub(r"(?m)^ +[~^]+\n", "", result.traceback) == (
        "Traceback (most recent call last):\n"
        '  File "docs/page.md", line 8, in <module>\n'
        "    divide(0)\n"
        '  File "docs/page.md", line 3, in divide\n'
        "    return 1 / x\n"
        "ZeroDivisionError: division by zero\n"
    )


def test_a_traceback_through_the_second_of_two_includes_names_it(book, play):
    book.snippet("one.py", "a = 1\n")
    book.snippet("two.py", "1 / 0\n")
    _, result = play(code('--8<-- "one.py"', '--8<-- "two.py"'))
    assert '  File "snippets/two.py", line 1, in <module>\n    1 / 0\n' in result.traceback


# ---- Blocks that misbehave. ----

MISBEHAVING = {
    "a syntax error": ("a = 1\nb = = 2", 3, "SyntaxError"),
    "an exception of one's own": ("class Odd(Exception): ...\nraise Odd(3)", 3, "Odd: 3"),
    "leaving with success": ("import sys\nsys.exit(0)", 3, "SystemExit: 0"),
    "asking for input": ("a = 1\ninput('name? ')", 3, "EOFError"),
    "a million lines": ("for i in range(10**6):\n    print(i)", 3, "printed more than 100,000"),
    "a million lines, come what may": (
        "for i in range(10**6):\n    try: print(i)\n    except Exception: pass",
        3,
        "printed more than 100,000",
    ),
    "printing what cannot be encoded": ("a = 1\nprint('\\ud800')", 3, "UnicodeEncodeError"),
    "raising what cannot be encoded": ("raise ValueError('\\ud800')", 2, r"ValueError: \ud800"),
    "recursion without end": ("def f(): return f()\nf()", 2, "RecursionError"),
    "an exception that cannot say its name": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
        4,
        "Odd",
    ),
    "an exception without a name": ("raise type('', (Exception,), {})('x')", 2, ": x"),
    "printing with no output": ("a = 1\nprint('hello')", 1, "prints, and no `output` fence"),
}


@pytest.mark.parametrize(("text", "line", "words"), MISBEHAVING.values(), ids=MISBEHAVING)
def test_a_block_that_misbehaves_is_named(verdict, text, line, words):
    failure = verdict(code(text, "after = 1"))
    assert failure.line == line
    first, second, *_ = failure.report.split("\n")
    assert first.startswith(f"docs/page.md:{line}: ")
    assert words in first
    assert "literate/child.py" not in failure.report
    assert second.split(" | ")[1] == code(text).split("\n")[line - 1].strip()


def test_what_a_block_may_print_is_not_used_up_by_those_before_it(play):
    results = play(code(*["print('a' * 60_000)"] * 2))
    assert [result.raised for result in results] == ["", ""]


def test_what_misses_a_name_that_a_failed_block_makes_follows_from_it(book):
    page = book.read(code("a = 1 / 0", "b = a", "print(b)", "print(c)"))
    with contextlib.closing(runner.Run(page)) as run:
        failures = [compare.run_and_check(run, block) for block in run.blocks]
    assert [failure.follows for failure in failures] == [0, 1, 5, 0]


def test_what_goes_to_standard_error_is_kept_with_its_block(play):
    first, second, third = play(
        code(
            "import sys\nprint('one', file=sys.stderr)",
            "import os\n_ = os.write(2, b'two\\n')",
            "import warnings\nwarnings.warn('old')",
        )
    )
    assert (first.errors, second.errors) == ("one\n", "two\n")
    assert third.errors.startswith("docs/page.md:13: UserWarning: old\n")


LAST_LINES = {
    "a message of two lines": ("raise ValueError('one\\ntwo')", "ValueError: one\ntwo"),
    "a note": (
        "error = ValueError('one')\nerror.add_note('ValueError: two')\nraise error",
        "ValueError: one",
    ),
    "code that names it": ("SyntaxError = = 1", "SyntaxError: invalid syntax"),
    "an exception of a module": ("import zlib\nraise zlib.error('one')", "zlib.error: one"),
    "a group": (
        "raise ExceptionGroup('many', [ValueError('one')])",
        "ExceptionGroup: many (1 sub-exception)",
    ),
}


@pytest.mark.parametrize(("text", "line"), LAST_LINES.values(), ids=LAST_LINES)
def test_the_last_line_of_a_block_names_its_exception_and_its_whole_message(play, text, line):
    (result,) = play(code(text))
    assert result.last_line == line


@POSIX
def test_what_is_printed_beside_python_is_printed(play):
    """By another process, by native code, through a descriptor, and by a process of the page's own."""
    (result,) = play(
        code("""
        import ctypes, os, subprocess
        print("one")
        subprocess.run(["echo", "two"])
        ctypes.CDLL(None).puts(b"three")
        ctypes.CDLL(None).fflush(None)
        os.write(1, b"four\\n")
        if os.fork() == 0:
            print("five")
            os._exit(0)
        _ = os.wait()
        """)
    )
    assert result.printed == "one\ntwo\nthree\nfour\nfive\n"


# ---- A page that does not end as it should. ----

LOOPS = {  # what does not end, and its line; `there` stands for what tells us that it was reached
    "native code": ("a = 1\nthere; sum(range(10**13))", 3),
    "a loop in a function": ("def spin():\n    while True: there\n\nspin()", 3),
    "a loop beside a thread that waits": (
        "from threading import Event, Thread\n"
        "Thread(target=lambda: Event().wait(), daemon=True).start()\nwhile True: there",
        4,
    ),
    "a loop that catches everything": (
        "while True:\n    try:\n        while True: there\n    except BaseException: pass",
        4,
    ),
}


@pytest.fixture
def stuck(tmp_path_factory, monkeypatch):
    """Return a function that gives code whose word `there` tells when it is reached.

    The time of a block is then up, however fast this machine is; before, it has all the time it needs.
    """
    reached, receive = tmp_path_factory.mktemp("stuck") / "reached", runner._Process._receive

    def wait(process, seconds):
        if seconds != runner.LIMIT:
            return receive(process, seconds)
        while not process.connection.poll(0.01):
            if reached.exists():
                reached.unlink()
                return None
        return receive(process, seconds)

    monkeypatch.setattr(runner._Process, "_receive", wait)
    # A file without a buffer: nothing of Python's own runs while it is made.
    return lambda text: text.replace("there", f"open({str(reached)!r}, 'wb', 0).close()")


@POSIX
@pytest.mark.parametrize(("text", "line"), LOOPS.values(), ids=LOOPS)
def test_a_block_that_runs_too_long_is_named_with_the_line_where_it_was(stuck, verdict, text, line):
    failure = verdict(code(stuck(text), "after = 1"))
    long = f"ran longer than {runner.LIMIT:g} s"
    assert failure.report.startswith(f"docs/page.md:{line}: the block at docs/page.md:1 {long}")
    assert "child.py" not in failure.report


@POSIX
def test_a_page_is_named_whatever_its_name_where_native_code_in_an_include_was_stopped(book, stuck):
    book.snippet("stuck.py", stuck("def stuck():\n    there; sum(range(10**13))\n"))
    page = book.read(code('--8<-- "stuck.py"', "a = 1\nstuck()"), "docs/größe.md")
    with contextlib.closing(runner.Run(page)) as run:
        _, result = run.all()
    assert result.line == 7
    assert 'File "docs/größe.md", line 7, in <module>\n    stuck()\n' in result.traceback
    assert 'File "snippets/stuck.py", line 2, in stuck\n    ' in result.traceback


@pytest.mark.parametrize(
    ("setting", "seconds"),
    [("", 60.0), ("timeout = 2", 2.0), ('timeout = {"docs/page.md" = 3, "docs/b.md" = 4}', 3.0)],
)
def test_the_project_says_how_long_a_block_may_take(book, monkeypatch, setting, seconds):
    monkeypatch.delenv("LITERATE_LIMIT", raising=False)
    book.page(f"[tool.literate]\n{setting}\n", "pyproject.toml")
    assert runner.limit(book.read(code("a = 1"))) == seconds


def test_a_page_imports_from_where_the_tests_of_its_project_do(book, play):
    book.page("[tool.pytest.ini_options]\npythonpath = 'src'\n", "pyproject.toml")
    book.page("a = 7\n", "src/own.py")
    assert play(code("import own\nprint(own.a)"))[0].printed == "7\n"


def test_a_block_is_stopped_when_its_time_is_up(verdict, monkeypatch):
    monkeypatch.setenv("LITERATE_LIMIT", "0.5")
    assert "ran longer than 0.5 s" in verdict(code("while True: pass")).report


ENDINGS = {
    "leaving at once": ("import os\nos._exit(0)", "ended the process of its page (exit status 0)"),
    "reading what is not there": ("import ctypes\nctypes.string_at(0)", "(SIGSEGV)"),
    "killing whoever made it": (
        "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(9)",
        "ended the process of its page (exit status unknown)",
    ),
    "closing every file": ("import os\nos.closerange(3, 1000)", "ended the process of its page"),
}
AT_THE_END = {
    "leaving as it ends": (
        "import atexit, os\natexit.register(os._exit, 0)",
        "the page's exit handlers ended its process (exit status 0)",
    ),
    "printing as it ends": (
        "import atexit\natexit.register(print, 'bye')",
        r"after its last block the page printed 'bye\n'",
    ),
    "a thread that never ends": (
        "import threading\nthreading.Thread(target=threading.Event().wait).start()",
        "the page did not end after its last block",
    ),
}


@pytest.mark.parametrize(
    ("text", "words"),
    each_where_it_can(
        ENDINGS,
        POSIX=("reading what is not there", "closing every file"),
        LINUX=("killing whoever made it",),  # elsewhere that is pytest itself
    ),
)
def test_a_page_that_ends_too_early_is_named_with_the_block_that_did_it(play, text, words):
    before, ended, after = play(code("before = 1", text, "after = 1"))
    assert before.raised == ""
    assert 5 <= ended.line <= 7
    assert words in ended.last_line
    assert not ended.raised.isidentifier(), "no exception that a page can announce"
    assert not after.ran


@pytest.mark.parametrize(("text", "words"), AT_THE_END.values(), ids=AT_THE_END)
def test_what_a_page_does_as_it_ends_is_told_at_its_last_block(verdict, monkeypatch, text, words):
    monkeypatch.setattr(runner, "GRACE", 0.5 if "did not end" in words else runner.START)
    failure = verdict(code("before = 1", text, "after = 1"))
    assert failure.line == 10
    assert words in failure.report.split("\n")[0]


LEAVES_RUNNING = "import subprocess\np = subprocess.Popen(['sleep', '999'], start_new_session=True)\nprint(p.pid)"


@LINUX
@pytest.mark.parametrize(
    "blocks", [[LEAVES_RUNNING], [LEAVES_RUNNING, "after = 1"]], ids=["ended", "left"]
)
def test_what_a_page_leaves_running_is_killed(book, blocks):
    run = runner.Run(book.read(code(*blocks)))
    pid = int(run.upto(run.blocks[0]).printed)
    run.close()
    wait_until_gone(pid)


def wait_until_gone(pid):
    """Return when there is no process of this number, which is being ended."""
    late = time.monotonic() + 60
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < late:
            os.kill(pid, 0)
        raise AssertionError(f"process {pid} is still there")


def test_what_was_printed_before_the_end_is_kept(play, stuck):
    for last in ("while True: there", "import os; os._exit(0)"):
        (result,) = play(code(stuck(f"print('so far')\n{last}")))
        assert result.printed == "so far\n"


@FORK
def test_a_forked_process_that_runs_past_the_end_of_its_block_is_told(play):
    (result,) = play(
        code("import os, sys\nif os.fork():\n    _ = os.wait()\nelse:\n    sys.exit(0)")
    )
    assert "ran past its end" in result.printed


HONEST = {
    "a thread that ends by itself": """
        import threading, time
        threading.Thread(target=time.sleep, args=[0.05]).start()
        """,
    "a daemon thread": """
        import threading
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        """,
    "a pool of threads that nobody closes": """
        from concurrent.futures import ThreadPoolExecutor
        assert ThreadPoolExecutor(2).submit(sum, [1, 2]).result() == 3
        """,
    "a process that imports the page again": """
        from multiprocessing import get_context

        def work(queue):
            queue.put(__name__)

        if __name__ == "__main__":
            context = get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=work, args=[queue])
            process.start()
            assert queue.get() == "__mp_main__"
            process.join()
        """,
    "a pool of processes": """
        from multiprocessing import Pool

        def double(x):
            return 2 * x

        with Pool(2) as pool:
            assert pool.map(double, [1, 2]) == [2, 4]
        """,
    "a file that is removed at the end": """
        import atexit, pathlib
        _ = pathlib.Path("a").write_text("a")
        atexit.register(pathlib.Path("a").unlink)
        """,
}


@pytest.mark.parametrize(
    "text",
    each_where_it_can(
        HONEST,
        # Elsewhere a new process of multiprocessing imports the page, which must then be written for it.
        LINUX=("a pool of processes",),
    ),
)
def test_a_page_may_start_what_it_ends(verdict, text):
    assert verdict(code(text)) is None


INTERRUPTED = {
    "update": (["literate", "update", "docs/page.md"], 130),
    "pytest": (["pytest", "-qs", "-p", "literate.pytest_plugin", "docs/page.md"], 2),
}


@pytest.mark.lab
@pytest.mark.parametrize(("command", "status"), INTERRUPTED.values(), ids=INTERRUPTED)
def test_an_interrupt_ends_the_page_and_shows_no_traceback_of_ours(book, no_torch, command, status):
    book.page(code(waits(book)))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([sys.executable, "-m", *command], **pipes) as done:
        pid = process_of(book)
        done.send_signal(signal.SIGINT)
        said, _ = done.communicate(timeout=60)
    assert done.returncode == status
    assert "Traceback" not in said
    wait_until_gone(pid)


def waits(book):
    """Return code that says which process it runs in, and runs on."""
    file = str(book.root / "pid")
    return f"import os\nopen({file!r} + '~', 'w').write(str(os.getpid()))\nos.rename({file!r} + '~', {file!r})\nwhile True: pass"


def process_of(book):
    """Wait until the code of `waits` runs; return the number of its process."""
    file = book.root / "pid"
    while not file.exists():
        time.sleep(0.01)
    return int(file.read_text())


@LINUX
def test_a_page_ends_with_whoever_runs_it_though_that_is_killed(book, no_torch):
    path = book.page(code(waits(book)))
    program = f"from literate import page, run; run.Run(page.read({str(path)!r})).all()"
    with subprocess.Popen([sys.executable, "-c", program]) as done:
        pid = process_of(book)
        done.kill()
    wait_until_gone(pid)


# ---- Where forking is missing. ----


def test_a_spawned_page_prints_what_a_forked_one_does(play, monkeypatch):
    monkeypatch.setattr(runner, "FORKS", False)
    results = play(code("a = {'b', 'c', 'd'}", "print(a)", "import os\nprint(os.listdir())"))
    monkeypatch.undo()
    forked = play(code("a = {'b', 'c', 'd'}", "print(a)", "import os\nprint(os.listdir())"))
    assert results == forked


@pytest.mark.parametrize("name", ["leaving at once", "leaving as it ends"])
def test_a_spawned_page_that_does_not_end_well_is_named(verdict, no_torch, monkeypatch, name):
    monkeypatch.setattr(runner, "FORKS", False)
    text, words = (ENDINGS | AT_THE_END)[name]
    assert words in verdict(code(text)).report.split("\n")[0]


# ---- Where no page can be started. ----


@pytest.fixture
def begun(monkeypatch):
    """The processes that were started, each with what it was started as; no page has been before."""
    started, python = [], runner._python
    monkeypatch.setattr(runner, "_fork_servers", [])

    def note(kind, handle):
        started.append(python(kind, handle))
        return started[-1]

    monkeypatch.setattr(runner, "_python", note)
    return started


def without_torch(monkeypatch, book):
    """Have every Python that starts from now on find a torch that cannot be imported."""
    book.page("raise ImportError('no torch here')\n", "broken/torch.py")
    monkeypatch.setenv("PYTHONPATH", str(book.root / "broken"))


BOTH = {"forked": True, "spawned": False}
CANNOT_START = {
    "torch cannot be imported": without_torch,
    "Python ends at once": lambda patch, _: patch.setattr(sys, "executable", shutil.which("false")),
    "Python is not there": lambda patch, _: patch.setattr(sys, "executable", "/no/such/python"),
}


@pytest.mark.parametrize("forks", each_where_it_can(BOTH, LINUX=["forked"]))
@pytest.mark.parametrize("how", each_where_it_can(CANNOT_START, POSIX=["Python ends at once"]))
def test_each_block_of_a_page_that_cannot_be_started_says_so(book, monkeypatch, begun, how, forks):
    monkeypatch.setattr(runner, "FORKS", forks)
    how(monkeypatch, book)
    page = book.read(code("a = 1", "print(a)") + "\n```output\n1\n```\n")
    with contextlib.closing(runner.Run(page)) as run:
        failures = [compare.run_and_check(run, block) for block in run.blocks]
    for line, failure in zip((1, 5), failures, strict=True):
        assert failure.report.startswith(f"docs/page.md:{line}: the page was not run: ")
        assert "did not start" in failure.report
    assert all(process.poll() is not None for process in begun)
    assert len(begun) <= 1


@pytest.mark.parametrize("forks", each_where_it_can(BOTH, LINUX=["forked"]))
def test_a_process_that_takes_too_long_to_start_is_ended(play, monkeypatch, begun, forks):
    monkeypatch.setattr(runner, "FORKS", forks)
    monkeypatch.setattr(runner, "START", 0.0)
    (result,) = play(code("a = 1"))
    assert "did not start" in result.last_line
    assert [process.poll() is None for process in begun] == [False]


@LINUX
def test_what_pages_are_forked_from_is_replaced_when_it_has_ended(play, no_torch, begun):
    play(code("a = 1"))
    ended = runner._fork_server().process
    ended.kill()
    ended.wait()
    assert play(code("print(1)"))[0].printed == "1\n"


# ---- Nothing leaks. ----

LEAKS = {  # what a page may change: how, and how another would see it
    "files": ("open('a', 'w').close()", "import os; print(os.listdir())"),
    "the environment": ("import os; os.environ['A'] = '1'", "import os; print(os.getenv('A'))"),
    "a builtin": ("import builtins; builtins.sum = max", "print(sum([1, 2]))"),
    "random": ("import random; random.seed(7)", "import random; print(random.random())"),
    "numpy's seed": (
        "import numpy; numpy.random.seed(7)",
        "import numpy; print(numpy.random.rand())",
    ),
    "torch's seed": ("torch.manual_seed(7)", "print(torch.rand(2))"),
    "a device entered": ("torch.device('meta').__enter__()", "print(torch.ones(1).device)"),
}


def test_what_a_page_changes_lasts_to_its_end_and_no_longer(play):
    changes, looks = ([*column] for column in zip(*LEAKS.values(), strict=True))
    _, *alone = play(code("import torch", *looks))
    _, *changed = play(code("import torch", *changes, *looks))
    _, *other = play(code("import torch", *looks))
    assert not any(result.raised for result in (*alone, *changed))
    after = changed[len(changes) :]
    same = [name for name, a, b in zip(LEAKS, alone, after, strict=True) if a.printed == b.printed]
    assert same == []
    assert other == alone


def test_a_page_draws_as_if_it_had_set_the_seed_0(play):
    imports = "import random, numpy, torch"
    seeds = "random.seed(0)\nnumpy.random.seed(0)\n_ = torch.manual_seed(0)"
    draws = "print(random.random(), numpy.random.rand(), torch.rand(1))"
    *_, unseeded = play(code(imports, draws))
    *_, seeded = play(code(imports, seeds, draws))
    assert unseeded.printed == seeded.printed != ""


def test_a_page_may_compute_on_several_threads(play):
    """What it is forked from has computed nothing: a parallel loop after another's would never end."""
    (result,) = play(
        code("""
        import torch
        torch.set_num_threads(2)
        print((torch.ones(600, 600) @ torch.ones(600, 600)).unique().tolist())
        """)
    )
    assert result.printed == "[600.0]\n"


@LINUX
def test_numpy_computes_on_no_thread_of_its_own(play):
    (result,) = play(
        code("""
        import os
        import numpy as np
        before = set(os.listdir("/proc/self/task"))
        np.ones((600, 600)) @ np.ones((600, 600))
        print(set(os.listdir("/proc/self/task")) == before)
        """)
    )
    assert result.printed == "True\n"


def test_the_checker_itself_imports_no_torch():
    program = "import sys, literate.pytest_plugin, literate.update; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_two_pages_may_take_turns(book):
    first = runner.Run(book.read(code("import torch", "print(torch.rand(1))"), "docs/a.md"))
    second = runner.Run(book.read(code("import torch", "print(torch.rand(1))"), "docs/b.md"))
    first.upto(first.blocks[0])
    second.all()
    first.all()
    assert first.results[1].printed == second.results[1].printed != ""
    first.close()
    second.close()


def test_a_block_may_delete_the_folder_it_stands_in(play, book):
    results = play(code("import os, shutil\nshutil.rmtree(os.getcwd())", "print(1)"))
    assert [result.traceback for result in results] == ["", ""]
    assert os.getcwd() == str(book.root)


# ---- Solutions. ----


LEANS = {  # what stands after a solution that makes `a`, and whether that could print another thing without
    "a function": ("def f(x: int = 1):\n    return a + x", False),
    "a class": (
        "import torch\nclass F(torch.nn.Module):\n    size = 2\n    def f(self): return a",
        False,
    ),
    "a constant": ("answer = ...", False),
    "a print": ("print(1)", True),
    "a default": ("def f(x=a): ...", True),
    "a decorator": ("def f(x): ...\n@f\ndef g(): ...", False),
    "a decorator of the solution": ("@a\ndef g(): ...", True),
    "a call in a class": ("class F:\n    size = print(1)", True),
    "a syntax error": ("a = = 1", False),
}


@pytest.mark.parametrize(("text", "leans"), LEANS.values(), ids=LEANS)
def test_a_page_runs_again_without_solutions_where_that_could_differ(book, text, leans):
    solution = '\n??? success "Solution"\n\n    ```python\n    a = 7\n    ```\n\n'
    assert leans_on_solutions(book.read(code("a = 1") + solution + code(text))) is leans
    assert not leans_on_solutions(book.read(code("a = 1", text) + solution))


# ---- What a notebook would show. ----

FOR_SHOW = {
    "a name": "a = 1\na",
    "a cell": "a = [1, 2]\na[0]",
    "a text with values": "a = 1\nf'{a}'",
    "a tensor from a call": "import torch\ntorch.ones(3).sum()",
    "what a built-in returns": "a = [1]\nlen(a)",
}
FOR_EFFECT = {
    "a call that returns nothing": "a = []\na.append(1)",
    "a call that works in place": "import torch\ntorch.ones(3).requires_grad_()",
    "a module set to evaluate": "import torch\ntorch.nn.Linear(2, 2).eval()",
    "a name for nothing": "a = None\na",
    "words alone": "a = 1\n'words'",
    "an ellipsis": "a = 1\n...",
    "an assignment that is an expression": "a = 1\n(b := a)",
}


def test_a_block_that_ends_in_a_value_and_not_one_that_ends_in_an_effect_should_print_it(play):
    results = play(code(*FOR_SHOW.values(), *FOR_EFFECT.values()))
    assert not any(result.raised for result in results)
    shown = [result.unshown > 0 for result in results]
    assert shown == [True] * len(FOR_SHOW) + [False] * len(FOR_EFFECT)


def test_an_include_that_ends_in_a_value_is_told_where_the_page_includes_it(book, verdict):
    book.snippet("shown.py", "a = 1\na\n")
    report = verdict(code('--8<-- "shown.py"')).report
    assert report.startswith("docs/page.md:1: the block ends in a value")


def test_a_value_in_place_of_the_exception_that_was_announced_is_no_second_error(verdict):
    text = code("a = 1\na") + '\n```output raises="ValueError"\nValueError: no\n```\n'
    assert "did not raise ValueError" in verdict(text).report
