"""Attention in tiles, forward and backward: exact, and no tensor ever holds T × T weights.

Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else. This is the algorithm, for
reading, for testing kernels against and for changing. Its loops run in Python, so it saves memory
and no time; for speed call F.scaled_dot_product_attention, whose fused kernels do the same on the
chip. With fewer queries than keys its is_causal counts them from the first key, ours to the last.
Sources: Dao et al. (2022), "FlashAttention", section 3.1 and appendix B; Dao (2023),
"FlashAttention-2", algorithm 1 (queries in the outer loop, here in the backward pass too) and
algorithm 2 (which has keys there; the logsumexp in place of two numbers).
"""

from collections.abc import Iterator
from contextlib import nullcontext

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

    Forward and backward make tensors of block · block, block · dim and T · dim numbers, none of
    T · T. Between the passes autograd keeps the inputs, the result and one number for each query.
    In half precision the sums are kept in float32.

    Args:
        query: (..., T_q, head_dim), floating point.
        key: (..., T_k, head_dim), same leading dimensions; `expand` it where it has fewer.
        value: (..., T_k, value_dim), same leading dimensions.
        key_mask: boolean, True keeps, hides padding, as keys: (T_k,) for all, or as many dimensions
            as the query without its last but one, each of size 1 or as there. Beside heads, one row
            for each text is key_mask[:, None], (batch, 1, T_k).
        is_causal: the queries are the last of the keys, so query i sees keys 0 … i + T_k - T_q:
            the triangle stands in the lower right corner. Tiles that see nothing are left out.
        scale: factor on the scores; None means 1/√head_dim.
        block: rows and columns of a tile; the last of them may have fewer.
        return_logsumexp: also return log ∑ eˢ for each query, (..., T_q), with its gradient: what
            is needed to merge this with attention to other keys.

    Returns:
        The context vectors, (..., T_q, value_dim). A query that may see no key at all gets
        context 0, gradient 0 and logsumexp -inf.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    _check(query, key, value, key_mask, block)
    scale = query.size(-1) ** -0.5 if scale is None else scale
    query, key, value, context = _cast(query, key, value)
    with context:
        results = FlashAttention.apply(query, key, value, key_mask, is_causal, scale, block)
    return results if return_logsumexp else results[0]


# --8<-- [start:tiles]
def tiles(T_q: int, T_k: int, is_causal: bool, block: int) -> Iterator[tuple[slice, list[slice]]]:
    """Yield each block of queries, with the blocks of keys of which it may see something."""
    for start in range(0, max(T_q, 1), block):
        rows = slice(start, min(start + block, T_q))
        end = rows.stop + T_k - T_q if is_causal else T_k  # the first key that no row here sees
        yield rows, [slice(j, min(j + block, T_k)) for j in range(0, end, block)]


def tile_scores(
    query: Tensor,
    key: Tensor,
    key_mask: Tensor | None,
    rows: slice,
    columns: slice,
    offset: int | None,
) -> Tensor:
    """Return the scores of one tile, (..., rows, columns), with -inf where a key is hidden.

    query holds these rows alone, already scaled; key holds all keys. Query i sees the keys up to
    i + offset; with None, all of them.
    """
    scores = query @ key[..., columns, :].to(query.dtype).mT
    if offset is not None and columns.stop - 1 > rows.start + offset:  # the diagonal crosses it
        i = torch.arange(rows.start, rows.stop, device=query.device)[:, None]
        j = torch.arange(columns.start, columns.stop, device=query.device)
        scores = scores.masked_fill(j > i + offset, -torch.inf)
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[..., None, columns], -torch.inf)
    return scores


