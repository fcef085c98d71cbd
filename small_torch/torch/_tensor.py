"""The tensor: a storage, a shape, strides and a type; how one is made, seen otherwise, and shown."""

import itertools
import math
from array import array
from functools import cache, wraps

from torch import _autograd
from torch._autograd import Mode, needs_grad, node_of, record, titled
from torch._dtypes import bool_, complex64, float32, float64, int64
from torch._kernels import (
    DOUBLE,
    DOUBLES,
    ELEMENTWISE,
    SINGLE,
    SINGLES,
    Meta,
    Storage,
    call,
    js,
    storage,
)
from torch._signatures import FUNCTIONS, LACKS, PLAIN, TENSOR, checked, lacks, unknown

_elementwise = js.elementwise


def function(*names, **kinds):
    """Give a function to torch under these names, and to tensors as a method; `kinds` say what parameters take."""

    def put(it):
        public = checked(names[0], it, **kinds)
        for name in names:
            FUNCTIONS[name] = public
            if name not in vars(Tensor) or vars(Tensor)[name] is it:
                setattr(Tensor, name, public)
        return it

    return put


def torch_only(it):
    """Give a function to torch alone."""
    name = it.__name__.rstrip("_")
    FUNCTIONS[name] = checked(name, it)
    return it


def method(it):
    """Give a method to tensors alone."""
    setattr(Tensor, it.__name__, checked(it.__name__, it))
    return it


class Size(tuple):
    """A shape."""

    __slots__ = ()

    def __repr__(self):
        return f"torch.Size([{', '.join(map(str, self))}])"

    __str__ = __repr__

    def numel(self):
        return math.prod(self)

    def __getitem__(self, place):
        found = tuple.__getitem__(self, place)
        return Size(found) if isinstance(place, slice) else found

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))


class device:  # noqa: N801 - PyTorch's name
    """Where a tensor is: here there is one place."""

    def __init__(self, type="cpu", index=None):
        text = str(type)
        self.type, _, number = text.partition(":")
        self.index = int(number) if number else index
        if self.type not in ("cpu", "meta"):
            if self.type in ("cuda", "mps", "xpu"):
                return
            raise RuntimeError(
                f"Expected one of cpu, cuda, … device type at start of device string: {text}"
            )

    def __enter__(self):
        if self.type not in ("cpu", "meta"):
            title = {"cuda": "CUDA"}.get(self.type, self.type)
            raise AssertionError(
                f"Torch not compiled with {title} enabled: a page has no GPU, and {self.type} {LACKS}"
            )
        self._before = [*getattr(self, "_before", ()), Meta.on]
        Meta.on = self.type == "meta"
        return self

    def __exit__(self, *_):
        Meta.on = self._before.pop()

    def __eq__(self, other):
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))

    def __repr__(self):
        where = f", index={self.index}" if self.index is not None else ""
        return f"device(type='{self.type}'{where})"

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


CPU, META, DEVICE = device("cpu"), device("meta"), device


def maker(it):
    """Return a function that makes a tensor so that it takes where, for what and how it is laid as well."""
    inner = checked(it.__name__, it)

    @wraps(it)
    def make_there(
        *args,
        device=None,
        requires_grad=False,
        layout=None,
        pin_memory=False,
        memory_format=None,
        **kwargs,
    ):
        if device is None:
            made = inner(*args, **kwargs)
        else:
            with device if isinstance(device, DEVICE) else DEVICE(device):
                made = inner(*args, **kwargs)
        return made.requires_grad_() if requires_grad else made

    return make_there


def makes(it):
    """Give torch a function that makes a tensor."""
    FUNCTIONS[it.__name__] = maker(it)
    return it


class Defaults:
    """The type that new tensors of floats have."""

    dtype = float32


class layout:  # noqa: N801 - PyTorch's name
    """How numbers lie in memory; here in rows."""

    def __repr__(self):
        return "torch.strided"


class memory_format:  # noqa: N801 - PyTorch's name
    """Which strides a copy gets."""


