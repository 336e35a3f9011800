"""FullyShardedDataParallel: `fully_shard` with the arguments and methods of PyTorch's older FSDP class."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from plait import _core
from plait._device import device, open_device
from plait._engine.runtime import check
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.distributed._collectives import broadcast
from plait.distributed._groups import ProcessGroup
from plait.distributed._swap import swap_class
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.fsdp._fully_shard import shard_and_replica_groups
from plait.distributed.fsdp._module import (
    UnitOptions,
    accept_full_state_dicts,
    make_unit,
    unit_of,
    without_sync,
)
from plait.distributed.fsdp._states import StateDictSettings, StateMethods
from plait.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictType,
)
from plait.distributed.fsdp.wrap import as_policy
from plait.nn.modules.module import Module, _convert
from plait.nn.parameter import BUFFER, is_lazy, set_category
from plait.nn.utils.clip_grad import clip_grad_norm_

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "OptimStateDictConfig",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
]


class FullyShardedDataParallel(StateMethods):
    """Shards a module over ranks: each keeps 1/N of parameters, gradients and optimiser state.

    The module is changed in place and returned. Its class becomes a subclass of its own class and this one, and the
    names of its parameters do not change. Submodules that the policy selects become units, whose parameters are
    gathered together; the other parameters are one more unit. Create the optimiser afterwards. Every rank calls it with
    its own replica of the model.

    Args:
        module: the rank's replica
        process_group: the group to shard over, the default group by default; for hybrid sharding a tuple of the group
            to shard over and the group of ranks with the same shards
        sharding_strategy: FULL_SHARD by default
        cpu_offload: whether to keep shards and the optimiser's state on the CPU
        auto_wrap_policy: a policy of `plait.distributed.fsdp.wrap`, or classes of modules
        backward_prefetch: when backward gathers the next unit; None means when it is needed
        mixed_precision: the dtypes of computation and reduction
        ignored_modules: modules whose parameters are not sharded, and whose gradients are not averaged
        param_init_fn: called with each module that has tensors on the meta device; it gives them memory and values, for
            example by `to_empty(device=..., recurse=False)` and `reset_parameters()`. By default they get the values of
            a model that is created on the device, and each rank creates only its shards
        device_id: a device, or the number of a GPU, that the module is moved to before it is sharded
        sync_module_states: broadcast parameters and buffers from rank 0
        forward_prefetch: gather the next unit while the current one computes
        limit_all_gathers: must be True: at most two units are gathered at once
        use_orig_params: has no effect: parameters are always the module's own
        ignored_states: modules or parameters, as for `ignored_modules`
        device_mesh: a mesh, as for `fully_shard`

    Raises:
        plait.DistributedError: on every rank, if the ranks' modules differ.
    """

    def __new__(
        cls,
        module: Module,
        process_group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | bool | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = True,
        limit_all_gathers: bool = True,
        use_orig_params: bool = True,
        ignored_states: Any = None,
        device_mesh: Any = None,
    ) -> Any:
        """Shards the module and returns it."""
        if not isinstance(module, Module):
            raise TypeError(f"FullyShardedDataParallel: want a module, got {type(module).__name__}")
        _shard_model(
            module,
            process_group,
            sharding_strategy,
            cpu_offload,
            auto_wrap_policy,
            backward_prefetch,
            mixed_precision,
            ignored_modules,
            param_init_fn,
            device_id,
            sync_module_states,
            forward_prefetch,
            limit_all_gathers,
            use_orig_params,
            ignored_states,
            device_mesh,
        )
        return module

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing, since the module exists already."""

    @property
    def module(self) -> Module:
        """The module itself."""
        return self

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """Returns the module and its children that are units, or only the outermost ones."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        if not root_only:
            return found
        inner = {id(x) for m in found for x in m.modules() if x is not m}
        return [m for m in found if id(m) not in inner]

    def no_sync(self) -> Any:
        """Inside, full gradients accumulate without communication. The next pass outside reduces them."""
        return without_sync(self)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales the gradients so that their norm over all ranks is at most max_norm, and returns the norm before."""
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Gathers the full parameters of units inside. Every rank must enter and leave it.

        Args:
            module: the module whose units to gather
            recurse: whether to gather the units of its children, too
            writeback: keep in-place changes, which must be the same on every rank
            rank0_only: gather on rank 0 only, without writeback; the other ranks see their shards
            offload_to_cpu: whether the full parameters are on the CPU
            with_grads: whether to gather gradients, too
        """
        if rank0_only and writeback:
            raise NotImplementedError("summon_full_params: rank0_only wants writeback=False")
        units = list(dict.fromkeys(u for m in module.modules() if (u := unit_of(m)) is not None))
        if not recurse:
            own = unit_of(module)
            units = [] if own is None else [own]
        how = (not writeback) + 2 * with_grads + 4 * rank0_only
        where = open_device("cpu") if offload_to_cpu else -1

        def summon(handle: int, end: bool) -> None:
            check(_core.bind_FsdpSummon(handle, how, where, end))

        with contextlib.ExitStack() as shown:  # ends all of them, also if the end of one fails
            for u in units:
                summon(u.handle, False)
                shown.callback(summon, u.handle, True)
            yield

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Registers a communication hook, which reduces the gradients of all units. All ranks register the same one.

        It is called as `hook(state, gradients, output)` with the flat gradients of a unit, padded to the same size for
        each rank, and writes this rank's shard of the average to `output`. With NO_SHARD it is called as
        `hook(state, gradients)` and averages in place. `plait.distributed.algorithms._comm_hooks` has some hooks.

        Raises:
            TypeError: if the hook is not callable.
            RuntimeError: if there is a hook already, or a step was made.
            NotImplementedError: with hybrid sharding.
        """
        if not callable(hook):
            raise TypeError(f"register_comm_hook: want a function, got {type(hook).__name__}")

        for unit in self._units(True):
            unit.reduce_by(lambda *tensors: hook(state, *tensors))


