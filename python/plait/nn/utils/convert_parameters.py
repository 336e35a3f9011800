"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plait import _ops
from plait._modes import no_grad
from plait._tensor import Tensor
from plait._tensors.beside import beside
from plait.nn.parameter import adopt

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Returns the elements of all parameters in one vector, a distributed one if a parameter is distributed."""
    every = list(parameters)
    model = next((p for p in every if hasattr(p, "device_mesh")), None)
    parts = [_ops.reshape(p, (-1,)) for p in every]
    if model is not None:
        parts = [p if hasattr(p, "device_mesh") else beside(model, p) for p in parts]
    return _ops.cat(parts, 0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes parameters views of the parts of a vector, in order. Distributed parameters get copies of their parts.

    For those the vector is a distributed tensor, or an ordinary one that every rank has.
    """
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
        value: Any = _ops.reshape(part, tuple(p.shape))
        if hasattr(p, "device_mesh"):
            _set_distributed(p, value)
        else:
            adopt(p, value.full_tensor() if hasattr(value, "device_mesh") else value)


@no_grad()
def _set_distributed(p: Tensor, value: Tensor) -> None:
    from plait.distributed.tensor._alike import laid_like
    from plait.distributed.tensor._dtensor import is_distributed

    if is_distributed(p):
        p.copy_(laid_like(value, p))
    else:  # a gathered one
        adopt(p, value)
