"""Causal self-attention: one head, in which a token sees itself and its past.

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

    Any leading dimensions reach PyTorch's fused kernel, which never stores the T · T scores. On a
    CPU it has none for dropout while training: a forward pass then makes 16 bytes for each score in
    float32, 4 GiB at 16,384 tokens.

    The projections are only ever called, so whatever maps the same widths may take their place: an
    adapter around one, or an int8 version of it. A dtype that they cannot take is their own error.
    They start as nn.Linear does: weights and biases uniform in ±1/√(width of the input).

    Args:
        embed_dim: width of the input.
        head_dim: width of queries, keys, values and context vectors.
        dropout: share of the attention weights set to 0 while training, in [0, 1); the rest grow
            by 1/(1 - dropout). Not applied after .eval().
        bias: whether the three projections add a bias.
        device: where the parameters are made.
        dtype: what they are made of.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        embed_dim: int,
        head_dim: int,
        dropout: float = 0.0,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        for name, size in (("embed_dim", embed_dim), ("head_dim", head_dim)):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        if not isinstance(dropout, int | float) or not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
        super().__init__()
        self.embed_dim = embed_dim
        self.head_dim = head_dim
        self.dropout = dropout
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.W_query = nn.Linear(embed_dim, head_dim, **made)
        self.W_key = nn.Linear(embed_dim, head_dim, **made)
        self.W_value = nn.Linear(embed_dim, head_dim, **made)

    def extra_repr(self) -> str:
        """What print(module) says of its sizes."""
        return f"embed_dim={self.embed_dim}, head_dim={self.head_dim}, dropout={self.dropout}"

    def forward(self, x: Tensor, *, need_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Return the context vectors, (..., T, head_dim), one for each token.

        Args:
            x: (..., T, embed_dim), of the projections' dtype.
            need_weights: also return the weights as they were applied (after dropout),
                (..., T, T), at the cost of storing them: two matrices of this size, or four with
                dropout.
        """
        if not isinstance(x, Tensor) or x.dim() < 2 or x.size(-1) != self.embed_dim:
            came = tuple(x.shape) if isinstance(x, Tensor) else repr(x)
            raise ValueError(f"x must have shape (..., tokens, {self.embed_dim}), got {came}")
        query = self.W_query(x)  # (..., T, head_dim)
        key = self.W_key(x)  # (..., T, head_dim)
        value = self.W_value(x)  # (..., T, head_dim)
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            shape = value.shape
            # The fused kernels want four dimensions: (1, batch, T, head_dim).
            query, key, value = (
                part[(None,) * (4 - part.dim())].flatten(0, -4) for part in (query, key, value)
            )
            context = F.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=True
            )
            return context.reshape(shape)

        T = x.size(-2)
        keep = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()  # row i keeps 0 … i
        scores = (query * self.head_dim**-0.5) @ key.mT  # (..., T, T)
        weights = scores.masked_fill_(~keep, float("-inf")).softmax(dim=-1)
        weights = F.dropout(weights, dropout)
        return weights @ value, weights
