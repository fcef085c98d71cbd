"""What a project adds to the checker: kinds of fences that it draws, drawings, rules of its own.

The checker knows code, and `output` with what a block printed. A project that wants more says so in its
pyproject.toml:

    [tool.literate]
    project = "house.rules:PROJECT"   # the module and the name of a `Project`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

from literate.errors import Misread
from literate.fence import OUTPUT, RUNS, SESSION, Fence, Options, check_language, check_options


class Shown(NamedTuple):
    """Values of the page that a fence shows.

    `program` returns the code that prints them as JSON, "" for none; `fill` returns the text that shows
    them with what they are now in it, and raises ValueError where one does not fit.
    """

    program: Callable[[Fence], str]
    fill: Callable[[str, list], str]


def _nothing(*_: object) -> tuple[()]:
    """Find nothing wrong."""
    return ()


@dataclass(frozen=True)
class Kind:
    """A kind of fence that shows what code of the page computes.

    `check` is given the text of a fence and its options, and raises ValueError where it cannot be drawn,
    with "line N of the fence" where there is one. `body` and `opening` say which values its text and its
    opening line show. Where a page is taken away, `stands_for` takes the place of a fence; {address} is that of
    its page.
    """

    options: Options = field(default_factory=dict)
    check: Callable[[str, dict[str, str]], object] = _nothing
    body: Shown | None = None
    opening: Shown | None = None
    stands_for: str = ""


@dataclass(frozen=True)
class Drawings:
    """How lines of a page show drawings, and other things that lie in files.

    `inlined` returns the text of a page, which lies in a folder, with each drawing in the place of its
    line; it raises Misread. `named` returns "file: " where a line of a text shows one, else "". `taken`
    returns what stands for a line of a page, which lies in a folder, where the page is taken away.
    """

    inlined: Callable[[str, Path], str] = lambda text, folder: text
    named: Callable[[str, int], str] = lambda text, line: ""
    taken: Callable[[str, Path], str] = lambda line, folder: line


class PageText(NamedTuple):
    """The text of a page with its drawings in it, its fences, and a function that reads another page so."""

    path: Path
    shown: str
    fences: list[Fence]
    read: Callable[[Path], PageText]


@dataclass(frozen=True)
class Prose:
    """A check of a page's text, which may fail while each block holds.

    `needed` says whether a page has anything to check; `problems` returns what is wrong.
    """

    needed: Callable[[PageText], bool]
    problems: Callable[[PageText], list[Misread]]


@dataclass(frozen=True)
class Project:
    """What a project adds; the plain one adds nothing.

    kinds: its kinds of fences, by their label.
    options: which options a fence of code may carry; None for any.
    drawings: how a page shows drawings.
    drawn: yields what is wrong with a page as the site draws it, given the tree of its HTML, its fences and
        its lines.
    check: yields what is wrong with a page, given its path, its root, its lines and its fences.
    solution: says whether a reader may leave out what stands in an element of the drawn page.
    heading: returns what stands above a page that is taken away, given its name, with a link, its code, and
        the version of torch that its project pins.
    prose: a check of the text, which is a test of its own.
    files: the folder whose files every page finds in torch's cache; "" for none.
    code: the folder of what does all this: where it changes, nothing counts as checked any more.
    significant: how many digits a float has at least where its last one may move.
    """

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    options: Options | None = None
    drawings: Drawings = Drawings()
    drawn: Callable[[Element, list[Fence], list[str]], Iterable[Misread]] = _nothing
    check: Callable[[Path, Path, list[str], list[Fence]], Iterable[Misread]] = _nothing
    solution: Callable[[Element], bool] = lambda element: False
    heading: Callable[[str, str, str], str] = lambda named, code, torch: f"*From {named}.*"
    prose: Prose | None = None
    files: str = ""
    code: Path | None = None
    significant: int = 3

    def __post_init__(self) -> None:
        if "output" not in self.kinds:
            object.__setattr__(self, "kinds", {"output": Kind(OUTPUT), **self.kinds})

    def check_opening(self, language: str, options: dict[str, str]) -> None:
        """Raise ValueError where a fence is labelled almost as code or as a kind, or has a wrong option."""
        check_language(language, options, self.kinds)
        if language in self.kinds:
            check_options(language, options, self.kinds[language].options)
        elif language in RUNS and self.options is not None:
            check_options(language, options, self.options)
        elif language in (*RUNS, SESSION) and not options.get("skip", "why"):
            raise ValueError('option `skip` needs a value, which says why: skip="…"')


PLAIN = Project()
