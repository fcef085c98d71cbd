"""Whatever writes draws each token as often as its logit says, in every precision, by the same lines.

What is expected is counted from the definition, exp(logit / temperature) over its sum, in Python's
own floats: no sum runs along the tokens, as one does in the lines that are tested.
"""

import inspect
import math

import pytest
import torch
from torch import nn

from snippets import generate as batched
from snippets import gpt, speculative_sampling
from snippets.gpt import GPT
from tests.snippets.problems import in_any_format

FILES = (gpt, batched, speculative_sampling)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
DRAWS = 20_000
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


class Fixed(GPT):
    """A GPT that says the same of every token: these logits."""

    def __init__(self, logits):
        super().__init__(len(logits), 1, 1, 1, 1)
        self.fixed = logits

    def forward(self, tokens, **how):
        return self.fixed.expand(*tokens.shape, -1)


def by_gpt(logits, temperature, draws, generator):
    """The GPT's own generate: one token after each of so many texts."""
    start = torch.zeros(draws, 1, dtype=torch.int64)
    return Fixed(logits).generate(start, 1, temperature, generator)[:, 1]


def by_generate(logits, temperature, draws, generator):
    """generate.py: one token after each of so many prompts."""
    model = Fixed(logits)
    prompts = [torch.zeros(1, dtype=torch.int64)] * draws
    generators = None if generator is None else [generator] * draws
    texts = batched.generate(model, prompts, 1, temperature, generators)
    return torch.stack(texts)[:, 1]


def by_speculation(logits, temperature, draws, generator):
    """speculative_sampling.py: its draw from the shares of so many rows."""
    shares = speculative_sampling._shares(logits.expand(1, draws, -1), temperature)
    return speculative_sampling.draw(shares, generator)


WRITERS = (by_gpt, by_generate, by_speculation)
every_writer = pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)


def counted(writer, logits, temperature=1.0, draws=DRAWS):
    """How often each token was drawn."""
    generator = torch.Generator().manual_seed(0)
    parts = [writer(logits, temperature, 2000, generator) for _ in range(draws // 2000)]
    return torch.bincount(torch.cat(parts), minlength=len(logits))


def shares_by_definition(logits, temperature):
    """Each token's probability, in Python's own floats."""
    largest = max(logits.tolist())
    powers = [math.exp((logit - largest) / temperature) for logit in logits.tolist()]
    return torch.tensor(powers, dtype=torch.float64) / math.fsum(powers)


def assert_drawn_as_often_as_likely(counts, shares):
    """Chi-square, and how many different tokens came, are within five deviations of their means."""
    draws = counts.sum().item()
    expected = shares * draws
    some = expected >= 5
    chi_square = ((counts - expected)[some] ** 2 / expected[some]).sum().item()
    cells = some.sum().item()
    assert abs(chi_square - cells) < 5 * (2 * cells) ** 0.5, f"{chi_square:.0f} of {cells} tokens"
    never = torch.exp(draws * torch.log1p(-shares))  # each token's chance not to come at all
    reached, wanted = (counts > 0).sum().item(), (1 - never).sum().item()
    deviation = (never * (1 - never)).sum().item() ** 0.5
    assert abs(reached - wanted) < 5 * deviation + 1, f"{reached} tokens came, not {wanted:.0f}"


@every_writer
@every_dtype
def test_a_thousand_equal_tokens_come_alike(writer, dtype):
    counts = counted(writer, torch.zeros(1000, dtype=dtype))
    assert_drawn_as_often_as_likely(counts, torch.full((1000,), 0.001, dtype=torch.float64))


@every_writer
@every_dtype
def test_tokens_by_the_law_of_zipf_come_as_often_as_they_are_likely(writer, dtype):
    """The n-th token is 1 / n as likely as the first; its logit is rounded, and so is its share."""
    logits = -torch.arange(1, 2001, dtype=torch.float64).log().to(dtype)
    counts = counted(writer, logits, temperature=1.3)
    assert_drawn_as_often_as_likely(counts, shares_by_definition(logits, temperature=1.3))


@every_writer
@every_dtype
@pytest.mark.parametrize("number", [0.0, 1 - 2**-24])
def test_a_token_that_cannot_come_never_comes_whatever_is_drawn(writer, dtype, number, monkeypatch):
    """The least and the largest number that float32 draws; tokens at -inf stand at either end."""
    logits = torch.tensor([-math.inf, 0.0, -math.inf, 0.0, -math.inf], dtype=dtype)
    monkeypatch.setattr(
        torch, "rand", lambda *shape, **how: drawn(number, *shape, dtype=how["dtype"])
    )
    assert set(writer(logits, 1.0, 3, None).tolist()) == {3 if number else 1}


def drawn(number, *shape, dtype):
    """What torch.rand returns on the day on which it draws nothing but this number."""
    size = shape[0] if isinstance(shape[0], torch.Size | tuple | list) else shape
    return torch.full(size, number, dtype=dtype)


@every_writer
@every_dtype
def test_a_token_at_minus_infinity_is_never_drawn(writer, dtype):
    logits = torch.zeros(1000, dtype=dtype)
    logits[::3] = -math.inf
    counts = counted(writer, logits)
    assert counts[::3].sum() == 0
    assert (counts > 0).sum() == 666


@every_writer
@every_dtype
def test_a_cold_draw_is_the_likeliest_token(writer, dtype):
    """Divided by 1e-4, a logit of 9 is beyond float16; divided by 1e-38, beyond float32."""
    logits = torch.linspace(-9, 9, 50).to(dtype).roll(20)
    for temperature in (1e-4, 1e-38):
        tokens = writer(logits, temperature, 20, torch.Generator().manual_seed(0))
        assert set(tokens.tolist()) == {logits.argmax().item()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.__name__)
def test_sums_that_were_rounded_apart_lead_to_no_token_without_a_share(file, monkeypatch):
    """A card adds in parallel: the sum after a token of share 0 may differ from the one before it."""
    shares = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    rounded = torch.tensor([1e-7, 0.5, 0.5 + 1e-7, 1 - 1e-7, 1.0])
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda *_, **__: rounded)
    numbers = torch.tensor([0.0, 0.5, 0.5 + 5e-8, 1 - 2**-24])
    tokens = [file.token_at(shares, number).item() for number in numbers]
    assert set(tokens) == {1, 3}


@pytest.mark.parametrize("name", ["shares_of", "token_at"])
def test_every_file_that_draws_has_the_same_lines(name):
    first, *others = (inspect.getsource(getattr(file, name)) for file in FILES)
    assert all(other == first for other in others)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.__name__)
def test_nothing_else_in_a_file_makes_shares_or_sums_them(file):
    for code in ("softmax(", "cumsum(dim=-1"):
        assert len(in_any_format(code).findall(inspect.getsource(file))) == 1


@every_dtype
def test_a_model_in_its_own_precision_writes_its_greedy_text_when_it_is_cold(dtype):
    torch.manual_seed(0)
    model = GPT(11, 8, 12, 3, 2)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    model.to(dtype).eval()
    start = torch.zeros(4, 3, dtype=torch.int64)
    assert torch.equal(
        model.generate(start, 9, temperature=1e-6), model.generate(start, 9, temperature=0)
    )
