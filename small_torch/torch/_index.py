"""Elements chosen by numbers, slices, and tensors of indices or of booleans."""

import math

from torch._autograd import needs_grad, record, record_in_place, titled
from torch._dtypes import bool_, int64, uint8
from torch._kernels import call, js
from torch._ops import sum_to
from torch._reduce import reduced
from torch._signatures import OPERAND
from torch._tensor import (
    FUNCTIONS,
    Tensor,
    broadcast,
    check_in_place,
    empty_of,
    function,
    method,
    place_of,
    rows,
    tensor,
)

_offsets, _pick, _nonzero = js.offsets, js.pick, js.nonzero
READ, WRITE, ADD = range(3)


def _plain(index):
    """Return the parts of an index as a list; lists of numbers are tensors."""
    parts = list(index) if isinstance(index, tuple) else [index]
    return [
        tensor(part, dtype=None if len(part) else int64) if isinstance(part, list | range) else part
        for part in parts
    ]


def _basic(x, parts):
    """Return the view of the parts that need no tensor, and what is left: (dimension of the view, indices)."""
    used = 0
    for part in parts:
        if part is not None and part is not ... and not isinstance(part, bool):
            used += part.dim() if isinstance(part, Tensor) and part.dtype in (bool_, uint8) else 1
    if used > x.dim():
        raise IndexError(f"too many indices for tensor of dimension {x.dim()}")
    view, dim, left, taken = x, 0, [], 0
    for part in parts:
        if (
            isinstance(part, Tensor)
            and not part._shape
            and part.dtype.kind == 1
            and part.dtype is not uint8
        ):
            part = int(part.item())
        if part is None:
            view, dim = view.unsqueeze(dim), dim + 1
        elif part is ...:
            dim += x.dim() - used
            used = x.dim()
        elif isinstance(part, slice):
            step = 1 if part.step is None else part.step.__index__()
            if step <= 0:
                raise ValueError("step must be greater than zero")
            size = view._shape[dim]
            start, stop, _ = part.indices(size)
            if start != 0 or stop != size or step != 1:
                view = view._slice(dim, start, max(start, stop), step)
            dim += 1
        elif isinstance(part, bool):
            view = view.unsqueeze(dim)
            left.append((dim, tensor([0] if part else [], dtype=int64)))
            dim += 1
        elif isinstance(part, int) or (not isinstance(part, Tensor) and hasattr(part, "__index__")):
            part = part.__index__()
            size = view._shape[dim]
            if not -size <= part < size:
                raise IndexError(
                    f"index {part} is out of bounds for dimension {dim + taken} with size {size}"
                )
            view, taken = view.select(dim, part), taken + 1
        elif isinstance(part, Tensor):
            if part.dtype.kind > 1:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
            if part.dtype in (bool_, uint8):
                for d, size in enumerate(part._shape):
                    if size != view._shape[dim + d]:
                        raise IndexError(
                            f"The shape of the mask {list(part._shape)} at index {d} does not match the shape of the "
                            f"indexed tensor {list(view._shape)} at index {dim + d}"
                        )
                if not part._shape:
                    view = view.unsqueeze(dim)
                    left.append((dim, tensor([0] if part else [], dtype=int64)))
                    dim += 1
                for each in part.nonzero(as_tuple=True):
                    left.append((dim, each))
                    dim += 1
            else:
                left.append((dim, part))
                dim += 1
        else:
            kind = type(part).__name__
            raise IndexError(
                f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {kind})"
            )
    return view, left


