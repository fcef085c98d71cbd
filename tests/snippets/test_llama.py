"""A Llama is made of the book's parts, hides the future, and takes what Hugging Face's files say."""

import json
import math
import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from snippets import llama as real_llama
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.kv_cache import KVCache
from snippets.llama import Llama, rope_frequencies, rotate
from snippets.rope import RotaryPositions
from tests.snippets.facts import first_to_notice
from tests.snippets.problems import edited

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


def made(module=real_llama, **changes):
    """A small Llama in float64, with weights large enough to matter."""
    torch.manual_seed(0)
    model = module.Llama(**SIZES | {"num_kv_heads": 2, "head_dim": 4} | changes)
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
        attention = GroupedQueryAttention(
            12, 4, **kinds, bias=size["attention_bias"], rotate=rotate
        ).double()
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
    {"attention_bias": True, "mlp_bias": True, "hidden_dim": 5},
    {"tie_weights": True},
    *({"rope_scaling": scaling} for scaling in SCALINGS),
]


# Facts, asked of the module that is given, so that a wrong one can be asked, too.


@torch.no_grad()
def logits_are_those_of_the_books_parts(module):
    for changes in CHANGES:
        if changes.get("embed_dim", 12) == 12:
            model, tokens = made(module, **changes), some_tokens(2, 9)
            assert torch.allclose(model(tokens), reference(model, tokens), rtol=0, atol=1e-10)


@torch.no_grad()
def chunks_with_a_cache_are_the_whole(module):
    model, tokens = made(module), some_tokens(2, 9)
    caches = [KVCache(9) for _ in model.blocks]
    parts = [model(part, caches=caches) for part in tokens.split([4, 1, 3, 1], dim=1)]
    assert torch.allclose(torch.cat(parts, dim=1), model(tokens), rtol=0, atol=1e-10)


@torch.no_grad()
def no_token_moves_what_came_before_it(module):
    model, tokens = made(module), some_tokens(2, 6)
    for place in range(6):
        changed = tokens.clone()
        changed[:, place] = (tokens[:, place] + 1) % VOCAB
        moved = (model(changed) - model(tokens)).abs().amax(dim=(0, 2)) > 1e-9
        assert moved.tolist() == [t >= place for t in range(6)]


@torch.no_grad()
def what_goes_out_comes_back(module):
    for changes in CHANGES:
        model, tokens = made(module, **changes), some_tokens(2, 5)
        other = module.Llama.from_config(json.loads(json.dumps(model.config))).double()
        assert other.config == model.config
        other.load_hugging_face(model.to_hugging_face())
        assert torch.equal(other(tokens), model(tokens))


@torch.no_grad()
def each_text_is_turned_by_its_own_places(module):
    model, tokens = made(module), some_tokens(2, 4)
    places = torch.tensor([[0, 1, 2, 3], [0, 2, 4, 9]])
    apart = [model(tokens[i : i + 1], positions=places[i]) for i in range(2)]
    found = model(tokens, positions=places)
    assert torch.allclose(found, torch.cat(apart), rtol=0, atol=1e-10)
    assert not torch.allclose(found, model(tokens), rtol=0, atol=1e-3)


@torch.no_grad()
def angles_are_made_once_a_step(module):
    class Cosines(TorchDispatchMode):
        made = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.made += function is torch.ops.aten.cos.default
            return function(*args, **kwargs or {})

    for layers in (1, 3):
        with Cosines() as cosines:
            made(module, num_layers=layers)(some_tokens(2, 5))
        assert cosines.made == 1


@torch.no_grad()
def the_last_logits_can_be_asked_for_alone(module):
    model, tokens, made_here = made(module), some_tokens(2, 6), []
    whole = model(tokens)
    model.logits.register_forward_hook(lambda _, __, out: made_here.append(out.shape[1]))
    for last in (1, 3, 6):
        found = model(tokens, last=last)
        assert found.shape == (2, last, VOCAB)
        assert torch.allclose(found, whole[:, -last:], rtol=0, atol=1e-10)
    assert made_here == [1, 3, 6]


FACTS = [
    logits_are_those_of_the_books_parts,
    chunks_with_a_cache_are_the_whole,
    no_token_moves_what_came_before_it,
    what_goes_out_comes_back,
    each_text_is_turned_by_its_own_places,
    angles_are_made_once_a_step,
    the_last_logits_can_be_asked_for_alone,
]


