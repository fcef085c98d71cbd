"""Trains the book's GPT, `snippets/gpt.py`, on a text, one character a token: `make train`.

    python -m tools.train                                  the model of the chapter, into runs/gpt
    python -m tools.train --out runs/cheat --look-ahead 1  the model that cheats
    python -m tools.train --out runs/llama --model llama   `snippets/llama.py`, with the same budget

The folder gets `checkpoint.pt`, from which the same command goes on, and at the end `model.pt`, the
weights in half precision. What a step draws depends on the seed and the step alone, so a run that was
stopped in any way goes on from its last checkpoint to the losses that it would have had.
"""

import argparse
import math
import os
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from snippets.generate import generate
from snippets.gpt import GPT
from snippets.llama import Llama

ROOT = Path(__file__).resolve().parents[1]
TEXT = ROOT / "docs" / "files" / "shakespeare-dd708751.pt"
HELD_OUT = 0.1  # the last tenth of the text is never trained on
WINDOWS = 64  # pieces of the text on which a loss is measured, evenly spread


@dataclass(frozen=True)
class Settings:
    """All that the losses of a run depend on, besides the text."""

    model: str = "gpt"  # or llama
    embed_dim: int = 64
    num_heads: int = 4
    num_kv_heads: int = 2  # of a llama
    num_layers: int = 4
    context_length: int = 128
    look_ahead: int = 0  # how far the mask lets a token see ahead; 1 is the cheat
    steps: int = 3000
    batch: int = 16  # pieces of text in a step
    rate: float = 4e-3  # the highest learning rate, after the first tenth of the steps
    every: int = 200  # steps from one measurement, sample and checkpoint to the next
    seed: int = 0


class Text:
    """A text as numbers: which characters it has, what is trained on, and what is held out."""

    def __init__(self, path: Path, context_length: int) -> None:
        text = (
            torch.load(path, weights_only=True) if path.suffix == ".pt" else path.read_text("utf-8")
        )
        self.characters = "".join(sorted(set(text)))
        number = {character: place for place, character in enumerate(self.characters)}
        tokens = torch.tensor([number[character] for character in text])
        cut = len(tokens) - int(len(tokens) * HELD_OUT)
        self.train, self.held_out = tokens[:cut], tokens[cut:]
        if len(self.held_out) <= context_length:
            raise SystemExit(
                f"{path} must be longer than {context_length / HELD_OUT:.0f} characters"
            )

    def decode(self, tokens: Tensor) -> str:
        return "".join(self.characters[token] for token in tokens.tolist())


class LooksAhead(GPT):
    """A GPT in which each token sees so many later ones: the cheat."""

    def __init__(self, ahead: int, *sizes: int) -> None:
        super().__init__(*sizes)
        self.ahead = ahead

    def forward(self, tokens: Tensor, **how) -> Tensor:
        T = tokens.size(-1)
        keep = torch.ones(T, T, dtype=torch.bool, device=tokens.device).tril(self.ahead)
        return super().forward(tokens, attn_mask=keep, **how)


def make_model(characters: str, settings: Settings) -> GPT | Llama:
    """A new model for these characters, with the weights that the seed gives it."""
    torch.manual_seed(settings.seed)
    s, vocabulary = settings, len(characters)
    if s.model == "llama":
        sizes = {"num_kv_heads": s.num_kv_heads, "context_length": s.context_length}
        return Llama(vocabulary, s.embed_dim, s.num_heads, s.num_layers, **sizes)
    kind = partial(LooksAhead, s.look_ahead) if s.look_ahead else GPT
    return kind(vocabulary, s.context_length, s.embed_dim, s.num_heads, s.num_layers)


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """AdamW, which pulls matrices towards 0 and leaves biases and norms alone."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.rate, betas=(0.9, 0.99))


def rate_at(step: int, settings: Settings) -> float:
    """The learning rate of a step: up for a tenth of the steps, then down half a cosine to a tenth."""
    warm = max(1, settings.steps // 10)
    if step < warm:
        return settings.rate * (step + 1) / warm
    done = (step - warm) / max(1, settings.steps - warm)
    return settings.rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


def pieces(tokens: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The pieces of the text that begin at `starts`, and the tokens that follow, (count, length) each."""
    taken = tokens[starts[:, None] + torch.arange(length + 1)]
    return taken[:, :-1], taken[:, 1:]


