"""The GPT hides the future, is made of the book's attention and of PyTorch's own block, and learns."""

import math
import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from snippets.generate import choose
from snippets.gpt import GPT
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.multi_head_attention import MultiHeadAttention
from tests.snippets.facts import refuses
from tests.snippets.parts import ROOT, VOCABULARY, Case, alike, close, draw, tokens

VOCAB, CONTEXT = 11, 8
WINDOW = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril().triu(-2)
grouped = partial(GroupedQueryAttention, bias=True)


def gpt(part, **changes):
    """A small GPT in float64, whose weights are large enough to matter."""
    torch.manual_seed(0)
    sizes = {"embed_dim": 12, "num_heads": 3, "num_layers": 2}
    model = part.GPT(VOCAB, CONTEXT, **sizes | changes).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


def some_tokens(*shape):
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(1))


def test_its_attention_is_the_books_in_outputs_and_gradients(part):
    """Causal, or as a mask says; of one text, of several, and of several rows of texts."""
    for shape, mask in (((8, 12), None), ((2, 8, 12), WINDOW), ((2, 3, 4, 12), None)):
        torch.manual_seed(0)
        ours, books = part.CausalMultiHeadAttention(12, 3).double(), MultiHeadAttention(12, 3)
        weights, x = dict(ours.named_parameters()), draw(*shape).requires_grad_()
        options = {"attn_mask": mask, "is_causal": mask is None}
        wanted = torch.func.functional_call(books, weights, x, options)
        assert alike(ours(x, attn_mask=mask), wanted, [x, *weights.values()])


@torch.no_grad()
def test_a_block_is_pytorchs_own_layer_with_the_norm_first(part):
    torch.manual_seed(0)
    block = part.Block(12, part.CausalMultiHeadAttention(12, 3)).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    theirs = nn.TransformerEncoderLayer(
        12, 3, 48, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).double()
    attention, inner = block.attention, theirs.self_attn
    projections = (attention.W_query, attention.W_key, attention.W_value)
    inner.in_proj_weight.copy_(torch.cat([each.weight for each in projections]))
    inner.in_proj_bias.copy_(torch.cat([each.bias for each in projections]))
    for one, other in (
        (inner.out_proj, attention.out_proj),
        (theirs.norm1, block.attention_norm),
        (theirs.norm2, block.mlp_norm),
        (theirs.linear1, block.mlp[0]),
        (theirs.linear2, block.mlp[2]),
    ):
        one.load_state_dict(other.state_dict())
    hide = torch.ones(6, 6, dtype=torch.bool).triu(1)  # there, True hides
    x = draw(2, 6, 12)
    assert close(block(x), theirs(x, src_mask=hide))


@torch.no_grad()
def test_logits_are_written_out_from_embeddings_blocks_and_a_last_norm(part):
    """With the positions of the table's beginning, or others; a text's own where they are told so."""
    model, read = gpt(part), some_tokens(2, 4)
    for positions in (None, torch.arange(4, 8), torch.tensor([[0, 0, 1, 2], [4, 5, 6, 7]])):
        places = torch.arange(4) if positions is None else positions
        x = model.token.weight[read] + model.position.weight[places]
        for block in model.blocks:
            x = block(x)
        x = F.layer_norm(x, (12,), model.norm.weight, model.norm.bias)
        assert close(model(read, positions=positions), x @ model.logits.weight.T)
    assert close(model(read[1].int()), model(read)[1])


@torch.no_grad()
def test_a_mask_is_obeyed_by_its_own_heads_and_by_others(part):
    """And the window that it is hides what is before, and what is to come."""
    read = some_tokens(3, CONTEXT)  # three texts, and three heads
    own, other = gpt(part), gpt(part, attention=grouped)
    other.load_state_dict(own.state_dict())
    assert close(other(read), own(read))
    wanted = own(read, attn_mask=WINDOW)
    assert close(wanted[:, :3], own(read[:, :3]))
    assert not close(wanted[:, 3:], own(read)[:, 3:], 1e-3)
    for leading in ((), (1, 1), (3, 1), (3, 3)):
        assert close(other(read, attn_mask=WINDOW.expand(*leading, -1, -1)), wanted)
        assert close(own(read, attn_mask=WINDOW.expand(*leading, -1, -1)), wanted)


@torch.no_grad()
def test_with_caches_tokens_count_on_from_those_that_were_read(part):
    model, read = gpt(part, attention=partial(grouped, num_kv_heads=1)), some_tokens(2, CONTEXT)
    caches = [KVCache(CONTEXT) for _ in model.blocks]
    parts = [model(piece, caches=caches) for piece in read.split([3, 1, 4], dim=1)]
    assert close(torch.cat(parts, dim=1), model(read))


@torch.no_grad()
def test_the_last_logits_can_be_asked_for_alone(part):
    model, read, made = gpt(part), some_tokens(2, CONTEXT), []
    whole = model(read)
    model.logits.register_forward_hook(lambda _, __, out: made.append(out.shape[-2]))
    for last in (1, 3, CONTEXT):
        assert close(model(read, last=last), whole[:, -last:])
    model.generate(read, 2)
    assert made == [1, 3, CONTEXT, 1, 1]


