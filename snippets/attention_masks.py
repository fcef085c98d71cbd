"""Masks of attention: who may see whom. True keeps, as in scaled_dot_product_attention.

    keep = keep_window(4, T) | keep_sinks(1, T)             # either will do
    keep = keep_past(T) & keep_real(real)                   # both must hold
    keep = keep_past(T) & keep_documents(document)
    F.scaled_dot_product_attention(query, key, value, attn_mask=keep)

Every builder is named for what True means. Each mask is boolean and broadcasts to (batch, heads,
queries, keys); a mask costs one byte for each of its elements, and keeps PyTorch from the fused
kernels that know a flag only, such as is_causal. alibi_bias is no mask: its numbers are added to
the scores. Where fewer queries than keys are asked for, they are the last ones: behind a KV cache.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: Beltagy et al. (2020), "Longformer", section 3.1 (windows); Xiao et al. (2023), "Efficient
Streaming Language Models with Attention Sinks", section 3; Raffel et al. (2020), "Exploring the
Limits of Transfer Learning", section 3.2.1 (prefixes); Krell et al. (2021), "Efficient Sequence
Packing without Cross-contamination", section 3.2 (documents); Press et al. (2022), "Train Short,
Test Long", section 3 (ALiBi).
"""

import math

import torch
from torch import Tensor


def keep_past(queries: int, keys: int | None = None, *, device=None) -> Tensor:
    """True for itself and what came before: the causal mask, (queries, keys).

    Args:
        queries: how many tokens ask.
        keys: how many tokens can be seen, None: as many. The last query sees the last key, so the
            triangle ends in the lower right corner.
        device: where to make the mask; None means PyTorch's default.
    """
    asks, seen = _places(queries, keys, device)
    return seen <= asks


def keep_window(window: int, queries: int, keys: int | None = None, *, device=None) -> Tensor:
    """True for the last `window` tokens, itself among them, and for none to come, (queries, keys).

    Counted as by `sliding_window` in transformers' causal models. flash_attn's window_size counts
    the tokens before itself: there this is (window - 1, 0).
    """
    if not isinstance(window, int) or window < 1:
        raise ValueError(f"window must be a positive integer, got {window!r}")
    keep = keep_past(queries, keys, device=device)
    # In place, since a mask of 16,384 × 16,384 is 256 MiB: what lies below the window goes.
    return keep.triu_(keep.size(1) - queries - window + 1)


def keep_sinks(sinks: int, queries: int, keys: int | None = None, *, device=None) -> Tensor:
    """True for the first `sinks` tokens, as far as they are not to come, (queries, keys)."""
    if not isinstance(sinks, int) or sinks < 0:
        raise ValueError(f"sinks must be an integer of 0 or more, got {sinks!r}")
    keep = keep_past(queries, keys, device=device)
    keep[:, sinks:] = False
    return keep


def keep_prefix(prefix: Tensor, queries: int, keys: int | None = None) -> Tensor:
    """True for the prefix, which all see whole, and for the past, (batch, 1, queries, keys).

    Args:
        prefix: (batch,), integers, how many tokens of each sequence belong to its prefix.
        queries, keys: as for keep_past.
    """
    if prefix.dim() != 1 or prefix.is_floating_point():
        raise ValueError(
            f"prefix must be (batch,), integers, got {prefix.dtype} of {tuple(prefix.shape)}"
        )
    past = keep_past(queries, keys, device=prefix.device)
    place = torch.arange(past.size(1), device=prefix.device)
    return past | (place < prefix[:, None, None, None])


def keep_real(real: Tensor) -> Tensor:
    """True for keys that are no padding, (batch, 1, 1, keys), from (batch, keys), True for a token.

    Hides columns, never rows. Joined with others it may leave a padding query nothing to see: see
    keep_itself_at_least.
    """
    if real.dim() != 2 or real.dtype != torch.bool:
        raise ValueError(
            f"real must be (batch, keys), boolean, True for a token: got {real.dtype} of "
            f"{tuple(real.shape)}"
        )
    return real[:, None, None, :]


def keep_documents(document: Tensor, queries: int | None = None) -> Tensor:
    """True for tokens of the same document, (batch, 1, queries, keys), to be joined with keep_past.

    Args:
        document: (batch, keys), integers, the same number for the tokens of one document.
        queries: how many tokens ask, the last ones; None: all.
    """
    _check_document(document)
    keys = document.size(1)
    queries = keys if queries is None else queries
    _check_queries(queries, keys)
    asking = document[:, keys - queries :]
    return (asking[:, :, None] == document[:, None, :])[:, None]


def restart_positions(document: Tensor) -> Tensor:
    """Return each token's place in its own document, from 0, (batch, T), from document, (batch, T).

    A document is a run of equal numbers.
    """
    _check_document(document)
    place = torch.arange(document.size(1), device=document.device).expand_as(document)
    begins = torch.ones_like(document, dtype=torch.bool)
    begins[:, 1:] = document[:, 1:] != document[:, :-1]
    return place - (place * begins).cummax(dim=1).values


def keep_itself_at_least(keep: Tensor) -> Tensor:
    """Let each query that may see nothing see itself, so that no softmax divides 0 by 0.

    Only a query whose output nobody reads, such as padding, may be mended so.

    Args:
        keep: (..., queries, keys), True keeps.
    """
    asks, seen = _places(keep.size(-2), keep.size(-1), keep.device)
    return keep | ((seen == asks) & ~keep.any(dim=-1, keepdim=True))


def alibi_slopes(num_heads: int, *, device=None) -> Tensor:
    """Return what each head takes off a score for each place of distance, (num_heads,), float32.

    For a power of two the slopes are 2^(-8/n), 2^(-16/n), … 2^(-8). Otherwise those of the power
    below, and every second one of the power above, as in the authors' code.
    """
    if not isinstance(num_heads, int) or num_heads < 1:
        raise ValueError(f"num_heads must be a positive integer, got {num_heads!r}")
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(num_heads - power)]
    return torch.tensor(slopes, device=device)


def alibi_bias(num_heads: int, queries: int, keys: int | None = None, *, device=None) -> Tensor:
    """Return the numbers to add to the scores, (num_heads, queries, keys), float32: no mask.

    0 for the token itself, minus the slope for each place further away, on both sides. It hides
    nothing: for a causal model alibi_bias(…).masked_fill(~keep_past(…), -inf). Four bytes for each
    element and head.
    """
    asks, seen = _places(queries, keys, device)
    distance = (asks - seen).abs()  # (queries, keys)
    return alibi_slopes(num_heads, device=device)[:, None, None] * -distance


def _places(queries: int, keys: int | None, device) -> tuple[Tensor, Tensor]:
    """Return the place of each query, (queries, 1), and of each key, (keys,)."""
    keys = queries if keys is None else keys
    _check_queries(queries, keys)
    place = torch.arange(keys, device=device)
    return place[keys - queries :, None], place


def _check_queries(queries: int, keys: int) -> None:
    if not 0 <= queries <= keys:
        raise ValueError(f"queries must be from 0 to keys={keys}, got {queries!r}")


def _check_document(document: Tensor) -> None:
    if document.dim() != 2 or document.is_floating_point():
        raise ValueError(
            f"document must be (batch, T), integers, got {document.dtype} of "
            f"{tuple(document.shape)}"
        )
