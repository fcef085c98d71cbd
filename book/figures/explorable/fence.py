"""What an `attention` fence says of its explorable, and what of it the page computes. It is YAML:

    caption: What does bank take from its neighbours?
    tokens = words: river bank mud
    embeddings = river:      # one row a token; or queries, keys and values
      - [1.2, 0.0, 0.0, 0.3]
      - [0.8, 0.8, 0.2, 0.0]
      - [0.9, 0.0, 0.0, 0.9]
    weights = weights:       # what the page computes, and the figure must derive as it opens; without
                             # numbers. All rows, or where a query is named that row
    query: bank              # the token that asks first, a word or a position; without it, the one
                             # that gives another the largest weight
    step: weights            # where it opens: scores, scaled, masked, weights or context
    causal: false            # how the switches stand at first
    scaling: false
    digits: 4                # decimal places shown
    channels: water money person   # the names of the embeddings' columns, for who edits them
    controls: query step causal scaling hide edit     # which controls the reader gets
    room: [28, 30]           # its height, in rem, on a phone and in a wider window:
                             # kept free until the script has come, so that nothing moves then
    votes: orilla banco      # draws the sentence instead of tables: each word with its weight for the
                             # query; the columns of the values vote for these words, a word is
                             # hidden by a tap (controls: hide), and the winner is said

`choices:` lists alternatives, of which the reader sees one at a time; each has a `name` and the keys that
differ in it.

An expression looks up, indexes and reckons; it calls nothing, so no hidden code runs. `make update` fills
in what it gives: a number keeps the decimal places that it has, and a new one gets two more than are shown.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from book.figures.explorable.steps import STEPS, Panel, Rows, compute
from book.figures.expressions import BEGIN, END, check_expression
from book.numerals import rounded
from literate.fence import Fence, Misread

CONTROLS = ("query", "step", "causal", "scaling", "hide", "edit")
PROJECTED = ("queries", "keys", "values")
MATRICES = ("embeddings", *PROJECTED)
COMPUTED = ("tokens", *MATRICES, "weights")  # each names the expression that it shows
MOST_TOKENS = 12
NOISE = 1e-5  # by which numbers of the page, which are float32, move from machine to machine


@dataclass
class Explorable:
    """An `attention` fence, read and found right."""

    panels: list[Panel]
    caption: str = "Attention, step by step"
    query: int | None = None
    step: int = 0
    causal: bool = False
    scaling: bool = False
    digits: int = 4
    controls: list[str] = field(default_factory=lambda: [c for c in CONTROLS if c != "hide"])
    votes: list[str] = field(default_factory=list)
    room: list[float] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)

    def steps(self, panel: Panel) -> dict[str, Rows]:
        """Return the steps of a panel as the figure opens."""
        return compute(panel, causal=self.causal, scaling=self.scaling)


class Entry(NamedTuple):
    """`name = expression: value` of a fence, or `name: value`, whose expression is ""."""

    key: yaml.Node
    name: str
    expression: str
    node: yaml.Node

    @property
    def value(self) -> Any:
        return yaml.SafeLoader("").construct_object(self.node, deep=True)

    def check(self, holds: object, wanted: str) -> None:
        """Raise ValueError, which says what is `wanted` and what came, unless that `holds`."""
        if not holds:
            came = repr(self.value) if isinstance(self.node, yaml.ScalarNode) else "other"
            line = self.key.start_mark.line + 1
            raise ValueError(f"line {line} of the fence: {self.name} wants {wanted}, got {came}")


class Parsed(NamedTuple):
    """The entries of a fence: those said once, and for each panel its own after these."""

    shared: dict[str, Entry]
    panels: list[dict[str, Entry]]

    @property
    def computed(self) -> list[Entry]:
        """All that the page computes, in the order of the text."""
        every = [entry for panel in (self.shared, *self.panels) for entry in panel.values()]
        places = {entry.key.start_mark.index: entry for entry in every if entry.name in COMPUTED}
        return [places[at] for at in sorted(places)]


def parse(body: str) -> Parsed:
    """Take a fence apart. Raises ValueError, "line N of the fence: …", where a key is unknown or twice there."""
    try:
        root = yaml.compose(body, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"line {line} of the fence: {error.problem}") from None
    shared = _entries(root, (*COMPUTED, *SETTINGS, "choices"))
    if "choices" not in shared:
        return Parsed(shared, [shared])
    items = shared["choices"].node.value
    shared["choices"].check(isinstance(items, list) and len(items) > 1, "two or more items")
    return Parsed(shared, [shared | _entries(item, ("name", *COMPUTED)) for item in items])


def _entries(node: yaml.Node | None, known: tuple[str, ...]) -> dict[str, Entry]:
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1 if node else 1
        raise ValueError(f"line {line} of the fence: wanted `key: value` lines")
    entries: dict[str, Entry] = {}
    for key, value in node.value:
        name, _, expression = str(key.value).partition(" = ")
        if name not in known or (expression and name not in COMPUTED) or name in entries:
            wrong = "is given twice" if name in entries else f"is none of {', '.join(known)}"
            raise ValueError(f"line {key.start_mark.line + 1} of the fence: {key.value!r} {wrong}")
        entries[name] = Entry(key, name, expression.strip(), value)
    return entries


# ------------------------------------------------------------------------------------- reading


def read(body: str) -> Explorable:
    """Read the body of an `attention` fence.

    Raises:
        ValueError: "line N of the fence: …", what came and what was wanted.
    """
    shared, panels = parse(body)
    spec = Explorable([_panel(entries) for entries in panels])
    tokens = spec.panels[0].tokens
    for entries, panel in zip(panels, spec.panels, strict=True):
        as_many = len(panel.tokens) == len(tokens)
        entries["tokens"].check(as_many, "as many words in each choice")
    for name, read_setting in SETTINGS.items():
        if name in shared:
            setattr(spec, name, read_setting(shared[name], tokens))
    for panel in spec.panels:
        if spec.votes:
            columns = len(spec.steps(panel)["context"][0])
            fits = spec.query is not None and len(spec.votes) == columns
            shared["votes"].check(fits, f"a query, and {columns} words as the values say")
        if spec.channels:
            columns = len(panel.matrices.get("embeddings", [[]])[0])
            shared["channels"].check(len(spec.channels) == columns, f"{columns} words")
    return spec


def _panel(entries: dict[str, Entry]) -> Panel:
    """Read one panel, and see that its shapes fit each other."""
    projected = any(name in entries for name in PROJECTED)
    wanted = PROJECTED if projected else ("embeddings",)
    missing = [name for name in ("tokens", *wanted) if name not in entries]
    if missing or (projected and "embeddings" in entries):
        both = "; embeddings and queries exclude each other" if not missing else ""
        at = next(iter(entries.values())).key.start_mark.line + 1
        raise ValueError(f"line {at} of the fence: wanted {', '.join(('tokens', *wanted))}{both}")
    tokens = _words(entries["tokens"])
    entries["tokens"].check(len(tokens) <= MOST_TOKENS, f"{MOST_TOKENS} words at most")
    matrices = {name: _matrix(entries[name], len(tokens)) for name in wanted}
    if projected:
        columns = len(matrices["queries"][0])
        entries["keys"].check(len(matrices["keys"][0]) == columns, f"{columns} columns as queries")
    return Panel(tokens, matrices, str(entries["name"].value) if "name" in entries else "")


def _matrix(entry: Entry, count: int) -> Rows:
    rows = entry.value
    right = (
        isinstance(rows, list)
        and len(rows) == count
        and all(isinstance(row, list) and row and len(row) == len(rows[0]) for row in rows)
        and all(type(n) in (int, float) and abs(n) <= 1e4 for row in rows for n in row)
    )
    entry.check(right, f"{count} rows of numbers, all of one length")
    return [[float(number) for number in row] for row in rows]


def _words(entry: Entry, known: tuple[str, ...] = ()) -> list[str]:
    value = entry.value
    words = value.split() if isinstance(value, str) else value
    right = isinstance(words, list) and words and all(isinstance(word, str) for word in words)
    right = right and (not known or {*words} <= {*known})
    entry.check(right, f"any of {' '.join(known)}" if known else "words")
    return words


def _place(entry: Entry, tokens: list[str]) -> int:
    """Return the position of a token given by its word, which must name one position, or its number."""
    value = entry.value
    places = [i for i, word in enumerate(tokens) if value in (word, i, str(i))]
    right = len(places) == 1 and not isinstance(value, bool)
    entry.check(right, f"one of {' '.join(tokens)}, or a position where a word repeats")
    return places[0]


def _switch(entry: Entry, _: list[str]) -> bool:
    entry.check(isinstance(entry.value, bool), "true or false")
    return entry.value


def _digits(entry: Entry, _: list[str]) -> int:
    entry.check(type(entry.value) is int and 0 <= entry.value <= 6, "a number from 0 to 6")
    return entry.value


def _room(entry: Entry, _: list[str]) -> list[float]:
    entry.check(isinstance(entry.value, list) and len(entry.value) == 2, "two heights")
    return entry.value


# What is said once for the whole figure, and how each is read.
SETTINGS: dict[str, Callable[[Entry, list[str]], Any]] = {
    "caption": lambda entry, _: str(entry.value),
    "query": _place,
    "step": lambda entry, _: STEPS.index(_words(entry, STEPS)[0]),
    "causal": _switch,
    "scaling": _switch,
    "digits": _digits,
    "controls": lambda entry, _: _words(entry, CONTROLS),
    "votes": lambda entry, _: _words(entry),
    "room": _room,
    "channels": lambda entry, _: _words(entry),
}


# ------------------------------------------------------------------- what of it the page computes


def program(fence: Fence) -> str:
    """Return the code that prints, as JSON, each value that the figure in `fence` shows.

    Each expression stands in the line of the code that it has in the fence. Raises Misread where one is
    missing, or is none.
    """
    try:
        parsed = parse(fence.text)
    except ValueError:  # `read` says what is wrong
        return ""
    code = [""] * fence.text.count("\n")
    for entry in parsed.computed:
        at = entry.key.start_mark.line
        if not entry.expression:
            what = f"{entry.name} names no expression; wanted `{entry.name} = …:`"
            raise Misread(fence.line + 1 + at, what)
        check_expression(entry.expression, fence.line + 1 + at)
        code[at] += f"({entry.expression}), "
    if any("weights" not in panel for panel in parsed.panels):
        what = "the figure names no weights, so nothing says that it derives those of the page"
        raise Misread(fence.line, f"{what}; wanted `weights = …:`")
    code[0] = BEGIN + code[0]
    code[-1] += END
    return "\n".join(code) + "\n"


def places(body: str) -> list[tuple[str, list[int]]]:
    """Return, for each value that `program` prints, its name and the panels of the figure that show it."""
    parsed = parse(body)
    return [
        (entry.name, [at for at, panel in enumerate(parsed.panels) if panel[entry.name] is entry])
        for entry in parsed.computed
    ]


def computed_cells(body: str) -> list[yaml.ScalarNode]:
    """Return the numbers of `body` that a page computes, in order, with their places in it."""
    return [cell for entry in parse(body).computed for cell in _cells(entry.node)]


def filled(body: str, values: list) -> str:
    """Return the `body` of a fence with what it names replaced by `values`, which the page computes.

    Raises:
        ValueError: a value does not fit its name, or what the figure derives is not what the page
            computes.
    """
    parsed = parse(body)
    digits = parsed.shared["digits"].value if "digits" in parsed.shared else Explorable.digits
    text = body
    for entry, value in reversed(list(zip(parsed.computed, values, strict=True))):
        if entry.name in MATRICES:
            text = _fill_matrix(text, entry, value, digits + 2)
        elif entry.name == "tokens":
            text = _fill_words(text, entry, words_of(entry.name, value))
    spec = read(text)
    computed = {id(entry): value for entry, value in zip(parsed.computed, values, strict=True)}
    for panel, entries in zip(spec.panels, parsed.panels, strict=True):
        _check_weights(spec, spec.steps(panel)["weights"], computed[id(entries["weights"])])
    return text


def _cells(node: yaml.Node) -> list[yaml.ScalarNode]:
    rows = node.value if isinstance(node, yaml.SequenceNode) else []
    return [cell for row in rows if isinstance(row, yaml.SequenceNode) for cell in row.value]


def _fill_matrix(text: str, entry: Entry, value: Any, decimals: int) -> str:
    """Write the numbers of `value` in the place of those of a matrix, or anew where its shape is another."""
    key, node, rows = entry.key, entry.node, _rows(entry.name, value)
    shape = [len(row.value) for row in node.value] if isinstance(node, yaml.SequenceNode) else []
    if shape == [len(row) for row in rows]:
        numbers = [number for row in rows for number in row]
        for cell, number in reversed(list(zip(_cells(node), numbers, strict=True))):
            has = len(cell.value.partition(".")[2]) or (0 if number % 1 == 0 else decimals)
            text = f"{text[: cell.start_mark.index]}{rounded(number, has)}{text[cell.end_mark.index :]}"
        return text
    exact = [rounded(number, decimals).rstrip("0") for row in rows for number in row]
    has = max(1, *(len(number.partition(".")[2]) for number in exact))
    start = "\n" + " " * (key.start_mark.column + 2) + "- "
    new = "".join(f"{start}[{', '.join(rounded(n, has) for n in row)}]" for row in rows)
    last = node.value[-1] if shape and not node.flow_style else node
    return text[: key.end_mark.index] + ":" + new + text[last.end_mark.index :]


def _rows(name: str, value: Any) -> Rows:
    right = isinstance(value, list) and value and all(isinstance(row, list) for row in value)
    right = right and all(len(row) == len(value[0]) for row in value)
    numbers = [number for row in value for number in row] if right else []
    if not numbers or not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        raise ValueError(f"{name} wants a matrix of numbers, got {value}")
    return value


def words_of(name: str, value: Any) -> list[str]:
    """Return the words of `value`: a text, or a list of words."""
    words = value.split() if isinstance(value, str) else value
    right = isinstance(words, list) and all(isinstance(word, str | int) for word in words)
    if not right or any(len(str(word).split()) != 1 for word in words):
        raise ValueError(f"{name} wants words without blanks, got {value!r}")
    return [str(word) for word in words]


def _fill_words(text: str, entry: Entry, words: list[str]) -> str:
    node = entry.node
    before = _words(entry) if node.value else []
    if before == words:
        return text
    plain = re.fullmatch(r"[^\W\d_][\w' -]*", joined := " ".join(words))
    written = joined if plain else json.dumps(words, ensure_ascii=False)
    return f"{text[: entry.key.end_mark.index]}: {written}{text[node.end_mark.index :]}"


def _check_weights(spec: Explorable, derived: Rows, value: Any) -> None:
    """Raise ValueError unless the figure derives the weights that the page computes: all rows, or the query's."""
    rows = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    if rows is not value and spec.query is None:
        raise ValueError("weights is one row of the page, and no query says which")
    wanted = derived if rows is value else [derived[spec.query or 0]]
    if [len(row) if isinstance(row, list) else 0 for row in rows] != [len(row) for row in wanted]:
        shape = f"{len(wanted)} rows of {len(wanted[0])} numbers"
        raise ValueError(f"the figure derives weights of {shape}; the page computes {value}")
    for place, (row, computed) in enumerate(zip(wanted, rows, strict=True)):
        for column, (number, other) in enumerate(zip(row, computed, strict=True)):
            if not isinstance(other, int | float):
                raise ValueError(f"weights wants numbers; the page computes {other}")
            shown = {
                rounded(number, spec.digits) for number in (other - NOISE, other, other + NOISE)
            }
            if rounded(number, spec.digits) not in shown:
                derives = f"the figure derives {number:.6f}, and the page computes {other}"
                raise ValueError(f"row {place}, column {column} of the weights: {derives}")
