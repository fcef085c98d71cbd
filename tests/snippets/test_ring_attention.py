"""The ring, its devices as threads: equal to one device, gradients too. Processes are in tests/peers."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Condition
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from snippets import ring_attention as file
from snippets.ring_attention import ring_attention, shard_positions
from tests.snippets.parts import Case, heads

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
        self.rank, self.size, self.post = rank, len(post.boxes), post
        self.bytes_sent, self.largest = 0, 0

    def pass_on(self, *tensors):
        self.bytes_sent += sum(part.numel() * part.element_size() for part in tensors)
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


def draw(T, heads=2, kv_heads=2, head_dim=4, value_dim=3, dtype=F64, seed=0):
    torch.manual_seed(seed)
    query = torch.randn(2, heads, T, head_dim, dtype=dtype)
    key = torch.randn(2, kv_heads, T, head_dim, dtype=dtype)
    value = torch.randn(2, kv_heads, T, value_dim, dtype=dtype)
    return query, key, value, torch.randn(2, heads, T, value_dim, dtype=dtype)


def by_definition(query, key, value, is_causal, scale):
    """Plain attention over the whole sequence; the fused kernel wants equal widths."""
    groups = query.size(-3) // key.size(-3)
    key, value = (part.repeat_interleave(groups, dim=-3) for part in (key, value))
    scores = query @ key.mT * (query.size(-1) ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return scores.softmax(dim=-1) @ value


def with_gradients(attention, inputs, direction):
    inputs = [part.clone().requires_grad_() for part in inputs]
    output = attention(*inputs)
    return output.detach(), *torch.autograd.grad(output, inputs, direction)


def sharded(part, size, problem, *, is_causal=True, scale=None):
    """Return output and gradients of all devices, put together, and the bytes that each sent."""
    *inputs, direction = problem

    def job(device):
        row = part.shard_positions(direction.size(-2), device.rank, size)
        attention = partial(part.ring_attention, ring=device, is_causal=is_causal, scale=scale)
        found = with_gradients(
            attention, [tensor[..., row, :] for tensor in inputs], direction[..., row, :]
        )
        return row, found, device.bytes_sent

    done = on_devices(size, job)
    back = torch.cat([row for row, _, _ in done]).argsort()
    whole = [
        torch.cat(shards, dim=-2)[..., back, :]
        for shards in zip(*(f for _, f, _ in done), strict=True)
    ]
    return whole, [sent for _, _, sent in done]


def assert_close(result, wanted, atol=1e-10):
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


def the_ring_is_one_device(part):
    for size, is_causal, scale, numbers in (
        (1, True, None, (2, 2)),
        (2, True, None, (4, 2)),
        (3, True, 0.3, (2, 2)),
        (2, True, None, (3, 1)),
        (3, False, None, (2, 2)),
    ):
        problem = draw(12, *numbers)
        result, _ = sharded(part, size, problem, is_causal=is_causal, scale=scale)
        attention = partial(by_definition, is_causal=is_causal, scale=scale)
        assert_close(result, with_gradients(attention, problem[:3], problem[3]))


def the_bytes_are_those_of_the_formula(part):
    for size, dtype, wide in ((2, F64, 8), (3, torch.float32, 4), (3, torch.bfloat16, 4)):
        problem = draw(12, heads=4, kv_heads=2, value_dim=4, dtype=dtype)
        _, sent = sharded(part, size, problem)
        numbers = problem[1].numel() // size  # in the keys of one device
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
        blocks = part.go_round(ring, True, [torch.zeros(4, 1)], [])
        for _, diagonal, _ in blocks:
            steps[-1].append(diagonal)
        assert sorted(steps[0]) == [False, True, True]
        assert steps[1:] == [[False] * 4]  # the last step sends nothing


def a_later_token_moves_no_earlier_output_on_any_device(part):
    query, key, value, direction = draw(12)
    (before, *_), _ = sharded(part, 3, (query, key, value, direction))
    for t in range(12):
        changed = [x.clone() for x in (query, key, value)]
        for x in changed:
            x[..., t, :] += 1.0
        (after, *_), _ = sharded(part, 3, (*changed, direction))
        moved = (after - before).abs().amax(dim=(0, 1, 3)) > 1e-9
        assert moved.tolist() == [place >= t for place in range(12)]


FACTS = [
    the_ring_is_one_device,
    the_bytes_are_those_of_the_formula,
    no_token_lies_on_two_devices_and_none_is_forgotten,
    every_device_makes_equally_many_scores_at_every_step,
    a_later_token_moves_no_earlier_output_on_any_device,
]


WRONG = {
    "a causal mask on every block": ("is_causal and other == own", "True"),
    "no mask on the diagonal": ("is_causal and other == own", "False"),
    "a mask where all see all": ("is_causal and other == own", "other == own"),
    "the future is computed, too": ("if other <= own or not is_causal", "if True"),
    "the present is left out": (
        "if other <= own or not is_causal",
        "if other < own or not is_causal",
    ),
    "pieces to come stay hidden where all see all": (
        "if other <= own or not is_causal",
        "if other <= own",
    ),
    "the places of the keys are one's own": ("(ring.rank - step) % ring.size", "ring.rank"),
    "the ring is thought to turn the other way": (
        "(ring.rank - step) % ring.size",
        "(ring.rank + step) % ring.size",
    ),
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
    "the zig-zag in the wrong order": (
        "[pieces[rank], pieces[-1 - rank]]",
        "[pieces[-1 - rank], pieces[rank]]",
    ),
    "gradients stay where they were made": (
        "sums[:] = ring.pass_on(*sums)() if sums and ring.size > 1 else sums",
        "pass",
    ),
    "gradients do not take the last step": (
        "if sums and ring.size > 1 else sums",
        "if sums and step < ring.size - 1 else sums",
    ),
    "keys are sent home, too": ("if step < ring.size - 1 else list", "if ring.size > 1 else list"),
    "the mean gradient is not subtracted": (
        "(d_out @ v.mT - row_sum[..., rows, :])",
        "(d_out @ v.mT)",
    ),
    "weights are normalised in their block": (
        "(_scores(q, k, diagonal) - lse[..., rows, :]).exp()",
        "_scores(q, k, diagonal).softmax(-1)",
    ),
    "the scale is forgotten": ("(key.size(-3), -1)) * scale", "(key.size(-3), -1))"),
    "another scale": ("query.size(-1) ** -0.5", "value.size(-1) ** -0.5"),
    "shared heads keep one share of the gradient": (
        "(d_scores.mT @ q).sum_to_size(k.shape)",
        "(d_scores.mT @ q)[..., :1, :, :]",
    ),
    "gradients are sent in half precision": (
        "torch.zeros_like(x, dtype=lse.dtype)",
        "torch.zeros_like(x)",
    ),
    "one's own keys are lost": (
        "ctx.save_for_backward(query, key, value, output, lse)",
        "ctx.save_for_backward(query, key.roll(1, -2), value, output, lse)",
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_gives_nearly_the_same_and_comes_back(dtype):
    problem = draw(12)
    wanted, _ = sharded(file, 3, problem)
    result, _ = sharded(file, 3, tuple(part.to(dtype) for part in problem))
    assert {part.dtype for part in result} == {dtype}
    atol = 1e-5 if dtype == torch.float32 else 0.1
    assert_close([part.double() for part in result], wanted, atol=atol)


@pytest.mark.parametrize("inside", [True, False], ids=["backward inside", "backward outside"])
def test_autocast_casts_as_the_operator_of_pytorch_does(inside):
    """Also where the three come in different dtypes; each gets its gradient in its own."""
    *inputs, direction = draw(8, value_dim=4, dtype=torch.float32)
    inputs = [inputs[0], inputs[1].bfloat16(), inputs[2].half()]
    found = []
    for attention in (
        partial(ring_attention, ring=Device(0, Post(1))),
        partial(F.scaled_dot_product_attention, is_causal=True),
    ):
        given = [part.clone().requires_grad_() for part in inputs]
        with torch.autocast("cpu", torch.bfloat16):
            output = attention(*given)
            if inside:
                output.backward(direction.bfloat16())
        if not inside:
            output.backward(direction.bfloat16())
        assert output.dtype == torch.bfloat16
        assert [part.grad.dtype for part in given] == [part.dtype for part in inputs]
        found.append([output, *(part.grad for part in given)])
    for ours, theirs in zip(*found, strict=True):  # bfloat16 keeps two to three digits
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=0.05, atol=0.05)


def test_autocast_leaves_float64():
    *inputs, _ = draw(8)
    with torch.autocast("cpu", torch.bfloat16):
        result = ring_attention(*inputs, Device(0, Post(1)))
    assert_close([result], [by_definition(*inputs, True, None)])


def test_equal_to_the_operator_of_pytorch_with_equal_widths():
    *inputs, direction = draw(8, heads=4, kv_heads=2, value_dim=4)
    result, _ = sharded(file, 2, (*inputs, direction))
    operator = partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=True)
    assert_close(result, with_gradients(operator, inputs, direction))


ALONE = Device(0, Post(1))
MISREAD = {
    "pieces that are not equal": lambda q, k, v: ring_attention(
        *(x[..., :5, :] for x in (q, k, v)), ALONE
    ),
    "fewer keys here": lambda q, k, v: ring_attention(q, k[..., :4, :], v[..., :4, :], ALONE),
    "fewer values": lambda q, k, v: ring_attention(q, k, v[..., :4, :], ALONE),
    "tokens that nobody holds": lambda *_: shard_positions(12, 0, 4),
}


@pytest.mark.parametrize("what", MISREAD)
def test_what_would_be_misread_is_refused(what):
    with pytest.raises(ValueError, match="must"):
        MISREAD[what](*draw(6)[:3])


class OneOf16:
    """The first of 16 devices, which gets back what it sends: the bytes are those of a ring."""

    rank, size = 0, 16

    def pass_on(self, *tensors):
        return lambda: list(tensors)


CASES = {"alone": Case(lambda _, *x: ring_attention(*x, ALONE), lambda: heads(4, 2))}
MIB = {
    "on each of 16 devices": (
        4,
        lambda x: lambda: ring_attention(*3 * [x[None, : len(x) // 16]], OneOf16()),
    )
}
