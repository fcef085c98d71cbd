"""Deliberately wrong versions of each chapter's mechanism: every one must be caught.

A wrong version is the real file from snippets/ with one edit. It is caught when at least one of
the facts of tests/snippets/facts.py fails on it; on the real files all of them hold, for the same
problems. See the whole table with: pytest tests/test_wrong_versions.py -s
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from torch.autograd.gradcheck import GradcheckError

from tests.snippets import facts
from tests.snippets.problems import BUILDERS as WITH_WEIGHTS
from tests.snippets.problems import (
    BUILDERS_WITHOUT_WEIGHTS,
    Case,
    Implementation,
    edited,
    in_any_format,
)

BUILDERS = WITH_WEIGHTS | BUILDERS_WITHOUT_WEIGHTS

FUNCTION, SELF, CAUSAL, MULTI, CROSS, AVERAGE, BACKWARD, POSITIONS = (
    "scaled_dot_product_attention",
    "self_attention",
    "causal_self_attention",
    "multi_head_attention",
    "cross_attention",
    "causal_average",
    "attention_backward",
    "positions",
)


@dataclass(frozen=True)
class Wrong:
    """One mistake: in which file, and the edit, (old, new), that makes it."""

    what: str
    snippet: str
    old: str
    new: str


SCALED = "(query * self.head_dim**-0.5)"
SCORES = f"{SCALED} @ key.mT"
ROW = "weights = scores.softmax(dim=-1)"
CAUSAL_ROW = 'weights = scores.masked_fill_(~keep, float("-inf")).softmax(dim=-1)'
KEEP = "torch.ones(T, T, dtype=torch.bool, device=x.device).tril()"
FUTURE = "future = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).triu(1)\n"
ALONE = FUTURE + "        scores"  # is_causal without a mask
BESIDE = FUTURE + "            "  # is_causal beside a mask: in the function, and in the layer
IN_LAYER = FUTURE + "                "
SUMS = "x.cumsum(dim=-2, dtype=dtype)"
CONTEXT = "return weights @ value, weights"
UNDONE = (
    "    weights = weights.masked_fill(no_key, 0.0)"  # what follows it stands 4 or 8 further in
)
FUSED_SELF = "F.scaled_dot_product_attention(query, key, value, attn_mask)"
FUSED_CROSS = "F.scaled_dot_product_attention(*parts, attn_mask, scale"
GROUPED = "part.repeat_interleave(group, dim=-3)"
SPLIT = "x.unflatten(-1, (-1, width)).transpose(-3, -2)"
FUSED_MULTI = "            dropout,\n            is_causal,\n            scale"

WRONG = {
    "foundations/averaging.md": [
        Wrong("the mean leaves the present out", AVERAGE, SUMS, f"{SUMS} - x"),
        Wrong("the mean reads one token ahead", AVERAGE, SUMS, f"{SUMS} + x.roll(-1, -2)"),
        Wrong("the mean is of the future", AVERAGE, SUMS, f"x.flip(-2){SUMS[1:]}.flip(-2)"),
        Wrong("the mean is a sum", AVERAGE, "sums / counts[:, None]", "sums"),
        Wrong("the mean is of channels", AVERAGE, "x.cumsum(dim=-2", "x.cumsum(dim=-1"),
        Wrong("the mean divides by T", AVERAGE, "counts[:, None]", "counts[-1]"),
        Wrong(
            "the mean counts from 0", AVERAGE, "arange(1, x.size(-2) + 1", "arange(0, x.size(-2)"
        ),
        Wrong("adds the past up, never divides", CAUSAL, ".softmax(dim=-1)", ".exp()"),
        Wrong("divides by T, not by the tokens seen", CAUSAL, ".softmax(dim=-1)", ".exp().div(T)"),
        Wrong("leaves the present out", CAUSAL, KEEP, KEEP.replace("tril()", "tril(-1)")),
        Wrong("averages the future", CAUSAL, KEEP, KEEP.replace("tril()", "triu()")),
        Wrong("averages everything", CAUSAL, "~keep", "keep & ~keep"),
        Wrong("averages columns, not rows", CAUSAL, "weights @ value", "weights.mT @ value"),
    ],
    "foundations/context.md": [
        Wrong("a token keeps its own value", SELF, CONTEXT, "return value, weights"),
        Wrong(
            "every token gets the same context",
            SELF,
            CONTEXT,
            "return (weights @ value).mean(-2, keepdim=True).expand_as(value), weights",
        ),
        Wrong(
            "attends to the neighbour", SELF, CONTEXT, "return weights @ value.roll(1, -2), weights"
        ),
    ],
    "foundations/dot-product.md": [
        Wrong("softmax over the queries", SELF, "softmax(dim=-1)", "softmax(dim=-2)"),
        Wrong("softmax over the batch", SELF, "softmax(dim=-1)", "softmax(dim=0)"),
        Wrong(
            "softmax without subtracting the maximum",
            SELF,
            ROW,
            "exps = scores.exp(); weights = exps / exps.sum(-1, keepdim=True).clamp(min=1e-300)",
        ),
        Wrong(
            "divides scores by their sum, no exponential",
            SELF,
            ROW,
            "weights = scores / scores.sum(-1, keepdim=True)",
        ),
        Wrong(
            "distance in place of the dot product",
            SELF,
            SCORES,
            "torch.cdist(query, key) * self.head_dim**-0.5",
        ),
        Wrong("scores transposed", SELF, SCORES, f"({SCORES}).mT"),
        Wrong(
            "cosine in place of the dot product",
            SELF,
            SCORES,
            "F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT",
        ),
    ],
    "foundations/query-key-value.md": [
        Wrong("the key is used as the value", SELF, "self.W_value(x)", "self.W_key(x)"),
        Wrong("the query is used as the key", SELF, "self.W_key(x)", "self.W_query(x)"),
        Wrong("query and key exchanged", SELF, SCORES, f"({SCORES}).mT"),
        Wrong("queries are compared with values", SELF, SCORES, f"{SCALED} @ value.mT"),
        Wrong(
            "a matrix used without its transpose",
            MULTI,
            "self.W_query(query)",
            "(query @ self.W_query.weight)",
        ),
    ],
    "foundations/scaling.md": [
        Wrong("no scale", SELF, SCORES, "query @ key.mT"),
        Wrong("multiplied by √d", SELF, "self.head_dim**-0.5", "self.head_dim**0.5"),
        Wrong("divided by d", SELF, "self.head_dim**-0.5", "self.head_dim**-1"),
        Wrong(
            "scaled by the embedding dimension", SELF, "self.head_dim**-0.5", "self.embed_dim**-0.5"
        ),
        Wrong(
            "scaled by the embedding dimension, in heads",
            MULTI,
            SCORES,
            SCORES.replace("head_dim", "embed_dim"),
        ),
        Wrong("scaled after softmax", SELF, CONTEXT, "return weights * 0.5 @ value, weights * 0.5"),
        Wrong("scaled by the number of keys", FUNCTION, "query.size(-1) ** -0.5", "T_k**-0.5"),
        Wrong("no scale in the fused kernel", SELF, FUSED_SELF, FUSED_SELF[:-1] + ", scale=1.0)"),
        Wrong(
            "scale= ignored by the fused kernel", FUNCTION, "is_causal, scale=scale", "is_causal"
        ),
        Wrong(
            "zeros beside the queries change the scale",
            CROSS,
            FUSED_CROSS + "=self.head_dim**-0.5",
            FUSED_CROSS + "=None",
        ),
        Wrong(
            "zeros beside the queries change the scale, in heads",
            MULTI,
            FUSED_MULTI + "=self.head_dim**-0.5",
            FUSED_MULTI + "=None",
        ),
        Wrong(
            "a scale of 0 hides the future before it scales", FUNCTION, "scale <= 0", "scale < 0"
        ),
        Wrong("a negative scale does so", FUNCTION, "scale <= 0", "scale == 0"),
        Wrong("a negative scale loses its size", FUNCTION, "query * scale, 1.0", "-query, 1.0"),
    ],
    "correctness/causal-mask.md": [
        Wrong("off by one: sees one future token", CAUSAL, KEEP, KEEP.replace("tril()", "tril(1)")),
        Wrong("off by one: cannot see itself", CAUSAL, KEEP, KEEP.replace("tril()", "tril(-1)")),
        Wrong("inverted", CAUSAL, "~keep", "keep"),
        Wrong("hidden scores set to 0", CAUSAL, 'float("-inf")', "0.0"),
        Wrong("hidden scores set to a small number", CAUSAL, 'float("-inf")', "-9.0"),
        Wrong(
            "masked after softmax, never renormalised",
            CAUSAL,
            CAUSAL_ROW,
            "weights = scores.softmax(dim=-1).masked_fill(~keep, 0.0)",
        ),
        Wrong("the fused kernel forgets is_causal", CAUSAL, "is_causal=True", "is_causal=False"),
    ],
    "correctness/masks.md": [
        Wrong("inverted polarity of the argument", FUNCTION, "~(attn_mask |", "(attn_mask |"),
        Wrong(
            "inverted in the fused kernel",
            SELF,
            FUSED_SELF,
            FUSED_SELF.replace(
                "attn_mask",
                "attn_mask if attn_mask is None or attn_mask.dtype != torch.bool else ~attn_mask",
            ),
        ),
        Wrong("an additive mask is multiplied", FUNCTION, "scores += attn", "scores *= attn"),
        Wrong(
            "added before scaling",
            MULTI,
            "scores += attn_mask.masked_fill(no_key, 0.0)",
            "scores += attn_mask.masked_fill(no_key, 0.0) * self.head_dim**-0.5",
        ),
        Wrong(
            "the triangle in the other corner",
            FUNCTION,
            ALONE,
            ALONE.replace("triu(1)", "triu(T_k - T_q + 1)"),
        ),
        Wrong("is_causal ignored beside a mask", FUNCTION, BESIDE, BESIDE.replace("1", "T_k")),
        Wrong("is_causal and a mask: off by one", MULTI, IN_LAYER, IN_LAYER.replace("1", "2")),
        Wrong(
            "is_causal and a mask: hides the present", MULTI, IN_LAYER, IN_LAYER.replace("1", "0")
        ),
        Wrong(
            "is_causal forgotten beside a mask in the fused kernel",
            MULTI,
            "self._fused(query, key, value, attn_mask, dropout, is_causal)\n                    except",
            "self._fused(query, key, value, attn_mask, dropout, False)\n                    except",
        ),
        Wrong(
            "an empty row is NaN",
            FUNCTION,
            "no_key = ~attn_mask.any",
            "no_key = False & ~attn_mask.any",
        ),
        Wrong(
            "an empty row of an additive mask is NaN",
            SELF,
            "attn_mask.masked_fill(no_key, 0.0)\n",
            "attn_mask\n",
        ),
        Wrong("an empty row is uniform", CROSS, UNDONE, "    pass"),
        Wrong(
            "a row with one hidden key counts as empty",
            CROSS,
            "isneginf().all(",
            "isneginf().any(",
        ),
        Wrong(
            "the mask of another sample in the fused kernel",
            MULTI,
            "_fold(attn_mask, leading)",
            "_fold(attn_mask, leading).flip(0)",
        ),
        Wrong(
            "sequences with two leading dimensions exchanged",
            SELF,
            "key, value = (_fold(part, leading) for part in (query, key, value))",
            "key, value = (_fold(part, leading).flip(1) for part in (query, key, value))",
        ),
    ],
    "correctness/dropout.md": [
        Wrong("left on in eval", CAUSAL, "self.dropout if self.training else 0.0", "self.dropout"),
        Wrong(
            "left on in eval, in heads",
            MULTI,
            "self.dropout if self.training else 0.0",
            "self.dropout",
        ),
        Wrong("never on", CAUSAL, "self.dropout if self.training else 0.0", "0.0"),
        Wrong("on in eval only", MULTI, "if self.training else", "if not self.training else"),
        Wrong(
            "survivors not scaled up",
            FUNCTION,
            "F.dropout(weights, dropout_p)",
            "F.dropout(weights, dropout_p) * (1 - dropout_p)",
        ),
        Wrong(
            "rows renormalised after dropout",
            FUNCTION,
            "F.dropout(weights, dropout_p)",
            "F.normalize(F.dropout(weights, dropout_p), p=1, dim=-1)",
        ),
        Wrong(
            "drops scores, not weights",
            CAUSAL,
            "weights = F.dropout(weights, dropout)",
            "weights = F.dropout(scores, dropout).masked_fill(~keep, -torch.inf).softmax(dim=-1)",
        ),
        Wrong(
            "the same mask for every sample",
            FUNCTION,
            "F.dropout(weights, dropout_p)",
            "weights * F.dropout(torch.ones_like(weights[:1]), dropout_p)",
        ),
        Wrong(
            "the share kept, not the share dropped",
            CAUSAL,
            "F.dropout(weights, dropout)",
            "F.dropout(weights, 0.9 * dropout)",
        ),
        Wrong(
            "the fused kernel drops nothing",
            MULTI,
            FUSED_MULTI,
            FUSED_MULTI.replace("dropout", "0.0"),
        ),
        Wrong(
            "returns the weights from before",
            FUNCTION,
            CONTEXT,
            "return F.dropout(weights, dropout_p) @ value, weights",
        ),
    ],
    "correctness/order.md": [
        Wrong(
            "sine and cosine exchanged",
            POSITIONS,
            "angle.sin(), angle.cos()",
            "angle.cos(), angle.sin()",
        ),
        Wrong(
            "all sines, then all cosines", POSITIONS, "dim=-1).flatten(-2)", "dim=-2).flatten(-2)"
        ),
        Wrong(
            "sinusoids start again at 0",
            POSITIONS,
            "arange(first, first + tokens",
            "arange(0, tokens",
        ),
        Wrong(
            "a speed for each channel",
            POSITIONS,
            "torch.float64) / embed_dim",
            "torch.float64) / 2 / embed_dim",
        ),
        Wrong(
            "the table starts again at 0",
            POSITIONS,
            "weight[first : first + x.size(-2)]",
            "weight[: x.size(-2)]",
        ),
        Wrong(
            "the place takes the word's place", POSITIONS, "return x + self", "return 0 * x + self"
        ),
    ],
    "correctness/multi-head.md": [
        Wrong(
            "split by view(b, h, t, d): heads get tokens, not features",
            MULTI,
            SPLIT,
            "x.reshape(*x.shape[:-2], self.num_heads, x.size(-2), -1)",
        ),
        Wrong(
            "split with the features of the heads interleaved",
            MULTI,
            SPLIT,
            "x.unflatten(-1, (-1, self.num_heads)).movedim(-1, -3)",
        ),
        Wrong(
            "a shard cuts its heads by their number, not by their width",
            MULTI,
            SPLIT,
            SPLIT.replace("(-1, width)", "(self.num_heads, -1)"),
        ),
        Wrong(
            "the mask of a shard held to the whole's heads",
            MULTI,
            "(*query.shape[:-1], T_k)",
            "(*query.shape[:-3], self.num_heads, T_q, T_k)",
        ),
        Wrong(
            "reaches into the weight of a projection",
            MULTI,
            "self.W_value(value)",
            "self.W_value(value.to(self.W_value.weight.dtype))",
        ),
        Wrong(
            "takes a mask where PyTorch's layer takes another",
            MULTI,
            "*,\n        attn_mask: Tensor | None = None,\n",
            "attn_mask: Tensor | None = None,\n        *,\n",
        ),
        Wrong(
            "the heads of keys dealt to the fused kernel in reverse",
            MULTI,
            "parts.append(_fold(part, (*leading[:-1], part.size(-3))))",
            "parts.append(_fold(part.flip(-3), (*leading[:-1], part.size(-3))))",
        ),
        Wrong(
            "groups of heads dealt out in turn",
            MULTI,
            GROUPED,
            "part.repeat(*(1,) * (part.dim() - 3), group, 1, 1)",
        ),
        Wrong(
            "merged without transposing back",
            MULTI,
            "x.transpose(-3, -2).flatten(-2)",
            "x.reshape(*x.shape[:-3], x.size(-2), -1)",
        ),
        Wrong("softmax over the heads", MULTI, "softmax(dim=-1)", "softmax(dim=-3)"),
        Wrong(
            "heads in reverse order",
            MULTI,
            "x.transpose(-3, -2).flatten(-2)",
            "x.flip(-3).transpose(-3, -2).flatten(-2)",
        ),
        Wrong(
            "all heads share one query",
            MULTI,
            SCORES,
            SCORES.replace("query *", "query[..., :1, :, :].expand_as(query) *"),
        ),
        Wrong(
            "no output projection",
            MULTI,
            "return self.out_proj(self._merge_heads(weights @ value)), weights",
            "return self._merge_heads(weights @ value) + 0 * self.out_proj.weight[0, 0], weights",
        ),
        Wrong(
            "weights averaged over the heads",
            MULTI,
            "weights @ value)), weights",
            "weights @ value)), weights.mean(-3, keepdim=True).expand_as(weights)",
        ),
    ],
    "correctness/cross-attention.md": [
        Wrong(
            "keys of another sample", CROSS, "self.W_key(source)", "self.W_key(source.roll(1, 0))"
        ),
        Wrong(
            "values of another token",
            CROSS,
            "self.W_value(source)",
            "self.W_value(source.roll(1, -2))",
        ),
        Wrong(
            "the batch is averaged in",
            CROSS,
            "self.W_query(x)",
            "self.W_query(x - x.mean(0, keepdim=True))",
        ),
        Wrong(
            "the mask is forgotten by the fused kernel",
            CROSS,
            FUSED_CROSS,
            FUSED_CROSS.replace(", attn_mask", ""),
        ),
        Wrong(
            "values taken from the keys' input",
            MULTI,
            "value = key if value is None else value",
            "value = key",
        ),
        Wrong(
            "scaled by the width of the values",
            CROSS,
            SCORES,
            SCORES.replace("head_dim", "value_dim"),
        ),
        Wrong(
            "reaches into the weight of a projection",
            CROSS,
            "self.W_key(source)",
            "self.W_key(source.to(self.W_key.weight.dtype))",
        ),
        Wrong(
            "takes a mask without its name",
            CROSS,
            "*,\n        attn_mask: Tensor | None = None,\n",
            "attn_mask: Tensor | None = None,\n        *,\n",
        ),
        Wrong(
            "scaled by the width of the source", CROSS, SCORES, SCORES.replace("head_dim", "kv_dim")
        ),
    ],
    "correctness/backward.md": [
        Wrong("the row sum is forgotten", BACKWARD, "(d_weights - row_sum)", "d_weights"),
        Wrong("the row sum is added", BACKWARD, "d_weights - row_sum", "d_weights + row_sum"),
        Wrong("the scale is forgotten", BACKWARD, "d_scaled * ctx.scale", "d_scaled"),
        Wrong(
            "the mask is forgotten", BACKWARD, "key, attn_mask, ctx.scale)", "key, None, ctx.scale)"
        ),
        Wrong("values learn from scores", BACKWARD, "weights.mT @", "(query @ key.mT).mT @"),
        Wrong(
            "no gradient through the weights",
            SELF,
            CONTEXT,
            "return weights.detach() @ value, weights",
        ),
        Wrong(
            "no gradient through the values",
            SELF,
            CONTEXT,
            "return weights @ value.detach(), weights",
        ),
        Wrong("no gradient through the queries", SELF, SCORES, f"{SCALED}.detach() @ key.mT"),
        Wrong("no gradient through the keys", SELF, SCORES, f"{SCORES}.detach()"),
        Wrong(
            "softmax's backward without the sum over the row",
            SELF,
            ROW,
            "largest = scores.amax(-1, keepdim=True).detach().clamp(min=-1e30)\n"
            "        exps = (scores - largest).exp()\n"
            "        weights = exps / exps.sum(-1, keepdim=True).detach().clamp(min=1e-30)",
        ),
        Wrong(
            "the backward forgets the scale",
            SELF,
            SCORES,
            "query @ key.mT + (query @ key.mT * (self.head_dim**-0.5 - 1)).detach()",
        ),
        Wrong(
            "the gradient of an empty row is NaN",
            SELF,
            'scores.masked_fill_(~(attn_mask | no_key), float("-inf"))',
            'scores += torch.zeros_like(scores).masked_fill_(~attn_mask, float("-inf"))',
        ),
    ],
}

# Odd sizes, all different, so that no two of them can be exchanged unseen.
SIZES = Case(T_q=4, T_k=5, num_heads=2, head_dim=3, value_dim=2, embed_dim=5, kv_dim=4, bias=True)
CASES = [
    replace(SIZES, causal=True),
    replace(SIZES, causal=True, T_q=5, T_k=3, mask="bool", mask_batched=True, seed=1),
    replace(SIZES, mask="float", scale=0.3, seed=2),
    replace(SIZES, mask="empty row", seed=3),
    replace(SIZES, mask="float with empty row", seed=5),
    replace(SIZES, causal=True, mask="padding", seed=4),
    # For is_causal and values as wide as keys, (batch, num_heads, …) gets the fused kernel.
    replace(SIZES, causal=True, batch=(2, 2), value_dim=3, scale=0.0, seed=6),
    replace(SIZES, causal=True, batch=(2, 2), value_dim=3, scale=-0.5, seed=7),
    # Heads of keys and values that are shared, heads wider than the tokens, another width to end in.
    replace(
        SIZES, num_heads=4, num_kv_heads=2, value_dim=4, wider=-5, out_dim=7, mask="padding", seed=8
    ),
]


def checks(implementation: Implementation, snippet: str) -> Iterator[tuple[str, Callable]]:
    """Yield (name, check) for every fact that concerns the snippet, cheapest first."""
    if snippet == POSITIONS:
        name = "each_token_gets_the_position_of_its_place"
        yield name, lambda: getattr(facts, name)(implementation)
        return
    for case in CASES:
        problem = BUILDERS[snippet](implementation, case)
        asked = [
            facts.outputs_equal_the_definition,
            facts.gradients_equal_the_definition,
            facts.a_query_without_keys_gets_zeros,
            facts.no_sample_can_change_another,
        ]
        if True in problem.paths:
            asked.append(facts.weights_are_shares_of_the_kept_keys)
        if problem.causal:
            asked.append(facts.the_future_cannot_change_the_past)
        for fact in asked:
            yield fact.__name__, lambda fact=fact, problem=problem: fact(problem)
    large = BUILDERS[snippet](implementation, replace(SIZES, logits=1e4))
    yield "nothing_is_nan", lambda: facts.nothing_is_nan(large)
    for name, snippets in (
        ("dropout_keeps_the_average", (FUNCTION, CAUSAL, MULTI)),
        ("shards_add_up_to_the_whole", (MULTI,)),
        ("projections_are_only_called", (SELF, CAUSAL, MULTI, CROSS)),
        ("a_mask_comes_by_its_name", (SELF, CAUSAL, MULTI, CROSS)),
        ("equal_to_torch_operator", (FUNCTION,)),
        ("equal_to_torch_module", (MULTI,)),
    ):
        if snippet in snippets:
            extra = (SIZES,) if name.startswith("equal_to_torch") else ()
            yield name, lambda name=name, extra=extra: getattr(facts, name)(implementation, *extra)


def first_fact_broken(implementation: Implementation, snippet: str) -> str | None:
    """Return the name of the first fact that does not hold, or None."""
    for name, check in checks(implementation, snippet):
        if facts.first_to_notice([check]):
            return name
    return None


@pytest.mark.parametrize("snippet", [*BUILDERS, POSITIONS])
def test_every_fact_holds_on_the_real_version(snippet):
    for _, check in checks(Implementation(), snippet):
        check()


def test_every_wrong_version_is_caught(capsys):
    total, escaped, lines = 0, [], []
    for chapter, mistakes in WRONG.items():
        for wrong in mistakes:
            edited = Implementation({wrong.snippet: [(wrong.old, wrong.new)]})
            caught_by = first_fact_broken(edited, wrong.snippet)
            lines.append(f"{chapter:32} {wrong.what:58} {caught_by or 'ESCAPED'}")
            total += 1
            if caught_by is None:
                escaped.append(f"{chapter}: {wrong.what}")
    print(*lines, sep="\n")
    with capsys.disabled():
        print(f" wrong versions: caught {total - len(escaped)} of {total}", end=" ")
    assert not escaped


# A fact that nothing breaks would prove nothing: for each, a wrong version that it must refuse.
BROKEN_BY = {
    "outputs_equal_the_definition": (SELF, "self.head_dim**-0.5", "self.head_dim**-1"),
    "gradients_equal_the_definition": (SELF, "weights @ value", "weights.detach() @ value"),
    "weights_are_shares_of_the_kept_keys": (CAUSAL, 'float("-inf")', "0.0"),
    "a_query_without_keys_gets_zeros": (FUNCTION, UNDONE, "    pass"),
    "no_sample_can_change_another": (CROSS, "self.W_key(source)", "self.W_key(source.roll(1, 0))"),
    "the_future_cannot_change_the_past": (CAUSAL, KEEP, KEEP.replace("tril()", "tril(1)")),
    "the_past_can_change_the_present": (CAUSAL, KEEP, KEEP.replace("tril()", "tril(-1)")),
    "nothing_is_nan": (CAUSAL, ".softmax(dim=-1)", ".exp()"),
    "gradients_pass_gradcheck": (SELF, SCORES, f"{SCALED}.detach() @ key.mT"),
    "dropout_keeps_the_average": (CAUSAL, "self.dropout if self.training else 0.0", "0.0"),
    "shards_add_up_to_the_whole": (MULTI, "(-1, width)", "(self.num_heads, -1)"),
    "projections_are_only_called": (
        SELF,
        "self.W_key(x)",
        "self.W_key(x.to(self.W_key.weight.dtype))",
    ),
    "a_mask_comes_by_its_name": (
        SELF,
        "*, attn_mask: Tensor | None = None, need_weights",
        "attn_mask: Tensor | None = None, *, need_weights",
    ),
    "each_token_gets_the_position_of_its_place": (POSITIONS, "return x + self", "return self"),
    "equal_to_torch_operator": (FUNCTION, "is_causal, scale=scale", "False, scale=scale"),
    "equal_to_torch_module": (MULTI, SCORES, SCORES.replace("head_dim", "embed_dim")),
}


# Asked of an implementation, and not of a problem: they draw their own numbers.
ON_MODULES = {
    "dropout_keeps_the_average",
    "shards_add_up_to_the_whole",
    "projections_are_only_called",
    "a_mask_comes_by_its_name",
    "each_token_gets_the_position_of_its_place",
}


@pytest.mark.parametrize("name", BROKEN_BY)
def test_every_fact_can_fail(name):
    snippet, old, new = BROKEN_BY[name]
    fact, broken = getattr(facts, name), Implementation({snippet: [(old, new)]})
    if name in ON_MODULES:
        arguments = [(broken,)]
    elif name.startswith("equal_to_torch"):
        arguments = [(broken, CASES[0])]
    else:
        cases = (*CASES, replace(SIZES, logits=1e4))
        arguments = [(BUILDERS[snippet](broken, case),) for case in cases]
    with pytest.raises((AssertionError, GradcheckError)):
        ask_all(fact, arguments)


def ask_all(fact: Callable, arguments: list[tuple]) -> None:
    """Ask the fact of each in turn."""
    for each in arguments:
        fact(*each)


def test_every_fact_is_among_those_that_can_fail():
    public = {
        name
        for name, thing in vars(facts).items()
        if getattr(thing, "__module__", "") == facts.__name__ and (thing.__doc__ or "").strip()
    }
    helpers = {
        "assert_equal",
        "in_float64",
        "gradients",
        "copy_weights",
        "first_to_notice",
        "works",
    }
    helpers |= {"shard", "modules", "Adapter"}
    assert public - helpers == BROKEN_BY.keys()


@pytest.mark.parametrize("text", ["f(a, b)", "f(\n    a,\n    b,\n)", "f(\n    a, b\n)"])
def test_an_edit_applies_however_its_code_is_broken_into_lines(text):
    assert in_any_format("f(a, b)").fullmatch(text)


def test_an_edit_that_no_longer_applies_is_an_error():
    with pytest.raises(LookupError, match="'a line that is not there' occurs 0 times"):
        Implementation({SELF: [("a line that is not there", "")]})


def test_an_edit_that_applies_at_two_places_is_an_error():
    with pytest.raises(
        LookupError, match=r"^self_attention\.py: 'self\.W_' occurs \d+ times, not once"
    ):
        edited(SELF, ("self.W_", ""))


def test_every_chapter_has_wrong_versions():
    docs = Path(__file__).parents[1] / "docs"
    chapters = {
        str(page.relative_to(docs))
        for part in ("foundations", "correctness")
        for page in (docs / part).glob("*.md")
        if page.name != "index.md"
    }
    assert chapters <= WRONG.keys()
