"""Unit vectors, of which derivatives make Jacobians."""

from __future__ import annotations

from plait import _ops
from plait._autograd import batch as _batch
from plait._tensor import Tensor
from plait._tensors.beside import beside as _beside


def units(like: Tensor) -> Tensor:
    """Returns all unit vectors of the space of a tensor, each with its shape, along a first dimension."""
    n = like.numel()
    return beside(like, _ops.reshape(_ops.eye(n, dtype=like.dtype, device=like.device), (n, *like.shape)))


def unit(like: Tensor, i: int) -> Tensor:
    """Returns unit vector `i` of `units`."""
    e = _ops.zeros(like.numel(), dtype=like.dtype, device=like.device)
    e[i] = 1
    return beside(like, _ops.reshape(e, tuple(like.shape)))


def beside(like: Tensor, t: Tensor) -> Tensor:
    """Returns t, which all ranks have, as a distributed tensor if `like` is one, or a batch of such."""
    return _beside(_batch.behind(like), t)
