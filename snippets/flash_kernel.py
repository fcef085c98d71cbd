"""Flash attention as a kernel in Triton, forward and backward: tiles that stay on the chip.

    context = flash_kernel(query, key, value, is_causal=True)  # (batch, heads, tokens, head_dim)

The head_dim is a power of two from 16 to 128. Fewer heads of keys than of queries are shared by
groups of neighbours. is_causal: query i sees keys 0 … i + T_k - T_q; one that sees none gets 0.
Sums are in float32. On a processor it runs, slowly, where the environment variable
TRITON_INTERPRET=1 was set before triton was imported. Beside lines of the kernels stand those of
PyTorch that they are. Sources: Dao (2023), "FlashAttention-2", algorithms 1 and 2; Triton's
tutorial "Fused Attention", two loops in the backward pass.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr


@triton.jit
def load(X, head, tokens, T, D: constexpr):
    """Load rows of one head of X, (heads, T, D); zeros where the text has ended."""
    row = (head * T + tokens[:, None]).to(tl.int64)  # 32 bits hold no place beyond 2³¹
    at = row * D + tl.arange(0, D)  # (B, D): which number of X
    return tl.load(X + at, mask=tokens[:, None] < T, other=0.0)


@triton.jit
def store(X, x, head, tokens, T, D: constexpr):
    """Store x as rows of one head of X, but none where the text has ended."""
    at = (head * T + tokens[:, None]).to(tl.int64) * D + tl.arange(0, D)
    tl.store(X + at, x.to(X.dtype.element_ty), mask=tokens[:, None] < T)


@triton.jit
def product(a, b):
    """Multiply two matrices, with sums in float32."""
    return tl.dot(a, b, input_precision="ieee")  # a GPU would round float32 to fewer bits


@triton.jit
def score_tile(q, k, rows, columns, T_q, T_k, scale, CAUSAL: constexpr):
    """Return one tile of scores, times log₂ e; -inf where a query may not see a key."""
    seen = columns[None, :] < T_k
    if CAUSAL:
        seen = seen & (columns[None, :] <= rows[:, None] + T_k - T_q)
    return tl.where(seen, product(q, tl.trans(k)) * (scale * 1.4426950408889634), -float("inf"))


@triton.jit
def attend(
    Q, K, V, CONTEXT, LSE, T_q, T_k, scale,
    G: constexpr, D: constexpr, B: constexpr, CAUSAL: constexpr,
):  # fmt: skip
    """Compute the contexts of one block of queries of one head."""
    block, head = tl.program_id(0), tl.program_id(1)  # for rows in blocks(T, block):
    rows = block * B + tl.arange(0, B)
    q = load(Q, head, rows, T_q, D)  # query = Q.load(rows)
    maximum = tl.full([B], -float("inf"), tl.float32)  # state = start(len(query), d)
    total = tl.zeros([B], tl.float32)
    weighted = tl.zeros([B, D], tl.float32)
    end = tl.minimum(T_k, (block + 1) * B + T_k - T_q) if CAUSAL else T_k  # columns.start >= …
    for start in range(0, end, B):  # for columns in blocks(T, block):
        columns = start + tl.arange(0, B)
        k = load(K, head // G, columns, T_k, D)  # K.load(columns)
        v = load(V, head // G, columns, T_k, D)  # V.load(columns)
        scores = score_tile(q, k, rows, columns, T_q, T_k, scale, CAUSAL)  # query @ K….T
        larger = tl.maximum(maximum, tl.max(scores, 1))  # torch.maximum(maximum, scores.amax(-1))
        finite = tl.where(larger == -float("inf"), 0.0, larger)  # or -inf - -inf is nan
        factor = tl.exp2(maximum - finite)  # torch.exp(maximum - larger)
        exponentials = tl.exp2(scores - finite[:, None])  # torch.exp(scores - larger[:, None])
        total = total * factor + tl.sum(exponentials, 1)  # total * factor + exponentials.sum(-1)
        weighted = weighted * factor[:, None] + product(exponentials.to(v.dtype), v)  # … @ values
        maximum = larger
    divisor = tl.where(total == 0, 1.0, total)  # of a row that sees no key
    store(CONTEXT, weighted / divisor[:, None], head, rows, T_q, D)  # context.store(…, rows)
    lse = maximum + tl.log2(divisor)  # maximum + total.log()
    tl.store(LSE + head * T_q + rows, lse, mask=rows < T_q)  # logsumexp.store(…, rows)


@triton.jit
def tile_gradients(
    q, k, v, d_c, LSE, ROW_SUM, head, rows, columns, T_q, T_k, scale, CAUSAL: constexpr
):
    """Compute the weights of one tile again, and the gradients of its scores."""
    at, real = head * T_q + rows, rows < T_q
    lse = tl.load(LSE + at, mask=real, other=0.0)
    row_sum = tl.load(ROW_SUM + at, mask=real, other=0.0)
    lse = tl.where(lse == -float("inf"), 0.0, lse)
    scores = score_tile(q, k, rows, columns, T_q, T_k, scale, CAUSAL)  # queries[rows] @ keys….T
    weights = tl.where(real[:, None], tl.exp2(scores - lse[:, None]), 0.0)  # exp(scores - L)
    d_weights = product(d_c, tl.trans(v))  # d_context[rows] @ values[columns].T
    return weights, weights * (d_weights - row_sum[:, None])  # weights * (d_weights - D)


@triton.jit
def query_gradients(
    Q, K, V, D_CONTEXT, LSE, ROW_SUM, D_Q, T_q, T_k, scale,
    G: constexpr, D: constexpr, B: constexpr, CAUSAL: constexpr,
):  # fmt: skip
    """Sum the gradients of one block of queries over the blocks of keys."""
    block, head = tl.program_id(0), tl.program_id(1)
    rows = block * B + tl.arange(0, B)
    q, d_c = load(Q, head, rows, T_q, D), load(D_CONTEXT, head, rows, T_q, D)
    d_q = tl.zeros([B, D], tl.float32)
    end = tl.minimum(T_k, (block + 1) * B + T_k - T_q) if CAUSAL else T_k
    for start in range(0, end, B):
        columns = start + tl.arange(0, B)
        k, v = load(K, head // G, columns, T_k, D), load(V, head // G, columns, T_k, D)
        _, d_scores = tile_gradients(
            q, k, v, d_c, LSE, ROW_SUM, head, rows, columns, T_q, T_k, scale, CAUSAL
        )
        d_q += product(d_scores.to(k.dtype), k)  # d_queries[rows] += d_scores @ keys[columns]
    store(D_Q, d_q * scale, head, rows, T_q, D)


@triton.jit
def key_gradients(
    Q, K, V, D_CONTEXT, LSE, ROW_SUM, D_K, D_V, T_q, T_k, scale,
    G: constexpr, D: constexpr, B: constexpr, CAUSAL: constexpr,
):  # fmt: skip
    """Sum the gradients of one block of keys and values, over queries and heads."""
    block, shared = tl.program_id(0), tl.program_id(1)
    columns = block * B + tl.arange(0, B)
    k, v = load(K, shared, columns, T_k, D), load(V, shared, columns, T_k, D)
    d_k, d_v = tl.zeros([B, D], tl.float32), tl.zeros([B, D], tl.float32)
    begin = tl.maximum(block * B + T_q - T_k, 0) // B * B if CAUSAL else 0
    for head in range(shared * G, shared * G + G):
        for start in range(begin, T_q, B):
            rows = start + tl.arange(0, B)
            q, d_c = load(Q, head, rows, T_q, D), load(D_CONTEXT, head, rows, T_q, D)
            weights, d_scores = tile_gradients(
                q, k, v, d_c, LSE, ROW_SUM, head, rows, columns, T_q, T_k, scale, CAUSAL
            )
            d_v += product(tl.trans(weights).to(d_c.dtype), d_c)  # += weights.T @ d_context[rows]
            d_k += product(tl.trans(d_scores).to(q.dtype), q)  # += d_scores.T @ queries[rows]
    store(D_K, d_k * scale, shared, columns, T_k, D)
    store(D_V, d_v, shared, columns, T_k, D)


class FlashKernel(torch.autograd.Function):
    """The kernels as one operation of autograd; call it through `flash_kernel`."""

    @staticmethod
    def forward(ctx, query, key, value, is_causal, block):
        """Start a program for each block of queries of each head."""
        query, key, value = (x.contiguous() for x in (query, key, value))
        batch, heads, T_q, D = query.shape
        T_k, G = key.size(2), heads // key.size(1)
        context = torch.empty_like(query)
        lse = query.new_empty(batch, heads, T_q, dtype=torch.float32)
        ctx.sizes = T_q, T_k, D**-0.5, G, D, block, is_causal
        attend[triton.cdiv(T_q, block), batch * heads](query, key, value, context, lse, *ctx.sizes)
        ctx.save_for_backward(query, key, value, context, lse)
        return context

    @staticmethod
    def backward(ctx, d_context):
        """Start a program for each block of queries, and one for each block of keys."""
        query, key, value, context, lse = ctx.saved_tensors
        d_context = d_context.contiguous()
        row_sum = (d_context.float() * context.float()).sum(-1)
        given = query, key, value, d_context, lse, row_sum
        d_query, d_key, d_value = (torch.empty_like(x) for x in (query, key, value))
        for kernel, x, made in (
            (query_gradients, query, [d_query]),
            (key_gradients, key, [d_key, d_value]),
        ):
            blocks = triton.cdiv(x.size(2), ctx.sizes[5])
            kernel[blocks, x.size(0) * x.size(1)](*given, *made, *ctx.sizes)
        return d_query, d_key, d_value, None, None


def flash_kernel(query: Tensor, key: Tensor, value: Tensor, is_causal=False, block=64) -> Tensor:
    """Average the values by softmax(QKᵀ/√head_dim), one tile of block × block scores at a time."""
    if value.shape != key.shape:
        raise ValueError(f"value must be {tuple(key.shape)}, as key, got {tuple(value.shape)}")
    batch, heads, _, D = query.shape
    if (key.size(0), key.size(3)) != (batch, D) or heads % key.size(1):
        wanted = f"({batch}, a divisor of {heads}, tokens, {D})"
        raise ValueError(f"key must be {wanted} for this query, got {tuple(key.shape)}")
    return FlashKernel.apply(query, key, value, is_causal, block)
