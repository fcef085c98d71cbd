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
    query: bank              # the token that asks first: a word or a position
    step: weights            # where it opens: scores, scaled, masked, weights or context
    causal: false            # how the switches stand at first
    scaling: false
    hidden: mud              # tokens that nobody may attend to at first
    digits: 4                # decimal places shown
    controls: query step causal scaling hide edit     # which controls the reader gets

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
from dataclasses import dataclass, field
from html import escape

import yaml

from literate.site.figures import heat_table

STEPS = ("scores", "scaled", "masked", "weights", "context")
CONTROLS = ("query", "step", "causal", "scaling", "hide", "edit")
EMBEDDED = ("embeddings", "W_query", "W_key", "W_value")
PROJECTED = ("queries", "keys", "values")
PANEL_KEYS = ("name", "tokens", *EMBEDDED, *PROJECTED)
KEYS = (
    *PANEL_KEYS[1:],
    "caption",
    "query",
    "step",
    "causal",
    "scaling",
    "hidden",
    "digits",
    "controls",
    "by_hand",
    "choices",
    "heads",
)
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
    query: int = 0
    step: int = 0
    causal: bool = False
    scaling: bool = False
    hidden: list[int] = field(default_factory=list)
    digits: int = 4
    controls: list[str] = field(default_factory=lambda: [c for c in CONTROLS if c != "hide"])


# ------------------------------------------------------------------------------------- reading


def _wrong(line: int, message: str) -> ValueError:
    return ValueError(f"line {line} of the fence: {message}")


def _mapping(node, known: tuple[str, ...]) -> dict:
    """Turn a YAML mapping into `{key: node}`; each key must be known and given once."""
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(_line(node), f"wanted `key: value` lines, got {_came(node)}")
    found = {}
    for key, value in node.value:
        name = str(key.value).partition(" = ")[0]
        if name not in known or (name != key.value and name not in (*EMBEDDED, *PROJECTED)):
            raise _wrong(_line(key), f"unknown key {key.value!r}; wanted one of {', '.join(known)}")
        if name in found:
            raise _wrong(_line(key), f"{name} is given twice")
        found[name] = value
    return found


def _line(node) -> int:
    return node.start_mark.line + 1


def _came(node) -> str:
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else f"a {node.id}"


def _plain(node):
    """The Python value of a YAML node."""
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except yaml.YAMLError as error:
        raise _wrong(_line(node), str(error).split("\n")[0]) from None


def _number(node) -> float:
    value = _plain(node)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise _wrong(
            _line(node), f"wanted a number from {-LARGEST:g} to {LARGEST:g}, got {_came(node)}"
        )
    return float(value)


def _matrix(node, name: str) -> list[list[float]]:
    """Read a list of rows of numbers, all of one length."""
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise _wrong(_line(node), f"{name} wants a list of rows, got {_came(node)}")
    rows = []
    for row in node.value:
        if not isinstance(row, yaml.SequenceNode) or not row.value:
            raise _wrong(_line(row), f"{name} wants rows like [0.5, 1.0], got {_came(row)}")
        rows.append([_number(cell) for cell in row.value])
        if len(rows[-1]) != len(rows[0]):
            raise _wrong(
                _line(row), f"{name} has rows of {len(rows[0])} and of {len(rows[-1])} numbers"
            )
    return rows


def _words(node, name: str) -> list[str]:
    value = _plain(node)
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise _wrong(_line(node), f"{name} wants words separated by spaces, got {_came(node)}")
    return words


def _panel(found: dict, line: int) -> Panel:
    """Build one panel from `{key: node}` and see that its shapes fit each other."""
    if "tokens" not in found:
        raise _wrong(line, "tokens is missing")
    tokens = _words(found["tokens"], "tokens")
    if not 1 <= len(tokens) <= 12:
        raise _wrong(_line(found["tokens"]), f"wanted 1 to 12 tokens, got {len(tokens)}")
    embedded = [key for key in EMBEDDED if key in found]
    projected = [key for key in PROJECTED if key in found]
    if embedded and projected:
        raise _wrong(
            _line(found[projected[0]]), f"{projected[0]} and {embedded[0]} exclude each other"
        )
    wanted = PROJECTED if projected else EMBEDDED[: 1 if embedded in (["embeddings"], []) else 4]
    for key in wanted:
        if key not in found:
            raise _wrong(line, f"{key} is missing; wanted {', '.join(wanted)}")
    matrices = {key: _matrix(found[key], key) for key in wanted}
    _check_shapes(matrices, len(tokens), found)
    name = _plain(found["name"]) if "name" in found else ""
    return Panel(tokens, matrices, str(name))


def _check_shapes(matrices: dict, tokens: int, found: dict) -> None:
    """Rows follow the tokens, or the embedding where a matrix projects; queries must meet keys."""
    for key, matrix in matrices.items():
        rows = len(matrices["embeddings"][0]) if key.startswith("W_") else tokens
        if len(matrix) != rows:
            what = "the embedding" if key.startswith("W_") else "the tokens"
            raise _wrong(
                _line(found[key]), f"{key} has {len(matrix)} rows, wanted {rows} as {what}"
            )
    for query, key in (("queries", "keys"), ("W_query", "W_key")):
        if query in matrices and len(matrices[query][0]) != len(matrices[key][0]):
            came = f"{len(matrices[key][0])} columns, wanted {len(matrices[query][0])} as {query}"
            raise _wrong(_line(found[key]), f"{key} has {came}")


