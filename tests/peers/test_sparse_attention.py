"""The Indexer chooses what DeepSeek V3.2's chooses in transformers, and with latent attention it is that layer: random weights."""

import pytest
import torch

from snippets.indexer import Indexer, index_scores
from snippets.kv_cache import KVCache
from snippets.rope import RotaryPositions
from snippets.sparse_attention import keep_chosen

pytest.importorskip("transformers")

from transformers import DynamicCache
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as v32

from tests.peers.test_latent_attention import SIZES, deepseek, ours_of

T = 24
INDEX = {"q_lora_rank": 14, "index_n_heads": 8, "index_head_dim": 12, "index_topk": 5}
NAMES = {"wq_b": "W_query", "wk": "W_key", "k_norm": "key_norm", "weights_proj": "W_weight"}


def indexer_of(config, theirs):
    """Our indexer with their weights."""
    ours = Indexer(
        config.hidden_size,
        config.index_n_heads,
        config.index_head_dim,
        k=config.index_topk,
        query_dim=config.q_lora_rank,
        rope_dim=config.qk_rope_head_dim,
        rotate=RotaryPositions(config.qk_rope_head_dim),
    )
    for name, own in NAMES.items():
        getattr(ours, own).load_state_dict(getattr(theirs, name).state_dict())
    return ours.eval()


class Seen(torch.overrides.TorchFunctionMode):
    """Keeps the scores of which the best are chosen."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.topk:
            self.scores = args[0]
        return function(*args, **kwargs or {})


def both(**options):
    """Their layer, our indexer, our layer, and the angles of T positions."""
    config, theirs, embedding = deepseek(v32, "V32", **INDEX | options)
    indexer = indexer_of(config, theirs.indexer)
    weights = theirs.indexer
    del theirs.indexer  # our latent attention has none
    ours = ours_of(config, theirs)
    theirs.indexer = weights
    return theirs, indexer, ours, embedding


@torch.no_grad()
def test_scores_and_choice_are_those_of_their_indexer():
    theirs, indexer, ours, embedding = both()
    x = torch.randn(2, T, SIZES["hidden_size"])
    asks = ours.query_norm(ours.W_query_latent(x))
    keep = torch.ones(T, T, dtype=torch.bool).tril()
    with Seen() as seen:
        chosen = theirs.indexer(x, asks, embedding(x, torch.arange(T)[None]), keep[None], None)
    assert torch.allclose(indexer.scores(x, asks=asks), seen.scores, rtol=0, atol=1e-5)
    wanted = torch.zeros(2, T, T, dtype=torch.bool).scatter(-1, chosen.long(), True) & keep
    assert torch.equal(keep_chosen(indexer(x, asks=asks), T)[:, 0], wanted)
    assert (wanted.sum(-1) == torch.arange(1, T + 1).clamp_max(5)).all()


@pytest.mark.parametrize("k", [5, T])
@torch.no_grad()
def test_with_latent_attention_it_is_their_layer_at_once_and_from_a_cache(k):
    theirs, indexer, ours, embedding = both(index_topk=k)
    x, places = torch.randn(2, T, SIZES["hidden_size"]), torch.arange(T)[None]
    asks = ours.query_norm(ours.W_query_latent(x))
    hide = torch.full((2, 1, T, T), -torch.inf).triu(1)
    wanted, _ = theirs(x, position_embeddings=embedding(x, places), attention_mask=hide)
    size = wanted.abs().max().item()
    result = ours(x, attn_mask=keep_chosen(indexer(x, asks=asks), T))
    assert (result - wanted).abs().max().item() < 1e-5 * size
    if k == T:  # then nothing of the indexer is left to see
        assert (ours(x) - wanted).abs().max().item() < 1e-5 * size
    cache, own, their_cache = KVCache(T), KVCache(T), DynamicCache(config=theirs.config)
    for start, end in ((0, 20), (20, 21), (21, T)):
        part, where = x[:, start:end], {"position_embeddings": embedding(x, places[:, start:end])}
        wanted, _ = theirs(
            part,
            attention_mask=hide[:, :, start:end, :end],
            past_key_values=their_cache,
            **where,
        )
        chosen = indexer(part, asks=asks[:, start:end], cache=own)
        result = ours(part, attn_mask=keep_chosen(chosen, end), cache=cache)
        assert (result - wanted).abs().max().item() < 1e-5 * size


def test_their_weights_of_the_heads_may_be_negative():
    """So a key to which every product is negative, with the score 0, can be among the best."""
    query, key = torch.ones(1, 1, 1, 2), torch.tensor([[[1.0, 1.0], [-1.0, -1.0]]])
    scores = index_scores(query, key, torch.tensor([[[-1.0]]]))[0, 0]
    assert scores[1] == 0 > scores[0]
