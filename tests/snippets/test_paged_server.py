"""Whatever a server does with its memory and its time, each text is the one that it would be alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from snippets import paged_server as real
from snippets.generate import choose, generate
from snippets.kv_cache import KVCache
from snippets.paged_memory import PagedMemory
from tests.snippets.parts import Case
from tests.snippets.test_generate import MODELS, VOCAB, draws, same, some_prompts

NEW = 5


def alone(prompts, seeds, model="llama", n=NEW):
    return [
        generate(MODELS[model], [prompt], n, 1.0, [draw], cache=KVCache)[0]
        for prompt, draw in zip(prompts, draws(seeds), strict=True)
    ]


def server_of(part, model="llama", blocks=30, block_size=4, **how):
    """A server with a memory of its own."""
    if isinstance(model, str):
        model = MODELS[model]
    memory = PagedMemory(len(model.blocks), blocks, block_size=block_size)
    return part.PagedServer(model, memory, choose, **how)


def serve(part, prompts, seeds, model="llama", late=(), n=NEW, **how):
    """Add the prompts, those in `late` after a step, and look at the books after each step."""
    server = server_of(part, model, **how)
    server.plans, requests = [], {}
    for turn in range(400):
        for i, prompt in enumerate(prompts):
            if i not in requests and (turn or i not in late):
                requests[i] = server.add(prompt, n, draws([seeds[i]])[0])
        server.plans.append(server.step())
        tables = [block for request in server.running for block in request.table]
        assert not any(request.table for request in server.waiting)
        users = server.memory.users
        assert users == [tables.count(block) for block in range(len(users))]
        if not server.plans[-1]:
            break
    assert not server.plans.pop(), "it does not end"
    server.texts = [requests[i].tokens for i in range(len(prompts))]
    return server


# Facts, asked of the module that is given, so that a wrong one can be asked, too.


def each_text_is_the_one_written_alone(part):
    for model in MODELS:
        prompts, seeds = some_prompts(3, 7, 1, 7, 2), range(5)
        server = serve(part, prompts, seeds, model)
        assert same(server.texts, alone(prompts, seeds, model=model))
        assert server.preemptions == 0


def text_ends_with_any_of_the_stop_tokens(part):
    prompts, seeds = some_prompts(3, 7, 1, 5), range(4)
    for stop in (7, [3, 4], (5, 2), []):
        server, wanted = serve(part, prompts, seeds, stop=stop), []
        for prompt, text in zip(prompts, alone(prompts, seeds), strict=True):
            ends = [i for i, x in enumerate(text.tolist()) if x in torch.tensor(stop)]
            wanted.append(text[: next((i + 1 for i in ends if i >= len(prompt)), None)])
        assert same(server.texts, wanted)


def no_step_reads_more_than_the_budget_and_none_wastes_it(part):
    prompts, seeds = some_prompts(7, 7, 7), range(3)
    for budget, steps in ((1, 33), (3, 14), (21, 5)):
        server = serve(part, prompts, seeds, budget=budget)
        assert same(server.texts, alone(prompts, seeds))
        read = [sum(plan.values()) for plan in server.plans]
        assert (sum(read), max(read), len(read)) == (33, budget, steps)


def who_writes_never_waits_for_a_prompt(part):
    server = server_of(part, budget=4)
    first = server.add(some_prompts(1)[0], 9)
    server.step()
    second, third = (
        server.add(some_prompts(7, seed=2)[0], 2),
        server.add(some_prompts(2, seed=4)[0], 2),
    )
    # Of 4 tokens one is the first text's, so 7 tokens of a prompt take three steps.
    for wanted in ([1, 3, 0], [1, 3, 0], [1, 1, 2], [1, 1, 1]):
        plan = server.step()
        assert [plan.get(request, 0) for request in (first, second, third)] == wanted


def a_full_memory_delays_a_text_and_does_not_change_it(part):
    prompts, seeds = some_prompts(3, 7, 5, 6), range(4)
    for blocks, size in ((5, 3), (4, 3), (12, 1), (1, 16)):
        server = serve(part, prompts, seeds, blocks=blocks, block_size=size)
        assert same(server.texts, alone(prompts, seeds))
        assert server.preemptions or blocks == 1


def the_oldest_is_never_sent_away(part):
    for lengths, blocks, budget in (((4, 4, 4), 4, 64), ((4, 7), 5, 4)):
        server = server_of(part, blocks=blocks, block_size=3, budget=budget)
        requests = [server.add(prompt, NEW) for prompt in some_prompts(*lengths)]
        ends, gone = [], 0
        while server.step():
            ends += [r for r in requests if len(r.tokens) == r.most and r not in ends]
            if server.preemptions > gone:  # who was sent away is not let in before the next step
                assert server.waiting
            gone = server.preemptions
            assert requests[0].table or requests[0] in ends
        assert ends == requests
        assert gone


def a_newcomer_waits_until_there_is_room(part):
    server = server_of(part, blocks=3)
    _, second = (server.add(prompt, NEW) for prompt in some_prompts(8, 7))
    plans = list(iter(server.step, {}))
    assert [second in plan for plan in plans] == [False] * NEW + [True] * NEW
    assert server.preemptions == 0


def what_was_read_before_is_not_read_again(part):
    (start,) = some_prompts(6)
    longer, other = torch.cat([start, start[:3]]), start.clone()
    other[5] = (start[5] + 1) % VOCAB
    prompts = [start, longer, other, start[:4]]
    server = serve(part, prompts, range(4), late=(1, 2, 3))
    assert same(server.texts, alone(prompts, range(4)))
    # Of blocks of 4 tokens each newcomer finds one, but who has 4 tokens must read the last of them.
    assert [list(plan.values()) for plan in server.plans[:2]] == [[6], [1, 5, 2, 4]]


def who_was_sent_away_finds_what_is_left_of_it(part):
    server = server_of(part, blocks=5, block_size=2)
    first, second = server.add(some_prompts(5)[0], 4), server.add(some_prompts(4, seed=3)[0], 3)
    read = [plan.get(second, 0) for plan in iter(server.step, {})]
    assert server.preemptions == 1
    assert sum(read) < 4 + 2 + 4 + 1  # what it had read, all of it again, and the rest
    assert [len(request.tokens) for request in (first, second)] == [9, 7]


def a_full_memory_of_shared_blocks_changes_nothing(part):
    prompts, seeds, sent = some_prompts(6) * 5, range(5), 0
    for blocks in (4, 5, 8):
        server = serve(part, prompts, seeds, late=(1, 2, 3), blocks=blocks, block_size=3)
        assert same(server.texts, alone(prompts, seeds))
        sent += server.preemptions
    assert sent


class Poisoned(nn.Module):
    """A model whose token 0 is a nan, an infinity, or another number that is none."""

    def __init__(self, bad):
        super().__init__()
        self.model, self.blocks, self.bad = MODELS["llama"], MODELS["llama"].blocks, bad
        self.token = self.model.token

    def forward(self, tokens, **how):
        hook = self.token.register_forward_hook(
            lambda _, given, made: made.masked_fill(given[0][..., None] == 0, self.bad)
        )
        logits = self.model(tokens, **how)
        hook.remove()
        logits[tokens[:, -1] == 0, :, 3] = self.bad  # of one token alone
        return logits


def a_text_without_numbers_fails_alone(part):
    """Its neighbours go on, those that begin like it and those that get its blocks, too."""
    sound = [torch.tensor(prompt) for prompt in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5], [7, 8])]
    sick = [torch.tensor(prompt) for prompt in ([1, 2, 3, 4, 5, 0, 1], [0], [1, 2, 3, 4, 0])]
    for bad in (torch.nan, torch.inf):
        for blocks, budget in ((30, 64), (5, 3)):
            server = server_of(part, Poisoned(bad), blocks=blocks, block_size=4, budget=budget)
            wanted = [
                server.add(prompt, NEW, g) for prompt, g in zip(sick, draws(range(3)), strict=True)
            ]
            server.step()
            found = [
                server.add(prompt, 1, g) for prompt, g in zip(sound, draws(range(3)), strict=True)
            ]
            while server.step():
                pass
            assert same([request.tokens for request in wanted], sick)
            assert all(request.failed for request in wanted)
            assert same([request.tokens for request in found], alone(sound, range(3), n=1))
            assert not any(request.failed for request in found)
            assert not any(server.memory.users)


FACTS = [
    each_text_is_the_one_written_alone,
    text_ends_with_any_of_the_stop_tokens,
    no_step_reads_more_than_the_budget_and_none_wastes_it,
    who_writes_never_waits_for_a_prompt,
    a_full_memory_delays_a_text_and_does_not_change_it,
    the_oldest_is_never_sent_away,
    a_newcomer_waits_until_there_is_room,
    what_was_read_before_is_not_read_again,
    who_was_sent_away_finds_what_is_left_of_it,
    a_full_memory_of_shared_blocks_changes_nothing,
    a_text_without_numbers_fails_alone,
]

WRONG = {
    "writes before the prompt is read": ("if not request.unread:", "if True:"),
    "one stop token is overlooked": ("in self.stops:", "in self.stops[:1]:"),
    "no stop token is looked for": (" or request.tokens[-1].item() in self.stops", ""),
    "blocks are kept after the end": (
        "self.running.remove(request)\n                    self.memory.release(request.table)",
        "self.running.remove(request)",
    ),
    "the budget is for each request": (
        "plan[request], left = count, left - count\n        return plan",
        "plan[request] = count\n        return plan",
    ),
    "a preempted request keeps its blocks": (
        "self.waiting.insert(0, request)\n        self.memory.release(request.table)",
        "self.waiting.insert(0, request)",
    ),
    "the oldest is sent away": (
        "self._preempt(self.running[-1])",
        "self._preempt(self.running[0])",
    ),
    "who was sent away comes last": (
        "self.waiting.insert(0, request)",
        "self.waiting.append(request)",
    ),
    "a newcomer keeps blocks that it could not use": (
        "self.memory.release(request.table)  # for a newcomer nobody is sent away",
        "",
    ),
    "what was found is read again": (
        "request.read = len(request.table) * self.memory.size",
        "request.read = 0",
    ),
    "nothing can be found": ("self.memory.keep(", "(lambda *_: None)("),
    "each piece begins at position 0": (
        "torch.tensor([[r.read] for r in group]",
        "torch.tensor([[0] for r in group]",
    ),
    "the logits of the first request for all": (
        "logits[:, -1], strict",
        "logits[:1, -1].expand(len(group), -1), strict",
    ),
    "a mask of the first request for all": (
        "mask = self.memory.open([r.table for r in group], positions)",
        "mask = self.memory.open([r.table for r in group], positions)[:1].expand(len(group), -1, -1, -1)",
    ),
    "who has no numbers is not told": (
        "request.failed = not logits.amax().isfinite()",
        "request.failed = False",
    ),
    "one draws for all": ("[request.generator])", "[next(iter(plan)).generator])"),
}


class OneHot(nn.Module):
    """After each token comes the next one, in any dtype."""

    def __init__(self):
        super().__init__()
        self.weight, self.blocks = nn.Parameter(torch.eye(VOCAB).roll(1, dims=1)), ()

    def forward(self, tokens, **how):
        return self.weight[tokens]


def written(model, tokens, temperature=0, n=20):
    server = server_of(real, model, blocks=99, block_size=16, temperature=temperature)
    requests = [server.add(text, n) for text in tokens]
    while server.step():
        pass
    return torch.stack([request.tokens for request in requests])


CASES = {
    "one after the other": Case(
        written,
        lambda: (torch.arange(12).view(4, 3) % VOCAB,),
        OneHot,
        returns=lambda dtype: torch.int64,
        roundings=0,
        backward=False,
        meta=False,
    )
}


@settings(max_examples=30)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    alike=st.booleans(),
    size=st.integers(1, 8),
    spare=st.integers(0, 6),
    budget=st.integers(1, 12),
    late=st.booleans(),
    model=st.sampled_from(sorted(MODELS)),
)
def test_however_tight_it_is_a_text_stays_the_same(
    lengths, alike, size, spare, budget, late, model
):
    (start,) = some_prompts(7)
    prompts = [start[:length] for length in lengths] if alike else some_prompts(*lengths)
    blocks = -(-(max(lengths) + NEW - 1) // size) + spare
    how = {"blocks": blocks, "block_size": size, "budget": budget}
    late = range(1, len(lengths)) if late else ()
    server = serve(real, prompts, range(len(lengths)), model, late, **how)
    assert same(server.texts, alone(prompts, range(len(lengths)), model=model))


def test_it_writes_what_the_likeliest_tokens_are():
    prompts = some_prompts(3, 6)
    server = server_of(real, temperature=0)
    requests = [server.add(prompt, NEW) for prompt in prompts]
    while server.step():
        pass
    wanted = generate(MODELS["llama"], prompts, NEW, 0)
    assert same([request.tokens for request in requests], wanted)
    assert torch.is_grad_enabled()


class Equal(nn.Module):
    """A model to which all of 1,000 tokens are equally likely."""

    blocks = ()

    def forward(self, tokens, **how):
        return torch.zeros(*tokens.shape, 1000, dtype=torch.bfloat16)


def test_of_equal_tokens_each_can_be_drawn():
    """4,000 draws leave out 18 of 1,000; shares that are summed in bfloat16 leave out half."""
    torch.manual_seed(0)
    tokens = written(Equal(), torch.zeros(10, 3, dtype=torch.int64), 1.0, 400)
    assert len(tokens[:, 3:].unique()) > 950


ids = torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(("prompt", "n"), [(ids[:0], 1), (ids[None], 1), (ids, 0), (ids, 7)])
def test_a_request_that_would_never_end_is_refused(prompt, n):
    server = server_of(real, blocks=2)
    with pytest.raises(ValueError, match=r"^prompt and n must"):
        server.add(prompt, n)
    server.add(ids, 6)  # 8 rows hold 3 tokens and 5 of 6, since the last one is never read


def test_a_step_reads_something():
    with pytest.raises(ValueError, match=r"^budget must"):
        server_of(real, budget=0)
