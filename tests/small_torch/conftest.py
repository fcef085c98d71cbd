"""What the small torch prints is asked of it under Node."""

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def under_node():
    """Skip where there is no Node, and under CI fail."""
    if not shutil.which("node"):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("needs Node")
