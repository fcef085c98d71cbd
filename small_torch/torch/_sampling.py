"""Tensors of random numbers."""

import small_torch_random  # made by random.js, and known to Python under this name

from torch import _random
from torch._autograd import record
from torch._dtypes import float32, float64, int64
from torch._random import Generator
from torch._tensor import (
    FUNCTIONS,
    Defaults,
    Tensor,
    check_in_place,
    checked_sizes,
    empty_of,
    function,
    like_rows,
    makes,
    method,
    refuse_overflow,
    run,
    shape_of,
)

_random.streams = small_torch_random
default_generator = Generator()


def manual_seed(seed):
    return default_generator.manual_seed(int(seed))


def _drawn(made, what, generator, *arguments):
    """Fill a tensor whose numbers lie row by row."""
    count = made.numel()
    if count and not made._storage.meta:
        (generator or default_generator).draw(
            what, made.dtype.code, made._storage.base + made._offset, count, *arguments
        )
        if made.dtype.name in ("bfloat16", "float16"):
            run("copy", made, made)
    return made


def _new(shape, dtype, what, generator, *arguments):
    if dtype.kind < 2 and (what == "uniform" or (what == "normal" and 0 not in shape)):
        kernel = {"uniform": "check_uniform_bounds", "normal": "normal_kernel_cpu"}[what]
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtype.scalar}'")
    return _drawn(empty_of(checked_sizes(shape), dtype), what, generator, *arguments)


@makes
def rand(*size, generator=None, dtype=None):
    return _new(shape_of(size), dtype or Defaults.dtype, "uniform", generator, 0.0, 1.0)


@makes
def randn(*size, generator=None, dtype=None):
    return _new(shape_of(size), dtype or Defaults.dtype, "normal", generator, 0.0, 1.0)


@makes
def rand_like(input, *, dtype=None):
    return rand(input._shape, dtype=dtype or input.dtype)


@makes
def randn_like(input, *, dtype=None):
    return randn(input._shape, dtype=dtype or input.dtype)


@makes
def randint(low, high=None, size=None, *, generator=None, dtype=None):
    if size is None:
        low, high, size = 0, low, high
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    kind = dtype or int64
    if kind is int64:
        refuse_overflow(kind, [low, high - 1])
    for name, bound in (("from", low), ("to - 1", high - 1)):
        if (kind.kind == 1 and not kind.least <= bound <= kind.most) or (
            kind.name == "bool" and bound > 1
        ):
            raise RuntimeError(f"{name} is out of bounds for {kind.c_name}")
    return _new(shape_of((size,)), kind, "integers", generator, int(low), int(high))


@makes
def randint_like(input, low, high=None, *, dtype=None):
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, input._shape, dtype=dtype or input.dtype)


@makes
def randperm(n, *, generator=None, dtype=None):
    return _new((n,), dtype or int64, "permutation", generator)


@makes
def normal(mean=0.0, std=1.0, size=None, *, generator=None):
    if size is None:
        shape = (mean * std)._shape if isinstance(mean, Tensor) or isinstance(std, Tensor) else ()
        return randn(shape, generator=generator) * std + mean
    return _new(shape_of((size,)), Defaults.dtype, "normal", generator, float(mean), float(std))


def _filled(what, tensor, generator, *arguments):
    check_in_place(tensor)
    if what in ("uniform", "normal", "exponential") and not tensor.is_floating_point():
        kind = tensor.dtype.scalar
        raise NotImplementedError(f"\"{what}_kernel_cpu\" not implemented for '{kind}'")
    in_order = tensor.is_contiguous() or (
        what == "bernoulli" and tensor._stride == like_rows(tensor)
    )
    if in_order:  # of a tensor in columns, the mask of a dropout too is drawn as it lies in memory
        _drawn(tensor, what, generator, *arguments)
    else:
        run(
            "copy",
            tensor,
            _drawn(empty_of(tensor._shape, tensor.dtype), what, generator, *arguments),
        )
    tensor._storage.version += 1
    return tensor


@method
def uniform_(self, from_=0.0, to=1.0, *, generator=None):
    if from_ > to:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}"
        )
    return _filled("uniform", self, generator, float(from_), float(to))


@method
def normal_(self, mean=0.0, std=1.0, *, generator=None):
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return _filled("normal", self, generator, float(mean), float(std))


@method
def exponential_(self, lambd=1.0, *, generator=None):
    return _filled("exponential", self, generator, float(lambd))


@method
def bernoulli_(self, p=0.5, *, generator=None):
    if isinstance(p, Tensor):
        return self.copy_(bernoulli(p, generator=generator))
    _share(p)
    return _filled("bernoulli", self, generator, float(p))


@method
def random_(self, from_=0, to=None, *, generator=None):
    low, high = (0, from_) if to is None else (from_, to)
    return _filled("integers", self, generator, int(low), int(high or 2**24))


def _share(p):
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")


@function("bernoulli")
def bernoulli(input, p=None, *, generator=None):
    if p is not None:
        _share(p)
        return _drawn(empty_of(input._shape, input.dtype), "bernoulli", generator, float(p))
    if input.dtype.kind < 2:
        raise NotImplementedError(
            f"\"bernoulli_tensor_cpu_p_\" not implemented for '{input.dtype.scalar}'"
        )
    if not bool(((input >= 0) & (input <= 1)).all()):
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    kind = float64 if input.dtype is float64 else float32
    draws = _drawn(empty_of(input._shape, kind), "uniform", generator, 0.0, 1.0)
    found = (draws < input.detach()).to(input.dtype)
    return record(found, "BernoulliBackward0", (input,), lambda g: g * 0)


@function("multinomial")
def multinomial(input, num_samples, replacement=False, *, generator=None):
    weights = input.detach()
    if weights.dtype.kind < 2:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {weights.dtype.scalar}"
        )
    if weights.dim() not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if bool((weights < 0).any()) or not bool(weights.isfinite().all()):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not replacement and num_samples > weights.size(-1):
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    if bool((weights.sum(dim=-1) <= 0).any()):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if not replacement or num_samples == 1:
        draws = _drawn(empty_of(weights._shape, weights.dtype), "exponential", generator, 1.0)
        ratio = weights / draws
        return (
            ratio.argmax(dim=-1, keepdim=True) if num_samples == 1 else ratio.topk(num_samples)[1]
        )
    upto = weights.double().cumsum(-1)
    upto = upto / upto[..., -1:]
    draws = _drawn(
        empty_of((*weights._shape[:-1], num_samples), float64), "uniform", generator, 0.0, 1.0
    )
    return FUNCTIONS["searchsorted"](upto, draws).clamp(max=weights.size(-1) - 1)


def get_rng_state():
    return default_generator.get_state()


def set_rng_state(state):
    default_generator.set_state(state)


def initial_seed():
    return default_generator.initial_seed()


def seed():
    return default_generator.seed()


for _setting in (manual_seed, initial_seed, seed, get_rng_state, set_rng_state):
    FUNCTIONS[_setting.__name__] = _setting
