"""Rotary positions: scores see distances alone, in both pairings, in every dtype, however stretched."""

import copy
import inspect
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets.rope import RotaryPositions, change_pairing
from tests.snippets.facts import works
from tests.snippets.parts import Case, T, some

LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
PAIRINGS = ("half", "interleaved")


def draw(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def close(result, wanted, atol):
    """Whether two tensors have one shape and equal numbers; nan is equal to nothing."""
    return result.shape == wanted.shape and torch.allclose(result, wanted, rtol=0, atol=atol)


def by_hand(x, positions, frequencies, pairing, factor=1.0):
    """Turn x, (T, channels), one number after the other."""
    out, pairs = x.clone(), len(frequencies)
    for t, place in enumerate(positions.tolist()):
        for i, frequency in enumerate(frequencies):
            a, b = (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + pairs)
            cos, sin = factor * math.cos(place * frequency), factor * math.sin(place * frequency)
            out[t, a] = x[t, a] * cos - x[t, b] * sin
            out[t, b] = x[t, b] * cos + x[t, a] * sin
    return out


def each_number_is_that_of_the_formula(rope):
    places = torch.tensor([0, 1, 7, 5000, 100_003])
    for pairing in PAIRINGS:
        for head_dim, rotary_dim in ((8, 8), (8, 4), (2, 2), (7, 6)):
            rotate = rope.RotaryPositions(
                head_dim, rotary_dim=rotary_dim, base=500.0, pairing=pairing
            )
            frequencies = [500.0 ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]
            x = draw(5, head_dim)
            wanted = by_hand(x, places, frequencies, pairing)
            assert close(rotate(x, places), wanted, 1e-10)
            single = rotate(x.float(), places)
            assert single.dtype == torch.float32
            assert close(single, wanted.float(), 1e-5)


def scores_depend_on_distance_alone(rope):
    query, key = draw(2, 3, 6, 16, seed=1)
    for pairing in PAIRINGS:
        for scaling in (None, LINEAR, YARN, LLAMA3):
            rotate = rope.RotaryPositions(16, pairing=pairing, scaling=scaling)
            for dtype, atol in ((torch.float64, 1e-8), (torch.float32, 1e-5)):
                q, k = query.to(dtype), key.to(dtype)
                near, far = torch.arange(6), 1_000_000 + torch.arange(6)
                at_once = rotate(q, near) @ rotate(k, near).mT
                assert close(rotate(q, far) @ rotate(k, far).mT, at_once, atol)
                assert not close(rotate(q, far) @ rotate(k, near).mT, at_once, 0.1)


def positions_of_a_batch_are_its_own(rope):
    rotate, x = rope.RotaryPositions(8), draw(3, 3, 4, 8)  # as many heads as texts
    places = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8], [0, 0, 0, 1]])
    wanted = torch.stack([rotate(x[b], places[b]) for b in range(3)])
    assert close(rotate(x, places), wanted, 1e-12)
    assert close(rotate(x[:2], places[:2]), wanted[:2], 1e-12)


def tokens_after_a_cache_are_turned_as_at_once(rope):
    rotate, x = rope.RotaryPositions(8), draw(2, 6, 8)
    whole = rotate(x, torch.arange(6))
    parts = [rotate(x[:, :4], torch.arange(4)), rotate(x[:, 4:], torch.arange(4, 6))]
    assert close(torch.cat(parts, dim=1), whole, 1e-12)


def changed_weights_give_the_same_scores_in_the_other_pairing(rope):
    tokens, heads, head_dim, places = draw(5, 12), 3, 8, torch.arange(5)
    for rotary_dim in (8, 4):
        for ours, theirs in (PAIRINGS, PAIRINGS[::-1]):
            scores = []
            for pairing in (ours, theirs):
                rotate = rope.RotaryPositions(head_dim, rotary_dim=rotary_dim, pairing=pairing)
                turned = []
                for seed in (1, 2):
                    weight, bias = draw(24, 12, seed=seed), draw(24, seed=seed + 5)
                    if pairing == theirs:
                        weight, bias = (
                            rope.change_pairing(w, head_dim, to=theirs, rotary_dim=rotary_dim)
                            for w in (weight, bias)
                        )
                    x = (tokens @ weight.T + bias).unflatten(-1, (heads, head_dim))
                    turned.append(rotate(x.transpose(0, 1), places))
                scores.append(turned[0] @ turned[1].mT)
            assert close(*scores, 1e-10)


