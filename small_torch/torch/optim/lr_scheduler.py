"""Learning rates that change from step to step."""

import math

from torch._signatures import absent


class LRScheduler:
    """Sets the learning rates of an optimizer anew at each step; `get_lr` says to what."""

    def __init__(self, optimizer, last_epoch=-1):
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group["initial_lr"] = group["lr"]
            elif "initial_lr" not in group:
                raise KeyError(
                    "param 'initial_lr' is not specified in param_groups when resuming an optimizer"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.step()

    def step(self, epoch=None):
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = lr
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self):
        return self._last_lr

    def _rates(self):
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self):
        return {
            name: value
            for name, value in vars(self).items()
            if name != "optimizer" and not callable(value)
        }

    def load_state_dict(self, state_dict):
        vars(self).update(state_dict)


class LambdaLR(LRScheduler):
    """The first rate, times a function of the number of steps."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        count = len(optimizer.param_groups)
        several = isinstance(lr_lambda, list | tuple)
        if several and len(lr_lambda) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(lr_lambda)}")
        self.lr_lambdas = [*lr_lambda] if several else [lr_lambda] * count
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * function(self.last_epoch) for base, function in pairs]


class StepLR(LRScheduler):
    """Times gamma after each `step_size` steps."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._rates()
        return [rate * self.gamma for rate in self._rates()]


class ExponentialLR(LRScheduler):
    """Times gamma after each step."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return self._rates() if self.last_epoch == 0 else [r * self.gamma for r in self._rates()]


class CosineAnnealingLR(LRScheduler):
    """From the first rate to `eta_min` along half a cosine of `T_max` steps."""

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        at, most, least = self.last_epoch, self.T_max, self.eta_min
        if at == 0:
            return self._rates()
        if (at - 1 - most) % (2 * most) == 0:
            part = (1 - math.cos(math.pi / most)) / 2
            pairs = zip(self.base_lrs, self._rates(), strict=True)
            return [rate + (base - least) * part for base, rate in pairs]
        share = (1 + math.cos(math.pi * at / most)) / (1 + math.cos(math.pi * (at - 1) / most))
        return [share * (rate - least) + least for rate in self._rates()]


__getattr__ = absent("torch.optim.lr_scheduler", globals())
