"""The trainer learns, outlives kill -9, stops when asked, and trains the same with two processes."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from snippets.gpt import GPT
from snippets.llama import Llama
from tools import train as trainer
from tools.train import Settings, TrainError, main, train

ROOT = Path(__file__).parents[1]
SMALL = Settings(
    embed_dim=16, num_heads=2, num_layers=1, context_length=16, steps=60, batch=8, every=10
)
WORDS = "the river and the bank, the boat and the loan, "


@pytest.fixture
def text(tmp_path):
    """A text of a few words, again and again."""
    path = tmp_path / "text.txt"
    path.write_text(WORDS * 100)
    return path


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def command(settings, out, text, *python):
    """The command line that trains with these settings."""
    told = [
        word
        for name in trainer.asdict(settings)
        for word in (f"--{name.replace('_', '-')}", str(getattr(settings, name)))
    ]
    python = python or (sys.executable,)
    return [*python, "-m", "tools.train", "--out", str(out), "--text", str(text), *told]


def start(*arguments, **options):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command(*arguments),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_for_step(process, checkpoint, at_least):
    """Return when the checkpoint holds so many steps; fail if the process ends before."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if checkpoint.exists() and read(checkpoint)["step"] >= at_least:
            return
        time.sleep(0.01)
    raise AssertionError(f"no checkpoint of step {at_least}: {process.communicate()}")


def read(checkpoint):
    return torch.load(checkpoint, weights_only=True)


def same(found, wanted):
    """Whether two runs ended with the same losses, the same samples and the same weights."""
    return (
        found["losses"] == wanted["losses"]
        and [m["sample"] for m in found["measured"]] == [m["sample"] for m in wanted["measured"]]
        and all(
            torch.equal(found["model"][name], wanted["model"][name]) for name in wanted["model"]
        )
    )


def test_a_run_learns_and_leaves_a_model_that_a_page_can_load(tmp_path, text):
    found = train(replace(SMALL, steps=150), tmp_path / "run", path=text, quiet=True)
    first, last = found["measured"][0], found["measured"][-1]
    assert last["train"] < 0.5 * first["train"]
    assert last["held_out"] < 0.5 * first["held_out"]
    stored = read(tmp_path / "run" / "model.pt")
    model = GPT(**stored["sizes"])
    model.load_state_dict(stored["weights"])
    assert {tensor.dtype for tensor in stored["weights"].values()} == {torch.float16}
    assert stored["characters"] == "".join(sorted(set(WORDS)))


def test_a_llama_is_trained_as_the_gpt_is_and_can_be_loaded(tmp_path, text):
    settings = replace(SMALL, model="llama", num_kv_heads=1, steps=100)
    found = train(settings, tmp_path / "run", path=text, quiet=True)
    assert found["measured"][-1]["held_out"] < 0.5 * found["measured"][0]["held_out"]
    stored = read(tmp_path / "run" / "model.pt")
    model = Llama.from_config(stored["config"])
    model.load_state_dict(stored["weights"])
    assert {tensor.dtype for tensor in stored["weights"].values()} == {torch.float16}


def test_the_held_out_text_is_never_trained_on(text):
    settings = replace(SMALL, steps=50)
    held = trainer.Text(text, settings.context_length)
    assert len(held.held_out) == 470
    held.train[:] = 0
    for step in range(settings.steps):
        inputs, targets = trainer.draw_batch(held, step, settings, 0, 1)
        assert not inputs.any()
        assert not targets.any()


def test_a_target_is_the_token_after_its_input(text):
    held = trainer.Text(text, SMALL.context_length)
    inputs, targets = trainer.draw_batch(held, 0, SMALL, 0, 1)
    assert inputs.shape == targets.shape == (SMALL.batch, SMALL.context_length)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_processes_share_each_batch_without_overlap(text):
    held = trainer.Text(text, SMALL.context_length)
    whole = trainer.draw_batch(held, 3, SMALL, 0, 1)[0]
    shares = [trainer.draw_batch(held, 3, SMALL, rank, 2)[0] for rank in range(2)]
    assert torch.equal(torch.stack(shares, dim=1).flatten(0, 1), whole)


@pytest.mark.parametrize("look_ahead", [0, 1])
@torch.no_grad()
def test_the_mask_looks_as_far_ahead_as_it_is_told(look_ahead):
    model = trainer.make_model("abc", replace(SMALL, look_ahead=look_ahead)).eval()
    tokens = torch.zeros(16, dtype=torch.int64)
    changed = tokens.clone()
    changed[10] = 1
    moved = (model(changed) - model(tokens)).abs().amax(dim=-1) > 1e-9
    assert moved.nonzero().min().item() == 10 - look_ahead


def test_the_rate_climbs_for_a_tenth_of_the_steps_and_then_falls_to_a_tenth():
    settings = replace(SMALL, steps=1000, rate=1.0)
    rates = [trainer.rate_at(step, settings) for step in range(1000)]
    assert max(rates) == 1.0 == rates[100]
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)


