"""Hypothesis tries the same examples each time, so that a red test is red for everybody; threads are as many as asked."""

import importlib

import pytest
import torch
from hypothesis import HealthCheck, settings

from literate.child import THREADS

settings.register_profile(
    "fast",
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# A simulated processor is many times slower, and `make shake` has twenty.
settings.register_profile("processor", settings.get_profile("fast"), max_examples=6)


def pytest_configure(config):
    on_processor = config.getoption("processor") is not None
    settings.load_profile("processor" if on_processor else "fast")


@pytest.fixture(autouse=True, scope="session")
def as_many_threads_as_asked():
    """Tiny tensors are fastest on one thread, and leave the other cores to other workers.

    `LITERATE_THREADS` asks for more of them, as it does for pages.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def part(request):
    """The part that a test file is about, or what stands in its place in sys.modules."""
    name = request.module.__name__.rpartition(".test_")[2]
    return importlib.import_module(f"snippets.{name}")
