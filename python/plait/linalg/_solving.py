"""Solutions of equations, inverses and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _dtype as dt
from plait import _ops, return_types
from plait._autograd import batch as _batch
from plait._dtype import finfo
from plait._engine.runtime import is_tensor
from plait._errors import LinAlgError
from plait._functions import decompositions as de
from plait._functions._common import store, typed
from plait._modes import without_autocast
from plait.linalg._decompositions import _raise, svdvals
from plait.return_types import InvEx, Lstsq, SolveEx

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "inv",
    "inv_ex",
    "ldl_solve",
    "lstsq",
    "lu_solve",
    "matrix_rank",
    "pinv",
    "solve",
    "solve_ex",
    "solve_triangular",
    "tensorinv",
    "tensorsolve",
]


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
    return store(out, return_types.linalg_inv_ex(_ops.linalg_inv(safe), info))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> SolveEx:
    """Returns the solutions and infos as of `inv_ex`."""
    safe, info = _invertible(A)
    _raise("solve_ex", "singular", info, check_errors)
    x = _ops.linalg_solve(safe, B) if left else _ops.linalg_solve(safe.mT, B.mT).mT
    return store(out, return_types.linalg_solve_ex(x, info))


def lu_solve(
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Returns X with A X = B, or X A = B if not `left`, where `lu_factor` made LU of A; with A^H if `adjoint`."""
    if left:
        return store(out, _ops.linalg_lu_solve(LU, pivots, B, adjoint))
    return store(out, _ops.linalg_lu_solve(LU, pivots, B.mH, not adjoint).mH)


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Tensor | None = None) -> Tensor:
    """Returns X with A X = B, where `ldl_factor` made LD and pivots of A with the same `hermitian`."""
    return store(out, _ops.linalg_ldl_solve(LD, pivots, B, hermitian))


def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the inverses of matrices.

    Raises:
        LinAlgError: if a matrix is singular. To know, the call waits; `inv_ex` does not.
    """
    return store(out, de.inv(A))


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
        driver: how X is found, by the name of LAPACK's routine. "gelsy", the default: by a QR decomposition of
            exchanged columns, which estimates the singular values that count; on GPUs by the values themselves. "gelsd"
            and "gelss": by the singular values, which are returned too. "gels": by a QR decomposition, for matrices of
            full rank, whatever rcond is.
        out: where the results go

    Returns:
        the solution; the squared norms of input X - b, of matrices of more rows than columns and full rank, but for
        "gelsy"; the ranks, but for "gels"; the singular values.

    Raises:
        LinAlgError: for "gels" and a matrix whose rank is not full.
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ValueError(f"linalg.lstsq: driver must be 'gels', 'gelsy', 'gelsd' or 'gelss', got {driver!r}")
    m, n = input.shape[-2:]
    vectors = len(input.shape) == len(b.shape) + 1 and b.shape == input.shape[:-1]
    right = _ops.unsqueeze(b, -1) if vectors else b
    none = _ops.empty(0, dtype=dt.complex_parts(input.dtype), device=input.device)
    by_values = driver in ("gelsd", "gelss")
    if driver == "gels":
        x, rank, full = _of_full_rank(input, right), none.long(), True
    else:
        x, rank = _ops.linalg_lstsq(input, right, -1.0 if rcond is None else rcond, by_values)
        full = by_values and (input.is_meta or bool(_ops.all(_ops.eq(_batch.behind(rank), min(m, n))).item()))
    rest = _ops.matmul(input, x) - right if m > n and full else none
    residuals = _ops.sum(_ops.square(_ops.abs(rest) if rest.dtype.is_complex else rest), -2) if m > n and full else none
    values = svdvals(input) if by_values else none
    x = _ops.squeeze(x, -1) if vectors else x
    return store(out, return_types.linalg_lstsq(x, residuals, rank, values))


def _of_full_rank(a: Tensor, b: Tensor) -> Tensor:
    """Returns the solution of `lstsq` by a QR decomposition of matrices of full rank, or of their adjoints if wide."""
    wide = a.shape[-2] < a.shape[-1]
    q, r = _ops.linalg_qr(a.mH if wide else a)
    if r.numel() and not r.is_meta:
        sizes = _ops.abs(_ops.diagonal(_batch.behind(r.detach()), 0, -2, -1))
        least = _ops.amax(sizes, [-1], True) * (max(a.shape[-2:]) * finfo(a.dtype).eps)
        if not _ops.all(_ops.gt(sizes, least)).item():
            raise LinAlgError("linalg.lstsq: a matrix has not the full rank that driver 'gels' wants; use 'gelsy'")
    with without_autocast():
        if wide:
            return _ops.matmul(q, _ops.linalg_solve_triangular(r.mH, b, False))
        return _ops.linalg_solve_triangular(r, _ops.matmul(q.mH, b), True)


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
            s, u = _ops.linalg_eigh(input, "L")
            v = u
        else:
            u, s, vh = _ops.linalg_svd(input)
            v = vh.mH
        small = _small(_ops.abs(s), input, atol, rtol)
        inverse = _ops.where(small, 0.0, _ops.reciprocal(_ops.where(small, 1.0, s)))
        return store(out, _ops.matmul(v * _ops.unsqueeze(inverse, -2), u.mH))


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
    s = _ops.abs(_ops.linalg_eigvalsh(a, "L")) if hermitian else _ops.linalg_svdvals(a)
    return store(out, _ops.sum(_ops.logical_not(_small(s, input, atol, rtol)), -1))


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
