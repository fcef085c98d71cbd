"""GroupedQueryAttention is the attention of Llama, Qwen3, gpt-oss and Qwen3-Next: random weights, tiny sizes."""

import pytest
import torch
from torch import nn

from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.rope import RotaryPositions

pytest.importorskip("transformers")

from transformers import GptOssConfig, LlamaConfig, Qwen3Config, Qwen3NextConfig
from transformers.cache_utils import DynamicCache
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

SIZES = {
    "hidden_size": 48,
    "num_attention_heads": 6,
    "head_dim": 10,  # not 48 / 6, as in Qwen3
    "num_hidden_layers": 1,
    "intermediate_size": 8,
    "vocab_size": 5,
    "max_position_embeddings": 64,
}


def bar(family, backend):
    """Return the largest error: theirs reckons the eager softmax, and Qwen3's norms, in float32."""
    return 1e-5 if backend == "eager" or family[2] else 1e-10


def assert_equal(result, wanted, bar):
    """Assert that no number is further off than bar times the largest."""
    assert result.shape == wanted.shape
    assert (result - wanted).abs().max() <= bar * max(1.0, wanted.abs().max())


def rotate_half(x, positions):
    """Llama's rotation, channel i with channel i + head_dim / 2, written anew from the paper."""
    half = x.size(-1) // 2
    speed = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = positions.to(x.dtype)[..., None] * speed  # (T, half), or (batch, T, half)
    angle = angle[:, None] if positions.dim() == 2 else angle
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1
    )


@pytest.fixture(params=["Llama", "Qwen3"])
def family(request):
    """Return (the module of transformers, its configuration class, whether queries are normed)."""
    if request.param == "Llama":
        return modeling_llama, LlamaConfig, False
    return modeling_qwen3, Qwen3Config, True


def pair(family, g, backend):
    """Return their attention, their table of angles as a function, and ours with their weights."""
    module, config_class, qk_norm = family
    torch.manual_seed(0)
    config = config_class(**SIZES, num_key_value_heads=g, attn_implementation=backend)
    name = config_class.__name__.removesuffix("Config")
    theirs = getattr(module, f"{name}Attention")(config, layer_idx=0).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    turning = getattr(module, f"{name}RotaryEmbedding")(config)
    # In float32 the angles of both would differ by 1e-7; take the speeds in float64.
    turning.inv_freq = 10000.0 ** (-torch.arange(5, dtype=torch.float64) / 5)
    ours = GroupedQueryAttention(
        48, 6, num_kv_heads=g, head_dim=10, rotate=rotate_half, qk_norm=qk_norm
    ).double()
    names = {"W_query": "q_proj", "W_key": "k_proj", "W_value": "v_proj", "out_proj": "o_proj"}
    names |= {"query_norm": "q_norm", "key_norm": "k_norm"} if qk_norm else {}
    for own, other in names.items():
        getattr(ours, own).load_state_dict(getattr(theirs, other).state_dict())
    return theirs, turning, ours


def angles(x, positions):
    """Cosines and sines as transformers wants them, (batch, T, head_dim), in float64."""
    speed = 10000.0 ** (-torch.arange(5, dtype=torch.float64) / 5)
    angle = positions.double()[..., None] * speed
    both = torch.cat([angle, angle], -1)
    return both.cos(), both.sin()


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("g", [6, 3, 2, 1])
def test_outputs_and_gradients_are_theirs(family, g, backend):
    theirs, _, ours = pair(family, g, backend)
    x = torch.randn(2, 9, 48, dtype=torch.float64, requires_grad=True)
    positions = torch.arange(9)[None].expand(2, -1)
    added = torch.zeros(1, 1, 9, 9, dtype=torch.float64).masked_fill(
        torch.ones(9, 9, dtype=torch.bool).triu(1), -torch.inf
    )
    wanted, _ = theirs(x, position_embeddings=angles(x, positions), attention_mask=added)
    result = ours(x)
    assert_equal(result, wanted, bar(family, backend))
    direction = torch.randn_like(result)
    one = torch.autograd.grad(result, [x, *ours.parameters()], direction)
    other = torch.autograd.grad(wanted, [x, *theirs.parameters()], direction)
    for own, parameter in zip(one, other, strict=True):
        assert_equal(own, parameter, bar(family, backend))


