"""FSDP modules: what `fully_shard` and `FullyShardedDataParallel` share."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from plait import _core
from plait._autograd.backward import passes
from plait._device import get_default_device, open_device
from plait._dtype import dtype
from plait._engine.runtime import address, check
from plait._tensor import Tensor
from plait.distributed._collectives import all_reduce, reduce_scatter_tensor
from plait.distributed._groups import ProcessGroup
from plait.distributed._work import ReduceOp
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.fsdp._meta import compare_meta, materialize
from plait.distributed.fsdp._unit import ShardedParameter, Tree, Unit
from plait.distributed.fsdp.api import precision_of
from plait.distributed.tensor._alike import laid_like
from plait.distributed.tensor._dtensor import is_distributed
from plait.distributed.tensor._placements import Shard
from plait.nn.modules.module import Module
from plait.nn.parallel._inputs import tensors_in, to_device
from plait.nn.parameter import Parameter, is_lazy

__all__ = ["FSDPModule", "UnshardHandle"]

SYNC, ALL_REDUCE, RESHARD_FORWARD, RESHARD_BACKWARD = range(4)  # the settings of bind_FsdpUnitSet


class UnitOptions(NamedTuple):
    """The options of a unit."""

    groups: tuple[ProcessGroup | None, ProcessGroup | None]  # to shard over, and of the ranks with the same shards
    mesh: DeviceMesh  # of the first group, or of both
    keep: bool | None = None  # whether parameters stay gathered after forward; None: only those of the root unit
    partial: int = 0  # ranks to shard over between forward and backward; 0 means all
    precision: Any = None  # a mixed precision policy
    offload: bool = False
    broadcast: bool = False  # parameters of rank 0, at construction
    prefetch_forward: bool = True
    prefetch_backward: int = 0  # 0 before the current unit's backward, 1 after it, 2 never
    slots: int = 0  # units gathered at once besides the root; 0 means the default
    init: Callable[[Module], Any] | None = None  # initialises a module that is on the meta device
    placement: Callable[[Parameter], Any] | None = None  # returns how a parameter is sharded


def unit_of(module: Module) -> Unit | None:
    """Returns the unit of a module, or None."""
    return module.__dict__.get("_fsdp_unit")


def units_in(modules: Iterable[Module]) -> list[Unit]:
    """Returns the units of modules and of those within them, each once."""
    return list(dict.fromkeys(u for top in modules for m in top.modules() if (u := unit_of(m)) is not None))


@contextlib.contextmanager
def one_step(units: Sequence[Unit]) -> Iterator[None]:
    """Inside is one step, of several passes perhaps, which fails on all ranks of the units if it fails on one."""
    for unit in units:
        unit.set_in_step(True)
    try:
        yield
    except BaseException as error:
        for unit in units:
            unit.fail_step(error)
        raise
    finally:
        for unit in units:
            unit.set_in_step(False)


def make_unit(
    modules: Sequence[Module],
    options: UnitOptions,
    ignored: set[int],
    prefix: str = "",
    root: bool = False,
    shared_above: set[int] | None = None,
) -> Unit:
    """Creates the unit of one or several modules, and shards its parameters.

    The unit has the modules' parameters, except those of inner units and those in `ignored` (ids of parameters).
    `shared_above` has parameters that modules outside of the unit use, too. An outer unit that has all users gets them.
    """
    ignored, given = ignored | (shared_above or set()), ignored
    named: dict[Parameter, str] = {}
    tables: list[tuple[dict[str, Any], dict[str, Any]]] = []
    shared: dict[ShardedParameter, tuple[Unit, str]] = {}
    for number, module in enumerate(modules):
        if unit_of(module) is not None:
            raise RuntimeError(f"fully_shard: {type(module).__name__} was given to fully_shard before")
        # With several modules, labels of parameters start with the module's number, so that they are unique.
        for label, owner in _own_modules(module, f"{prefix}{number}." if len(modules) > 1 else prefix):
            materialize(owner, options.init, given)
            tables += _snapshot_tables(owner)
            for key, p in owner._parameters.items():
                if p is None or id(p) in ignored or p in named:
                    continue
                if is_lazy(p):
                    raise RuntimeError(
                        f"fully_shard: parameter {label}{key} has no shape yet; run a batch through the module first"
                    )
                if isinstance(p, ShardedParameter):
                    shared[p] = p._unit()[0], label + key
                else:
                    named[p] = label + key
        for label, owner, theirs in _shared_from_below(module, prefix):
            for key, p in owner._parameters.items():
                if p is not None and id(p) in theirs - ignored and not isinstance(p, ShardedParameter):
                    named.setdefault(p, label + key)
    if options.groups[1] is not None and not options.broadcast:
        compare_meta(options.groups[1], named)
    devices = [get_default_device() if p.is_meta else p.device for p in named]
    where = devices[0] if devices else None
    param, reduce, output, keep_inputs = precision_of(options.precision, root)
    flags = (options.keep or False, options.broadcast, keep_inputs, not options.prefetch_forward)
    numbers = (
        options.partial,
        options.slots,
        options.prefetch_backward,
        param,
        reduce,
        output,
        open_device("cpu") if options.offload else -1,
        sum(1 << i for i, on in enumerate(flags) if on),
    )
    policy = options.precision
    casts = (getattr(policy, "param_dtype", None), getattr(policy, "output_dtype", None))
    name = prefix.rstrip(".") or type(modules[0]).__name__
    listed = [(n, p) for p, n in named.items()]
    choose = options.placement
    dims = None if choose is None else [_dimension(choose(p), n) for n, p in listed]
    unit = Unit(name, options.groups, options.mesh, listed, tables, numbers, not keep_inputs, casts, dims)
    for p, (other, label) in shared.items():
        if other is not unit:
            check(_core.bind_FsdpUnitTake(unit.handle, other.handle, p._h, label))
            ShardedParameter._make(p, unit, label)
    unit.reshard_by_default, unit.ignored, unit.device = options.keep is None, ignored, where
    unit.shared_above, unit.offloads = shared_above or set(), options.offload
    for module in modules:
        module.__dict__["_fsdp_unit"] = unit
    return unit


def _dimension(placement: Any, name: str) -> int:
    """Returns the dimension along which a parameter is sharded, of what `shard_placement_fn` has returned for it."""
    if placement is None:
        return 0
    if not isinstance(placement, Shard):
        raise TypeError(
            f"fully_shard: shard_placement_fn must return a Shard or None, got {placement!r} for parameter {name}"
        )
    return placement.dim


def _own_modules(module: Module, prefix: str) -> Iterator[tuple[str, Module]]:
    """Yields a module and its children, except inner units, with the prefixes of their parameters' names."""
    yield prefix, module
    for name, child in module._modules.items():
        if child is not None and unit_of(child) is None:
            yield from _own_modules(child, f"{prefix}{name}.")


