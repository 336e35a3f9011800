"""Process groups: where a rank belongs, and with whom it acts."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from plait import _core
from plait._device import set_default_device
from plait._engine.rank import here, place, running
from plait._engine.runtime import address, check

__all__ = [
    "Backend",
    "GroupMember",
    "ProcessGroup",
    "destroy_process_group",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
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
    """A rank's handle on a set of ranks that act together.

    `init_process_group` and `new_group` make them.
    """

    def __init__(self, handle: int, ranks: Sequence[int]) -> None:
        self._h = handle
        self._ranks = list(ranks)
        self._of = here()  # the rank whose handle it is

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
        """Returns the name of what carries out the group's operations, such as "local"."""
        return _core.bind_GroupBackend(self._h)

    def bytes_moved(self, collective: str = "") -> int:
        """Returns the bytes this rank has read from and written to its peers' memory, by one collective or all."""
        return check(_core.bind_GroupBytes(self._h, collective))

    def _for(self, purpose: str) -> ProcessGroup:
        """Returns a handle whose collectives are for a purpose; ranks that meet for different ones get an error."""
        return ProcessGroup(check(_core.bind_GroupFor(self._h, purpose)), self._ranks)

    def _for_backward(self) -> ProcessGroup:
        """Returns the handle on a second group of the same ranks, for collectives that backward starts."""
        return ProcessGroup(check(_core.bind_GroupForBackward(self._h)), self._ranks)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name!r}: rank {self.rank()} of {self.size()}>"

    def __reduce__(self) -> Any:
        raise TypeError("a ProcessGroup belongs to its rank and cannot be pickled")


@contextmanager
def reducing_with(ranks: Sequence[int], handle: int) -> Iterator[None]:
    """Runs the calling thread's collectives on a group of these ranks through another handle, which it takes over.

    A communication hook names the group of its module. The handle is that of the pass: its collectives tell what they
    are for, and if the pass fails on one rank they fail on all.
    """
    before = place.substitute
    place.substitute = ProcessGroup(check(handle), ranks)
    try:
        yield
    finally:
        place.substitute = before


def substituted(group: ProcessGroup) -> ProcessGroup:
    """Returns the handle on a group for a collective that begins now."""
    s = place.substitute
    return group if s is None or s._ranks != group._ranks else s


class GroupMember:
    """Names of groups: `WORLD`, the default one, and `NON_GROUP_MEMBER`, what outsiders get from `new_group`."""

    WORLD: ProcessGroup | None = None  # None stands for the default group of the calling rank
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
    """Returns a timeout, a timedelta or seconds, as the engine takes it; 0 for None."""
    if timeout is None:
        return 0
    if not isinstance(timeout, timedelta | int | float):
        raise TypeError(f"timeout: want a timedelta or seconds, got {type(timeout).__name__}")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if not seconds > 0:
        raise ValueError(f"timeout: want a positive time, got {timeout!r}")
    return max(1, int(min(seconds * 1e9, 2**63 - 1)))


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Makes the default group, of all ranks that were started together.

    Inside `spawn` the thread's own rank is found. A thread outside is the one rank of a world of its own.

    Args:
        backend: "local" or None; the names "gloo" and "nccl" of ported scripts mean the same
        init_method: not needed, for ranks of one process
        timeout: how long a rank waits for the others; 30 minutes by default
        world_size: if given, must be the number of ranks
        rank: if given, must be this rank's number
        store: not needed
        group_name: has no effect
        pg_options: has no effect
        device_id: becomes the rank's default device

    Raises:
        RuntimeError: if the group was made before.
        ValueError: if rank or world_size do not fit, or another backend is asked for.
    """
    r = here()
    if r.world is not None:
        raise RuntimeError(
            "init_process_group: the default process group was made before; destroy_process_group ends it"
        )
    known = ("local", "gloo", "nccl")
    for name in str(backend or "local").split(","):
        if name.rpartition(":")[2].lower() not in known:
            raise ValueError(f"init_process_group: want one of the backends {', '.join(known)}, got {backend!r}")
    if world_size not in (-1, r.size) or rank not in (-1, r.number):
        raise ValueError(
            f"init_process_group: this is rank {r.number} of {r.size}, got rank {rank} of {world_size}; "
            "start ranks with plait.distributed.spawn(fn, nprocs=n)"
        )
    if place.rank is None and running and threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "init_process_group: this thread belongs to no rank, while ranks run beside it. Threads that a rank's code "
            "starts belong to the rank: start it there, with threading or concurrent.futures"
        )
    if place.rank is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            f"init_process_group: WORLD_SIZE is {os.environ['WORLD_SIZE']}, but ranks that are processes are not "
            "available; start ranks with plait.distributed.spawn(fn, nprocs=n)"
        )
    limit = nanoseconds(timeout)
    if device_id is not None:
        set_default_device(device_id)
    if not r.handle:
        out = array("q", (0,))
        check(_core.bind_WorldNew(1, 0, address(out)))
        r.handle = out[0]
    r.world = ProcessGroup(check(_core.bind_GroupRenew(r.handle, limit)), range(r.size))


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Ends this rank's part in a group, or in all of its groups. Others that still need it get an error.

    `init_process_group` makes the default group anew, of the same ranks.

    Raises:
        ValueError: if there is no such group.
    """
    g = require(group, "destroy_process_group")
    r = here()
    try:
        r.finish()  # what goes on needs the group
    finally:
        check(_core.bind_GroupClose(g._h))
        if g is r.world:
            r.world = None
            r.groups.clear()
        else:
            r.groups = {k: v for k, v in r.groups.items() if v is not g}


