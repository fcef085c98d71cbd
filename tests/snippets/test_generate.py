"""Each text is the one that it would be alone: whatever stands beside it, with a cache and without."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from snippets import generate as real_generate
from snippets.gpt import GPT
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.llama import Llama
from tests.snippets.facts import first_to_notice
from tests.snippets.problems import edited

VOCAB, LONGEST, NEW = 11, 7, 9


def drawn(model):
    """The model in float64, with weights large enough that every token matters."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def models():
    torch.manual_seed(0)
    llama = Llama(VOCAB, 12, 4, 2, num_kv_heads=2, head_dim=4)
    gpt = GPT(VOCAB, LONGEST + NEW, 12, 3, 2, attention=GroupedQueryAttention)
    return {"llama": drawn(llama), "gpt": drawn(gpt)}


MODELS = models()
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


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


# Facts, asked of the module that is given, so that a wrong one can be asked, too.


def greedy_text_is_the_one_written_alone(module, caches=(None, KVCache)):
    for model in MODELS.values():
        prompts = some_prompts(3, 7, 1, 7, 2)
        wanted = [plainly(model, prompt, NEW) for prompt in prompts]
        for cache in caches:
            assert same(module.generate(model, prompts, NEW, 0, cache=cache), wanted)


def drawn_text_is_the_one_drawn_alone(module):
    """How often a token is drawn, test_sampling.py counts; here, that its neighbours do not count."""
    model, prompts = MODELS["llama"], some_prompts(2, 6, 4)
    wanted = [
        module.generate(model, [prompt], NEW, 1.3, [generator])[0]
        for prompt, generator in zip(prompts, draws(range(3)), strict=True)
    ]
    for cache in (None, KVCache):
        assert same(module.generate(model, prompts, NEW, 1.3, draws(range(3)), cache=cache), wanted)
    assert not same(module.generate(model, prompts, NEW, 1.3, draws(range(1, 4))), wanted)


def tokens_are_drawn_as_often_as_they_are_likely(module):
    """Three tokens, of which two are 4 and 16 times as likely, at temperature 2: 2 and 4 times."""
    logits = torch.tensor([0.0, math.log(4), math.log(16)])
    counts = torch.zeros(3)
    for text in module.generate(
        lambda tokens, **how: logits.expand(*tokens.shape, 3),
        [torch.zeros(1, dtype=torch.int64)] * 7000,
        1,
        2.0,
        draws([0]) * 7000,
    ):
        counts[text[1]] += 1
    assert torch.allclose(counts, torch.tensor([1000.0, 2000.0, 4000.0]), rtol=0, atol=200)


def text_ends_with_the_stop_token_and_not_before(module):
    model, prompts = MODELS["llama"], some_prompts(3, 7, 1, 5)
    whole = [plainly(model, prompt, NEW) for prompt in prompts]
    seen = 0
    for stop in range(VOCAB):
        wanted = []
        for prompt, text in zip(prompts, whole, strict=True):
            stops = (text[len(prompt) :] == stop).nonzero().flatten().tolist()
            seen += bool(stops)
            wanted.append(text[: len(prompt) + stops[0] + 1] if stops else text)
        assert same(module.generate(model, prompts, NEW, 0, cache=KVCache, stop=stop), wanted)
    assert seen > 3


def mask_hides_padding_and_the_future_and_empties_no_row(module):
    real = torch.tensor([[False, False, True, True], [True, True, True, True]])
    for start in range(4):
        keep = module.keep_mask(real, start)
        assert keep.shape == (2, 1, 4 - start, 4)
        for text, (row, asks) in ((t, ra) for t in range(2) for ra in enumerate(range(start, 4))):
            sees = [k == asks or (k < asks and bool(real[text, k])) for k in range(4)]
            assert keep[text, 0, row].tolist() == sees


def each_token_is_computed_once_with_a_cache(module):
    model, prompts, computed = MODELS["llama"], some_prompts(5, 5), []
    hook = model.token.register_forward_pre_hook(
        lambda _, given: computed.append(given[0].shape[1])
    )
    module.generate(model, prompts, 4, 0, cache=KVCache)
    module.generate(model, prompts, 4, 0)
    hook.remove()
    assert computed == [5, 1, 1, 1, 5, 6, 7, 8]


