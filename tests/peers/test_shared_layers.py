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
HEAD_DIM, WIDTH = 10, 60
FULL, WINDOW = "full_attention", "sliding_attention"
# The kinds of their layers, how many at the end share, and whose keys and values each layer reads.
STACKS = {
    "each its own": ([FULL] * 3, 0, (0, 1, 2)),
    "three read the first": ([FULL] * 4, 3, (0, 0, 0, 0)),
    "each reads the last of its kind": ([WINDOW, FULL] * 3, 2, (0, 1, 2, 3, 2, 3)),
}


def their_layers(kinds, shared):
    """Their attention layers in float64, with random weights."""
    sizes = {"hidden_size": WIDTH, "num_attention_heads": 6, "num_key_value_heads": 2}
    sizes |= {"head_dim": HEAD_DIM, "num_hidden_layers": len(kinds), "layer_types": kinds}
    sizes |= {"num_kv_shared_layers": shared, "sliding_window": 64}  # longer than the text
    config = Gemma3nTextConfig(**sizes, attn_implementation="sdpa")
    layers = [Gemma3nTextAttention(config, index).double().eval() for index in range(len(kinds))]
    for layer in layers:
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.3)
    return layers


def normed(project, norm, scale=1.0):
    """Their projection, and the norm of each head after it."""
    return lambda x: scale * norm(project(x).unflatten(-1, (-1, HEAD_DIM))).flatten(-2)


def angles(positions):
    """The angle of each pair of channels, (1, T, HEAD_DIM / 2)."""
    pair = torch.arange(HEAD_DIM // 2, dtype=torch.float64)
    return positions.double()[None, :, None] * 10000.0 ** (-2 * pair / HEAD_DIM)


def with_attention_of(layers):
    """What the page's function takes from a Llama, with these layers as its attention and nothing else."""
    blocks = []
    for layer in layers:
        # The page divides by the root of the head dimension, and Gemma 3n does not.
        parts = {"W_query": normed(layer.q_proj, layer.q_norm, HEAD_DIM**0.5)}
        if not layer.is_kv_shared_layer:
            parts["W_key"] = normed(layer.k_proj, layer.k_norm)
            parts["W_value"] = normed(layer.v_proj, layer.v_norm)
        attention = SimpleNamespace(out_proj=layer.o_proj, **parts)
        blocks.append(SimpleNamespace(attention=attention, mlp=torch.zeros_like))
        blocks[-1].attention_norm = blocks[-1].mlp_norm = nn.Identity()
    return SimpleNamespace(
        config={"head_dim": HEAD_DIM},
        token=nn.Embedding.from_pretrained(torch.randn(50, WIDTH, dtype=torch.float64)),
        rotation=lambda positions: (angles(positions).cos()[None], angles(positions).sin()[None]),
        blocks=blocks,
        norm=nn.Identity(),
        logits=nn.Identity(),
    )


@pytest.mark.parametrize("name", STACKS)
@torch.no_grad()
def test_step_by_step_with_a_cache_of_each(name):
    torch.manual_seed(0)
    kinds, shared, source = STACKS[name]
    layers = their_layers(kinds, shared)
    names = {"torch": torch, "F": F, "rotate": rotate, "llama": with_attention_of(layers)}
    (code,) = (block.code for block in read(PAGE).blocks if "def logits_of(" in block.code)
    exec(code, names)
    tokens = torch.randint(50, (2, 9))
    theirs, ours, end = DynamicCache(), [KVCache(9) for _ in kinds], 0
    for size in (4, 1, 1, 3):
        start, end = end, end + size
        angle = angles(torch.arange(start, end)).repeat(1, 1, 2)
        hidden = ~torch.ones(size, end, dtype=torch.bool).tril(start)
        mask = torch.zeros(1, 1, size, end).double().masked_fill(hidden, -torch.inf)
        x, made = names["llama"].token(tokens[:, start:end]), KVSharingDict()
        for layer in layers:
            how = {"past_key_values": theirs, "shared_kv_states": made}
            x = x + layer(x, (angle.cos(), angle.sin()), mask, **how)[0]
        result = names["logits_of"](tokens[:, start:end], ours, source)
        assert (result - x).abs().max() < 1e-5 * x.abs().max()  # their norms compute in float32
    own = [index for index in range(len(kinds)) if source[index] == index]
    assert [cache.length for cache in ours] == [9 * (index in own) for index in range(len(kinds))]
    assert len(theirs.layers) == len(own)
