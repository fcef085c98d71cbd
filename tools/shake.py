"""Run the book and its tests on simulated processors: `make shake`, or python -m tools.shake [PAGE …].

Each processor is a seed, and returns from what rounds what another kernel could have returned;
`processor/__init__.py` says how. On each, every output must agree with what its page shows, by the
rules of every other run, and the tests of the snippets and of the checker must pass: for one of
them, `pytest --processor SEED tests/snippets`. A claim that fails here fails on a machine that
somebody owns: give it a margin, on the page or in the test.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from literate import compare
from literate.child import CONTEXT
from literate.page import pages, read
from literate.run import Run

ROOT = Path(__file__).parents[1]
SEEDS = 20
# A file that never says torch draws no tensor, and its tests are the same on every processor.
TESTS = tuple(
    str(path.relative_to(ROOT))
    for folder in ("tests/literate", "tests/book", "tests/snippets")
    for path in sorted((ROOT / folder).glob("test_*.py"))
    if "torch" in path.read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Shaken:
    """What came of one page on the processor of number `seed`.

    `perturbed` counts the operations whose result was changed, by name; `unknown` names those of
    which nobody said whether they round; `failures` holds, by the line of its block, the report on
    each output that did not hold.
    """

    page: str
    seed: int
    perturbed: dict[str, int]
    unknown: tuple[str, ...]
    failures: dict[int, str]


def shake(path: Path, seed: int) -> Shaken:
    """Run the page at `path` on the processor of number `seed`.

    Raises PageError where the page cannot be read.
    """
    page = read(path)
    with tempfile.TemporaryDirectory(prefix="shake-") as folder:
        report = Path(folder) / "report"
        with on_processor(seed, report):
            run = Run(page)
            try:
                results = run.all()
            finally:
                run.close()
        said = (
            json.loads(report.read_text()) if report.exists() else {"perturbed": {}, "unknown": ()}
        )
    judged = [
        (block.line, compare.check(page, block, result))
        for block, result in zip(run.blocks, results, strict=True)
    ]
    failures = {line: failure.report for line, failure in judged if failure}
    return Shaken(page.name, seed, said["perturbed"], tuple(said["unknown"]), failures)


@contextmanager
def on_processor(seed: int, report: Path) -> Iterator[None]:
    """Ask, in the environment, for the processor of number `seed`; what it did goes to `report`."""
    asked = {
        CONTEXT: str(ROOT / "processor/__init__.py"),
        "PROCESSOR_SEED": str(seed),
        "PROCESSOR_REPORT": str(report),
    }
    before = dict(os.environ)
    os.environ.update(asked)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def said_of(runs: list[Shaken]) -> str:
    """Return the outcome of all `runs` of one page: a line, and each failing block and name once."""
    perturbed = sum(sum(run.perturbed.values()) for run in runs)
    lines = [f"{runs[0].page}: {perturbed:,} operations perturbed on {len(runs)} processors"]
    for name in sorted({name for run in runs for name in run.unknown}):
        lines.append(f"{name}: processor/__init__.py does not say whether it rounds")
    failures: dict[int, list[tuple[int, str]]] = {}
    for run in runs:
        for line, report in run.failures.items():
            failures.setdefault(line, []).append((run.seed, report))
    for found in failures.values():
        seeds = ", ".join(str(seed) for seed, _ in found)
        lines.append(f"on {len(found)} of {len(runs)} processors ({seeds}), {found[0][1]}")
    return "\n  ".join(lines)


def _tests_pass_on(seed: int, workers: int) -> bool:
    """Run the tests on the processor of number `seed`, print what failed, and say whether all passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers)]
    command += ["--processor", str(seed), "-m", "not site and not lab", *TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    *said, last = done.stdout.strip().splitlines()
    counted = next((line for line in said if line.startswith("processor ")), "")
    print(f"{counted}; tests: {last.strip('= ')}", flush=True)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:], sep="\n", flush=True)
    return done.returncode == 0 and " 0 operations" not in counted


def main() -> int:
    """Shake each page that is named, or all and the tests; return 1 unless all holds on every seed."""
    parser = argparse.ArgumentParser(prog="python -m tools.shake", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("pages", nargs="*", metavar="PAGE", type=Path, help="these alone, no test")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many; {SEEDS} unless told")
    parser.add_argument("--workers", type=int, default=2, help="processes at work; 2 unless told")
    told = parser.parse_args()
    book = told.pages or [path for path in pages(ROOT) if read(path).blocks]
    os.environ.setdefault("LITERATE_LIMIT", "600")  # a simulated processor is many times slower
    start, found = time.monotonic(), []
    with ProcessPoolExecutor(told.workers, get_context("spawn")) as pool:
        asked = [[pool.submit(shake, path, seed) for seed in range(told.seeds)] for path in book]
        for runs in asked:
            found += (done := [run.result() for run in runs])
            print(said_of(done), flush=True)
    held = sum(not (run.failures or run.unknown) for run in found)
    perturbed = sum(sum(run.perturbed.values()) for run in found)
    print(f"{perturbed:,} operations perturbed in {time.monotonic() - start:.0f} s")
    print(f"{held} of {len(found)} runs hold")
    passed = [told.pages or _tests_pass_on(seed, told.workers) for seed in range(told.seeds)]
    if not told.pages:
        print(f"the tests pass on {sum(map(bool, passed))} of {told.seeds} processors")
    return 0 if perturbed and held == len(found) and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
