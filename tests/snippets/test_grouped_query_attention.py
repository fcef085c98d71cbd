"""One class is multi-head, grouped and multi-query attention, with sinks and a gate, in pieces as at once."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from snippets.grouped_query_attention import GroupedQueryAttention, sink_attention
from snippets.kv_cache import KVCache
from snippets.multi_head_attention import MultiHeadAttention
from snippets.rope import RotaryPositions
from tests.snippets.parts import Case, T, heads, some, texts

GROUPS = [(4, 4), (4, 2), (6, 3), (4, 1)]  # (num_heads, num_kv_heads)
LENGTHS = [(5, 5), (3, 7), (1, 6), (1, 1)]  # (T_q, T_k)


def draw(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def close(result, wanted, bar=1e-10):
    return result.shape == wanted.shape and torch.allclose(result, wanted, rtol=0, atol=bar)


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
    (4, 1, {"gate": True, "qk_norm": True, "rotate": turn}),
    (4, 4, {"sinks": True, "gate": True, "bias": True, "rotate": turn}),
]


def layer(part, H=4, g=2, **options):
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


def plain(module, x, keep=None, positions=None):
    """The layer, by its definition."""
    positions = torch.arange(x.size(1)) if positions is None else positions
    keep = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril() if keep is None else keep
    query, key, value = (
        project(x).unflatten(-1, (-1, 6)).transpose(1, 2)
        for project in (module.W_query, module.W_key, module.W_value)
    )
    if isinstance(module.query_norm, nn.RMSNorm):
        query, key = (
            part / (part.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
            for part, norm in ((query, module.query_norm), (key, module.key_norm))
        )
    if module.rotate is not None:
        query, key = (module.rotate(part, positions) for part in (query, key))
    sink = torch.full((query.size(1),), -1e4).double() if module.sinks is None else module.sinks
    context = by_definition(query, key, value, sink, keep, scale=module.scale)
    context = context.transpose(1, 2).flatten(2)
    if module.W_gate is not None:
        context = context / (1 + (-module.W_gate(x)).exp())
    return module.out_proj(context)


# The layer


def outputs_and_gradients_equal_the_definition(part):
    for H, g, options in LAYERS:
        ours, x = layer(part, H, g, **options), draw(2, 5, 24)
        leaves = [x.requires_grad_(), *ours.parameters()]
        result, wanted = ours(x), plain(ours, x)
        assert close(result, wanted), (H, g, options)
        direction = draw(*result.shape, seed=2)
        pairs = (torch.autograd.grad(it, leaves, direction) for it in (result, wanted))
        assert all(close(*pair, 1e-9) for pair in zip(*pairs, strict=True)), (H, g, options)


@torch.no_grad()
def in_pieces_it_is_what_it_is_at_once(part):
    for H, g, options in LAYERS:
        ours, x = layer(part, H, g, **options), draw(2, 9, 24)
        whole = plain(ours, x)
        for sizes in ([9], [1] * 9, [3, 1, 5], [1, 7, 1]):
            cache = KVCache(9)
            pieces = [ours(piece, cache=cache) for piece in x.split(sizes, dim=1)]
            assert close(torch.cat(pieces, 1), whole), (sizes, options)
        assert cache.nbytes == 2 * 2 * g * 9 * 6 * 8


@torch.no_grad()
def the_last_token_moves_its_own_output_alone_and_no_other_text(part):
    for H, g, options in LAYERS:
        ours, x = layer(part, H, g, **options), draw(2, 6, 24)
        for place in (5, 2, 0):
            changed = x.clone()
            changed[0, place] += 1.0
            moved = (ours(changed) - ours(x)).abs().amax(-1) > 1e-9
            assert moved.tolist() == [[i >= place for i in range(6)], [False] * 6]


@torch.no_grad()
def a_mask_takes_the_place_of_the_triangle(part):
    for H, g in GROUPS[1:]:
        for options in ({"rotate": turn}, {"sinks": True}):
            ours, x = layer(part, H, g, **options), draw(2, 5, 24)
            own = draw(2, H, 5, 5, seed=3) < 0.5  # one for each text and head
            own[..., 2] = True
            padding = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
            padding[1, ..., 0] = False
            for keep in (torch.ones(5, 5, dtype=torch.bool), torch.eye(5) > 0, own, padding):
                added = torch.zeros(keep.shape).masked_fill(~keep, -torch.inf)  # in float32
                for mask in (keep, added):
                    assert close(ours(x, attn_mask=mask), wanted := plain(ours, x, keep))
                    cache = KVCache(5)  # the last token alone, and the last two
                    for tokens in (x[:, :3], x[:, 3:4], x[:, 4:]):
                        first, end = cache.length, cache.length + tokens.size(1)
                        row = mask[..., first:end, :end]
                        result = ours(tokens, cache=cache, attn_mask=row)
                    assert close(result, wanted[:, 4:]), (H, g, options)


@torch.no_grad()
def a_row_that_may_see_nothing_gets_zeros(part):
    for options in ({}, {"sinks": True}):
        ours, x = layer(part, **options), draw(1, 3, 24)
        keep = torch.ones(3, 3, dtype=torch.bool).tril()
        keep[1] = False
        assert ours(x, attn_mask=keep)[0, 1].tolist() == [0.0] * 24
        assert ours(x[:, :1], attn_mask=keep[1:2, :1])[0, 0].tolist() == [0.0] * 24


@torch.no_grad()
def positions_are_the_callers_where_given(part):
    ours, x = layer(part, rotate=turn), draw(2, 4, 24)
    places = torch.tensor([[0, 1, 2, 3], [5, 9, 2, 7]])
    result = ours(x, positions=places)
    for row in (0, 1):
        assert close(result[row], plain(ours, x[row : row + 1], positions=places[row])[0])


@torch.no_grad()
def norms_take_the_size_out(part):
    ours, x = layer(part, qk_norm=True), draw(2, 5, 24)
    assert isinstance(layer(part).query_norm, nn.Identity)
    assert isinstance(layer(part).key_norm, nn.Identity)
    assert layer(part, bias=True, out_bias=False).out_proj.bias is None
    assert layer(part, bias=True).out_proj.bias is not None
    louder = copy.deepcopy(ours)
    louder.W_query.weight *= 100
    louder.W_key.weight *= 30
    assert close(louder(x), ours(x), 1e-5)


def what_would_be_misread_in_silence_is_refused(part):
    ours, x, cache = layer(part, g=1), draw(4, 5, 24), KVCache(5)
    with pytest.raises(ValueError, match="num_heads"):
        part.GroupedQueryAttention(25, 4)  # a head of 6 would leave a channel out
    for options in ({}, {"cache": cache}):  # as many texts as heads
        with pytest.raises(ValueError, match="attn_mask"):
            ours(x, attn_mask=torch.ones(4, 5, 5, dtype=torch.bool), **options)
    assert cache.length == 0
    query, key, value = draw(4, 4, 1, 6), draw(4, 1, 5, 6), draw(4, 1, 5, 6)
    with pytest.raises(ValueError, match="attn_mask"):
        part.sink_attention(query, key, value, draw(4), torch.ones(4, 1, 5, dtype=torch.bool))
    ones = torch.ones(5, 5, dtype=torch.int64)
    ours(x[:, :4], cache=cache)
    for sinks in (ours, layer(part, sinks=True)):  # PyTorch refuses what is neither kind of mask,
        with pytest.raises(RuntimeError):
            sinks(x, attn_mask=ones)
    with pytest.raises(RuntimeError):
        part.sink_attention(query, key, value, draw(4), ones[:1])
    for mask in (ones > 0, ones[:1, :4] > 0):  # and too many rows or too few keys
        with pytest.raises(RuntimeError):
            ours(x[:, 4:], cache=copy.deepcopy(cache), attn_mask=mask)
    for wrong in (draw(1), draw(5)):  # one sink for all heads, one for each key
        with pytest.raises(RuntimeError):
            part.sink_attention(query, key, value, wrong)
    with pytest.raises(RuntimeError):
        part.sink_attention(*(draw(1, 4, 5, 6) for _ in range(3)), draw(4), ones > 0, True)


def heads_that_do_not_divide_are_pytorchs_error(part):
    for options in ({"sinks": True}, {}):
        ours = layer(part, 4, 3, **options)
        for tokens in (1, 5):
            with pytest.raises(RuntimeError):
                ours(draw(2, tokens, 24))


# The operator with a sink


def problem(H=4, g=2, T_q=5, T_k=5, width=6):
    """Query, key, value and sinks, each asking for its gradient."""
    sizes = (H, T_q), (g, T_k), (g, T_k)
    made = [draw(2, n, tokens, width, seed=i) for i, (n, tokens) in enumerate(sizes)]
    return [one.requires_grad_() for one in (*made, draw(H, seed=9))]


def masks(H, T_q, T_k):
    """No mask, the operator's triangle, one of each form, one that hides everything."""
    keep = draw(2, H, T_q, T_k, seed=5) > -0.5
    added = draw(T_q, T_k, seed=6).masked_fill(draw(T_q, T_k, seed=7) > 1, -torch.inf)
    yield None, True
    for mask in (None, keep, added, keep[:, :1] & False):
        yield mask, False


