"""Distributed tensors made of a shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plait
from plait._tensor import Tensor
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.tensor._dtensor import DTensor, mesh_or_world
from plait.distributed.tensor._modules import distribute_tensor
from plait.distributed.tensor._placements import Placement, Replicate
from plait.distributed.tensor._utils import compute_local_shape_and_global_offset


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size


def filled(
    make: Callable[[tuple[int, ...]], Tensor],
    size: tuple[Any, ...],
    device_mesh: DeviceMesh | None,
    placements: Sequence[Placement] | None,
    requires_grad: bool,
) -> DTensor:
    """Returns a distributed tensor of whose parts `make` makes one, for the part's shape."""
    mesh, shape = mesh_or_world(device_mesh), _shape(size)
    placed = placements or [Replicate()] * mesh.ndim
    local, _ = compute_local_shape_and_global_offset(shape, mesh, placed)
    out = DTensor.from_local(make(local), mesh, placed, shape=shape)
    out.requires_grad = requires_grad
    return out


def zeros(
    *size: Any,
    requires_grad: bool = False,
    dtype: plait.dtype | None = None,
    layout: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """Returns zeros of the shape `size`; each rank makes its part."""
    return filled(lambda s: plait.zeros(s, dtype=dtype), size, device_mesh, placements, requires_grad)


def ones(
    *size: Any,
    requires_grad: bool = False,
    dtype: plait.dtype | None = None,
    layout: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """Returns ones of the shape `size`; each rank makes its part."""
    return filled(lambda s: plait.ones(s, dtype=dtype), size, device_mesh, placements, requires_grad)


def empty(
    *size: Any,
    requires_grad: bool = False,
    dtype: plait.dtype | None = None,
    layout: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """Returns a tensor of the shape `size` with undefined values; each rank makes its part."""
    return filled(lambda s: plait.empty(s, dtype=dtype), size, device_mesh, placements, requires_grad)


def full(
    size: Sequence[int],
    fill_value: float,
    *,
    requires_grad: bool = False,
    dtype: plait.dtype | None = None,
    layout: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """Returns a tensor of the shape `size` filled with a number; each rank makes its part."""
    return filled(lambda s: plait.full(s, fill_value, dtype=dtype), (size,), device_mesh, placements, requires_grad)


def rand(
    *size: Any,
    requires_grad: bool = False,
    dtype: plait.dtype | None = None,
    layout: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """Returns uniform random numbers in [0, 1): those that the first rank of the mesh draws for the whole tensor."""
    whole = plait.rand(_shape(size), dtype=dtype, requires_grad=requires_grad)
    return distribute_tensor(whole, device_mesh, placements)


def randn(
    *size: Any,
    requires_grad: bool = False,
    dtype: plait.dtype | None = None,
    layout: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """Returns standard normal random numbers: those that the first rank of the mesh draws for the whole tensor."""
    whole = plait.randn(_shape(size), dtype=dtype, requires_grad=requires_grad)
    return distribute_tensor(whole, device_mesh, placements)
