"""The options of `parallelize`, and the axes of the mesh that they are for."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from plait import _core
from plait._engine.runtime import address, check
from plait._tensor import Tensor
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.tensor.parallel._styles import ParallelStyle
from plait.nn.parameter import Parameter

WAYS = ("pp", "dp", "fsdp", "tp")


class FullyShardOptions(TypedDict, total=False):
    """How the parameters are sharded.

    Attributes:
        axis: the name of the axis of the mesh
        units: names of the modules whose parameters are gathered together, in which * stands for a part between dots;
            by default each block: each module with a number in its name, such as "layers.3"
        reshard_after_forward: as for `fully_shard`
        mp_policy: a `MixedPrecisionPolicy`
        offload_policy: a `CPUOffloadPolicy`
        ignored_params: parameters that are not sharded, and whose gradients are not averaged
        shard_placement_fn: as for `fully_shard`
    """

    axis: str
    units: Sequence[str]
    reshard_after_forward: bool | int | None
    mp_policy: Any
    offload_policy: Any
    ignored_params: set[Parameter]
    shard_placement_fn: Callable[[Parameter], Any]


class TensorParallelOptions(TypedDict, total=False):
    """How layers are divided.

    Attributes:
        axis: the name of the axis of the mesh
        plan: styles by names of modules, as for `parallelize_module`; by default those of `ready_plan`
        sequence: the ready plan divides the sequence, too
        pieces: in the ready plan, layers work on this many pieces of a batch, so that the exchange of one runs beside
            the product of another
    """

    axis: str
    plan: Mapping[str, ParallelStyle]
    sequence: bool
    pieces: int


class PipelineOptions(TypedDict, total=False):
    """How the layers become stages.

    Attributes:
        axis: the name of the axis of the mesh
        layers: the names of the layers in the order in which data passes them, in which * stands for all parts between
            dots; each takes what the one before returns, and together they are the model. By default those of a
            Sequential
        schedule: the order of the passes: "1f1b", or another of `pipelining.schedule_names()`
        micro_batches: the number of micro-batches of a batch; by default twice the number of ranks of the pipeline
        sizes: the numbers of layers of the stages; by default such that the stages have about equally many parameters
    """

    axis: str
    layers: Sequence[str]
    schedule: str
    micro_batches: int
    sizes: Sequence[int]


Loss = Callable[..., Tensor]


class Axes(NamedTuple):
    """The names of a mesh's axes by what happens along them; None where the mesh has none, or one of a single rank."""

    pp: str | None
    dp: str | None
    fsdp: str | None
    tp: str | None

    @property
    def data(self) -> tuple[str, ...]:
        """The axes along which ranks get different parts of a batch."""
        return tuple(a for a in (self.dp, self.fsdp) if a is not None)


def axes_of(mesh: Any, options: Mapping[str, Any]) -> Axes:
    """Returns what happens along each axis of a mesh.

    Raises:
        TypeError: if the mesh is none, or options are of the wrong type.
        ValueError: if the axes have no names, an option is for an axis that the mesh lacks, an axis has no way, or two.
    """
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"parallelize: want a DeviceMesh, as init_device_mesh makes, got {type(mesh).__name__}")
    given: list[str] = []
    for way in WAYS:
        option = options[way]
        if option is not None and not isinstance(option, str | Mapping):
            raise TypeError(
                f"parallelize: want {way} to be the name of an axis, or options, got {type(option).__name__}"
            )
        name = option if isinstance(option, str) or option is None else option.get("axis", way)
        given.append(name or "")
    found = array("q", bytes(8 * len(WAYS)))
    check(_core.bind_ParallelAxes(mesh._h, "\n".join(given), address(found)))
    names = mesh.mesh_dim_names or ()
    return Axes(*(names[at] if at >= 0 else None for at in found))


def checked(way: str, given: Any, options: type) -> dict[str, Any]:
    """Returns the options of one way as a dict.

    Raises:
        TypeError: if they have unknown names.
    """
    if not isinstance(given, Mapping):
        return {}
    known = options.__annotations__
    if unknown := [str(k) for k in given if k not in known]:
        raise TypeError(f"parallelize: {way} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    return dict(given)