def the_operator_equals_its_definition(part):
    for H, g in GROUPS:
        for T_q, T_k in LENGTHS:
            for mask, is_causal in masks(H, T_q, T_k):
                leaves, scale = problem(H, g, T_q, T_k), None if T_q == T_k else 0.7
                options = {"attn_mask": mask, "is_causal": is_causal, "scale": scale}
                result = part.sink_attention(*leaves, **options)
                wanted = by_definition(*leaves, **options)
                assert close(result, wanted), (H, g, T_q, T_k, mask, is_causal)
                direction = draw(*result.shape, seed=3)
                pairs = (torch.autograd.grad(it, leaves, direction) for it in (result, wanted))
                assert all(close(*pair, 1e-9) for pair in zip(*pairs, strict=True))


@torch.no_grad()
def a_sink_is_a_sigmoid_on_what_the_operator_gives(part):
    query, key, value, sink = problem(4, 4)
    keep = torch.ones(5, 5, dtype=torch.bool).tril()
    share = (query @ key.mT / 6**0.5).masked_fill(~keep, -torch.inf).logsumexp(dim=-1)
    wanted = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    wanted = wanted * (share - sink[:, None]).sigmoid()[..., None]
    assert close(part.sink_attention(query, key, value, sink, is_causal=True), wanted)


