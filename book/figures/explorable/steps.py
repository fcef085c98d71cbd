"""The steps of attention over one panel of an explorable, in float64, as torch computes them.

`attention.js` computes the same when a reader changes something.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

STEPS = ("scores", "scaled", "masked", "weights", "context")
Rows = list[list[float]]


@dataclass
class Panel:
    """One attention head over one list of tokens: its `matrices` are lists of rows."""

    tokens: list[str]
    matrices: dict[str, Rows]
    name: str = ""


def compute(panel: Panel, *, causal: bool, scaling: bool) -> dict[str, Rows]:
    """Return every step, `{step: rows}`, with a row for each query."""
    given = panel.matrices
    query, key, value = (
        given.get(name, given.get("embeddings", [])) for name in ("queries", "keys", "values")
    )
    scores = [[_dot(one, other) for other in key] for one in query]
    root = math.sqrt(len(key[0]))
    scaled = [[score / root for score in row] for row in scores] if scaling else scores
    masked = [
        [-math.inf if causal and j > i else score for j, score in enumerate(row)]
        for i, row in enumerate(scaled)
    ]
    weights = [_softmax(row) for row in masked]
    columns = list(zip(*value, strict=True))
    context = [[_dot(row, column) for column in columns] for row in weights]
    return dict(zip(STEPS, (scores, scaled, masked, weights, context), strict=True))


def _dot(left, right) -> float:
    return sum(one * other for one, other in zip(left, right, strict=True))


def _softmax(row: list[float]) -> list[float]:
    largest = max(row)
    powers = [math.exp(score - largest) for score in row]
    total = sum(powers)
    return [power / total for power in powers]
