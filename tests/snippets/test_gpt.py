"""The GPT hides the future, is made of the book's attention and of PyTorch's own block, and learns."""

import math
import re
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from snippets import gpt as real
from snippets.generate import choose
from snippets.gpt import GPT, Block, CausalMultiHeadAttention
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.multi_head_attention import MultiHeadAttention
from tests.snippets.parts import VOCABULARY, Case, tokens

VOCAB, CONTEXT = 11, 8
grouped = partial(GroupedQueryAttention, bias=True)


def gpt(part=real, seed=0, **changes):
    """A small GPT in float64, whose weights are large enough to matter."""
    torch.manual_seed(seed)
    sizes = {"embed_dim": 12, "num_heads": 3, "num_layers": 2}
    model = part.GPT(VOCAB, CONTEXT, **sizes | changes).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


def some_tokens(*shape):
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(1))


def close(found, wanted):
    return torch.allclose(found, wanted, rtol=0, atol=1e-10)


WINDOW = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril().triu(-2)


@torch.no_grad()
def a_token_moves_its_own_logits_and_the_later_ones_and_no_earlier(part):
    model, read = gpt(part), some_tokens(2, CONTEXT)
    for place in range(CONTEXT):
        changed = read.clone()
        changed[:, place] = (read[:, place] + 1) % VOCAB
        moved = (model(changed) - model(read)).abs().amax(dim=-1) > 1e-9  # (batch, tokens)
        assert moved.tolist() == [[t >= place for t in range(CONTEXT)]] * 2


def its_attention_is_the_books_in_outputs_and_gradients(part):
    for shape in ((CONTEXT, 12), (2, 5, 12), (2, 3, 4, 12)):
        torch.manual_seed(0)
        ours = part.CausalMultiHeadAttention(12, 3).double()
        books = MultiHeadAttention(12, 3).double()
        books.load_state_dict(ours.state_dict())
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        result, wanted = ours(x), books(x, is_causal=True)
        assert close(result, wanted)
        direction = torch.randn(shape, dtype=torch.float64)
        pairs = zip(
            torch.autograd.grad(result, [x, *ours.parameters()], direction),
            torch.autograd.grad(wanted, [x, *books.parameters()], direction),
            strict=True,
        )
        assert all(close(found, theirs) for found, theirs in pairs)


@torch.no_grad()
def a_block_is_pytorchs_own_layer_with_the_norm_first(part):
    torch.manual_seed(0)
    block = part.Block(12, part.CausalMultiHeadAttention(12, 3)).double()
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
    assert close(block(x), theirs(x, src_mask=hide))


@torch.no_grad()
def logits_are_written_out_from_embeddings_blocks_and_a_last_norm(part):
    model, read = gpt(part), some_tokens(2, 5)
    x = model.token.weight[read] + model.position.weight[:5]
    for block in model.blocks:
        x = block(x)
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
    x = (x - mean) / (variance + 1e-5).sqrt() * model.norm.weight + model.norm.bias
    assert close(model(read), x @ model.logits.weight.T)


@torch.no_grad()
def a_mask_is_obeyed_by_its_own_heads_and_by_others(part):
    read = some_tokens(3, CONTEXT)  # three texts, and three heads
    own, other = gpt(part), gpt(part, attention=grouped)
    other.load_state_dict(own.state_dict())
    assert close(other(read), own(read))
    wanted = own(read, attn_mask=WINDOW)
    assert not torch.allclose(wanted, own(read), rtol=0, atol=1e-3)
    assert close(other(read, attn_mask=WINDOW), wanted)
    for leading in ((1, 1), (3, 1), (1, 3), (3, 3)):
        assert close(own(read, attn_mask=WINDOW.expand(*leading, -1, -1)), wanted)


@torch.no_grad()
def with_caches_tokens_count_on_from_those_that_were_read(part):
    model, read = gpt(part, attention=partial(grouped, num_kv_heads=1)), some_tokens(2, CONTEXT)
    caches = [KVCache(CONTEXT) for _ in model.blocks]
    parts = [model(piece, caches=caches) for piece in read.split([3, 1, 4], dim=1)]
    assert close(torch.cat(parts, dim=1), model(read))


@torch.no_grad()
def positions_choose_the_rows_of_the_table(part):
    model, read = gpt(part), some_tokens(2, 4)
    assert torch.equal(model(read, positions=torch.arange(4)), model(read))
    places = torch.tensor([[0, 0, 1, 2], [4, 5, 6, 7]])
    apart = [model(text, positions=place) for text, place in zip(read, places, strict=True)]
    assert close(model(read, positions=places), torch.stack(apart))
    assert not torch.allclose(apart[1], model(read[1]), rtol=0, atol=1e-3)


