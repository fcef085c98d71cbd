"""An output: what a block printed, as a quiet box or as a figure of one of the KINDS.

Imports nothing but the standard library: a page that is run in a browser shows its outputs by this, too.
"""

import re
from html import escape
from types import ModuleType

from book.figures import calculator, chart, gallery, heatmap

# Each has OPTIONS, `check`, `html`, and TEXT, the name of the fold with what was printed.
KINDS: dict[str, ModuleType] = {
    "heatmap": heatmap,
    "chart": chart,
    "gallery": gallery,
    "calculator": calculator,
}
# An output of more columns than the first needs smaller letters on a phone, from the second on too small
# ones there; beside both menus so does one of more than the third.
ROOMY, LONG, LONGEST = 40, 50, 112
# What stands in columns, a row of a matrix, of a table or of signs that are counted, and does not where its
# line is wrapped.
IN_COLUMNS = re.compile(r"(?: +\S.*[\d\]],?| *\S.*\S {2,}\S.*|.*(\S)\1{7}.*)$")
# A name, and what is said of it: where that is long it goes on below, under its beginning.
WIDEST_NAME = 20  # of letters; under a wider one nothing would have room
SAID_OF = re.compile(r"(?P<name>\S(?: ?\S)* {2,})\S(?: ?\S)*$")


def html(text: str, options: dict[str, str]) -> str:
    """Return what a block printed as a quiet box, or as the kind of figure that the options name.

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
    kind, shown = "", _exact(text)
    for name, figure in KINDS.items():
        if name in options:
            exact = (
                f"<details data-search-exclude><summary>{figure.TEXT}</summary>{shown}</details>"
            )
            kind, shown = " drawn", figure.html(text, options) + exact
    veil = " veiled" if "predict" in options else ""
    address = f' id="{options["name"]}"' if "name" in options else ""
    return f'<figure class="output{kind}{veil}"{address}><figcaption>{caption}</figcaption>{shown}</figure>'


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
