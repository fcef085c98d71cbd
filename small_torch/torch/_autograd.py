"""Gradients: the record of what was computed, and the walk back through it."""

import functools
from copy import copy
from heapq import heappop, heappush
from itertools import count

LATE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have "
    "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
    "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
    "if you need to access saved tensors after calling backward."
)
UNUSED = (
    "One of the differentiated Tensors appears to not have been used in the graph. "
    "Set allow_unused=True if this is the desired behavior."
)
sequence = count(1)


class Mode:
    """Whether operations are recorded, and what is done with what they save."""

    grad = True
    inference = False
    saving: tuple = ()  # pairs of functions: what is kept instead of a saved tensor, and the tensor again


class Node:
    """One operation that was recorded.

    `back` is a function for each input, or one for all; it is given the gradient of the output (None for an
    output without one) and what was saved. `edges` lead to the nodes of the inputs: (node, number of its output).
    """

    __slots__ = (
        "__weakref__",
        "back",
        "edges",
        "hooks",
        "kept",
        "metadata",
        "name",
        "order",
        "outputs",
        "saved",
    )

    def __init__(self, name, inputs, back, saved, outputs=1):
        self.name, self.back, self.outputs = name, back, outputs
        self.edges = [edge_of(tensor) for tensor in inputs]
        self.saved = [
            Saved(value, self) if hasattr(value, "_storage") else value for value in saved
        ]
        self.order = next(sequence)
        self.hooks = self.kept = self.metadata = None

    def __repr__(self):
        return f"<{self.name} object>"

    def unpacked(self):
        if self.saved is None:
            raise RuntimeError(LATE)
        return [value.get() if type(value) is Saved else value for value in self.saved]

    def gradients(self, above):
        """Return the gradients of the inputs, given those of the outputs."""
        saved, back = self.unpacked(), self.back
        if type(back) is not tuple:
            found = back(*above, *saved)
            return found if isinstance(found, tuple | list) else (found,)
        return [
            edge and function(*above, *saved)
            for edge, function in zip(self.edges, back, strict=False)
        ]

    @property
    def next_functions(self):
        return tuple(edge or (None, 0) for edge in self.edges)


class Accumulate:
    """The end of a walk: the gradient of a leaf."""

    __slots__ = ("__weakref__", "edges", "hooks", "kept", "order", "outputs", "tensor")
    name = "AccumulateGrad"

    def __init__(self, tensor):
        self.tensor, self.order, self.edges, self.outputs = tensor, 0, [], 1
        self.hooks = self.kept = None

    @property
    def variable(self):
        return self.tensor


class Saved:
    """A tensor that a backward pass needs; one changed in place meanwhile is refused."""

    __slots__ = ("own", "packed", "tensor", "unpack", "version")

    def __init__(self, tensor, node):
        self.own = None
        self.version = tensor._storage.version
        self.unpack = None
        if Mode.saving:
            pack, self.unpack = Mode.saving[-1]
            self.packed, self.tensor = pack(tensor), None
        else:
            self.tensor = tensor

    def get(self):
        if self.unpack:
            return self.unpack(self.packed)
        tensor = self.tensor
        if tensor._storage.version != self.version:
            kind, node = tensor.dtype.name, tensor._node
            type_name = {"float32": "Float", "float64": "Double", "bool": "Bool", "int64": "Long"}
            where = f", which is output 0 of {node.name}," if node else ""
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: [torch.{type_name.get(kind, kind)}Tensor {list(tensor._shape)}]{where} is at version "
                f"{tensor._storage.version}; expected version {self.version} instead. Hint: enable anomaly "
                "detection to find the operation that failed to compute its gradient, with "
                "torch.autograd.set_detect_anomaly(True)."
            )
        return tensor


def node_of(tensor):
    """Return the node that made `tensor`; a view is made anew where its base was changed in place."""
    base = tensor._base
    if base is not None and tensor._base_node is not base._node:
        tensor._node = _as_view(tensor, base)
        tensor._base_node = base._node
    return tensor._node


def edge_of(tensor):
    if tensor is None or not hasattr(tensor, "_storage"):
        return None
    node = node_of(tensor)
    if node is not None:
        return node, tensor._output
    return (leaf_of(tensor), 0) if tensor._requires_grad else None


