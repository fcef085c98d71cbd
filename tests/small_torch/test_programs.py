"""Random programs do in the small torch what they do in PyTorch, or are told what is lacking; others each time.

`python -m tests.small_torch.programs` runs thousands by hand, and says which differ.
"""

import secrets

import pytest

from tests.small_torch import programs

COUNT = 150
MOST = 6  # that may differ in silence; of thousands fewer than one in a hundred do


@pytest.mark.usefixtures("under_node")
def test_hardly_a_program_differs_in_silence():
    seed = secrets.randbelow(10**6)
    first = 10_000 * seed
    silent = [
        difference
        for difference in programs.differences(range(first, first + COUNT))
        if difference[0] in programs.SILENT
    ]
    reports = "\n\n".join(programs.told(*difference) for difference in silent)
    assert len(silent) <= MOST, (
        f"--seed {seed} --count {COUNT}: {len(silent)} differ in silence\n\n{reports}"
    )


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({"kind": "int", "value": 1, "text": "1"}, ""),
        ({"kind": "int", "value": 2, "text": "2"}, "value"),
        ({"kind": "bool", "value": True, "text": "True"}, "kind"),
        ({"raised": "TypeError", "message": ""}, "error"),
        ({"lacks": "torch.fft"}, "lacks"),
    ],
)
def test_a_difference_is_told_by_its_kind(found, kind):
    assert programs.compared(found, {"kind": "int", "value": 1, "text": "1"}) == kind


OPTIMIZER = """
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model(torch.ones(3, 2)).sum().backward()
optimizer.step()
"""
SCHEDULE = (
    OPTIMIZER
    + """
scheduler = torch.optim.lr_scheduler.{}
out = []
for _ in range(7):
    optimizer.step()
    scheduler.step()
    out.append(round(scheduler.get_last_lr()[0], 9))
"""
)
LOADER = """
from torch.utils.data import DataLoader, TensorDataset, random_split
data = TensorDataset(torch.arange(10), torch.arange(20.0).reshape(10, 2))
out = [[part.tolist() for part in batch] for batch in DataLoader({})], torch.rand(2).tolist()
"""
REFUSED = """torch.zeros(2, dtyp=1)|torch.optim.AdamW(nn.Linear(1, 1).parameters(), weight_decy=0.1)|torch.maximum(x, 1.5)|x.softmax()
x - True|torch.mm(x[None], x[None])|F.one_hot(x)|nn.Embedding(3, 2)(torch.tensor([-1]))|torch.where(torch.tensor([1, 0]), x, x)|x.cuda()
F.scaled_dot_product_attention(x, x, x, attn_mask=x > 0, is_causal=True)|x[0].expand(3, 2).add_(1)|nn.Liner(2, 2)|x.shpe""".replace(
    "\n", "|"
)
BEGINNERS = {
    "einsum": "out = [torch.einsum(e, torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3)) for e in "
    "('ij,kj->ik', 'ij,ij->', 'ij,ij', 'bi,bj->bij', '...d,...d->...')]",
    "state": OPTIMIZER
    + "held = optimizer.state_dict()\nother = torch.optim.SGD(model.parameters(), lr=1.0)\n"
    "other.load_state_dict(held)\nother.step()\nout = [model.weight.detach(), [*held['state'][0]], other.param_groups[0]['lr']]",
    "steps": SCHEDULE.format("StepLR(optimizer, 2)"),
    "cosine": SCHEDULE.format("CosineAnnealingLR(optimizer, 4)"),
    "lambda": SCHEDULE.format("LambdaLR(optimizer, lambda step: 1 / (step + 1))"),
    "in order": LOADER.format("data, batch_size=4"),
    "shuffled": LOADER.format("data, batch_size=4, shuffle=True, drop_last=True"),
    "by a generator": "g = torch.Generator().manual_seed(3)"
    + LOADER.format("data, 3, True, generator=g")
    + "out = out, torch.rand(1, generator=g).item()",
    "split": LOADER.format("random_split(data, [7, 3])[1]"),
    "no GPU": "out = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
    "loss": "x = torch.ones(2, 3, requires_grad=True)\nout = F.cross_entropy(x, torch.tensor([0, 2]))",
} | {code: f"x = torch.ones(2, 2)\nout = {code}" for code in REFUSED.split("|")}


@pytest.mark.usefixtures("under_node")
def test_the_first_lines_of_a_beginner_do_what_they_do_in_pytorch():
    lacking = {
        "x.cuda()",
        "nn.Liner(2, 2)",
        "x.shpe",
    }  # which the small torch says in its own words
    found = [each for each in programs.differing(BEGINNERS) if each[1] not in lacking]
    assert not found, "\n\n".join(programs.told(*difference) for difference in found)
