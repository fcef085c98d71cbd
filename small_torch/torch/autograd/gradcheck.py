"""Gradients held against difference quotients."""

from torch._autograd import no_grad
from torch._join import allclose
from torch._tensor import Tensor, empty_of


class GradcheckError(RuntimeError):
    """A gradient differs from the difference quotient."""


def _numerical(function, inputs, leaf, eps):
    """Return the difference quotients of all outputs with respect to one input, (numbers in, numbers out) each."""
    found = []
    with no_grad():
        flat = leaf._storage.array
        for place in range(leaf.numel()):
            at = leaf._offset + place
            before = flat[at]
            flat[at] = before + eps
            high = [x.clone() for x in _outputs(function(*inputs))]
            flat[at] = before - eps
            low = [x.clone() for x in _outputs(function(*inputs))]
            flat[at] = before
            found.append([(a - b).reshape(-1) / (2 * eps) for a, b in zip(high, low, strict=True)])
    return found


def _outputs(value):
    return [
        x for x in (value if isinstance(value, tuple | list) else (value,)) if isinstance(x, Tensor)
    ]


def gradcheck(
    func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0, check_undefined_grad=True,
    check_grad_dtypes=False, check_batched_grad=False, fast_mode=False, **_,
):  # fmt: skip
    """Say whether the gradients of `func` are its difference quotients, in float64."""
    from torch.autograd import grad

    inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    leaves = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not leaves:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    outputs = [x for x in _outputs(func(*inputs)) if x.requires_grad]
    for number, leaf in enumerate(leaves):
        quotients = _numerical(func, inputs, leaf, eps)
        for place, output in enumerate(outputs):
            found = []
            for at in range(output.numel()):
                above = empty_of(output._shape, output.dtype)
                above._storage.array[at] = 1
                (gradient,) = grad(
                    output,
                    leaf,
                    above,
                    retain_graph=True,
                    allow_unused=True,
                    materialize_grads=True,
                )
                found.append(gradient.reshape(-1))
            for row, wanted in enumerate(quotients):
                analytical = [column[row].item() for column in found]
                if not allclose(wanted[place].new_tensor(analytical), wanted[place], rtol, atol):
                    if not raise_exception:
                        return False
                    raise GradcheckError(
                        f"Jacobian mismatch for output {place} with respect to input {number},\n"
                        f"numerical:{wanted[place]}\nanalytical:{analytical}\n"
                    )
    return True