@torch.no_grad()
def scores_far_beyond_what_exp_can_take_are_finite(part):
    query, key, value, sink = problem(4, 4)
    for size in (1e3, 1e5):
        for T_q in (5, 1):
            few = query[:, :, :T_q] * size
            result = part.sink_attention(few, key, value, sink * size)
            assert close(result, by_definition(few, key, value, sink * size), 1e-6)


@torch.no_grad()
def without_a_sink_it_is_the_operator_in_every_dtype(part):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for lowest in (-1e4, -torch.inf):
            for T_q in (1, 5):
                query, key, value = (draw(2, 4, n, 64, seed=n).to(dtype) for n in (T_q, 5, 5))
                sinks = torch.full((4,), lowest, dtype=dtype)
                for keep in (draw(T_q, 5, seed=5) > -0.5, torch.zeros(T_q, 5, dtype=torch.bool)):
                    result = part.sink_attention(query, key, value, sinks, keep)
                    wanted = F.scaled_dot_product_attention(query, key, value, keep)
                    assert close(result, wanted, 32 * torch.finfo(dtype).eps)


# One token, as in decoding


class Watch(TorchFunctionMode):
    """Keeps what each function of PyTorch was given and made."""

    def __init__(self):
        super().__init__()
        self.calls, self.made = [], []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}))
        self.made += [made] if isinstance(made, torch.Tensor) else []
        return made


