"""Answers cases with whichever torch is imported: the same code in PyTorch and, as a block, in the small torch."""

import json
import math

import torch
import torch.nn.functional as F
from torch import nn


def tensor_of(described):
    """Make a tensor of its dtype, its shape and its numbers, row by row; some are made as a transposed view."""
    kind, shape, numbers, turned = described
    numbers = [float(n) if isinstance(n, str) else n for n in numbers]
    if turned:
        made = torch.tensor(numbers, dtype=getattr(torch, kind)).reshape(shape[::-1])
        return made.permute(*range(made.dim())[::-1])
    return torch.tensor(numbers, dtype=getattr(torch, kind)).reshape(shape)


def told(value):
    """Say what a result is, in what JSON can hold."""
    if isinstance(value, torch.Tensor):
        numbers = (
            value.detach().clone().flatten().tolist()
        )  # a clone of zeros without memory has some
        if value.is_complex():
            numbers = [part for number in numbers for part in (number.real, number.imag)]
        return [
            str(value.dtype),
            list(value.shape),
            [str(n) if n != n or abs(n) == math.inf else n for n in numbers],
        ]
    if isinstance(value, (tuple, list)):
        return [told(each) for each in value]
    return repr(value)


def above(out, turn):
    """A gradient from above, different for each number."""
    numbers = [math.cos(1.7 * n + turn) for n in range(out.numel())]
    return torch.tensor(numbers, dtype=out.dtype).reshape(out.shape)


def answer(case):
    """Run the code of a case, which makes `out`; return the result, the gradients, and theirs again."""
    names = dict(
        zip("xyzw", map(tensor_of, case["tensors"]), strict=False),
        torch=torch,
        F=F,
        nn=nn,
        math=math,
    )
    leaves = []
    if case["gradients"]:
        leaves = [
            t.requires_grad_()
            for t in map(names.get, "xyzw")
            if t is not None and t.is_floating_point()
        ]
    try:
        exec(case["code"], names)
    except Exception as error:
        kind = next(k for k in type(error).__mro__ if k.__module__ == "builtins")
        return {"raised": kind.__name__, "message": str(error)}
    out = names["out"]
    found = {"out": told(out)}
    for leaf in leaves:
        leaf.grad = None
    leaves = [*leaves, *names.get("parameters", ())]
    if leaves:
        outs = [
            o
            for o in (out if isinstance(out, (tuple, list)) else [out])
            if isinstance(o, torch.Tensor) and o.requires_grad
        ]
        aboves = [above(o, place) for place, o in enumerate(outs)]
        twice = case["gradients"] == 2
        first = torch.autograd.grad(outs, leaves, aboves, create_graph=twice, allow_unused=True)
        found["gradients"] = told(first)
        if twice:
            again = [g for g in first if g is not None and g.requires_grad]
            turned = [above(g, 2) for g in again]
            second = (
                torch.autograd.grad(again, leaves, turned, materialize_grads=True) if again else []
            )
            found["again"] = (
                told(second) if again else told([torch.zeros_like(leaf) for leaf in leaves])
            )
    return found


def answers(cases):
    return json.dumps([answer(case) for case in cases])
