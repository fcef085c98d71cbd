"""Self-attention: one head, in which every token sees every token.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
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

    Any leading dimensions reach PyTorch's fused kernel, which never stores the T · T scores. On a
    CPU it has none for a mask that gets a gradient: a forward pass then makes 8 bytes for each
    score in float32, 2 GiB at 16,384 tokens.

    The projections are only ever called, so whatever maps the same widths may take their place: an
    adapter around one, or an int8 version of it. A dtype that they cannot take is their own error.
    They start as nn.Linear does: weights and biases uniform in ±1/√(width of the input).

    Args:
        embed_dim: width of the input.
        head_dim: width of queries, keys, values and context vectors.
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
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        for name, size in (("embed_dim", embed_dim), ("head_dim", head_dim)):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        super().__init__()
        self.embed_dim = embed_dim
        self.head_dim = head_dim
        # nn.Linear keeps its matrix transposed, as (head_dim, embed_dim): to use a matrix W of
        # shape (embed_dim, head_dim), copy W.T into W_query.weight.
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.W_query = nn.Linear(embed_dim, head_dim, **made)
        self.W_key = nn.Linear(embed_dim, head_dim, **made)
        self.W_value = nn.Linear(embed_dim, head_dim, **made)

    def extra_repr(self) -> str:
        """What print(module) says of its sizes."""
        return f"embed_dim={self.embed_dim}, head_dim={self.head_dim}"

    def forward(
        self, x: Tensor, *, attn_mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the context vectors, (..., T, head_dim), one for each token.

        Args:
            x: (..., T, embed_dim), of the projections' dtype.
            attn_mask: (T, T) for all sequences, or as many dimensions as x, broadcastable to
                (..., T, T). Boolean: True keeps, False hides. Floating point: added to the scaled
                scores, so -inf hides. To hide padding, with keep of shape (batch, T), pass
                keep[:, None, :].
            need_weights: also return the weights, (..., T, T), at the cost of storing them: three
                matrices of this size, or two without a mask.

        A token that may see no token at all gets weights 0, context 0 and gradient 0.
        """
        if not isinstance(x, Tensor) or x.dim() < 2 or x.size(-1) != self.embed_dim:
            came = tuple(x.shape) if isinstance(x, Tensor) else repr(x)
            raise ValueError(f"x must have shape (..., tokens, {self.embed_dim}), got {came}")
        query = self.W_query(x)  # (..., T, head_dim)
        key = self.W_key(x)  # (..., T, head_dim)
        value = self.W_value(x)  # (..., T, head_dim)
        if attn_mask is not None:
            _check_mask(attn_mask, (*x.shape[:-1], x.size(-2)))
            if attn_mask.dtype != torch.bool:  # a CUDA kernel misreads a mask of another dtype
                attn_mask = attn_mask.to(query.dtype)
        if not need_weights:
            leading, shape = x.shape[:-2], value.shape
            query, key, value = (_fold(part, leading) for part in (query, key, value))
            if attn_mask is not None:
                attn_mask = _fold(attn_mask, leading)
            return F.scaled_dot_product_attention(query, key, value, attn_mask).reshape(shape)

        scores = (query * self.head_dim**-0.5) @ key.mT  # (..., T, T)
        no_key = None  # (..., T, 1), True where the mask leaves a token no token
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            no_key = ~attn_mask.any(dim=-1, keepdim=True)
            scores.masked_fill_(~(attn_mask | no_key), float("-inf"))
        elif attn_mask is not None:
            no_key = attn_mask.isneginf().all(dim=-1, keepdim=True)
            scores += attn_mask.masked_fill(no_key, 0.0)
        weights = scores.softmax(dim=-1)
        if no_key is not None:  # a row of -inf alone has no softmax: it saw all, and now none
            weights = weights.masked_fill(no_key, 0.0)
        return weights @ value, weights


def _fold(x: Tensor, leading: tuple[int, ...]) -> Tensor:
    """Give four dimensions to x, which broadcasts to (*leading, rows, columns)."""
    x = x[(None,) * (len(leading) + 2 - x.dim())]
    if len(leading) > 2 and x.shape[:-3].numel() != 1:  # all but the last become one dimension
        x = x.expand(*leading[:-1], *x.shape[-3:])
    return x[(None,) * (2 - len(leading))].flatten(0, -4)


def _check_mask(attn_mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise ValueError unless attn_mask can be applied to scores of this shape."""
    tensor = isinstance(attn_mask, Tensor)
    if not tensor or not (attn_mask.dtype == torch.bool or attn_mask.is_floating_point()):
        raise ValueError(
            "attn_mask must be a tensor or None, boolean (True keeps) or floating point (added "
            f"to the scores), got {attn_mask.dtype if tensor else repr(attn_mask)}"
        )
    sizes = zip(attn_mask.shape[::-1], scores[::-1], strict=False)
    fits = all(size in (1, want) for size, want in sizes)
    # (batch, T_q, T_k) is refused beside heads: broadcast, it would be read as (heads, T_q, T_k).
    if not fits or attn_mask.dim() not in (2, len(scores)):
        texts = (attn_mask.dim(), len(scores)) == (3, 4)
        hint = "; mask[:, None] makes one for each text" if texts else ""
        raise ValueError(
            f"attn_mask must have shape {scores[-2:]}, or the {len(scores)} dimensions of the "
            f"scores, each of size 1 or as in {scores}: got shape {tuple(attn_mask.shape)}{hint}"
        )
