"""The options of `parallelize`, and the axes of the mesh that they are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

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
    """

    axis: str
    units: Sequence[str]
    reshard_after_forward: bool | int | None
    mp_policy: Any
    offload_policy: Any
    ignored_params: set[Parameter]


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
    names = mesh.mesh_dim_names
    if names is None:
        raise ValueError(f"parallelize: the axes of {mesh} have no names: give mesh_dim_names, such as ('dp', 'tp')")
    found: dict[str, str] = {}
    for way in WAYS:
        given = options[way]
        if given is not None and not isinstance(given, str | Mapping):
            raise TypeError(
                f"parallelize: want {way} to be the name of an axis, or options, got {type(given).__name__}"
            )
        name = given if isinstance(given, str) else None if given is None else given.get("axis")
        if given is not None and (name or way) not in names:
            raise ValueError(
                f"parallelize: {way} is given for the axis {name or way!r}, which {mesh} lacks; it has "
                + ", ".join(map(repr, names))
            )
        if (name or way) in names:
            found[way] = name or way
    for name in names:
        ways = [way for way, axis in found.items() if axis == name]
        if len(ways) != 1:
            raise ValueError(
                f"parallelize: the axis {name!r} of {mesh} is for {' and '.join(ways) or 'nothing'}; each axis is for "
                f"one of {', '.join(WAYS)}, such as dp={name!r}"
            )
    if "dp" in found and "fsdp" in found and names.index(found["dp"]) > names.index(found["fsdp"]):
        raise ValueError(f"parallelize: in {mesh} the axis {found['dp']!r} must come before {found['fsdp']!r}")
    sizes = dict(zip(names, mesh.shape, strict=True))
    return Axes(*(axis if (axis := found.get(way)) and sizes[axis] > 1 else None for way in WAYS))


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
