"""What each process of test_ring_attention.py does: `torchrun … -m tests.peers.on_a_ring FOLDER`."""

import json
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

from snippets.ring_attention import Ring, ring_attention, shard_positions

BATCH, HEADS, KV_HEADS, T, HEAD_DIM = 2, 4, 2, 48, 8


def inputs(dtype, kv_heads):
    torch.manual_seed(0)
    query, direction = torch.randn(2, BATCH, HEADS, T, HEAD_DIM, dtype=dtype)
    key, value = torch.randn(2, BATCH, kv_heads, T, HEAD_DIM, dtype=dtype)
    return [query, key, value], direction


def difference(results, expected):
    """The largest difference in an output, (output, gradients …), and in a gradient."""
    found = [(a - b).abs().max().item() for a, b in zip(results, expected, strict=True)]
    return {"output": found[0], "gradients": max(found[1:])}


def beside_one_device(is_causal, kv_heads, group=None):
    """How far the ring is from one device, and how many bytes it sent."""
    ring, (whole, direction) = Ring(group), inputs(torch.float64, kv_heads)
    places = shard_positions(T, ring.rank, ring.size)
    own = [part[..., places, :].clone().requires_grad_() for part in whole]
    whole = [part.requires_grad_() for part in whole]
    expected = F.scaled_dot_product_attention(*whole, is_causal=is_causal, enable_gqa=True)
    gradients = torch.autograd.grad(expected, whole, direction)
    result = ring_attention(*own, ring, is_causal=is_causal)
    forward = ring.bytes_sent
    results = [result, *torch.autograd.grad(result, own, direction[..., places, :])]
    expected = [part[..., places, :] for part in (expected, *gradients)]
    sent = {"forward": forward, "backward": ring.bytes_sent - forward}
    return difference(results, expected) | sent


def beside_the_ring_of_pytorch(is_causal):
    """How far our ring is from PyTorch's own, run with the kernel that a processor has."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as private

    private._cp_options.enable_load_balance = is_causal  # the zig-zag
    whole, direction = inputs(torch.float32, HEADS)
    places = shard_positions(T, dist.get_rank(), dist.get_world_size())
    own = [part[..., places, :].clone().requires_grad_() for part in whole]
    direction = direction[..., places, :].contiguous()
    result = ring_attention(*own, is_causal=is_causal)
    results = [result, *torch.autograd.grad(result, own, direction)]
    aten = torch.ops.aten

    def forward(q, k, v, is_causal, **_):
        return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal)

    def backward(*, grad_out, query, key, value, out, logsumexp, is_causal):
        kernel = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return kernel(grad_out, query, key, value, out, logsumexp, 0.0, is_causal)

    group, own = dist.group.WORLD, [part.detach() for part in own]
    output, lse = private._templated_ring_attention(group, 2, forward, *own, is_causal=is_causal)
    gradients = private._templated_ring_attention_backward(
        group, 2, backward, direction, "grad_out", *own, output, lse, is_causal
    )
    return difference(results, [output, *gradients[:3]])


def public_context_parallel():
    """What PyTorch says when its context parallel is asked for on processors."""
    mesh, (whole, _) = (
        init_device_mesh("cpu", (dist.get_world_size(),)),
        inputs(torch.float32, HEADS),
    )
    try:
        with context_parallel(mesh, buffers=whole, buffer_seq_dims=[2, 2, 2]):
            F.scaled_dot_product_attention(*whole, is_causal=True)
    except Exception as error:
        return str(error)
    return "it ran"


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    found = {}
    for is_causal in (True, False):
        for kv_heads in (HEADS, KV_HEADS):
            name = f"causal={is_causal} kv_heads={kv_heads}"
            found[name] = beside_one_device(is_causal, kv_heads)
        found[f"PyTorch causal={is_causal}"] = beside_the_ring_of_pytorch(is_causal)
    found["public"] = public_context_parallel()
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]  # two rings side by side
    found["beside"] = beside_one_device(True, HEADS, groups[dist.get_rank() % 2])
    Path(sys.argv[1], f"{dist.get_rank()}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
