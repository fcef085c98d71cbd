"""Cross-attention: one head whose keys and values come from another sequence.

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

    Any leading dimensions reach PyTorch's fused kernel, which never stores the T_q · T_k scores. On
    a CPU it has none for a mask that gets a gradient: a forward pass then makes 8 bytes for each
    score in float32, 2 GiB at 16,384 tokens.

    The projections are only ever called, so whatever maps the same widths may take their place: an
    adapter around one, or an int8 version of it. A dtype that they cannot take is their own error.
    They start as nn.Linear does: weights and biases uniform in ±1/√(width of the input).

    Args:
        embed_dim: width of x.
        kv_dim: width of the source.
        head_dim: width of queries and keys.
        value_dim: width of values and context vectors; None means head_dim. The fused kernels
            want the two equal, so zeros are added to the narrower.
        bias: whether the three projections add a bias.
        device: where the parameters are made.
        dtype: what they are made of.

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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        value_dim = head_dim if value_dim is None else value_dim
        for name, size in (
            ("embed_dim", embed_dim),
            ("kv_dim", kv_dim),
            ("head_dim", head_dim),
            ("value_dim", value_dim),
        ):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        super().__init__()
        self.embed_dim = embed_dim
        self.kv_dim = kv_dim
        self.head_dim = head_dim
        self.value_dim = value_dim
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.W_query = nn.Linear(embed_dim, head_dim, **made)
        self.W_key = nn.Linear(kv_dim, head_dim, **made)
        self.W_value = nn.Linear(kv_dim, value_dim, **made)

    def extra_repr(self) -> str:
        """What print(module) says of its sizes."""
        return (
            f"embed_dim={self.embed_dim}, kv_dim={self.kv_dim}, head_dim={self.head_dim}, "
            f"value_dim={self.value_dim}"
        )

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
            attn_mask: (T_q, T_k) for all sequences, or as many dimensions as x, broadcastable to
                (..., T_q, T_k). Boolean: True keeps, False hides. Floating point: added to the
                scaled scores, so -inf hides. To hide padding in the source, with keep of shape
                (batch, T_k), pass keep[:, None, :].
            need_weights: also return the weights, (..., T_q, T_k), at the cost of storing them:
                three matrices of this size, or two without a mask.

        A token that may see no token of the source gets weights 0, context 0 and gradient 0.
        """
        self._check(x, source, attn_mask)
        query = self.W_query(x)  # (..., T_q, head_dim)
        key = self.W_key(source)  # (..., T_k, head_dim)
        value = self.W_value(source)  # (..., T_k, value_dim)
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            attn_mask = attn_mask.to(query.dtype)  # a CUDA kernel misreads one of another dtype
        if not need_weights:
            leading, shape = x.shape[:-2], (*x.shape[:-1], self.value_dim)
            width, parts = max(self.head_dim, self.value_dim), []
            for part in (query, key, value):
                if part.size(-1) < width:
                    part = F.pad(part, (0, width - part.size(-1)))
                parts.append(_fold(part, leading))
            if attn_mask is not None:
                attn_mask = _fold(attn_mask, leading)
            context = F.scaled_dot_product_attention(*parts, attn_mask, scale=self.head_dim**-0.5)
            return context[..., : self.value_dim].reshape(shape)

        scores = (query * self.head_dim**-0.5) @ key.mT  # (..., T_q, T_k)
        no_key = None  # (..., T_q, 1), True where the mask leaves a query no key
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
        if attn_mask is not None:
            _check_mask(attn_mask, (*x.shape[:-1], source.size(-2)))


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
