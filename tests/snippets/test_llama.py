"""A Llama is made of the book's parts, hides the future, and takes what Hugging Face's files say."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from snippets import llama as real
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.llama import Llama, rope_frequencies, rotate
from snippets.rope import RotaryPositions
from tests.snippets.parts import VOCABULARY, Case
from tests.snippets.parts import tokens as some_texts

VOCAB = 11
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1500,  # the slower of two pairs goes round 2.4 times
}
SCALINGS = [None, {"rope_type": "default"}, {"rope_type": "linear", "factor": 4.0}, LLAMA3]
SIZES = {"vocab_size": VOCAB, "embed_dim": 12, "num_heads": 4, "num_layers": 2}


def made(part=real, **changes):
    """A small Llama in float64, with weights large enough to matter."""
    torch.manual_seed(0)
    model = part.Llama(**SIZES | {"num_kv_heads": 2, "head_dim": 4} | changes)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def some_tokens(*shape):
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(1))


def reference(model, tokens):
    """The logits, written out: the book's attention and rotary positions, and plain arithmetic."""
    size = model.config
    rope = dict(size["rope_parameters"])
    rotate = RotaryPositions(size["head_dim"], base=rope.pop("rope_theta"), scaling=rope)
    kinds = {"num_kv_heads": size["num_key_value_heads"], "head_dim": size["head_dim"]}

    def norm(x, weight):
        return x / (x.pow(2).mean(-1, keepdim=True) + size["rms_norm_eps"]).sqrt() * weight

    x = model.token.weight[tokens]
    for block in model.blocks:
        attention = GroupedQueryAttention(12, 4, **kinds, rotate=rotate).double()
        attention.load_state_dict(block.attention.state_dict())
        x = x + attention(norm(x, block.attention_norm.weight))
        y, mlp = norm(x, block.mlp_norm.weight), block.mlp
        gate = mlp.gate_proj(y)
        x = x + mlp.down_proj(gate * torch.sigmoid(gate) * mlp.up_proj(y))
    return norm(x, model.norm.weight) @ model.logits.weight.T


CHANGES = [
    {},
    {"num_kv_heads": None, "head_dim": None, "embed_dim": 16},
    {"num_kv_heads": 1, "rope_base": 500.0, "norm_eps": 1e-2},
    {"hidden_dim": 5},
    {"tie_weights": True},
    *({"rope_scaling": scaling} for scaling in SCALINGS),
]


# Facts, asked of the module that is given, so that a wrong one can be asked, too.


@torch.no_grad()
def logits_are_those_of_the_books_parts(part):
    for changes in CHANGES:
        if changes.get("embed_dim", 12) == 12:
            model, tokens = made(part, **changes), some_tokens(2, 9)
            assert torch.allclose(model(tokens), reference(model, tokens), rtol=0, atol=1e-10)


@torch.no_grad()
def chunks_with_a_cache_are_the_whole(part):
    model, tokens = made(part), some_tokens(2, 9)
    caches = [KVCache(9) for _ in model.blocks]
    parts = [model(part, caches=caches) for part in tokens.split([4, 1, 3, 1], dim=1)]
    assert torch.allclose(torch.cat(parts, dim=1), model(tokens), rtol=0, atol=1e-10)


@torch.no_grad()
def no_token_moves_what_came_before_it(part):
    model, tokens = made(part), some_tokens(2, 6)
    for place in range(6):
        changed = tokens.clone()
        changed[:, place] = (tokens[:, place] + 1) % VOCAB
        moved = (model(changed) - model(tokens)).abs().amax(dim=(0, 2)) > 1e-9
        assert moved.tolist() == [t >= place for t in range(6)]


@torch.no_grad()
def what_goes_out_comes_back(part):
    for changes in CHANGES:
        model, tokens = made(part, **changes), some_tokens(2, 5)
        other = part.Llama.from_config(json.loads(json.dumps(model.config))).double()
        assert other.config == model.config
        other.load_hugging_face(model.to_hugging_face())
        assert torch.equal(other(tokens), model(tokens))


@torch.no_grad()
def each_text_is_turned_by_its_own_places(part):
    model, tokens = made(part), some_tokens(2, 4)
    places = torch.tensor([[0, 1, 2, 3], [0, 2, 4, 9]])
    apart = [model(tokens[i : i + 1], positions=places[i]) for i in range(2)]
    found = model(tokens, positions=places)
    assert torch.allclose(found, torch.cat(apart), rtol=0, atol=1e-10)
    assert not torch.allclose(found, model(tokens), rtol=0, atol=1e-3)


@torch.no_grad()
def angles_are_made_once_a_step(part):
    class Cosines(TorchDispatchMode):
        made = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.made += function is torch.ops.aten.cos.default
            return function(*args, **kwargs or {})

    for layers in (1, 3):
        with Cosines() as cosines:
            made(part, num_layers=layers)(some_tokens(2, 5))
        assert cosines.made == 1


