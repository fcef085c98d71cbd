"""How a function of torch is called: each argument is what PyTorch takes, or the call is refused by its name.

What a parameter takes is known by the parameter's name, the same in every function; `function` says where one differs.
"""

import functools
from difflib import get_close_matches

from torch._dtypes import bool_, dtype, float64, int64

FUNCTIONS = {}  # what torch has under these names


LACKS = "is not in the small torch of this page; open the page in Colab"


def lacks(what):
    """Return the error that says that PyTorch has this and the small torch has not."""
    return NotImplementedError(f"{what} {LACKS}")


def absent(where, module, places=None):
    """Return a module's `__getattr__`: what few pages ask for is found in its `places`, a module or `module:name`."""

    def get(name):
        if name.startswith("__"):
            raise AttributeError(name)
        import importlib

        if name in (places or ()):
            place, _, own = places[name].partition(":")
            found = importlib.import_module(place)
            module[name] = found = getattr(found, own) if own else found
            return found
        raise unknown(f"{where}.{name}", name, module)

    return get


def unknown(what, name, known):
    """Return the error for a name that is not here: a slip of the pen, or what PyTorch alone has."""
    near = get_close_matches(name, (each for each in known if each[0] != "_"), 1, 0.75)
    meant = f"; did you mean {near[0]}? Otherwise" if near else ";"
    return AttributeError(
        f"{what} is not in the small torch of this page{meant} open the page in Colab"
    )


class Kind:
    """What a parameter takes: what PyTorch calls it, its types, and what of other types is let through."""

    def __init__(self, title, types, also=lambda value: False):
        self.title, self.types, self.also = title, set(types), also


def _is_tensor(value):
    return hasattr(value, "_storage")


def _is_whole(value):
    if hasattr(value, "_storage"):
        return value.numel() == 1 and value.dtype.kind == 1
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _are_whole(value):
    return _is_whole(value) or (isinstance(value, list | tuple) and all(map(_is_whole, value)))


NUMBERS = (int, float, bool, complex)
TENSOR = Kind("Tensor", (), _is_tensor)
OPERAND = Kind("Tensor", NUMBERS, lambda value: _is_tensor(value) or hasattr(value, "__float__"))
NUMBER = Kind("Number", NUMBERS, lambda value: _is_tensor(value) and not value._shape)
WHOLE = Kind("int", (int,), _is_whole)
SIZES = Kind("tuple of ints", (int,), _are_whole)
FLAG = Kind("bool", (bool,))
TEXT = Kind("str", (str,))
TENSORS = Kind("tuple of Tensors", (tuple, list))
ANYTHING = None
DTYPE = Kind("torch.dtype", (dtype,), lambda value: value in PLAIN)
PLAIN = {float: float64, int: int64, bool: bool_}  # what stands for a dtype
PARAMETERS = {
    name: kind
    for kind, names in (
        (TENSOR, "input mask index indices src self tensor1 tensor2 mat1 mat2 mat vec vec2 condition x1 x2 attn_mask query key"),
        (OPERAND, "other exponent"),
        (NUMBER, "alpha beta value nan posinf neginf rtol atol eps negative_slope label_smoothing fill_value"),
        (WHOLE, "dim0 dim1 dim2 diagonal offset k n start_dim end_dim decimals num_samples chunks minlength num_classes ignore_index padding_idx row col"),
        (SIZES, "dim dims shifts normalized_shape split_size"),
        (FLAG, "keepdim largest sorted descending stable equal_nan replacement training is_causal unbiased requires_grad"),
        (TEXT, "reduction approximate mode indexing rounding_mode equation"),
        (TENSORS, "tensors"),
        (DTYPE, "dtype"),
    )
    for name in names.split()
}  # fmt: skip
ALIASES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "self": "input", "x2": "other"}
SEQUENCE = (
    "size",
    "sizes",
    "shape",
    "dims",
    "repeats",
)  # what may also be given as several numbers
# What functions of PyTorch take, and none here.
LACKING = {
    "out",
    "names",
    "generator",
    "size_average",
    "reduce",
    "sparse",
    "sparse_grad",
    "max_norm",
}


class Signature:
    """The parameters of a function of torch, and what each takes."""

    def __init__(self, name, it, kinds):
        code, defaults = it.__code__, it.__defaults__ or ()
        self.name, self.whole, self.several = name, code.co_argcount, bool(code.co_flags & 4)
        self.names = code.co_varnames[: self.whole + code.co_kwonlyargcount]
        given = dict(
            zip(self.names[self.whole - len(defaults) : self.whole], defaults, strict=True)
        )
        given |= it.__kwdefaults__ or {}
        self.takes = {each: kinds.get(each, PARAMETERS.get(each)) for each in self.names}
        for each, kind in self.takes.items():
            if kind and given.get(each, 0) in (None, ...):
                self.takes[each] = Kind(kind.title, {*kind.types, type(None)}, kind.also)
        self.in_order = [self.takes[each] for each in self.names[: self.whole]]

    def check(self, parameter, value):
        """Refuse what this parameter does not take; `value` is not of its plain types."""
        kind = self.takes[parameter]
        if not kind.also(value):
            place = self.names.index(parameter) + 1
            where = f"(position {place}) " if place <= self.whole else ""
            raise TypeError(
                f"{self.name}(): argument '{parameter}' {where}must be {kind.title}, not {type(value).__name__}"
            )
        if kind.title == "Tensor":
            kind.types.add(type(value))

    def by_name(self, args, kwargs):
        """Return the arguments, each keyword under the name that the function has for it."""
        for parameter in [*kwargs]:
            if parameter in self.takes:
                kind, value = self.takes[parameter], kwargs[parameter]
                if kind and type(value) not in kind.types:
                    self.check(parameter, value)
                    if kind.title == DTYPE.title:
                        kwargs[parameter] = PLAIN[value]
                continue
            same = ALIASES.get(parameter, parameter)
            if same == "input" and self.names[:1] == ("self",):
                same = "self"
            if same in self.takes and same not in kwargs:
                kwargs[same] = kwargs.pop(parameter)
                return self.by_name(args, kwargs)
            if self.several and parameter in SEQUENCE and len(args) <= self.whole:
                before = [
                    kwargs.pop(each)
                    for each in self.names[len(args) : self.whole]
                    if each in kwargs
                ]
                args = (*args, *before, kwargs.pop(parameter))
            elif parameter in LACKING:
                raise lacks(f"{self.name}({parameter}=)")
        return args, kwargs


def checked(name, it, **kinds):
    """Return `it` as a function of torch that refuses what PyTorch refuses."""
    signature = Signature(name, it, kinds)
    in_order, names, check = signature.in_order, signature.names, signature.check
    it.__name__ = it.__qualname__ = name

    @functools.wraps(it)
    def call(*args, **kwargs):
        for value, kind, parameter in zip(args, in_order, names):  # noqa: B905 - the last may be left out
            if kind and type(value) not in kind.types:
                check(parameter, value)
        if kwargs:
            args, kwargs = signature.by_name(args, kwargs)
        return it(*args, **kwargs)

    return call
