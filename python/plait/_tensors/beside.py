"""Tensors that stand beside distributed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait._tensor import Tensor


def beside(like: Tensor, t: Tensor) -> Tensor:
    """Returns t, which all ranks have, as a distributed tensor if `like` is one: it lies as that does if it has its
    shape, and is replicated otherwise.
    """
    if type(like).__name__ in ("Tensor", "Parameter"):  # most are, and need no import
        return t
    from plait.distributed.tensor._alike import laid_like
    from plait.distributed.tensor._dtensor import DTensor, is_distributed

    if not is_distributed(like):
        return t
    if t.shape == like.shape and not any(p.is_partial() for p in like.placements):
        return laid_like(t, like)
    return DTensor.from_local(t, like.device_mesh)
