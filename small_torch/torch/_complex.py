"""Complex numbers, as pairs of real ones; imported by `_ops.py` with the first of them."""

import math

from torch._autograd import record
from torch._dtypes import complex64, complex128, float32, float64
from torch._join import stack
from torch._signatures import lacks
from torch._tensor import FUNCTIONS, Tensor, make


def view_as_real(input):
    """Return a view with one more dimension, of real and imaginary parts."""
    if input.dtype.kind != 3:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    made = make(
        input._storage,
        (*input._shape, 2),
        (*[2 * step for step in input._stride], 1),
        2 * input._offset,
        input.dtype.to_real(),
    )
    return _seen(made, input, view_as_complex, "ViewAsRealBackward0")


def view_as_complex(input):
    """Return a view whose numbers are the pairs of the last dimension."""
    if input.dtype not in (float32, float64):
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
            + input.dtype.scalar
        )
    if not input._shape or input._shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if input._stride[-1] != 1 or any(step % 2 for step in input._stride[:-1]):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    kind = complex64 if input.dtype is float32 else complex128
    made = make(
        input._storage,
        input._shape[:-1],
        tuple([step // 2 for step in input._stride[:-1]]),
        input._offset // 2,
        kind,
    )
    return _seen(made, input, view_as_real, "ViewAsComplexBackward0")


def _seen(made, source, back, name):
    return record(made, name, (source,), lambda g: back(g.contiguous()))


def polar(abs, angle):
    return view_as_complex(stack([abs * angle.cos(), abs * angle.sin()], -1))


def complex_(real, imag):
    return view_as_complex(stack([real, imag], -1))


def parts(x, kind):
    """Return real and imaginary parts of a number or a tensor."""
    if not isinstance(x, Tensor):
        return complex(x).real, complex(x).imag
    if x.dtype.kind != 3:
        return x.to(kind.to_real()), 0.0
    both = view_as_real(x)
    return both[..., 0].to(kind.to_real()), both[..., 1].to(kind.to_real())


def _joined(real, imag):
    like = real if isinstance(real, Tensor) else imag
    real = real if isinstance(real, Tensor) else like * 0 + real
    imag = imag if isinstance(imag, Tensor) else like * 0 + imag
    return complex_(*FUNCTIONS["broadcast_tensors"](real, imag))


def pair(name, a, b, kind):
    """Compute the sum, difference, product or quotient of complex operands."""
    (ar, ai), (br, bi) = parts(a, kind), parts(b, kind)
    if name == "add":
        return _joined(ar + br, ai + bi)
    if name == "sub":
        return _joined(ar - br, ai - bi)
    if name == "mul":
        return _joined(ar * br - ai * bi, ar * bi + ai * br)
    if name == "div":
        size = br * br + bi * bi
        return _joined((ar * br + ai * bi) / size, (ai * br - ar * bi) / size)
    raise lacks(f"torch.{name} of complex numbers")


def single(name, x):
    real, imag = parts(x, x.dtype)
    if name == "abs":
        return (real * real + imag * imag).sqrt()
    if name == "neg":
        return complex_(-real, -imag)
    if name == "exp":
        return polar(real.exp(), imag)
    raise lacks(f"torch.{name} of complex numbers")


def sum(x, dims, keepdim):
    real, imag = parts(x, x.dtype)
    return complex_(real.sum(dim=dims, keepdim=keepdim), imag.sum(dim=dims, keepdim=keepdim))


def matmul(a, b):
    (ar, ai), (br, bi) = parts(a, a.dtype), parts(b, b.dtype)
    return complex_(ar @ br - ai @ bi, ar @ bi + ai @ br)


def copy(out, source):
    """Write the numbers of `source` into `out`, either of them complex."""
    if out.dtype.kind != 3:
        return out.copy_(parts(source, source.dtype)[0])
    real, imag = parts(source, out.dtype)
    both = view_as_real(out.detach())
    both[..., 0] = real.detach()
    both[..., 1] = imag.detach() if isinstance(imag, Tensor) else imag
    return out


def angle(input):
    real, imag = parts(input, input.dtype if input.dtype.kind == 3 else complex64)
    return FUNCTIONS["atan2"](imag, real) if isinstance(imag, Tensor) else (real < 0) * math.pi


def conj(input):
    if input.dtype.kind != 3:
        return input
    real, imag = parts(input, input.dtype)
    return complex_(real, -imag)
