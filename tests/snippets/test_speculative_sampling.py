"""Speculative sampling writes what the target would write: dealt out exactly, counted, and greedy."""

import itertools
from unittest import mock

import torch
from torch import nn

from snippets.gpt import GPT
from snippets.speculative_sampling import speculative_sampling
from tests.snippets.facts import refuses
from tests.snippets.parts import Case

START = torch.tensor([[1, 2, 3]])


def models():
    """Two small GPTs that agree often and not always, in float64."""
    torch.manual_seed(0)
    made = [GPT(7, 64, 16, 2, layers).double().eval().requires_grad_(False) for layers in (2, 1)]
    for model in made:
        nn.init.normal_(model.logits.weight, std=0.5)
    made[1].logits.weight.add_(made[0].logits.weight)
    made[1].token.weight.copy_(made[0].token.weight)
    return made


TARGET, DRAFT = models()
GREEDY = TARGET.generate(START, 20, temperature=0)[0].tolist()


def says(logits):
    """A model that looks the logits of the next token up, by the token before it."""
    return lambda tokens: logits[tokens]


class Remembering:
    """A model with a cache, as far as anybody can tell from outside: it returns what is new."""

    def __init__(self, model):
        self.model, self.read, self.calls = model, [], []

    def __call__(self, tokens):
        text = tokens[0].tolist()
        assert text[: len(self.read)] == self.read, "the cache holds what is not in the text"
        new = len(text) - len(self.read)
        assert new > 0, "the cache holds the whole text"
        self.read = text
        self.calls.append(new)
        return self.model(tokens)[:, -new:]

    def truncate(self, length):
        assert length <= len(self.read), "there is less in the cache"
        self.read = self.read[:length]


def dealt(numbers):
    """Stands in for torch.rand: hands out these numbers, in order."""
    numbers = iter(numbers)

    def rand(shape, *, generator, dtype, device):
        return torch.tensor([next(numbers) for _ in range(shape[0])], dtype=dtype)

    return mock.patch.object(torch, "rand", rand)


def test_every_deal_taken_once_gives_the_targets_shares(part):
    """Of the draft's draw, the acceptance and the draw of the rest: these are counts and no estimates.

    Shares in thirds have all their bounds on the lines of a grid, and the draws lie between them.
    """
    thirds, sixths = ([(i + 0.5) / fine for i in range(fine)] for fine in (3, 6))
    for p, q in (([2, 1, 0], [1, 0, 2]), ([1, 1, 1], [0, 3, 0]), ([0, 1, 2], [1, 1, 1])):
        p, q = (torch.tensor(x, dtype=torch.float64) / 3 for x in (p, q))
        counts = torch.zeros(3, dtype=torch.long)
        for numbers in itertools.product(thirds, sixths, sixths):
            with dealt(numbers):
                counts[part.verify(part.draw(q[None]), q[None], torch.stack([p, p]))[0]] += 1
        assert counts.tolist() == (p * 108).round().long().tolist(), (p, q, counts)
    p = torch.tensor([0.5, 0.5], dtype=torch.float64)
    with dealt([1.0, 0.7]):  # refuses what is never refused: equal shares, but for rounding
        written = part.verify(torch.tensor([0]), p[None], torch.stack([p, p]))
    assert written.tolist() == [1]


