"""One class is multi-head, grouped and multi-query attention, with sinks and a gate, in pieces as at once."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from snippets.grouped_query_attention import GroupedQueryAttention, sink_attention
from snippets.kv_cache import KVCache
from snippets.rope import RotaryPositions
from tests.snippets.facts import copy_weights, refuses
from tests.snippets.parts import Case, T, alike, close, draw, heads, some, texts


def turn(x, positions):
    """A rotation for tests: each half of the channels by the position's angle."""
    angle = positions.to(x.dtype)[..., None]  # (..., T, 1)
    angle = angle[:, None] if positions.dim() == 2 else angle
    first, second = x.chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


LAYERS = [  # (num_heads, num_kv_heads, the other options)
    (6, 3, {}),
    (4, 4, {"rotate": turn, "qk_norm": True, "bias": True}),
    (4, 2, {"bias": True, "out_bias": False, "scale": 0.7}),
    (6, 3, {"sinks": True, "scale": 0.7}),
    (4, 1, {"gate": True, "sinks": True, "qk_norm": True, "rotate": turn}),
]


def layer(part, H=4, g=2, **options):
    """A layer whose weights differ from those of a new one."""
    torch.manual_seed(0)
    made = part.GroupedQueryAttention(24, H, num_kv_heads=g, head_dim=6, **options).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made


