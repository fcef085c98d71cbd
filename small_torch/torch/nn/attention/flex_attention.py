"""FlexAttention as it runs uncompiled: a rule is asked for every pair of positions, and all scores are made."""

import math

import torch


class BlockMask:
    """A rule for which pairs of positions are kept, and the sizes for which it was made."""

    def __init__(self, mask_mod, sizes):
        self.mask_mod, self.sizes = mask_mod, sizes

    def kept(self, heads):
        return self.mask_mod(*_places(self.sizes[0] or 1, self.sizes[1] or heads, *self.sizes[2:]))


def _places(*sizes):
    """The numbers of batches, heads, queries and keys, each along a dimension of its own."""
    return [
        torch.arange(size).reshape([-1 if d == at else 1 for d in range(4)])
        for at, size in enumerate(sizes)
    ]


def create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN, device="cpu", BLOCK_SIZE=128, **_):
    return BlockMask(mask_mod, (B, H, Q_LEN, KV_LEN))


def flex_attention(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, **_
):
    """softmax(score_mod(query keyᵀ · scale)) value, of what `block_mask` keeps."""
    if enable_gqa:
        times = query.size(1) // key.size(1)
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    scores = (query @ key.mT) * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *_places(*scores.shape))
    if block_mask is None:
        return scores.softmax(-1) @ value
    kept = block_mask.kept(query.size(1)).expand(scores.shape)
    scores = scores.masked_fill(~kept, -math.inf)
    empty = ~kept.any(-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0) @ value
