"""The small torch, compared with PyTorch."""

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "small_torch" / "torch"


def module(name):
    """A module of the small torch that needs nothing of its core, beside the PyTorch of this Python."""
    spec = importlib.util.spec_from_file_location(f"small_torch_{name}", FOLDER / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
