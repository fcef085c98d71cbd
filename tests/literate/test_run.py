"""A page is one real module; a block that misbehaves is named, and leaves nothing behind."""

import contextlib
import functools
import math
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
import torch

from literate import child, compare
from literate import run as runner
from tests.projects import LEANING
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


def test_blocks_share_one_module_top_to_bottom(play):
    results = play(code("a = 1", "a += 1", "print(a)"))
    assert [result.printed for result in results] == ["", "", "2\n"]


def test_the_source_of_a_function_and_of_a_class_can_be_read(play):
    first, last = play(
        code(
            """
            class Head:
                size = 2

            def double(x):
                # twice
                return 2 * x
            """,
            """
            import inspect

            print(inspect.getsource(Head), inspect.getsource(double), sep="")
            """,
        )
    )
    assert last.printed == (
        "class Head:\n    size = 2\ndef double(x):\n    # twice\n    return 2 * x\n\n"
    ), first.traceback


def test_the_source_of_included_functions_and_classes_can_be_read(book, play):
    book.snippet("parts.py", "class Part:\n    pass\n\n\ndef use(x):\n    return x\n")
    *_, last = play(
        code(
            '--8<-- "parts.py"',
            "import inspect\nprint(inspect.getsource(Part), inspect.getsource(use))",
        )
    )
    assert last.printed == "class Part:\n    pass\n def use(x):\n    return x\n\n"


def test_the_source_of_a_class_can_be_read_though_its_block_must_raise(play):
    raising = code("class Half:\n    size = 2\n1 / 0")
    announced = '```output raises="ZeroDivisionError"\nx\n```\n'
    *_, last = play(raising + announced + code("import inspect\nprint(inspect.getsource(Half))"))
    assert last.printed == "class Half:\n    size = 2\n\n"


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


def test_a_page_is_main_with_its_own_name_and_folder(play, book):
    (result,) = play(
        code("""
        import os, sys
        print(__name__ == "__main__", sys.modules["__main__"].__dict__ is globals())
        print(os.listdir(), sys.argv == [__file__])
        """)
    )
    assert result.printed == "True True\n[] True\n"
    assert sys.modules["__main__"].__name__ == "__main__"


def test_files_that_a_page_writes_stay_in_a_folder_of_its_own(play, book):
    results = play(
        code(
            "import pathlib; pathlib.Path('a.txt').write_text('a')",
            "print(pathlib.Path('a.txt').read_text())",
        )
    )
    assert results[1].printed == "a\n"
    assert not list(book.root.rglob("a.txt"))


def test_a_page_imports_a_file_that_it_wrote(play):
    write = "import pathlib; pathlib.Path('own.py').write_text('a = 7')"
    assert play(code(write, "import own\nprint(own.a)"))[1].printed == "7\n"


def test_the_script_of_a_page_holds_neither_figures_nor_what_must_raise(play):
    figure = "```attention\ntokens: a\nembeddings = a: [[1.0]]\nby_hand: tokens weights\n```\n"
    raising = code("1 / 0") + '```output raises="ZeroDivisionError"\nx\n```\n'
    read = "import pathlib\nprint(pathlib.Path(__file__).read_text())"
    *_, last = play(code("a = [[1.0]]") + figure + raising + code(read))
    assert last.printed == f"a = [[1.0]]\n\n{read}\n\n"


def test_an_include_runs_the_section_it_shows(book, play):
    book.snippet(
        "parts.py",
        "raise SystemError\n\nif True:\n    # --8<-- [start:body]\n    a = 7\n    # --8<-- [end:body]\n",
    )
    results = play(code('--8<-- "parts.py:body"', "print(a)"))
    assert results[1].printed == "7\n"


NAMED = """\
import gone

def plain(function):
    raise SystemError

# Not this.
@marked
@marked
def shown():
    \"\"\"Shown.\"\"\"
    # --8<-- [start:inner]
    raise KeyError("x")
    # --8<-- [end:inner]
# Nor this.
raise SystemError
"""


def test_an_include_by_name_runs_that_function_alone_with_its_decorators(book, play):
    book.snippet("parts.py", NAMED)
    first = "calls = []\ndef marked(f):\n    calls.append(f.__name__)\n    return f"
    _, _, told, failed = play(
        code(first, '--8<-- "parts.py:shown"', "print(calls, shown.__doc__)", "shown()")
    )
    assert told.printed == "['shown', 'shown'] Shown.\n"
    assert '  File "snippets/parts.py", line 12, in shown\n    raise KeyError("x")\n' in (
        failed.traceback
    )


def test_a_section_that_is_marked_comes_before_a_function_of_its_name(book, play):
    marked = "# --8<-- [start:body]\na = 7\n# --8<-- [end:body]\ndef body():\n    a = 8\nbody()\n"
    book.snippet("parts.py", marked)
    assert play(code('--8<-- "parts.py:body"', "print(a)"))[1].printed == "7\n"


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


