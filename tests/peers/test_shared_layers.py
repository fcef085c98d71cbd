"""The pass of A smaller cache, in which layers share a cache, is that of Gemma 3n: random weights."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from literate.page import read
from snippets.kv_cache import KVCache
from snippets.llama import rotate

pytest.importorskip("transformers")

from transformers import Gemma3nTextConfig
from transformers.cache_utils import DynamicCache, KVSharingDict
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextAttention

PAGE = Path(__file__).parents[2] / "docs/production/smaller-cache.md"
HEADS, HEAD_DIM, WIDTH = 6, 10, 60
FULL, WINDOW = "full_attention", "sliding_attention"
# The kinds of their layers, how many at the end share, and whose keys and values each layer reads.
STACKS = {
    "each its own": ([FULL] * 3, 0, (0, 1, 2)),
    "a pair": ([FULL] * 2, 1, (0, 0)),
    "three read the first": ([FULL] * 4, 3, (0, 0, 0, 0)),
    "each reads the last of its kind": ([WINDOW, FULL] * 3, 2, (0, 1, 2, 3, 2, 3)),
}


def their_layers(kinds, shared):
    """Their attention layers in float64, with weights drawn anew."""
    config = Gemma3nTextConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        head_dim=HEAD_DIM,
        num_hidden_layers=len(kinds),
        layer_types=kinds,
        num_kv_shared_layers=shared,
        sliding_window=64,  # longer than the text
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    layers = [Gemma3nTextAttention(config, index).double().eval() for index in range(len(kinds))]
    for layer in layers:
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.3)
    return layers


class Normed(nn.Module):
    """Their projection, and the norm of each head after it."""

    def __init__(self, project, norm, scale=1.0):
        super().__init__()
        self.project, self.norm, self.scale = project, norm, scale

    def forward(self, x):
        return self.scale * self.norm(self.project(x).unflatten(-1, (-1, HEAD_DIM))).flatten(-2)


def angles(positions):
    """The angle of each pair of channels, (1, T, HEAD_DIM / 2)."""
    pair = torch.arange(HEAD_DIM // 2, dtype=torch.float64)
    return positions.double()[None, :, None] * 10000.0 ** (-2 * pair / HEAD_DIM)


def with_attention_of(layers):
    """What the page's function takes from a Llama, with these layers as its attention and nothing else."""
    blocks = []
    for layer in layers:
        # The page divides by the root of the head dimension, and Gemma 3n does not.
        parts = {"W_query": Normed(layer.q_proj, layer.q_norm, HEAD_DIM**0.5)}
        if not layer.is_kv_shared_layer:
            parts["W_key"] = Normed(layer.k_proj, layer.k_norm)
            parts["W_value"] = Normed(layer.v_proj, layer.v_norm)
        blocks.append(
            SimpleNamespace(
                attention_norm=nn.Identity(),
                attention=SimpleNamespace(out_proj=layer.o_proj, **parts),
                mlp_norm=nn.Identity(),
                mlp=torch.zeros_like,
            )
        )
    return SimpleNamespace(
        config={"head_dim": HEAD_DIM},
        token=nn.Embedding.from_pretrained(torch.randn(50, WIDTH, dtype=torch.float64)),
        rotation=lambda positions: (angles(positions).cos()[None], angles(positions).sin()[None]),
        blocks=blocks,
        norm=nn.Identity(),
        logits=nn.Identity(),
    )


def the_pages_function(llama):
    """The function logits_of, as it stands on the page."""
    (code,) = (block.code for block in read(PAGE).blocks if "def logits_of(" in block.code)
    names = {"torch": torch, "F": F, "rotate": rotate, "llama": llama}
    exec(code, names)
    return names["logits_of"]


@torch.no_grad()
@pytest.mark.parametrize("name", STACKS)
def test_step_by_step_with_a_cache_of_each(name):
    kinds, shared, source = STACKS[name]
    layers = their_layers(kinds, shared)
    llama = with_attention_of(layers)
    logits_of = the_pages_function(llama)
    tokens = torch.randint(50, (2, 9))
    theirs, ours, end = DynamicCache(), [KVCache(9) for _ in kinds], 0
    for size in (4, 1, 1, 3):
        start, end = end, end + size
        angle = angles(torch.arange(start, end)).repeat(1, 1, 2)
        hidden = ~torch.ones(size, end, dtype=torch.bool).tril(start)
        added = torch.zeros(1, 1, size, end).double().masked_fill(hidden, -torch.inf)
        x, made = llama.token(tokens[:, start:end]), KVSharingDict()
        for layer in layers:
            turning = (angle.cos(), angle.sin())
            x = x + layer(x, turning, added, past_key_values=theirs, shared_kv_states=made)[0]
        result = logits_of(tokens[:, start:end], ours, source)
        assert (result - x).abs().max() < 1e-5 * x.abs().max()  # their norms compute in float32
    own = [index for index in range(len(kinds)) if source[index] == index]
    assert [cache.length for cache in ours] == [9 * (index in own) for index in range(len(kinds))]
    assert len(theirs.layers) == len(own)
    for index in own:
        assert torch.allclose(ours[index]._keys, theirs.layers[index].keys, rtol=0, atol=1e-5)
        assert torch.allclose(ours[index]._values, theirs.layers[index].values, rtol=0, atol=1e-5)


@torch.no_grad()
def test_another_source_is_not_equal():
    """What these comparisons are for: a layer that reads another one's keys runs as well."""
    kinds, shared, source = STACKS["each reads the last of its kind"]
    layers = their_layers(kinds, shared)
    logits_of = the_pages_function(with_attention_of(layers))
    tokens = torch.randint(50, (2, 9))
    right, wrong = (
        logits_of(tokens, [KVCache(9) for _ in kinds], whose)
        for whose in (source, (0, 1, 2, 3, 3, 3))
    )
    assert (right - wrong).abs().max() > 0.1 * right.abs().max()
