"""Whatever a server does with its memory and its time, each text is the one that it would be alone."""

import torch
from torch import nn

from snippets import paged_server as file
from snippets.generate import choose, generate
from snippets.kv_cache import KVCache
from snippets.paged_memory import PagedMemory
from tests.snippets.facts import refuses
from tests.snippets.parts import Case
from tests.snippets.test_generate import MODELS, VOCAB, draws, same, some_prompts

NEW = 5


def alone(prompts, model="llama", n=NEW, temperature=1.0):
    """Each text as generate writes it by itself."""
    return [
        generate(MODELS[model], [prompt], n, temperature, [draw], cache=KVCache)[0]
        for prompt, draw in zip(prompts, draws(range(len(prompts))), strict=True)
    ]


def server_of(part, model="llama", blocks=30, block_size=4, **how):
    """A server with a memory of its own."""
    model = MODELS[model] if isinstance(model, str) else model
    memory = PagedMemory(len(model.blocks), blocks, block_size=block_size)
    return part.PagedServer(model, memory, choose, **how)


def serve(part, prompts, *, late=(), n=NEW, **how):
    """Add the prompts, those in `late` after a step, and look at the books after each step."""
    server = server_of(part, **how)
    server.plans, requests = [], {}
    for turn in range(400):
        for i, prompt in enumerate(prompts):
            if i not in requests and (turn or i not in late):
                requests[i] = server.add(prompt, n, draws([i])[0])
        server.plans.append(server.step())
        tables = [block for request in server.running for block in request.table]
        assert not any(request.table for request in server.waiting)
        users = server.memory.users
        assert users == [tables.count(block) for block in range(len(users))]
        if not server.plans[-1]:
            break
    assert not server.plans.pop(), "it does not end"
    server.requests = [requests[i] for i in range(len(prompts))]
    server.texts = [request.tokens for request in server.requests]
    return server


def test_each_text_is_the_one_written_alone(part):
    """However tight the memory is, whoever shares it, and whenever they come."""
    others, alike = some_prompts(3, 7, 1, 5), some_prompts(6) * 5
    for prompts, tight, how in (
        (others, False, {"model": "llama"}),
        (others, False, {"model": "gpt"}),
        (others, True, {"blocks": 12, "block_size": 1, "budget": 3}),
        (others, False, {"blocks": 1, "block_size": 16}),  # one after the other
        (alike, True, {"blocks": 5, "block_size": 3, "late": (1, 2, 3), "budget": 7}),
    ):
        server = serve(part, prompts, **how)
        assert same(server.texts, alone(prompts, how.get("model", "llama")))
        assert (server.preemptions > 0) is tight, how
    assert torch.is_grad_enabled()


def test_text_ends_with_any_of_the_stop_tokens(part):
    prompts = some_prompts(3, 7, 1, 5)
    for stop in (7, [3, 4]):
        server, wanted = serve(part, prompts, stop=stop, temperature=0.8), []
        for prompt, text in zip(prompts, alone(prompts, temperature=0.8), strict=True):
            ends = [i for i, x in enumerate(text.tolist()) if x in torch.tensor(stop)]
            wanted.append(text[: next((i + 1 for i in ends if i >= len(prompt)), None)])
        assert same(server.texts, wanted)


def test_no_step_reads_more_than_the_budget_and_none_wastes_it(part):
    for budget, steps in ((1, 33), (3, 14), (21, 5)):
        read = [
            sum(plan.values()) for plan in serve(part, some_prompts(7, 7, 7), budget=budget).plans
        ]
        assert (sum(read), max(read), len(read)) == (33, budget, steps)


def test_who_writes_never_waits_for_a_prompt(part):
    server = server_of(part, budget=4)
    (first, second), (third,) = some_prompts(1, 7), some_prompts(2, seed=4)
    requests = [server.add(first, 9)]
    server.step()
    requests += [server.add(second, 2), server.add(third, 2)]
    # Of 4 tokens one is the first text's, so 7 tokens of a prompt take three steps.
    for wanted in ([1, 3, 0], [1, 3, 0], [1, 1, 2], [1, 1, 1]):
        plan = server.step()
        assert [plan.get(request, 0) for request in requests] == wanted


