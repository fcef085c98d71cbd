"""Gradients, by PyTorch's names."""

from torch import _autograd
from torch._autograd import enable_grad, inference_mode, no_grad, set_grad_enabled
from torch._signatures import absent, lacks
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
        raise lacks("torch.autograd.grad(is_grads_batched=True)")
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
PLACES = {
    "Function": "torch.autograd.function:Function",
    "gradcheck": "torch.autograd.gradcheck:gradcheck",
}
PLACES |= {name: f"torch.autograd.{name}" for name in ("forward_ad", "function", "functional")}
__getattr__ = absent("torch.autograd", globals(), PLACES)

__all__ = [
    "Variable", "backward", "enable_grad", "grad", "graph", "inference_mode", "no_grad", "set_grad_enabled",
]  # fmt: skip
