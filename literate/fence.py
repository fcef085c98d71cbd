"""What stands between a fence's first and last line, and what its info string may say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from markdown.extensions.attr_list import get_attrs_and_remainder
from pygments.lexers import find_lexer_class_by_name
from pygments.lexers.python import Python2Lexer, PythonLexer
from pygments.util import ClassNotFound
from pymdownx.superfences import RE_HL_LINES, RE_OPTIONS

RUNS = ("python", "py", "python3", "py3")
CODE_OPTIONS = ("title", "hl_lines", "linenums")
OUTPUT_OPTIONS = ("heatmap", "chart", "rows", "cols", "caption", "raises", "varies")
FLAGS = ("heatmap", "chart")


@dataclass
class Fence:
    """One fenced block as it stands on the page, from its opening to its closing line.

    `text` is what the site draws: includes expanded, without `prefix`, which is the indent and the
    quote marks of the opening line.
    """

    line: int
    end: int
    prefix: str
    marks: str
    language: str
    options: dict[str, str]
    text: str = ""
    solution: bool = False

    @property
    def indent(self) -> int:
        return len(self.prefix)


def read_info(fence: re.Match[str]) -> tuple[str, dict[str, str]]:
    """Split the info string of a fence that superfences' expression matched: language, options.

    Raises ValueError for what the site or the book would not take; says what came and was wanted.
    """
    info = fence[0].lstrip("`~").strip()
    if fence["unrecognized"]:
        raise ValueError(f'cannot read the info string `{info}`; wanted `language key="value" …`')
    language = fence["lang"] or ""
    if fence["attrs"] is None:
        found = [(m["key"], m["value"]) for m in RE_OPTIONS.finditer(fence["options"] or "")]
    else:
        pairs, rest = get_attrs_and_remainder(fence["attrs"])
        classes = [language] * bool(language) + [value for key, value in pairs if key == "."]
        if rest.strip() or len(classes) > 1:
            wrong = rest.strip() or f".{classes[1]}"
            raise ValueError(f"cannot read `{wrong}` in the info string `{info}`")
        language = "".join(classes)
        found = [(key, value) for key, value in pairs if key not in (".", "id")]
    options = dict(found)
    if len(options) < len(found):
        raise ValueError(f"an option is given twice in `{info}`")
    # The site reads a flag as a key whose value is its own name.
    options = {key: "" if value == key else value or "" for key, value in found}
    _check(language, options)
    return language, options


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


def _check(language: str, options: dict[str, str]) -> None:
    if language == "output":
        check_output_options(options)
    elif language == "attention":
        _check_known(options, (), "an `attention` fence, which shows what stands in its body")
    elif language.lower() in ("output", "attention"):
        raise ValueError(f"unknown language `{language}`; wanted `{language.lower()}`")
    elif language and not _lexer(language):
        raise ValueError(f"unknown language `{language}`; wanted `python`, `output`, `text` …")
    elif language not in RUNS and is_drawn_as_python(language):
        raise ValueError(f"`{language}` is drawn as Python and does not run; wanted `python`")
    else:
        _check_code_options(language, options)


def _check_code_options(language: str, options: dict[str, str]) -> None:
    where = f"a `{language}` fence (options of the check live on `output`)"
    _check_known(options, CODE_OPTIONS, where)
    for key, value in options.items():
        if not value:
            raise ValueError(f'option `{key}` needs a value: {key}="…"')
    if not RE_HL_LINES.match(options.get("hl_lines", "1")):
        raise ValueError(f'hl_lines="{options["hl_lines"]}" names no lines; wanted such as "1 3-4"')
    if not options.get("linenums", "1").isdecimal():
        raise ValueError(f'linenums="{options["linenums"]}" is not the number of the first line')


def _check_known(options: dict[str, str], known: tuple[str, ...], where: str) -> None:
    for key in options:
        if key not in known:
            wanted = f"one of {', '.join(known)}" if known else "none"
            raise ValueError(f"unknown option `{key}` on {where}; wanted {wanted}")


def check_output_options(options: dict[str, str]) -> None:
    """Raise ValueError unless `options` (name → value) are ones that an `output` fence may carry."""
    _check_known(options, OUTPUT_OPTIONS, "an `output` fence")
    for key, value in options.items():
        if key in FLAGS and value:
            raise ValueError(f'option `{key}` takes no value; found `{key}="{value}"`')
        if key not in FLAGS and not value.strip():
            raise ValueError(f'option `{key}` needs a value: {key}="…"')
    if "heatmap" in options and "chart" in options:
        raise ValueError("an output is drawn as a `heatmap` or as a `chart`, not as both")
    for key in ("rows", "cols"):
        if key in options and "heatmap" not in options:
            raise ValueError(f"option `{key}` labels a `heatmap`; the fence has none")
    if not options.get("raises", "Error").isidentifier():
        raise ValueError(f'raises="{options["raises"]}" is not the name of an exception')
    if options.get("raises") in ("SyntaxError", "IndentationError", "TabError"):
        raise ValueError(
            "a block that raises SyntaxError is no program; call `compile` and catch it"
        )
