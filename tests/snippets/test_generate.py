"""Each text is the one that it would be alone, and each token is drawn as often as its logit says."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from snippets import generate as real
from snippets.gpt import GPT
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.llama import Llama
from tests.snippets.parts import Case

VOCAB, LONGEST, NEW = 11, 7, 9
DTYPES = (torch.float32, torch.bfloat16)


def models():
    """In float64, with weights large enough that every token matters."""
    torch.manual_seed(0)
    made = {
        "llama": Llama(VOCAB, 12, 4, 2, num_kv_heads=2, head_dim=4),
        "gpt": GPT(VOCAB, LONGEST + NEW, 12, 3, 2, attention=GroupedQueryAttention),
    }
    for model in made.values():
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
    return {name: model.double().eval() for name, model in made.items()}


MODELS = models()


def some_prompts(*lengths, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCAB, (length,), generator=generator) for length in lengths]


def draws(seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def plainly(model, prompt, n):
    """The oracle: one text, read anew for each token, no mask, no padding, no cache, no draw."""
    for _ in range(n):
        prompt = torch.cat([prompt, model(prompt[None])[0, -1:].argmax(dim=-1)])
    return prompt


def same(found, wanted):
    return len(found) == len(wanted) and all(map(torch.equal, found, wanted))


class Fixed(GPT):
    """Says the same of every token: these logits."""

    def __init__(self, logits):
        super().__init__(len(logits), 1, 1, 1, 1)
        self.fixed = logits

    def forward(self, tokens, **how):
        return self.fixed.expand(*tokens.shape, -1)


def greedy_text_is_the_one_written_alone(part):
    for model in MODELS.values():
        prompts = some_prompts(3, 7, 1, 7, 2)
        wanted = [plainly(model, prompt, NEW) for prompt in prompts]
        for cache in (None, KVCache):
            assert same(part.generate(model, prompts, NEW, 0, cache=cache), wanted)


def drawn_text_is_the_one_drawn_alone(part):
    model, prompts = MODELS["llama"], some_prompts(2, 6, 4)
    wanted = [
        part.generate(model, [prompt], NEW, 1.3, [generator])[0]
        for prompt, generator in zip(prompts, draws(range(3)), strict=True)
    ]
    for cache in (None, KVCache):
        found = part.generate(model, prompts, NEW, 1.3, draws(range(3)), cache=cache)
        assert same(found, wanted)
    assert not same(part.generate(model, prompts, NEW, 1.3, draws(range(1, 4))), wanted)


def tokens_are_drawn_as_often_as_they_are_likely(part):
    """Three tokens, of which two are 4 and 16 times as likely, at temperature 2: 2 and 4 times."""
    logits = torch.tensor([0.0, math.log(4), math.log(16)])
    found = part.choose(logits.expand(7000, 3), 2.0, draws([0]) * 7000)
    counts = torch.bincount(found).float()
    assert torch.allclose(counts, torch.tensor([1000.0, 2000.0, 4000.0]), rtol=0, atol=200)


def a_text_ends_with_its_stop_token_and_not_before(part):
    model, prompts = MODELS["llama"], some_prompts(3, 7, 1, 5)
    whole = [plainly(model, prompt, NEW) for prompt in prompts]
    seen = 0
    for stop in (*range(VOCAB), [3, 4], (7,), [*range(1, VOCAB)], []):
        stops = [stop] if isinstance(stop, int) else stop
        wanted = []
        for prompt, text in zip(prompts, whole, strict=True):
            at = [t for t in range(len(prompt), len(text)) if text[t] in stops]
            seen += bool(at)
            wanted.append(text[: at[0] + 1] if at else text)
        assert same(part.generate(model, prompts, NEW, 0, cache=KVCache, stop=stop), wanted)
    assert seen > 3


def nothing_is_computed_when_all_texts_have_ended(part):
    calls = []
    hook = MODELS["llama"].register_forward_pre_hook(lambda *_: calls.append(1))
    prompts = some_prompts(3, 7)
    part.generate(MODELS["llama"], prompts, NEW, 0, stop=[*range(VOCAB)])
    hook.remove()
    assert calls == [1]


def the_mask_hides_padding_and_the_future_and_empties_no_row(part):
    real = torch.tensor([[False, False, True, True], [True, True, True, True]])
    for start in range(4):
        keep = part.keep_mask(real, start)
        assert keep.shape == (2, 1, 4 - start, 4)
        for text, (row, asks) in ((t, ra) for t in range(2) for ra in enumerate(range(start, 4))):
            sees = [k == asks or (k < asks and bool(real[text, k])) for k in range(4)]
            assert keep[text, 0, row].tolist() == sees


def each_token_is_computed_once_with_a_cache_made_for_what_is_written(part):
    model, prompts, computed, asked = MODELS["llama"], some_prompts(5, 5), [], []
    hook = model.token.register_forward_pre_hook(
        lambda _, given: computed.append(given[0].shape[1])
    )
    part.generate(model, prompts, 4, 0, cache=lambda size: asked.append(size) or KVCache(size))
    part.generate(model, prompts, 4, 0)
    hook.remove()
    assert computed == [5, 1, 1, 1, 5, 6, 7, 8]
    assert asked == [9, 9]


def only_the_logits_that_are_looked_at_are_made(part):
    made = []
    for model in MODELS.values():
        hook = model.logits.register_forward_hook(lambda _, __, out: made.append(tuple(out.shape)))
        for cache in (None, KVCache):
            part.generate(model, some_prompts(5, 7), 3, 0, cache=cache)
        hook.remove()
    assert made == [(2, 1, VOCAB)] * 12


def prompts_of_one_length_need_no_mask(part):
    model, masks = MODELS["llama"], []
    hook = model.register_forward_pre_hook(
        lambda _, __, how: masks.append(how["attn_mask"]), with_kwargs=True
    )
    part.generate(model, some_prompts(4, 4), 3, 0, cache=KVCache)
    part.generate(model, some_prompts(4, 2), 3, 0, cache=KVCache)
    hook.remove()
    assert masks[:3] == [None] * 3
    assert [tuple(mask.shape) for mask in masks[3:]] == [(2, 1, 4, 4), (2, 1, 1, 5), (2, 1, 1, 6)]


def logits_that_are_no_numbers_are_refused(part):
    """B5: nan, +inf, and rows of -inf alone, at each temperature; one such row among right ones."""
    for bad in ([math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf], [-math.inf, math.nan]):
        for logits in (torch.tensor([bad]), torch.tensor([[1.0, -math.inf], bad])):
            for temperature in (0, 1e-6, 0.8):
                with pytest.raises(ValueError, match="logits"):
                    part.choose(logits, temperature, None)
    with pytest.raises(ValueError, match="shares"):
        part.token_at(torch.tensor([[math.nan, 1.0]]), torch.tensor([0.5]))
    with pytest.raises(ValueError, match="shares"):
        part.token_at(torch.tensor([[0.5, 0.5], [0.0, 0.0]]), torch.tensor([0.5, 0.5]))
    for temperature in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="temperature"):
            part.choose(torch.zeros(1, 3), temperature, None)


def shares_are_the_softmax_and_at_0_all_is_the_likeliests(part):
    logits = torch.tensor([[0.5, -1.0, 2.0, -math.inf], [3.0, 3.0, 0.0, 1.0]], dtype=torch.float64)
    for temperature in (0.25, 1.0, 4.0):
        powers = [[math.exp(logit / temperature) for logit in row] for row in logits.tolist()]
        wanted = torch.tensor([[power / sum(row) for power in row] for row in powers]).double()
        assert torch.allclose(part.shares_of(logits, temperature), wanted, rtol=0, atol=1e-6)
    assert part.shares_of(logits, 0).tolist() == [[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    assert part.shares_of(logits.bfloat16(), 1.0).dtype == torch.float32


def sums_that_were_rounded_apart_lead_to_no_token_without_a_share(part):
    """A card adds in parallel: the sum after a token of share 0 may differ from the one before it."""
    shares = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    rounded = torch.tensor([1e-7, 0.5, 0.5 + 1e-7, 1 - 1e-7, 1.0])
    numbers = torch.tensor([0.0, 0.5, 0.5 + 5e-8, 1 - 2**-24])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "cumsum", lambda *_, **__: rounded)
        assert {part.token_at(shares, number).item() for number in numbers} == {1, 3}
    for number, token in ((0.0, 1), (0.49, 1), (0.51, 3), (1 - 2**-24, 3)):
        assert part.token_at(shares, torch.tensor(number)).item() == token
    assert part.token_at(torch.tensor([1.0, 3.0]), torch.tensor(0.3)).item() == 1  # sum 4


FACTS = [
    the_mask_hides_padding_and_the_future_and_empties_no_row,
    logits_that_are_no_numbers_are_refused,
    shares_are_the_softmax_and_at_0_all_is_the_likeliests,
    sums_that_were_rounded_apart_lead_to_no_token_without_a_share,
    only_the_logits_that_are_looked_at_are_made,
    each_token_is_computed_once_with_a_cache_made_for_what_is_written,
    nothing_is_computed_when_all_texts_have_ended,
    prompts_of_one_length_need_no_mask,
    greedy_text_is_the_one_written_alone,
    drawn_text_is_the_one_drawn_alone,
    a_text_ends_with_its_stop_token_and_not_before,
    tokens_are_drawn_as_often_as_they_are_likely,
]

PLACES = "(real.cumsum(dim=1) - 1).clamp(min=0)"
START = "start = 0 if caches is None else end"
WRONG = {
    "pads on the right": ("longest - len(prompt) : longest] = prompt", ": len(prompt)] = prompt"),
    "counts places over padding": (PLACES, "torch.arange(longest + n).expand(len(prompts), -1)"),
    "places begin at 1": (PLACES, "real.cumsum(dim=1)"),
    "no mask after the prompts": ("if padded else None", "if padded and not start else None"),
    "no mask at all": ("if padded else None", "if False else None"),
    "a mask where none is needed": ("if padded else None", "if True else None"),
    "padding is not masked": (" & real[:, None, None]", ""),
    "sees the future": ("(place <= asks)", "(place < 99)"),
    "a row may be empty": (" | (place == asks)", ""),
    "the mask of the first tokens": (
        "keep_mask(real[:, :end], start)",
        "keep_mask(real[:, :end], 0)[:, :, : end - start]",
    ),
    "reads the last token twice": (START, START + " - 1"),
    "the cache is read and all is computed": (START, "start = 0"),
    "nothing is kept": ("if cache is None else [", "if True else ["),
    "a cache that is too large": ("cache(longest + n)", "cache(longest + n + 1)"),
    "one generator for all": (
        "generators = generators or [None] * len(shares)",
        "generators = [generators[0] if generators else None] * len(shares)",
    ),
    "temperature multiplies": ("(logits - largest) / temperature", "(logits - largest) * temperature"),
    "draws from a sum that is not 1": ("numbers[..., None] * total", "numbers[..., None]"),
    "draws the token before": ("* total < bounds)", "* total < bounds.roll(-1, -1))"),
    "a token without a share is drawn": (".masked_fill(shares == 0, 0.0)", ""),
    "greedy takes the least likely": ("logits.argmax(dim=-1, keepdim", "logits.argmin(dim=-1, keepdim"),
    "nan is drawn": ("if not largest.isfinite().all():", "if largest.isinf().any():"),
    "inf is drawn": ("if not largest.isfinite().all():", "if largest.isnan().any():"),
    "one right row is enough": ("largest.isfinite().all()", "largest.isfinite().any()"),
    "shares of nan": ("(total > 0) & (total < math.inf)).all()", "total == total).all()"),
    "all logits are made": ("            last=1,\n", ""),
    "the stop token is cut": ("end + 1, ends)", "end, ends)"),
    "a text ends at its last stop token": (" & (ends > end)", ""),
    "all end when one does": ("ends.max() <= end + 1", "ends.min() <= end + 1"),
    "it goes on for nothing": ("ends.max() <= end + 1", "ends.max() <= end"),
    "only the first of several stops": ("for one in stops:", "for one in stops[:1]:"),
    "the padding is returned": ("longest - length : end]", ": end]"),
}  # fmt: skip


def written(_, *tokens):
    """Tokens after two texts, drawn in the dtype of the logits."""
    generator = torch.Generator().manual_seed(0)
    return real.choose(tokens[0], 0.8, [generator] * 2).double()


CASES = {
    "choose": Case(
        written,
        lambda: (torch.tensor([[0.0, 9.0, 0.0], [9.0, 0.0, 0.0]]).double(),),
        casts=False,
        returns=lambda _: torch.float64,
        backward=False,
        meta=False,
    )
}


# How often a token is drawn, counted from the definition, in Python's own floats


def by_gpt(logits, temperature, count, generator):
    """The GPT's own generate: one token after each of so many texts."""
    start = torch.zeros(count, 1, dtype=torch.int64)
    return Fixed(logits).generate(start, 1, temperature, generator)[:, 1]


