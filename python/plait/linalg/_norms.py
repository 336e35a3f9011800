"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._errors import IndexRangeError
from plait._functions import decompositions as de
from plait._functions._common import store
from plait.linalg._solving import inv_ex

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._tensor import Tensor

__all__ = ["cond", "matrix_norm", "norm", "vector_norm"]


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
        s = _ops.linalg_svdvals(_ops.movedim(input, (a, b), (-2, -1)))
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
        s = de.svdvals(input)
        first, last = _ops.select(s, -1, 0), _ops.select(s, -1, -1)
        return store(out, last / first if p == -2 else first / last)
    inverse, info = inv_ex(input)
    return store(out, _ops.where(_ops.eq(info, 0), matrix_norm(input, p) * matrix_norm(inverse, p), math.inf))
