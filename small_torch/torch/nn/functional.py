"""The functions of `torch.nn.functional` that the book uses."""

import math
from functools import cache

import torch
from torch import _autograd, _ops, _products
from torch._autograd import needs_grad, record, titled
from torch._kernels import DOUBLE, DOUBLES, call, js
from torch._ops import only_floats
from torch._signatures import FUNCTIONS, NUMBER, TENSOR, WHOLE, absent, checked, lacks
from torch._tensor import make, rows, run
from torch.amp import State, cast


def _placed(input, found, inplace):
    """Return what was found, written over the input where that is asked for."""
    return input.copy_(found) if inplace else found


def relu(input, inplace=False):
    return input.relu_() if inplace else input.relu()


def silu(input, inplace=False):
    return _placed(input, _ops.activation("silu", input, "silu_cpu"), inplace)


def sigmoid(input):
    return input.sigmoid()


def tanh(input):
    return input.tanh()


def softplus(input, beta=1.0, threshold=20.0):
    only_floats("softplus_cpu", input)
    if beta == 1 and threshold == 20:
        return _ops.activation("softplus", input, "softplus_cpu")
    far = input * beta > threshold
    found = torch.where(far, input, (input * beta).masked_fill(far, 0).exp().log1p() / beta)
    return titled(found, "SoftplusBackward0")


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    return input.softmax(_last_or_first(input) if dim is None else dim, dtype=dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return input.log_softmax(_last_or_first(input) if dim is None else dim, dtype=dtype)


def _last_or_first(input):
    return 0 if input.dim() in (0, 1, 3) else 1


def logsigmoid(input):
    only_floats("log_sigmoid_cpu", input)
    return titled(-softplus(-input), "LogSigmoidBackward0")


def gelu(input, approximate="none"):
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    name = "gelu" if approximate == "none" else "gelu_tanh"
    return _ops.activation(name, input, "GeluKernelImpl")


def elu(input, alpha=1.0, inplace=False):
    below = only_floats("elu_cpu", input).clamp(max=0).expm1() * alpha
    found = titled(torch.where(input <= 0, below, input), "EluBackward0")
    return _placed(input, found, inplace)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    only_floats("leaky_relu_cpu", input)
    found = torch.where(input > 0, input, input * negative_slope)
    return _placed(input, titled(found, "LeakyReluBackward0"), inplace)


def linear(input, weight, bias=None):
    width = input._shape[-1] if input._shape else 0
    plain = weight.dim() == 2 and width == weight._shape[1] and 0 not in input._shape
    plain = plain and (bias is None or bias._shape == weight._shape[:1]) and input.dtype.kind == 2
    same = input.dtype is weight.dtype and (bias is None or bias.dtype is weight.dtype)
    if not plain or not same or input.is_complex() or State.on:
        found = input @ weight.t()  # which says what does not fit
        if bias is None:
            return found
        if weight.dim() == 1 and bias.dim():
            raise RuntimeError("mat2 must be a matrix, got 1-D tensor")
        if bias.dim() > 1 and input.dim() != 2:
            raise lacks(f"linear with a bias of {bias.dim()} dimensions")
        (bias,) = cast(bias)
        if bias.dtype is not found.dtype:
            raise RuntimeError(
                "self and mat2 must have the same dtype, but got "
                f"{bias.dtype.scalar} and {found.dtype.scalar}"
            )
        name = "AddmmBackward0" if input.dim() == 2 else "ViewBackward0"
        return titled(found + bias.expand(found._shape), name)
    lead, a = input._shape[:-1], input if input.is_contiguous() else input.detach().contiguous()
    flat = make(a._storage, (math.prod(lead), width), (width, 1), a._offset, a.dtype)
    found = _products.matmul_kernel(
        flat, weight.detach().t(), (flat._shape[0], len(weight)), a.dtype
    )
    found._shape = (*lead, len(weight))
    found._stride = rows(found._shape)
    if bias is not None:
        run("add", found, found, bias)
    if not needs_grad(input, weight, *([] if bias is None else [bias])):
        return found
    needed = [x is not None and x.requires_grad for x in (input, weight, bias)]

    def back(above, input, weight):
        flat = above.reshape(-1, above.size(-1))
        return (
            above @ weight if needed[0] else None,
            flat.t() @ input.reshape(-1, width) if needed[1] else None,
            flat.sum(0) if needed[2] else None,
        )

    name = (
        "AddmmBackward0"
        if bias is not None and len(lead) == 1
        else "MmBackward0"
        if len(lead) == 1
        else "ViewBackward0"
    )
    return record(found, name, (input, weight, bias), back, input, weight)


def embedding(
    input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False
):  # fmt: skip
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise lacks("embedding with max_norm, scale_grad_by_freq or sparse")
    if input.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, "
            f"Int; but got {input.type()} instead (while checking arguments for embedding)"
        )
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    if padding_idx is not None:
        if not -len(weight) <= padding_idx < len(weight):
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= len(weight)
    places = input.reshape(-1)
    if places.numel() and int(places.min()) < 0:
        raise IndexError("index out of range in self")
    try:
        found = weight.detach().index_select(0, places).reshape(*input.shape, *weight.shape[1:])
    except IndexError:
        raise IndexError("index out of range in self") from None

    def back(above, places):
        found = above.new_zeros(weight.shape)
        found.index_add_(0, places, above.reshape(*places.shape, *weight.shape[1:]))
        if padding_idx is not None:
            found[padding_idx] = 0
        return found

    return record(found, "EmbeddingBackward0", (weight,), (back,), places)


