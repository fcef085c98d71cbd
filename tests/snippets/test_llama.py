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
from snippets.rope import RotaryPositions
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


def logits_and_gradients_are_those_of_the_books_parts(part):
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
def chunks_with_a_cache_are_the_whole(part):
    model, tokens = made(part), some_tokens(2, 9)
    caches = [KVCache(9) for _ in model.blocks]
    parts = [model(part, caches=caches) for part in tokens.split([4, 1, 3, 1], dim=1)]
    assert near(torch.cat(parts, dim=1), model(tokens))


@torch.no_grad()
def no_token_moves_what_came_before_it(part):
    model = made(part)
    for T, place in ((2, 1), (6, 0), (6, 3), (6, 5)):
        tokens = some_tokens(2, T)
        changed = tokens.clone()
        changed[:, place] = (tokens[:, place] + 1) % VOCAB
        moved = (model(changed) - model(tokens)).abs().amax(dim=(0, 2)) > 1e-9
        assert moved.tolist() == [t >= place for t in range(T)]


@torch.no_grad()
def what_goes_out_comes_back(part):
    for changes in (*CHANGES, {"head_dim": None, "embed_dim": 16}):
        model, tokens = made(part, **changes), some_tokens(2, 5)
        other = part.Llama.from_config(json.loads(json.dumps(model.config))).double()
        assert other.config == model.config
        other.load_hugging_face(model.to_hugging_face())
        assert torch.equal(other(tokens), model(tokens))


@torch.no_grad()
def each_text_is_turned_by_its_own_places_and_moving_all_alike_changes_nothing(part):
    model, tokens = made(part, rope_scaling=LLAMA3), some_tokens(2, 4)
    places = torch.tensor([[0, 1, 2, 3], [0, 2, 4, 9]])
    apart = [model(tokens[i : i + 1], positions=places[i]) for i in range(2)]
    found = model(tokens, positions=places)
    assert near(found, torch.cat(apart))
    assert not torch.allclose(found, model(tokens), rtol=0, atol=1e-3)
    for moved in (torch.arange(4) + 1000, torch.tensor([[3], [50]]) + torch.arange(4)):
        assert near(model(tokens, positions=moved), model(tokens))


@torch.no_grad()
def bfloat16_rounds_no_angle(part):
    model, far = made(part), torch.tensor([99_991])
    expected = model.rotation(far)
    for ours, exact in zip(model.bfloat16().rotation(far), expected, strict=True):
        assert ours.dtype == torch.bfloat16
        assert torch.allclose(ours.double(), exact, rtol=0, atol=0.004)  # of 1, half its last bit


@torch.no_grad()
def angles_are_made_once_a_step(part):
    class Cosines(TorchDispatchMode):
        made = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.made += function is torch.ops.aten.cos.default
            return function(*args, **kwargs or {})

    with Cosines() as cosines:
        made(part, num_layers=3)(some_tokens(2, 5))
    assert cosines.made == 1


@torch.no_grad()
def the_last_logits_can_be_asked_for_alone(part):
    model, tokens, made_here = made(part), some_tokens(2, 6), []
    whole = model(tokens)
    model.logits.register_forward_hook(lambda _, __, out: made_here.append(out.shape[1]))
    for last in (1, 3, 6):
        assert near(model(tokens, last=last), whole[:, -last:])
    assert made_here == [1, 3, 6]


@torch.no_grad()
def one_token_with_a_mask_for_each_head_is_the_same_row_of_several(part):
    """It takes another way through the kernel: heads that share keys lie in the rows of one."""
    for num_kv_heads in (1, 2, 4):
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
def a_checkpoint_may_hold_inverse_frequencies_and_a_tied_table_twice(part):
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
def a_model_without_memory_takes_the_weights_of_a_file(part):
    for tied in (False, True):
        model, tokens = made(part, tie_weights=tied), some_tokens(2, 5)
        with torch.device("meta"):
            empty = part.Llama.from_config(model.config)
        empty.load_hugging_face(model.to_hugging_face())
        assert (empty.logits.weight is empty.token.weight) == tied
        assert torch.equal(empty(tokens), model(tokens))


def a_weight_too_few_or_too_many_is_refused(part):
    model = made(part)
    weights = model.to_hugging_face()
    extra = weights | {"model.layers.7.mlp.up_proj.weight": torch.ones(1)}
    few = {name: weights[name] for name in weights if name != "model.norm.weight"}
    for wrong in (extra, few):
        with pytest.raises(RuntimeError, match=r"layers.7|norm.weight"):
            model.load_hugging_face(wrong)


def older_configurations_say_the_same(part):
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


