"""Units, whose parameters are gathered together, and the sharded parameters and shards of modules."""

from __future__ import annotations

import contextlib
import math
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from plait import _core, _ops
from plait._autograd.hooks import RemovableHandle
from plait._device import device as Device
from plait._engine.callbacks import keep
from plait._engine.runtime import Owner, address, check, own
from plait._functions._common import forget_layout
from plait._layout import Size
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.distributed._groups import ProcessGroup, use_pass_group
from plait.distributed._placement import Placement
from plait.distributed._stragglers import give_warnings
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.tensor._dtensor import DistributedParameter, DTensor
from plait.nn.parameter import Parameter

__all__ = ["ParameterLayout", "Rows", "Shard", "ShardedParameter", "UnitParameter"]


class Rows(NamedTuple):
    """The rows of a parameter that one rank holds: `length` rows of dimension 0, from `offset` on."""

    rank: int
    offset: int
    length: int


class ParameterLayout(NamedTuple):
    """How a parameter is sharded over ranks.

    Attributes:
        name: the name in the model
        shape: the shape of the full parameter
        rows: the rows that each rank of the group holds; a 0-d tensor counts as one row
        place: the index of this rank's rows
        primary: in hybrid sharding, whether this rank is the first with these rows
    """

    name: str
    shape: tuple[int, ...]
    rows: tuple[Rows, ...]
    place: int
    primary: bool


class Tree:
    """The units and buffers of one model."""

    def __init__(self, units: Sequence[Unit], buffers: Sequence[Tensor]) -> None:
        handles = array("q", [u.handle for u in units])
        self._owner = Owner(check(_core.bind_FsdpTreeNew(address(handles), len(handles))))
        self.handle = self._owner._h
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
        mesh: DeviceMesh | None,
        named: Sequence[tuple[str, Parameter]],
        tables: Sequence[tuple[dict[str, Any], dict[str, Any]]],
        numbers: Sequence[int],
        cast_inputs: bool,
        precision: tuple[Any, Any],
    ) -> None:
        self.name, self.groups, self.tables = name, groups, list(tables)
        self.cast_inputs, (self.param_dtype, self.output_dtype) = cast_inputs, precision
        self.tree: Tree | None = None
        self.outermost = False  # the root of its tree, whose forward moves inputs to its device
        self.device: Device | None = None  # that computes; None without parameters of its own
        self.divisor: float | None = None  # of summed gradients; None means the number of ranks
        self.reshard_by_default = False  # reshard_after_forward was not given
        self.ignored: set[int] = set()  # ids of the modules' parameters that are not in the unit
        self.shared_above: set[int] = set()  # those of them that are in an outer unit
        handles, given = array("q", [p._h for _, p in named]), array("q", numbers)
        self.handle = check(
            _core.bind_FsdpUnitNew(
                groups[0]._h if groups[0] else 0,
                groups[1]._h if groups[1] else 0,
                mesh._h if mesh else 0,
                address(handles),
                len(handles),
                "\n".join(n for n, _ in named),
                name,
                address(given),
                len(given),
            )
        )
        self._owner = Owner(self.handle)
        for label, p in named:
            UnitParameter._make(p, self, label)

    def forward(self, tensors: Sequence[Tensor], end: bool) -> None:
        """Tells the engine that a forward pass begins, or ends."""
        handles = array("q", [t._h for t in tensors])
        check(_core.bind_FsdpUnitForward(self.handle, address(handles), len(handles), end))
        if end:
            give_warnings()

    def fail(self, error: BaseException) -> None:
        """Tells the engine, and so the other ranks, that a forward pass has failed."""
        why = f"{type(error).__name__}: {error}"
        check(_core.bind_FsdpUnitFail(self.handle, why, isinstance(error, MemoryError)))

    def gathered(self) -> bool:
        """Whether the parameters are gathered now."""
        return bool(check(_core.bind_FsdpUnitGathered(self.handle)))

    def layout(self) -> list[ParameterLayout]:
        """Returns the layouts of the unit's parameters."""
        names = _core.bind_FsdpUnitNames(self.handle)
        return [self._layout(i, name) for i, name in enumerate(names.split("\n") if names else [])]

    def _layout(self, i: int, name: str) -> ParameterLayout:
        out = array("q")
        while (n := check(_core.bind_FsdpUnitLayout(self.handle, i, address(out), len(out)))) > len(out):
            out = array("q", bytes(8 * n))
        dims = out[0]
        ranks, place, primary = out[1 + dims : 4 + dims]
        rows = tuple(Rows(*out[at : at + 3]) for at in range(4 + dims, 4 + dims + 3 * ranks, 3))
        return ParameterLayout(name, tuple(out[1 : 1 + dims]), rows, place, bool(primary))

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


