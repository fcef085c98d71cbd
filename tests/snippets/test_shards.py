"""A layer split over two processes by torch.distributed.tensor.parallel is the whole layer."""

import os
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing, nn

from tests.snippets.problems import Implementation

RANKS = 2


def on_each_rank(rank: int, folder: str) -> None:
    """Build the layer whole and split, on the same numbers, and store what both give."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    warnings.simplefilter("ignore")
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank)}
    store = dist.FileStore(str(Path(folder, "store")), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    found = {}
    for name, options in {"heads": {}, "shared heads": {"num_kv_heads": 2, "value_dim": 8}}.items():
        torch.manual_seed(0)
        layer = Implementation().multi_head_attention.MultiHeadAttention(16, 4, **options).double()
        x = torch.randn(2, 5, 16, dtype=torch.float64)
        keep = torch.rand(2, 1, 1, 5) < 0.7
        wanted = gradients(layer, x, keep)
        plan = {part: ColwiseParallel() for part in ("W_query", "W_key", "W_value")}
        split = parallelize_module(layer, mesh, plan | {"out_proj": RowwiseParallel()})
        assert split.W_query.weight.to_local().size(0) == 8  # two heads of the four
        found[name] = (wanted, gradients(split, x, keep))
    if rank == 0:
        torch.save(found, Path(folder, "found.pt"))
    dist.barrier()
    dist.destroy_process_group()


def gradients(layer: nn.Module, x: torch.Tensor, keep: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the output and the gradient of each parameter, each of them whole."""
    layer.zero_grad()
    output = layer(x, attn_mask=keep, is_causal=True)
    output.square().sum().backward()
    found = {name: parameter.grad for name, parameter in layer.named_parameters()}
    found["output"] = output.detach()
    # What came from several processes is gathered, and waited for by reckoning with it.
    return {
        name: (it.full_tensor() if hasattr(it, "full_tensor") else it) * 1.0
        for name, it in found.items()
    }


@pytest.mark.lab
def test_two_processes_give_what_one_gives(tmp_path):
    multiprocessing.spawn(on_each_rank, args=(str(tmp_path),), nprocs=RANKS)
    for name, (wanted, result) in torch.load(tmp_path / "found.pt", weights_only=True).items():
        assert wanted.keys() == result.keys()
        for part in wanted:
            torch.testing.assert_close(
                result[part], wanted[part], rtol=0, atol=1e-10, msg=f"{name}: {part}"
            )
