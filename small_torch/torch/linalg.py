"""Linear algebra: what the book uses of it."""

from torch import _reduce
from torch._autograd import needs_grad
from torch._dtypes import float64
from torch._join import cat, stack
from torch._kernels import call, js
from torch._signatures import absent, lacks
from torch._tensor import FUNCTIONS, empty_of


def _apart(function, x):
    """Apply a function of one matrix to each of a batch; the results are stacked, in a tuple."""
    if needs_grad(x):
        raise lacks("the gradient of a decomposition")
    if x.dim() == 2:
        return function(x)
    found = [function(matrix) for matrix in x.reshape(-1, *x.shape[-2:])]
    return tuple(
        stack(parts).reshape(*x.shape[:-2], *parts[0].shape) for parts in zip(*found, strict=True)
    )


def _svd(x, full_matrices):
    m, n = x._shape
    if m < n:
        u, s, vh = _svd(x.mT, full_matrices)
        return vh.mT, s, u.mT
    if m > 2 * n and not full_matrices:  # turning the columns of a smaller matrix is enough
        q, r = _qr(x, "reduced")
        u, s, vh = _svd(r, False)
        return q @ u, s, vh
    a = x.detach().double().contiguous()
    u, s, vh = empty_of((m, n), float64), empty_of((n,), float64), empty_of((n, n), float64)
    call(
        js.svd,
        u._storage.base,
        s._storage.base,
        vh._storage.base,
        a._storage.base + a._offset,
        m,
        n,
    )
    if full_matrices and m > n:
        rest = cat([u, FUNCTIONS["eye"](m, dtype=float64)], 1)
        u = _completed(rest, m)
    return u.to(x.dtype), s.to(x.dtype), vh.to(x.dtype)


def _completed(columns, m):
    """Return m columns at right angles: the first ones, and of the others those that still add a direction."""
    found = []
    for column in columns.unbind(1):
        for _ in range(2):
            for other in found:
                column = column - (other @ column) * other
        size = column.norm()
        if size > 1e-6 and len(found) < m:
            found.append(column / size)
    return stack(found, 1)


class SVD(tuple):
    """U, S and Vh."""

    U, S, Vh = (property(lambda self, place=place: self[place]) for place in range(3))


def svd(A, full_matrices=True):
    return SVD(_apart(lambda x: _svd(x, full_matrices), A))


def svdvals(A):
    return svd(A, False)[1]


def _qr(x, mode):
    m, n = x._shape
    k = min(m, n)
    first = x.detach().double()
    q, r = first[:, :k].clone(memory_format="contiguous"), empty_of((k, k), float64)
    call(js.qr, q._storage.base, r._storage.base, m, k)
    if n > k:
        r = cat([r, q.mT @ first[:, k:]], 1)
    if mode == "complete" and m > k:
        raise lacks("torch.linalg.qr(mode='complete')")
    # Householder's reflections, which PyTorch uses, leave R's diagonal negative where a column begins positive.
    return q.to(x.dtype), r.to(x.dtype)


def qr(A, mode="reduced"):
    return _apart(lambda x: _qr(x, mode), A)


def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """Return X of AX = B, row after row."""
    if not left:
        return solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT
    n = A.shape[-1]
    rows = [None] * n
    for place in range(n - 1, -1, -1) if upper else range(n):
        known = range(place + 1, n) if upper else range(place)
        row = B[..., place : place + 1, :]
        if len(known):
            done = cat([rows[k] for k in known], -2)
            row = row - A[..., place : place + 1, known[0] : known[-1] + 1] @ done
        rows[place] = row if unitriangular else row / A[..., place : place + 1, place : place + 1]
    return cat(rows, -2)


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    return _reduce.norm(x if dtype is None else x.to(dtype), ord, dim, keepdim)


def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    if A.dim() == 2 and dim is None and ord in (2, "nuc"):
        return svdvals(A).amax(-1) if ord == 2 else svdvals(A).sum(-1)
    return _reduce.norm(A, 2 if ord is None else ord, dim, keepdim)


__getattr__ = absent("torch.linalg", globals())
