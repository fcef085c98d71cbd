"""The layers that the book uses. Each draws its first values as PyTorch's does."""

import math

import torch
from torch._signatures import lacks
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


class Embedding(Module):
    """A table with a row for each token."""

    def __init__(
        self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
        sparse=False, _weight=None, _freeze=False, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        if max_norm is not None or scale_grad_by_freq or sparse:
            raise lacks("nn.Embedding with max_norm, scale_grad_by_freq or sparse")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
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
        return cls(*embeddings.shape, padding_idx, _weight=embeddings, _freeze=freeze)

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
        return F.dropout(input, self.p, self.training, self.inplace)

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


def _activation(name, function, inplace=False):
    """A module that applies a function; some may write over what they are given."""

    class Activation(Module):
        def forward(self, input):
            return function(input, self.inplace) if inplace else function(input)

        def extra_repr(self):
            return "inplace=True" if inplace and self.inplace else ""

    def initialise(self, inplace=False):
        Module.__init__(self)
        self.inplace = inplace

    if inplace:
        Activation.__init__ = initialise
    Activation.__name__ = Activation.__qualname__ = name
    return Activation


ReLU, SiLU = _activation("ReLU", F.relu, True), _activation("SiLU", F.silu, True)
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


class _Loss(Module):
    """A loss by the function of its name; the settings are the function's."""

    def __init__(self, weight=None, **settings):
        super().__init__()
        self.register_buffer("weight", weight)
        for name, value in settings.items():
            setattr(self, name, value)
        self.settings = settings

    def forward(self, input, target):
        return self.function(input, target, weight=self.weight, **self.settings)


class CrossEntropyLoss(_Loss):
    function = staticmethod(F.cross_entropy)

    def __init__(
        self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
    ):  # fmt: skip
        super().__init__(
            weight,
            size_average=size_average,
            ignore_index=ignore_index,
            reduce=reduce,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )


class NLLLoss(_Loss):
    function = staticmethod(F.nll_loss)

    def __init__(
        self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"
    ):
        settings = {"ignore_index": ignore_index, "reduction": reduction}
        super().__init__(weight, size_average=size_average, reduce=reduce, **settings)


class _PairLoss(_Loss):
    def __init__(self, size_average=None, reduce=None, reduction="mean"):
        super().__init__(None, size_average=size_average, reduce=reduce, reduction=reduction)


class MSELoss(_PairLoss):
    function = staticmethod(F.mse_loss)


class L1Loss(_PairLoss):
    function = staticmethod(F.l1_loss)


class BCEWithLogitsLoss(_Loss):
    function = staticmethod(F.binary_cross_entropy_with_logits)

    def __init__(
        self, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
    ):
        super().__init__(weight, size_average=size_average, reduce=reduce, reduction=reduction)
        self.register_buffer("pos_weight", pos_weight)
        self.settings["pos_weight"] = pos_weight
