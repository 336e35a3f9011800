"""Tensors and modules, distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait import _core
from plait._engine.runtime import address, check, own
from plait._tensor import Tensor
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.tensor._dtensor import DTensor, mesh_or_world, own_distributed
from plait.distributed.tensor._placements import Placement, Replicate, packed
from plait.nn import Module, Parameter


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Returns a distributed tensor with the elements that `tensor` has on the first rank of the mesh, as a leaf.

    Args:
        tensor: the whole; on the other ranks it gives the shape and the dtype. One on the meta device gets the values
            that its creation and what followed say
        device_mesh: the mesh; None means all ranks in a row
        placements: one for each dimension of the mesh; None means replicated
        src_data_rank: 0
    """
    mesh = mesh_or_world(device_mesh)
    if src_data_rank != 0:
        raise NotImplementedError(f"distribute_tensor: want src_data_rank 0, got {src_data_rank}")
    placed = list(placements or [Replicate()] * mesh.ndim)
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh or list(tensor.placements) != placed:
            raise ValueError(
                f"distribute_tensor: the tensor is distributed already, as {tensor.placements}; use redistribute()"
            )
        return tensor
    if tensor.is_meta:
        tensor = own(check(_core.bind_TensorMaterialize(tensor._h, -1)))
    numbers, n = packed(placed)
    return own_distributed(check(_core.bind_DTensorDistribute(tensor._h, mesh._h, address(numbers), n)))


def distribute_parameters(module: Module, mesh: DeviceMesh, placements: Callable[[str], Sequence[Placement]]) -> None:
    """Distributes a module's own parameters and buffers that are not yet, as `placements` says for each name."""
    for name, p in list(module._parameters.items()):
        if p is not None and not isinstance(p, DTensor):
            made = distribute_tensor(p.detach(), mesh, placements(name))
            module.register_parameter(name, Parameter(made, requires_grad=p.requires_grad))
    for name, b in list(module._buffers.items()):
        if b is not None and not isinstance(b, DTensor):
            module._buffers[name] = distribute_tensor(b, mesh, [Replicate()] * mesh.ndim)


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None,
    output_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None,
) -> Module:
    """Makes the parameters and buffers of a module distributed tensors, in place, and returns it.

    Args:
        module: the module
        device_mesh: the mesh; None means all ranks in a row
        partition_fn: called with the name of each submodule, itself and the mesh, to register distributed parameters;
            others become replicated
        input_fn: called with the module, its inputs and the mesh before each forward; it returns what takes their place
        output_fn: called with the module, its output and the mesh after each forward; it returns what takes its place
    """
    mesh = mesh_or_world(device_mesh)
    for name, sub in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, sub, mesh)
    for sub in module.modules():
        distribute_parameters(sub, mesh, lambda _: [Replicate()] * mesh.ndim)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, output: output_fn(m, output, mesh))
    return module
