"""Self-attention: one head, in which every token sees every token.

    SelfAttention(embed_dim, head_dim)(x)  # (batch, T, embed_dim) → (batch, T, head_dim)

Of a batch, PyTorch's fused kernels never store the T · T scores.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Source: Vaswani et al. (2017), "Attention Is All You Need", sections 3.2.1 and 3.2.3.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """One head of bidirectional self-attention.

    A context vector for token i averages the values of all tokens, weighted by
    softmax(q_i · k_j / √head_dim). Without a mask the module has no notion of order: permute the
    tokens, and the context vectors are permuted in the same way.

    The projections are only ever called, so whatever maps the same widths may take their place: an
    adapter around one, or an int8 version of it.

    Args:
        embed_dim: width of the input.
        head_dim: width of queries, keys, values and context vectors.
        bias: whether the three projections add a bias.
    """

    def __init__(self, embed_dim: int, head_dim: int, *, bias: bool = False) -> None:
        super().__init__()
        # nn.Linear keeps its matrix transposed, as (head_dim, embed_dim): to use a matrix W of
        # shape (embed_dim, head_dim), copy W.T into W_query.weight.
        self.W_query = nn.Linear(embed_dim, head_dim, bias=bias)
        self.W_key = nn.Linear(embed_dim, head_dim, bias=bias)
        self.W_value = nn.Linear(embed_dim, head_dim, bias=bias)

    def forward(self, x: Tensor, *, attn_mask: Tensor | None = None) -> Tensor:
        """Return a context vector for each token: (..., T, embed_dim) → (..., T, head_dim).

        attn_mask is boolean, True keeps: (T, T), or as many dimensions as x. To hide padding, with
        keep of shape (batch, T), pass keep[:, None, :]. A token that may see no token gets zeros.

        Raises:
            ValueError: for a mask of numbers, or one that could be laid over the wrong dimensions
            of x.
        """
        if attn_mask is not None and (
            attn_mask.dtype != torch.bool or attn_mask.dim() not in (2, x.dim())
        ):
            came = f"{attn_mask.dtype} of shape {tuple(attn_mask.shape)}"
            raise ValueError(f"attn_mask must be boolean, of 2 or {x.dim()} dimensions, got {came}")
        # A dimension of one head, since the fused kernels take (batch, heads, T, head_dim).
        query = self.W_query(x).unsqueeze(-3)  # (..., 1, T, head_dim)
        key = self.W_key(x).unsqueeze(-3)  # (..., 1, T, head_dim)
        value = self.W_value(x).unsqueeze(-3)  # (..., 1, T, head_dim)
        if attn_mask is not None and attn_mask.dim() > 2:
            attn_mask = attn_mask.unsqueeze(-3)
        # softmax(query · keyᵀ / √head_dim) · value
        return F.scaled_dot_product_attention(query, key, value, attn_mask).squeeze(-3)
