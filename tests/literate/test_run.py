"""A page is one real module; a block that misbehaves is named, and leaves nothing behind."""

import os
import pickle
import random
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch

from literate import compare
from literate import run as runner


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
            found = (compare.judge(page, block, run.upto(block)) for block in page.blocks)
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


def test_an_include_runs_the_section_it_shows(book, play):
    book.snippet(
        "parts.py",
        "raise SystemError\n\nif True:\n    # --8<-- [start:body]\n    a = 7\n    # --8<-- [end:body]\n",
    )
    results = play(code('--8<-- "parts.py:body"', "print(a)"))
    assert results[1].printed == "7\n"


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
    assert result.traceback == (
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
    "an endless loop": ("while True:\n    pass", 2, "ran longer than 0.3 s"),
    "sleeping": ("import time\ntime.sleep(9)", 3, "ran longer than 0.3 s"),
    "a loop that catches exceptions": (
        "while True:\n    try:\n        while True: pass\n    except Exception:\n        pass",
        4,
        "ran longer than 0.3 s",
    ),
    "closing stdout": ("import sys\nprint(1)\nsys.stdout.close()", 1, "closed sys.stdout"),
    "printing after closing": ("import sys\nsys.stdout.close()\nprint(1)", 1, "closed sys.stdout"),
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
    "a child that prints": (
        "import subprocess\nsubprocess.run(['echo', 'hi'])",
        1,
        "past sys.stdout",
    ),
    "a million lines": ("for i in range(10**6):\n    print(i)", 3, "printed more than 100,000"),
    "a million lines at once": ("print('a\\n' * 10**6)", 2, "printed more than 100,000"),
    "recursion without end": ("def f(): return f()\nf()", 2, "RecursionError"),
    "an exception that cannot say its name": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
        4,
        "Odd",
    ),
    "an assertion": ("a = 1\nassert a == 2, 'not two'", 3, "AssertionError: not two"),
    "printing with no output": ("a = 1\nprint('hello')", 1, "prints, and no `output` fence"),
}


@pytest.mark.parametrize(("text", "line", "words"), MISBEHAVING.values(), ids=MISBEHAVING)
def test_a_block_that_misbehaves_is_named(verdict, monkeypatch, text, line, words):
    monkeypatch.setattr(runner, "LIMIT", 0.3)
    streams = sys.stdin, sys.stdout, sys.stderr, os.fstat(1)
    failure = verdict(code(text, "after = 1"))
    assert failure.line == line
    first, second, *_ = failure.report.split("\n")
    assert first.startswith(f"docs/page.md:{line}: ")
    assert words in first
    assert "literate/run.py" not in failure.report
    assert second.split(" | ")[1] == code(text).split("\n")[line - 1].strip()
    assert (sys.stdin, sys.stdout, sys.stderr, os.fstat(1)) == streams


def test_a_page_goes_on_after_a_limit_was_met(play, monkeypatch):
    monkeypatch.setattr(runner, "LIMIT", 0.2)
    results = play(code("while True: pass", "print(1)"))
    assert [result.printed for result in results] == ["", "1\n"]


STUCK = {
    "a loop that catches everything": "def spin():\n    while True: pass\n\nwhile True:\n    try: spin()\n    except BaseException: pass",
    "native code in an include": '--8<-- "stuck.py"',
}