@cache
def rows(shape):
    """Return the strides of a tensor of this shape whose numbers lie row by row."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size or 1
    return tuple(reversed(strides))


def make(place, shape, stride, offset, dtype):
    """Return a tensor over the storage `place`."""
    tensor = _new(Tensor)
    tensor._storage, tensor._shape, tensor._stride = place, shape, stride
    tensor._offset, tensor.dtype = offset, dtype
    return tensor


def empty_of(shape, dtype):
    """Return a new tensor of zeros; `shape` is a tuple of whole numbers."""
    tensor = _new(Tensor)
    tensor._storage = storage(math.prod(shape), dtype)
    tensor._shape, tensor._stride, tensor._offset, tensor.dtype = shape, rows(shape), 0, dtype
    return tensor


def like_rows(tensor):
    """Return the strides that a result of `tensor` gets: its own order of dimensions, without gaps."""
    shape, stride = tensor._shape, tensor._stride
    usual = rows(shape)
    if stride == usual or len(shape) < 2 or 0 in stride:
        return usual
    order = sorted(range(len(shape)), key=lambda d: (-stride[d], -shape[d], d))
    found, step = [0] * len(shape), 1
    for d in reversed(order):
        if stride[d] != step and shape[d] != 1:
            return usual
        found[d] = step
        step *= shape[d] or 1
    return tuple(found)


def spread(stride, shape, wide):
    """Return the strides with which a tensor of `shape` stands for one of the shape `wide`."""
    more = len(wide) - len(shape)
    return (0,) * more + tuple(
        0 if size == 1 and full != 1 else step
        for size, step, full in zip(shape, stride, wide[more:], strict=False)
    )


def broadcast(a, b):
    """Return the shape of what two tensors of these shapes make together."""
    if a == b:
        return a
    wide, low = (a, b) if len(a) >= len(b) else (b, a)
    found, more = list(wide), len(wide) - len(low)
    for place, size in enumerate(low, more):
        full = wide[place]
        if full == 1:
            found[place] = size
        elif size != 1 and size != full:
            at = place - len(wide) + len(a), place - len(wide) + len(b)
            # PyTorch names the last dimension that does not fit.
            for d in range(len(wide) - 1, place, -1):
                x, y = wide[d], low[d - more]
                if x != y and 1 not in (x, y):
                    place, at = d, (d - len(wide) + len(a), d - len(wide) + len(b))
                    break
            raise RuntimeError(
                f"The size of tensor a ({a[at[0]]}) must match the size of tensor b ({b[at[1]]}) "
                f"at non-singleton dimension {place}"
            )
    return tuple(found)


def run(name, out, *operands):
    """Compute `out` element by element, of tensors and numbers that broadcast to its shape; returns `out`."""
    shape = out._shape
    if 0 in shape or out._storage.meta:
        return out
    pairs = [out._storage.base + out._offset, out.dtype.code]
    strides = [*out._stride]
    single = out.dtype is not float64
    for slot, operand in enumerate(operands):
        if type(operand) in NUMBERS:
            if single and any(type(o) not in NUMBERS and o.dtype is float64 for o in operands):
                single = False
            if (
                single
                and all(type(o) in NUMBERS or o.dtype.kind < 2 for o in operands)
                and out.dtype.kind < 2
            ):
                single = False
            if single:
                SINGLES[slot] = operand
                pairs += (SINGLE + slot, 0)
            else:
                DOUBLES[slot] = operand
                pairs += (DOUBLE + slot, 1)
            strides += (0,) * len(shape)
        else:
            pairs += (operand._storage.base + operand._offset, operand.dtype.code)
            if operand._shape == shape:
                strides += operand._stride
            else:
                strides += spread(operand._stride, operand._shape, shape)
    call(_elementwise, ELEMENTWISE[name], len(operands) + 1, len(shape), *pairs, *shape, *strides)
    return out


NUMBERS = (int, float, bool)


def shape_of(sizes):
    """Return the shape that was given as numbers or as one sequence."""
    if len(sizes) == 1 and not isinstance(sizes[0], int) and not isinstance(sizes[0], Tensor):
        sizes = sizes[0]
    elif sizes and isinstance(sizes[0], bool):
        raise TypeError("argument 'size' (position 1) must be tuple of ints, not bool")
    return tuple([size if type(size) is int else size.__index__() for size in sizes])


def place_of(dim, dims, extra=0):
    """Return which dimension `dim` is, counted from the front."""
    most = max(dims + extra, 1)
    if not -most <= dim < most:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {dim})"
        )
    return dim + most if dim < 0 else dim


class Tensor:
    """A tensor, as in PyTorch."""

    grad = _node = _base = _leaf = _base_node = _after = None
    _requires_grad = False
    _output = 0
    _is_inference = _of_leaf = False
    layout = layout()
    is_cuda = is_sparse = is_quantized = is_mps = is_nested = False
    names = ()
    __array_priority__ = 1000

    def __new__(cls, *data):
        made = _new(cls)
        if cls is Tensor or not data or not isinstance(data[0], Tensor):
            source = _of_data(data, float32)
        else:
            source = data[0]
        made._share(source)
        return made

    def __init__(self, *_):
        pass

    def _share(self, source):
        """Become a tensor over what `source` is over."""
        self._storage, self._shape, self._stride = source._storage, source._shape, source._stride
        self._offset, self.dtype = source._offset, source.dtype

    @staticmethod
    def _make_subclass(cls, data, require_grad=False):
        made = _new(cls)
        made._share(data)
        made._requires_grad = require_grad
        return made

    def as_subclass(self, cls):
        made = _new(cls)
        vars(made).update(vars(self))
        return made

    # What it is.
    @property
    def is_meta(self):
        return self._storage.meta

    @property
    def is_cpu(self):
        return not self._storage.meta

    @property
    def device(self):
        return META if self._storage.meta else CPU

    @property
    def shape(self):
        return Size(self._shape)

    def size(self, dim=None):
        return Size(self._shape) if dim is None else self._shape[place_of(dim, len(self._shape))]

    def stride(self, dim=None):
        return self._stride if dim is None else self._stride[dim]

    def storage_offset(self):
        return self._offset

    def dim(self):
        return len(self._shape)

    ndim = property(dim)
    ndimension = dim

    def numel(self):
        return math.prod(self._shape)

    nelement = numel

    def element_size(self):
        return self.dtype.itemsize

    @property
    def itemsize(self):
        return self.dtype.itemsize

    @property
    def nbytes(self):
        return self.numel() * self.dtype.itemsize

    def data_ptr(self):
        return (self._storage.base + self._offset) * self.dtype.itemsize

    def untyped_storage(self):
        return UntypedStorage(self)

    def is_contiguous(self, memory_format=None):
        usual = rows(self._shape)
        if self._stride == usual or 0 in self._shape:
            return True
        return all(
            a == b or size == 1
            for a, b, size in zip(self._stride, usual, self._shape, strict=False)
        )

    def is_floating_point(self):
        return self.dtype.kind == 2

    def is_complex(self):
        return self.dtype.kind == 3

    def get_device(self):
        return -1

    def __len__(self):
        if not self._shape:
            raise TypeError("len() of a 0-d tensor")
        return self._shape[0]

    def __hash__(self):
        return id(self)

    def __iter__(self):
        if not self._shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    # Its numbers, as Python's.
    def _flat(self):
        """Return the numbers, row by row, as a list of Python's."""
        count = math.prod(self._shape)
        if not count:
            return []
        whole = self if self.is_contiguous() else _copied(self)
        if whole.dtype.kind == 3:
            pairs = whole._storage.array[2 * whole._offset : 2 * (whole._offset + count)]
            return [complex(*pair) for pair in zip(pairs[::2], pairs[1::2], strict=False)]
        numbers = whole._storage.array[whole._offset : whole._offset + count].tolist()
        if self.dtype is int64:
            return list(map(int, numbers))
        return list(map(bool, numbers)) if self.dtype is bool_ else numbers

    def tolist(self):
        numbers = self._flat()
        if not self._shape:
            return numbers[0]
        for size in self._shape[:0:-1]:
            if not size:
                return _nest(self._shape)
            numbers = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        return numbers

    def item(self):
        if math.prod(self._shape) != 1:
            raise RuntimeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
            )
        if self._storage.meta:
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        kind = self.dtype.kind
        if kind == 3:
            return self._flat()[0]
        number = self._storage.array[self._offset]
        return number if kind == 2 else int(number) if kind == 1 else bool(number)

    def _single(self):
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return self.item()

    def __float__(self):
        return float(self._single())

    def __int__(self):
        return int(self._single())

    def __complex__(self):
        return complex(self._single())

    def __index__(self):
        if self.dtype.kind > 1 or self.numel() != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __bool__(self):
        count = self.numel()
        if count == 0:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        if count > 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def __format__(self, spec):
        if not self._shape and self.dtype.kind != 3:
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    def __repr__(self, **_):
        return shown(self)

    def __str__(self):
        return shown(self)

    def __contains__(self, element):
        return bool((self == element).any())

    def __deepcopy__(self, memo):
        if node_of(self) is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment.  If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage"
            )
        if id(self) in memo:
            return memo[id(self)]
        memo[id(self)] = made = _new(type(self))
        vars(made).update(
            {
                k: v
                for k, v in vars(self).items()
                if k not in ("_leaf", "_base", "_base_node", "grad")
            }
        )
        made._share(self.detach().clone())
        made._requires_grad = self._requires_grad
        if self.grad is not None:
            made.grad = self.grad.__deepcopy__(memo)
        return made

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(f"'Tensor' object has no attribute '{name}'")
        if name[0] == "_":
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if name == "numpy":
            raise AttributeError(f"Tensor.numpy(), in whose place tolist() does, {LACKS}")
        raise unknown(f"Tensor.{name}", name, dir(type(self)))

    # Gradients.
    @property
    def requires_grad(self):
        return self._requires_grad or node_of(self) is not None

    @requires_grad.setter
    def requires_grad(self, value):
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad=True):
        if requires_grad and self.dtype.kind < 2:
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if not requires_grad and node_of(self) is not None:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                "in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if node_of(self) is None:
            self._requires_grad = bool(requires_grad)
        return self

    @property
    def is_leaf(self):
        return node_of(self) is None

    @property
    def grad_fn(self):
        return node_of(self)

    @property
    def _version(self):
        return self._storage.version

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, other):
        self._share(other)

    def detach(self):
        return make(self._storage, self._shape, self._stride, self._offset, self.dtype)

    def detach_(self):
        self._node = self._base = None
        self._requires_grad = False
        return self

    def is_inference(self):
        return self._is_inference

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        keep = create_graph if retain_graph is None else retain_graph
        if inputs is not None:
            inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
            found = _autograd.backward([self], [gradient], inputs, keep, create_graph, True)
            for tensor, each in zip(inputs, found, strict=True):
                if each is not None:
                    tensor.grad = each if tensor.grad is None else tensor.grad + each
            return
        _autograd.backward([self], [gradient], None, keep, create_graph)

    def retain_grad(self):
        node = node_of(self)
        if node is None:
            if not self._requires_grad:
                raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
            return
        node.kept = [*(node.kept or ()), (self._output, self)]

    def register_hook(self, hook):
        node, place = _autograd.edge_of(self) or (None, 0)
        if node is None:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        entry = (place, hook)
        node.hooks = [*(node.hooks or ()), entry]
        return Handle(lambda: node.hooks.remove(entry))

    def register_post_accumulate_grad_hook(self, hook):
        self._after = [*(self._after or ()), hook]
        return Handle(lambda: self._after.remove(hook))

    # Views.
    def _view(self, shape, stride, offset, name=None, back=None):
        """Return a view; `back` makes of its gradient that of this tensor."""
        made = _new(Tensor)
        made._storage, made._shape, made._stride = self._storage, shape, stride
        made._offset, made.dtype = offset, self.dtype
        made._base = base = self._base if self._base is not None else self
        made._of_leaf = self._of_leaf or (self._requires_grad and self._node is None and Mode.grad)
        if back is not None and needs_grad(self):
            record(made, name, (self,), back)
        made._base_node = base._node
        return made

    def as_strided(self, size, stride, storage_offset=None):
        """Return a view by its geometry; the offset is counted from this tensor's own."""
        offset = self._offset + (storage_offset or 0)
        whole, size, stride = self._shape, tuple(size), tuple(stride)

        def back(gradient):
            found = gradient.new_zeros(whole)
            found.as_strided(size, stride, storage_offset).copy_(gradient)
            return found

        return self._view(size, stride, offset, "AsStridedBackward0", back)

    def view(self, *sizes):
        if len(sizes) == 1 and type(sizes[0]) is type(float32):
            raise lacks("Tensor.view(dtype)")
        shape = _filled(shape_of(sizes), self._shape)
        stride = _restrided(self._shape, self._stride, shape)
        if stride is None:
            raise RuntimeError(
                "view size is not compatible with input tensor's size and stride (at least one dimension spans "
                "across two contiguous subspaces). Use .reshape(...) instead."
            )
        before = self._shape
        return self._view(shape, stride, self._offset, "ViewBackward0", lambda g: g.reshape(before))

    def view_as(self, other):
        return self.view(other._shape)

    def reshape(self, *sizes):
        shape = _filled(shape_of(sizes), self._shape)
        if shape == self._shape:
            return self.view(shape)
        stride = _restrided(self._shape, self._stride, shape)
        if stride is None:
            return titled(self.contiguous().view(shape), "UnsafeViewBackward0")
        before = self._shape
        return self._view(shape, stride, self._offset, "ViewBackward0", lambda g: g.reshape(before))

    def reshape_as(self, other):
        return self.reshape(other._shape)

    def permute(self, *dims):
        dims = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
        if len(dims) != len(self._shape):
            raise RuntimeError(
                f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
                f"desired ordering of dimensions i.e. input.dim() = {self.dim()} is not equal to len(dims) = {len(dims)}"
            )
        dims = [place_of(dim, len(dims)) for dim in dims]
        if len({*dims}) != len(dims):
            raise RuntimeError("permute(): duplicate dims are not allowed.")
        back = [dims.index(dim) for dim in range(len(dims))]
        shape, stride = (
            tuple([self._shape[d] for d in dims]),
            tuple([self._stride[d] for d in dims]),
        )
        return self._view(
            shape, stride, self._offset, "PermuteBackward0", lambda g: g.permute(back)
        )

    def transpose(self, dim0, dim1):
        dims = len(self._shape)
        a, b = place_of(dim0, dims), place_of(dim1, dims)
        shape, stride = [*self._shape], [*self._stride]
        if dims:
            shape[a], shape[b] = shape[b], shape[a]
            stride[a], stride[b] = stride[b], stride[a]
        back = lambda g: g.transpose(a, b)  # noqa: E731
        return self._view(tuple(shape), tuple(stride), self._offset, "TransposeBackward0", back)

    swapaxes = swapdims = transpose

    def t(self):
        if len(self._shape) > 2:
            raise RuntimeError(
                f"t() expects a tensor with <= 2 dimensions, but self is {self.dim()}D"
            )
        return titled(self.transpose(0, -1), "TBackward0")

    @property
    def T(self):  # noqa: N802 - PyTorch's name
        return self.permute(tuple(range(len(self._shape)))[::-1])

    @property
    def mT(self):  # noqa: N802 - PyTorch's name
        if not self._shape:
            return self
        if len(self._shape) < 2:
            raise RuntimeError(
                f"tensor.mT is only supported on matrices or batches of matrices. Got {self.dim()}-D tensor."
            )
        return self.transpose(-2, -1)

    def expand(self, *sizes):
        shape = shape_of(sizes)
        more = len(shape) - len(self._shape)
        if more < 0:
            raise RuntimeError(
                f"expand(torch.{self.dtype.scalar}Tensor{{{list(self._shape)}}}, size={list(shape)}): the number of sizes "
                f"provided ({len(shape)}) must be greater or equal to the number of dimensions in the tensor ({self.dim()})"
            )
        full, stride = list(shape), [0] * len(shape)
        for d, (size, step) in enumerate(zip(self._shape, self._stride, strict=False), more):
            if shape[d] in (-1, size):
                full[d], stride[d] = size, step
            elif size != 1:
                raise RuntimeError(
                    f"The expanded size of the tensor ({shape[d]}) must match the existing size ({size}) at "
                    f"non-singleton dimension {d}.  Target sizes: {list(shape)}.  Tensor sizes: {list(self._shape)}"
                )
        before = self._shape
        back = lambda g: g.sum_to_size(before)  # noqa: E731
        return self._view(tuple(full), tuple(stride), self._offset, "ExpandBackward0", back)

    def expand_as(self, other):
        return self.expand(other._shape)

    broadcast_to = expand

    def unsqueeze(self, dim):
        at = place_of(dim, len(self._shape), 1)
        shape, stride = self._shape, self._stride
        step = shape[at] * stride[at] if at < len(shape) else 1
        return self._view(
            (*shape[:at], 1, *shape[at:]),
            (*stride[:at], step, *stride[at:]),
            self._offset,
            "UnsqueezeBackward0",
            lambda g: g.squeeze(at),
        )

    def squeeze(self, dim=...):
        dims = range(len(self._shape)) if dim is ... else [dim] if isinstance(dim, int) else dim
        drop = [place_of(d, len(self._shape)) for d in dims]
        if len({*drop}) != len(drop):
            raise RuntimeError(f"dim {drop[0]} appears multiple times in the list of dims")
        keep = [d for d, size in enumerate(self._shape) if size != 1 or d not in drop]
        before = self._shape
        shape, stride = tuple([before[d] for d in keep]), tuple([self._stride[d] for d in keep])
        name = f"SqueezeBackward{0 if dim is ... else 1 if isinstance(dim, int) else 2}"
        return self._view(shape, stride, self._offset, name, lambda g: g.reshape(before))

    def flatten(self, start_dim=0, end_dim=-1):
        dims = len(self._shape)
        first, last = place_of(start_dim, dims), place_of(end_dim, dims)
        if not dims:
            return self.reshape(1)
        if first > last:
            raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
        if first == last:
            return self
        middle = math.prod(self._shape[first : last + 1])
        return self.reshape((*self._shape[:first], middle, *self._shape[last + 1 :]))

    def ravel(self):
        return self.reshape(-1)

    def unflatten(self, dim, sizes):
        at = place_of(dim, len(self._shape))
        sizes, full = tuple(sizes), self._shape[at]
        known = math.prod(size for size in sizes if size != -1)
        fits = known and full % known == 0 if -1 in sizes else known == full
        if not fits:
            raise RuntimeError(
                f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {at} ({full}) in the input tensor"
            )
        sizes = tuple([full // known if size == -1 else size for size in sizes])
        return self.view(self._shape[:at] + sizes + self._shape[at + 1 :])

    def narrow(self, dim, start, length):
        dim = place_of(dim, len(self._shape))
        start, length = int(start), int(length)
        size = self._shape[dim]
        if not -size <= start <= size:
            raise IndexError(
                f"start out of range (expected to be in range of [{-size}, {size}], but got {start})"
            )
        start = start + size if start < 0 else start
        if length < 0 or start + length > size:
            raise RuntimeError(
                f"start ({start}) + length ({length}) exceeds dimension size ({size})."
            )
        return self._slice(dim, start, start + length, 1)

    def _slice(self, dim, start, stop, step):
        shape, stride = [*self._shape], [*self._stride]
        size = max(0, -(-(stop - start) // step))
        if size == shape[dim] and step == 1:
            before, offset = None, self._offset
            return self._view(self._shape, self._stride, offset, "AliasBackward0", lambda g: g)
        before, offset = self._shape, self._offset + (start * stride[dim] if size else 0)
        shape[dim], stride[dim] = size, stride[dim] * step

        def back(gradient):
            found = gradient.new_zeros(before)
            found._slice(dim, start, stop, step).copy_(gradient)
            return found

        return self._view(tuple(shape), tuple(stride), offset, "SliceBackward0", back)

    def select(self, dim, index):
        dims = len(self._shape)
        if not dims:
            raise IndexError("select() cannot be applied to a 0-dim tensor.")
        dim = place_of(dim, dims)
        size, index = self._shape[dim], int(index)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of bounds for dimension {dim} with size {size}")
        index = index + size if index < 0 else index
        before = self._shape

        def back(gradient):
            found = gradient.new_zeros(before)
            found.select(dim, index).copy_(gradient)
            return found

        return self._view(
            before[:dim] + before[dim + 1 :],
            self._stride[:dim] + self._stride[dim + 1 :],
            self._offset + index * self._stride[dim],
            "SelectBackward0",
            back,
        )

    def unbind(self, dim=0):
        dim = place_of(dim, len(self._shape))
        parts = [self.select(dim, index) for index in range(self._shape[dim])]
        return tuple([titled(part, "UnbindBackward0") for part in parts])

    def split(self, split_size, dim=0):
        dim = place_of(dim, len(self._shape))
        size, name = self._shape[dim], "SplitWithSizesBackward0"
        if isinstance(split_size, int):
            name = "SplitBackward0"
            if split_size < 0 or (split_size == 0 and size):
                raise RuntimeError(
                    f"split expects split_size be non-negative, but got split_size={split_size}"
                )
            split_size = [
                min(split_size, size - at) for at in range(0, max(size, 1), split_size or 1)
            ]
        elif sum(split_size) != size:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension "
                f"{dim}), but got split_sizes={list(split_size)}"
            )
        found, at = [], 0
        for length in split_size:
            found.append(titled(self._slice(dim, at, at + length, 1), name))
            at += length
        return tuple(found)

    def chunk(self, chunks, dim=0):
        size = self._shape[place_of(dim, len(self._shape))]
        if chunks <= 0:
            raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
        return self.split(-(-size // chunks) if size else [0] * chunks, dim)

    def tensor_split(self, parts, dim=0):
        size = self._shape[place_of(dim, len(self._shape))]
        if isinstance(parts, int):
            each, more = divmod(size, parts)
            return self.split([each + (part < more) for part in range(parts)], dim)
        cuts = [0, *parts, size]
        return self.split([b - a for a, b in itertools.pairwise(cuts)], dim)

    def diagonal(self, offset=0, dim1=0, dim2=1):
        dims = len(self._shape)
        a, b = place_of(dim1, dims), place_of(dim2, dims)
        size = (
            min(self._shape[a], self._shape[b] - offset)
            if offset >= 0
            else min(self._shape[a] + offset, self._shape[b])
        )
        start = offset * self._stride[b] if offset >= 0 else -offset * self._stride[a]
        rest = [d for d in range(dims) if d not in (a, b)]
        size = max(size, 0)
        before = self._shape

        def back(gradient):
            found = gradient.new_zeros(before)
            found.diagonal(offset, a, b).copy_(gradient)
            return found

        return self._view(
            (*[self._shape[d] for d in rest], size),
            (*[self._stride[d] for d in rest], self._stride[a] + self._stride[b]),
            self._offset + (start if size else 0),
            "DiagonalBackward0",
            back,
        )

    def unfold(self, dimension, size, step):
        dim = place_of(dimension, len(self._shape))
        count = (self._shape[dim] - size) // step + 1
        shape, stride = [*self._shape, size], [*self._stride, self._stride[dim]]
        shape[dim], stride[dim] = count, stride[dim] * step
        before = self._shape

        def back(gradient):
            found = gradient.new_zeros(before)
            for at in range(count):
                found._slice(dim, at * step, at * step + size, 1).add_(
                    gradient.select(dim, at).movedim(-1, dim)
                )
            return found

        return self._view(tuple(shape), tuple(stride), self._offset, "UnfoldBackward0", back)

    def movedim(self, source, destination):
        source = [source] if isinstance(source, int) else source
        destination = [destination] if isinstance(destination, int) else destination
        dims = len(self._shape)
        source = [place_of(d, dims) for d in source]
        order = [d for d in range(dims) if d not in source]
        for to, d in sorted(zip([place_of(d, dims) for d in destination], source, strict=False)):
            order.insert(to, d)
        return self.permute(order)

    moveaxis = movedim

    # Copies.
    def clone(self, *, memory_format=None):
        made = empty_of(self._shape, self.dtype)
        if memory_format is None or memory_format == "preserve":
            made._stride = like_rows(self)
        _copy(made, self)
        return record(made, "CloneBackward0", (self,), lambda g: g) if needs_grad(self) else made

    def contiguous(self, memory_format=None):
        if self.is_contiguous():
            return self
        return self.clone(memory_format="contiguous")

    def to(
        self,
        *args,
        dtype=None,
        device=None,
        copy=False,
        non_blocking=False,
        memory_format=None,
        other=None,
    ):
        where, dtype = device, PLAIN.get(dtype, dtype) if other is None else other.dtype
        for arg in args:
            if isinstance(arg, Tensor):
                dtype = arg.dtype
            elif type(arg) is type(float32):
                dtype = arg
            elif isinstance(arg, str | DEVICE):
                where = arg
            elif arg in PLAIN:
                dtype = PLAIN[arg]
            elif not isinstance(arg, bool) and arg is not None:
                raise TypeError(f"to() received an invalid combination of arguments: {arg!r}")
        if where is not None and DEVICE(where).type != self.device.type:
            return self._moved(dtype or self.dtype, where)
        if dtype is None or dtype is self.dtype:
            return self.clone() if copy else self
        made = empty_of(self._shape, dtype)
        made._stride = like_rows(self)
        _copy(made, self)
        if dtype.kind >= 2 and needs_grad(self):
            before = self.dtype
            record(made, "ToCopyBackward0", (self,), lambda g: g.to(before))
        return made

    def _moved(self, dtype, where):
        """Leave the numbers behind; those of a tensor without any cannot be had."""
        with DEVICE(where):
            if self.is_meta:
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            return empty_of(self._shape, dtype)

    def type(self, dtype=None):
        return f"torch.{self.dtype.scalar}Tensor" if dtype is None else self.to(dtype)

    def type_as(self, other):
        return self.to(other.dtype)

    def cpu(self, memory_format=None):
        return self

    def cuda(self, device=None, non_blocking=False, memory_format=None):
        return self.to("cuda")

    def pin_memory(self):
        return self

    def share_memory_(self):
        return self

    def copy_(self, source, non_blocking=False):
        if not isinstance(source, Tensor):
            source = tensor(source)
        if broadcast(self._shape, source._shape) != self._shape:
            raise RuntimeError(
                f"output with shape {list(self._shape)} doesn't match the broadcast shape {list(broadcast(self._shape, source._shape))}"
            )
        check_in_place(self)
        overlapping = source._storage is self._storage and self._storage is not None
        _copy(self, _copied(source) if overlapping else source)
        self._storage.version += 1
        if needs_grad(self, source):
            shape, kind = source._shape, source.dtype
            backs = (lambda g: g.new_zeros(g._shape), lambda g: g.sum_to_size(shape).to(kind))
            _autograd.record_in_place(self, "CopyBackwards", (source,), backs)
        return self

    @maker
    def new_tensor(self, data, *, dtype=None):
        return tensor(data, dtype=dtype or self.dtype)

    @maker
    def new_zeros(self, *size, dtype=None):
        return beside(self, checked_sizes(shape_of(size)), dtype or self.dtype)

    new_empty = new_zeros

    @maker
    def new_ones(self, *size, dtype=None):
        return run("copy", self.new_zeros(*size, dtype=dtype), 1)

    @maker
    def new_full(self, size, fill_value, *, dtype=None):
        return run("copy", self.new_zeros(size, dtype=dtype), fill_value)


_new = object.__new__
TENSOR.types.add(Tensor)


def _of_data(data, dtype):
    """Return what the constructor of a class of tensors makes of sizes, or of a sequence of numbers."""
    if all(isinstance(size, int) and not isinstance(size, bool) for size in data) and data:
        return empty_of(checked_sizes(tuple(data)), dtype)
    (given,) = data or ([],)
    if isinstance(given, Tensor):
        if given.dtype is not dtype:
            raise TypeError(f"expected a tensor of {dtype}, got one of {given.dtype}")
        return given
    if isinstance(given, Size):
        return empty_of(given, dtype)
    if not isinstance(given, list | tuple):
        raise TypeError(f"new(): data must be a sequence (got {type(given).__name__})")
    return tensor(given, dtype=dtype)


def tensors_of(dtypes, name):
    """Return what PyTorch still has as the class of all tensors of a type."""
    dtype = getattr(dtypes, name)

    class Kind(type):
        def __instancecheck__(cls, value):
            return isinstance(value, Tensor) and value.dtype is dtype

    class Typed(metaclass=Kind):
        def __new__(cls, *data):
            return _of_data(data, dtype)

    Typed.__name__ = f"{dtype.scalar}Tensor"
    return Typed


def check_in_place(tensor):
    """Refuse to overwrite what autograd needs as it is, and what stands in one place of memory several times."""
    if (
        0 in tensor._stride
        and 0 not in tensor._shape
        and any(
            size > 1 and not step for size, step in zip(tensor._shape, tensor._stride, strict=True)
        )
    ):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    if Mode.grad:
        if tensor._requires_grad and node_of(tensor) is None:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        if tensor._of_leaf and needs_grad(tensor):
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place operation."
            )


def _typed(name, dtype):
    return checked(name, lambda self, memory_format=None: self.to(dtype))


for _name, _kind in {
    "float": "float32", "double": "float64", "long": "int64", "int": "int32", "short": "int16", "half": "float16",
    "bool": "bool", "bfloat16": "bfloat16", "byte": "uint8", "char": "int8",
}.items():  # fmt: skip
    from torch import _dtypes

    _dtype = getattr(_dtypes, "bool_" if _kind == "bool" else _kind)
    setattr(Tensor, _name, _typed(_name, _dtype))


class Handle:
    """What takes a hook away again."""

    def __init__(self, remove):
        self._remove = remove

    def remove(self):
        if self._remove:
            self._remove()
            self._remove = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class UntypedStorage:
    """The memory of a tensor."""

    def __init__(self, tensor):
        self._storage, self._kind = tensor._storage, tensor.dtype
        self._cdata = id(tensor._storage)

    def data_ptr(self):
        return self._storage.base * self._kind.itemsize

    def nbytes(self):
        return len(self._storage.array) * self._kind.itemsize

    size = __len__ = nbytes


def _copy(out, source):
    """Write the numbers of `source` into `out`, each as the type of `out` has it."""
    if out.dtype.kind == 3 or source.dtype.kind == 3:
        from torch import _complex

        return _complex.copy(out, source)
    return run("copy", out, source)


def _copied(tensor):
    made = empty_of(tensor._shape, tensor.dtype)
    return _copy(made, tensor)


def _nest(shape):
    return [] if len(shape) == 1 or not shape[0] else [_nest(shape[1:]) for _ in range(shape[0])]


def _filled(shape, before):
    """Return `shape` with what -1 stands for."""
    count, known = math.prod(before), 1
    if -1 in shape:
        known = math.prod(size for size in shape if size != -1)
        if shape.count(-1) > 1:
            raise RuntimeError("only one dimension can be inferred")
        if known and count % known == 0:
            return tuple([count // known if size == -1 else size for size in shape])
    elif math.prod(shape) == count:
        return shape
    if not known and not count:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 "
            "can be any value and is ambiguous"
        )
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")


def _restrided(before, stride, shape):
    """Return strides that make of a tensor a view of this shape; None where there are none."""
    if stride == rows(before) or 0 in before:
        return rows(shape)
    groups = [[size, step] for size, step in zip(before, stride, strict=False) if size != 1]
    merged = []
    for size, step in groups:
        if merged and merged[-1][1] == size * step:
            merged[-1] = [merged[-1][0] * size, step]
        else:
            merged.append([size, step])
    found, at = [], len(merged) - 1
    left, step = merged[at] if merged else (1, 1)
    for size in reversed(shape):
        if size == 1:
            found.append(step)
            continue
        if left == 1:
            at -= 1
            left, step = merged[at]
        if left % size:
            return None
        found.append(step)
        step, left = step * size, left // size
    return tuple(reversed(found))


# What makes tensors.
def _flattened(data, shape, depth, found):
    """Append the numbers of nested sequences to `found`, and hold each against `shape`."""
    if depth == len(shape):
        if isinstance(data, list | tuple):
            raise ValueError("only one element tensors can be converted to Python scalars")
        found.append(data)
        return
    if not isinstance(data, list | tuple | range) and not isinstance(data, Tensor):
        raise TypeError("not a sequence")
    if len(data) != shape[depth]:
        raise ValueError(
            f"expected sequence of length {shape[depth]} at dim {depth} (got {len(data)})"
        )
    if depth == len(shape) - 1 and not isinstance(data, Tensor):
        found.extend(data)
    else:
        for part in data:
            _flattened(part, shape, depth + 1, found)


def tensor(data, *, dtype=None):
    """Return a new tensor of these numbers."""
    if isinstance(data, Tensor):
        made = data.detach().clone().to(dtype or data.dtype)
    else:
        if hasattr(data, "tolist") and not isinstance(data, list):
            data = data.tolist()
        shape, part = [], data
        while isinstance(part, list | tuple | range) or (isinstance(part, Tensor) and part._shape):
            shape.append(len(part))
            if not len(part):
                break
            part = part[0]
        numbers: list = []
        _flattened(data, shape, 0, numbers)
        made = of_numbers(numbers, tuple(shape), dtype)
    return made


EXACT = 2**53 - 1  # up to here a float64, in which an int64 is kept, holds every whole number


def refuse_overflow(dtype, numbers):
    """Refuse numbers that a tensor of this type cannot hold, here or in PyTorch."""
    if dtype.kind != 1:
        return
    for number in numbers:
        if number != number or not dtype.least <= number <= dtype.most:
            raise RuntimeError(f"value cannot be converted to type {dtype.c_name} without overflow")
        if dtype is int64 and not -EXACT <= number <= EXACT:
            raise lacks(f"a whole number of 2**53 or more, {number},")


def of_numbers(numbers, shape, dtype=None):
    """Return a tensor of a flat sequence of numbers, or of tensors with one each."""
    if not isinstance(numbers, array):
        if any(isinstance(number, Tensor) for number in numbers):
            kinds = [number.dtype for number in numbers if isinstance(number, Tensor)]
            dtype = dtype or (
                kinds[0] if len({*kinds}) == 1 and len(kinds) == len(numbers) else None
            )
            numbers = [
                number.item() if isinstance(number, Tensor) else number for number in numbers
            ]
        if dtype is None:
            types = {*map(type, numbers)}
            if complex in types:
                dtype = complex64
            elif float in types or not types:
                dtype = Defaults.dtype
            elif types == {bool}:
                dtype = bool_
            elif types <= {int, bool}:
                dtype = int64
            else:
                odd = next(number for number in numbers if type(number) not in (int, bool, float))
                if isinstance(odd, list | tuple):
                    raise TypeError("not a sequence")
                if not hasattr(odd, "__float__"):
                    raise (TypeError if isinstance(odd, str) else RuntimeError)(
                        f"new(): invalid data type '{type(odd).__name__}'"
                        if isinstance(odd, str)
                        else f"Could not infer dtype of {type(odd).__name__}"
                    )
                numbers, dtype = [float(number) for number in numbers], Defaults.dtype
    refuse_overflow(dtype, numbers)
    if dtype.kind == 3:
        numbers = [
            part for number in numbers for part in (complex(number).real, complex(number).imag)
        ]
    elif dtype.kind < 2:
        numbers = [bool(number) if dtype is bool_ else int(number) for number in numbers]
    try:
        held = array(dtype.typecode, numbers or [0])
    except OverflowError:  # of a float32
        most = dtype.most
        held = array(
            "f", [each if abs(each) <= most else math.copysign(math.inf, each) for each in numbers]
        )
    made = make(Storage(held, dtype.width), shape, rows(shape), 0, dtype)
    if dtype.name in ("bfloat16", "float16"):
        run("copy", made, made)
    return made


@makes
def as_tensor(data, *, dtype=None):
    if isinstance(data, Tensor):
        return data.to(dtype or data.dtype)
    return tensor(data, dtype=dtype)


def beside(tensor, shape, dtype):
    """Return a new tensor of zeros on the device of `tensor`."""
    if tensor._storage.meta:
        with META:
            return empty_of(shape, dtype)
    return empty_of(shape, dtype)


def _filled_with(value, shape, dtype, like=None):
    dtype = dtype or Defaults.dtype
    made = empty_of(shape, dtype) if like is None or Meta.on else beside(like, shape, dtype)
    if like is not None:
        made._stride = like_rows(like)
    return run("copy", made, value) if value else made


def checked_sizes(shape):
    for size in shape:
        if size < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {size}: {list(shape)}"
            )
    return shape


@makes
def zeros(*size, dtype=None):
    return _filled_with(0, checked_sizes(shape_of(size)), dtype)


@makes
def empty(*size, dtype=None):
    return _filled_with(0, checked_sizes(shape_of(size)), dtype)


@makes
def ones(*size, dtype=None):
    return _filled_with(1, checked_sizes(shape_of(size)), dtype)


@makes
def full(size, fill_value, *, dtype=None):
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    kind = dtype or {bool: bool_, int: int64}.get(type(fill_value))
    if kind is not None:
        refuse_overflow(kind, [fill_value])
    return _filled_with(fill_value, checked_sizes(shape_of((size,))), kind)


@makes
def zeros_like(input, *, dtype=None):
    return _filled_with(0, input._shape, dtype or input.dtype, input)


@makes
def ones_like(input, *, dtype=None):
    return _filled_with(1, input._shape, dtype or input.dtype, input)


@makes
def empty_like(input, *, dtype=None):
    return _filled_with(0, input._shape, dtype or input.dtype, input)


@makes
def full_like(input, fill_value, *, dtype=None):
    refuse_overflow(dtype or input.dtype, [fill_value])
    return _filled_with(fill_value, input._shape, dtype or input.dtype, input)


@makes
def arange(start, end=None, step=None, *, dtype=None):
    if end is None and step is not None:
        raise TypeError("arange() received an invalid combination of arguments: a step and no end")
    start, end = (0, start) if end is None else (start, end)
    step = 1 if step is None else step
    start, end, step = [x.item() if isinstance(x, Tensor) else x for x in (start, end, step)]
    whole = all(isinstance(x, int) for x in (start, end, step))
    dtype = dtype or (int64 if whole else Defaults.dtype)
    if step == 0 or step != step:
        raise RuntimeError("step must be nonzero")
    if not math.isfinite(start) or not math.isfinite(end):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype.kind == 1 and not whole:
        start, end, step, whole = int(start), int(end), int(step), True
        if not step:
            raise RuntimeError("step must be nonzero")
    numbers = (
        range(start, end, step)
        if whole
        else [start + k * step for k in range(math.ceil((end - start) / step))]
    )
    if (dtype.kind == 1 and dtype.itemsize >= 4) or dtype.name in ("float32", "float64"):
        held = Storage(array(dtype.typecode, numbers or [0]), dtype.width)
        return make(held, (len(numbers),), (1,), 0, dtype)
    return of_numbers(list(numbers), (len(numbers),), dtype)


@makes
def linspace(start, end, steps, *, dtype=None):
    start, end = float(start), float(end)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    numbers = [
        start + k * step if k < steps // 2 else end - (steps - 1 - k) * step for k in range(steps)
    ]
    return of_numbers(numbers, (steps,), dtype or Defaults.dtype)


@makes
def eye(n, m=None, *, dtype=None):
    m = n if m is None else m
    for name, size in (("n", n), ("m", m)):
        if size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    made = empty_of((n, m), dtype or Defaults.dtype)
    run("copy", made.diagonal(), 1)
    return made


FUNCTIONS["tensor"], FUNCTIONS["asarray"] = maker(tensor), FUNCTIONS["as_tensor"]


def rebuilt(held, offset, shape, strides, requires_grad):
    """Return a tensor of a storage that a file held; those that share one in the file share it here."""
    whole = vars(held).get("tensor")
    if whole is None:
        from torch import _dtypes

        kind = bool_ if held.dtype_name == "bool" else getattr(_dtypes, held.dtype_name)
        numbers = held.numbers if isinstance(held.numbers, array) else list(held.numbers)
        whole = held.tensor = of_numbers(numbers, (len(numbers),), kind)
    made = make(whole._storage, shape, strides, offset, whole.dtype)
    made._requires_grad = requires_grad
    return made


def shown(tensor):
    """Return the text that `print` shows."""
    from torch import _printing

    node = node_of(tensor)
    if tensor.is_meta:
        return f"tensor(..., device='meta', size={tuple(tensor._shape)})"
    return _printing.text(
        tensor._shape,
        tensor.dtype.name,
        tensor._flat(),
        is_parameter=type(tensor).__name__ == "Parameter",
        requires_grad=tensor.requires_grad,
        grad_fn=node.name if node is not None else None,
        default=Defaults.dtype.name,
    )
