"""The indexer scores by its formula and chooses the best keys of those that are not hidden; its loss is a divergence."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from snippets.indexer import Indexer, indexer_loss
from snippets.kv_cache import KVCache
from snippets.rope import RotaryPositions
from snippets.sparse_attention import keep_chosen
from tests.snippets.parts import Case, texts, wide
from tests.snippets.test_sparse_attention import past, some


def an_indexer(module, k, rotate=None, **options):
    torch.manual_seed(0)
    options |= {} if rotate is None else {"rope_dim": 4, "rotate": rotate}
    made = module.Indexer(12, 3, 6, k=k, **options).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def turn(x, positions):
    """A rotation for tests: each half of the channels by the position's angle."""
    angle = positions.to(x.dtype)[..., None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1
    )


def their_scores(indexer, x, asks=None):
    """The indexer's scores, written out key by key; -inf for the future."""
    asks, T = x if asks is None else asks, x.size(1)
    query = indexer.W_query(asks).unflatten(-1, (3, 6)).transpose(1, 2)
    key = F.layer_norm(
        indexer.W_key(x), (6,), indexer.key_norm.weight, indexer.key_norm.bias, eps=1e-6
    )
    if indexer.rotate:
        places = torch.arange(T)
        query = torch.cat([turn(query[..., :4], places), query[..., 4:]], dim=-1)
        key = torch.cat([turn(key[..., :4], places), key[..., 4:]], dim=-1)
    weight = indexer.W_weight(x)
    scores = torch.full((len(x), T, T), -torch.inf, dtype=x.dtype)
    for t in range(T):
        for s in range(t + 1):
            products = (query[:, :, t] * key[:, None, s]).sum(-1).clamp_min(0)  # (batch, heads)
            scores[:, t, s] = (products * weight[:, t]).sum(-1) / 18**0.5
    return scores


def of(scores, chosen):
    """The scores of the chosen keys, the best first; -inf where there is none."""
    taken = scores.gather(-1, chosen.clamp_min(0)).masked_fill(chosen < 0, -torch.inf)
    return taken.sort(dim=-1, descending=True).values


# Facts


@torch.no_grad()
def the_indexer_scores_by_its_formula(module):
    for rotate in (None, turn):
        indexer, x = an_indexer(module, 4, rotate), some(2, 9, 12)
        scores = indexer.scores(x)
        assert torch.allclose(scores, their_scores(indexer, x), rtol=0, atol=1e-10)
        kept = keep_chosen(indexer(x), 9)[:, 0]
        lowest = scores.masked_fill(~kept, torch.inf).amin(-1)
        highest = scores.masked_fill(kept, -torch.inf).amax(-1)
        assert (lowest >= highest - 1e-10).all(), "a better key was left out"
    indexer, asks = an_indexer(module, 4, query_dim=5), some(2, 9, 5, seed=4)
    wanted = their_scores(indexer, x, asks)
    assert torch.allclose(indexer.scores(x, asks=asks), wanted, rtol=0, atol=1e-10)


@torch.no_grad()
def in_pieces_it_chooses_what_it_chooses_at_once(module):
    T = 150
    indexer, x = an_indexer(module, 4, turn), some(2, T, 12)
    scores = indexer.scores(x)
    wanted = scores.topk(4).values  # equal scores, as zeros are, may be chosen in any order
    whole = indexer(x)[:, 0]
    assert torch.allclose(of(scores, whole), wanted, rtol=0, atol=1e-10)
    for sizes in ([T - 1, 1], [70, 1, 79]):
        cache, start = KVCache(T), 0
        for piece in x.split(sizes, dim=1):
            end = start + piece.size(1)
            chosen = indexer(piece, cache=cache)[:, 0]
            result = of(scores[:, start:end], chosen)
            assert torch.allclose(result, wanted[:, start:end], rtol=0, atol=1e-10), sizes
            start = end
    assert cache.nbytes == 2 * T * 6 * 8  # one key of head_dim numbers for each token, no values


@torch.no_grad()
def a_mask_takes_the_place_of_the_triangle(module):
    indexer, x = an_indexer(module, 3), some(2, 8, 12)
    assert torch.equal(indexer(x, attn_mask=past(8, 8)), indexer(x))
    keep = (some(2, 1, 8, 8, seed=5) > -0.5) & past(8, 8)  # one for each text
    kept = keep_chosen(indexer(x, attn_mask=keep), 8)
    assert not (kept & ~keep).any()
    assert (kept.sum(-1) == keep.sum(-1).clamp_max(3)).all()


def the_loss_is_the_divergence_and_leaves_the_attention_alone(module):
    weights = some(2, 3, 6, 6, seed=2).masked_fill(~past(6, 6), -torch.inf).softmax(-1)
    weights.requires_grad_()
    scores = some(2, 6, 6, seed=3).masked_fill(~past(6, 6), -torch.inf).requires_grad_()
    loss = module.indexer_loss(scores, weights)
    target, wanted = weights.detach().mean(1), 0.0
    for text in range(2):
        for t in range(6):
            told = torch.distributions.Categorical(logits=scores[text, t, : t + 1])
            asked = torch.distributions.Categorical(probs=target[text, t, : t + 1])
            wanted = wanted + torch.distributions.kl_divergence(asked, told) / 12
    assert torch.allclose(loss, wanted, rtol=0, atol=1e-10)
    moved, others = torch.autograd.grad(loss, (scores, weights), allow_unused=True)
    assert others is None
    assert torch.allclose(moved, (scores.softmax(-1) - target) / 12, rtol=0, atol=1e-10)
    perfect = target.log().masked_fill(~past(6, 6), -torch.inf)
    assert module.indexer_loss(perfect, weights).abs() < 1e-10


