"""A simulated processor is fair, finds claims without a margin, and the book holds on one.

`make shake` asks it of twenty.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from processor import Processor
from tests.pages import RUNNING, each
from tools import shake

pytest_plugins = ["pytester"]
SEEDS = range(20)


def drawn(*shape, dtype=torch.float32):
    """Return normal numbers of the given shape, the same in each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def returned(work, seed=0):
    """Return what `work` does on the simulated processor of that number."""
    with Processor(seed):
        return work()


def causal(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def gradient(function, *shape):
    """Return the gradient of the summed squares of `function` at normal numbers."""
    x = drawn(*shape).requires_grad_()
    function(x).square().sum().backward()
    return x.grad


def stepped(optimizer, **options):
    """Return a parameter after two steps of an optimizer with the gradient that it has itself."""
    parameter = nn.Parameter(drawn(8))
    steps = optimizer([parameter], lr=0.1, **options)
    for _ in range(2):
        parameter.grad = parameter.detach().clone()
        steps.step()
    return parameter.detach()


x, w, v = drawn(6, 8), drawn(8, 8) / 3, drawn(8)
batch, repeated = drawn(2, 6, 8), torch.ones(3, dtype=torch.long)
ROUNDS = {
    "mm": lambda: x @ w,
    "bmm": lambda: batch @ batch.mT,
    "linear": lambda: F.linear(x, w, v),
    "einsum": lambda: torch.einsum("btc,bsc->bts", batch, batch),
    "sum": lambda: x.sum(),
    "cumsum": lambda: x.cumsum(-1),
    "norm": lambda: x.norm(dim=-1),
    "softmax": lambda: x.softmax(-1),
    "logsumexp": lambda: x.logsumexp(-1),
    "cross_entropy": lambda: F.cross_entropy(x, torch.arange(6)),
    "exp": lambda: x.exp(),
    "tanh": lambda: x.tanh(),
    "pow": lambda: x.abs() ** 1.7,
    "normal draws": lambda: torch.randn(16),
    "gelu": lambda: F.gelu(x),
    "backward of softplus": lambda: gradient(F.softplus, 6, 8),
    "layer_norm": lambda: F.layer_norm(x, (8,)),
    "inverse": lambda: torch.linalg.inv(w + torch.eye(8)),
    "alpha": lambda: torch.add(x, x.flip(0), alpha=0.1),
    "attention": lambda: F.scaled_dot_product_attention(batch, batch, batch),
    "backward of a product": lambda: gradient(lambda x: x @ w, 6, 8),
    "backward of attention": lambda: gradient(causal, 1, 1, 6, 8),
    "backward of an embedding": lambda: gradient(lambda x: F.embedding(repeated, x), 6, 8),
    "Adam": lambda: stepped(torch.optim.Adam),
}


@pytest.mark.parametrize("work", ROUNDS.values(), ids=ROUNDS)
def test_what_rounds_is_known_and_returns_something_else_and_nearly_the_same(work):
    torch.manual_seed(1)
    bare, others = work(), []
    for seed in range(5):
        torch.manual_seed(1)
        with Processor(seed) as simulated:
            others.append(work())
        assert not simulated.unknown
        torch.testing.assert_close(others[-1], bare, rtol=1e-5, atol=1e-5)
    assert not all(torch.equal(other, bare) for other in others)


whole = torch.arange(-24.0, 24.0).view(6, 8)
one_hot = torch.eye(8)[torch.tensor([3, 1, 4, 1, 5, 7])]
EXACT = {
    "moved data": lambda: torch.cat([x.T.reshape(8, 6)[2:], x.view(8, 6)]).flip(0).contiguous(),
    "IEEE arithmetic": lambda: ((x + 0.1) * x.flip(0) - x / 3).abs().sqrt(),
    "uniform draws": lambda: torch.rand(16, generator=torch.Generator().manual_seed(0)),
    "dropout": lambda: F.dropout(x, 0.5, torch.manual_seed(0) is None),
    "one term": lambda: one_hot @ w,
    "the sum of two": lambda: x[:2].sum(0),
    "two halves": lambda: torch.tensor([[0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]]) @ w,
    "whole products": lambda: whole @ whole.T,
    "short products": lambda: (whole / 16) @ (whole / 4).T + 0.5,
    "whole sums": lambda: whole.sum(-1),
    "softmax of one": lambda: torch.tensor([[0.3, -torch.inf], [500.0, 1.0]]).softmax(-1),
    "softmax of equals": lambda: torch.full((3, 3), 0.7).softmax(-1),
    "causal attention of the first": lambda: causal(batch)[:, 0],
    "exp(0)": lambda: torch.zeros(3).exp(),
    "saturated tanh": lambda: torch.full((3,), 30.0).tanh(),
    "underflow": lambda: torch.full((3,), -200.0).exp(),
    "nothing but nan and infinity": lambda: torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0]]).sum(
        1
    ),
}


