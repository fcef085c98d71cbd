"""Matrices of derivatives."""

from torch._join import stack
from torch._tensor import FUNCTIONS


def jacobian(
    func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"
):
    """Return the derivatives of each number of the output with respect to each input."""
    from torch.autograd import grad

    single = not isinstance(inputs, tuple)
    leaves = [x.detach().clone().requires_grad_() for x in ((inputs,) if single else inputs)]
    if create_graph:
        leaves = [inputs] if single else list(inputs)
    output = func(*leaves)
    flat = output.reshape(-1)
    rows = [
        grad(
            flat[place],
            leaves,
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
            materialize_grads=True,
        )
        for place in range(flat.numel())
    ]
    found = []
    for place, leaf in enumerate(leaves):
        shape = (*output.shape, *leaf.shape)
        found.append(
            stack([row[place] for row in rows]).reshape(shape)
            if rows
            else FUNCTIONS["zeros"](shape)
        )
    return found[0] if single else tuple(found)
