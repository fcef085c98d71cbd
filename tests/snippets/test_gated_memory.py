"""A memory with decay, delta rule or both: equal to its recurrence in every form, each form the limit of the next, and causal."""

import itertools
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from snippets.gated_memory import gated_memory
from snippets.linear_attention import linear_attention
from tests.snippets.parts import Case, T, heads, some

F64 = torch.float64
SHAPES = (((9, 4, 3), 4), ((2, 3, 8, 5, 5), 3), ((2, 1, 2, 6), None), ((7, 2, 2), 1))


def draw(*shape, seed=0, dtype=F64):
    """Queries, keys of length 1 and values; shape is (..., T, head_dim, value_dim)."""
    torch.manual_seed(seed)
    *batch, T, head_dim, value_dim = shape
    query, key = torch.randn(2, *batch, T, head_dim, dtype=dtype)
    return query, F.normalize(key, dim=-1), torch.randn(*batch, T, value_dim, dtype=dtype)


def gates(*shape, seed=0, dtype=F64):
    """Each kind of memory, by the arguments that make it: gates for (..., T, head_dim)."""
    torch.manual_seed(seed)
    *batch, T, head_dim = shape
    beta = torch.rand(*batch, T, 1, dtype=dtype)
    decays = [-2 * torch.rand(*batch, T, width, dtype=dtype) for width in (1, head_dim)]
    for log_decay, rule in itertools.product((None, *decays), (None, beta)):
        pair = {"log_decay": log_decay, "beta": rule}
        yield {name: gate for name, gate in pair.items() if gate is not None}


def one_by_one(query, key, value, log_decay=None, beta=None):
    """The memory as it is written down: one token after the other."""
    state = value.new_zeros(*key.shape[:-2], key.size(-1), value.size(-1))
    outputs = []
    for t in range(key.size(-2)):
        q, k, v = (part[..., t, :] for part in (query, key, value))
        if log_decay is not None:
            state = log_decay[..., t, :, None].exp() * state
        if beta is not None:
            v = beta[..., t, :] * (v - torch.einsum("...k,...kv->...v", k, state))
        state = state + torch.einsum("...k,...v->...kv", k, v)
        outputs.append(torch.einsum("...k,...kv->...v", q, state))
    return torch.stack(outputs, dim=-2), state


def gradients(outputs, inputs):
    torch.manual_seed(1)
    return torch.autograd.grad(
        sum((part * torch.randn(part.shape, dtype=F64)).sum() for part in outputs), inputs
    )


def assert_close(result, wanted, atol=1e-10):
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


# Facts


def every_memory_is_its_recurrence(part):
    for shape, chunk_size in SHAPES:
        for gate in gates(*shape[:-1]):
            inputs = [piece.requires_grad_() for piece in (*draw(*shape), *gate.values())]
            query, key, value = inputs[:3]
            result = part.gated_memory(query, key, value, chunk_size=chunk_size, **gate)
            wanted = one_by_one(query, key, value, **gate)
            assert_close(
                [*result, *gradients(result, inputs)], [*wanted, *gradients(wanted, inputs)]
            )


def a_text_may_come_in_pieces(part):
    inputs = draw(2, 11, 4, 3)
    for gate in gates(2, 11, 4):
        whole, last = part.gated_memory(*inputs, **gate, chunk_size=4)
        state, outputs = None, []
        for start, end in ((0, 5), (5, 6), (6, 11)):
            pieces = [x[..., start:end, :] for x in inputs]
            now = {name: x[..., start:end, :] for name, x in gate.items()}
            output, state = part.gated_memory(*pieces, **now, chunk_size=4, state=state)
            outputs.append(output)
        assert_close([torch.cat(outputs, dim=-2), state], [whole, last])


def the_future_cannot_change_the_past(part):
    inputs = draw(9, 4, 3)
    for gate in gates(9, 4):
        before, _ = part.gated_memory(*inputs, **gate, chunk_size=4)
        for t in range(9):
            changed = [x.clone() for x in inputs]
            now = {name: x.clone() for name, x in gate.items()}
            for x in (*changed, *now.values()):
                x[t] = 0.9 * x[t] - 0.1
            after, _ = part.gated_memory(*changed, **now, chunk_size=4)
            moved = (after - before).abs().amax(dim=-1) > 1e-9
            assert moved[t:].all()
            assert not moved[:t].any()


