"""gated_memory is the recurrence of Qwen3-Next, and with a decay for each channel that of Kimi Linear: random weights."""

import pytest
import torch
import torch.nn.functional as F

from snippets.gated_memory import gated_memory

pytest.importorskip("transformers")

from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

HEAD_DIM = 8


@pytest.mark.parametrize(
    ("rule", "channels"),
    [
        (qwen.torch_recurrent_gated_delta_rule, 1),
        (qwen.torch_chunk_gated_delta_rule, 1),
        (kimi.recurrent_kimi_delta_attention, HEAD_DIM),
        (kimi.chunk_kimi_delta_attention, HEAD_DIM),
    ],
)
def test_outputs_and_the_state_are_those_of_both_in_steps_and_in_chunks(rule, channels):
    torch.manual_seed(0)
    query, key = torch.randn(2, 2, 6, 70, HEAD_DIM)  # (batch, heads, T, channels)
    value = torch.randn(2, 6, 70, 10 if channels == 1 else HEAD_DIM)  # Kimi's has one width
    key, beta = F.normalize(key, dim=-1), torch.rand(2, 6, 70, 1)
    log_decay = -torch.rand(2, 6, 70, channels)
    gates = {"log_decay": log_decay, "beta": beta}
    ours = gated_memory(query * HEAD_DIM**-0.5, key, value, **gates, chunk_size=16)
    per_head = log_decay.squeeze(-1) if channels == 1 else log_decay
    turned = (part.transpose(1, 2) for part in (query, key, value, per_head, beta.squeeze(-1)))
    theirs, state = rule(*turned, initial_state=None, output_final_state=True)
    for one, other in zip(ours, (theirs.transpose(1, 2), state), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)  # theirs compute in float32