def _random_method(name: str) -> Callable[..., Any]:
    """Returns a random method of tensors for shards: they get their rows of the full tensor's random numbers."""

    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.as_whole() as whole:
            getattr(Tensor, name)(whole, *args, **kwargs)
        return self

    draw.__name__, draw.__doc__ = name, getattr(Tensor, name).__doc__
    return draw


class Part:
    """The base class of `Shard` and `ShardedParameter`: a rank's rows of a full tensor."""

    __slots__ = ()

    def _unit(self: Any) -> tuple[Unit, str]:
        return self.__dict__["_of"]

    @property
    def _placement(self) -> Placement:
        return _placement(*self._unit())

    @property
    def layout_of_rows(self) -> ParameterLayout:
        """The layout of the parameter over ranks."""
        unit, name = self._unit()
        return next(x for x in unit.layout() if x.name == name)

    @property
    def whole_shape(self) -> Size:
        """The shape of the full tensor."""
        return Size(self.layout_of_rows.shape)

    def numel(self) -> int:
        """Returns the number of elements of the full tensor; `to_local().numel()` is that of the rank's rows."""
        return math.prod(self.layout_of_rows.shape)

    nelement = numel

    def to_local(self: Any) -> Tensor:
        """Returns the rank's rows as an ordinary tensor with the same memory."""
        return own(check(_core.bind_TensorLocal(self._h)))

    def __repr__(self: Any, **kwargs: Any) -> str:
        unit, name = self._unit()
        if isinstance(self, Parameter) and unit.gathered():
            return f"{name}, gathered:\n{super().__repr__()}"  # type: ignore[misc]
        layout = next(x for x in unit.layout() if x.name == name)
        rows = layout.rows[layout.place]
        where = f"rows {rows.offset} to {rows.offset + rows.length} of {list(layout.shape)}"
        return f"{name}, {where}:\n{super().__repr__()}"  # type: ignore[misc]

    @contextlib.contextmanager
    def as_whole(self: Any) -> Iterator[Tensor]:
        """Gives a stand-in for the full tensor, on the meta device. At the end, the rank's rows get its values.

        Elements that are not overwritten inside are undefined. For a gathered parameter it gives the parameter itself.
        """
        unit, name = self._unit()
        if isinstance(self, Parameter) and unit.gathered():
            yield self
            return
        whole = _ops.empty(tuple(self.whole_shape), dtype=self.dtype, device="meta")
        yield whole
        with no_grad():
            self.copy_(own(check(_core.bind_FsdpUnitPart(unit.handle, name, whole._h))))

    bernoulli_, cauchy_, exponential_ = (
        _random_method("bernoulli_"),
        _random_method("cauchy_"),
        _random_method("exponential_"),
    )
    geometric_, log_normal_, normal_ = (
        _random_method("geometric_"),
        _random_method("log_normal_"),
        _random_method("normal_"),
    )
    random_, uniform_ = _random_method("random_"), _random_method("uniform_")


class Shard(Part, Tensor):  # type: ignore[misc]
    """A rank's rows of a parameter, or of a tensor of its shape: a value of a sharded state dict."""

    __slots__ = ()

    def full_tensor(self) -> Tensor:
        """Gathers and returns the full tensor. Every rank calls it."""
        unit, name = self.__dict__["_of"]
        return _gather_full(unit, name, self._h)

    def on_cpu(self) -> Shard:
        """Returns a shard of the same parameter on the CPU."""
        made: Any = self.to_local().to("cpu")
        made.__class__ = Shard
        made.__dict__["_of"] = self.__dict__["_of"]
        return made


