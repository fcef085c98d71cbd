"""With the same random weights it is the attention of GPT-2, BERT, BART, Llama, Qwen3, gpt-oss, Qwen3-Next and DeepSeek in transformers, and of x-transformers: each part that of those that have it."""

from functools import partial

import pytest
import torch
from torch import nn

from snippets.attention_of import attention_of, layer_of, weights_of
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.latent_attention import LatentAttention
from snippets.multi_head_attention import MultiHeadAttention
from snippets.rope import RotaryPositions

pytest.importorskip("transformers")

from transformers import BartConfig, BertConfig, GPT2Config
from transformers.models.bart.modeling_bart import BartAttention
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

from tests.peers.test_attention_of import CASES, LATENT, small_model

# Theirs, while they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PARTS = {"rotary": RotaryPositions, "grouped": GroupedQueryAttention, "latent": LatentAttention}
T, S, WIDTH = 5, 7, 12
EXACT, IN_FLOAT32 = 1e-10, 2e-5  # theirs turns, norms, or takes its softmax in float32
BART = {"W_query": "q_proj", "W_key": "k_proj", "W_value": "v_proj", "out_proj": "out_proj"}
BERT = {"W_query": "query", "W_key": "key", "W_value": "value"}
X = {"W_query": "to_q", "W_key": "to_k", "W_value": "to_v", "out_proj": "to_out"}


def drawn(module):
    """The module in float64, with all weights drawn anew: biases begin as zeros, which hide mistakes."""
    for parameter in module.double().eval().parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def holding(ours, theirs, names):
    """Our layer, with the weights of those of their modules that the names tell."""
    ours = ours.double()
    for own, other in names.items():
        getattr(ours, own).load_state_dict(getattr(theirs, other).state_dict())
    return ours


def tokens(length=T, width=WIDTH):
    return torch.randn(2, length, width, dtype=torch.float64, requires_grad=True)


def without_the_last():
    """Multi-head attention that ends before its last projection, which a test takes from theirs."""
    attention = MultiHeadAttention(WIDTH, 3)
    attention.out_proj = nn.Identity()
    return attention.double()


# Each makes (ours, theirs, their inputs, how far apart they may be): two functions of the same inputs.


def gpt2():
    config = GPT2Config(n_embd=WIDTH, n_head=3, attn_implementation="sdpa")
    theirs, ours = drawn(GPT2Attention(config, layer_idx=0)), without_the_last()
    rows = zip(theirs.c_attn.weight.T.chunk(3), theirs.c_attn.bias.chunk(3), strict=True)
    for name, (weight, bias) in zip(BERT, rows, strict=True):
        getattr(ours, name).load_state_dict({"weight": weight, "bias": bias})
    future = torch.full((1, 1, T, T), -torch.inf, dtype=torch.float64).triu(1)
    return (
        lambda x: theirs.c_proj(ours(x, is_causal=True)),
        lambda x: theirs(x, attention_mask=future)[0],
        [tokens()],
        EXACT,
    )


def bert():
    config = BertConfig(hidden_size=WIDTH, num_attention_heads=3, attn_implementation="sdpa")
    theirs = drawn(BertSelfAttention(config))
    keep = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()[:, None, None, :]
    ours = holding(without_the_last(), theirs, BERT)
    return (
        lambda x: ours(x, attn_mask=keep),
        lambda x: theirs(x, attention_mask=keep)[0],
        [tokens()],
        EXACT,
    )


def bart(crossed=True):
    config = BartConfig(d_model=WIDTH, attn_implementation="sdpa")
    theirs = drawn(BartAttention(WIDTH, 3, is_decoder=crossed, config=config, layer_idx=0))
    return (
        holding(MultiHeadAttention(WIDTH, 3), theirs, BART),
        lambda x, source=None: theirs(x, key_value_states=source)[0],
        [tokens(), tokens(S)] if crossed else [tokens()],
        EXACT,
    )


def x_transformers(crossed):
    width = 9 if crossed else None
    theirs = pytest.importorskip("x_transformers").Attention(
        WIDTH, heads=3, dim_head=4, dim_context=width, causal=not crossed, flash=True
    )
    ours = MultiHeadAttention(WIDTH, 3, kv_dim=width, bias=False)
    ours = holding(ours, drawn(theirs), X)
    inputs = [tokens(), tokens(S, 9)] if crossed else [tokens()]
    return partial(ours, is_causal=not crossed), theirs, inputs, EXACT


def family(kind, options, read_as=None):
    """The last layer of a small model, made here from its configuration."""
    model, config = small_model(kind, options)
    theirs = model.model.layers[-1].self_attn
    layer = attention_of(config | {"model_type": read_as or kind})[-1]
    ours = layer_of(layer, **PARTS).double().eval()
    ours.load_state_dict(weights_of(layer, model.state_dict()))
    x = tokens(9, config["hidden_size"])
    how = {"position_embeddings": model.model.rotary_emb(x, torch.arange(9)[None])}
    how["attention_mask"] = torch.full((1, 1, 9, 9), -torch.inf, dtype=torch.float64).triu(1)
    return ours, lambda x: theirs(x, **how)[0], [x], IN_FLOAT32


V2 = {key: value for key, value in LATENT.items() if key != "head_dim"}
LAYERS = {
    "GPT-2": gpt2,
    "BERT": bert,
    "BART": lambda: bart(crossed=False),
    "BART, to a source": bart,
    "x-transformers": lambda: x_transformers(crossed=False),
    "x-transformers, to a source": lambda: x_transformers(crossed=True),
    "Llama": lambda: family(*CASES["llama"]),
    "Qwen3": lambda: family(*CASES["qwen3"]),
    "gpt-oss": lambda: family(*CASES["gpt_oss"]),
    "Qwen3-Next": lambda: family(*CASES["qwen3_next"]),
    "DeepSeek-V2": lambda: family("deepseek_v2", V2, "deepseek_v3"),
    "DeepSeek-V2, plain queries": lambda: family(
        "deepseek_v2", V2 | {"q_lora_rank": None, "attention_bias": True}, "deepseek_v3"
    ),
    "DeepSeek-V3": lambda: family(*CASES["deepseek_v3, stretched"]),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_outputs_and_gradients_are_theirs(layer):
    torch.manual_seed(0)
    ours, theirs, inputs, bar = LAYERS[layer]()
    result, expected = ours(*inputs), theirs(*inputs)
    expected = expected[0] if isinstance(expected, tuple) else expected
    direction = torch.randn_like(expected)
    pairs = [(result, expected)]
    pairs += zip(
        torch.autograd.grad(result, inputs, direction),
        torch.autograd.grad(expected, inputs, direction),
        strict=True,
    )
    for one, other in pairs:
        atol = bar * max(1.0, other.abs().max().item())
        torch.testing.assert_close(one, other, rtol=0, atol=atol)
