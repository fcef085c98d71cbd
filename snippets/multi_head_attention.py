"""Multi-head attention: several heads side by side, then one projection that mixes them.

    MultiHeadAttention(embed_dim, num_heads)(x, is_causal=True)  # (batch, T, embed_dim), in and out

PyTorch's fused kernels never store the T_q · T_k scores; on a CPU it has none for dropout while
training and for a mask that gets a gradient. Weights that are asked for are stored three times.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    """Multi-head attention: self or cross, causal or not.

    The weights of nn.MultiheadAttention(embed_dim, num_heads, batch_first=True) fit:

        q, k, v = theirs.in_proj_weight.chunk(3)  # each (embed_dim, embed_dim)
        ours.W_query.weight.copy_(q)  # under torch.no_grad(); likewise k and v, and the biases
        ours.out_proj.load_state_dict(theirs.out_proj.state_dict())

    There, True in a boolean mask hides; here it keeps. There the weights are averaged over the
    heads. The projections are only called, so adapters may wrap them, and heads are counted by
    their width, so that a shard of tensor parallelism may hold some of the heads.

    Args:
        embed_dim: width of the queries' input and of the output; a multiple of num_heads.
        kv_dim: width of the input of keys and values; None means embed_dim.
        dropout: share of the attention weights set to 0 while training, in [0, 1); the rest grow
            by 1/(1 - dropout). Not applied after .eval().
        bias: whether all four projections add a bias.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kv_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        if embed_dim % num_heads:
            raise ValueError(f"num_heads must divide embed_dim: got {num_heads} and {embed_dim}")
        super().__init__()
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        # One matrix holds the projections of all heads: head h owns rows h·head_dim onwards.
        self.W_query = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.W_key = nn.Linear(kv_dim or embed_dim, embed_dim, bias=bias)
        self.W_value = nn.Linear(kv_dim or embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(
        self,
        query: Tensor,  # (batch, T_q, embed_dim)
        key: Tensor | None = None,  # (batch, T_k, kv_dim); None means query
        value: Tensor | None = None,  # (batch, T_k, kv_dim); None means key
        *,
        attn_mask: Tensor | None = None,  # (T_q, T_k) or (batch, 1 or heads, T_q, T_k)
        is_causal: bool = False,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return one vector for each query token, (batch, T_q, embed_dim).

        A boolean attn_mask keeps where it is True; one of floating point is added to the scores. To
        hide padding, with keep of shape (batch, T_k), pass keep[:, None, None, :]. is_causal lets
        query i see keys 0 … i, counted from the first key; beside attn_mask, a key must pass both.
        A query that may see no key gets the bias of out_proj. need_weights also returns the weights
        of each head as they were applied (after dropout), (batch, heads, T_q, T_k). A ValueError
        refuses a mask or values that would be misread in silence.
        """
        key = query if key is None else key
        value = key if value is None else value
        T_q, T_k = query.size(-2), key.size(-2)
        if value.size(-2) != T_k:  # a fused kernel would read beyond the last value
            raise ValueError(f"value must have {T_k} tokens, as key has, got {tuple(value.shape)}")
        if attn_mask is not None and attn_mask.dim() == 3:  # one for each text, or for each head?
            raise ValueError(
                "attn_mask must be (T, keys) or (batch, 1 or heads, T, keys), "
                f"got {tuple(attn_mask.shape)}: mask[:, None] is one for each text"
            )
        query = self._split_heads(self.W_query(query))  # (batch, heads, T_q, head_dim)
        key = self._split_heads(self.W_key(key))  # (batch, heads, T_k, head_dim)
        value = self._split_heads(self.W_value(value))  # (batch, heads, T_k, head_dim)
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(query.dtype)  # a CUDA kernel misreads one of another dtype
        if is_causal and attn_mask is not None:  # PyTorch takes one of the two
            attn_mask, is_causal = _hide_future(attn_mask, T_q, T_k), False
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            context = F.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout, is_causal
            )
            return self.out_proj(context.transpose(-3, -2).flatten(-2))
        scores = (query * self.head_dim**-0.5) @ key.mT  # (batch, heads, T_q, T_k)
        scores = _hide_future(scores, T_q, T_k) if is_causal else scores
        weights = F.dropout(_softmax(scores, attn_mask), dropout)
        return self.out_proj((weights @ value).transpose(-3, -2).flatten(-2)), weights

    def _split_heads(self, x: Tensor) -> Tensor:
        """(..., T, heads · head_dim) → (..., heads, T, head_dim); in a shard, its own heads."""
        # A view straight to this shape would deal tokens, not features, to the heads.
        return x.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)


def _hide_future(x: Tensor, T_q: int, T_k: int) -> Tensor:
    """Return scores, or a mask, that hide the keys after each query, too."""
    future = torch.ones(T_q, T_k, dtype=torch.bool, device=x.device).triu(1)  # after key i
    return x.masked_fill(future, False if x.dtype == torch.bool else float("-inf"))


def _softmax(scores: Tensor, attn_mask: Tensor | None) -> Tensor:
    """Return the weights, (..., T_q, T_k): zeros for a query that may see no key."""
    if attn_mask is None:
        return scores.softmax(dim=-1)
    if attn_mask.dtype == torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=scores.dtype)
        attn_mask = zeros.masked_fill(~attn_mask, float("-inf"))
    elif not attn_mask.is_floating_point():  # 0 and 1 would be added to the scores
        raise ValueError(f"attn_mask must be boolean or floating point, got {attn_mask.dtype}")
    # A row of -inf alone has no softmax: such a query sees every key, and then none.
    no_key = (attn_mask == float("-inf")).all(dim=-1, keepdim=True)  # (..., T_q, 1)
    scores += attn_mask.masked_fill(no_key, 0.0)
    return scores.softmax(dim=-1).masked_fill(no_key, 0.0)