@pytest.mark.parametrize("text", STUCK.values(), ids=STUCK)
def test_a_block_that_nothing_stops_ends_the_run_and_is_named(book, text):
    book.snippet("stuck.py", "sum(range(10**13))\n")
    page = book.page("Text.\n\n" + code(text))
    child = f"from literate import page, run; run.Run(page.read({str(page)!r})).all()"
    done = subprocess.run(
        [sys.executable, "-c", child],
        env=os.environ | {"LITERATE_LIMIT": "0.2"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "<block at docs/page.md:3>" in done.stderr


# ---- Nothing leaks. ----

LEAK = """
    import os, random, sys, warnings
    import torch

    os.makedirs("below")
    os.chdir("below")
    os.environ["LEAKED"] = "1"
    os.environ.pop("PATH", None)
    sys.argv.append("leaked")
    sys.path.insert(0, "leaked")
    sys.setrecursionlimit(5000)
    warnings.simplefilter("ignore")
    random.seed(7)
    torch.manual_seed(7)
    torch.set_printoptions(precision=1, sci_mode=True, linewidth=20)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(3)
    torch.set_grad_enabled(False)
    torch.set_deterministic_debug_mode("error")
    torch.set_float32_matmul_precision("medium")
    torch.autograd.set_detect_anomaly(True)
    torch.backends.mha.set_fastpath_enabled(False)
    sys.stderr = None
    sys.modules["__main__"] = None
"""

LOOK = """
    import os, random, sys, warnings
    import torch

    print(os.listdir(), "LEAKED" in os.environ, "PATH" in os.environ)
    print(len(sys.argv), "leaked" in sys.path, sys.getrecursionlimit() == 5000)
    print(len(warnings.filters), sys.stderr is None)
    print(random.random(), torch.rand(2), torch.rand(2).device)
    print(torch.get_num_threads(), torch.is_grad_enabled(), torch.get_float32_matmul_precision())
    print(torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled())
    print(torch.backends.mha.get_fastpath_enabled(), sys.modules["__main__"].__name__)
"""


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
        sys.stderr,
        sys.modules["__main__"],
    )


def test_a_page_leaks_nothing_into_the_process(play):
    before = state()
    (result,) = play(code(LEAK))
    assert result.traceback == ""
    for kept, now in zip(before, state(), strict=True):
        assert now == kept


def test_a_page_leaks_nothing_into_the_next(play):
    (alone,) = play(code(LOOK))
    assert alone.traceback == ""
    play(code(LEAK))
    (after,) = play(code(LOOK))
    assert after.printed == alone.printed


def test_what_a_page_sets_lasts_to_its_end(play):
    results = play(
        code(
            "import torch, os, warnings\ntorch.set_default_dtype(torch.float64)\nos.mkdir('a')\nos.chdir('a')",
            "print(torch.zeros(1).dtype, os.getcwd()[-2:])\ntorch.manual_seed(3)\na = torch.rand(1)",
            "print(torch.equal(torch.rand(1), a))\ntorch.manual_seed(3)\nprint(torch.equal(torch.rand(1), a))",
        )
    )
    assert results[1].printed == "torch.float64 /a\n"
    assert results[2].printed == "False\nTrue\n"


def test_two_pages_may_take_turns(book):
    first = runner.Run(book.read(code("import torch", "print(torch.rand(1))"), "docs/a.md"))
    second = runner.Run(book.read(code("import torch", "print(torch.rand(1))"), "docs/b.md"))
    first.upto(first.blocks[0])
    second.all()
    first.all()
    assert first.results[1].printed == second.results[1].printed
    first.close()
    second.close()


def test_each_page_starts_from_the_same_seed_whatever_the_process_has_drawn(play):
    text = code("import random\nimport torch\nprint(torch.rand(3), random.random())")
    (first,) = play(text)
    torch.manual_seed(99)
    random.seed(99)
    (second,) = play(text)
    assert first.printed == second.printed


def test_a_block_may_delete_the_folder_it_stands_in(play, book):
    results = play(code("import os, shutil\nshutil.rmtree(os.getcwd())", "print(1)"))
    assert [result.traceback for result in results] == ["", ""]
    assert os.getcwd() == str(book.root)


def test_warnings_do_not_stop_a_page(play):
    with pytest.warns(UserWarning, match="old"):
        (result,) = play(code("import warnings\nwarnings.warn('old')\nprint(1)"))
    assert result.printed == "1\n"


def test_objects_of_a_page_do_not_pass_for_those_of_the_tests(play):
    play(code("class Thing: ..."))
    with pytest.raises(AttributeError):
        pickle.loads(b"c__main__\nThing\n.")


# ---- Solutions. ----

LEANING = """
    ```python
    a = 1
    ```

    ??? success "Solution"

        ```python
        a = 2
        ```

    ```python
    print(a)
    ```

    ```output
    2
    ```
    """


def test_solutions_can_be_left_out(play):
    assert [result.printed for result in play(LEANING)] == ["", "", "2\n"]
    assert [result.printed for result in play(LEANING, solutions=False)] == ["", "1\n"]
