"""Draws `output` and `attention` fences: the Python-Markdown face of the book's figures.

`mkdocs.yml` names the four functions. Both builders call them with a fence's options and body, and
nothing is kept between calls.
"""

from __future__ import annotations

from pymdownx.superfences import SuperFencesException

from book.figures import explorable, output
from book.figures.options import OPTIONS
from literate.fence import check_options


def output_validator(language, inputs, options, attrs, md) -> bool:
    """Accept the options of an `output` fence, or stop the build with what is wrong."""
    # A flag reaches us as its own name; the checker writes it as a key without a value.
    flags = [key for key, option in OPTIONS.items() if option.flag]
    given = {key: "" if key in flags and value == key else value for key, value in inputs.items()}
    try:
        check_options("output", given, OPTIONS)
    except ValueError as error:
        raise SuperFencesException(f"output fence: {error}") from error
    options.update(given)
    return True


def output_format(source, language, class_name, options, md, **kwargs) -> str:
    """Draw what a block printed, or stop the build with what is wrong."""
    try:
        return output.html(source, options)
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
        return explorable.html(source)
    except ValueError as error:
        raise SuperFencesException(f"attention fence: {error}") from error
