"""Ring attention: one sequence on several devices, each with its own part of the tokens.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: Liu, Zaharia and Abbeel (2023), "Ring Attention with Blockwise Transformers for
Near-Infinite Context", section 3 (keys and values go round while each device computes); Milakov and
Gimelshein (2018), "Online normalizer calculation for softmax", section 3.1 (partial results
merged); Brandon et al. (2023), "Striped Attention" (a causal mask leaves devices idle, and another
cut mends it). The zig-zag is that of the public code of ring-flash-attention.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


class Ring:
    """The processes of a group in a circle: each sends to the next and takes from the one before.

    Anything with rank, size and pass_on will do in its place.

    Args:
        group: a group of torch.distributed; None means all processes.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group, self.bytes_sent = group, 0
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        self._next = members[(self.rank + 1) % self.size]
        self._before = members[(self.rank - 1) % self.size]

    def pass_on(self, *tensors: Tensor) -> Callable[[], list[Tensor]]:
        """Begin to send; return a function that waits for what comes, of the same shapes.

        What arrives is taken in the order in which it was sent: wait in the order of the calls.
        """
        if self.size == 1:
            return lambda: list(tensors)
        sent = [tensor.contiguous() for tensor in tensors]
        came = [torch.empty_like(tensor) for tensor in sent]
        sends = [dist.P2POp(dist.isend, tensor, self._next, self.group) for tensor in sent]
        takes = [dist.P2POp(dist.irecv, tensor, self._before, self.group) for tensor in came]
        works = dist.batch_isend_irecv(sends + takes)
        self.bytes_sent += sum(tensor.numel() * tensor.element_size() for tensor in sent)

        def arrived() -> list[Tensor]:
            for work in works:
                work.wait()
            sent.clear()  # kept until now, for it was still being read
            return came

        return arrived


def shard_positions(tokens: int, rank: int, size: int, *, zigzag: bool = True) -> Tensor:
    """Return the places of the tokens that device `rank` of `size` holds, (tokens / size,).

    What is cut must be cut by them, x[..., shard_positions(T, rank, size), :], and so must whatever
    knows the place of a token: rotary angles, learned positions, the targets of the loss.

    Args:
        tokens: length T of the whole sequence; divides by 2 · size, without zigzag by size.
        zigzag: of 2 · size pieces device i holds number i from the front and number i from the
            back, so that all have the same to do under a causal mask. Else one run each.
    """
    pieces = _pieces(rank, size, zigzag)
    cut = 2 * size if zigzag else size
    if not isinstance(tokens, int) or tokens < 1 or tokens % cut:
        raise ValueError(f"tokens must be a positive multiple of {cut}, got {tokens!r}")
    length = tokens // cut
    return torch.cat([torch.arange(length * piece, length * (piece + 1)) for piece in pieces])


