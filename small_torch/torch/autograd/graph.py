"""What is done with tensors that a backward pass needs."""

from torch._autograd import Mode, Node

__all__ = ["Node", "saved_tensors_hooks"]


class saved_tensors_hooks:  # noqa: N801 - PyTorch's name
    """Inside, `pack_hook` says what is kept in place of a tensor, and `unpack_hook` makes the tensor of it again."""

    def __init__(self, pack_hook, unpack_hook):
        self.pair = pack_hook, unpack_hook

    def __enter__(self):
        Mode.saving = (*Mode.saving, self.pair)

    def __exit__(self, *_):
        Mode.saving = Mode.saving[:-1]