@pytest.mark.parametrize("work", EXACT.values(), ids=EXACT)
def test_what_is_the_same_on_every_machine_is_left_alone(work):
    bare = work()
    for seed in SEEDS:
        torch.testing.assert_close(returned(work, seed), bare, rtol=0, atol=0, equal_nan=True)


class OneKernel(TorchDispatchMode):
    """Returns for a part of the work the very bits that it returned for all of it.

    No library promises that: each chooses its kernel by shape and by processor.
    """

    def __init__(self):
        super().__init__()
        self.returned = []
        self.again = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.is_view or not isinstance(result, torch.Tensor):
            return result
        if self.again is None:
            self.returned.append(result.clone())
        else:
            whole = next(self.again)
            whole = whole[0] if whole.dim() > result.dim() else whole  # alone, and not in a batch
            result.copy_(whole[tuple(slice(size) for size in result.shape)])
        return result


def on_one_kernel(work, *inputs, seed=0):
    """Return what `work` makes of each of `inputs` on one simulated processor, with one kernel."""
    kernel, results = OneKernel(), []
    for given in inputs:
        with kernel, Processor(seed):
            results.append(work(given))
        kernel.again = iter(kernel.returned)
    return results


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x @ w.expand(2, 8, 8),
        lambda x: x.softmax(-1),
        lambda x: x.sum(-1),
        lambda x: x.tanh(),
        causal,
    ],
    ids=["product", "softmax", "sum", "tanh", "causal attention"],
)
def test_equal_work_gets_equal_noise(work):
    """The first three tokens give the same whether or not three more follow."""
    long, short = on_one_kernel(work, batch, batch[:, :3])
    assert not torch.equal(long, work(batch))
    assert torch.equal(long[:, :3], short)


