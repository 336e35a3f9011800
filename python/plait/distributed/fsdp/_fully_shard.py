"""`fully_shard`: PyTorch's newer FSDP API, a function that shards a module in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from plait.distributed._groups import ProcessGroup, resolve_group
from plait.distributed._swap import swap_class
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.fsdp._module import (
    FSDPModule,
    UnitOptions,
    accept_full_state_dicts,
    make_unit,
    run_gathered,
)
from plait.distributed.fsdp.api import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from plait.distributed.tensor._placements import Shard
from plait.nn.modules.container import ModuleDict, ModuleList
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter

__all__ = ["fully_shard", "register_fsdp_forward_method"]

ModulesT = TypeVar("ModulesT", bound=Module | list[Module])


def shard_and_replica_groups(mesh: Any, what: str) -> tuple[ProcessGroup, ProcessGroup | None]:
    """Returns the group to shard over, and the group of ranks with the same shards, if there is one."""
    if mesh is None:
        return resolve_group(None, what), None
    if isinstance(mesh, ProcessGroup):
        return mesh, None
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"{what}: want a DeviceMesh or a process group, got {type(mesh).__name__}")
    if mesh.ndim == 1:
        return mesh.get_group(0), None
    if mesh.ndim == 2:
        return mesh.get_group(1), mesh.get_group(0)
    raise ValueError(f"{what}: want a mesh of one axis, or of two for hybrid sharding, got {mesh.ndim}")


def fully_shard(
    module: ModulesT,
    *,
    mesh: DeviceMesh | ProcessGroup | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Parameter], Shard | None] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Parameter] | None = None,
) -> ModulesT:
    """Shards a module's parameters over ranks, in place, and returns the module.

    Each rank keeps its rows of every parameter, of its gradient and of the optimiser's state. These are distributed
    tensors, sharded along dimension 0 by default; a parameter without dimensions is replicated. Full parameters are
    gathered for the module's forward and backward, and freed afterwards. Apply `fully_shard` to inner modules first:
    each becomes a unit, whose parameters are gathered together. Then apply it to the model, and create the optimiser
    last. Every rank calls it with its own replica of the model.

    A model created under `plait.device("meta")` takes no memory. Each rank then creates only its own rows, with the
    bits of a model created on its device. The same holds for later calls of `nn.init`, of random methods and of
    `reset_parameters`: ranks with the same seed get their rows of the full random tensor.

    Args:
        module: a module, or a list of modules that become one unit
        mesh: a `DeviceMesh` with one axis, or with two axes for hybrid sharding: replicas along the first, shards along
            the second; or a process group. The default group by default. If parameters are distributed tensors, as
            after `parallelize_module(model, mesh["tp"], plan)`, it is another slice of the same mesh: `mesh["dp"]`
        reshard_after_forward: whether to free parameters after forward and gather them again for backward; a number
            shards them over that many neighbouring ranks meanwhile. True by default, except for the root module
        shard_placement_fn: returns how a parameter is sharded: `Shard(dim)`, or None for `Shard(0)`. The sizes need not
            be divisible by the number of ranks. Along another dimension than the first, gathering and reducing copy the
            parameter once more
        mp_policy: a `MixedPrecisionPolicy`
        offload_policy: a `CPUOffloadPolicy`, which keeps shards and the optimiser's state on the CPU
        ignored_params: parameters that are not sharded, and whose gradients are not averaged

    Raises:
        plait.DistributedError: on every rank, if the ranks' modules differ.
        RuntimeError: if the module is sharded already, or has parameters without a shape.
        TypeError: if shard_placement_fn returns something else.
        ValueError: if parameters are distributed over ranks along the same dimension of the mesh, or another mesh.
    """
    modules = [module] if isinstance(module, Module) else list(module) if isinstance(module, list | tuple) else []
    if not modules or not all(isinstance(m, Module) for m in modules):
        raise TypeError(f"fully_shard: want a module or a list of modules, got {type(module).__name__}")
    for m in modules:
        if isinstance(m, ModuleList | ModuleDict):
            raise ValueError(
                f"fully_shard: a {type(m).__name__} has no forward in which to gather parameters; give its modules"
            )
    if offload_policy is not None and not isinstance(offload_policy, OffloadPolicy):
        raise TypeError(f"fully_shard: want a CPUOffloadPolicy, got {type(offload_policy).__name__}")
    groups = shard_and_replica_groups(mesh, "fully_shard")
    on = mesh if isinstance(mesh, DeviceMesh) else DeviceMesh.from_group(groups[0], "cpu")
    keep, partial = parse_reshard_after_forward(reshard_after_forward, groups[0])
    offload = isinstance(offload_policy, CPUOffloadPolicy)
    options = UnitOptions(groups, on, keep, partial, mp_policy, offload, placement=shard_placement_fn)
    make_unit(modules, options, {id(p) for p in ignored_params or ()})
    for m in modules:
        accept_full_state_dicts(m)
        swap_class(m, FSDPModule, "FSDP")
    return module


def parse_reshard_after_forward(reshard: bool | int | None, group: ProcessGroup | None) -> tuple[bool | None, int]:
    """Returns whether to keep parameters after forward, and the number of ranks to shard them over until backward."""
    if reshard is None or isinstance(reshard, bool):
        return (None if reshard is None else not reshard), 0
    if not isinstance(reshard, int):
        raise TypeError(f"fully_shard: reshard_after_forward must be a bool, a number or None, got {reshard!r}")
    size = group.size() if group else 1
    if reshard < 1 or size % reshard:
        raise ValueError(f"fully_shard: reshard_after_forward={reshard} must divide the {size} ranks")
    if reshard == 1:
        return True, 0
    return False, (0 if reshard == size else reshard)


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Makes another method of an FSDP module gather the parameters, as `forward` does."""
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name, None)
    if not callable(method):
        raise ValueError(f"register_fsdp_forward_method: {type(module).__name__} has no method {method_name!r}")
    function = getattr(type(module), method_name)

    def gathered(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run_gathered(self, function.__get__(self), args, kwargs)

    gathered.__name__, gathered.__doc__ = method_name, function.__doc__
    own = type(type(module).__name__, (type(module),), {method_name: gathered, "__module__": type(module).__module__})
    module.__class__ = own