def stretched_speeds_are_those_of_the_recipes(rope):
    plain = rope.RotaryPositions(64).frequencies
    assert rope.RotaryPositions(64, scaling=LINEAR).frequencies == tuple(s / 4 for s in plain)
    for scaling in (YARN, LLAMA3):
        frequencies = rope.RotaryPositions(64, scaling=scaling).frequencies
        shares = [s / p for s, p in zip(frequencies, plain, strict=True)]
        assert shares[0] == pytest.approx(1)
        assert shares[-1] == pytest.approx(1 / scaling["factor"])
        assert shares == sorted(shares, reverse=True)
        assert any(1.1 / scaling["factor"] < share < 0.9 for share in shares), "no ramp"
    # Pair 8 of 64 channels makes 32.6 rounds in 2,048 places, and pair 21 makes 0.77: by hand, the
    # ramp of 64 · ln(2048 / (32 · 2π)) / (2 · ln 10000) = 8.06 goes from 8 to 21 (20.1, rounded up).
    frequencies = rope.RotaryPositions(64, scaling=YARN).frequencies
    for pair, kept in ((8, 1), (9, 12 / 13), (20, 1 / 13), (21, 0)):
        assert frequencies[pair] / plain[pair] == pytest.approx(kept + (1 - kept) / 4)
    # Not rounded, and from other rounds: 16 and 2 in training.
    other = YARN | {"beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}
    low, high = (64 * math.log(2048 / (r * 2 * math.pi)) / (2 * math.log(10000)) for r in (16, 2))
    frequencies = rope.RotaryPositions(64, scaling=other).frequencies
    for pair in range(32):
        kept = min(max((high - pair) / (high - low), 0), 1)
        assert frequencies[pair] / plain[pair] == pytest.approx(kept + (1 - kept) / 4)
    # Llama 3 ramps over rounds: pair i makes 8192 · frequency / 2π.
    frequencies = rope.RotaryPositions(64, scaling=LLAMA3).frequencies
    for pair in range(32):
        rounds = 8192 * plain[pair] / (2 * math.pi)
        kept = min(max((rounds - 1) / 3, 0), 1)
        assert frequencies[pair] / plain[pair] == pytest.approx(kept + (1 - kept) / 8)


def yarn_multiplies_scores_by_the_square_of_its_factor(rope):
    query, key, places = draw(1, 8), draw(1, 8, seed=1), torch.zeros(1, dtype=torch.long)
    rotate = rope.RotaryPositions(8, scaling=YARN)
    wanted = 0.1 * math.log(4) + 1
    assert rotate.attention_factor == pytest.approx(wanted)
    scores = rotate(query, places) @ rotate(key, places).mT
    assert close(scores, query @ key.mT * wanted**2, 1e-10)
    for scaling in (None, LINEAR, LINEAR | {"attention_factor": 1.5}, LLAMA3):
        assert rope.RotaryPositions(8, scaling=scaling).attention_factor == 1.0
    for more, factor in (
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 1.0}, wanted),
    ):
        result = rope.RotaryPositions(8, scaling=YARN | more).attention_factor
        assert result == pytest.approx(factor)


def no_dtype_of_the_model_reaches_the_angles(rope):
    places = 4000 + torch.arange(4)
    x = draw(4, 8, dtype=torch.float32)
    wanted = rope.RotaryPositions(8)(x, places)
    for cast in ("half", "bfloat16", "float"):
        rotate = getattr(torch.nn.Sequential(rope.RotaryPositions(8)), cast)()[0]
        assert torch.equal(rotate(x, places), wanted)
    low = x.bfloat16()
    assert torch.equal(rotate(low, places), rotate(low.float(), places).bfloat16())


