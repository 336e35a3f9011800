"""Units, whose parameters are gathered together, and the sharded parameters and shards of modules."""

from __future__ import annotations

import math
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from plait import _core
from plait._autograd.hooks import RemovableHandle
from plait._device import device as Device
from plait._engine.callbacks import keep
from plait._engine.runtime import Owner, address, check, own
from plait._errors import text_of
from plait._functions._common import forget_layout
from plait._tensor import Tensor
from plait.distributed._groups import ProcessGroup, use_pass_group
from plait.distributed._stragglers import give_warnings
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.tensor._dtensor import UNIT, DistributedParameter, is_distributed
from plait.distributed.tensor._placements import Placement, Replicate
from plait.nn.parameter import PARAMETER, Parameter, adopt, set_category

__all__ = ["ShardedParameter"]


class Tree:
    """The units and buffers of one model."""

    def __init__(self, units: Sequence[Unit], buffers: Sequence[Tensor]) -> None:
        handles = array("q", [u.handle for u in units])
        self._owner = Owner(check(_core.bind_FsdpTreeNew(address(handles), len(handles))))
        self.handle = self._owner._h
        self.set_buffers(buffers)

    def set_buffers(self, buffers: Sequence[Tensor]) -> None:
        """Sets the tensors that forward passes change: a failed step leaves them as they were."""
        handles = array("q", [b._h for b in buffers])
        check(_core.bind_FsdpTreeBuffers(self.handle, address(handles), len(handles)))

    def wait(self) -> None:
        """Waits until the gradients of the last pass are computed."""
        check(_core.bind_FsdpTreeWait(self.handle))


class Unit:
    """A set of parameters that are gathered together. It shards the modules' parameters."""

    def __init__(
        self,
        name: str,
        groups: tuple[ProcessGroup | None, ProcessGroup | None],
        mesh: DeviceMesh,
        named: Sequence[tuple[str, Parameter]],
        tables: Sequence[tuple[dict[str, Any], dict[str, Any]]],
        numbers: Sequence[int],
        cast_inputs: bool,
        precision: tuple[Any, Any],
        dims: Sequence[int] | None = None,
    ) -> None:
        self.name, self.groups, self.mesh, self.tables = name, groups, mesh, list(tables)
        self.cast_inputs, (self.param_dtype, self.output_dtype) = cast_inputs, precision
        self.tree: Tree | None = None
        self.outermost = False  # the root of its tree, whose forward moves inputs to its device
        self.device: Device | None = None  # that computes; None without parameters of its own
        self.offloads = False  # the shards are on the CPU
        self.divisor: float | None = None  # of summed gradients; None means the number of ranks
        self.reshard_by_default = False  # reshard_after_forward was not given
        self.ignored: set[int] = set()  # ids of the modules' parameters that are not in the unit
        self.shared_above: set[int] = set()  # those of them that are in an outer unit
        handles, given, along = array("q", [p._h for _, p in named]), array("q", numbers), array("q", dims or ())
        self.handle = check(
            _core.bind_FsdpUnitNew(
                groups[0]._h if groups[0] else 0,
                groups[1]._h if groups[1] else 0,
                mesh._h,
                address(handles),
                len(handles),
                "\n".join(n for n, _ in named),
                0 if dims is None else address(along),
                name,
                address(given),
                len(given),
            )
        )
        self._owner = Owner(self.handle)
        for label, p in named:
            ShardedParameter._make(p, self, label)

    def forward(self, tensors: Sequence[Tensor], end: bool) -> None:
        """Tells the engine that a forward pass begins, or ends."""
        handles = array("q", [t._h for t in tensors])
        check(_core.bind_FsdpUnitForward(self.handle, address(handles), len(handles), end))
        if end:
            give_warnings()

    def fail(self, error: BaseException) -> None:
        """Tells the engine, and so the other ranks, that a forward pass has failed."""
        why = f"{type(error).__name__}: {text_of(error)}"
        check(_core.bind_FsdpUnitFail(self.handle, why, isinstance(error, MemoryError)))

    def fail_step(self, error: BaseException) -> None:
        """Tells the engine, and so the other ranks, that a step has failed, if it does not know yet."""
        why = f"{type(error).__name__}: {text_of(error)}"
        check(_core.bind_FsdpUnitFailStep(self.handle, why, isinstance(error, MemoryError)))

    def set_in_step(self, on: bool) -> None:
        """Tells the engine that a step of several passes begins, or has ended."""
        check(_core.bind_FsdpUnitStep(self.handle, on))

    def gathered(self) -> bool:
        """Whether the parameters are gathered now."""
        return bool(check(_core.bind_FsdpUnitGathered(self.handle)))

    def statistics(self) -> dict[str, int]:
        """Returns the numbers of gathers, of prefetches among them, and of reductions."""
        out = array("q", bytes(8 * 3))
        check(_core.bind_FsdpUnitStats(self.handle, address(out)))
        return dict(zip(("gathers", "prefetches", "reductions"), out, strict=True))

    def reduce_by(self, function: Callable[..., Any]) -> None:
        """Sets a communication hook, which reduces the unit's gradients beside backward.

        Args:
            function: called with the unit's flat gradients and an output for this rank's shard of the average; without
                sharding only with the gradients, which it averages in place
        """

        group = self.groups[0] or self.groups[1]
        ranks = [] if group is None else group._ranks

        def run(reduction: int) -> tuple[()]:
            given, out = Owner(check(reduction)), array("q", bytes(16))
            check(_core.bind_FsdpReduction(given._h, address(out)))
            before = _core.bind_ModeGet()
            try:
                check(_core.bind_ModeSet(check(_core.bind_FsdpReductionMode(given._h))))
                with use_pass_group(ranks, _core.bind_FsdpReductionGroup(given._h)):
                    function(*(own(h) for h in out if h))
            finally:
                _core.bind_ModeSet(before)
            return ()

        check(_core.bind_FsdpUnitHook(self.handle, keep(run)))

    def close(self) -> None:
        """Waits for the unit's last collectives and closes it. Modules keep their shards."""
        check(_core.bind_FsdpUnitClose(self.handle))


