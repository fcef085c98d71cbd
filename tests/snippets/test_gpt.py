"""The GPT hides the future, is made of the book's attention and of PyTorch's own block, and learns."""

import math
import re
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from snippets.generate import generate
from snippets.gpt import GPT, Block, CausalMultiHeadAttention
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.multi_head_attention import MultiHeadAttention

VOCAB, CONTEXT = 11, 8


def gpt(seed=0, **changes):
    """Return a small GPT in float64, drawn from the seed, whose weights are large enough to matter."""
    torch.manual_seed(seed)
    sizes = {"embed_dim": 12, "num_heads": 3, "num_layers": 2}
    model = GPT(VOCAB, CONTEXT, **sizes | changes).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


def some_tokens(*shape):
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("place", range(CONTEXT))
@torch.no_grad()
def test_a_token_moves_its_own_logits_and_the_later_ones_and_no_earlier(place):
    model, tokens = gpt(), some_tokens(2, CONTEXT)
    changed = tokens.clone()
    changed[:, place] = (tokens[:, place] + 1) % VOCAB
    moved = (model(changed) - model(tokens)).abs().amax(dim=-1) > 1e-9  # (batch, tokens)
    assert moved.all(dim=0).tolist() == [t >= place for t in range(CONTEXT)]
    assert moved.any(dim=0).tolist() == [t >= place for t in range(CONTEXT)]


@pytest.mark.parametrize("shape", [(CONTEXT, 12), (2, 5, 12), (2, 3, 4, 12)])
def test_its_attention_is_the_books(shape):
    torch.manual_seed(0)
    ours = CausalMultiHeadAttention(12, 3, 0.0).double()
    books = MultiHeadAttention(12, 3).double()
    books.load_state_dict(ours.state_dict())
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(shape, dtype=torch.float64)
    result, wanted = ours(x), books(x, is_causal=True)
    assert torch.allclose(result, wanted, rtol=0, atol=1e-12)
    for by, to in (([x, *ours.parameters()], [x, *books.parameters()]),):
        ours_gradients = torch.autograd.grad(result, by, direction)
        books_gradients = torch.autograd.grad(wanted, to, direction)
        for ours_gradient, books_gradient in zip(ours_gradients, books_gradients, strict=True):
            assert torch.allclose(ours_gradient, books_gradient, rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_block_is_pytorchs_own_layer_with_the_norm_first():
    torch.manual_seed(0)
    block = Block(12, 3, 0.0).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    theirs = nn.TransformerEncoderLayer(
        12, 3, 48, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).double()
    attention = block.attention
    projections = (attention.W_query, attention.W_key, attention.W_value)
    theirs.self_attn.in_proj_weight.copy_(torch.cat([each.weight for each in projections]))
    theirs.self_attn.in_proj_bias.copy_(torch.cat([each.bias for each in projections]))
    theirs.self_attn.out_proj.load_state_dict(attention.out_proj.state_dict())
    theirs.norm1.load_state_dict(block.attention_norm.state_dict())
    theirs.norm2.load_state_dict(block.mlp_norm.state_dict())
    theirs.linear1.load_state_dict(block.mlp[0].state_dict())
    theirs.linear2.load_state_dict(block.mlp[2].state_dict())
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    hide = torch.ones(6, 6, dtype=torch.bool).triu(1)  # there, True hides
    assert torch.allclose(block(x), theirs(x, src_mask=hide), rtol=0, atol=1e-10)


@pytest.mark.parametrize("vocab_size", [2, 65, 1000])
@pytest.mark.parametrize("num_layers", [1, 4])
@torch.no_grad()
def test_untrained_it_holds_every_token_for_about_equally_likely(vocab_size, num_layers):
    torch.manual_seed(0)
    model = GPT(vocab_size, 32, 64, 4, num_layers)
    tokens = torch.randint(vocab_size, (8, 33))
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(vocab_size), abs=0.05)


