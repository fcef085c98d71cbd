"""The ring, its devices as threads: equal to one device, gradients too. Processes are in tests/peers."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Condition

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from snippets import ring_attention as file
from snippets.ring_attention import merge, ring_attention, shard_positions
from tests.snippets.facts import first_to_notice
from tests.snippets.problems import edited

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


def test_a_device_that_waits_for_what_nobody_sends_is_an_error():
    with pytest.raises(AssertionError, match=r"device \d waits for what nobody sends"):
        on_devices(3, lambda device: device.rank and device.post.take(device.rank))


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


def sharded(part, size, problem, *, is_causal=True, zigzag=True, scale=None):
    """Return output and gradients of all devices, put together, and the bytes that each sent."""
    *inputs, direction = problem

    def job(device):
        row = part.shard_positions(direction.size(-2), device.rank, size, zigzag=zigzag)
        attention = partial(
            part.ring_attention, ring=device, is_causal=is_causal, zigzag=zigzag, scale=scale
        )
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


# Each fact takes the file, so that wrong versions of it can be asked, too.


def the_ring_is_one_device(part=file):
    for size, is_causal, zigzag, scale, heads in (
        (1, True, True, None, (2, 2)),
        (2, True, True, None, (4, 2)),
        (3, True, True, 0.3, (2, 2)),
        (2, True, False, None, (3, 1)),
        (3, True, False, None, (2, 2)),
        (3, False, False, None, (2, 2)),
    ):
        problem = draw(12, *heads)
        result, _ = sharded(part, size, problem, is_causal=is_causal, zigzag=zigzag, scale=scale)
        attention = partial(by_definition, is_causal=is_causal, scale=scale)
        assert_close(result, with_gradients(attention, problem[:3], problem[3]))


def the_bytes_are_those_of_the_formula(part=file):
    for size, dtype, wide in ((2, F64, 8), (3, torch.float32, 4), (3, torch.bfloat16, 4)):
        problem = draw(12, heads=4, kv_heads=2, value_dim=4, dtype=dtype)
        _, sent = sharded(part, size, problem)
        numbers = problem[1].numel() // size  # in the keys of one device
        there, home = 4 * (size - 1) * numbers * dtype.itemsize, 2 * size * numbers * wide
        assert sent == [there + home] * size


def no_token_lies_on_two_devices_and_none_is_forgotten(part=file):
    for size in (1, 2, 3):
        for zigzag in (True, False):
            rows = [part.shard_positions(12, rank, size, zigzag=zigzag) for rank in range(size)]
            assert sorted(torch.cat(rows).tolist()) == list(range(12))
    assert part.shard_positions(16, 1, 4).tolist() == [2, 3, 12, 13]
    assert part.shard_positions(16, 1, 4, zigzag=False).tolist() == [4, 5, 6, 7]


def every_device_makes_equally_many_scores_at_every_step(part=file):
    size, T = 3, 12
    made = []
    for rank in range(size):
        device = Device(rank, Post(size))
        steps = [part._blocks(device, step, T // size, True, True) for step in range(size)]
        made.append([[d for _, _, d in step] for step in steps])
    assert [[len(step) for step in device] for device in made] == [[3, 2, 2]] * size
    assert [[sum(step) for step in device] for device in made] == [[2, 0, 0]] * size


FACTS = [
    the_ring_is_one_device,
    the_bytes_are_those_of_the_formula,
    no_token_lies_on_two_devices_and_none_is_forgotten,
    every_device_makes_equally_many_scores_at_every_step,
]


@pytest.mark.parametrize("fact", FACTS)
def test_fact(fact):
    fact()


WRONG = {
    "a causal mask on every block": ("key_piece == query_piece", "True"),
    "no mask on the diagonal": ("key_piece == query_piece", "False"),
    "the future is computed, too": ("if key_piece <= query_piece", "if True"),
    "the present is left out": ("if key_piece <= query_piece", "if key_piece < query_piece"),
    "the places of the keys are one's own": ("(ring.rank - step) % ring.size", "ring.rank"),
    "the ring is thought to turn the other way": (
        "(ring.rank - step) % ring.size",
        "(ring.rank + step) % ring.size",
    ),
    "merged without weights": ("output * (lse - joined).exp() + other", "output + other"),
    "merged by the mean": (
        "joined = torch.logaddexp(lse, other_lse)",
        "joined = torch.maximum(lse, other_lse)",
    ),
    "the zig-zag cut in a row": ("(rank, 2 * size - 1 - rank)", "(2 * rank, 2 * rank + 1)"),
    "gradients stay where they were made": (
        "grad_key, grad_value = ring.pass_on(grad_key, grad_value)()",
        "pass",
    ),
    "gradients do not take the last step": (
        "grad_key, grad_value = ring.pass_on(grad_key, grad_value)()",
        "grad_key, grad_value = ring.pass_on(grad_key, grad_value)() if step < ring.size - 1 else (grad_key, grad_value)",
    ),
    "the mean gradient is not subtracted": ("(grad_weights - mean)", "grad_weights"),
    "weights are normalised in their block": (
        "diagonal, scale) - lse).exp()",
        "diagonal, scale)).softmax(-1)",
    ),
    "the scale is forgotten on the way back": (
        "(grad_weights - mean) * scale)",
        "(grad_weights - mean))",
    ),
    "the scale is forgotten": ("(q * scale)", "q"),
    "shared heads keep one share of the gradient": (
        "new[1].sum_to_size(k.shape)",
        "new[1][..., :1, :, :]",
    ),
    "gradients are sent in half precision": (
        "torch.zeros_like(part, dtype=lse.dtype)",
        "torch.zeros_like(part)",
    ),
    "one's own keys are lost": ("own = key, value\n", "own = key.roll(1, -2), value\n"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_is_caught(what):
    wrong = edited("ring_attention", WRONG[what])
    assert first_to_notice(FACTS, wrong), f"nothing notices: {what}"


@given(st.integers(0, 2**31), st.integers(1, 4), st.sampled_from([0.1, 1.0, 1e4]))
def test_merging_in_any_order_gives_the_whole(seed, parts, size):
    """Associative and commutative, with scores up to 1e4, too."""
    torch.manual_seed(seed)
    scores = size * torch.randn(parts, 3, 2, dtype=F64)
    values = torch.randn(parts, 2, 4, dtype=F64)
    whole = torch.cat(list(scores), dim=-1).softmax(dim=-1) @ torch.cat(list(values))
    pieces = [
        (s.softmax(dim=-1) @ v, s.logsumexp(dim=-1, keepdim=True))
        for s, v in zip(scores, values, strict=True)
    ]
    nothing = torch.zeros(3, 4, dtype=F64), torch.full((3, 1), -torch.inf, dtype=F64)
    for order in (pieces, pieces[::-1]):
        result = nothing
        for piece in order:
            result = merge(*result, *piece)
        torch.testing.assert_close(result[0], whole, rtol=0, atol=1e-10)


def test_a_later_token_moves_no_earlier_output_on_any_device():
    query, key, value, direction = draw(12)
    (before, *_), _ = sharded(file, 3, (query, key, value, direction))
    for t in range(12):
        changed = [part.clone() for part in (query, key, value)]
        for part in changed:
            part[..., t, :] += 1.0
        (after, *_), _ = sharded(file, 3, (*changed, direction))
        moved = (after - before).abs().amax(dim=(0, 1, 3)) > 1e-9
        assert moved.tolist() == [place >= t for place in range(12)]


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
        partial(ring_attention, ring=Device(0, Post(1)), zigzag=False),
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


q, k, v, _ = draw(6)
alone = Device(0, Post(1))


@pytest.mark.parametrize(
    ("call", "argument", "got", "wanted"),
    [
        (
            lambda: ring_attention(q[0, 0], k, v, alone),
            "query",
            "(6, 4)",
            "(..., heads, 6, channels)",
        ),
        (lambda: ring_attention(q, k[..., :4, :], v, alone), "key", "(2, 2, 4, 4)", "heads, 6"),
        (lambda: ring_attention(q, k, v[..., :4, :], alone), "value", "(2, 2, 4, 3)", "heads, 6"),
        (lambda: ring_attention(q, k[..., :3], v, alone), "key", "3", "4 channels"),
        (lambda: ring_attention([1.0], k, v, alone), "query", "[1.0]", "(..., heads, T, channels)"),
        (lambda: ring_attention(q, k.float(), v, alone), "key", "torch.float32", "torch.float64"),
        (lambda: ring_attention(q, k, v.half(), alone), "value", "torch.float16", "torch.float64"),
        (
            lambda: ring_attention(q.long(), k.long(), v.long(), alone),
            "query",
            "torch.int64",
            "floating point",
        ),
        (
            lambda: ring_attention(q[:, :1], k, v, alone),
            "key and value",
            "2 and 2",
            "the 1 of query",
        ),
        (lambda: ring_attention(q, k, v[:, :1], alone), "key and value", "2 and 1", "equally many"),
        (
            lambda: ring_attention(*(x[..., :5, :] for x in (q, k, v)), alone),
            "query",
            "5",
            "two equal",
        ),
        (lambda: shard_positions(12, 0, 4), "tokens", "12", "multiple of 8"),
        (lambda: shard_positions(10, 0, 4, zigzag=False), "tokens", "10", "multiple of 4"),
        (lambda: shard_positions(0, 0, 4), "tokens", "0", "positive multiple"),
    ],
)
def test_a_bad_argument_is_named(call, argument, got, wanted):
    with pytest.raises(ValueError, match=f"^{argument} must ") as caught:
        call()
    assert got in str(caught.value)
    assert wanted in str(caught.value)