def by_generate(logits, temperature, count, generator):
    """Generate.py: one token after each of so many prompts."""
    prompts = [torch.zeros(1, dtype=torch.int64)] * count
    texts = real.generate(Fixed(logits), prompts, 1, temperature, [generator] * count)
    return torch.stack(texts)[:, 1]


every_writer = pytest.mark.parametrize("writer", [by_gpt, by_generate], ids=lambda w: w.__name__)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def counted(writer, logits, temperature=1.0):
    generator = torch.Generator().manual_seed(0)
    parts = [writer(logits, temperature, 2000, generator) for _ in range(10)]
    return torch.bincount(torch.cat(parts), minlength=len(logits))


def assert_drawn_as_often_as_likely(counts, shares):
    """Chi-square, and how many different tokens came, are within five deviations of their means."""
    number = counts.sum().item()
    expected = shares * number
    some = expected >= 5
    chi_square = ((counts - expected)[some] ** 2 / expected[some]).sum().item()
    cells = some.sum().item()
    assert abs(chi_square - cells) < 5 * (2 * cells) ** 0.5, f"{chi_square:.0f} of {cells} tokens"
    never = torch.exp(number * torch.log1p(-shares))  # each token's chance not to come at all
    reached, wanted = (counts > 0).sum().item(), (1 - never).sum().item()
    deviation = (never * (1 - never)).sum().item() ** 0.5
    assert abs(reached - wanted) < 5 * deviation + 1, f"{reached} tokens came, not {wanted:.0f}"


