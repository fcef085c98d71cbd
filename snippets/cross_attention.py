"""Cross-attention: one head whose keys and values come from another sequence.

    CrossAttention(embed_dim, kv_dim, head_dim)(x, source)  # (batch, T_q, head_dim)

x is (batch, T_q, embed_dim) and source (batch, T_k, kv_dim). Of a batch, PyTorch's fused kernels
never store the T_q · T_k scores, as long as value_dim is head_dim.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: Bahdanau et al. (2014), "Neural Machine Translation by Jointly Learning to Align and
Translate", section 3.1; Vaswani et al. (2017), "Attention Is All You Need", section 3.2.3.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CrossAttention(nn.Module):
    """One head of attention from a sequence x to another sequence, the source.

    Each token of x asks (query); the tokens of the source answer (key) and give (value). The two
    may differ in length and in width. Several heads: MultiHeadAttention with kv_dim.

    The projections are only ever called, so whatever maps the same widths may take their place: an
    adapter around one, or an int8 version of it.

    Args:
        embed_dim: width of x.
        kv_dim: width of the source.
        head_dim: width of queries and keys.
        value_dim: width of values and context vectors; None means head_dim.
        bias: whether the three projections add a bias.
    """

    def __init__(
        self,
        embed_dim: int,
        kv_dim: int,
        head_dim: int,
        value_dim: int | None = None,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.W_query = nn.Linear(embed_dim, head_dim, bias=bias)
        self.W_key = nn.Linear(kv_dim, head_dim, bias=bias)
        self.W_value = nn.Linear(kv_dim, value_dim or head_dim, bias=bias)

    def forward(self, x: Tensor, source: Tensor, *, attn_mask: Tensor | None = None) -> Tensor:
        """Return the context vectors, (..., T_q, value_dim), one for each token of x.

        attn_mask is boolean, True keeps: (T_q, T_k), or as many dimensions as x. To hide padding in
        the source, with keep of shape (batch, T_k), pass keep[:, None, :]. A token that may see no
        token of the source gets zeros.

        Raises:
            ValueError: for a mask of numbers, or one that could be laid over the wrong dimensions
            of x.
        """
        if attn_mask is not None and (
            attn_mask.dtype != torch.bool or attn_mask.dim() not in (2, x.dim())
        ):
            came = f"{attn_mask.dtype} of shape {tuple(attn_mask.shape)}"
            raise ValueError(f"attn_mask must be boolean, of 2 or {x.dim()} dimensions, got {came}")
        # A dimension of one head, since the fused kernels take (batch, heads, tokens, width).
        query = self.W_query(x).unsqueeze(-3)  # (..., 1, T_q, head_dim)
        key = self.W_key(source).unsqueeze(-3)  # (..., 1, T_k, head_dim)
        value = self.W_value(source).unsqueeze(-3)  # (..., 1, T_k, value_dim)
        if attn_mask is not None and attn_mask.dim() > 2:
            attn_mask = attn_mask.unsqueeze(-3)
        # softmax(query · keyᵀ / √head_dim) · value
        return F.scaled_dot_product_attention(query, key, value, attn_mask).squeeze(-3)
