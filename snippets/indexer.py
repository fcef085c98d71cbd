"""The indexer of sparse attention: a narrow attention that only chooses keys, and what trains it.

    indexer = Indexer(7168, 64, 128, k=2048, query_dim=1536, rope_dim=64, rotate=rotary)
    chosen = indexer(x, asks=latent)                     # (batch, 1, T, 2048)
    chosen = indexer(token, asks=latent, cache=cache)    # a KVCache of its own, head_dim a token

These are the sizes of DeepSeek-V3.2, whose queries are made from the latent of its queries. Every
query is multiplied with every key, head_dim numbers in each head; T · T scores are never stored.
For a prompt this alone may take a processor as long as dense attention.
Source: DeepSeek-AI (2025), "DeepSeek-V3.2-Exp: Boosting Long-Context Efficiency with DeepSeek
Sparse Attention" (the indexer, the best k, and how the indexer is trained).
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

ROWS = 32  # queries that are taken at a time


def index_scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Return the score of each key for each query, (batch, T_q, T_k), float32 at least.

    query: (batch, heads, T_q, width), key: (batch, T_k, width), weight: (batch, T_q, heads), of any
    sign. It is Σ_j weight[t, j] · relu(query[j, t] · key[s]) / √(heads · width).
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    products = query.to(wide) @ key.to(wide)[:, None].mT  # (batch, heads, T_q, T_k)
    weight = weight.to(wide) * (query.size(1) * query.size(3)) ** -0.5
    return (weight.mT[..., None] * products.relu()).sum(dim=1)


def best_keys(scores: Tensor, k: int) -> Tensor:
    """Return the places of the best k keys, (..., T_q, k), or of all; -1 in place of a hidden one.

    A key with the score -inf is hidden. Which of several equal ones is chosen, torch.topk decides.
    """
    best = scores.topk(min(k, scores.size(-1)), dim=-1)
    return best.indices.masked_fill(best.values == float("-inf"), -1)


def indexer_loss(scores: Tensor, weights: Tensor) -> Tensor:
    """Return how far the indexer is from the attention that it is to imitate, one number.

    It is KL(p ‖ softmax(scores)), the mean over the queries, in which p is the mean of the heads'
    weights, (batch, heads, T_q, T_k), 0 where a key is hidden; a query that sees no key adds 0. No
    gradient reaches the weights. Detach the indexer's input, and it moves nothing but itself.
    """
    target = weights.detach().mean(dim=1)
    blind = (scores == float("-inf")).all(dim=-1, keepdim=True)  # their softmax would be nan
    told = scores.masked_fill(blind, 0.0).log_softmax(dim=-1).masked_fill(target == 0, 0.0)
    known = target.log().masked_fill(target == 0, 0.0)
    return (target * (known - told)).sum(dim=-1).mean()


class Indexer(nn.Module):
    """Choose the k earlier tokens that each token is to read.

    Args:
        num_heads, head_dim: its queries; it has one key for all of them.
        query_dim: width of what queries are made from, `asks`; None means embed_dim.
        rotate: called as rotate(x, positions) on the first rope_dim channels of queries and keys.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, head_dim: int, *, k: int,
        query_dim: int | None = None, rope_dim: int = 0, rotate=None,
    ) -> None:  # fmt: skip
        super().__init__()
        if (rotate is None) != (rope_dim == 0):  # nothing would turn
            raise ValueError(f"rope_dim must be above 0 with rotate and only there, got {rope_dim}")
        self.num_heads, self.k, self.rope_dim, self.rotate = num_heads, k, rope_dim, rotate
        query_dim = embed_dim if query_dim is None else query_dim
        self.W_query = nn.Linear(query_dim, num_heads * head_dim, bias=False)
        self.W_key = nn.Linear(embed_dim, head_dim, bias=False)
        self.key_norm = nn.LayerNorm(head_dim, eps=1e-6)
        self.W_weight = nn.Linear(embed_dim, num_heads, bias=False)

    @torch.no_grad()
    def forward(
        self, x: Tensor, *, asks=None, positions=None, attn_mask=None, cache=None
    ) -> Tensor:
        """Return the places of the chosen keys, (batch, 1, T, k or all), -1 where there are fewer.

        asks: (batch, T, query_dim); None means x.
        positions: (T,) or (batch, T); None counts on from cache.length.
        attn_mask: boolean, True keeps, (T, keys) or (batch, 1, T, keys); None means causal.
        """
        pieces = self._scores(x, asks, positions, attn_mask, cache, ROWS)
        return torch.cat([best_keys(scores, self.k) for scores in pieces], dim=1)[:, None]

    def scores(self, x: Tensor, *, asks=None, positions=None) -> Tensor:
        """Return all scores, (batch, T, T), for indexer_loss; -inf for keys that come later."""
        (scores,) = self._scores(x, asks, positions, None, None, x.size(1))
        return scores

    def _scores(self, x, asks, positions, attn_mask, cache, rows: int) -> Iterator[Tensor]:
        """Give the scores of so many queries at a time, (batch, rows, T_k), -inf if hidden."""
        T, past = x.size(1), 0 if cache is None else cache.length
        place = torch.arange(past, past + T, device=x.device)
        query = self.W_query(x if asks is None else asks)
        query = query.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        key = self.key_norm(self.W_key(x).to(self.key_norm.weight.dtype))  # wider under autocast
        key, weight = key.to(query.dtype)[:, None], self.W_weight(x)  # (batch, 1, T, head_dim)
        if self.rotate is not None:
            positions = place if positions is None else positions
            query, key = (
                torch.cat([self.rotate(part[..., :end], positions), part[..., end:]], dim=-1)
                for part, end in ((query, self.rope_dim), (key, self.rope_dim))
            )
        if cache is not None:
            key, _ = cache.update(key, key[..., :0])  # of all tokens so far
        if attn_mask is not None:
            shape = tuple(attn_mask.shape)
            if attn_mask.dtype != torch.bool or shape[:-2] not in ((), (1, 1), (len(x), 1)):
                wanted = "boolean, (T, keys) or (batch, 1, T, keys)"
                raise ValueError(f"attn_mask must be {wanted}, got {attn_mask.dtype}, {shape}")
            attn_mask = attn_mask[:, 0] if len(shape) == 4 else attn_mask
        for start in range(0, T, rows) if rows < T else (0,):
            some = slice(start, start + rows)
            if attn_mask is None:
                keep = torch.arange(past + T, device=x.device) <= place[some, None]
            else:
                keep = attn_mask[..., some, :]  # (rows, keys) or (batch, rows, keys)
            scores = index_scores(query[:, :, some], key[:, 0], weight[:, some])
            yield scores.masked_fill(~keep, float("-inf"))