def by_definition(query, key, value, sink, attn_mask=None, *, is_causal=False, scale=None):
    """One column more before the softmax, cut off after it; query head h reads head h // (H / g)."""
    (H, T_q), (g, T_k) = query.shape[1:3], key.shape[1:3]
    key, value = (part[:, [h // (H // g) for h in range(H)]] for part in (key, value))
    scores = query @ key.mT * (query.size(-1) ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(T_q, T_k, dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    column = sink.reshape(1, -1, 1, 1).expand(query.size(0), -1, T_q, 1)
    return torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., :-1] @ value


def plain(module, x, attn_mask=None, positions=None):
    """The layer, by its definition."""
    positions = torch.arange(x.size(1)) if positions is None else positions
    query, key, value = (
        project(x).unflatten(-1, (-1, 6)).transpose(1, 2)
        for project in (module.W_query, module.W_key, module.W_value)
    )
    if module.qk_norm:
        query = F.rms_norm(query, (6,), module.query_norm.weight, 1e-6)
        key = F.rms_norm(key, (6,), module.key_norm.weight, 1e-6)
    if module.rotate is not None:
        query, key = (module.rotate(part, positions) for part in (query, key))
    sink = draw(query.size(1)) - 1e4 if module.sinks is None else module.sinks
    options = {"is_causal": attn_mask is None, "scale": module.scale}
    context = by_definition(query, key, value, sink, attn_mask, **options)
    context = context.transpose(1, 2).flatten(2)
    if module.W_gate is not None:
        context = context / (1 + (-module.W_gate(x)).exp())
    return module.out_proj(context)


# The layer


def test_outputs_and_gradients_equal_the_definition(part):
    for H, g, options in LAYERS:
        ours, x = layer(part, H, g, **options), draw(2, 5, 24).requires_grad_()
        assert alike(ours(x), plain(ours, x), [x, *ours.parameters()]), options


@torch.no_grad()
def test_in_pieces_it_is_what_it_is_at_once(part):
    for H, g, options in LAYERS:
        ours, x = layer(part, H, g, **options), draw(2, 9, 24)
        for sizes in ([9], [3, 1, 5], [1, 7, 1]):
            cache = KVCache(9)
            pieces = [ours(piece, cache=cache) for piece in x.split(sizes, dim=1)]
            assert close(torch.cat(pieces, 1), plain(ours, x)), (sizes, options)
        assert cache.nbytes == 2 * 2 * g * 9 * 6 * 8


@torch.no_grad()
def test_a_mask_takes_the_place_of_the_triangle_and_an_empty_row_gets_zeros(part):
    """At once, and for one token or two after others; a mask to be added is cast."""
    for H, g, options in ((6, 3, {}), (4, 1, {"rotate": turn}), (4, 2, {"sinks": True})):
        ours, x = layer(part, H, g, **options), draw(2, 5, 24)
        own = draw(2, H, 5, 5, seed=3) < 0.5  # one for each text and head
        own[:, :, 3:] = (
            own[:, :, 3:] & (torch.arange(H) > 0)[:, None, None]
        )  # the first sees nothing
        padding = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
        padding[1, ..., 0] = False
        for keep in (torch.ones(5, 5, dtype=torch.bool), own, padding):
            wanted = plain(ours, x, keep)
            for mask in (keep, torch.zeros(keep.shape).masked_fill(~keep, -torch.inf)):
                assert close(ours(x, attn_mask=mask), wanted)
                cache = KVCache(5)
                for first, end in ((0, 2), (2, 3), (3, 4), (4, 5)):
                    rows = mask[..., first:end, :end]
                    result = ours(x[:, first:end], cache=cache, attn_mask=rows)
                assert close(result, wanted[:, 4:]), (H, g, options)


@torch.no_grad()
def test_positions_are_the_callers_where_given(part):
    ours, x = layer(part, rotate=turn), draw(2, 4, 24)
    for places in (torch.tensor([5, 9, 2, 7]), torch.tensor([[0, 1, 2, 3], [5, 9, 2, 7]])):
        assert close(ours(x, positions=places), plain(ours, x, positions=places))


def test_the_output_has_a_bias_as_the_projections_have_or_as_it_is_told(part):
    for options, biases in (({}, 0), ({"bias": True}, 4), ({"bias": True, "out_bias": False}, 3)):
        names = [name for name, _ in layer(part, **options).named_parameters()]
        assert sum(name.endswith("bias") for name in names) == biases


def test_with_as_many_key_heads_it_is_pytorchs_layer(part):
    """And a sink of 0 is its add_zero_attn."""
    for zero_attn in (False, True):
        torch.manual_seed(0)
        theirs = nn.MultiheadAttention(24, 4, batch_first=True, add_zero_attn=zero_attn).double()
        nn.init.normal_(theirs.in_proj_bias)
        ours = part.GroupedQueryAttention(24, 4, bias=True, sinks=zero_attn).double()
        copy_weights(theirs, ours)
        x, hide = draw(2, 7, 24), torch.ones(7, 7, dtype=torch.bool).triu(1)
        assert close(ours(x), theirs(x, x, x, attn_mask=hide, need_weights=False)[0])


def test_what_would_be_misread_in_silence_is_refused(part):
    """A mask for each text, where there are as many heads; a head of 6 that would leave a channel out."""
    ours, x, cache = layer(part), draw(4, 5, 24), KVCache(5)
    refuses("a channel that no head has", part.GroupedQueryAttention, 25, 4)
    refuses("a head without keys", part.GroupedQueryAttention, 24, 4, num_kv_heads=3)
    for_each_text = torch.ones(4, 5, 5, dtype=torch.bool)
    for options in ({}, {"cache": cache}):
        refuses("a mask for each text", ours, x, attn_mask=for_each_text, **options)
    assert cache.length == 0
    query, key = draw(4, 4, 1, 6), draw(4, 2, 5, 6)
    refuses("beside a sink", part.sink_attention, query, key, key, draw(4), for_each_text[:, :1])
    refuses("without a layer", part.grouped_attention, query, key, key, for_each_text[:, :1])


# The operator with a sink


def problem(H=4, g=2, T_q=5, T_k=5, width=6):
    """Query, key, value and sinks, each asking for its gradient."""
    sizes = (H, T_q), (g, T_k), (g, T_k)
    made = [draw(2, n, tokens, width, seed=i) for i, (n, tokens) in enumerate(sizes)]
    return [one.requires_grad_() for one in (*made, draw(H, seed=9))]


def test_the_operator_equals_its_definition(part):
    """Without a mask, with the triangle, and a mask of each form; and for scores that exp cannot take."""
    for H, g in ((6, 3), (4, 1)):
        for T_q, T_k in ((5, 5), (1, 6)):
            keep = draw(2, H, T_q, T_k, seed=5) > -0.5
            added = draw(T_q, T_k, seed=6).masked_fill(draw(T_q, T_k, seed=7) > 1, -torch.inf)
            for mask in (None, "causal", keep, added, keep[:, :1] & False):
                for scale in (None, 0.7, 1e4) if mask is None else (0.7,):
                    options = {"is_causal": True} if isinstance(mask, str) else {"attn_mask": mask}
                    leaves = problem(H, g, T_q, T_k)
                    result = part.sink_attention(*leaves, scale=scale, **options)
                    wanted = by_definition(*leaves, scale=scale, **options)
                    assert alike(result, wanted, leaves, 1e-8), (H, g, T_q, T_k, options)


@torch.no_grad()
def test_a_sink_of_minus_infinity_is_none(part):
    query, key, value, _ = problem()
    found = part.sink_attention(query, key, value, torch.full((4,), -torch.inf).double())
    assert close(found, F.scaled_dot_product_attention(query, key, value, enable_gqa=True))


# One token, as in decoding


class Watch(TorchFunctionMode):
    """Keeps what the operator was given, and what each function of PyTorch made."""

    def __init__(self):
        super().__init__()
        self.given, self.made = [], []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if function is F.scaled_dot_product_attention:
            self.given.append([tuple(x.shape) for x in args[:3]])
        self.made += [made] if isinstance(made, torch.Tensor) else []
        return made


@torch.no_grad()
def test_one_token_reads_each_shared_key_once_and_copies_none(part):
    """A step that makes a tensor as large as the cache would read and write it anew each time."""
    query, key, value, sink = problem(4, 2, 1, 64)
    for attend, more in ((part.grouped_attention, ()), (part.sink_attention, (sink,))):
        with Watch() as watched:
            attend(query, key, value, *more)
        held = key.untyped_storage().data_ptr(), value.untyped_storage().data_ptr()
        fresh = [it for it in watched.made if it.untyped_storage().data_ptr() not in held]
        assert max(it.numel() for it in fresh) < key.numel()
        # Two heads are two rows of one.
        assert watched.given == ([] if more else [[(2, 2, 2, 6), (2, 2, 64, 6), (2, 2, 64, 6)]])


WRONG = {
    "the triangle begins at the first key": (".tril(past)", ".tril()"),
    "every third head shares": (
        "    options = {",
        "    key, value = (k.repeat(1, query.size(1) // k.size(1), 1, 1) for k in (key, value))\n"
        "    options = {",
    ),
    "keys are cached before they are turned": (
        "self.rotate(query, positions), self.rotate(key, positions)",
        "self.rotate(query, positions), key",
    ),
    "normed over all heads": (
        "query = self.query_norm(query.to(self.query_norm.weight.dtype)).to(value.dtype)",
        "query = query / (query.square().mean((1, 3), True) + 1e-6).sqrt() * self.query_norm.weight",
    ),
    "the sink is scaled like a score": ("(sink / scale).clamp", "sink.clamp"),
    "exponentials without the maximum": (
        "scores.softmax(dim=-1)[",
        "(scores.exp() / scores.exp().sum(-1, True))[",
    ),
}

GROUPED = {"num_kv_heads": 2, "head_dim": 8, "qk_norm": True, "rotate": RotaryPositions(8)}
BOTH = {"sinks": True, "gate": True}


def in_pieces(module, x):
    """A text read from a cache, in three pieces."""
    cache = KVCache(T)
    return torch.cat([module(part, cache=cache) for part in x.split([T - 20, 1, 19], dim=1)], dim=1)


CASES = {
    "grouped": Case(lambda m, x: m(x), texts, lambda: GroupedQueryAttention(16, 4, **GROUPED)),
    "sinks and gate, in pieces": Case(
        in_pieces, texts, lambda: GroupedQueryAttention(16, 4, **GROUPED, **BOTH), backward=False
    ),
    "sink_attention": Case(
        lambda _, q, k, v, sink: sink_attention(q, k, v, sink, is_causal=True),
        lambda: (*heads(4, 2), some(4)),
    ),
}
MODULES = {
    "grouped": lambda: GroupedQueryAttention(
        8, 4, num_kv_heads=2, qk_norm=True, rotate=RotaryPositions(2)
    ),
    "sinks and gate": lambda: GroupedQueryAttention(
        8, 4, num_kv_heads=2, rotate=RotaryPositions(2), **BOTH
    ),
}


MIB = {
    "grouped": (20, lambda x: partial(GroupedQueryAttention(64, 1), x[None])),
    "sinks and gate": (30, lambda x: partial(GroupedQueryAttention(64, 1, **BOTH), x[None])),
}
