"""The trainer learns what is in the text, and goes on after any end to the losses that it would have had."""

from dataclasses import replace

import pytest
import torch

from snippets.gpt import GPT
from snippets.llama import Llama
from tools import train as trainer
from tools.train import Settings, train

SMALL = Settings(
    embed_dim=16, num_heads=2, num_layers=1, context_length=16, steps=30, batch=8, every=10
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


@pytest.mark.parametrize(
    ("settings", "load"),
    [
        (replace(SMALL, steps=60), lambda stored: GPT(**stored["sizes"])),
        (
            replace(SMALL, steps=60, model="llama", num_kv_heads=1),
            lambda stored: Llama.from_config(stored["config"]),
        ),
    ],
    ids=["gpt", "llama"],
)
def test_a_run_learns_and_leaves_a_model_that_a_page_can_load(settings, load, tmp_path, text):
    found = train(settings, tmp_path, text, quiet=True)
    first, last = found["measured"][0], found["measured"][-1]
    assert last["train"] < 0.7 * first["train"]
    assert last["held_out"] < 0.7 * first["held_out"]
    stored = torch.load(tmp_path / "model.pt", weights_only=True)
    load(stored).load_state_dict(stored["weights"])
    assert {tensor.dtype for tensor in stored["weights"].values()} == {torch.float16}
    assert stored["characters"] == "".join(sorted(set(WORDS)))


def test_the_held_out_text_is_never_trained_on_and_a_target_is_the_token_after_its_input(text):
    held = trainer.Text(text, SMALL.context_length)
    assert len(held.held_out) == 470
    inputs, targets = trainer.draw_batch(held, 0, SMALL)
    assert inputs.shape == targets.shape == (SMALL.batch, SMALL.context_length)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    held.train[:] = 0
    for step in range(50):
        assert not torch.cat(trainer.draw_batch(held, step, SMALL)).any()


@pytest.mark.parametrize("look_ahead", [0, 1])
@torch.no_grad()
def test_the_mask_looks_as_far_ahead_as_it_should(look_ahead):
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


def test_a_run_that_was_stopped_goes_on_to_the_same_losses(tmp_path, text, monkeypatch):
    wanted = train(SMALL, tmp_path / "whole", text, quiet=True)
    draw = trainer.draw_batch

    def stop_at_23(text, step, settings):
        if step == 23:
            raise KeyboardInterrupt
        return draw(text, step, settings)

    monkeypatch.setattr(trainer, "draw_batch", stop_at_23)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, tmp_path / "run", text, quiet=True)
    monkeypatch.undo()
    save = torch.save

    def fill_the_disk(what, path):
        save({}, path)
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", fill_the_disk)  # and the checkpoint stays whole
    with pytest.raises(OSError, match="no space left"):
        train(SMALL, tmp_path / "run", text, quiet=True)
    monkeypatch.undo()
    for _ in range(2):  # what is done is not done again
        found = train(SMALL, tmp_path / "run", text, quiet=True)
        assert found["losses"] == wanted["losses"]
        assert [m["sample"] for m in found["measured"]] == [m["sample"] for m in wanted["measured"]]
        for name, weights in wanted["model"].items():
            assert torch.equal(found["model"][name], weights)


def test_a_checkpoint_of_another_run_is_refused(tmp_path, text):
    train(replace(SMALL, steps=10), tmp_path, text, quiet=True)
    with pytest.raises(SystemExit, match="of another run"):
        train(replace(SMALL, steps=20), tmp_path, text, quiet=True)
