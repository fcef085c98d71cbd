"""What checking costs beside what the page computes, and beside nbval and nbmake on the same page.

`python -m tools.bench` (`make bench`). Every figure is a median of one run on this machine, with
whatever else it does; the ratios are what to look at.
"""

import contextlib
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from literate import child, compare, export
from literate.page import pages, read
from literate.run import Run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "foundations" / "averaging.md"
ROUNDS = 15
MOST_A_BLOCK, MOST_A_PAGE = 1 / 500, 1 / 30  # of the time that importing torch takes


def seconds(action: Callable, rounds: int = ROUNDS) -> float:
    """Return the median time that `action` takes, after one round that does not count."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def checked(path: Path) -> None:
    """Read, run and judge a page, as the tests do."""
    page = read(path)
    run = Run(page)
    for block in page.blocks:
        assert compare.check(page, block, run.upto(block)) is None
    run.close()


def computed(page):
    """Run what the page computes, with nothing around it."""
    child.determine()
    names = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block, code in zip(page.blocks, compiled(page), strict=True):
            try:
                exec(code, names)
            except Exception:
                if not block.raises:
                    raise


def compiled(page):
    """Compile the blocks of a page."""
    return [compile(block.code, "page", "exec") for block in page.blocks]


def command(*arguments):
    """Return how long a command takes, from a fresh interpreter; it must succeed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return time.perf_counter() - start


def own_cost(path: Path = PAGE) -> tuple[float, float]:
    """Return the seconds that checking adds to a block of one page, and to a page.

    A page of one trivial block is what a page costs; the rest, less what the page computes, is
    what its blocks cost.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        alone = Path(folder, "page.md")
        alone.write_text("```python\na = 1\n```\n")
        a_page = seconds(lambda: checked(alone))
    page = read(path)
    rest = seconds(lambda: checked(path)) - seconds(lambda: computed(page)) - a_page
    return rest / len(page.blocks), a_page


def main() -> int:
    """Print the bill; return 1 where checking costs more than it may."""
    page = read(PAGE)
    a_block, a_page = own_cost()
    count = len(page.blocks)
    print(f"{page.name}: {count} blocks")
    print(f"checking adds              {a_block * 1e3:8.2f} ms a block")
    print(f"a process of its own adds  {a_page * 1e3:8.2f} ms a page")
    print(
        f"what the blocks compute    {seconds(lambda: computed(page)) / count * 1e3:8.2f} ms a block"
    )

    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    importing = min(command("timeit", "-n1", "-r1", "import torch") for _ in range(3))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        notebook = Path(folder, "page.ipynb")
        notebook.write_text(export.notebook(page), encoding="utf-8")
        alone = ("-c", os.devnull, "--rootdir", folder)
        ways = {
            "this checker": ("pytest", *quiet, page.name),
            "nbval": ("pytest", *quiet, *alone, "--nbval-lax", str(notebook)),
            "nbmake": ("pytest", *quiet, *alone, "--nbmake", str(notebook)),
        }
        bills = {name: min(command(*way) for _ in range(2)) for name, way in ways.items()}
    print(f"importing torch            {importing:8.2f} s, a fresh interpreter included")
    for name, bill in bills.items():
        ratio = bill / bills["this checker"]
        print(f"the page under {name:12}{bill:8.2f} s, {ratio:5.2f} times this checker")
    print(f"of this checker's time, importing torch is {importing / bills['this checker']:.0%}")
    print(f"pages in the book: {len(pages(ROOT))}")
    light = a_block < MOST_A_BLOCK * importing and a_page < MOST_A_PAGE * importing
    return 0 if light else 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
