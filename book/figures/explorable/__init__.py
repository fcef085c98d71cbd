"""An explorable of attention: an `attention` fence, as `fence.py` reads it, for `attention.js` to bring to life.

The page holds it as JSON, with what the figure opens with, which a reader without scripts sees.
"""

from __future__ import annotations

import json
from html import escape

from book.figures.explorable.fence import Explorable, read
from book.figures.explorable.steps import Panel
from book.figures.heatmap import heat_table
from book.numerals import rounded


def _config(spec: Explorable) -> str:
    """What the script needs to know, as JSON in an attribute."""
    drawn = ("panels", "caption", "room")
    config = {key: value for key, value in vars(spec).items() if key not in drawn}
    config["panels"] = [{"name": p.name, "tokens": p.tokens, **p.matrices} for p in spec.panels]
    return escape(
        json.dumps(config, ensure_ascii=False, separators=(",", ":")), quote=False
    ).replace("'", "&#39;")


def _tables(panel: Panel, spec: Explorable) -> str:
    """The weights and the context vectors of one panel, as the figure opens."""
    steps = spec.steps(panel)
    where = f"{panel.name}: " if panel.name else ""
    drawn = ""
    for step, title in (("weights", "attention weights"), ("context", "context vectors")):
        rows = steps[step]
        cells = [[rounded(cell, spec.digits) for cell in row] for row in rows]
        numbers = spec.channels or [str(i) for i in range(len(rows[0]))]
        columns = panel.tokens if step == "weights" else numbers
        title = where + title
        # Without a mask what prints as zero is a weight like the others.
        plain = step == "context" or not spec.causal
        drawn += heat_table(cells, panel.tokens, columns, title[0].upper() + title[1:], plain=plain)
    return drawn


def _sentence(panel: Panel, spec: Explorable) -> str:
    """The words of one panel with their weights for the query, and what its context votes for."""
    query = spec.query or 0
    steps = spec.steps(panel)
    words = ""
    for place, (word, weight) in enumerate(zip(panel.tokens, steps["weights"][query], strict=True)):
        kind = "word on" if place == query else "word"
        said = f"{escape(word, quote=False)}<small>{rounded(weight, spec.digits)}</small>"
        words += f'<span class="{kind}" style="--v:{weight:.2f}">{said}</span> '
    votes = sorted(zip(steps["context"][query], spec.votes, strict=True), reverse=True)
    counted = ", ".join(f"{escape(word)} {rounded(vote, spec.digits)}" for vote, word in votes)
    said = f"{escape(panel.tokens[query])} → <b>{escape(votes[0][1])}</b>"
    return f'<p class="sentence">{words}</p><p class="votes">{said} <small>scores: {counted}; the higher wins</small></p>'


def html(body: str) -> str:
    """HTML of an `attention` fence: a custom element around what it opens with.

    Raises:
        ValueError: "line N of the fence: …", what came and what was wanted.
    """
    spec = read(body)
    draw = _sentence if spec.votes else _tables
    tables = "".join(draw(panel, spec) for panel in spec.panels)
    style = ' style="--room:{:g}rem;--room-beside:{:g}rem"'.format(*spec.room) if spec.room else ""
    return (
        f'<figure class="attention" data-script="attention.js"{style}><figcaption>{escape(spec.caption, quote=False)}</figcaption>'
        f"<attention-explorable config='{_config(spec)}'>"
        f'<div class="heats">{tables}</div></attention-explorable></figure>'
    )