@torch.no_grad()
def the_last_logits_can_be_asked_for_alone(part):
    model, tokens, made_here = made(part), some_tokens(2, 6), []
    whole = model(tokens)
    model.logits.register_forward_hook(lambda _, __, out: made_here.append(out.shape[1]))
    for last in (1, 3, 6):
        found = model(tokens, last=last)
        assert found.shape == (2, last, VOCAB)
        assert torch.allclose(found, whole[:, -last:], rtol=0, atol=1e-10)
    assert made_here == [1, 3, 6]


@torch.no_grad()
def one_token_with_a_mask_for_each_head_is_the_same_row_of_several(part):
    """It takes another way through the kernel: heads that share keys lie in the rows of one."""
    for num_kv_heads in (1, 2, 4):
        model, tokens = made(part, num_kv_heads=num_kv_heads), some_tokens(2, 6)
        masks = torch.rand(2, 4, 6, 6, generator=torch.Generator().manual_seed(0)) > 0.4
        masks = (masks | torch.eye(6, dtype=torch.bool)).tril()
        for mask in (masks, masks[:, :1], masks[0, 0]):
            wanted = model(tokens, attn_mask=mask)
            caches = [KVCache(6) for _ in model.blocks]
            for t in range(6):
                found = model(
                    tokens[:, t : t + 1], attn_mask=mask[..., t : t + 1, : t + 1], caches=caches
                )
                assert torch.allclose(found[:, 0], wanted[:, t], rtol=0, atol=1e-10)


@torch.no_grad()
def a_checkpoint_may_hold_inverse_frequencies_and_a_tied_table_twice(part):
    model = made(part, tie_weights=True)
    weights = model.to_hugging_face()
    assert "lm_head.weight" not in weights
    weights |= {"lm_head.weight": weights["model.embed_tokens.weight"]}
    weights |= {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    other = made(part, tie_weights=True)
    nn.init.zeros_(other.token.weight)
    other.load_hugging_face(weights)
    assert torch.equal(other.token.weight, model.token.weight)
    assert other.logits.weight is other.token.weight


@torch.no_grad()
def a_model_without_memory_takes_the_weights_of_a_file(part):
    for tied in (False, True):
        model, tokens = made(part, tie_weights=tied), some_tokens(2, 5)
        with torch.device("meta"):
            empty = part.Llama.from_config(model.config)
        empty.load_hugging_face(model.to_hugging_face())
        assert {parameter.device.type for parameter in empty.parameters()} == {"cpu"}
        assert (empty.logits.weight is empty.token.weight) == tied
        assert torch.equal(empty(tokens), model(tokens))


def what_a_configuration_asks_for_and_is_not_here_is_refused(part):
    config = made(part).config
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    for changes in (
        {"model_type": "gemma"},
        {"hidden_act": "gelu"},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"partial_rotary_factor": 0.5},
        {"rope_parameters": rope},
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
    ):
        with pytest.raises(ValueError, match="must be"):
            part.Llama.from_config(config | changes)
    for size in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"):
        with pytest.raises((KeyError, TypeError)):
            part.Llama.from_config({key: config[key] for key in config if key != size})
    empty = {"sliding_window": None, "quantization_config": None, "use_cache": True}
    assert part.Llama.from_config(config | empty).config == config


FACTS = [
    one_token_with_a_mask_for_each_head_is_the_same_row_of_several,
    a_checkpoint_may_hold_inverse_frequencies_and_a_tied_table_twice,
    a_model_without_memory_takes_the_weights_of_a_file,
    what_a_configuration_asks_for_and_is_not_here_is_refused,
    logits_are_those_of_the_books_parts,
    chunks_with_a_cache_are_the_whole,
    no_token_moves_what_came_before_it,
    what_goes_out_comes_back,
    each_text_is_turned_by_its_own_places,
    angles_are_made_once_a_step,
    the_last_logits_can_be_asked_for_alone,
]


