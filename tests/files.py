"""The stored models and texts of the book, as its pages load them."""

import torch

from tests.pages import ROOT

FILES = ROOT / "docs" / "files"


def stored(name):
    """Return what is stored under `name`, such as "gpt"."""
    (path,) = FILES.glob(f"{name}-*.pt")
    return torch.load(path, weights_only=True)
