"""Multi-head attention: several heads side by side, then one projection that mixes them.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else.
Sources: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.2; Ainslie et al. (2023),
"GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints", section 2.2
(num_kv_heads).
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
    v_proj_weight. Four things differ: there, True in a boolean mask hides; here it keeps, as in
    scaled_dot_product_attention. There the weights are averaged over the heads by default. There
    the fourth argument is key_padding_mask; here a mask is passed by its name. And untrained,
    ours are what nn.Linear draws, weights and biases uniform in ±1/√(width of the input); theirs
    start with biases of 0, and with W_query, W_key and W_value √1.5 times as large, or √3 times
    where kdim=embed_dim is set apart, so that their scores spread 1.5 or 3 times as far.

    Any leading dimensions reach PyTorch's fused kernel, which never stores the T_q · T_k scores.
    On a CPU it has none for dropout while training, nor for a mask that gets a gradient: in float32
    a forward pass then makes up to 18 bytes for each score, 4.5 GiB a head at 16,384 tokens. Where
    the kernel takes no mask beside is_causal, on a GPU or compiled, both become one, at 6 bytes an
    entry.

    The projections are only ever called, so whatever maps the same widths may take their place: an
    adapter around one, or an int8 version of it. A dtype that they cannot take is their own error.

    Heads are counted by their width, so a module may hold some of them alone, as in tensor
    parallelism: give it rows of W_query, W_key and W_value, whole heads of them, and the columns
    of out_proj that belong to them. The outputs of all shards then add up to that of the whole;
    let one of them alone keep the bias of out_proj.

    Args:
        embed_dim: width of the queries' input.
        num_heads: number of heads; divides value_dim, and embed_dim unless head_dim is given.
        kv_dim: width of the input of keys and values; None means embed_dim.
        num_kv_heads: number of heads of keys and of values, each shared by num_heads /
            num_kv_heads heads of queries; None means num_heads. transformers' num_key_value_heads.
        head_dim: width of the queries and keys of one head; None means embed_dim / num_heads.
        value_dim: width of the context of all heads together; None means num_heads · head_dim.
            The fused kernels want heads of one width, so zeros are added to the narrower.
        out_dim: width of the output; None means embed_dim.
        dropout: share of the attention weights set to 0 while training, in [0, 1); the rest grow
            by 1/(1 - dropout). Not applied after .eval().
        bias: whether all four projections add a bias.
        qkv_bias: whether W_query, W_key and W_value do, as timm calls it; None means as bias says.
        device: where the parameters are made.
        dtype: what they are made of.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kv_dim: int | None = None,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        out_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        qkv_bias: bool | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        given = {"kv_dim": kv_dim, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
        given |= {"value_dim": value_dim, "out_dim": out_dim}
        given = {name: size for name, size in given.items() if size is not None}
        for name, size in {"embed_dim": embed_dim, "num_heads": num_heads, **given}.items():
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        for name, size, whole, count in (
            ("num_heads", num_heads, "embed_dim", embed_dim if head_dim is None else 0),
            ("num_heads", num_heads, "value_dim", value_dim or 0),
            ("num_kv_heads", num_kv_heads or 1, "num_heads", num_heads),
        ):
            if count % size:
                raise ValueError(f"{name} must divide {whole}: got {name}={size}, {whole}={count}")
        if not isinstance(dropout, int | float) or not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.kv_dim = kv_dim or embed_dim
        self.num_kv_heads = num_kv_heads or num_heads
        self.head_dim = head_dim or embed_dim // num_heads
        self.value_dim = value_dim or num_heads * self.head_dim
        self.out_dim = out_dim or embed_dim
        self.dropout = dropout
        # One matrix holds the projections of all heads: head h owns rows h·head_dim onwards.
        shared = {"bias": bias if qkv_bias is None else qkv_bias, "device": device, "dtype": dtype}
        v_head_dim = self.value_dim // num_heads
        self.W_query = nn.Linear(embed_dim, num_heads * self.head_dim, **shared)
        self.W_key = nn.Linear(self.kv_dim, self.num_kv_heads * self.head_dim, **shared)
        self.W_value = nn.Linear(self.kv_dim, self.num_kv_heads * v_head_dim, **shared)
        self.out_proj = nn.Linear(self.value_dim, self.out_dim, **shared | {"bias": bias})

    def extra_repr(self) -> str:
        """What print(module) says of its sizes."""
        names = ("embed_dim", "num_heads", "kv_dim", "num_kv_heads", "head_dim", "value_dim")
        return ", ".join(f"{name}={getattr(self, name)}" for name in (*names, "out_dim", "dropout"))

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
        """Return one vector for each query token, (..., T_q, out_dim).

        Args:
            query: (..., T_q, embed_dim), of the projections' dtype.
            key: (..., T_k, kv_dim), same dtype and leading dimensions; None means query.
            value: (..., T_k, kv_dim), same dtype and leading dimensions; None means key.
            attn_mask: (T_q, T_k) for all heads of all samples, or as many dimensions as the
                scores, broadcastable to (..., num_heads, T_q, T_k). Boolean: True keeps, False
                hides. Floating point: added to the scaled scores, so -inf hides. To hide
                padding, with keep of shape (batch, T_k), pass keep[:, None, None, :]. A mask for
                each text, (batch, T_q, T_k), is refused, since it could be one for each head:
                pass mask[:, None].
            is_causal: query i sees keys 0 … i, counted from the first key even when T_q ≠ T_k.
                Where the queries are the last of the keys, as with a cache, pass instead
                attn_mask=torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q).
                Together with attn_mask: a key must pass both.
            need_weights: also return the weights of each head as they were applied (after
                dropout), (..., num_heads, T_q, T_k), at the cost of storing them: three matrices
                of this size, or two without a mask and dropout.

        A query that may see no key at all gets weights 0 and context 0: the output there is the
        bias of out_proj, and no gradient flows into query, key or value.
        """
        key = query if key is None else key
        value = key if value is None else value
        self._check(query, key, value)
        T_q, T_k = query.size(-2), key.size(-2)
        # Each (..., heads, T, width): num_heads of queries, num_kv_heads of keys and of values.
        query = self._split_heads(self.W_query(query), self.head_dim)
        key = self._split_heads(self.W_key(key), self.head_dim)
        value = self._split_heads(self.W_value(value), self.value_dim // self.num_heads)
        dropout = self.dropout if self.training else 0.0
        if attn_mask is not None:
            _check_mask(attn_mask, (*query.shape[:-1], T_k))
            if attn_mask.dtype != torch.bool:  # a CUDA kernel misreads a mask of another dtype
                attn_mask = attn_mask.to(query.dtype)
            if is_causal:
                if query.is_cpu and not need_weights and not torch.compiler.is_compiling():
                    try:  # the kernel for CPUs takes both, though PyTorch does not promise it
                        context = self._fused(query, key, value, attn_mask, dropout, is_causal)
                    except RuntimeError:
                        pass
                    else:
                        return self.out_proj(self._merge_heads(context))
                future = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).triu(1)
                hidden = False if attn_mask.dtype == torch.bool else float("-inf")
                attn_mask, is_causal = attn_mask.masked_fill(future, hidden), False
        if not need_weights:
            context = self._fused(query, key, value, attn_mask, dropout, is_causal)
            return self.out_proj(self._merge_heads(context))

        group = query.size(-3) // key.size(-3)  # heads of queries that share a head of keys
        if group > 1:
            key, value = (part.repeat_interleave(group, dim=-3) for part in (key, value))
        scores = (query * self.head_dim**-0.5) @ key.mT  # (..., num_heads, T_q, T_k)
        no_key = None  # (..., T_q, 1), True where the mask leaves a query no key
        if is_causal:
            future = torch.ones(T_q, T_k, dtype=torch.bool, device=query.device).triu(1)
            scores.masked_fill_(future, float("-inf"))
        elif attn_mask is not None and attn_mask.dtype == torch.bool:
            no_key = ~attn_mask.any(dim=-1, keepdim=True)
            scores.masked_fill_(~(attn_mask | no_key), float("-inf"))
        elif attn_mask is not None:
            no_key = attn_mask.isneginf().all(dim=-1, keepdim=True)
            scores += attn_mask.masked_fill(no_key, 0.0)
        weights = scores.softmax(dim=-1)
        if no_key is not None:  # a row of -inf alone has no softmax: it saw all, and now none
            weights = weights.masked_fill(no_key, 0.0)
        weights = F.dropout(weights, dropout)
        return self.out_proj(self._merge_heads(weights @ value)), weights

    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None,
        dropout: float,
        is_causal: bool,
    ) -> Tensor:
        """Return (..., num_heads, T_q, width) by PyTorch's fused kernels.

        They want four dimensions, and heads of one width.
        """
        leading, shape = query.shape[:-2], (*query.shape[:-1], value.size(-1))
        width, parts = max(query.size(-1), value.size(-1)), []
        for part in (query, key, value):
            if part.size(-1) < width:
                part = F.pad(part, (0, width - part.size(-1)))
            parts.append(_fold(part, (*leading[:-1], part.size(-3))))
        if attn_mask is not None:
            attn_mask = _fold(attn_mask, leading)
        context = F.scaled_dot_product_attention(
            *parts,
            attn_mask,
            dropout,
            is_causal,
            scale=self.head_dim**-0.5,
            enable_gqa=key.size(-3) != query.size(-3),
        )
        return context[..., : shape[-1]].reshape(shape)

    def _split_heads(self, x: Tensor, width: int) -> Tensor:
        """(..., T, heads · width) → (..., heads, T, width); in a shard, its own heads."""
        # The last dimension is cut first and T moved after: a view straight to
        # (..., num_heads, T, width) would deal tokens, not features, to the heads.
        return x.unflatten(-1, (-1, width)).transpose(-3, -2)

    def _merge_heads(self, x: Tensor) -> Tensor:
        """(..., num_heads, T, width) → (..., T, num_heads · width), undoing _split_heads."""
        return x.transpose(-3, -2).flatten(-2)

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Raise ValueError unless the three fit this module and each other."""
        for name, tensor, width in (
            ("query", query, self.embed_dim),
            ("key", key, self.kv_dim),
            ("value", value, self.kv_dim),
        ):
            if not isinstance(tensor, Tensor) or tensor.dim() < 2 or tensor.size(-1) != width:
                came = tuple(tensor.shape) if isinstance(tensor, Tensor) else repr(tensor)
                raise ValueError(f"{name} must have shape (..., tokens, {width}), got {came}")
            tokens = key.shape[-2:-1] if name == "value" else tensor.shape[-2:-1]
            wanted = (*query.shape[:-2], *tokens, width)
            if tensor.shape != wanted:
                raise ValueError(f"{name} must have shape {wanted}, got {tuple(tensor.shape)}")


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
