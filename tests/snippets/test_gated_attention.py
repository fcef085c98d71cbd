"""A sink is one more zero-valued key and a factor on the output; a gate that is open is none; and both are refused where they do not fit."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from snippets.gated_attention import GatedAttention, sink_attention
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from tests.snippets.facts import first_to_notice
from tests.snippets.problems import edited

GROUPS = [(4, 4), (4, 2), (6, 3), (4, 1)]  # (heads, kv_heads)
LENGTHS = [(5, 5), (3, 7), (1, 6), (1, 1)]  # (T_q, T_k)


def some(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def problem(heads=4, kv_heads=2, T_q=5, T_k=5, width=6):
    """Query, key, value and sinks, each asking for its gradient."""
    sizes = (heads, T_q), (kv_heads, T_k), (kv_heads, T_k)
    parts = [some(2, n, T, width, seed=i) for i, (n, T) in enumerate(sizes)]
    return [part.requires_grad_() for part in (*parts, some(heads, seed=9))]


def masks(heads, T_q, T_k):
    """No mask, the operator's triangle, one of each form, one that hides everything."""
    keep = some(2, heads, T_q, T_k, seed=5) > -0.5
    added = some(T_q, T_k, seed=6).masked_fill(some(T_q, T_k, seed=7) > 1, -torch.inf)
    yield None, True
    for mask in (None, keep, added, keep[:, :1] & False):
        yield mask, False