def gradients_turn_back(rope):
    """A turn is orthogonal: the gradient of x is the gradient of the output, turned the other way."""
    for pairing in PAIRINGS:
        rotate = rope.RotaryPositions(8, rotary_dim=6, pairing=pairing)
        x, direction = draw(2, 3, 5, 8).requires_grad_(), draw(2, 3, 5, 8, seed=1)
        places = torch.arange(5)
        (result,) = torch.autograd.grad((rotate(x, places) * direction).sum(), x)
        assert close(result, rotate(direction, -places), 1e-10)


def speeds_follow_x_to_its_device(rope):
    """However the model got there: .to() and a cast, or load_state_dict with assign=True."""
    rotate, places = rope.RotaryPositions(8), torch.arange(4)
    wanted = rotate(draw(4, 8), places)
    rotate.to("meta").bfloat16()
    with works("a rotation on another device"):
        moved = rotate(draw(4, 8).to("meta"), places.to("meta"))
    assert moved.device.type == "meta"
    assert close(rotate(draw(4, 8), places), wanted, 1e-12)
    with torch.device("meta"):
        born_there = torch.nn.Sequential(torch.nn.Linear(8, 8), rope.RotaryPositions(8))
    weights = {"0.weight": torch.eye(8), "0.bias": torch.zeros(8)}
    born_there.load_state_dict(weights, assign=True)
    with works("a rotation of a model that was made on the meta device"):
        turned = born_there[1](draw(4, 8), places)
    assert close(turned, wanted, 1e-12)


def a_config_may_name_the_base_and_the_share_beside_the_scaling(rope):
    theirs = YARN | {"rope_theta": 500.0, "partial_rotary_factor": 0.5}
    wanted = rope.RotaryPositions(64, rotary_dim=32, base=500.0, scaling=YARN).frequencies
    assert wanted != rope.RotaryPositions(64, rotary_dim=32, scaling=YARN).frequencies
    assert rope.RotaryPositions(64, scaling=theirs).frequencies == wanted
    again = rope.RotaryPositions(64, base=100.0, rotary_dim=16, scaling=theirs)  # the argument's
    assert again.frequencies == rope.RotaryPositions(16, base=100.0, scaling=YARN).frequencies
    plain = {"rope_type": "default", "rope_theta": 10000.0, "factor": 8.0}
    assert (
        rope.RotaryPositions(64, scaling=plain).frequencies == rope.RotaryPositions(64).frequencies
    )
    older = {"type": "linear", "factor": 4.0}
    same = rope.RotaryPositions(64, scaling=older), rope.RotaryPositions(64, scaling=LINEAR)
    assert same[0].frequencies == same[1].frequencies


def what_would_be_misread_in_silence_is_refused(rope):
    rotate, x = rope.RotaryPositions(8), draw(2, 3, 4, 8)
    for places in (
        torch.zeros(1).long(),  # one for all tokens
        torch.arange(4.0),  # which bfloat16 would round
        torch.zeros(3, 4).long(),  # one for each head
        torch.zeros(1, 4).long(),
    ):
        with pytest.raises(ValueError, match="positions"):
            rotate(x, places)
    with pytest.raises(ValueError, match="positions"):
        rotate(x[0], torch.zeros(3, 4).long())  # of one text
    with pytest.raises(ValueError, match="16"):
        rotate(draw(2, 3, 4, 16), torch.arange(4))  # half of the channels would stay
    with pytest.raises(ValueError, match="pairing"):
        rope.RotaryPositions(8, pairing="neox")
    with pytest.raises(ValueError, match="to must"):
        rope.change_pairing(draw(8, 2), 8, to="neox")
    for scaling in ({"factor": 2.0}, YARN | {"rope_type": "longrope"}):
        with pytest.raises(ValueError, match="rope_type"):
            rope.RotaryPositions(8, scaling=scaling)
    for scaling in (YARN | {"beta_fats": 16}, {"rope_type": "linear"}):
        with pytest.raises(TypeError):  # Python's own
            rope.RotaryPositions(8, scaling=scaling)


