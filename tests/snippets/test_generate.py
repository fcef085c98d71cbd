"""Each text is the one that it would be alone, and each token is drawn as often as its logit says."""

import math

import pytest
import torch
from torch import nn

from snippets import generate as real
from snippets.gpt import GPT
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.llama import Llama
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, close

VOCAB, LONGEST, NEW = 11, 7, 9


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


def test_a_text_is_the_one_written_alone_and_ends_with_its_stop_token(part):
    """With a cache and without, whoever stands beside it; the first of several stop tokens ends it."""
    for model in MODELS.values():
        prompts, ended = some_prompts(3, 7, 1, 7, 2), 0
        whole = [plainly(model, prompt, NEW) for prompt in prompts]
        for stop in (None, 3, [3, 4, 8]):
            stops = () if stop is None else [stop] if isinstance(stop, int) else stop
            wanted = []
            for prompt, text in zip(prompts, whole, strict=True):
                at = [t for t in range(len(prompt), len(text)) if text[t] in stops]
                ended += bool(at)
                wanted.append(text[: at[0] + 1] if at else text)
            for cache in (None, KVCache):
                found = part.generate(model, prompts, NEW, 0, cache=cache, stop=stop)
                assert same(found, wanted), stop
        assert 2 < ended < 10
    assert torch.is_grad_enabled()


def test_a_drawn_text_is_the_one_drawn_alone(part):
    model, prompts = MODELS["llama"], some_prompts(2, 6, 4)
    wanted = [
        part.generate(model, [prompt], NEW, 1.3, [generator])[0]
        for prompt, generator in zip(prompts, draws(range(3)), strict=True)
    ]
    found = part.generate(model, prompts, NEW, 1.3, draws(range(3)), cache=KVCache)
    assert same(found, wanted)
    assert not same(part.generate(model, prompts, NEW, 1.3, draws(range(1, 4))), wanted)


def test_nothing_is_computed_twice_or_for_nobody(part):
    """No token that a cache holds, no logits but the last, no mask without padding, no step after the end."""
    model, calls, asked = MODELS["llama"], [], []

    def note(_, given, how, made):
        mask = how["attn_mask"]
        calls.append((given[0].size(1), made.size(1), mask if mask is None else mask.shape[2:]))

    def cache(size):
        asked.append(size)
        return KVCache(size)

    hook = model.register_forward_hook(note, with_kwargs=True)
    part.generate(model, some_prompts(5, 5), 3, 0, cache=cache)
    part.generate(model, some_prompts(4, 2), 3, 0)
    part.generate(model, some_prompts(3, 7), NEW, 0, cache=cache, stop=[*range(VOCAB)])
    hook.remove()
    kept = [(5, 1, None), (1, 1, None), (1, 1, None)]
    anew = [(n, 1, (n, n)) for n in (4, 5, 6)]
    assert calls == [*kept, *anew, (7, 1, (7, 7))]
    assert asked == [8, 8, 7 + NEW, 7 + NEW]


def test_shares_are_the_softmax_and_at_0_all_is_the_likeliests(part):
    logits = torch.tensor([[0.5, -1.0, 2.0, -math.inf], [3.0, 3.0, 0.0, 1.0]], dtype=torch.float64)
    for temperature in (0.25, 1.0, 4.0):
        powers = (logits / temperature).exp()
        wanted = powers / powers.sum(dim=-1, keepdim=True)
        assert close(part.shares_of(logits, temperature), wanted)
    best = [[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    for cold in (0, 1e-300):
        assert part.shares_of(logits, cold).tolist() == best
    # Divided by 1e-38, a logit is beyond float32.
    assert part.shares_of(logits[:1].float(), 1e-38).tolist() == best[:1]
    assert part.choose(logits, 0, None).tolist() == [2, 0]
    assert part.choose(logits, 1.0, None).shape == (2,)
    assert part.shares_of(logits.bfloat16(), 1.0).dtype == torch.float32


def test_a_number_falls_to_the_token_into_whose_share_it_falls(part):
    """A card adds in parallel: the sum after a token of share 0 may differ from the one before it."""
    shares = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    for number, token in ((0.0, 1), (0.49, 1), (0.5, 3), (1 - 2**-24, 3)):
        assert part.token_at(shares, torch.tensor(number)).item() == token
    assert part.token_at(torch.tensor([1.0, 3.0]), torch.tensor(0.3)).item() == 1  # sum 4
    rounded = torch.tensor([1e-7, 0.5, 0.5 + 1e-7, 1 - 1e-7, 1.0])
    numbers = torch.tensor([0.0, 0.5, 0.5 + 5e-8, 1 - 2**-24])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "cumsum", lambda *_, **__: rounded)
        assert {part.token_at(shares, number).item() for number in numbers} == {1, 3}


def test_tokens_are_drawn_more_finely_than_bfloat16_counts(part):
    """Of a thousand equal ones, whose number has 8 bits there, most come in three thousand draws."""
    many, generators = torch.zeros(3000, 1000, dtype=torch.bfloat16), draws([0]) * 3000
    assert len(part.choose(many, 1.0, generators).unique()) > 900


def test_what_would_be_misread_is_refused(part):
    """Logits that are no numbers, also beside a right row; a text of padding; one number for two texts."""
    for bad in ([math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf], [-math.inf, math.nan]):
        for logits in (torch.tensor([bad]), torch.tensor([[1.0, -math.inf], bad])):
            for temperature in (0, 0.8):
                refuses(f"logits {bad}", part.choose, logits, temperature, None)
    refuses("nan", part.token_at, torch.tensor([[math.nan, 1.0]]), torch.tensor([0.5]))
    nothing = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    refuses("a row without a share", part.token_at, nothing, torch.tensor([0.5, 0.5]))
    for temperature in (-0.1, math.nan, math.inf):
        refuses(f"temperature {temperature}", part.choose, torch.zeros(1, 3), temperature, None)
    refuses("an empty prompt", part.generate, MODELS["llama"], some_prompts(3, 0), 1)
    for count in (1, 3):
        refuses(
            "a generator too few or too many",
            part.choose,
            torch.zeros(2, 3),
            1.0,
            draws(range(count)),
        )


PLACES = "(real.cumsum(dim=1) - 1).clamp(min=0)"
WRONG = {
    "pads on the right": ("longest - len(prompt) : longest] = prompt", ": len(prompt)] = prompt"),
    "counts places over padding": (PLACES, "torch.arange(longest + n).expand(len(prompts), -1)"),
    "the mask of the first tokens": (
        "keep_mask(real[:, :end], start)",
        "keep_mask(real[:, :end], 0)[:, :, : end - start]",
    ),
    "a token without a share is drawn": (".masked_fill(shares == 0, 0.0)", ""),
    "only the first of several stops": ("for one in stops:", "for one in stops[:1]:"),
}


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
