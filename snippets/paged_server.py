"""A scheduler for one model: a budget for each step, prompts in pieces, preemption.

    memory = PagedMemory(len(model.blocks), blocks=64)  # of paged_memory.py
    server = PagedServer(model, memory, choose, temperature=0.8, stop=[3, 4])  # of generate.py
    requests = [server.add(prompt, 100, generator) for prompt, generator in …]
    while server.step():
        …  # more requests may be added here, and texts read as they grow

Each text is the one that it would be alone, but for rounding: see generate.py.
Sources: Yu et al. (2022), "Orca" (requests enter and leave at each step); Kwon et al. (2023),
PagedAttention (preemption by recomputation); Agrawal et al. (2024), "Sarathi-Serve" (pieces).
"""

from collections.abc import Iterator
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
    failed: bool = False  # it ended because its logits were no numbers

    @property
    def unread(self) -> int:
        """How many tokens the model must read before it can write the next one."""
        return len(self.tokens) - self.read


class PagedServer:
    """Write after many prompts with one model.

    In a step it reads up to `budget` tokens: first the newest one of each text that is written,
    then prompts, in pieces. After every text that is then read to its end, one token is written,
    by choose(logits, temperature, generators). The text ends after a token of `stop`, its own too.
    When no block is free, the newest request loses its blocks and is read again later.
    """

    def __init__(
        self, model: nn.Module, memory, choose, *, budget: int = 64, temperature=1.0, stop=None
    ) -> None:
        if budget < 1:  # it would never read
            raise ValueError(f"budget must be at least 1, got {budget}")
        self.model, self.memory, self.choose, self.temperature = model, memory, choose, temperature
        self.budget, self.preemptions = budget, 0
        self.stops = () if stop is None else (stop,) if isinstance(stop, int) else stop
        self.waiting, self.running = [], []  # requests; the newest that runs is the last

    def add(self, prompt: Tensor, n: int, generator: torch.Generator | None = None) -> Request:
        """Let a prompt, (T,), wait for its turn; its `tokens` grow by up to n."""
        room = len(self.memory.users) * self.memory.size
        if prompt.dim() != 1 or not len(prompt) or n < 1 or len(prompt) + n - 1 > room:
            came = f"{tuple(prompt.shape)} and {n}"
            raise ValueError(f"prompt and n must be (T,), at least 1, for {room} rows, got {came}")
        self.waiting.append(Request(prompt, len(prompt) + n, generator))
        return self.waiting[-1]

    @torch.no_grad()
    def step(self) -> dict[Request, int]:
        """Let the model read; return how many tokens of each request it read, or {}."""
        plan = self._plan()
        for request, logits in self._read(plan):
            start, request.read = request.read, request.read + plan[request]
            self.memory.keep(request.table, request.tokens, start, request.read)
            if not request.unread:
                request.failed = not logits.amax().isfinite()  # its neighbours go on
                if not request.failed:
                    token = self.choose(logits[None], self.temperature, [request.generator])
                    request.tokens = torch.cat([request.tokens, token])
                ended = request.failed or len(request.tokens) == request.most
                if ended or request.tokens[-1].item() in self.stops:
                    self.running.remove(request)
                    self.memory.release(request.table)
        return plan

    def _plan(self) -> dict[Request, int]:
        """Say how many tokens of which request are read next, and give them room."""
        plan, left = {}, self.budget
        for request in list(self.running):  # all write, but for the newest, which may still read
            count = min(request.unread, left)
            while request in self.running:
                if self.memory.grow(request.table, request.read + count):
                    plan[request], left = count, left - count
                    break
                self._preempt(self.running[-1])
        while self.waiting and left:
            request = self.waiting[0]
            # Its last token must be read anyway, because what follows it is asked for.
            request.table = self.memory.find(request.tokens[:-1])
            request.read = len(request.table) * self.memory.size
            count = min(request.unread, left)
            if not self.memory.grow(request.table, request.read + count):
                self.memory.release(request.table)  # for a newcomer nobody is sent away
                break
            self.running.append(self.waiting.pop(0))
            plan[request], left = count, left - count
        return plan

    def _read(self, plan: dict[Request, int]) -> Iterator[tuple[Request, Tensor]]:
        """Read so many tokens of each request; yield it and the logits after its last, (vocab,)."""
        # Requests that read equally many tokens are a batch, whose rows may have keys of their own:
        # all that write are one, and mostly each piece of a prompt by itself.
        for count in sorted(set(plan.values())):
            group = [request for request in plan if plan[request] == count]
            tokens = torch.stack([r.tokens[r.read : r.read + count] for r in group])
            starts = torch.tensor([[r.read] for r in group], device=tokens.device)
            positions = starts + torch.arange(count, device=tokens.device)  # (texts, count)
            mask = self.memory.open([r.table for r in group], positions)
            how = {"positions": positions, "attn_mask": mask, "caches": self.memory.layers}
            logits = self.model(tokens, **how, last=1)  # (texts, 1, vocab)
            yield from zip(group, logits[:, -1], strict=True)

    def _preempt(self, request: Request) -> None:  # it waits before all others
        self.running.remove(request)
        self.waiting.insert(0, request)
        self.memory.release(request.table)
        request.read, self.preemptions = 0, self.preemptions + 1
