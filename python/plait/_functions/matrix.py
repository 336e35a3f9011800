"""Products and decompositions of matrices under the names that stand outside linalg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _ops, return_types
from plait import linalg as la
from plait._dtype import get_default_dtype
from plait._errors import MissingFeatureError
from plait._functions._checked import checked
from plait._functions._common import into, is_complex_factor, store
from plait._layout import sparse_coo
from plait.return_types import LU, QR, SVD, Geqrf, Slogdet

if TYPE_CHECKING:
    from plait._tensor import Number, Tensor

__all__ = [
    "addbmm",
    "addbmm_",
    "addmm",
    "addmm_",
    "addmv",
    "addmv_",
    "addr",
    "addr_",
    "baddbmm",
    "baddbmm_",
    "cdist", "chain_matmul",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "det",
    "dsmm",
    "geqrf",
    "ger",
    "inverse",
    "logdet",
    "lu",
    "lu_solve",
    "lu_unpack",
    "matrix_exp",
    "matrix_power",
    "mvlgamma",
    "orgqr",
    "ormqr",
    "pca_lowrank",
    "pinverse",
    "qr",
    "slogdet",
    "smm",
    "sspaddmm",
    "svd",
    "svd_lowrank",
    "triangular_solve",
]  # fmt: skip


def _added(
    operation: Any, input: Tensor, left: Tensor, right: Tensor, beta: Number, alpha: Number, out: Any = None
) -> Tensor:
    """Returns what an operation makes of beta * input + alpha * a product, with complex factors in the operands."""
    name = operation.__name__
    if is_complex_factor(name, alpha, input, left, right):
        left, alpha = _ops.mul(left, alpha), 1
    if not is_complex_factor(name, beta, input, left, right):
        return into(out, operation, input, left, right, beta, alpha)
    if not beta:  # then the input is not read
        return into(out, operation, input, left, right, 0, alpha)
    scale = _ops.mul_ if name.endswith("_") else _ops.mul
    return into(out, operation, scale(input, beta), left, right, 1, alpha)


@checked
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Returns beta * input + alpha times the product of two matrices."""
    return _added(_ops.addmm, input, mat1, mat2, beta, alpha, out)


