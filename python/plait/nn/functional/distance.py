"""Linear maps and distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait import _ops
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["bilinear", "cosine_similarity", "linear", "pairwise_distance", "pdist"]

_PAIR_ELEMENTS = 1 << 20

linear, bilinear = _ops.linear, _ops.bilinear
cosine_similarity = _ops.cosine_similarity


@checked
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Returns the p-norm of x1 - x2 + eps along the last dimension."""
    return _ops.pairwise_distance(x1, x2, float(p), eps, keepdim)


@checked
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Returns the p-norm distances of every pair of rows of a matrix, in the order of the upper triangle."""
    if input.ndim != 2:
        raise ValueError(f"pdist: want a matrix, got shape {list(input.shape)}")
    n, width = input.shape
    if n * (n - 1) * width > _PAIR_ELEMENTS:  # a row at a time, whose differences stay in the caches
        rows = (_ops.sub(input[i + 1 :], input[i]) for i in range(n - 1))
        return _ops.cat([_ops.vector_norm(apart, float(p), -1) for apart in rows])
    above = _ops.triu_indices(n, n, 1, device=input.device)
    first, second = _ops.unbind(above, 0)
    apart = _ops.sub(_ops.index_select(input, 0, first), _ops.index_select(input, 0, second))
    return _ops.vector_norm(apart, float(p), -1)