class Places:
    """Where the elements are that tensors of indices choose in a tensor, and the shape of what they make."""

    def __init__(self, shape, stride, left):
        index_shape = ()
        try:
            for _, index in left:
                index_shape = broadcast(index_shape, index._shape)
        except RuntimeError:
            shapes = ", ".join(str([*index._shape]) for _, index in left)
            raise IndexError(
                f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
            ) from None
        dims = [dim for dim, _ in left]
        count = math.prod(index_shape)
        self.offsets = empty_of((count,), int64)
        whole = [index.to(int64).expand(index_shape).contiguous() for _, index in left]
        if count:
            numbers = []
            for dim, index in zip(dims, whole, strict=False):
                numbers += (index._storage.base + index._offset, shape[dim], stride[dim])
            wrong = call(_offsets, self.offsets._storage.base, count, len(left), *numbers)
            if wrong >= 0:
                value, dim = int(self.offsets._storage.array[0]), dims[wrong]
                raise IndexError(
                    f"index {value} is out of bounds for dimension {dim} with size {shape[dim]}"
                )
        rest = [d for d in range(len(shape)) if d not in dims]
        together = dims == list(range(dims[0], dims[0] + len(dims)))
        first = [d for d in rest if d < dims[0]] if together else []
        last = [d for d in rest if d not in first]
        self.shape = (*[shape[d] for d in first], *index_shape, *[shape[d] for d in last])
        self.walk = (*[shape[d] for d in first], count, *[shape[d] for d in last])
        self.steps = (*[stride[d] for d in first], 0, *[stride[d] for d in last])
        self.along = (0,) * len(first) + (1,) + (0,) * len(last)

    def pick(self, mode, x, other):
        """Read the elements of `x` into `other`, write `other` into them, or add it; `other` lies in rows."""
        if 0 not in self.walk:
            call(
                _pick, mode, x._storage.base + x._offset, x.dtype.code, other._storage.base + other._offset, other.dtype.code,
                self.offsets._storage.base, len(self.walk), *self.walk, *self.steps, *rows(self.walk), *self.along,
            )  # fmt: skip
        return other


def _chosen(x, left):
    places = Places(x._shape, x._stride, left)
    out = places.pick(READ, x, empty_of(places.shape, x.dtype))
    return record(out, "IndexBackward0", (x,), lambda g: _spread(g, x._shape, left))


def _spread(gradient, shape, left):
    """Return zeros of this shape to which `gradient` is added where the indices point."""
    out = empty_of(shape, gradient.dtype)
    Places(shape, rows(shape), left).pick(ADD, out, gradient.contiguous())
    return record(out, "IndexPutBackward0", (gradient,), lambda g: _chosen(g, left))


def get_item(self, index):
    if type(index) is int:
        if not self._shape:
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor to a number"
            )
        size = self._shape[0]
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of bounds for dimension 0 with size {size}")
        return self.select(0, index)
    view, left = _basic(self, _plain(index))
    if left:
        return _chosen(view, left)
    return (
        view
        if view is not self
        else view._view(view._shape, view._stride, view._offset, "AliasBackward0", lambda g: g)
    )


def set_item(self, index, value):
    check_in_place(self)
    view, left = _basic(self, _plain(index))
    if not left:
        if isinstance(value, Tensor):
            more = len(value._shape) - len(view._shape)
            if more > 0 and all(size == 1 for size in value._shape[:more]):
                value = value.reshape(value._shape[more:])
            if broadcast_fails(value._shape, view._shape):
                raise RuntimeError(
                    f"The expanded size of the tensor ({view._shape[-1] if view._shape else 1}) must match the existing size "
                    f"({value._shape[-1] if value._shape else 1}) at non-singleton dimension {max(view.dim() - 1, 0)}.  "
                    f"Target sizes: {list(view._shape)}.  Tensor sizes: {list(value._shape)}"
                )
            view.copy_(value)
        else:
            view.fill_(value)
        return
    _put(view, left, value if isinstance(value, Tensor) else tensor(value, dtype=self.dtype), WRITE)


Tensor.__getitem__, Tensor.__setitem__ = get_item, set_item


def broadcast_fails(shape, goal):
    try:
        return broadcast(shape, goal) != goal
    except RuntimeError:
        return True


