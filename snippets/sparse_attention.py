"""Sparse attention: each query reads only the keys that a cheap indexer has chosen for it.

Needs PyTorch 2.5 or newer and nothing else.
Sources: DeepSeek-AI (2025), "DeepSeek-V3.2-Exp: Boosting Long-Context Efficiency with DeepSeek
Sparse Attention" (the indexer, the best k, and how the indexer is trained); Lu et al. (2025),
"MoBA: Mixture of Block Attention for Long-Context LLMs" (blocks of keys, scored by their mean);
Yuan et al. (2025), "Native Sparse Attention: Hardware-Aligned and Natively Trainable Sparse
Attention" (compressed keys, there by a learned function in place of the mean).
"""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 64  # queries that are taken at a time, so that no T · T numbers are stored


class Cache(Protocol):
    """What keeps the keys and values of earlier tokens, as a KVCache does."""

    length: int  # tokens held

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take those of new tokens, and return those of all tokens so far."""
        ...


def index_scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Return the score of each key for each query, (batch, T_q, T_k), float32 at least.

    The score of key s for query t is the sum over the heads j of weight[t, j] ·
    relu(query[j, t] · key[s]), divided by √(heads · width), which changes no order.

    Args:
        query: (batch, heads, T_q, width).
        key: (batch, T_k, width), one for all heads.
        weight: (batch, T_q, heads), of any sign.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    products = query.to(wide) @ key.to(wide)[:, None].mT  # (batch, heads, T_q, T_k)
    weight = weight.to(wide) * (query.size(1) * query.size(3)) ** -0.5
    return (weight.mT[..., None] * products.relu()).sum(dim=1)


def best_keys(scores: Tensor, k: int) -> Tensor:
    """Return the places of the best k keys of each row, (…, T_q, k), or of all if these are fewer.

    A key with the score -inf is hidden, and never chosen: -1 stands in its place. Which of several
    keys with equal scores is chosen is left to torch.topk.
    """
    best = scores.topk(min(k, scores.size(-1)), dim=-1)
    return best.indices.masked_fill(best.values == float("-inf"), -1)


def keep_chosen(chosen: Tensor, keys: int) -> Tensor:
    """Return the mask that shows the chosen keys and no other, (batch, heads, T_q, keys), boolean.

    Any layer of attention takes it. It saves nothing: attend_chosen does.
    """
    keep = torch.zeros(*chosen.shape[:-1], keys + 1, dtype=torch.bool, device=chosen.device)
    return keep.scatter(-1, chosen + 1, True)[..., 1:]  # the column of -1 is cut off


def attend_chosen(
    query: Tensor, key: Tensor, value: Tensor, chosen: Tensor, *, scale: float | None = None
) -> Tensor:
    """Return attention in which each query reads the chosen keys alone, (batch, heads, T_q, width).

    A query for which nothing is chosen gets zeros. For ROWS queries at a time, the chosen keys and
    values are copied side by side, 2 · n · width numbers for each query and head of keys.

    Args:
        query: (batch, heads, T_q, width).
        key, value: (batch, kv_heads, T_k, width); kv_heads divides heads.
        chosen: (batch, 1 or kv_heads, T_q, n), places of keys, all different; -1 is no key. Heads
            that share keys also share the choice.
        scale: factor on the scores; None means 1/√width.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    batch, heads, T_q = query.shape[:3]
    kv_heads = key.size(1)
    if heads % kv_heads or value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"key and value must have shape ({batch}, kv_heads, T_k, width), kv_heads dividing "
            f"{heads}, got {tuple(key.shape)} and {tuple(value.shape)}"
        )
    if chosen.dim() != 4 or chosen.size(1) not in (1, kv_heads) or chosen.size(2) != T_q:
        raise ValueError(
            f"chosen must have shape ({batch}, 1 or {kv_heads}, {T_q}, n), "
            f"got {tuple(chosen.shape)}"
        )
    chosen = chosen.expand(-1, kv_heads, -1, -1).flatten(0, 1)  # (batch · kv_heads, T_q, n)
    key, value = key.flatten(0, 1), value.flatten(0, 1)  # (batch · kv_heads, T_k, width)
    query = query.unflatten(1, (kv_heads, -1)).transpose(2, 3).flatten(0, 1)
    contexts = []
    for some, places in zip(query.split(ROWS, dim=1), chosen.split(ROWS, dim=1), strict=True):
        context = F.scaled_dot_product_attention(  # the n keys of a query are a text of their own
            some,  # (batch · kv_heads, rows, group, width)
            _take(key, places),  # (batch · kv_heads, rows, n, width)
            _take(value, places),
            attn_mask=(places >= 0)[:, :, None],
            scale=scale,
        )
        contexts.append(context)
    context = torch.cat(contexts, dim=1)  # (batch · kv_heads, T_q, group, width)
    return context.unflatten(0, (batch, kv_heads)).transpose(2, 3).flatten(1, 2)


