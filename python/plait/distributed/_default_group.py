"""The default group, of all ranks: how a thread or a process becomes a rank of it, and leaves it."""

from __future__ import annotations

import os
import threading
from array import array
from datetime import timedelta
from typing import Any

from plait import _core
from plait._device import DeviceLike, set_default_device
from plait._engine.rank import here, place, running
from plait._engine.runtime import address, check
from plait.distributed._agreement import compare, wrong_variables
from plait.distributed._environment import started
from plait.distributed._groups import ProcessGroup, nanoseconds, resolve_group
from plait.distributed._processes import join_others
from plait.distributed._stores import Store

__all__ = ["destroy_process_group", "init_process_group"]


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: DeviceLike | None = None,
    *,
    heartbeat_timeout: timedelta | float | None = None,
    flight_records: str | os.PathLike[str] | None = None,
    communicator: Any = None,
) -> None:
    """Creates the default group, of all ranks that were started together.

    Inside `spawn`, the rank is the thread's. In a process that a launcher started with others, `python -m
    plait.distributed.run` or MPI's `mpiexec`, the process is a rank, and it waits for the other processes. Inside
    `spawn` in such processes, the ranks are the threads of all of them. Any other thread is the only rank of its world.

    Args:
        backend: "gloo", "nccl", "mpi" and "local" are accepted and mean the same: threads exchange data in memory, and
            processes by MPI
        init_method: has no effect: `spawn` or the launcher knows the ranks
        timeout: how long a rank waits for the others; 30 minutes by default, and 5 minutes for processes to join
        world_size: if given, must be the number of ranks
        rank: if given, must be this rank's number
        store: has no effect on how ranks find each other. PyTorch's rule holds: rank and world_size are given with it
        group_name: has no effect
        pg_options: has no effect
        device_id: becomes the rank's default device
        heartbeat_timeout: how long a process may be silent before it counts as lost; 30 seconds by default
        flight_records: a folder in which every process writes what its ranks did last when a rank is lost, late or
            disagrees; by default that of the environment variable PLAIT_FLIGHT_RECORDER, if it is set
        communicator: a communicator of mpi4py, or Fortran's number of one: its processes are the ranks, in its order.
            By default all processes that the launcher started are

    Raises:
        RuntimeError: if the default group exists already.
        ValueError: if rank or world_size is wrong, or the backend is unknown; if there is a store, and no launcher has
            started this process with others.
        DistributedError: if the other processes cannot be joined, or if something is wrong with them: versions, scripts
            and PLAIT_BLAS and PLAIT_TUNE must be the same everywhere.
    """
    r = here()
    if r.world is not None:
        raise RuntimeError(
            "init_process_group: the default process group was made before; destroy_process_group ends it"
        )
    known = ("local", "gloo", "nccl", "mpi")
    for name in str(backend or "local").split(","):
        if name.rpartition(":")[2].lower() not in known:
            raise ValueError(f"init_process_group: want one of the backends {', '.join(known)}, got {backend!r}")
    if place.rank is None and running and threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "init_process_group: this thread belongs to no rank, while ranks run beside it. Threads that a rank's code "
            "starts belong to the rank: start it there, with threading or concurrent.futures"
        )
    limit = nanoseconds(timeout)
    if store is not None:
        _check_store(store, init_method, rank, world_size)
    if communicator is None and place.rank is None and (how := started()).launcher == "hand" and how.size > 1:
        raise ValueError(
            f"init_process_group: {how.variable} is {how.size}, but no launcher started this process, so it cannot "
            f"find the others; {_advice()}"
        )
    join_others(limit, nanoseconds(heartbeat_timeout), communicator, world_size)
    wrong = ""
    if world_size not in (-1, r.size) or rank not in (-1, r.number):
        wrong = f"this is rank {r.number} of {r.size}, got rank {rank} of {world_size}; {_advice()}"
    if place.rank is None and r.size > 1:
        compare(r, wrong or ("" if communicator is not None else wrong_variables(r)))
    elif wrong:
        raise ValueError(f"init_process_group: {wrong}")
    if device_id is not None:
        set_default_device(device_id)
    if not r.handle:
        out = array("q", (0,))
        check(_core.bind_WorldNew(1, 0, address(out)))
        r.handle = out[0]
    if flight_records is not None:
        check(_core.bind_GroupWriteFlightRecords(r.handle, os.fspath(flight_records)))
    r.world = ProcessGroup(check(_core.bind_GroupRenew(r.handle, limit)), range(r.size))


def _check_store(store: Any, init_method: str | None, rank: int, world_size: int) -> None:
    """Checks what is given with a store."""
    if not isinstance(store, Store):
        raise TypeError(f"init_process_group: want a Store, got {type(store).__name__}")
    if init_method is not None:
        raise ValueError("init_process_group: want a store or an init_method, got both")
    if rank < 0 or world_size < 1:
        raise ValueError(
            f"init_process_group: a store wants rank and world_size beside it, got rank {rank} of {world_size}"
        )
    if world_size > 1 and place.rank is None and started().launcher in ("", "hand"):
        raise ValueError(
            f"init_process_group: got a store for rank {rank} of {world_size}, but no launcher started this process. "
            f"Ranks exchange data by MPI, not by a store; {_advice()}"
        )


def _advice() -> str:
    """Returns how ranks are started."""
    if place.rank is None and started().launcher not in ("", "hand"):
        return "the launcher says which rank a process is: leave both out"
    return (
        "start them with python -m plait.distributed.run --nproc-per-node N script.py, with mpiexec, or as threads "
        "with plait.distributed.spawn(fn, nprocs=n)"
    )


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Removes this rank from a group, or from all of its groups. Ranks that still wait for it there get an error.

    `init_process_group` can then create the default group again, with the same ranks.

    Raises:
        ValueError: if there is no such group.
    """
    g = resolve_group(group, "destroy_process_group")
    r = here()
    try:
        r.finish()  # asynchronous work may still need the group
    finally:
        check(_core.bind_GroupClose(g._h))
        if g is r.world:
            r.world = None
            r.groups.clear()
        else:
            r.groups = {k: v for k, v in r.groups.items() if v is not g}