def read(body: str) -> Explorable:
    """Read the body of an `attention` fence.

    Raises:
        ValueError: "line N of the fence: …", what came and what was wanted.
    """
    try:
        node = yaml.compose(body, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _wrong(mark.line + 1, error.problem or "not YAML") from None
    except yaml.YAMLError as error:
        raise _wrong(1, f"not YAML: {error}") from None
    if node is None:
        raise _wrong(1, "empty; wanted tokens and embeddings")
    found = _mapping(node, KEYS)
    return _settings(found, *_panels(found, _line(node)))


def _panels(found: dict, line: int) -> tuple[list[Panel], bool]:
    """The panels of a fence, and whether they stand side by side."""
    several = [key for key in ("choices", "heads") if key in found]
    if not several:
        return [_panel(found, line)], False
    if len(several) == 2:
        raise _wrong(_line(found["heads"]), "choices and heads exclude each other")
    items = found[several[0]]
    if not isinstance(items, yaml.SequenceNode) or len(items.value) < 2:
        raise _wrong(_line(items), f"{several[0]} wants a list of two or more items")
    panels = []
    for item in items.value:
        own = _mapping(item, PANEL_KEYS)
        if "name" not in own:
            raise _wrong(_line(item), f"name is missing; each of {several[0]} has one")
        shared = {key: found[key] for key in PANEL_KEYS if key in found}
        panels.append(_panel(shared | own, _line(item)))
        first, last = panels[0].tokens, panels[-1].tokens
        if several[0] == "heads" and first != last:
            raise _wrong(_line(item), f"heads look at one list of tokens; got {first} and {last}")
        if len(first) != len(last):
            raise _wrong(
                _line(item), f"choices have one count of tokens; got {len(first)} and {len(last)}"
            )
    return panels, several[0] == "heads"


def _position(value, line: int, name: str, tokens: list[str]) -> int:
    """The position of a token given by its word or its number; a word must name one position."""
    places = [
        i for i, word in enumerate(tokens) if value in (word, i, str(i)) and value is not True
    ]
    if len(places) != 1:
        wanted = f"one of {' '.join(tokens)}, or a number from 0 to {len(tokens) - 1} where a word repeats"
        raise _wrong(line, f"{name} wants {wanted}; got {value!r}")
    return places[0]


def _one_of(node, name: str, known: tuple[str, ...]) -> list[str]:
    words = _words(node, name)
    for word in words:
        if word not in known:
            raise _wrong(_line(node), f"{name} wants any of {', '.join(known)}, got {word!r}")
    return words


def _settings(found: dict, panels: list[Panel], side: bool) -> Explorable:
    """Read what is said once for the whole figure."""
    result = Explorable(panels, side)
    for key, node in found.items():
        value: object = None
        match key:
            case "caption":
                value = str(_plain(node))
            case "query":
                value = _position(_plain(node), _line(node), key, panels[0].tokens)
            case "hidden":
                value = [
                    _position(word, _line(node), key, panels[0].tokens)
                    for word in str(_plain(node)).split()
                ]
            case "step":
                value = STEPS.index(_one_of(node, key, STEPS)[0])
            case "controls":
                value = _one_of(node, key, CONTROLS)
            case "causal" | "scaling":
                value = _plain(node)
                if not isinstance(value, bool):
                    raise _wrong(_line(node), f"{key} wants true or false, got {_came(node)}")
            case "digits":
                value = _plain(node)
                if type(value) is not int or not 0 <= value <= 6:
                    raise _wrong(
                        _line(node), f"digits wants a whole number from 0 to 6, got {_came(node)}"
                    )
        if value is not None:
            setattr(result, key, value)
    return result


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


def shown(value: float, digits: int) -> str:
    """A number as the figure shows it: Python's rounding, and no minus before a zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


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
    drawn = ""
    for step, title in (("weights", "attention weights"), ("context", "context vectors")):
        rows = steps[step]
        cells = [[shown(cell, spec.digits) for cell in row] for row in rows]
        columns = panel.tokens if step == "weights" else [str(i) for i in range(len(rows[0]))]
        title = where + title
        drawn += heat_table(cells, panel.tokens, columns, title[0].upper() + title[1:])
    return drawn


def figure(body: str) -> str:
    """HTML of an `attention` fence: a custom element around the tables it opens with.

    Raises:
        ValueError: "line N of the fence: …", what came and what was wanted.
    """
    spec = read(body)
    tables = "".join(_tables(panel, spec) for panel in spec.panels)
    return (
        f'<figure class="attention"><figcaption>{escape(spec.caption, quote=False)}</figcaption>'
        f"<attention-explorable config='{_config(spec)}'>"
        f'<div class="heats">{tables}</div></attention-explorable></figure>'
    )
