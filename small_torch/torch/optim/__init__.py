"""Optimizers: what takes a step against the gradients."""

import math
from collections import defaultdict

import torch
from torch import _ops
from torch._signatures import absent, lacks


class Optimizer:
    """Groups of parameters, each with its settings, and what is remembered of each parameter."""

    def __init__(self, params, defaults):
        if isinstance(params, torch.Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                + params.type()
            )
        self.defaults, self.state, self.param_groups = defaults, defaultdict(dict), []
        params = list(params)
        if not params:
            raise ValueError("optimizer got an empty parameter list")
        for group in params if isinstance(params[0], dict) else [{"params": params}]:
            self.add_param_group(group)

    def add_param_group(self, param_group):
        held = param_group["params"]
        held = [held] if isinstance(held, torch.Tensor) else list(held)
        for place, parameter in enumerate(held):
            if isinstance(parameter, tuple):
                held[place] = parameter = parameter[1]
            if not isinstance(parameter, torch.Tensor):
                kind = type(parameter).__name__
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {kind}"
                )
            if not parameter.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        self.param_groups.append({**self.defaults, **param_group, "params": held})

    def zero_grad(self, set_to_none=True):
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad.zero_()

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        gradient = -parameter.grad if group["maximize"] else parameter.grad
                        self._move(parameter, gradient, group, self.state[parameter])
        return loss

    def state_dict(self):
        """Return settings and what is remembered, each parameter by its number."""
        numbers = self._numbers()
        groups = [
            {**group, "params": [numbers[parameter] for parameter in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers[parameter]: held for parameter, held in self.state.items()}
        return {"state": state, "param_groups": groups}

    def _numbers(self):
        return {
            each: at
            for at, each in enumerate(p for group in self.param_groups for p in group["params"])
        }

    def load_state_dict(self, state_dict):
        given = state_dict["param_groups"]
        if len(given) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(
            len(a["params"]) != len(b["params"])
            for a, b in zip(given, self.param_groups, strict=True)
        ):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        for group, other in zip(self.param_groups, given, strict=True):
            group.update({name: value for name, value in other.items() if name != "params"})
        parameters = [*self._numbers()]
        places = [at for group in given for at in group["params"]]
        self.state.clear()
        for at, parameter in zip(places, parameters, strict=True):
            if at in state_dict["state"]:
                held = state_dict["state"][at]
                self.state[parameter] = {
                    name: value.clone() if isinstance(value, torch.Tensor) else value
                    for name, value in held.items()
                }

    def __repr__(self):
        lines = []
        for place, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {place}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


def _not_differentiable(differentiable):
    if differentiable:
        raise lacks("an optimizer with differentiable=True")


def _not_negative(**values):
    names = {"lr": "learning rate", "eps": "epsilon value", "weight_decay": "weight_decay value"}
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"Invalid {names.get(name, name + ' value')}: {value}")


class SGD(Optimizer):
    """A step of `lr` against the gradient."""

    def __init__(
        self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, foreach=None,
        differentiable=False, fused=None,
    ):  # fmt: skip
        _not_differentiable(differentiable)
        _not_negative(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        settings = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
        }
        super().__init__(
            params, {**settings, "nesterov": nesterov, "maximize": maximize, **_UNUSED}
        )

    def _move(self, parameter, gradient, group, state):
        if group["weight_decay"]:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
        if group["momentum"]:
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = gradient.clone()
            else:
                state["momentum_buffer"].mul_(group["momentum"]).add_(
                    gradient, alpha=1 - group["dampening"]
                )
            moved = state["momentum_buffer"]
            gradient = gradient.add(moved, alpha=group["momentum"]) if group["nesterov"] else moved
        parameter.add_(gradient, alpha=-group["lr"])


class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square."""

    decoupled = False

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None, maximize=False,
        capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False,
    ):  # fmt: skip
        _not_differentiable(differentiable)
        self.decoupled = self.decoupled or decoupled_weight_decay
        _not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        for place, beta in enumerate(betas):
            if not 0 <= beta < 1:
                raise ValueError(f"Invalid beta parameter at index {place}: {beta}")
        if amsgrad:
            raise lacks(f"{type(self).__name__}(amsgrad=True)")
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
        }
        extra = {"capturable": False, "decoupled_weight_decay": self.decoupled}
        super().__init__(params, {**settings, "maximize": maximize, **extra, **_UNUSED})

    def _move(self, parameter, gradient, group, state):
        first, second = group["betas"]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = (
                torch.zeros_like(parameter),
                torch.zeros_like(parameter),
            )
        state["step"] += 1
        step, mean, square = state["step"].item(), state["exp_avg"], state["exp_avg_sq"]
        if self.decoupled and _ops.adamw(parameter, gradient, mean, square, group, step):
            return
        if group["weight_decay"]:
            if self.decoupled:
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
            else:
                gradient = gradient.add(parameter, alpha=group["weight_decay"])
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        size = group["lr"] / (1 - first**step)
        below = (square.sqrt() / math.sqrt(1 - second**step)).add_(group["eps"])
        parameter.addcdiv_(mean, below, value=-size)


class AdamW(Adam):
    """Adam, whose weight decay is apart from the gradient."""

    decoupled = True

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False, foreach=None,
        capturable=False, differentiable=False, fused=None,
    ):  # fmt: skip
        _not_differentiable(differentiable)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


# Settings of PyTorch's that change nothing here, and stand in what a group prints.
_UNUSED = {"foreach": None, "differentiable": False, "fused": None}


PLACES = {"lr_scheduler": "torch.optim.lr_scheduler"}
__getattr__ = absent("torch.optim", globals(), PLACES)