def _shared_from_below(module: Module, prefix: str) -> Iterator[tuple[str, Module, set[int]]]:
    """Yields the modules of inner units that left parameters to an outer unit, with the ids of these parameters."""
    for name, child in module._modules.items():
        if child is None:
            continue
        label, unit = f"{prefix}{name}.", unit_of(child)
        if unit is not None and unit.shared_above:
            for below, owner in child.named_modules():
                yield f"{label}{below}." if below else label, owner, unit.shared_above
        yield from _shared_from_below(child, label)


def tree_of(module: Module) -> Tree:
    """Returns the tree of units of a module. The first module whose forward runs is the root of its tree."""
    unit = unit_of(module)
    if unit is None:
        raise RuntimeError(f"fsdp: {type(module).__name__} was not given to fully_shard or FSDP")
    if unit.tree is None:
        units = list(dict.fromkeys(u for m in module.modules() if (u := unit_of(m)) is not None))
        tree = Tree(units, [b for b in module.buffers() if not is_lazy(b)])
        for u in units:
            u.tree, u.outermost = tree, False
        unit.tree, unit.outermost = tree, True
        if unit.device is None:
            unit.device = next((u.device for u in units if u.device is not None), None)
        if unit.reshard_by_default:  # backward needs the root unit at once
            check(_core.bind_FsdpUnitSet(unit.handle, RESHARD_FORWARD, False))
    return unit.tree


