"""Linear algebra: norms, decompositions, solutions of equations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._dtype import finfo
from plait._engine.missing_names import absent as _absent
from plait._engine.runtime import is_tensor
from plait._errors import IndexRangeError, LinAlgError, MissingFeatureError
from plait._functions import decompositions as de
from plait._functions._common import store, typed
from plait._modes import no_grad, without_autocast
from plait.return_types import LU, QR, CholeskyEx, Eigh, InvEx, LinalgSVD, Lstsq, LUFactor, LUFactorEx, Slogdet, SolveEx

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._tensor import Tensor

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_sqrth",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]


def cholesky(input: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """Returns the triangular factor of symmetric positive definite matrices, of which that triangle is read.

    Raises:
        LinAlgError: if a matrix is not positive definite. To know, the call waits; `cholesky_ex` does not.
    """
    return store(out, de.cholesky(mirrored(input, not upper), upper))


def _raise(name: str, what: str, info: Tensor, check_errors: bool = True) -> None:
    """Raises an error if an info of a stack of matrices is not 0."""
    if check_errors and (places := _ops.nonzero(info).tolist()):
        where = f"matrix {places[0]}" if places[0] else "the matrix"
        raise LinAlgError(f"linalg.{name}: {where} is {what}; its info is {info[tuple(places[0])].item()}")


def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> CholeskyEx:
    """Returns the triangular factors and, for each matrix, 0 or the order of the leading part that is not positive
    definite; then the factor means nothing.
    """
    factor, info = _ops.linalg_cholesky_ex(mirrored(input, not upper), upper)
    _raise("cholesky_ex", "not positive definite", info, check_errors)
    return store(out, CholeskyEx(factor, info))


def _invertible(A: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the matrices, with the unit matrix for singular ones, and infos as of `lu_factor_ex`."""
    info = _ops.linalg_lu_factor_ex(A.detach())[2]
    eye = _ops.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return _ops.where(_ops.reshape(_ops.ne(info, 0), [*info.shape, 1, 1]), eye, A), info


def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> InvEx:
    """Returns the inverses and, for each matrix, 0 or the first place, counted from 1, of a 0 on the diagonal of its U;
    then the result means nothing.
    """
    safe, info = _invertible(A)
    _raise("inv_ex", "singular", info, check_errors)
    return store(out, InvEx(_ops.linalg_inv(safe), info))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> SolveEx:
    """Returns the solutions and infos as of `inv_ex`."""
    safe, info = _invertible(A)
    _raise("solve_ex", "singular", info, check_errors)
    x = _ops.linalg_solve(safe, B) if left else _ops.linalg_solve(safe.mT, B.mT).mT
    return store(out, SolveEx(x, info))


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> LUFactorEx:
    """Returns a compact LU decomposition of matrices [*, m, n], whose rows are exchanged for stability.

    LU holds U and, below it, L without its diagonal of ones. pivots says with which row, counted from 1, each was
    exchanged, one after the other. info is 0 or the first place, counted from 1, of a 0 on U's diagonal.
    """
    if not pivot:
        raise MissingFeatureError("linalg.lu_factor: a decomposition without exchanges of rows is not there")
    lu, pivots, info = _ops.linalg_lu_factor_ex(A)
    _raise("lu_factor_ex", "singular", info, check_errors)
    return store(out, LUFactorEx(lu, pivots, info))


def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> LUFactor:
    """Returns what `lu_factor_ex` does without the infos.

    Raises:
        LinAlgError: if a matrix is singular.
    """
    lu, pivots, info = lu_factor_ex(A, pivot=pivot)
    _raise("lu_factor", "singular", info)
    return store(out, LUFactor(lu, pivots))


def lu(A: Tensor, *, pivot: bool = True, out: Any = None) -> LU:
    """Returns a permutation matrix P, a lower triangular L with a diagonal of ones and an upper U with A = P L U."""
    factors = lu_factor_ex(A, pivot=pivot)
    return store(out, LU(*_ops.lu_unpack(factors.LU, factors.pivots)))


