"""Parts of the keys, attended to apart and merged, are attention, gradients too."""

from functools import partial

import torch
import torch.nn.functional as F

from snippets import online_softmax as file
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, T, alike, close, draw, heads, wide


def leaves(T_q=3, T_k=7, dtype=torch.float64):
    """Query, key and value, each asking for its gradient."""
    shapes = (T_q, 4), (T_k, 4), (T_k, 5)
    return [draw(2, *s, seed=i, dtype=dtype).requires_grad_() for i, s in enumerate(shapes)]


def in_parts(module, query, key, value, mask, ends, **options):
    """Attend to the keys up to each of `ends` in turn, and return the parts."""
    starts = [0, *ends[:-1]]
    masks = [None if mask is None else mask[..., i:j] for i, j in zip(starts, ends, strict=True)]
    return [
        module.attend_part(query, key[..., i:j, :], value[..., i:j, :], seen, **options)
        for i, j, seen in zip(starts, ends, masks, strict=True)
    ]


def merged(module, parts, seed=0):
    """Merge the parts two by two, along a random tree."""
    generator, parts = torch.Generator().manual_seed(seed), list(parts)
    while len(parts) > 1:
        i, j = torch.randperm(len(parts), generator=generator)[:2].tolist()
        both = module.merge(parts[i], parts[j])
        parts = [*(part for k, part in enumerate(parts) if k not in (i, j)), both]
    return parts[0]


def oracle(query, key, value, mask):
    """PyTorch's operator, with context 0 for a query that sees no key."""
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    some = mask.any(dim=-1, keepdim=True)
    return F.scaled_dot_product_attention(query, key, value, mask | ~some).masked_fill(~some, 0.0)


MASKS = (
    None,
    torch.ones(3, 7, dtype=torch.bool).tril(),
    torch.tensor([[True] * 7, [False] * 7, [False] * 6 + [True]]),  # a row without keys
    draw(2, 3, 7) > 0,
)


def test_random_trees_of_merges_are_attention_and_its_logsumexp(part):
    for mask in MASKS:
        for dtype, bar in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
            inputs = leaves(dtype=dtype)
            wanted = oracle(*inputs, mask)
            for seed in range(2):  # two of the five parts hold no keys
                parts = in_parts(part, *inputs, mask, (0, 2, 3, 3, 7))
                assert alike(merged(part, parts, seed).context(), wanted, inputs, bar)
    inputs = leaves()
    sums = merged(part, in_parts(part, *inputs, None, (2, 7), scale=0.3)).logsumexp()
    wanted = torch.logsumexp(inputs[0] @ inputs[1].mT * 0.3, dim=-1)
    assert alike(sums, wanted, inputs[:2])


def test_an_empty_part_changes_nothing(part):
    """The identity, bit for bit: no keys at all, or none that may be seen."""
    query, key, value = leaves()
    piece = part.attend_part(query, key, value)
    for nothing in (
        part.attend_part(query, key[..., :0, :], value[..., :0, :]),
        part.attend_part(query, key, value, torch.zeros(3, 7, dtype=torch.bool)),
    ):
        for both in (part.merge(piece, nothing), part.merge(nothing, piece)):
            assert all(map(torch.equal, both, piece))
        twice = part.merge(nothing, nothing)
        assert (twice.context() == 0).all()
        assert (twice.maximum == -torch.inf).all()
        assert (twice.logsumexp() == -torch.inf).all()


def test_scores_of_ten_thousand_are_right_gradients_too(part):
    """In float32: whole numbers, so that products are exact; all at ±1e4, or thousands apart."""
    generator = torch.Generator().manual_seed(0)
    for offset, scale in ((1e4, 1.0), (-1e4, 1.0), (1.0, 1000.0)):
        query, key = torch.randint(-3, 4, (2, 6, 4), generator=generator).float()
        query[:, 0], key[:, 0] = 1.0, offset
        inputs = [x.requires_grad_() for x in (query, key, draw(6, 3, dtype=torch.float32))]
        result = merged(part, in_parts(part, *inputs, None, (1, 5, 6), scale=scale)).context()
        wide = [x.double() for x in inputs]
        wanted = F.scaled_dot_product_attention(*wide, scale=scale)
        # What rounding leaves of a weight, 1e-7, d_query multiplies by the scale and the keys.
        assert close(result.double(), wanted, 1e-5)
        assert alike(result.double(), wanted, inputs, 1e-5 * scale * abs(offset))


def test_a_kernels_results_can_be_merged(part):
    """Contexts and logsumexps, as kernels hand them over, carry the gradients of both."""
    inputs = leaves()
    parts = in_parts(part, *inputs, MASKS[2], (3, 5, 7))
    handed = [part.from_context(piece.context(), piece.logsumexp()) for piece in parts]
    result, wanted = merged(part, handed).context(), oracle(*inputs, MASKS[2])
    assert close(result, wanted)
    assert alike(result[:, 0], wanted[:, 0], inputs)  # a row that sees keys in each part


def test_what_would_be_misread_is_refused(part):
    """A mask for each text, or for none; numbers to add; a logsumexp as wide as keepdim leaves it."""
    inputs = [x[:, None] for x in leaves()]
    for mask in (torch.ones(2, 3, 7) > 0, torch.ones(7) > 0, torch.zeros(3, 7)):
        refuses(f"{mask.shape}", partial(part.attend_part, *inputs, mask))
    refuses("keepdim", part.from_context, torch.zeros(2, 3, 5), torch.zeros(2, 3, 1))


WRONG = {
    "the values are not rescaled": ("part.weighted * factor[..., None]", "part.weighted"),
    "outputs are averaged": (
        "return Partial(maximum, total, weighted)",
        "return from_context((first.context() + second.context()) / 2, maximum + total.log())",
    ),
    "-inf minus -inf": ("return maximum.masked_fill(maximum == -torch.inf, 0.0)", "return maximum"),
    "the logsumexp without the maximum": ("self.maximum + self.total.log()", "self.total.log()"),
    "the gradient of the logsumexp is lost": (
        "total = torch.exp(logsumexp - _finite(maximum))",
        "total = torch.exp(maximum - _finite(maximum))",
    ),
}


def one_after_the_other(_, query, key, value):
    """Attention to five keys after the other, merged: sixty sums in a row."""
    total, *rest = in_parts(file, query, key, value, None, range(5, T + 1, 5))
    for part in rest:
        total = file.merge(total, part)
    return total.context(), total.logsumexp()


CASES = {
    "five keys after the other": Case(
        one_after_the_other, lambda: heads(2, 2), returns=wide, roundings=32
    )
}
MIB = {  # a sixteenth of the keys: three tensors as large as their scores
    "attend_part": (192, lambda x: lambda: file.attend_part(x, *2 * [x[: len(x) // 16]])),
}
