"""Device meshes: ranks in an n-dimensional array, with a process group along each axis.

Names are those of torch.distributed.device_mesh. If the ranks' arguments differ, all ranks get an error.
"""

from __future__ import annotations

import contextlib
import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from plait import _core
from plait._device import device
from plait._dtype import int32
from plait._engine.rank import here
from plait._engine.runtime import address, check
from plait._errors import text_of
from plait._tensor import Tensor
from plait._tensors.arrays import tensor as make_tensor
from plait.distributed._default_group import init_process_group
from plait.distributed._groups import ProcessGroup, get_rank, resolve_group

__all__ = ["DeviceMesh", "init_device_mesh"]


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """Creates a mesh of the first ranks in row-major order: the last axis varies fastest.

    Every rank calls it with the same arguments. It creates the default group if there is none.

    Args:
        device_type: "cpu", or "gpu", for which "cuda" is another name; without an index
        mesh_shape: the number of ranks along each axis
        mesh_dim_names: the names of the axes, for slicing
        backend_override: has no effect

    Raises:
        RuntimeError: if the names are not unique or not one per axis, there are too few ranks, the device type has an
            index, or the ranks' arguments differ.
    """
    shape = tuple(int(n) for n in ((mesh_shape,) if isinstance(mesh_shape, int) else mesh_shape))
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"init_device_mesh: each name of mesh_dim_names must be unique, got {mesh_dim_names}")
        if len(mesh_dim_names) != len(shape):
            raise RuntimeError(
                "init_device_mesh: mesh_shape and mesh_dim_names should have the same length, "
                f"got {mesh_shape} and {mesh_dim_names}"
            )
    return DeviceMesh._create(device_type, shape, None, mesh_dim_names)


