"""Run the book as other machines would: `make machines`, or python -m tools.machines [NAME …].

MKL, oneDNN and ATen choose their kernels by processor, each by itself, and another kernel sums in
another order. Each machine below is a set of the variables that they read, of threads and of
workers; the pages come in a random order. Under each, the pages and the tests of the checker and
of the snippets must pass. A variable can only take away what the processor has, and some are heard
on one make of processor alone, so each machine's line says what became of it here: two with the
same bits computed alike.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from literate.page import pages, shown

ROOT = Path(__file__).parents[1]
TESTS = ("tests/literate", "tests/snippets")
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "LITERATE_THREADS",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "PYTHONOPTIMIZE",
)
# Says which vector instructions ATen uses, and a digest of what three kinds of kernel return.
FINGERPRINT = """
import hashlib, torch
draw = torch.Generator().manual_seed(0)
x = torch.randn(96, 96, generator=draw)
found = [x @ x, x.softmax(dim=-1), x.sum(dim=0), x.bfloat16() @ x.bfloat16()]
bits = b"".join(part.float().numpy().tobytes() for part in found)
print(torch.backends.cpu.get_cpu_capability(), hashlib.sha256(bits).hexdigest()[:6])
"""


@dataclass(frozen=True)
class Machine:
    """A machine to pretend to be: what it is told, and with which options pytest runs on it."""

    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ("-n", "2")


MACHINES = {
    "as-it-is": Machine(),
    "no-vectors": Machine(
        {
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
        }
    ),
    "avx2": Machine(
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "LITERATE_THREADS": "2",
        }
    ),
    "avx512": Machine(
        {
            "ATEN_CPU_CAPABILITY": "avx512",
            "MKL_ENABLE_INSTRUCTIONS": "AVX512",
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        }
    ),
    "any-intel": Machine({"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "optimized-python": Machine({"MKL_CBWR": "AVX2", "PYTHONOPTIMIZE": "1"}),
}


def environment_of(machine: Machine) -> dict[str, str]:
    """Return the environment of a process on `machine`: this one's, without its own settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in VARIABLES and "PYTEST" not in name
    }
    return kept | machine.environment


def fingerprint(machine: Machine) -> str:
    """Return ATen's vector instructions on `machine`, and a digest of what its kernels return."""
    command = [sys.executable, "-c", FINGERPRINT]
    done = subprocess.run(
        command, env=environment_of(machine), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def run(machine: Machine, tests: tuple[str, ...] = TESTS) -> subprocess.CompletedProcess:
    """Run the pages, in a random order, and `tests` on `machine`; return the finished process.

    The last line of its standard output is pytest's; the seed of the order stands before it.
    """
    book = [shown(path, ROOT) for path in pages(ROOT)]
    seed = random.randrange(10**6)
    random.Random(seed).shuffle(book)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *machine.options, *book, *tests],
        cwd=ROOT,
        env=environment_of(machine),
        capture_output=True,
        text=True,
    )
    done.stdout = f"order of seed {seed}\n{done.stdout}"
    return done


def passed(done: subprocess.CompletedProcess) -> bool:
    """Say whether something ran and all of it passed."""
    return done.returncode == 0 and re.search(r"[1-9]\d* passed", done.stdout) is not None


def main() -> int:
    """Run each machine that is named, or all; return 1 if anything fails on one of them."""
    parser = argparse.ArgumentParser(prog="python -m tools.machines", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help=" · ".join(MACHINES))
    names = parser.parse_args().names or list(MACHINES)
    if unknown := [name for name in names if name not in MACHINES]:
        parser.error(f"no machine {', '.join(unknown)}; wanted any of {', '.join(MACHINES)}")
    failed = []
    for name in names:
        start = time.monotonic()
        done = run(MACHINES[name])
        told = " ".join(f"{key}={value}" for key, value in MACHINES[name].environment.items())
        said = done.stdout.strip().rpartition("\n")[2].strip("= ")
        print(f"{name}: {fingerprint(MACHINES[name])}: {said} [{time.monotonic() - start:.0f} s]")
        print(f"    {told or 'nothing set'}", flush=True)
        if not passed(done):
            failed.append(name)
            print(done.stdout[-6000:], done.stderr[-2000:], sep="\n", flush=True)
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