def one_hot(tensor, num_classes=-1):
    if tensor.dtype is not torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not tensor.numel():
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return tensor.new_zeros((*tensor.shape, num_classes))
    if int(tensor.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    most = int(tensor.max())
    if num_classes == -1:
        num_classes = most + 1
    if num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    if most >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return (tensor.unsqueeze(-1) == torch.arange(num_classes)).to(torch.int64)


def dropout(input, p=0.5, training=True, inplace=False):
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0 or not input.numel():
        return input
    if p == 1:
        return _placed(input, input * 0, inplace)
    if input.dtype.kind < 2:
        raise RuntimeError(
            f"result type Float can't be cast to the desired output type {input.dtype.scalar}"
        )
    kept = torch.empty_like(input).bernoulli_(1 - p)
    return _placed(input, input * kept.div_(1 - p), inplace)


def pad(input, pad, mode="constant", value=None):
    if mode in ("reflect", "replicate", "circular"):
        raise lacks(f"F.pad(mode={mode!r})")
    if mode != "constant":
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) > 2 * input.dim():
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but got padding "
            f"length {len(pad)} and input of dimension {input.dim()}"
        )
    shape, inner, outer = [*input.shape], [slice(None)] * input.dim(), [slice(None)] * input.dim()
    for dim, before, after in zip(
        range(input.dim() - 1, -1, -1), pad[::2], pad[1::2], strict=False
    ):
        size = shape[dim]
        shape[dim] += before + after
        inner[dim] = slice(max(-before, 0), size - max(-after, 0))
        outer[dim] = slice(max(before, 0), shape[dim] - max(after, 0))
    if any(size < 0 for size in shape):
        raise RuntimeError(f"The input size {[*input.shape]} is too small for padding {[*pad]}")
    inner, outer, before = tuple(inner), tuple(outer), input.shape
    with torch.no_grad():
        made = input.new_full(shape, value or 0)
        made[outer] = input.detach()[inner]

    def back(above):
        found = above.new_zeros(before)
        found[inner] = above[outer]
        return found

    return record(made, "ConstantPadNdBackward0", (input,), (back,))


def normalize(input, p=2.0, dim=1, eps=1e-12):
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)


cosine_similarity = FUNCTIONS["cosine_similarity"]


def _normed_dims(input, normalized_shape, star):
    """The dimensions over which a norm is taken, which must have the shape that was said."""
    wanted_shape = (
        (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    )
    count = len(wanted_shape)
    if not count:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []"
        )
    if tuple(input.shape[-count:]) != wanted_shape:
        shape = ", ".join(map(str, wanted_shape))
        raise RuntimeError(
            f"Given normalized_shape={[*wanted_shape]}, expected input with shape [*{star}{shape}], but got "
            f"input of size{[*input.shape]}"
        )
    return tuple(range(-count, 0))


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    dims = _normed_dims(input, normalized_shape, ", ")
    if weight is not None and input.dtype.kind < 2:
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
    if (
        weight is not None
        and input.dtype in (torch.float32, torch.float64)
        and weight.dtype is not input.dtype
    ):
        raise RuntimeError(
            f"expected scalar type {input.dtype.scalar} but found {weight.dtype.scalar}"
        )
    return _normed("NativeLayerNormBackward0", input, dims, weight, bias, eps, False)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    dims = _normed_dims(input, normalized_shape, "")
    if eps is None:
        eps = torch.finfo(torch.float64 if input.dtype is torch.float64 else torch.float32).eps
    if weight is not None and weight.dtype is not input.dtype:
        return rms_norm(input, normalized_shape, None, eps) * weight
    name = "MulBackward0" if input.is_contiguous() else "CloneBackward0"
    return _normed(name, input, dims, weight, None, eps, True)


