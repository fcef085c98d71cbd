"""The border to kernels.js: what is computed is described in a block of integers, and one call does it."""

from array import array
from struct import Struct

import small_torch_kernels as js  # made by kernels.js, and known to Python under this name

from torch._signatures import lacks

ROOM = 1024
BLOCK = array("I", bytes(4 * ROOM))
js.init(BLOCK.buffer_info()[0])
PACK = [Struct(f"{count}I").pack_into for count in range(256)]

# Numbers that take part in an operation stand here, rounded as the operation wants them.
SINGLES, DOUBLES = array("f", [0.0] * 4), array("d", [0.0] * 4)
SINGLE, DOUBLE = SINGLES.buffer_info()[0] // 4, DOUBLES.buffer_info()[0] // 8

_ZERO = {code: array(code, [0]) for code in "fdiBhb"}
MOST = 2**30  # bytes that one tensor may take

ELEMENTWISE = {name: code for code, name in enumerate(js.elementwise_names.split())}
REDUCE = {name: code for code, name in enumerate(js.reduce_names.split())}
SCAN = {name: code for code, name in enumerate(js.scan_names.split())}


class Meta:
    """Whether tensors are made that have a shape and no memory; then nothing is computed."""

    on = False


NOWHERE = 2**29  # a place behind all memory, where nothing is read or written


def call(kernel, *integers):
    """Call a kernel with these integers in its block."""
    if Meta.on:
        return -1
    count = len(integers)
    pack = PACK[count] if count < 256 else Struct(f"{count}I").pack_into
    pack(BLOCK, 0, *integers)
    found = kernel()
    if found is True:
        raise lacks("a whole number of 2**53 or more")
    return found


class Storage:
    """The numbers of one or more tensors: an array of Python, whose memory the kernels read and write."""

    __slots__ = ("__weakref__", "array", "base", "meta", "version")

    def __init__(self, numbers, width):
        self.array = numbers
        self.base = numbers.buffer_info()[0] // width  # the index of the first number, of its width
        self.version, self.meta = 0, False


def storage(count, dtype):
    """Return a storage of `count` zeros."""
    if Meta.on:
        found = Storage(_ZERO[dtype.typecode], dtype.width)
        found.base, found.meta = NOWHERE, True
        return found
    count *= 1 + (dtype.kind == 3)  # a complex number is two
    if count * dtype.width > MOST:
        raise RuntimeError(
            f"can't allocate memory: you tried to allocate {count * dtype.itemsize} bytes"
        )
    try:
        return Storage(_ZERO[dtype.typecode] * (count or 1), dtype.width)
    except MemoryError:
        size = count * dtype.itemsize
        raise RuntimeError(f"can't allocate memory: you tried to allocate {size} bytes") from None
