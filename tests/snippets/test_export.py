"""Every module of the parts compiles and exports once, and then serves every length."""

import importlib

import pytest
import torch

from snippets.attention_masks import keep_window
from snippets.attention_of import Windowed
from snippets.causal_self_attention import CausalSelfAttention
from snippets.cross_attention import CrossAttention
from snippets.gated_attention import GatedAttention
from snippets.gated_memory import GatedDeltaNet
from snippets.gpt import GPT
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.image_attention import RotaryPositions2D
from snippets.latent_attention import LatentAttention
from snippets.llama import Llama
from snippets.multi_head_attention import MultiHeadAttention
from snippets.positions import LearnedPositions
from snippets.rope import RotaryPositions
from snippets.self_attention import SelfAttention
from snippets.sparse_attention import Indexer
from tests.snippets.facts import assert_equal
from tests.snippets.problems import SNIPPETS

VOCABULARY = 11
LATENT = {"latent_dim": 6, "head_dim": 4, "rope_dim": 2}
MODULES = {
    "SelfAttention": lambda: SelfAttention(8, 4),
    "CausalSelfAttention": lambda: CausalSelfAttention(8, 4),
    "CrossAttention": lambda: CrossAttention(8, 8, 4),
    "MultiHeadAttention": lambda: Causal(MultiHeadAttention(8, 4, num_kv_heads=2)),
    "GroupedQueryAttention": lambda: GroupedQueryAttention(
        8, 4, num_kv_heads=2, head_dim=2, rotate=RotaryPositions(2)
    ),
    "GatedAttention": lambda: GatedAttention(
        8, 4, num_kv_heads=2, head_dim=2, rotate=RotaryPositions(2)
    ),
    "Windowed": lambda: Windowed(GroupedQueryAttention(8, 4, num_kv_heads=2), 3, keep_window),
    "LatentAttention": lambda: LatentAttention(8, 2, **LATENT, rotate=RotaryPositions(2)),
    # A latent so narrow that absorbing is the cheaper way for a whole prompt, too.
    "LatentAttention, absorbed": lambda: LatentAttention(8, 2, latent_dim=1, head_dim=4),
    "Indexer": lambda: Indexer(8, 3, 4, k=2, rope_dim=2, rotate=RotaryPositions(2)),
    "RotaryPositions2D": lambda: OnTheDiagonal(RotaryPositions2D(8)),
    "LearnedPositions": lambda: LearnedPositions(32, 8),
    "GPT": lambda: GPT(VOCABULARY, 32, 8, 2, 1).eval(),
    "Llama": lambda: Llama(VOCABULARY, 8, 2, 1, num_kv_heads=1, hidden_dim=12),
}


class Causal(torch.nn.Module):
    """A layer that hides the future when it is asked to, asked to."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, is_causal=True)


class OnTheDiagonal(torch.nn.Module):
    """A rotation in two dimensions, where token t stands in row t and column t."""

    def __init__(self, rotate):
        super().__init__()
        self.rotate = rotate

    def forward(self, x):
        return self.rotate(x, torch.arange(x.size(1))[:, None].expand(-1, 2))


def example(name, T):
    """Return a module's inputs of T tokens."""
    torch.manual_seed(T)
    if name in ("GPT", "Llama"):
        return (torch.randint(VOCABULARY, (2, T)),)
    x = torch.randn(2, T, 8)
    return (x, x.flip(1)) if name == "CrossAttention" else (x,)


def drawn(name):
    """Return a module with weights of its own."""
    torch.manual_seed(0)
    return MODULES[name]()


def test_every_module_of_the_files_is_among_them_or_within_one():
    found = set()
    for path in SNIPPETS.glob("*.py"):
        file = importlib.import_module(f"snippets.{path.stem}")
        found |= {
            thing
            for thing in vars(file).values()
            if isinstance(thing, type)
            and issubclass(thing, torch.nn.Module)
            and thing.__module__ == file.__name__
        }
    asked = {type(part) for name in MODULES for part in drawn(name).modules()}
    assert found - asked == {GatedDeltaNet}  # a loop has a turn for each of its chunks


@pytest.mark.parametrize("name", MODULES)
@torch.no_grad()
def test_exported_once_it_serves_every_length(name):
    module, inputs = drawn(name), example(name, 5)
    T = torch.export.Dim("T", min=2, max=32)
    exported = torch.export.export(module, inputs, dynamic_shapes=tuple({1: T} for _ in inputs))
    for length in (2, 5, 9, 32):
        inputs = example(name, length)
        assert_equal(f"{length} tokens", exported.module()(*inputs), module(*inputs), torch.float32)


@pytest.mark.lab
@pytest.mark.parametrize("name", MODULES)
@torch.no_grad()
def test_compiled_once_it_serves_every_length(name):
    module = drawn(name)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="eager", fullgraph=True, dynamic=True)
    for length in (5, 9, 32):
        inputs = example(name, length)
        with torch.compiler.set_stance("default" if length == 5 else "fail_on_recompile"):
            result = compiled(*inputs)
        assert_equal(f"{length} tokens", result, module(*inputs), torch.float32)
