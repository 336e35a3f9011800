"""The standard's linear algebra."""

from __future__ import annotations

from typing import Any, NamedTuple

import plait
from plait._tensor import Tensor
from plait.array_api._elementwise import matmul, promoted
from plait.linalg import det, eigh, eigvalsh, inv, matrix_power, slogdet, svdvals

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


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Returns the products of vectors of three elements along an axis."""
    x1, x2 = promoted(x1, x2)
    return plait.linalg.cross(x1, x2, dim=axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Returns a view of the diagonals of matrices."""
    return plait.diagonal(x, offset, -2, -1)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Returns the norms of matrices: "fro", "nuc", inf, -inf, 1, -1, 2 or -2."""
    return plait.linalg.matrix_norm(x, "fro" if ord is None else ord, keepdim=keepdims)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Returns the norms of vectors along axes, of all elements by default."""
    if isinstance(axis, tuple) and not axis:  # each element is a vector
        return plait.linalg.vector_norm(plait.unsqueeze(x, -1), ord, -1)
    return plait.linalg.vector_norm(x, ord, axis, keepdims)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Returns the sums of the products of elements along an axis, which counts from the end."""
    x1, x2 = promoted(x1, x2)
    return plait.sum(plait.mul(x1, x2), axis, dtype=x1.dtype)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Returns X with x1 X = x2, where x2 with one dimension is a vector."""
    a, b = promoted(x1, x2)
    return plait.linalg.solve(a, b[..., None])[..., 0] if b.ndim == 1 else plait.linalg.solve(a, b)


def matrix_rank(x: Tensor, /, *, rtol: float | None = None) -> Tensor:
    """Returns the number of singular values above rtol times the largest."""
    return plait.linalg.matrix_rank(x, rtol=rtol)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Returns a view with the last two axes exchanged."""
    return x.mT


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Returns the products of all pairs of elements of two vectors."""
    x1, x2 = promoted(x1, x2)
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
    x1, x2 = promoted(x1, x2)
    return plait.tensordot(x1, x2, axes)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Returns the sums of the diagonals of matrices."""
    return plait.sum(plait.diagonal(x, offset, -2, -1), -1, dtype=dtype)
