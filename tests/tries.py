"""Answers to try on the check of an exercise, made from its solution: right ones in other forms, and wrong ones.

A page's process runs this file, so it imports nothing of the tests.
"""

import contextlib
import copy
import functools
import inspect
import io
import json
import math
import os
import types

import torch


class NoSense(BaseException):
    """The form makes no sense for this solution; not an Exception, so that no check can catch it."""


# ---- A value, written otherwise. Each form takes a value and returns another, or raises NoSense. ----


def number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def inside(form):
    """Let `form` of a single value go into lists, tuples and dicts; it must fit somewhere."""

    def of(value):
        if isinstance(value, list | tuple | dict) and not hasattr(value, "_fields"):
            names = list(value) if isinstance(value, dict) else range(len(value))
            found, fits = {}, False
            for name in names:
                try:
                    found[name], fits = of(value[name]), True
                except NoSense:
                    found[name] = value[name]
            if not fits:
                raise NoSense
            return found if isinstance(value, dict) else type(value)(found.values())
        return form(value)

    return of


def tensor_form(form):
    """Let `form` of a tensor go into lists, tuples and dicts."""

    def of(value):
        if not isinstance(value, torch.Tensor):
            raise NoSense
        return form(value)

    return inside(of)


def need(condition):
    if not condition:
        raise NoSense


def as_float(value):
    need(isinstance(value, int) and number(value))
    return float(value)


def as_scalar_tensor(value):
    need(isinstance(value, int | float))
    return torch.tensor(value)


def as_float64_scalar(value):
    need(number(value))
    return torch.tensor(value, dtype=torch.float64)


def as_integer(value):
    need(isinstance(value, float) and value.is_integer())
    return int(value)


def rounded(value):
    need(isinstance(value, float) and math.isfinite(value))
    return float(f"{value:.3g}")


def as_tuple(value):
    need(type(value) is list)
    return tuple(value)


def as_list(value):
    need(type(value) is tuple)
    return list(value)


def as_tensor(value):
    need(isinstance(value, list | tuple) and value)
    need(all(number(v) for v in value) or all(isinstance(v, bool) for v in value))
    return torch.tensor(value)


def as_python_number(value):
    need(isinstance(value, torch.Tensor) and value.ndim == 0)
    return value.item()


def with_gradient(tensor):
    need(tensor.dtype.is_floating_point and not tensor.requires_grad)
    return tensor.detach().clone().requires_grad_()


def in_float64(tensor):
    need(tensor.dtype == torch.float32)
    return tensor.double()


def as_view(tensor):
    need(tensor.ndim)
    room = tensor.new_zeros(*tensor.shape[:-1], tensor.shape[-1] + 2)
    room[..., 1:-1] = tensor
    return room[..., 1:-1]


def not_contiguous(tensor):
    need(tensor.ndim > 1)
    return tensor.mT.contiguous().mT


RIGHT = {
    "as float": inside(as_float),
    "as integer": inside(as_integer),
    "as 0-d tensor": inside(as_scalar_tensor),
    "as 0-d float64 tensor": inside(as_float64_scalar),
    "as tuple": as_tuple,
    "as list": as_list,
    "as tensor": as_tensor,
    "as Python number": inside(as_python_number),
    "in float64": tensor_form(in_float64),
    "as a view": tensor_form(as_view),
    "not contiguous": tensor_form(not_contiguous),
    "with a gradient": tensor_form(with_gradient),
}
RIGHT_VALUE = {"rounded to three digits": inside(rounded)}


# ---- A value that is wrong. ----


