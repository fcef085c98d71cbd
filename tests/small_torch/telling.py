"""Runs a program with whichever torch is imported, and tells what came of it: in PyTorch, and in the small torch."""

import builtins
import math

import torch
import torch.nn.functional as F
from torch import nn


def told_by(program):
    """Run the lines of `program`, which make `out`; return what it is, or how it failed."""
    torch.manual_seed(0)
    names = {"torch": torch, "F": F, "nn": nn, "math": math, "inf": math.inf, "nan": math.nan}
    try:
        exec(program, names)
        out, leaf = names["out"], names.get("leaf")
        found = {"kind": kind_of(out), "value": value_of(out), "text": text_of(out)}
        if leaf is not None and isinstance(out, torch.Tensor) and out.requires_grad:
            out.sum().backward()
            found["gradient"] = value_of(leaf.grad)
    except Exception as error:
        if "is not in the small torch" in str(error):
            return {"lacks": str(error)}
        kinds = [kind.__name__ for kind in type(error).__mro__ if hasattr(builtins, kind.__name__)]
        return {"raised": kinds[0], "message": str(error)[:300]}
    return found


def kind_of(value):
    if isinstance(value, torch.Tensor):
        return [type(value).__name__, str(value.dtype), list(value.shape), value.requires_grad]
    return type(value).__name__


def value_of(value):
    """Return numbers as JSON holds them, a sequence of them, or a text."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        return {"dtype": str(plain.dtype), "numbers": value_of(plain.flatten().tolist())}
    if isinstance(value, (list, tuple)):
        return [value_of(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, (int, str, bool)) or value is None else type(value).__name__


def text_of(value):
    return repr(value) if "object at 0x" not in repr(value) else type(value).__name__