class DeviceMesh(_core.ObjectOwner):
    """An n-dimensional array of ranks, with a process group along each axis.

    `init_device_mesh` creates a mesh. Slicing by names of axes gives a mesh that shares the groups:

        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        mesh["tp"].get_group()  # the four ranks of this row

    Args:
        device_type: "cpu", or "gpu", for which "cuda" is another name
        mesh: the global ranks, as an integer tensor or nested lists
        mesh_dim_names: names of the axes
        backend_override: has no effect
        preserve_rank_order: order the ranks of an axis' group as in the mesh; otherwise they are sorted

    Raises:
        RuntimeError: if there are too few ranks, or the ranks' arguments differ.
        ValueError: if a rank occurs twice, or the names are invalid.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
        backend_override: Any = None,
        preserve_rank_order: bool = False,
    ) -> None:
        shape, ranks = _shape_and_ranks(mesh)
        other = DeviceMesh._create(device_type, shape, ranks, mesh_dim_names, sort=not preserve_rank_order)
        self.__dict__.update(other.__dict__)
        self._h = other._h
        del other._h  # the handle has one owner
        self._root = self
        here().meshes.add(self)

    @classmethod
    def _create(
        cls,
        device_type: str,
        shape: tuple[int, ...],
        ranks: Sequence[int] | None,
        names: Sequence[str] | None,
        sort: bool = True,
        groups: Sequence[ProcessGroup] | None = None,
    ) -> DeviceMesh:
        where = _check_device_type(device_type)
        if here().world is None:
            init_process_group()
        world = resolve_group(None, "device_mesh")
        places = array("q", range(math.prod(shape)) if ranks is None else ranks)
        if len(places) > world.size():
            raise RuntimeError(
                f"device_mesh: the mesh has {len(places)} places, more than the default world size {world.size()}"
            )
        sizes = array("q", shape)
        made = array("q", [g._h for g in groups or ()])
        handle = check(
            _core.bind_MeshNew(
                world._h,
                address(places),
                len(places),
                address(sizes),
                len(sizes),
                "\n".join(names or ()),
                sort,
                address(made) if groups else 0,
            )
        )
        mesh = cls._from_handle(handle, where, None)
        for i, g in enumerate(groups or ()):
            mesh._groups[mesh._axis_key(i)] = g
        here().meshes.add(mesh)
        return mesh

    def __reduce__(self) -> tuple[Any, ...]:
        return existing_mesh, self._described()

    def _described(self) -> tuple[str, tuple[int, ...], tuple[int, ...], tuple[str, ...] | None]:
        """Returns what `existing_mesh` finds the mesh by."""
        return self._device._kind, self._shape, self._ranks, self._names

    @classmethod
    def _from_handle(cls, handle: int, where: device, root: DeviceMesh | None) -> DeviceMesh:
        """Returns the mesh of a handle. `root` is the mesh that it is a slice of, if it is one."""
        m = cls.__new__(cls)
        m._h = handle
        m._device = where
        m._root = m if root is None else root
        m._groups = {} if root is None else root._groups
        m._world = resolve_group(None, "device_mesh") if root is None else root._world
        dims = check(_core.bind_MeshDims(handle))
        shape, strides, at = (array("q", bytes(8 * dims)) for _ in range(3))
        inside = check(_core.bind_MeshLayout(handle, address(shape), address(strides), address(at)))
        m._shape, m._strides = tuple(shape), tuple(strides)
        m._coordinate = tuple(at) if inside else None
        names = _core.bind_MeshNames(handle)
        m._names = tuple(names.split("\n")) if names else None
        ranks = array("q", bytes(8 * math.prod(m._shape)))
        m._ranks = tuple(ranks[: check(_core.bind_MeshRanks(handle, address(ranks), len(ranks)))])
        return m

    _h: int
    _device: device
    _root: DeviceMesh
    _groups: dict[tuple[str, tuple[int, ...]], ProcessGroup]  # of the root and its slices, by axis
    _world: ProcessGroup
    _shape: tuple[int, ...]
    _strides: tuple[int, ...]
    _coordinate: tuple[int, ...] | None
    _names: tuple[str, ...] | None
    _ranks: tuple[int, ...]

    @staticmethod
    def from_group(
        group: ProcessGroup | list[ProcessGroup],
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
    ) -> DeviceMesh:
        """Creates a mesh from existing groups, one along each axis. It needs no communication.

        Args:
            group: a group, or one for each axis
            device_type: "cpu", or "gpu", for which "cuda" is another name
            mesh: the global ranks; optional for one group
            mesh_dim_names: names of the axes

        Raises:
            ValueError: if the groups do not match the mesh.
        """
        if isinstance(group, ProcessGroup):
            if mesh is not None and _shape_and_ranks(mesh)[1] != group._ranks:
                raise ValueError(f"from_group: the mesh {mesh} is not the group's ranks {group._ranks}")
            return DeviceMesh._create(device_type, (group.size(),), group._ranks, mesh_dim_names, groups=[group])
        if not group:
            raise ValueError("from_group: want at least one process group, got none")
        if mesh is None or mesh_dim_names is None:
            raise ValueError("from_group: with several process groups, mesh and mesh_dim_names are needed")
        shape, ranks = _shape_and_ranks(mesh)
        if len(shape) != len(group):
            raise ValueError(f"from_group: want a process group for each of the {len(shape)} axes, got {len(group)}")
        return DeviceMesh._create(device_type, shape, ranks, mesh_dim_names, groups=group)

    @property
    def device_type(self) -> str:
        """The type of the ranks' devices: "cpu", "gpu" or "cuda"; that of a GPU as `device.type` has it."""
        return self._device.type

    @property
    def mesh(self) -> Tensor:
        """The global ranks as an int32 tensor of the mesh's shape, on the CPU; a slice has those of its own part."""
        if not self._ranks:
            raise RuntimeError(f"mesh: this rank is in no part of {self!r}")
        return make_tensor(list(self._ranks), dtype=int32, device="cpu").reshape(self._shape)

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of the axes, or None."""
        return self._names

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of ranks along each axis."""
        return self._shape

    def size(self, mesh_dim: int | None = None) -> int:
        """Returns the number of ranks along an axis, or of all ranks."""
        return math.prod(self._shape) if mesh_dim is None else self._shape[mesh_dim]

    def get_rank(self) -> int:
        """Returns this rank's global rank."""
        return get_rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Returns this rank's coordinate along each axis, or None if it is not in the mesh."""
        return self._coordinate

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Returns this rank's number in the group along an axis. The axis is optional if there is only one."""
        return self.get_group(mesh_dim).rank()

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """Returns this rank's group along an axis, which is given by index or name.

        Raises:
            RuntimeError: if the mesh has several axes and none is given, or this rank is not in the mesh.
            KeyError: for an unknown name.
        """
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"get_group: {self!r} has {self.ndim} axes, so mesh_dim is needed; get_all_groups returns all"
                )
            mesh_dim = 0
        if isinstance(mesh_dim, str):
            if self._names is None or mesh_dim not in self._names:
                return self[mesh_dim].get_group()
            mesh_dim = self._names.index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"get_group: {self!r} has {self.ndim} axes, got {mesh_dim}")
        key = self._axis_key(mesh_dim % self.ndim)
        g = self._groups.get(key)
        if g is None:
            handle = check(_core.bind_MeshGroup(self._h, mesh_dim % self.ndim))
            if not handle:
                raise RuntimeError(f"get_group: rank {get_rank()} is not in {self!r}")
            ranks = array("q", bytes(8 * check(_core.bind_GroupSize(handle))))
            check(_core.bind_GroupRanks(handle, address(ranks)))
            g = ProcessGroup(handle, ranks)
            if g.group_name == self._world.group_name:
                g = self._world
            else:
                here().groups[handle] = g
            self._groups[key] = g
        return g

    def _axis_key(self, axis: int) -> tuple[str, tuple[int, ...]]:
        """Returns the key of an axis in `_groups`, which is unique among the root and its slices."""
        name = self._names[axis] if self._names else str(axis)
        return name, (self._shape[axis], self._strides[axis])

    def get_all_groups(self) -> list[ProcessGroup]:
        """Returns the groups along all axes."""
        return [self.get_group(i) for i in range(self.ndim)]

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """Returns the slice of the mesh along the named axes that contains this rank.

        Raises:
            RuntimeError: if the axes have no names.
            KeyError: for an unknown name, or axes in another order than the mesh's.
        """
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if names == self._names:
            return self
        try:
            handle = check(_core.bind_MeshSub(self._h, "\n".join(names)))
        except IndexError as error:
            raise KeyError(str(error)) from None
        return DeviceMesh._from_handle(handle, self._device, self._root)

    def _flatten(self, mesh_dim_name: str | None = None, backend_override: Any = None) -> DeviceMesh:
        """Returns a mesh with one axis, into which all axes of this mesh are joined. Every rank of the world calls it.

        Args:
            mesh_dim_name: the name of the new axis, by which the root can be sliced, too; by default the names joined
                by underscores
            backend_override: has no effect
        """
        handle = check(_core.bind_MeshFlatten(self._h, mesh_dim_name or ""))
        return DeviceMesh._from_handle(handle, self._device, self._root)

    @contextlib.contextmanager
    def _pass(self, ends: bool) -> Iterator[None]:
        """Inside is a pass of a model whose parts exchange along the mesh. If one rank fails there, all do.

        Args:
            ends: wait at the end until all ranks are there. Else they meet at the end of backward, or before the next
                pass

        Raises:
            plait.DistributedError: on every other rank, if one has failed.
        """
        me = here()
        me.passes += 1
        check(_core.bind_MeshBeginPass(self._h))
        before, me.passing = me.passing, True
        try:
            yield
            if ends:
                check(_core.bind_MeshEndPass(self._h))
        except BaseException as error:
            why = f"{type(error).__name__}: {text_of(error)}"
            check(_core.bind_MeshFailPass(self._h, why, isinstance(error, MemoryError)))
            raise
        finally:
            me.passing = before

    def _get_root_mesh(self) -> DeviceMesh:
        """Returns the mesh that this one is a slice of, or itself."""
        return self._root

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return self._device._kind, self._names, self._shape, self._strides, self._ranks, id(self._world)

    def __repr__(self) -> str:
        shape: Any = self._shape
        if self._names:
            shape = "(" + ", ".join(f"{n}={s}" for n, s in zip(self._names, self._shape, strict=True)) + ")"
        return f"DeviceMesh({shape}, '{self._device.type}', stride={self._strides})"