def _put(x, left, value, mode):
    places = Places(x._shape, x._stride, left)
    if broadcast_fails(value._shape, places.shape):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value._shape)} cannot be broadcast to indexing result of shape {list(places.shape)}"
        )
    if value.dtype is not x.dtype:
        if (mode == WRITE and value.dtype.kind > x.dtype.kind) or value._shape:
            raise RuntimeError(
                f"Index put requires the source and destination dtypes match, got {x.dtype.scalar} for the destination "
                f"and {value.dtype.scalar} for the source."
            )
        value = value.to(x.dtype)
    places.pick(mode, x, value.detach().expand(places.shape).contiguous())
    x._storage.version += 1
    if needs_grad(x, value):
        shape = value._shape

        def old(g):
            if mode == ADD:
                return g
            g = g.clone(memory_format="contiguous")
            Places(g._shape, g._stride, left).pick(WRITE, g, g.new_zeros(places.shape))
            return g

        record_in_place(
            x, "IndexPutBackward0", (value,), (old, lambda g: sum_to(_chosen(g, left), shape))
        )
    return x


@method
def index_put_(self, indices, values, accumulate=False):
    check_in_place(self)
    view, left = _basic(self, list(indices))
    _put(view, left, values, ADD if accumulate else WRITE)
    return self


@method
def index_put(self, indices, values, accumulate=False):
    return self.clone().index_put_(indices, values, accumulate)


@function("nonzero")
def nonzero(input, *, as_tuple=False):
    whole, count = input.detach().contiguous(), input.numel()
    flat = empty_of((count,), int64)
    found = (
        call(
            _nonzero,
            flat._storage.base,
            whole._storage.base + whole._offset,
            whole.dtype.code,
            count,
        )
        if count
        else 0
    )
    flat = flat.narrow(0, 0, found)
    if input.dim() == 1:
        columns = [flat.clone()]
    else:
        columns = [
            flat // step % (size or 1)
            for size, step in zip(input._shape, rows(input._shape), strict=False)
        ]
    if as_tuple:
        return tuple(columns)
    return FUNCTIONS["stack"](columns, 1) if columns else empty_of((found, 0), int64)


FUNCTIONS["argwhere"] = nonzero
Tensor.argwhere = nonzero


@function("masked_select")
def masked_select(input, mask):
    if mask.dtype is not bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = broadcast(input._shape, mask._shape)
    return titled(input.expand(shape)[mask.expand(shape)], "MaskedSelectBackward0")


@function("index_select")
def index_select(input, dim, index):
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if index.dtype.name not in ("int64", "int32"):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    dim = place_of(dim, len(input._shape))
    if not input._shape:
        if index.numel() != 1:
            raise RuntimeError(
                f"index_select(): Index to scalar can have only 1 value, got {index.numel()} value(s)"
            )
        return input.clone()
    index = index.reshape(-1)
    refuse_negative(index, input._shape[dim], IndexError)
    return titled(_chosen(input, [(dim, index)]), "IndexSelectBackward0")


@function("take")
def take(input, index):
    return input.reshape(-1)[index]


@function("take_along_dim")
def take_along_dim(input, indices, dim=None):
    if dim is None:
        return titled(input.view(-1)[indices.view(-1)], "GatherBackward0")
    if input.dim() != indices.dim():
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.dim()} dimensions for input, and {indices.dim()} dimensions for indices"
        )
    if not input.dim():
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    dim = place_of(dim, input.dim())
    shape = broadcast(
        tuple(1 if d == dim else s for d, s in enumerate(input._shape)),
        tuple(1 if d == dim else s for d, s in enumerate(indices._shape)),
    )
    fit = lambda x: x.expand([x._shape[d] if d == dim else s for d, s in enumerate(shape)])  # noqa: E731
    indices = FUNCTIONS["where"](indices < 0, indices + input._shape[dim], indices)
    return gather(fit(input), dim, fit(indices))


def refuse_negative(index, size, kind):
    """Refuse to count from the end, where PyTorch does not."""
    if index.numel():
        least = int(reduced("amin", index, tuple(range(index.dim())), False, int64).item())
        if least < 0:
            raise kind(f"index {least} is out of bounds for dimension with size {size}")


