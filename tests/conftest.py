"""What all tests share: `pytest --processor SEED` runs them, and their pages, on a simulated processor.

On it whatever rounds returns what another kernel could have returned; `processor/` says how. A test that
fails there has no margin, and fails on a machine that somebody owns.
"""

import os
import re
import signal
from pathlib import Path

import pytest

from processor.pytest_plugin import seed_of
from tests.chance import SEED

# As pages have it: read where triton is first imported, which torch does.
os.environ["TRITON_INTERPRET"] = "1"

HERE = Path(__file__).parent
# Folders whose conftest gives each test the same mark.
MARKED = {"site": "site", "peers": "lab"}

# A shell's background job ignores an interrupt, and so would all that a test starts, to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path, config):
    """Import no folder of which `-m "not …"` leaves out all tests."""
    left_out = re.fullmatch(r"not (\w+)(?: and not (\w+))*", config.getoption("markexpr"))
    words = config.getoption("markexpr").split() if left_out else ()
    if collection_path.parent == HERE and MARKED.get(collection_path.name) in words:
        return True
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    """Let the pages that a test runs have the processor that the test has."""
    seed = seed_of(item)
    if seed is None:
        return (yield)
    from tools.shake import on_processor

    with on_processor(seed, Path(os.devnull)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Name the seed that a test by chance has failed with."""
    report = yield
    if report.failed and hasattr(getattr(item, "obj", None), "by_chance"):
        report.sections.append(("Chance", f"SEED={SEED} makes the same examples again"))
    return report
