"""The attention of Parts I and II is that of transformers and of x-transformers, gradients too.

Random weights in float64, given to both; tiny sizes, nothing downloaded. Outputs, and the gradients
of the inputs and of every weight, agree to 1e-10, or to 1e-6 where theirs rounds its softmax to
float32.
"""

import pytest
import torch
from torch import nn

from snippets.causal_self_attention import CausalSelfAttention
from snippets.cross_attention import CrossAttention
from snippets.multi_head_attention import MultiHeadAttention
from snippets.self_attention import SelfAttention

# Theirs, while they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
pytest.importorskip("transformers")

from transformers import BartConfig, BertConfig, GPT2Config  # noqa: E402
from transformers.models.bart.modeling_bart import BartAttention  # noqa: E402
from transformers.models.bert.modeling_bert import BertSelfAttention  # noqa: E402
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention  # noqa: E402

T, S, WIDTH = 5, 7, 12
HEADS = [1, 2, 4]


@pytest.fixture(autouse=True)
def in_float64():
    """Draw all weights and inputs in float64, the same in each run."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def tokens(length=T, width=WIDTH):
    """Return a batch of two sequences that ask for gradients."""
    return torch.randn(2, length, width, requires_grad=True)


def take(ours, **matrices):
    """Let our projections hold theirs: W_query=(weight, bias), each (out, in), as leaves."""
    with torch.no_grad():
        for name, (weight, bias) in matrices.items():
            projection = getattr(ours, name)
            projection.weight.copy_(weight)
            if bias is not None:
                projection.bias.copy_(nn.init.normal_(bias))  # zero at first, which hides mistakes


def assert_alike(result, wanted, inputs, pairs, bar=1e-10):
    """Assert equal outputs, and equal gradients of the inputs and of pairs of weights."""
    assert result.shape == wanted.shape
    assert (result - wanted).abs().max() <= bar
    direction = torch.randn_like(wanted)
    leaves = [*inputs, *(ours for ours, _, _ in pairs)]
    mine = torch.autograd.grad(result, leaves, direction, retain_graph=True)
    leaves = [*inputs, *(theirs for _, theirs, _ in pairs)]
    hers = torch.autograd.grad(wanted, leaves, direction, retain_graph=True)
    readers = [whole] * len(inputs) + [read for _, _, read in pairs]
    for one, other, read in zip(mine, hers, readers, strict=True):
        assert (one - read(other)).abs().max() <= bar


def whole(matrix):
    """The gradient of a matrix, as it is."""
    return matrix


def linear_pairs(ours, theirs):
    """Return (ours, theirs, how to read its gradient) for each weight and bias of name → nn.Linear."""
    pairs = []
    for name, other in theirs.items():
        pairs.append((getattr(ours, name).weight, other.weight, whole))
        if other.bias is not None:
            pairs.append((getattr(ours, name).bias, other.bias, whole))
    return pairs


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("num_heads", HEADS)
def test_causal_attention_is_that_of_gpt2(num_heads, backend):
    config = GPT2Config(n_embd=WIDTH, n_head=num_heads, n_positions=16, resid_pdrop=0, attn_pdrop=0)
    config._attn_implementation = backend
    theirs = GPT2Attention(config, layer_idx=0).eval()
    x, future = tokens(), torch.full((T, T), -torch.inf).triu(1)
    nn.init.normal_(theirs.c_attn.bias)
    wanted = theirs(x, attention_mask=future[None, None])[0]
    ours = MultiHeadAttention(WIDTH, num_heads)
    with torch.no_grad():
        parts = zip(theirs.c_attn.weight.chunk(3, dim=1), theirs.c_attn.bias.chunk(3), strict=True)
        names = ("W_query", "W_key", "W_value")
        for name, (weight, bias) in zip(names, parts, strict=True):
            getattr(ours, name).weight.copy_(weight.T)
            getattr(ours, name).bias.copy_(bias)
        ours.out_proj.weight.copy_(theirs.c_proj.weight.T)
        ours.out_proj.bias.copy_(theirs.c_proj.bias)
    pairs = [(ours.out_proj.weight, theirs.c_proj.weight, lambda it: it.T)]
    for i, name in enumerate(names):

        def rows(it, i=i):
            return it.chunk(3, dim=1)[i].T

        pairs.append((getattr(ours, name).weight, theirs.c_attn.weight, rows))
    assert_alike(ours(x, is_causal=True), wanted, [x], pairs)
    weights = ours(x, is_causal=True, need_weights=True)[1]
    assert not weights.triu(1).any()
    if num_heads == 1:  # one head without an output projection
        one = CausalSelfAttention(WIDTH, WIDTH, bias=True)
        one.load_state_dict({k: v for k, v in ours.state_dict().items() if "out" not in k})
        assert_alike(ours.out_proj(one(x)), wanted, [x], [])


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("num_heads", HEADS)
def test_attention_to_both_sides_is_that_of_bert(num_heads, backend):
    config = BertConfig(
        hidden_size=WIDTH, num_attention_heads=num_heads, attention_probs_dropout_prob=0
    )
    config._attn_implementation = backend
    theirs, x = BertSelfAttention(config).eval(), tokens()
    keep = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()[:, None, None, :]
    added = torch.zeros(keep.shape).masked_fill(~keep, -torch.inf)
    ours = MultiHeadAttention(WIDTH, num_heads)
    named = {"W_query": theirs.query, "W_key": theirs.key, "W_value": theirs.value}
    take(ours, **{name: (it.weight, it.bias) for name, it in named.items()})
    nn.init.eye_(ours.out_proj.weight)  # theirs ends before the projection
    nn.init.zeros_(ours.out_proj.bias)
    wanted = theirs(x, attention_mask=added)[0]
    for mask in (keep, added):
        assert_alike(ours(x, attn_mask=mask), wanted, [x], linear_pairs(ours, named))
    if num_heads == 1:
        one = SelfAttention(WIDTH, WIDTH, bias=True)
        one.load_state_dict({k: v for k, v in ours.state_dict().items() if "out" not in k})
        assert_alike(one(x, attn_mask=keep[:, 0]), wanted, [x], linear_pairs(one, named))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("crossed", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("num_heads", HEADS)
def test_attention_to_a_source_is_that_of_bart(num_heads, crossed, backend):
    config = BartConfig(d_model=WIDTH)
    config._attn_implementation = backend
    theirs = BartAttention(WIDTH, num_heads, is_decoder=crossed, config=config, layer_idx=0).eval()
    x, source = tokens(), tokens(S)
    inputs = [x, source] if crossed else [x]
    ours = MultiHeadAttention(WIDTH, num_heads)
    named = {"W_query": theirs.q_proj, "W_key": theirs.k_proj, "W_value": theirs.v_proj}
    named["out_proj"] = theirs.out_proj
    take(ours, **{name: (it.weight, it.bias) for name, it in named.items()})
    wanted = theirs(x, key_value_states=source if crossed else None)[0]
    assert_alike(ours(*inputs), wanted, inputs, linear_pairs(ours, named))
    if num_heads == 1 and crossed:
        one = CrossAttention(WIDTH, WIDTH, WIDTH, bias=True)
        one.load_state_dict({k: v for k, v in ours.state_dict().items() if "out" not in k})
        assert_alike(ours.out_proj(one(x, source)), wanted, inputs, [])


@pytest.mark.parametrize("flash", [False, True])
@pytest.mark.parametrize("crossed", [False, True], ids=["causal", "cross"])
def test_attention_is_that_of_x_transformers(crossed, flash):
    x_transformers = pytest.importorskip("x_transformers")
    theirs = x_transformers.Attention(
        WIDTH,
        heads=3,
        dim_head=4,
        dim_context=9 if crossed else None,
        causal=not crossed,
        flash=flash,
    ).eval()
    x, source = tokens(), tokens(S, 9)
    inputs = [x, source] if crossed else [x]
    ours = MultiHeadAttention(WIDTH, 3, kv_dim=9 if crossed else None, bias=False)
    named = {"W_query": theirs.to_q, "W_key": theirs.to_k, "W_value": theirs.to_v}
    named["out_proj"] = theirs.to_out
    take(ours, **{name: (it.weight, it.bias) for name, it in named.items()})
    wanted = theirs(*inputs)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    pairs, bar = linear_pairs(ours, named), 1e-10 if flash else 1e-6  # written out, in float32
    assert_alike(ours(*inputs, is_causal=not crossed), wanted, inputs, pairs, bar)
