"""A bad argument gets a ValueError that names it, says what came and what was wanted."""

import re

import pytest
import torch

from tests.snippets.problems import NAMES, SNIPPETS, Implementation


def public_names(implementation):
    """Return the five things that the snippets are copied for, by name."""
    return {
        "attention": implementation.scaled_dot_product_attention.scaled_dot_product_attention,
        "SelfAttention": implementation.self_attention.SelfAttention,
        "CausalSelfAttention": implementation.causal_self_attention.CausalSelfAttention,
        "MultiHeadAttention": implementation.multi_head_attention.MultiHeadAttention,
        "CrossAttention": implementation.cross_attention.CrossAttention,
    }


attention, SelfAttention, CausalSelfAttention, MultiHeadAttention, CrossAttention = public_names(
    Implementation()
).values()


def zeros(*shape, dtype=torch.float32):
    """Return a tensor of the shape; its numbers do not matter here."""
    return torch.zeros(shape, dtype=dtype)


def q(**changes):
    """Call the function with arguments that fit, except for the changes."""
    fitting = {"query": zeros(2, 4, 3), "key": zeros(2, 5, 3), "value": zeros(2, 5, 6)}
    return attention(**fitting | changes)


def heads(**changes):
    """Call the function with two heads of two texts, except for the changes."""
    parts = [zeros(2, 2, 4, 3), zeros(2, 2, 5, 3), zeros(2, 2, 5, 3)]
    return attention(*parts, **changes)


def single(**changes):
    """Call SelfAttention(3, 2) with an input that fits, except for the changes."""
    return SelfAttention(3, 2)(**{"x": zeros(4, 3)} | changes)


def multi(**changes):
    """Call MultiHeadAttention(8, 2, kv_dim=6) with arguments that fit, except for the changes."""
    fitting = {"query": zeros(2, 4, 8), "key": zeros(2, 5, 6)}
    return MultiHeadAttention(8, 2, kv_dim=6)(**fitting | changes)


def cross(**changes):
    """Call CrossAttention(3, 5, 2) with arguments that fit, except for the changes."""
    fitting = {"x": zeros(2, 4, 3), "source": zeros(2, 6, 5)}
    return CrossAttention(3, 5, 2)(**fitting | changes)


NAN, INF = float("nan"), float("inf")
integers, double = zeros(4, 5, dtype=torch.int64), torch.float64

