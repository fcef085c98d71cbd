"""Tensors of random numbers."""

import small_torch_random  # made by random.js, and known to Python under this name

from torch import _random
from torch._dtypes import float32, float64, int64
from torch._random import Generator
from torch._tensor import (
    FUNCTIONS,
    Defaults,
    Tensor,
    check_in_place,
    empty_of,
    function,
    like_rows,
    method,
    placed,
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


def _new(shape, dtype, requires_grad, what, generator, *arguments):
    made = _drawn(empty_of(shape, dtype), what, generator, *arguments)
    if requires_grad:
        made.requires_grad_()
    return made


def rand(*size, generator=None, dtype=None, requires_grad=False, **_):
    return _new(
        shape_of(size), dtype or Defaults.dtype, requires_grad, "uniform", generator, 0.0, 1.0
    )


def randn(*size, generator=None, dtype=None, requires_grad=False, **_):
    return _new(
        shape_of(size), dtype or Defaults.dtype, requires_grad, "normal", generator, 0.0, 1.0
    )


def rand_like(input, *, dtype=None, requires_grad=False, **_):
    return rand(input._shape, dtype=dtype or input.dtype, requires_grad=requires_grad)


def randn_like(input, *, dtype=None, requires_grad=False, **_):
    return randn(input._shape, dtype=dtype or input.dtype, requires_grad=requires_grad)


def randint(low, high=None, size=None, *, generator=None, dtype=None, requires_grad=False, **_):
    if size is None:
        low, high, size = 0, low, high
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    return _new(
        shape_of((size,)), dtype or int64, requires_grad, "integers", generator, int(low), int(high)
    )


def randperm(n, *, generator=None, dtype=None, **_):
    return _new((n,), dtype or int64, False, "permutation", generator)


def normal(mean=0.0, std=1.0, size=None, *, generator=None, **_):
    if size is None:
        shape = (mean * std)._shape if isinstance(mean, Tensor) or isinstance(std, Tensor) else ()
        return randn(shape, generator=generator) * std + mean
    return _new(
        shape_of((size,)), Defaults.dtype, False, "normal", generator, float(mean), float(std)
    )


def _filled(what, tensor, generator, *arguments):
    check_in_place(tensor)
    if what in ("uniform", "normal", "exponential") and not tensor.is_floating_point():
        kind = tensor._kind_name().removesuffix("Tensor")
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
def uniform_(self, from_=0.0, to=1.0, *, generator=None, **kwargs):
    return _filled("uniform", self, generator, float(kwargs.get("a", from_)), float(to))


@method
def normal_(self, mean=0.0, std=1.0, *, generator=None):
    return _filled("normal", self, generator, float(mean), float(std))


@method
def exponential_(self, lambd=1.0, *, generator=None):
    return _filled("exponential", self, generator, float(lambd))


@method
def bernoulli_(self, p=0.5, *, generator=None):
    if isinstance(p, Tensor):
        return self.copy_(bernoulli(p, generator=generator))
    return _filled("bernoulli", self, generator, float(p))


@method
def random_(self, from_=0, to=None, *, generator=None):
    low, high = (0, from_) if to is None else (from_, to)
    return _filled("integers", self, generator, int(low), int(high or 2**24))


@function("bernoulli")
def bernoulli(input, p=None, *, generator=None):
    if p is not None:
        return _drawn(empty_of(input._shape, input.dtype), "bernoulli", generator, float(p))
    draws = _drawn(
        empty_of(input._shape, float64 if input.dtype is float64 else float32),
        "uniform",
        generator,
        0.0,
        1.0,
    )
    return (draws < input.detach()).to(input.dtype)


@function("multinomial")
def multinomial(input, num_samples, replacement=False, *, generator=None):
    weights = input.detach()
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


for _maker in (rand, randn, rand_like, randn_like, randint, randperm, normal, manual_seed, initial_seed, seed,
               get_rng_state, set_rng_state):  # fmt: skip
    FUNCTIONS[_maker.__name__] = placed(_maker)