def require(group: Any, op: str) -> ProcessGroup:
    """Returns a group, the default one for None.

    Raises:
        ValueError: if there is none.
        TypeError: if it is something else.
    """
    if group is None:
        world = here().world
        if world is None:
            raise ValueError(f"{op}: the default process group has not been made; call init_process_group first")
        return world
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"{op}: want a process group, got {type(group).__name__}")
    if group._of is not here():
        raise ValueError(
            f"{op}: got the process group {group.group_name!r} of rank {group._of.number} on rank {here().number}; "
            "each rank has its own, from new_group"
        )
    return group


def is_outside(group: Any) -> bool:
    """Whether this rank is not in the group, so that its calls do nothing, as `new_group` says."""
    return group is GroupMember.NON_GROUP_MEMBER


def is_available() -> bool:
    """Returns whether the package can run several ranks: always."""
    return True


def is_initialized() -> bool:
    """Returns whether this rank has a default group."""
    return here().world is not None


def is_mpi_available() -> bool:
    """Returns whether ranks can be processes that talk through MPI: not yet."""
    return False


def is_gloo_available() -> bool:
    """Returns False: that backend is PyTorch's."""
    return False


def is_nccl_available() -> bool:
    """Returns False: that backend is NVIDIA's."""
    return False


def is_torchelastic_launched() -> bool:
    """Returns False: ranks are started by `spawn`."""
    return False


def get_backend(group: ProcessGroup | None = None) -> str:
    """Returns the name of a group's backend."""
    return require(group, "get_backend").name()


def get_rank(group: Any = None) -> int:
    """Returns this rank's number in a group; -1 outside it."""
    return -1 if is_outside(group) else require(group, "get_rank").rank()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Returns this rank's number on its machine: ranks of one process are all on one.

    Args:
        fallback_rank: the answer where there is no default group
    """
    if here().world is None and fallback_rank is not None:
        return fallback_rank
    return get_rank()


def get_world_size(group: Any = None) -> int:
    """Returns the number of ranks in a group; -1 outside it."""
    return -1 if is_outside(group) else require(group, "get_world_size").size()


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Returns the global numbers of a group's ranks."""
    return list(require(group, "get_process_group_ranks")._ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Returns the global number of a rank of a group."""
    ranks = require(group, "get_global_rank")._ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"get_global_rank: the group has {len(ranks)} ranks, got {group_rank}")
    return ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Returns the number in a group of a global rank."""
    ranks = require(group, "get_group_rank")._ranks
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
    """Makes a group of some of the ranks. Every rank calls it, in the same order.

    Args:
        ranks: their global numbers; all of them by default
        timeout: how long a rank waits for the others; that of the default group by default
        backend: as in `init_process_group`
        pg_options: has no effect
        use_local_synchronization: has no effect
        group_desc: the group's name in messages
        device_id: has no effect
        sort_ranks: must be True: ranks of a group have the order of their global numbers

    Returns:
        The group, or `GroupMember.NON_GROUP_MEMBER` on ranks that are not in it.
    """
    if not sort_ranks:
        raise NotImplementedError("new_group: sort_ranks must be True")
    world = require(None, "new_group")
    chosen = list(range(world.size())) if ranks is None else sorted(int(r) for r in ranks)
    return _made(world, chosen, timeout, group_desc)


def _made(parent: ProcessGroup, chosen: list[int], timeout: timedelta | float | None, name: str | None) -> Any:
    numbers = array("q", chosen)
    status = _core.bind_GroupNew(parent._h, address(numbers), len(numbers), nanoseconds(timeout), name or "")
    handle = check(status)
    if handle == 0:
        return GroupMember.NON_GROUP_MEMBER
    g = ProcessGroup(handle, [parent._ranks[i] for i in chosen])
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
    """Cuts the ranks into groups of one size. Returns this rank's group and all of them."""
    parent = require(group, "new_subgroups")
    size = parent.size() if group_size is None else group_size
    if size <= 0 or parent.size() % size != 0:
        raise ValueError(f"new_subgroups: {parent.size()} ranks do not divide into groups of {group_size}")
    groups = [
        _made(parent, list(range(first, first + size)), timeout, group_desc) for first in range(0, parent.size(), size)
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
    """Cuts a group into several. Returns the one this rank is in, or None. `backend` is as in `new_group`."""
    parent = require(parent_pg, "split_group")
    if not split_ranks:
        raise ValueError("split_group: want the ranks of each new group, got none")
    mine = None
    for ranks in split_ranks:
        g = _made(parent, sorted(ranks), timeout, group_desc)
        if not is_outside(g):
            mine = g
    return mine
