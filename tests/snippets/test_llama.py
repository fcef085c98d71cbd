"""A Llama is made of the book's parts, hides the future, and takes what Hugging Face's files say."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from snippets import llama as real
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.rope import RotaryPositions
from tests.snippets.facts import refuses
from tests.snippets.parts import VOCABULARY, Case
from tests.snippets.parts import tokens as some_texts

VOCAB = 11
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 1500}  # the slower of two pairs goes round 2.4 times
LINEAR = {"rope_type": "linear", "factor": 4.0}
SIZES = {"vocab_size": VOCAB, "embed_dim": 12, "num_heads": 4, "num_layers": 2}
SIZES |= {"num_kv_heads": 2, "head_dim": 4}
CHANGES = [
    {},
    {"num_kv_heads": 1, "rope_base": 500.0, "norm_eps": 1e-2, "tie_weights": True},
    {"hidden_dim": 5, "rope_scaling": LINEAR},
    {"num_kv_heads": None, "rope_scaling": LLAMA3},
]


def made(part=real, **changes):
    """A small Llama in float64, with weights large enough to matter."""
    torch.manual_seed(0)
    model = part.Llama(**SIZES | changes)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def some_tokens(*shape):
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(1))


def near(result, expected):
    return torch.allclose(result, expected, rtol=0, atol=1e-10)


def by_the_books_parts(model, tokens, mask):
    """The logits, written out: the book's attention and rotary positions, and plain arithmetic."""
    size = model.config
    rotate = RotaryPositions(size["head_dim"], scaling=size["rope_parameters"])
    kinds = {"num_kv_heads": size["num_key_value_heads"], "head_dim": size["head_dim"]}

    def norm(x, weight):
        return x / (x.pow(2).mean(-1, keepdim=True) + size["rms_norm_eps"]).sqrt() * weight

    x = model.token.weight[tokens]
    for block in model.blocks:
        attention = GroupedQueryAttention(12, 4, **kinds, rotate=rotate).double()
        names = [name for name, _ in attention.named_parameters()]  # no bias among them
        weights = {name: block.attention.get_parameter(name) for name in names}
        y = norm(x, block.attention_norm.weight)
        x = x + torch.func.functional_call(attention, weights, (y,), {"attn_mask": mask})
        y, mlp = norm(x, block.mlp_norm.weight), block.mlp
        gate, up = y @ mlp.gate_proj.weight.T, y @ mlp.up_proj.weight.T
        x = x + (gate * torch.sigmoid(gate) * up) @ mlp.down_proj.weight.T
    return norm(x, model.norm.weight) @ model.logits.weight.T


# Facts, asked of the module that is given, so that a wrong one can be asked, too.


def test_logits_and_gradients_are_those_of_the_books_parts(part):
    window = torch.ones(9, 9, dtype=torch.bool).tril().triu(-2)
    for changes, mask in zip(CHANGES, (None, window, window.expand(2, 1, 9, 9), None), strict=True):
        model, tokens = made(part, **changes), some_tokens(2, 9)
        result, expected = model(tokens, attn_mask=mask), by_the_books_parts(model, tokens, mask)
        assert near(result, expected)
        direction, weights = torch.randn_like(result), list(model.parameters())
        ours = torch.autograd.grad(result, weights, direction)
        theirs = torch.autograd.grad(expected, weights, direction)
        assert all(map(near, ours, theirs))


@torch.no_grad()
def test_chunks_with_a_cache_are_the_whole(part):
    model, tokens = made(part), some_tokens(2, 9)
    caches = [KVCache(9) for _ in model.blocks]
    parts = [model(part, caches=caches) for part in tokens.split([4, 1, 3, 1], dim=1)]
    assert near(torch.cat(parts, dim=1), model(tokens))


@torch.no_grad()
def test_what_goes_out_comes_back(part):
    for changes in (*CHANGES, {"head_dim": None, "embed_dim": 16}):
        model, tokens = made(part, **changes), some_tokens(2, 5)
        other = part.Llama.from_config(json.loads(json.dumps(model.config))).double()
        assert other.config == model.config
        other.load_hugging_face(model.to_hugging_face())
        assert torch.equal(other(tokens), model(tokens))


@torch.no_grad()
def test_each_text_is_turned_by_its_own_places_and_moving_all_alike_changes_nothing(part):
    model, tokens = made(part, rope_scaling=LLAMA3), some_tokens(2, 4)
    places = torch.tensor([[0, 1, 2, 3], [0, 2, 4, 9]])
    apart = [model(tokens[i : i + 1], positions=places[i]) for i in range(2)]
    found = model(tokens, positions=places)
    assert near(found, torch.cat(apart))
    assert not torch.allclose(found, model(tokens), rtol=0, atol=1e-3)
    for moved in (torch.arange(4) + 1000, torch.tensor([[3], [50]]) + torch.arange(4)):
        assert near(model(tokens, positions=moved), model(tokens))


@torch.no_grad()
def test_bfloat16_rounds_no_angle(part):
    model, far = made(part), torch.tensor([99_991])
    expected = model.rotation(far)
    for ours, exact in zip(model.bfloat16().rotation(far), expected, strict=True):
        assert ours.dtype == torch.bfloat16
        assert torch.allclose(ours.double(), exact, rtol=0, atol=0.004)  # of 1, half its last bit


@torch.no_grad()
def test_the_last_logits_can_be_asked_for_alone(part):
    model, tokens, made_here = made(part), some_tokens(2, 6), []
    whole = model(tokens)
    model.logits.register_forward_hook(lambda _, __, out: made_here.append(out.shape[1]))
    for last in (1, 3, 6):
        assert near(model(tokens, last=last), whole[:, -last:])
    assert made_here == [1, 3, 6]