# what is done · the argument named · what came · what was wanted
BAD = [
    (lambda: q(query=[[1.0]]), "query", "[[1.0]]", "tensor"),
    (lambda: q(query=integers), "query", "torch.int64", "floating point"),
    (lambda: q(query=zeros(3)), "query", "(3,)", "(..., tokens, dim)"),
    (lambda: q(query=zeros(2, 4, 0)), "query", "(2, 4, 0)", "dim ≥ 1"),
    (lambda: q(key=None), "key", "None", "tensor"),
    (lambda: q(key=zeros(2, 5, 3, dtype=double)), "key", "torch.float64", "torch.float32"),
    (lambda: q(key=zeros(2, 5, 4)), "key", "(2, 5, 4)", "3"),
    (lambda: q(key=zeros(3, 5, 3)), "key", "(3, 5, 3)", "broadcast"),
    (lambda: q(value=zeros(2, 4, 6)), "value", "(2, 4, 6)", "5"),
    (lambda: q(value=zeros(7, 5, 6)), "value", "(7, 5, 6)", "broadcast"),
    (lambda: q(value=zeros(2, 5, 6).bfloat16()), "value", "torch.bfloat16", "torch.float32"),
    (lambda: q(attn_mask=zeros(5)), "attn_mask", "(5,)", "(4, 5)"),
    (lambda: q(attn_mask=[[True] * 5] * 4), "attn_mask", "[[True", "tensor or None"),
    (lambda: heads(attn_mask=zeros(2, 4, 5)), "attn_mask", "(2, 4, 5)", "mask[:, None]"),
    (lambda: heads(attn_mask=zeros(1, 4, 5)), "attn_mask", "(1, 4, 5)", "mask[:, None]"),
    (lambda: q(attn_mask="causal"), "attn_mask", "'causal'", "tensor or None"),
    (lambda: q(attn_mask=integers), "attn_mask", "torch.int64", "boolean"),
    (lambda: q(attn_mask=zeros(5, 4)), "attn_mask", "(5, 4)", "(2, 4, 5)"),
    (lambda: q(attn_mask=zeros(1, 2, 4, 5)), "attn_mask", "(1, 2, 4, 5)", "(2, 4, 5)"),
    (lambda: q(dropout_p=1.0), "dropout_p", "1.0", "[0, 1)"),
    (lambda: q(dropout_p=-0.1), "dropout_p", "-0.1", "[0, 1)"),
    (lambda: q(dropout_p=NAN), "dropout_p", "nan", "[0, 1)"),
    (lambda: q(scale=INF), "scale", "inf", "finite"),
    (lambda: q(scale=-INF), "scale", "-inf", "finite"),
    (lambda: q(scale=NAN), "scale", "nan", "finite"),
    (lambda: q(scale="√d"), "scale", "'√d'", "number"),
    (lambda: SelfAttention(0, 2), "embed_dim", "0", "positive integer"),
    (lambda: SelfAttention(3, 2.5), "head_dim", "2.5", "positive integer"),
    (lambda: single(x=zeros(4, 5)), "x", "(4, 5)", "(..., tokens, 3)"),
    (lambda: single(x=zeros(3)), "x", "(3,)", "(..., tokens, 3)"),
    (lambda: single(x=[1.0]), "x", "[1.0]", "(..., tokens, 3)"),
    (lambda: single(attn_mask=integers), "attn_mask", "torch.int64", "boolean"),
    (lambda: single(attn_mask=zeros(4, 5)), "attn_mask", "(4, 5)", "(4, 4)"),
    (lambda: single(attn_mask=True), "attn_mask", "True", "tensor or None"),
    (lambda: single(attn_mask=zeros(4)), "attn_mask", "(4,)", "(4, 4)"),
    (
        lambda: single(x=zeros(2, 2, 4, 3), attn_mask=zeros(2, 4, 4)),
        "attn_mask",
        "(2, 4, 4)",
        "4 dimensions",
    ),
    (lambda: CausalSelfAttention(3, -1), "head_dim", "-1", "positive integer"),
    (lambda: CausalSelfAttention(3, 2, 1.5), "dropout", "1.5", "[0, 1)"),
    (lambda: CausalSelfAttention(3, 2, "½"), "dropout", "'½'", "[0, 1)"),
    (lambda: CausalSelfAttention(3, 2)(zeros(4, 2)), "x", "(4, 2)", "(..., tokens, 3)"),
    (lambda: MultiHeadAttention(8, 3), "num_heads", "num_heads=3", "embed_dim=8"),
    (lambda: MultiHeadAttention(8, 2, value_dim=7), "num_heads", "num_heads=2", "value_dim=7"),
    (
        lambda: MultiHeadAttention(8, 6, num_kv_heads=4, head_dim=2),
        "num_kv_heads",
        "=4",
        "num_heads=6",
    ),
    (lambda: MultiHeadAttention(8, 2, head_dim=0), "head_dim", "0", "positive integer"),
    (lambda: MultiHeadAttention(8, 2, num_kv_heads=0), "num_kv_heads", "0", "positive integer"),
    (lambda: MultiHeadAttention(8, 2, out_dim=1.5), "out_dim", "1.5", "positive integer"),
    (lambda: MultiHeadAttention(8, 0), "num_heads", "0", "positive integer"),
    (lambda: MultiHeadAttention(8, 2, kv_dim="6"), "kv_dim", "'6'", "positive integer"),
    (lambda: MultiHeadAttention(8, 2, dropout=1), "dropout", "1", "[0, 1)"),
    (lambda: multi(query=zeros(2, 4, 6)), "query", "(2, 4, 6)", "(..., tokens, 8)"),
    (lambda: multi(key=None), "key", "(2, 4, 8)", "(..., tokens, 6)"),
    (lambda: multi(key=zeros(3, 5, 6)), "key", "(3, 5, 6)", "(2, 5, 6)"),
    (lambda: multi(value=zeros(2, 4, 6)), "value", "(2, 4, 6)", "(2, 5, 6)"),
    (lambda: multi(attn_mask=[True]), "attn_mask", "[True]", "tensor or None"),
    (lambda: multi(attn_mask=integers), "attn_mask", "torch.int64", "boolean"),
    (lambda: multi(attn_mask=zeros(2, 4, 5)), "attn_mask", "(2, 4, 5)", "mask[:, None]"),
    (lambda: multi(attn_mask=zeros(2, 3, 4, 5)), "attn_mask", "(2, 3, 4, 5)", "(2, 2, 4, 5)"),
    (lambda: multi(attn_mask=zeros(5)), "attn_mask", "(5,)", "(4, 5)"),
    (lambda: CrossAttention(3, 5, 2, 0), "value_dim", "0", "positive integer"),
    (lambda: cross(x=zeros(2, 4, 5)), "x", "(2, 4, 5)", "(..., tokens, 3)"),
    (lambda: cross(source=zeros(2, 6, 3)), "source", "(2, 6, 3)", "(..., tokens, 5)"),
    (lambda: cross(source=zeros(1, 6, 5)), "source", "(1, 6, 5)", "(2,)"),
    (lambda: cross(attn_mask=integers), "attn_mask", "torch.int64", "boolean"),
    (lambda: cross(attn_mask=zeros(2, 1, 5)), "attn_mask", "(2, 1, 5)", "(2, 4, 6)"),
    (lambda: cross(attn_mask=0), "attn_mask", "0", "tensor or None"),
    (lambda: cross(attn_mask=zeros(1, 2, 4, 6)), "attn_mask", "(1, 2, 4, 6)", "3 dimensions"),
]


