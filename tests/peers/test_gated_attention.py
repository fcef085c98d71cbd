"""GatedAttention is the attention of gpt-oss, with sinks, and of Qwen3-Next, with gate and qk_norm: random weights."""

import pytest
import torch
from torch import nn

from snippets.gated_attention import GatedAttention
from snippets.rope import RotaryPositions

pytest.importorskip("transformers")

from transformers import GptOssConfig, Qwen3NextConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

SIZES = {
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "num_hidden_layers": 1,
    "vocab_size": 5,
}


def some(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def drawn(module):
    """The module in float64, with weights drawn anew."""
    torch.manual_seed(0)
    for parameter in module.double().eval().parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def hidden(T):
    """What transformers adds to the scores."""
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    return torch.zeros(1, 1, T, T, dtype=torch.float64).masked_fill(future, -torch.inf)


def angles(T, width, halves):
    """Cosines and sines as transformers wants them, (1, T, width / halves)."""
    speed = 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64) * 2 / width)
    angle = torch.arange(T)[:, None] * speed
    angle = torch.cat([angle] * (2 // halves), dim=-1)[None]
    return angle.cos(), angle.sin()


def assert_the_same(ours, theirs, T, turning, bar):
    """Assert equal outputs, and equal gradients of the input and of the parameters that both have."""
    x = some(2, T, 48).requires_grad_()
    result = ours(x)
    wanted, _ = theirs(x, position_embeddings=turning, attention_mask=hidden(T))
    assert torch.allclose(result, wanted, rtol=0, atol=bar)
    direction = torch.randn_like(result)
    one, other = (torch.autograd.grad(it, x, direction)[0] for it in (result, wanted))
    assert torch.allclose(one, other, rtol=0, atol=10 * bar)


def test_gpt_oss():
    config = GptOssConfig(**SIZES, attn_implementation="eager")
    theirs = drawn(GptOssAttention(config, layer_idx=0))
    rotate = RotaryPositions(10).double()
    ours = GatedAttention(
        48, 6, num_kv_heads=2, head_dim=10, bias=True, rotate=rotate, gate=False
    ).double()
    names = {"W_query": "q_proj", "W_key": "k_proj", "W_value": "v_proj", "out_proj": "o_proj"}
    for own, other in names.items():
        getattr(ours, own).load_state_dict(getattr(theirs, other).state_dict())
    ours.sinks.data = theirs.sinks.data
    assert_the_same(ours, theirs, 9, angles(9, 10, 2), 1e-6)


def test_qwen3_next():
    config = Qwen3NextConfig(**SIZES, attn_implementation="eager", rms_norm_eps=1e-6)
    theirs = drawn(Qwen3NextAttention(config, layer_idx=0))
    rotate = RotaryPositions(10).double()
    ours = GatedAttention(
        48, 6, num_kv_heads=2, head_dim=10, rotate=rotate, qk_norm=True, sinks=False
    ).double()
    # For each head their first matrix has the rows of its queries, and then those of its gate.
    both = theirs.q_proj.weight.data.unflatten(0, (6, 2, 10))
    ours.W_query.weight.data, ours.W_gate.weight.data = (
        both[:, part].flatten(0, 1) for part in (0, 1)
    )
    for own, other in {"W_key": "k_proj", "W_value": "v_proj", "out_proj": "o_proj"}.items():
        getattr(ours, own).load_state_dict(getattr(theirs, other).state_dict())
    for own, other in ((ours.query_norm, theirs.q_norm), (ours.key_norm, theirs.k_norm)):
        own.weight.data = 1 + other.weight.data  # theirs holds what is added to 1
    assert_the_same(ours, theirs, 9, angles(9, 10, 1), 1e-5)
