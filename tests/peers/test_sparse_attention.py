"""The Indexer chooses what DeepSeek V3.2's chooses in transformers, and with latent attention it is that layer: random weights."""

import pytest
import torch

from snippets.attention_of import attention_of, layer_of, weights_of
from snippets.indexer import Indexer
from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from snippets.rope import RotaryPositions
from snippets.sparse_attention import keep_chosen

pytest.importorskip("transformers")

from transformers import DynamicCache

from tests.peers.test_attention_of import LATENT, assert_near, small_model

T, K = 24, 5
NAMES = {"wq_b": "W_query", "wk": "W_key", "k_norm": "key_norm", "weights_proj": "W_weight"}


class TopK(torch.overrides.TorchFunctionMode):
    """Keeps the scores of which the best are chosen."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.topk:
            self.scores = args[0]
        return function(*args, **kwargs or {})


@torch.no_grad()
def both():
    """Their layer, our indexer and our layer with its weights, and the model of theirs."""
    index = {"index_n_heads": 8, "index_head_dim": 12, "index_topk": K}
    model, config = small_model("deepseek_v32", LATENT | index)
    theirs = model.model.layers[0].self_attn
    indexer = Indexer(32, 8, 12, k=K, query_dim=14, rope_dim=4, rotate=RotaryPositions(4)).double()
    for name, own in NAMES.items():
        getattr(indexer, own).load_state_dict(getattr(theirs.indexer, name).state_dict())
    own = ("index_", "layer_types", "model_type")  # all else is a V3
    config = {key: config[key] for key in config if not key.startswith(own)}
    layer = attention_of({"model_type": "deepseek_v3"} | config)[0]
    ours = layer_of(layer, latent=LatentAttention, rotary=RotaryPositions).double()
    weights = weights_of(layer, model.state_dict())
    ours.load_state_dict({name: weights[name] for name in weights if "indexer" not in name})
    return theirs, indexer, ours, model


@torch.no_grad()
def test_scores_and_choice_are_those_of_their_indexer():
    theirs, indexer, ours, model = both()
    x = torch.randn(2, T, 32, dtype=torch.float64)
    asks, places = ours.query_norm(ours.W_query_latent(x)), torch.arange(T)[None]
    keep = torch.ones(T, T, dtype=torch.bool).tril()
    with TopK() as seen:
        chosen = theirs.indexer(x, asks, model.model.rotary_emb(x, places), keep[None], None)
    assert_near(indexer.scores(x, asks=asks), seen.scores.double())
    expected = torch.zeros(2, T, T, dtype=torch.bool).scatter(-1, chosen.long(), True) & keep
    assert torch.equal(keep_chosen(indexer(x, asks=asks), T)[:, 0], expected)
    assert (expected.sum(-1) == torch.arange(1, T + 1).clamp_max(K)).all()


@torch.no_grad()
def test_with_latent_attention_it_is_their_layer_at_once_and_from_a_cache():
    theirs, indexer, ours, model = both()
    x = torch.randn(2, T, 32, dtype=torch.float64)
    asks, places = ours.query_norm(ours.W_query_latent(x)), torch.arange(T)[None]
    hide = torch.full((2, 1, T, T), -torch.inf, dtype=torch.float64).triu(1)
    angles = model.model.rotary_emb(x, places)
    expected, _ = theirs(x, position_embeddings=angles, attention_mask=hide)
    assert_near(ours(x, attn_mask=keep_chosen(indexer(x, asks=asks), T)), expected)
    cache, own, their_cache = KVCache(T), KVCache(T), DynamicCache(config=theirs.config)
    for start, end in ((0, 20), (20, 21), (21, T)):
        piece, mask = x[:, start:end], hide[:, :, start:end, :end]
        angles = model.model.rotary_emb(x, places[:, start:end])
        how = {"attention_mask": mask, "past_key_values": their_cache}
        expected, _ = theirs(piece, position_embeddings=angles, **how)
        chosen = indexer(piece, asks=asks[:, start:end], cache=own)
        assert_near(ours(piece, attn_mask=keep_chosen(chosen, end), cache=cache), expected)
