"""What an `output` fence may say of what its block printed; `drawn.py` draws it."""

import re

from book.figures import tables
from book.figures.drawn import heatmaps
from literate.fence import OUTPUT, Option, check_options

OPTIONS = {
    "heatmap": Option(flag=True),
    "chart": Option(flag=True, rival="heatmap"),
    "plain": Option(flag=True, to="heatmap"),
    "rows": Option(to="heatmap"),
    "cols": Option(to="heatmap"),
    "name": Option(
        form=re.compile(r"[a-z][a-z_]*$"), words="a word in small letters", to="heatmap"
    ),
    "predict": Option(flag=True),
    "x": Option(to="chart"),
    "y": Option(to="chart"),
    "caption": Option(),
    **OUTPUT,
}


def check(text: str, options: dict[str, str]) -> None:
    """Raise ValueError where an `output` fence cannot be drawn as its options ask."""
    check_options("output", options, OPTIONS)
    if "heatmap" in options:
        heatmaps(text, options)
    elif "chart" in options:
        tables.check_chart(text, options.get("y", ""))
