"""An explorable of attention: what the body of an `attention` fence says, and what it computes.

The body is YAML:

    caption: What does bank take from its neighbours?
    tokens = words: river bank mud
    embeddings = river:      # one row a token; or queries, keys and values
      - [1.2, 0.0, 0.0, 0.3]
      - [0.8, 0.8, 0.2, 0.0]
      - [0.9, 0.0, 0.0, 0.9]
    W_query = to_query: …    # optional, together with W_key and W_value; or leave all three out
    weights = weights:       # what the page computes, and the figure must derive as it opens; without
                             # numbers. All rows, or where a query is named that row; so may scores,
                             # scaled, masked and context
    by_hand: W_key W_value   # what has no `= expression`, since no code of the page holds it: of the
                             # tokens, the votes, the matrices and the weights
    query: bank              # the token that asks first, a word or a position; without it, the one
                             # that gives another the largest weight
    step: weights            # where it opens: scores, scaled, masked, weights or context
    causal: false            # how the switches stand at first; `causal = expression` is compared, too
    scaling: false
    hidden: mud              # tokens that nobody may attend to at first
    digits: 4                # decimal places shown
    channels: water money person   # the names of the embeddings' columns, for who edits them
    controls: query step causal scaling hide edit     # which controls the reader gets
    room: [28, 30]           # its height, in rem, on a phone and in a wider window:
                             # kept free until the script has come, so that nothing moves then
    votes: orilla banco      # draws the sentence instead of tables: each word with its weight for the
                             # query; the columns of the values vote for these words, a word is
                             # hidden by a tap (controls: hide), and the winner is said

`choices:` lists alternatives, of which the reader sees one at a time, and `heads:` lists panels
that stand side by side. Each item has a `name` and the keys that differ in it.

Tokens, votes and matrices name the expression of the page that they show, and `make update` fills them
in; see `matrices.py`. The figure is drawn from what the fence holds alone. So that it shows
what the page computes, in each position of its switches, a matrix gets as many decimal places as it
takes for all that is derived from it to be the same, in the digits shown, as if it were exact.

What this module computes is what torch computes in float64. The script that brings the figure to
life does the same; without scripts the reader sees the tables drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import yaml

from book.figures import matrices
from book.figures.matrices import EMBEDDED, MATRICES, NAMED, PROJECTED, STEPS
from literate.fence import UNSHOWN
from literate.numerals import rounded

CONTROLS = ("query", "step", "causal", "scaling", "hide", "edit")
PANEL_KEYS = ("name", "tokens", *MATRICES, *STEPS)
Entries = dict[str, yaml.Node]
NOISE = (
    1e-5  # in the numbers of the page, of one or less, which are float32 and move with the machine
)
EXACT = 17  # decimal places that tell one number from another
LARGEST = 1e4  # numbers beyond this overflow nothing, but no longer fit a cell


@dataclass
class Panel:
    """One attention head over one list of tokens, as given: matrices are lists of rows."""

    tokens: list[str]
    matrices: dict[str, list[list[float]]]
    name: str = ""


@dataclass
class Explorable:
    """An `attention` fence, read and found right. `side` says that the panels are heads."""

    panels: list[Panel]
    side: bool = False
    caption: str = "Attention, step by step"
    query: int | None = None
    step: int = 0
    causal: bool = False
    scaling: bool = False
    hidden: list[int] = field(default_factory=list)
    digits: int = 4
    controls: list[str] = field(default_factory=lambda: [c for c in CONTROLS if c != "hide"])
    votes: list[str] = field(default_factory=list)
    room: list[float] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)


# ------------------------------------------------------------------------------------- reading


def _wrong(node: yaml.Node, message: str) -> ValueError:
    return ValueError(f"line {node.start_mark.line + 1} of the fence: {message}")


def _want(holds: object, node: yaml.Node, message: str) -> None:
    """Raise what is wrong with `node` unless that `holds`."""
    if not holds:
        raise _wrong(node, message)


def _shown(node: yaml.Node) -> str:
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else f"a {node.id}"


def _plain(node: yaml.Node) -> Any:
    """The Python value of a YAML node."""
    try:
        return yaml.SafeLoader("").construct_object(node, deep=True)
    except yaml.YAMLError as error:
        raise _wrong(node, str(error).split("\n")[0]) from None


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """Yield the texts of a YAML node and of all that it holds."""
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.CollectionNode):
        for item in node.value:
            for part in item if isinstance(item, tuple) else (item,):
                yield from _scalars(part)


def _mapping(node: yaml.Node, known: tuple[str, ...]) -> Entries:
    """Turn a YAML mapping into `{key: node}`; each key must be known and given once."""
    _want(
        isinstance(node, yaml.MappingNode), node, f"wanted `key: value` lines, got {_shown(node)}"
    )
    entries: Entries = {}
    for key, value in node.value:
        name, shows, _ = str(key.value).partition(" = ")
        right = name in known and (not shows or name in NAMED)
        _want(right, key, f"unknown key {key.value!r}; wanted one of {', '.join(known)}")
        _want(name not in entries, key, f"{name} is given twice")
        entries[name] = value
    return entries


def _items(node: yaml.Node, least: int, message: str) -> list[yaml.Node]:
    """The nodes of a YAML list that holds at least so many."""
    right = isinstance(node, yaml.SequenceNode) and len(node.value) >= least
    _want(right, node, f"{message}, got {_shown(node)}")
    return node.value


def _number(node: yaml.Node) -> float:
    value = _plain(node)
    right = type(value) in (int, float) and abs(value) <= LARGEST
    _want(right, node, f"wanted a number from {-LARGEST:g} to {LARGEST:g}, got {_shown(node)}")
    return float(value)


def _matrix(node: yaml.Node, name: str) -> list[list[float]]:
    """Read a list of rows of numbers, all of one length."""
    rows: list[list[float]] = []
    for row in _items(node, 1, f"{name} wants a list of rows"):
        cells = _items(row, 1, f"{name} wants rows like [0.5, 1.0]")
        rows.append([_number(cell) for cell in cells])
        first, last = len(rows[0]), len(rows[-1])
        _want(first == last, row, f"{name} has rows of {first} and of {last} numbers")
    return rows


def _words(node: yaml.Node, name: str) -> list[str]:
    value = _plain(node)
    words = value.split() if isinstance(value, str) else value
    right = isinstance(words, list) and words and all(isinstance(word, str) for word in words)
    _want(right, node, f"{name} wants words separated by spaces, got {_shown(node)}")
    return words


def _panel(entries: Entries, item: yaml.Node) -> Panel:
    """Build the panel of an item from `{key: node}` and see that its shapes fit each other."""
    _want("tokens" in entries, item, "tokens is missing")
    tokens = _words(entries["tokens"], "tokens")
    _want(len(tokens) <= 12, entries["tokens"], f"wanted 1 to 12 tokens, got {len(tokens)}")
    embedded = [key for key in EMBEDDED if key in entries]
    projected = [key for key in PROJECTED if key in entries]
    for key in projected:
        _want(not embedded, entries[key], f"{key} and {', '.join(embedded)} exclude each other")
    alone = embedded in ([], ["embeddings"])
    wanted = PROJECTED if projected else EMBEDDED[:1] if alone else EMBEDDED
    for key in wanted:
        _want(key in entries, item, f"{key} is missing; wanted {', '.join(wanted)}")
    matrices = {key: _matrix(entries[key], key) for key in wanted}
    _check_shapes(matrices, len(tokens), entries)
    return Panel(tokens, matrices, str(_plain(entries["name"])) if "name" in entries else "")


def _check_shapes(matrices: dict[str, list[list[float]]], tokens: int, entries: Entries) -> None:
    """Rows follow the tokens, or the embedding where a matrix projects; queries must meet keys."""
    for key, matrix in matrices.items():
        rows, what = tokens, "the tokens"
        if key.startswith("W_"):
            rows, what = len(matrices["embeddings"][0]), "the embedding"
        mismatch = f"{len(matrix)} rows, wanted {rows} as {what}"
        _want(len(matrix) == rows, entries[key], f"{key} has {mismatch}")
    for query, key in (("queries", "keys"), ("W_query", "W_key")):
        if query in matrices:
            wanted, columns = len(matrices[query][0]), len(matrices[key][0])
            mismatch = f"{columns} columns, wanted {wanted} as {query}"
            _want(columns == wanted, entries[key], f"{key} has {mismatch}")


def read(body: str) -> Explorable:
    """Read the body of an `attention` fence.

    Raises:
        ValueError: "line N of the fence: …", what came and what was wanted.
    """
    try:
        node = yaml.compose(body, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"line {mark.line + 1} of the fence: {error.problem or 'not YAML'}"
        raise ValueError(what) from None
    except yaml.YAMLError as error:
        raise ValueError(f"line 1 of the fence: not YAML: {error}") from None
    if node is None:
        raise ValueError("line 1 of the fence: empty; wanted tokens and embeddings")
    for scalar in _scalars(node):
        if hidden := UNSHOWN.search(scalar.value):  # written as an escape, which YAML knows
            raise _wrong(scalar, f"U+{ord(hidden[0]):04X}, which the site would not show")
    entries = _mapping(node, KEYS)
    panels = _panels(entries, node)
    tokens = panels[0].tokens
    settings = {key: SETTINGS[key](entries[key], key, tokens) for key in SETTINGS if key in entries}
    spec = Explorable(panels, side="heads" in entries, **settings)
    if spec.votes:
        _check_votes(spec, entries["votes"])
    if spec.channels:
        columns = {len(panel.matrices.get("embeddings", [[]])[0]) for panel in panels}
        came = f"channels has {len(spec.channels)} words, but the embeddings have {max(columns)} columns"
        _want(columns == {len(spec.channels)}, entries["channels"], came)
    return spec


def _check_votes(spec: Explorable, node: yaml.Node) -> None:
    """A sentence is that of one query, and each number of its context vector is a vote."""
    _want(spec.query is not None, node, "votes are those of one query; query is missing")
    _want(not spec.side, node, "votes and heads exclude each other")
    for panel in spec.panels:
        steps = compute(panel, causal=spec.causal, scaling=spec.scaling, hidden=spec.hidden)
        columns = len(steps["context"][0])
        mismatch = f"votes has {len(spec.votes)} words, but the values have {columns} columns"
        _want(len(spec.votes) == columns, node, mismatch)


def _panels(entries: Entries, node: yaml.Node) -> list[Panel]:
    """The panels of a fence: one, the `choices`, or the `heads`."""
    several = [key for key in ("choices", "heads") if key in entries]
    if not several:
        return [_panel(entries, node)]
    kind, items = several[0], entries[several[-1]]
    _want(len(several) == 1, items, "choices and heads exclude each other")
    shared = {key: entries[key] for key in PANEL_KEYS if key in entries}
    panels: list[Panel] = []
    for item in _items(items, 2, f"{kind} wants a list of two or more items"):
        own = _mapping(item, PANEL_KEYS)
        _want("name" in own, item, f"name is missing; each of {kind} has one")
        panels.append(_panel(shared | own, item))
        first, last = panels[0].tokens, panels[-1].tokens
        mismatch = f"heads look at one list of tokens; got {first} and {last}"
        _want(kind == "choices" or first == last, item, mismatch)
        mismatch = f"choices have one count of tokens; got {len(first)} and {len(last)}"
        _want(len(first) == len(last), item, mismatch)
    return panels


def _place(node: yaml.Node, value: object, name: str, tokens: list[str]) -> int:
    """The position of a token given by its word or its number; a word must name one position."""
    places = [i for i, word in enumerate(tokens) if value in (word, i, str(i))]
    wanted = f"one of {' '.join(tokens)}, or a number from 0 to {len(tokens) - 1}"
    what = f"{name} wants {wanted} where a word repeats; got {value!r}"
    _want(len(places) == 1 and value is not True, node, what)
    return places[0]


def _places(node: yaml.Node, name: str, tokens: list[str]) -> list[int]:
    return [_place(node, word, name, tokens) for word in str(_plain(node)).split()]


def _known(node: yaml.Node, name: str, known: tuple[str, ...]) -> list[str]:
    words = _words(node, name)
    for word in words:
        _want(word in known, node, f"{name} wants any of {', '.join(known)}, got {word!r}")
    return words


def _switch(node: yaml.Node, name: str, _: list[str]) -> bool:
    value = _plain(node)
    _want(isinstance(value, bool), node, f"{name} wants true or false, got {_shown(node)}")
    return value


def _digits(node: yaml.Node, name: str, _: list[str]) -> int:
    value = _plain(node)
    right = type(value) is int and 0 <= value <= 6
    _want(right, node, f"{name} wants a whole number from 0 to 6, got {_shown(node)}")
    return value


def _room(node: yaml.Node, name: str, _: list[str]) -> list[float]:
    heights = [_number(item) for item in _items(node, 2, f"{name} wants two heights")]
    _want(len(heights) == 2, node, f"{name} wants two heights, got {len(heights)}")
    return heights


# What is said once for the whole figure, and how each is read.
SETTINGS: dict[str, Callable[[yaml.Node, str, list[str]], Any]] = {
    "caption": lambda node, name, _: str(_plain(node)),
    "query": lambda node, name, tokens: _place(node, _plain(node), name, tokens),
    "step": lambda node, name, _: STEPS.index(_known(node, name, STEPS)[0]),
    "causal": _switch,
    "scaling": _switch,
    "hidden": _places,
    "digits": _digits,
    "controls": lambda node, name, _: _known(node, name, CONTROLS),
    "votes": lambda node, name, _: _words(node, name),
    "room": _room,
    "channels": lambda node, name, _: _words(node, name),
}
KEYS = (*PANEL_KEYS[1:], *SETTINGS, "by_hand", "choices", "heads")


# ----------------------------------------------------------------------------------- computing


def _dot(left, right) -> float:
    return sum(one * other for one, other in zip(left, right, strict=True))


def _times(left: list, right: list) -> list:
    """Matrix product of lists of rows."""
    columns = list(zip(*right, strict=True))
    return [[_dot(row, column) for column in columns] for row in left]


def _softmax(row: list[float]) -> list[float]:
    """Softmax of a row; a row with nothing to attend to gives zeros, as the book's snippets do."""
    largest = max(row)
    if largest == -math.inf:
        return [0.0] * len(row)
    powers = [math.exp(score - largest) for score in row]
    total = sum(powers)
    return [power / total for power in powers]


