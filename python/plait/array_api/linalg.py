"""The standard's linear algebra."""

from __future__ import annotations

from typing import Any, NamedTuple

import plait
from plait._tensor import Tensor
from plait.linalg import (
    cross,
    det,
    diagonal,
    eigh,
    eigvalsh,
    inv,
    matmul,
    matrix_norm,
    matrix_power,
    slogdet,
    solve,
    svdvals,
    vecdot,
    vector_norm,
)

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip


class QR(NamedTuple):
    """Orthonormal columns, and an upper triangular matrix."""

    Q: Tensor
    R: Tensor


class SVD(NamedTuple):
    """Singular vectors and values, the right vectors in rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Returns the triangular factors of symmetric positive definite matrices."""
    return plait.linalg.cholesky(x, upper=upper)


def matrix_rank(x: Tensor, /, *, rtol: float | None = None) -> Tensor:
    """Returns the number of singular values above rtol times the largest."""
    return plait.linalg.matrix_rank(x, rtol=rtol)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Returns a view with the last two axes exchanged."""
    return x.mT


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Returns the products of all pairs of elements of two vectors."""
    return plait.outer(x1, x2)


def pinv(x: Tensor, /, *, rtol: float | None = None) -> Tensor:
    """Returns the pseudo-inverses of matrices."""
    return plait.linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR:
    """Returns orthonormal columns and an upper triangular matrix whose product is x; mode may be "complete"."""
    return QR(*plait.linalg.qr(x, mode))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """Returns singular vectors and values."""
    return SVD(*plait.linalg.svd(x, full_matrices))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Returns the sums of products over the last axes of x1 and the first of x2, or over pairs of axes."""
    return plait.tensordot(x1, x2, axes)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Returns the sums of the diagonals of matrices."""
    return plait.sum(plait.diagonal(x, offset, -2, -1), -1, dtype=dtype)
