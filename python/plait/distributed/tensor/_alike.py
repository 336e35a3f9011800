"""Tensors that lie as a distributed tensor does, such as an optimiser's state of a parameter."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from plait import _core, _ops
from plait._engine.runtime import address
from plait._tensor import Tensor
from plait.distributed.tensor._creation import filled
from plait.distributed.tensor._dtensor import DTensor
from plait.distributed.tensor._placements import Placement, Replicate, unpacked


def placements_like(model: DTensor, shape: Sequence[int]) -> tuple[Placement, ...]:
    """Returns how a tensor of another shape lies: sharded where both have the same size, elsewhere replicated."""
    sizes = array("q", shape)
    return unpacked(lambda to, most: _core.bind_DTensorPlacementsLike(model._h, address(sizes), len(sizes), to, most))


def empty_like(model: DTensor, shape: Sequence[int], dtype: Any) -> DTensor:
    """Returns a tensor with undefined values that lies as `model` does."""

    def make(local: tuple[int, ...]) -> Tensor:
        return _ops.empty(local, dtype=dtype, device=model.device)

    return filled(make, (tuple(shape),), model.device_mesh, placements_like(model, shape), False)


def laid_like(tensor: Tensor, model: DTensor) -> DTensor:
    """Returns a tensor that lies as `model` does. It may share memory with `tensor`.

    Args:
        tensor: a distributed tensor on the same mesh, which all ranks move if it lies otherwise; or an ordinary tensor
            with all elements, which every rank has
        model: a distributed tensor without pending placements
    """
    mesh = model.device_mesh
    if isinstance(tensor, DTensor):
        moved: Any = tensor.to(model.device)
        return moved.redistribute(mesh, placements_like(model, tensor.shape))
    whole = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim)
    return whole.redistribute(placements=placements_like(model, tensor.shape))


def state_like(param: Tensor, key: str, value: Tensor) -> Tensor:
    """Returns an optimiser's state of a parameter, one of which is distributed, laid as the parameter is.

    Args:
        param: the parameter
        key: the name of the state
        value: a distributed tensor, this rank's part of one of the parameter's shape, or a number

    Raises:
        ValueError: for another ordinary tensor, and for a distributed state of an ordinary parameter.
    """
    if not isinstance(param, DTensor):
        raise ValueError(
            f"load_state_dict: state {key!r}: got a tensor of shape {list(value.shape)} that is distributed, "
            f"want an ordinary one for a parameter of shape {list(param.shape)}"
        )
    if isinstance(value, DTensor):
        return laid_like(value, param)
    local = param._local_tensor.shape
    if value.dim() > 0 and value.shape != local:
        raise ValueError(
            f"load_state_dict: state {key!r}: got an ordinary tensor of shape {list(value.shape)}, want a distributed "
            f"one for a parameter of shape {list(param.shape)} placed {list(param.placements)}, or this rank's part, "
            f"of shape {list(local)}"
        )
    if value.dim() == 0:
        return value
    return DTensor.from_local(value, param.device_mesh, param.placements, shape=param.shape)
