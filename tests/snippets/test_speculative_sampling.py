"""Speculative sampling writes what the target would write: dealt out exactly, counted, and greedy.

The wrong versions at the end are the file with one edit each; every one must fail a fact.
"""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from snippets import speculative_sampling
from snippets.gpt import GPT
from tests.snippets.parts import Case


def models():
    """Two small GPTs that agree often and not always, in float64."""
    torch.manual_seed(0)
    made = [GPT(7, 64, 16, 2, layers).double().eval().requires_grad_(False) for layers in (2, 1)]
    for model in made:
        nn.init.normal_(model.logits.weight, std=0.5)
    made[1].logits.weight.add_(made[0].logits.weight)
    made[1].token.weight.copy_(made[0].token.weight)
    return made


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


class Dealt:
    """Stands in for torch.rand: hands out the numbers of one deal, in order."""

    def __init__(self, numbers):
        self.numbers = iter(numbers)

    def __call__(self, shape, *, generator, dtype, device):
        count = torch.Size(shape).numel()
        return torch.tensor([next(self.numbers) for _ in range(count)], dtype=dtype).view(shape)


def dealt_out(part, p, q):
    """Count what is written over every draw of a grid: of the draft, the acceptance and the rest.

    Shares in thirds have all their bounds on the grid's lines, and the draws lie between them. So
    the counts are exact.
    """
    counts = torch.zeros(len(p), dtype=torch.long)
    thirds, sixths = ([(i + 0.5) / fine for i in range(fine)] for fine in (3, 6))
    shares = torch.stack([p, p])
    for numbers in itertools.product(thirds, sixths, sixths):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "rand", Dealt(numbers))
            counts[part.verify(part.draw(q[None]), q[None], shares)[0]] += 1
    return counts


# Facts, asked of the file and of its wrong versions.


def every_deal_taken_once_gives_the_targets_shares(part):
    """Each deal of three numbers counts once, so these are counts and no estimates."""
    for p, q in (
        ([2, 1, 0], [1, 0, 2]),
        ([1, 1, 1], [0, 3, 0]),
        ([0, 1, 2], [1, 1, 1]),
        ([3, 0, 0], [0, 2, 1]),
    ):
        p, q = (torch.tensor(x, dtype=torch.float64) / 3 for x in (p, q))
        counts = dealt_out(part, p, q)
        assert counts.tolist() == (p * 108).round().long().tolist(), (p, q, counts)


def whole_texts_are_distributed_as_the_targets(part):
    """Count texts of three tokens against their exact probabilities, for several draft lengths."""
    p = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.1, 0.8, 0.1]], dtype=torch.float64)
    q = torch.tensor([[0.2, 0.3, 0.5], [0.4, 0.4, 0.2], [0.3, 0.6, 0.1]], dtype=torch.float64)
    wanted = torch.einsum("a,ab,bc->abc", p[0], p, p).flatten()  # after token 0; a row a token

    def chain(table):
        return lambda tokens: table.log()[tokens]

    for guesses in (1, 4):
        generator = torch.Generator().manual_seed(guesses)
        counts = torch.zeros(27)
        draws = 250
        for _ in range(draws):
            run = part.speculative_sampling(
                chain(p),
                chain(q),
                torch.zeros(1, 1, dtype=torch.long),
                3,
                draft_tokens=guesses,
                generator=generator,
            )
            assert run.tokens.shape == (1, 4)
            a, b, c = run.tokens[0, 1:].tolist()
            counts[9 * a + 3 * b + c] += 1
        expected = wanted * draws
        some = expected >= 5
        chi_square = ((counts - expected)[some] ** 2 / expected[some]).sum().item()
        cells = int(some.sum())
        assert chi_square < cells + 5 * (2 * cells) ** 0.5, (guesses, chi_square)


def greedy_is_the_targets_greedy_token_for_token(part):
    target, draft = models()
    start = torch.tensor([[1, 2, 3]])
    wanted = target.generate(start, 20, temperature=0)
    for guesses in (0, 2, 5):
        for wrap in (lambda model: model, Remembering):
            run = part.speculative_sampling(
                wrap(target), wrap(draft), start, 20, draft_tokens=guesses, temperature=0
            )
            assert torch.equal(run.tokens, wanted), guesses
            assert run.accepted + run.passes == 20
            assert 20 / (guesses + 1) <= run.passes <= 20


