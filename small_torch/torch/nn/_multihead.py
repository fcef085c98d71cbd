"""Attention in heads as a layer; few pages ask for it, so `torch.nn` imports it when one does."""

import math

import torch
from torch._signatures import lacks
from torch.nn import functional as F
from torch.nn import init
from torch.nn._layers import Linear, _made
from torch.nn._module import Module


class NonDynamicallyQuantizableLinear(Linear):
    """The last layer of `MultiheadAttention`, under the name that PyTorch prints."""


class MultiheadAttention(Module):
    """Attention in heads, with PyTorch's packed projections."""

    def __init__(
        self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None,
        batch_first=False, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, "
                f"got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if add_bias_kv or add_zero_attn:
            raise lacks("MultiheadAttention with add_bias_kv or add_zero_attn")
        self.embed_dim, self.kdim, self.vdim = embed_dim, kdim or embed_dim, vdim or embed_dim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.num_heads, self.dropout, self.batch_first = num_heads, dropout, batch_first
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == embed_dim, "embed_dim must be divisible by num_heads"
        where = {"device": device, "dtype": dtype}
        sizes = {
            "q_proj_weight": (embed_dim, embed_dim),
            "k_proj_weight": (embed_dim, self.kdim),
            "v_proj_weight": (embed_dim, self.vdim),
            "in_proj_weight": (3 * embed_dim, embed_dim),
        }
        if self._qkv_same_embed_dim:
            order = ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"]
            there = {"in_proj_weight"}
        else:
            order, there = [*sizes], {*sizes} - {"in_proj_weight"}
        for name in order:
            self.register_parameter(name, _made(*sizes[name], **where) if name in there else None)
        self.register_parameter("in_proj_bias", _made(3 * embed_dim, **where) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **where)
        self._reset_parameters()

    def _reset_parameters(self):
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def _projected(self, query, key, value):
        if self._qkv_same_embed_dim:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        for tensor, weight, bias in zip((query, key, value), weights, biases, strict=True):
            made = F.linear(tensor, weight, bias)  # (batch, tokens, embed_dim)
            yield made.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def forward(
        self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True,
        is_causal=False,
    ):  # fmt: skip
        if query.dim() not in (2, 3):
            raise AssertionError(
                f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
            )
        if is_causal and attn_mask is None:
            raise RuntimeError(
                "Need attn_mask if specifying the is_causal hint.\n"
                "Use the Transformer module method `generate_square_subsequent_mask` to create this mask."
            )
        batched = query.dim() == 3
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._projected(query, key, value)  # (batch, heads, tokens, head_dim) each
        mask = self._mask(key_padding_mask, attn_mask, q, k)
        share = self.dropout if self.training else 0.0
        if need_weights:
            scores = (q * math.sqrt(1.0 / self.head_dim)) @ k.mT
            weights = (scores if mask is None else scores + mask).softmax(-1)
            weights = F.dropout(weights, share)
            found = weights @ v
        else:
            weights = None
            found = F.scaled_dot_product_attention(q, k, v, mask, share)
        found = F.linear(found.transpose(1, 2).flatten(2), self.out_proj.weight, self.out_proj.bias)
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return found.squeeze(0), None if weights is None else weights.squeeze(0)
        return (found if self.batch_first else found.transpose(0, 1)), weights

    def _mask(self, key_padding_mask, attn_mask, q, k):
        """What is added to the scores; in a mask of booleans True hides."""
        found = None
        if attn_mask is not None:
            wanted = (q.size(-2), k.size(-2))
            if attn_mask.dim() == 2 and tuple(attn_mask.shape) != wanted:
                raise RuntimeError(
                    f"The shape of the 2D attn_mask is {attn_mask.shape}, but should be {wanted}."
                )
            found = _added(attn_mask, q.dtype)
            if found.dim() == 3:
                found = found.unflatten(0, (-1, self.num_heads))
        if key_padding_mask is not None:
            padding = _added(key_padding_mask, q.dtype)
            padding = padding[None] if padding.dim() == 1 else padding
            padding = padding[:, None, None]
            found = padding if found is None else found + padding
        return found


def _added(mask, dtype):
    """A mask as numbers that are added to scores."""
    if mask.dtype is not torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf)
