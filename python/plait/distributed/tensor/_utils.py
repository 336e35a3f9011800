"""Where a rank's part of a distributed tensor is, under PyTorch's name of the module."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from plait import _core
from plait._engine.runtime import address, check
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.tensor._placements import Placement, packed

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], skip_offset: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the shape of this rank's part of a distributed tensor, and where it begins in the whole.

    Along a dimension of which the rank has nothing it begins at the end. A part in several pieces, as of a
    `_StridedShard` whose split_factor no later dimension of the mesh explains, begins where the first one does.

    Args:
        global_shape: of the whole
        mesh: the mesh
        placements: one for each dimension of the mesh
        skip_offset: return () in place of the beginning
    """
    (numbers, n), shape = packed(placements), array("q", global_shape)
    dims = len(shape)
    out = array("q", bytes(16 * dims))
    check(_core.bind_DTensorLocate(mesh._h, address(numbers), n, address(shape), dims, address(out)))
    return tuple(out[:dims]), () if skip_offset else tuple(out[dims:])
