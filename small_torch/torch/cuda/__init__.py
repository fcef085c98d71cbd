"""What a page knows of GPUs: that it has none."""

from torch._signatures import absent


def is_available():
    return False


def device_count():
    return 0


def is_initialized():
    return False


def manual_seed(seed):
    """Do nothing: there is no stream of random numbers on a GPU."""


manual_seed_all = manual_seed


def empty_cache():
    """Do nothing: there is no memory of a GPU."""


__getattr__ = absent("torch.cuda", globals())
