"""What stands between a fence's first and last line, and what its info string may say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from pygments.lexers import find_lexer_class_by_name
from pygments.lexers.python import Python2Lexer, PythonLexer
from pygments.util import ClassNotFound
from pymdownx.superfences import RE_HL_LINES

RUNS = ("python", "py", "python3", "py3")
OUTPUTS = ("output", "attention")
FLAGS = ("heatmap", "chart", "plain")
OPTIONS = {  # of each kind of fence; None stands for code
    "output": (*FLAGS, "rows", "cols", "name", "caption", "raises", "varies"),
    "attention": (),
    None: ("title", "hl_lines", "linenums"),
}
FORMS = {  # what a value must look like that is no free text, and in words
    "hl_lines": (RE_HL_LINES, 'lines such as "1 3-4"'),
    "linenums": (re.compile(r"\d+$"), "the number of the first line"),
    "name": (re.compile(r"[a-z][a-z_]*$"), "a word in small letters"),
    "raises": (
        re.compile(r"(?!(Syntax|Indentation|Tab)Error$)[^\W\d]\w*$"),
        "the name of an exception that a program ends in; of one that is no program,"
        " call `compile` and catch the SyntaxError",
    ),
}


@dataclass
class Include:
    """What one line of a page shows of a file: the lines, and their numbers in the file.

    `section` is the name of the part that it shows, None where it shows the whole.
    """

    file: Path
    section: str | None
    lines: list[str]
    numbers: list[int]


@dataclass
class Fence:
    """One fenced block as it stands on the page, from its opening to its closing line.

    `text` is what the site draws: the include expanded, without `prefix`, which is the indent and
    the quote marks of the opening line.
    """

    line: int
    end: int
    prefix: str
    marks: str
    language: str
    options: dict[str, str]
    text: str = ""
    include: Include | None = None
    solution: bool = False

    @property
    def indent(self) -> int:
        return len(self.prefix)


def check_language(language: str) -> None:
    """Raise ValueError unless a fence may be labelled `language`."""
    misspelt = language not in OUTPUTS and language.lower() in OUTPUTS
    if misspelt or not (language in ("", *OUTPUTS) or _lexer(language)):
        wanted = language.lower() if misspelt else "python"
        raise ValueError(f"unknown language `{language}`; wanted such as `{wanted}`")
    if language not in RUNS and is_drawn_as_python(language):
        raise ValueError(f"`{language}` is drawn as Python and does not run; wanted `python`")


def check_options(language: str, options: dict[str, str]) -> None:
    """Raise ValueError unless a fence of `language` may carry `options`, a flag's value being ""."""
    known = OPTIONS[language if language in OUTPUTS else None]
    for key, value in options.items():
        if key not in known:
            where = f"a `{language}` fence (options of the check live on `output`)"
            wanted = f"one of {', '.join(known)}" if known else "none"
            if meant := get_close_matches(key, known, 1):
                wanted += f". Did you mean `{meant[0]}`?"
            raise ValueError(f"unknown option `{key}` on {where}; wanted {wanted}")
        if key in FLAGS and value:
            raise ValueError(f'option `{key}` takes no value; found `{key}="{value}"`')
        if key not in FLAGS and not value.strip():
            raise ValueError(f'option `{key}` needs a value: {key}="…"')
        if key in FORMS and not FORMS[key][0].match(value):
            raise ValueError(f'{key}="{value}" is not {FORMS[key][1]}')
        if key in ("rows", "cols", "name", "plain") and "heatmap" not in options:
            raise ValueError(f"option `{key}` is of a `heatmap`; the fence has none")
    if "heatmap" in options and "chart" in options:
        raise ValueError("an output is drawn as a `heatmap` or as a `chart`, not as both")


def check_output_options(options: dict[str, str]) -> None:
    """Raise ValueError unless `options` (name → value) are ones that an `output` fence may carry."""
    check_options("output", options)


def without(fences: list[Fence], text: str) -> list[str]:
    """Return the lines of a page's `text`, with blanks for those of its `fences`."""
    lines = text.split("\n")
    for fence in fences:
        lines[fence.line - 1 : fence.end] = [""] * (fence.end - fence.line + 1)
    return lines


def is_drawn_as_python(language: str) -> bool:
    """Say whether the site colours `language` as Python or as a dialect of it."""
    return issubclass(_lexer(language) or object, (PythonLexer, Python2Lexer))


@cache
def _lexer(language: str) -> type | None:
    """Return Pygments' lexer for `language`; None where it has none."""
    try:
        return find_lexer_class_by_name(language)
    except ClassNotFound:
        return None
