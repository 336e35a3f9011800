"""NVIDIA's library of collectives, which is not used: `plait.distributed` has its own."""

from __future__ import annotations

from collections.abc import Iterable

from plait._engine.missing_names import refusing as _refusing
from plait._tensor import Tensor

__all__ = ["is_available", "version"]


def is_available(tensors: Iterable[Tensor]) -> bool:
    """Returns False: no tensors go through NCCL."""
    return False


def version() -> tuple[int, int, int]:
    """Returns (0, 0, 0): there is none."""
    return 0, 0, 0


__getattr__ = _refusing(
    __name__,
    "all_gather all_reduce broadcast init_rank reduce reduce_scatter unique_id",
    "NCCL is not used: see plait.distributed",
)