def _shard_model(
    module: Module,
    process_group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None,
    sharding_strategy: ShardingStrategy | None,
    cpu_offload: CPUOffload | bool | None,
    auto_wrap_policy: Any,
    backward_prefetch: BackwardPrefetch | None,
    mixed_precision: MixedPrecision | None,
    ignored_modules: Iterable[Module] | None,
    param_init_fn: Callable[[Module], None] | None,
    device_id: Any,
    sync_module_states: bool,
    forward_prefetch: bool,
    limit_all_gathers: bool,
    use_orig_params: bool,
    ignored_states: Any,
    device_mesh: Any,
) -> None:
    what = "FullyShardedDataParallel"
    if not limit_all_gathers:
        raise NotImplementedError(
            f"{what}: limit_all_gathers=False is not available: the number gathered at once is bounded"
        )
    strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
    if not isinstance(strategy, ShardingStrategy):
        raise TypeError(f"{what}: want a ShardingStrategy, got {strategy!r}")
    hybrid = strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
    if isinstance(process_group, tuple):
        groups: Any = process_group
    else:
        groups = shard_and_replica_groups(process_group or device_mesh, what)
    if hybrid and groups[1] is None:
        raise ValueError(
            f"{what}: hybrid sharding wants process_group=(the ranks to divide over, those with the same shards), or a "
            "device_mesh of two axes"
        )
    if not hybrid and groups[1] is not None:
        raise ValueError(f"{what}: {strategy.name} wants one group, or a mesh of one axis; two are for HYBRID_SHARD")
    on = device_mesh if process_group is None and device_mesh is not None else DeviceMesh.from_group(groups[0], "cpu")
    if strategy is ShardingStrategy.NO_SHARD:
        groups = (None, groups[0])
    ignored: set[int] = set()
    for x in (*(ignored_modules or ()), *(ignored_states or ())):
        ignored |= {id(p) for p in x.parameters()} if isinstance(x, Module) else {id(x)}
    skipped = {
        id(m) for x in (*(ignored_modules or ()), *(ignored_states or ())) if isinstance(x, Module) for m in x.modules()
    }
    offload = cpu_offload.offload_params if isinstance(cpu_offload, CPUOffload) else bool(cpu_offload)
    options = UnitOptions(
        groups,
        on,
        strategy in (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2),
        0,
        mixed_precision,
        offload,
        sync_module_states,
        forward_prefetch,
        2 if backward_prefetch is None else int(backward_prefetch is BackwardPrefetch.BACKWARD_POST),
        init=param_init_fn,
    )
    if device_id is not None:
        where = device(device_id)
        for m in module.modules():
            if id(m) not in skipped:
                _move(m, where, ignored)
    if mixed_precision is not None and mixed_precision.buffer_dtype is not None:
        for b in module.buffers():
            if b.is_floating_point():
                b.data = b.data.to(mixed_precision.buffer_dtype)
    if auto_wrap_policy is not None:
        _auto_wrap(module, "", as_policy(auto_wrap_policy), options, ignored, skipped, _names_of_parameters(module))
    make_unit([module], options, ignored, root=True)
    accept_full_state_dicts(module)
    swap_class(module, FullyShardedDataParallel, "FSDP")
    if sync_module_states:
        for name, b in module.named_buffers():
            for g in groups:
                if g is not None:
                    broadcast(b, group=g._for(f"the first values of {name}"), group_src=0)


