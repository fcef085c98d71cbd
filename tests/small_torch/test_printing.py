"""The small torch prints a tensor as PyTorch does."""

import random

import pytest
import torch

from tests.small_torch import module

_printing = module("_printing")

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
]
SHAPES = [(), (1,), (3,), (30,), (1100,), (2, 3), (3, 1, 4), (40, 40), (2, 2, 3, 2), (7, 20, 9)]
SHAPES += [(0,), (0, 3), (2, 0, 2), (1001, 1), (1, 200), (12, 1, 1, 90)]
OPTIONS = [
    {},
    {"precision": 2, "sci_mode": False},
    {"precision": 2},
    {"precision": 3, "sci_mode": True},
    {"precision": 1, "sci_mode": False, "linewidth": 120},
    {"threshold": 5, "edgeitems": 1},
    {"profile": "short"},
    {"profile": "full", "linewidth": 40},
]


def numbers(chance, shape, dtype):
    """A tensor of a kind that changes how numbers are written: whole, tiny, huge, with nan or inf."""
    torch.manual_seed(chance.randrange(10**6))
    kind = chance.choice(["even", "whole", "wide", "tiny", "huge", "zero", "special"])
    x = torch.randn(shape, dtype=torch.float64)
    x = {
        "even": x,
        "whole": (x * 30).round(),
        "wide": x.sign() * 10 ** (3 * x),
        "tiny": x * 1e-6,
        "huge": x * 1e9,
        "zero": x * 0,
        "special": x.masked_fill(x > 0.8, torch.nan).masked_fill(x < -0.8, -torch.inf),
    }[kind]
    if dtype.is_complex:
        return torch.complex(x, x.flip(0) if x.dim() else -x).to(dtype)
    if not dtype.is_floating_point:
        x = x.nan_to_num(0, 0, 0).clamp(-(2**31), 2**31 - 1).round()
        return x.abs().clamp(max=255).to(dtype) if dtype is torch.uint8 else x.to(dtype)
    return x.to(dtype)


def ours(x, **more):
    name = str(x.dtype).removeprefix("torch.")
    return _printing.text(tuple(x.shape), name, x.detach().flatten().tolist(), **more)


@pytest.fixture(params=OPTIONS, ids=str)
def options(request):
    torch.set_printoptions(profile="default")
    _printing.set_printoptions(profile="default")
    torch.set_printoptions(**request.param)
    _printing.set_printoptions(**request.param)
    yield
    torch.set_printoptions(profile="default")
    _printing.set_printoptions(profile="default")


@pytest.mark.usefixtures("options")
def test_a_tensor_is_printed_as_pytorch_prints_it():
    chance = random.Random(0)
    for shape in SHAPES:
        for dtype in DTYPES:
            x = numbers(chance, shape, dtype)
            assert ours(x) == str(x)


def test_what_stands_behind_the_numbers_is_pytorchs_too():
    for count in range(1, 40):
        x = torch.rand(count, dtype=torch.float64, requires_grad=True)
        assert ours(x, requires_grad=True) == str(x)
        assert ours(x, grad_fn="MulBackward0") == str(x * 1)
    parameter = torch.nn.Parameter(torch.rand(2, 3))
    assert ours(parameter, is_parameter=True, requires_grad=True) == repr(parameter)


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_the_type_of_new_tensors_is_not_shown(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for dtype in DTYPES:
            for shape in ((), (2,), (0,)):
                x = torch.ones(shape, dtype=dtype)
                assert ours(x, default=str(default).removeprefix("torch.")) == str(x)
    finally:
        torch.set_default_dtype(before)


def test_options_hold_inside_their_block_alone():
    before = ours(torch.ones(2) / 3)
    with _printing.printoptions(precision=1):
        assert ours(torch.ones(2) / 3) == "tensor([0.3, 0.3])"
    assert ours(torch.ones(2) / 3) == before


@pytest.mark.parametrize(
    "values", [[1.5, 1500.0], [1.5, 1500.5], [1e8, 0.5e8], [1.1e8, 1e8], [1e-4, 0.09], [9e-5, 0.01]]
)
def test_powers_of_ten_begin_where_pytorchs_do(values):
    x = torch.tensor(values, dtype=torch.float64)
    assert ours(x) == str(x)
