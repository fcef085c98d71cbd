"""Trains the book's GPT, `snippets/gpt.py`, on a text, one character a token: `make train`.

    python -m tools.train                                  the model of the chapter, into runs/gpt
    python -m tools.train --out runs/cheat --look-ahead 1  the model that cheats
    python -m tools.train --out runs/llama --model llama   `snippets/llama.py`, with the same budget
    torchrun --nproc-per-node 2 -m tools.train             the same, by two processes

The folder gets `checkpoint.pt`, from which the same command goes on, and at the end `model.pt`, the
weights in half precision. What a step draws depends on the seed and the step alone. So a run that was
killed, even by `kill -9`, goes on from its last checkpoint to the losses it would have had, and two
processes, which share each batch, have the losses of one but for rounding.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from snippets.generate import generate
from snippets.gpt import GPT
from snippets.llama import Llama

ROOT = Path(__file__).resolve().parents[1]
TEXT = ROOT / "docs" / "files" / "shakespeare-dd708751.pt"
HELD_OUT = 0.1  # the last tenth of the text is never trained on
WINDOWS = 64  # pieces of the text on which a loss is measured, evenly spread


class TrainError(Exception):
    """The run cannot start: says what is wrong, and what would do."""


def setting(default: Any, told: str) -> Any:
    return field(default=default, metadata={"help": told})


@dataclass(frozen=True)
class Settings:
    """All that the losses of a run depend on, besides the text."""

    model: str = setting("gpt", "gpt or llama")
    embed_dim: int = setting(64, "width of the residual stream")
    num_heads: int = setting(4, "heads in each layer")
    num_kv_heads: int = setting(2, "heads that keys and values have in a llama")
    num_layers: int = setting(4, "blocks")
    context_length: int = setting(128, "characters that the model reads at once")
    dropout: float = setting(0.0, "share that is set to 0 while training")
    look_ahead: int = setting(0, "how far the mask lets a token see ahead; 1 is the cheat")
    steps: int = setting(3000, "steps of the optimizer")
    batch: int = setting(16, "pieces of text in a step, over all processes")
    rate: float = setting(4e-3, "the highest learning rate, after the first tenth of the steps")
    every: int = setting(200, "steps from one measurement, sample and checkpoint to the next")
    seed: int = setting(0, "what every draw begins with")


class Text:
    """A text as numbers: which characters it has, what is trained on, and what is held out."""

    def __init__(self, path: Path, context_length: int) -> None:
        try:
            stored = path.suffix == ".pt"
            text = torch.load(path, weights_only=True) if stored else path.read_text("utf-8")
        except OSError as error:
            raise TrainError(f"the text cannot be read: {error}") from error
        self.characters = "".join(sorted(set(text)))
        tokens = self.encode(text)
        cut = len(tokens) - int(len(tokens) * HELD_OUT)
        self.train, self.held_out = tokens[:cut], tokens[cut:]
        if len(self.held_out) <= context_length:
            raise TrainError(
                f"the text must be longer than {context_length / HELD_OUT:.0f} characters, so that "
                f"a piece of it can be held out: {path} has {len(text)}"
            )

    def encode(self, text: str) -> Tensor:
        number = {character: place for place, character in enumerate(self.characters)}
        return torch.tensor([number[character] for character in text])

    def decode(self, tokens: Tensor) -> str:
        return "".join(self.characters[token] for token in tokens.tolist())


def make_model(characters: str, settings: Settings) -> GPT | Llama:
    """A new model for these characters, with the weights that the seed gives it."""
    torch.manual_seed(settings.seed)
    if settings.model == "llama":
        if settings.dropout or settings.look_ahead:
            raise ValueError("dropout and look_ahead must be 0 for a llama, which has neither")
        return Llama(
            len(characters),
            settings.embed_dim,
            settings.num_heads,
            settings.num_layers,
            num_kv_heads=settings.num_kv_heads,
            context_length=settings.context_length,
        )
    if settings.model != "gpt":
        raise ValueError(f"model must be gpt or llama, got {settings.model!r}")
    kind = partial(LooksAhead, settings.look_ahead) if settings.look_ahead else GPT
    return kind(
        len(characters),
        settings.context_length,
        settings.embed_dim,
        settings.num_heads,
        settings.num_layers,
        dropout=settings.dropout,
    )


class LooksAhead(GPT):
    """A GPT in which each token sees so many later ones: the cheat."""

    def __init__(self, ahead: int, *sizes: int, **options: float) -> None:
        super().__init__(*sizes, **options)
        self.ahead = ahead

    def forward(self, tokens: Tensor, **how: Any) -> Tensor:
        T = tokens.size(-1)
        keep = torch.ones(T, T, dtype=torch.bool, device=tokens.device).tril(self.ahead)
        return super().forward(tokens, attn_mask=keep, **how)


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


def seed_of(step: int, settings: Settings) -> int:
    return (settings.seed << 40) + (step << 8)


def draw_batch(text: Text, step: int, settings: Settings, rank: int, world: int):
    """This process's share of the batch of a step, whose draws no other step has a part in."""
    generator = torch.Generator().manual_seed(seed_of(step, settings))
    length = settings.context_length
    starts = torch.randint(len(text.train) - length, (settings.batch,), generator=generator)
    return pieces(text.train, starts[rank::world], length)


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def measure(model: GPT | Llama, tokens: Tensor, device: torch.device) -> float:
    """The loss in nats per token on the same WINDOWS pieces of `tokens` each time."""
    model.eval()
    length = model.context_length
    starts = torch.linspace(0, len(tokens) - length - 1, WINDOWS).long()
    inputs, targets = pieces(tokens, starts, length)
    loss = loss_of(model, inputs.to(device), targets.to(device)).item()
    model.train()
    return loss