def only_the_logits_that_are_looked_at_are_made(module):
    made = []
    for model in MODELS.values():
        hook = model.logits.register_forward_hook(lambda _, __, out: made.append(tuple(out.shape)))
        for cache in (None, KVCache):
            module.generate(model, some_prompts(5, 7), 3, 0, cache=cache)
        hook.remove()
    assert made == [(2, 1, VOCAB)] * 12


FACTS = [
    greedy_text_is_the_one_written_alone,
    drawn_text_is_the_one_drawn_alone,
    text_ends_with_the_stop_token_and_not_before,
    mask_hides_padding_and_the_future_and_empties_no_row,
    each_token_is_computed_once_with_a_cache,
    tokens_are_drawn_as_often_as_they_are_likely,
    only_the_logits_that_are_looked_at_are_made,
]


@pytest.mark.parametrize("fact", FACTS)
def test_it_holds_that(fact):
    fact(real_generate)


# what is wrong · old · new · the fact that breaks
WRONG = [
    (
        "pads on the right",
        "longest - len(prompt) : longest] = prompt",
        ": len(prompt)] = prompt",
        greedy_text_is_the_one_written_alone,
    ),
    (
        "counts places over padding",
        "(real.cumsum(dim=1) - 1).clamp(min=0)",
        "torch.arange(longest + n).expand(len(prompts), -1)",
        greedy_text_is_the_one_written_alone,
    ),
    (
        "places begin at 1",
        "(real.cumsum(dim=1) - 1).clamp(min=0)",
        "real.cumsum(dim=1)",
        greedy_text_is_the_one_written_alone,
    ),
    (
        "no mask after the prompts",
        "if padded else None",
        "if padded and not start else None",
        greedy_text_is_the_one_written_alone,
    ),
    (
        "no mask at all",
        "if padded else None",
        "if False else None",
        greedy_text_is_the_one_written_alone,
    ),
    (
        "padding is not masked",
        " & real[:, None, None]",
        "",
        mask_hides_padding_and_the_future_and_empties_no_row,
    ),
    (
        "sees the future",
        "(place <= asks)",
        "(place < 99)",
        mask_hides_padding_and_the_future_and_empties_no_row,
    ),
    (
        "a row may be empty",
        " | (place == asks)",
        "",
        mask_hides_padding_and_the_future_and_empties_no_row,
    ),
    (
        "the mask is that of the first tokens",
        "keep_mask(real[:, :end], start)",
        "keep_mask(real[:, :end], 0)[:, :, : end - start]",
        greedy_text_is_the_one_written_alone,
    ),
    (
        "reads the last token twice",
        "start = 0 if caches is None else end",
        "start = 0 if caches is None else end - 1",
        each_token_is_computed_once_with_a_cache,
    ),
    (
        "the cache is read and all is computed",
        "start = 0 if caches is None else end",
        "start = 0",
        each_token_is_computed_once_with_a_cache,
    ),
    (
        "one generator for all",
        "for generator in (generators",
        "for generator in (generators and [generators[0]] * len(shares)",
        drawn_text_is_the_one_drawn_alone,
    ),
    (
        "temperature multiplies",
        "keepdim=True)) / temperature",
        "keepdim=True)) * temperature",
        tokens_are_drawn_as_often_as_they_are_likely,
    ),
    (
        "draws from a sum that is not 1",
        "* bounds.amax(dim=-1, keepdim=True)",
        "* 0.5",
        tokens_are_drawn_as_often_as_they_are_likely,
    ),
    (
        "draws the token before",
        "(numbers < bounds).int()",
        "(numbers < bounds.roll(-1, -1)).int()",
        tokens_are_drawn_as_often_as_they_are_likely,
    ),
    (
        "all logits are made",
        "            last=1,\n",
        "",
        only_the_logits_that_are_looked_at_are_made,
    ),
    (
        "the stop token is cut",
        "end + 1, ends)",
        "end, ends)",
        text_ends_with_the_stop_token_and_not_before,
    ),
    (
        "a text ends at its last stop token",
        " & (ends > end)",
        "",
        text_ends_with_the_stop_token_and_not_before,
    ),
    (
        "all end when one does",
        "ends.max() <= end + 1",
        "ends.min() <= end + 1",
        text_ends_with_the_stop_token_and_not_before,
    ),
    (
        "the padding is returned",
        "longest - length : end]",
        ": end]",
        greedy_text_is_the_one_written_alone,
    ),
    (
        "nothing is kept",
        "if cache is None else [",
        "if True else [",
        each_token_is_computed_once_with_a_cache,
    ),
]


