"""Draws `output` and `attention` fences: the Python-Markdown face of the book's figures.

`mkdocs.yml` names the four functions at the end. Both builders call them with a fence's options
and body, and nothing is kept between calls. `check` asks the same questions of a whole page without
drawing it, and knows the page and the line.
"""

from __future__ import annotations

import re
from html import escape

from pymdownx.superfences import SuperFencesException

from literate.fence import FLAGS, check_output_options
from literate.matrices import words_of
from literate.page import Page
from literate.site import explorable, figures

# An output of more columns than the first may need smaller letters beside both menus; one of more
# than the last would need too small ones.
ROOMY, LONGEST = 96, 112


def output_figure(text: str, options: dict[str, str]) -> str:
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
        drawn = _heatmaps(text, options)
        exact = drawn + _folded(exact, "Exact text")
    elif "chart" in options:
        kind = " drawn"
        exact = figures.chart(text) + _folded(exact, "The numbers")
    address = f' id="{options["name"]}"' if "name" in options else ""
    return (
        f'<figure class="output{kind}"{address}><figcaption>{caption}</figcaption>{exact}</figure>'
    )


def _heatmaps(text: str, options: dict[str, str]) -> str:
    rows, cols = (words_of(options.get(key, "")) for key in ("rows", "cols"))
    name, plain = options.get("name", ""), "plain" in options
    return figures.heatmaps(text, rows, cols, name, plain)


def _exact(text: str) -> str:
    """The printed text itself. `<samp>` is what it is."""
    columns = max(map(len, text.split("\n")))
    long = f' style="--columns:{columns}"' if ROOMY < columns <= LONGEST else ""
    return f"<pre><samp{long}>{escape(text, quote=False)}</samp></pre>"


def _folded(exact: str, summary: str) -> str:
    return f"<details data-search-exclude><summary>{summary}</summary>{exact}</details>"


def check(program: Page) -> None:
    """Raise PageError at the first fence of `program` that cannot be drawn."""
    for fence in program.fences:
        try:
            if fence.language == "attention":
                explorable.read(fence.text)
            elif fence.language == "output":
                check_output(fence.text, fence.options)
        except ValueError as error:
            inside = re.search(r"line (\d+) of the fence", str(error))
            line = fence.line + int(inside[1] if inside else 0)
            raise program.error(line, str(error)) from None


def check_output(text: str, options: dict[str, str]) -> None:
    """Raise ValueError where an `output` fence cannot be drawn as its options ask."""
    check_output_options(options)
    if "heatmap" in options:
        _heatmaps(text, options)
    elif "chart" in options:
        figures.read_table(text)


def output_validator(language, inputs, options, attrs, md) -> bool:
    """Accept the options of an `output` fence, or stop the build with what is wrong."""
    # A flag reaches us as its own name; the checker writes it as a key without a value.
    given = {key: "" if key in FLAGS and value == key else value for key, value in inputs.items()}
    try:
        check_output_options(given)
    except ValueError as error:
        raise SuperFencesException(f"output fence: {error}") from error
    options.update(given)
    return True


def output_format(source, language, class_name, options, md, **kwargs) -> str:
    """Draw what a block printed, or stop the build with what is wrong."""
    try:
        return output_figure(source, options)
    except ValueError as error:
        first = source.strip("\n").split("\n")[0]
        raise SuperFencesException(f"output fence that begins {first!r}: {error}") from error


def attention_validator(language, inputs, options, attrs, md) -> bool:
    """An `attention` fence takes no options: everything it shows stands in its body."""
    if inputs:
        raise SuperFencesException(f"attention fence: wanted no options, got {', '.join(inputs)}")
    return True


def attention_format(source, language, class_name, options, md, **kwargs) -> str:
    """Draw an explorable of attention, or stop the build with what is wrong."""
    try:
        return explorable.figure(source)
    except ValueError as error:
        raise SuperFencesException(f"attention fence: {error}") from error