def _along(mode, x, dim, index, other):
    """Read from `x`, or write into it, at `index` along one dimension; `other` lies in rows, in the shape of the index."""
    shape = index._shape
    if 0 in shape:
        return other
    whole = index.to(int64).contiguous()
    refuse_negative(whole, x._shape[dim], RuntimeError)
    offsets, count = empty_of(shape, int64), math.prod(shape)
    wrong = call(
        _offsets,
        offsets._storage.base,
        count,
        1,
        whole._storage.base + whole._offset,
        x._shape[dim],
        x._stride[dim],
    )
    if wrong >= 0:
        value = int(offsets._storage.array[0])
        raise RuntimeError(
            f"index {value} is out of bounds for dimension {dim} with size {x._shape[dim]}"
        )
    steps = [0 if d == dim else step for d, step in enumerate(x._stride)]
    call(
        _pick, mode, x._storage.base + x._offset, x.dtype.code, other._storage.base + other._offset, other.dtype.code,
        offsets._storage.base, len(shape), *shape, *steps, *rows(shape), *rows(shape),
    )  # fmt: skip
    return other


def _check_index(name, x, dim, index):
    if index.dtype.kind != 1:
        raise RuntimeError(f"{name}(): Expected dtype int64 for index")
    if index.dim() != x.dim():
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for d, size in enumerate(index._shape):
        if d != dim and size > x._shape[d]:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index._shape)} to be no larger than self {list(x._shape)} apart from dimension {dim}"
            )


@function("gather")
def gather(input, dim, index, *, sparse_grad=False):
    if not (input._shape and index._shape) and input.dim() + index.dim() < 2:
        found = gather(input.reshape(-1), dim, index.reshape(-1)).reshape(index._shape)
        return titled(found, "GatherBackward0")
    dim = place_of(dim, len(input._shape))
    _check_index("gather", input, dim, index)
    out = _along(READ, input, dim, index, empty_of(index._shape, input.dtype))
    back = lambda g: g.new_zeros(input._shape).scatter_add(dim, index, g)  # noqa: E731
    return record(out, "GatherBackward0", (input,), back)


def _source(x, index, src):
    if not isinstance(src, Tensor):
        return tensor(src, dtype=x.dtype).expand(index._shape).contiguous()
    if src.dtype is not x.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if src._shape != index._shape:
        for d, size in enumerate(index._shape):
            src = src.narrow(d, 0, size)
    return src.contiguous()


@function("scatter", src=OPERAND)
def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    return input.clone(memory_format="contiguous").scatter_(
        dim, index, src, value=value, reduce=reduce
    )


@function("scatter_", src=OPERAND)
def scatter_(self, dim, index, src=None, *, value=None, reduce=None):
    check_in_place(self)
    src = value if src is None else src
    dim = place_of(dim, len(self._shape))
    _check_index("scatter", self, dim, index)
    source = _source(self, index, src)
    _along(ADD if reduce == "add" else WRITE, self, dim, index, source.detach())
    self._storage.version += 1
    if needs_grad(self, source):
        backs = (
            lambda g: g if reduce == "add" else g.scatter(dim, index, 0),
            lambda g: g.gather(dim, index),
        )
        record_in_place(self, "ScatterBackward0", (source,), backs)
    return self


@function("scatter_add")
def scatter_add(input, dim, index, src):
    return input.clone(memory_format="contiguous").scatter_(dim, index, src, reduce="add")


@method
def scatter_add_(self, dim, index, src):
    return self.scatter_(dim, index, src, reduce="add")


@method
def index_add_(self, dim, index, source, *, alpha=1):
    check_in_place(self)
    dim = place_of(dim, len(self._shape))
    _put_along(self, dim, index, source if alpha == 1 else source * alpha, ADD)
    return self


def _put_along(x, dim, index, source, mode):
    return _put(
        x,
        [(dim, index)],
        source if isinstance(source, Tensor) else tensor(source, dtype=x.dtype),
        mode,
    )


@function("index_add")
def index_add(input, dim, index, source, *, alpha=1):
    return input.clone().index_add_(dim, index, source, alpha=alpha)


@method
def index_fill_(self, dim, index, value):
    check_in_place(self)
    return _put_along(self, place_of(dim, len(self._shape)), index, value, WRITE)
