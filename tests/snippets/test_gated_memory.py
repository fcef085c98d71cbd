"""A memory with decay, delta rule or both is its recurrence at every size of a chunk, in pieces, and after a reset."""

import itertools

import torch
import torch.nn.functional as F

from snippets.gated_memory import gated_memory
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, T, alike, close, draw, heads, some

NAMES = ("query", "key", "value", "log_decay", "beta")


def memories(*shape):
    """Each kind of memory, as its arguments by name; shape is (..., T, head_dim, value_dim)."""
    *leading, width, value_dim = shape
    query, key, value = (draw(*leading, n, seed=i) for i, n in enumerate((width, width, value_dim)))
    beta = draw(*leading, 1, seed=3).sigmoid()
    decays = [-draw(*leading, n, seed=4).abs() for n in (1, width)]
    for log_decay, rule in itertools.product((None, *decays), (None, beta)):
        parts = zip(NAMES, (query, F.normalize(key, dim=-1), value, log_decay, rule), strict=True)
        yield {name: part.requires_grad_() for name, part in parts if part is not None}


def one_by_one(query, key, value, log_decay=None, beta=None):
    """The memory as it is written down: one token after the other; outputs and the last state."""
    state, outputs = (key[..., :0, :].mT @ value[..., :0, :]), []
    for t in range(key.size(-2)):
        q, k, v = (part[..., t : t + 1, :] for part in (query, key, value))
        if log_decay is not None:
            state = log_decay[..., t, :, None].exp() * state
        if beta is not None:
            v = beta[..., t : t + 1, :] * (v - k @ state)
        state = state + k.mT @ v
        outputs.append(q @ state)
    return torch.cat(outputs, dim=-2), state


def is_its_recurrence(part, memory, **options):
    """Whether outputs, state and their gradients are those of the recurrence."""
    pairs = zip(part.gated_memory(**memory, **options), one_by_one(**memory), strict=True)
    result, wanted = (torch.cat([x.flatten() for x in both]) for both in zip(*pairs, strict=True))
    return alike(result, wanted, memory.values())


def test_every_memory_is_its_recurrence_at_every_size_of_a_chunk(part):
    for shape, sizes in (
        ((2, 3, 9, 4, 5), (1, 4, 9)),
        ((1, 5, 2), (64, None)),
        ((17, 2, 2), (None,)),
    ):
        for memory, chunk_size in itertools.product(memories(*shape), sizes):
            assert is_its_recurrence(part, memory, chunk_size=chunk_size), (shape, chunk_size)


def test_after_a_reset_nothing_is_left_and_no_digit_lost(part):
    """-inf empties the state, and keeps texts in one row apart; large numbers nearly do so."""
    for memory in memories(4, 20, 4, 3):
        if "log_decay" in memory:
            for row, reset in enumerate((-700.0, -1e4, -1e9, -torch.inf)):
                memory["log_decay"].data[row, [0, 7, 8, *range(12, 16)], -1] = reset
            for chunk_size in (1, 7):
                assert is_its_recurrence(part, memory, chunk_size=chunk_size)


def test_a_text_may_come_in_pieces(part):
    for memory in memories(2, 20, 4, 3):
        whole, last = part.gated_memory(**memory)
        state, outputs = None, []
        for start, end in itertools.pairwise((0, 5, 6, 20)):
            piece = {name: x[:, start:end] for name, x in memory.items()}
            output, state = part.gated_memory(**piece, state=state)
            outputs.append(output)
        assert close(torch.cat(outputs, dim=1), whole)
        assert close(state, last)


def test_sums_are_kept_in_float32_or_in_the_widest_dtype_of_the_inputs(part):
    """In bfloat16 a sum stops at 256, where adding 1 changes nothing."""
    ones = torch.ones(1, 4096, 1, dtype=torch.bfloat16)
    output, state = part.gated_memory(ones, ones, ones)
    assert (output.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert state.tolist() == [[[4096.0]]]
    *_, memory = memories(9, 4, 3)
    wanted, _ = part.gated_memory(**memory)
    for wide in NAMES:
        mixed = {name: x if name == wide else x.float() for name, x in memory.items()}
        result, state = part.gated_memory(**mixed)
        assert (result.dtype, state.dtype) == (mixed["value"].dtype, torch.float64)
        assert close(result.double(), wanted, 1e-5)


def test_what_would_be_misread_is_refused(part):
    """Sizes that broadcast, and a query beyond the last key, which would be answered with zeros."""
    *_, memory = memories(2, 5, 4, 3)
    for name, other in (
        ("key", memory["key"][:, :4]),
        ("value", memory["value"][:, :4]),
        ("log_decay", memory["log_decay"][..., 0]),  # (batch, T): another text's decay
        ("log_decay", memory["log_decay"][..., :2]),
        ("beta", memory["beta"][..., 0]),
        ("beta", memory["log_decay"]),
    ):
        refuses(name, part.gated_memory, **memory | {name: other})


WRONG = {
    "reads a state that has not faded": ("(q * left) @ state", "q @ state"),
    "fades one token late": (
        "left = g.cumsum(dim=-2).exp()",
        "left = (g.cumsum(dim=-2) - g).exp()",
    ),
    "a difference of two sums": (
        "steps.cumsum(dim=-2).exp()",
        "(log_decay.cumsum(-2).unsqueeze(-3) - log_decay.cumsum(-2).unsqueeze(-2)).clamp(max=0).exp()",
    ),
    "does not read before it writes": ("b * (v - (k * left) @ state)", "b * v"),
    "a state in half precision": ("dtype = torch.float32\n", "dtype = parts[0].dtype\n"),
}


def forgets(_, query, key, value, beta, decay):
    """A memory with decay and delta rule, whose keys want length 1."""
    key, log_decay = F.normalize(key, dim=-1), F.logsigmoid(decay)
    return gated_memory(query, key, value, log_decay=log_decay, beta=beta.sigmoid())[0]


CASES = {
    "a decay a head": Case(
        forgets, lambda: (*heads(), some(2, 4, T, 1), some(2, 4, T, 1, seed=2)), casts=False
    ),
    "a decay a channel": Case(
        forgets, lambda: (*heads(), some(2, 4, T, 1), some(2, 4, T, 8, seed=2)), casts=False
    ),
}
MIB = {
    "gated_memory": (
        8.8,
        lambda x: lambda: gated_memory(x, x, x, beta=x[:, :1].sigmoid(), chunk_size=256),
    ),
}
