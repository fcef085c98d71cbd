"""The modules of `torch.nn` that the book uses."""

import importlib

from torch.nn import functional, init
from torch.nn._layers import (
    GELU,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    LayerNorm,
    Linear,
    MSELoss,
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
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "Module",
    "ModuleDict",
    "ModuleList",
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


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name in ("attention", "utils"):
        return importlib.import_module(f"torch.nn.{name}")
    if name == "MultiheadAttention":
        return importlib.import_module("torch.nn._multihead").MultiheadAttention
    raise NotImplementedError(
        f"torch.nn.{name} is not in the small torch of this page; open the page in Colab"
    )
