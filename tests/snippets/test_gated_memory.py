"""A memory with decay, delta rule or both: equal to its recurrence in every form, each form the limit of the next, and causal."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from snippets import gated_memory as file
from snippets.gated_memory import GatedDeltaNet, MemoryCache, gated_memory
from snippets.linear_attention import linear_attention
from tests.snippets.facts import first_to_notice, works
from tests.snippets.problems import edited

F64 = torch.float64
SHAPES = (((9, 4, 3), 4), ((2, 3, 8, 5, 5), 3), ((2, 1, 2, 6), 64), ((7, 2, 2), 1))


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
        sum((part * torch.randn_like(part)).sum() for part in outputs), inputs
    )


def assert_close(result, wanted, atol=1e-10):
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


# Each fact takes the file, so that wrong versions of it can be asked, too.


def every_memory_is_its_recurrence(part=file):
    for shape, chunk_size in SHAPES:
        for gate in gates(*shape[:-1]):
            inputs = [piece.requires_grad_() for piece in (*draw(*shape), *gate.values())]
            query, key, value = inputs[:3]
            result = part.gated_memory(query, key, value, chunk_size=chunk_size, **gate)
            wanted = one_by_one(query, key, value, **gate)
            assert_close(
                [*result, *gradients(result, inputs)], [*wanted, *gradients(wanted, inputs)]
            )


def a_text_may_come_in_pieces(part=file):
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


def the_future_cannot_change_the_past(part=file):
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


def what_was_forgotten_long_ago_makes_no_nan(part=file):
    query, key, value = draw(40, 4, 3, dtype=torch.float32)
    for width in (1, 4):
        log_decay = torch.full((40, width), -30.0)
        result, _ = part.gated_memory(query, key, value, log_decay=log_decay)
        alone = (query * key).sum(dim=-1, keepdim=True) * value  # each token reads itself alone
        assert_close([result], [alone], atol=1e-5)


def the_state_is_as_wide_as_the_widest_of_all_the_inputs(part=file):
    inputs, gate = draw(2, 9, 4, 3), list(gates(2, 9, 4))[-1]
    wanted, _ = part.gated_memory(*inputs, **gate)
    for wide in range(5):
        mixed = [x if i == wide else x.float() for i, x in enumerate((*inputs, *gate.values()))]
        result, state = part.gated_memory(*mixed[:3], log_decay=mixed[3], beta=mixed[4])
        assert state.dtype == F64
        assert result.dtype == mixed[2].dtype
        assert_close([result.double()], [wanted], atol=1e-5)


def shapes_are_known_without_numbers(part=file):
    for gate in gates(2, 9, 4):
        gate = {name: x.to("meta") for name, x in gate.items()}
        with works("a memory on the meta device"):
            inputs = (x.to("meta") for x in draw(2, 9, 4, 3))
            output, state = part.gated_memory(*inputs, **gate, chunk_size=4)
        assert (output.shape, state.shape) == ((2, 9, 3), (2, 4, 3))


def a_long_sum_is_kept_in_float32(part=file):
    ones = torch.ones(1, 4096, 1, dtype=torch.bfloat16)
    output, state = part.gated_memory(ones, ones, ones)
    assert (output.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert state.tolist() == [[[4096.0]]]


def layer(part=file, **options):
    """A layer whose heads share keys, and whose weights differ from those of a new one."""
    torch.manual_seed(0)
    options = {"num_key_heads": 2, "head_dim": 5, "value_dim": 3, **options}
    made = part.GatedDeltaNet(8, 4, **options).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def the_layer_is_what_it_says(part=file):
    made, x = layer(part), torch.randn(2, 7, 8, dtype=F64)

    def mixed(weight, rows):
        """Project, look at the last four tokens channel by channel, and cut into heads."""
        before = F.pad(x @ weight.T, (0, 0, 3, 0))
        kernel = made.convolution.weight[rows, 0]  # (channels, 4)
        seen = sum(before[:, i : i + 7] * kernel[:, i] for i in range(4))
        return F.silu(seen)

    query = mixed(made.W_query.weight, slice(0, 10)).unflatten(-1, (2, 5))
    key = mixed(made.W_key.weight, slice(10, 20)).unflatten(-1, (2, 5))
    value = mixed(made.W_value.weight, slice(20, 32)).unflatten(-1, (4, 3))
    rate = made.log_rate.exp() * F.softplus(x @ made.W_decay.weight.T + made.decay_bias)
    beta = (x @ made.W_beta.weight.T).sigmoid()
    heads = []
    for head in range(4):
        q, k = query[:, :, head // 2], key[:, :, head // 2]
        q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
        output, _ = one_by_one(
            q / 5**0.5, k, value[:, :, head], -rate[..., head, None], beta[..., head, None]
        )
        output = output / (output.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        heads.append(output * made.norm.weight)
    gate = F.silu(x @ made.W_gate.weight.T)
    wanted = (torch.cat(heads, dim=-1) * gate) @ made.out_proj.weight.T
    assert_close([made(x)], [wanted])


def a_layer_may_read_in_pieces(part=file):
    made, x = layer(part), torch.randn(2, 11, 8, dtype=F64)
    for sizes in ([11], [5, 1, 5], [1] * 11, [2, 9]):
        cache = part.MemoryCache()
        pieces = [made(piece, cache=cache) for piece in x.split(sizes, dim=1)]
        assert_close([torch.cat(pieces, dim=1)], [made(x)])
        assert cache.state is not None
        assert cache.recent is not None
        assert (cache.state.shape, cache.recent.shape) == ((2, 4, 5, 3), (2, 32, 3))


def rows_of_zeros_before_a_text_change_nothing(part=file):
    made, x = layer(part), torch.randn(2, 7, 8, dtype=F64)
    padded = made(F.pad(x, (0, 0, 5, 0)))
    assert_close([padded[:, 5:]], [made(x)])
    assert padded[:, :5].abs().max() == 0


FACTS = [
    the_layer_is_what_it_says,
    a_layer_may_read_in_pieces,
    rows_of_zeros_before_a_text_change_nothing,
    every_memory_is_its_recurrence,
    a_text_may_come_in_pieces,
    the_future_cannot_change_the_past,
    what_was_forgotten_long_ago_makes_no_nan,
    the_state_is_as_wide_as_the_widest_of_all_the_inputs,
    shapes_are_known_without_numbers,
    a_long_sum_is_kept_in_float32,
]


@pytest.mark.parametrize("fact", FACTS)
def test_fact(fact):
    fact()


WRONG = {
    "forgets what came before the chunk": ("(q * left) @ state + _pairs", "_pairs"),
    "reads a state that has not faded": ("(q * left) @ state", "q @ state"),
    "corrects by a state that has not faded": ("(k * left) @ state", "k @ state"),
    "the state does not fade": ("last.exp().mT * state", "state"),
    "what is written does not fade": ("(k * (last - total).exp()).mT", "k.mT"),
    "the columns fade, not the rows": ("last.exp().mT * state", "last.exp().mean() * state"),
    "fades one token late": ("total = g.cumsum(dim=-2)", "total = g.cumsum(dim=-2) - g"),
    "keeps the last chunk alone": ("last.exp().mT * state + (k", "0 * state + (k"),
    "reads the whole chunk": (".triu(1).unsqueeze(-1)", ".triu(99).unsqueeze(-1)"),
    "leaves the present out": (".triu(1).unsqueeze(-1)", ".triu(0).unsqueeze(-1)"),
    "divides what has been forgotten": (
        'gaps.masked_fill(later, float("-inf")).exp()',
        "(total.exp().unsqueeze(-2) / total.exp().unsqueeze(-3)).masked_fill(later, 0.0)",
    ),
    "the mask comes after the exponential": (
        'gaps.masked_fill(later, float("-inf")).exp()',
        "gaps.exp() * ~later",
    ),
    "one channel's decay for all": (
        "(left.unsqueeze(-2) * right.unsqueeze(-3) * since).sum(dim=-1)",
        "left @ right.mT * since[..., 0]",
    ),
    "no beta in the triangle": ("(b * _pairs(k, k, since))", "_pairs(k, k, since)"),
    "beta of the earlier token": (
        "(b * _pairs(k, k, since))",
        "(b.mT * _pairs(k, k, since))",
    ),
    "a token corrects itself": ("upper=False, unitriangular=True", "upper=False"),
    "does not read before it writes": ("b * (v - (k * left) @ state)", "b * v"),
    "beta on the value alone": ("b * (v - (k * left) @ state)", "b * v - (k * left) @ state"),
    "beta is not used": ("adds = beta is None", "adds = True"),
    "writes the values": (".exp()).mT @ written", ".exp()).mT @ v"),
    "reads the values": ("_pairs(q, k, since) @ written", "_pairs(q, k, since) @ v"),
    "ignores the state that it is given": (
        "return state.to(value.dtype)",
        "return torch.zeros_like(state)",
    ),
    "the dtype of all but beta": ("for part in parts:", "for part in parts[:4]:"),
    "a state in half precision": ("dtype = torch.float32\n", "dtype = parts[0].dtype\n"),
    "keys of any length": ("_unit(key)", "key"),
    "queries of any length": ("_unit(query) * self", "query * self"),
    "no scale": ("_unit(query) * self.head_dim**-0.5", "_unit(query)"),
    "the state grows": ("log_decay=-rate", "log_decay=rate"),
    "no rate": ("self.log_rate.exp() * F", "F"),
    "no bias of the decay": (" + self.decay_bias", ""),
    "beta is not a share": (".sigmoid()  # (batch", ".exp()  # (batch"),
    "a layer that keeps no state": ("cache.state = state", "pass"),
    "a layer whose convolution forgets": ("cache.recent = mixed", "recent = mixed"),
    "the convolution looks ahead": ("F.pad(mixed, (before, 0))", "F.pad(mixed, (0, before))"),
    "no SiLU": ("F.silu(self.convolution(mixed)).mT", "self.convolution(mixed).mT"),
    "the heads share keys in another order": (
        ".repeat_interleave(group, dim=2)",
        ".repeat(1, 1, group, 1)",
    ),
    "no gate": ("output * F.silu(self.W_gate(x))", "output"),
    "no norm": ("output = self.norm(output", "output = (output"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_is_caught(what):
    wrong = edited("gated_memory", WRONG[what])
    assert first_to_notice(FACTS, wrong), f"nothing notices: {what}"


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


q, k, v = draw(2, 5, 4, 3)
g, b = -torch.rand(2, 5, 4, dtype=F64), torch.rand(2, 5, 1, dtype=F64)


@pytest.mark.parametrize(
    ("call", "argument", "got", "wanted"),
    [
        (lambda: gated_memory(q, k[:, :4], v), "key", "(2, 4, 4)", "T of query"),
        (lambda: gated_memory(q, k, v, beta=b[..., 0]), "beta", "(2, 5)", "(..., 5, 1)"),
        (lambda: gated_memory(q, k, v, beta=g), "beta", "(2, 5, 4)", "(..., 5, 1)"),
        (
            lambda: gated_memory(q, k, v, log_decay=g[..., :3]),
            "log_decay",
            "(2, 5, 3)",
            "(..., 5, 1) or (..., 5, 4)",
        ),
        (lambda: gated_memory(q, k, v, state=torch.zeros(4, 4)), "state", "(4, 4)", "(..., 4, 3)"),
        (lambda: gated_memory(q, k, v, chunk_size=2.0), "chunk_size", "2.0", "positive integer"),
        (
            lambda: GatedDeltaNet(8, 4, num_key_heads=3),
            "num_key_heads",
            "3",
            "divide num_heads (4)",
        ),
        (lambda: GatedDeltaNet(8, 3), "num_heads", "3", "divide embed_dim (8)"),
        (lambda: GatedDeltaNet(8, 4, kernel_size=1), "kernel_size", "1", "at least 2"),
        (lambda: layer()(q), "x", "(2, 5, 4)", "(batch, T, 8)"),
        (lambda: layer()(q[:, :0], cache=MemoryCache()), "x", "(2, 0, 4)", "T at least 1"),
    ],
)
def test_a_bad_argument_is_named(call, argument, got, wanted):
    with pytest.raises(ValueError, match=f"^{argument} must ") as caught:
        call()
    assert got in str(caught.value)
    assert wanted in str(caught.value)