WRONG = {
    "the base is forgotten": ("base ** (-2", "10000.0 ** (-2"),
    "linear scaling multiplies": ('divided = [each / scaling["factor"]', 'divided = [each * scaling["factor"]'),
    "slow pairs are kept": ("k * f + (1 - k) * d", "(1 - k) * f + k * d"),
    "no ramp": ("min(max((length * each - few) / (many - few), 0.0), 1.0)", "float(length * each > few)"),
    "turned the wrong way": ("first * cos - second * sin, second * cos + first * sin", "first * cos + second * sin, second * cos - first * sin"),
    "the other pairing": ("first, second = x.chunk(2, dim=-1)", "first, second = x[..., ::2], x[..., 1::2]"),
    "keys are not turned": ("rotate(query, rotation), rotate(key, rotation)", "rotate(query, rotation), key"),
    "values are turned": ("key, value = cache.update(key, value)", "key, value = cache.update(key, rotate(value, rotation))"),
    "angles in half precision": ('torch.float32 if positions.device.type == "mps" else torch.float64', 'torch.bfloat16'),
    "the future is seen": ('"is_causal": T > 1 and attn_mask is None', '"is_causal": False'),
    "the triangle's corner at the first key": (".tril(past)", ".tril()"),
    "no mask for several after a cache": ("elif attn_mask is None and past:", "elif False:"),
    "gate and value exchanged": ("F.silu(self.gate_proj(x)) * self.up_proj(x)", "self.gate_proj(x) * F.silu(self.up_proj(x))"),
    "another curve": ("F.silu(", "F.gelu("),
    "the norm comes after": ("x + self.attention(self.attention_norm(x), **how)", "self.attention_norm(x + self.attention(x, **how))"),
    "the residual is forgotten": ("return x + self.mlp", "return self.mlp"),
    "the last norm is forgotten": ("self.logits(self.norm(x[:, -last:]))", "self.logits(x[:, -last:])"),
    "places restart after a cache": ("torch.arange(past, past + T, device", "torch.arange(T, device"),
    "one text's places for all": ("1).to(wide) * frequencies", "1).to(wide)[:1] * frequencies"),
    "angles are made in each layer": ("rotation=rotation, attn", "rotation=self.rotation(positions), attn"),
    "all logits are made": ("self.norm(x[:, -last:])", "self.norm(x)"),
    "one logit too many is made": ("x[:, -last:]", "x[:, -last - 1 :]"),
    "norm_eps is forgotten": ('self.mlp_norm = nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"])', 'self.mlp_norm = nn.RMSNorm(config["hidden_size"], eps=1e-6)'),
    "the base is not read": ('base = rope.pop("rope_theta", config.get("rope_theta", 10000.0))', 'base = 10000.0; rope.pop("rope_theta", 0)'),
    "keys that heads share are read by others": (
        "query = query.unflatten(1, (key.size(1), -1)).flatten(2, 3)",
        "query = query.unflatten(1, (-1, key.size(1))).transpose(1, 2).flatten(2, 3)",
    ),
    "a mask for each head is another head's": (
        "attn_mask = attn_mask.unflatten(1, (key.size(1), -1)).flatten(2, 3)",
        "attn_mask = attn_mask.flip(1).unflatten(1, (key.size(1), -1)).flatten(2, 3)",
    ),
    "tables are not tied": ("self.token.weight if tie_weights else self.logits.weight", "self.logits.weight"),
    "tables part on loading": (
        "assign=self.token.weight.is_meta)\n        if self.config[\"tie_word_embeddings\"]:",
        "assign=self.token.weight.is_meta)\n        if False:",
    ),
    "a width that is guessed": ('given["hidden_dim"] = config["intermediate_size"]', 'given["hidden_dim"] = None'),
    "half a rotation passes": ('"partial_rotary_factor": 1.0,', ""),
    "biases pass": ('"attention_bias": False,', ""),
}  # fmt: skip

CASES = {
    "llama": Case(
        lambda m, x: m(x), some_texts, lambda: Llama(VOCABULARY, 16, 4, 2, num_kv_heads=2)
    )
}
MODULES = {"Llama": lambda: Llama(VOCAB, 8, 2, 1, num_kv_heads=1, hidden_dim=12)}


@pytest.mark.parametrize("scaling", SCALINGS[1:])
@pytest.mark.parametrize("head_dim", [2, 4, 64])
def test_its_angles_are_those_of_the_books_rotary_positions(scaling, head_dim):
    wanted = RotaryPositions(head_dim, base=500.0, scaling=scaling).frequencies
    assert rope_frequencies(head_dim, 500.0, scaling) == pytest.approx(list(wanted), abs=1e-15)
    older = {"type" if key == "rope_type" else key: scaling[key] for key in scaling}
    assert rope_frequencies(head_dim, 500.0, older) == pytest.approx(list(wanted), abs=1e-15)


def test_gradients_are_those_of_the_books_parts():
    model, tokens = made(), some_tokens(2, 6)
    direction = torch.randn(2, 6, VOCAB, dtype=torch.float64)
    weights = [model.token.weight, model.blocks[0].mlp.up_proj.weight, model.norm.weight]
    found = torch.autograd.grad(model(tokens), weights, direction)
    wanted = torch.autograd.grad(reference(model, tokens), weights, direction)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-10)


