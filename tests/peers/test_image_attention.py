"""Images are read as in transformers: the rotation of Qwen2.5-VL and Pixtral, Qwen2.5-VL's windows, Pixtral's patches."""

import pytest
import torch

from snippets.image_attention import RotaryPositions2D, grid_positions, to_patches, window_attention

pytest.importorskip("transformers")

from transformers import PixtralVisionConfig
from transformers.models.pixtral import modeling_pixtral as pixtral
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig

QWEN = Qwen2_5_VLVisionConfig(
    depth=1, hidden_size=48, num_heads=3, patch_size=14, window_size=56, attn_implementation="eager"
)
PIXTRAL = PixtralVisionConfig(
    hidden_size=48, num_attention_heads=3, num_hidden_layers=1, image_size=40, patch_size=4
)


def assert_near(result, expected):
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5)


def test_rotations_are_those_of_qwen_and_of_pixtral_whose_frequencies_alternate():
    x, places = (
        torch.randn(3, 35, 16, generator=torch.Generator().manual_seed(0)),
        grid_positions(5, 7),
    )
    angles = qwen.Qwen2_5_VLVisionRotaryEmbedding(QWEN)(x, places)
    turned, _ = qwen.apply_rotary_pos_emb_vision(x.transpose(0, 1), x.transpose(0, 1), *angles)
    assert_near(RotaryPositions2D(16)(x, places), turned.transpose(0, 1))
    angles = pixtral.PixtralVisionRotaryEmbedding(PIXTRAL)(x, places)
    turned, _ = pixtral.apply_rotary_pos_emb(x, x, *angles, unsqueeze_dim=0)
    assert_near(RotaryPositions2D(16, alternate=True)(x, places), turned)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (10, 4)])
@torch.no_grad()
def test_windows_are_those_of_qwen(rows, columns):
    """Its windows hold whole groups of 2 · 2 patches, which are merged later; here a window has 4 · 4."""
    torch.manual_seed(0)
    theirs, x = qwen.Qwen2_5_VLVisionAttention(QWEN).eval(), torch.randn(rows * columns, 48)
    grid = torch.tensor([[1, rows, columns]])
    places = qwen.get_vision_position_ids(grid, 2)  # group by group
    index, ends = qwen.get_vision_window_index(
        grid, spatial_merge_size=2, window_size=56, patch_size=14
    )
    order = torch.arange(rows * columns).unflatten(0, (-1, 4))[index].flatten()
    places = places[order]
    token = places[:, 0] * columns + places[:, 1]  # which patch of ours stands where in theirs
    angles = qwen.Qwen2_5_VLVisionRotaryEmbedding(QWEN)(x, places)
    expected = theirs(x[token], cu_seqlens=ends.unique_consecutive(), position_embeddings=angles)

    rotate, here = RotaryPositions2D(16), grid_positions(rows, columns)
    query, key, value = theirs.qkv(x).unflatten(-1, (3, 3, 16)).permute(1, 2, 0, 3)
    read = window_attention(rotate(query, here), rotate(key, here), value, rows, columns, 4)
    assert_near(theirs.proj(read.transpose(0, 1).flatten(1))[token], expected)


@torch.no_grad()
def test_patches_times_a_matrix_are_those_of_pixtral():
    torch.manual_seed(0)
    patch = pixtral.PixtralVisionModel(PIXTRAL).patch_conv
    image = torch.randn(2, 3, 20, 28)
    assert_near(to_patches(image, 4) @ patch.weight.flatten(1).T, patch(image).flatten(2).mT)
