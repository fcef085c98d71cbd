"""Cross-attention: one head whose keys and values come from another sequence.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Bahdanau et al. (2015), "Neural Machine Translation by Jointly Learning to Align and
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
    adapter around one, or an int8 version of it. A dtype that they cannot take is their own error.

    Args:
        embed_dim: width of x.
        kv_dim: width of the source.
        head_dim: width of queries and keys.
        value_dim: width of values and context vectors; None means head_dim, for which there
            are the fastest kernels.
        bias: whether the three projections add a bias.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
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
        value_dim = head_dim if value_dim is None else value_dim
        sizes = {
            "embed_dim": embed_dim,
            "kv_dim": kv_dim,
            "head_dim": head_dim,
            "value_dim": value_dim,
        }
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        super().__init__()
        self.embed_dim = embed_dim
        self.kv_dim = kv_dim
        self.head_dim = head_dim
        self.value_dim = value_dim
        self.W_query = nn.Linear(embed_dim, head_dim, bias=bias)
        self.W_key = nn.Linear(kv_dim, head_dim, bias=bias)
        self.W_value = nn.Linear(kv_dim, value_dim, bias=bias)

    def forward(
        self,
        x: Tensor,
        source: Tensor,
        *,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the context vectors, (..., T_q, value_dim), one for each token of x.

        Args:
            x: (..., T_q, embed_dim), of the projections' dtype.
            source: (..., T_k, kv_dim), same dtype, same leading dimensions.
            attn_mask: broadcastable to (..., T_q, T_k). Boolean: True keeps, False hides.
                Floating point: added to the scaled scores, so -inf hides. To hide padding in the
                source, with keep of shape (batch, T_k), pass keep[:, None, :].
            need_weights: also return the weights, (..., T_q, T_k), at the cost of storing them.

        A token that may see no token of the source gets weights 0, context 0 and gradient 0.
        """
        self._check(x, source, attn_mask)
        query = self.W_query(x)  # (..., T_q, head_dim)
        key = self.W_key(source)  # (..., T_k, head_dim)
        value = self.W_value(source)  # (..., T_k, value_dim)
        if attn_mask is not None:
            attn_mask = torch.atleast_2d(attn_mask)  # the fused kernels want a row and a column
            if attn_mask.dtype != torch.bool:  # a CUDA kernel misreads a mask of another dtype
                attn_mask = attn_mask.to(query.dtype)
        if not need_weights:
            # The fused kernels want a head dimension: (batch, 1, tokens, dim).
            query, key, value = query.unsqueeze(-3), key.unsqueeze(-3), value.unsqueeze(-3)
            if attn_mask is not None and attn_mask.dim() > 2:
                attn_mask = attn_mask.unsqueeze(-3)
            return F.scaled_dot_product_attention(query, key, value, attn_mask).squeeze(-3)

        scores = (query * self.head_dim**-0.5) @ key.mT  # (..., T_q, T_k)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        elif attn_mask is not None:
            scores = scores + attn_mask
        # A row of -inf alone has no softmax (0/0): compute it on zeros, then set its weights to 0.
        no_key = scores.isneginf().all(dim=-1, keepdim=True)  # (..., T_q, 1)
        weights = scores.masked_fill(no_key, 0.0).softmax(dim=-1).masked_fill(no_key, 0.0)
        return weights @ value, weights

    def _check(self, x: Tensor, source: Tensor, attn_mask: Tensor | None) -> None:
        """Raise ValueError unless the arguments of forward fit this module and each other."""
        for name, tensor, width in (("x", x, self.embed_dim), ("source", source, self.kv_dim)):
            if not isinstance(tensor, Tensor) or tensor.dim() < 2 or tensor.size(-1) != width:
                came = tuple(tensor.shape) if isinstance(tensor, Tensor) else repr(tensor)
                raise ValueError(f"{name} must have shape (..., tokens, {width}), got {came}")
        if source.shape[:-2] != x.shape[:-2]:
            raise ValueError(
                f"source must have the leading dimensions of x, {tuple(x.shape[:-2])}: "
                f"got shape {tuple(source.shape)}"
            )
        if attn_mask is None:
            return
        if not isinstance(attn_mask, Tensor):
            raise ValueError(f"attn_mask must be a tensor or None, got {attn_mask!r}")
        if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
            raise ValueError(
                f"attn_mask must be boolean (True keeps) or floating point (added to the scores), "
                f"got {attn_mask.dtype}"
            )
        scores_shape = (*x.shape[:-1], source.size(-2))
        fits = attn_mask.dim() <= len(scores_shape) and all(
            size in (1, want)
            for size, want in zip(attn_mask.shape[::-1], scores_shape[::-1], strict=False)
        )
        if not fits:
            raise ValueError(
                f"attn_mask must broadcast to the scores, {scores_shape}: "
                f"got shape {tuple(attn_mask.shape)}"
            )
