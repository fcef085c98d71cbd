"""What all tests share: `pytest --processor SEED` runs them on a simulated processor.

On it whatever rounds returns what another kernel could have returned, in the test itself and in the
pages that it runs; `tools/processor.py` says how. A test that fails there has no margin, and fails on
a machine that somebody owns. A test that must have the bits of this processor says why:
`@pytest.mark.exact("why")` leaves it alone.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.chance import SEED

# A shell's background job ignores an interrupt, and so would all that a test starts, to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PERTURBED = "operations perturbed"


def pytest_addoption(parser):
    parser.addoption(
        "--processor",
        type=int,
        metavar="SEED",
        help="run the tests on the simulated processor of this number, which rounds otherwise",
    )


def pytest_configure(config):
    """Import torch before any test: pytester forgets what one imports, and torch can be imported once."""
    if config.getoption("processor") is not None:
        import tools.processor  # noqa: F401


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Run the test on the processor that was asked for, and count what was perturbed."""
    seed = item.config.getoption("processor")
    if seed is None or item.get_closest_marker("exact"):
        return (yield)
    from tools.processor import Processor
    from tools.shake import on_processor

    try:
        with on_processor(seed, Path(os.devnull)), Processor(seed) as simulated:
            result = yield
    finally:
        item.user_properties.append((PERTURBED, sum(simulated.perturbed.values())))
    if simulated.unknown:
        names = ", ".join(sorted(simulated.unknown))
        pytest.fail(f"tools/processor.py does not say whether these round: {names}")
    return result


def pytest_terminal_summary(terminalreporter, config):
    """Say how many operations were perturbed, so that a run in which none was is seen."""
    seed = config.getoption("processor")
    if seed is not None:
        counts = [
            count
            for reports in terminalreporter.stats.values()
            for report in reports
            for name, count in getattr(report, "user_properties", ())
            if name == PERTURBED and report.when == "call"
        ]
        terminalreporter.write_line(f"processor {seed}: {sum(counts):,} {PERTURBED}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Name the seed that a test by chance has failed with."""
    report = yield
    if report.failed and hasattr(getattr(item, "obj", None), "by_chance"):
        report.sections.append(("Chance", f"SEED={SEED} makes the same examples again"))
    return report
