"""The pytest face: `pytest --processor SEED` runs each test on the simulated processor of this number.

A test that must have the bits of this very processor says why, and is left alone:
`@pytest.mark.exact("why")`.
"""

import pytest

PERTURBED = "operations perturbed"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processor",
        type=int,
        metavar="SEED",
        help="run the tests on the simulated processor of this number, which rounds otherwise",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Import torch before any test: pytester forgets what one imports, and torch can be imported once."""
    config.addinivalue_line("markers", "exact(why): left alone by `pytest --processor SEED`")
    if config.getoption("processor") is not None:
        import processor  # noqa: F401


def seed_of(item: pytest.Item) -> int | None:
    """Return the number of the processor that a test runs on; None for this one's own."""
    return None if item.get_closest_marker("exact") else item.config.getoption("processor")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Run the test on the processor that was asked for, and count what was perturbed."""
    seed = seed_of(item)
    if seed is None:
        return (yield)
    from processor import Processor

    try:
        with Processor(seed) as simulated:
            result = yield
    finally:
        item.user_properties.append((PERTURBED, sum(simulated.perturbed.values())))
    if simulated.unknown:
        names = ", ".join(sorted(simulated.unknown))
        pytest.fail(f"the simulated processor does not know whether these round: {names}")
    return result


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
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