def test_it_is_drawn_as_gpt_2_is_and_holds_parameters_alone(part):
    for attention in (None, grouped):
        torch.manual_seed(0)
        model = part.GPT(500, 32, 64, 4, 8, attention=attention)
        assert model.state_dict().keys() == dict(model.named_parameters()).keys()
        for name, parameter in model.named_parameters():
            if name.endswith(("out_proj.weight", "mlp.2.weight")):
                assert parameter.std().item() == pytest.approx(0.02 / 16**0.5, rel=0.1)
            elif parameter.dim() == 2:
                assert parameter.std().item() == pytest.approx(0.02, rel=0.1)
            else:
                assert set(parameter.tolist()) == {float("norm.weight" in name)}


def test_dropout_acts_in_training_alone_in_three_places(part):
    model, read, dropped = gpt(part, dropout=0.5), some_tokens(CONTEXT), []
    assert torch.equal(model(read), gpt(part)(read))
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda *_: dropped.append(1))
    model(read)
    assert len(dropped) == 1 + 2 * 2
    attention, x = part.CausalMultiHeadAttention(12, 3, 0.5), torch.randn(4, 12)
    assert not torch.allclose(attention(x), attention(x))
    assert torch.equal(attention.eval()(x), attention(x))


@torch.no_grad()
def test_it_writes_the_likeliest_token_or_draws_as_generate_does(part):
    """In bfloat16, too, and with two dimensions of texts; of equal tokens the first."""
    model = gpt(part)
    for dtype, read in ((torch.float64, some_tokens(2, 3)), (torch.bfloat16, some_tokens(2, 2, 3))):
        model.to(dtype)
        for temperature in (0, 1e-6, 0.9):
            ours, theirs = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
            text = model.generate(read, 2 * CONTEXT, temperature, ours)
            assert torch.equal(text[..., :3], read)
            for t in range(3, 3 + 2 * CONTEXT):
                logits = model(text[..., max(0, t - CONTEXT) : t], last=1).flatten(0, -2)
                wanted = choose(logits, temperature, [theirs] * len(logits))
                assert torch.equal(text[..., t].flatten(), wanted)
    assert torch.equal(model.generate(read, 0), read)
    nn.init.zeros_(model.logits.weight)
    assert not model.generate(read, 1, temperature=0)[..., 3:].any()


def test_what_would_be_misread_is_refused(part):
    """Logits that are no numbers, masks that mean two things, one position for all, caches left apart."""
    refuses("heads that do not divide", part.CausalMultiHeadAttention, 12, 5)
    model, read = gpt(part, attention=grouped), some_tokens(3, CONTEXT)
    refuses("a mask for each text, or each head", model, read, attn_mask=WINDOW.expand(3, -1, -1))
    refuses("a mask of numbers", model, read, attn_mask=WINDOW.double())
    refuses("one position for all", model, read, positions=torch.zeros(3, 1, dtype=torch.int64))
    one, apart = [KVCache(CONTEXT)] * 2, [KVCache(CONTEXT), KVCache(4)]
    refuses("a second cache without room", model, read[:, :5], caches=apart)
    for caches in (one, apart, apart[:1], []):
        refuses("one cache, caches of two lengths, or none", model, read[:, :2], caches=caches)
    refuses("the least likely token", model.generate, read, 1, -0.5)
    for bad in (math.nan, math.inf, -math.inf):
        model = gpt(part)
        nn.init.zeros_(model.logits.weight)
        model.logits.register_forward_hook(lambda *given, bad=bad: given[2] + bad)
        for temperature in (0, 0.8):
            refuses(f"logits of {bad}", model.generate, read[:, :2], 1, temperature)


WRONG = {
    "it sees the future": ("self.dropout * self.training, attn_mask is None", "0.0, False"),
    "dropout after training": ("self.dropout * self.training", "self.dropout"),
    "the norm after attention": (
        "x + self.drop(self.attention(self.attention_norm(x), **how))",
        "self.attention_norm(x + self.drop(self.attention(x, **how)))",
    ),
    "positions that start anew": ("torch.arange(past, past + tokens", "torch.arange(0, tokens"),
    "residual parts drawn like others": ("math.sqrt(2 * num_layers)", "1"),
}

CASES = {"gpt": Case(lambda m, x: m(x), tokens, lambda: GPT(VOCABULARY, 40, 16, 2, 2))}
MODULES = {"GPT": lambda: GPT(VOCAB, 32, 8, 2, 1)}


def test_what_the_chapter_shows_first_is_what_it_writes_later():
    page = (ROOT / "docs/model/gpt.md").read_text(encoding="utf-8")
    shown = re.search(r"^```text\n(.*?)^```", page, re.M | re.S)[1]
    written = re.findall(r"^```output\n(.*?)^```", page, re.M | re.S)
    assert any(shown in text for text in written)
