"""Operations that few pages ask for, made of others; `_ops.py` imports them when one is called."""

import math

from torch._autograd import record, titled
from torch._dtypes import bool_, int64
from torch._join import cat
from torch._reduce import bincount, norm
from torch._signatures import checked, lacks
from torch._tensor import Tensor, tensor

_sorted = sorted


def diff(input, n=1, dim=-1, prepend=None, append=None):
    if not input.dim():
        raise RuntimeError("diff expects input to be at least one-dimensional")
    parts = [part for part in (prepend, input, append) if part is not None]
    found = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        size = found._shape[dim]
        if not size:
            break
        after, before = found.narrow(dim, 1, size - 1), found.narrow(dim, 0, size - 1)
        found = after ^ before if found.dtype is bool_ else after - before
    return found


def kron(input, other):
    a, b = input, other
    found = a.unsqueeze(1).unsqueeze(3) * b.unsqueeze(0).unsqueeze(2)
    return found.reshape(a._shape[0] * b._shape[0], a._shape[1] * b._shape[1])


def _no_derivative(gradient):
    raise NotImplementedError("the derivative for '_unique2' is not implemented.")


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    if dim is not None:
        raise lacks("torch.unique(dim=)")
    numbers = input._flat()
    values = _sorted({*numbers})
    places = {value: place for place, value in enumerate(values)}
    found = [
        record(tensor(values, dtype=input.dtype), "Unique2Backward0", (input,), _no_derivative)
    ]
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
        return titled(roll(input.reshape(-1), shifts, 0).reshape(input._shape), "RollBackward0")
    pairs = [(shifts, dims)] if isinstance(dims, int) else [*zip(shifts, dims, strict=False)]
    found = input
    for shift, dim in pairs:
        size = input._shape[dim]
        cut = -shift % size if size else 0
        found = titled(
            cat([found.narrow(dim, cut, size - cut), found.narrow(dim, 0, cut)], dim),
            "RollBackward0",
        )
    return found


def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    for name, x in (("X1", x1), ("X2", x2)):
        if x.dim() < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.dim()}D")
        if x.dtype.name not in ("float32", "float64"):
            raise NotImplementedError(f"\"cdist\" not implemented for '{x.dtype.scalar}'")
    if x1._shape[-1] != x2._shape[-1]:
        raise RuntimeError("X1 and X2 must have the same number of columns.")
    return titled(norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1), "CdistBackward0")


def ties(input, dim, k, largest):
    """Return which `k` numbers PyTorch finds greatest, or least, in its order of those that are equal."""
    rows = input.movedim(dim, -1)
    size = rows._shape[-1]
    found = []
    for row in rows.reshape(-1, size).tolist():
        order = Order(row, largest)
        order.first(k)
        found.append(order.places[:k])
    return tensor(found, dtype=int64).reshape(*rows._shape[:-1], k).movedim(-1, dim).contiguous()


