"""Process groups: sets of ranks that run collectives together."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from plait import _core
from plait._device import device as _device
from plait._engine.rank import here, place
from plait._engine.runtime import address, check
from plait.distributed._environment import started

__all__ = [
    "Backend",
    "GroupMember",
    "ProcessGroup",
    "get_backend",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "new_group",
    "new_subgroups",
    "split_group",
]


class ProcessGroup(_core.ObjectOwner):
    """One rank's handle on a group of ranks. `init_process_group` and `new_group` create groups."""

    def __init__(self, handle: int, ranks: Sequence[int]) -> None:
        self._h = handle
        self._ranks = list(ranks)
        self._owner_rank = here()  # the rank that may use the handle

    @property
    def group_name(self) -> str:
        """The group's name in messages."""
        return _core.bind_GroupName(self._h)

    def rank(self) -> int:
        """Returns this rank's number in the group."""
        return check(_core.bind_GroupRank(self._h))

    def size(self) -> int:
        """Returns the number of ranks."""
        return len(self._ranks)

    def name(self) -> str:
        """Returns the name of the group's backend, such as "local"."""
        return _core.bind_GroupBackend(self._h)

    def bytes_moved(self, collective: str = "") -> int:
        """Returns the bytes that this rank read from and wrote to peers' memory, by one kind of collective or all."""
        return check(_core.bind_GroupBytes(self._h, collective))

    def _for(self, purpose: str) -> ProcessGroup:
        """Returns a handle with a purpose. It is an error if collectives with different purposes meet."""
        return ProcessGroup(check(_core.bind_GroupFor(self._h, purpose)), self._ranks)

    def _for_backward(self) -> ProcessGroup:
        """Returns a second group of the same ranks, for collectives that backward starts."""
        return ProcessGroup(check(_core.bind_GroupForBackward(self._h)), self._ranks)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name!r}: rank {self.rank()} of {self.size()}>"

    def __reduce__(self) -> Any:
        raise TypeError("a ProcessGroup belongs to its rank and cannot be pickled")


@contextmanager
def use_pass_group(ranks: Sequence[int], handle: int) -> Iterator[None]:
    """Inside, the calling thread's collectives on a group of these ranks use another handle, which this function owns.

    A communication hook uses the group of its module. The other handle belongs to the backward pass: its collectives
    have the pass' purpose, and fail on all ranks if the pass fails on one.
    """
    before = place.pass_group
    place.pass_group = ProcessGroup(check(handle), ranks)
    try:
        yield
    finally:
        place.pass_group = before


def current_handle(group: ProcessGroup) -> ProcessGroup:
    """Returns the handle for a collective that starts now, see `use_pass_group`."""
    other = place.pass_group
    return group if other is None or other._ranks != group._ranks else other


class GroupMember:
    """Special groups: `WORLD`, the default group, and `NON_GROUP_MEMBER`, which `new_group` returns to other ranks."""

    WORLD: ProcessGroup | None = None  # means the default group of the calling rank
    NON_GROUP_MEMBER = object()


group = GroupMember


class Backend(str):
    """The name of a backend, in lower case."""

    LOCAL = "local"
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    UNDEFINED = "undefined"

    def __new__(cls, name: str) -> Backend:
        """Returns the name in lower case."""
        if not isinstance(name, str):
            raise ValueError(f"Backend: want a name, got {type(name).__name__}")
        return super().__new__(cls, name.lower())


def nanoseconds(timeout: timedelta | float | None) -> int:
    """Converts a timeout, a timedelta or seconds, to nanoseconds; 0 for None."""
    if timeout is None:
        return 0
    if not isinstance(timeout, timedelta | int | float):
        raise TypeError(f"timeout: want a timedelta or seconds, got {type(timeout).__name__}")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if not seconds > 0:
        raise ValueError(f"timeout: want a positive time, got {timeout!r}")
    return max(1, int(min(seconds * 1e9, 2**63 - 1)))


def resolve_group(group: Any, op: str) -> ProcessGroup:
    """Returns `group`, or the default group for None.

    Raises:
        ValueError: if there is no default group, or the group belongs to another rank.
        TypeError: if `group` is not a process group.
    """
    if group is None:
        world = here().world
        if world is None:
            raise ValueError(f"{op}: the default process group has not been made; call init_process_group first")
        return world
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"{op}: want a process group, got {type(group).__name__}")
    if group._owner_rank is not here():
        raise ValueError(
            f"{op}: got the process group {group.group_name!r} of rank {group._owner_rank.number} on rank "
            f"{here().number}; each rank has its own, from new_group"
        )
    return group


def is_non_member(group: Any) -> bool:
    """Whether this rank is not in the group. Its collectives then do nothing."""
    return group is GroupMember.NON_GROUP_MEMBER