@torch.no_grad()
def test_one_token_with_a_mask_for_each_head_is_the_same_row_of_several(part):
    """It takes another way through the kernel: heads that share keys lie in the rows of one."""
    for num_kv_heads in (2, 4):
        model, tokens = made(part, num_kv_heads=num_kv_heads), some_tokens(2, 6)
        masks = torch.rand(2, 4, 6, 6, generator=torch.Generator().manual_seed(0)) > 0.4
        masks = (masks | torch.eye(6, dtype=torch.bool)).tril()
        for mask in (masks, masks[:, :1], masks[0, 0]):
            expected, caches = model(tokens, attn_mask=mask), [KVCache(6) for _ in model.blocks]
            for t in range(6):
                row = mask[..., t : t + 1, : t + 1]
                found = model(tokens[:, t : t + 1], attn_mask=row, caches=caches)
                assert near(found[:, 0], expected[:, t])


@torch.no_grad()
def test_a_checkpoint_may_hold_inverse_frequencies_and_a_tied_table_twice(part):
    model, other = made(part, tie_weights=True), made(part, tie_weights=True)
    weights = model.to_hugging_face()
    assert "lm_head.weight" not in weights
    weights |= {"lm_head.weight": weights["model.embed_tokens.weight"]}
    weights |= {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    nn.init.zeros_(other.token.weight)
    other.load_hugging_face(weights)
    assert torch.equal(other.token.weight, model.token.weight)
    assert other.logits.weight is other.token.weight


@torch.no_grad()
def test_a_model_without_memory_takes_the_weights_of_a_file(part):
    for tied in (False, True):
        model, tokens = made(part, tie_weights=tied), some_tokens(2, 5)
        with torch.device("meta"):
            empty = part.Llama.from_config(model.config)
        empty.load_hugging_face(model.to_hugging_face())
        assert (empty.logits.weight is empty.token.weight) == tied
        assert torch.equal(empty(tokens), model(tokens))


def test_a_weight_too_few_or_too_many_is_refused(part):
    model = made(part)
    weights = model.to_hugging_face()
    extra = weights | {"model.layers.7.mlp.up_proj.weight": torch.ones(1)}
    few = {name: weights[name] for name in weights if name != "model.norm.weight"}
    for wrong in (extra, few):
        with pytest.raises(RuntimeError, match=r"layers.7|norm.weight"):
            model.load_hugging_face(wrong)


def test_older_configurations_say_the_same(part):
    plain = {"vocab_size": VOCAB, "hidden_size": 12, "intermediate_size": 8}
    plain |= {"num_hidden_layers": 1, "num_attention_heads": 3}
    config = part.Llama.from_config(plain).config
    assert config["num_key_value_heads"] == 3
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 10000.0}
    older = {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    config = part.Llama.from_config(plain | older).config
    newer = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
    assert config["rope_parameters"] == newer
    assert part.Llama.from_config(plain | {"rope_parameters": newer}).config == config


def test_what_a_configuration_asks_for_and_is_not_here_is_refused(part):
    config = made(part).config
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    for changes in (
        {"model_type": "gemma"},
        {"hidden_act": "gelu"},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"rope_parameters": rope},
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
    ):
        refuses(f"{changes}", part.Llama.from_config, config | changes)
    empty = {"sliding_window": None, "quantization_config": None, "use_cache": True}
    assert part.Llama.from_config(config | empty).config == config


def test_what_would_be_misread_in_silence_is_refused(part):
    for sizes in ({"head_dim": 3}, {"head_dim": None, "embed_dim": 10}):  # a channel without a pair
        refuses(f"{sizes}", partial(made, part, **sizes))
    model, tokens = made(part), some_tokens(4, 3)
    for mask in (torch.ones(4, 3, 3, dtype=torch.bool), torch.zeros(3, 3)):
        refuses("a mask of a text or a head, or of numbers", model, tokens, attn_mask=mask)
    refuses("one position for all", model, tokens, positions=torch.zeros(4, 1, dtype=torch.int64))
    one, apart = [KVCache(9)] * 2, [KVCache(9), KVCache(2)]
    for caches in (one, apart, apart[:1], []):  # one for all layers, without room, or too few
        refuses(f"{len(caches)} caches", model, tokens, caches=caches)


WRONG = {
    "the other pairing": ("first, second = x.chunk(2, dim=-1)", "first, second = x[..., ::2], x[..., 1::2]"),
    "values are turned": ("key, value = cache.update(key, value)", "key, value = cache.update(key, rotate(value, rotation))"),
    "gate and value exchanged": ("F.silu(self.gate_proj(x)) * self.up_proj(x)", "self.gate_proj(x) * F.silu(self.up_proj(x))"),
    "places restart after a cache": ("torch.arange(past, past + T, device", "torch.arange(T, device"),
    "the base is not read": ('base = rope.pop("rope_theta", config.get("rope_theta", 10000.0))', 'base = 10000.0; rope.pop("rope_theta", 0)'),
    "heads take turns with the keys that they share": (
        "query = query.unflatten(1, (key.size(1), -1)).flatten(2, 3)",
        "query = query.unflatten(1, (-1, key.size(1))).transpose(1, 2).flatten(2, 3)",
    ),
}  # fmt: skip

CASES = {
    "llama": Case(
        lambda m, x: m(x), some_texts, lambda: real.Llama(VOCABULARY, 16, 4, 2, num_kv_heads=2)
    )
}
MODULES = {"Llama": lambda: real.Llama(VOCAB, 8, 2, 1, num_kv_heads=1, hidden_dim=12)}