@torch.no_grad()
def what_would_be_misread_in_silence_is_refused(part):
    for sizes in ({"head_dim": 3}, {"head_dim": None, "embed_dim": 10}):
        with pytest.raises(ValueError, match=r"^head_dim"):  # a channel without a pair
            made(part, **sizes)
    model, tokens = made(part), some_tokens(4, 3)
    for mask in (torch.ones(4, 3, 3, dtype=torch.bool), torch.zeros(3, 3)):
        with pytest.raises(ValueError, match=r"^attn_mask"):  # a text's or a head's; kept or added
            model(tokens, attn_mask=mask)
    with pytest.raises(ValueError, match=r"^positions"):  # one for all tokens
        model(tokens, positions=torch.zeros(4, 1, dtype=torch.int64))
    apart = [KVCache(9), KVCache(2)]
    with pytest.raises(ValueError):  # the second has no room  # noqa: PT011
        model(tokens, caches=apart)
    for caches in ([KVCache(9)] * 2, apart, apart[:1], []):
        with pytest.raises(ValueError, match=r"^caches"):
            model(tokens[:, :2], caches=caches)
    apart[0].truncate(0)
    assert near(model(tokens[:, :2], caches=apart), model(tokens[:, :2]))


def untrained_it_holds_every_token_for_about_equally_likely(part):
    torch.manual_seed(0)
    model, tokens = part.Llama(65, 64, 4, 4), torch.randint(65, (8, 33))
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(65), abs=0.05)
    assert model.config["intermediate_size"] == 168  # 8/3 of 64, in eights


FACTS = [
    logits_and_gradients_are_those_of_the_books_parts,
    chunks_with_a_cache_are_the_whole,
    no_token_moves_what_came_before_it,
    what_goes_out_comes_back,
    each_text_is_turned_by_its_own_places_and_moving_all_alike_changes_nothing,
    bfloat16_rounds_no_angle,
    angles_are_made_once_a_step,
    the_last_logits_can_be_asked_for_alone,
    one_token_with_a_mask_for_each_head_is_the_same_row_of_several,
    a_checkpoint_may_hold_inverse_frequencies_and_a_tied_table_twice,
    a_model_without_memory_takes_the_weights_of_a_file,
    a_weight_too_few_or_too_many_is_refused,
    older_configurations_say_the_same,
    what_a_configuration_asks_for_and_is_not_here_is_refused,
    what_would_be_misread_in_silence_is_refused,
    untrained_it_holds_every_token_for_about_equally_likely,
]
WRONG = {
    "the other pairing": ("first, second = x.chunk(2, dim=-1)", "first, second = x[..., ::2], x[..., 1::2]"),
    "keys are not turned": ("rotate(query, rotation), rotate(key, rotation)", "rotate(query, rotation), key"),
    "values are turned": ("key, value = cache.update(key, value)", "key, value = cache.update(key, rotate(value, rotation))"),
    "angles in half precision": ('torch.float32 if positions.device.type == "mps" else torch.float64', 'torch.bfloat16'),
    "the triangle's corner at the first key": (".tril(past)", ".tril()"),
    "gate and value exchanged": ("F.silu(self.gate_proj(x)) * self.up_proj(x)", "self.gate_proj(x) * F.silu(self.up_proj(x))"),
    "places restart after a cache": ("torch.arange(past, past + T, device", "torch.arange(T, device"),
    "one text's places for all": ("1).to(wide) * frequencies", "1).to(wide)[:1] * frequencies"),
    "all logits are made": ("self.norm(x[:, -last:])", "self.norm(x)"),
    "the base is not read": ('base = rope.pop("rope_theta", config.get("rope_theta", 10000.0))', 'base = 10000.0; rope.pop("rope_theta", 0)'),
    "heads take turns with the keys that they share": (
        "query = query.unflatten(1, (key.size(1), -1)).flatten(2, 3)",
        "query = query.unflatten(1, (-1, key.size(1))).transpose(1, 2).flatten(2, 3)",
    ),
    "tables part on loading": (
        "assign=self.token.weight.is_meta)\n        if self.config[\"tie_word_embeddings\"]:",
        "assign=self.token.weight.is_meta)\n        if False:",
    ),
    "a width that is guessed": ('given["hidden_dim"] = config["intermediate_size"]', 'given["hidden_dim"] = None'),
    "half a rotation passes": ('"partial_rotary_factor": 1.0,', ""),
}  # fmt: skip

CASES = {
    "llama": Case(
        lambda m, x: m(x), some_texts, lambda: real.Llama(VOCABULARY, 16, 4, 2, num_kv_heads=2)
    )
}
MODULES = {"Llama": lambda: real.Llama(VOCAB, 8, 2, 1, num_kv_heads=1, hidden_dim=12)}
