"""What an `output` fence may say of what its block printed; `output.py` shows it."""

from book.figures.output import KINDS
from literate.fence import OUTPUT, Option, check_options

OPTIONS = {
    **{kind: Option(flag=True, rivals=tuple(KINDS.keys() - {kind})) for kind in KINDS},
    **{
        name: Option(to=kind, **form)
        for kind, figure in KINDS.items()
        for name, form in figure.OPTIONS.items()
    },
    "predict": Option(flag=True),
    "caption": Option(),
    **OUTPUT,
}


def check(text: str, options: dict[str, str]) -> None:
    """Raise ValueError where an `output` fence cannot be shown as its options ask."""
    check_options("output", options, OPTIONS)
    for kind, figure in KINDS.items():
        if kind in options:
            figure.check(text, options)
