"""Hypothesis settings: a fast, repeatable profile, and a thorough one for a longer look.

HYPOTHESIS_PROFILE=thorough pytest tests/snippets
"""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fast",
    max_examples=25,
    deadline=None,
    derandomize=True,  # the same examples each time, so a red test is red for everybody
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", max_examples=500, deadline=None, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tiny tensors are fastest on one thread, and leave the other cores to other workers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
