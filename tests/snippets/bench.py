"""How fast is MultiHeadAttention, beside its rivals? Prints ratios from one run.

Run by `make bench`, or: python -m tests.snippets.bench
The work is that of the book's lab: 8 × 1024 × 768, 12 heads, causal, in float32, forward without
gradients and forward with backward; then forward once more with the weights asked for, beside the
layer as most tutorials write it. The rivals take turns in every order, so that no one always follows
the same other. Each runs on one thread and is charged its processor time, so that whatever
else the machine does counts for little. A ratio is the median of those of all rounds.
"""

import argparse
import itertools
import platform
import statistics
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.multi_head_attention import MultiHeadAttention
from tests.snippets.facts import assert_equal, copy_weights


class Direct(nn.Module):
    """The same model, written directly on F.scaled_dot_product_attention, with no check at all."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_query = nn.Linear(embed_dim, embed_dim)
        self.W_key = nn.Linear(embed_dim, embed_dim)
        self.W_value = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, embed_dim) → the same shape."""
        b, t, e = x.shape
        query, key, value = (
            project(x).view(b, t, self.num_heads, e // self.num_heads).transpose(1, 2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out_proj(context.transpose(1, 2).reshape(b, t, e))


class Plainest(nn.Module):
    """The layer as most tutorials write it: a stored mask, no check, no guard for an empty row."""

    def __init__(self, embed_dim, num_heads, tokens):
        super().__init__()
        self.num_heads = num_heads
        self.W_query = nn.Linear(embed_dim, embed_dim)
        self.W_key = nn.Linear(embed_dim, embed_dim)
        self.W_value = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.register_buffer("hide", torch.ones(tokens, tokens, dtype=torch.bool).triu(1))

    def forward(self, x):
        """(batch, tokens, embed_dim) → the same, and the weights."""
        b, t, e = x.shape
        query, key, value = (
            project(x).view(b, t, self.num_heads, e // self.num_heads).transpose(1, 2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        scores = query @ key.transpose(2, 3)
        scores.masked_fill_(self.hide[:t, :t], float("-inf"))
        weights = torch.softmax(scores / (e // self.num_heads) ** 0.5, dim=-1)
        return self.out_proj((weights @ value).transpose(1, 2).reshape(b, t, e)), weights


def build(embed_dim: int, num_heads: int, tokens: int) -> dict:
    """Return name → function of x, for three models with the same weights."""
    theirs = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
    ours = MultiHeadAttention(embed_dim, num_heads)
    direct = Direct(embed_dim, num_heads)
    copy_weights(theirs, ours)
    copy_weights(theirs, direct)
    hide = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    return {
        "MultiHeadAttention": lambda x: ours(x, is_causal=True),
        "written on F.scaled_dot_product_attention": direct,
        "nn.MultiheadAttention(need_weights=False)": lambda x: theirs(
            x, x, x, attn_mask=hide, is_causal=True, need_weights=False
        )[0],
    }


def build_with_weights(embed_dim: int, num_heads: int, tokens: int) -> dict:
    """Return name → function of x, for two models that return the weights too."""
    plainest = Plainest(embed_dim, num_heads, tokens)
    ours = MultiHeadAttention(embed_dim, num_heads)
    ours.load_state_dict(plainest.state_dict(), strict=False)
    return {
        "MultiHeadAttention": lambda x: ours(x, is_causal=True, need_weights=True)[0],
        "the plainest class, weights and all": lambda x: plainest(x)[0],
    }


def forward(model, x: Tensor) -> None:
    """One pass without gradients."""
    with torch.no_grad():
        model(x)


def forward_and_backward(model, x: Tensor) -> None:
    """One pass and its gradients."""
    model(x).sum().backward()


def measure(work, models: dict, x: Tensor, seconds: float) -> dict[str, list[float]]:
    """Return processor seconds per call for each model: a warm-up, then turns in every order."""
    times = {name: [] for name in models}
    for model in models.values():
        work(model, x)
    end = time.perf_counter() + seconds
    orders = itertools.cycle(itertools.permutations(models))
    while time.perf_counter() < end:
        for name in next(orders):
            start = time.process_time()
            work(models[name], x)
            times[name].append(time.process_time() - start)
    return times


def report(title: str, ours: str, times: dict[str, list[float]]) -> None:
    """Print the median time of each, and as what share of it `ours` runs."""
    print(f"{title}, {len(times[ours])} rounds")
    for name, theirs in times.items():
        ratio = statistics.median(a / b for a, b in zip(times[ours], theirs, strict=True))
        milliseconds = 1000 * statistics.median(theirs)
        print(f"  {name:42} {milliseconds:8.1f} ms   {ours} takes {ratio:.3f} of it")


def main() -> None:
    """Prove the models equal, then time them, then print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="about, for each of the three kinds of work"
    )
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1024)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(arguments.batch, arguments.tokens, 768)
    print(
        f"{tuple(x.shape)}, 12 heads, causal, {x.dtype}; torch {torch.__version__}, "
        f"one thread, {platform.machine()}; all equal to 1e-5"
    )
    models = build(768, 12, arguments.tokens)
    with_weights = build_with_weights(768, 12, arguments.tokens)
    for title, work, rivals in (
        ("forward", forward, models),
        ("forward and backward", forward_and_backward, models),
        ("forward, with the weights", forward, with_weights),
    ):
        with torch.no_grad():
            wanted = rivals["MultiHeadAttention"](x[:1])
            for name, model in rivals.items():
                assert_equal(name, model(x[:1]), wanted, torch.float32)
        times = measure(work, rivals, x, arguments.seconds)
        report(title, "MultiHeadAttention", times)


if __name__ == "__main__":
    main()