def test_a_traceback_through_an_include_names_its_file(book, play):
    book.snippet(
        "parts.py",
        '"""Parts."""\n\n\n# --8<-- [start:body]\ndef fail():\n\n    raise KeyError("x")\n# --8<-- [end:body]\n',
    )
    _, result = play(code('--8<-- "parts.py:body"', "fail()"))
    assert '  File "docs/page.md", line 6, in <module>\n    fail()\n' in result.traceback
    assert (
        '  File "snippets/parts.py", line 7, in fail\n    raise KeyError("x")\n' in result.traceback
    )
    assert result.line == 6


def test_a_traceback_through_the_second_of_two_includes_names_it(book, play):
    book.snippet("one.py", "a = 1\n")
    book.snippet("two.py", "1 / 0\n")
    _, result = play(code('--8<-- "one.py"', '--8<-- "two.py"'))
    assert '  File "snippets/two.py", line 1, in <module>\n    1 / 0\n' in result.traceback


def test_a_traceback_keeps_its_causes(play):
    (result,) = play(
        code("""
        try:
            {}["k"]
        except KeyError as error:
            raise ValueError("no k") from error
        """)
    )
    assert "KeyError: 'k'\n\nThe above exception was the direct cause" in result.traceback
    assert '  File "docs/page.md", line 3, in <module>\n    {}["k"]\n' in result.traceback


def test_lines_are_counted_as_an_editor_counts_them(play):
    (result,) = play("```python\na = '\x0c'\nb = '\u2028'\nraise ValueError(a)\n```\n")
    assert result.line == 4
    assert "    raise ValueError(a)\n" in result.traceback


# ---- Blocks that misbehave. ----

MISBEHAVING = {
    "a syntax error": ("a = 1\nb = = 2", 3, "SyntaxError"),
    "an indent too many": ("a = 1\n  b = 2", 3, "IndentationError"),
    "an exception": ("a = 1\nraise RuntimeError('why')", 3, "RuntimeError: why"),
    "an exception of one's own": ("class Odd(Exception): ...\nraise Odd(3)", 3, "Odd: 3"),
    "leaving": ("import sys\nsys.exit()", 3, "SystemExit"),
    "leaving with success": ("import sys\nsys.exit(0)", 3, "SystemExit: 0"),
    "quitting": ("a = 1\nquit()", 3, "SystemExit"),
    "asking for input": ("a = 1\ninput('name? ')", 3, "cannot ask for input"),
    "reading what is typed": ("import sys\nsys.stdin.read()", 3, "cannot ask for input"),
    "reading lines that are typed": ("import sys\nlist(sys.stdin)", 3, "cannot ask for input"),
    "closing stdout": ("import sys\nprint(1)\nsys.stdout.close()", 4, "closed sys.stdout"),
    "closing what is under stdout": (
        "import sys\nsys.stdout.buffer.close()",
        3,
        "closed sys.stdout",
    ),
    "closing stdout, come what may": (
        "import sys\ntry: sys.stdout.close()\nexcept Exception: pass",
        3,
        "closed sys.stdout",
    ),
    "replacing stdout": (
        "import io, sys\nsys.stdout = io.StringIO()\nprint(1)",
        1,
        "replaced sys.stdout",
    ),
    "removing stdout": ("import sys\nsys.stdout = None", 1, "replaced sys.stdout"),
    "deleting stdout": ("import sys\ndel sys.stdout", 1, "replaced sys.stdout"),
    "closing descriptor 1": ("import os\nos.close(1)", 1, "file descriptor 1"),
    "replacing descriptor 1": (
        "import os\nos.dup2(os.open(os.devnull, 1), 1)",
        1,
        "file descriptor 1",
    ),
    "writing past stdout": ("import os\nos.write(1, b'unseen')", 1, "past sys.stdout"),
    "native code that prints": (
        "import ctypes\nctypes.CDLL(None).puts(b'hi')",
        1,
        "past sys.stdout",
    ),
    "a child that prints": (
        "import subprocess\nsubprocess.run(['echo', 'hi'])",
        1,
        "past sys.stdout",
    ),
    "a million lines": ("for i in range(10**6):\n    print(i)", 3, "printed more than 100,000"),
    "a million lines at once": ("print('a\\n' * 10**6)", 2, "printed more than 100,000"),
    "a million lines, come what may": (
        "for i in range(10**6):\n    try: print(i)\n    except Exception: pass",
        3,
        "printed more than 100,000",
    ),
    "printing what cannot be encoded": ("a = 1\nprint('\\ud800')", 3, "UnicodeEncodeError"),
    "raising what cannot be encoded": ("raise ValueError('\\ud800')", 2, r"ValueError: \ud800"),
    "a name that cannot be encoded": (
        "raise type('\\u00e9\\u20ac', (Exception,), {})('x')",
        2,
        "\u00e9\u20ac: x",
    ),
    "recursion without end": ("def f(): return f()\nf()", 2, "RecursionError"),
    "an exception that cannot say its name": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
        4,
        "Odd",
    ),
    "an exception without a name": ("raise type('', (Exception,), {})('x')", 2, ": x"),
    "an assertion": ("a = 1\nassert a == 2, 'not two'", 3, "AssertionError: not two"),
    "printing with no output": ("a = 1\nprint('hello')", 1, "prints, and no `output` fence"),
}


