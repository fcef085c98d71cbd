"""Forward derivatives, which the small torch does not have."""


def __getattr__(name):
    raise AttributeError(
        f"torch.autograd.forward_ad.{name} is not in the small torch of this page; open the page in Colab"
    )