def _take(x: Tensor, places: Tensor) -> Tensor:
    """Return the rows of x, (n, T_k, width), at these places, (n, rows, k): (n, rows, k, width)."""
    at = places.clamp_min(0).flatten(1)[..., None].expand(-1, -1, x.size(-1))
    return x.gather(1, at).unflatten(1, places.shape[1:])


def indexer_loss(scores: Tensor, weights: Tensor) -> Tensor:
    """Return how far the indexer is from the attention that it is to imitate, one number.

    It is KL(p ‖ softmax(scores)), the mean over the queries, in which p is the mean of the heads'
    weights. No gradient reaches the weights. Give the indexer a detached input too, so that it
    moves nothing but itself.

    Args:
        scores: (batch, T_q, T_k), of Indexer.scores; -inf where a key is hidden.
        weights: (batch, heads, T_q, T_k), after the softmax; 0 where a key is hidden.
    """
    target = weights.detach().mean(dim=1)
    told = scores.log_softmax(dim=-1).masked_fill(target == 0, 0.0)
    known = target.log().masked_fill(target == 0, 0.0)
    return (target * (known - told)).sum(dim=-1).mean()


class Indexer(nn.Module):
    """Choose the k earlier tokens that each token is to read.

        indexer = Indexer(7168, 64, 128, k=2048, query_dim=1536, rope_dim=64,
                          rotate=RotaryPositions(64))
        chosen = indexer(x, asks=latent)                      # (batch, 1, T, 2048)
        y = attend_chosen(query, key, value, chosen)          # reads 2,048 keys for each query
        y = attention(x, attn_mask=keep_chosen(chosen, T))    # the same, by any layer

    These are the sizes of DeepSeek-V3.2, whose queries are made from the latent of its queries. A
    cache keeps head_dim numbers for each token, beside what the attention keeps.

    Args:
        embed_dim: width of a token.
        num_heads: number of the indexer's own heads.
        head_dim: width of their queries and of the one key for all of them.
        k: how many keys each query reads at the most.
        query_dim: width of what queries are made from; None means embed_dim.
        rope_dim: how many of the first channels are rotated; 0 for none.
        rotate: called as rotate(x, positions) with x (batch, heads, T, rope_dim).
        device: where the parameters are made.
        dtype: what they are made of.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        head_dim: int,
        *,
        k: int,
        query_dim: int | None = None,
        rope_dim: int = 0,
        rotate: Callable[[Tensor, Tensor], Tensor] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        query_dim = embed_dim if query_dim is None else query_dim
        sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "head_dim": head_dim}
        for name, size in (sizes | {"k": k, "query_dim": query_dim}).items():
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        if not 0 <= rope_dim <= head_dim or (rotate is None) != (rope_dim == 0):
            raise ValueError(
                f"rope_dim must be 0 … {head_dim}, and more than 0 where rotate is given and only "
                f"there, got rope_dim={rope_dim}, rotate={rotate}"
            )
        self.embed_dim, self.num_heads, self.head_dim, self.k = embed_dim, num_heads, head_dim, k
        self.rope_dim, self.rotate = rope_dim, rotate
        where = {"device": device, "dtype": dtype}
        self.W_query = nn.Linear(query_dim, num_heads * head_dim, bias=False, **where)
        self.W_key = nn.Linear(embed_dim, head_dim, bias=False, **where)
        self.key_norm = nn.LayerNorm(head_dim, eps=1e-6, **where)
        self.W_weight = nn.Linear(embed_dim, num_heads, bias=False, **where)

    def forward(
        self,
        x: Tensor,
        *,
        asks: Tensor | None = None,
        positions: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Return the places of the chosen keys, (batch, 1, T, n), n being k or all keys there are.

        A query with fewer keys to see than n has -1 in the other places. There is no gradient.

        Args:
            x: (batch, T, embed_dim), the new tokens.
            asks: (batch, T, query_dim), what queries are made from; None means x.
            positions: (T,) or (batch, T), integers; None counts on from cache.length, or from 0.
            attn_mask: boolean, True keeps; which keys may be chosen, instead of the causal
                default: (T, keys) or (batch, 1, T, keys).
            cache: keeps the keys of the indexer, a KVCache with one head whose values have no
                width; one for each layer, beside that of the attention.
        """
        with torch.no_grad():
            query, key, weight, place = self._parts(x, asks, positions, cache)
            T = x.size(1)
            chosen = [
                best_keys(self._seen(query, key, weight, place, attn_mask, rows), self.k)
                for rows in ([slice(T)] if T <= ROWS else _row_slices(T))
            ]
        return torch.cat(chosen, dim=1)[:, None]

    def scores(
        self, x: Tensor, *, asks: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """Return all scores, (batch, T, T), for indexer_loss; -inf for keys that come later."""
        query, key, weight, place = self._parts(x, asks, positions, None)
        return self._seen(query, key, weight, place, None, slice(x.size(1)))

    def _parts(
        self, x: Tensor, asks: Tensor | None, positions: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return query, (batch, heads, T, head_dim), key, weight, and the place of each query."""
        if x.dim() != 3 or x.size(-1) != self.embed_dim:
            raise ValueError(
                f"x must have shape (batch, T, {self.embed_dim}), got {tuple(x.shape)}"
            )
        past = 0 if cache is None else cache.length
        place = torch.arange(past, past + x.size(1), device=x.device)
        positions = place if positions is None else positions
        query = self.W_query(x if asks is None else asks)
        query = query.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        key = self.W_key(x).to(self.key_norm.weight.dtype)  # wider than its input under autocast
        key = self.key_norm(key).to(query.dtype)[:, None]  # (batch, 1, T, head_dim)
        if self.rotate is not None:
            query, key = (
                torch.cat([self.rotate(part[..., :end], positions), part[..., end:]], dim=-1)
                for part, end in ((query, self.rope_dim), (key, self.rope_dim))
            )
        if cache is not None:
            key, _ = cache.update(key, key[..., :0])  # of all tokens so far
        return query, key[:, 0], self.W_weight(x), place

    def _seen(
        self,
        query: Tensor,
        key: Tensor,
        weight: Tensor,
        place: Tensor,
        attn_mask: Tensor | None,
        rows: slice,
    ) -> Tensor:
        """Return the scores of some queries, (batch, rows, T_k), -inf where a key is hidden."""
        scores = index_scores(query[:, :, rows], key, weight[:, rows])
        if attn_mask is None:
            keep = torch.arange(key.size(1), device=key.device) <= place[rows, None]
        else:
            if attn_mask.dtype != torch.bool:
                raise ValueError(f"attn_mask must be boolean, True keeps, got {attn_mask.dtype}")
            keep = attn_mask[..., rows, :]
            keep = keep[:, 0] if keep.dim() == 4 else keep
        return scores.masked_fill(~keep, float("-inf"))

    def extra_repr(self) -> str:
        """Sizes, as print(module) shows them."""
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, head_dim={self.head_dim}, "
            f"k={self.k}, rope_dim={self.rope_dim}"
        )


def _row_slices(T: int) -> list[slice]:
    """Return slices of ROWS that cover 0 … T."""
    return [slice(start, start + ROWS) for start in range(0, T, ROWS)]


def block_means(x: Tensor, size: int) -> Tensor:
    """Return the mean of every `size` tokens, (…, T // size, width), without a rest at the end."""
    whole = x.size(-2) // size * size
    return x[..., :whole, :].unflatten(-2, (-1, size)).mean(dim=-2)


def choose_blocks(query: Tensor, key: Tensor, k: int, size: int) -> Tensor:
    """Return the keys of the best k blocks of `size` keys, (batch, kv_heads, T_q, n), as Indexer.

    A block's score is the query's product with the mean of its keys; heads that share keys add
    theirs up. A query's own block, up to itself, is always one of the k. With a size of 1 a block
    is a key. Queries are those of the last T_q keys.

    Args:
        query: (batch, heads, T_q, width).
        key: (batch, kv_heads, T_k, width); kv_heads divides heads.
        k: number of blocks for each query.
        size: number of keys in a block.
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
    size of 1 is causal attention. The mask takes T_q · T_k / size booleans.

    Args:
        query: (batch, heads, T_q, width), of the last T_q keys.
        key, value: (batch, kv_heads, T_k, width); kv_heads divides heads.
        size: number of tokens in a block.
    """
    T_q, T_k = query.size(2), key.size(2)
    ends = torch.arange(1, T_k // size + 1, device=key.device) * size
    keep = ends <= torch.arange(T_k - T_q + 1, T_k + 1, device=key.device)[:, None]
    means = (block_means(part, size) for part in (key, value))
    return F.scaled_dot_product_attention(
        query, *means, attn_mask=keep, enable_gqa=query.size(1) != key.size(1)
    )
