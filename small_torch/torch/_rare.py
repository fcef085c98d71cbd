"""Operations that few pages ask for, made of others; `_ops.py` imports them when one is called."""

from torch._dtypes import bool_, int64
from torch._ops import bincount, cat, norm
from torch._tensor import Tensor, tensor

_sorted = sorted


def diff(input, n=1, dim=-1, prepend=None, append=None):
    parts = [part for part in (prepend, input, append) if part is not None]
    found = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        size = found._shape[dim]
        after, before = found.narrow(dim, 1, size - 1), found.narrow(dim, 0, size - 1)
        found = after ^ before if found.dtype is bool_ else after - before
    return found


def kron(input, other):
    a, b = input, other
    found = a.unsqueeze(1).unsqueeze(3) * b.unsqueeze(0).unsqueeze(2)
    return found.reshape(a._shape[0] * b._shape[0], a._shape[1] * b._shape[1])


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    if dim is not None:
        raise NotImplementedError(
            "torch.unique of a dim is not in the small torch of this page; open the page in Colab"
        )
    numbers = input._flat()
    values = _sorted({*numbers})
    places = {value: place for place, value in enumerate(values)}
    found = [tensor(values, dtype=input.dtype)]
    inverse = [places[number] for number in numbers]
    if return_inverse:
        found.append(tensor(inverse, dtype=int64).reshape(input._shape))
    if return_counts:
        found.append(bincount(tensor(inverse, dtype=int64)))
    return found[0] if len(found) == 1 else tuple(found)


def searchsorted(sorted_sequence, input, *, right=False, side=None):
    values = input if isinstance(input, Tensor) else tensor(input)
    right = right or side == "right"
    before = (
        sorted_sequence.unsqueeze(-2) <= values.unsqueeze(-1)
        if right
        else sorted_sequence.unsqueeze(-2) < values.unsqueeze(-1)
    )
    return before.sum(dim=-1)


def roll(input, shifts, dims=None):
    if dims is None:
        return roll(input.reshape(-1), shifts, 0).reshape(input._shape)
    pairs = [(shifts, dims)] if isinstance(dims, int) else [*zip(shifts, dims, strict=False)]
    found = input
    for shift, dim in pairs:
        size = input._shape[dim]
        cut = -shift % size if size else 0
        found = cat([found.narrow(dim, cut, size - cut), found.narrow(dim, 0, cut)], dim)
    return found


def cdist(x1, x2, p=2.0):
    return norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)