FACTS = [
    thing
    for thing in list(vars().values())
    if inspect.isfunction(thing) and list(inspect.signature(thing).parameters) == ["rope"]
]


SLOWED = "f * share + f / factor * (1 - share)"
WRONG = {
    "turns the other way, keys included": ("angle.sin() *", "-angle.sin() *"),
    "the second half turns back": (
        "second * cos + first * sin], dim",
        "second * cos - first * sin], dim",
    ),
    "the second neighbour turns back": (
        "second * cos + first * sin]\n",
        "second * cos - first * sin]\n",
    ),
    "a frequency for each channel": ("(-2 * i / rotary_dim) for", "(-i / rotary_dim) for"),
    "frequencies of the whole head": ("[base ** (-2 * i / rotary_dim)", "[base ** (-2 * i / 64)"),
    "pairings exchanged": ('if self.pairing == "half":', 'if self.pairing != "half":'),
    "halves are put together as neighbours": (
        "turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)",
        "turned = torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)",
    ),
    "put together as halves": (
        "torch.stack(pairs, dim=-1).flatten(-2)",
        "torch.cat(pairs, dim=-1)",
    ),
    "what is not turned is dropped": ("[turned.to(x.dtype), rest]", "[turned.to(x.dtype)]"),
    "the last channels are turned": (
        "x[..., : self.rotary_dim].to(wide), x[..., self.rotary_dim :]",
        "x[..., -self.rotary_dim :].to(wide), x[..., : -self.rotary_dim]",
    ),
    "angles in float32": ("dtype=torch.float64, device", "dtype=torch.float32, device"),
    "angles in the model's dtype": (
        'self.frequency = torch.tensor(self.frequencies, dtype=torch.float64, device="cpu")',
        "self.register_buffer('frequency', torch.tensor(self.frequencies).double())",
    ),
    "frequencies stay where they were made": ("self.frequency.device != x.device", "False"),
    "the base of the config is not read": (
        'scaling.pop("rope_theta", 10000.0)',
        "10000.0 if scaling.pop('rope_theta', None) else 10000.0",
    ),
    "the share of the config is not read": ("int(head_dim * share)", "head_dim"),
    "turned in the dtype of x": ("torch.promote_types(x.dtype, torch.float32)", "x.dtype"),
    "one sample's places for all": ("angle.unsqueeze(-3)", "angle[:1].unsqueeze(-3)"),
    "places of a batch go to the heads": ("angle.unsqueeze(-3)", "angle[None]"),
    "places start again": (
        "positions[..., None] *",
        "(positions - positions[..., :1])[..., None] *",
    ),
    "the permutation the wrong way round": ('if to == "half" else', 'if to != "half" else'),
    "a share is permuted as the whole": (
        "rotary_dim is None else rotary_dim\n    order",
        "rotary_dim else head_dim\n    order",
    ),
    "the permutation over all heads": (
        "weight.unflatten(0, (-1, head_dim))[:, order]",
        "weight.unflatten(0, (head_dim, -1))[order]",
    ),
    "linear does nothing": ("[0.0 for _ in plain]", "[1.0 for _ in plain]"),
    "the ramp upside down": (SLOWED, "f * (1 - share) + f / factor * share"),
    "the ramp not clamped": ("min(max(share, 0.0), 1.0)", "share"),
    "the ramp ends not rounded": ("if truncate", "if False"),
    "the ramp in rounds": ("[1 - (i - low)", "[1 - (i * i - low)"),
    "fast pairs are others": ("beta_fast or 32", "beta_fast or 16"),
    "slow pairs are others": ("beta_slow or 1", "beta_slow or 2"),
    "beta_fast is not read": ("beta_fast or 32", "32"),
    "beta_slow is not read": ("beta_slow or 1", "1"),
    "the attention factor is forgotten": ("angle.cos() * self.attention_factor", "angle.cos()"),
    "the attention factor of the sines is forgotten": (
        "angle.sin() * self.attention_factor",
        "angle.sin()",
    ),
    "the attention factor is not read": ("if attention_factor is None:", "if True:"),
    "Llama 3 without a ramp": (
        "(trained * frequency / (2 * math.pi) - low) / (high - low) for",
        "float(trained * frequency / (2 * math.pi) > low) for",
    ),
    "DeepSeek's scales ignored": ("if mscale and mscale_all_dim", "if False"),
    "linear is multiplied by YaRN's factor": (
        'attention_factor if kind == "yarn" else 1.0',
        "attention_factor or 1.2",
    ),
    "one position for all tokens is taken": (
        "if not fits or",
        "if positions.numel() > 1 and not fits or",
    ),
    "positions of the heads are taken": ("x.shape[:-3] + x.shape[-2:-1])", "x.shape[-3:-1])"),
    "rounded positions are taken": ("positions.is_floating_point()", "False"),
    "a part of the channels is turned": ("or x.size(-1) != self.head_dim", ""),
    "any pairing is interleaved": ('if pairing not in ("half", "interleaved")', "if False"),
    "any permutation is interleaved": ('if to not in ("half", "interleaved")', "if False"),
    "what is not known is YaRN": ('elif kind == "yarn"', "elif kind"),
}