def what_was_forgotten_long_ago_makes_no_nan(part):
    query, key, value = draw(40, 4, 3, dtype=torch.float32)
    for width in (1, 4):
        log_decay = torch.full((40, width), -30.0)
        result, _ = part.gated_memory(query, key, value, log_decay=log_decay)
        alone = (query * key).sum(dim=-1, keepdim=True) * value  # each token reads itself alone
        assert_close([result], [alone], atol=1e-5)


def the_state_is_as_wide_as_the_widest_of_all_the_inputs(part):
    inputs, gate = draw(2, 9, 4, 3), list(gates(2, 9, 4))[-1]
    wanted, _ = part.gated_memory(*inputs, **gate)
    for wide in range(5):
        mixed = [x if i == wide else x.float() for i, x in enumerate((*inputs, *gate.values()))]
        result, state = part.gated_memory(*mixed[:3], log_decay=mixed[3], beta=mixed[4])
        assert state.dtype == F64
        assert result.dtype == mixed[2].dtype
        assert_close([result.double()], [wanted], atol=1e-5)


def a_long_sum_is_kept_in_float32(part):
    ones = torch.ones(1, 4096, 1, dtype=torch.bfloat16)
    output, state = part.gated_memory(ones, ones, ones)
    assert (output.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert state.tolist() == [[[4096.0]]]


def a_reset_is_the_same_at_every_chunk_size(part):
    names = ("log_decay", "beta")
    for dtype, width in itertools.product((F64, torch.float32), (1, 4)):
        log_decay, beta = (
            -0.5 * torch.rand(4, 30, width, dtype=F64),
            torch.rand(4, 30, 1, dtype=F64),
        )
        for row, reset in enumerate((-700.0, -1e4, -1e9, -torch.inf)):
            log_decay[row, [0, 7, 8, *range(20, 24)], -1] = reset
        inputs = [x.to(dtype).requires_grad_() for x in (*draw(4, 30, 4, 3), log_decay, beta)]
        exact = [x.detach().double().requires_grad_() for x in inputs]
        for count in (4, 5):  # without beta, and with it
            wanted = one_by_one(*exact[:3], **dict(zip(names, exact[3:count], strict=False)))
            wanted = [*wanted, *gradients(wanted, exact[:count])]
            for chunk_size in (1, 7, 30, None):
                gate = dict(zip(names, inputs[3:count], strict=False))
                result = part.gated_memory(*inputs[:3], **gate, chunk_size=chunk_size)
                result = [*result, *gradients(result, inputs[:count])]
                atol = 1e-10 if dtype == F64 else 2e-5
                assert_close([x.double() for x in result], wanted, atol=atol)


def texts_in_one_row_are_kept_apart_by_a_decay_of_minus_infinity(part):
    inputs = draw(2, 30, 4, 3)
    for gate in gates(2, 30, 4):
        if "log_decay" in gate:
            gate["log_decay"][..., [0, 3, 20], :] = -torch.inf
            packed, last = part.gated_memory(*inputs, **gate)
            for start, end in ((0, 3), (3, 20), (20, 30)):
                alone = {name: x[..., start:end, :] for name, x in gate.items()}
                alone["log_decay"] = alone["log_decay"].clone()
                alone["log_decay"][..., 0, :] = 0.0
                text = [x[..., start:end, :] for x in inputs]
                wanted, state = part.gated_memory(*text, **alone)
                assert_close([packed[..., start:end, :]], [wanted])
            assert_close([last], [state])


def a_chunk_is_shorter_where_each_channel_has_its_decay(part):
    """Three calls of a solver for 48 tokens, and one."""
    inputs = draw(48, 4, 3)
    for width, wanted in ((1, 1), (4, 3)):
        gate = {"log_decay": -torch.rand(48, width, dtype=F64), "beta": torch.ones(48, 1).double()}
        with mock.patch.object(
            torch.linalg, "solve_triangular", wraps=torch.linalg.solve_triangular
        ) as solver:
            part.gated_memory(*inputs, **gate)
        assert solver.call_count == wanted


FACTS = [
    every_memory_is_its_recurrence,
    a_text_may_come_in_pieces,
    the_future_cannot_change_the_past,
    what_was_forgotten_long_ago_makes_no_nan,
    a_reset_is_the_same_at_every_chunk_size,
    texts_in_one_row_are_kept_apart_by_a_decay_of_minus_infinity,
    the_state_is_as_wide_as_the_widest_of_all_the_inputs,
    a_long_sum_is_kept_in_float32,
    a_chunk_is_shorter_where_each_channel_has_its_decay,
]

SINCE = "steps.cumsum(dim=-2).exp()"
WRONG = {
    "forgets what came before the chunk": ("(q * left) @ state + _pairs", "_pairs"),
    "reads a state that has not faded": ("(q * left) @ state", "q @ state"),
    "corrects by a state that has not faded": ("(k * left) @ state", "k @ state"),
    "the state does not fade": ("left[..., -1:, :].mT * state", "state"),
    "what is written does not fade": ("(k * since[..., -1, :, :]).mT", "k.mT"),
    "the columns fade, not the rows": (
        "left[..., -1:, :].mT * state",
        "left[..., -1:, :].mean() * state",
    ),
    "fades one token late": (
        "left = g.cumsum(dim=-2).exp()",
        "left = (g.cumsum(dim=-2) - g).exp()",
    ),
    "keeps the last chunk alone": ("left[..., -1:, :].mT * state + (k", "0 * state + (k"),
    "reads the whole chunk": ("_pairs(q, k, since).tril()", "_pairs(q, k, since)"),
    "leaves the present out": ("_pairs(q, k, since).tril()", "_pairs(q, k, since).tril(-1)"),
    "divides what has been forgotten": (
        SINCE,
        "(log_decay.cumsum(-2).exp().unsqueeze(-3) / log_decay.cumsum(-2).exp().unsqueeze(-2))",
    ),
    "a difference of two sums": (
        SINCE,
        "(log_decay.cumsum(-2).unsqueeze(-3) - log_decay.cumsum(-2).unsqueeze(-2)).clamp(max=0).exp()",
    ),
    "a difference of two sums, clamped": (
        SINCE,
        "(log_decay.clamp(-60).cumsum(-2).unsqueeze(-3) - log_decay.clamp(-60).cumsum(-2).unsqueeze(-2))"
        ".clamp(max=0).exp()",
    ),
    "a token's own decay weakens what it writes": (".triu(1)[..., None]", ".triu(0)[..., None]"),
    "one channel's decay for all": (
        "(left.unsqueeze(-2) * right.unsqueeze(-3) * since).sum(dim=-1)",
        "left @ right.mT * since[..., 0]",
    ),
    "no beta in the triangle": ("(b * _pairs(k, k, since))", "_pairs(k, k, since)"),
    "beta of the earlier token": ("(b * _pairs(k, k, since))", "(b.mT * _pairs(k, k, since))"),
    "a token corrects itself": ("upper=False, unitriangular=True", "upper=False"),
    "does not read before it writes": ("b * (v - (k * left) @ state)", "b * v"),
    "beta on the value alone": ("b * (v - (k * left) @ state)", "b * v - (k * left) @ state"),
    "beta is not used": ("if beta is not None:", "if False:"),
    "writes the values": (":]).mT @ written", ":]).mT @ v"),
    "reads the values": (".tril() @ written", ".tril() @ v"),
    "ignores the state that it is given": ("if state is None:", "if True:"),
    "the dtype of all but beta": ("for part in parts:", "for part in parts[:4]:"),
    "a state in half precision": ("dtype = torch.float32\n", "dtype = parts[0].dtype\n"),
    "long chunks for every gate": ("64 if log_decay.size(-1) == 1 else 16", "64"),
    "short chunks for every gate": ("64 if log_decay.size(-1) == 1 else 16", "16"),
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
        8,
        lambda x: lambda: gated_memory(x, x, x, beta=x[:, :1].sigmoid(), chunk_size=128),
    ),
}


