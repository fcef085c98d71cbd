"""gated_memory is the recurrence of Qwen3-Next, and with a decay for each channel that of Kimi Linear; GatedDeltaNet is Qwen3-Next's layer: random weights."""

import pytest
import torch
from torch import nn

from snippets.gated_delta_net import GatedDeltaNet, MemoryCache
from snippets.gated_memory import gated_memory

pytest.importorskip("transformers")

from transformers import Qwen3NextConfig
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

HEADS, KEY_HEADS, HEAD_DIM, VALUE_DIM, EMBED = 6, 2, 8, 10, 48


def drawn(module):
    """The module with weights drawn anew."""
    torch.manual_seed(0)
    for parameter in module.eval().parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def problem(channels, T=70):
    """Queries, keys of length 1, values, logarithms of decays and betas, (batch, heads, T, …)."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 2, HEADS, T, HEAD_DIM)
    value, beta = torch.randn(2, HEADS, T, VALUE_DIM), torch.rand(2, HEADS, T, 1)
    log_decay = -torch.rand(2, HEADS, T, channels)
    return query, nn.functional.normalize(key, dim=-1), value, log_decay, beta


def assert_near(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)  # theirs compute in float32


@pytest.mark.parametrize(
    "rule", [qwen.torch_recurrent_gated_delta_rule, qwen.torch_chunk_gated_delta_rule]
)
def test_the_gated_delta_rule(rule):
    query, key, value, log_decay, beta = problem(1)
    ours, state = gated_memory(
        query * HEAD_DIM**-0.5, key, value, log_decay=log_decay, beta=beta, chunk_size=16
    )
    turned = (part.transpose(1, 2) for part in (query, key, value))
    gates = (part.squeeze(-1).transpose(1, 2) for part in (log_decay, beta))
    theirs, last = rule(*turned, *gates, output_final_state=True)
    assert_near(ours, theirs.transpose(1, 2))
    assert_near(state, last)


@pytest.mark.parametrize(
    "rule", [kimi.recurrent_kimi_delta_attention, kimi.chunk_kimi_delta_attention]
)
def test_kimi_delta_attention(rule):
    query, key, value, log_decay, beta = problem(HEAD_DIM)
    value = value[..., :HEAD_DIM]  # theirs in chunks has keys and values of one width
    ours, state = gated_memory(
        query * HEAD_DIM**-0.5, key, value, log_decay=log_decay, beta=beta, chunk_size=16
    )
    turned = (part.transpose(1, 2) for part in (query, key, value, log_decay))
    theirs, last = rule(
        *turned, beta.squeeze(-1).transpose(1, 2), initial_state=None, output_final_state=True
    )
    assert_near(ours, theirs.transpose(1, 2))
    assert_near(state, last)


def both():
    """Their layer and ours with its weights."""
    config = Qwen3NextConfig(
        hidden_size=EMBED,
        linear_num_value_heads=HEADS,
        linear_num_key_heads=KEY_HEADS,
        linear_key_head_dim=HEAD_DIM,
        linear_value_head_dim=VALUE_DIM,
        num_hidden_layers=1,
        vocab_size=5,
    )
    theirs = drawn(qwen.Qwen3NextGatedDeltaNet(config, layer_idx=0))
    sizes = {"num_key_heads": KEY_HEADS, "head_dim": HEAD_DIM, "value_dim": VALUE_DIM}
    ours = GatedDeltaNet(EMBED, HEADS, memory=gated_memory, **sizes)
    # For each head of keys theirs has rows for its query, its key, its values and their gates.
    group = HEADS // KEY_HEADS * VALUE_DIM
    rows = theirs.in_proj_qkvz.weight.data.unflatten(0, (KEY_HEADS, -1))
    parts = rows.split([HEAD_DIM, HEAD_DIM, group, group], dim=1)
    for own, part in zip((ours.W_query, ours.W_key, ours.W_value, ours.W_gate), parts, strict=True):
        own.weight.data = part.flatten(0, 1)
    rows = theirs.in_proj_ba.weight.data.unflatten(0, (KEY_HEADS, 2, -1))
    ours.W_beta.weight.data, ours.W_decay.weight.data = (rows[:, at].flatten(0, 1) for at in (0, 1))
    ours.convolution.weight.data = theirs.conv1d.weight.data
    ours.log_rate.data, ours.decay_bias.data = theirs.A_log.data, theirs.dt_bias.data
    ours.norm.weight.data = theirs.norm.weight.data
    ours.out_proj.weight.data = theirs.out_proj.weight.data
    return ours, theirs


def test_qwen3_next():
    ours, theirs = both()
    x = torch.randn(2, 70, EMBED).requires_grad_()
    came, wanted = ours(x), theirs(x)
    assert_near(came, wanted)
    direction = torch.randn_like(came)
    one, other = (torch.autograd.grad(it, x, direction)[0] for it in (came, wanted))
    torch.testing.assert_close(one, other, rtol=0, atol=2e-4)


def test_qwen3_next_token_by_token():
    ours, theirs = both()
    x, cache = torch.randn(2, 9, EMBED), MemoryCache()
    with torch.no_grad():
        pieces = [ours(piece, cache=cache) for piece in x.split([4, 1, 1, 3], dim=1)]
        assert_near(torch.cat(pieces, dim=1), theirs(x))