def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ring: Ring | None = None,
    *,
    is_causal: bool = True,
    zigzag: bool = True,
    scale: float | None = None,
) -> Tensor:
    """Return what F.scaled_dot_product_attention gives these queries over the keys of all devices.

    Each device calls it with its own tokens, equally many everywhere, and calls backward, too.
    With b bytes in its keys and as many in its values, a device sends 2 (size - 1) b in the forward
    pass; in the backward pass as much again, and 2 · size · b of gradients, which are sent in
    float32 or wider. Keys and values travel while the device computes.

    Not fused: scores are made block by block, (T / size)² of them in each head at a time (a quarter
    of that with zigzag), never T². The backward pass makes them anew. A device with a fused kernel
    that returns the logsumexp puts it in the place of _attend and _attend_backward.

    Args:
        query: (..., num_heads, T / size, head_dim).
        key, value: (..., num_kv_heads, T / size, head_dim or value_dim), of the dtype of query;
            under autocast the three may differ, and are cast before they are sent. num_kv_heads
            divides num_heads, and only so many heads are sent.
        ring: who is next; None means all processes of torch.distributed.
        is_causal: a token sees itself and those before it, by their places in the whole sequence.
        zigzag: how the sequence was cut, see shard_positions. Without is_causal it does not matter.
        scale: None means 1 / sqrt(head_dim).

    Returns:
        (..., num_heads, T / size, value_dim), in the dtype of query, under autocast in autocast's.

    Raises:
        ValueError: naming the argument, what came and what was wanted. The shapes of other devices
            are not asked for: unequal ones end in an error of the transport, or hang.
    """
    for name, part in (("query", query), ("key", key), ("value", value)):
        tensor = isinstance(part, Tensor)
        if not tensor or part.dim() < 3 or part.size(-2) != query.size(-2):
            came = tuple(part.shape) if tensor else repr(part)
            tokens = query.size(-2) if isinstance(query, Tensor) and query.dim() > 1 else "T"
            raise ValueError(f"{name} must have shape (..., heads, {tokens}, channels), got {came}")
    if key.size(-1) != query.size(-1):
        raise ValueError(f"key must have {query.size(-1)} channels, got {key.size(-1)}")
    if key.size(-3) != value.size(-3) or query.size(-3) % key.size(-3):
        raise ValueError(
            f"key and value must have equally many heads, a divisor of the {query.size(-3)} of "
            f"query: got {key.size(-3)} and {value.size(-3)}"
        )
    if is_causal and zigzag and query.size(-2) % 2:
        raise ValueError(
            f"query must hold two equal pieces for zigzag, got {query.size(-2)} tokens"
        )
    ring = Ring() if ring is None else ring
    scale = query.size(-1) ** -0.5 if scale is None else scale
    # (..., num_kv_heads, heads to each, T / size, channels)
    query, key, value, context = _cast(query, key, value)
    query = query.unflatten(-3, (key.size(-3), -1))
    key, value = key.unsqueeze(-3), value.unsqueeze(-3)
    with context:
        output = _RingAttention.apply(query, key, value, ring, is_causal, zigzag, scale)
    return output.flatten(-4, -3)


def _cast(query: Tensor, key: Tensor, value: Tensor) -> tuple:
    """Return the three in one dtype, and a context in which autocast changes nothing more.

    Autocast casts them once, here, so that both passes agree, and leaves float64, as it does for
    PyTorch's operator. Some devices, as meta, have no autocast.
    """
    device, context = query.device.type, nullcontext()
    parts = [query, key, value]
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype, context = torch.get_autocast_dtype(device), torch.autocast(device, enabled=False)
        parts = [part if part.dtype == torch.float64 else part.to(dtype) for part in parts]
    for name, part in zip(("query", "key", "value"), parts, strict=True):
        if not part.is_floating_point() or part.dtype != parts[0].dtype:
            raise ValueError(
                f"{name} must be floating point, all three alike: "
                f"got {part.dtype} beside a query of {parts[0].dtype}"
            )
    return *parts, context