def leaf_of(tensor):
    if tensor._leaf is None:
        tensor._leaf = Accumulate(tensor)
    return tensor._leaf


OUT = object()  # among what an operation saves: its own output


def needs_grad(*values):
    """Say whether an operation on these is recorded; what is no tensor never asks for it."""
    if Mode.grad:
        for value in values:
            own = getattr(value, "_requires_grad", None)
            if own or (
                own is False
                and (value._node is not None or (value._base is not None and node_of(value)))
            ):
                return True
    return False


def record(out, name, inputs, back, *saved):
    """Record that `out` was computed of `inputs`, where one of them needs a gradient; returns `out`.

    `back` is a function for each input, or one for all, of the gradient of `out` and of what is saved; OUT stands
    for the output itself.
    """
    if out.dtype.kind < 2 or not needs_grad(*inputs):
        return out
    if any(value is OUT for value in saved):
        result = out.detach()
        saved = [result if value is OUT else value for value in saved]
        out._node, out._output = Node(name, inputs, back, saved), 0
        result._node, result._output = out._node, 0
    else:
        out._node, out._output = Node(name, inputs, back, saved), 0
    if out._base is not None:
        out._base_node = out._base._node
    return out


def titled(out, name):
    """Return `out`, just computed by several operations, with the name that PyTorch has for all of them."""
    if out._node is not None:
        out._node.name = name
    return out


def record_in_place(tensor, name, others, back, *saved):
    """Record that `tensor` was overwritten with a function of itself and of `others`.

    `back` returns the gradients of the tensor as it was, and of the others. A view passes it on to its base.
    """
    base = tensor._base
    if base is None:
        tensor._node, tensor._output = Node(name, (tensor, *others), back, saved), 0
        return tensor
    shape, stride, offset = tensor._shape, tensor._stride, tensor._offset - base._offset

    def slices(gradient, *kept):
        whole = _lying_as(base, gradient)
        part = whole.as_strided(shape, stride, offset)
        above = part.clone()
        if type(back) is tuple:
            first, *rest = [function(above, *kept) for function in back]
        else:
            first, *rest = back(above, *kept)
        part.copy_(first if first is not None else part.new_zeros(shape))
        return whole, *rest

    base._node, base._output = Node("CopySlices", (base, *others), slices, saved), 0
    tensor._node, tensor._base_node = _as_view(tensor, base), base._node
    return tensor


def _lying_as(base, gradient):
    """Return a copy of `gradient` whose numbers lie in memory as those of `base` do."""
    if base.is_contiguous():
        return gradient.clone(memory_format="contiguous")
    reach = 1 + sum(
        (size - 1) * step for size, step in zip(base._shape, base._stride, strict=False)
    )
    return gradient.new_zeros(reach).as_strided(base._shape, base._stride).copy_(gradient)


def _as_view(tensor, base):
    if base._node is None and not base._requires_grad:
        return None
    shape, stride, offset = tensor._shape, tensor._stride, tensor._offset - base._offset

    def back(gradient):
        found = _lying_as(base, gradient.new_zeros(base._shape))
        found.as_strided(shape, stride, offset).copy_(gradient)
        return found

    tensor._output = 0
    return Node("AsStridedBackward0", (base,), back, ())


