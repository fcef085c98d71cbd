"""A run goes on from where an earlier one stood still, and only where it then prints what a whole run would."""

import functools
import os
import re
from contextlib import closing

import pytest

from literate import run as runner
from literate.run import Run, Snapshots
from tests.systems import LINUX

pytestmark = LINUX

# A page with a solution before its last block. `born` tells a run that went on from one that began anew.
PAGE = """
```python
import itertools, os, random, time
import numpy, torch
born = time.monotonic_ns()
{before}
```

??? success "Solution"

    ```python
    a = 7
    ```

```python
{after}
```
"""


@pytest.fixture
def snapshots():
    """Snapshots of one page, made after each block."""
    with closing(Snapshots(seconds=0.0)) as snapshots:
        yield snapshots


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Fork these pages from a process that was told of one thread, whatever this machine is told.

    With several, NumPy starts some as it is imported, and a page that has had threads is run anew.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITERATE_THREADS", "1")
        patch.setattr(runner, "_fork_server", functools.cache(runner._ForkServer))
        yield
        runner._fork_server().end()


@pytest.fixture
def printed(book, snapshots):
    """Return a function that runs a page and returns what its last block printed."""

    def printed(text, solutions=True, snapshots=snapshots):
        with closing(Run(book.read(text), solutions, snapshots=snapshots)) as run:
            results = run.all()
        assert [result.traceback for result in results] == [""] * len(results)
        return results[-1].printed

    return printed


def page(before="a = 1", after="print(born)"):
    return PAGE.format(before=before, after=after)


def test_a_run_without_solutions_goes_on_from_the_first(printed):
    with_solutions, without = (printed(page(), solutions) for solutions in (True, False))
    assert with_solutions == without


def test_the_solution_is_not_in_what_goes_on(printed):
    text = page(after="print(a)")
    assert [printed(text, solutions) for solutions in (True, False)] == ["7\n", "1\n"]


def test_a_run_without_snapshots_begins_anew(printed):
    assert printed(page()) != printed(page(), snapshots=None)


def test_a_change_further_down_runs_nothing_above_it_again(printed):
    first = printed(page())
    assert printed(page(after="print('changed', born)")) == f"changed {first}"
    assert printed(page(after="# a line more\nprint(born)")) == first


def test_a_line_more_on_a_page_runs_no_include_above_it_again(book, printed):
    book.snippet("parts.py", "import time\n\nmade = time.monotonic_ns()\n")
    text = '```python\n--8<-- "parts.py"\n```\n' + page(after="print(made)")
    assert printed(text) == printed(text.replace("print", "# a line more\nprint"))


@pytest.mark.parametrize(
    "changed",
    [page("a = 2"), "A line above.\n" + page(), page("a = 1\n\n")],
    ids=["code", "a line of text", "a line of code"],
)
def test_a_change_above_is_run(printed, changed):
    first = printed(page())
    assert printed(changed) != first


def test_a_stored_file_that_changed_is_read_again(book, printed):
    load = (
        "import pathlib, torch.hub\nfile = pathlib.Path(torch.hub.get_dir(), 'checkpoints/a.txt')"
    )
    text = page(f"{load}\na = file.read_text()", "print(a)")
    book.page("old", "docs/files/a.txt")
    assert printed(text, solutions=False) == "old\n"
    book.page("newer", "docs/files/a.txt")
    assert printed(text, solutions=False) == "newer\n"


# What a fork of a process would not have, or would share with it: a page that has made it begins anew.
OUTSIDE = {
    "a thread": "import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait, daemon=True).start()",
    "a thread that is over": "import threading\nshort = threading.Thread(target=print)\nshort.start()\nshort.join()",
    "threads of torch": "torch.set_num_threads(2)\ntorch.ones(600, 600) @ torch.ones(600, 600)\na = 1",
    "a process": "import subprocess\nother = subprocess.Popen(['sleep', '0.1'])",
    "a file": "open('a.txt', 'w').close()",
    "a folder": "os.mkdir('a')",
    "a temporary file": "import tempfile\nfolder = tempfile.TemporaryDirectory()",
    "an open file": "lines = open(os.__file__)",
    "a pipe": "ends = os.pipe()",
    "shared memory": "import mmap\nshared = mmap.mmap(-1, 8)",
}
ENDED = {
    "a process": "other.wait()",
    "a file": "os.remove('a.txt')",
    "an open file": "lines.close()",
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_page_that_is_more_than_its_memory_begins_anew(printed, name):
    text = page(OUTSIDE[name], f"{ENDED.get(name, 'pass')}\nprint(born)")
    assert printed(text) != printed(text, solutions=False)


@pytest.mark.parametrize("name", ENDED)
def test_what_is_gone_again_hinders_nothing(printed, name):
    text = page(f"{OUTSIDE[name]}\n{ENDED[name]}")
    assert printed(text) == printed(text, solutions=False)


DRAWS = {
    "random": "print(random.random())",
    "a generator": "print(draw.random())",
    "numpy": "print(numpy.random.rand())",
    "torch": "print(torch.rand(1).item())",
    "a set": "print({'query', 'key', 'value', 'head'})",
    "an iterator": "print(next(counted))",
    "gradients": "loss = (torch.ones(3, requires_grad=True) ** 2).sum()\nloss.backward()\nprint(loss)",
}


@pytest.mark.parametrize("after", DRAWS.values(), ids=DRAWS)
def test_what_goes_on_draws_what_a_whole_run_draws(printed, after):
    before = "draw, counted = random.Random(3), itertools.count()\nrandom.random(), next(counted)"
    text = page(f"{before}\nborn = numpy.random.rand(), torch.rand(1)", after)
    whole = printed(text, solutions=False, snapshots=None)
    assert [printed(text, solutions) for solutions in (True, False)] == [whole, whole]


def test_a_traceback_of_what_goes_on_names_the_lines_of_the_page_as_it_is_now(book, snapshots):
    printed = "def divide(x):\n    return 1 / x"
    for after in ("print(a)", "# a line more\ndivide(0)"):
        with closing(Run(book.read(page(printed, after)), False, snapshots=snapshots)) as run:
            *_, last = run.all()
    assert len(run.results) == 2
    assert re.findall(r'page\.md", line (\d+)', last.traceback) == ["18", "7"]
    assert "divide(0)" in last.traceback
    assert "return 1 / x" in last.traceback


def test_an_exit_handler_of_one_run_takes_nothing_from_the_next(printed):
    handler = "import atexit\nkept = [1]\natexit.register(kept.clear)"
    text = page(handler, "print(kept, born)")
    assert printed(text) == printed(text, solutions=False)


def test_a_block_that_failed_is_run_again(book, snapshots):
    text = page("assert os.path.exists(os.environ['SIGN'])")
    for made in (False, True):
        os.environ["SIGN"] = str(book.root / "sign")
        if made:
            book.page("", "sign")
        with closing(Run(book.read(text), snapshots=snapshots)) as run:
            results = run.all()
        assert bool(results[0].raised) is not made
    del os.environ["SIGN"]


def test_all_that_stands_still_ends_with_its_snapshots(book):
    with closing(Snapshots(seconds=0.0)) as snapshots:
        with closing(Run(book.read(page("print(os.getpid())")), snapshots=snapshots)) as run:
            first = int(run.all()[0].printed)
        assert len(snapshots.kept) == 2
        os.kill(first, 0)
    while os.path.exists(f"/proc/{first}"):  # until its parent has seen that it ended
        pass
