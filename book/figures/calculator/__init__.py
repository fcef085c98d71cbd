"""A calculator: a printed description of models, cards and precisions, for `cost.js` to reckon with as a reader chooses.

Each line of the text is JSON: first {"cards": …, "precisions": …}, then a model each, as `snippets/cost.py` says it.
A reader without scripts sees the sizes of the models. Imports nothing but the standard library: a page that is run in
a browser is drawn by this, too.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from book.figures import FigureError

OPTIONS: dict[str, dict] = {}
TEXT = "What it reckons with"
MODEL = {"name", "embed_dim", "table", "shared", "total", "layers", "mlps"}


def check(text: str, options: dict[str, str]) -> None:
    """Raise FigureError where `text` is no description."""
    read(text)


def read(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the cards and precisions, and the models.

    Raises:
        FigureError: says which line is wrong, what came and what was wanted.
    """
    lines, described = text.splitlines(), []
    for number, line in enumerate(lines, 1):
        wanted = MODEL if number > 1 else {"cards", "precisions"}
        try:
            found = json.loads(line)
        except ValueError as error:
            raise FigureError(f"line {number} of a calculator is not JSON: {error}") from error
        if not isinstance(found, dict) or found.keys() != wanted:
            raise FigureError(
                f"line {number} of a calculator: wanted {', '.join(sorted(wanted))}, got {line[:60]}"
            )
        described.append(found)
    if len(lines) < 2:
        raise FigureError(
            "a calculator wants a line of cards and precisions, and a line for each model"
        )
    first, *models = described
    return first, models


def html(text: str, options: dict[str, str]) -> str:
    """Return a custom element around the sizes of the models."""
    first, models = read(text)
    said = json.dumps(first | {"models": models}, ensure_ascii=False, separators=(",", ":"))
    rows = "".join(
        f'<tr><th scope="row">{escape(model["name"])}</th><td>{model["total"] / 1e9:.1f}</td>'
        f"<td>{2 * model['total'] / 1e9:.0f}</td></tr>"
        for model in models
    )
    names = "<th>model</th><th>billion weights</th><th>GB in bfloat16</th>"
    return (
        f'<div class="calculator" id="calculator" data-script="cost.js"><cost-calculator config="{escape(said)}">'
        f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table></cost-calculator></div>"
    )
