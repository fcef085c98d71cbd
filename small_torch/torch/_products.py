"""Products of matrices."""

import math

from torch._autograd import needs_grad, record, titled
from torch._kernels import call, js
from torch._ops import _operator, pair, sum_to
from torch._signatures import TENSOR
from torch._tensor import Tensor, broadcast, empty_of, function, spread
from torch.amp import State, cast

_matmul = js.matmul


def matmul_kernel(a, b, shape, kind):
    """Multiply matrices, (..., m, k) by (..., k, n); `shape` is that of the result."""
    out = empty_of(shape, kind)
    m, n, k = shape[-2], shape[-1], a._shape[-1]
    if 0 in shape or not k:
        return out
    lead = shape[:-2]
    a_lead = spread(a._stride[:-2], a._shape[:-2], lead)
    b_lead = spread(b._stride[:-2], b._shape[:-2], lead)
    call(
        _matmul, out._storage.base, kind.code, a._storage.base + a._offset, a.dtype.code,
        b._storage.base + b._offset, b.dtype.code, len(lead), m, n, k,
        a._stride[-2], a._stride[-1], b._stride[-2], b._stride[-1], *lead, *a_lead, *b_lead,
    )  # fmt: skip
    return out


def _product(a, b, name):
    """Multiply matrices of two dimensions or more, whose leading ones broadcast."""
    m, n = a._shape[-2], b._shape[-1]
    shape = (*broadcast(a._shape[:-2], b._shape[:-2]), m, n)
    out = matmul_kernel(a, b, shape, a.dtype)
    if not needs_grad(a, b):
        return out
    left, right = a._shape, b._shape
    backs = (
        lambda g, a_, b_: sum_to(_product(g, b_.mT, name), left),
        lambda g, a_, b_: _right(a_, g, right, name),
    )
    return record(
        out, name, (a, b), backs, a if needs_grad(b) else None, b if needs_grad(a) else None
    )


def _right(a, g, shape, name):
    """Return the gradient of the right factor: one product, where one matrix served all rows."""
    if len(shape) == 2 and len(a._shape) > 2:
        a, g = a.reshape(-1, a._shape[-1]), g.reshape(-1, g._shape[-1])
    return sum_to(_product(a.mT, g, name), shape)


@function("matmul", other=TENSOR)
def matmul(input, other):
    a, b = input, other
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        bad = other if isinstance(a, Tensor) else input
        raise TypeError(
            f"matmul(): argument 'other' (position 1) must be Tensor, not {type(bad).__name__}"
        )
    if not a._shape or not b._shape:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {len(a._shape)}D and {len(b._shape)}D"
        )
    if State.on:
        a, b = cast(a, b)
    one, two = len(a._shape) == 1, len(b._shape) == 1
    if a._shape[-1] != b._shape[0 if two else -2]:
        raise RuntimeError(_misfit(a._shape, b._shape))
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype.c_name} != {b.dtype.c_name}"
        )
    if a.dtype.name == "bool":
        raise NotImplementedError("\"addmm_impl_cpu_\" not implemented for 'Bool'")
    if a.dtype.kind == 3:
        from torch import _complex

        return _complex.matmul(a, b)
    if one and two:
        return titled(_product(a.unsqueeze(0), b.unsqueeze(1), "").reshape(()), "DotBackward0")
    if one:
        return titled(_product(a.unsqueeze(0), b, "MmBackward0").squeeze(-2), "SqueezeBackward4")
    if two:
        name = "MvBackward0" if len(a._shape) == 2 else "UnsafeViewBackward0"
        return titled(_product(a, b.unsqueeze(1), "").squeeze(-1), name)
    both = len(a._shape) == 2 and len(b._shape) == 2
    return _product(a, b, "MmBackward0" if both else "UnsafeViewBackward0")


def _misfit(a, b):
    """Say what does not fit, as PyTorch does for each kind of product."""
    if len(a) == 1 and len(b) == 1:
        return (
            f"inconsistent tensor size, expected tensor [{a[0]}] and src [{b[0]}] to have the same number of elements, "
            f"but got {a[0]} and {b[0]} elements respectively"
        )
    rows = math.prod(a[:-1])
    if len(b) == 1:
        return f"size mismatch, got input ({rows}), mat ({rows}x{a[-1]}), vec ({b[0]})"
    if len(a) == 1:
        return f"mat1 and mat2 shapes cannot be multiplied (1x{a[0]} and {b[-2]}x{b[-1]})"
    if len(b) == 2:
        return f"mat1 and mat2 shapes cannot be multiplied ({rows}x{a[-1]} and {b[0]}x{b[1]})"
    count = math.prod(broadcast(a[:-2], b[:-2]))
    return (
        f"Expected size for first two dimensions of batch2 tensor to be: [{count}, {a[-1]}] but got: "
        f"[{count}, {b[-2]}]."
    )


_operator("matmul", matmul)


@function("mm")
def mm(input, mat2):
    for name, each in (("self", input), ("mat2", mat2)):
        if each.dim() != 2:
            raise RuntimeError(f"{name} must be a matrix")
    return matmul(input, mat2)


@function("bmm")
def bmm(input, mat2):
    for name, each in (("batch1", input), ("batch2", mat2)):
        if each.dim() != 3:
            raise RuntimeError(f"{name} must be a 3D tensor")
    want = [input._shape[0], input._shape[2]]
    if [*mat2._shape[:2]] != want:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: {want} but got: {[*mat2._shape[:2]]}."
        )
    return titled(matmul(input, mat2), "BmmBackward0")


@function("mv")
def mv(input, vec):
    if input.dim() != 2 or vec.dim() != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {vec.dim()}, {input.dim()}, {vec.dim()}"
        )
    return matmul(input, vec)


@function("dot", tensor=TENSOR)
def dot(input, tensor):
    if input.dim() != 1 or tensor.dim() != 1:
        raise RuntimeError(
            f"1D tensors expected, but got {input.dim()}D and {tensor.dim()}D tensors"
        )
    return matmul(input, tensor)


@function("inner", other=TENSOR)
def inner(input, other):
    if not input._shape or not other._shape:
        return pair("mul", input, other)
    if input._shape[-1] != other._shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{[*input._shape]} and {[*other._shape]}"
        )
    flat = [
        x.reshape(-1, x._shape[-1])
        if x.numel()
        else x.reshape(math.prod(x._shape[:-1]), x._shape[-1])
        for x in (input, other)
    ]
    found = mm(flat[0], flat[1].mT).view((*input._shape[:-1], *other._shape[:-1]))
    return titled(found, "ViewBackward0")


@function("outer", "ger")
def outer(input, vec2):
    for name, each in (("self", input), ("vec2", vec2)):
        if each.dim() != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {each.dim()}-D")
    return input.unsqueeze(1) * vec2.unsqueeze(0)


@function("addmm")
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    product = mm(mat1, mat2)
    found = (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)
    return titled(found, "AddmmBackward0")


@function("baddbmm", batch1=TENSOR, batch2=TENSOR)
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    product = bmm(batch1, batch2)
    found = (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)
    return titled(found, "BaddbmmBackward0")
