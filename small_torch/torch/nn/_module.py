"""Modules: what holds parameters, buffers and other modules, and knows them by name."""

from collections import OrderedDict, namedtuple
from itertools import chain, count

import torch
from torch import Tensor
from torch._signatures import lacks

HOOKS = count()
KINDS_OF_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Parameter(Tensor):
    """A tensor that a module learns."""

    def __new__(cls, data=None, requires_grad=True):
        data = torch.empty(0) if data is None else data
        if requires_grad and data.dtype.kind < 2:
            raise RuntimeError(
                "Only Tensors of floating point and complex dtype can require gradients"
            )
        return Tensor._make_subclass(cls, data.detach(), requires_grad)

    def __init__(self, data=None, requires_grad=True):
        pass

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = Parameter(self.detach().clone(), self.requires_grad)
        return memo[id(self)]


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The names that a state lacks, and those that it should not have."""

    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()


class Hook:
    """What takes a module's hook away again."""

    def __init__(self, hooks, hook):
        self.hooks, self.id = hooks, next(HOOKS)
        hooks[self.id] = hook

    def remove(self):
        self.hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class Module:
    """What computes, and holds what it computes with."""

    training = True

    def __init__(self):
        put = object.__setattr__
        put(self, "training", True)
        for held in ("_parameters", "_buffers", "_modules", *KINDS_OF_HOOKS):
            put(self, held, {})
        put(self, "_non_persistent_buffers_set", set())

    def forward(self, *_):
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args, **kwargs):
        own = self.__dict__
        if not own["_forward_pre_hooks"] and not own["_forward_hooks"]:
            return self.forward(*args, **kwargs)
        for hook in [*self._forward_pre_hooks.values()]:
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        found = self.forward(*args, **kwargs)
        for hook in [*self._forward_hooks.values()]:
            changed = (
                hook(self, args, kwargs, found)
                if hook in WITH_KEYWORDS
                else hook(self, args, found)
            )
            if changed is not None:
                found = changed
        return found

    # What it holds.
    def __getattr__(self, name):
        for held in ("_parameters", "_buffers", "_modules"):
            things = self.__dict__.get(held)
            if things is not None and name in things:
                return things[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name, value):
        own = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in own:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name)
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in own:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name)
            self._modules[name] = value
        else:
            for held, what in (
                ("_parameters", "parameter '{}' (torch.nn.Parameter or None expected)"),
                ("_modules", "child module '{}' (torch.nn.Module or None expected)"),
                ("_buffers", "buffer '{}' (torch.Tensor or None expected)"),
            ):
                if name in own.get(held, ()):
                    if value is not None and not (held == "_buffers" and isinstance(value, Tensor)):
                        kind = (
                            value.type() if isinstance(value, Tensor) else torch_name(type(value))
                        )
                        raise TypeError(f"cannot assign '{kind}' as {what.format(name)}")
                    own[held][name] = value
                    return
            object.__setattr__(self, name, value)

    def _forget(self, name):
        for things in (self.__dict__, self._parameters, self._buffers, self._modules):
            things.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name):
        for things in (self._parameters, self._buffers, self._modules):
            if name in things:
                del things[name]
                return
        object.__delattr__(self, name)

    def register_parameter(self, name, param):
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{torch_name(type(param))}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. "
                f"To express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{torch_name(type(tensor))}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        self._buffers[name] = tensor
        (
            self._non_persistent_buffers_set.discard
            if persistent
            else self._non_persistent_buffers_set.add
        )(name)

    def add_module(self, name, module):
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{torch_name(type(module))} is not a Module subclass")
        self._modules[name] = module

    register_module = add_module

    def get_submodule(self, target):
        found = self
        for part in target.split(".") if target else ():
            found = getattr(found, part)
        return found

    def get_parameter(self, target):
        module, _, name = target.rpartition(".")
        return getattr(self.get_submodule(module), name)

    get_buffer = get_parameter

    def named_children(self):
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
        return (module for _, module in self.named_children())

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, inner, remove_duplicate)

    def modules(self):
        return (module for _, module in self.named_modules())

    def _named(self, held, prefix, recurse, remove_duplicate):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in modules if recurse else [(prefix, self)]:
            for name, tensor in getattr(module, held).items():
                if tensor is None or id(tensor) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(tensor))
                yield (f"{path}.{name}" if path else name), tensor

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    # Its state, by name.
    def _own_state(self):
        """Parameters and buffers that are stored, by their names in this module."""
        kept = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        return {k: v for k, v in {**self._parameters, **kept}.items() if v is not None}

    def state_dict(self, *, destination=None, prefix="", keep_vars=False):
        found = OrderedDict() if destination is None else destination
        for name, tensor in self._own_state().items():
            found[prefix + name] = tensor if keep_vars else tensor.detach()
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return found

    def load_state_dict(self, state_dict, strict=True, assign=False):
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        wanted, missing, errors = set(), [], []
        for path, module in self.named_modules(remove_duplicate=False):
            for name, held in module._own_state().items():
                full = f"{path}.{name}" if path else name
                wanted.add(full)
                if full not in state_dict:
                    missing.append(full)
                    continue
                error = module._take(name, held, state_dict[full], full, assign)
                if error:
                    errors.append(error)
        unexpected = [name for name in state_dict if name not in wanted]
        if strict:
            for kind, names in (("Unexpected", unexpected), ("Missing", missing)):
                if names:
                    quoted = ", ".join(f'"{name}"' for name in names)
                    errors.insert(0, f"{kind} key(s) in state_dict: {quoted}. ")
        if errors:
            told = "\n\t".join(errors)
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{told}"
            )
        return _IncompatibleKeys(missing, unexpected)

    def _take(self, name, held, given, full, assign):
        """Copy a tensor into this module's own, or put it in its place; return what is wrong, if anything."""
        if not isinstance(given, Tensor):
            return (
                f'While copying the parameter named "{full}", expected torch.Tensor or Tensor-like object from '
                f"checkpoint but received {type(given)}"
            )
        if given.shape != held.shape:
            return (
                f"size mismatch for {full}: copying a param with shape {given.shape} from checkpoint, the shape "
                f"in current model is {held.shape}."
            )
        if assign:
            if isinstance(held, Parameter) and not isinstance(given, Parameter):
                given = Parameter(given, held.requires_grad)
            setattr(self, name, given)
        else:
            with torch.no_grad():
                held.copy_(given)
        return None

    # What is done to all of it.
    def apply(self, fn):
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn, recurse=True):
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            with torch.no_grad():
                made = fn(parameter)
            if made.is_meta == parameter.is_meta:
                parameter.data = made
                if parameter.grad is not None:
                    parameter.grad = fn(parameter.grad.detach())
            else:
                self._parameters[name] = Parameter(made, parameter.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        def move(tensor):
            kind = [thing for thing in (*args, *kwargs.values()) if isinstance(thing, torch.dtype)]
            if kind and not tensor.is_floating_point():
                return tensor
            return tensor.to(*args, **kwargs)

        return self._apply(move)

    def _as(self, dtype):
        return self._apply(
            lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor
        )

    def float(self):
        return self._as(torch.float32)

    def double(self):
        return self._as(torch.float64)

    def half(self):
        return self._as(torch.float16)

    def bfloat16(self):
        return self._as(torch.bfloat16)

    def type(self, dst_type):
        return self._apply(lambda tensor: tensor.to(dst_type))

    def cpu(self):
        return self

    def to_empty(self, *, device, recurse=True):
        return self._apply(lambda tensor: torch.empty_like(tensor, device=device), recurse)

    def train(self, mode=True):
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    # Who else is called.
    def register_forward_pre_hook(self, hook):
        return Hook(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook, *, with_kwargs=False):
        if with_kwargs:
            WITH_KEYWORDS.add(hook)
        return Hook(self._forward_hooks, hook)

    def register_full_backward_hook(self, hook, prepend=False):
        raise lacks("Module.register_full_backward_hook")

    # How it prints.
    def extra_repr(self):
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        extra = self.extra_repr()
        lines = [_indented(f"({name}): {module!r}") for name, module in self._modules.items()]
        if not lines:
            inside = extra if "\n" not in extra else "\n  " + _indented(extra) + "\n"
            return f"{self._get_name()}({inside})"
        above = extra.split("\n") if extra else []
        return f"{self._get_name()}(\n  " + "\n  ".join(above + lines) + "\n)"

    def __dir__(self):
        return sorted(chain(super().__dir__(), self._parameters, self._buffers, self._modules))


WITH_KEYWORDS = set()  # the hooks that are given keywords, too


def _indented(text):
    return text.replace("\n", "\n  ")


def torch_name(kind):
    """A type's name as PyTorch's errors write it: with its module, but for what Python has built in."""
    module = kind.__module__
    if kind is Tensor:
        return "torch.FloatTensor"
    return kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}"


