"""A fence of a page: what stands on its lines, and what its info string may say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pygments.lexers import find_lexer_class_by_name
from pygments.util import ClassNotFound
from pymdownx.superfences import RE_HL_LINES

from literate.errors import Misread

RUNS = ("python", "py", "python3", "py3")
SESSION = "pycon"  # at Python's prompt
HIDES = "<!--"  # opens a comment that holds code
CODE_SPAN = re.compile(r"(?<!`)(`++).*?(?<!`)\1(?!`)")  # to the next run as long
# The characters that a browser or Python-Markdown drops, and those that turn the order of letters
# round: a reader would see another program than the one that ran.
UNSHOWN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
INFO = re.compile(r"\s*\.?(?P<language>[^\s{}]*)\s*(?P<options>.*)")
OPTION = re.compile(
    r"(?<!\S)(?P<dot>\.?)(?P<key>[\w-]+)(?:=(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'))?(?!\S)"
)


@dataclass(frozen=True)
class Option:
    """What an option of a fence may be: a flag, or a text of this `form`, which `words` describe.

    One that belongs `to` a flag stands beside it alone, and one stands never beside one of its `rivals`.
    """

    flag: bool = False
    form: re.Pattern[str] | None = None
    words: str = ""
    to: str = ""
    rivals: tuple[str, ...] = ()


Options = Mapping[str, Option]
SHOWN: Options = {  # of a fence of code: for the site alone, and the module without which it is skipped
    "title": Option(),
    "hl_lines": Option(form=RE_HL_LINES, words='lines such as "1 3-4"'),
    "linenums": Option(form=re.compile(r"\d+$"), words="the number of the first line"),
    "needs": Option(form=re.compile(r"[a-z]\w*$"), words="the name of a module"),
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

    `text` is what it holds, to the byte: the include expanded, without `prefix`, which is the indent and
    the quote marks of the opening line. A comment that holds code is one, too.
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
        return len(self.prefix.expandtabs(4))

    @property
    def hidden(self) -> bool:
        return self.marks == HIDES


def read_info(info: str) -> tuple[str, dict[str, str]]:
    """Return the language and the options of an info string: `python title="a"`, `{ .python title="a" }`.

    A flag is an option whose value is "".
    """
    match = INFO.fullmatch(info)
    assert match, "it may be empty"
    language, options = match["language"], dict[str, str]()
    inside = match["options"].strip()
    for option in OPTION.finditer(inside.removeprefix("{").removesuffix("}")):
        if not option["dot"]:
            options[option["key"]] = option["double"] or option["single"] or ""
        elif not language:
            language = option["key"]
    return language, options


def check_language(language: str, options: Mapping[str, str], kinds: Mapping[str, object]) -> None:
    """Raise ValueError where a label is nearly that of code, or of one of the `kinds`, and is not."""
    known = (*RUNS, *kinds)
    label = language or next((key for key in options if key in known), "")  # as in {python}
    if language in known:
        return
    meant = re.match(r"[\w-]*", label.lower())
    wanted = meant[0] if meant and meant[0] in known else ""
    if not wanted and not _is_language(label):
        wanted = next(iter(get_close_matches(label.lower(), ("python", *kinds), 1, 0.8)), "")
    if wanted:
        raise ValueError(f"unknown language `{label}`, which does not run; wanted `{wanted}`")


def _is_language(label: str) -> bool:
    """Say whether `label` names a language that Pygments knows, or one that only looks like Python."""
    try:
        return label.lower().endswith("ython") or bool(find_lexer_class_by_name(label))
    except ClassNotFound:
        return False


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
        if rival := next((one for one in option.rivals if one in options), None):
            raise ValueError(f"wanted `{key}` or `{rival}`, not both")


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
