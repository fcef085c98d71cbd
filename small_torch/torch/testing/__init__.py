"""Assertions about tensors."""

import torch

TOLERANCE = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}


def assert_close(
    actual, expected, *, rtol=None, atol=None, equal_nan=False, check_dtype=True, check_device=True, check_stride=False,
    msg=None,
):  # fmt: skip
    """Raise an AssertionError that says how two tensors, or sequences of them, differ."""
    if isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)):
        if len(actual) != len(expected):
            raise AssertionError(
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            )
        for first, second in zip(actual, expected, strict=True):
            assert_close(
                first,
                second,
                rtol=rtol,
                atol=atol,
                equal_nan=equal_nan,
                check_dtype=check_dtype,
                msg=msg,
            )
        return
    what = "Tensor-likes" if isinstance(expected, torch.Tensor) and expected.dim() else "Scalars"
    actual, expected = _tensor_of(actual), _tensor_of(expected)
    told = _difference(actual, expected, rtol, atol, equal_nan, check_dtype, what)
    if told:
        raise AssertionError(told if msg is None else msg(told) if callable(msg) else msg)


def _tensor_of(value):
    """A tensor of what is compared; a float of Python has all its digits."""
    return torch.as_tensor(
        value, dtype=torch.float64 if isinstance(value, float) else None
    ).detach()


def _difference(actual, expected, rtol, atol, equal_nan, check_dtype, what):
    if actual.shape != expected.shape:
        return f"The values for attribute 'shape' do not match: {actual.shape} != {expected.shape}."
    if check_dtype and actual.dtype is not expected.dtype:
        return f"The values for attribute 'dtype' do not match: {actual.dtype} != {expected.dtype}."
    kinds = [TOLERANCE.get(x.dtype, (0.0, 0.0)) for x in (actual, expected)]
    rtol = max(kind[0] for kind in kinds) if rtol is None else rtol
    atol = max(kind[1] for kind in kinds) if atol is None else atol
    kind = torch.promote_types(actual.dtype, expected.dtype)
    first, second = actual.to(kind), expected.to(kind)
    close = torch.isclose(first, second, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if close.all():
        return ""
    count, wrong = close.numel(), int((~close).sum())
    far = (first - second).abs().masked_fill(close, 0)
    share = far / second.abs()
    exact = rtol == atol == 0
    if what == "Scalars":
        allowed = (
            "" if exact else f" (up to {atol} allowed)",
            "" if exact else f" (up to {rtol} allowed)",
        )
        return (
            f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected.item()} but got "
            f"{actual.item()}.\nAbsolute difference: {far.item()}{allowed[0]}\nRelative difference: "
            f"{share.item()}{allowed[1]}"
        )

    def greatest(numbers, allowed):
        at = int(numbers.argmax())
        place = []
        for size in reversed(actual.shape):
            at, index = divmod(at, size)
            place.insert(0, index)
        note = "" if exact else f" (up to {allowed} allowed)"
        return f"{numbers[tuple(place)].item()} at index {tuple(place)}{note}"

    return (
        f"Tensor-likes are not {'equal' if exact else 'close'}!\n\nMismatched elements: {wrong} / {count} "
        f"({wrong / count:.1%})\nGreatest absolute difference: {greatest(far, atol)}\nGreatest relative "
        f"difference: {greatest(share, rtol)}"
    )