@pytest.mark.parametrize(("text", "line", "words"), MISBEHAVING.values(), ids=MISBEHAVING)
def test_a_block_that_misbehaves_is_named(verdict, text, line, words):
    streams = sys.stdin, sys.stdout, sys.stderr, os.fstat(1)
    failure = verdict(code(text, "after = 1"))
    assert failure.line == line
    first, second, *_ = failure.report.split("\n")
    assert first.startswith(f"docs/page.md:{line}: ")
    assert words in first
    assert "literate/child.py" not in failure.report
    assert second.split(" | ")[1] == code(text).split("\n")[line - 1].strip()
    assert (sys.stdin, sys.stdout, sys.stderr, os.fstat(1)) == streams


def test_what_a_block_may_print_is_not_used_up_by_those_before_it(play):
    results = play(code(*["print('a' * 60_000)"] * 2))
    assert [result.raised for result in results] == ["", ""]


def test_a_block_is_not_blamed_for_what_went_past_stdout_before_it(play):
    first, second, _ = play(code("import os\nos.write(1, b'unseen')", "a = 1", "a = 2"))
    assert "file descriptor 1" in first.broken
    assert second.broken == ""


LAST_LINES = {
    "a message of two lines": ("raise ValueError('one\\ntwo')", "ValueError: one"),
    "a note": (
        "error = ValueError('one')\nerror.add_note('ValueError: two')\nraise error",
        "ValueError: one",
    ),
    "code that names it": ("SyntaxError = = 1", "SyntaxError: invalid syntax"),
    "an exception of a module": ("import json\njson.loads('')", "json.decoder.JSONDecodeError: "),
    "a group": (
        "raise ExceptionGroup('many', [ValueError('one')])",
        "ExceptionGroup: many (1 sub-exception)",
    ),
}


@pytest.mark.parametrize(("text", "line"), LAST_LINES.values(), ids=LAST_LINES)
def test_the_last_line_of_a_block_names_its_exception(play, text, line):
    (result,) = play(code(text))
    assert result.last_line.startswith(line)
    assert "\n" not in result.last_line


# ---- A page that does not end as it should. ----

