"""The steps of attention over one panel of an explorable, in float64, as torch computes them.

`attention.js` computes the same when a reader changes something.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

STEPS = ("scores", "scaled", "masked", "weights", "context")
Rows = list[list[float]]


@dataclass
class Panel:
    """One attention head over one list of tokens: its `matrices` are lists of rows."""

    tokens: list[str]
    matrices: dict[str, Rows]
    name: str = ""


def compute(
    panel: Panel, *, causal: bool, scaling: bool, hidden: Collection[int] = ()
) -> dict[str, Rows]:
    """Return every step, `{step: rows}`, with a row for each query.

    A row with nothing to attend to gets weights of zero, as the book's parts give it.
    """
    given = panel.matrices
    if "embeddings" in given:
        inputs = given["embeddings"]
        query, key, value = (
            _product(inputs, given[name]) if name in given else inputs
            for name in ("W_query", "W_key", "W_value")
        )
    else:
        query, key, value = given["queries"], given["keys"], given["values"]
    scores = [[_dot(one, other) for other in key] for one in query]
    root = math.sqrt(len(key[0]))
    scaled = [[score / root for score in row] for row in scores] if scaling else scores
    masked = [
        [-math.inf if j in hidden or (causal and j > i) else score for j, score in enumerate(row)]
        for i, row in enumerate(scaled)
    ]
    weights = [_softmax(row) for row in masked]
    return dict(
        zip(STEPS, (scores, scaled, masked, weights, _product(weights, value)), strict=True)
    )


def _dot(left, right) -> float:
    return sum(one * other for one, other in zip(left, right, strict=True))


def _product(left: Rows, right: Rows) -> Rows:
    columns = list(zip(*right, strict=True))
    return [[_dot(row, column) for column in columns] for row in left]


def _softmax(row: list[float]) -> list[float]:
    largest = max(row)
    if largest == -math.inf:
        return [0.0] * len(row)
    powers = [math.exp(score - largest) for score in row]
    total = sum(powers)
    return [power / total for power in powers]
