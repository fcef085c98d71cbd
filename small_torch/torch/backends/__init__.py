"""What PyTorch may compute with: here, nothing but the page."""

from torch._signatures import absent


class Backend:
    """A processor or a library that a page has not; settings of it may be written."""

    @staticmethod
    def is_available():
        return False


mps, cuda, cudnn, mkldnn = (
    type(name, (Backend,), {})() for name in ("mps", "cuda", "cudnn", "mkldnn")
)
__getattr__ = absent("torch.backends", globals())