# --8<-- [end:tiles]
class FlashAttention(torch.autograd.Function):
    """Tiled attention as one operation of autograd; call it through `flash_attention`."""

    generate_vmap_rule = True

    # --8<-- [start:forward]
    @staticmethod
    def forward(query, key, value, key_mask, is_causal, scale, block) -> tuple[Tensor, Tensor]:
        """Return the context vectors, and the logsumexp of each query's scores."""
        T_q, T_k = query.size(-2), key.size(-2)
        offset = T_k - T_q if is_causal else None
        wide = torch.promote_types(query.dtype, torch.float32)
        contexts, logsumexps = [], []
        for rows, seen in tiles(T_q, T_k, is_causal, block):
            q = query[..., rows, :].to(wide) * scale
            maximum = q.new_full(q.shape[:-1], -torch.inf)  # (..., rows)
            total = q.new_zeros(q.shape[:-1])
            weighted = q.new_zeros((*q.shape[:-1], value.size(-1)))
            for columns in seen:
                scores = tile_scores(q, key, key_mask, rows, columns, offset)
                maximum, before = torch.maximum(maximum, scores.amax(dim=-1)), maximum
                finite = maximum.masked_fill(maximum == -torch.inf, 0.0)  # or -inf - -inf is nan
                factor = torch.exp(before - finite)
                powers = torch.exp(scores - finite[..., None])
                total = total * factor + powers.sum(dim=-1)
                weighted = weighted * factor[..., None] + powers @ value[..., columns, :].to(wide)
            contexts.append(weighted / total.masked_fill(total == 0, 1.0)[..., None])
            logsumexps.append(maximum + total.log())
        return torch.cat(contexts, dim=-2).to(query.dtype), torch.cat(logsumexps, dim=-1)

    # --8<-- [end:forward]
    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        query, key, value, key_mask, ctx.is_causal, ctx.scale, ctx.block = inputs
        ctx.save_for_backward(query, key, value, key_mask, *output)

    # --8<-- [start:backward]
    @staticmethod
    def backward(ctx, d_context, d_logsumexp) -> tuple[Tensor | None, ...]:
        """Return the gradients, from weights that are computed again, tile by tile."""
        query, key, value, key_mask, context, logsumexp = ctx.saved_tensors
        T_q, T_k = query.size(-2), key.size(-2)
        offset = T_k - T_q if ctx.is_causal else None
        wide = logsumexp.dtype
        d_context, value_wide = d_context.to(wide), value.to(wide)
        row_sum = (d_context * context).sum(dim=-1) - d_logsumexp  # (..., T_q)
        finite = logsumexp.masked_fill(logsumexp == -torch.inf, 0.0)
        starts = range(0, max(T_k, 1), ctx.block)
        d_key = {j: torch.zeros_like(key[..., j : j + ctx.block, :], dtype=wide) for j in starts}
        d_value = {j: torch.zeros_like(value_wide[..., j : j + ctx.block, :]) for j in starts}
        d_query = []
        for rows, seen in tiles(T_q, T_k, ctx.is_causal, ctx.block):
            q, d_c = query[..., rows, :].to(wide) * ctx.scale, d_context[..., rows, :]
            d_q = torch.zeros_like(q)
            for columns in seen:
                scores = tile_scores(q, key, key_mask, rows, columns, offset)
                weights = torch.exp(scores - finite[..., rows, None])  # again; they were not kept
                d_weights = d_c @ value_wide[..., columns, :].mT
                d_scaled = weights * (d_weights - row_sum[..., rows, None])
                d_q = d_q + d_scaled @ key[..., columns, :].to(wide)
                d_key[columns.start] = d_key[columns.start] + d_scaled.mT @ q
                d_value[columns.start] = d_value[columns.start] + weights.mT @ d_c
            d_query.append(d_q * ctx.scale)
        found = (d_query, d_key.values(), d_value.values())
        d_query, d_key, d_value = (torch.cat(list(x), dim=-2).to(query.dtype) for x in found)
        return d_query, d_key, d_value, None, None, None, None

    # --8<-- [end:backward]


def _cast(query: Tensor, key: Tensor, value: Tensor) -> tuple:
    """Return the three in one dtype, and a context in which autocast changes nothing more.

    Autocast casts them once, here, so that both passes agree, and leaves float64, as it does for
    PyTorch's operator. Some devices, as meta, have no autocast.
    """
    device, context = query.device.type, nullcontext()
    parts = [query, key, value]
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype, context = torch.get_autocast_dtype(device), torch.autocast(device, enabled=False)
        parts = [part if part.dtype == torch.float64 else part.to(dtype) for part in parts]
    for name, part in zip(("query", "key", "value"), parts, strict=True):
        if not part.is_floating_point() or part.dtype != parts[0].dtype:
            raise ValueError(
                f"{name} must be floating point, all three alike: "
                f"got {part.dtype} beside a query of {parts[0].dtype}"
            )
    return *parts, context


def _check(query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None, block: int) -> None:
    """Raise ValueError unless the sizes fit together."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or tensor.dim() < 2:
            came = tuple(tensor.shape) if isinstance(tensor, Tensor) else repr(tensor)
            raise ValueError(f"{name} must have shape (..., tokens, dim), got {came}")
        if tensor.shape[:-2] != query.shape[:-2]:
            raise ValueError(
                f"{name} must have the leading dimensions of query, {tuple(query.shape[:-2])}: "
                f"got shape {tuple(tensor.shape)}"
            )
    if key.size(-1) != query.size(-1):
        raise ValueError(
            f"key must be as wide as query, {query.size(-1)}: got shape {tuple(key.shape)}"
        )
    if value.size(-2) != key.size(-2):
        raise ValueError(
            f"value must hold one token per key, {key.size(-2)}: got shape {tuple(value.shape)}"
        )
    if key_mask is not None:
        tensor = isinstance(key_mask, Tensor)
        if not tensor or key_mask.dtype != torch.bool:
            came = key_mask.dtype if tensor else repr(key_mask)
            raise ValueError(f"key_mask must be a boolean tensor (True keeps), got {came}")
        wanted, came = (*query.shape[:-2], key.size(-2)), tuple(key_mask.shape)
        sizes = zip(came[:-1], wanted[:-1], strict=False)
        fits = came[-1:] == wanted[-1:] and all(size in (1, want) for size, want in sizes)
        # (batch, T_k) is refused beside heads: broadcast, it would be read as (heads, T_k).
        if not fits or len(came) not in (1, len(wanted)):
            texts = (len(came), len(wanted)) == (2, 3)
            hint = "; key_mask[:, None] makes one row for each text" if texts else ""
            raise ValueError(
                f"key_mask must have shape {wanted[-1:]}, or the {len(wanted)} dimensions of "
                f"{wanted}, all but the last 1 or as there: got shape {came}{hint}"
            )
    if not isinstance(block, int) or block < 1:
        raise ValueError(f"block must be a positive integer, got {block!r}")
