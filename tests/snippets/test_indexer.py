"""The indexer scores by its formula and chooses the best keys of those that are not hidden; its loss is a divergence."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, kl_divergence

from snippets.indexer import Indexer
from snippets.kv_cache import KVCache
from snippets.rope import RotaryPositions
from snippets.sparse_attention import keep_chosen
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, close, draw, texts, wide
from tests.snippets.test_sparse_attention import past

TURN = RotaryPositions(4)


def an_indexer(module, k, **options):
    """Three heads of 6 channels, with weights that are large enough to matter."""
    torch.manual_seed(0)
    made = module.Indexer(12, 3, 6, k=k, **options).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def formula(indexer, x, asks):
    """The scores, head by head; -inf for the future."""
    query, key = indexer.W_query(asks), indexer.W_key(x)
    key = F.layer_norm(key, (6,), indexer.key_norm.weight, indexer.key_norm.bias, eps=1e-6)
    scores, places = 0.0, torch.arange(x.size(1))
    for head, weight in zip(query.split(6, dim=-1), indexer.W_weight(x).unbind(-1), strict=True):
        one, other = head, key
        if indexer.rotate:
            one, other = (
                torch.cat([TURN(part[..., :4], places), part[..., 4:]], -1) for part in (head, key)
            )
        scores = scores + weight[..., None] * (one @ other.mT).clamp_min(0) / 18**0.5
    return scores.masked_fill(~past(x.size(1), x.size(1)), -torch.inf)


def of(scores, chosen):
    """The scores of the chosen keys, the best first; -inf where there is none."""
    taken = scores.gather(-1, chosen.clamp_min(0)).masked_fill(chosen < 0, -torch.inf)
    return taken.sort(dim=-1, descending=True).values


@torch.no_grad()
def test_the_indexer_scores_by_its_formula(part):
    x, asks = draw(2, 9, 12), draw(2, 9, 5, seed=4)
    for options in ({}, {"rope_dim": 4, "rotate": TURN}):
        indexer = an_indexer(part, 4, **options)
        assert close(indexer.scores(x), formula(indexer, x, x))
    indexer = an_indexer(part, 4, query_dim=5)
    assert close(indexer.scores(x, asks=asks), formula(indexer, x, asks))


@torch.no_grad()
def test_at_once_and_in_pieces_it_chooses_the_best_keys(part):
    indexer, x = an_indexer(part, 4, rope_dim=4, rotate=TURN), draw(2, 80, 12)
    scores = formula(indexer, x, x)
    wanted = scores.topk(4).values  # equal scores, as zeros are, may be chosen in any order
    for sizes in ([80], [79, 1], [40, 1, 39]):
        cache = KVCache(80)
        chosen = [indexer(piece, cache=cache)[:, 0] for piece in x.split(sizes, dim=1)]
        assert close(of(scores, torch.cat(chosen, dim=1)), wanted), sizes
        assert cache.nbytes == 2 * 80 * 6 * 8  # one key for each token, and no values


@torch.no_grad()
def test_a_mask_takes_the_place_of_the_triangle(part):
    indexer, x = an_indexer(part, 3), draw(2, 40, 12)
    assert torch.equal(indexer(x, attn_mask=past(40, 40)), indexer(x))
    keep = draw(2, 1, 40, 40, seed=5) > -0.5  # one for each text, which shows some of the future
    kept = keep_chosen(indexer(x, attn_mask=keep), 40)
    assert not (kept & ~keep).any()
    assert (kept.sum(-1) == keep.sum(-1).clamp_max(3)).all()


def test_the_loss_is_the_divergence_and_leaves_the_attention_alone(part):
    weights = draw(2, 3, 6, 6, seed=2).masked_fill(~past(6, 6), -torch.inf).softmax(-1)
    weights.requires_grad_()
    scores = draw(2, 6, 6, seed=3).masked_fill(~past(6, 6), -torch.inf).requires_grad_()
    loss, target = part.indexer_loss(scores, weights), weights.detach().mean(1)
    wanted = kl_divergence(Categorical(probs=target), Categorical(logits=scores)).mean()
    assert close(loss, wanted.detach())
    moved, others = torch.autograd.grad(loss, (scores, weights), allow_unused=True)
    assert others is None
    assert close(moved, (scores.softmax(-1) - target) / 12)


def test_a_query_that_sees_no_key_adds_nothing_to_the_loss(part):
    keep = past(6, 6)
    keep[[0, 3]] = False
    weights = draw(2, 3, 6, 6, seed=2).masked_fill(~keep, -torch.inf).softmax(-1).nan_to_num()
    scores = draw(2, 6, 6, seed=3).masked_fill(~keep, -torch.inf).requires_grad_()
    loss, seen = part.indexer_loss(scores, weights), [1, 2, 4, 5]
    wanted = part.indexer_loss(scores[:, seen], weights[:, :, seen]) * 4 / 6
    assert close(loss, wanted)
    pairs = [torch.autograd.grad(it, scores)[0] for it in (loss, wanted)]
    assert close(*pairs), "not finite, or not the same"


def test_what_would_be_misread_is_refused(part):
    """A rotation that turns nothing; masks of numbers, one for each of three texts, one for each head."""
    for options in ({"rope_dim": 4}, {"rotate": TURN}):
        refuses(f"{options}", partial(part.Indexer, 12, 3, 6, k=2, **options))
    indexer, x = an_indexer(part, 2), torch.zeros(1, 3, 12).double()
    for mask in (torch.zeros(3, 3), past(3, 3)[None], past(3, 3).expand(1, 2, 3, 3)):
        refuses(f"{mask.shape}", partial(indexer, x, attn_mask=mask))


WRONG = {
    "no relu": ("products.relu()", "products"),
    "the key is not rotated": (
        "torch.cat([self.rotate(part[..., :end], positions), part[..., end:]], dim=-1)",
        "torch.cat([self.rotate(part[..., :end], positions) if part is query else part[..., :end], part[..., end:]], dim=-1)",
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
}


def rotated():
    """An indexer of three heads."""
    return Indexer(16, 3, 8, k=4, rope_dim=4, rotate=RotaryPositions(4))


def a_thousand_tokens(x):
    """The last ones of a text: so many that all their scores would be 64 MiB."""
    cache, keys = KVCache(len(x)), x[None, None, 1024:, :16]
    cache.update(keys, keys[..., :0])
    return partial(Indexer(64, 1, 16, k=256), x[None, :1024], cache=cache)


CASES = {
    "scores": Case(
        lambda m, x: m.scores(x).clamp(min=-9), texts, rotated, returns=wide, roundings=64
    ),
}
MODULES = {"Indexer": lambda: Indexer(8, 3, 4, k=2, rope_dim=2, rotate=RotaryPositions(2))}
MIB = {"the last 1,024 tokens, indexed": (12.5, a_thousand_tokens)}