CASES = {
    "rope": Case(
        lambda m, x: m(x, torch.arange(10**6, 10**6 + T, device=x.device)),
        lambda: (some(2, 4, T, 8),),
        lambda: RotaryPositions(8),
        casts=False,
    ),
}
MIB = {
    "rope": (16, lambda x: lambda: RotaryPositions(64)(x, torch.arange(len(x)))),
}


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(PAIRINGS))
def test_lengths_stay(first, seed, pairing):
    x = draw(3, 8, seed=seed)
    result = RotaryPositions(8, pairing=pairing)(x, first + torch.arange(3))
    assert close(result.norm(dim=-1), x.norm(dim=-1), 1e-12)


def test_place_0_is_left_as_it_is():
    x = draw(2, 3, 1, 8, dtype=torch.float32)
    assert torch.equal(RotaryPositions(8)(x, torch.tensor([0])), x)


def test_no_tokens_are_no_trouble():
    assert RotaryPositions(4)(torch.zeros(2, 0, 4), torch.arange(0)).shape == (2, 0, 4)


def test_there_and_back_is_the_same_weight():
    weight = draw(24, 5)
    half = change_pairing(weight, 8, to="half", rotary_dim=6)
    assert torch.equal(change_pairing(half, 8, to="interleaved", rotary_dim=6), weight)


def test_it_has_no_weights_and_nothing_in_a_checkpoint():
    rotate = RotaryPositions(8, scaling=YARN)
    assert not list(rotate.parameters())
    assert not rotate.state_dict()


def test_copies_and_pickles_turn_alike():
    rotate, x, places = RotaryPositions(8, scaling=YARN), draw(4, 8), torch.arange(4)
    for other in (copy.deepcopy(rotate), pickle.loads(pickle.dumps(rotate))):
        assert torch.equal(other(x, places), rotate(x, places))


@pytest.mark.lab
def test_a_model_made_without_memory_turns_once_it_has_some():
    """The frequencies are no buffer that to_empty() would leave with anything in it."""
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), RotaryPositions(8))
    rotate = model.to_empty(device="cpu")[1]
    x, places = draw(4, 8), torch.arange(4)
    assert torch.equal(rotate(x, places), RotaryPositions(8)(x, places))


@pytest.mark.lab
def test_it_compiles_whole_and_exports():
    rotate, x = RotaryPositions(8, rotary_dim=4, scaling=YARN), draw(1, 2, 5, 8)
    torch._dynamo.reset()
    compiled = torch.compile(rotate, backend="eager", fullgraph=True, dynamic=True)
    for length in (5, 3):
        assert close(
            compiled(x[:, :, :length], torch.arange(length)),
            rotate(x[:, :, :length], torch.arange(length)),
            1e-12,
        )
    exported = torch.export.export(rotate, (x, torch.arange(5))).module()
    assert close(exported(x, torch.arange(5)), rotate(x, torch.arange(5)), 1e-12)
