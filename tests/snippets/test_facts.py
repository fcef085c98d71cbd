"""The facts of attention, asked of the first parts on problems of every size and form."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.snippets import facts, problems
from tests.snippets.problems import Case, edited

BUILDERS = {
    "scaled_dot_product_attention": problems.function_problem,
    "self_attention": problems.self_problem,
    "causal_self_attention": problems.causal_problem,
    "multi_head_attention": problems.multi_head_problem,
    "cross_attention": problems.cross_problem,
    "causal_average": problems.average_problem,
}
CAUSAL = [
    "scaled_dot_product_attention",
    "causal_self_attention",
    "multi_head_attention",
    "causal_average",
]
MASKS = ("none", "bool", "float", "padding", "empty row", "float with empty row", "nothing")

small = st.integers(1, 4)
length = st.integers(0, 6)
cases = st.builds(
    Case,
    batch=st.sampled_from([(), (1,), (2,), (3,), (0,), (2, 2)]),
    T_q=length,
    T_k=length,
    num_heads=st.integers(1, 3),
    head_dim=small,
    value_dim=small,
    embed_dim=small,
    kv_dim=small,
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    layout=st.sampled_from(["plain", "transposed", "strided", "expanded"]),
    mask=st.sampled_from(MASKS),
    mask_batched=st.booleans(),
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.3, 0.0, -0.5]),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
every_part = pytest.mark.parametrize("part", BUILDERS)


def problem(part, case, **changes):
    """The problem that a case makes of a part."""
    return BUILDERS[part](edited(part), replace(case, **changes))


@every_part
@given(case=cases)
def test_outputs_and_gradients_equal_the_definition(part, case):
    facts.outputs_equal_the_definition(problem(part, case))
    facts.gradients_equal_the_definition(problem(part, case))


@every_part
@given(case=cases)
def test_large_logits_give_what_the_definition_gives(part, case):
    large = problem(part, case, logits=1e4, dtype=torch.float64)
    # A score near 1e4 is itself rounded 1e4 times more coarsely than a score near 1, and what comes of
    # that reaches a gradient multiplied by the tokens or the queries, which are 1e2 each. It stays
    # there where the gradient cancels, as that of a key's bias does: 1e8 eps, of some dozens of terms.
    facts.outputs_equal_the_definition(large, slack=1e4)
    facts.gradients_equal_the_definition(large, slack=1e6)


@pytest.mark.parametrize("mask", ["empty row", "float with empty row", "nothing"])
@pytest.mark.parametrize("part", [part for part in BUILDERS if "causal" not in part])
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
@given(case=cases)
def test_a_query_without_keys_gets_zeros_and_makes_no_nan_on_the_way(part, mask, case):
    with torch.autograd.detect_anomaly():
        facts.a_query_without_keys_gets_zeros(problem(part, case, mask=mask))


@pytest.mark.parametrize("part", CAUSAL)
@given(case=cases)
def test_future_tokens_cannot_change_the_past(part, case):
    facts.the_future_cannot_change_the_past(problem(part, case, causal=True))