@torch.no_grad()
def the_last_logits_can_be_asked_for_alone(part):
    model, read, made = gpt(part), some_tokens(2, CONTEXT), []
    whole = model(read)
    model.logits.register_forward_hook(lambda _, __, out: made.append(out.shape[-2]))
    for last in (1, 3, CONTEXT):
        assert close(model(read, last=last), whole[:, -last:])
    model.generate(read, 2)
    assert made == [1, 3, CONTEXT, 1, 1]


def it_is_drawn_as_gpt_2_is(part):
    torch.manual_seed(0)
    for attention in (None, grouped):
        model = part.GPT(500, 32, 64, 4, 8, attention=attention)
        for name, parameter in model.named_parameters():
            if name.endswith(("out_proj.weight", "mlp.2.weight")):
                assert parameter.std().item() == pytest.approx(0.02 / 16**0.5, rel=0.1)
            elif parameter.dim() == 2:
                assert parameter.std().item() == pytest.approx(0.02, rel=0.1)
            else:
                assert set(parameter.tolist()) == {float("norm.weight" in name)}
        read = torch.randint(500, (8, 33))
        loss = F.cross_entropy(model(read[:, :-1]).flatten(0, 1), read[:, 1:].flatten())
        assert loss.item() == pytest.approx(math.log(500), abs=0.05)


def dropout_acts_in_training_alone_in_three_places(part):
    model, read, dropped = gpt(part, dropout=0.5), some_tokens(CONTEXT), []
    assert torch.equal(model(read), gpt(part)(read))
    model.train()
    assert not torch.allclose(model(read), model(read))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda *_: dropped.append(1))
    model(read)
    assert len(dropped) == 1 + 2 * 2
    attention = part.CausalMultiHeadAttention(12, 3, 0.5)
    x = torch.randn(4, 12)
    assert not torch.allclose(attention(x), attention(x))
    assert torch.equal(attention.eval()(x), attention(x))


def the_causal_path_is_the_one_that_is_fused(part):
    told = []

    def note(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False):
        told.append((attn_mask, is_causal))
        return query

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", note)
        gpt(part)(some_tokens(2, CONTEXT))
    assert told == [(None, True)] * 2


@torch.no_grad()
def it_writes_the_likeliest_token_or_draws_as_generate_does(part):
    model, read = gpt(part), some_tokens(2, 3)
    for temperature in (0, 1e-6, 0.9):
        ours, theirs = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
        written = model.generate(read, 2 * CONTEXT, temperature, ours)
        assert torch.equal(written[:, :3], read)
        for t in range(3, written.size(1)):
            logits = model(written[:, max(0, t - CONTEXT) : t])[:, -1]
            assert torch.equal(written[:, t], choose(logits, temperature, [theirs] * 2))
    assert torch.equal(model.generate(read, 0), read)


def logits_that_are_no_numbers_are_refused(part):
    """B5, and a temperature below 0, at which the least likely token would be taken."""
    with pytest.raises(ValueError, match="temperature"):
        gpt(part).generate(some_tokens(1, 2), 1, -0.5)
    for bad in (math.nan, math.inf, -math.inf):
        model = gpt(part)
        nn.init.constant_(model.logits.weight, 0.0)
        model.logits.register_forward_hook(lambda *given, bad=bad: given[2] + bad)
        for temperature in (0, 0.8):
            with pytest.raises(ValueError, match="logits"):
                model.generate(some_tokens(1, 2), 1, temperature)


@torch.no_grad()
def of_equal_tokens_the_first_is_written_at_0(part):
    model = part.GPT(1000, 8, 8, 1, 1).eval()
    for weight in model.parameters():
        weight.zero_()
    assert not model.generate(torch.zeros(2, 1, dtype=torch.int64), 3, temperature=0).any()


FACTS = [
    its_attention_is_the_books_in_outputs_and_gradients,
    a_block_is_pytorchs_own_layer_with_the_norm_first,
    logits_are_written_out_from_embeddings_blocks_and_a_last_norm,
    the_causal_path_is_the_one_that_is_fused,
    a_token_moves_its_own_logits_and_the_later_ones_and_no_earlier,
    a_mask_is_obeyed_by_its_own_heads_and_by_others,
    with_caches_tokens_count_on_from_those_that_were_read,
    positions_choose_the_rows_of_the_table,
    the_last_logits_can_be_asked_for_alone,
    dropout_acts_in_training_alone_in_three_places,
    logits_that_are_no_numbers_are_refused,
    it_writes_the_likeliest_token_or_draws_as_generate_does,
    of_equal_tokens_the_first_is_written_at_0,
    it_is_drawn_as_gpt_2_is,
]