def is_available() -> bool:
    """Returns True: several ranks are always supported."""
    return True


def is_initialized() -> bool:
    """Returns whether this rank has a default group."""
    return here().world is not None


def is_mpi_available() -> bool:
    """Returns whether ranks can be processes, which needs Linux and a library of MPI."""
    return _core.bind_MPIAvailable(sys.prefix) != 0


def get_default_backend_for_device(device: str | _device) -> str:
    """Returns PyTorch's name of the backend of a kind of device: gloo for CPUs and nccl for GPUs."""
    return "gloo" if _device(device).type == "cpu" else "nccl"


def is_gloo_available() -> bool:
    """Returns False: PyTorch's Gloo backend is not used."""
    return False


def is_nccl_available() -> bool:
    """Returns False: NVIDIA's NCCL is not used."""
    return False


def is_torchelastic_launched() -> bool:
    """Returns whether `plait.distributed.run` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_backend(group: ProcessGroup | None = None) -> str:
    """Returns the name of a group's backend."""
    return resolve_group(group, "get_backend").name()


def get_rank(group: ProcessGroup | None = None) -> int:
    """Returns this rank's number in a group, or -1 if it is not in the group."""
    return -1 if is_non_member(group) else resolve_group(group, "get_rank").rank()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Returns this rank's number on its machine.

    Args:
        fallback_rank: returned if there is no default group
    """
    if here().world is None and fallback_rank is not None:
        return fallback_rank
    how, rank = started(), here()
    if rank.spawned and rank.across:
        return how.local_rank * rank.spawned.size + rank.spawned.local_rank(rank)
    if place.rank is None and how.size > 1:
        return how.local_rank
    return get_rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Returns the number of ranks in a group, or -1 if this rank is not in the group."""
    return -1 if is_non_member(group) else resolve_group(group, "get_world_size").size()


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Returns the global ranks of a group."""
    return list(resolve_group(group, "get_process_group_ranks")._ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Converts a rank in a group to the global rank."""
    ranks = resolve_group(group, "get_global_rank")._ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"get_global_rank: the group has {len(ranks)} ranks, got {group_rank}")
    return ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Converts a global rank to the rank in a group."""
    ranks = resolve_group(group, "get_group_rank")._ranks
    if global_rank not in ranks:
        raise ValueError(f"get_group_rank: rank {global_rank} is not in the group of {ranks}")
    return ranks.index(global_rank)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """Creates a group of some of the ranks. Every rank of the default group must call it, in the same order.

    Args:
        ranks: the global ranks; all ranks by default
        timeout: how long a rank waits for the others; the default group's timeout by default
        backend: as in `init_process_group`
        pg_options: has no effect
        use_local_synchronization: has no effect
        group_desc: the group's name in error messages
        device_id: has no effect
        sort_ranks: must be True: a group's ranks are in the order of their global ranks

    Returns:
        The group, or `GroupMember.NON_GROUP_MEMBER` on ranks that are not in the group.
    """
    if not sort_ranks:
        raise NotImplementedError("new_group: sort_ranks must be True")
    world = resolve_group(None, "new_group")
    chosen = list(range(world.size())) if ranks is None else sorted(int(r) for r in ranks)
    return _create_group(world, chosen, timeout, group_desc)


def _create_group(parent: ProcessGroup, ranks: list[int], timeout: timedelta | float | None, name: str | None) -> Any:
    """Creates a group of the given ranks of its parent. Returns NON_GROUP_MEMBER on other ranks."""
    numbers = array("q", ranks)
    status = _core.bind_GroupNew(parent._h, address(numbers), len(numbers), nanoseconds(timeout), name or "")
    handle = check(status)
    if handle == 0:
        return GroupMember.NON_GROUP_MEMBER
    g = ProcessGroup(handle, [parent._ranks[i] for i in ranks])
    here().groups[handle] = g
    return g


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Splits the ranks into groups of equal size. Returns this rank's group, and the list of all groups."""
    parent = resolve_group(group, "new_subgroups")
    size = parent.size() if group_size is None else group_size
    if size <= 0 or parent.size() % size != 0:
        raise ValueError(f"new_subgroups: {parent.size()} ranks do not divide into groups of {group_size}")
    groups = [
        _create_group(parent, list(range(first, first + size)), timeout, group_desc)
        for first in range(0, parent.size(), size)
    ]
    return groups[parent.rank() // size], groups


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: timedelta | float | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Splits a group into several. Returns this rank's new group, or None. `backend` is as in `new_group`."""
    parent = resolve_group(parent_pg, "split_group")
    if not split_ranks:
        raise ValueError("split_group: want the ranks of each new group, got none")
    mine = None
    for ranks in split_ranks:
        g = _create_group(parent, sorted(ranks), timeout, group_desc)
        if not is_non_member(g):
            mine = g
    return mine
