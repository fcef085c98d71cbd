"""The page of all parts says what is so: every file has a row, and makes the bytes of its row."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from snippets.attention_backward import attention
from snippets.attention_masks import keep_window
from snippets.causal_average import causal_average
from snippets.causal_self_attention import CausalSelfAttention
from snippets.cross_attention import CrossAttention
from snippets.flash_attention import flash_attention
from snippets.gated_attention import GatedAttention
from snippets.gated_memory import gated_memory
from snippets.grouped_query_attention import GroupedQueryAttention
from snippets.image_attention import window_attention
from snippets.kv_cache import KVCache
from snippets.latent_attention import LatentAttention
from snippets.linear_attention import linear_attention
from snippets.multi_head_attention import MultiHeadAttention
from snippets.online_softmax import attend_part
from snippets.positions import LearnedPositions
from snippets.quantized_cache import QuantizedCache
from snippets.ring_attention import ring_attention
from snippets.rope import RotaryPositions
from snippets.scaled_dot_product_attention import scaled_dot_product_attention
from snippets.self_attention import SelfAttention
from snippets.sparse_attention import Indexer, attend_chosen
from tests.snippets.problems import SNIPPETS
from tests.snippets.test_cost import peak
from tests.snippets.test_dtypes import CASES as DTYPES
from tests.snippets.test_dtypes import TRIED, WRITERS

PAGE = (SNIPPETS.parent / "docs" / "parts.md").read_text(encoding="utf-8")
# file → its cells after the first, which has its link: equal to, fused, bytes, what it does not do.
ROWS = {
    row[1]: [cell.strip() for cell in row[2].split("|")]
    for row in re.finditer(r"^\| \[([a-z_]+)\.py\]\([^|]*\| (.*) \|$", PAGE, re.MULTILINE)
}
# What loads the book's files, whole models, what writes with them, and what puts parts together.
NOT_LISTED = {"gpt", "llama", "generate", "paged_server", "speculative_sampling", "attention_of"}
T, CHANNELS = 16_384, 64
# Part → the call whose bytes its row names, given (T, CHANNELS) tokens in float32.
CALLS = {
    "causal_average": causal_average,
    "scaled_dot_product_attention": lambda x: scaled_dot_product_attention(x, x, x),
    "self_attention": lambda x: SelfAttention(CHANNELS, CHANNELS)(x),
    "causal_self_attention": lambda x: CausalSelfAttention(CHANNELS, CHANNELS)(x),
    "cross_attention": lambda x: CrossAttention(CHANNELS, CHANNELS, CHANNELS)(x, x),
    "multi_head_attention": lambda x: MultiHeadAttention(CHANNELS, 1)(x),
    "positions": lambda x: LearnedPositions(T, CHANNELS)(x),
    "attention_backward": lambda x: backward(x.clone().requires_grad_()),
    "rope": lambda x: RotaryPositions(CHANNELS)(x[None, None], torch.arange(T)),
    "attention_masks": lambda x: keep_window(1024, T),
    "image_attention": lambda x: window_attention(*3 * [x[None, None]], 128, 128, 8),
    "kv_cache": lambda x: KVCache(T).update(x[None, None], x[None, None]),
    "quantized_cache": lambda x: QuantizedCache().update(x[None, None], x[None, None]),
    "grouped_query_attention": lambda x: GroupedQueryAttention(CHANNELS, 1)(x[None]),
    "gated_attention": lambda x: GatedAttention(CHANNELS, 1)(x[None]),
    "latent_attention": lambda x: LatentAttention(CHANNELS, 1, latent_dim=16, head_dim=CHANNELS)(
        x[None]
    ),
    "online_softmax": lambda x: attend_part(x, x[: T // 16], x[: T // 16]),
    "flash_attention": lambda x: flash_attention(x, x, x, is_causal=True, block=1024),
    "ring_attention": lambda x: ring_attention(*3 * [x[None, : T // 16]], OneOf16()),
    "linear_attention": lambda x: linear_attention(x, x, x)[0],
    "gated_memory": lambda x: gated_memory(x, x, x, beta=x[:, :1].sigmoid())[0],
    "sparse_attention": lambda x: attend_chosen(
        *3 * [x[None, None]], Indexer(CHANNELS, 1, 16, k=256)(x[None])
    ),
}
PARAMETERS = {"positions": 4}  # MiB that a call above makes once, and no pass does
COPIES = {"attention_backward": 4}  # of the input, made to ask for a gradient


class OneOf16:
    """The first of 16 devices, which gets back what it sends: the bytes are those of a ring."""

    rank, size = 0, 16

    def pass_on(self, *tensors):
        return lambda: list(tensors)


def backward(x):
    """Both passes of the attention that is written out."""
    with torch.enable_grad():
        attention(x, x, x).sum().backward()


def test_what_has_no_row_is_linked():
    for part in NOT_LISTED:
        assert f"[{part}.py](snippets/{part}.py){{ download=" in PAGE


def test_every_part_has_a_row_and_every_row_its_bytes():
    files = {path.stem for path in Path(SNIPPETS).glob("*.py")} - NOT_LISTED
    assert ROWS.keys() == files == CALLS.keys()


@pytest.mark.parametrize("part", CALLS)
def test_a_row_is_full_and_leads_to_its_file(part):
    assert f"[{part}.py](snippets/{part}.py){{ download=" in PAGE
    assert len(ROWS[part]) == 5
    assert all(ROWS[part])


@pytest.mark.parametrize("part", CALLS)
def test_a_row_says_what_autocast_gives_where_the_part_is_tried(part):
    cases = [case for name, case in DTYPES.items() if name.partition(",")[0] == part]
    given = {case.returns(case.computes_in("autocast")) for case in cases}
    named = re.findall(r"b?float\d+", ROWS[part][4])
    assert sorted(f"torch.{name}" for name in named) == sorted(str(dtype) for dtype in given)


def test_the_page_names_the_dtypes_that_every_file_is_tried_in():
    assert TRIED == ("float64", "float32", "bfloat16", "autocast")
    assert (
        "Every file of this table was tried in four dtypes: float64, float32, bfloat16, and float32 under "
        "autocast to bfloat16." in " ".join(PAGE.split())
    )
    assert "These six were tried in the same four dtypes" in " ".join(PAGE.split())
    assert DTYPES.keys() | WRITERS.keys() >= NOT_LISTED
    models = [DTYPES[name].computes_in("autocast") for name in ("gpt", "llama")]
    assert models == [torch.bfloat16, torch.bfloat16]


@pytest.mark.parametrize("part", CALLS)
def test_a_part_makes_the_bytes_of_its_row(part):
    with FakeTensorMode(), torch.no_grad():
        made = peak(CALLS[part], torch.zeros(T, CHANNELS)) / 2**20
    made -= PARAMETERS.get(part, 0) + COPIES.get(part, 0)
    told = re.sub(r"<[^>]*>", "", ROWS[part][2])  # by hand, says a span around it
    said = float(re.match(r"([\d,]+) MiB", told)[1].replace(",", ""))
    assert made == pytest.approx(said, abs=0.5), f"{part} makes {made:.1f} MiB"


# Each file checks its own arguments, and the ring has nothing but two results to merge.
THEIR_OWN = {"_check", "merge"}


def test_what_has_one_name_in_several_files_is_the_same_code():
    named = defaultdict(set)
    for path in SNIPPETS.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                named[node.name].add(ast.unparse(node))
    assert {name for name, codes in named.items() if len(codes) > 1} == THEIR_OWN
