"""Finds, without running it, code that makes a tensor and does not say on which device."""

import ast

from torch.utils._device import _device_constructors


def made_without_device(node):
    """The calls that make a tensor, outside of a constructor, without saying on which device."""
    makes = {function.__name__ for function in _device_constructors()}
    found = []
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
            continue
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Attribute)
            and ast.unparse(inner.func) == f"torch.{inner.func.attr}"
            and inner.func.attr in makes
            and not any(option.arg in ("device", None) for option in inner.keywords)
        ):
            found.append(f"line {inner.lineno}: {ast.unparse(inner)}")
        found += made_without_device(inner)
    return found