def a_query_that_sees_no_key_adds_nothing_to_the_loss(module):
    keep = past(6, 6)
    keep[[0, 3]] = False
    weights = some(2, 3, 6, 6, seed=2).masked_fill(~keep, -torch.inf).softmax(-1).nan_to_num()
    scores = some(2, 6, 6, seed=3).masked_fill(~keep, -torch.inf).requires_grad_()
    loss = module.indexer_loss(scores, weights)
    seen = [1, 2, 4, 5]
    wanted = module.indexer_loss(scores[:, seen], weights[:, :, seen]) * 4 / 6
    assert torch.allclose(loss, wanted, rtol=0, atol=1e-10)
    pairs = [torch.autograd.grad(it, scores)[0] for it in (loss, wanted)]
    assert torch.allclose(*pairs, rtol=0, atol=1e-10), "not finite, or not the same"


FACTS = [
    the_indexer_scores_by_its_formula,
    in_pieces_it_chooses_what_it_chooses_at_once,
    a_mask_takes_the_place_of_the_triangle,
    the_loss_is_the_divergence_and_leaves_the_attention_alone,
    a_query_that_sees_no_key_adds_nothing_to_the_loss,
]

WRONG = {
    "no relu": ("products.relu()", "products"),
    "the relu comes after the sum": (
        "(weight.mT[..., None] * products.relu()).sum(dim=1)",
        "(weight.mT[..., None] * products).sum(dim=1).relu()",
    ),
    "the heads have no weights": ("weight.mT[..., None] * products", "products"),
    "the worst keys are chosen": (
        "dim=-1)\n    return best",
        "dim=-1, largest=False)\n    return best",
    ),
    "hidden keys stay chosen": ('best.values == float("-inf"), -1', "best.values > 1e300, -1"),
    "the key is not normed": ("self.key_norm(self.W_key(x).to", "(self.W_key(x).to"),
    "the key is not rotated": (
        "torch.cat([self.rotate(part[..., :end], positions), part[..., end:]], dim=-1)",
        "torch.cat([self.rotate(part[..., :end], positions) if part is query else part[..., :end], part[..., end:]], dim=-1)",
    ),
    "queries are made from the token": (
        "self.W_query(x if asks is None else asks)",
        "self.W_query(x if asks is None else x[..., : asks.size(-1)])",
    ),
    "places begin anew": ("torch.arange(past, past + T,", "torch.arange(0, T,"),
    "the future is seen": ("<= place[some, None]", "<= place[some, None] + 1"),
    "the mask is not looked at": (
        "keep = attn_mask[..., some, :]",
        "keep = torch.ones_like(attn_mask)[..., some, :]",
    ),
    "every piece has the rows of the first": (
        "<= place[some, None]",
        "<= place[: place[some].numel(), None]",
    ),
    "the loss moves the attention": ("weights.detach().mean(dim=1)", "weights.mean(dim=1)"),
    "the divergence the other way round": (
        "(target * (known - told))",
        "(told.exp() * (told - known))",
    ),
    "one head is imitated": ("weights.detach().mean(dim=1)", "weights.detach()[:, 0]"),
    "a softmax of nothing": ("scores.masked_fill(blind, 0.0)", "scores"),
}


def rotated():
    """An indexer of three heads."""
    return Indexer(16, 3, 8, k=4, rope_dim=4, rotate=RotaryPositions(4))


CASES = {
    "scores": Case(
        lambda m, x: m.scores(x).clamp(min=-9), texts, rotated, returns=wide, roundings=64
    ),
}
MODULES = {
    "Indexer": lambda: Indexer(8, 3, 4, k=2, rope_dim=2, rotate=RotaryPositions(2)),
}
MIB = {"Indexer": (64, lambda x: partial(Indexer(64, 1, 16, k=256), x[None]))}


def test_training_by_the_loss_finds_the_keys_that_a_head_reads():
    torch.manual_seed(0)
    x, keys = some(8, 12, 12, seed=1), some(12, 4, seed=2)
    query, key = x @ keys * 2, x @ keys
    weights = (query @ key.mT).masked_fill(~past(12, 12), -torch.inf).softmax(-1)[:, None]
    indexer = Indexer(12, 4, 6, k=3).double()
    optimizer = torch.optim.Adam(indexer.parameters(), 0.02)
    lost = []
    for _ in range(60):
        lost.append((weights * ~keep_chosen(indexer(x), 12)).sum(-1).mean().item())
        optimizer.zero_grad()
        indexer_loss(indexer.scores(x), weights).backward()
        optimizer.step()
    assert lost[-1] < lost[0] / 2


@pytest.mark.parametrize("options", [{"rope_dim": 4}, {"rotate": turn}])
def test_a_rotation_that_would_turn_nothing_is_refused(options):
    with pytest.raises(ValueError, match="rope_dim"):
        Indexer(12, 3, 6, k=2, **options)


@pytest.mark.parametrize(
    "mask", [torch.zeros(3, 3), past(3, 3)[None], past(3, 3).expand(1, 2, 3, 3)]
)
def test_a_mask_that_would_be_misread_is_refused(mask):
    with pytest.raises(ValueError, match="attn_mask"):
        Indexer(12, 3, 6, k=2)(torch.zeros(1, 3, 12), attn_mask=mask)
