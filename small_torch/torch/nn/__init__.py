"""The modules of `torch.nn` that the book uses."""

from torch._signatures import absent
from torch.nn import functional, init
from torch.nn._layers import (
    GELU,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    L1Loss,
    LayerNorm,
    Linear,
    MSELoss,
    NLLLoss,
    ReLU,
    RMSNorm,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from torch.nn._module import Module, ModuleDict, ModuleList, Parameter, ParameterList, Sequential

__all__ = [
    "GELU",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "L1Loss",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss",
    "Parameter",
    "ParameterList",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "functional",
    "init",
]


PLACES = {
    "attention": "torch.nn.attention",
    "utils": "torch.nn.utils",
    "MultiheadAttention": "torch.nn._multihead:MultiheadAttention",
}
__getattr__ = absent("torch.nn", globals(), PLACES)