def compute(
    panel: Panel, *, causal: bool, scaling: bool, hidden=()
) -> dict[str, list[list[float]]]:
    """Every step of attention over one panel, in float64: `{step: rows}`, a row a query."""
    given = panel.matrices
    if "embeddings" in given:
        inputs = given["embeddings"]
        names = ("W_query", "W_key", "W_value")
        query, key, value = (
            _times(inputs, given[name]) if name in given else inputs for name in names
        )
    else:
        query, key, value = (given[name] for name in PROJECTED)
    scores = [[_dot(one, other) for other in key] for one in query]
    root = math.sqrt(len(key[0]))
    scaled = [[score / root for score in row] for row in scores] if scaling else scores
    masked = [
        [-math.inf if j in hidden or (causal and j > i) else score for j, score in enumerate(row)]
        for i, row in enumerate(scaled)
    ]
    weights = [_softmax(row) for row in masked]
    return dict(zip(STEPS, (scores, scaled, masked, weights, _times(weights, value)), strict=True))


def filled(body: str, values: list) -> str:
    """Return the `body` of a fence with what it names replaced by `values`, which the page computes.

    Numbers get more decimal places where they need them; see above.

    Raises:
        ValueError: a value does not fit its name, or what the figure derives is not what the page
            computes.
    """
    exact = read(matrices.fill(body, values, EXACT))
    for places in range(matrices.MOST_PLACES + 1):
        text = matrices.fill(body, values, places)
        # What is written anew keeps some room, so that another machine finds it right, too.
        if _same_figures(read(text), exact, NOISE / 2 if places else NOISE):
            break
    else:
        what = f"{matrices.MOST_PLACES} decimal places do not suffice for what the figure derives"
        raise ValueError(f"{what}; show fewer `digits`")
    spec = read(text)
    for panel, computed in zip(spec.panels, matrices.steps(body, values), strict=True):
        derived = compute(panel, causal=spec.causal, scaling=spec.scaling, hidden=spec.hidden)
        for step in STEPS:
            if step in computed:
                _check_step(spec, step, derived[step], computed[step])
    return text


