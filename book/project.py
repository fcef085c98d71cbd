"""What this book adds to the checker; pyproject.toml names it."""

import os
from pathlib import Path

from book import drawing, html, measured, prose, rules
from book.figures import labels, options
from book.figures.explorable import fence
from book.heading import heading
from literate.fence import SHOWN
from literate.project import Drawings, Kind, Project, Prose, Shown

# Kernels of Triton run on the processor. It is read where Triton is first imported, which torch does before any page.
os.environ.setdefault("TRITON_INTERPRET", "1")


def _check(body: str, options: dict[str, str]) -> None:
    fence.read(body)


def _inlined(text: str, folder: Path) -> str:
    return measured.inlined(drawing.inlined(text, folder), folder)


PROJECT = Project(
    # Tables of trained models print two digits, and one of these moved on a simulated processor.
    significant=2,
    kinds={
        "output": Kind(
            options.OPTIONS, options.check, opening=Shown(labels.program, labels.filled)
        ),
        prose.EXPLORABLE: Kind(
            check=_check,
            body=Shown(fence.program, fence.filled),
            stands_for="*An interactive figure stands here on [the page]({address}).*",
        ),
    },
    options=SHOWN,
    drawings=Drawings(_inlined, drawing.named, measured.taken),
    drawn=html.problems,
    check=rules.check,
    solution=rules.solution,
    heading=heading,
    prose=Prose(prose.quotes, prose.problems),
    files=rules.FILES,
    code=Path(__file__).parent,
)