@given(st.integers(1, 20), st.integers(1, 25), st.integers(0, 5), st.integers(0, 2**31))
def test_the_size_of_a_chunk_changes_nothing(T, chunk_size, kind, seed):
    inputs, gate = draw(T, 3, 2, seed=seed), list(gates(T, 3, seed=seed))[kind]
    assert_close(
        gated_memory(*inputs, **gate, chunk_size=chunk_size),
        gated_memory(*inputs, **gate, chunk_size=1),
    )


def test_each_memory_is_the_limit_of_the_next():
    inputs = draw(2, 9, 4, 3)
    head, channels = (-torch.rand(2, 9, width, dtype=F64) for width in (1, 4))
    beta = torch.rand(2, 9, 1, dtype=F64)
    ones = torch.zeros(2, 9, 4, dtype=F64)  # gates of 1
    for rule in ({}, {"beta": beta}):
        alike = gated_memory(*inputs, log_decay=head.expand(2, 9, 4), **rule)
        assert_close(alike, gated_memory(*inputs, log_decay=head, **rule))
        assert_close(gated_memory(*inputs, log_decay=ones, **rule), gated_memory(*inputs, **rule))
        differ = gated_memory(*inputs, log_decay=channels, **rule)[0] - alike[0]
        assert differ.abs().max() > 0.01
    plain = linear_attention(*inputs, feature_map=lambda x: x, normalize=False)
    assert_close(gated_memory(*inputs), plain)
    keys = torch.eye(9, dtype=F64)  # at right angles, so nothing stands under a key yet
    full = torch.ones(9, 1, dtype=F64)
    value = inputs[2][0]
    assert_close(gated_memory(keys, keys, value, beta=full), gated_memory(keys, keys, value))