WRONG = {
    "it sees the future": ("self.dropout * self.training, attn_mask is None", "0.0, False"),
    "dropout after training": ("self.dropout * self.training", "self.dropout"),
    "weights are never dropped": ("self.dropout * self.training", "0.0"),
    "the norm after attention": (
        "x + self.drop(self.attention(self.attention_norm(x), **how))",
        "self.attention_norm(x + self.drop(self.attention(x, **how)))",
    ),
    "no residual of the MLP": ("return x + self.drop(self.mlp(", "return self.drop(self.mlp("),
    "a mask that is not passed on": ('"attn_mask": attn_mask}', '"attn_mask": None}'),
    "positions that start anew": ("torch.arange(past, past + tokens", "torch.arange(0, tokens"),
    "no last norm": ("self.logits(self.norm(x[..., -last:, :]))", "self.logits(x[..., -last:, :])"),
    "all logits are made": ("x[..., -last:, :]", "x"),
    "no dropout of the embeddings": ("self.drop(self.token(tokens)", "(self.token(tokens)"),
    "residual parts drawn like others": ("math.sqrt(2 * num_layers)", "1"),
    "half of the parts counted": ("math.sqrt(2 * num_layers)", "math.sqrt(num_layers)"),
    "biases as PyTorch draws them": ("nn.init.zeros_(module.bias)", "pass"),
    "no more than the first tokens are read": (
        "tokens[..., -self.context_length :]",
        "tokens[..., : self.context_length]",
    ),
    "greedy by a draw": ("if temperature > 0:", "if True:"),
    "never a draw": ("if temperature > 0:", "if False:"),
    "temperature multiplies": (
        "logits / max(temperature, 1e-38)",
        "logits * max(temperature, 1e-38)",
    ),
    "nan is drawn": ("if temperature < 0 or shares.isnan().any():", "if temperature < 0:"),
    "draws the neighbour": ("keepdim=True) < bounds)", "keepdim=True) < bounds.roll(1, -1))"),
}

CASES = {"gpt": Case(lambda m, x: m(x), tokens, lambda: GPT(VOCABULARY, 40, 16, 2, 2))}
MODULES = {"GPT": lambda: GPT(VOCAB, 32, 8, 2, 1)}


def test_it_learns_a_line_by_heart_and_writes_it():
    line = "to be or not to be, that is the question"
    characters = sorted(set(line))
    read = torch.tensor([characters.index(character) for character in line])
    torch.manual_seed(0)
    model = GPT(len(characters), len(line), 32, 2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(120):
        loss = F.cross_entropy(model(read[:-1]), read[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    written = model.eval().generate(read[:3], len(line) - 3, temperature=0)
    assert "".join(characters[token] for token in written) == line


def test_tables_are_tied_as_its_docstring_says():
    model = gpt()
    model.logits.weight = model.token.weight
    assert len(dict(model.named_parameters())) == len(model.state_dict()) - 1


@torch.no_grad()
def test_tokens_need_no_batch_and_may_have_two():
    model, read = gpt(), some_tokens(2, 3, CONTEXT)
    assert close(model(read[1, 2]), model(read)[1, 2])
    assert close(model(read.int()), model(read))
    assert model.generate(read, 1).shape == (2, 3, CONTEXT + 1)


def test_it_holds_parameters_alone():
    model = gpt()
    assert not list(model.buffers())
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()


def test_what_the_chapter_shows_first_is_what_it_writes_later():
    page = (Path(__file__).parents[2] / "docs/model/gpt.md").read_text(encoding="utf-8")
    shown = re.search(r"^```text\n(.*?)^```", page, re.M | re.S)[1]
    written = re.findall(r"^```output\n(.*?)^```", page, re.M | re.S)
    assert any(shown in text for text in written)


# What would be misread in silence


def test_heads_that_do_not_divide_would_be_more_heads():
    with pytest.raises(ValueError, match=r"^num_heads .* 5, 12"):
        CausalMultiHeadAttention(12, 5)
    assert isinstance(gpt().blocks[0], Block)


@pytest.mark.parametrize("mask", [WINDOW.expand(3, -1, -1), WINDOW.double()])
def test_a_mask_of_three_dimensions_or_of_numbers_has_two_meanings(mask):
    with pytest.raises(ValueError, match=r"^attn_mask"):
        gpt()(some_tokens(3, CONTEXT), attn_mask=mask)


def test_one_position_for_all_tokens_would_be_broadcast():
    with pytest.raises(ValueError, match=r"^positions"):
        gpt()(some_tokens(2, 3), positions=torch.zeros(2, 1, dtype=torch.int64))


@torch.no_grad()
def test_caches_that_are_one_or_that_a_failed_pass_left_apart_are_not_gone_on_with():
    model, read = gpt(attention=grouped), some_tokens(2, 5)
    one, apart = [KVCache(CONTEXT)] * 2, [KVCache(CONTEXT), KVCache(4)]
    with pytest.raises(ValueError):  # the second cache has no room  # noqa: PT011
        model(read, caches=apart)
    for caches in (one, apart, apart[:1], []):
        with pytest.raises(ValueError, match=r"^caches"):
            model(read[:, :2], caches=caches)