def test_each_row_of_a_draft_is_held_against_its_own_shares(part):
    """Three tokens are drafted: each is accepted by what the target says at its place, up to the first refused."""
    p = torch.tensor([[0.1, 0.9], [0.9, 0.1], [0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    q, drafted = torch.full((3, 2), 0.5, dtype=torch.float64), torch.tensor([1, 1, 0])
    for numbers, wanted in (
        (
            (0.99, 0.1, 0.99, 0.5),
            [1, 1, 0, 1],
        ),  # accepted with 1, 0.2 and 1; the last is the target's
        ((0.99, 0.3, 0.99, 0.5), [1, 0]),  # the second is refused, and so is what follows it
        ((0.99, 0.3, 0.99, 0.999), [1, 0]),  # only token 0 was left too small
    ):
        with dealt(numbers):
            assert part.verify(drafted, q, p).tolist() == wanted


def test_greedy_is_the_targets_greedy_until_it_stops(part):
    """With a cache and without; after the first of its stop tokens, drafted or the target's."""
    for stop in (None, 5, [4, 5]):
        stops = [stop] if isinstance(stop, int) else stop or []
        at = [place for place in range(3, len(GREEDY)) if GREEDY[place] in stops]
        wanted = GREEDY[: at[0] + 1] if at else GREEDY
        for guesses, wrap in ((0, Remembering), (2, Remembering), (5, Remembering), (3, says_all)):
            pair = wrap(TARGET), wrap(DRAFT)
            run = part.speculative_sampling(
                *pair, START, 20, draft_tokens=guesses, temperature=0, stop=stop
            )
            assert run.tokens[0].tolist() == wanted
            own = len(wanted) - 3 - run.accepted  # tokens that the target drew itself
            assert run.passes - bool(at) <= own <= run.passes
            assert run.accepted <= run.drafted <= guesses * run.passes
            if wrap is Remembering:  # the caches read little, and can go on
                large, small = pair
                assert len(large.calls) == run.passes
                assert len(small.calls) == run.drafted
                assert max([*large.calls[1:], *small.calls[1:]], default=0) <= max(guesses + 1, 2)
                assert max(small.calls[1:], default=0) <= 2
                assert all(len(one.read) < len(wanted) for one in pair)


def says_all(model):
    """The model itself, which has no cache."""
    return lambda tokens: model(tokens)


def test_a_perfect_draft_is_kept_whole(part):
    table = torch.full((5, 5), -1e9).scatter(1, (torch.arange(5)[:, None] + 1) % 5, 0.0)
    for n, stop, counts, own in (
        (9, 3, (1, 4, 3), 0),  # a drafted token ends the text; the fourth is in the draft alone
        (9, 4, (1, 4, 4), 0),
        (9, 0, (1, 4, 4), 1),
        (28, None, (6, 22, 22), 6),  # in the last pass there is room for two, and one more
    ):
        run = part.speculative_sampling(
            says(table), says(table), torch.tensor([[0]]), n, draft_tokens=4, stop=stop
        )
        written = run.tokens[0].tolist()
        assert written == [place % 5 for place in range(len(written))]
        assert len(written) == 1 + run.accepted + own
        assert (run.passes, run.drafted, run.accepted) == counts


def test_what_would_be_misread_is_refused(part):
    """Two texts, shares of other tokens, and logits that are no numbers, in the target and in the draft."""
    for shape in ((1,), (2, 1)):
        tokens = torch.zeros(shape, dtype=torch.int64)
        refuses(f"{shape}", part.speculative_sampling, says(tokens), says(tokens), tokens, 3)
    flat = torch.full((1, 3), 1 / 3)
    refuses("a row too few", part.verify, torch.tensor([0]), flat, flat)
    for bad in (float("nan"), float("inf"), -float("inf")):
        for pair in ((0.0, bad), (bad, 0.0)):
            wrong, right = (says(torch.full((3, 3), logit)) for logit in pair)
            for temperature in (0, 0.8):
                tokens, how = torch.tensor([[0]]), {"temperature": temperature}
                refuses(f"{bad}", part.speculative_sampling, wrong, right, tokens, 3, **how)


WRONG = {
    "kept by agreement": (
        "accepted = numbers * q < p",
        "accepted = (drafted == target_shares[:-1].argmax(-1)) & (numbers >= 0)",
    ),
    "the rest is drawn from the target's shares": (
        "missing if missing.sum() > 0 else left",
        "left",
    ),
    "later guesses survive a refused one": ("accepted.cumprod(dim=0).sum()", "accepted.sum()"),
    "the refused stay in the cache": (
        "model.truncate(min(read, tokens.size(1) - 1))",
        "model.truncate(read)",
    ),
    "the last stop token ends": ("new[: ended[0] + 1]", "new[: ended[-1] + 1]"),
}


def written(_, logits):
    """What is written where the draft and the target say the same of each token."""
    run = speculative_sampling(says(logits), says(logits), torch.tensor([[0]]), 6)
    return run.tokens.double()


CASES = {
    "speculative_sampling": Case(
        written,
        lambda: (torch.tensor([[0.0, 99.0, 0.0], [0.0, 0.0, 99.0], [99.0, 0.0, 0.0]]).double(),),
        casts=False,
        returns=lambda _: torch.float64,
        backward=False,
        meta=False,
    )
}
