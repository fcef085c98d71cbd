"""What `torch.nn.utils` does with the gradients of a model."""

import torch
from torch._signatures import absent
from torch.nn.utils import rnn as rnn


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0):
    """Scale all gradients together, so that their norm is at most `max_norm`; returns what it was."""
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    gradients = [each.grad for each in parameters if each.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    norms = torch.stack([gradient.norm(norm_type) for gradient in gradients])
    total = norms.norm(norm_type)
    share = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(share)
    return total


__getattr__ = absent("torch.nn.utils", globals())
