"""A server of one model: blocks of memory, shared beginnings, preemption, a budget for each step.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Kwon et al. (2023), "Efficient Memory Management for Large Language Model Serving with
PagedAttention", section 4 (blocks, copy on write, preemption by recomputation); Yu et al. (2022),
"Orca: A Distributed Serving System for Transformer-Based Generative Models", section 3 (requests
enter and leave at each step); Agrawal et al. (2024), "Taming Throughput-Latency Tradeoff in LLM
Inference with Sarathi-Serve", section 4 (prompts read in chunks beside the texts that are written).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(eq=False)
class Request:
    """A text, and how far the server has come with it."""

    tokens: Tensor  # (T,), the prompt and what was written after it
    most: int  # it ends with so many tokens, if not before
    generator: torch.Generator | None
    read: int = 0  # of so many tokens the keys and values are in the memory
    table: list[int] = field(default_factory=list)  # the blocks in which they lie, in order

    @property
    def unread(self) -> int:
        """How many tokens the model must read before it can write the next one."""
        return len(self.tokens) - self.read


class BlockMemory:
    """Keys and values of all texts for one layer; it takes the place of a cache in the model."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.new = torch.zeros(0, dtype=torch.int64)  # rows of the tokens that are read next
        self.held: list[Tensor] = []  # keys and values, (1, heads, rows, width) each

    @property
    def length(self) -> int:
        """With the new tokens, as many keys as the memory has rows."""
        return self.rows - len(self.new)

    def update(self, *given: Tensor) -> list[Tensor]:
        """Write keys and values, (1, heads, new tokens, width) each; return the whole memory."""
        if not self.held:  # zeros, because a mask hides what is there, but not a nan
            self.held = [part.new_zeros(*part.shape[:2], self.rows, part.size(3)) for part in given]
        for held, part in zip(self.held, given, strict=True):
            held[:, :, self.new] = part
        return self.held

    def copy(self, source: int, target: int, size: int) -> None:
        """Copy one block of so many rows to another."""
        for held in self.held:
            blocks = held.unflatten(2, (-1, size))
            blocks[:, :, target] = blocks[:, :, source]