def backward(roots, gradients, inputs=None, retain=False, create=False, allow_unused=False):
    """Walk back from `roots`; returns the gradients of `inputs`, or adds them to the leaves where none are given."""
    from torch._tensor import ones_like

    heap, buffers = [], {}

    def give(edge, gradient):
        node, place = edge
        held = buffers.get(node)
        if held is None:
            buffers[node] = held = [None] * node.outputs
            heappush(heap, (-node.order, id(node), node))
        before = held[place]
        held[place] = gradient if before is None else before + gradient

    for root, gradient in zip(roots, gradients, strict=True):
        edge = edge_of(root)
        if edge is None:
            raise RuntimeError(
                "element 0 of tensors does not require grad and does not have a grad_fn"
            )
        if gradient is None:
            if root.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            gradient = ones_like(root.detach())
        elif tuple(gradient.shape) != tuple(root.shape):
            raise RuntimeError(
                f"Mismatch in shape: grad_output[0] has a shape of {gradient.shape} and output[0] has a shape of {root.shape}."
            )
        give(edge, gradient)

    captured, asked = {}, {}
    useful = None
    if inputs is not None:
        for place, tensor in enumerate(inputs):
            edge = edge_of(tensor)
            if edge is None:
                raise RuntimeError("One of the differentiated Tensors does not require grad")
            asked.setdefault(edge[0], []).append((edge[1], place))
        useful = _useful([node for _, _, node in heap], set(asked))

    before, Mode.grad = Mode.grad, create
    try:
        while heap:
            node = heappop(heap)[2]
            above = buffers.pop(node)
            for place, hook in node.hooks or ():
                if above[place] is not None and (changed := hook(above[place])) is not None:
                    above[place] = changed
            for place, tensor in node.kept or ():
                if above[place] is not None:
                    tensor.grad = (
                        above[place] if tensor.grad is None else tensor.grad + above[place]
                    )
            for place, number in asked.get(node, ()):
                captured[number] = above[place]
            if type(node) is Accumulate:
                if inputs is None:
                    _accumulate(node.tensor, above[0], create)
                continue
            if useful is not None and node not in useful:
                continue
            found = node.gradients(above)
            for edge, gradient in zip(node.edges, found, strict=False):
                leads = edge and (useful is None or edge[0] in useful or edge[0] in asked)
                if leads and gradient is not None:
                    give(edge, gradient)
            if not (retain or create) and node.saved:
                node.saved = None
    finally:
        Mode.grad = before
    if inputs is None:
        return None
    missing = [place for place in range(len(inputs)) if captured.get(place) is None]
    if missing and not allow_unused:
        raise RuntimeError(UNUSED)
    return tuple(captured.get(place) for place in range(len(inputs)))


def _useful(starts, goals):
    """Return the nodes from which one of the goals is reached through another node."""
    known, stack = {}, list(starts)
    while stack:
        node = stack[-1]
        if node in known and known[node] is not None:
            stack.pop()
            continue
        nexts = [edge[0] for edge in node.edges if edge]
        if node not in known:
            known[node] = None
            stack += [each for each in nexts if each not in known]
        else:
            stack.pop()
            known[node] = any(known.get(each) or each in goals for each in nexts)
    return {node for node, leads in known.items() if leads}


def _accumulate(tensor, gradient, create):
    if gradient.dtype is not tensor.dtype:
        gradient = gradient.to(tensor.dtype)
    if tensor.grad is None:
        tensor.grad = gradient if create else gradient.detach().clone()
    elif create:
        tensor.grad = tensor.grad + gradient
    else:
        tensor.grad.add_(gradient)
    for hook in tensor._after or ():
        hook(tensor)


class set_grad_enabled:  # noqa: N801 - PyTorch's name
    """Turn recording on or off, from here on, or inside a `with` block or a decorated function."""

    inference = False

    def __init__(self, mode=True):
        self.mode, self.before = bool(mode), (Mode.grad, Mode.inference)
        if type(self) is set_grad_enabled:
            Mode.grad = self.mode

    def __enter__(self):
        self.before = (
            getattr(self, "before", None)
            if type(self) is set_grad_enabled
            else (Mode.grad, Mode.inference)
        )
        Mode.grad = self.mode
        Mode.inference = Mode.inference or self.inference
        return self

    def __exit__(self, *_):
        Mode.grad, Mode.inference = self.before

    def __call__(self, function):
        if type(self) is set_grad_enabled:
            Mode.grad, Mode.inference = self.before

        @functools.wraps(function)
        def inside(*args, **kwargs):
            with copy(self):
                return function(*args, **kwargs)

        return inside


class _Without(set_grad_enabled):
    def __new__(cls, *args):
        made = super().__new__(cls)
        if args and callable(args[0]):  # used as a decorator without brackets
            made.__init__()
            return made(args[0])
        return made

    def __init__(self, *_):
        super().__init__(False)


class no_grad(_Without):  # noqa: N801 - PyTorch's name
    """Nothing is recorded inside."""


class inference_mode(_Without):  # noqa: N801 - PyTorch's name
    """Nothing is recorded inside, and what is made there stays outside of any record."""

    inference = True

    def __init__(self, mode=True):
        super().__init__()
        if mode is False:
            self.mode, self.inference = Mode.grad, False


class enable_grad(set_grad_enabled):  # noqa: N801 - PyTorch's name
    """Operations are recorded inside."""

    def __init__(self):
        super().__init__(True)