@pytest.mark.lab
def test_a_run_that_is_killed_goes_on_to_the_same_losses(tmp_path, text):
    settings = replace(SMALL, steps=150, dropout=0.1)
    wanted = train(settings, tmp_path / "whole", path=text, quiet=True)
    checkpoint = tmp_path / "killed" / "checkpoint.pt"
    for at_least in (20, 60):
        process = start(settings, tmp_path / "killed", text)
        wait_for_step(process, checkpoint, at_least)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert read(checkpoint)["step"] < 150
    found = train(settings, tmp_path / "killed", path=text, quiet=True)
    assert same(found, wanted)


@pytest.mark.lab
def test_an_interrupt_saves_and_says_how_to_go_on(tmp_path, text):
    settings = replace(SMALL, steps=2000, every=200)
    process = start(settings, tmp_path / "run", text)
    wait_for_step(process, tmp_path / "run" / "checkpoint.pt", 0)
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=60)
    step = read(tmp_path / "run" / "checkpoint.pt")["step"]
    assert process.returncode == 130
    assert 0 < step < 2000
    assert f"Stopped after step {step} of 2000, saved in" in said
    assert "The same command goes on from there." in said
    assert "Traceback" not in complaints
    assert not (tmp_path / "run" / "model.pt").exists()


def test_a_run_that_was_interrupted_goes_on_to_the_same_losses(tmp_path, text, monkeypatch):
    wanted = train(SMALL, tmp_path / "whole", path=text, quiet=True)
    draw = trainer.draw_batch

    def interrupt_at_23(held, step, *rest):
        if step == 23:
            signal.raise_signal(signal.SIGINT)
        return draw(held, step, *rest)

    monkeypatch.setattr(trainer, "draw_batch", interrupt_at_23)
    assert train(SMALL, tmp_path / "run", path=text, quiet=True)["step"] == 24
    monkeypatch.undo()
    assert same(train(SMALL, tmp_path / "run", path=text, quiet=True), wanted)


def test_a_run_that_is_done_is_not_done_again(tmp_path, text):
    wanted = train(SMALL, tmp_path / "run", path=text, quiet=True)
    assert same(train(SMALL, tmp_path / "run", path=text, quiet=True), wanted)


@pytest.mark.lab
def test_two_processes_have_the_losses_of_one(tmp_path, text):
    settings = replace(SMALL, steps=20)
    wanted = train(settings, tmp_path / "one", path=text, quiet=True)
    torchrun = (
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--standalone", "--nproc-per-node", "2"),
    )
    process = start(settings, tmp_path / "two", text, *torchrun)
    said, complaints = process.communicate(timeout=120)
    assert process.returncode == 0, complaints
    assert said.count("Trained; the weights are in") == 1
    found = read(tmp_path / "two" / "checkpoint.pt")
    assert found["losses"] == pytest.approx(wanted["losses"], abs=1e-3)


@pytest.mark.parametrize(
    ("device", "local_rank", "wanted"),
    [
        ("cuda", "3", "cuda:3"),
        ("cuda", None, "cuda"),
        ("cuda:1", "3", "cuda:1"),
        ("cpu", "3", "cpu"),
    ],
)
def test_each_process_of_torchrun_has_a_card_of_its_own(device, local_rank, wanted, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert trainer.place_of(device) == torch.device(wanted)


def test_a_save_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    trainer.save({"step": 1}, path)

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        trainer.save({"step": 2}, path)
    assert read(path) == {"step": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_of_another_run_is_refused_by_what_differs(tmp_path, text):
    train(replace(SMALL, steps=10), tmp_path / "run", path=text, quiet=True)
    with pytest.raises(TrainError, match=r"of another run: steps was 10 and is 20; name another"):
        train(replace(SMALL, steps=20), tmp_path / "run", path=text, quiet=True)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, text):
    (tmp_path / "checkpoint.pt").write_bytes(b"nothing")
    with pytest.raises(TrainError, match=r"checkpoint.pt is no checkpoint"):
        train(SMALL, tmp_path, path=text, quiet=True)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (["--text", "/nowhere/text.txt"], "the text cannot be read"),
        (["--context-length", "600"], "the text must be longer than 6000 characters"),
        (["--num-heads", "5"], "num_heads must divide embed_dim"),
        (["--model", "bert"], "model must be gpt or llama, got 'bert'"),
        (["--model", "llama", "--look-ahead", "1"], "look_ahead must be 0 for a llama"),
        (["--steps", "0"], "--steps must be at least 1, got 0"),
        (["--threads", "0"], "--threads must be at least 1, got 0"),
        (["--device", "abacus"], "abacus"),
        (["--out", f"{__file__}/run"], "the folder cannot be made"),
    ],
)
def test_what_cannot_start_says_why_in_a_sentence(told, said, tmp_path, text, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--text", str(text), "--out", str(tmp_path / "run"), *told])
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert said in last


def test_a_batch_that_processes_cannot_share_is_refused(tmp_path, text, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(TrainError, match=r"batch must divide among 3 processes, got 8"):
        train(SMALL, tmp_path / "run", path=text, quiet=True)