def test_it_learns_a_line_by_heart_and_writes_it():
    line = "to be or not to be, that is the question"
    characters = sorted(set(line))
    tokens = torch.tensor([characters.index(character) for character in line])
    torch.manual_seed(0)
    model = GPT(len(characters), len(line), 32, 2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(120):
        loss = F.cross_entropy(model(tokens[:-1]), tokens[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    written = model.eval().generate(tokens[:3], len(line) - 3, temperature=0)
    assert "".join(characters[token] for token in written) == line


@torch.no_grad()
def test_what_is_saved_is_what_is_loaded(tmp_path):
    model, tokens = gpt(seed=0), some_tokens(2, CONTEXT)
    torch.save(model.state_dict(), tmp_path / "gpt.pt")
    other = gpt(seed=1)
    assert not torch.allclose(other(tokens), model(tokens))
    other.load_state_dict(torch.load(tmp_path / "gpt.pt", weights_only=True))
    assert torch.equal(other(tokens), model(tokens))
    assert not [name for name in model.state_dict() if "mask" in name]


def test_tied_weights_are_one_parameter():
    apart, tied = gpt(), gpt(tie_weights=True)
    assert tied.logits.weight is tied.token.weight
    count = [sum(p.numel() for p in model.parameters()) for model in (apart, tied)]
    assert count[0] - count[1] == VOCAB * 12


@torch.no_grad()
def test_tokens_need_no_batch_and_may_have_two():
    model, tokens = gpt(), some_tokens(2, 3, CONTEXT)
    assert model(tokens).shape == (2, 3, CONTEXT, VOCAB)
    assert torch.allclose(model(tokens[1, 2]), model(tokens)[1, 2], rtol=0, atol=1e-12)
    assert torch.allclose(model(tokens.int()), model(tokens), rtol=0, atol=1e-12)


def test_dropout_acts_in_training_alone():
    model, tokens = gpt(dropout=0.5), some_tokens(CONTEXT)
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    assert not torch.allclose(model(tokens), model(tokens))


def test_no_mask_is_stored():
    model = gpt()
    assert not list(model.buffers())
    parameters = sum(tensor.numel() for tensor in model.parameters())
    assert sum(tensor.numel() for tensor in model.state_dict().values()) == parameters


def test_the_causal_path_is_the_one_that_is_fused(monkeypatch):
    told = []

    def note(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False):
        told.append((attn_mask, is_causal))
        return query

    monkeypatch.setattr(F, "scaled_dot_product_attention", note)
    gpt()(some_tokens(2, CONTEXT))
    assert told == [(None, True)] * 2


@torch.no_grad()
def test_a_mask_that_is_set_is_obeyed_and_moves_and_is_not_saved():
    model, tokens, causal = gpt(), some_tokens(2, CONTEXT), gpt()
    window = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril().triu(-2)
    for block in model.blocks:
        block.attention.mask = window
    for T in (CONTEXT, 5):
        wanted = causal(tokens[:, :T], attn_mask=window[:T, :T])
        assert torch.allclose(model(tokens[:, :T]), wanted, rtol=0, atol=1e-12)
    assert model.state_dict().keys() == causal.state_dict().keys()
    model.to("meta")
    assert {block.attention.mask.device.type for block in model.blocks} == {"meta"}


@torch.no_grad()
def test_a_mask_of_two_or_as_many_dimensions_as_heads_have_is_obeyed():
    model, tokens = gpt(), some_tokens(3, CONTEXT)  # three texts, and three heads
    window = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril().triu(-2)
    wanted = model(tokens, attn_mask=window)
    for leading in ((1, 1), (3, 1), (1, 3), (3, 3)):
        found = model(tokens, attn_mask=window.expand(*leading, -1, -1))
        assert torch.allclose(found, wanted, rtol=0, atol=1e-12)
    found = model(tokens[0], attn_mask=window.expand(3, -1, -1))  # no batch: a mask for each head
    assert torch.allclose(found, wanted[0], rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_last_logits_can_be_asked_for_alone():
    model, tokens, made = gpt(), some_tokens(2, CONTEXT), []
    whole = model(tokens)
    model.logits.register_forward_hook(lambda _, __, out: made.append(out.shape[-2]))
    for last in (1, 3, CONTEXT):
        found = model(tokens, last=last)
        assert torch.allclose(found, whole[:, -last:], rtol=0, atol=1e-12)
    assert made == [1, 3, CONTEXT]
    made.clear()
    model.generate(tokens, 2)
    assert made == [1, 1]


@pytest.mark.lab
@torch.no_grad()
def test_exported_once_it_serves_every_length():
    model = gpt()
    T, batch = torch.export.Dim("T", min=2, max=CONTEXT), torch.export.Dim("batch", min=2)
    shapes = {"tokens": {0: batch, 1: T}}
    exported = torch.export.export(model, (some_tokens(2, 5),), dynamic_shapes=shapes).module()
    for shape in ((2, 5), (3, CONTEXT)):
        tokens = some_tokens(*shape)
        assert torch.allclose(exported(tokens), model(tokens), rtol=0, atol=1e-12)


def test_weights_that_are_tied_stay_so_when_a_model_gets_memory():
    with torch.device("meta"):
        empty = gpt(tie_weights=True)
    model = empty.to_empty(device="cpu")
    assert model.logits.weight is model.token.weight


# Another attention in place of its own


def grouped(**changes):
    return partial(GroupedQueryAttention, bias=True, **changes)


@torch.no_grad()
def test_the_weights_of_its_own_heads_fit_others_and_give_the_same():
    own, other, tokens = gpt(), gpt(seed=1, attention=grouped()), some_tokens(2, CONTEXT)
    other.load_state_dict(own.state_dict())
    assert torch.allclose(other(tokens), own(tokens), rtol=0, atol=1e-12)
    mask = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril().triu(-2)
    moved = other(tokens, attn_mask=mask)
    assert torch.allclose(moved, own(tokens, attn_mask=mask), rtol=0, atol=1e-12)
    assert not torch.allclose(moved, own(tokens), rtol=0, atol=1e-3)


@torch.no_grad()
def test_with_caches_tokens_count_on_from_those_that_were_read():
    model, tokens = gpt(attention=grouped(num_kv_heads=1)), some_tokens(2, CONTEXT)
    caches = [KVCache(CONTEXT) for _ in model.blocks]
    parts = [model(part, caches=caches) for part in tokens.split([3, 1, 4], dim=1)]
    assert torch.allclose(torch.cat(parts, dim=1), model(tokens), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"^tokens must hold at most context_length=8 .*got 9"):
        model(tokens[:, :1], caches=caches)


@torch.no_grad()
def test_positions_choose_the_rows_of_the_table():
    model, tokens = gpt(), some_tokens(2, 4)
    assert torch.equal(model(tokens, positions=torch.arange(4)), model(tokens))
    places = torch.tensor([[0, 0, 1, 2], [4, 5, 6, 7]])
    apart = [model(text, positions=place) for text, place in zip(tokens, places, strict=True)]
    assert torch.allclose(model(tokens, positions=places), torch.stack(apart), rtol=0, atol=1e-12)
    assert not torch.allclose(apart[1], model(tokens[1]), rtol=0, atol=1e-3)


@torch.no_grad()
def test_a_pass_that_failed_half_way_is_not_gone_on_with():
    model, tokens = gpt(attention=grouped()), some_tokens(2, 5)
    caches = [KVCache(CONTEXT), KVCache(4)]
    with pytest.raises(ValueError, match=r"^keys must fit"):
        model(tokens, caches=caches)
    with pytest.raises(ValueError, match=r"^caches must hold the same .*lengths \[5, 0\]"):
        model(tokens[:, :2], caches=caches)


def test_each_block_has_an_attention_of_its_own_that_is_drawn_like_the_others():
    made = []

    def attention(embed_dim, num_heads):
        made.append((embed_dim, num_heads))
        return GroupedQueryAttention(embed_dim, num_heads)

    model = GPT(VOCAB, CONTEXT, 64, 4, 3, attention=attention)
    assert made == [(64, 4)] * 3
    assert len({block.attention for block in model.blocks}) == 3
    for block in model.blocks:
        query, last = block.attention.W_query.weight, block.attention.out_proj.weight
        assert query.std().item() == pytest.approx(0.02, rel=0.1)
        assert last.std().item() == pytest.approx(0.02 / 6**0.5, rel=0.1)


# Writing


def test_at_temperature_0_it_writes_the_likeliest_token_each_time():
    model, tokens = gpt(), some_tokens(2, 3)
    written = model.generate(tokens, 2 * CONTEXT, temperature=0)
    assert torch.equal(written[:, :3], tokens)
    for t in range(3, written.size(1)):
        read = written[:, max(0, t - CONTEXT) : t]
        assert torch.equal(written[:, t], model(read)[:, -1].argmax(dim=-1))


def test_it_draws_each_token_as_often_as_it_is_likely():
    model, start = gpt(), some_tokens(4).expand(20_000, 4)
    shares = torch.softmax(model(start[0])[-1] / 1.7, dim=-1)
    written = model.generate(start, 1, 1.7, torch.Generator().manual_seed(0))[:, -1]
    found = torch.bincount(written, minlength=VOCAB) / len(start)
    assert torch.allclose(found.double(), shares, rtol=0, atol=0.02)


def test_the_generator_alone_decides_what_is_drawn():
    model, tokens = gpt(), some_tokens(2, 3)
    texts = [
        model.generate(tokens, 20, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])


def test_a_cold_draw_is_the_likeliest_token():
    model, tokens = gpt(), some_tokens(2, 3)
    cold = model.generate(tokens, 12, temperature=1e-6)
    assert torch.equal(cold, model.generate(tokens, 12, temperature=0))


def test_writing_nothing_returns_what_was_there_and_keeps_no_gradient():
    model, tokens = gpt(), some_tokens(2, 3)
    assert torch.equal(model.generate(tokens, 0), tokens)
    assert not model.generate(tokens, 1).requires_grad
    assert torch.is_grad_enabled()


def test_what_the_chapter_shows_first_is_what_it_writes_later():
    page = (Path(__file__).parents[2] / "docs/model/gpt.md").read_text(encoding="utf-8")
    shown = re.search(r"^```text\n(.*?)^```", page, re.M | re.S)[1]
    written = re.findall(r"^```output\n(.*?)^```", page, re.M | re.S)
    assert any(shown in text for text in written)


SIZES = {
    "vocab_size": 5,
    "context_length": 4,
    "embed_dim": 6,
    "num_heads": 2,
    "num_layers": 1,
}


def made(**changes):
    return GPT(**SIZES | changes)


def cached(**changes):
    return made(attention=grouped(), **changes)


def written_past_the_context():
    generate(cached(), [ids[0]], 4, cache=KVCache)


def keep(*shape):
    return torch.ones(shape, dtype=torch.bool)


NAN, INF = float("nan"), float("inf")
ids = torch.zeros(2, 3, dtype=torch.int64)

# what is done · the argument named · what came · what was wanted
BAD = [
    *((lambda n=name: made(**{n: 0}), name, "0", "positive integer") for name in SIZES),
    *((lambda n=name: made(**{n: 2.0}), name, "2.0", "positive integer") for name in SIZES),
    (lambda: made(num_heads=4), "num_heads", "num_heads=4, embed_dim=6", "divide embed_dim"),
    (lambda: made(dropout=1.0), "dropout", "1.0", "[0, 1)"),
    (lambda: made(dropout="0.1"), "dropout", "'0.1'", "[0, 1)"),
    (lambda: made()([1, 2]), "tokens", "[1, 2]", "tensor"),
    (lambda: made()(ids.float()), "tokens", "torch.float32", "int64"),
    (lambda: made()(ids[:, :0]), "tokens", "(2, 0)", "at least 1"),
    (lambda: made()(ids[0, 0]), "tokens", "()", "at least 1"),
    (lambda: made()(ids.repeat(1, 2)), "tokens", "6", "at most context_length=4"),
    (lambda: made()(ids, caches=[None]), "caches", "", "unless `attention`"),
    (
        lambda: cached(num_layers=2)(ids, caches=[KVCache(4)]),
        "caches",
        "1, 1 different",
        "each block",
    ),
    (
        lambda: cached()(ids, caches=[KVCache(4), KVCache(4)]),
        "caches",
        "2, 2 different",
        "each block",
    ),
    (lambda: cached()(ids, caches=[]), "caches", "0, 0 different", "each block"),
    (
        lambda: cached(num_layers=2)(ids, caches=2 * [KVCache(4)]),
        "caches",
        "2, 1 different",
        "each",
    ),
    (lambda: made()(ids, last=-1), "last", "-1", "at least 0"),
    (lambda: made()(ids, last=1.0), "last", "1.0", "integer"),
    (lambda: made()(ids, positions=[0, 1, 2]), "positions", "[0, 1, 2]", "(2, 3)"),
    (lambda: made()(ids, positions=torch.arange(3.0)), "positions", "torch.float32", "int64"),
    (lambda: made()(ids, positions=torch.arange(2)), "positions", "(2,)", "(3,) or (2, 3)"),
    (lambda: made()(ids, positions=torch.arange(2, 5)), "positions", "2 to 4", "0 to 3"),
    (lambda: made()(ids, positions=torch.arange(-1, 2)), "positions", "-1 to 1", "0 to 3"),
    (lambda: written_past_the_context(), "positions", "4 to 4", "0 to 3"),
    (lambda: made()(ids, attn_mask=[True]), "attn_mask", "[True]", "boolean"),
    (lambda: made()(ids, attn_mask=torch.zeros(3, 3)), "attn_mask", "torch.float32", "boolean"),
    (lambda: made()(ids, attn_mask=keep(3, 4)), "attn_mask", "(3, 4)", "(3, 3)"),
    (lambda: made()(ids, attn_mask=keep(3)), "attn_mask", "(3,)", "(3, 3)"),
    (lambda: made()(ids, attn_mask=keep(2, 3, 3)), "attn_mask", "(2, 3, 3)", "mask[:, None]"),
    (lambda: made()(ids, attn_mask=keep(2, 3, 3, 3)), "attn_mask", "(2, 3, 3, 3)", "(2, 2, 3, 3)"),
    (lambda: made().generate("to", 1), "tokens", "'to'", "tensor"),
    (lambda: made().generate(ids[:, :0], 1), "tokens", "(2, 0)", "at least 1"),
    (lambda: made().generate(ids, -1), "n", "-1", "at least 0"),
    (lambda: made().generate(ids, 1.5), "n", "1.5", "integer"),
    (lambda: made().generate(ids, 1, -0.1), "temperature", "-0.1", "at least 0"),
    (lambda: made().generate(ids, 1, NAN), "temperature", "nan", "at least 0"),
    (lambda: made().generate(ids, 1, INF), "temperature", "inf", "at least 0"),
    (lambda: made().generate(ids, 1, None), "temperature", "None", "number"),
]


@pytest.mark.parametrize(("do", "argument", "got", "wanted"), BAD)
def test_a_bad_argument_is_named_with_what_came_and_what_was_wanted(do, argument, got, wanted):
    with pytest.raises(ValueError, match=rf"^{argument} must .*{re.escape(wanted)}") as error:
        do()
    assert not got or re.search(rf"got .*{re.escape(got)}", str(error.value))
