"""Rotary positions: scores see distances alone, in both pairings, in every dtype, however stretched."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from snippets.rope import RotaryPositions
from tests.snippets.facts import refuses, works
from tests.snippets.parts import Case, T, close, draw, some

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


def by_hand(x, positions, frequencies, pairing):
    """Turn x, (T, channels), one number after the other."""
    out, pairs = x.clone(), len(frequencies)
    for t, place in enumerate(positions.tolist()):
        for i, frequency in enumerate(frequencies):
            a, b = (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + pairs)
            cos, sin = math.cos(place * frequency), math.sin(place * frequency)
            out[t, a] = x[t, a] * cos - x[t, b] * sin
            out[t, b] = x[t, b] * cos + x[t, a] * sin
    return out


def test_each_number_is_that_of_the_formula(part):
    places = torch.tensor([0, 1, 7, 5000, 100_003])
    for pairing in PAIRINGS:
        for head_dim, rotary_dim in ((8, 8), (8, 4), (7, 6)):
            how = {"rotary_dim": rotary_dim, "base": 500.0, "pairing": pairing}
            rotate, x = part.RotaryPositions(head_dim, **how), draw(5, head_dim)
            frequencies = [500.0 ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]
            wanted = by_hand(x, places, frequencies, pairing)
            assert close(rotate(x, places), wanted)
            assert close(rotate(x.float(), places), wanted.float(), 1e-5)


def test_scores_depend_on_distance_alone(part):
    query, key = draw(2, 3, 6, 16).float()
    near, far = torch.arange(6), 1_000_000 + torch.arange(6)
    for pairing in PAIRINGS:
        rotate = part.RotaryPositions(16, pairing=pairing, scaling=LLAMA3)
        at_once = rotate(query, near) @ rotate(key, near).mT
        assert close(rotate(query, far) @ rotate(key, far).mT, at_once, 1e-5)
        assert not close(rotate(query, far) @ rotate(key, near).mT, at_once, 0.1)


def test_positions_of_a_batch_are_its_own(part):
    rotate, x = part.RotaryPositions(8), draw(3, 3, 4, 8)  # as many heads as texts
    places = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8], [0, 0, 0, 1]])
    wanted = torch.stack([rotate(x[b], places[b]) for b in range(3)])
    assert close(rotate(x, places), wanted)
    assert close(rotate(x[:2], places[:2]), wanted[:2])


def test_changed_weights_give_the_same_scores_in_the_other_pairing(part):
    tokens, places = draw(5, 12), torch.arange(5)
    for rotary_dim in (None, 4):
        for ours, theirs in (PAIRINGS, PAIRINGS[::-1]):
            scores = []
            for pairing in (ours, theirs):
                rotate = part.RotaryPositions(8, rotary_dim=rotary_dim, pairing=pairing)
                change = partial(part.change_pairing, head_dim=8, to=theirs, rotary_dim=rotary_dim)
                turned = []
                for seed in (1, 2):  # a query and a key, of three heads
                    weight, bias = draw(24, 12, seed=seed), draw(24, seed=seed + 5)
                    if pairing == theirs:
                        weight, bias = change(weight), change(bias)
                    x = (tokens @ weight.T + bias).unflatten(-1, (3, 8)).transpose(0, 1)
                    turned.append(rotate(x, places))
                scores.append(turned[0] @ turned[1].mT)
            assert close(*scores)


def test_stretched_frequencies_are_those_of_the_recipes(part):
    """By hand: each is a mean of the frequency as it was and of a `factor`-th of it."""
    plain = part.RotaryPositions(64).frequencies
    other = YARN | {"beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}
    low, high = (32 * math.log(2048 / (r * 2 * math.pi)) / math.log(10000) for r in (16, 2))
    for scaling, kept in (
        (LINEAR, lambda pair: 0.0),
        # Pair 8 makes 32.6 rounds in 2,048 places and pair 21 makes 0.77. The paper's ramp from 32
        # rounds to 1 goes from pair 8.06 to 20.1; its code rounds these to 8 and 21.
        (YARN, lambda pair: (21 - pair) / 13),
        (other, lambda pair: (high - pair) / (high - low)),
        (LLAMA3, lambda pair: (8192 * plain[pair] / (2 * math.pi) - 1) / 3),
    ):
        frequencies = part.RotaryPositions(64, scaling=scaling).frequencies
        for pair, (found, before) in enumerate(zip(frequencies, plain, strict=True)):
            share = min(max(kept(pair), 0.0), 1.0)
            assert found / before == pytest.approx(share + (1 - share) / scaling["factor"])


def test_yarn_multiplies_scores_by_the_square_of_its_factor(part):
    query, key, places = draw(1, 8), draw(1, 8, seed=2), torch.tensor([3])
    rotate, wanted = part.RotaryPositions(8, scaling=YARN), 0.1 * math.log(4) + 1
    scores = rotate(query, places) @ rotate(key, places).mT
    assert close(scores, query @ key.mT * wanted**2)
    for scaling, factor in (
        (LLAMA3, 1.0),
        (YARN | {"attention_factor": 1.5}, 1.5),
        (YARN | {"mscale": 2.0, "mscale_all_dim": 1.0}, (0.2 * math.log(4) + 1) / wanted),
    ):
        assert part.RotaryPositions(8, scaling=scaling).attention_factor == pytest.approx(factor)


def test_neither_a_cast_nor_a_move_of_the_model_reaches_the_angles(part):
    """In no buffer and no checkpoint: to_empty() and assign=True leave them as they are, too."""
    x, places = draw(4, 8, dtype=torch.float32), 4000 + torch.arange(4)
    wanted = part.RotaryPositions(8)(x, places)
    with torch.device("meta"):
        born_there = nn.Sequential(part.RotaryPositions(8))
    moved = nn.Sequential(part.RotaryPositions(8)).to("meta").bfloat16()
    with works("a rotation on another device"):
        assert moved[0](x.to("meta"), places.to("meta")).device.type == "meta"
    for model in (nn.Sequential(part.RotaryPositions(8)).bfloat16(), born_there, moved):
        assert not model.state_dict()
        with works("a rotation of a model that was elsewhere"):
            assert torch.equal(model[0](x, places), wanted)
    low = part.RotaryPositions(8)(x.bfloat16(), places)
    assert torch.equal(low, part.RotaryPositions(8)(x.bfloat16().float(), places).bfloat16())


def test_a_config_may_name_the_base_and_the_share_beside_the_scaling(part):
    theirs = YARN | {"rope_theta": 500.0, "partial_rotary_factor": 0.5}
    wanted = part.RotaryPositions(32, base=500.0, scaling=YARN).frequencies
    assert part.RotaryPositions(64, scaling=theirs).frequencies == wanted
    older = {"type": "linear", "factor": 4.0}
    pairs = (part.RotaryPositions(64, scaling=one).frequencies for one in (older, LINEAR))
    assert len(set(pairs)) == 1


def test_what_would_be_misread_in_silence_is_refused(part):
    rotate, x = part.RotaryPositions(8), draw(2, 3, 4, 8)
    for places in (
        torch.zeros(1).long(),  # one for all tokens
        torch.arange(4.0),  # which bfloat16 would round
        torch.zeros(3, 4).long(),  # one for each head
    ):
        refuses(f"positions {places}", rotate, x, places)
    refuses("positions of heads, of one text", rotate, x[0], torch.zeros(3, 4).long())
    refuses("channels that would stay", rotate, draw(2, 3, 4, 16), torch.arange(4))
    refuses("no pairing", part.RotaryPositions, 8, pairing="neox")
    refuses("a channel without a partner", part.RotaryPositions, 8, rotary_dim=3)
    refuses("channels that no head has", part.RotaryPositions, 2, rotary_dim=4)
    refuses("no pairing to change to", part.change_pairing, draw(8, 2), 8, to="neox")
    for scaling in ({"factor": 2.0}, YARN | {"rope_type": "longrope"}):
        refuses(f"{scaling}", part.RotaryPositions, 8, scaling=scaling)
    with pytest.raises(TypeError):  # Python's own
        part.RotaryPositions(8, scaling=YARN | {"beta_fats": 16})


WRONG = {  # the first seven are those of the chapter's exercise, too
    "turns the other way, keys included": ("angle.sin() *", "-angle.sin() *"),
    "a frequency for each channel": ("(-2 * i / rotary_dim) for", "(-i / rotary_dim) for"),
    "pairings exchanged": ('if self.pairing == "half":', 'if self.pairing != "half":'),
    "angles in float32": ("dtype=torch.float64, device", "dtype=torch.float32, device"),
    "the permutation over all heads": (
        "weight.unflatten(0, (-1, head_dim))[:, order]",
        "weight.unflatten(0, (head_dim, -1))[order]",
    ),
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
