"""Linear maps and distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait import _ops
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["bilinear", "cosine_similarity", "linear", "pairwise_distance", "pdist"]

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
    return _ops.pdist(input, float(p))
