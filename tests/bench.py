"""How fast are the parts, beside transformers and PyTorch? Prints ratios from one run: `make bench`.

    python -m tests.bench                      every row, in about five minutes
    python -m tests.bench decode --seconds 20  some of them, for longer

All run on one thread and are charged their processor time, so that whatever else the machine does
counts for little. Rivals are shown to compute the same, take turns in every order, and a ratio is
the median of all rounds: below 1 the book's part is faster. Nothing is asserted of the times.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

from snippets.generate import generate
from snippets.kv_cache import KVCache
from snippets.llama import Llama
from snippets.multi_head_attention import MultiHeadAttention
from tests.snippets.facts import copy_weights

Ways = dict[str, Callable[[], Tensor]]
SIZES = {"vocab_size": 1000, "embed_dim": 512, "num_heads": 8, "num_layers": 4}
WRITTEN = 64  # tokens of a text


def llamas(num_kv_heads: int) -> tuple[Llama, LlamaForCausalLM]:
    """The book's model and that of transformers, with the same random weights."""
    torch.manual_seed(0)
    ours = Llama(**SIZES, num_kv_heads=num_kv_heads, context_length=16_384).eval()
    theirs = LlamaForCausalLM(LlamaConfig(**ours.config, eos_token_id=None)).eval()
    theirs.load_state_dict(ours.to_hugging_face())
    return ours, theirs


def decode() -> Iterator[tuple[str, Ways]]:
    """One token after many others, which the caches hold, and forgotten again."""
    for num_kv_heads, keys, batch in itertools.product((8, 2), (512, 2048, 8192), (1, 8)):
        ours, theirs = llamas(num_kv_heads)
        caches = [KVCache(keys) for _ in ours.blocks]
        dynamic = DynamicCache(config=theirs.config)
        static = StaticCache(config=theirs.config, max_cache_len=keys)
        for layer, cache in enumerate(caches):
            held = torch.randn(2, batch, num_kv_heads, keys - 1, ours.config["head_dim"])
            for each in (cache.update, static.layers[layer].update, dynamic.layers[layer].update):
                each(*held)
        token = torch.randint(SIZES["vocab_size"], (batch, 1))

        ways = {
            "the book's": partial(step, ours, "caches", caches, token),
            "StaticCache": partial(step, theirs, "past_key_values", static, token),
            "DynamicCache": partial(step, theirs, "past_key_values", dynamic, token),
        }
        yield f"decode: {keys:,} keys, batch {batch}, {num_kv_heads} heads of keys", ways


def step(model: nn.Module, name: str, held: object, token: Tensor) -> Tensor:
    """Read one token after those that are held, and forget it again."""
    made = model(token, **{name: held})
    if isinstance(held, StaticCache):
        for layer in held.layers:
            layer.cumulative_length.sub_(1)
    elif isinstance(held, DynamicCache):
        held.crop(-1)
    else:
        for cache in held:
            cache.truncate(cache.length - 1)
    return made if isinstance(made, Tensor) else made.logits


def write() -> Iterator[tuple[str, Ways]]:
    """Greedily after prompts of 64 tokens; whole texts."""
    options = {"max_new_tokens": WRITTEN, "do_sample": False, "pad_token_id": 0}
    for num_kv_heads, batch in itertools.product((8, 2), (1, 8)):
        ours, theirs = llamas(num_kv_heads)
        prompts = torch.randint(SIZES["vocab_size"], (batch, 64))

        ways = {
            "the book's": partial(generate, ours, [*prompts], WRITTEN, 0, cache=KVCache),
            "transformers'": partial(
                theirs.generate, prompts, attention_mask=torch.ones_like(prompts), **options
            ),
        }
        yield f"write: {WRITTEN} tokens, batch {batch}, {num_kv_heads} heads of keys", ways


def prefill() -> Iterator[tuple[str, Ways]]:
    """A whole prompt into new caches; the logits of its last token."""
    for num_kv_heads in (8, 2):
        ours, theirs = llamas(num_kv_heads)
        prompt = torch.randint(SIZES["vocab_size"], (1, 1024))

        def read(model: nn.Module, prompt: Tensor = prompt) -> Tensor:
            if isinstance(model, Llama):
                return model(prompt, caches=[KVCache(1024) for _ in model.blocks], last=1)
            return model(prompt, use_cache=True, logits_to_keep=1).logits

        ways = {"the book's": partial(read, ours), "transformers'": partial(read, theirs)}
        yield f"prefill: 1,024 tokens, {num_kv_heads} heads of keys", ways


def by_hand(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """The lines that an engineer would write, with no check at all."""
    query, key, value = (
        project(x).unflatten(-1, (12, 64)).transpose(1, 2)
        for project in (layer.W_query, layer.W_key, layer.W_value)
    )
    context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return layer.out_proj(context.transpose(1, 2).flatten(2))


def heads() -> Iterator[tuple[str, Ways]]:
    """Multi-head attention of 4 texts of 1,024 tokens, 768 wide, 12 heads."""
    torch.manual_seed(0)
    x, hide = torch.randn(4, 1024, 768), torch.ones(1024, 1024, dtype=torch.bool).triu(1)
    theirs, ours = nn.MultiheadAttention(768, 12, batch_first=True), MultiHeadAttention(768, 12)
    options = {"attn_mask": hide, "is_causal": True, "need_weights": False}
    copy_weights(theirs, ours)
    ways = {
        "the book's": lambda: ours(x, is_causal=True),
        "the lines by hand": lambda: by_hand(ours, x),
        "nn.MultiheadAttention": lambda: theirs(x, x, x, **options)[0],
    }
    yield "heads: forward", ways

    def with_backward(way: Callable[[], Tensor]) -> Tensor:
        with torch.enable_grad():
            result = way()
            result.sum().backward()
        return result.detach()

    both = {name: partial(with_backward, way) for name, way in ways.items()}
    yield "heads: forward and backward", both


def compare(title: str, ways: Ways, seconds: float) -> None:
    """Show that all compute the same, time them in every order, and print medians and ratios."""
    ours, *rivals = ways
    results = {name: way() for name, way in ways.items()}
    for name in rivals:
        found = torch.stack([*results[ours]])  # a list of texts, or a tensor
        torch.testing.assert_close(found, results[name], rtol=0, atol=1e-3)
    times, end = {name: [] for name in ways}, time.perf_counter() + seconds
    for order in itertools.cycle(itertools.permutations(ways)):
        for name in order:
            start = time.process_time()
            ways[name]()
            times[name].append(time.process_time() - start)
        if time.perf_counter() > end and len(times[ours]) > 2:
            break
    print(f"{title}: {1000 * statistics.median(times[ours]):.1f} ms, {len(times[ours])} rounds")
    for name in rivals:
        ratio = statistics.median(a / b for a, b in zip(times[ours], times[name], strict=True))
        print(f"    {ratio:5.2f} of {name} {1000 * statistics.median(times[name]):.1f} ms")


@torch.no_grad()
def main() -> None:
    """Run the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("only", nargs="?", help="decode, write, prefill or heads")
    parser.add_argument("--seconds", type=float, default=8.0, help="about, for each row")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for rows in (decode, write, prefill, heads):
        if arguments.only in (None, rows.__name__):
            for title, ways in rows():
                compare(title, ways, arguments.seconds)


if __name__ == "__main__":
    main()
