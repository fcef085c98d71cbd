"""What a test asks of the system that it runs on. Where the system lacks it, the test is skipped and says so.

The book is tested on Linux, macOS and Windows. Windows cannot fork, ends no process by a signal and has no
`sleep`; and Linux alone forks pages from one process and names in /proc what a page has started.
"""

import os
import sys

import pytest

from literate.run import FORKS


def _needs(there, what):
    return pytest.mark.skipif(not there, reason=f"needs {what}, which this system lacks")


FORK = _needs(hasattr(os, "fork"), "os.fork")
POSIX = _needs(sys.platform != "win32", "the signals, files and commands of POSIX")
LINUX = _needs(FORKS, "pages forked from one process, and /proc")


def each_where_it_can(cases, **names):
    """Return a test's parameters from `cases`, by name; `FORK=(name, …)` says which ones need what."""
    marks = {"FORK": FORK, "POSIX": POSIX, "LINUX": LINUX}
    if strange := {name for listed in names.values() for name in listed} - set(cases):
        raise LookupError(f"no such case: {', '.join(sorted(strange))}")
    needed = {name: marks[kind] for kind, listed in names.items() for name in listed}
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else [case]), id=name, marks=needed.get(name, ())
        )
        for name, case in cases.items()
    ]