@torch.no_grad()
def test_their_rotation_table_is_ours(family):
    _, turning, ours = pair(family, 2, "eager")
    x, positions = torch.randn(2, 6, 9, 10), torch.arange(9)
    cos, sin = turning(x, positions[None])
    half = torch.cat([-x[..., 5:], x[..., :5]], -1)
    assert torch.allclose(
        x * cos[:, None] + half * sin[:, None], ours.rotate(x, positions), atol=1e-5
    )


@torch.no_grad()
def test_step_by_step_with_a_cache_of_each(family):
    theirs, _, ours = pair(family, 2, "sdpa")
    x = torch.randn(2, 9, 48, dtype=torch.float64)
    held, cache, end = DynamicCache(), KVCache(9), 0
    for size in (4, 1, 1, 3):
        start, end = end, end + size
        positions = torch.arange(start, end)[None].expand(2, -1)
        added = torch.zeros(1, 1, size, end, dtype=torch.float64).masked_fill(
            ~torch.ones(size, end, dtype=torch.bool).tril(start), -torch.inf
        )
        wanted, _ = theirs(
            x[:, start:end],
            position_embeddings=angles(x, positions),
            attention_mask=added,
            past_key_values=held,
        )
        result = ours(x[:, start:end], cache=cache)
        assert_equal(result, wanted, bar(family, "sdpa"))
    none = torch.empty(2, 2, 0, 10, dtype=torch.float64)
    for part, other in zip(cache.update(none, none), ("keys", "values"), strict=True):
        assert_equal(part, getattr(held.layers[0], other), bar(family, "sdpa"))


# Sinks and a gate


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


def angles_of(T, width, halves):
    """Cosines and sines as transformers wants them, (1, T, width / halves)."""
    speed = 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64) * 2 / width)
    angle = torch.arange(T)[:, None] * speed
    angle = torch.cat([angle] * (2 // halves), dim=-1)[None]
    return angle.cos(), angle.sin()


def assert_the_same(ours, theirs, T, turning, bar):
    """Assert equal outputs, and equal gradients of the input and of the parameters that both have."""
    x = torch.randn(2, T, 48, dtype=torch.float64).requires_grad_()
    result = ours(x)
    wanted, _ = theirs(x, position_embeddings=turning, attention_mask=hidden(T))
    assert torch.allclose(result, wanted, rtol=0, atol=bar)
    direction = torch.randn_like(result)
    one, other = (torch.autograd.grad(it, x, direction)[0] for it in (result, wanted))
    assert torch.allclose(one, other, rtol=0, atol=10 * bar)


def test_gpt_oss():
    config = GptOssConfig(**SIZES, num_key_value_heads=2, attn_implementation="eager")
    theirs = drawn(GptOssAttention(config, layer_idx=0))
    rotate = RotaryPositions(10).double()
    ours = GroupedQueryAttention(
        48, 6, num_kv_heads=2, head_dim=10, bias=True, rotate=rotate, sinks=True
    ).double()
    names = {"W_query": "q_proj", "W_key": "k_proj", "W_value": "v_proj", "out_proj": "o_proj"}
    for own, other in names.items():
        getattr(ours, own).load_state_dict(getattr(theirs, other).state_dict())
    ours.sinks.data = theirs.sinks.data
    assert_the_same(ours, theirs, 9, angles_of(9, 10, 2), 1e-6)


def test_qwen3_next():
    config = Qwen3NextConfig(
        **SIZES, num_key_value_heads=2, attn_implementation="eager", rms_norm_eps=1e-6
    )
    theirs = drawn(Qwen3NextAttention(config, layer_idx=0))
    rotate = RotaryPositions(10).double()
    ours = GroupedQueryAttention(
        48, 6, num_kv_heads=2, head_dim=10, rotate=rotate, qk_norm=True, gate=True
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
    assert_the_same(ours, theirs, 9, angles_of(9, 10, 1), 1e-5)
