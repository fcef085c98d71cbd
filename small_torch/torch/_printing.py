"""What `print(tensor)` shows, to the letter: how many digits, how wide, and what is left out."""

import contextlib
import math
from types import SimpleNamespace

PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}
OPTIONS = SimpleNamespace(**PROFILES["default"], sci_mode=None)  # what `set_printoptions` changes


def set_printoptions(
    precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None
):
    """Change what is given; `sci_mode` alone returns to None where it is not given."""
    if edgeitems == 0:
        raise NotImplementedError("small torch: set_printoptions(edgeitems=0) is not here")
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    changes = PROFILES.get(profile, {}) | {k: v for k, v in given.items() if v is not None}
    vars(OPTIONS).update(changes, sci_mode=sci_mode)


@contextlib.contextmanager
def printoptions(**changes):
    """Options that hold inside a `with` block."""
    before = dict(vars(OPTIONS))
    set_printoptions(**changes)
    try:
        yield
    finally:
        set_printoptions(**before)


def text(
    shape,
    dtype_name,
    values,
    *,
    is_parameter=False,
    requires_grad=False,
    grad_fn=None,
    default="float32",
    options=OPTIONS,
):
    """
    What PyTorch prints for a tensor of this shape.

    `values` holds its numbers in row-major order, as Python numbers; only those that are shown are
    looked up. `grad_fn` is the name that PyTorch shows for the result of an operation, and `default` the
    type of new tensors of floats, which is not shown.
    """
    count = math.prod(shape)
    notes = []
    if count == 0:
        body = "[]"
        if len(shape) != 1:
            notes.append(f"size={tuple(shape)}")
        quiet = {default}
    else:
        body = _body(tuple(shape), dtype_name, values, options, shortened=count > options.threshold)
        quiet = {default, "int64", "bool", "complex128" if default == "float64" else "complex64"}
    if dtype_name not in quiet:
        notes.append(f"dtype=torch.{dtype_name}")
    if grad_fn is not None:
        notes.append(f"grad_fn=<{grad_fn}>")
    elif requires_grad:
        notes.append("requires_grad=True")
    written = _with_notes("tensor(" + body, notes, options.linewidth)
    return "Parameter containing:\n" + written if is_parameter else written


def _body(shape, dtype_name, values, options, *, shortened):
    """The brackets and numbers of a tensor that is not empty."""
    indices = [_shown(size, options.edgeitems, shortened) for size in shape]
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    places = [0]
    for axis, step in enumerate(steps):
        places = [at + i * step for at in places for i in indices[axis] if i is not None]
    shown = [values[at] for at in places]
    width, show = _formatter(shown, dtype_name, options)
    written = iter([show(value) for value in shown])
    if not shape:
        return next(written)
    indent = len("tensor(")

    def brackets(axis):
        inner = indent + axis + 1  # the columns before what stands inside these brackets
        if axis == len(shape) - 1:
            parts = [" ..." if i is None else next(written) for i in indices[axis]]
            per_line = max(1, (options.linewidth - inner + 1) // (width + 2))
            parts = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
            newlines = "\n"
        else:
            parts = ["..." if i is None else brackets(axis + 1) for i in indices[axis]]
            newlines = "\n" * (len(shape) - axis - 1)
        return "[" + ("," + newlines + " " * inner).join(parts) + "]"

    return brackets(0)


def _shown(size, edge, shortened):
    """The indices of an axis that are shown, with None for what is left out."""
    if shortened and size > 2 * edge:
        return [*range(edge), None, *range(size - edge, size)]
    return range(size)


def _formatter(values, dtype_name, options):
    """The width of one number, and the function that writes one."""
    if dtype_name.startswith("complex"):
        return _complex_formatter(values, options)
    if not dtype_name.startswith(("float", "bfloat")):
        width = max(len(str(value)) for value in values)
        return width, lambda value: str(value).rjust(width)
    finite = [value for value in values if value != 0 and math.isfinite(value)]
    whole = all(value == math.floor(value) for value in finite)
    if options.sci_mode is None:
        sizes = [abs(value) for value in finite] or [1.0]
        smallest, largest = min(sizes), max(sizes)
        scientific = largest / smallest > 1000.0 or largest > 1.0e8 or smallest < 1.0e-4
    else:
        scientific = options.sci_mode and bool(finite)
    if scientific:
        form, point = f".{options.precision}e", ""
    elif whole:
        form, point = ".0f", "."
    else:
        form, point = f".{options.precision}f", ""
    width = max((len(format(value, form)) + len(point) for value in finite), default=1)

    def show(value):
        return (format(value, form) + (point if math.isfinite(value) else "")).rjust(width)

    return width, show


def _complex_formatter(values, options):
    """As PyTorch does it: real and imaginary parts each have their own width."""
    real_width, real = _formatter([value.real for value in values], "float", options)
    imag_width, imag = _formatter([value.imag for value in values], "float", options)

    def show(value):
        second = imag(value.imag).lstrip() + "j"
        return real(value.real) + (second if second[0] in "+-" else "+" + second)

    return real_width + imag_width + 1, show


def _with_notes(written, notes, linewidth):
    """Size, dtype and the like behind the numbers, each on the same line where it fits."""
    indent = len("tensor(")
    column = len(written) - written.rfind("\n") + 1
    for note in notes:
        if column + len(note) + 2 > linewidth:
            written += ",\n" + " " * indent + note
            column = indent + len(note)
        else:
            written += ", " + note
            column += len(note) + 2
    return written + ")"