def _check_device_type(device_type: str) -> device:
    """Returns the type, without an index, of a mesh's devices, or raises an error."""
    if not isinstance(device_type, str) or not device_type.isalpha():
        raise RuntimeError(
            f"device_mesh: want a type of device such as 'cpu' or 'gpu', without an index, got {device_type!r}"
        )
    return device(device_type)


def _shape_and_ranks(mesh: Any) -> tuple[tuple[int, ...], list[int]]:
    """Returns the shape and, in row-major order, the elements of a tensor or nested lists of ranks."""
    t = mesh if isinstance(mesh, Tensor) else make_tensor(mesh, device="cpu")
    if t.dtype.is_floating_point or t.dim() == 0:
        raise ValueError(f"device_mesh: want the ranks as integers in one or more dimensions, got {mesh!r}")
    return tuple(t.shape), [int(r) for r in t.flatten().tolist()]


def existing_mesh(
    device_type: str, shape: tuple[int, ...], ranks: tuple[int, ...], names: tuple[str, ...] | None
) -> DeviceMesh:
    """Returns the calling rank's mesh, or the slice of one, that is so.

    A mesh of all ranks in a row can be made by each rank alone. Others are not made, which all ranks would have to do.

    Args:
        device_type: of its ranks' devices
        shape: the number of ranks along each axis
        ranks: the global ranks, in the mesh's order
        names: of the axes

    Raises:
        RuntimeError: if the rank has no such mesh.
    """
    wanted = _check_device_type(device_type)._kind, tuple(shape), tuple(ranks), names and tuple(names)
    meshes = list(here().meshes)
    for mesh in meshes:
        if mesh._described() == wanted:
            return mesh
    for mesh in meshes:
        if wanted[3] and wanted[3] == tuple(n for n in mesh._names or () if n in wanted[3]):
            part = mesh[wanted[3]]
            if part._described() == wanted:
                return part
    world = here().world
    if world is not None and wanted[1:3] == ((world.size(),), tuple(range(world.size()))):
        return DeviceMesh._create(device_type, shape, None, names, groups=[world])
    raise RuntimeError(
        f"device_mesh: a distributed tensor lies on a mesh of shape {wanted[1]} with the axes {wanted[3]} and the "
        f"ranks {list(wanted[2])}, which this rank does not have: make it, as by init_device_mesh on all ranks, before"
    )