class Order:
    """Places in a row, put in order as the C++ library does it that PyTorch is built with; equal numbers may trade."""

    def __init__(self, row, largest):
        self.places = list(range(len(row)))
        plain = [-number if largest else number for number in row]
        last = -math.inf if largest else math.inf  # nan is the greatest of all
        self.keys = [number if number == number else last for number in plain]

    def before(self, a, b):
        return self.keys[a] < self.keys[b]

    def first(self, k):
        """Bring the first `k` to the front, in order."""
        if k * 64 <= len(self.places):
            return self.select_by_heap(k)
        start, end, nth = 0, len(self.places), k - 1
        while end - start > 3:
            cut = self.partition(start, end)
            start, end = (cut, end) if cut <= nth else (start, cut)
        self.insert(start, end)
        self.sort(0, k - 1)
        return None

    def sort(self, start, end):
        whole = end
        stack = [(start, end)]
        while stack:
            start_, end_ = stack.pop()
            while end_ - start_ > 16:
                cut = self.partition(start_, end_)
                stack.append((cut, end_))
                end_ = cut
        self.insert(start, whole)

    def partition(self, start, end):
        p, before = self.places, self.before
        a, b, c = start + 1, start + (end - start) // 2, end - 1
        if before(p[a], p[b]):
            middle = b if before(p[b], p[c]) else c if before(p[a], p[c]) else a
        else:
            middle = a if before(p[a], p[c]) else c if before(p[b], p[c]) else b
        p[start], p[middle] = p[middle], p[start]
        low, high = start + 1, end
        while True:
            while before(p[low], p[start]):
                low += 1
            high -= 1
            while before(p[start], p[high]):
                high -= 1
            if low >= high:
                return low
            p[low], p[high] = p[high], p[low]
            low += 1

    def insert(self, start, end):
        p = self.places
        for at in range(start + 1, end):
            place, to = p.pop(at), at
            while to > start and self.before(place, p[to - 1]):
                to -= 1
            p.insert(to, place)

    def select_by_heap(self, k):
        p = self.places
        for parent in range((k - 2) // 2, -1, -1):
            self.sift(parent, k, p[parent])
        for at in range(k, len(p)):
            if self.before(p[at], p[0]):
                place, p[at] = p[at], p[0]
                self.sift(0, k, place)
        for last in range(k - 1, 0, -1):
            place, p[last] = p[last], p[0]
            self.sift(0, last, place)

    def sift(self, hole, size, place):
        p, top, child = self.places, hole, hole
        while child < (size - 1) // 2:
            child = 2 * (child + 1)
            if self.before(p[child], p[child - 1]):
                child -= 1
            p[hole], hole = p[child], child
        if size % 2 == 0 and child == (size - 2) // 2:
            child = 2 * child + 1
            p[hole], hole = p[child], child
        while hole > top and self.before(p[(hole - 1) // 2], place):
            p[hole], hole = p[(hole - 1) // 2], (hole - 1) // 2
        p[hole] = place


def einsum(equation, *operands):
    """Sum products over the letters that the result leaves out."""
    operands = (
        operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    )
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    parts = given.split(",")
    if len(parts) != len(operands):
        raise RuntimeError(
            f"einsum(): {'fewer' if len(operands) < len(parts) else 'more'} operands were provided than specified in the equation"
        )
    rest = 0  # dimensions for which `...` stands
    for part, x in zip(parts, operands, strict=True):
        letters = part.replace("...", "")
        if letters and not letters.isalpha():
            raise RuntimeError(f"einsum(): invalid subscript given in the equation: {part}")
        more = x.dim() - len(letters)
        if more < 0 or (more and "..." not in part):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(letters)}) does not match the number of "
                f"dimensions ({x.dim()}) for operand"
            )
        rest = max(rest, more)
    names = "".join(chr(0x2460 + at) for at in range(rest))  # one for each of these dimensions
    parts = [
        part.replace("...", names[len(names) - (x.dim() - len(part.replace("...", ""))) :])
        for part, x in zip(parts, operands, strict=True)
    ]
    letters = _sorted({*"".join(parts)} - {*names})
    if not arrow:
        wanted = "..." + "".join(each for each in letters if "".join(parts).count(each) == 1)
    wanted = wanted.replace("...", names)
    if len({*wanted}) != len(wanted) or not {*wanted} <= {*"".join(parts)}:
        raise RuntimeError(
            "einsum(): output subscripts must each appear once, and in an input of the equation"
        )
    order = [*wanted, *[each for each in [*names, *letters] if each not in wanted]]
    found = None
    for part, x in zip(parts, operands, strict=True):
        for each in {*part}:
            while part.count(each) > 1:
                first = part.index(each)
                second = part.index(each, first + 1)
                if x._shape[first] != x._shape[second]:
                    raise RuntimeError(
                        f"einsum(): subscript {each} is repeated with sizes that differ"
                    )
                x = x.diagonal(0, first, second)
                part = part[:first] + part[first + 1 : second] + part[second + 1 :] + each
        kept = [each for each in order if each in part]
        x = x.permute([part.index(each) for each in kept])
        x = x.reshape([x._shape[kept.index(each)] if each in part else 1 for each in order])
        found = x if found is None else _contracted(found, x, len(wanted))
    extra = tuple(range(len(wanted), len(order)))
    found = found.sum(dim=extra) if extra else found
    return titled(found, "ViewBackward0") if len(parts) > 1 and len(order) > len(wanted) else found


def _contracted(a, b, kept):
    """Multiply, and sum at once over the last dimension that nothing keeps: a product of matrices, not of numbers."""
    try:
        return _product(a, b, kept)
    except RuntimeError as error:
        raise RuntimeError(
            f"einsum(): operands do not broadcast with remapped shapes: {error}"
        ) from None


def _product(a, b, kept):
    if a.dim() <= kept or a._shape[-1] != b._shape[-1] or a._shape[-1] == 1:
        return a * b
    return (a.unsqueeze(-2) @ b.unsqueeze(-1)).squeeze(-1)


for _function in (diff, kron, unique, roll, cdist):
    globals()[_function.__name__] = checked(_function.__name__, _function)