@pytest.mark.parametrize(("call", "name", "got", "wanted"), BAD)
def test_a_bad_argument_is_named_with_what_came_and_what_was_wanted(call, name, got, wanted):
    assert complaint(call, name, got, wanted) is None


@pytest.mark.parametrize(
    "call", [lambda: single(x=zeros(4, 3).double()), lambda: single(x=zeros(4, 3).long())]
)
def test_a_dtype_that_a_projection_cannot_take_is_its_own_error(call):
    with pytest.raises(RuntimeError, match="dtype"):
        call()


def complaint(call, name, result, wanted):
    """Return what is wrong with the error that the call raises; None if nothing is."""
    try:
        call()
    except ValueError as error:
        message = str(error)
        found = message.startswith((f"{name} must ", f"{name}=")) and result in message
        return None if found and wanted in message else message
    except Exception as error:
        return f"not a ValueError: {error!r}"
    return "no error"


def every_check():
    """Yield (snippet, old, new): for each ValueError in the files, an edit that spoils it."""
    for snippet in NAMES:
        source = (SNIPPETS / f"{snippet}.py").read_text(encoding="utf-8")
        for found in re.finditer(r"raise ValueError\(", source):
            before = source[found.start() - 200 : found.start()]
            yield snippet, before + found.group(), before + "raise LookupError("


@pytest.mark.parametrize(("snippet", "old", "new"), list(every_check()))
def test_every_check_in_the_files_is_asked_for_here(snippet, old, new, monkeypatch):
    """With the check spoilt, one of the bad arguments no longer gets its error."""
    for name, thing in public_names(Implementation({snippet: [(old, new)]})).items():
        monkeypatch.setitem(globals(), name, thing)
    assert any(complaint(*bad) for bad in BAD)


def test_arguments_that_fit_raise_nothing():
    q(), multi(), cross()
    q(attn_mask=zeros(1, 5), is_causal=True, dropout_p=0, scale=-2)
    multi(value=zeros(2, 5, 6), attn_mask=zeros(2, 1, 1, 5, dtype=torch.bool))
    single(attn_mask=zeros(4, 4, dtype=torch.bool))
    cross(attn_mask=zeros(2, 1, 6))