@pytest.mark.parametrize(("old", "new", "fact"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_version_is_caught(old, new, fact):
    wrong = edited("generate", (old, new))
    assert first_to_notice([fact], wrong)


@given(
    lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=4),
    n=st.integers(0, 4),
    kind=st.sampled_from(sorted(MODELS)),
    cached=st.booleans(),
    seed=st.integers(0, 99),
)
def test_whoever_stands_beside_it_a_text_stays_the_same(lengths, n, kind, cached, seed):
    model, prompts = MODELS[kind], some_prompts(*lengths, seed=seed)
    found = real_generate.generate(model, prompts, n, 0, cache=KVCache if cached else None)
    assert same(found, [plainly(model, prompt, n) for prompt in prompts])


def test_with_one_text_it_is_the_gpts_own_generate():
    torch.manual_seed(0)
    gpt, (prompt,) = drawn(GPT(VOCAB, 16, 12, 3, 2)), some_prompts(4)
    for temperature in (0, 0.9):
        (found,) = real_generate.generate(gpt, [prompt], NEW, temperature, draws([5]))
        wanted = gpt.generate(prompt, NEW, temperature, draws([5])[0])
        assert torch.equal(found, wanted)


@every_model
def test_prompts_of_one_length_need_no_mask(model):
    masks = []
    hook = model.register_forward_pre_hook(
        lambda _, __, how: masks.append(how["attn_mask"]), with_kwargs=True
    )
    real_generate.generate(model, some_prompts(4, 4), 3, 0, cache=KVCache)
    assert masks == [None] * 3
    real_generate.generate(model, some_prompts(4, 2), 3, 0, cache=KVCache)
    hook.remove()
    assert [tuple(mask.shape) for mask in masks[3:]] == [(2, 1, 4, 4), (2, 1, 1, 5), (2, 1, 1, 6)]


def test_the_cache_is_made_for_what_is_written_and_no_more():
    asked = []

    def make(max_tokens):
        asked.append(max_tokens)
        return KVCache(max_tokens)

    real_generate.generate(MODELS["llama"], some_prompts(3, 5), 4, 0, cache=make)
    assert asked == [9, 9]


def test_nothing_written_is_the_prompt_and_no_gradient_is_kept():
    prompts = some_prompts(3, 5)
    assert same(real_generate.generate(MODELS["llama"], prompts, 0), prompts)
    assert torch.is_grad_enabled()


ids = torch.zeros(3, dtype=torch.int64)
BAD = [
    (([], 1), "prompts", "None"),
    (([[1, 2]], 1), "prompts", "[1, 2]"),
    (([ids[:0]], 1), "prompts", "(0,)"),
    (([ids[None]], 1), "prompts", "(1, 3)"),
    (([ids], -1), "n", "-1"),
    (([ids], 1.5), "n", "1.5"),
    (([ids], 1, -0.1), "temperature", "-0.1"),
    (([ids], 1, float("nan")), "temperature", "nan"),
    (([ids, ids], 1, 1.0, draws([0])), "generators", "1"),
]


@pytest.mark.parametrize(("arguments", "name", "got"), BAD)
def test_a_bad_argument_is_named_with_what_came(arguments, name, got):
    with pytest.raises(ValueError, match=rf"^{name} must .*got .*{re.escape(got)}"):
        real_generate.generate(MODELS["llama"], *arguments)
