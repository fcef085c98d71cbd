"""Attention in tiles, forward and backward: exact, and no tensor ever holds T × T weights.

Query, key and value are (..., tokens, channels), with the same leading dimensions. Between the
passes autograd keeps them, the result and one number for each query. Sums are in float32 or wider.
A query that may see no key gets context 0, gradient 0 and logsumexp -inf. The loops run in Python,
so this saves memory and no time; F.scaled_dot_product_attention does the same on the chip, but
where there are fewer queries than keys, its is_causal counts them from the first, ours to the last.
Sources: Dao et al. (2022), "FlashAttention", section 3.1 and appendix B; Dao (2023),
"FlashAttention-2", algorithms 1 (queries in the outer loop, here in the backward pass too) and 2.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    block: int = 128,
    return_logsumexp: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Average the values by softmax(QKᵀ·scale), one tile of block × block scores at a time.

    key_mask is boolean, True keeps: (T_k,) for all, or (..., T_k) with as many dimensions as key
    less one. is_causal: query i sees keys 0 … i + T_k - T_q. scale None is 1/√head_dim.
    return_logsumexp: also log ∑ eˢ of each query, (..., T_q), to merge this with other keys.
    """
    if value.size(-2) != key.size(-2):
        raise ValueError(f"value must hold {key.size(-2)} tokens, as key, got {value.size(-2)}")
    if key_mask is not None:
        if key_mask.dtype != torch.bool or key_mask.dim() not in (1, key.dim() - 1):
            # Of one dimension less than scores it could be for each text, or for each head.
            came = f"{key_mask.dtype} of {tuple(key_mask.shape)}"
            raise ValueError(f"key_mask must be boolean, (T_k,) or (..., T_k) as key, got {came}")
        key_mask = key_mask.expand(key.shape[:-1])
    scale = query.size(-1) ** -0.5 if scale is None else scale
    offset = key.size(-2) - query.size(-2) if is_causal else None
    device = query.device.type
    parts = query, key, value
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)  # here, as PyTorch's operator does, and not below
        parts = [x if x.dtype == torch.float64 else x.to(dtype) for x in parts]
    with _without_autocast(device):
        results = FlashAttention.apply(*parts, key_mask, offset, scale, block)
    return results if return_logsumexp else results[0]


def tiles(T_q: int, T_k: int, offset: int | None, block: int) -> Iterator[tuple]:
    """Yield each block of queries, with the blocks of keys of which it may see something."""
    for start in range(0, T_q, block):
        rows = slice(start, min(start + block, T_q))
        end = T_k if offset is None else rows.stop + offset  # the first key that no row here sees
        yield rows, [slice(j, min(j + block, T_k)) for j in range(0, end, block)]


def tile_scores(query, key, key_mask, rows: slice, columns: slice, offset: int | None) -> Tensor:
    """Return scaled queries @ keys, of one tile; -inf for padding and for keys after i + offset."""
    scores = query @ key.mT
    if offset is not None and columns.stop - 1 > rows.start + offset:  # the diagonal crosses it
        i = torch.arange(rows.start, rows.stop, device=query.device)[:, None]
        j = torch.arange(columns.start, columns.stop, device=query.device)
        scores = scores.masked_fill(j > i + offset, -torch.inf)
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[..., None, columns], -torch.inf)
    return scores


class FlashAttention(torch.autograd.Function):
    """Tiled attention as one operation of autograd; call it through `flash_attention`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(query, key, value, key_mask, offset, scale, block) -> tuple[Tensor, Tensor]:
        """Return the context vectors, and the logsumexp of each query's scores."""
        wide = torch.promote_types(query.dtype, torch.float32)
        context = query.new_zeros((*query.shape[:-1], value.size(-1)))
        logsumexp = query.new_zeros(query.shape[:-1], dtype=wide)
        for rows, seen in tiles(query.size(-2), key.size(-2), offset, block):
            q = query[..., rows, :].to(wide) * scale
            maximum = q.new_full(q.shape[:-1], -torch.inf)  # (..., rows)
            total = q.new_zeros(q.shape[:-1])
            weighted = q.new_zeros((*q.shape[:-1], value.size(-1)))
            for columns in seen:
                k, v = key[..., columns, :].to(wide), value[..., columns, :].to(wide)
                scores = tile_scores(q, k, key_mask, rows, columns, offset)
                before = maximum
                maximum = torch.maximum(maximum, scores.amax(dim=-1))
                finite = maximum.masked_fill(maximum == -torch.inf, 0.0)  # or -inf - -inf is nan
                factor = torch.exp(before - finite)
                powers = torch.exp(scores - finite[..., None])
                total = total * factor + powers.sum(dim=-1)
                weighted = weighted * factor[..., None] + powers @ v
            context[..., rows, :] = weighted / total.masked_fill(total == 0, 1.0)[..., None]
            logsumexp[..., rows] = maximum + total.log()
        return context, logsumexp

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        """Keep what the backward pass reads: no weights."""
        query, key, value, key_mask, ctx.offset, ctx.scale, ctx.block = inputs
        ctx.save_for_backward(query, key, value, key_mask, *output)

    @staticmethod
    def backward(ctx, d_context, d_logsumexp) -> tuple[Tensor | None, ...]:
        """Return the gradients, from weights that are computed again, tile by tile."""
        query, key, value, key_mask, context, logsumexp = ctx.saved_tensors
        wide = logsumexp.dtype
        # The derivative of a logsumexp by a score is its weight: one term more in each row's sum.
        row_sum = (d_context.to(wide) * context).sum(dim=-1) - d_logsumexp  # (..., T_q)
        finite = logsumexp.masked_fill(logsumexp == -torch.inf, 0.0)
        d_query, d_key, d_value = (torch.zeros_like(x, dtype=wide) for x in (query, key, value))
        with _without_autocast(query.device.type):  # it may be on where backward() is called
            for rows, seen in tiles(query.size(-2), key.size(-2), ctx.offset, ctx.block):
                q = query[..., rows, :].to(wide) * ctx.scale
                d_c = d_context[..., rows, :].to(wide)
                for columns in seen:
                    k, v = key[..., columns, :].to(wide), value[..., columns, :].to(wide)
                    scores = tile_scores(q, k, key_mask, rows, columns, ctx.offset)
                    weights = torch.exp(scores - finite[..., rows, None])
                    d_scores = weights * (d_c @ v.mT - row_sum[..., rows, None])
                    d_query[..., rows, :] += d_scores @ k * ctx.scale
                    d_key[..., columns, :] += d_scores.mT @ q
                    d_value[..., columns, :] += weights.mT @ d_c
        return *(x.to(query.dtype) for x in (d_query, d_key, d_value)), None, None, None, None


def _without_autocast(device: str) -> AbstractContextManager:
    """Keep what is done inside in the dtype of its inputs; some devices, as meta, never cast."""
    if torch.amp.is_autocast_available(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()
