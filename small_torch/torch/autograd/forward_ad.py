"""Forward derivatives, which the small torch does not have."""

from torch._signatures import absent

__getattr__ = absent("torch.autograd.forward_ad", globals())
