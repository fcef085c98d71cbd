"""Gradients, by PyTorch's names."""

import importlib

from torch import _autograd
from torch._autograd import enable_grad, inference_mode, no_grad, set_grad_enabled
from torch._tensor import Tensor
from torch.autograd import graph


def _several(value):
    return list(value) if isinstance(value, tuple | list) else [value]


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """Return the gradients of `outputs` with respect to `inputs`."""
    outputs, wanted = _several(outputs), _several(inputs)
    above = [None] * len(outputs) if grad_outputs is None else _several(grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    allow = bool(allow_unused) or materialize_grads
    if is_grads_batched:
        raise NotImplementedError(
            "torch.autograd.grad(is_grads_batched=True) is not in the small torch of this page; open the page in Colab"
        )
    found = _autograd.backward(outputs, above, wanted, keep, create_graph, allow)
    if materialize_grads:
        found = tuple(
            x.new_zeros(x.shape) if g is None else g for x, g in zip(wanted, found, strict=True)
        )
    return found


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Add the gradients of `tensors` to the leaves."""
    tensors = _several(tensors)
    above = [None] * len(tensors) if grad_tensors is None else _several(grad_tensors)
    keep = create_graph if retain_graph is None else retain_graph
    _autograd.backward(tensors, above, None, keep, create_graph)


Variable = Tensor
# What few pages ask for, and the module that has it.
LATER = {"Function": "function", "gradcheck": "gradcheck"}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        found = importlib.import_module(f"torch.autograd.{LATER.get(name, name)}")
    except ModuleNotFoundError as error:
        raise AttributeError(str(error)) from None
    found = globals()[name] = getattr(found, name) if name in LATER else found
    return found


__all__ = [
    "Variable", "backward", "enable_grad", "grad", "graph", "inference_mode", "no_grad", "set_grad_enabled",
]  # fmt: skip
