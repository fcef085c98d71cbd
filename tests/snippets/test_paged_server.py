"""Whatever a server does with its memory and its time, each text is the one that it would be alone."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snippets import paged_server as real_server
from snippets.generate import generate
from snippets.kv_cache import KVCache
from tests.snippets.facts import first_to_notice
from tests.snippets.problems import edited
from tests.snippets.test_generate import MODELS, VOCAB, draws, same, some_prompts

NEW = 5


def alone(prompts, seeds, stop=None, model="llama", n=NEW):
    return [
        generate(MODELS[model], [prompt], n, 1.0, [draw], cache=KVCache, stop=stop)[0]
        for prompt, draw in zip(prompts, draws(seeds), strict=True)
    ]


def serve(module, prompts, seeds, model="llama", late=(), n=NEW, **how):
    """Add the prompts, those in `late` after a step, and look at the books after each step."""
    server = module.PagedServer(MODELS[model], **how)
    server.plans, requests = [], {}
    for turn in range(400):
        for i, prompt in enumerate(prompts):
            if i not in requests and (turn or i not in late):
                requests[i] = server.add(prompt, n, draws([seeds[i]])[0])
        server.plans.append(server.step())
        tables = [block for request in server.running for block in request.table]
        assert not any(request.table for request in server.waiting)
        assert server.users == [tables.count(block) for block in range(len(server.users))]
        if not server.plans[-1]:
            break
    assert not server.plans.pop(), "it does not end"
    server.texts = [requests[i].tokens for i in range(len(prompts))]
    return server


# Facts, asked of the module that is given, so that a wrong one can be asked, too.


def each_text_is_the_one_written_alone(module):
    for model in MODELS:
        prompts, seeds = some_prompts(3, 7, 1, 7, 2), range(5)
        server = serve(module, prompts, seeds, model, blocks=30, block_size=4)
        assert same(server.texts, alone(prompts, seeds, model=model))
        assert server.preemptions == 0


def text_ends_with_the_stop_token(module):
    prompts, seeds = some_prompts(3, 7, 1, 5), range(4)
    for stop in range(VOCAB):
        server = serve(module, prompts, seeds, blocks=30, block_size=4, stop=stop)
        assert same(server.texts, alone(prompts, seeds, stop))


def no_step_reads_more_than_the_budget_and_none_wastes_it(module):
    prompts, seeds = some_prompts(7, 7, 7), range(3)
    for budget, steps in ((1, 33), (3, 14), (21, 5)):
        server = serve(module, prompts, seeds, blocks=30, block_size=4, budget=budget)
        assert same(server.texts, alone(prompts, seeds))
        read = [sum(plan.values()) for plan in server.plans]
        assert (sum(read), max(read), len(read)) == (33, budget, steps)


def who_writes_never_waits_for_a_prompt(module):
    server = module.PagedServer(MODELS["llama"], 30, block_size=4, budget=4)
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


def a_full_memory_delays_a_text_and_does_not_change_it(module):
    prompts, seeds = some_prompts(3, 7, 5, 6), range(4)
    for blocks, size in ((5, 3), (4, 3), (12, 1), (1, 16)):
        server = serve(module, prompts, seeds, blocks=blocks, block_size=size)
        assert same(server.texts, alone(prompts, seeds))
        assert server.preemptions or blocks == 1


def the_oldest_is_never_sent_away(module):
    for lengths, blocks, budget in (((4, 4, 4), 4, 64), ((4, 7), 5, 4)):
        server = module.PagedServer(MODELS["llama"], blocks, block_size=3, budget=budget)
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


def what_was_read_before_is_shared_and_not_read_again(module):
    (start,) = some_prompts(6)
    longer, other = torch.cat([start, start[:1]]), start.clone()
    other[2] = (start[2] + 1) % VOCAB  # what agrees after a token that does not is another text
    prompts = [start, longer, other]
    server = serve(module, prompts, range(3), late=(1, 2), blocks=30, block_size=4)
    assert same(server.texts, alone(prompts, range(3)))
    assert [list(plan.values()) for plan in server.plans[:2]] == [[6], [1, 1, 4]]


def nobody_writes_into_a_block_of_another(module):
    """Eight texts of one prompt, which they must leave at different times."""
    prompts, seeds = some_prompts(6) * 8, range(8)
    for late in ((), range(1, 8)):
        for size in (1, 4, 16):
            server = serve(module, prompts, seeds, late=late, blocks=130 // size, block_size=size)
            assert same(server.texts, alone(prompts, seeds))
    # In blocks of 16 one block holds all; of eight texts the last one to write needs no copy.
    assert server.copies == 7


def a_full_memory_of_shared_blocks_changes_nothing(module):
    prompts, seeds, sent, copied = some_prompts(6) * 5, range(5), 0, 0
    for blocks in range(4, 11):
        server = serve(module, prompts, seeds, late=(1, 2, 3), blocks=blocks, block_size=3)
        assert same(server.texts, alone(prompts, seeds))
        sent, copied = sent + server.preemptions, copied + server.copies
    assert sent
    assert copied


FACTS = [
    each_text_is_the_one_written_alone,
    text_ends_with_the_stop_token,
    no_step_reads_more_than_the_budget_and_none_wastes_it,
    who_writes_never_waits_for_a_prompt,
    a_full_memory_delays_a_text_and_does_not_change_it,
    the_oldest_is_never_sent_away,
    what_was_read_before_is_shared_and_not_read_again,
    nobody_writes_into_a_block_of_another,
    a_full_memory_of_shared_blocks_changes_nothing,
]


@pytest.mark.parametrize("fact", FACTS)
def test_it_holds_that(fact):
    fact(real_server)


# what is wrong · old · new · the fact that breaks
WRONG = [
    (
        "writes before the prompt is read",
        "if not request.unread:",
        "if True:",
        no_step_reads_more_than_the_budget_and_none_wastes_it,
    ),
    (
        "the stop token is overlooked",
        " or token.item() == self.stop",
        "",
        text_ends_with_the_stop_token,
    ),
    (
        "blocks are kept after the end",
        "self.running.remove(request)\n                    self._release(request)",
        "self.running.remove(request)",
        each_text_is_the_one_written_alone,
    ),
    (
        "prompts come before what is written",
        "sorted(self.running, key=lambda request: request.unread > 1)",
        "sorted(self.running, key=lambda request: request.unread == 1)",
        who_writes_never_waits_for_a_prompt,
    ),
    (
        "the budget is for each request",
        "plan[request] = count\n            left -= count\n        return plan",
        "plan[request] = count\n        return plan",
        no_step_reads_more_than_the_budget_and_none_wastes_it,
    ),
    (
        "a preempted request keeps what it has read",
        "request.table, request.read = [], 0",
        "request.table = []",
        a_full_memory_delays_a_text_and_does_not_change_it,
    ),
    (
        "a preempted request keeps its table",
        "request.table, request.read = [], 0",
        "request.read = 0",
        a_full_memory_delays_a_text_and_does_not_change_it,
    ),
    (
        "the oldest is sent away",
        "full, newest = True, self.running[-1]",
        "full, newest = True, self.running[0]",
        the_oldest_is_never_sent_away,
    ),
    (
        "who was sent away comes last",
        "self.waiting.insert(0, request)",
        "self.waiting.append(request)",
        the_oldest_is_never_sent_away,
    ),
    (
        "others are let in at once",
        "while self.waiting and left and not full:",
        "while self.waiting and left:",
        the_oldest_is_never_sent_away,
    ),
    (
        "no copy before a write",
        "shared = first < len(table) and self.users[table[first]] > 1",
        "shared = False",
        nobody_writes_into_a_block_of_another,
    ),
    (
        "copies without need",
        "self.users[table[first]] > 1",
        "self.users[table[first]] > 0",
        nobody_writes_into_a_block_of_another,
    ),
    (
        "the copy stays empty",
        "blocks[:, :, target] = blocks[:, :, source]",
        "pass",
        nobody_writes_into_a_block_of_another,
    ),
    (
        "the first layer alone is copied",
        "for memory in self.memories:\n                memory.copy(",
        "for memory in self.memories[:1]:\n                memory.copy(",
        nobody_writes_into_a_block_of_another,
    ),
    (
        "a copied block keeps its count",
        "self.users[table[first]] -= 1\n            self.users[free[0]] += 1",
        "self.users[free[0]] += 1",
        nobody_writes_into_a_block_of_another,
    ),
    (
        "one who leaves frees the block for all",
        "self.users[block] -= 1",
        "self.users[block] = 0",
        nobody_writes_into_a_block_of_another,
    ),
    (
        "shares what was not read",
        "most = min(other.read, len(request.tokens) - 1)",
        "most = min(len(other.tokens), len(request.tokens) - 1)",
        nobody_writes_into_a_block_of_another,
    ),
    (
        "shares the last token, too",
        "len(request.tokens) - 1)",
        "len(request.tokens))",
        nobody_writes_into_a_block_of_another,
    ),
    (
        "shares tokens that agree after one that does not",
        ".cumprod(dim=0).sum()",
        ".sum()",
        what_was_read_before_is_shared_and_not_read_again,
    ),
    (
        "nothing is shared",
        "if alike > request.read:",
        "if False:",
        what_was_read_before_is_shared_and_not_read_again,
    ),
    (
        "a text sees its future",
        "device=device).tril(start)",
        "device=device)",
        each_text_is_the_one_written_alone,
    ),
    (
        "a text sees all that is in the memory",
        "sees = torch.zeros(",
        "sees = torch.ones(",
        each_text_is_the_one_written_alone,
    ),
    (
        "each piece begins at position 0",
        "torch.arange(start, end, device=device))",
        "torch.arange(count, device=device))",
        each_text_is_the_one_written_alone,
    ),
    (
        "the logits of the first request for all",
        "torch.tensor(list(plan.values())).cumsum(dim=0) - 1",
        "torch.tensor(list(plan.values())) - 1",
        each_text_is_the_one_written_alone,
    ),
    (
        "a newcomer keeps blocks that it could not use",
        "self._release(request)\n                break",
        "break",
        a_full_memory_of_shared_blocks_changes_nothing,
    ),
]


@pytest.mark.parametrize(("old", "new", "fact"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_version_is_caught(old, new, fact):
    wrong = edited("paged_server", (old, new))
    assert first_to_notice([fact], wrong)


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
    server = serve(real_server, prompts, range(len(lengths)), model, late, **how)
    assert same(server.texts, alone(prompts, range(len(lengths)), model=model))


def test_it_writes_what_the_likeliest_tokens_are():
    prompts = some_prompts(3, 6)
    server = real_server.PagedServer(MODELS["llama"], 9, block_size=4, temperature=0)
    requests = [server.add(prompt, NEW) for prompt in prompts]
    while server.step():
        pass
    wanted = generate(MODELS["llama"], prompts, NEW, 0)
    assert same([request.tokens for request in requests], wanted)
    assert torch.is_grad_enabled()


ids = torch.zeros(3, dtype=torch.int64)
BAD = [
    ({"blocks": 0}, "blocks", "0"),
    ({"block_size": 1.5}, "block_size", "1.5"),
    ({"budget": 0}, "budget", "0"),
    ({"temperature": -0.1}, "temperature", "-0.1"),
    ({"temperature": float("nan")}, "temperature", "nan"),
]


@pytest.mark.parametrize(("how", "name", "got"), BAD)
def test_a_bad_setting_is_named_with_what_came(how, name, got):
    with pytest.raises(ValueError, match=rf"^{name} must .*got .*{re.escape(got)}"):
        real_server.PagedServer(MODELS["llama"], **{"blocks": 4} | how)


@pytest.mark.parametrize(
    ("prompt", "n", "name", "got"),
    [
        ([1, 2], 1, "prompt", "[1, 2]"),
        (ids[:0], 1, "prompt", "(0,)"),
        (ids[None], 1, "prompt", "(1, 3)"),
        (ids, 0, "n", "0"),
        (ids, 7, "prompt and n", "3 and 7"),
    ],
)
def test_a_bad_request_is_named_with_what_came(prompt, n, name, got):
    server = real_server.PagedServer(MODELS["llama"], 2, block_size=4)
    with pytest.raises(ValueError, match=rf"^{name} must .*got .*{re.escape(got)}"):
        server.add(prompt, n)
    server.add(ids, 6)  # 8 rows hold 3 tokens and 5 of 6, since the last one is never read
