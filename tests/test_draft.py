"""The stored draft is what the trainer makes by the command that its chapter names."""

import pytest
import torch

from tests.files import stored
from tools import train as trainer

DRAFT = trainer.Settings(embed_dim=32, num_layers=1)


def held_out_loss(draft):
    text = trainer.Text(trainer.TEXT, DRAFT.context_length)
    model = trainer.make_model(text.characters, DRAFT)
    model.load_state_dict(draft["weights"])
    return trainer.measure(model, text.held_out, torch.device("cpu"))


def test_the_draft_reads_and_writes_what_the_large_model_does():
    draft, large = stored("draft"), stored("gpt")
    assert draft["characters"] == large["characters"]
    assert draft["sizes"] == large["sizes"] | {"embed_dim": 32, "num_layers": 1}


def test_the_draft_has_the_loss_with_which_its_training_ended():
    loss = held_out_loss(stored("draft"))
    assert loss == pytest.approx(1.942, abs=0.002)


@pytest.mark.lab
def test_the_command_makes_such_a_draft_again(tmp_path):
    """On the machine that made it, the very same; on another, one as good."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainer.train(DRAFT, tmp_path, quiet=True)
    finally:
        torch.set_num_threads(threads)
    loss = held_out_loss(torch.load(tmp_path / "model.pt", weights_only=True))
    assert loss == pytest.approx(1.942, abs=0.03)