class _RingAttention(torch.autograd.Function):
    """Keys and values go once round; in the backward pass again, and their gradients with them."""

    @staticmethod
    def forward(ctx, query, key, value, ring, is_causal, zigzag, scale):
        """Return the context vectors of this device's queries."""
        wide = torch.promote_types(query.dtype, torch.float32)
        output = query.new_zeros(*query.shape[:-1], value.size(-1), dtype=wide)
        lse = query.new_full((*query.shape[:-1], 1), -torch.inf, dtype=wide)
        own = key, value
        for step in range(ring.size):
            if step < ring.size - 1:
                arrived = ring.pass_on(key, value)
            for mine, theirs, diagonal in _blocks(ring, step, query.size(-2), is_causal, zigzag):
                q, k, v = query[..., mine, :], key[..., theirs, :], value[..., theirs, :]
                new = _attend(q, k, v, diagonal, scale)
                merged = merge(output[..., mine, :], lse[..., mine, :], *new)
                output[..., mine, :], lse[..., mine, :] = merged
            if step < ring.size - 1:
                key, value = arrived()
        output = output.to(query.dtype)
        ctx.save_for_backward(query, *own, output, lse)
        ctx.rest = ring, is_causal, zigzag, scale
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        """Return the gradients of this device's queries, keys and values."""
        query, key, value, output, lse = ctx.saved_tensors
        ring, is_causal, zigzag, scale = ctx.rest
        # Each row's mean gradient of its weights, which the softmax subtracts.
        mean = (grad_output.to(lse.dtype) * output).sum(dim=-1, keepdim=True)
        grad_query, grad_key, grad_value = (
            torch.zeros_like(part, dtype=lse.dtype) for part in (query, key, value)
        )
        for step in range(ring.size):
            if step < ring.size - 1:
                arrived = ring.pass_on(key, value)
            for mine, theirs, diagonal in _blocks(ring, step, query.size(-2), is_causal, zigzag):
                rows = (part[..., mine, :] for part in (query, grad_output, lse, mean))
                k, v = key[..., theirs, :], value[..., theirs, :]
                new = _attend_backward(*rows, k, v, diagonal, scale)
                grad_query[..., mine, :] += new[0]
                grad_key[..., theirs, :] += new[1].sum_to_size(k.shape)
                grad_value[..., theirs, :] += new[2].sum_to_size(v.shape)
            if step < ring.size - 1:
                key, value = arrived()
            # They belong to the block, and go where it goes; the last step brings them home.
            grad_key, grad_value = ring.pass_on(grad_key, grad_value)()
        grads = (grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype))
        return *grads, None, None, None, None


def merge(output: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Join two results over different keys, (..., T, value_dim), by their lse, (..., T, 1)."""
    joined = torch.logaddexp(lse, other_lse)
    return output * (lse - joined).exp() + other * (other_lse - joined).exp(), joined


def _attend(q, k, v, diagonal, scale) -> tuple[Tensor, Tensor]:
    """Return attention over one block of keys, and the logsumexp of each row."""
    scores = _scores(q, k, diagonal, scale)
    lse = scores.logsumexp(dim=-1, keepdim=True)
    return (scores - lse).exp().to(v.dtype) @ v, lse


def _attend_backward(q, grad_output, lse, mean, k, v, diagonal, scale) -> tuple[Tensor, ...]:
    """Return what one block of keys adds to the gradients of q, k and v."""
    weights = (_scores(q, k, diagonal, scale) - lse).exp()  # this block's share of the whole row
    grad_weights = (grad_output @ v.mT).to(lse.dtype)
    grad_scores = (weights * (grad_weights - mean) * scale).to(q.dtype)
    return grad_scores @ k, grad_scores.mT @ q, weights.to(v.dtype).mT @ grad_output


def _scores(q, k, diagonal, scale) -> Tensor:
    scores = ((q * scale) @ k.mT).to(torch.promote_types(q.dtype, torch.float32))
    if diagonal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    return scores


def _pieces(rank: int, size: int, zigzag: bool) -> tuple[int, ...]:
    """Return the numbers of the pieces that a device holds, in order."""
    return (rank, 2 * size - 1 - rank) if zigzag else (rank,)


def _blocks(ring, step, T, is_causal, zigzag) -> Iterator[tuple[slice, slice, bool]]:
    """Yield the blocks to compute at this step: queries, keys, whether on the diagonal."""
    if not is_causal:
        yield slice(None), slice(None), False
        return
    # After so many steps the keys of the device so far back have come.
    mine = _pieces(ring.rank, ring.size, zigzag)
    theirs = _pieces((ring.rank - step) % ring.size, ring.size, zigzag)
    length = T // len(mine)
    for i, query_piece in enumerate(mine):
        for j, key_piece in enumerate(theirs):
            if key_piece <= query_piece:  # a later one is all future
                queries = slice(i * length, (i + 1) * length)
                yield queries, slice(j * length, (j + 1) * length), key_piece == query_piece
