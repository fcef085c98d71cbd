"""Draws what a block printed: as a quiet box, as heatmaps, or as a chart.

Imports nothing but the standard library: a page that is run in a browser is drawn by this, too.
"""

import re
from html import escape

from book.figures import tables

# What a heatmap names for its labels, an expression and the words that it gives.
LABELS = re.compile(r"= (?P<expression>.+?):(?: (?P<words>.*)|$)")
# An output of more columns than the first needs smaller letters on a phone, from the second on too small
# ones there; beside both menus so does one of more than the third.
ROOMY, LONG, LONGEST = 40, 50, 112
# What stands in columns, a row of a matrix, of a table or of signs that are counted, and does not where its
# line is wrapped.
IN_COLUMNS = re.compile(r"(?: +\S.*[\d\]],?| *\S.*\S {2,}\S.*|.*(\S)\1{7}.*)$")
# A name, and what is said of it: where that is long it goes on below, under its beginning.
WIDEST_NAME = 20  # of letters; under a wider one nothing would have room
SAID_OF = re.compile(r"(?P<name>\S(?: ?\S)* {2,})\S(?: ?\S)*$")


def words_of(option: str) -> str:
    """Return the labels that `option`, the `rows` or `cols` of a heatmap, shows."""
    match = LABELS.fullmatch(option)
    return match["words"] or "" if match else option


def figure(text: str, options: dict[str, str]) -> str:
    """HTML of what a block printed, as a quiet box, a heatmap or a chart.

    Raises:
        ValueError: the options do not fit the text; says what came and what was wanted.
    """
    text = text.strip("\n")
    label = f"Ends in {options['raises']}" if "raises" in options else "Output"
    caption = f"<b>{escape(label)}</b>"
    if "caption" in options:
        caption += f" {escape(options['caption'], quote=False)}"
    if "varies" in options:
        caption += "." if "caption" in options else ""
        caption += (
            f" <small>Differs between platforms: {escape(options['varies'], quote=False)}.</small>"
        )
    kind, exact = "", _exact(text)
    if "heatmap" in options:
        kind = " drawn"
        drawn = heatmaps(text, options)
        exact = drawn + _folded(exact, "Exact text")
    elif "chart" in options:
        kind = " drawn"
        exact = tables.chart(text, options.get("x", ""), options.get("y", "")) + _folded(
            exact, "The numbers"
        )
    veil = " veiled" if "predict" in options else ""
    address = f' id="{options["name"]}"' if "name" in options else ""
    return f'<figure class="output{kind}{veil}"{address}><figcaption>{caption}</figcaption>{exact}</figure>'


def heatmaps(text: str, options: dict[str, str]) -> str:
    rows, cols = (words_of(options.get(key, "")) for key in ("rows", "cols"))
    name, plain = options.get("name", ""), "plain" in options
    return tables.heatmaps(text, rows, cols, name, plain)


def _exact(text: str) -> str:
    """The printed text itself. `<samp>` is what it is."""
    lines = text.split("\n")
    columns = max(map(len, lines))
    long = f' style="--columns:{columns}"' if ROOMY < columns <= LONGEST else ""
    shown = escape(text, quote=False)
    in_columns, names = sum(bool(IN_COLUMNS.match(line)) for line in lines) > 1, _names(lines)
    if columns > ROOMY and in_columns and not names:
        long += ' class="columns"'
    elif columns > LONG:
        long += ' class="long"'
        shown = "".join(_line(line, names) for line in text.splitlines(keepends=True))
    return f"<pre><samp{long}>{shown}</samp></pre>"


def _names(lines: list[str]) -> int:
    """How wide the names are where several lines are a name and what is said of it, and no line is more; or 0."""
    widths = [len(said["name"]) for line in lines if (said := SAID_OF.match(line))]
    more = [line for line in lines if re.search(r"\S {2,}\S", line) and not SAID_OF.match(line)]
    return widths[0] if len(widths) > 1 and len(set(widths)) == 1 and not more else 0


def _line(line: str, names: int) -> str:
    """One line of a long output, which a phone wraps, and how far what goes on below is indented."""
    said = SAID_OF.match(line)
    indent = len(line) - len(line.lstrip(" "))
    if said and 2 <= names <= WIDEST_NAME:
        indent = names - 2  # the style adds two letters
    return f'<span class="line" style="--in:{indent}">{escape(line, quote=False)}</span>'


def _folded(exact: str, summary: str) -> str:
    return f"<details data-search-exclude><summary>{summary}</summary>{exact}</details>"