class ShardedParameter(DistributedParameter):
    """A parameter of a unit: a distributed tensor that is sharded over the unit's ranks.

    While the unit is gathered it has all elements, as an ordinary tensor, or on the mesh that it was on before it was
    sharded. Of what a program changes of it while `unshard` shows it, alike on every rank, the shards keep the change.
    """

    __slots__ = ()
    divided = True

    @staticmethod
    def _make(p: Parameter, unit: Unit, name: str) -> None:
        p.__class__ = ShardedParameter
        p.__dict__[UNIT] = weakref.ref(unit), name
        forget_layout(p)  # one of the meta device is on another now

    def _unit(self) -> tuple[Unit, str]:
        found, name = self.__dict__[UNIT]
        unit = found()
        if unit is None:
            raise RuntimeError(f"fully_shard: the module that parameter {name} belonged to is gone")
        return unit, name

    def _ordinary(self) -> bool:
        """Whether it is an ordinary tensor now."""
        return not check(_core.bind_DTensorPlacements(self._h, 0, 0))

    @property
    def placements(self) -> tuple[Placement, ...]:
        """How it lies: a placement for each dimension of the mesh, all of them `Replicate()` while it is gathered."""
        if self._ordinary():
            return (Replicate(),) * self.device_mesh.ndim
        return super().placements

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh of the ranks that it is sharded over, and of those that it was on before."""
        return self._unit()[0].mesh if self._ordinary() else super().device_mesh

    @property
    def grad(self) -> Tensor | None:
        """The averaged gradient, a distributed tensor, or None.

        While the parameter is gathered it is the gradient of the full parameter that no pass has averaged yet, if there
        is one.
        """
        h = check(_core.bind_GradGet(self._h))
        if not h and (unit := self.__dict__[UNIT][0]()) is not None:
            h = check(_core.bind_FsdpUnitGradient(unit.handle, self._h))
        return own(h) if h else None

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        Tensor.grad.fset(self, value)  # type: ignore[attr-defined]

    @grad.deleter
    def grad(self) -> None:
        Tensor.grad.fset(self, None)  # type: ignore[attr-defined]

    def full_tensor(self, *, grad_placements: Sequence[Any] | None = None) -> Tensor:
        """Gathers and returns the full parameter as an ordinary tensor, differentiably. Every rank calls it.

        Its gradient must be the same on every rank, as that of an L2 term is, or placed as `grad_placements` says.
        """
        if self._ordinary():
            return self.clone()
        return super().full_tensor(grad_placements=grad_placements)

    def to_local(self, *, grad_placements: Sequence[Any] | None = None) -> Tensor:
        """Returns the rank's part as an ordinary tensor with the same memory, differentiably."""
        if self._ordinary():
            return self.view(self.shape)
        return super().to_local(grad_placements=grad_placements)

    @property
    def _local_tensor(self) -> Tensor:
        return self.detach() if self._ordinary() else super()._local_tensor

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Registers a hook on the averaged gradient, called before it is accumulated.

        A result that is not None replaces the gradient. Without synchronisation, the next reduction calls it. If
        several backward passes add to a gradient, as with reentrant checkpoints that share the parameter, it is called
        once with their sum. A reentrant checkpoint that runs after the rest of its unit was reduced makes one more
        call. The gradient includes that of terms of the parameter itself in the loss, such as an L2 term.
        """
        self.reshard()
        return super().register_hook(hook)

    def _assign(self, value: Tensor, requires_grad: bool) -> None:
        """Takes the memory of a distributed tensor that lies as the parameter does: `load_state_dict(assign=True)`."""
        got, want = _lies(value), _lies(self)
        if got != want:
            raise ValueError(f"want a tensor that lies as the parameter does, {want}, got {got}")
        adopt(self, value)
        set_category(self, PARAMETER)
        self.requires_grad = requires_grad

    def reshard(self) -> None:
        """Frees the full parameters of its unit, if they are gathered, and keeps what was changed of them.

        It does nothing inside `summon_full_params`.
        """
        unit, _ = self._unit()
        if unit.gathered():
            check(_core.bind_FsdpUnitReshard(unit.handle))

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return Parameter.__repr__(self) if self._ordinary() else super().__repr__()

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError(
            "a parameter that is sharded over ranks cannot be copied: copy the model before it is sharded, and shard "
            "the copy too (an average of models is then one of parts), or take the full_tensor of each"
        )

    def _settle(self) -> None:
        unit, name = self._unit()
        if unit.groups[0] is None:
            return  # every rank has all of it
        self.reshard()
        if unit.gathered():
            raise RuntimeError(
                f"parameter {name} is shown whole by summon_full_params, and a rank saves its part: save "
                "outside, or a clone() of the whole"
            )

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        self._settle()
        if not self._ordinary():
            return super().__reduce_ex__(protocol)
        apart = Parameter(self.detach(), requires_grad=self.requires_grad)
        apart.__dict__.update((k, v) for k, v in self.__dict__.items() if k != UNIT)
        return apart.__reduce_ex__(protocol)


def _lies(tensor: Tensor) -> str:
    """Returns how a tensor lies, for comparisons and messages."""
    return f"placed {list(tensor.placements)} on {tensor.device_mesh}" if is_distributed(tensor) else "an ordinary one"


def total_norm(parameters: Sequence[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    """Returns the norm of all full gradients as one vector. It is the same on every rank, and every rank calls it."""
    units = list(dict.fromkeys(p._unit()[0] for p in parameters if isinstance(p, ShardedParameter)))
    given, handles = array("q", [u.handle for u in units]), array("q", [p._h for p in parameters])
    total = own(
        check(_core.bind_FsdpNorm(address(given), len(given), address(handles), len(handles), float(norm_type), False))
    )
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(f"clip_grad_norm_: the norm of order {norm_type} is {total.item()}")
    return total