def draw_batch(text: Text, step: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """The batch of a step, whose draws no other step has a part in."""
    generator = torch.Generator().manual_seed((settings.seed << 40) + (step << 8))
    length = settings.context_length
    starts = torch.randint(len(text.train) - length, (settings.batch,), generator=generator)
    return pieces(text.train, starts, length)


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def measure(model: GPT | Llama, tokens: Tensor, device: torch.device | str = "cpu") -> float:
    """The loss in nats per token on the same WINDOWS pieces of `tokens` each time."""
    length = model.context_length
    starts = torch.linspace(0, len(tokens) - length - 1, WINDOWS).long()
    inputs, targets = pieces(tokens, starts, length)
    return loss_of(model, inputs.to(device), targets.to(device)).item()


def sample(model: GPT | Llama, text: Text, device: str, count: int = 200) -> str:
    """What the model writes after the first held-out character, drawn with the same numbers each time."""
    start, generator = text.held_out[:1].to(device), torch.Generator(device).manual_seed(0)
    if isinstance(model, GPT):
        return text.decode(model.generate(start, count, 0.8, generator)[1:])
    return text.decode(generate(model, [start], count, 0.8, [generator])[0][1:])


def train(settings: Settings, out: Path, path=TEXT, device="cpu", quiet=False) -> dict[str, Any]:
    """Train in the folder `out`, from its checkpoint if it holds one, and return the last checkpoint.

    That holds `step`, how many steps are done; `losses`, one for each; `measured`, a list of `step`,
    `seconds` of training, of which this process was at work for `busy`, `train` and `held_out` losses,
    and a `sample`; the states of the model and of the optimizer; the settings.
    """
    text = Text(path, settings.context_length)
    model = make_model(text.characters, settings).to(device)
    optimizer = make_optimizer(model, settings)
    checkpoint = out / "checkpoint.pt"
    run: dict[str, Any] = {"settings": asdict(settings), "step": 0, "losses": [], "measured": []}
    run |= {"seconds": 0.0, "busy": 0.0}
    if checkpoint.exists():
        run = torch.load(checkpoint, weights_only=True, map_location=device)
        if run["settings"] != asdict(settings):
            raise SystemExit(
                f"{checkpoint} is of another run, {run['settings']}; choose a new --out"
            )
        model.load_state_dict(run["model"])
        optimizer.load_state_dict(run["optimizer"])

    def look() -> None:
        """Measure, write a sample, and save: the checkpoint is the old one or the new one, whole."""
        now = {name: run[name] for name in ("step", "seconds", "busy")}
        now["train"] = measure(model, text.train, device)
        now["held_out"] = measure(model, text.held_out, device)
        run["measured"].append(now | {"sample": sample(model, text, device)})
        out.mkdir(parents=True, exist_ok=True)
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(run | states, new := checkpoint.with_suffix(".new"))
        os.replace(new, checkpoint)
        if not quiet:
            losses = f"training {now['train']:.3f}   held out {now['held_out']:.3f}"
            tqdm.write(f"step {now['step']:>6}   {losses}   {now['seconds']:.0f} s")

    if not run["measured"]:
        look()
    for step in tqdm(range(run["step"], settings.steps), disable=quiet or None, leave=False):
        began, at_work = time.monotonic(), time.process_time()
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, settings)
        inputs, targets = draw_batch(text, step, settings)
        loss = loss_of(model, inputs.to(device), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        run["losses"].append(loss.item())
        run["step"] = step + 1
        run["seconds"] += time.monotonic() - began
        run["busy"] += time.process_time() - at_work
        if run["step"] % settings.every == 0 or run["step"] == settings.steps:
            look()
    weights = {name: tensor.half().cpu() for name, tensor in model.state_dict().items()}
    names = ("context_length", "embed_dim", "num_heads", "num_layers")
    sizes = {"vocab_size": len(text.characters)} | {n: getattr(settings, n) for n in names}
    known = {"config": model.config} if isinstance(model, Llama) else {"sizes": sizes}
    torch.save({**known, "characters": text.characters, "weights": weights}, out / "model.pt")
    return run | {"model": model.state_dict()}


def main() -> None:
    parser = argparse.ArgumentParser("python -m tools.train", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gpt")
    parser.add_argument("--device", default="cpu")
    for name, default in asdict(Settings()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    given = vars(parser.parse_args())
    out, device = given.pop("out"), given.pop("device")
    run = train(Settings(**given), out, device=device)
    print(f"\n{run['measured'][-1]['sample']}\n\nTrained; the weights are in {out / 'model.pt'}.")


if __name__ == "__main__":
    main()