@every_writer
@every_dtype
def test_a_thousand_equal_tokens_come_alike_and_one_at_minus_infinity_never(writer, dtype):
    logits = torch.zeros(1500, dtype=dtype)
    logits[::3] = -math.inf
    counts = counted(writer, logits)
    assert counts[::3].sum() == 0
    shares = torch.full((1000,), 0.001, dtype=torch.float64)
    assert_drawn_as_often_as_likely(counts[logits == 0], shares)


@every_writer
@every_dtype
def test_tokens_by_the_law_of_zipf_come_as_often_as_they_are_likely(writer, dtype):
    """The n-th token is 1 / n as likely as the first; its logit is rounded, and so is its share."""
    logits = -torch.arange(1, 2001, dtype=torch.float64).log().to(dtype)
    powers = [math.exp(logit / 1.3) for logit in logits.tolist()]
    shares = torch.tensor(powers, dtype=torch.float64) / math.fsum(powers)
    assert_drawn_as_often_as_likely(counted(writer, logits, temperature=1.3), shares)


@every_writer
@every_dtype
def test_a_cold_draw_is_the_likeliest_token(writer, dtype):
    """Divided by 1e-4, a logit of 9 is beyond float16; divided by 1e-38, beyond float32."""
    logits = torch.linspace(-9, 9, 50).to(dtype).roll(20)
    for temperature in (1e-4, 1e-38, 1e-300):
        tokens = writer(logits, temperature, 20, torch.Generator().manual_seed(0))
        assert set(tokens.tolist()) == {logits.argmax().item()}


# What would be misread in silence


@given(
    lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=4),
    n=st.integers(0, 4),
    kind=st.sampled_from(sorted(MODELS)),
    cached=st.booleans(),
    seed=st.integers(0, 99),
)
def test_whoever_stands_beside_it_a_text_stays_the_same(lengths, n, kind, cached, seed):
    model, prompts = MODELS[kind], some_prompts(*lengths, seed=seed)
    found = real.generate(model, prompts, n, 0, cache=KVCache if cached else None)
    assert same(found, [plainly(model, prompt, n) for prompt in prompts])
    assert torch.is_grad_enabled()


def test_an_empty_prompt_would_be_a_text_of_padding():
    with pytest.raises(ValueError, match=r"^prompts .*\[3, 0\]"):
        real.generate(MODELS["llama"], some_prompts(3, 0), 1)


def test_one_generator_for_two_texts_would_draw_one_number_for_both():
    with pytest.raises(ValueError, match=r"^generators must be 2.* got 1"):
        real.generate(MODELS["llama"], some_prompts(3, 3), 1, 1.0, draws([0]))
