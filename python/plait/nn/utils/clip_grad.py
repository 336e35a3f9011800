"""Limits on gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from plait import _ops
from plait._modes import no_grad
from plait._tensor import Tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _grads(parameters: Any) -> list[Tensor]:
    every = [parameters] if isinstance(parameters, Tensor) else parameters
    return [g for p in every if (g := p.grad) is not None]


def _whole(norm: Any) -> Tensor:
    """Returns the norm of a distributed gradient as an ordinary tensor."""
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


@no_grad()
def get_total_norm(
    tensors: Iterable[Tensor] | Tensor,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Returns the norm of all tensors as if they were one.

    Args:
        tensors: the tensors
        norm_type: which norm
        error_if_nonfinite: raise if it is infinite or not a number
        foreach: has no effect
    """
    every = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not every:
        return _ops.zeros(())
    p = float(norm_type)
    norms = [_whole(_ops.vector_norm(t.detach(), p)) for t in every]
    first = norms[0].device
    total = _ops.vector_norm(_ops.stack([n.to(first) for n in norms], 0), p)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"get_total_norm: the norm of order {p} is {total.item()}; error_if_nonfinite asks for this error"
        )
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Iterable[Tensor] | Tensor, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales the gradients by max_norm / total_norm where that is below 1."""
    scale = _ops.clamp(_ops.mul(_ops.reciprocal(_ops.add(total_norm, 1e-6)), float(max_norm)), None, 1.0)
    for g in _grads(parameters):
        g.mul_(scale.to(device=g.device, dtype=g.dtype))


@no_grad()
def clip_grad_norm_(
    parameters: Iterable[Tensor] | Tensor,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales the gradients so that their norm, as if they were one, is at most max_norm, and returns what it was.

    Of parameters that are sharded over ranks the norm is that of the whole; every rank calls it.

    Args:
        parameters: whose gradients to scale
        max_norm: the limit
        norm_type: which norm
        error_if_nonfinite: raise if the norm is infinite or not a number
        foreach: has no effect
    """
    every = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = norm_of_gradients(every, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(every, max_norm, total)
    return total


def norm_of_gradients(parameters: list[Tensor], norm_type: float, error_if_nonfinite: bool = False) -> Tensor:
    """Returns the norm of parameters' gradients as one vector: of divided parameters, of the whole on every rank."""
    if norm_type not in (0, -math.inf) and any(getattr(type(p), "divided", False) for p in parameters):
        from plait.distributed.fsdp._unit import total_norm

        return total_norm(parameters, norm_type, error_if_nonfinite)
    return get_total_norm(_grads(parameters), norm_type, error_if_nonfinite)


clip_grad_norm = clip_grad_norm_


@no_grad()
def clip_grad_value_(parameters: Iterable[Tensor] | Tensor, clip_value: float, foreach: bool | None = None) -> None:
    """Limits the elements of the gradients to [-clip_value, clip_value]."""
    limit = float(clip_value)
    for g in _grads(parameters):
        _ops.clamp_(g, -limit, limit)