@no_grad()
def _move(module: Module, where: device, ignored: set[int]) -> None:
    """Moves a module's own tensors to a device, except ignored ones and those on the meta device."""
    for p in module._parameters.values():
        if p is not None and id(p) not in ignored and not is_lazy(p) and not p.is_meta and p.device != where:
            _convert(p, lambda t: t.to(where))
    for name, b in module._buffers.items():
        if b is not None and not is_lazy(b) and not b.is_meta and b.device != where:
            module._buffers[name] = made = b.to(where)
            set_category(made, BUFFER)


def _names_of_parameters(module: Module) -> dict[int, list[str]]:
    """Returns all names of each parameter, by id. A shared parameter has several."""
    users: dict[int, list[str]] = {}
    for prefix, m in module.named_modules():
        for name, p in m._parameters.items():
            if p is not None:
                users.setdefault(id(p), []).append(f"{prefix}.{name}" if prefix else name)
    return users


def _auto_wrap(
    module: Module,
    prefix: str,
    ask: Callable[[Module, bool, int], Any],
    options: UnitOptions,
    ignored: set[int],
    skipped: set[int],
    users: dict[int, list[str]],
) -> int:
    """Makes units of the submodules that the policy selects, the innermost first. Returns their number of elements."""
    wrapped = 0
    for name, child in module.named_children():
        if id(child) in skipped or unit_of(child) is not None:
            continue
        full = f"{prefix}{name}"
        elements = sum(p.numel() for p in child.parameters() if id(p) not in ignored)
        below = 0
        if ask(child, True, elements):
            below = _auto_wrap(child, f"{full}.", ask, options, ignored, skipped, users)
        rest = elements - below
        answer = ask(child, False, rest)
        if answer and rest > 0:
            # A parameter that is used outside of the unit, too, is left to an outer unit that contains all users.
            outside = {i for i, names in users.items() if any(not n.startswith(f"{full}.") for n in names)}
            own = options._replace(**answer) if isinstance(answer, dict) else options
            make_unit([child], own, ignored, prefix=f"{full}.", shared_above=outside - ignored)
            accept_full_state_dicts(child)
            swap_class(child, FullyShardedDataParallel, "FSDP")
            below = elements
        wrapped += below
    return wrapped
