"""The facts of attention, asked of every snippet on problems that Hypothesis draws."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.snippets import facts
from tests.snippets.problems import BUILDERS, Case, Implementation

REAL = Implementation()
MASKS = ("none", "bool", "float", "padding", "empty row", "float with empty row", "nothing")
CAUSAL = ("scaled_dot_product_attention", "causal_self_attention", "multi_head_attention")

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
    num_kv_heads=st.sampled_from([None, 1]),
    wider=st.sampled_from([0, 2]),
    out_dim=st.sampled_from([None, 3]),
    qkv_bias=st.sampled_from([None, True, False]),
    seed=st.integers(0, 99),
)
every_snippet = pytest.mark.parametrize("snippet", BUILDERS)
every_causal_snippet = pytest.mark.parametrize("snippet", CAUSAL)


@every_snippet
@given(case=cases)
def test_outputs_equal_the_definition(snippet, case):
    facts.outputs_equal_the_definition(BUILDERS[snippet](REAL, case))


@every_snippet
@given(case=cases)
def test_gradients_equal_the_definition(snippet, case):
    facts.gradients_equal_the_definition(BUILDERS[snippet](REAL, case))


@every_snippet
@given(case=cases)
def test_weights_are_shares_of_the_kept_keys(snippet, case):
    facts.weights_are_shares_of_the_kept_keys(BUILDERS[snippet](REAL, case))


@pytest.mark.parametrize("mask", ["bool", "empty row", "float with empty row", "nothing"])
@pytest.mark.parametrize("snippet", [name for name in BUILDERS if name != "causal_self_attention"])
@given(case=cases)
def test_a_query_without_keys_gets_zeros(snippet, mask, case):
    facts.a_query_without_keys_gets_zeros(BUILDERS[snippet](REAL, replace(case, mask=mask)))


@every_causal_snippet
@given(case=cases)
def test_future_tokens_cannot_change_the_past(snippet, case):
    facts.the_future_cannot_change_the_past(BUILDERS[snippet](REAL, replace(case, causal=True)))


@every_causal_snippet
@given(seed=st.integers(0, 99), T_q=st.integers(1, 6), T_k=st.integers(1, 6))
def test_every_query_sees_its_past_and_itself(snippet, seed, T_q, T_k):
    case = Case(seed=seed, T_q=T_q, T_k=T_k, causal=True)
    facts.the_past_can_change_the_present(BUILDERS[snippet](REAL, case))


@every_snippet
@given(case=cases, samples=st.integers(2, 4))
def test_no_sample_can_change_another(snippet, case, samples):
    case = replace(case, batch=(samples, *case.batch[1:]))
    facts.no_sample_can_change_another(BUILDERS[snippet](REAL, case))


@every_snippet
@given(case=cases)
def test_large_logits_give_no_nan(snippet, case):
    facts.nothing_is_nan(BUILDERS[snippet](REAL, replace(case, logits=1e4)))


@every_snippet
@given(case=cases)
def test_large_logits_give_what_the_definition_gives(snippet, case):
    problem = BUILDERS[snippet](REAL, replace(case, logits=1e4, dtype=torch.float64))
    # A score near 1e4 is itself rounded 1e4 times more coarsely than a score near 1, and what comes of
    # that reaches a gradient multiplied by the tokens or the queries, which are 1e2 each. It stays
    # there where the gradient cancels, as that of a key's bias does: 1e8 eps, of some dozens of terms.
    facts.outputs_equal_the_definition(problem, slack=1e4)
    facts.gradients_equal_the_definition(problem, slack=1e6)


@pytest.mark.parametrize("mask", ["none", "bool", "empty row", "float with empty row"])
@every_snippet
@settings(max_examples=3)
@given(seed=st.integers(0, 99), T_q=st.integers(1, 3), T_k=st.integers(1, 3), causal=st.booleans())
def test_gradients_pass_gradcheck(snippet, mask, seed, T_q, T_k, causal):
    sizes = {"T_q": T_q, "T_k": T_k, "head_dim": 2, "value_dim": 2, "embed_dim": 3, "kv_dim": 2}
    case = Case(seed=seed, mask=mask, causal=causal, **sizes)
    facts.gradients_pass_gradcheck(BUILDERS[snippet](REAL, case))


@given(case=cases)
def test_function_equals_the_operator_of_torch(case):
    facts.equal_to_torch_operator(REAL, replace(case, layout="plain"))


@given(case=cases, samples=st.integers(1, 3), T_q=st.integers(1, 5), T_k=st.integers(1, 5))
def test_multi_head_attention_equals_the_module_of_torch(case, samples, T_q, T_k):
    dtype = torch.float64 if case.dtype == torch.bfloat16 else case.dtype
    case = replace(case, batch=(samples,), T_q=T_q, T_k=T_k, dtype=dtype)
    facts.equal_to_torch_module(REAL, case)


def test_dropout_keeps_the_average():
    facts.dropout_keeps_the_average(REAL)


def test_shards_of_the_heads_add_up_to_the_whole():
    facts.shards_add_up_to_the_whole(REAL)


def test_projections_are_only_called():
    facts.projections_are_only_called(REAL)


def test_a_mask_comes_by_its_name():
    facts.a_mask_comes_by_its_name(REAL)
