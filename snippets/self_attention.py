"""Self-attention: one head, in which every token sees every token.

Needs PyTorch 2.5 or newer and nothing else.
Source: Vaswani et al. (2017), "Attention Is All You Need", sections 3.2.1 and 3.2.3.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """One head of bidirectional self-attention.

    A context vector for token i averages the values of all tokens, weighted by
    softmax(q_i · k_j / √head_dim). Without a mask the module has no notion of order: permute
    the tokens, and the context vectors are permuted in the same way.

    The projections are only ever called, so whatever maps the same widths may take their place: an
    adapter around one, or an int8 version of it. A dtype that they cannot take is their own error.

    Args:
        embed_dim: width of the input.
        head_dim: width of queries, keys, values and context vectors.
        bias: whether the three projections add a bias.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(self, embed_dim: int, head_dim: int, *, bias: bool = False) -> None:
        for name, size in (("embed_dim", embed_dim), ("head_dim", head_dim)):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        super().__init__()
        self.embed_dim = embed_dim
        self.head_dim = head_dim
        # nn.Linear keeps its matrix transposed, as (head_dim, embed_dim): to use a matrix W of
        # shape (embed_dim, head_dim), copy W.T into W_query.weight.
        self.W_query = nn.Linear(embed_dim, head_dim, bias=bias)
        self.W_key = nn.Linear(embed_dim, head_dim, bias=bias)
        self.W_value = nn.Linear(embed_dim, head_dim, bias=bias)

    def forward(
        self, x: Tensor, *, attn_mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the context vectors, (..., T, head_dim), one for each token.

        Args:
            x: (..., T, embed_dim), of the projections' dtype.
            attn_mask: broadcastable to (..., T, T). Boolean: True keeps, False hides. Floating
                point: added to the scaled scores, so -inf hides. To hide padding, with keep of
                shape (batch, T), pass keep[:, None, :].
            need_weights: also return the weights, (..., T, T), at the cost of storing them.

        A token that may see no token at all gets weights 0, context 0 and gradient 0.
        """
        self._check(x, attn_mask)
        query = self.W_query(x)  # (..., T, head_dim)
        key = self.W_key(x)  # (..., T, head_dim)
        value = self.W_value(x)  # (..., T, head_dim)
        if attn_mask is not None:
            attn_mask = torch.atleast_2d(attn_mask)  # the fused kernels want a row and a column
            if attn_mask.dtype != torch.bool:  # a CUDA kernel misreads a mask of another dtype
                attn_mask = attn_mask.to(query.dtype)
        if not need_weights:
            # The fused kernels want a head dimension: (batch, 1, T, head_dim).
            query, key, value = query.unsqueeze(-3), key.unsqueeze(-3), value.unsqueeze(-3)
            if attn_mask is not None and attn_mask.dim() > 2:
                attn_mask = attn_mask.unsqueeze(-3)
            return F.scaled_dot_product_attention(query, key, value, attn_mask).squeeze(-3)

        scores = (query * self.head_dim**-0.5) @ key.mT  # (..., T, T)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        elif attn_mask is not None:
            scores = scores + attn_mask
        # A row of -inf alone has no softmax (0/0): compute it on zeros, then set its weights to 0.
        no_key = scores.isneginf().all(dim=-1, keepdim=True)  # (..., T, 1)
        weights = scores.masked_fill(no_key, 0.0).softmax(dim=-1).masked_fill(no_key, 0.0)
        return weights @ value, weights

    def _check(self, x: Tensor, attn_mask: Tensor | None) -> None:
        """Raise ValueError unless x and attn_mask fit this module."""
        if not isinstance(x, Tensor) or x.dim() < 2 or x.size(-1) != self.embed_dim:
            came = tuple(x.shape) if isinstance(x, Tensor) else repr(x)
            raise ValueError(f"x must have shape (..., tokens, {self.embed_dim}), got {came}")
        if attn_mask is None:
            return
        if not isinstance(attn_mask, Tensor):
            raise ValueError(f"attn_mask must be a tensor or None, got {attn_mask!r}")
        if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
            raise ValueError(
                f"attn_mask must be boolean (True keeps) or floating point (added to the scores), "
                f"got {attn_mask.dtype}"
            )
        scores_shape = (*x.shape[:-1], x.size(-2))
        fits = attn_mask.dim() <= len(scores_shape) and all(
            size in (1, want)
            for size, want in zip(attn_mask.shape[::-1], scores_shape[::-1], strict=False)
        )
        if not fits:
            raise ValueError(
                f"attn_mask must broadcast to the scores, {scores_shape}: "
                f"got shape {tuple(attn_mask.shape)}"
            )
