"""Distributed tensors: tensors whose elements lie on the ranks of a mesh.

Names are those of torch.distributed.tensor. A `DTensor` is used like any tensor; each op lays its inputs as it needs
them, works on the calling rank's part, and says how its result lies. All ranks of the mesh call the same functions in
the same order.
"""

from plait.distributed.device_mesh import DeviceMesh, init_device_mesh
from plait.distributed.tensor._creation import empty, full, ones, rand, randn, zeros
from plait.distributed.tensor._dtensor import DTensor, gathered_bytes, strict
from plait.distributed.tensor._modules import distribute_module, distribute_tensor
from plait.distributed.tensor._placements import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "gathered_bytes",
    "init_device_mesh",
    "ones",
    "rand",
    "randn",
    "strict",
    "zeros",
]