def a_cache_changes_nothing_and_reads_little(part):
    target, draft = models()
    start = torch.tensor([[1, 2, 3]])
    texts = []
    for wrap in (lambda model: model, Remembering):
        generator = torch.Generator().manual_seed(3)
        wrapped = wrap(target), wrap(draft)
        run = part.speculative_sampling(
            *wrapped, start, 40, draft_tokens=3, temperature=0.7, generator=generator
        )
        texts.append(run.tokens)
    assert torch.equal(*texts)
    large, small = wrapped
    assert len(large.calls) == run.passes
    assert len(small.calls) == run.drafted
    assert max(large.calls[1:]) <= 4  # three guesses, and the token before them
    assert max(small.calls[1:]) <= 2


def a_perfect_draft_is_kept_whole(part):
    target, _ = models()
    generator = torch.Generator().manual_seed(0)
    run = part.speculative_sampling(
        target, target, torch.tensor([[0]]), 30, draft_tokens=4, generator=generator
    )
    assert (run.passes, run.drafted, run.accepted) == (6, 24, 24)


def as_many_guesses_are_kept_as_the_shares_overlap(part):
    p = torch.tensor([0.5, 0.4, 0.1], dtype=torch.float64)
    q = torch.tensor([0.7, 0.1, 0.2], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    run = part.speculative_sampling(
        lambda tokens: p.log().expand(1, tokens.size(1), 3),
        lambda tokens: q.log().expand(1, tokens.size(1), 3),
        torch.tensor([[0]]),
        600,
        draft_tokens=2,
        generator=generator,
    )
    alpha = 0.7
    assert abs(600 / run.passes - (1 - alpha**3) / (1 - alpha)) < 0.2


def a_text_stops_where_the_targets_own_does(part):
    """B12: after the first of its stop tokens, drafted or the target's, at each length of a draft."""
    target, draft = models()
    start = torch.tensor([[1, 2, 3]])
    whole = target.generate(start, 20, temperature=0)[0].tolist()
    for stop in (*range(7), [4, 5], (0, 6), []):
        stops = [stop] if isinstance(stop, int) else stop
        at = [place for place in range(3, len(whole)) if whole[place] in stops]
        wanted = whole[: at[0] + 1] if at else whole
        for guesses in (0, 2, 5):
            for wrap in (lambda model: model, Remembering):
                models_of_it = wrap(target), wrap(draft)
                run = part.speculative_sampling(
                    *models_of_it, start, 20, draft_tokens=guesses, temperature=0, stop=stop
                )
                assert run.tokens[0].tolist() == wanted
                own = len(wanted) - 3 - run.accepted  # tokens that the target drew itself
                assert run.passes - 1 <= own <= run.passes
                assert run.accepted <= run.drafted
                if isinstance(models_of_it[0], Remembering):  # and the caches can go on
                    assert all(len(one.read) < len(wanted) for one in models_of_it)


def a_stop_in_a_draft_counts_what_stands_in_the_text(part):
    table = torch.full((5, 5), -1e9).scatter(1, (torch.arange(5)[:, None] + 1) % 5, 0.0)
    for stop, accepted, own in ((3, 3, 0), (4, 4, 0), (0, 4, 1)):
        run = part.speculative_sampling(
            lambda tokens: table[tokens], lambda tokens: table[tokens], torch.tensor([[0]]), 9,
            draft_tokens=4, stop=stop,
        )  # fmt: skip
        assert run.tokens[0].tolist() == [0, 1, 2, 3, 4, 0][: 1 + accepted + own]
        assert (run.passes, run.drafted, run.accepted) == (1, 4, accepted)


def logits_that_are_no_numbers_are_refused(part):
    """B5, in the target and in the draft."""
    flat = torch.zeros(1, 3)
    for bad in (float("nan"), float("inf"), -float("inf")):
        for pair in ((flat, flat + bad), (flat + bad, flat)):
            for temperature in (0, 0.8):
                wrong, right = (lambda tokens, x=x: x.expand(1, tokens.size(1), 3) for x in pair)
                with pytest.raises(ValueError, match="logits"):
                    part.speculative_sampling(
                        wrong, right, torch.tensor([[0]]), 3, temperature=temperature
                    )


FACTS = [  # the quick ones first
    logits_that_are_no_numbers_are_refused,
    a_stop_in_a_draft_counts_what_stands_in_the_text,
    a_text_stops_where_the_targets_own_does,
    a_perfect_draft_is_kept_whole,
    greedy_is_the_targets_greedy_token_for_token,
    a_cache_changes_nothing_and_reads_little,
    every_deal_taken_once_gives_the_targets_shares,
    as_many_guesses_are_kept_as_the_shares_overlap,
    whole_texts_are_distributed_as_the_targets,
]


@given(st.integers(0, 9), st.integers(0, 6), st.floats(0.0, 2.0), st.integers(0, 99))
def test_exactly_as_many_tokens_are_written_as_asked_for(n, guesses, temperature, seed):
    table = torch.randn(5, 5, generator=torch.Generator().manual_seed(seed))
    run = speculative_sampling.speculative_sampling(
        lambda tokens: table[tokens],
        lambda tokens: table.flip(0)[tokens],
        torch.tensor([[4, 2]]),
        n,
        draft_tokens=guesses,
        temperature=temperature,
    )
    assert run.tokens.shape == (1, n + 2)
    assert run.tokens[0, :2].tolist() == [4, 2]
    assert run.accepted + run.passes == n


def test_equal_shares_but_for_rounding_leave_something_to_draw_from():
    p = torch.tensor([0.5, 0.5], dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", Dealt([1.0, 0.7]))  # refuses what is never refused
        written = speculative_sampling.verify(torch.tensor([0]), p[None], torch.stack([p, p]))
    assert written.tolist() == [1]


@pytest.mark.parametrize("shape", [(1,), (2, 1)])
def test_of_two_texts_the_second_would_never_be_read(shape):
    with pytest.raises(ValueError, match=r"^tokens"):
        speculative_sampling.speculative_sampling(None, None, torch.zeros(shape).long(), 3)


def test_shares_of_another_number_of_tokens_would_be_those_of_others():
    flat = torch.full((1, 3), 1 / 3)
    with pytest.raises(ValueError, match=r"^target_shares"):
        speculative_sampling.verify(torch.tensor([0]), flat, flat)


WRONG = {
    "kept by agreement": (
        "accepted = numbers * q < p",
        "accepted = (drafted == target_shares[:-1].argmax(-1)) & (numbers >= 0)",
    ),
    "the rest is drawn from the target's shares": (
        "missing if missing.sum() > 0 else left",
        "left",
    ),
    "the rest is drawn from the difference, not its positive part": (
        ".clamp(min=0.0)",
        ".abs()",
    ),
    "accepted the wrong way round": ("* q < p  #", "* p < q  #"),
    "always accepted": ("* q < p  #", "* q < p + 2  #"),
    "later guesses survive a refused one": ("accepted.cumprod(dim=0).sum()", "accepted.sum()"),
    "the token after a full draft is the draft's": (
        "left = target_shares[kept]",
        "left = target_shares[min(kept, max(count - 1, 0))]",
    ),
    "shares one place early": (
        "target(text)[0, -count - 1 :]",
        "target(text).roll(1, 1)[0, -count - 1 :]",
    ),
    "the refused stay in the cache": (
        "model.truncate(min(read, tokens.size(1) - 1))",
        "model.truncate(read)",
    ),
    "the cache keeps one too many": (
        "min(read, tokens.size(1) - 1)",
        "min(read, tokens.size(1))",
    ),
    "the cache forgets one too many": (
        "min(read, tokens.size(1) - 1)",
        "min(read, tokens.size(1) - 2)",
    ),
    "the draft is not cut": (
        "for model, read in ((target, known + count), (draft, known + count - 1)):",
        "for model, read in ((target, known + count),):",
    ),
    "greedy takes the least likely": (
        "logits.argmax(dim=-1, keepdim",
        "logits.argmin(dim=-1, keepdim",
    ),
    "too many are written": ("min(draft_tokens, end - known - 1)", "draft_tokens"),
    "the bonus is not counted": ("accepted + len(new) - 1", "accepted + len(new)"),
    "the stop token is cut": ("new[: ended[0] + 1]", "new[: ended[0]]"),
    "the last stop token ends": ("new[: ended[0] + 1]", "new[: ended[-1] + 1]"),
    "it goes on after a stop": (
        "new, end = new[: ended[0] + 1], known",
        "new = new[: ended[0] + 1]",
    ),
    "tokens count that are cut": ("accepted -= max(0, len(new) - 2 - ended[0])", "pass"),
    "a stop takes back too much": ("len(new) - 2 - ended[0]", "len(new) - 1 - ended[0]"),
    "draws the neighbour": ("total < bounds)", "total < bounds.roll(-1, -1))"),
}


def written(_, logits):
    """What is written where the draft and the target say the same of each token."""
    run = speculative_sampling.speculative_sampling(
        lambda tokens: logits[tokens], lambda tokens: logits[tokens], torch.tensor([[0]]), 6
    )
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