def lu_solve(
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Returns X with A X = B, or X A = B if not `left`, where `lu_factor` made LU of A; with A^T if `adjoint`."""
    if left:
        return store(out, _ops.linalg_lu_solve(LU, pivots, B, adjoint))
    return store(out, _ops.linalg_lu_solve(LU, pivots, B.mT, not adjoint).mT)


def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the inverses of matrices.

    Raises:
        LinAlgError: if a matrix is singular. To know, the call waits; `inv_ex` does not.
    """
    return store(out, de.inv(A))


def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the determinants of matrices."""
    return store(out, _ops.linalg_det(A))


def slogdet(A: Tensor, *, out: Any = None) -> Slogdet:
    """Returns the signs of determinants and the logarithms of their absolute values."""
    return store(out, Slogdet(*_ops.linalg_slogdet(A)))


def eigh(input: Tensor, UPLO: str = "L", *, out: Any = None) -> Eigh:
    """Returns the eigenvalues, ascending, and eigenvectors of symmetric matrices, of which one triangle is read."""
    return store(out, Eigh(*de.eigh(_symmetric(input, UPLO))))


def _symmetric(A: Tensor, triangle: str) -> Tensor:
    if triangle not in ("L", "U"):
        raise ValueError(f"eigh: UPLO must be 'L' or 'U', got {triangle!r}")
    return mirrored(A, triangle == "L")


def mirrored(A: Tensor, lower: bool) -> Tensor:
    """Returns the symmetric matrices that have one triangle of `A`."""
    from plait._autograd.symmetric import Mirrored

    return Mirrored.apply(A, lower) if len(A.shape) > 1 and A.shape[-1] == A.shape[-2] else A


def eigvalsh(input: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """Returns the eigenvalues of symmetric matrices, ascending."""
    return store(out, eigh(input, UPLO).eigenvalues)


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Any = None) -> LinalgSVD:
    """Returns U, S and Vh with A = U diag(S) Vh; with full_matrices, U and Vh are square."""
    m, n = A.shape[-2:]
    u, s, v = de.svd(A)
    if full_matrices and m != n:
        u, v = _completed(u), _completed(v.mT).mT
    return store(out, LinalgSVD(u, s, v))


def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """Returns the singular values, descending."""
    return store(out, de.svd(A)[1])


def _beside_eye(A: Tensor) -> Tensor:
    """Returns matrices with the unit matrix to the right: the columns of their Q begin with those of A's and go on."""
    eye = _ops.eye(A.shape[-2], dtype=A.dtype, device=A.device)
    return _ops.cat([A, _ops.expand(eye, [*A.shape[:-2], *eye.shape])], -1)


def _completed(q: Tensor) -> Tensor:
    """Returns orthonormal columns with more to their right that make them a basis."""
    if q.shape[-2] <= q.shape[-1]:
        return q
    with no_grad():
        more = _ops.linalg_qr(_beside_eye(q))[0][..., q.shape[-1] :]
    return _ops.cat([q, more], -1)


def qr(A: Tensor, mode: str = "reduced", *, out: Any = None) -> QR:
    """Returns Q with orthonormal columns and an upper triangular R with A = Q R."""
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"linalg.qr: mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    if mode == "complete" and A.shape[-2] > A.shape[-1]:
        q, r = _ops.linalg_qr(_beside_eye(A))
        return store(out, QR(q, r[..., : A.shape[-1]]))
    q, r = _ops.linalg_qr(A)
    return store(out, QR(_ops.empty(0, dtype=A.dtype, device=A.device) if mode == "r" else q, r))


def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """Returns X with A X = B, or X A = B if not `left`.

    Raises:
        LinAlgError: if a matrix is singular. To know, the call waits; `solve_ex` does not.
    """
    return store(out, de.solve(A, B) if left else de.solve(A.mT, B.mT).mT)


def solve_triangular(
    input: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Tensor | None = None
) -> Tensor:
    """Returns X with input X = B, or X input = B if not `left`, for triangular matrices input."""
    if left:
        return store(out, _ops.linalg_solve_triangular(input, B, upper, unitriangular))
    return store(out, _ops.linalg_solve_triangular(input.mT, B.mT, not upper, unitriangular).mT)


def lstsq(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None) -> Lstsq:
    """Returns the X that minimises the norm of input X - b, the least of many, and what was found on the way.

    Args:
        input: matrices [*, m, n]
        b: right sides [*, m, k], or vectors [*, m]
        rcond: singular values of at most rcond times the largest count as 0; by default the larger of m and n times
            the dtype's eps
        driver: LAPACK's routine that has the same result: "gelsy" (the default), "gels" for matrices of full rank,
            "gelsd" or "gelss", with which the singular values are returned too
        out: where the results go

    Returns:
        the solution; the squared norms of input X - b, of matrices of more rows than columns and full rank, but for
        "gelsy"; the ranks; the singular values.

    Raises:
        LinAlgError: for "gels" and a matrix whose rank is not full.
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ValueError(f"linalg.lstsq: driver must be 'gels', 'gelsy', 'gelsd' or 'gelss', got {driver!r}")
    m, n = input.shape[-2:]
    vectors = len(input.shape) == len(b.shape) + 1 and b.shape == input.shape[:-1]
    right = _ops.unsqueeze(b, -1) if vectors else b
    x = _ops.linalg_lstsq(input, right, -1.0 if rcond is None else rcond)
    rank = matrix_rank(input, rtol=rcond)
    none = _ops.empty(0, dtype=input.dtype, device=input.device)
    gelsy = driver is None or driver == "gelsy"
    full = not gelsy and (input.is_meta or bool(_ops.all(_ops.eq(rank, min(m, n))).item()))
    if driver == "gels" and not full:
        raise LinAlgError("linalg.lstsq: a matrix has not the full rank that driver 'gels' wants; use 'gelsy'")
    residuals = _ops.sum(_ops.square(_ops.matmul(input, x) - right), -2) if m > n and full else none
    values = svdvals(input) if driver in ("gelsd", "gelss") else none
    x = _ops.squeeze(x, -1) if vectors else x
    return store(out, Lstsq(x, residuals, none.long() if driver == "gels" else rank, values))


def _small(s: Tensor, A: Tensor, atol: Any, rtol: Any) -> Tensor:
    """Whether singular values of matrices A count as 0: those of at most max(atol, rtol times the largest).

    Both may be tensors, with one element for each matrix. Without rtol that is the precision of A's dtype times the
    longer side, or 0 where atol is not 0.
    """
    if not s.numel():
        return _ops.lt(s, 0)
    least = _ops.unsqueeze(typed(0.0 if atol is None else atol, s), -1)
    if rtol is None:
        rtol = _ops.where(_ops.gt(least, 0), 0.0, max(A.shape[-2:]) * finfo(A.dtype).eps)
    else:
        rtol = _ops.unsqueeze(typed(rtol, s), -1)
    return _ops.le(s, _ops.maximum(least, _ops.mul(_ops.amax(s, -1, True), rtol)))


def pinv(
    input: Tensor,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the pseudo-inverses of matrices.

    Args:
        input: the matrices
        rcond: the older name of rtol
        hermitian: the matrices are symmetric, and only what is on and below their diagonals is read
        atol: singular values of at most this, or of rtol times the largest, count as 0; a number, or one for each
        rtol: as above; by default the precision of the dtype times the longer side, or 0 where atol is not 0
        out: where the result goes
    """
    if rcond is not None:
        _alone("pinv", "rcond", atol, rtol)
        rtol = rcond
    if atol is None and not hermitian and not is_tensor(rtol):
        return store(out, _ops.linalg_pinv(input, -1.0 if rtol is None else rtol))
    with without_autocast():
        if hermitian:
            s, u = _ops.linalg_eigh(mirrored(input, True))
            v = u
        else:
            u, s, vh = _ops.linalg_svd(input)
            v = vh.mT
        small = _small(_ops.abs(s), input, atol, rtol)
        inverse = _ops.where(small, 0.0, _ops.reciprocal(_ops.where(small, 1.0, s)))
        return store(out, _ops.matmul(v * _ops.unsqueeze(inverse, -2), u.mT))


def _alone(name: str, older: str, atol: Any, rtol: Any) -> None:
    if atol is not None or rtol is not None:
        raise TypeError(f"linalg.{name}: want {older}, or atol and rtol, got both")


def matrix_rank(
    input: Tensor,
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the number of singular values above max(atol, rtol times the largest); arguments are those of `pinv`.

    The older `tol` is an atol beside an rtol of 0.
    """
    if tol is not None:
        _alone("matrix_rank", "tol", atol, rtol)
        atol, rtol = tol, 0.0
    a = input.detach()
    s = _ops.abs(_ops.linalg_eigh(mirrored(a, True))[0]) if hermitian else _ops.linalg_svd(a)[1]
    return store(out, _ops.sum(_ops.logical_not(_small(s, input, atol, rtol)), -1))


def _largest(x: Tensor, dim: int, keepdim: bool = True) -> Tensor:
    """Returns the largest of numbers along a dimension that are not negative, 0 of none."""
    return (_ops.amax if x.shape[dim] else _ops.sum)(x, dim, keepdim)


def vector_norm(
    input: Tensor,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the norm of vectors along dimensions, of all elements by default."""
    return store(out, _ops.vector_norm(input, ord, dim, keepdim, dtype=dtype))


def matrix_norm(
    input: Tensor,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the norm of matrices in two dimensions: "fro", "nuc", inf, -inf, 1, -1, 2 or -2."""
    input = input if dtype is None else _ops.to(input, dtype=dtype)
    n = len(input.shape)
    for d in dim:
        if not -n <= d < n:
            raise IndexRangeError(f"linalg.matrix_norm: dimension {d} out of range, want [{-n}, {n - 1}]")
    a, b = (d % n for d in dim)
    if a == b:
        raise ValueError(f"linalg.matrix_norm: want two different dimensions, got {tuple(dim)}")
    if ord == "fro":
        return store(out, _ops.vector_norm(input, 2.0, (a, b), keepdim))
    if ord in (1, -1, float("inf"), float("-inf")):
        inner, outer = (a, b) if abs(ord) == 1 else (b, a)
        sums = _ops.sum(_ops.abs(input), inner, True)
        result = _largest(sums, outer) if ord > 0 else _ops.amin(sums, outer, True)
    elif ord in ("nuc", 2, -2):
        s = _ops.linalg_svd(_ops.movedim(input, (a, b), (-2, -1)))[1]
        reduce: Any = {"nuc": _ops.sum, 2: _largest, -2: _ops.amin}[ord]
        value = _ops.squeeze(reduce(s, -1, True), -1)
        for d in sorted((a, b)):
            value = _ops.unsqueeze(value, d)
        result = value
    else:
        raise ValueError(f"linalg.matrix_norm: ord must be 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2, got {ord!r}")
    return store(out, result if keepdim else _ops.squeeze(result, (a, b)))


def norm(
    input: Tensor,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
) -> Tensor:
    """Returns a vector norm, or, with two dimensions and an order, a matrix norm."""
    two = len(input.shape) == 2 if dim is None else not isinstance(dim, int) and len(dim) == 2
    if ord is not None and two:
        return matrix_norm(input, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        raise ValueError(f"linalg.norm: ord {ord!r} wants a matrix, got shape {list(input.shape)} and dim {dim}")
    return vector_norm(input, 2 if ord is None else ord, dim, keepdim, dtype=dtype, out=out)


def cond(input: Tensor, p: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Returns the condition numbers of matrices in a norm, by default 2: inf for singular ones, 0 for empty ones."""
    if 0 in input.shape[-2:]:
        return store(out, _ops.zeros(*input.shape[:-2], dtype=input.dtype, device=input.device))
    if p is None or p in (2, -2):
        s = de.svd(input)[1]
        first, last = _ops.select(s, -1, 0), _ops.select(s, -1, -1)
        return store(out, last / first if p == -2 else first / last)
    inverse, info = inv_ex(input)
    return store(out, _ops.where(_ops.eq(info, 0), matrix_norm(input, p) * matrix_norm(inverse, p), math.inf))


def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Returns the n-th power of square matrices, of their inverses if n is negative."""
    return store(out, _ops.matrix_power(input, n) if n >= 0 else _ops.matrix_power(de.inv(input), -n))


@without_autocast()
def matrix_exp(input: Tensor) -> Tensor:
    """Returns the exponentials of square matrices.

    By scaling, a Taylor polynomial of degree 18 and squaring: Moler, Van Loan: Nineteen dubious ways to compute the
    exponential of a matrix, twenty-five years later, 2003.
    """
    if len(input.shape) < 2 or input.shape[-1] != input.shape[-2]:
        raise ValueError(f"matrix_exp: want square matrices, got shape {list(input.shape)}")
    if input.numel() == 0:
        return _ops.clone(input)
    if input.dtype.itemsize == 2:  # squarings multiply what is rounded off
        return matrix_exp(input.float()).to(input.dtype)
    size = _ops.amax(_ops.sum(_ops.abs(input.detach()), -1)).item()
    squarings = max(0, int(size).bit_length()) if math.isfinite(size) else 0
    x = input / 2.0**squarings
    eye = _ops.expand(_ops.eye(input.shape[-1], dtype=input.dtype, device=input.device), input.shape)
    out = eye
    for k in range(18, 0, -1):
        out = eye + _ops.matmul(x, out) / k
    for _ in range(squarings):
        out = _ops.matmul(out, out)
    return out


def multi_dot(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Returns the product of several matrices, in the cheapest order."""
    return store(out, _ops.multi_dot(tensors))


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the product of matrices."""
    return store(out, _ops.matmul(input, other))


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Returns the products of vectors of three elements along a dimension."""
    return store(out, _ops.cross(input, other, dim))


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Returns the sums of the products of the elements along a dimension."""
    return store(out, _ops.sum(_ops.mul(x, y), dim))


def householder_product(input: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the first columns of the product of the reflections I - tau v v^T.

    Args:
        input: below the diagonal of each column lies v; on it v is 1 and above 0
        tau: of the reflections, one for each of the first columns of input
        out: where the result goes
    """
    m, n = input.shape[-2:]
    if not tau.shape[-1] <= n <= m:
        raise ValueError(
            f"householder_product: got input {list(input.shape)} and tau {list(tau.shape)}, want tau <= columns <= rows"
        )
    eye = _ops.expand(_ops.eye(m, n, dtype=input.dtype, device=input.device), input.shape)
    vectors = _ops.tril(input, -1) + eye
    # Without reflections a constant, which follows from the input all the same.
    result = eye if tau.shape[-1] else _ops.where(_ops.eq(eye, eye), eye, input)
    with without_autocast():
        for i in reversed(range(tau.shape[-1])):
            v = vectors[..., i : i + 1]
            result = result - tau[..., i : i + 1, None] * _ops.matmul(v, _ops.matmul(v.mT, result))
    return store(out, result)


def matrix_sqrth(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the square roots of symmetric positive definite matrices."""
    values, vectors = de.eigh(input)
    with without_autocast():
        return store(out, _ops.matmul(vectors * _ops.sqrt(values)[..., None, :], vectors.mT))


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Returns a view of the diagonals of matrices."""
    return _ops.diagonal(A, offset, dim1, dim2)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """Returns the matrix of ascending powers of the elements of vectors."""
    n = (x.shape[-1] if x.shape else 1) if N is None else N
    if not x.dtype.is_floating_point:
        x = x.long()
    column = _ops.reshape(x, (*(x.shape or (1,)), 1))
    return _ops.pow(column, _ops.arange(0, end=n, dtype=x.dtype, device=x.device))


def tensorinv(input: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """Returns the inverse of a tensor as a map from its last dimensions to its first `ind`."""
    rows = 1
    for n in input.shape[:ind]:
        rows *= n
    return store(out, _ops.reshape(de.inv(_ops.reshape(input, rows, -1)), (*input.shape[ind:], *input.shape[:ind])))


def tensorsolve(input: Tensor, other: Tensor, dims: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Returns X with tensordot(input, X) = other over the last dimensions of input."""
    if dims is not None:
        input = _ops.movedim(input, list(dims), [len(input.shape) - len(dims) + i for i in range(len(dims))])
    shape = input.shape[len(other.shape) :]
    return store(out, _ops.reshape(de.solve(_ops.reshape(input, other.numel(), -1), _ops.reshape(other, (-1,))), shape))


def __getattr__(name: str) -> Any:
    raise _absent("linalg", "plait.linalg", name)