@pytest.mark.parametrize("fact", FACTS)
def test_it_holds_that(fact):
    fact(real_llama)


# what is wrong · old · new · the fact that breaks
WRONG = [
    ("the base is forgotten", "base ** (-2", "10000.0 ** (-2", logits_are_those_of_the_books_parts),
    ("linear scaling multiplies", "frequency / scaling[\"factor\"] for", "frequency * scaling[\"factor\"] for", logits_are_those_of_the_books_parts),
    ("slow pairs are kept", "kept * frequency + (1 - kept)", "(1 - kept) * frequency + kept", logits_are_those_of_the_books_parts),
    ("no ramp", "min(max((rounds - few) / (many - few), 0.0), 1.0)", "float(rounds > few)", logits_are_those_of_the_books_parts),
    ("turned the wrong way", "first * cos - second * sin, second * cos + first * sin", "first * cos + second * sin, second * cos - first * sin", logits_are_those_of_the_books_parts),
    ("the other pairing", "first, second = x.chunk(2, dim=-1)", "first, second = x[..., ::2], x[..., 1::2]", logits_are_those_of_the_books_parts),
    ("keys are not turned", "rotate(query, rotation), rotate(key, rotation)", "rotate(query, rotation), key", logits_are_those_of_the_books_parts),
    ("values are turned", "key, value = cache.update(key, value)", "key, value = cache.update(key, rotate(value, rotation))", chunks_with_a_cache_are_the_whole),
    ("angles in half precision", 'torch.float32 if positions.device.type == "mps" else torch.float64', "torch.bfloat16", logits_are_those_of_the_books_parts),
    ("the future is seen", "is_causal=attn_mask is None and not past", "is_causal=False", no_token_moves_what_came_before_it),
    ("the triangle's corner at the first key", ".tril(past)", ".tril()", chunks_with_a_cache_are_the_whole),
    ("no mask for several after a cache", "if attn_mask is None and past and T > 1", "if False", chunks_with_a_cache_are_the_whole),
    ("gate and value exchanged", "F.silu(self.gate_proj(x)) * self.up_proj(x)", "self.gate_proj(x) * F.silu(self.up_proj(x))", logits_are_those_of_the_books_parts),
    ("another curve", "F.silu(", "F.gelu(", logits_are_those_of_the_books_parts),
    ("the norm comes after", "x + self.attention(self.attention_norm(x), **how)", "self.attention_norm(x + self.attention(x, **how))", logits_are_those_of_the_books_parts),
    ("the residual is forgotten", "return x + self.mlp", "return self.mlp", logits_are_those_of_the_books_parts),
    ("the last norm is forgotten", "self.logits(self.norm(x[:, -last:]))", "self.logits(x[:, -last:])", logits_are_those_of_the_books_parts),
    ("places restart after a cache", "torch.arange(past, past + tokens.size(1), device", "torch.arange(tokens.size(1), device", chunks_with_a_cache_are_the_whole),
    ("one text's places for all", "angle.view(-1, 1, *angle.shape[-2:])", "angle.view(-1, 1, *angle.shape[-2:])[:1]", each_text_is_turned_by_its_own_places),
    ("angles are made in each layer", "rotation=rotation, attn", "rotation=self.rotation(positions), attn", angles_are_made_once_a_step),
    ("all logits are made", "self.norm(x[:, -last:])", "self.norm(x)", the_last_logits_can_be_asked_for_alone),
    ("one logit too many is made", "x[:, -last:]", "x[:, -last - 1 :]", the_last_logits_can_be_asked_for_alone),
    ("norm_eps is forgotten", "self.mlp_norm = nn.RMSNorm(embed_dim, eps=norm_eps)", "self.mlp_norm = nn.RMSNorm(embed_dim, eps=1e-6)", logits_are_those_of_the_books_parts),
    ("the base is not read", 'base = rope.pop("rope_theta", config.get("rope_theta", 10000.0))', 'base = 10000.0; rope.pop("rope_theta", 0)', what_goes_out_comes_back),
    ("the heads of the keys are not read", 'config.get("num_key_value_heads")', "None", what_goes_out_comes_back),
    ("the width of a head is not read", 'config.get("head_dim")', "None", what_goes_out_comes_back),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "fact"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_version_is_caught(old, new, fact):
    wrong = edited("llama", (old, new))
    assert first_to_notice([fact], wrong)


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


@torch.no_grad()
def test_a_checkpoint_may_hold_inverse_frequencies_and_a_tied_table_twice():
    model = made(tie_weights=True)
    weights = model.to_hugging_face()
    assert "lm_head.weight" not in weights
    weights |= {"lm_head.weight": weights["model.embed_tokens.weight"]}
    weights |= {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    other = made(tie_weights=True)
    nn.init.zeros_(other.token.weight)
    other.load_hugging_face(weights)
    assert torch.equal(other.token.weight, model.token.weight)
    assert other.logits.weight is other.token.weight


def keep(*shape):
    return torch.ones(shape, dtype=torch.bool)


ids = some_tokens(2, 3)
CONFIG = made().config
BAD = [
    *((lambda n=name: Llama(**SIZES | {n: 0}), name, "0") for name in SIZES),
    (lambda: made(num_kv_heads=3), "num_kv_heads", "num_kv_heads=3, num_heads=4"),
    (lambda: made(head_dim=None, embed_dim=10), "num_heads", "num_heads=4, embed_dim=10"),
    (lambda: made(head_dim=3), "head_dim", "3"),
    (lambda: made(hidden_dim=0), "hidden_dim", "0"),
    (lambda: made(rope_scaling={"rope_type": "yarn"}), "rope_scaling", "'yarn'"),
    (lambda: Llama.from_config(CONFIG | {"model_type": "gemma"}), "model_type", "'gemma'"),
    (lambda: Llama.from_config(CONFIG | {"hidden_act": "gelu"}), "hidden_act", "'gelu'"),
    (lambda: made()(ids.double()), "tokens", "torch.float64"),
    (lambda: made()(ids[0]), "tokens", "(3,)"),
    (lambda: made()(ids, caches=[KVCache(3)]), "caches", "1, 1 different"),
    (lambda: made()(ids, caches=[]), "caches", "0, 0 different"),
    (lambda: made()(ids, caches=[KVCache(3) for _ in range(3)]), "caches", "3, 3 different"),
    (lambda: made()(ids, caches=[KVCache(3)] * 2), "caches", "2, 1 different"),
    (lambda: made()(ids, last=-1), "last", "-1"),
    (lambda: made()(ids, last=None), "last", "None"),
    (lambda: made()(ids, positions=[0, 1, 2]), "positions", "[0, 1, 2]"),
    (lambda: made()(ids, positions=torch.arange(3.0)), "positions", "torch.float32"),
    (lambda: made()(ids, positions=torch.arange(4)), "positions", "(4,)"),
    (lambda: made()(ids, positions=torch.zeros(3, 3).long()), "positions", "(3, 3)"),
    (lambda: made()(ids, attn_mask="causal"), "attn_mask", "'causal'"),
    (lambda: made()(ids, attn_mask=torch.zeros(3, 3)), "attn_mask", "torch.float32"),
    (lambda: made()(ids, attn_mask=keep(3, 4)), "attn_mask", "(3, 4)"),
    (lambda: made()(ids, attn_mask=keep(3)), "attn_mask", "(3,)"),
    (lambda: made()(ids, attn_mask=keep(2, 3, 3)), "attn_mask", "(2, 3, 3)"),
    (lambda: made()(some_tokens(4, 3), attn_mask=keep(4, 3, 3)), "attn_mask", "(4, 3, 3)"),
    (lambda: made(rope_scaling={"rope_type": "linear"}), "rope_scaling", "[]"),
    (
        lambda: made(rope_scaling={"rope_type": "default", "rope_theta": 500.0}),
        "rope_scaling",
        "['rope_theta']",
    ),
    (lambda: Llama.from_config(SimpleNamespace(**CONFIG)), "config", "SimpleNamespace"),
    (lambda: Llama.from_config({"hidden_size": 12}), "config", "['hidden_size']"),
    (lambda: Llama.from_config(CONFIG | {"sliding_window": 4096}), "sliding_window", "4096"),
    (
        lambda: Llama.from_config(CONFIG | {"partial_rotary_factor": 0.5}),
        "partial_rotary_factor",
        "0.5",
    ),
    (
        lambda: Llama.from_config(CONFIG | {"quantization_config": {"bits": 4}}),
        "quantization_config",
        "{'bits': 4}",
    ),
]


@pytest.mark.parametrize(("do", "name", "got"), BAD)
def test_a_bad_argument_is_named_with_what_came(do, name, got):
    with pytest.raises(ValueError, match=rf"^{name} must .*got .*{re.escape(got)}"):
        do()


def test_weights_that_are_missing_or_unknown_are_named():
    model = made()
    weights = model.to_hugging_face()
    del weights["model.norm.weight"]
    weights["model.layers.7.mlp.up_proj.weight"] = torch.ones(1)
    with pytest.raises(
        ValueError, match=r"missing \['model.norm.weight'\].*unknown \['model.layers.7"
    ):
        model.load_hugging_face(weights)


def test_a_configuration_that_turns_part_of_a_head_is_refused():
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    with pytest.raises(
        ValueError, match=r"^partial_rotary_factor must be 1\.0 or left out, got 0\.5"
    ):
        Llama.from_config(CONFIG | {"rope_parameters": rope})


def test_what_a_configuration_leaves_empty_is_not_asked_for():
    empty = {"sliding_window": None, "quantization_config": None, "partial_rotary_factor": 1.0}
    assert Llama.from_config(CONFIG | empty).config == CONFIG


@torch.no_grad()
@pytest.mark.parametrize("shape", [(5, 5), (1, 5, 5), (1, 1, 5, 5), (2, 1, 5, 5), (2, 4, 5, 5)])
def test_a_mask_of_two_or_four_dimensions_is_obeyed(shape):
    model, tokens = made(), some_tokens(2, 5)
    window = keep(5, 5).tril().triu(-1)
    if len(shape) == 3:
        with pytest.raises(ValueError, match=r"one mask per text mask\[:, None\]"):
            model(tokens, attn_mask=window.expand(shape))
        return
    found = model(tokens, attn_mask=window.expand(shape))
    changed = tokens.clone()
    changed[:, 0] = (tokens[:, 0] + 1) % VOCAB
    moved = (model(changed, attn_mask=window.expand(shape)) - found).abs().amax(dim=(0, 2)) > 1e-9
    assert moved.tolist() == [True, True, True, False, False]  # one place back in each of 2 layers


@torch.no_grad()
def test_a_pass_that_failed_half_way_is_not_gone_on_with():
    model, tokens = made(), some_tokens(2, 5)
    caches = [KVCache(9), KVCache(4)]
    with pytest.raises(ValueError, match=r"^keys must fit"):
        model(tokens, caches=caches)
    with pytest.raises(
        ValueError, match=r"^caches must hold the same .*lengths \[5, 0\].*truncate all to 0$"
    ):
        model(tokens[:, :2], caches=caches)
    caches[0].truncate(0)
    found = model(tokens[:, :2], caches=caches)
    assert torch.allclose(found, model(tokens[:, :2]), rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_mask_that_is_refused_leaves_the_caches_as_they_were():
    model, caches = made(), [KVCache(9) for _ in range(2)]
    with pytest.raises(ValueError, match=r"^attn_mask must"):
        model(ids, attn_mask=keep(3, 4), caches=caches)
    assert [cache.length for cache in caches] == [0, 0]


@torch.no_grad()
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_without_memory_takes_the_weights_of_a_file(tied):
    model, tokens = made(tie_weights=tied), some_tokens(2, 5)
    with torch.device("meta"):
        empty = Llama.from_config(model.config)
    empty.load_hugging_face(model.to_hugging_face())
    assert {parameter.device.type for parameter in empty.parameters()} == {"cpu"}
    assert (empty.logits.weight is empty.token.weight) == tied
    assert torch.equal(empty(tokens), model(tokens))


def test_weights_that_are_tied_stay_so_when_a_model_gets_memory():
    with torch.device("meta"):
        empty = made(tie_weights=True)
    model = empty.to_empty(device="cpu")
    assert model.logits.weight is model.token.weight
    assert not any(parameter.is_meta for parameter in model.parameters())


@pytest.mark.lab
@torch.no_grad()
def test_exported_once_it_serves_every_length():
    model, T = made(), torch.export.Dim("T", min=2)
    for sizes in ({1: T}, {0: torch.export.Dim("batch", min=2), 1: T}):
        shapes = {"tokens": sizes}
        exported = torch.export.export(model, (some_tokens(2, 5),), dynamic_shapes=shapes).module()
        for shape in ((2, 2), (2, 5), (3 if 0 in sizes else 2, 9)):
            tokens = some_tokens(*shape)
            assert torch.allclose(exported(tokens), model(tokens), rtol=0, atol=1e-10)
