"""Chance for tests: other examples each time, and the same ones again by `SEED=…`."""

import os
import random

from hypothesis import HealthCheck, seed, settings

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))


def fuzz(examples):
    """Return a decorator that tries a test on so many examples, or on as many as `PAGES=…` says.

    Under CI, too, they are others each time; where one fails, the report names the seed.
    """
    chosen = settings(
        max_examples=int(os.environ.get("PAGES", examples)),
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )

    def decorate(test):
        test = seed(SEED)(chosen(test))
        test.by_chance = True
        return test

    return decorate
