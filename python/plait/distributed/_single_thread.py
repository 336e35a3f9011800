"""Collectives without ranks: one thread calls them for the tensors of all devices."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from plait import _core
from plait._engine.runtime import address, check
from plait._tensor import Tensor
from plait.distributed._work import ReduceOp


def all_reduce_sync(tensors: Sequence[Tensor] | Sequence[Sequence[Tensor]], op: int = ReduceOp.AVG) -> None:
    """Reduces tensors over devices, in place and in the order of the devices. The default is the mean.

    It returns once the work is enqueued. Later operations on the tensors run after it.

    Args:
        tensors: one tensor for each device, of one shape and dtype; or one list of tensors for each device, such as
            the gradients of a replica
        op: the reduction
    """
    lists = [[t] if isinstance(t, Tensor) else list(t) for t in tensors]
    count = len(lists[0]) if lists else 0
    if not lists or any(len(part) != count for part in lists):
        raise ValueError(f"all_reduce_sync: want as many tensors of each device, got {[len(part) for part in lists]}")
    if not all(isinstance(t, Tensor) for part in lists for t in part):
        raise TypeError("all_reduce_sync: want tensors")
    handles = array("q", [t._h for part in lists for t in part])
    check(_core.bind_AllReduceSync(address(handles), len(lists), count, int(op)))