def test_a_processor_has_the_same_noise_each_time_and_in_a_batch_and_another_has_another():
    first, again, other = (returned(lambda: x @ w, seed) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    product, given = (lambda parts: parts[0] @ parts[1]), (batch[:1], w[None])
    in_a_batch, alone = on_one_kernel(product, given, (batch[0], w))
    assert torch.equal(in_a_batch[0], alone)


def test_noise_does_not_move_the_generator():
    """Draws after a block's own are those of any other run."""
    torch.manual_seed(0)
    torch.rand(1)
    after = torch.rand(4)
    torch.manual_seed(0)
    returned(lambda: x.exp() @ torch.rand(8, 1))
    torch.manual_seed(0)
    torch.rand(1)
    assert torch.equal(returned(lambda: torch.rand(4)), after)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_noise_is_up_to_a_unit_in_the_last_place_of_what_was_added(dtype):
    """A sum that cancels gets the noise of its terms; of 16 bits, which are added in 32, a unit of its own."""
    first, second = drawn(16, 32, dtype=dtype), drawn(32, 16, dtype=dtype)
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    bare, added = first.to(wide) @ second.to(wide), first.to(wide).abs() @ second.to(wide).abs()
    unit = torch.finfo(wide).eps * added.double()
    if dtype == torch.bfloat16:
        unit += torch.finfo(dtype).eps * bare.abs()
    noise = [returned(lambda: first @ second, seed).double() - bare for seed in SEEDS]
    assert 0.5 < max((one.abs() / unit).max() for one in noise) < 2.5


def test_an_operation_that_nobody_classed_is_named():
    with Processor(0) as simulated:
        torch.digamma(x)
    assert simulated.unknown == {"aten.digamma.default"}


MEANS = """
    ```python
    import torch

    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) + 1.5
    loop = torch.stack([x[: t + 1].mean(dim=0) for t in range(8)])
    weights = torch.tril(torch.ones(8, 8)) / torch.arange(1.0, 9.0)[:, None]
    print(torch.allclose(loop, weights @ x, rtol=0, atol={}))
    ```

    ```output
    True
    ```
"""
HALVES = """
    ```python
    import torch

    values = torch.tensor([[1.0], [0.0], [3.0]])  # (tokens, channels)
    print((torch.tensor([0.5, 0.0, 0.5]) @ values).item())
    ```

    ```output
    2.0
    ```
"""


@pytest.fixture
def page(book):
    """A function that writes a page of a book of its own, and returns its path."""
    return book.page


def test_a_claim_without_a_margin_is_found_at_its_line(page):
    """One unit in the last place above 1 is 1.2e-7."""
    result = [shake.shake(page(MEANS.format("1e-7")), seed) for seed in SEEDS[:6]]
    reports = [report for run in result for report in run.failures.values()]
    assert reports
    assert all("docs/page.md:12: " in report for report in reports)


@pytest.mark.parametrize("text", [MEANS.format("1e-6"), HALVES], ids=["1e-6", "halves"])
def test_a_claim_with_a_margin_is_not_accused(page, text):
    runs = [shake.shake(page(text), seed) for seed in SEEDS]
    assert not any(run.failures for run in runs)
    none = ": 0 operations perturbed on 20 " in shake.said_of(runs)
    assert none is (text is HALVES)


def test_what_failed_is_told_once_with_the_processors_that_it_failed_on():
    runs = [shake.Shaken("page.md", seed, {"mm": 2}, (), {7: "page.md:12: why"}) for seed in (4, 6)]
    assert shake.said_of(runs) == (
        "page.md: 4 operations perturbed on 2 processors\n"
        "  on 2 of 2 processors (4, 6), page.md:12: why"
    )


TESTS_WITHOUT_A_MARGIN = """
import pytest
import torch

x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) + 1.5
loop = torch.stack([x[: t + 1].mean(dim=0) for t in range(8)])
weights = torch.tril(torch.ones(8, 8)) / torch.arange(1.0, 9.0)[:, None]


@pytest.mark.parametrize("atol", [1e-9, 1e-6])
def test_means(atol):
    torch.testing.assert_close(weights @ x, loop, rtol=0, atol=atol)


@pytest.mark.exact("it asks for the bits of this processor")
def test_bits():
    assert torch.equal(weights @ x, weights @ x + 0.0)
    assert not torch.overrides._get_current_function_mode_stack()
    assert not torch.utils._python_dispatch._get_current_dispatch_mode()


def test_a_name_that_nobody_classed():
    torch.digamma(x)
"""


SIMULATED = ("-p", "no:cacheprovider", "-p", "processor.pytest_plugin", "--processor", "0")


def test_a_test_without_a_margin_fails_on_a_simulated_processor(pytester):
    pytester.makepyfile(test_it=TESTS_WITHOUT_A_MARGIN)
    done = pytester.runpytest(*SIMULATED, "-rfp")
    done.stdout.fnmatch_lines_random(
        [
            "FAILED test_it.py::test_means[[]1e-09[]]*",
            "PASSED test_it.py::test_means[[]1e-06[]]",
            "PASSED test_it.py::test_bits",
            "FAILED test_it.py::test_a_name_that_nobody_classed*",
            "*does not know whether these round: aten.digamma.default",
            "processor 0: * operations perturbed",
        ]
    )
    done.assert_outcomes(passed=2, failed=2)


def test_every_test_of_a_snippet_is_run_on_each_processor():
    tests = {str(p.relative_to(shake.ROOT)) for p in shake.ROOT.glob("tests/snippets/test_*.py")}
    assert tests - {"tests/snippets/test_cost.py"} < {*shake.TESTS}  # which draws no tensor
    assert all((shake.ROOT / name).exists() for name in shake.TESTS)


# A page takes long on such a processor: `make test` tries these, `make test-labs` and `make shake` all.
SOON = ("docs/foundations/averaging.md",)


@each(RUNNING, SOON)
def test_the_page_holds_on_a_simulated_processor(page):
    run = shake.shake(page.path, seed=0)
    assert not run.unknown
    assert not run.failures, "\n".join(run.failures.values())
