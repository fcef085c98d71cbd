"""Images are read as in transformers: the rotation of Qwen2.5-VL and Pixtral, Qwen2.5-VL's windows, Pixtral's patches."""

import pytest
import torch

from snippets.image_attention import (
    RotaryPositions2D,
    grid_positions,
    to_patches,
    window_attention,
)

pytest.importorskip("transformers")

from transformers import PixtralVisionConfig
from transformers.models.pixtral import modeling_pixtral as pixtral
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig


def config_of_qwen(**options):
    sizes = {"depth": 1, "hidden_size": 48, "num_heads": 3, "patch_size": 14}
    return Qwen2_5_VLVisionConfig(**sizes | {"attn_implementation": "eager"} | options)


def config_of_pixtral():
    return PixtralVisionConfig(
        hidden_size=48, num_attention_heads=3, num_hidden_layers=1, image_size=40, patch_size=4
    )


def queries_and_keys(tokens):
    return torch.randn(2, 1, 3, tokens, 16, generator=torch.Generator().manual_seed(0))


def test_equal_to_the_rotation_of_qwen():
    query, key = queries_and_keys(35)
    places = grid_positions(5, 7)
    cos, sin = qwen.Qwen2_5_VLVisionRotaryEmbedding(config_of_qwen())(query, places)
    wanted = qwen.apply_rotary_pos_emb_vision(
        query[0].transpose(0, 1), key[0].transpose(0, 1), cos, sin
    )
    rotate = RotaryPositions2D(16)
    for x, want in zip((query, key), wanted, strict=True):
        assert torch.allclose(rotate(x, places)[0], want.transpose(0, 1), rtol=0, atol=1e-5)


def test_equal_to_the_rotation_of_pixtral_whose_frequencies_alternate():
    query, key = queries_and_keys(35)
    places = grid_positions(5, 7)
    cos, sin = pixtral.PixtralVisionRotaryEmbedding(config_of_pixtral())(query, places)
    wanted = pixtral.apply_rotary_pos_emb(query, key, cos, sin, unsqueeze_dim=0)
    rotate = RotaryPositions2D(16, alternate=True)
    for x, want in zip((query, key), wanted, strict=True):
        assert torch.allclose(rotate(x, places), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (6, 10), (10, 4)])
@torch.no_grad()
def test_equal_to_the_windows_of_qwen(rows, columns):
    """Its windows hold whole groups of 2 · 2 patches, which are merged later; here a window has 4 · 4."""
    torch.manual_seed(0)
    config = config_of_qwen(window_size=56)
    theirs = qwen.Qwen2_5_VLVisionAttention(config).eval()
    x = torch.randn(rows * columns, 48)
    grid = torch.tensor([[1, rows, columns]])
    places = qwen.get_vision_position_ids(grid, 2)  # group by group
    index, ends = qwen.get_vision_window_index(
        grid, spatial_merge_size=2, window_size=56, patch_size=14
    )
    order = torch.arange(rows * columns).unflatten(0, (-1, 4))[index].flatten()
    token = places[:, 0] * columns + places[:, 1]  # which patch of ours stands where in theirs
    token, places = token[order], places[order]
    angles = qwen.Qwen2_5_VLVisionRotaryEmbedding(config)(x, places)
    wanted = theirs(x[token], cu_seqlens=ends.unique_consecutive(), position_embeddings=angles)

    rotate, here = RotaryPositions2D(16), grid_positions(rows, columns)
    query, key, value = theirs.qkv(x).unflatten(-1, (3, 3, 16)).permute(1, 2, 0, 3)
    read = window_attention(rotate(query, here), rotate(key, here), value, rows, columns, 4)
    result = theirs.proj(read.transpose(0, 1).flatten(1))
    assert torch.allclose(result[token], wanted, rtol=0, atol=1e-5)


@torch.no_grad()
def test_patches_times_a_matrix_are_pixtrals():
    torch.manual_seed(0)
    theirs = pixtral.PixtralVisionModel(config_of_pixtral())
    image = torch.randn(2, 3, 20, 28)
    wanted = theirs.patch_conv(image).flatten(2).mT
    result = to_patches(image, 4) @ theirs.patch_conv.weight.flatten(1).T
    assert torch.allclose(result, wanted, rtol=0, atol=1e-5)
