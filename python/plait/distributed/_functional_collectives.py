"""Collectives that return new tensors, for PyTorch's compiler."""

from __future__ import annotations

from plait._engine.missing_names import refusing as _refusing
from plait._tensor import Tensor

__all__ = ["wait_tensor"]


def wait_tensor(tensor: Tensor) -> Tensor:
    """Returns the tensor: what uses it runs after the collective that fills it."""
    return tensor


__getattr__ = _refusing(
    __name__,
    "AsyncCollectiveTensor all_gather_tensor all_reduce all_to_all_single all_to_all_single_autograd broadcast "
    "permute_tensor reduce_scatter_tensor",
    "plait.distributed has collectives that write into tensors, plait.distributed.nn.functional those with derivatives",
)