def _normed(name, input, dims, weight, bias, eps, root):
    """Shifted to mean 0, unless it is the root alone, and scaled to mean square 1, weighted and shifted."""
    only_floats("LayerNormKernelImpl", input)
    x, width = input.detach().contiguous(), math.prod(input._shape[-len(dims) :])
    count = input.numel() // width if width else 0
    found, kept = torch.empty_like(x), x.new_zeros((count, 2), dtype=torch.float64)
    weight, bias = (
        each if each is None or each.is_contiguous() else each.contiguous()
        for each in (weight, bias)
    )
    if count:
        DOUBLES[0] = eps
        places = [_place(each) for each in (found, x, weight, bias)]
        call(js.norm, *sum(places, ()), DOUBLE, kept._storage.base, count, width, root)
    learned = [each for each in (weight, bias) if each is not None]
    if not needs_grad(input, *learned):
        return found

    def back(above, input, weight, kept):
        if _autograd.Mode.grad:  # this pass is itself to be differentiated
            return _norm_back(above, input, weight, bias, dims, eps, root)
        g, x = above.contiguous(), input.contiguous()
        made, sums = torch.empty_like(x), x.new_zeros((2, width), dtype=torch.float64)
        at = sums._storage.base
        places = [_place(each) for each in (made, g, x, weight)]
        call(js.norm_back, *sum(places, ()), at, at + width, kept._storage.base, count, width, root)
        first, second = (each if each is None else each.shape for each in (weight, bias))
        return (
            made,
            None if first is None else sums[0].reshape(first).to(weight.dtype),
            None if second is None else sums[1].reshape(second).to(bias.dtype),
        )

    return record(found, name, (input, weight, bias), back, input, weight, kept)


def _place(tensor):
    """Where the numbers of a tensor begin, and the code of their type; 0 where there is none."""
    return (0, 0) if tensor is None else (tensor._storage.base + tensor._offset, tensor.dtype.code)


def _norm_back(above, input, weight, bias, dims, eps, root):
    """The gradients of a norm, by operations that can be differentiated again."""
    far = input if root else input - input.mean(dims, keepdim=True)
    by = (far.square().mean(dims, keepdim=True) + eps).rsqrt()
    even, up = far * by, above if weight is None else above * weight
    rest = up - even * (up * even).mean(dims, keepdim=True)
    rest = rest if root else rest - up.mean(dims, keepdim=True)
    return (
        rest * by,
        None if weight is None else (above * even).sum_to_size(weight.shape),
        None if bias is None else above.sum_to_size(bias.shape),
    )