def _cast(value: Any, d: dtype) -> Any:
    """Returns a nested value with its floating-point tensors in a dtype."""
    if isinstance(value, Tensor):
        return value.to(d) if value.is_floating_point() and value.dtype != d else value
    if isinstance(value, dict):
        return type(value)((k, _cast(v, d)) for k, v in value.items())
    if isinstance(value, list | tuple):
        parts = [_cast(v, d) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def run_gathered(module: Module, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a method of a unit's module with gathered parameters."""
    unit: Unit = module.__dict__["_fsdp_unit"]
    if unit.tree is None:
        tree_of(module)
    for table, known in unit.tables:
        if len(table) != len(known) or any(table[k] is not v for k, v in known.items()):
            _check_new_parameters(module, unit)
            break
    if unit.outermost and any(t.device != unit.device and not t.is_meta for t in tensors_in((args, kwargs))):
        args, kwargs = to_device((args, kwargs), unit.device or get_default_device())
    begun = done = False
    try:
        unit.forward([*tensors_in((args, kwargs))], False)
        begun = True
        if unit.cast_inputs and unit.param_dtype is not None:
            args, kwargs = _cast(args, unit.param_dtype), _cast(kwargs, unit.param_dtype)
        out = function(*args, **kwargs)
        if unit.output_dtype is not None:
            out = _cast(out, unit.output_dtype)
        done = True
        unit.forward([*tensors_in(out)], True)
        return out
    except BaseException as error:
        if begun and not done and not passes.run:  # in backward, the engine sees the error itself
            unit.fail(error)
        raise
    finally:
        if not done:  # also if activation checkpointing stops early
            unit.forward((), True)


def _check_new_parameters(module: Module, unit: Unit) -> None:
    """Raises an error if parameters were added to the module after it was sharded. Other changes are allowed."""
    for name, p in module.named_parameters():
        if not isinstance(p, ShardedParameter) and id(p) not in unit.ignored:
            raise RuntimeError(
                f"fsdp: parameter {name} was created after its module was sharded over ranks: its gradient would not "
                "be averaged; create parameters before, or ignore its module"
            )
    unit.tables = [t for _, owner in _own_modules(module, "") for t in _snapshot_tables(owner)]


def _snapshot_tables(owner: Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Returns a module's dicts of parameters and children with copies of them, which show later changes."""
    return [(t, dict(t)) for t in (owner._parameters, owner._modules)]


class UnshardHandle:
    """The handle of an asynchronous gather."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def wait(self) -> None:
        """Makes the module's parameters full. Operations on them run after the gather, without waiting here."""
        check(_core.bind_FsdpUnitUnshard(self._unit.handle, True))


class FSDPModule(Module):
    """The class that `fully_shard` adds to a module's class."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return run_gathered(self, super().__call__, args, kwargs)

    def _units(self, recurse: bool) -> list[Unit]:
        own = self.__dict__["_fsdp_unit"]
        if not recurse:
            return [own]
        return list(dict.fromkeys(u for m in self.modules() if (u := unit_of(m)) is not None))

    def _set(self, what: int, on: bool, recurse: bool) -> None:
        if what == RESHARD_FORWARD:
            tree_of(self)
        for unit in self._units(recurse):
            check(_core.bind_FsdpUnitSet(unit.handle, what, on))

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gathers the unit's parameters, until `reshard`, or until the next pass of the module frees them.

        In-place changes of the full parameters, which must be the same on every rank, reach the shards then.

        Args:
            async_op: return a handle, whose `wait` makes the parameters full
        """
        unit: Unit = self.__dict__["_fsdp_unit"]
        check(_core.bind_FsdpUnitUnshard(unit.handle, not async_op))
        return UnshardHandle(unit) if async_op else None

    def reshard(self) -> None:
        """Frees the unit's full parameters, and keeps what was changed of them since `unshard`.

        Raises:
            RuntimeError: if a parameter was given data of another shape or dtype meanwhile.
        """
        check(_core.bind_FsdpUnitReshard(self.__dict__["_fsdp_unit"].handle))

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Sets whether backward reduces gradients. If not, full gradients accumulate until the next reduction."""
        self._set(SYNC, requires_gradient_sync, recurse)

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Sets whether hybrid sharding all-reduces over replicas. If not, gradients accumulate until it does."""
        self._set(ALL_REDUCE, requires_all_reduce, recurse)

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Sets whether full parameters are freed after forward."""
        self._set(RESHARD_FORWARD, reshard_after_forward, recurse)

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Sets whether full parameters are freed after backward. If not, the next forward uses them."""
        self._set(RESHARD_BACKWARD, reshard_after_backward, recurse)

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Has no effect: the engine sees the end of each backward pass."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Must be True: backward always gathers the parameters that it needs."""
        if not unshard_in_backward:
            raise NotImplementedError("set_unshard_in_backward: backward always gathers what it needs")

    def set_post_optim_event(self, event: Any) -> None:
        """Has no effect: gathers always run after earlier operations on the shards."""

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Has no effect: gradients are always summed, and then divided once."""

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Sets the divisor of summed gradients, which is the number of ranks by default. Hooks do not see it."""
        if factor <= 0:
            raise ValueError(f"set_gradient_divide_factor: want a positive factor, got {factor}")
        for unit in self._units(True):
            check(_core.bind_FsdpUnitDivide(unit.handle, float(factor)))
            unit.divisor = float(factor)

    def set_all_reduce_hook(self, hook: Callable[[Tensor], Any], *, stream: Any = None) -> None:
        """Sets a hook on the unit's averaged gradients, which may change them in place.

        Backward calls it with this rank's flat shard, before the shard is added to the gradients. It can average over
        ranks that FSDP does not know. Every rank must set a hook, before the first step.

        Args:
            hook: the function; inner units have their own hooks
            stream: has no effect: the hook runs on a communication stream

        Raises:
            TypeError: if the hook is not callable.
            RuntimeError: if there is a hook already, or a step was made.
            NotImplementedError: with hybrid sharding.
        """
        if not callable(hook):
            raise TypeError(f"set_all_reduce_hook: want a function, got {type(hook).__name__}")
        unit: Unit = self.__dict__["_fsdp_unit"]

        def reduce(gradients: Tensor, part: Tensor | None = None) -> None:
            op = ReduceOp.AVG if unit.divisor is None else ReduceOp.SUM
            if part is None:
                part = gradients
                all_reduce(gradients, op, unit.groups[1])
            else:
                reduce_scatter_tensor(part, gradients, op, unit.groups[0])
            if unit.divisor is not None:
                part.div_(unit.divisor)
            hook(part)

        unit.reduce_by(reduce)

    def _prefetch(self, modules: Iterable[Module], backward: bool) -> None:
        units = []
        for m in modules:
            unit = unit_of(m)
            if unit is None:
                raise ValueError(f"fsdp: {type(m).__name__} was not given to fully_shard and cannot be prefetched")
            units.append(unit.handle)
        handles = array("q", units)
        own = self.__dict__["_fsdp_unit"].handle
        check(_core.bind_FsdpUnitPrefetch(own, backward, address(handles), len(handles)))

    def set_modules_to_forward_prefetch(self, modules: Iterable[Module]) -> None:
        """Sets the modules to prefetch when this module's forward begins, as far as there are free slots."""
        self._prefetch(modules, False)

    def set_modules_to_backward_prefetch(self, modules: Iterable[Module]) -> None:
        """Sets the modules to prefetch when this module's backward begins, as far as there are free slots."""
        self._prefetch(modules, True)

    def _apply(self: Any, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Converts the shards, gradients and buffers. The next forward computes in their dtype, on their device."""
        self.reshard()
        super()._apply(fn, recurse)
        unit: Unit = self.__dict__["_fsdp_unit"]
        own = (p for p in self.parameters() if isinstance(p, ShardedParameter) and p._unit()[0] is unit)
        if not unit.offloads and (p := next(own, None)) is not None:
            unit.device = p.device
        if unit.tree is not None and unit.outermost:
            unit.tree.set_buffers([b for b in self.buffers() if not is_lazy(b)])
        return self

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Moves the module to a device. Sharding has already given tensors of the meta device memory and values."""
        return self._apply(lambda t: t.to(device), recurse)

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} belongs to its rank and cannot be copied; copy the module before")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} belongs to its rank and cannot be pickled; save its state dict")


def accept_full_state_dicts(module: Module) -> None:
    """Lets `load_state_dict` load full tensors, besides shards, into sharded parameters."""
    for m in module.modules():
        if "_fsdp_loads" not in m.__dict__:
            m.__dict__["_fsdp_loads"] = True
            m._register_load_state_dict_pre_hook(_shard_full_values, with_module=True)
            m.register_state_dict_pre_hook(_reshard_parameters)


def _reshard_parameters(module: Module, *rest: Any) -> None:
    """A hook before `state_dict`: makes parameters of units shards, as which they are saved."""
    for p in module._parameters.values():
        if isinstance(p, ShardedParameter):
            p.reshard()


def _shard_full_values(module: Module, state: dict[str, Any], prefix: str, metadata: Any, *rest: Any) -> None:
    """A hook before `load_state_dict`: replaces full tensors by distributed ones that lie as the parameters do."""
    _reshard_parameters(module)
    for name, p in module._parameters.items():
        value = state.get(prefix + name)
        if p is not None and is_distributed(p) and isinstance(value, Tensor) and value.shape == p.shape:
            state[prefix + name] = laid_like(value.detach(), p)


@contextlib.contextmanager
def without_sync(module: FSDPModule) -> Iterator[None]:
    """Inside, backward does not reduce gradients."""
    units = module._units(True)
    before = [check(_core.bind_FsdpUnitSet(u.handle, SYNC, False)) for u in units]
    try:
        yield
    finally:
        for unit, on in zip(units, before, strict=True):
            check(_core.bind_FsdpUnitSet(unit.handle, SYNC, bool(on)))
