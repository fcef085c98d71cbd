"""The ring, its devices as threads: equal to one device, gradients too. Processes are in tests/peers."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Condition
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from snippets.ring_attention import ring_attention
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, close, draw, heads

F64 = torch.float64


class Post:
    """Mailboxes of devices in a circle, each of them a thread.

    Where every device waits or has ended, nothing will ever come: that is an AssertionError, after
    however many seconds a busy machine took to get there.
    """

    def __init__(self, size):
        self.boxes, self.changed = [deque() for _ in range(size)], Condition()
        self.waiting, self.ended = set(), 0

    def put(self, rank, parts):
        with self.changed:
            self.boxes[rank].append(parts)
            self.changed.notify_all()

    def take(self, rank):
        with self.changed:
            self.waiting.add(rank)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.boxes[rank] or self._all_wait())
            self.waiting.remove(rank)
            assert self.boxes[rank], f"device {rank} waits for what nobody sends"
            return self.boxes[rank].popleft()

    def end(self):
        with self.changed:
            self.ended += 1
            self.changed.notify_all()

    def _all_wait(self):
        idle = len(self.waiting) + self.ended == len(self.boxes)
        return idle and not any(self.boxes[rank] for rank in self.waiting)


class Device:
    """One of several threads in a circle."""

    def __init__(self, rank, post):
        self.rank, self.size, self.post, self.bytes_sent = rank, len(post.boxes), post, 0

    def pass_on(self, *tensors):
        self.bytes_sent += sum(part.nbytes for part in tensors)
        self.post.put((self.rank + 1) % self.size, [part.clone() for part in tensors])
        return partial(self.post.take, self.rank)


def on_devices(size, job):
    post = Post(size)

    def work(rank):
        try:
            return job(Device(rank, post))
        finally:
            post.end()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, range(size)))


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


def the_ring_is_one_device(part):
    """PyTorch's operator over the whole sequence."""
    for size, is_causal, scale, numbers in (
        (1, True, None, (2, 2)),
        (2, True, None, (4, 2)),
        (3, True, 0.3, (2, 2)),
        (2, True, None, (3, 1)),
        (3, False, None, (2, 2)),
    ):
        tensors, how = problem(12, *numbers), {"is_causal": is_causal, "scale": scale}
        operator = partial(F.scaled_dot_product_attention, enable_gqa=True, **how)
        result, _ = sharded(part, size, tensors, **how)
        assert all_close(result, with_gradients(operator, *tensors))


def half_precision_is_summed_in_float32(part):
    for dtype in (torch.bfloat16, torch.float16):
        result, _ = sharded(part, 3, problem(dtype=dtype))
        wanted, _ = sharded(part, 3, problem())
        assert {one.dtype for one in result} == {dtype}
        assert all_close([one.double() for one in result], wanted, 0.1)


def the_bytes_are_those_of_the_formula(part):
    for size, dtype, wide in ((2, F64, 8), (3, torch.float32, 4), (3, torch.bfloat16, 4)):
        tensors = problem(heads=4, value_dim=4, dtype=dtype)
        _, sent = sharded(part, size, tensors)
        numbers = tensors[1].numel() // size  # in the keys of one device
        there, home = 4 * (size - 1) * numbers * dtype.itemsize, 2 * size * numbers * wide
        assert sent == [there + home] * size


def no_token_lies_on_two_devices_and_none_is_forgotten(part):
    for size in (1, 2, 3):
        rows = [part.shard_positions(12, rank, size) for rank in range(size)]
        assert sorted(torch.cat(rows).tolist()) == list(range(12))
    assert part.shard_positions(16, 1, 4).tolist() == [2, 3, 12, 13]


def every_device_makes_equally_many_scores_at_every_step(part):
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


def autocast_casts_as_the_operator_of_pytorch_does(part):
    """Also where the three come in different dtypes; each gets its gradient in its own."""
    query, key, value, direction = problem(8, value_dim=4, dtype=torch.float32)
    found = []
    for attention in (
        partial(part.ring_attention, ring=Device(0, Post(1))),
        partial(F.scaled_dot_product_attention, is_causal=True),
    ):
        with torch.autocast("cpu", torch.bfloat16):
            inputs = query, key.bfloat16(), value.half()
            found.append(with_gradients(attention, *inputs, direction))
            assert attention(*problem()[:3]).dtype == F64
    assert all_close(*found, 0.1)


def what_would_be_misread_is_refused(part):
    query, key, value, _ = problem(6)
    ring = partial(part.ring_attention, ring=Device(0, Post(1)))
    refuses("pieces that are not equal", ring, *(x[..., :5, :] for x in (query, key, value)))
    refuses("fewer keys here", ring, query, key[..., :4, :], value[..., :4, :])
    refuses("fewer values", ring, query, key, value[..., :4, :])
    refuses("tokens that nobody holds", part.shard_positions, 12, 0, 4)


FACTS = [
    the_ring_is_one_device,
    half_precision_is_summed_in_float32,
    the_bytes_are_those_of_the_formula,
    no_token_lies_on_two_devices_and_none_is_forgotten,
    every_device_makes_equally_many_scores_at_every_step,
    autocast_casts_as_the_operator_of_pytorch_does,
    what_would_be_misread_is_refused,
]
WRONG = {
    "a causal mask on every block": ("is_causal and other == own", "True"),
    "the future is computed, too": ("if other <= own or not is_causal", "if True"),
    "the places of the keys are one's own": ("(ring.rank - step) % ring.size", "ring.rank"),
    "merged without weights": (
        "output[..., rows, :] * (before - after).exp()",
        "output[..., rows, :]",
    ),
    "merged by the larger": (
        "before.logaddexp(scores.logsumexp(dim=-1, keepdim=True))",
        "before.maximum(scores.logsumexp(dim=-1, keepdim=True))",
    ),
    "the zig-zag cut in a row": (
        "[pieces[rank], pieces[-1 - rank]]",
        "[pieces[2 * rank], pieces[2 * rank + 1]]",
    ),
    "gradients do not take the last step": (
        "if sums and ring.size > 1 else sums",
        "if sums and step < ring.size - 1 else sums",
    ),
    "weights are normalised in their block": (
        "(_scores(q, k, diagonal) - lse[..., rows, :]).exp()",
        "_scores(q, k, diagonal).softmax(-1)",
    ),
    "shared heads keep one share of the gradient": (
        "(d_scores.mT @ q).sum_to_size(k.shape)",
        "(d_scores.mT @ q)[..., :1, :, :]",
    ),
    "gradients are sent in half precision": (
        "torch.zeros_like(x, dtype=lse.dtype)",
        "torch.zeros_like(x)",
    ),
}


class OneOf16:
    """The first of 16 devices, which gets back what it sends: the bytes are those of a ring."""

    rank, size = 0, 16

    def pass_on(self, *tensors):
        return lambda: list(tensors)


ALONE = Device(0, Post(1))
CASES = {"alone": Case(lambda _, *x: ring_attention(*x, ALONE), lambda: heads(4, 2))}
MIB = {
    "on each of 16 devices": (
        4,
        lambda x: lambda: ring_attention(*3 * [x[None, : len(x) // 16]], OneOf16()),
    )
}
