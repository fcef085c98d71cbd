"""Hypothesis settings: a fast, repeatable profile, and a thorough one for a longer look.

HYPOTHESIS_PROFILE=thorough pytest tests/snippets
"""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

from literate.child import THREADS

settings.register_profile(
    "fast",
    max_examples=25,
    deadline=None,
    derandomize=True,  # the same examples each time, so a red test is red for everybody
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", max_examples=500, deadline=None, database=None)
settings.register_profile("processor", settings.get_profile("fast"), max_examples=6)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_configure(config):
    """Try fewer examples on a simulated processor: it is many times slower, and `make shake` has twenty."""
    if config.getoption("processor") is not None and "HYPOTHESIS_PROFILE" not in os.environ:
        settings.load_profile("processor")


@pytest.fixture(autouse=True, scope="session")
def as_many_threads_as_asked():
    """Tiny tensors are fastest on one thread, and leave the other cores to other workers.

    `LITERATE_THREADS` asks for more of them, as it does for pages.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(threads)
