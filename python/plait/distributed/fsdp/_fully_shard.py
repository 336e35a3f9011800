"""`fully_shard`: PyTorch's newer spelling, a function that divides a module in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.distributed._groups import ProcessGroup, resolve_group
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.fsdp._module import Choices, FSDPModule, accept_full_states, divide, run, swap_class
from plait.distributed.fsdp.api import CPUOffloadPolicy, OffloadPolicy
from plait.nn.modules.container import ModuleDict, ModuleList
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter

__all__ = ["fully_shard", "register_fsdp_forward_method"]


def groups_of_mesh(mesh: Any, what: str) -> tuple[ProcessGroup | None, ProcessGroup | None]:
    """Returns over which ranks to divide, and which ranks have the same shards."""
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
    module: Module | list[Module],
    *,
    mesh: Any = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[..., Any] | None = None,
    mp_policy: Any = None,
    offload_policy: Any = None,
    ignored_params: set[Parameter] | None = None,
) -> Any:
    """Divides a module's parameters over ranks, in place, and returns it.

    Each rank keeps its rows of every parameter, of its gradient and of the optimiser's state; the whole is gathered
    for the module's forward and backward pass and freed after it. Apply it to the inner modules first, each of which
    becomes a unit that is gathered at once, and then to the whole model; make the optimiser afterwards. Every rank
    calls it with its own copy of the model.

    A model made under `plait.device("meta")` takes no memory; each rank makes the values of its own rows alone, which
    have the bits of those of a model made on its device. So may functions of `nn.init`, methods that draw random
    numbers and `reset_parameters`, afterwards: ranks with the same seed get their rows of what the whole would get.

    Args:
        module: or a list of modules that make one unit
        mesh: a DeviceMesh of one axis, or of two, whose second is sharded over and whose first has copies; a process
            group; by default the default group
        reshard_after_forward: free parameters after forward and gather them again for backward; a number says over how
            many neighbouring ranks to spread them meanwhile. By default true for all but the outermost module
        shard_placement_fn: must be None: parameters are divided on dimension 0
        mp_policy: a MixedPrecisionPolicy
        offload_policy: a CPUOffloadPolicy, to keep shards and the optimiser's state on the CPU
        ignored_params: stay whole, and their gradients are not averaged

    Raises:
        plait.DistributedError: on every rank, if the ranks' modules differ.
        RuntimeError: if the module was divided before or has parameters without a shape.
    """
    if shard_placement_fn is not None:
        raise NotImplementedError(
            "fully_shard: shard_placement_fn is not available; parameters are divided on dimension 0"
        )
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
    groups = groups_of_mesh(mesh, "fully_shard")
    keep, partial = partial_of(reshard_after_forward, groups[0])
    choices = Choices(groups, keep, partial, mp_policy, isinstance(offload_policy, CPUOffloadPolicy))
    divide(modules, choices, {id(p) for p in ignored_params or ()})
    for m in modules:
        accept_full_states(m)
        swap_class(m, FSDPModule)
    return module


def partial_of(reshard: bool | int | None, group: ProcessGroup | None) -> tuple[bool | None, int]:
    """Returns whether to keep parameters after forward, and over how many ranks to spread them otherwise."""
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
    """Makes a method of a divided module, besides `forward`, gather the parameters."""
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name, None)
    if not callable(method):
        raise ValueError(f"register_fsdp_forward_method: {type(module).__name__} has no method {method_name!r}")
    function = getattr(type(module), method_name)

    def gathered(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(self, function.__get__(self), args, kwargs)

    gathered.__name__, gathered.__doc__ = method_name, function.__doc__
    own = type(type(module).__name__, (type(module),), {method_name: gathered, "__module__": type(module).__module__})
    module.__class__ = own
