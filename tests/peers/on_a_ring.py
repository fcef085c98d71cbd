"""What each process of test_ring_attention.py does: `torchrun … -m tests.peers.on_a_ring FOLDER`."""

import json
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

from snippets.ring_attention import Ring, ring_attention, shard_positions

BATCH, HEADS, KV_HEADS, T, HEAD_DIM = 2, 4, 2, 48, 8


def largest(result, wanted):
    return max((a - b).abs().max().item() for a, b in zip(result, wanted, strict=True))


def draw(dtype, kv_heads):
    torch.manual_seed(0)
    query, direction = torch.randn(2, BATCH, HEADS, T, HEAD_DIM, dtype=dtype)
    key, value = torch.randn(2, BATCH, kv_heads, T, HEAD_DIM, dtype=dtype)
    return query, key, value, direction


def ours(is_causal, dtype, kv_heads, group=None):
    """How far the ring is from one device, in outputs and gradients, and how many bytes it sent."""
    ring = Ring(group)
    query, key, value, direction = draw(dtype, kv_heads)
    whole = [part.clone().requires_grad_() for part in (query, key, value)]
    wanted = F.scaled_dot_product_attention(*whole, is_causal=is_causal, enable_gqa=True)
    gradients = torch.autograd.grad(wanted, whole, direction)

    places = shard_positions(T, ring.rank, ring.size)
    own = [part[..., places, :].clone().requires_grad_() for part in (query, key, value)]
    result = ring_attention(*own, ring, is_causal=is_causal)
    forward = ring.bytes_sent
    grads = torch.autograd.grad(result, own, direction[..., places, :])
    return {
        "output": largest([result], [wanted[..., places, :]]),
        "gradients": largest(grads, [part[..., places, :] for part in gradients]),
        "forward": forward,
        "backward": ring.bytes_sent - forward,
    }


def theirs(is_causal):
    """How far our ring is from PyTorch's own, run with the kernel that a processor has."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as private

    private._cp_options.enable_load_balance = is_causal  # the zig-zag
    size, rank = dist.get_world_size(), dist.get_rank()
    query, key, value, direction = draw(torch.float32, HEADS)
    places = shard_positions(T, rank, size)
    own = [part[..., places, :].clone().requires_grad_() for part in (query, key, value)]
    direction = direction[..., places, :].contiguous()
    result = ring_attention(*own, is_causal=is_causal)
    grads = torch.autograd.grad(result, own, direction)

    def forward(q, k, v, is_causal, **_):
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal)

    def backward(*, grad_out, query, key, value, out, logsumexp, is_causal):
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return kernel(grad_out, query, key, value, out, logsumexp, 0.0, is_causal)

    group, own = dist.group.WORLD, [part.detach() for part in own]
    output, lse = private._templated_ring_attention(group, 2, forward, *own, is_causal=is_causal)
    found = private._templated_ring_attention_backward(
        group, 2, backward, direction, "grad_out", *own, output, lse, is_causal
    )
    return {"output": largest([result], [output]), "gradients": largest(grads, found[:3])}


def public_context_parallel():
    """What PyTorch says when its context parallel is asked for on processors."""
    from torch.distributed.tensor.experimental import context_parallel

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parts = list(draw(torch.float32, HEADS)[:3])
    try:
        with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2, 2, 2]):
            F.scaled_dot_product_attention(*parts, is_causal=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "it ran"


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    found = {"rank": dist.get_rank()}
    for is_causal in (True, False):
        for kv_heads in (HEADS, KV_HEADS):
            name = f"causal={is_causal} kv_heads={kv_heads}"
            found[name] = ours(is_causal, torch.float64, kv_heads)
        found[f"theirs causal={is_causal}"] = theirs(is_causal)
    found["public"] = public_context_parallel()
    if dist.get_world_size() == 4:  # two rings side by side, as with several batches
        groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        found["beside"] = ours(True, torch.float64, HEADS, groups[dist.get_rank() % 2])
    Path(sys.argv[1], f"{dist.get_rank()}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
