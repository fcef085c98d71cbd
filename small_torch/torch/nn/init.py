"""The first values of parameters, by the draws that PyTorch makes."""

import math

import torch
from torch._signatures import absent


def _in_place(name):
    """The method of a tensor with this name, without a gradient."""

    def initialise(tensor, *args, **kwargs):
        with torch.no_grad():
            return getattr(tensor, name)(*args, **kwargs)

    return initialise


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    with torch.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    with torch.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def constant_(tensor, val):
    with torch.no_grad():
        return tensor.fill_(val)


def ones_(tensor):
    return constant_(tensor, 1.0)


def zeros_(tensor):
    return constant_(tensor, 0.0)


def eye_(tensor):
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with torch.no_grad():
        return tensor.copy_(torch.eye(*tensor.shape))


def _fans(tensor):
    """How many inputs and outputs a weight has."""
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def xavier_uniform_(tensor, gain=1.0, generator=None):
    std = gain * math.sqrt(2.0 / float(sum(_fans(tensor))))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(sum(_fans(tensor)))), generator)


def calculate_gain(nonlinearity, param=None):
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    return {"relu": math.sqrt(2.0), "tanh": 5.0 / 3}.get(nonlinearity, 1.0)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    if not tensor.numel():
        return tensor
    fan = _fans(tensor)[mode == "fan_out"]
    std = calculate_gain(nonlinearity, a) / math.sqrt(fan)
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    fan = _fans(tensor)[mode == "fan_out"]
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(fan), generator)


def orthogonal_(tensor, gain=1, generator=None):
    """Rows, or columns, of length 1 at right angles: Q of a random matrix, by Householder's reflections."""
    rows, columns = tensor.size(0), tensor.numel() // tensor.size(0)
    flat = torch.empty(rows, columns, dtype=tensor.dtype).normal_(0, 1, generator=generator)
    q, r = torch.linalg.qr(flat.t() if rows < columns else flat)
    q = q * r.diagonal().sign()
    with torch.no_grad():
        return tensor.copy_((q.t() if rows < columns else q).reshape(tensor.shape)).mul_(gain)


__getattr__ = absent("torch.nn.init", globals())
