"""Attention to blocks of keys: a query reads the blocks whose mean it scores best, or their means.

    chosen = choose_blocks(query, key, 8, 64)                # (batch, kv_heads, T_q, 8 · 64) places
    y = attend_chosen(query, key, value, chosen)             # of sparse_attention.py
    y = compressed_attention(query, key, value, 64)          # T_k / 64 keys and values

Choosing multiplies each query with T_k / size means. The sums over a block are not weighted: where
one key of a block matters, its mean may hide it.
Sources: Lu et al. (2025), "MoBA: Mixture of Block Attention for Long-Context LLMs" (blocks, scored
by their mean); Yuan et al. (2025), "Native Sparse Attention: Hardware-Aligned and Natively
Trainable Sparse Attention" (compressed keys, there by a learned function in place of the mean).
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def best_keys(scores: Tensor, k: int) -> Tensor:
    """Return the places of the best k keys, (..., T_q, k), or of all; -1 in place of a hidden one.

    A key with the score -inf is hidden. Which of several equal ones is chosen, torch.topk decides.
    """
    best = scores.topk(min(k, scores.size(-1)), dim=-1)
    return best.indices.masked_fill(best.values == float("-inf"), -1)


def block_means(x: Tensor, size: int) -> Tensor:
    """Return the mean of every `size` tokens, (…, T // size, width), without a rest at the end."""
    whole = x.size(-2) // size * size
    return x[..., :whole, :].unflatten(-2, (-1, size)).mean(dim=-2)


def choose_blocks(query: Tensor, key: Tensor, k: int, size: int) -> Tensor:
    """Return the keys of the best k blocks of `size` keys, (batch, kv_heads, T_q, n), -1 for none.

    A block's score is the query's product with the mean of its keys; heads that share keys add
    theirs up. A query's own block, up to itself, is always one of the k. With a size of 1 a block
    is a key. Queries, (batch, heads, T_q, width), are those of the last T_q keys, (batch, kv_heads,
    T_k, width).
    """
    T_q, T_k = query.size(2), key.size(2)
    means = block_means(F.pad(key, (0, 0, 0, -T_k % size)), size)  # the last may be filled up
    asks = query.unflatten(1, (key.size(1), -1)).sum(dim=2)  # (batch, kv_heads, T_q, width)
    place = torch.arange(T_k - T_q, T_k, device=key.device)[:, None]
    block = torch.arange(means.size(2), device=key.device)
    scores = (asks @ means.mT).masked_fill(block > place // size, float("-inf"))
    best = best_keys(scores.masked_fill(block == place // size, float("inf")), k)[..., None]
    keys = best * size + torch.arange(size, device=key.device)  # (…, T_q, blocks, size)
    return keys.masked_fill((best < 0) | (keys > place[..., None]), -1).flatten(-2)


def compressed_attention(query: Tensor, key: Tensor, value: Tensor, size: int) -> Tensor:
    """Return attention to one key and one value for every `size` tokens, their means.

    A query sees the blocks that end with it or before it, and gets zeros where there is none. A
    size of 1 is causal attention. The mask takes T_q · T_k / size booleans. Queries, (batch, heads,
    T_q, width), are those of the last T_q keys, (batch, kv_heads, T_k, width).
    """
    T_q, T_k = query.size(2), key.size(2)
    ends = torch.arange(1, T_k // size + 1, device=key.device) * size
    keep = ends <= torch.arange(T_k - T_q + 1, T_k + 1, device=key.device)[:, None]
    means = (block_means(part, size) for part in (key, value))
    return F.scaled_dot_product_attention(
        query, *means, attn_mask=keep, enable_gqa=query.size(1) != key.size(1)
    )