def test_retention_is_a_triangle_of_powers():
    query, key, value = draw(9, 4, 3)
    ages = torch.arange(9)[:, None] - torch.arange(9)
    wanted = (query @ key.mT * 0.9 ** ages.clamp(min=0).double()).tril() @ value
    log_decay = torch.full((9, 1), 0.9, dtype=F64).log()
    assert_close([gated_memory(query, key, value, log_decay=log_decay, chunk_size=4)[0]], [wanted])


def test_keys_at_right_angles_are_recalled_exactly():
    key, value = torch.eye(6, dtype=F64), draw(6, 6, 4)[2]
    state = gated_memory(key, key, value, beta=torch.ones(6, 1, dtype=F64))[1]
    assert_close([key @ state], [value], atol=1e-12)


def test_beta_1_overwrites_and_beta_0_leaves_alone():
    key, (first, second) = F.normalize(draw(1, 6, 4)[1], dim=-1), draw(2, 6, 4)[2][:, None]
    zero, one = torch.zeros(1, 1, dtype=F64), torch.ones(1, 1, dtype=F64)
    _, state = gated_memory(key, key, first, beta=one)
    _, same = gated_memory(key, key, second, beta=zero, state=state)
    _, other = gated_memory(key, key, second, beta=one, state=state)
    assert_close([key @ same, key @ other], [first, second], atol=1e-12)


def test_autocast_does_not_reach_the_state():
    inputs = draw(2, 50, 8, 4, dtype=torch.float32)
    for gate in gates(2, 50, 8, dtype=torch.float32):
        wanted = gated_memory(*inputs, **gate)
        with torch.autocast("cpu", torch.bfloat16):
            result = gated_memory(*inputs, **gate)
        assert_close(result, wanted, atol=1e-6)


@pytest.mark.lab
def test_it_compiles():
    torch._dynamo.reset()
    compiled = torch.compile(gated_memory, backend="eager", fullgraph=True)
    inputs = draw(2, 20, 4, 3)
    for gate in gates(2, 20, 4):
        assert_close(
            compiled(*inputs, **gate, chunk_size=8), gated_memory(*inputs, **gate, chunk_size=8)
        )


@pytest.mark.parametrize(
    "change",
    [
        {"key": slice(0, 4)},  # a query beyond the last key would answer with zeros
        {"value": slice(0, 4)},
        {"log_decay": (..., 0)},  # (batch, T): each text would have one decay a token of another
        {"beta": (..., 0)},
    ],
)
def test_what_would_be_misread_is_refused(change):
    q, k, v = draw(2, 5, 4, 3)
    inputs = {
        "query": q,
        "key": k,
        "value": v,
        "log_decay": -k[..., :1].abs(),
        "beta": k[..., :1].abs(),
    }
    for name, part in change.items():
        inputs[name] = inputs[name][:, part] if isinstance(part, slice) else inputs[name][part]
    with pytest.raises(ValueError, match=r"must"):
        gated_memory(**inputs)
