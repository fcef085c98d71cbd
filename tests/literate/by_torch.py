"""What torch makes of an explorable: the figures that ours are held to."""

import math

import torch

from literate.site import explorable


def attention(panel, *, causal, scaling, hidden):
    """Every step of attention over `panel`, in float32: `{step: tensor of (queries, …)}`."""
    given = {name: torch.tensor(rows) for name, rows in panel.matrices.items()}
    if "embeddings" in given:
        inputs = given["embeddings"]
        weights = (given.get(name) for name in ("W_query", "W_key", "W_value"))
        query, key, value = (inputs if weight is None else inputs @ weight for weight in weights)
    else:
        query, key, value = given["queries"], given["keys"], given["values"]
    scores = query @ key.T
    scaled = scores / math.sqrt(key.shape[-1]) if scaling else scores
    unseen = torch.ones_like(scores).triu(1).bool() & causal
    unseen[:, list(hidden)] = True
    masked = scaled.masked_fill(unseen, -torch.inf)
    weights = torch.softmax(masked, dim=-1).nan_to_num(0.0)  # a row with nothing to attend to
    return dict(
        zip(explorable.STEPS, (scores, scaled, masked, weights, weights @ value), strict=True)
    )