@torch.no_grad()
def one_token_reads_each_shared_key_once_for_all_the_heads_of_a_group(part):
    ours, x, cache = layer(part, H=6, g=3), draw(2, 5, 24), KVCache(5)
    ours(x[:, :4], cache=cache)
    with Watch() as watched:
        ours(x[:, 4:], cache=cache)
    operator = F.scaled_dot_product_attention
    ((_, given, options),) = (call for call in watched.calls if call[0] is operator)
    assert given[0].shape == (2, 3, 2, 6)  # two heads are two rows of one
    assert given[1].shape == (2, 3, 5, 6)
    assert not options.get("enable_gqa")


@torch.no_grad()
def one_token_with_a_sink_copies_no_keys(part):
    """A step that makes a tensor as large as the cache would read and write it anew each time."""
    query, key, value, sink = problem(4, 2, 1, 64)
    with Watch() as watched:
        part.sink_attention(query, key, value, sink)
    held = key.untyped_storage().data_ptr(), value.untyped_storage().data_ptr()
    fresh = [it for it in watched.made if it.untyped_storage().data_ptr() not in held]
    assert fresh
    assert all(it.numel() < key.numel() for it in fresh)


FACTS = [  # the fast ones first
    the_last_token_moves_its_own_output_alone_and_no_other_text,
    a_row_that_may_see_nothing_gets_zeros,
    positions_are_the_callers_where_given,
    norms_take_the_size_out,
    what_would_be_misread_in_silence_is_refused,
    heads_that_do_not_divide_are_pytorchs_error,
    a_sink_is_a_sigmoid_on_what_the_operator_gives,
    scores_far_beyond_what_exp_can_take_are_finite,
    without_a_sink_it_is_the_operator_in_every_dtype,
    one_token_reads_each_shared_key_once_for_all_the_heads_of_a_group,
    one_token_with_a_sink_copies_no_keys,
    in_pieces_it_is_what_it_is_at_once,
    outputs_and_gradients_equal_the_definition,
    a_mask_takes_the_place_of_the_triangle,
    the_operator_equals_its_definition,
]
ROWS = "query.unflatten(1, (key.size(1), -1)).squeeze(3)  # (batch, kv_heads, group, width)\n"
REFUSED = 'raise ValueError(f"attn_mask must be 2-D or 4-D (mask[:, None]), got {attn_mask.shape}")'
WRONG = {
    "every third head shares": (
        "    options = {",
        "    key, value = (k.repeat(1, query.size(1) // k.size(1), 1, 1) for k in (key, value))\n"
        "    options = {",
    ),
    "the triangle begins at the first key": (".tril(past)", ".tril()"),
    "is_causal with a cache": ("if attn_mask is None and past and T > 1:", "if False:"),
    "not causal": ("causal = attn_mask is None and not past", "causal = False"),
    "no mask after a cache": (".tril(past)", ""),
    "a group of heads reads the keys of another": (
        f"rows = {ROWS}        if attn_mask",
        "rows = query.unflatten(1, (-1, key.size(1))).squeeze(3).transpose(1, 2)\n        if attn_mask",
    ),
    "a group with a sink reads the keys of another": (
        f"rows = {ROWS}        scores",
        "rows = query.unflatten(1, (-1, key.size(1))).squeeze(3).transpose(1, 2)\n        scores",
    ),
    "the mask of one token is ignored": (
        "(rows, key, value, attn_mask, scale",
        "(rows, key, value, scale",
    ),
    "the mask of another head": (
        "attn_mask.expand(",
        "attn_mask.expand(*query.shape[:3], -1).flip(1).expand(",
    ),
    "the heads that share read one by one": ("if query.size(2) == 1 and not is_causal", "if False"),
    "places begin anew": ("torch.arange(past, past + T", "torch.arange(0, T"),
    "positions are not looked at": ("if positions is None:", "if True:"),
    "keys are cached before they are turned": (
        "self.rotate(query, positions), self.rotate(key, positions)",
        "self.rotate(query, positions), key",
    ),
    "the mask is not looked at": (
        "(query, key, value, attn_mask, causal, self.scale)",
        "(query, key, value, None, causal, self.scale)",
    ),
    "the mask is not looked at beside sinks": (
        "self.sinks, attn_mask, causal, self.scale)",
        "self.sinks, None, causal, self.scale)",
    ),
    "the scale is not looked at": (
        "attn_mask, causal, self.scale)\n        else",
        "attn_mask, causal)\n        else",
    ),
    "the scale of one token is not looked at": ("attn_mask, scale=scale)", "attn_mask)"),
    "the scale is not looked at beside sinks": (
        "self.sinks, attn_mask, causal, self.scale)",
        "self.sinks, attn_mask, causal)",
    ),
    "keys are not normed": (
        "key = self.key_norm(key.to(self.key_norm.weight.dtype)).to(value.dtype)",
        "pass",
    ),
    "one norm for both": ("key = self.key_norm(key.to(", "key = self.query_norm(key.to("),
    "normed over all heads": (
        "query = self.query_norm(query.to(self.query_norm.weight.dtype)).to(value.dtype)",
        "query = query / (query.square().mean((1, 3), True) + 1e-6).sqrt() * self.query_norm.weight",
    ),
    "the output has the other biases": ("embed_dim, bias=out_bias)", "embed_dim, bias=bias)"),
    "values are the keys": ("value = self.W_value(x)", "value = self.W_key(x)"),
    "nothing is cached": ("key, value = cache.update(key, value)", "cache.update(key, value)"),
    "heads are cut by view": (
        "query = self.W_query(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)",
        "query = self.W_query(x).reshape(len(x), -1, T, self.head_dim)",
    ),
    "heads are joined by view": (
        "context.transpose(1, 2).flatten(2)",
        "context.reshape(len(x), T, -1)",
    ),
    "the gate acts on the input": (
        "context * self.W_gate(x).sigmoid()",
        "context * x[..., :1].sigmoid()",
    ),
    "the gate comes after the projection": (
        "context = context * self.W_gate(x).sigmoid()",
        "return self.out_proj(context) * self.W_gate(x).sigmoid()[..., :24]",
    ),
    "the gate is a tanh": ("self.W_gate(x).sigmoid()", "self.W_gate(x).tanh()"),
    "a mask for each text is one for each head": (
        f"{REFUSED}T, past = ",
        "pass\n        T, past = ",
    ),
    "a mask for each text is one for each head, beside a sink": (
        f"{REFUSED}batch, heads, T",
        "pass\n    batch, heads, T",
    ),
    "a channel is left out": ("if head_dim is None and embed_dim % num_heads", "if False"),
    "the sink is scaled like a score": ("(sink / scale).clamp", "sink.clamp"),
    "the sink of one query is scaled like a score": ("sink.to(wide)", "(sink * scale).to(wide)"),
    "the sink has the value of the first key": (
        "value = F.pad(value, (0, 1 + zeros, 1, 0))",
        "value = F.pad(torch.cat([value[:, :, :1], value], dim=2), (0, 1 + zeros))",
    ),
    "a zero key without a score": ("(sink / scale).clamp", "(sink * 0).clamp"),
    "one sink for all heads": (
        "sink = sink.view(1, heads, 1, 1)",
        "sink = sink.mean().view(1, 1, 1, 1).expand(1, heads, 1, 1)",
    ),
    "a sink that broadcasts": (
        "sink.view(1, heads, 1, 1).expand(batch, -1",
        "sink.view(1, -1, 1, 1).expand(batch, heads",
    ),
    "an infinite sink": (".clamp(-most, most)", ""),
    "an infinite sink of one query": (".clamp(min=torch.finfo(wide).min)", ""),
    "the weights are divided once more": (
        "(weights.to(value.dtype) @ value)",
        "((weights / weights.sum(-1, True)).to(value.dtype) @ value)",
    ),
    "no query is put in front": ("int(is_causal), 0))", "0, 0))"),
    "the first query's row is kept, not cut": (
        "context[:, :, int(is_causal) :, :width]",
        "context[:, :, : T, :width]",
    ),
    "a mask hides the sink": (
        "value=float(attn_mask.dtype == torch.bool)",
        "value=float(attn_mask.dtype != torch.bool)",
    ),
    "the mask of one query is not looked at": (
        "scores.masked_fill(~attn_mask, -torch.inf)",
        "scores",
    ),
    "an added mask of one query is not looked at": ("scores = scores + attn_mask", "pass"),
    "exponentials without the maximum": (
        "scores.softmax(dim=-1)[",
        "(scores.exp() / scores.exp().sum(-1, True))[",
    ),
    "one query is first, causal or not": (
        "if T == 1 and not is_causal:\n        rows",
        "if T == 1:\n        rows",
    ),
    "one query copies all keys": (
        "if T == 1 and not is_causal:\n        rows",
        "if False:\n        rows",
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
    "in pieces": Case(
        in_pieces, texts, lambda: GroupedQueryAttention(16, 4, **GROUPED), backward=False
    ),
    "sinks and gate": Case(
        lambda m, x: m(x), texts, lambda: GroupedQueryAttention(16, 4, **GROUPED, **BOTH)
    ),
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
    "grouped": (20, lambda x: one_head(x)),
    "sinks and gate": (30, lambda x: one_head(x, **BOTH)),
}


def one_head(x, **options):
    """A call of a layer with one head."""
    module = GroupedQueryAttention(64, 1, **options)
    return lambda: module(x[None])


def test_with_as_many_key_heads_it_is_the_books_multi_head_attention():
    torch.manual_seed(0)
    books = MultiHeadAttention(24, 4).double()
    ours = GroupedQueryAttention(24, 4, bias=True).double()
    ours.load_state_dict(books.state_dict())
    x = draw(2, 7, 24)
    assert close(ours(x), books(x, is_causal=True))


@pytest.mark.parametrize("zero_attn", [False, True])
def test_with_as_many_key_heads_it_is_pytorchs_layer(zero_attn):
    """And a sink of 0 is its add_zero_attn."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(24, 4, batch_first=True, add_zero_attn=zero_attn).double()
    nn.init.normal_(theirs.in_proj_bias)
    ours = GroupedQueryAttention(24, 4, bias=True, sinks=zero_attn).double()
    with torch.no_grad():
        for i, projection in enumerate((ours.W_query, ours.W_key, ours.W_value)):
            projection.weight.copy_(theirs.in_proj_weight.chunk(3)[i])
            projection.bias.copy_(theirs.in_proj_bias.chunk(3)[i])
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    x, hide = draw(2, 7, 24), torch.ones(7, 7, dtype=torch.bool).triu(1)
    assert close(ours(x), theirs(x, x, x, attn_mask=hide, need_weights=False)[0])


def test_a_shard_holds_whole_groups():
    torch.manual_seed(0)
    whole = GroupedQueryAttention(24, 4, num_kv_heads=2, head_dim=6).double()
    x, total = draw(2, 5, 24), 0
    for shard in (0, 1):
        one = copy.deepcopy(whole)
        for name in ("W_query", "W_key", "W_value"):
            rows = getattr(whole, name).weight.chunk(2)[shard]
            projection = nn.Linear(24, len(rows), bias=False).double()
            projection.weight.data = rows.data
            setattr(one, name, projection)
        one.out_proj.weight.data = whole.out_proj.weight.data.chunk(2, dim=1)[shard]
        total = total + one(x)
    assert close(total, whole(x))