LOOPS = {  # what does not end, and its line; `there` stands for what tells us that it was reached
    "an endless loop": ("a = 1\nwhile True: there", 3),
    "sleeping": ("import time\nthere; time.sleep(999)", 3),
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
    "a lock that nobody opens": ("import threading\nthere; threading.Event().wait()", 3),
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


@POSIX
def test_native_code_in_an_include_is_named_with_both_its_lines(book, stuck, verdict):
    book.snippet("stuck.py", stuck("def stuck():\n    there; sum(range(10**13))\n"))
    failure = verdict(code('--8<-- "stuck.py"', "a = 1\nstuck()"))
    assert failure.line == 7
    assert 'File "docs/page.md", line 7, in <module>\n    stuck()\n' in failure.report
    assert 'File "snippets/stuck.py", line 2, in stuck\n    ' in failure.report


def test_a_block_is_stopped_when_its_time_is_up(verdict, monkeypatch):
    monkeypatch.setattr(runner, "LIMIT", 0.5)
    assert "ran longer than 0.5 s" in verdict(code("while True: pass")).report


ENDINGS = {
    "leaving at once": ("import os\nos._exit(0)", "ended the process of its page (exit status 0)"),
    "leaving in a thread": (
        "import os, threading\nt = threading.Thread(target=os._exit, args=[3])\nt.start()\nt.join()",
        "ended the process of its page (exit status 3)",
    ),
    "reading what is not there": ("import ctypes\nctypes.string_at(0)", "(SIGSEGV)"),
    "killing itself": ("import os\nos.kill(os.getpid(), 9)", "(SIGKILL)"),
    "killing whoever made it": (
        "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(9)",
        "ended",
    ),
    "closing every file": ("import os\nos.closerange(3, 1000)", "ended the process of its page"),
    "a thread": (
        "import threading\nthreading.Thread(target=threading.Event().wait, name='ever').start()",
        "thread ever outlives the page",
    ),
    "a process": ("import subprocess\np = subprocess.Popen(['sleep', '999'])", "outlives the page"),
    "a process of another session": (
        "import subprocess\np = subprocess.Popen(['sleep', '999'], start_new_session=True)",
        "outlives the page",
    ),
    "a process without a parent": (
        "import subprocess\nsubprocess.run(['sh', '-c', 'sleep 999 &'])",
        "outlives the page",
    ),
    "a process of multiprocessing": (
        "import time\nfrom multiprocessing import Process\nProcess(target=time.sleep, args=[999]).start()",
        "outlives the page",
    ),
    "a fork": ("import os\npid = os.fork()", "forked, and the new process ran past its end"),
    "a fork that fails": ("import os\nif os.fork() == 0: raise ValueError", "ran past its end"),
    "a fork that never ends": (
        "import os\nif os.fork() == 0:\n    while True: pass",
        "outlives the page",
    ),
}

OUTLIVING = (
    "a process",
    "a process of another session",
    "a process without a parent",
    "a process of multiprocessing",
    "a fork that never ends",
)


AT_THE_END = {
    "leaving as it ends": (
        "import atexit, os\natexit.register(os._exit, 0)",
        "the page's exit handlers ended its process (exit status 0)",
    ),
    "printing as it ends": (
        "import atexit\natexit.register(print, 'bye')",
        r"after its last block the page printed 'bye\n'",
    ),
    "not ending": (
        "import atexit, threading\natexit.register(threading.Event().wait)",
        "an exit handler outlives the page",
    ),
}


def _hurry(monkeypatch, words):
    """Wait little for what never ends, and as long as it takes for what does."""
    monkeypatch.setattr(runner, "GRACE", 0.5 if "outlives" in words else runner.START)


@pytest.mark.parametrize(
    ("text", "words"),
    each_where_it_can(
        ENDINGS,
        FORK=("a fork", "a fork that fails"),
        POSIX=("reading what is not there", "killing itself", "closing every file"),
        # Elsewhere whoever made a page is pytest itself.
        LINUX=("killing whoever made it", *OUTLIVING),
    ),
)
def test_a_page_that_does_not_end_well_is_named_with_the_block_that_did_it(
    verdict, monkeypatch, text, words
):
    _hurry(monkeypatch, words)
    failure = verdict(code("before = 1", text, "after = 1"))
    assert 5 <= failure.line <= 7
    assert words in failure.report.split("\n")[0]


@pytest.mark.parametrize(("text", "words"), AT_THE_END.values(), ids=AT_THE_END)
def test_what_a_page_does_as_it_ends_is_told_at_its_last_block(verdict, monkeypatch, text, words):
    _hurry(monkeypatch, words)
    failure = verdict(code("before = 1", text, "after = 1"))
    assert failure.line == 10
    assert words in failure.report.split("\n")[0]


def test_a_page_whose_last_block_must_raise_is_ended_as_any_other(verdict):
    text = code(AT_THE_END["printing as it ends"][0] + "\n1 / 0")
    announced = '```output raises="ZeroDivisionError"\nZeroDivisionError: division by zero\n```\n'
    assert "after its last block the page printed" in verdict(text + announced).report


def test_of_what_outlives_a_page_the_first_is_named_with_its_line(verdict, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.1)
    first = ENDINGS["a thread"][0]
    assert verdict(code(first, first.replace("ever", "never"))).line == 1


@POSIX
def test_the_line_where_a_page_was_stopped_is_found_whatever_its_name(book, stuck):
    page = book.read(code(stuck("a = 1\nwhile True: there")), "docs/größe.md")
    with contextlib.closing(runner.Run(page)) as run:
        assert run.all()[0].line == 3


@LINUX
def test_what_outlives_its_page_is_killed(verdict, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.1)
    failure = verdict(code(ENDINGS["a process"][0]))
    pid = int(re.search(r"process (\d+) outlives", failure.report)[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@LINUX
def test_a_page_that_is_left_in_the_middle_leaves_no_process(book):
    run = runner.Run(book.read(code("import subprocess", ENDINGS["a process"][0], "after = 1")))
    run.upto(run.blocks[1])
    (name,) = run.alive
    run.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(name.split()[1]), 0)


def test_what_was_printed_before_the_end_is_kept(play, stuck):
    for last in ("while True: there", "import os; os._exit(0)"):
        (result,) = play(code(stuck(f"print('so far')\n{last}")))
        assert result.printed == "so far\n"


def test_no_block_runs_after_the_end_of_its_page(play):
    first, second = play(code("import os\nos._exit(0)", "print(1)"))
    assert (second.printed, second.last_line) == ("", "not run")
    assert first.raised


def test_the_end_of_a_page_is_no_exception_that_a_page_can_announce(play):
    (result,) = play(code("import os\nos._exit(0)"))
    assert not result.raised.isidentifier()


HONEST = {
    "a thread that is joined": """
        import threading, time
        t = threading.Thread(target=time.sleep, args=[0.01])
        t.start()
        t.join()
        """,
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
    "a process that is awaited": """
        import subprocess
        assert subprocess.run(["echo", "hi"], capture_output=True).stdout == b"hi\\n"
        """,
    "a process that soon ends by itself": """
        import subprocess
        p = subprocess.Popen(["sleep", "0.2"])
        """,
    "memory that processes share": """
        from multiprocessing.shared_memory import SharedMemory
        memory = SharedMemory(create=True, size=8)
        memory.close()
        memory.unlink()
        """,
    "a fork that leaves": """
        import os
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        """,
    "a fork that exits as scripts do": """
        import os, sys
        pid = os.fork()
        if pid == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        """,
    "a fork that exits as scripts do, of a page with many threads": """
        import os, sys, torch
        torch.set_num_threads(8)
        pid = os.fork()
        if pid == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        """,
    "a fork that exits with words": """
        import os, sys
        pid = os.fork()
        if pid == 0:
            sys.exit("why")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
        """,
    "a process of multiprocessing": """
        from multiprocessing import Process, Queue

        def work(queue):
            queue.put(7)

        queue = Queue()
        process = Process(target=work, args=[queue])
        process.start()
        assert queue.get() == 7
        process.join()
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
    "a loader with workers": """
        from torch.utils.data import DataLoader
        assert [x.item() for x in DataLoader([1, 2], num_workers=2)] == [1, 2]
        """,
    "a file that is removed at the end": """
        import atexit, pathlib
        pathlib.Path("a").write_text("a")
        atexit.register(pathlib.Path("a").unlink)
        """,
}


@pytest.mark.parametrize(
    "text",
    each_where_it_can(
        HONEST,
        FORK=[name for name in HONEST if name.startswith("a fork")],
        POSIX=("a process that is awaited", "a process that soon ends by itself"),
        # Elsewhere a new process of multiprocessing imports the page, which must then be written for it.
        LINUX=("a process of multiprocessing", "a pool of processes", "a loader with workers"),
    ),
)
def test_a_page_may_start_what_it_ends(verdict, text):
    assert verdict(code(text)) is None


@FORK
def test_two_processes_of_a_page_add_their_tensors_through_torch_distributed(play):
    (result,) = play(
        code("""
        import os
        import torch
        import torch.distributed as dist
        from torch.multiprocessing import get_context

        def work(rank, sums):
            dist.init_process_group("gloo", f"file://{os.getcwd()}/met", rank=rank, world_size=2)
            x = torch.full((2,), rank + 1.0)
            dist.all_reduce(x)
            sums.put((rank, x.tolist()))
            dist.destroy_process_group()

        torch.ones(200, 200) @ torch.ones(200, 200)
        context = get_context("fork")
        sums = context.Queue()
        workers = [context.Process(target=work, args=(rank, sums)) for rank in range(2)]
        for worker in workers:
            worker.start()
        print(sorted(sums.get() for _ in workers))
        for worker in workers:
            worker.join()
        """)
    )
    assert result.printed == "[(0, [3.0, 3.0]), (1, [3.0, 3.0])]\n", result


@FORK
def test_what_a_forked_process_prints_is_printed(play):
    (result,) = play(
        code(
            "import os\nif os.fork() == 0:\n    print('there')\n    os._exit(0)\nos.wait()\nprint('here')"
        )
    )
    assert result.printed == "there\nhere\n"


INTERRUPTED = {
    "update": (["literate", "update", "docs/page.md"], 130),
    "pytest": (["pytest", "-qs", "-p", "literate.pytest_plugin", "docs/page.md"], 2),
}


@pytest.mark.lab
@pytest.mark.parametrize(("command", "status"), INTERRUPTED.values(), ids=INTERRUPTED)
def test_an_interrupt_ends_the_page_and_shows_no_traceback_of_ours(book, no_torch, command, status):
    told = "import os, sys\nprint(os.linesep, os.getpid(), file=sys.stderr, flush=True)\n"
    book.page(code(told + "while True: pass"))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([sys.executable, "-m", *command], **pipes) as done:
        pid = next(int(line) for line in done.stdout if line.strip().isdigit())
        done.send_signal(signal.SIGINT)
        said, _ = done.communicate(timeout=60)
    assert done.returncode == status
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@LINUX
def test_a_page_ends_with_whoever_runs_it_though_that_is_killed(book, no_torch):
    told = "import os, sys\nprint(os.getpid(), file=sys.stderr, flush=True)\n"
    path = book.page(code(told + "while True: pass"))
    program = f"from literate import page, run; run.Run(page.read({str(path)!r})).all()"
    pipes = {"stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as done:
        pid = int(done.stderr.readline())
        done.kill()
        assert done.communicate(timeout=60)[1] == ""  # ends with the last that could write
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# ---- Where forking is missing. ----


def test_a_spawned_page_is_a_page(play, monkeypatch):
    monkeypatch.setattr(runner, "FORKS", False)
    results = play(code("a = {'b', 'c', 'd'}", "print(a)", "import os\nprint(os.listdir())"))
    monkeypatch.undo()
    forked = play(code("a = {'b', 'c', 'd'}", "print(a)", "import os\nprint(os.listdir())"))
    assert results == forked


SLOWLY = [
    pytest.param(name, marks=pytest.mark.lab) for name in ("a thread", "a process", *AT_THE_END)
]


@pytest.mark.parametrize("name", ["leaving at once", *SLOWLY])
def test_a_spawned_page_that_does_not_end_well_is_named(verdict, no_torch, monkeypatch, name):
    monkeypatch.setattr(runner, "FORKS", False)
    text, words = (ENDINGS | AT_THE_END)[name]
    _hurry(monkeypatch, words)
    assert words in verdict(code(text)).report.split("\n")[0]


@POSIX
def test_a_spawned_page_that_runs_too_long_is_named(verdict, no_torch, stuck, monkeypatch):
    monkeypatch.setattr(runner, "FORKS", False)
    text, line = LOOPS["native code"]
    assert verdict(code(stuck(text))).line == line


# ---- Where no page can be started. ----


@pytest.fixture
def begun(monkeypatch):
    """The processes that were started, each with what it was started as; no page has been before."""
    started, python = [], runner._python
    monkeypatch.setattr(runner, "_fork_server", functools.cache(runner._ForkServer))

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
        reports = [compare.run_and_check(run, block)[0].report for block in run.blocks]
    for line, report in zip((1, 5), reports, strict=True):
        assert report.startswith(f"docs/page.md:{line}: the page was not run: ")
        assert "did not start" in report
    assert all(process.poll() is not None for process in begun)
    assert len(begun) <= 1


@pytest.mark.parametrize("forks", each_where_it_can(BOTH, LINUX=["forked"]))
def test_a_process_that_takes_too_long_to_start_is_ended(play, monkeypatch, begun, forks):
    monkeypatch.setattr(runner, "FORKS", forks)
    monkeypatch.setattr(runner, "START", 0.0)
    (result,) = play(code("a = 1"))
    assert "did not start" in result.last_line
    assert [process.poll() is None for process in begun] == [False]


@POSIX
def test_a_page_that_takes_too_long_to_begin_is_ended(book, play, monkeypatch):
    receive, pid = runner._Process._receive, book.root / "pid"
    around = f"""
        import os, pathlib, time
        pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))
        time.sleep(999)
        """
    monkeypatch.setenv(child.CONTEXT, str(book.page(around, "around.py")))

    def wait(process, seconds):
        while process.pid and not (pid.exists() and pid.read_text()):
            time.sleep(0.01)
        return receive(process, 0.0 if process.pid and seconds == runner.START else seconds)

    monkeypatch.setattr(runner._Process, "_receive", wait)
    (result,) = play(code("a = 1"))
    assert "did not get as far as the first block" in result.last_line
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def killed_while_a_message_waits(fork_server):
    """End a fork_server that has not read all: what is sent next meets a reset of the connection."""
    os.kill(fork_server.process.pid, signal.SIGSTOP)
    fork_server.control.send(b"unread")
    fork_server.process.kill()
    fork_server.process.wait()


def killed_with_a_page_asked_for(fork_server):
    """End a fork_server between a page that is asked for and its being forked."""
    fork = fork_server.fork

    def fork_and_die(handle):
        os.kill(fork_server.process.pid, signal.SIGSTOP)
        fork(handle)
        fork_server.process.kill()
        fork_server.process.wait()

    fork_server.fork = fork_and_die


def killed(fork_server):
    fork_server.process.kill()
    fork_server.process.wait()


@LINUX
@pytest.mark.parametrize(
    "end", [killed, killed_while_a_message_waits, killed_with_a_page_asked_for]
)
def test_what_pages_are_forked_from_is_replaced_when_it_has_ended(play, no_torch, begun, end):
    play(code("a = 1"))
    end(runner._fork_server())
    assert play(code("print(1)"))[0].printed == "1\n"


# ---- Nothing leaks. ----

LEAKS = {  # what a page may change: how, and how another would see it
    "the folder": ("import os; os.mkdir('a'); os.chdir('a')", "import os; print(os.getcwd()[-2:])"),
    "files": ("open('a', 'w').close()", "import os; print(os.listdir())"),
    "the environment": ("import os; os.environ['A'] = '1'", "import os; print(os.getenv('A'))"),
    "arguments": ("import sys; sys.argv.append('a')", "import sys; print(len(sys.argv))"),
    "the import path": ("import sys; sys.path.append('a')", "import sys; print('a' in sys.path)"),
    "an imported helper": (
        "import sys, types; sys.modules['helper'] = types.ModuleType('helper')",
        "import sys; print('helper' in sys.modules)",
    ),
    "filters of warnings": (
        "import warnings; warnings.simplefilter('ignore')",
        "import warnings; print(len(warnings.filters))",
    ),
    "the recursion limit": (
        "import sys; sys.setrecursionlimit(5000)",
        "import sys; print(sys.getrecursionlimit())",
    ),
    "standard error": ("import sys; sys.stderr = None", "import sys; print(sys.stderr is None)"),
    "a constant": ("import math; math.pi = 3", "import math; print(math.pi)"),
    "a builtin": ("import builtins; builtins.sum = max", "print(sum([1, 2]))"),
    "the decimal context": (
        "import decimal; decimal.getcontext().prec = 3",
        "import decimal; print(decimal.Decimal(1) / 3)",
    ),
    "a handler of signals": (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "import signal; print(signal.getsignal(signal.SIGTERM))",
    ),
    "random": ("import random; random.seed(7)", "import random; print(random.random())"),
    "numpy's seed": (
        "import numpy; numpy.random.seed(7)",
        "import numpy; print(numpy.random.rand())",
    ),
    "numpy's printer": (
        "import numpy; numpy.set_printoptions(precision=1)",
        "import numpy; print(numpy.array([0.12345]))",
    ),
    "torch's seed": ("torch.manual_seed(7)", "print(torch.rand(2))"),
    "torch's printer": ("torch.set_printoptions(precision=1)", "print(torch.tensor(0.12345))"),
    "a function of torch": ("torch.softmax = torch.relu", "print(torch.softmax is torch.relu)"),
    "the dtype": ("torch.set_default_dtype(torch.float64)", "print(torch.ones(1).dtype)"),
    "the device": ("torch.set_default_device('meta')", "print(torch.ones(1).device)"),
    "a device entered": ("torch.device('meta').__enter__()", "print(torch.ones(1).device)"),
    "autocast entered": (
        "torch.autocast('cpu').__enter__()",
        "print((torch.ones(1, 1) @ torch.ones(1, 1)).dtype)",
    ),
    "threads": (
        "torch.set_num_threads(torch.get_num_threads() + 1)",
        "print(torch.get_num_threads())",
    ),
    "gradients": ("torch.set_grad_enabled(False)", "print(torch.is_grad_enabled())"),
    "anomalies": ("torch.autograd.set_detect_anomaly(True)", "print(torch.is_anomaly_enabled())"),
    "determinism": (
        "torch.use_deterministic_algorithms(True)",
        "print(torch.are_deterministic_algorithms_enabled())",
    ),
    "the precision of products": (
        "torch.set_float32_matmul_precision('medium')",
        "print(torch.get_float32_matmul_precision())",
    ),
    "denormal numbers": (
        "torch.set_flush_denormal(True)",
        "print((torch.tensor(1e-320, dtype=torch.float64) * 1).item())",
    ),
    "hooks of all modules": (
        "torch.nn.modules.module.register_module_forward_hook(lambda *_: torch.zeros(1))",
        "print(torch.nn.Identity()(torch.ones(1)))",
    ),
    "kernels of attention": (
        "torch.backends.cuda.enable_math_sdp(False)",
        "print(torch.backends.cuda.math_sdp_enabled())",
    ),
    "the fast path": (
        "torch.backends.mha.set_fastpath_enabled(False)",
        "print(torch.backends.mha.get_fastpath_enabled())",
    ),
    "the checker": (
        "import literate.compare; literate.compare.differences = lambda *_: []",
        "import literate.compare; print(literate.compare.differences('a', 'b') == [])",
    ),
}


@pytest.mark.parametrize(("change", "look"), LEAKS.values(), ids=LEAKS)
def test_what_a_page_changes_lasts_to_its_end_and_no_longer(play, change, look):
    (alone,) = play(code(f"import torch\n{look}"))
    changed, after = play(code(f"import torch\n{change}", look))
    (other,) = play(code(f"import torch\n{look}"))
    assert (alone.traceback, changed.traceback, after.traceback) == ("", "", "")
    assert after.printed != alone.printed
    assert other.printed == alone.printed


def state():
    """What a page might leave behind, as the process has it now."""
    return (
        os.getcwd(),
        dict(os.environ),
        list(sys.argv),
        list(sys.path),
        sys.getrecursionlimit(),
        list(warnings.filters),
        random.getstate(),
        torch.get_rng_state().tolist(),
        dict(vars(torch._tensor_str.PRINT_OPTS)),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.is_anomaly_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.softmax,
        math.pi,
        sum,
        compare.differences,
        np.get_printoptions(),
        signal.getsignal(signal.SIGTERM),
        sys.stderr,
        sys.modules["__main__"],
    )


def test_a_page_leaks_nothing_into_this_process(play):
    before = state()
    play(code("import sys, torch", *(change for change, _ in LEAKS.values())))
    for kept, now in zip(before, state(), strict=True):
        assert now == kept


def test_a_page_that_replaces_the_checker_is_checked(verdict):
    change, _ = LEAKS["the checker"]
    text = code(change, "print(1)") + "\n```output\n2\n```\n"
    assert verdict(text).line == 10


SEEDS = {
    "random": "import random as r\n{}print(r.random())",
    "numpy": "import numpy.random as r\n{}print(r.rand())",
    "torch": "import torch as r\n{}print(r.rand(1))",
}


@pytest.mark.parametrize("text", SEEDS.values(), ids=SEEDS)
def test_a_page_draws_as_if_it_had_set_the_seed_0(play, text):
    seed = "r.manual_seed(0)\n" if "torch" in text else "r.seed(0)\n"
    (unseeded,), (seeded,) = play(code(text.format(""))), play(code(text.format(seed)))
    assert unseeded.printed == seeded.printed


def test_a_set_is_printed_in_the_same_order_in_every_run(play):
    (result,) = play(code("print({'query', 'key', 'value', 'head'})"))
    other = subprocess.run(
        [sys.executable, "-c", "print({'query', 'key', 'value', 'head'})"],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
    )
    assert result.printed == other.stdout


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


def test_a_thread_that_waits_for_work_leaves_its_core_to_other_pages(play):
    (result,) = play(code("import os; print(os.environ['OMP_WAIT_POLICY'])"))
    assert result.printed == "passive\n"


def test_a_page_finds_what_a_script_finds_and_no_checker(play):
    (result,) = play(
        code("""
        import sys
        print([name for name in ("pytest", "markdown", "literate") if name in sys.modules])
        """)
    )
    assert result.printed == "[]\n"


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


@LINUX
def test_all_pages_come_from_one_process(play):
    text = code("import os\nprint(os.getpid(), os.getppid())")
    (page, fork_server), (other, again) = (play(text)[0].printed.split() for _ in range(2))
    assert page != other
    assert fork_server == again


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


def test_warnings_do_not_stop_a_page(play):
    with pytest.warns(DeprecationWarning, match="old") as warned:
        (result,) = play(
            code("import warnings\nwarnings.warn('old', DeprecationWarning)\nprint(1)")
        )
    assert result.printed == "1\n"
    assert (warned[0].filename, warned[0].lineno) == ("docs/page.md", 3)


def test_a_page_may_catch_its_own_warnings(play):
    (result,) = play(
        code("""
        import contextlib, io, warnings
        with contextlib.redirect_stderr(io.StringIO()) as said:
            warnings.warn("old")
        print("UserWarning: old" in said.getvalue())
        """)
    )
    assert result.printed == "True\n"


def test_objects_of_a_page_do_not_pass_for_those_of_the_tests(play):
    play(code("class Thing: ..."))
    with pytest.raises(AttributeError):
        pickle.loads(b"c__main__\nThing\n.")


# ---- Solutions. ----


def test_solutions_can_be_left_out(play):
    assert [result.printed for result in play(LEANING)][2:] == ["2.0000\n", "", "7\n"]
    assert [result.printed for result in play(LEANING, solutions=False)][2:] == ["2.0000\n", "1\n"]


# ---- What a notebook would show. ----

FOR_SHOW = {
    "a name": "a = 1\na",
    "an attribute": "import sys\nsys.path",
    "a cell": "a = [1, 2]\na[0]",
    "a sum": "a = 1\na + 1",
    "a comparison": "a = 1\na == 1",
    "a text with values": "a = 1\nf'{a}'",
    "a number": "a = 1\n42",
    "a tensor from a call": "import torch\ntorch.ones(3).sum()",
    "what a built-in returns": "a = [1]\nlen(a)",
    "a value after a print": "print(1)\n'x'.upper",
}
FOR_EFFECT = {
    "a call that returns nothing": "a = []\na.append(1)",
    "a call that works in place": "import torch\ntorch.ones(3).requires_grad_()",
    "a seed": "import torch\ntorch.manual_seed(0)",
    "a module set to evaluate": "import torch\ntorch.nn.Linear(2, 2).eval()",
    "taking from a list": "a = [1]\na.pop()",
    "a name for nothing": "a = None\na",
    "words alone": "a = 1\n'words'",
    "an ellipsis": "a = 1\n...",
    "an assignment that is an expression": "a = 1\n(b := a)",
    "a comment alone": "# nothing yet",
}


@pytest.mark.parametrize("text", FOR_SHOW.values(), ids=FOR_SHOW)
def test_a_block_that_ends_in_a_value_is_told_to_print_it(verdict, text):
    failure = verdict(code(text))
    assert failure.report.startswith("docs/page.md:3: the block ends in a value")
    assert "print it" in failure.report


def test_an_include_that_ends_in_a_value_is_told_where_the_page_includes_it(book, verdict):
    book.snippet("shown.py", "a = 1\na\n")
    report = verdict(code('--8<-- "shown.py"')).report
    assert report.startswith("docs/page.md:1: the block ends in a value")


@pytest.mark.parametrize("text", FOR_EFFECT.values(), ids=FOR_EFFECT)
def test_a_block_that_ends_in_an_effect_is_left_alone(verdict, text):
    assert verdict(code(text)) is None


def test_a_value_in_place_of_the_exception_that_was_announced_is_no_second_error(verdict):
    text = code("a = 1\na") + '\n```output raises="ValueError"\nValueError: no\n```\n'
    assert "did not raise ValueError" in verdict(text).report


def test_an_expression_that_raises_shows_its_own_line(verdict):
    failure = verdict(code("a = 1\na / 0"))
    assert failure.line == 3
    assert '  File "docs/page.md", line 3, in <module>\n    a / 0\n' in failure.report


DRAWS = """
import sys, types
plot, figures = types.SimpleNamespace(), [1]
plot.get_fignums, plot.close = lambda: figures, lambda which: figures.clear()
sys.modules["matplotlib.pyplot"] = plot
"""


def test_a_block_that_leaves_a_figure_open_is_told_to_print(verdict):
    failure = verdict(code(DRAWS))
    assert failure.report.startswith("docs/page.md:5: the block leaves a figure open")


def test_a_block_is_not_blamed_for_a_figure_that_one_before_it_left_open(play):
    first, second = play(code(DRAWS, "b = 1"))
    assert "leaves a figure open" in first.broken
    assert second.broken == ""