def _reduced(losses, reduction, name=None):
    """Return losses one by one, their sum or their mean, under the name that PyTorch has for all of it."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    found = losses if reduction == "none" else getattr(losses, reduction)()
    return titled(found, name) if name else found


def nll_loss(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"
):  # fmt: skip
    _old(size_average, reduce)
    if input.dim() < 1:
        raise RuntimeError("input tensor should be 1D or 2D")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    classes = 0 if input.dim() == 1 else 1
    if input.dim() > 1 and target.dim() and len(input) != len(target):
        raise ValueError(
            f"Expected input batch_size ({len(input)}) to match target batch_size ({len(target)})."
        )
    shape = input.shape[:classes] + input.shape[classes + 1 :]
    if target.shape != shape:
        raise RuntimeError(f"Expected target size {[*shape]}, got {[*target.shape]}")
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, but got {target.dtype.scalar}"
        )
    only_floats("nll_loss_out_frame", input)
    name = "NllLoss2DBackward0" if input.dim() > 2 else "NllLossBackward0"
    count, numbers = input.size(classes), target._flat()
    for number in numbers:
        if number != ignore_index and not 0 <= number < count:
            raise IndexError(f"Target {number} is out of bounds.")
    if weight is None and ignore_index not in numbers:
        losses = -input.gather(classes, target.long().unsqueeze(classes)).squeeze(classes)
        return _reduced(losses, reduction, name)
    counted = target != ignore_index
    places = target.long().masked_fill(~counted, 0)
    shares = counted.to(input.dtype) if weight is None else weight[places] * counted
    losses = -input.gather(classes, places.unsqueeze(classes)).squeeze(classes) * shares
    losses = losses.masked_fill(~counted, 0)
    found = losses.sum() / shares.sum() if reduction == "mean" else _reduced(losses, reduction)
    return titled(found, name)


def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
):  # fmt: skip
    _old(size_average, reduce)
    classes = 0 if input.dim() == 1 else 1
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    logs = input.log_softmax(classes)
    if target.shape == input.shape and target.is_floating_point():
        count = input.size(classes)
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / count
        products = logs * target if weight is None else logs * target * _along(weight, logs)
        losses = -products.sum(classes)
        if reduction == "mean" and not input.numel():
            return titled(losses.sum() * math.nan, "NegBackward0")
        if reduction == "mean":
            return titled(losses.sum() / max(losses.numel(), 1), "DivBackward1")
        return _reduced(losses, reduction)
    found = nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if not label_smoothing:
        return found
    counted = target != ignore_index
    spread = logs if weight is None else logs * _along(weight, logs)
    spread = -spread.sum(classes).masked_fill(~counted, 0)
    if reduction == "mean":
        shares = counted if weight is None else weight[target.masked_fill(~counted, 0)] * counted
        spread = spread.sum() / shares.sum()
    elif reduction == "sum":
        spread = spread.sum()
    share = label_smoothing / input.size(classes)
    return (1 - label_smoothing) * found + share * spread


def _along(weight, logs):
    """The weights of classes, shaped to be multiplied with the classes of `logs`."""
    return weight.reshape(-1, *[1] * max(logs.dim() - 2, 0))


def _old(size_average, reduce):
    if size_average is not None or reduce is not None:
        raise lacks("a loss with size_average or reduce, in place of reduction,")


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    _old(size_average, reduce)
    if weight is not None:
        raise lacks("mse_loss(weight=)")
    kind = _ops.result_type(input, target)
    input, target = (each.to(kind) for each in torch.broadcast_tensors(input, target))
    only_floats("mse_cpu", input)
    return _reduced((input - target).square(), reduction, "MseLossBackward0")


def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    _old(size_average, reduce)
    if weight is not None:
        raise lacks("l1_loss(weight=)")
    input, target = torch.broadcast_tensors(input, target)
    return _reduced((input - target).abs(), reduction)


def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):  # fmt: skip
    _old(size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    only_floats("log_sigmoid_cpu", input)
    logs = logsigmoid(input)
    if pos_weight is None:
        losses = (1 - target) * input - logs
    else:
        losses = (1 - target) * input - ((pos_weight - 1) * target + 1) * logs
    if weight is not None:
        losses = losses * weight
    if target.dtype.kind < 2:
        raise RuntimeError(
            f"result type {input.dtype.scalar} can't be cast to the desired output type {target.dtype.scalar}"
        )
    return _reduced(losses.to(target.dtype), reduction, "BinaryCrossEntropyWithLogitsBackward0")


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """softmax(query keyᵀ · scale + mask) value; a row of scores in which nothing is left gives zeros."""
    _check(query, key, value, attn_mask)
    if attn_mask is not None and is_causal:
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    if enable_gqa:
        key, value = _repeated(query, key), _repeated(query, value)
    scores = (query * (1 / math.sqrt(query.size(-1)) if scale is None else scale)) @ key.mT
    if is_causal and not scores.is_meta:
        scores = scores.masked_fill(_future(query.size(-2), key.size(-2)), -math.inf)
    if attn_mask is None:
        return dropout(scores.softmax(-1), dropout_p) @ value
    if attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
        empty = ~attn_mask.any(-1, keepdim=True)
    else:
        scores = scores + attn_mask.to(scores.dtype)
        empty = (attn_mask.detach() == -math.inf).all(-1, keepdim=True)
    if scores.is_meta or not empty.any():
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    return dropout(weights, dropout_p) @ value


@cache
def _future(queries, keys):
    """True where a key comes after a query."""
    return torch.ones(queries, keys, dtype=torch.bool).triu(1)


def _check(query, key, value, attn_mask):
    """Refuse what PyTorch refuses."""
    kinds = {name: x.dtype for name, x in (("query", query), ("key", key), ("value", value))}
    if not kinds["query"] is kinds["key"] is kinds["value"]:
        kinds = {name: _plain(kind) for name, kind in kinds.items()}
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {kinds['query']} "
            f"key.dtype: {kinds['key']} and value.dtype: {kinds['value']} instead."
        )
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.dim()} key.dim: {key.dim()} and value.dim: {value.dim()} instead."
        )
    if not query.is_floating_point():
        raise RuntimeError(f"expected scalar type Float but found {query.dtype.scalar}")
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{_plain(attn_mask.dtype)} and  query.dtype: {_plain(query.dtype)} instead."
        )


def _plain(dtype):
    """The name of a dtype as these errors write it."""
    names = {"float32": "float", "float64": "double", "int64": "long int", "int32": "int"}
    name = str(dtype).removeprefix("torch.")
    return names.get(name, {"float16": "c10::Half", "bfloat16": "c10::BFloat16"}.get(name, name))


def _repeated(query, tensor):
    """Each head of keys or values as often as queries share it."""
    times, rest = divmod(query.size(-3), tensor.size(-3))
    if rest:
        raise RuntimeError("Number of heads in key and value must divide the number of heads in ")
    return tensor if times == 1 else tensor.repeat_interleave(times, -3)


for _name, _function in [*globals().items()]:
    if getattr(_function, "__module__", "") == __name__ and _name[0] != "_":
        globals()[_name] = checked(
            _name, _function, dim=WHOLE, value=TENSOR if _name[0] == "s" else NUMBER
        )
__getattr__ = absent("torch.nn.functional", globals())