def plain(query, key, value, sink, attn_mask=None, *, is_causal=False, scale=None):
    """The definition: one column more before the softmax, and cut off after it."""
    heads, T_q, T_k = query.size(1), query.size(2), key.size(2)
    key, value = (part.repeat_interleave(heads // part.size(1), dim=1) for part in (key, value))
    scores = query @ key.mT * (query.size(-1) ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(T_q, T_k, dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    column = sink.reshape(1, -1, 1, 1).expand(query.size(0), -1, T_q, 1)
    return torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., :-1] @ value


# Facts about a module of the file, which is the real one or a wrong version of it.


def outputs_and_gradients_equal_the_definition(module):
    for heads, kv_heads in GROUPS:
        for T_q, T_k in LENGTHS:
            for mask, is_causal in masks(heads, T_q, T_k):
                for scale in (None, 0.7):
                    leaves = problem(heads, kv_heads, T_q, T_k)
                    options = {"attn_mask": mask, "is_causal": is_causal, "scale": scale}
                    result, wanted = (
                        module.sink_attention(*leaves, **options),
                        plain(*leaves, **options),
                    )
                    assert torch.allclose(result, wanted, rtol=0, atol=1e-10), (heads, T_q, T_k)
                    direction = some(*result.shape, seed=3)
                    pairs = (torch.autograd.grad(it, leaves, direction) for it in (result, wanted))
                    for one, other in zip(*pairs, strict=True):
                        assert torch.allclose(one, other, rtol=0, atol=1e-9), (heads, T_q, T_k)


@torch.no_grad()
def it_is_the_operator_times_a_sigmoid(module):
    query, key, value, sink = problem(4, 4)
    keep = torch.ones(5, 5, dtype=torch.bool).tril()
    scores = (query @ key.mT / 6**0.5).masked_fill(~keep, -torch.inf)
    share = (scores.logsumexp(dim=-1) - sink[:, None]).sigmoid()
    wanted = F.scaled_dot_product_attention(query, key, value, is_causal=True) * share[..., None]
    result = module.sink_attention(query, key, value, sink, is_causal=True)
    assert torch.allclose(result, wanted, rtol=0, atol=1e-10)


@torch.no_grad()
def at_minus_ten_thousand_it_is_the_operator(module):
    for T_q, T_k in LENGTHS:
        query, key, value, sink = problem(4, 4, T_q, T_k)
        result = module.sink_attention(query, key, value, sink - 1e4)
        wanted = F.scaled_dot_product_attention(query, key, value)
        assert torch.allclose(result, wanted, rtol=0, atol=1e-10)


@torch.no_grad()
def scores_far_beyond_what_exp_can_take_are_finite(module):
    query, key, value, sink = problem(4, 4)
    for size in (1e3, 1e5):
        for T_q in (5, 1):
            result = module.sink_attention(query[:, :, :T_q] * size, key, value, sink * size)
            wanted = plain(query[:, :, :T_q] * size, key, value, sink * size)
            assert torch.allclose(result, wanted, rtol=0, atol=1e-6)


def layer(cls, heads=4, kv_heads=2, **options):
    torch.manual_seed(0)
    made = cls(24, heads, num_kv_heads=kv_heads, head_dim=6, **options).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made


def turn(x, positions):
    """A rotation for tests: each half of the channels by the position's angle."""
    angle = positions.to(x.dtype)[..., None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1
    )


OPTIONS = [
    {},
    {"bias": True, "qk_norm": True, "rotate": turn},
    {"sinks": False},
    {"gate": False},
    {"sinks": False, "gate": False},
]


@torch.no_grad()
def the_layer_equals_its_definition(module):
    for heads, kv_heads in GROUPS:
        for options in OPTIONS:
            ours = layer(module.GatedAttention, heads, kv_heads, **options)
            x = some(2, 7, 24)
            q, k, v = (
                project(x).unflatten(-1, (-1, 6)).transpose(1, 2)
                for project in (ours.W_query, ours.W_key, ours.W_value)
            )
            if ours.qk_norm:
                q, k = (
                    part / (part.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
                    for part, norm in ((q, ours.query_norm), (k, ours.key_norm))
                )
            if ours.rotate:
                q, k = (turn(part, torch.arange(7)) for part in (q, k))
            sinks = torch.full((heads,), -1e4).double() if ours.sinks is None else ours.sinks
            context = plain(q, k, v, sinks, is_causal=True).transpose(1, 2).flatten(2)
            if ours.W_gate is not None:
                context = context / (1 + (-ours.W_gate(x)).exp())
            assert torch.allclose(ours(x), ours.out_proj(context), rtol=0, atol=1e-10), options


@torch.no_grad()
def in_pieces_it_is_what_it_is_at_once(module):
    for options in OPTIONS:
        ours, x = layer(module.GatedAttention, **options), some(2, 9, 24)
        for sizes in ([9], [1] * 9, [3, 1, 5], [1, 7, 1]):
            cache = KVCache(9)
            pieces = [ours(piece, cache=cache) for piece in x.split(sizes, dim=1)]
            assert torch.allclose(torch.cat(pieces, 1), ours(x), rtol=0, atol=1e-10), sizes


@torch.no_grad()
def a_mask_takes_the_place_of_the_triangle(module):
    ours, x = layer(module.GatedAttention), some(2, 5, 24)
    keep = torch.ones(5, 5, dtype=torch.bool).tril()
    assert torch.allclose(ours(x, attn_mask=keep), ours(x), rtol=0, atol=1e-10)
    everything = torch.ones(5, 5, dtype=torch.bool)
    assert not torch.allclose(ours(x, attn_mask=everything), ours(x), atol=1e-3)
    added = torch.zeros(5, 5).masked_fill(~keep, -torch.inf)  # float32 beside float64
    assert torch.allclose(ours(x, attn_mask=added), ours(x), rtol=0, atol=1e-10)


FACTS = [
    outputs_and_gradients_equal_the_definition,
    it_is_the_operator_times_a_sigmoid,
    at_minus_ten_thousand_it_is_the_operator,
    scores_far_beyond_what_exp_can_take_are_finite,
    the_layer_equals_its_definition,
    in_pieces_it_is_what_it_is_at_once,
    a_mask_takes_the_place_of_the_triangle,
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_the_part_holds_to(fact):
    fact(edited("gated_attention"))


WRONG = {
    "the sink is scaled like a score": ("own = (sink / scale)", "own = sink"),
    "the sink is scaled like a score, in one query": (
        "last = sink.to(scores.dtype)",
        "last = (sink * scale).to(scores.dtype)",
    ),
    "the sink has the value of the first key": (
        "value = F.pad(value, (0, 1 + zeros, 1, 0))",
        "value = F.pad(torch.cat([value[:, :, :1], value], dim=2), (0, 1 + zeros))",
    ),
    "a zero key without a score": ("own = (sink / scale)", "own = (sink * 0)"),
    "one sink for all heads": ("own = (sink / scale)", "own = (sink.mean().expand(heads) / scale)"),
    "the weights are divided once more": (
        ".softmax(dim=-1)[..., :-1].to(value.dtype)",
        ".softmax(dim=-1)[..., :-1].to(value.dtype); weights = weights / weights.sum(-1, True)",
    ),
    "the triangle begins one key late": (
        "query = F.pad(query, (0, 0, 1, 0))",
        "query = F.pad(query, (0, 0, 0, 1)).roll(-1, 2).roll(1, 2)",
    ),
    "the first query's row is kept, not cut": (
        "context[:, :, 1:, :width]",
        "context[:, :, :-1, :width]",
    ),
    "a mask hides the sink": ("(1, 0), value=shown)", "(1, 0), value=not shown)"),
    "the mask is not looked at": ("value, attn_mask, **options)", "value, **options)"),
    "the mask of one query is not looked at": (
        'scores.masked_fill(~attn_mask, float("-inf"))',
        "scores",
    ),
    "exponentials without the maximum": (
        "torch.cat([scores, last], dim=-1).softmax(dim=-1)",
        "(lambda e: e / e.sum(-1, True))(torch.cat([scores, last], dim=-1).exp())",
    ),
    "is_causal with more keys shows all": (
        "attn_mask = torch.ones(T_q, T_k",
        "attn_mask = ~torch.zeros(T_q, T_k, dtype=torch.bool) | torch.ones(T_q, T_k",
    ),
    "one query sees every key, causal or not": ("seen = 1 if is_causal else T_k", "seen = T_k"),
    "groups of heads are dealt round": (
        "rows = query[:, :, 0].unflatten(1, (key.size(1), -1))",
        "rows = query[:, :, 0].unflatten(1, (-1, key.size(1))).transpose(1, 2)",
    ),
    "the gate acts on the input": (
        "context * self.W_gate(x).sigmoid()",
        "context * x[..., :1].sigmoid()",
    ),
    "the gate comes after the projection": (
        "context = context * self.W_gate(x).sigmoid()",
        "return self.out_proj(context) * self.W_gate(x).sigmoid()[..., : self.embed_dim]",
    ),
    "the gate is a tanh": ("self.W_gate(x).sigmoid()", "self.W_gate(x).tanh()"),
    "no triangle after a cache": ("elif past and T > 1:", "elif False:"),
    "the triangle begins at the first key": (".tril(past)", ".tril()"),
    "keys are cached before they are turned": (
        "self.rotate(query, positions), self.rotate(key, positions)",
        "self.rotate(query, positions), key",
    ),
    "places begin anew": ("torch.arange(past, past + T", "torch.arange(0, T"),
    "the mask of the layer is not looked at": (
        'options = {"attn_mask": attn_mask, "is_causal"',
        'options = {"attn_mask": None, "is_causal"',
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_is_caught(what):
    wrong = edited("gated_attention", WRONG[what])
    assert first_to_notice(FACTS, wrong), f"{what}: every fact holds"


def test_a_sink_of_zero_is_pytorchs_add_zero_attn():
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(24, 4, bias=False, add_zero_attn=True, batch_first=True).double()
    ours = GatedAttention(24, 4, gate=False).double()
    with torch.no_grad():
        for i, projection in enumerate((ours.W_query, ours.W_key, ours.W_value)):
            projection.weight.copy_(theirs.in_proj_weight.chunk(3)[i])
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    x = some(2, 7, 24)
    hide = torch.ones(7, 7, dtype=torch.bool).triu(1)
    wanted = theirs(x, x, x, attn_mask=hide, need_weights=False)[0]
    assert torch.allclose(ours(x), wanted, rtol=0, atol=1e-10)


def test_an_open_gate_and_no_sink_is_the_books_grouped_query_attention():
    ours = layer(GatedAttention, bias=True)
    theirs = GroupedQueryAttention(24, 4, num_kv_heads=2, head_dim=6, bias=True).double()
    weights = {
        name: weight for name, weight in ours.state_dict().items() if name in theirs.state_dict()
    }
    theirs.load_state_dict(weights)
    with torch.no_grad():
        ours.sinks.fill_(-1e4)
        ours.W_gate.bias.fill_(1e4)
    x = some(2, 7, 24)
    assert torch.allclose(ours(x), theirs(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lowest", [-1e4, -torch.inf])
def test_without_a_sink_it_is_the_operator_in_every_dtype(lowest, dtype):
    for T_q in (1, 5):
        query = some(2, 4, T_q, 64, seed=0).to(dtype)
        key, value = (some(2, 4, 5, 64, seed=seed).to(dtype) for seed in (1, 2))
        sinks = torch.full((4,), lowest, dtype=dtype)
        for keep in (some(T_q, 5, seed=5) > -0.5, torch.zeros(T_q, 5, dtype=torch.bool)):
            result = sink_attention(query, key, value, sinks, keep)
            wanted = F.scaled_dot_product_attention(query, key, value, keep)
            assert torch.allclose(result, wanted, rtol=0, atol=32 * torch.finfo(dtype).eps)


def test_decoding_copies_no_keys():
    """A step that makes a tensor as large as the cache would read and write it anew each time."""
    query, key, value, sink = problem(4, 2, 1, 64)
    made = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                made.append(result)
            return result

    with Watch(), torch.no_grad():
        sink_attention(query, key, value, sink)
    held = key.untyped_storage().data_ptr(), value.untyped_storage().data_ptr()
    fresh = [it for it in made if it.untyped_storage().data_ptr() not in held]
    assert fresh
    assert all(it.numel() < key.numel() for it in fresh)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"query": some(4, 5, 6)},
            r"query must have shape .batch, heads, T, width., got .4, 5, 6.",
        ),
        ({"key": some(2, 3, 5, 6)}, r"kv_heads dividing 4"),
        ({"value": some(2, 2, 4, 6)}, r"value must have shape"),
        (
            {"sink": some(1)},
            r"sink must have shape .4,. and be floating point, got .1,., torch.float64",
        ),
        ({"sink": some(5)}, r"sink must have shape .4,."),
        ({"sink": torch.zeros(4, dtype=torch.int64)}, r"floating point, got .4,., torch.int64"),
        ({"attn_mask": torch.ones(2, 5, 5) > 0}, r"mask\[:, None\]"),
        ({"attn_mask": torch.ones(5, 5) > 0, "is_causal": True}, r"attn_mask must be None"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = dict(zip(("query", "key", "value", "sink"), problem(), strict=True))
    with pytest.raises(ValueError, match=message):
        sink_attention(**arguments | change)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 5}, r"num_heads must divide embed_dim, or head_dim be given"),
        ({"num_kv_heads": 3}, r"num_kv_heads must divide num_heads"),
        ({"head_dim": 0}, r"head_dim must be a positive integer, got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GatedAttention(**{"embed_dim": 24, "num_heads": 4} | arguments)


@torch.no_grad()
def test_every_token_in_one_text_moves_no_other_text():
    ours, x = layer(GatedAttention), some(2, 5, 24)
    changed = x.clone()
    changed[0] += 1.0
    assert torch.allclose(ours(changed)[1], ours(x)[1], rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_last_token_moves_its_own_output_alone():
    ours, x = layer(GatedAttention), some(1, 6, 24)
    changed = x.clone()
    changed[:, 5] += 1.0
    moved = (ours(changed) - ours(x)).abs().amax(-1)[0] > 1e-9
    assert moved.tolist() == [False] * 5 + [True]
