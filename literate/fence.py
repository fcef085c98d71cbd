"""What stands between a fence's first and last line, and what its info string may say."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from html import unescape
from pathlib import Path

from pygments.lexers import find_lexer_class_by_name
from pygments.lexers.python import Python2Lexer, PythonLexer
from pygments.util import ClassNotFound
from pymdownx.superfences import RE_HL_LINES

RUNS = ("python", "py", "python3", "py3")
CODE_SPAN = re.compile(r"(?<!`)(`++).*?(?<!`)\1(?!`)")  # to the next run as long
# The characters that a browser or Python-Markdown drops, and those that turn the order of letters
# round: a reader would see another program than the one that ran.
UNSHOWN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Misread(Exception):
    """What a page may not hold, at a line of it."""

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Option:
    """What an option of a fence may be: a flag, or a text of this `form`, which `words` describe.

    One that belongs `to` a flag stands beside it alone, and one stands never beside its `rival`.
    """

    flag: bool = False
    form: re.Pattern[str] | None = None
    words: str = ""
    to: str = ""
    rival: str = ""


Options = Mapping[str, Option]
CODE: Options = {  # of a fence of code
    "title": Option(),
    "hl_lines": Option(form=RE_HL_LINES, words='lines such as "1 3-4"'),
    "linenums": Option(form=re.compile(r"\d+$"), words="the number of the first line"),
}
OUTPUT: Options = {  # of a fence of output, in every project
    "raises": Option(
        form=re.compile(r"(?!(Syntax|Indentation|Tab)Error$)[^\W\d]\w*$"),
        words="the name of an exception that a program ends in; of one that is no program,"
        " call `compile` and catch the SyntaxError",
    ),
    "varies": Option(),
    "exact": Option(flag=True),
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


def check_language(language: str, outputs: Mapping[str, Options]) -> None:
    """Raise ValueError unless a fence may be labelled `language`: code, or one of the `outputs`."""
    misspelt = language not in outputs and language.lower() in outputs
    if misspelt or not (language in ("", *outputs) or _lexer(language)):
        wanted = language.lower() if misspelt else "python"
        raise ValueError(f"unknown language `{language}`; wanted such as `{wanted}`")
    if language not in RUNS and is_drawn_as_python(language):
        raise ValueError(f"`{language}` is drawn as Python and does not run; wanted `python`")


def check_options(language: str, options: Mapping[str, str], known: Options) -> None:
    """Raise ValueError unless a fence may carry `options`, of those `known`; a flag's value is ""."""
    for key, value in options.items():
        if key not in known:
            where = f"a `{language}` fence (options of the check live on `output`)"
            wanted = f"one of {', '.join(known)}" if known else "none"
            if meant := get_close_matches(key, known, 1):
                wanted += f". Did you mean `{meant[0]}`?"
            raise ValueError(f"unknown option `{key}` on {where}; wanted {wanted}")
        option = known[key]
        if option.flag and value:
            raise ValueError(f'option `{key}` takes no value; found `{key}="{value}"`')
        if not option.flag and not value.strip():
            raise ValueError(f'option `{key}` needs a value: {key}="…"')
        if option.form and not option.form.match(value):
            raise ValueError(f'{key}="{value}" is not {option.words}')
        if option.to and option.to not in options:
            raise ValueError(f"option `{key}` is of a `{option.to}`; the fence has none")
        if option.rival in options:
            raise ValueError(f"wanted `{key}` or `{option.rival}`, not both")


def check_shown(text: str, line: int = 1) -> None:
    """Raise Misread where `text`, which begins on `line`, holds a character of UNSHOWN."""
    if hidden := UNSHOWN.search(text):
        what = f"the control character U+{ord(hidden[0]):04X}, which the site would not show"
        raise Misread(line + text.count("\n", 0, hidden.start()), what)


def blank_out(fences: list[Fence], text: str) -> list[str]:
    """Return the lines of a page's `text`, with blanks for those of its `fences`."""
    lines = text.split("\n")
    for fence in fences:
        lines[fence.line - 1 : fence.end] = [""] * (fence.end - fence.line + 1)
    return lines


def check_characters(fences: list[Fence], text: str, shown: Container[str]) -> None:
    """Raise where a page writes a character of UNSHOWN as `&#x202E;`, or one of no width in code.

    Code and outputs are the fences labelled as one of `shown`.
    """
    for number, line in enumerate(blank_out(fences, text), 1):
        check_shown(unescape(CODE_SPAN.sub("", line)) if "&" in line else "", number)
    for fence in fences:
        unseen = (
            one for one in fence.text if UNSHOWN.match(one) or unicodedata.category(one) == "Cf"
        )
        invisible = next(unseen, "")
        if invisible and fence.language in shown:
            at = fence.text.count("\n", 0, fence.text.index(invisible)) + 1
            name = f"U+{ord(invisible):04X}"
            what = f"the invisible character {name} in code; write it as an escape"
            if fence.include:
                what = f"{fence.include.file.name}:{fence.include.numbers[at - 1]}: {what}"
                at = 1
            raise Misread(fence.line + at, what)


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
