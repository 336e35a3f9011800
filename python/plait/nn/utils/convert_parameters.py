"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable

from plait import _ops
from plait._tensor import Tensor
from plait.nn.parameter import adopt

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Returns the elements of all parameters in one vector."""
    return _ops.cat([_ops.reshape(p, (-1,)) for p in parameters], 0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes parameters views of the parts of a vector, in order."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: want a tensor, got {type(vec).__name__}")
    every = list(parameters)
    wanted = sum(p.numel() for p in every)
    if vec.numel() < wanted:
        raise ValueError(f"vector_to_parameters: {wanted} elements are needed, got {vec.numel()}")
    at = 0
    for p in every:
        part = _ops.narrow(vec.detach(), 0, at, p.numel())
        at += p.numel()
        adopt(p, _ops.reshape(part, tuple(p.shape)))