def moved(where, step):
    """Return the form in which one number is moved clearly, the one at `where`, from 0 to 1."""

    def of(value):
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + step
        if isinstance(value, float):
            return value + step * (1 + abs(value)) if math.isfinite(value) else 0.0
        if isinstance(value, str):
            return value[::-1] + "x"
        if isinstance(value, torch.Tensor):
            need(value.numel())
            flat = value.detach().clone().flatten()
            place = min(int(where * len(flat)), len(flat) - 1)
            one = of(flat[place].item())
            flat[place] = one
            return flat.view(value.shape)
        if isinstance(value, list | tuple):
            need(value)
            place = min(int(where * len(value)), len(value) - 1)
            return type(value)([*value[:place], of(value[place]), *value[place + 1 :]])
        if isinstance(value, dict):
            need(value)
            name = list(value)[min(int(where * len(value)), len(value) - 1)]
            return value | {name: of(value[name])}
        raise NoSense

    return of


def negated(value):
    need(isinstance(value, torch.Tensor) or number(value))
    return ~value if getattr(value, "dtype", None) == torch.bool else -value


def nan(value):
    if isinstance(value, torch.Tensor):
        need(value.dtype.is_floating_point)
        return torch.full_like(value, math.nan)
    need(number(value))
    return math.nan


def zeros(value):
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    need(number(value))
    return type(value)(0)


def turned(value):
    if isinstance(value, torch.Tensor):
        need(value.ndim)
        return value.mT if value.ndim > 1 else value.flip(0)
    need(isinstance(value, list | tuple))
    return type(value)(value[::-1])


def short(value):
    need(isinstance(value, list | tuple | torch.Tensor) and getattr(value, "ndim", 1))
    need(len(value))
    return value[:-1]


def flat(value):
    need(isinstance(value, torch.Tensor) and value.ndim > 1)
    return value.flatten()


def one_too_many(value):
    if isinstance(value, torch.Tensor):
        need(value.ndim)
        return torch.cat([value, value[-1:]])
    need(isinstance(value, list | tuple) and value)
    return type(value)([*value, value[-1]])


WRONG = {
    "None": lambda value: None,
    "text": lambda value: "no",
    "first moved": moved(0, 1),
    "middle moved": moved(0.5, 1),
    "last moved": moved(1, -1),
    "negated": inside(negated),
    "nan": inside(nan),
    "zeros": inside(zeros),
    "transposed or reversed": turned,
    "one short": short,
    "one too many": one_too_many,
    "flattened": flat,
}


def same(one, other):
    """Say whether two values are the same number by number, of whatever type."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape:
            return False
        return torch.equal(torch.nan_to_num(one.double()), torch.nan_to_num(other.double()))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    try:
        return bool(one == other)
    except Exception:
        return one is other


def kept(value):
    """Return `value` so that a check cannot change it: tensors copied, containers too."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple):
        return type(value)([kept(v) for v in value])
    return copy.copy(value) if isinstance(value, dict) else value


class Answer:
    """A function that answers as the solution does, in another form; `changed` says if that differs."""

    def __init__(self, solution, form):
        self.solution, self.form, self.changed = solution, form, False

    def __call__(self, *args, **names):
        result = self.solution(*args, **names)
        given = self.form(result)
        self.changed |= type(given) is not type(result) or not same(given, result)
        return given


class InPlace(Answer):
    """It writes its result into the first of its arguments that can hold it, and returns that."""

    def __call__(self, *args, **names):
        result = self.solution(*[kept(arg) for arg in args], **names)
        need(isinstance(result, torch.Tensor))
        for arg in args:
            fits = isinstance(arg, torch.Tensor) and arg.shape == result.shape
            if fits and arg.dtype == result.dtype and not arg.requires_grad:
                given = arg.copy_(self.form(result))
                self.changed |= not same(given, result)
                return given
        raise NoSense


class HandsBack(Answer):
    """It hands back the first of its arguments that has the shape of the result."""

    def __call__(self, *args, **names):
        result = self.solution(*args, **names)
        need(isinstance(result, torch.Tensor))
        for arg in args:
            if isinstance(arg, torch.Tensor) and arg.shape == result.shape:
                self.changed |= not same(arg, result)
                return arg
        raise NoSense


class Constant(Answer):
    """It returns what it returned first, whatever its arguments are later."""

    def __init__(self, solution):
        self.solution, self.results, self.calls = solution, [], 0

    def __call__(self, *args, **names):
        self.calls += 1
        self.results.append(kept(self.solution(*args, **names)))
        return kept(self.results[0])

    @property
    def changed(self):
        return self.calls == 1 or not all(same(self.results[0], r) for r in self.results)


