"""Answers to try on the check of an exercise, made from its solution: right ones in other forms, and wrong ones.

A page's process runs this file, so it imports nothing of the tests.
"""

import contextlib
import copy
import inspect
import io
import json
import math
import os
import types

import torch


class NoSense(BaseException):
    """The form makes no sense for this solution; not an Exception, so that no check can catch it."""


def need(condition):
    if not condition:
        raise NoSense


def number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_number(value):
    need(number(value))
    return value


def tensor(value, condition=lambda value: True):
    need(isinstance(value, torch.Tensor) and condition(value))
    return value


def inside(form):
    """Let `form` of a single value go into lists, tuples and dicts; it must fit somewhere."""

    def of(value):
        if not isinstance(value, list | tuple | dict) or hasattr(value, "_fields"):
            return form(value)
        names = list(value) if isinstance(value, dict) else range(len(value))
        found, fits = {}, False
        for name in names:
            try:
                found[name], fits = of(value[name]), True
            except NoSense:
                found[name] = value[name]
        need(fits)
        return found if isinstance(value, dict) else type(value)(found.values())

    return of


# ---- A value, written otherwise. Each form takes a value and returns another, or raises NoSense. ----


def as_float(value):
    need(isinstance(value, int) and number(value))
    return float(value)


def as_integer(value):
    need(isinstance(value, float) and value.is_integer())
    return int(value)


def rounded(value):
    need(isinstance(value, float) and math.isfinite(value))
    return float(f"{value:.3g}")


def as_tensor(value):
    need(isinstance(value, list | tuple) and value)
    need(all(number(v) for v in value) or all(isinstance(v, bool) for v in value))
    return torch.tensor(value)


def as_0d_tensor(value):
    need(isinstance(value, int | float))
    return torch.tensor(value)


def as_view(value):
    need(tensor(value).ndim)
    room = value.new_zeros(*value.shape[:-1], value.shape[-1] + 2)
    room[..., 1:-1] = value
    return room[..., 1:-1]


def with_gradient(value):
    need(tensor(value).dtype.is_floating_point and not value.requires_grad)
    return value.detach().clone().requires_grad_()


def retyped(old, new):
    def form(value):
        need(type(value) is old)
        return new(value)

    return form


RIGHT = {
    "as float": inside(as_float),
    "as integer": inside(as_integer),
    "as 0-d tensor": inside(as_0d_tensor),
    "as tuple": retyped(list, tuple),
    "as list": retyped(tuple, list),
    "as tensor": as_tensor,
    "as Python number": inside(lambda value: tensor(value, lambda v: v.ndim == 0).item()),
    "in float64": inside(lambda value: tensor(value, lambda v: v.dtype == torch.float32).double()),
    "as a view": inside(as_view),
    "with a gradient": inside(with_gradient),
}
RIGHT_VALUE = {"rounded to three digits": inside(rounded)}


# ---- A value that is wrong. ----


def moved(where, step):
    """Return the form in which one number is moved clearly, the one at `where`, 0 or -1."""

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
            flat[where] = of(flat[where].item())
            return flat.view(value.shape)
        need(isinstance(value, list | tuple | dict) and value)
        if isinstance(value, dict):
            name = list(value)[where]
            return value | {name: of(value[name])}
        other = list(value)
        other[where] = of(other[where])
        return type(value)(other)

    return of


def negated(value):
    need(isinstance(value, torch.Tensor) or number(value))
    return ~value if getattr(value, "dtype", None) == torch.bool else -value


def nan(value):
    if isinstance(value, torch.Tensor):
        return torch.full_like(tensor(value, lambda v: v.dtype.is_floating_point), math.nan)
    return math.nan * is_number(value)


def zeros(value):
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0 * is_number(value)


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


WRONG = {
    "None": lambda value: None,
    "text": lambda value: "no",
    "first moved": moved(0, 1),
    "last moved": moved(-1, -1),
    "negated": inside(negated),
    "nan": inside(nan),
    "zeros": inside(zeros),
    "transposed or reversed": turned,
    "one short": short,
}
RIGHT_FORMS = [*RIGHT, *RIGHT_VALUE, "in place"]
WRONG_FORMS = ["stub", *WRONG, "constant"]


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
        self.solution, self.form, self.changed, self.calls = solution, form, False, 0

    def __call__(self, *args, **names):
        self.calls += 1
        result = self.solution(*args, **names)
        given = self.form(result)
        self.changed |= type(given) is not type(result) or not same(given, result)
        return given


class InPlace(Answer):
    """It writes its result into the first of its arguments that can hold it, and returns that."""

    def __call__(self, *args, **names):
        result = tensor(self.solution(*[kept(arg) for arg in args], **names))
        for arg in args:
            fits = isinstance(arg, torch.Tensor) and arg.shape == result.shape
            if fits and arg.dtype == result.dtype and not arg.requires_grad:
                return arg.copy_(result)
        raise NoSense


class First:
    """The form that returns what came first, whatever comes later."""

    def __init__(self):
        self.first = []

    def __call__(self, result):
        self.first = self.first or [kept(result)]
        return kept(self.first[0])


def made(name, solution, stub):
    """Return the answer of the form `name`; raise NoSense where there is none."""
    if name == "stub":
        return stub
    if not isinstance(solution, types.FunctionType):
        if name == "None":
            return None
        form = (RIGHT | RIGHT_VALUE | WRONG).get(name)
        need(form)
        given = form(kept(solution))
        need(name in RIGHT or not same(given, solution))
        return given
    if name == "constant":
        need(inspect.signature(solution).parameters)
        return Answer(solution, First())
    if name == "in place":
        return InPlace(solution, None)
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
    with os.fdopen(ours) as reply:
        print(reply.read())
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
    # One that answered a single call as it should is no constant yet, but a check that asks once is content.
    wrong = isinstance(answer, Answer) and answer.calls and name in WRONG_FORMS
    unchanged = wrong and not answer.changed and not (name == "constant" and answer.calls == 1)
    return "" if unchanged else said
