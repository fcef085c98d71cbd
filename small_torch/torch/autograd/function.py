"""Operations with a backward pass of their own."""

import functools

from torch._autograd import Mode, Node, Saved, needs_grad
from torch._tensor import Tensor, zeros


class Context:
    """What a forward pass leaves to its backward pass."""

    def __init__(self):
        self._kept, self._undifferentiable, self._fill = (), (), True
        self.needs_input_grad = ()
        self._node = None

    def save_for_backward(self, *tensors):
        self._kept = tensors

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self):
        if self._node is not None and self._node.saved is None:
            self._node.unpacked()
        return tuple(each.get() if isinstance(each, Saved) else each for each in self._kept)

    def mark_non_differentiable(self, *tensors):
        self._undifferentiable = tensors

    def mark_dirty(self, *tensors):
        """Do nothing: a change in place is seen by its storage."""

    def set_materialize_grads(self, value):
        self._fill = value


FunctionCtx = Context


class Function:
    """An operation with `forward` and `backward`, called through `apply`."""

    generate_vmap_rule = False

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keep what `backward` needs; a `forward` that takes `ctx` does it itself."""

    @classmethod
    def apply(cls, *inputs):
        tensors = [value if isinstance(value, Tensor) else None for value in inputs]
        recorded = needs_grad(*tensors)
        context = Context()
        context.needs_input_grad = tuple(
            value is not None and value.requires_grad for value in tensors
        )
        separate = cls.setup_context is not Function.setup_context
        before, Mode.grad = Mode.grad, False
        try:
            output = cls.forward(*inputs) if separate else cls.forward(context, *inputs)
            if separate:
                cls.setup_context(context, inputs, output)
        finally:
            Mode.grad = before
        if not recorded:
            return output
        outputs = output if isinstance(output, tuple) else (output,)
        found = []
        for each in outputs:
            own = isinstance(each, Tensor) and any(each is value for value in tensors)
            found.append(each.view(each.shape).detach() if own else each)
        shapes = [(each.shape, each.dtype) if isinstance(each, Tensor) else None for each in found]

        def back(*arguments):
            above = arguments[: len(found)]
            if context._fill:
                above = [
                    zeros(*kind[0], dtype=kind[1]) if gradient is None and kind else gradient
                    for gradient, kind in zip(above, shapes, strict=True)
                ]
            gradients = cls.backward(context, *above)
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            if len(gradients) < len(inputs) or any(g is not None for g in gradients[len(inputs) :]):
                raise RuntimeError(
                    f"function {cls.__name__}Backward returned an incorrect number of gradients "
                    f"(expected {len(inputs)}, got {len(gradients)})"
                )
            return gradients[: len(inputs)]

        node = Node(f"{cls.__name__}Backward", tensors, back, (True,), len(found))
        context._node = node
        for place, each in enumerate(found):
            left = any(each is other for other in context._undifferentiable)
            if isinstance(each, Tensor) and each.dtype.kind >= 2 and not left:
                each._base = None
                each._node, each._output = node, place
        context._kept = [
            Saved(each, node) if isinstance(each, Tensor) else each for each in context._kept
        ]
        return tuple(found) if isinstance(output, tuple) else found[0]


def once_differentiable(function):
    """Let nothing in a backward pass be recorded."""

    @functools.wraps(function)
    def inside(*args):
        before, Mode.grad = Mode.grad, False
        try:
            return function(*args)
        finally:
            Mode.grad = before

    return inside