class Ignores(Answer):
    """It takes one of its arguments for what that was in the first call."""

    def __init__(self, solution, place):
        self.solution, self.place = solution, place
        self.calls, self.varied, self.differs = 0, False, False

    def __call__(self, *args, **names):
        need(len(args) > self.place and len(args) > 1)
        if not self.calls:
            self.first = kept(args[self.place])
        self.calls += 1
        if same(self.first, args[self.place]):
            return self.solution(*args, **names)
        self.varied = True
        args = [kept(arg) for arg in args]
        right = self.solution(*args, **names)
        args[self.place] = kept(self.first)
        try:
            given = self.solution(*args, **names)
        except Exception:
            raise NoSense from None  # the two arguments no longer fit together
        self.differs |= not same(given, right)
        return given

    @property
    def changed(self):
        """Once called, it is the constant; and where the argument changes nothing, it is right."""
        return self.calls > 1 and (self.differs or not self.varied)


RIGHT_FORMS = [*RIGHT, *RIGHT_VALUE, "as a partial", "in place"]
WRONG_FORMS = [
    *("stub", *WRONG, "zeros in place", "hands its argument back", "constant"),
    *(f"ignores argument {n}" for n in range(1, 5)),
]


def made(name, solution, stub):
    """Return the answer of the form `name`; raise NoSense where there is none."""
    if name == "stub":
        return stub
    if not isinstance(solution, types.FunctionType):
        if name == "None":
            return None
        form = (RIGHT | RIGHT_VALUE | WRONG).get(name)
        need(form and not (number(solution) and name == "middle moved"))
        given = form(kept(solution))
        need(name in RIGHT or not same(given, solution))
        return given
    if name.startswith("ignores"):
        return Ignores(solution, int(name.split()[-1]) - 1)
    if name == "as a partial":
        return functools.partial(solution)
    if name == "constant":
        need(inspect.signature(solution).parameters)
        return Constant(solution)
    if name == "in place":
        return InPlace(solution, lambda result: result)
    if name == "zeros in place":
        return InPlace(solution, torch.zeros_like)
    if name == "hands its argument back":
        return HandsBack(solution, None)
    form = (RIGHT | WRONG).get(name)
    need(form)
    return Answer(solution, form)


def judged(check, answer, number):
    """Return what `check` says to `answer`: "right", "refused: …", or how it went wrong."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            check(answer)
    except AssertionError as refusal:
        return f"refused: {refusal}" if str(refusal) else "refused without a reason"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    return "right" if said.getvalue().endswith(f"Exercise {number}: right\n") else "said nothing"


def attempt(number, name, names, stub, code=""):
    """Print, as JSON, what the check says to one answer; "" where its form makes no sense.

    `names` are those of the page. By `code` the page's names make an `answer` by hand.
    """
    if not hasattr(os, "fork"):
        print(json.dumps(tried(number, name, names, stub, code)))
        return
    ours, theirs = os.pipe()
    if not (child := os.fork()):  # what an answer changes, no other one meets
        try:
            torch.set_num_threads(1)
            text = json.dumps(tried(number, name, names, stub, code))
        except BaseException as error:
            text = json.dumps(f"{type(error).__name__}: {error}")
        os.write(theirs, text.encode()[:4000])
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as told:
        print(told.read())
    os.waitpid(child, 0)


def tried(number, name, names, stub, code):
    check, solution = names[f"check_{number}"], names[f"answer_{number}"]
    if code:
        own = dict(names)
        exec(code, own)
        return judged(check, own["answer"], number)
    try:
        answer = made(name, solution, stub)
        said = judged(check, answer, number)
    except NoSense:
        return ""
    tried_on = isinstance(answer, Answer) and getattr(answer, "calls", 1)
    return "" if tried_on and name in WRONG_FORMS and not answer.changed else said
