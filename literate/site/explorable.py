"""An explorable of attention: reads the body of an `attention` fence, computes it, draws it.

The body is YAML:

    caption: What does bank take from its neighbours?
    tokens: river bank mud
    embeddings = river:      # one row a token; or queries, keys and values
      - [1.2, 0.0, 0.0, 0.3]
      - [0.8, 0.8, 0.2, 0.0]
      - [0.9, 0.0, 0.0, 0.9]
    W_query = to_query: …    # optional, together with W_key and W_value; or leave all three out
    by_hand: W_key W_value   # matrices without `= expression`, which no code of the page holds
    query: bank              # the token that asks first, a word or a position; without it, the one
                             # that gives another the largest weight
    step: weights            # where it opens: scores, scaled, masked, weights or context
    causal: false            # how the switches stand at first
    scaling: false
    hidden: mud              # tokens that nobody may attend to at first
    digits: 4                # decimal places shown
    controls: query step causal scaling hide edit     # which controls the reader gets
    votes: orilla banco      # draws the sentence instead of tables: each word with its weight for the
                             # query; the columns of the values vote for these words, a word is
                             # hidden by a tap (controls: hide), and the winner is said

`choices:` lists alternatives, of which the reader sees one at a time, and `heads:` lists panels
that stand side by side. Each item has a `name` and the keys that differ in it.

A matrix names the expression of the page that it shows, and `make update` fills its numbers in; see
`literate/matrices.py`. The figure is drawn from the numbers alone.

What this module computes is what torch computes in float64. The script that brings the figure to
life does the same; without scripts the reader sees the tables drawn here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

import yaml

from literate.matrices import EMBEDDED, MATRICES, PROJECTED
from literate.numerals import rounded
from literate.site.figures import heat_table

STEPS = ("scores", "scaled", "masked", "weights", "context")
CONTROLS = ("query", "step", "causal", "scaling", "hide", "edit")
PANEL_KEYS = ("name", "tokens", *MATRICES)
Found = dict[str, yaml.Node]
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


# ------------------------------------------------------------------------------------- reading


def _wrong(node: yaml.Node, message: str) -> ValueError:
    return ValueError(f"line {node.start_mark.line + 1} of the fence: {message}")


def _want(holds: object, node: yaml.Node, message: str) -> None:
    """Raise what is wrong with `node` unless that `holds`."""
    if not holds:
        raise _wrong(node, message)


def _came(node: yaml.Node) -> str:
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else f"a {node.id}"


def _plain(node: yaml.Node) -> Any:
    """The Python value of a YAML node."""
    try:
        return yaml.SafeLoader("").construct_object(node, deep=True)
    except yaml.YAMLError as error:
        raise _wrong(node, str(error).split("\n")[0]) from None


def _mapping(node: yaml.Node, known: tuple[str, ...]) -> Found:
    """Turn a YAML mapping into `{key: node}`; each key must be known and given once."""
    _want(isinstance(node, yaml.MappingNode), node, f"wanted `key: value` lines, got {_came(node)}")
    found: Found = {}
    for key, value in node.value:
        name, shows, _ = str(key.value).partition(" = ")
        right = name in known and (not shows or name in MATRICES)
        _want(right, key, f"unknown key {key.value!r}; wanted one of {', '.join(known)}")
        _want(name not in found, key, f"{name} is given twice")
        found[name] = value
    return found


def _items(node: yaml.Node, least: int, message: str) -> list[yaml.Node]:
    """The nodes of a YAML list that holds at least so many."""
    right = isinstance(node, yaml.SequenceNode) and len(node.value) >= least
    _want(right, node, f"{message}, got {_came(node)}")
    return node.value


def _number(node: yaml.Node) -> float:
    value = _plain(node)
    right = type(value) in (int, float) and abs(value) <= LARGEST
    _want(right, node, f"wanted a number from {-LARGEST:g} to {LARGEST:g}, got {_came(node)}")
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
    _want(right, node, f"{name} wants words separated by spaces, got {_came(node)}")
    return words


def _panel(found: Found, item: yaml.Node) -> Panel:
    """Build the panel of an item from `{key: node}` and see that its shapes fit each other."""
    _want("tokens" in found, item, "tokens is missing")
    tokens = _words(found["tokens"], "tokens")
    _want(len(tokens) <= 12, found["tokens"], f"wanted 1 to 12 tokens, got {len(tokens)}")
    embedded = [key for key in EMBEDDED if key in found]
    projected = [key for key in PROJECTED if key in found]
    for key in projected:
        _want(not embedded, found[key], f"{key} and {', '.join(embedded)} exclude each other")
    alone = embedded in ([], ["embeddings"])
    wanted = PROJECTED if projected else EMBEDDED[:1] if alone else EMBEDDED
    for key in wanted:
        _want(key in found, item, f"{key} is missing; wanted {', '.join(wanted)}")
    matrices = {key: _matrix(found[key], key) for key in wanted}
    _check_shapes(matrices, len(tokens), found)
    return Panel(tokens, matrices, str(_plain(found["name"])) if "name" in found else "")


def _check_shapes(matrices: dict[str, list[list[float]]], tokens: int, found: Found) -> None:
    """Rows follow the tokens, or the embedding where a matrix projects; queries must meet keys."""
    for key, matrix in matrices.items():
        rows, what = tokens, "the tokens"
        if key.startswith("W_"):
            rows, what = len(matrices["embeddings"][0]), "the embedding"
        came = f"{len(matrix)} rows, wanted {rows} as {what}"
        _want(len(matrix) == rows, found[key], f"{key} has {came}")
    for query, key in (("queries", "keys"), ("W_query", "W_key")):
        if query in matrices:
            wanted, columns = len(matrices[query][0]), len(matrices[key][0])
            came = f"{columns} columns, wanted {wanted} as {query}"
            _want(columns == wanted, found[key], f"{key} has {came}")


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
    found = _mapping(node, KEYS)
    panels = _panels(found, node)
    tokens = panels[0].tokens
    settings = {key: SETTINGS[key](found[key], key, tokens) for key in SETTINGS if key in found}
    spec = Explorable(panels, side="heads" in found, **settings)
    if spec.votes:
        _check_votes(spec, found["votes"])
    return spec


def _check_votes(spec: Explorable, node: yaml.Node) -> None:
    """A sentence is that of one query, and each number of its context vector is a vote."""
    _want(spec.query is not None, node, "votes are those of one query; query is missing")
    _want(not spec.side, node, "votes and heads exclude each other")
    for panel in spec.panels:
        steps = compute(panel, causal=spec.causal, scaling=spec.scaling, hidden=spec.hidden)
        columns = len(steps["context"][0])
        came = f"votes has {len(spec.votes)} words, but the values have {columns} columns"
        _want(len(spec.votes) == columns, node, came)


def _panels(found: Found, node: yaml.Node) -> list[Panel]:
    """The panels of a fence: one, the `choices`, or the `heads`."""
    several = [key for key in ("choices", "heads") if key in found]
    if not several:
        return [_panel(found, node)]
    kind, items = several[0], found[several[-1]]
    _want(len(several) == 1, items, "choices and heads exclude each other")
    shared = {key: found[key] for key in PANEL_KEYS if key in found}
    panels: list[Panel] = []
    for item in _items(items, 2, f"{kind} wants a list of two or more items"):
        own = _mapping(item, PANEL_KEYS)
        _want("name" in own, item, f"name is missing; each of {kind} has one")
        panels.append(_panel(shared | own, item))
        first, last = panels[0].tokens, panels[-1].tokens
        came = f"heads look at one list of tokens; got {first} and {last}"
        _want(kind == "choices" or first == last, item, came)
        came = f"choices have one count of tokens; got {len(first)} and {len(last)}"
        _want(len(first) == len(last), item, came)
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
    _want(isinstance(value, bool), node, f"{name} wants true or false, got {_came(node)}")
    return value


def _digits(node: yaml.Node, name: str, _: list[str]) -> int:
    value = _plain(node)
    right = type(value) is int and 0 <= value <= 6
    _want(right, node, f"{name} wants a whole number from 0 to 6, got {_came(node)}")
    return value


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


# ------------------------------------------------------------------------------------- drawing


def _config(spec: Explorable) -> str:
    """What the script needs to know, as JSON in an attribute."""
    config = {key: value for key, value in vars(spec).items() if key not in ("panels", "caption")}
    config["panels"] = [{"name": p.name, "tokens": p.tokens, **p.matrices} for p in spec.panels]
    return escape(
        json.dumps(config, ensure_ascii=False, separators=(",", ":")), quote=False
    ).replace("'", "&#39;")


def _tables(panel: Panel, spec: Explorable) -> str:
    """The weights and the context vectors of one panel, as the figure opens."""
    steps = compute(panel, causal=spec.causal, scaling=spec.scaling, hidden=spec.hidden)
    where = f"{panel.name}: " if panel.name else ""
    hides = spec.causal or bool(spec.hidden)  # else what prints as zero is a weight like the others
    drawn = ""
    for step, title in (("weights", "attention weights"), ("context", "context vectors")):
        rows = steps[step]
        cells = [[rounded(cell, spec.digits) for cell in row] for row in rows]
        columns = panel.tokens if step == "weights" else [str(i) for i in range(len(rows[0]))]
        title = where + title
        plain = step == "context" or not hides
        drawn += heat_table(cells, panel.tokens, columns, title[0].upper() + title[1:], plain=plain)
    return drawn


def _sentence(panel: Panel, spec: Explorable) -> str:
    """The words of one panel with their weights for the query, and what its context votes for."""
    asks = spec.query or 0
    steps = compute(panel, causal=spec.causal, scaling=spec.scaling, hidden=spec.hidden)
    words = ""
    for place, (word, weight) in enumerate(zip(panel.tokens, steps["weights"][asks], strict=True)):
        share = "hidden" if place in spec.hidden else rounded(weight, spec.digits)
        kind = "word on" if place == asks else "word"
        said = f"{escape(word, quote=False)}<small>{share}</small>"
        words += f'<span class="{kind}" style="--v:{weight:.2f}">{said}</span> '
    votes = sorted(zip(steps["context"][asks], spec.votes, strict=True), reverse=True)
    counted = ", ".join(f"{escape(word)} {rounded(vote, spec.digits)}" for vote, word in votes)
    said = f"{escape(panel.tokens[asks])} → <b>{escape(votes[0][1])}</b>"
    return f'<p class="sentence">{words}</p><p class="votes">{said} <small>votes: {counted}</small></p>'


def figure(body: str) -> str:
    """HTML of an `attention` fence: a custom element around what it opens with.

    Raises:
        ValueError: "line N of the fence: …", what came and what was wanted.
    """
    spec = read(body)
    draw = _sentence if spec.votes else _tables
    tables = "".join(draw(panel, spec) for panel in spec.panels)
    return (
        f'<figure class="attention"><figcaption>{escape(spec.caption, quote=False)}</figcaption>'
        f"<attention-explorable config='{_config(spec)}'>"
        f'<div class="heats">{tables}</div></attention-explorable></figure>'
    )
