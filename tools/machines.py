"""Run the book as other machines would: `make machines`, or python -m tools.machines [NAME …].

MKL, oneDNN and ATen choose their kernels by processor, each by itself, and another kernel sums in
another order. Each machine below is a set of the variables that they read, of threads, of workers,
of Python's own settings, of a language, of a folder that the book lies in; the pages come in a
random order. Under each, the pages and the tests of the checker and of the snippets must pass, as
far as `make test` has them: what takes longer asks no processor. `avx2+german` is one machine that is
told both. A variable can only take away what the processor has, some are heard on one make of
processor alone, and a language may not be installed, so each machine's line says what became of it
here: two with the same bits computed alike. Where CI is set, a language that is not installed is a
failure.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from literate.page import name_of, pages

ROOT = Path(__file__).parents[1]
TESTS = ("tests/literate", "tests/snippets")
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "LC_ALL",
    "LITERATE_THREADS",
    "LOCPATH",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
)
# Python alone would take the letters of LC_ALL and leave its numbers; a host program takes them all.
SPEAK = """
import locale
try:
    locale.setlocale(locale.LC_ALL, "")
except locale.Error:
    pass
"""
# Says which vector instructions ATen uses, a digest of what three kinds of kernel return, and
# which language is spoken.
FINGERPRINT = """
import hashlib, locale, torch
draw = torch.Generator().manual_seed(0)
x = torch.randn(96, 96, generator=draw)
found = [x @ x, x.softmax(dim=-1), x.sum(dim=0), x.bfloat16() @ x.bfloat16()]
bits = b"".join(part.float().numpy().tobytes() for part in found)
print(torch.backends.cpu.get_cpu_capability(), hashlib.sha256(bits).hexdigest()[:6], end=" ")
print(locale.setlocale(locale.LC_NUMERIC), locale.str(0.5))
"""
BUILT = (".git", ".venv", "site", ".pytest_cache", ".ruff_cache")  # in ROOT, and not copied


@dataclass(frozen=True)
class Machine:
    """A machine to pretend to be: what it is told, and with which options pytest runs on it.

    Where `folder` is given, a copy of the book in a folder of that name is run.
    """

    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ("-n", "2")
    folder: str = ""


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
            "LITERATE_THREADS": "4",
        }
    ),
    "any-intel": Machine({"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "optimized-python": Machine(
        {"MKL_CBWR": "AVX2", "PYTHONOPTIMIZE": "1", "LITERATE_THREADS": "5"}
    ),
    "german": Machine({"LC_ALL": "de_DE.UTF-8", "PYTHONHASHSEED": "1", "LITERATE_THREADS": "2"}),
    "turkish": Machine(
        {"LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "2", "LITERATE_THREADS": "3"},
        folder="Dikkat, çalıştırılmış",
    ),
}


def named(name: str) -> Machine:
    """Return the machine of this name, or of several joined by "+", told what each of them is told.

    What two of them are told differently is a ValueError, as is a name that no machine has.
    """
    joined = Machine()
    for part in name.split("+"):
        if part not in MACHINES:
            raise ValueError(f"no machine {part}; wanted any of {', '.join(MACHINES)}")
        machine = MACHINES[part]
        environment = joined.environment | machine.environment
        if environment != machine.environment | joined.environment:
            raise ValueError(f"{name}: two of these are told different things")
        joined = Machine(environment, folder=joined.folder or machine.folder)
    return joined


def environment_of(machine: Machine) -> dict[str, str]:
    """Return the environment of a process on `machine`: this one's, without its own settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in VARIABLES and "PYTEST" not in name
    }
    return kept | machine.environment


@contextmanager
def settled(machine: Machine) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the folder in which the book lies on `machine`, and the environment of a process there."""
    environment = environment_of(machine)
    with tempfile.TemporaryDirectory(prefix="machine-") as folder:
        home, language = Path(folder) / machine.folder, environment.get("LC_ALL")
        if machine.folder:
            shutil.copytree(ROOT, home, ignore=lambda at, _: BUILT if Path(at) == ROOT else ())
        root = home if machine.folder else ROOT
        if language:
            learned = Path(folder) / "learned"
            learned.mkdir()
            (learned / "sitecustomize.py").write_text(SPEAK)
            environment["PYTHONPATH"] = os.pathsep.join([str(root), str(learned)])
            if _learn(language, learned):
                environment["LOCPATH"] = str(learned)
        yield root, environment


def _learn(language: str, folder: Path) -> bool:
    """Compile the locale `language`, such as de_DE.UTF-8, into `folder`; return whether it could be."""
    name, _, letters = language.partition(".")
    command = ["localedef", "-i", name, "-f", letters, str(folder / language)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def fingerprint(machine: Machine) -> str:
    """Return what `machine` computes with, a digest of what its kernels return, and its language."""
    with settled(machine) as (root, environment):
        command = [sys.executable, "-c", FINGERPRINT]
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=True
        )
    return done.stdout.strip()


def speaks(machine: Machine, found: str) -> bool:
    """Say whether a machine with the fingerprint `found` speaks the language that it was told."""
    return machine.environment.get("LC_ALL", "") in found


def told(machine: Machine, found: str) -> str:
    """Return what `machine`, with the fingerprint `found`, was told, and what it did not obey."""
    parts = [f"{name}={value}" for name, value in machine.environment.items()]
    if machine.folder:
        parts.append(f"in a folder named “{machine.folder}”")
    if not speaks(machine, found):
        parts.append(f"({machine.environment['LC_ALL']} is not installed: not tried)")
    return " ".join(parts) or "nothing set"


def run(machine: Machine, tests: tuple[str, ...] = TESTS) -> subprocess.CompletedProcess:
    """Run the pages, in a random order, and `tests` on `machine`; return the finished process.

    The last line of its standard output is pytest's; the seed of the order stands before it.
    """
    book = [name_of(path, ROOT) for path in pages(ROOT)]
    seed = random.randrange(10**6)
    random.Random(seed).shuffle(book)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not lab"]
    command += [*machine.options, *book, *tests]
    with settled(machine) as (root, environment):
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
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
    try:
        chosen = {name: named(name) for name in names}
    except ValueError as error:
        parser.error(str(error))
    failed = []
    for name, machine in chosen.items():
        start = time.monotonic()
        done, found = run(machine), fingerprint(machine)
        said = done.stdout.strip().rpartition("\n")[2].strip("= ")
        print(f"{name}: {found}: {said} [{time.monotonic() - start:.0f} s]")
        print(f"    {told(machine, found)}", flush=True)
        if not passed(done):
            print(done.stdout[-6000:], done.stderr[-2000:], sep="\n", flush=True)
        if not passed(done) or (os.environ.get("CI") and not speaks(machine, found)):
            failed.append(name)
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