@checked
def addmm_(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Replaces the elements by what `addmm` returns."""
    return _added(_ops.addmm_, input, mat1, mat2, beta, alpha)


@checked
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Returns beta * input + alpha times the product of a matrix and a vector."""
    return _added(_ops.addmv, input, mat, vec, beta, alpha, out)


@checked
def addmv_(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Replaces the elements by what `addmv` returns."""
    return _added(_ops.addmv_, input, mat, vec, beta, alpha)


@checked
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Returns beta * input + alpha times the outer product of two vectors."""
    return _added(_ops.addr, input, vec1, vec2, beta, alpha, out)


@checked
def addr_(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Replaces the elements by what `addr` returns."""
    return _added(_ops.addr_, input, vec1, vec2, beta, alpha)


@checked
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Returns beta * input + alpha times the sum of the products of two stacks of matrices."""
    return _added(_ops.addbmm, input, batch1, batch2, beta, alpha, out)


@checked
def addbmm_(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Replaces the elements by what `addbmm` returns."""
    return _added(_ops.addbmm_, input, batch1, batch2, beta, alpha)


@checked
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Returns beta * input + alpha times the products of two stacks of matrices."""
    return _added(_ops.baddbmm, input, batch1, batch2, beta, alpha, out)


@checked
def baddbmm_(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Replaces the elements by what `baddbmm` returns."""
    return _added(_ops.baddbmm_, input, batch1, batch2, beta, alpha)


@checked
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Returns the p-norm distances of all pairs of rows of two matrices, or of stacks of them.

    Args:
        x1: [..., P, M]
        x2: [..., R, M]
        p: the order of the norm
        compute_mode: when Euclidean distances are computed from the inner products of rows, which is faster, but less
            exact for rows that are close to each other: with more than 25 rows, always, or never
    """
    return _ops.cdist(x1, x2, float(p), compute_mode)


@checked
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns the product of matrices, multiplied in the order that costs least."""
    return store(out, _ops.chain_matmul(matrices))


@checked
def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the triangular factor of symmetric positive definite matrices."""
    return la.cholesky(input, upper=upper, out=out)


@checked
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the solution of equations, `input` on the right, with the matrix whose Cholesky factor is `input2`."""
    low = input2.mH if upper else input2
    half = _ops.linalg_solve_triangular(low, input, False)
    return store(out, _ops.linalg_solve_triangular(low.mH, half, True))


@checked
def cholesky_inverse(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the inverse of the matrix whose Cholesky factor is given."""
    eye = _ops.expand(_ops.eye(input.shape[-1], dtype=input.dtype, device=input.device), input.shape)
    return store(out, cholesky_solve(eye, input, upper))


@checked
def logdet(input: Tensor) -> Tensor:
    """Returns the logarithms of determinants, NaN for negative ones; of complex ones too."""
    sign, value = _ops.linalg_slogdet(input)
    if sign.dtype.is_complex:
        return _ops.log(sign) + value
    return _ops.where(_ops.lt(sign, 0), float("nan"), value)


@checked
def det(input: Tensor) -> Tensor:
    """Returns the determinants of matrices."""
    return la.det(input)


@checked
def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the inverses of matrices; see `linalg.inv`."""
    return la.inv(input, out=out)


@checked
def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Returns the n-th power of square matrices, of their inverses if n is negative."""
    return la.matrix_power(input, n, out=out)


@checked
def matrix_exp(input: Tensor) -> Tensor:
    """Returns the exponentials of square matrices."""
    return la.matrix_exp(input)


@checked
def slogdet(input: Tensor, *, out: Any = None) -> Slogdet:
    """Returns the signs of determinants and the logarithms of their absolute values."""
    return la.slogdet(input, out=out)


@checked
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> tuple[Tensor, ...]:
    """Returns a compact LU decomposition and its pivots, and with `get_infos` its infos; see `linalg.lu_factor_ex`."""
    if get_infos:
        return store(out, tuple(la.lu_factor_ex(A, pivot=pivot)))
    return store(out, tuple(la.lu_factor(A, pivot=pivot)))


def lu_method(self: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """Returns what `lu` does."""
    return lu(self, pivot, get_infos)


@checked
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the solution of equations with the matrix whose LU decomposition is given."""
    return la.lu_solve(LU_data, LU_pivots, input, out=out)


@checked
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out: Any = None
) -> LU:
    """Returns the permutation matrix P, L and U of a compact LU decomposition, empty tensors for what is not wanted."""
    p, low, up = _ops.lu_unpack(LU_data, LU_pivots)
    none = _ops.empty(0, dtype=LU_data.dtype, device=LU_data.device)
    data = (low, up) if unpack_data else (none, none)
    return store(out, return_types.lu_unpack(p if unpack_pivots else none, *data))


@checked
def geqrf(input: Tensor, *, out: Any = None) -> Geqrf:
    """Returns R of the QR decomposition of matrices [*, m, n] with vectors of reflections below it, and their factors.

    Q is the product of the reflections, which `orgqr` makes and `ormqr` multiplies by. See `linalg.qr` for Q itself.
    """
    return store(out, return_types.geqrf(*_ops.geqrf(input)))


@checked
def orgqr(input: Tensor, input2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the first columns of the product of reflections with factors `input2`: `linalg.householder_product`."""
    return la.householder_product(input, input2, out=out)


@checked
def ormqr(
    input: Tensor,
    input2: Tensor,
    input3: Tensor,
    left: bool = True,
    transpose: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the product of Q, which `geqrf` found, and matrices.

    Args:
        input: matrices [*, m, n] with the vectors of the reflections below their diagonals
        input2: the factors of the reflections [*, min(m, n)]
        input3: [*, m, c], or, not `left`, [*, c, m]
        left: whether Q stands to the left of input3
        transpose: whether Q is transposed, and of complex numbers conjugated
        out: where the result goes
    """
    return store(out, _ops.ormqr(input, input2, input3, left, transpose))


def _sparse(name: str, **tensors: Tensor) -> None:
    """Raises a TypeError unless tensors are sparse."""
    for argument, t in tensors.items():
        if t.layout is not sparse_coo:
            raise TypeError(f"{name}: {argument} must be a sparse tensor with an index for each entry, got {t.layout}")


@checked
def smm(input: Tensor, mat2: Tensor) -> Any:
    """Returns the product of a sparse matrix and a dense one, as a sparse matrix."""
    _sparse("smm", input=input)
    return _ops.mm(input, mat2).to_sparse()


@checked
def dsmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Returns the product of two matrices, of which the first may be sparse: what `mm` does."""
    return _ops.mm(input, mat2)


@checked
def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Any = None) -> Any:
    """Returns `beta * input + alpha * (mat1 @ mat2)`, a sparse matrix, for sparse input and mat1 and a dense mat2."""
    _sparse("sspaddmm", input=input, mat1=mat1)
    if out is not None:
        raise MissingFeatureError("sspaddmm: out: entries of sparse tensors do not change")
    return input * beta + smm(mat1, mat2) * alpha


@checked
def qr(input: Tensor, some: bool = True, *, out: Any = None) -> QR:
    """Returns an orthogonal and an upper triangular factor; see `linalg.qr`."""
    return la.qr(input, "reduced" if some else "complete", out=out)


@checked
def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> SVD:
    """Returns U, S and V with input = U diag(S) V^H, see `linalg.svd`; without compute_uv U and V are 0, and square."""
    u, s, vh = la.svd(input, not (some and compute_uv))
    if not compute_uv:
        u, vh = _ops.zeros_like(u), _ops.zeros_like(vh)
    return store(out, return_types.svd(u, s, vh.mH))


@checked
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns U, S and V with A - M near U diag(S) V^T, by the random projections of Halko et al. 2009, 5.1.

    Args:
        A: matrices (..., m, n) of floats
        q: how many singular values, at most m or n; more than wanted make those more exact
        niter: how often the projection is refined, at most 10,000 times
        M: subtracted from A; it broadcasts to it

    Raises:
        ValueError: for a negative q, or a niter that is negative or too large.
    """
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    if q < 0:
        raise ValueError(f"svd_lowrank: q must not be negative, got {q}")
    if not 0 <= niter <= 10_000:  # a few suffice; a size given by mistake would take hours
        raise ValueError(f"svd_lowrank: niter must lie between 0 and 10000, got {niter}")
    m, n = A.shape[-2:]
    matrices = A if M is None else A - M.broadcast_to(A.shape)
    tall = matrices if m >= n else matrices.mH
    basis = la.qr(tall @ _ops.randn((tall.shape[-1], q), dtype=A.dtype, device=A.device))[0]
    for _ in range(niter):
        basis = la.qr(tall @ la.qr(tall.mH @ basis)[0])[0]
    u, s, vh = la.svd(basis.mH @ tall, False)
    u = basis @ u
    return (u, s, vh.mH) if m >= n else (vh.mH, s, u)


@checked
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Returns U, S and V of `svd_lowrank`: V's columns are the principal directions of A's rows.

    Args:
        A: matrices (..., m, n) of m samples
        q: how many directions; by default 6, or m or n where that is less
        center: subtract the rows' mean
        niter: how often the projection is refined, at most 10,000 times

    Raises:
        ValueError: for a q beyond the sides of the matrices, or a niter that is negative or too large.
    """
    smallest = min(A.shape[-2:])
    q = min(6, smallest) if q is None else q
    if not 0 <= q <= smallest:
        raise ValueError(f"pca_lowrank: q must lie between 0 and the smaller side of the matrices, {smallest}, got {q}")
    return svd_lowrank(A, q, niter, _ops.mean(A, (-2,), True) if center else None)


@checked
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """Returns the pseudo-inverses of matrices."""
    return _ops.linalg_pinv(input, rcond)


@checked
def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the outer product of two vectors."""
    return store(out, _ops.outer(input, vec2))


@checked
def triangular_solve(
    input: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    *,
    out: Any = None,
) -> tuple[Tensor, Tensor]:
    """Returns the solution of equations with a triangular matrix, and a copy of the matrix."""
    matrix = A.mT if transpose else A
    solution = _ops.linalg_solve_triangular(matrix, input, upper != transpose, unitriangular)
    return store(out, (solution, _ops.clone(A)))


@checked
def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """Returns the logarithm of the p-dimensional gamma function."""
    from math import log, pi

    if p < 1:
        raise ValueError(f"mvlgamma: p must be at least 1, got {p}")
    x = input if input.dtype.is_floating_point or input.dtype.is_complex else input.to(get_default_dtype())
    halves = _ops.arange(0, end=-p / 2, step=-0.5, dtype=x.dtype, device=x.device)
    terms = _ops.lgamma(_ops.unsqueeze(x, -1) + halves)
    return store(out, _ops.sum(terms, (-1,)) + p * (p - 1) / 4 * log(pi))