class PagedServer:
    """Write after many prompts with one model, each text as it would be alone.

        server = PagedServer(model, blocks=64, temperature=0.8, stop=end_of_text)
        requests = [server.add(prompt, 100, generator) for prompt, generator in …]
        while server.step():
            …  # more requests may be added here, and texts read as they grow

    In a step the model reads up to `budget` tokens in one pass. First each text that is being
    written gets its newest token read; what is left of the budget goes to prompts, in pieces. After
    every text that is then read to its end, one token is written. A request that comes in uses the
    blocks of a running text that begins with the same tokens; who writes into a block that several
    texts use gets a copy of it first. When no block is free, the newest request loses its blocks,
    waits, and is read again later. None of this changes a text, but for rounding: see generate.py.

    Args:
        model: called as model(tokens, positions=…, attn_mask=…, caches=…), with tokens and
            positions (1, T), a mask (T, rows of the memory), True keeps, and one memory for each of
            model.blocks; returns logits, (1, T, vocab_size). Call its .eval() first.
        blocks: how many blocks the memory has, for all texts together.
        block_size: how many tokens a block holds.
        budget: how many tokens a step reads at most; so many requests can run at once.
        temperature: divides the logits before the softmax; at 0 the likeliest token is taken.
        stop: the token after which a text ends; it is part of the text.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        model: nn.Module,
        blocks: int,
        *,
        block_size: int = 16,
        budget: int = 64,
        temperature: float = 1.0,
        stop: int | None = None,
    ) -> None:
        for name, count in (("blocks", blocks), ("block_size", block_size), ("budget", budget)):
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} must be a positive integer, got {count!r}")
        if not isinstance(temperature, int | float) or not 0.0 <= temperature < math.inf:
            raise ValueError(f"temperature must be a number of at least 0, got {temperature!r}")
        self.model, self.budget = model, budget
        self.temperature, self.stop, self.block_size = temperature, stop, block_size
        self.users = [0] * blocks  # how many tables name each block; 0: it is free
        self.memories = [BlockMemory(blocks * block_size) for _ in model.blocks]
        self.waiting: list[Request] = []
        self.running: list[Request] = []  # the newest one is the last
        self.preemptions = 0  # how often a request has lost its blocks
        self.copies = 0  # how many blocks were copied before somebody wrote

    def add(self, prompt: Tensor, n: int, generator: torch.Generator | None = None) -> Request:
        """Let a request wait for its turn; its `tokens` are the prompt, and grow by up to n.

        Args:
            prompt: (T,) integers, at least one.
            n: how many tokens to write, at least one; the whole text must fit into the memory.
            generator: where its draws come from, so that it does not depend on its neighbours.
        """
        if not isinstance(prompt, Tensor) or prompt.dim() != 1 or not len(prompt):
            came = tuple(prompt.shape) if isinstance(prompt, Tensor) else repr(prompt)
            raise ValueError(f"prompt must be a tensor of shape (at least 1,), got {came}")
        if not isinstance(n, int) or n < 1:
            raise ValueError(f"n must be a positive integer, got {n!r}")
        room = len(self.users) * self.block_size
        if len(prompt) + n - 1 > room:  # the last token is written and never read
            raise ValueError(f"prompt and n must fit into {room} rows, got {len(prompt)} and {n}")
        request = Request(prompt, len(prompt) + n, generator)
        self.waiting.append(request)
        return request

    @torch.no_grad()
    def step(self) -> dict[Request, int]:
        """Let the model read once; return how many tokens of each request it read, or {}."""
        plan = self._plan()
        if not plan:
            return plan
        for (request, count), logits in zip(plan.items(), self._read(plan), strict=True):
            request.read += count
            if not request.unread:
                token = choose(logits[None], self.temperature, [request.generator])
                request.tokens = torch.cat([request.tokens, token])
                if len(request.tokens) == request.most or token.item() == self.stop:
                    self.running.remove(request)
                    self._release(request)
        return plan

    # Who reads how much

    def _plan(self) -> dict[Request, int]:
        """Say how many tokens of which request are read next, and give them room."""
        plan: dict[Request, int] = {}
        left, full = self.budget, False
        # Those that write have one unread token each, and come before those that still read.
        for request in sorted(self.running, key=lambda request: request.unread > 1):
            count = min(request.unread, left)
            while count and request in self.running:
                if self._make_room(request, count):
                    plan[request] = count
                    left -= count
                    break
                full, newest = True, self.running[-1]
                plan.pop(newest, None)
                self._preempt(newest)
        while self.waiting and left and not full:
            request = self.waiting[0]
            self._share(request)
            count = min(request.unread, left)
            if not self._make_room(request, count):  # for a newcomer nobody is sent away
                self._release(request)
                break
            self.running.append(self.waiting.pop(0))
            plan[request] = count
            left -= count
        return plan

    # Who has which blocks

    def _make_room(self, request: Request, count: int) -> bool:
        """Give a request blocks of its own for its next tokens; False if too few are free."""
        table, size = request.table, self.block_size
        first = request.read // size  # the block of its next token
        shared = first < len(table) and self.users[table[first]] > 1
        missing = math.ceil((request.read + count) / size) - len(table)
        free = [block for block, users in enumerate(self.users) if not users]
        if shared + missing > len(free):
            return False
        if shared:  # copy on write
            for memory in self.memories:
                memory.copy(table[first], free[0], size)
            self.users[table[first]] -= 1
            self.users[free[0]] += 1
            table[first] = free.pop(0)
            self.copies += 1
        for block in free[:missing]:
            self.users[block] += 1
            table.append(block)
        return True

    def _share(self, request: Request) -> None:
        """Give a newcomer the blocks of that running text which begins like it for longest."""
        for other in self.running:
            # Its last token must be read anyway, because what follows it is asked for.
            most = min(other.read, len(request.tokens) - 1)
            alike = (other.tokens[:most] == request.tokens[:most]).cumprod(dim=0).sum().item()
            if alike > request.read:
                request.read = alike
                request.table = other.table[: math.ceil(alike / self.block_size)]
        for block in request.table:
            self.users[block] += 1

    def _preempt(self, request: Request) -> None:
        """Take all blocks from a request, and let it wait before all others."""
        self.running.remove(request)
        self.waiting.insert(0, request)
        self._release(request)
        self.preemptions += 1

    def _release(self, request: Request) -> None:
        """Give back the blocks of a request; of what was read nothing is left."""
        for block in request.table:
            self.users[block] -= 1
        request.table, request.read = [], 0

    # The pass through the model

    def _read(self, plan: dict[Request, int]) -> Tensor:
        """Read so many tokens of each request; return the logits after the last, (requests, vocab).

        All tokens stand in one row, text after text, and each attends to its own text alone.
        """
        tokens, positions, new, keep = [], [], [], []
        for request, count in plan.items():
            device, start, end = request.tokens.device, request.read, request.read + count
            blocks = torch.tensor(request.table, device=device)
            within = torch.arange(self.block_size, device=device)
            rows = (blocks[:, None] * self.block_size + within).flatten()  # of the memory
            sees = torch.zeros(
                count, len(self.users) * self.block_size, dtype=torch.bool, device=device
            )
            sees[:, rows[:end]] = torch.ones(count, end, dtype=torch.bool, device=device).tril(
                start
            )
            tokens.append(request.tokens[start:end])
            positions.append(torch.arange(start, end, device=device))
            new.append(rows[start:end])
            keep.append(sees)
        for memory in self.memories:
            memory.new = torch.cat(new)
        logits = self.model(
            torch.cat(tokens)[None],
            positions=torch.cat(positions)[None],
            attn_mask=torch.cat(keep),
            caches=self.memories,
        )
        return logits[0, torch.tensor(list(plan.values())).cumsum(dim=0) - 1]


def choose(
    logits: Tensor, temperature: float, generators: Sequence[torch.Generator] | None
) -> Tensor:
    """Draw one token of each row, (batch, vocab_size) → (batch,)."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    shares = shares_of(logits, temperature)
    numbers = [
        torch.rand(1, generator=generator, dtype=shares.dtype, device=shares.device)
        for generator in (generators or [None] * len(shares))
    ]
    return token_at(shares, torch.cat(numbers))


def shares_of(logits: Tensor, temperature: float) -> Tensor:
    """Return the probability of each token, (..., vocab_size), in float32 or wider.

    In the 8 bits of bfloat16 a thousand equal tokens could not all be drawn. The largest logit is
    taken off first, so that a small temperature cannot make infinity of it.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.softmax((logits - logits.amax(dim=-1, keepdim=True)) / temperature, dim=-1)


def token_at(shares: Tensor, numbers: Tensor) -> Tensor:
    """Return the token into whose share each number falls, (..., vocab_size) and (...) → (...).

    The shares need not sum to 1; the numbers are in [0, 1), in float32 or wider. A token without a
    share is never returned. torch.multinomial draws too, but differently on different processors.
    """
    bounds = shares.cumsum(dim=-1, dtype=torch.promote_types(shares.dtype, torch.float32))
    bounds = bounds.masked_fill(shares == 0, 0.0)  # no number is below 0, so none falls here
    numbers = numbers[..., None] * bounds.amax(dim=-1, keepdim=True)
    return (numbers < bounds).int().argmax(dim=-1)  # the first token whose bound is above
