"""Masks of attention: who may see whom. True keeps, as in scaled_dot_product_attention.

    keep = keep_window(4, T) | keep_sinks(1, T)             # either will do
    keep = keep_past(T) & keep_real(real)                   # both must hold
    keep = keep_past(T) & keep_documents(document)
    F.scaled_dot_product_attention(query, key, value, attn_mask=keep)

Each mask is boolean, costs a byte an element and broadcasts to (batch, heads, queries, keys). Where
there are fewer queries than keys, the queries are the last tokens: behind a KV cache.
Sources: Beltagy et al. (2020), "Longformer", section 3.1 (windows); Xiao et al. (2023), "Efficient
Streaming Language Models with Attention Sinks", section 3; Raffel et al. (2020), on T5, section
3.2.1 (prefixes); Krell et al. (2021), on packing, section 3.2; Press et al. (2022), on ALiBi.
"""

import math

import torch
from torch import Tensor


def keep_past(queries: int, keys: int | None = None, *, device=None) -> Tensor:
    """True for a token itself and what came before: the causal mask, (queries, keys).

    The last query sees the last key. Without `keys` there are as many as queries.
    """
    place = torch.arange(queries if keys is None else keys, device=device)
    return place <= _asking(place, queries)[:, None]


def keep_window(
    window: int, queries: int, keys: int | None = None, *, positions=None, device=None
) -> Tensor:
    """True for the last `window` tokens, a token itself among them, and for none to come.

    Counted as by `sliding_window` in transformers' causal models: flash_attn says (window - 1, 0).
    Rows are positions, and the mask is (queries, keys), unless `positions` says where each key
    stands, (keys,) or (batch, keys), the queries last: then it is (queries, keys) or (batch, 1,
    queries, keys). In a tree of guesses several tokens have one position, and the tree's own mask,
    which must hold besides, says which of them are on one branch.
    """
    if window < 1:  # it counts the token itself
        raise ValueError(f"window must be 1 or more, got {window}")
    if positions is None:
        keep = keep_past(queries, keys, device=device)
        return keep.triu_(keep.size(1) - queries - window + 1)  # in place: it may be 256 MiB
    asks, seen = _asking(positions, queries)[..., None], positions[..., None, :]
    keep = (seen <= asks) & (seen > asks - window)
    return keep if positions.dim() == 1 else keep[:, None]


def keep_sinks(sinks: int, queries: int, keys: int | None = None, *, device=None) -> Tensor:
    """True for the first `sinks` tokens, as far as they are not to come, (queries, keys)."""
    if sinks < 0:  # -1 would be a slice from the end
        raise ValueError(f"sinks must be 0 or more, got {sinks}")
    keep = keep_past(queries, keys, device=device)
    keep[:, sinks:] = False
    return keep


def keep_prefix(prefix: Tensor, queries: int, keys: int | None = None) -> Tensor:
    """True for the first prefix, (batch,), tokens, and for the past, (batch, 1, queries, keys)."""
    past = keep_past(queries, keys, device=prefix.device)
    place = torch.arange(past.size(1), device=prefix.device)
    return past | (place < prefix[:, None, None, None])


def keep_real(real: Tensor) -> Tensor:
    """True for keys that are no padding, (batch, 1, 1, keys), from (batch, keys), True for a token.

    Beside others it may leave a query that is padding nothing to see: see keep_itself_at_least.
    """
    if real.dtype != torch.bool:  # 0 and 1 would be added to the scores
        raise ValueError(f"real must be boolean, True for a token: got {real.dtype}")
    return real[:, None, None, :]


def keep_documents(document: Tensor, queries: int | None = None) -> Tensor:
    """True for keys of the same document, (batch, 1, queries, keys), from numbers, (batch, keys).

    The last `queries` ask, None: all. To be joined with keep_past.
    """
    asking = document if queries is None else _asking(document, queries)
    return (asking[:, :, None] == document[:, None, :])[:, None]


def restart_positions(document: Tensor) -> Tensor:
    """Return each token's place in its document, a run of equal numbers, from 0: (batch, T)."""
    place = torch.arange(document.size(1), device=document.device).expand_as(document)
    begins = torch.ones_like(document, dtype=torch.bool)
    begins[:, 1:] = document[:, 1:] != document[:, :-1]
    return place - (place * begins).cummax(dim=1).values


def keep_itself_at_least(keep: Tensor) -> Tensor:
    """Let each query that may see nothing see itself, so that no softmax divides 0 by 0.

    Only a query whose output nobody reads, such as padding, may be mended so.
    """
    place = torch.arange(keep.size(-1), device=keep.device)
    itself = place == _asking(place, keep.size(-2))[:, None]
    return keep | (itself & ~keep.any(dim=-1, keepdim=True))


def alibi_slopes(num_heads: int, *, device=None) -> Tensor:
    """Return what each head takes off a score for each place of distance, (num_heads,).

    2^(-8/n), 2^(-16/n), … 2^(-8), for n a power of two; else every second one of the next, besides.
    """
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(num_heads - power)]
    return torch.tensor(slopes, device=device)


def alibi_bias(num_heads: int, queries: int, keys: int | None = None, *, device=None) -> Tensor:
    """Return the numbers to add to the scores, (num_heads, queries, keys), float32: no mask.

    It hides nothing: for a causal model alibi_bias(…).masked_fill(~keep_past(…), -inf).
    """
    place = torch.arange(queries if keys is None else keys, device=device)
    distance = (place - _asking(place, queries)[:, None]).abs()  # on both sides
    return alibi_slopes(num_heads, device=device)[:, None, None] * -distance


def _asking(tokens: Tensor, queries: int) -> Tensor:
    """Return the last `queries` of the tokens, (..., keys)."""
    keys = tokens.size(-1)
    if not 0 <= queries <= keys:
        raise ValueError(f"queries must be from 0 to the number of keys, {keys}: got {queries}")
    return tokens[..., keys - queries :]
