"""The layers that the book uses. Each draws its first values as PyTorch's does."""

import math

import torch
from torch.nn import functional as F
from torch.nn import init
from torch.nn._module import Module, Parameter


def _made(*size, device=None, dtype=None):
    return Parameter(torch.empty(*size, device=device, dtype=dtype))


class Identity(Module):
    """What gives back what it is given."""

    def __init__(self, *_, **__):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """input weightᵀ + bias."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _made(out_features, in_features, device=device, dtype=dtype)
        self.register_parameter(
            "bias", _made(out_features, device=device, dtype=dtype) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """The last layer of `MultiheadAttention`, under the name that PyTorch prints."""


class Embedding(Module):
    """A table with a row for each token."""

    def __init__(
        self, num_embeddings, embedding_dim, padding_idx=None, _weight=None, _freeze=False, device=None, dtype=None
    ):  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and padding_idx < 0:
            padding_idx += num_embeddings
        self.padding_idx = padding_idx
        if _weight is None:
            self.weight = _made(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.reset_parameters()
        else:
            self.weight = Parameter(_weight, not _freeze)

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx].fill_(0)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None):
        return cls(*embeddings.shape, padding_idx, embeddings, freeze)

    def forward(self, input):
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self):
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class _Norm(Module):
    def __init__(self, normalized_shape, eps, elementwise_affine, bias, device, dtype):
        super().__init__()
        shape = (
            (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        )
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        for name, there in (("weight", True), ("bias", bias)):
            made = (
                _made(*shape, device=device, dtype=dtype) if there and elementwise_affine else None
            )
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class LayerNorm(_Norm):
    """Shifts and scales each vector to mean 0 and variance 1."""

    def __init__(
        self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None
    ):  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return super().extra_repr() + f", bias={self.bias is not None}"


class RMSNorm(_Norm):
    """Scales each vector to a mean square of 1."""

    def __init__(
        self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None
    ):
        super().__init__(normalized_shape, eps, elementwise_affine, False, device, dtype)
        del self._parameters["bias"]

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input):
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class Dropout(Module):
    """Zeroes each number with probability p, and scales the others, while the module trains."""

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input):
        return F.dropout(input, self.p, self.training)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class GELU(Module):
    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


def _activation(name, function):
    """A module that applies a function."""
    return type(
        name, (Module,), {"forward": lambda self, input: function(input), "__module__": __name__}
    )


ReLU, SiLU = _activation("ReLU", F.relu), _activation("SiLU", F.silu)
Sigmoid, Tanh = _activation("Sigmoid", F.sigmoid), _activation("Tanh", F.tanh)


class Softmax(Module):
    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.softmax(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Flatten(Module):
    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class CrossEntropyLoss(Module):
    def __init__(self, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
        super().__init__()
        self.register_buffer("weight", weight)
        self.settings = {
            "ignore_index": ignore_index,
            "reduction": reduction,
            "label_smoothing": label_smoothing,
        }

    def forward(self, input, target):
        return F.cross_entropy(input, target, self.weight, **self.settings)


class MSELoss(Module):
    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, input, target):
        return F.mse_loss(input, target, self.reduction)


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
            raise NotImplementedError(
                "MultiheadAttention with add_bias_kv or add_zero_attn is not in the small torch of this page; "
                "open the page in Colab"
            )
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