class Sequential(Module):
    """Modules that are called one after another."""

    def __init__(self, *args):
        super().__init__()
        named = (
            args[0].items()
            if len(args) == 1 and isinstance(args[0], OrderedDict)
            else enumerate(args)
        )
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input):
        for module in self:
            input = module(input)
        return input

    def __iter__(self):
        return iter(self._modules.values())

    def __len__(self):
        return len(self._modules)

    def __getitem__(self, place):
        modules = [*self._modules.values()]
        return type(self)(*modules[place]) if isinstance(place, slice) else modules[place]

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self


class ModuleList(Module):
    """A list whose modules belong to the module that holds it."""

    def __init__(self, modules=None):
        super().__init__()
        self.extend(modules or ())

    def __iter__(self):
        return iter(self._modules.values())

    def __len__(self):
        return len(self._modules)

    def __getitem__(self, place):
        modules = [*self._modules.values()]
        return type(self)(modules[place]) if isinstance(place, slice) else modules[place]

    def __setitem__(self, place, module):
        self._modules[[*self._modules][place]] = module

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        for module in modules:
            self.append(module)
        return self

    def __repr__(self):
        """Equal modules that follow each other are printed once, with their number."""
        runs = []  # first, last, what it prints
        for place, module in enumerate(self):
            shown = repr(module)
            if runs and runs[-1][2] == shown:
                runs[-1][1] = place
            else:
                runs.append([place, place, shown])
        if not runs:
            return f"{self._get_name()}()"
        lines = [
            _indented(
                f"({first}): {shown}"
                if first == last
                else f"({first}-{last}): {last - first + 1} x {shown}"
            )
            for first, last, shown in runs
        ]
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """Modules by name, which belong to the module that holds it."""

    def __init__(self, modules=None):
        super().__init__()
        for name, module in dict(modules or {}).items():
            self.add_module(name, module)

    def __getitem__(self, name):
        return self._modules[name]

    def __setitem__(self, name, module):
        self.add_module(name, module)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, name):
        return name in self._modules

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values=None):
        super().__init__()
        for place, value in enumerate(values or ()):
            value = value if isinstance(value, Parameter) else Parameter(value)
            self.register_parameter(str(place), value)

    def __iter__(self):
        return iter(self._parameters.values())

    def __len__(self):
        return len(self._parameters)

    def __getitem__(self, place):
        return [*self._parameters.values()][place]
