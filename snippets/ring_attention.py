"""Ring attention: one sequence on several devices, each with its own part of the tokens.

With b bytes of keys and as many of values each device sends 2 (size - 1) b forward; backward as
much, and 2 · size · b of gradients. Scores are made block by block, and anew on the way back.
Sources: Liu et al. (2023), "Ring Attention with Blockwise Transformers", section 3; Milakov and
Gimelshein (2018), "Online normalizer calculation for softmax", section 3.1; Brandon et al. (2023),
"Striped Attention"; the zig-zag is that of the public code of ring-flash-attention.
"""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor


class Ring:
    """Processes in a circle. Anything with rank, size and pass_on will do in its place."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group, self.bytes_sent = group, 0
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        self.next, self.before = (members[(self.rank + i) % self.size] for i in (1, -1))

    def pass_on(self, *tensors: Tensor) -> Callable[[], list[Tensor]]:
        """Begin to send them to the next one; return a function that waits for what comes."""
        sent = [x.contiguous() for x in tensors]
        came = [torch.empty_like(x) for x in sent]
        ways = [(dist.isend, x, self.next) for x in sent]
        ways += [(dist.irecv, x, self.before) for x in came]
        works = dist.batch_isend_irecv([dist.P2POp(*way, self.group) for way in ways])
        self.bytes_sent += sum(x.numel() * x.element_size() for x in sent)

        def arrived() -> list[Tensor]:
            """Wait for what the one before sent; it has the same shapes."""
            for work in works:
                work.wait()
            sent.clear()  # kept until now, for it was still being read
            return came

        return arrived


def shard_positions(tokens: int, rank: int, size: int, *, device=None) -> Tensor:
    """Return the positions of the tokens that a device holds, (tokens / size,), in a zig-zag."""
    if tokens % (2 * size):
        raise ValueError(f"tokens must be a multiple of {2 * size}, two pieces each: got {tokens}")
    pieces = torch.arange(tokens, device=device).view(2 * size, -1)
    # One from the front and one from the back: under a causal mask all have equally much to do.
    return torch.cat([pieces[rank], pieces[-1 - rank]])


def ring_attention(query, key, value, ring=None, *, is_causal=True, scale=None) -> Tensor:
    """Return what F.scaled_dot_product_attention gives these queries over the keys of all devices.

    query is (..., num_heads, T / size, head_dim), cut by shard_positions, key and value (...,
    num_kv_heads, T / size, channels). Each device has equally many, and calls backward, too.
    """
    tokens = [x.size(-2) for x in (query, key, value)]
    if len({*tokens}) > 1 or (is_causal and tokens[0] % 2):
        raise ValueError(f"query, key and value must hold two equal pieces, got {tokens} tokens")
    scale = query.size(-1) ** -0.5 if scale is None else scale
    query = query.unflatten(-3, (key.size(-3), -1)) * scale  # (..., kv_heads, heads to each, T, …)
    parts, device = (query, key.unsqueeze(-3), value.unsqueeze(-3)), query.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)  # cast before they are sent
        parts = [x if x.dtype == torch.float64 else x.to(dtype) for x in parts]
    return RingAttention.apply(*parts, ring or Ring(), is_causal).flatten(-4, -3)


class RingAttention(torch.autograd.Function):
    """Keys and values go once round; in the backward pass again, and their gradients with them."""

    @staticmethod
    def forward(ctx, query, key, value, ring, is_causal) -> Tensor:
        """Return the context vectors of this device's queries."""
        wide = torch.promote_types(query.dtype, torch.float32)
        output = query.new_zeros((*query.shape[:-1], value.size(-1)), dtype=wide)
        lse = query.new_full((*query.shape[:-1], 1), -torch.inf, dtype=wide)
        for rows, diagonal, k, v in go_round(ring, is_causal, [key, value], []):
            scores, before = _scores(query[..., rows, :], k, diagonal), lse[..., rows, :]
            after = before.logaddexp(scores.logsumexp(dim=-1, keepdim=True))  # the online softmax
            new = (scores - after).exp().to(v.dtype) @ v
            output[..., rows, :] = output[..., rows, :] * (before - after).exp() + new
            lse[..., rows, :] = after
        output = output.to(query.dtype)
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.ring, ctx.is_causal = ring, is_causal
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_output) -> tuple[Tensor | None, ...]:
        """Return the gradients of this device's queries, keys and values."""
        query, key, value, output, lse = ctx.saved_tensors
        row_sum = (d_output.to(lse.dtype) * output).sum(dim=-1, keepdim=True)
        d_query, *sums = (torch.zeros_like(x, dtype=lse.dtype) for x in (query, key, value))
        for rows, diagonal, k, v, d_k, d_v in go_round(ctx.ring, ctx.is_causal, [key, value], sums):
            q, d_out = query[..., rows, :], d_output[..., rows, :]
            weights = (_scores(q, k, diagonal) - lse[..., rows, :]).exp()
            d_scores = (weights * (d_out @ v.mT - row_sum[..., rows, :])).to(q.dtype)
            d_query[..., rows, :] += d_scores @ k
            d_k += (d_scores.mT @ q).sum_to_size(k.shape)  # heads that share keys add up
            d_v += (weights.to(v.dtype).mT @ d_out).sum_to_size(v.shape)
        return *(x.to(query.dtype) for x in (d_query, *sums)), None, None


def go_round(ring, is_causal, parts: list[Tensor], sums: list[Tensor]) -> Iterator[tuple]:
    """Yield rows, whether on the diagonal, and what each of parts and sums has for these keys."""
    last, T = 2 * ring.size - 1, parts[0].size(-2)
    halves = slice(0, T // 2), slice(T // 2, T)
    for step in range(ring.size):
        arrived = ring.pass_on(*parts) if step < ring.size - 1 else list
        sender = (ring.rank - step) % ring.size  # whose keys have come after so many steps
        for own, rows in zip((ring.rank, last - ring.rank), halves, strict=True):
            for other, seen in zip((sender, last - sender), halves, strict=True):
                if other <= own or not is_causal:  # a later piece is all future
                    yield rows, is_causal and other == own, *(x[..., seen, :] for x in parts + sums)
        parts = [*arrived()]
        # What the caller adds to belongs to the keys, and follows them; the last step is home.
        sums[:] = ring.pass_on(*sums)() if sums and ring.size > 1 else sums


def _scores(q, k, diagonal) -> Tensor:
    scores = (q @ k.mT).to(torch.promote_types(q.dtype, torch.float32))
    if diagonal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    return scores
