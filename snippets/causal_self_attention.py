"""Causal self-attention: one head, in which a token sees itself and the tokens before it.

    CausalSelfAttention(embed_dim, head_dim)(x)  # (batch, T, embed_dim) → (batch, T, head_dim)

Of a batch, PyTorch's fused kernels never store the T · T scores; on a CPU it has none for dropout.
Asked for the weights, the layer makes two matrices of their size, or four with dropout.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.3 (the mask) and its
public code (dropout on the attention weights).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalSelfAttention(nn.Module):
    """One head of self-attention that hides the future.

    The context vector of token i depends on tokens 0 … i alone. Token 0 sees itself, so no row
    is ever empty, and padding after the last token needs no mask.

    The projections are only ever called, so whatever maps the same widths may take their place: an
    adapter around one, or an int8 version of it.

    Args:
        embed_dim: width of the input.
        head_dim: width of queries, keys, values and context vectors.
        dropout: share of the attention weights set to 0 while training, in [0, 1); the rest grow
            by 1/(1 - dropout). Not applied after .eval().
        bias: whether the three projections add a bias.
    """

    def __init__(
        self, embed_dim: int, head_dim: int, dropout: float = 0.0, *, bias: bool = False
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.dropout = dropout
        self.W_query = nn.Linear(embed_dim, head_dim, bias=bias)
        self.W_key = nn.Linear(embed_dim, head_dim, bias=bias)
        self.W_value = nn.Linear(embed_dim, head_dim, bias=bias)

    def forward(self, x: Tensor, *, need_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Return a context vector for each token: (..., T, embed_dim) → (..., T, head_dim).

        need_weights also returns the weights as they were applied (after dropout), (..., T, T).
        """
        query = self.W_query(x)  # (..., T, head_dim)
        key = self.W_key(x)  # (..., T, head_dim)
        value = self.W_value(x)  # (..., T, head_dim)
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            # A dimension of one head, since the fused kernels take (batch, heads, T, head_dim).
            query, key, value = (part.unsqueeze(-3) for part in (query, key, value))
            context = F.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=True
            )
            return context.squeeze(-3)

        T = x.size(-2)
        keep = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()  # row i keeps 0 … i
        scores = (query * self.head_dim**-0.5) @ key.mT  # (..., T, T)
        weights = scores.masked_fill_(~keep, float("-inf")).softmax(dim=-1)
        weights = F.dropout(weights, dropout)
        return weights @ value, weights