def test_the_oldest_is_never_sent_away(part):
    for lengths, blocks, budget in (((4, 4, 4), 4, 64), ((4, 7), 5, 4)):
        server = server_of(part, blocks=blocks, block_size=3, budget=budget)
        requests = [server.add(prompt, NEW) for prompt in some_prompts(*lengths)]
        ends, gone = [], 0
        while server.step():
            ends += [r for r in requests if len(r.tokens) == r.most and r not in ends]
            # Who was sent away is not let in before the next step.
            assert server.waiting or server.preemptions == gone
            gone = server.preemptions
            assert requests[0].table or requests[0] in ends
        assert ends == requests
        assert gone


def test_what_was_read_before_is_not_read_again(part):
    (start,) = some_prompts(6)
    other = torch.cat([start[:5], (start[5:] + 1) % VOCAB])
    prompts = [start, torch.cat([start, start[:3]]), other, start[:4]]
    server = serve(part, prompts, late=(1, 2, 3))
    assert same(server.texts, alone(prompts))
    # Of blocks of 4 tokens each newcomer finds one, but who has 4 tokens must read the last of them.
    assert [list(plan.values()) for plan in server.plans[:2]] == [[6], [1, 5, 2, 4]]
    server = server_of(part, blocks=5, block_size=2)  # who was sent away finds what is left of it
    first, second = server.add(some_prompts(5)[0], 4), server.add(some_prompts(4, seed=3)[0], 3)
    read = [plan.get(second, 0) for plan in iter(server.step, {})]
    assert server.preemptions == 1
    assert sum(read) < 4 + 2 + 4 + 1  # what it had read, all of it again, and the rest
    assert [len(request.tokens) for request in (first, second)] == [9, 7]


class Poisoned(nn.Module):
    """A model whose token 0 is a nan, or an infinity."""

    def __init__(self, bad):
        super().__init__()
        self.model, self.blocks, self.bad = MODELS["llama"], MODELS["llama"].blocks, bad

    def forward(self, tokens, **how):
        hook = self.model.token.register_forward_hook(
            lambda _, given, made: made.masked_fill(given[0][..., None] == 0, self.bad)
        )
        logits = self.model(tokens, **how)
        hook.remove()
        logits[tokens[:, -1] == 0, :, 3] = self.bad  # of one token alone
        return logits


def test_a_text_without_numbers_fails_alone(part):
    """Its neighbours go on, those that begin like it and those that get its blocks, too."""
    sick = [torch.tensor(prompt) for prompt in ([1, 2, 3, 4, 5, 0, 1], [0], [1, 2, 3, 4, 0])]
    sound = [torch.tensor(prompt) for prompt in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5], [7, 8])]
    for bad in (torch.nan, torch.inf):
        for blocks, budget in ((30, 64), (5, 3)):
            how = {"blocks": blocks, "budget": budget, "late": (3, 4, 5)}
            server = serve(part, sick + sound, model=Poisoned(bad), n=1, **how)
            assert [request.failed for request in server.requests] == [True] * 3 + [False] * 3
            assert same(server.texts, sick + alone(sick + sound, n=1)[3:])


def test_a_request_that_would_never_end_is_refused(part):
    refuses("a step that reads nothing", server_of, part, budget=0)
    server, tokens = server_of(part, blocks=2), torch.zeros(3, dtype=torch.int64)
    for prompt, n in ((tokens[:0], 1), (tokens[None], 1), (tokens, 0), (tokens, 7)):
        refuses(f"{n} after {prompt.shape}", server.add, prompt, n)
    server.add(tokens, 6)  # 8 rows hold 3 tokens and 5 of 6, since the last one is never read


WRONG = {
    "one stop token is overlooked": ("in self.stops:", "in self.stops[:1]:"),
    "the budget is for each request": (
        "plan[request], left = count, left - count\n        return plan",
        "plan[request] = count\n        return plan",
    ),
    "the oldest is sent away": (
        "self._preempt(self.running[-1])",
        "self._preempt(self.running[0])",
    ),
    "each piece begins at position 0": (
        "torch.tensor([[r.read] for r in group]",
        "torch.tensor([[0] for r in group]",
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


def written(model, tokens):
    """Twenty tokens after each text."""
    server = server_of(file, model, blocks=99, block_size=16, temperature=0)
    requests = [server.add(text, 20) for text in tokens]
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