def sample(model: GPT | Llama, text: Text, device: torch.device, count: int = 200) -> str:
    """What the model writes after the first held-out character, drawn with the same numbers each time."""
    model.eval()
    start = text.held_out[:1].to(device)
    generator = torch.Generator(device).manual_seed(0)
    if isinstance(model, GPT):
        written = model.generate(start[None], count, 0.8, generator)[0, 1:]
    else:
        written = generate(model, [start], count, 0.8, [generator])[0][1:]
    model.train()
    return text.decode(written)


def save(what: dict[str, Any], path: Path) -> None:
    """Write `what` to `path`, which at any moment holds the old or the new, whole."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as file:
            torch.save(what, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: Path, settings: Settings) -> dict[str, Any]:
    """The checkpoint at `path`; TrainError if it is that of another run."""
    try:
        found = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # torch.load raises whatever the bytes make it raise
        raise TrainError(f"{path} is no checkpoint: {error}") from error
    now = asdict(settings)
    other = [
        f"{name} was {was!r} and is {now.get(name)!r}"
        for name, was in found["settings"].items()
        if was != now.get(name)
    ]
    if other:
        raise TrainError(f"{path} is of another run: {', '.join(other)}; name another folder")
    return found


def place_of(device: str) -> torch.device:
    """The device of this process: of several cards in a machine, torchrun gives each process one."""
    place = torch.device(device)
    if place.type == "cuda" and place.index is None and "LOCAL_RANK" in os.environ:
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return place


@contextmanager
def asked_to_stop():
    """Within it an interrupt is noted in the list it yields; a second one is an interrupt as usual."""
    asked: list[int] = []

    def note(number: int, _frame: object) -> None:
        if number == signal.SIGINT and number in asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def train(
    settings: Settings, out: Path, *, path: Path = TEXT, device: str = "cpu", quiet: bool = False
) -> dict[str, Any]:
    """Train until all steps are done or somebody asks to stop, and return the last checkpoint.

    Args:
        settings: what to train, and how.
        out: the folder of the checkpoint; where it holds one, the run goes on from it.
        path: the text.
        device: name of a torch device. Where torchrun has started several processes, "cuda" is
            another card in each, and "cuda:0" the same in all.
        quiet: print nothing.

    Returns:
        `step`, how many steps are done; `losses`, one for each; `measured`, a list of `step`,
        `seconds` of training, of which this process was at work for `busy`, `train` and `held_out`
        losses, and a `sample`; the state of the model and of the optimizer; the settings.

    Raises:
        TrainError: the text, the folder or the settings will not do.
    """
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if settings.batch % world:
        raise TrainError(f"batch must divide among {world} processes, got {settings.batch}")
    text = Text(path, settings.context_length)

    try:
        place = place_of(device)
        model = make_model(text.characters, settings).to(place)
    except (ValueError, RuntimeError) as error:
        raise TrainError(str(error)) from error
    optimizer = make_optimizer(model, settings)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainError(f"the folder cannot be made: {error}") from error
    checkpoint = out / "checkpoint.pt"
    first, losses, measured, seconds, busy = 0, [], [], 0.0, 0.0
    if checkpoint.exists():
        found = load(checkpoint, settings)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        first, losses, measured = found["step"], found["losses"], found["measured"]
        seconds, busy = found["seconds"], found["busy"]
    several = world > 1
    if several:
        if place.type == "cuda":
            torch.cuda.set_device(place)  # NCCL asks which card is the current one
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    learner = DistributedDataParallel(model) if several else model
    talks = rank == 0 and not quiet
    bar = tqdm(
        total=settings.steps,
        initial=first,
        unit="step",
        disable=None if talks else True,
        leave=False,
    )

    def state(step: int) -> dict[str, Any]:
        return {
            "settings": asdict(settings),
            "step": step,
            "losses": losses,
            "measured": measured,
            "seconds": seconds,
            "busy": busy,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
        }

    def look(step: int) -> None:
        """Measure, write a sample, and save: at every so many steps, before the first and after the last."""
        measured.append(
            {
                "step": step,
                "seconds": seconds,
                "busy": busy,
                "train": measure(model, text.train, place),
                "held_out": measure(model, text.held_out, place),
                "sample": sample(model, text, place),
            }
        )
        save(state(step), checkpoint)
        if talks:
            tqdm.write(
                f"step {step:>6}   training {measured[-1]['train']:.3f}   "
                f"held out {measured[-1]['held_out']:.3f}   {seconds:.0f} s"
            )

    step = first
    with asked_to_stop() as asked, bar:
        if talks and first:
            tqdm.write(f"Going on after step {first} of {settings.steps}.")
        if rank == 0 and not measured:
            look(0)
        while step < settings.steps:
            began, at_work = time.monotonic(), time.process_time()
            torch.manual_seed(seed_of(step, settings) + 1 + rank)  # for dropout
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, settings)
            inputs, targets = draw_batch(text, step, settings, rank, world)
            loss = loss_of(learner, inputs.to(place), targets.to(place))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            # All processes learn the mean loss, and whether any of them was asked to stop.
            shared = torch.stack([loss.detach(), loss.new_tensor(float(bool(asked)))])
            if several:
                dist.all_reduce(shared)
            losses.append(shared[0].item() / world)
            stop = shared[1].item() > 0
            step += 1
            seconds += time.monotonic() - began
            busy += time.process_time() - at_work
            bar.update()
            bar.set_postfix_str(f"loss {losses[-1]:.2f}", refresh=False)
            if rank == 0 and (step % settings.every == 0 or step == settings.steps):
                look(step)
            elif rank == 0 and stop:
                save(state(step), checkpoint)
            if stop:
                break
    if several:
        # The learner first: if it were the last to hold the group, its end would wait for a thread
        # that waits for Python's lock.
        del learner
        dist.destroy_process_group()
    if rank == 0 and step == settings.steps:
        save(half(model, text, settings), out / "model.pt")
    return state(step)


def half(model: GPT | Llama, text: Text, settings: Settings) -> dict[str, Any]:
    """What a page needs to have this model: its sizes, its characters, its weights in float16."""
    names = ("context_length", "embed_dim", "num_heads", "num_layers")
    sizes = {name: getattr(settings, name) for name in names}
    sizes = {"vocab_size": len(text.characters), **sizes}
    return {
        **({"config": model.config} if isinstance(model, Llama) else {"sizes": sizes}),
        "characters": text.characters,
        "weights": {name: tensor.half().cpu() for name, tensor in model.state_dict().items()},
    }


def main(arguments: list[str] | None = None) -> int:
    """The command line: 0 when trained, 130 when interrupted, 2 when it cannot start."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.train", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "gpt", help="runs/gpt unless told"
    )
    parser.add_argument(
        "--text", type=Path, default=TEXT, help="a text file; some plays of Shakespeare unless told"
    )
    parser.add_argument("--device", default="cpu", help="cpu unless told; cuda, mps …")
    parser.add_argument("--threads", type=int, help="of each process; PyTorch's choice unless told")
    for each in fields(Settings):
        parser.add_argument(
            f"--{each.name.replace('_', '-')}",
            type=type(each.default),
            default=each.default,
            help=f"{each.metadata['help']}; {each.default} unless told",
        )
    told = parser.parse_args(arguments)
    settings = Settings(**{each.name: getattr(told, each.name) for each in fields(Settings)})
    for name in ("steps", "batch", "every"):
        if getattr(settings, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(settings, name)}")
    if told.threads is not None:
        if told.threads < 1:
            parser.error(f"--threads must be at least 1, got {told.threads}")
        torch.set_num_threads(told.threads)
    try:
        found = train(settings, told.out, path=told.text, device=told.device)
    except TrainError as error:
        parser.error(str(error))
    if int(os.environ.get("RANK", 0)) == 0:
        if found["step"] < settings.steps:
            print(
                f"Stopped after step {found['step']} of {settings.steps}, saved in "
                f"{told.out / 'checkpoint.pt'}. The same command goes on from there."
            )
        else:
            print(
                f"\n{found['measured'][-1]['sample']}\n\nTrained; the weights are in {told.out / 'model.pt'}."
            )
    return 0 if found["step"] == settings.steps else 130


if __name__ == "__main__":
    sys.exit(main())
