"""Multi-head attention: several heads side by side, then one projection that mixes them.

Needs PyTorch 2.5 or newer and nothing else.
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

    where with kdim=vdim=kv_dim the three stand apart, as q_proj_weight, k_proj_weight and
    v_proj_weight. Three things differ: there, True in a boolean mask hides; here it keeps, as in
    scaled_dot_product_attention. There the weights are averaged over the heads by default. And
    there the fourth argument is key_padding_mask; here a mask is passed by its name.

    The projections are only ever called, so whatever maps the same widths may take their place: an
    adapter around one, or an int8 version of it. A dtype that they cannot take is their own error.

    Heads are counted by their width, so a module may hold some of them alone, as in tensor
    parallelism: give it rows of W_query, W_key and W_value, whole heads of them, and the columns
    of out_proj that belong to them. The outputs of all shards then add up to that of the whole;
    let one of them alone keep the bias of out_proj.

    Args:
        embed_dim: width of the queries' input and of the output.
        num_heads: number of heads; divides embed_dim and value_dim.
        kv_dim: width of the input of keys and values; None means embed_dim.
        value_dim: width of the values of all heads together; None means embed_dim.
        dropout: share of the attention weights set to 0 while training, in [0, 1); the rest grow
            by 1/(1 - dropout). Not applied after .eval().
        bias: whether all four projections add a bias.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kv_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        kv_dim = embed_dim if kv_dim is None else kv_dim
        value_dim = embed_dim if value_dim is None else value_dim
        sizes = {
            "embed_dim": embed_dim,
            "num_heads": num_heads,
            "kv_dim": kv_dim,
            "value_dim": value_dim,
        }
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        for name in ("embed_dim", "value_dim"):
            if sizes[name] % num_heads:
                raise ValueError(
                    f"num_heads must divide {name}: got num_heads={num_heads}, {name}={sizes[name]}"
                )
        if not isinstance(dropout, int | float) or not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.kv_dim = kv_dim
        self.value_dim = value_dim
        self.dropout = dropout
        # One matrix holds the projections of all heads: head h owns rows h·head_dim onwards.
        self.W_query = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.W_key = nn.Linear(kv_dim, embed_dim, bias=bias)
        self.W_value = nn.Linear(kv_dim, value_dim, bias=bias)
        self.out_proj = nn.Linear(value_dim, embed_dim, bias=bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return one vector for each query token, (..., T_q, embed_dim).

        Args:
            query: (..., T_q, embed_dim), of the projections' dtype.
            key: (..., T_k, kv_dim), same dtype and leading dimensions; None means query.
            value: (..., T_k, kv_dim), same dtype and leading dimensions; None means key.
            attn_mask: (T_q, T_k) for all heads of all samples, or as many dimensions as the
                scores, broadcastable to (..., num_heads, T_q, T_k). Boolean: True keeps, False
                hides. Floating point: added to the scaled scores, so -inf hides. To hide
                padding, with keep of shape (batch, T_k), pass keep[:, None, None, :].
            is_causal: query i sees keys 0 … i, counted from the first key even when T_q ≠ T_k.
                Where the queries are the last of the keys, as with a cache, pass instead
                attn_mask=torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q).
                Together with attn_mask: a key must pass both.
            need_weights: also return the weights of each head as they were applied (after
                dropout), (..., num_heads, T_q, T_k), at the cost of storing them.

        A query that may see no key at all gets weights 0 and context 0: the output there is the
        bias of out_proj, and no gradient flows into query, key or value.
        """
        key = query if key is None else key
        value = key if value is None else value
        self._check(query, key, value)
        T_q, T_k = query.size(-2), key.size(-2)
        # Each (..., num_heads, T, head_dim); with values, a head is value_dim / num_heads wide.
        query = self._split_heads(self.W_query(query), self.head_dim)
        key = self._split_heads(self.W_key(key), self.head_dim)
        value = self._split_heads(self.W_value(value), self.value_dim // self.num_heads)
        if attn_mask is not None:
            self._check_mask(attn_mask, (*query.shape[:-1], T_k))
            if attn_mask.dtype != torch.bool:  # a CUDA kernel misreads a mask of another dtype
                attn_mask = attn_mask.to(query.dtype)
            if is_causal:  # only some fused kernels take both, so the two become one mask
                future = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).triu(1)
                hidden = False if attn_mask.dtype == torch.bool else float("-inf")
                attn_mask, is_causal = attn_mask.masked_fill(future, hidden), False
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            context = F.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout, is_causal
            )
            return self.out_proj(self._merge_heads(context))

        scores = (query * self.head_dim**-0.5) @ key.mT  # (..., num_heads, T_q, T_k)
        if is_causal:
            attn_mask = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        elif attn_mask is not None:
            scores = scores + attn_mask
        # A row of -inf alone has no softmax (0/0): compute it on zeros, then set its weights to 0.
        no_key = scores.isneginf().all(dim=-1, keepdim=True)  # (..., num_heads, T_q, 1)
        weights = scores.masked_fill(no_key, 0.0).softmax(dim=-1).masked_fill(no_key, 0.0)
        weights = F.dropout(weights, dropout)
        return self.out_proj(self._merge_heads(weights @ value)), weights

    def _split_heads(self, x: Tensor, width: int) -> Tensor:
        """(..., T, num_heads · width) → (..., num_heads, T, width); in a shard, its own heads."""
        # The last dimension is cut first and T moved after: a view straight to
        # (..., num_heads, T, width) would deal tokens, not features, to the heads.
        return x.unflatten(-1, (-1, width)).transpose(-3, -2)

    def _merge_heads(self, x: Tensor) -> Tensor:
        """(..., num_heads, T, width) → (..., T, num_heads · width), undoing _split_heads."""
        return x.transpose(-3, -2).flatten(-2)

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Raise ValueError unless the arguments of forward fit this module and each other."""
        for name, tensor, width in (
            ("query", query, self.embed_dim),
            ("key", key, self.kv_dim),
            ("value", value, self.kv_dim),
        ):
            if not isinstance(tensor, Tensor) or tensor.dim() < 2 or tensor.size(-1) != width:
                came = tuple(tensor.shape) if isinstance(tensor, Tensor) else repr(tensor)
                raise ValueError(f"{name} must have shape (..., tokens, {width}), got {came}")
        if key.shape[:-2] != query.shape[:-2]:
            raise ValueError(
                f"key must have the leading dimensions of query, {tuple(query.shape[:-2])}: "
                f"got shape {tuple(key.shape)}"
            )
        if value.shape[:-1] != key.shape[:-1]:
            raise ValueError(
                f"value must hold one token per key, {tuple(key.shape[:-1])}: "
                f"got shape {tuple(value.shape)}"
            )

    @staticmethod
    def _check_mask(attn_mask: Tensor, scores_shape: tuple[int, ...]) -> None:
        """Raise ValueError unless attn_mask fits scores of this shape."""
        if not isinstance(attn_mask, Tensor):
            raise ValueError(f"attn_mask must be a tensor or None, got {attn_mask!r}")
        if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
            raise ValueError(
                f"attn_mask must be boolean (True keeps) or floating point (added to the scores), "
                f"got {attn_mask.dtype}"
            )
        # (batch, T_q, T_k) is refused: it would be read as (num_heads, T_q, T_k).
        fits = attn_mask.dim() in (2, len(scores_shape)) and all(
            size in (1, want)
            for size, want in zip(attn_mask.shape[::-1], scores_shape[::-1], strict=False)
        )
        if not fits:
            raise ValueError(
                f"attn_mask must be {scores_shape[-2:]} or broadcast, dimension by dimension, to "
                f"the scores, {scores_shape}: got shape {tuple(attn_mask.shape)}"
            )
