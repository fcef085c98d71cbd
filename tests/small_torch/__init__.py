"""The small torch, compared with PyTorch."""

import contextlib
import functools
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import torch

from tools.in_page import Node

FOLDER = Path(__file__).parents[2] / "small_torch"


def module(name):
    """A module of the small torch that needs nothing of its core, beside the PyTorch of this Python."""
    spec = importlib.util.spec_from_file_location(
        f"small_torch_{name}", FOLDER / "torch" / f"{name}.py"
    )
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def in_page(blocks):
    """Run these blocks as one page in the small torch under Node; return what each printed."""
    page = SimpleNamespace(name="page.md", source="")
    with contextlib.closing(Node()) as node:
        results = node.run(page, [SimpleNamespace(code=code, start=1) for code in blocks])
    for result in results:
        assert not result["raised"], result["traceback"]
    return [result["printed"] for result in results]


@functools.cache
def draws_from_one_stream():
    """Say whether PyTorch draws dropout masks from the stream of its uniform numbers.

    Where it is built with MKL it may not: then `exponential_` takes one number, as another stream's seed.
    """
    torch.manual_seed(0)
    torch.empty(3, dtype=torch.float64).exponential_()
    following = torch.rand(1)
    torch.manual_seed(0)
    torch.rand(3, dtype=torch.float64)
    return torch.equal(torch.rand(1), following)
