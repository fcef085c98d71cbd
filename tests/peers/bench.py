"""How fast are the parts that write text, beside transformers? Prints ratios from one run.

Run by `make bench`, or: python -m tests.peers.bench
The book's Llama and that of transformers, with the same random weights and each with its own cache,
read a prompt, read one token after 8,191 others, and write a text. Both take turns in both orders,
on one thread, and are charged their processor time, as in tests.snippets.bench. First they are
shown to compute the same.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from snippets.generate import generate
from snippets.kv_cache import KVCache
from snippets.llama import Llama
from tests.snippets.bench import measure, report

OURS, THEIRS = "the book's Llama", "that of transformers"
SIZES = {"vocab_size": 1000, "embed_dim": 512, "num_heads": 8, "num_layers": 4}
KEYS = 8192  # in a step of decoding
WRITTEN = 64  # tokens of a text


def build(num_kv_heads: int) -> tuple[Llama, LlamaForCausalLM]:
    """Return the two models."""
    ours = Llama(**SIZES, num_kv_heads=num_kv_heads).eval()
    theirs = LlamaForCausalLM(LlamaConfig(**ours.config, eos_token_id=None)).eval()
    theirs.load_state_dict(ours.to_hugging_face())
    return ours, theirs


def prefill(ours: Llama, theirs: LlamaForCausalLM, prompt: Tensor) -> dict[str, Callable]:
    """Read a whole prompt into new caches; return the logits of its last token."""
    length = prompt.size(1)
    return {
        OURS: lambda: ours(prompt, caches=[KVCache(length) for _ in ours.blocks], last=1),
        THEIRS: lambda: (
            theirs(
                prompt, past_key_values=DynamicCache(config=theirs.config), logits_to_keep=1
            ).logits
        ),
    }


def decode(ours: Llama, theirs: LlamaForCausalLM, token: Tensor) -> dict[str, Callable]:
    """Read one token after KEYS - 1 others, which the caches hold, and forget it again."""
    caches = [KVCache(KEYS) for _ in ours.blocks]
    held = DynamicCache(config=theirs.config)
    for layer, cache in enumerate(caches):
        kv_heads = theirs.config.num_key_value_heads
        keys, values = torch.randn(2, 1, kv_heads, KEYS - 1, theirs.config.head_dim)
        cache.update(keys, values)
        held.update(keys, values, layer)

    def our_step() -> Tensor:
        logits = ours(token, caches=caches)
        for cache in caches:
            cache.truncate(KEYS - 1)
        return logits

    def their_step() -> Tensor:
        logits = theirs(token, past_key_values=held).logits
        held.crop(-1)  # one token less
        return logits

    return {OURS: our_step, THEIRS: their_step}


def write(ours: Llama, theirs: LlamaForCausalLM, prompts: Tensor) -> dict[str, Callable]:
    """Write greedily after each prompt; return the whole texts."""
    options = {"max_new_tokens": WRITTEN, "do_sample": False, "pad_token_id": 0}
    return {
        OURS: lambda: torch.stack(generate(ours, list(prompts), WRITTEN, 0, cache=KVCache)),
        THEIRS: lambda: theirs.generate(
            prompts, attention_mask=torch.ones_like(prompts), **options
        ),
    }


@torch.no_grad()
def main() -> None:
    """For each kind of work: prove the models equal, then time them, then print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="about, for each row")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokens = partial(torch.randint, SIZES["vocab_size"])
    for num_kv_heads in (8, 2):
        models = build(num_kv_heads)
        print(f"Llama, 8 heads that share {num_kv_heads}, one thread")
        for title, rivals in (
            ("prefill of 1,024 tokens", prefill(*models, tokens((1, 1024)))),
            (f"a step at {KEYS:,} keys", decode(*models, tokens((1, 1)))),
            (f"{WRITTEN} tokens of one text", write(*models, tokens((1, 64)))),
            (f"{WRITTEN} tokens of four texts", write(*models, tokens((4, 64)))),
        ):
            found, wanted = (rivals[name]().float() for name in (OURS, THEIRS))
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-3)
            times = measure(lambda way, _: way(), rivals, tokens((0,)), arguments.seconds)
            report(title, OURS, times)


if __name__ == "__main__":
    main()
