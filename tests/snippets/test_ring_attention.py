"""The ring, its devices as threads: equal to one device, gradients too. Processes are in tests/peers."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Queue
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from snippets.ring_attention import ring_attention
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, close, draw, heads

F64 = torch.float64


class Device:
    """One of several threads in a circle, with a box each for what comes to it."""

    def __init__(self, rank, boxes):
        self.rank, self.size, self.boxes, self.bytes_sent = rank, len(boxes), boxes, 0

    def pass_on(self, *tensors):
        self.bytes_sent += sum(one.nbytes for one in tensors)
        self.boxes[(self.rank + 1) % self.size].put([one.clone() for one in tensors])
        return partial(
            self.boxes[self.rank].get, timeout=300
        )  # a neighbour that failed sends nothing


def on_devices(size, job):
    boxes = [Queue() for _ in range(size)]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: job(Device(rank, boxes)), range(size)))


def problem(T=12, heads=2, kv_heads=2, value_dim=3, dtype=F64):
    """Query, key and value, and what the output's gradient is to be."""
    sizes = (heads, 4), (kv_heads, 4), (kv_heads, value_dim), (heads, value_dim)
    return [draw(2, n, T, width, seed=i).to(dtype) for i, (n, width) in enumerate(sizes)]


def with_gradients(attention, query, key, value, direction):
    inputs = [part.clone().requires_grad_() for part in (query, key, value)]
    output = attention(*inputs)
    return output.detach(), *torch.autograd.grad(output, inputs, direction.to(output.dtype))


def sharded(part, size, tensors, **options):
    """Return output and gradients of all devices, put together, and the bytes that each sent."""

    def job(device):
        row = part.shard_positions(tensors[0].size(-2), device.rank, size)
        attention = partial(part.ring_attention, ring=device, **options)
        found = with_gradients(attention, *(tensor[..., row, :] for tensor in tensors))
        return row, found, device.bytes_sent

    rows, found, sent = zip(*on_devices(size, job), strict=True)
    back = torch.cat(rows).argsort()
    return [torch.cat(s, -2)[..., back, :] for s in zip(*found, strict=True)], list(sent)


def all_close(result, wanted, bar=1e-10):
    return all(close(one, other, bar) for one, other in zip(result, wanted, strict=True))


def test_the_ring_is_one_device(part):
    """PyTorch's operator over the whole sequence."""
    for size, is_causal, scale, numbers in (
        (2, True, None, (4, 2)),
        (3, True, 0.3, (2, 2)),
        (3, False, None, (3, 1)),
    ):
        tensors, how = problem(12, *numbers), {"is_causal": is_causal, "scale": scale}
        operator = partial(F.scaled_dot_product_attention, enable_gqa=True, **how)
        result, _ = sharded(part, size, tensors, **how)
        assert all_close(result, with_gradients(operator, *tensors))


def test_half_precision_is_summed_in_float32(part):
    for dtype in (torch.bfloat16, torch.float16):
        result, _ = sharded(part, 3, problem(dtype=dtype))
        wanted, _ = sharded(part, 3, problem())
        assert {one.dtype for one in result} == {dtype}
        assert all_close([one.double() for one in result], wanted, 0.1)


def test_the_bytes_are_those_of_the_formula(part):
    for size, dtype, wide in ((2, F64, 8), (3, torch.bfloat16, 4)):
        tensors = problem(heads=4, value_dim=4, dtype=dtype)
        _, sent = sharded(part, size, tensors)
        numbers = tensors[1].numel() // size  # in the keys of one device
        there, home = 4 * (size - 1) * numbers * dtype.itemsize, 2 * size * numbers * wide
        assert sent == [there + home] * size


def test_no_token_lies_on_two_devices_and_none_is_forgotten(part):
    for size in (1, 2, 3):
        rows = [part.shard_positions(12, rank, size) for rank in range(size)]
        assert sorted(torch.cat(rows).tolist()) == list(range(12))
    assert part.shard_positions(16, 1, 4).tolist() == [2, 3, 12, 13]


def test_every_device_makes_equally_many_scores_at_every_step(part):
    """Of a quarter of the pairs each: three at the first step, two on the diagonal, and then two."""
    for rank in range(3):
        steps = []

        def pass_on(*parts, steps=steps):
            steps.append([])
            return lambda: list(parts)

        ring = SimpleNamespace(rank=rank, size=3, pass_on=pass_on)
        for _, diagonal, _ in part.go_round(ring, True, [torch.zeros(4, 1)], []):
            steps[-1].append(diagonal)
        assert sorted(steps[0]) == [False, True, True]
        assert steps[1:] == [[False] * 4]  # the last step sends nothing


def test_what_would_be_misread_is_refused(part):
    query, key, value, _ = problem(6)
    ring = partial(part.ring_attention, ring=Device(0, [Queue()]))
    refuses("pieces that are not equal", ring, *(x[..., :5, :] for x in (query, key, value)))
    refuses("fewer keys here", ring, query, key[..., :4, :], value[..., :4, :])
    refuses("fewer values", ring, query, key, value[..., :4, :])
    refuses("tokens that nobody holds", part.shard_positions, 12, 0, 4)


WRONG = {
    "a causal mask on every block": ("is_causal and other == own", "True"),
    "the places of the keys are one's own": ("(ring.rank - step) % ring.size", "ring.rank"),
    "merged without weights": (
        "output[..., rows, :] * (before - after).exp()",
        "output[..., rows, :]",
    ),
    "the zig-zag cut in a row": (
        "[pieces[rank], pieces[-1 - rank]]",
        "[pieces[2 * rank], pieces[2 * rank + 1]]",
    ),
    "gradients do not take the last step": (
        "if sums and ring.size > 1 else sums",
        "if sums and step < ring.size - 1 else sums",
    ),
}


class OneOf16:
    """The first of 16 devices, which gets back what it sends: the bytes are those of a ring."""

    rank, size = 0, 16

    def pass_on(self, *tensors):
        return lambda: list(tensors)


ALONE = Device(0, [Queue()])
CASES = {"alone": Case(lambda _, *x: ring_attention(*x, ALONE), lambda: heads(4, 2))}
MIB = {
    "on each of 16 devices": (
        4,
        lambda x: lambda: ring_attention(*3 * [x[None, : len(x) // 16]], OneOf16()),
    )
}
