"""Factors of matrices, their eigenvalues and singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _ops, return_types
from plait._autograd import batch as _batch
from plait._errors import LinAlgError, MissingFeatureError
from plait._functions import decompositions as de
from plait._functions._common import store
from plait._modes import no_grad, without_autocast
from plait.return_types import LU, QR, CholeskyEx, Eig, Eigh, LDLFactor, LDLFactorEx, LinalgSVD, LUFactor, LUFactorEx

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "cholesky",
    "cholesky_ex",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "ldl_factor",
    "ldl_factor_ex",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "matrix_sqrth",
    "qr",
    "svd",
    "svdvals",
]


def cholesky(input: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """Returns the triangular factor of symmetric positive definite matrices, of which that triangle is read.

    Raises:
        LinAlgError: if a matrix is not positive definite. To know, the call waits; `cholesky_ex` does not.
    """
    return store(out, de.cholesky(input, upper, "U" if upper else "L"))


def _raise(name: str, what: str, info: Tensor, check_errors: bool = True) -> None:
    """Raises an error if an info of a stack of matrices is not 0."""
    info = _batch.behind(info)
    if check_errors and info.numel() and _ops.amax(info).item():
        places = _ops.nonzero(info).tolist()
        where = f"matrix {places[0]}" if places[0] else "the matrix"
        raise LinAlgError(f"linalg.{name}: {where} is {what}; its info is {info[tuple(places[0])].item()}")


def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> CholeskyEx:
    """Returns the triangular factors and, for each matrix, 0 or the order of the leading part that is not positive
    definite; then the factor means nothing.
    """
    factor, info = _ops.linalg_cholesky_ex(input, upper, "U" if upper else "L")
    _raise("cholesky_ex", "not positive definite", info, check_errors)
    return store(out, return_types.linalg_cholesky_ex(factor, info))


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> LUFactorEx:
    """Returns a compact LU decomposition of matrices [*, m, n], whose rows are exchanged for stability.

    LU holds U and, below it, L without its diagonal of ones. pivots says with which row, counted from 1, each was
    exchanged, one after the other. info is 0 or the first place, counted from 1, of a 0 on U's diagonal.
    """
    if not pivot:
        raise MissingFeatureError("linalg.lu_factor: a decomposition without exchanges of rows is not there")
    lu, pivots, info = _ops.linalg_lu_factor_ex(A)
    _raise("lu_factor_ex", "singular", info, check_errors)
    return store(out, return_types.linalg_lu_factor_ex(lu, pivots, info))


def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> LUFactor:
    """Returns what `lu_factor_ex` does without the infos.

    Raises:
        LinAlgError: if a matrix is singular.
    """
    lu, pivots, info = lu_factor_ex(A, pivot=pivot)
    _raise("lu_factor", "singular", info)
    return store(out, return_types.linalg_lu_factor(lu, pivots))


def lu(A: Tensor, *, pivot: bool = True, out: Any = None) -> LU:
    """Returns a permutation matrix P, a lower triangular L with a diagonal of ones and an upper U with A = P L U."""
    factors = lu_factor_ex(A, pivot=pivot)
    return store(out, return_types.linalg_lu(*_ops.lu_unpack(factors.LU, factors.pivots)))


def eig(input: Tensor, *, out: Any = None) -> Eig:
    """Returns the eigenvalues and the eigenvectors, in columns, of square matrices: complex numbers, in no order."""
    return store(out, return_types.linalg_eig(*de.eig(input)))


def eigvals(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the eigenvalues of square matrices: complex numbers, in no order."""
    return store(out, de.eigvals(input))


def eigh(input: Tensor, UPLO: str = "L", *, out: Any = None) -> Eigh:
    """Returns the eigenvalues, ascending, and eigenvectors of symmetric matrices, of which one triangle is read."""
    return store(out, return_types.linalg_eigh(*de.eigh(input, UPLO)))


def eigvalsh(input: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """Returns the eigenvalues of symmetric matrices, ascending."""
    return store(out, de.eigvalsh(input, UPLO))


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Any = None) -> LinalgSVD:
    """Returns U, S and Vh with A = U diag(S) Vh; with full_matrices, U and Vh are square."""
    m, n = A.shape[-2:]
    u, s, v = de.svd(A)
    if full_matrices and m != n:
        u, v = _completed(u), _completed(v.mH).mH
    return store(out, return_types.linalg_svd(u, s, v))


def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """Returns the singular values, descending."""
    return store(out, de.svdvals(A))


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
        return store(out, return_types.linalg_qr(q, r[..., : A.shape[-1]]))
    q, r = _ops.linalg_qr(A)
    return store(out, return_types.linalg_qr(_ops.empty(0, dtype=A.dtype, device=A.device) if mode == "r" else q, r))


def householder_product(input: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the first columns of the product of the reflections I - tau v v^H.

    Args:
        input: matrices [*, m, n]: below the diagonal of each column lies v; on it v is 1 and above 0
        tau: [*, k], of the reflections, one for each of the first columns of input
        out: where the result goes
    """
    return store(out, _ops.linalg_householder_product(input, tau))


def ldl_factor_ex(
    input: Tensor, *, hermitian: bool = False, check_errors: bool = False, out: Any = None
) -> LDLFactorEx:
    """Returns a compact LDL decomposition of symmetric matrices [*, n, n], of which the lower triangle is read.

    Of exchanged rows and columns they are L D L^T, or L D L^H of complex ones that are `hermitian`. The lower triangle
    LD holds D and, below it, L without its diagonal of ones. D has blocks of one row and of two, whose element below
    the diagonal is D's. pivots says with which row, counted from 1, each was exchanged, one after the other; those of a
    block of two rows are both the negative of the row with which the second was. info is 0 or the first place, counted
    from 1, of a 0 on D's diagonal.
    """
    ld, pivots, info = _ops.linalg_ldl_factor_ex(input, hermitian)
    _raise("ldl_factor_ex", "singular", info, check_errors)
    return store(out, return_types.linalg_ldl_factor_ex(ld, pivots, info))


def ldl_factor(input: Tensor, *, hermitian: bool = False, out: Any = None) -> LDLFactor:
    """Returns what `ldl_factor_ex` does without the infos.

    Raises:
        LinAlgError: if a matrix is singular.
    """
    ld, pivots, info = _ops.linalg_ldl_factor_ex(input, hermitian)
    _raise("ldl_factor", "singular", info)
    return store(out, return_types.linalg_ldl_factor(ld, pivots))


def matrix_sqrth(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the square roots of symmetric positive definite matrices."""
    values, vectors = de.eigh(input)
    with without_autocast():
        return store(out, _ops.matmul(vectors * _ops.sqrt(values)[..., None, :], vectors.mH))