class UnitParameter(Parameter):
    """The base class of a unit's parameters, which are sharded over ranks."""

    __slots__ = ()
    divided = True

    @staticmethod
    def _make(p: Parameter, unit: Unit, name: str) -> None:
        p.__class__ = ShardedDistributedParameter if isinstance(p, DistributedParameter) else ShardedParameter
        p.__dict__["_of"] = weakref.ref(unit), name
        forget_layout(p)  # one of the meta device is on another now

    def _unit(self) -> tuple[Unit, str]:
        found, name = self.__dict__["_of"]
        unit = found()
        if unit is None:
            raise RuntimeError(f"fully_shard: the module that parameter {name} belonged to is gone")
        return unit, name

    @property
    def ranks(self) -> tuple[ProcessGroup | None, ProcessGroup | None]:
        """The group that it is sharded over, and the group of ranks with the same rows."""
        return self._unit()[0].groups

    def reshard(self) -> None:
        """Frees the full parameters of its unit, if they are gathered."""
        unit, _ = self._unit()
        if unit.gathered():
            check(_core.bind_FsdpUnitReshard(unit.handle))

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError(
            "a parameter that is sharded over ranks cannot be copied: copy the model before it is sharded, and shard "
            "the copy too (an average of models is then one of parts), or take the full_tensor of each"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a parameter that is sharded over ranks cannot be pickled; save a full state dict")


class ShardedDistributedParameter(UnitParameter, DistributedParameter):
    """A distributed parameter, as of tensor parallelism, whose part on each rank is sharded over more ranks.

    It is a distributed tensor on the mesh of both. While it is gathered, it is one on the mesh that it was on before.
    """

    __slots__ = ()

    def full_tensor(self, *, grad_placements: Sequence[Any] | None = None) -> Tensor:
        """Gathers and returns the full parameter, without a gradient unless it is gathered. Every rank calls it."""
        return DTensor.full_tensor(self._apart(), grad_placements=grad_placements)

    def to_local(self, *, grad_placements: Sequence[Any] | None = None) -> Tensor:
        """Returns the rank's part as an ordinary tensor, without a gradient unless the parameter is gathered."""
        return DTensor.to_local(self._apart(), grad_placements=grad_placements)

    def _apart(self) -> Any:
        return self if self._unit()[0].gathered() else self.detach()


class ShardedParameter(UnitParameter, Part, Parameter):  # type: ignore[misc]
    """A parameter that is sharded over ranks. Unless it is gathered, its values are this rank's rows."""

    __slots__ = ()

    @property
    def shape(self) -> Size:
        """The shape of this rank's rows, or of the full parameter while it is gathered."""
        forget_layout(self)  # the cached layout may be outdated
        return super().shape

    def detach(self) -> Tensor:
        """Returns a tensor with the same memory and no gradient: a `Shard`, unless the parameter is gathered."""
        return self._part(super().detach())

    def _part(self, t: Tensor) -> Any:
        """Makes a tensor of this rank's rows a `Shard`, unless the parameter is gathered."""
        unit, name = self._unit()
        if not unit.gathered():
            t.__class__ = Shard
            t.__dict__["_of"] = unit, name
        return t

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Registers a hook on this rank's rows of the averaged gradient, called before they are accumulated.

        A result that is not None replaces them. Without synchronisation, the next reduction calls it. If several
        backward passes add to a gradient, as with reentrant checkpoints that share the parameter, it is called once
        with their sum. A single rank without mixed precision and offloading calls it in each pass, as one device does.
        """
        of = self.__dict__["_of"]

        def run(g: Tensor) -> Tensor | None:
            if of[0]() is not None and not of[0]().gathered():
                g.__class__ = Shard
                g.__dict__["_of"] = of[0](), of[1]
            return hook(g)

        return super().register_hook(run)

    @property
    def grad(self) -> Tensor | None:
        """The gradient, or None: a `Shard` with this rank's rows, whose `full_tensor` gathers the full gradient."""
        g = super().grad
        return None if g is None else self._part(g)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        Parameter.grad.fset(self, value)  # type: ignore[attr-defined]

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def full_tensor(self) -> Tensor:
        """Gathers and returns the full parameter. Every rank calls it."""
        return _gather_full(*self._unit(), 0)

    def assemble(self, part: Tensor) -> Tensor:
        """Gathers a full tensor from the ranks' rows, such as the gradient. Every rank calls it."""
        return _gather_full(*self._unit(), part._h)


def total_norm(parameters: Sequence[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    """Returns the norm of all full gradients as one vector. It is the same on every rank, and every rank calls it."""
    units = list(dict.fromkeys(p._unit()[0] for p in parameters if isinstance(p, UnitParameter)))
    given, handles = array("q", [u.handle for u in units]), array("q", [p._h for p in parameters])
    total = own(
        check(_core.bind_FsdpNorm(address(given), len(given), address(handles), len(handles), float(norm_type), False))
    )
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(f"clip_grad_norm_: the norm of order {norm_type} is {total.item()}")
    return total


def _placement(unit: Unit, name: str) -> Placement:
    layout = next(x for x in unit.layout() if x.name == name)
    first = layout.rows[layout.place].offset
    return Placement(layout.shape, (first, *[0] * (len(layout.shape) - 1)) if layout.shape else ())


def _gather_full(unit: Unit, name: str, handle: int) -> Tensor:
    return own(check(_core.bind_FsdpUnitAssemble(unit.handle, name, handle)))
