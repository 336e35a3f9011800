"""Determinants, powers and products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from plait import _dtype as dt
from plait import _ops, return_types
from plait._autograd import batch as _batch
from plait._functions import decompositions as de
from plait._functions._common import into, store
from plait._modes import without_autocast
from plait.return_types import Slogdet

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "cross",
    "det",
    "diagonal",
    "matmul",
    "matrix_exp",
    "matrix_power",
    "multi_dot",
    "slogdet",
    "vander",
    "vecdot",
]


def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the determinants of matrices."""
    return store(out, _ops.linalg_det(A))


def slogdet(A: Tensor, *, out: Any = None) -> Slogdet:
    """Returns the signs of determinants and the logarithms of their absolute values."""
    return store(out, return_types.linalg_slogdet(*_ops.linalg_slogdet(A)))


def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Returns the n-th power of square matrices, of their inverses if n is negative."""
    return store(out, _ops.matrix_power(input, n) if n >= 0 else _ops.matrix_power(de.inv(input), -n))


@without_autocast()
def matrix_exp(input: Tensor) -> Tensor:
    """Returns the exponentials of square matrices.

    By scaling, a Taylor polynomial of degree 15, or 18 for float64, and squaring: Moler, Van Loan: Nineteen dubious
    ways to compute the exponential of a matrix, twenty-five years later, 2003. The polynomial is one in a power of the
    matrix: Paterson, Stockmeyer: On the number of nonscalar multiplications necessary to evaluate polynomials, 1973.
    """
    if len(input.shape) < 2 or input.shape[-1] != input.shape[-2]:
        raise ValueError(f"matrix_exp: want square matrices, got shape {list(input.shape)}")
    if input.numel() == 0:
        return _ops.clone(input)
    if input.dtype.itemsize == 2:  # squarings multiply what is rounded off
        return matrix_exp(input.float()).to(input.dtype)
    size = _ops.amax(_ops.sum(_ops.abs(_batch.behind(input.detach())), -1)).item()
    wide = dt.complex_parts(input.dtype).itemsize == 8
    squarings = int(size if wide else size / 2).bit_length() if math.isfinite(size) else 0
    x = input / 2.0**squarings
    eye = _ops.expand(_ops.eye(input.shape[-1], dtype=input.dtype, device=input.device), input.shape)
    count = 6 if wide else 5
    powers = [eye, x]
    while len(powers) <= count:
        powers.append(_ops.matmul(powers[-1], x))
    out = powers[-1] / math.factorial(3 * count)
    for part in (2, 1, 0):
        out = out if part == 2 else _ops.matmul(out, powers[-1])
        for i in range(count):
            out = out + powers[i] / math.factorial(part * count + i)
    for _ in range(squarings):
        out = _ops.matmul(out, out)
    return out


def multi_dot(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    """Returns the product of several matrices, in the cheapest order."""
    return store(out, _ops.multi_dot(tensors))


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the product of matrices."""
    return into(out, _ops.matmul, input, other)


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Returns the products of vectors of three elements along a dimension."""
    return store(out, _ops.cross(input, other, dim))


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Returns the sums of the products of the elements along a dimension, of which those of x are conjugated."""
    return into(out, _ops.sum, _ops.mul(_ops.conj(x), y), dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Returns a view of the diagonals of matrices."""
    return _ops.diagonal(A, offset, dim1, dim2)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """Returns the matrix of ascending powers of the elements of vectors."""
    n = (x.shape[-1] if x.shape else 1) if N is None else N
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        x = x.long()
    column = _ops.reshape(x, (*(x.shape or (1,)), 1))
    if x.dtype.is_complex:  # by products: powers of complex numbers go by logarithms
        ones = _ops.ones_like(column)
        return _ops.cumprod(_ops.cat([ones, _ops.expand(column, (*column.shape[:-1], max(n - 1, 0)))], -1), -1)[..., :n]
    return _ops.pow(column, _ops.arange(0, end=n, dtype=x.dtype, device=x.device))