@torch.no_grad()
def test_all_places_moved_alike_change_nothing():
    model, tokens = made(rope_scaling=LLAMA3), some_tokens(2, 6)
    for moved in (torch.arange(6) + 1000, torch.tensor([[3], [50]]) + torch.arange(6)):
        assert torch.allclose(model(tokens, positions=moved), model(tokens), rtol=0, atol=1e-10)
    apart = model(tokens, positions=2 * torch.arange(6))
    assert not torch.allclose(apart, model(tokens), rtol=0, atol=1e-3)


@torch.no_grad()
def test_bfloat16_rounds_no_angle():
    model, far = made().float(), torch.tensor([99_991])
    wanted = model.double().rotation(far)
    for ours, theirs in zip(model.bfloat16().rotation(far), wanted, strict=True):
        assert ours.dtype == torch.bfloat16
        assert torch.allclose(ours.double(), theirs, rtol=0, atol=0.004)  # of 1, half its last bit
    x = torch.ones(1, 2, 1, 4, dtype=torch.bfloat16)
    turned = rotate(x, wanted)
    assert turned.dtype == torch.bfloat16
    assert torch.allclose(turned.double(), rotate(x.double(), wanted), rtol=0, atol=0.02)


def test_untrained_it_holds_every_token_for_about_equally_likely():
    torch.manual_seed(0)
    model, tokens = Llama(65, 64, 4, 4), torch.randint(65, (8, 33))
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(65), abs=0.05)


def test_older_configurations_say_the_same():
    plain = {"vocab_size": VOCAB, "hidden_size": 12, "intermediate_size": 8}
    plain |= {"num_hidden_layers": 1, "num_attention_heads": 3}
    model = Llama.from_config(plain)
    assert model.config["num_key_value_heads"] == 3
    assert model.config["rope_parameters"] == {"rope_type": "default", "rope_theta": 10000.0}
    older = Llama.from_config(
        plain | {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    )
    newer = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
    assert older.config["rope_parameters"] == newer
    assert Llama.from_config(plain | {"rope_parameters": newer}).config == older.config


def test_a_file_with_a_weight_too_few_or_too_many_is_refused():
    model = made()
    weights = model.to_hugging_face()
    extra = weights | {"model.layers.7.mlp.up_proj.weight": torch.ones(1)}
    few = {name: weights[name] for name in weights if name != "model.norm.weight"}
    for wrong in (extra, few):
        with pytest.raises(RuntimeError, match=r"layers.7|norm.weight"):
            model.load_hugging_face(wrong)


# What would be misread in silence


@pytest.mark.parametrize("sizes", [{"head_dim": 3}, {"head_dim": None, "embed_dim": 10}])
def test_a_channel_without_a_pair_would_be_turned_with_none(sizes):
    with pytest.raises(ValueError, match=r"^head_dim"):
        made(**sizes)


@pytest.mark.parametrize("shape", [(5, 5), (1, 1, 5, 5), (2, 1, 5, 5), (2, 4, 5, 5)])
@torch.no_grad()
def test_a_mask_of_two_or_four_dimensions_is_obeyed(shape):
    model, tokens = made(), some_tokens(2, 5)
    window = torch.ones(5, 5, dtype=torch.bool).tril().triu(-1).expand(shape)
    found = model(tokens, attn_mask=window)
    changed = tokens.clone()
    changed[:, 0] = (tokens[:, 0] + 1) % VOCAB
    moved = (model(changed, attn_mask=window) - found).abs().amax(dim=(0, 2)) > 1e-9
    assert moved.tolist() == [True, True, True, False, False]  # one place back in each of 2 layers


@pytest.mark.parametrize("mask", [torch.ones(4, 3, 3, dtype=torch.bool), torch.zeros(3, 3)])
def test_a_mask_of_three_dimensions_or_of_numbers_has_two_meanings(mask):
    with pytest.raises(ValueError, match=r"^attn_mask"):
        made()(some_tokens(4, 3), attn_mask=mask)


def test_one_position_for_all_tokens_would_be_broadcast():
    with pytest.raises(ValueError, match=r"^positions"):
        made()(some_tokens(2, 3), positions=torch.zeros(2, 1, dtype=torch.int64))


@torch.no_grad()
def test_caches_that_are_one_or_that_a_failed_pass_left_apart_are_not_gone_on_with():
    model, read = made(), some_tokens(2, 5)
    one, apart = [KVCache(9)] * 2, [KVCache(9), KVCache(4)]
    with pytest.raises(ValueError):  # the second cache has no room  # noqa: PT011
        model(read, caches=apart)
    for caches in (one, apart, apart[:1], []):
        with pytest.raises(ValueError, match=r"^caches"):
            model(read[:, :2], caches=caches)
    apart[0].truncate(0)
    found = model(read[:, :2], caches=apart)
    assert torch.allclose(found, model(read[:, :2]), rtol=0, atol=1e-10)