def _same_figures(shown: Explorable, exact: Explorable, noise: float) -> bool:
    """Say whether all that both derive is the same in the digits shown, however the switches stand."""
    for one, other in zip(shown.panels, exact.panels, strict=True):
        for causal, scaling in product((False, True), repeat=2):
            ours, wanted = (
                compute(panel, causal=causal, scaling=scaling, hidden=shown.hidden)
                for panel in (one, other)
            )
            for step in STEPS:
                for row, rows in zip(ours[step], wanted[step], strict=True):
                    if not all(map(_alike(shown.digits, noise), row, rows)):
                        return False
    return True


def _alike(digits: int, noise: float) -> Callable[[float, float], bool]:
    """Return what says whether a number is drawn as another one, which may move by `noise`."""

    def alike(number: float, other: float) -> bool:
        room = noise * max(1.0, abs(other)) if math.isfinite(other) else 0.0
        drawn = {rounded(other + by, digits) for by in (-room, 0.0, room)}
        return rounded(number, digits) in drawn

    return alike


def _check_step(spec: Explorable, step: str, derived: list[list[float]], value: Any) -> None:
    """Raise ValueError unless a figure derives the `value` that the page computes of a step."""
    one_row = isinstance(value, list) and value and not isinstance(value[0], list)
    if one_row and spec.query is None:
        raise ValueError(f"{step} is one row of the page, and no query says which")
    rows = [value] if one_row else value
    wanted = [derived[spec.query or 0]] if one_row else derived
    alike = _alike(spec.digits, NOISE)
    if not isinstance(rows, list) or [len(row) for row in rows] != [len(row) for row in wanted]:
        shape = f"{len(wanted)} rows of {len(wanted[0])} numbers"
        raise ValueError(f"the figure derives {step} of {shape}; the page computes {value}")
    for place, (row, computed) in enumerate(zip(wanted, rows, strict=True)):
        for column, (number, other) in enumerate(zip(row, computed, strict=True)):
            if not isinstance(other, int | float) or not alike(number, other):
                what = (
                    f"row {place}, column {column} of the {step}: the figure derives {number:.6f}"
                )
                raise ValueError(f"{what}, and the page computes {other}")
