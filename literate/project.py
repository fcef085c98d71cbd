"""What a project adds to the checker: kinds of fences that it draws, drawings, and what HTML may say.

The checker knows code, and `output` with what a block printed. A project that draws more says so in its
pyproject.toml, by the module and the name of a `Project`:

    [tool.literate]
    project = "book.project:PROJECT"
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from literate.fence import CODE, OUTPUT, Fence, Options, check_language, check_options


class Shown(NamedTuple):
    """Values of the page that a fence shows.

    `program` returns the code that prints them as JSON, "" for none; `fill` returns the text that shows
    them with what they are now in it, and raises ValueError where one does not fit.
    """

    program: Callable[[Fence], str]
    fill: Callable[[str, list], str]


def _nothing(*_: object) -> None:
    """Find nothing wrong."""


@dataclass(frozen=True)
class Kind:
    """A kind of fence that shows what code of the page computes.

    `check` is given the text of a fence and its options, and raises ValueError where it cannot be drawn,
    with "line N of the fence" where there is one. `body` and `opening` say which values its text and its
    opening line show, and `numbers` which numbers of the text are such values; `told` matches what in the
    text is prose. Where a page is taken away, `stands_for` takes the place of a fence; {address} is that
    of its page.
    """

    options: Options = field(default_factory=dict)
    check: Callable[[str, dict[str, str]], None] = _nothing
    body: Shown | None = None
    opening: Shown | None = None
    numbers: Callable[[str], Iterable[str]] | None = None
    told: re.Pattern[str] | None = None
    stands_for: str = ""


@dataclass(frozen=True)
class Drawings:
    """How lines of a page show drawings, which lie in files.

    `inlined` returns the text of a page, which lies in a folder, with each drawing in the place of its
    line; it raises Misread. `named` returns "file: " where a line of a text shows one, else "".
    """

    inlined: Callable[[str, Path], str] = lambda text, folder: text
    named: Callable[[str, int], str] = lambda text, line: ""


@dataclass(frozen=True)
class Project:
    """What a project adds: kinds of fences by their label, drawings, and a check of its HTML.

    `html` makes, of a page's text and the Markdown that reads it, what notes which HTML its author wrote,
    and checks it; see `site_markdown.py`. Without it any HTML may stand on a page. `check` is given the
    path of a page, its root, its lines and its fences, and raises Misread where it breaks a rule of the
    project's own. `heading` returns what stands above a page that is taken away, given its
    name, with a link, its code, and the version of torch that its project pins. `code` is the folder of what does all this: where it changes, nothing counts as
    checked any more.
    """

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    drawings: Drawings = Drawings()
    html: Callable | None = None
    check: Callable = _nothing
    code: Path | None = None
    heading: Callable[[str, str, str], str] = lambda named, code, torch: f"*From {named}.*"

    def __post_init__(self) -> None:
        if "output" not in self.kinds:
            object.__setattr__(self, "kinds", {"output": Kind(OUTPUT), **self.kinds})

    def check_opening(self, language: str, options: dict[str, str]) -> None:
        """Raise ValueError unless a fence may be labelled so: code, or a kind, with options of its own."""
        known = {label: kind.options for label, kind in self.kinds.items()}
        check_language(language, known)
        check_options(language, options, known.get(language, CODE))


PLAIN = Project()
