"""
Files of tensors as `torch.save` writes them: read, and nothing but data ever built from them.

The core sets `rebuild`, which makes a tensor; who runs pages sets `fetch`, which has the files.
"""

import os
import re
import struct
from collections import OrderedDict

STORAGES = {
    "FloatStorage": ("float32", "f"),
    "DoubleStorage": ("float64", "d"),
    "HalfStorage": ("float16", "e"),
    "BFloat16Storage": ("bfloat16", "H"),
    "LongStorage": ("int64", "q"),
    "IntStorage": ("int32", "i"),
    "ByteStorage": ("uint8", "B"),
    "BoolStorage": ("bool", "?"),
}


class Storage:
    """The numbers of one storage; tensors that share it in the file are given the same object."""

    def __init__(self, dtype_name, numbers):
        self.dtype_name, self.numbers = dtype_name, numbers


def rebuild(storage, offset, shape, strides, requires_grad):
    """Make the tensor of this shape that begins at `offset` of the storage."""
    raise NotImplementedError("small torch: no core has said how a tensor is made")


def fetch(name):
    """Return the bytes of the book's file of this name."""
    raise NotImplementedError(f"small torch: nobody has said where {name} is")


def load_state_dict_from_url(
    url, model_dir=None, map_location=None, progress=True, check_hash=False, weights_only=False
):
    """Load the file that the address names; `check_hash` compares the digits of its name."""
    from hashlib import sha256

    name = url.rpartition("/")[2]
    data = bytes(fetch(name))
    digits = re.search(r"-([a-f0-9]*)\.", name)
    if check_hash and digits:
        wanted, found = digits[1], sha256(data).hexdigest()
        if not found.startswith(wanted):
            raise RuntimeError(f'invalid hash value (expected "{wanted}", got "{found}")')
    return parse(data)


def load(f, map_location=None, *, weights_only=True):
    """Load what `torch.save` wrote to a path, or to a file that is open for reading."""
    if not isinstance(f, (str, os.PathLike)):
        return parse(f.read())
    with open(f, "rb") as file:
        return parse(file.read())


def parse(data):
    """Return what the bytes of such a file hold."""
    import io
    import zipfile

    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        (pickled,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    except (zipfile.BadZipFile, ValueError) as error:
        raise RuntimeError("these bytes are no file that torch.save has written") from error
    folder = pickled.removesuffix("data.pkl")
    return _unpickle(archive.read(pickled), lambda key: archive.read(f"{folder}data/{key}"))


def _unpickle(pickled, stored):
    """Unpickle tensors and plain containers; `stored` returns the bytes of a storage."""
    import io
    import pickle

    made = {}

    class Data(pickle.Unpickler):
        def find_class(self, module, name):
            if module == "torch" and name in STORAGES:
                return name
            if (module, name) not in ALLOWED:
                raise pickle.UnpicklingError(
                    f"Weights only load failed: the file asks for {module}.{name}, which is no data"
                )
            return ALLOWED[module, name]

        def persistent_load(self, place):
            _, kind, key, _, count = place
            if key not in made:
                dtype_name, code = STORAGES[kind]
                made[key] = Storage(dtype_name, _numbers(dtype_name, code, count, stored(key)))
            return made[key]

    return Data(io.BytesIO(pickled)).load()


def _numbers(dtype_name, code, count, data):
    """Return the numbers of a storage; those of bfloat16 are the first halves of float32's."""
    numbers = struct.unpack(f"<{count}{code}", data)
    if dtype_name == "bfloat16":
        words = struct.pack(f"<{count}I", *[number << 16 for number in numbers])
        numbers = struct.unpack(f"<{count}f", words)
    return numbers


def _tensor(storage, offset, shape, strides, requires_grad, hooks, metadata=None):
    return rebuild(storage, offset, tuple(shape), tuple(strides), requires_grad)


def _parameter(tensor, requires_grad, hooks):
    from .nn import Parameter

    return Parameter(tensor, requires_grad)


ALLOWED = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
}
